"""Forecasts of series whose future is known, and the interface of `Forecaster`."""

import warnings

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


def test_random_walk_is_not_overinterpreted() -> None:
    """The last value is the best forecast of a random walk; the error must not be much larger."""
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
    with pytest.raises(SeriesError, match=r"log: got True, but series 'b' has values that are not"):
        Forecaster(log=True).fit(pd.DataFrame({"a": np.arange(1.0, 61), "b": np.arange(60.0)}))
    with pytest.raises(ValueError, match=r"level: got 2; expected a probability"):
        Forecaster().fit(np.arange(20.0), horizon=2).predict(level=2)


def test_parameters_follow_scikit_learn() -> None:
    forecaster = Forecaster(season=[7, 30], trend="damped", level=0.8)
    params = forecaster.get_params()
    assert params["season"] == [7, 30]
    assert set(params) == {
        "season", "harmonics", "trend", "log", "modes", "nonnegative", "same_units", "origins",
        "level",
    }  # fmt: skip
    assert Forecaster(**params).get_params() == params
    assert forecaster.set_params(level=0.5, log=False) is forecaster
    assert (forecaster.level, forecaster.log) == (0.5, False)
    with pytest.raises(ValueError, match="'levels' is not a parameter of Forecaster"):
        forecaster.set_params(levels=0.5)
    clone = pytest.importorskip("sklearn.base").clone
    assert clone(forecaster).get_params() == forecaster.get_params()


def test_series_with_too_few_values() -> None:
    y = pd.DataFrame({"full": noise(1.0), "empty": np.nan, "one": np.where(T == 170, 1.0, np.nan)})
    with pytest.warns(UserWarning, match=r"2 of 3 series have fewer than 4 values \(empty, one\)"):
        forecaster = Forecaster(season=None).fit(y, horizon=5)
    forecast = forecaster.predict()
    assert np.isfinite(forecast.mean[:, 0]).all()
    assert np.isnan(forecast.mean[:, 1:]).all()
    assert forecast.record([1])["empty"]["mean"] == [None] * 5
    assert "not fitted" in str(forecaster.equation("one"))


def test_numpy_warnings_do_not_leak() -> None:
    """An outlier of zero in a positive series, gaps, and a series that starts late."""
    late = np.where(T < 165, np.nan, 5.0 + noise(0.1))
    gaps = np.where(T % 50 < 25, np.nan, 50 + noise(1.0))
    zero = np.where(T == 100, 0.0, np.exp(0.02 * T + noise(0.05)) + 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = np.stack([late, gaps, zero], 1)
        forecast = Forecaster(season=None).fit(y, horizon=12).predict()
        assert np.isfinite(forecast.upper).all()
