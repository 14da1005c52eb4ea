"""Small synthetic grids of sea surface temperatures."""

import numpy as np

from smnn.datasets.sst import Grid


def small_grid(times: int = 200, seed: int = 0) -> Grid:
    """Seasons, a warming trend and noise on a small globe with a continent."""
    rng = np.random.default_rng(seed)
    lat, lon = np.linspace(-80, 80, 9), np.arange(0, 360, 30.0)
    time = (np.datetime64("1990-01") + np.arange(times)).astype("datetime64[ns]")
    phase = 2 * np.pi * np.arange(times)[:, None, None] / 12
    values = 28 * np.cos(np.deg2rad(lat))[None, :, None] + 0.002 * np.arange(times)[:, None, None]
    values = values + 0.05 * lat[None, :, None] * np.cos(phase)
    noise = rng.normal(size=(times, len(lat), len(lon)))
    for t in range(1, times):
        noise[t] = 0.8 * noise[t - 1] + 0.3 * noise[t]
    values = np.rint(100 * (values + 0.5 * noise)).astype(np.float32) * np.float32(0.01)
    values[:, 3:6, 2:4] = np.nan
    return Grid(values, time, lat, lon, np.isfinite(values).all(0), source="made for a test")


def weekly_grid(weeks: int = 1727) -> Grid:
    """An annual cycle with noise on a few cells."""
    time = np.datetime64("1990-01-03", "ns") + np.arange(weeks) * np.timedelta64(7, "D")
    wave = np.cos(2 * np.pi * np.arange(weeks) / (365.2425 / 7))[:, None, None]
    values = (10 + wave * np.ones((1, 2, 6))).astype(np.float32)
    values += 0.1 * np.random.default_rng(0).normal(size=values.shape).astype(np.float32)
    return Grid(values, time, np.array([-10.0, 10]), np.arange(6) * 60.0, np.ones((2, 6), bool))
