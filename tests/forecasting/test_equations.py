"""Fits of candidate equations, compared with independent solutions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smnn.forecasting._model import regression
from smnn.forecasting._model.panel import Panel
from smnn.forecasting._model.seasons import Season
from smnn.forecasting._model.spec import CLIMATOLOGY, TREND, Spec
from smnn.forecasting._time import Clock, make_clock

FREE = 1 / regression.PULL["level"] ** 2
"""Prior variance of the level."""
WEEK = Season("7", 7.0, 2, 7.0)


def panel(y: np.ndarray, clock: Clock, seasons: tuple[Season, ...] = (), horizon: int = 4) -> Panel:
    return Panel(y, y, clock, seasons, None, np.ones((len(y), 1)), False, horizon)


def forecast(made: Panel, spec: Spec, future: Clock | None = None) -> np.ndarray:
    """`(S, H)` forecast from the end of the history."""
    n = len(made.clock)
    (fit,) = made.fit([spec], [n], n)
    future = made.clock.after(made.horizon) if future is None else future
    return np.sum([*made.components(fit, n, future, None).values()], axis=0)


def uneven(seed: int, count: int = 25) -> tuple[Clock, Clock, np.ndarray]:
    """A history at uneven times with gaps, and three future times."""
    rng = np.random.default_rng(seed)
    clock = make_clock(np.sort(rng.uniform(0, 30, count)), count)
    end = float(clock.steps[-1])
    ahead = np.array([0.5, 3.0, 9.0])
    future = Clock(ahead, end + ahead, clock.origin, 0, clock.length)
    y = rng.standard_normal((3, count))
    y[0, 5:9] = np.nan
    y[1, -4:] = np.nan
    return clock, future, y


@pytest.mark.parametrize("decay", [0.2, 0.8, 0.99])
@pytest.mark.parametrize("seed", [0, 1])
def test_damped_anomaly_is_the_conditional_mean_at_uneven_times(decay: float, seed: int) -> None:
    """x' = -kx + noise observed with noise: a Gaussian process with covariance v exp(-k|t|)."""
    clock, future, y = uneven(seed)
    made, spec = panel(y, clock), Spec("none", decay=decay, ratio=3.0)
    t = np.concatenate([clock.steps, future.steps])
    covariance = 3.0 * decay ** np.abs(t[:, None] - t) + FREE
    found = np.concatenate([made.fitted(spec, len(clock)), forecast(made, spec, future)], axis=1)
    for row, curve in zip(y, found):
        seen = np.flatnonzero(np.isfinite(row))
        among = covariance[np.ix_(seen, seen)] + np.eye(len(seen))
        expected = covariance[:, seen] @ np.linalg.solve(among, row[seen])
        # The prior variance of the level, 1e6, limits the accuracy to six digits.
        np.testing.assert_allclose(curve, expected, atol=1e-6)


@pytest.mark.parametrize("spec", [Spec("none", ratio=3.0), Spec("linear", decay=1.0, ratio=0.3)])
def test_the_forecast_continues_the_trajectory_of_the_solver(spec: Spec) -> None:
    """A joint solution of history and future by `smnn.solve` is the forecast of the filter."""
    clock = make_clock(None, 60)
    y = np.random.default_rng(3).standard_normal((2, 60)).cumsum(1)
    made = panel(y, clock, (WEEK,), horizon=10)
    (fit,) = made.fit([spec], [60], 60)
    whole = clock.join(clock.after(10))
    past = np.concatenate([made.without_constants(fit, slice(0, 60)), np.full((2, 10), np.nan)], 1)
    anomaly = regression.trajectory(past, whole.steps, spec)
    expected = made.components(fit, 60, clock.after(10), None).get("anomaly")
    np.testing.assert_allclose(anomaly[:, 60:], expected, atol=1e-7)


