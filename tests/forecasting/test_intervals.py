"""Coverage of the intervals, and robustness of the forecasts."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from smnn.forecasting import Forecaster, backtest
from smnn.forecasting._model.intervals import Calibration, calibrate
from smnn.forecasting._model.search import choose_origins

Draw = Callable[[np.random.Generator, int], np.ndarray]


def damped(rng: np.random.Generator, n: int) -> np.ndarray:
    x = np.zeros(n + 50)
    for i, e in enumerate(rng.standard_normal(n + 49), 1):
        x[i] = 0.8 * x[i - 1] + e
    return x[50:]


def oscillator(rng: np.random.Generator, n: int) -> np.ndarray:
    """x'' + 2k x' + w² x = noise, period 15 and damping time 30, observed with noise."""
    z = np.zeros(n + 50, complex)
    turn = np.exp(-1 / 30 + 2j * np.pi / 15)
    noise = rng.standard_normal((n + 50, 2)) @ [1, 1j]
    for i in range(1, n + 50):
        z[i] = turn * z[i - 1] + noise[i]
    return z.real[50:] + 0.5 * rng.standard_normal(n)


def seasonal(rng: np.random.Generator, n: int) -> np.ndarray:
    t = np.arange(n)
    return 10 + 0.05 * t + 2 * np.sin(2 * np.pi * t / 12) + rng.standard_normal(n)


KINDS: dict[str, tuple[Draw, float | None]] = {
    "damped": (damped, None),
    "random walk": (lambda rng, n: rng.standard_normal(n).cumsum(), None),
    "trend and season": (seasonal, 12),
    "oscillator": (oscillator, None),
}


@pytest.mark.parametrize("kind", KINDS)
def test_coverage(kind: str) -> None:
    """Eight series of 110 times; errors within a forecast are correlated, hence the wide bounds."""
    draw, season = KINDS[kind]
    rng = np.random.default_rng(list(kind.encode()))
    inside = []
    for _ in range(8):
        y = draw(rng, 120)
        forecast = Forecaster(season=season).fit(y[:110], horizon=10).predict()
        inside.append((forecast.lower <= y[110:]) & (y[110:] <= forecast.upper))
    assert 0.78 <= np.mean(inside) <= 0.995


@pytest.mark.parametrize(
    ("count", "horizon", "season", "aligned"),
    [(1578, 26, 52.178, False), (2000, 13, 52.0, False), (372, 6, 12.0, False),
     (372, 12, 12.0, True), (700, 48, 24.0, True), (1000, 35, 7.0, True)],
)  # fmt: skip
def test_phases_of_the_origins(count: int, horizon: int, season: float, aligned: bool) -> None:
    """They are that of the forecast if it covers whole seasons, and spread evenly otherwise."""
    origins = choose_origins(count, horizon, season, 12, [season])
    assert len(origins) == 12
    assert origins[0] == count - horizon
    phases = np.sort((np.array(origins) - count) / season % 1)
    gaps = np.diff(phases, append=phases[0] + 1)
    if aligned:
        assert not phases.any()
    else:
        assert gaps.max() < 0.2


def test_noise_that_depends_on_the_season() -> None:
    """The errors that calibrate the intervals are not all from the quiet half of the year."""
    rng = np.random.default_rng(0)
    t = np.arange(1026)
    noise = np.where((t - 1000) % 52 < 26, 1.0, 0.1) * rng.standard_normal(len(t))
    y = np.sin(2 * np.pi * t / 52) + noise
    forecast = Forecaster(season=52).fit(y[:1000], horizon=26).predict()
    assert np.mean((forecast.lower <= y[1000:]) & (y[1000:] <= forecast.upper)) > 0.6


def test_intervals_increase_with_the_level() -> None:
    y = damped(np.random.default_rng(0), 100)
    forecast = Forecaster(season=None).fit(y, horizon=8).predict()
    half, most = forecast.interval(0.5), forecast.interval(0.99)
    assert (most[0] < forecast.lower).all()
    assert (forecast.lower < half[0]).all()
    assert (half[1] < forecast.upper).all()
    assert (forecast.upper < most[1]).all()


def test_few_origins_widen_intervals() -> None:
    errors = np.random.default_rng(1).standard_normal((1, 40, 5))
    few, many = (
        calibrate(x, np.ones(1), x, x.shape[1]).width(0.9, 5) for x in (errors[:, :3], errors)
    )
    assert few.mean() > 1.1 * many.mean()
    np.testing.assert_allclose(many, 1.645, rtol=0.25)


def test_calibration_of_known_errors() -> None:
    """For the errors of a random walk, the spread grows with the square root of the lead."""
    errors = np.random.default_rng(2).standard_normal((1, 4000, 16)).cumsum(2)
    found = calibrate(errors, np.ones(1), errors, 4000)
    expected = np.sqrt(np.arange(2, 17))
    np.testing.assert_allclose(found.spread[0, 1:], expected, rtol=0.02)
    beyond = found.at(64)[0]
    np.testing.assert_allclose(beyond[-1], 8.0, rtol=0.1)  # extrapolated as a square root
    without_errors = Calibration(np.ones((1, 4)), np.zeros(0), 101.0)
    assert without_errors.factor(0.9) == pytest.approx(1.6602, abs=1e-4)  # Student, two-sided


def test_untested_leads_of_a_constant() -> None:
    still = Calibration(np.zeros((1, 4)), np.zeros(0), 3.0)
    np.testing.assert_array_equal(still.at(9), np.zeros((1, 9)))


