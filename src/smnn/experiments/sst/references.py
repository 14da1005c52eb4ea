"""Simple reference forecasts of a grid, and the coupled forecast of this library."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smnn.datasets.sst import seasonal_waves
from smnn.experiments.sst.modes import fit_modes
from smnn.forecasting import Forecaster

DAMPING = 0.8
"""Factor of an anomaly over a month."""
MONTHS = 12
HARMONICS = 3
CLIMATOLOGY = "climatology"
TREND = "trend + season"
DAMPED = "trend, damped anomaly"
DAMPED_CLIMATOLOGY = "season, damped anomaly"
REFERENCES = (
    "previous chunk", "last year", CLIMATOLOGY, DAMPED_CLIMATOLOGY, TREND, DAMPED,
)  # fmt: skip
CELLS, MODES, COUPLED, FORECASTER = "cells", "modes", "coupled", "Forecaster"
OURS = (CELLS, MODES, COUPLED, FORECASTER)
HALF_LIFE = 60.0
"""Half-life in months of the weights of observations for level and seasons."""
OWN = 0.5
"""Weight of a cell's own slope; the mean slope of all cells has the remaining weight."""
QUIET = 0.5
"""Cells whose anomalies are below this share of the median size give their own slope more weight:
water under ice stays at its freezing point while other cells warm."""
SHARE = 0.5
"""Weight of the modes in the coupled forecast."""


@dataclass(frozen=True)
class Cycle:
    """Least-squares fit of mean, seasons and optionally a linear trend of every cell."""

    weights: np.ndarray
    """`(F, N)`."""
    design: np.ndarray
    """`(T, F)` for all times, including those after the history."""

    def __call__(self, part: slice) -> np.ndarray:
        """`(len, N)` values at some times."""
        return np.asarray(self.design[part] @ self.weights)


def fit_cycle(series: np.ndarray, time: np.ndarray, until: int, *, trend: bool) -> Cycle:
    """Fit to the first `until` times of a series `(T, N)` with dates `time (T,)`."""
    design = seasonal_waves(time, HARMONICS)
    if trend:
        design = np.concatenate([design, _decades(time)[:, None]], axis=1)
    weights = np.linalg.lstsq(design[:until], series[:until], rcond=None)[0]
    return Cycle(weights, design)


def references(
    series: np.ndarray, time: np.ndarray, until: int, horizon: int, year: float = MONTHS
) -> dict[str, np.ndarray]:
    """Forecasts `(horizon, N)` from the first `until` times of a series `(T, N)`.

    Later values are not used; the dates `time` extend to the end of the forecast.
    """
    ahead = slice(until, until + horizon)
    fading = DAMPING ** (MONTHS / year * np.arange(1, horizon + 1)[:, None])
    plain = fit_cycle(series, time, until, trend=False)
    line = fit_cycle(series, time, until, trend=True)
    last = slice(until - 1, until)
    whole = round(year)
    again = np.tile(series[until - whole : until], (-(-horizon // whole), 1))[:horizon]
    return {
        "previous chunk": series[until - horizon : until].copy(), "last year": again,
        CLIMATOLOGY: plain(ahead),
        DAMPED_CLIMATOLOGY: plain(ahead) + fading * (series[last] - plain(last)),
        TREND: line(ahead), DAMPED: line(ahead) + fading * (series[last] - line(last)),
    }  # fmt: skip


def coupled(
    series: np.ndarray, time: np.ndarray, until: int, horizon: int, year: float = MONTHS
) -> dict[str, np.ndarray]:
    """Forecasts `(horizon, N)` with a shared trend and coupled anomalies.

    Level and seasons are fitted with exponentially decaying weights; slopes are shrunk towards the
    mean slope of all cells, because each alone is uncertain. Anomalies decay in place ("cells"), or
    the leading modes follow a system of ODEs ("modes"); "coupled" is the mean of both.

    `HALF_LIFE`, `OWN` and `SHARE` are the setting that is better than the best reference from each
    of 13 origins whose targets end before the last 48 months, over one year and over four; for
    weekly data they are converted and were not chosen again.
    """
    decades = _decades(time)
    line = fit_cycle(series, time, until, trend=True)
    slope = line.weights[-1]
    spread = (series[:until] - line(slice(0, until))).std(0)
    usual = max(QUIET * float(np.median(spread)), 1e-12)
    slope = slope + (1 - OWN) * np.minimum(1.0, spread / usual) ** 2 * (slope.mean() - slope)
    level = series[:until] - decades[:until, None] * slope
    waves = seasonal_waves(time, HARMONICS)
    root = 0.5 ** (np.arange(until)[::-1, None] / (2 * HALF_LIFE * year / MONTHS))
    weights = np.linalg.lstsq(root * waves[:until], root * level, rcond=None)[0]
    ahead = slice(until, until + horizon)
    base = waves[ahead] @ weights + decades[ahead, None] * slope
    anomalies = level - waves[:until] @ weights
    fading = DAMPING ** (MONTHS / year * np.arange(1, horizon + 1)[:, None])
    still = base + fading * anomalies[-1]
    moving = base + fit_modes(anomalies).forecast(horizon)
    return {CELLS: still, MODES: moving, COUPLED: (1 - SHARE) * still + SHARE * moving}


def by_forecaster(series: np.ndarray, time: np.ndarray, until: int, horizon: int) -> np.ndarray:
    """`(horizon, N)` by `Forecaster` with default settings."""
    model = Forecaster(same_units=True).fit(series[:until], time[:until], horizon=horizon)
    return np.asarray(model.predict().mean)


def _decades(time: np.ndarray) -> np.ndarray:
    """`(T,)` since the first time."""
    return np.asarray((time - time[0]) / np.timedelta64(1, "D") / 3652.425)
