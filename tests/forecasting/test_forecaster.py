"""Forecasts of series whose future is known."""

import numpy as np
import pandas as pd
import pytest

from smnn.forecasting import Forecaster, SeriesError

T = np.arange(180)
SEASON = 3 * np.sin(2 * np.pi * T / 12) + np.cos(4 * np.pi * T / 12)


def noise(scale: float, seed: int = 0) -> np.ndarray:
    return scale * np.random.default_rng(seed).normal(size=len(T))


def test_trend_and_season() -> None:
    y = 10 + 0.1 * T + SEASON + noise(0.2)
    forecast = Forecaster(season=12).fit(y[:144], horizon=36).predict()
    truth = (10 + 0.1 * T + SEASON)[144:]
    assert np.sqrt(((forecast.mean - truth) ** 2).mean()) < 0.3
    assert forecast.mean.shape == forecast.lower.shape == forecast.upper.shape == (36,)
    assert (forecast.lower < forecast.mean).all()
    assert (forecast.mean < forecast.upper).all()


def test_missing_values_and_dates() -> None:
    y = pd.Series(
        10 + SEASON + noise(0.2, 1), index=pd.date_range("2000-01-01", periods=len(T), freq="MS")
    )
    y.iloc[np.random.default_rng(2).random(len(T)) < 0.2] = np.nan
    forecast = Forecaster().fit(y[:144], horizon=24).predict()
    assert np.sqrt(((forecast.mean - (10 + SEASON)[144:168]) ** 2).mean()) < 0.5


def test_intervals_cover() -> None:
    inside = []
    for seed in range(6):
        y = 5 + SEASON + noise(0.5, seed)
        forecast = Forecaster(season=12).fit(y[:150], horizon=24).predict()
        inside.append((forecast.lower <= y[150:174]) & (y[150:174] <= forecast.upper))
    assert 0.78 <= np.mean(inside) <= 0.99


def test_random_walk_is_not_overinterpreted() -> None:
    """No forecast of a random walk beats its last value; ours must not be far worse."""
    ours, naive = 0.0, 0.0
    for seed in range(4):
        y = np.cumsum(noise(1.0, seed))
        forecast = Forecaster(season=None).fit(y[:160], horizon=20).predict()
        ours += ((forecast.mean - y[160:]) ** 2).mean()
        naive += ((y[159] - y[160:]) ** 2).mean()
    assert ours < 1.5 * naive


def test_many_series_at_once() -> None:
    panel = np.stack([10 * k + SEASON + noise(0.2, k) for k in range(5)], 1)
    forecast = Forecaster(season=12).fit(panel[:150], horizon=12).predict()
    truth = np.stack([10 * k + SEASON for k in range(5)], 1)[150:162]
    assert forecast.mean.shape == (12, 5)
    assert np.abs(forecast.mean - truth).max() < 0.6


def test_constant_series() -> None:
    forecast = Forecaster(season=12).fit(np.full(100, 7.0), horizon=10).predict()
    np.testing.assert_allclose(forecast.mean, 7.0, atol=1e-6)


def test_errors() -> None:
    with pytest.raises(SeriesError, match=r"y: every value is missing; expected at least one"):
        Forecaster().fit(np.full(50, np.nan))
    with pytest.raises(SeriesError, match="trend: got 'cubic'; expected one of auto, none"):
        Forecaster(trend="cubic").fit(np.arange(60.0))