# ---------------------------------------------------------------- robustness


def air(n: int = 144) -> np.ndarray:
    """Similar to the airline passengers: growth with a proportional season."""
    t = np.arange(n)
    season = 1 + 0.2 * np.sin(2 * np.pi * t / 12) + 0.1 * np.cos(4 * np.pi * t / 12)
    return (
        100 * np.exp(0.01 * t) * season * np.exp(0.03 * np.random.default_rng(3).standard_normal(n))
    )


def spots(n: int = 200) -> np.ndarray:
    t = np.arange(n)
    rng = np.random.default_rng(4)
    return np.maximum(50 * (1 + np.sin(2 * np.pi * t / 11 + 0.5 * np.sin(t / 40))), 0) + np.abs(
        5 * rng.standard_normal(n)
    )


def hourly() -> pd.Series:
    t = np.arange(24 * 7 * 4)
    rng = np.random.default_rng(5)
    y = (
        50
        + 10 * np.sin(2 * np.pi * t / 24)
        + 8 * ((t // 24) % 7 >= 5)
        + rng.standard_normal(len(t))
    )
    return pd.Series(y, pd.date_range("2024-01-01", periods=len(t), freq="h"))


UNUSUAL: dict[str, tuple[object, int]] = {
    "airline": (air(), 24),
    "sunspots": (spots(), 22),
    "random walk": (np.random.default_rng(6).standard_normal(150).cumsum(), 20),
    "mostly zero": (
        (np.random.default_rng(7).random(120) < 0.2)
        * np.random.default_rng(8).poisson(4.0, 120).astype(float),
        10,
    ),
    "change of level": (
        np.random.default_rng(9).standard_normal(120) + 8.0 * (np.arange(120) > 80),
        10,
    ),
    "hourly": (hourly(), 48),
    "thirty points": (10 + 0.3 * np.arange(30) + np.random.default_rng(10).standard_normal(30), 5),
    "billions": (1e9 * air(100), 12),
    "billionths": (1e-9 * air(100), 12),
    "integers": (np.random.default_rng(11).poisson(20, 100), 10),
    "a falling series that stays positive": (np.exp(-0.05 * np.arange(80.0)), 20),
    "one outlier": (np.where(np.arange(100) == 60, 1e6, np.sin(np.arange(100.0))), 10),
    "constant": (np.full(50, 3.0), 10),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_forecasts_stay_in_a_plausible_range(name: str) -> None:
    y, horizon = UNUSUAL[name]
    values = np.asarray(y, float)
    forecast = Forecaster().fit(y, horizon=horizon).predict()
    low, high = values.min(), values.max()
    room = max(high - low, 1e-12)
    for x in (forecast.mean, forecast.lower, forecast.upper):
        assert np.isfinite(x).all()
    assert (forecast.lower <= forecast.mean).all()
    assert (forecast.mean <= forecast.upper).all()
    assert (forecast.mean >= low - room).all()
    assert (forecast.mean <= high + room).all()
    assert (forecast.upper <= high + 4 * room).all()
    if low >= 0:
        assert (forecast.lower >= 0).all()


def test_never_much_worse_than_the_best_reference() -> None:
    """Compared with the best of six references in hindsight; three origins are a small sample."""
    ratios = []
    for name in ("airline", "random walk", "mostly zero", "thirty points"):
        y, horizon = UNUSUAL[name]
        found = backtest(y, horizon=min(horizon, 10), origins=3)
        ratios.append(found.rmse() / found.rmse(found.methods[1]))
    assert max(ratios) < 1.6
    assert np.exp(np.log(ratios).mean()) < 1.25


def test_scale_equivariance() -> None:
    a = Forecaster().fit(air(100), horizon=12).predict()
    for factor in (1e9, 1e-9):
        b = Forecaster().fit(factor * air(100), horizon=12).predict()
        np.testing.assert_allclose(b.mean, factor * a.mean, rtol=1e-6)
        np.testing.assert_allclose(b.upper, factor * a.upper, rtol=1e-6)


def test_clipping_at_zero() -> None:
    y = np.maximum(5 - 0.1 * np.arange(60.0), 0.2)
    y = y + 0.05 * np.random.default_rng(12).random(60)
    clipped = Forecaster(season=None, log=False, trend="linear").fit(y, horizon=30).predict()
    free = Forecaster(season=None, log=False, trend="linear", nonnegative=False).fit(y, horizon=30)
    assert (clipped.lower >= 0).all()
    assert free.predict().lower.min() < 0


def test_a_daily_random_walk_has_no_seasons() -> None:
    """The calendar offers two seasons, but cross-validation rejects them."""
    y = np.random.default_rng(13).standard_normal(800).cumsum()
    days = pd.date_range("2020-01-01", periods=800, freq="D")
    forecast = Forecaster().fit(pd.Series(y, days), horizon=14).predict()
    assert np.abs(forecast.mean - y[-1]).max() < 5


@pytest.mark.filterwarnings("error")
def test_a_history_with_long_gaps() -> None:
    """There are no observations after most origins."""
    y = np.full(60, np.nan)
    y[:20] = np.sin(np.arange(20.0))
    y[-3:] = 0.5
    forecast = Forecaster(season=None).fit(y, horizon=5).predict()
    assert np.isfinite([forecast.mean, forecast.lower, forecast.upper]).all()
    assert np.abs(forecast.mean).max() < 3