def test_random_walk_is_exponential_smoothing() -> None:
    """The steady state of a local level model: a constant gain."""
    n, q = 400, 0.5
    y = np.random.default_rng(0).standard_normal((1, n)).cumsum(1)
    share = (-q + np.sqrt(q**2 + 4 * q)) / 2
    level = y[0, 0]
    for value in y[0, 1:]:
        level += share * (value - level)
    found = forecast(panel(y, make_clock(None, n)), Spec("none", decay=1.0, ratio=q))
    np.testing.assert_allclose(found, np.full((1, 4), level), rtol=1e-6)


@pytest.mark.parametrize(("spec", "columns"), [(CLIMATOLOGY, 1), (TREND, 2)])
def test_constants_are_ordinary_least_squares(spec: Spec, columns: int) -> None:
    n, H = 120, 24
    y = np.random.default_rng(1).standard_normal((4, n)) + np.arange(n) / 50
    found = forecast(panel(y, make_clock(None, n), (Season("12", 12.0, 3, 12.0),), H), spec)
    t = np.arange(n + H)
    waves = [f(2 * np.pi * j * t / 12) for j in (1, 2, 3) for f in (np.cos, np.sin)]
    X = np.stack([np.ones(n + H), t][:columns] + waves, axis=1)
    expected = X[n:] @ np.linalg.lstsq(X[:n], y.T, rcond=None)[0]
    np.testing.assert_allclose(found, expected.T, atol=2e-4)


SPECS = [Spec(), Spec("damped", decay=1.0, ratio=0.3), Spec("none", seasonal=False), TREND]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_forecasts_from_an_origin_see_only_the_window_before_it(spec: Spec) -> None:
    n, origins = 90, [80, 61, 40]
    y = np.random.default_rng(2).standard_normal((3, n)).cumsum(1)
    y[1, 30:35] = np.nan
    whole = panel(y, make_clock(None, n), (WEEK,))
    fits = whole.fit(SPECS, origins, n)
    ahead = whole.ahead(fits[SPECS.index(spec)], origins)
    later = np.where(np.arange(n) < 40, y, 1e3 + y)
    other = panel(later, whole.clock, (WEEK,))
    (fit,) = other.fit([spec], [40], n)
    # The series are centred by the mean of all values; the small penalties are relative to it.
    np.testing.assert_allclose(other.ahead(fit, [40])[0], ahead[2], atol=0.01)
    if spec.ratio == 0:
        (short,) = whole.fit([spec], [80], 20)
        (cut,) = whole.part(np.arange(3), 60).fit([spec], [20], 20)
        expected = whole.part(np.arange(3), 60).ahead(cut, [20])
        np.testing.assert_allclose(whole.ahead(short, [80]), expected, atol=0.02)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_series_with_identical_gaps_share_columns(spec: Spec) -> None:
    n, S = 50, 120
    y = np.random.default_rng(4).standard_normal((S, n))
    y[:70, 10:20] = np.nan  # two shared patterns of gaps, and some individual ones
    y[-3:, [3, 17, 40]] = np.nan
    clock = make_clock(None, n)
    alone = np.concatenate([forecast(panel(row[None], clock, (WEEK,)), spec) for row in y])
    np.testing.assert_allclose(forecast(panel(y, clock, (WEEK,)), spec), alone, atol=1e-8)


@given(st.lists(st.floats(0.01, 50.0), min_size=1, max_size=20), st.floats(0.01, 0.999))
def test_weights_of_a_damped_term_on_any_grid(steps: list[float], decay: float) -> None:
    zero, link = regression._weights(np.array(steps), Spec(decay=decay, ratio=2.0))
    assert np.isfinite(zero).all()
    assert (zero >= 0).all()
    assert np.isfinite(link).all()
    # The resulting precision matrix is the inverse of the covariance.
    t = np.concatenate([[0.0], np.cumsum(steps)])
    precision = np.diag(zero**2)
    for i, w in enumerate(link):
        precision[i : i + 2, i : i + 2] += 2 * w**2 * np.array([[1, -1], [-1, 1]])
    covariance = 2.0 * decay ** np.abs(t[:, None] - t)
    np.testing.assert_allclose(precision @ covariance, np.eye(len(t)), atol=1e-6)
