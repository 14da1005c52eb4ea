"""The least-squares rows of a candidate equation, compared with independent solutions."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smnn.forecasting._model import system
from smnn.forecasting._model.seasons import Season
from smnn.forecasting._model.spec import CLIMATOLOGY, TREND, Spec
from smnn.forecasting._model.system import end_states, make_system, same_gaps, trajectories
from smnn.forecasting._time import Clock, make_clock

FREE = 1 / system.FREE**2
"""Prior variance of the level."""


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


def gaussian(
    covariance: np.ndarray, noise: np.ndarray, y: np.ndarray
) -> np.ndarray:  # fmt: skip
    """Conditional mean at all times (history, then future) of a Gaussian process."""
    seen = np.flatnonzero(np.isfinite(y))
    among = covariance[np.ix_(seen, seen)] + np.diag(noise[seen])
    mean: np.ndarray = covariance[:, seen] @ np.linalg.solve(among, y[seen])
    return mean


@pytest.mark.parametrize("decay", [0.2, 0.8, 0.99])
@pytest.mark.parametrize("seed", [0, 1])
def test_damped_anomaly_is_the_conditional_mean_at_uneven_times(decay: float, seed: int) -> None:
    """x' = -kx + noise observed with noise: a Gaussian process with covariance v exp(-k|t|)."""
    clock, future, y = uneven(seed)
    system = make_system(Spec("none", decay=decay, ratio=3.0), clock, future, [])
    t = np.concatenate([clock.steps, future.steps])
    covariance = 3.0 * decay ** np.abs(t[:, None] - t) + FREE
    fitted = (trajectories(system, y) * system.h).sum(-1)
    (states,) = end_states([system], y)
    for row, curve, ahead in zip(y, fitted, states @ system.ahead.T):
        expected = gaussian(covariance, np.ones(len(t)), row)
        # The prior variance of the level, 1e6, limits the accuracy to six digits.
        np.testing.assert_allclose(np.concatenate([curve, ahead]), expected, atol=3e-7)


@pytest.mark.parametrize("decay", [0.7, 0.97])
def test_free_oscillation_is_a_damped_oscillator(decay: float) -> None:
    """Its covariance is that of x'' + 2k x' + (k² + ω²) x = noise, with both quadratures driven."""
    clock, future, y = uneven(3)
    spec = Spec("none", ratio=0.0, cycle=5.0, cycle_decay=decay)
    system = make_system(spec, clock, future, [])
    t = np.concatenate([clock.steps, future.steps])
    lag = np.abs(t[:, None] - t)
    variance = next(term.variance for term in system.terms if term.kind == "cycle")
    covariance = 2 * variance * decay**lag * np.cos(2 * np.pi * lag / 5.0) + FREE
    (states,) = end_states([system], y)
    for row, ahead in zip(y, states @ system.ahead.T):
        expected = gaussian(covariance, np.ones(len(t)), row)[-3:]
        np.testing.assert_allclose(ahead, expected, atol=3e-7)


def test_random_walk_is_exponential_smoothing() -> None:
    """The steady state of a local level model: a constant gain."""
    n, q = 400, 0.5
    clock = make_clock(None, n)
    y = np.random.default_rng(0).standard_normal((1, n)).cumsum(1)
    system = make_system(Spec("none", decay=1.0, ratio=q), clock, clock.after(1), [])
    (states,) = end_states([system], y)
    share = (-q + np.sqrt(q**2 + 4 * q)) / 2
    level = y[0, 0]
    for value in y[0, 1:]:
        level += share * (value - level)
    np.testing.assert_allclose(states @ system.ahead.T, [[level]], rtol=1e-6)


@pytest.mark.parametrize(("spec", "columns"), [(CLIMATOLOGY, 1), (TREND, 2)])
def test_constants_are_ordinary_least_squares(spec: Spec, columns: int) -> None:
    n, H = 120, 24
    clock = make_clock(None, n)
    season = Season("12", 12.0, 3, 12.0)
    y = np.random.default_rng(1).standard_normal((4, n)) + np.arange(n) / 50
    system = make_system(spec, clock, clock.after(H), [season])
    t = np.arange(n + H)
    waves = [f(2 * np.pi * j * t / 12) for j in (1, 2, 3) for f in (np.cos, np.sin)]
    X = np.stack([np.ones(n + H), t][:columns] + waves, axis=1)
    expected = X[n:] @ np.linalg.lstsq(X[:n], y.T, rcond=None)[0]
    (states,) = end_states([system], y)
    np.testing.assert_allclose(states @ system.ahead.T, expected.T, atol=2e-4)


def test_half_life_weights_observations() -> None:
    n = 60
    clock = make_clock(None, n)
    y = np.random.default_rng(2).standard_normal((1, n))
    system = make_system(replace(CLIMATOLOGY, half_life=10.0), clock, clock.after(1), [])
    weights = 0.5 ** (np.arange(n)[::-1] / 10)
    (states,) = end_states([system], y)
    np.testing.assert_allclose(states @ system.ahead.T, [[(weights * y).sum() / weights.sum()]],
                               atol=1e-5)  # fmt: skip


SPECS = [
    Spec(),
    Spec("damped", decay=1.0, ratio=0.3),
    Spec("none", evolve=0.01, half_life=20.0),
    Spec("linear", pull=2.0, ratio=0.0, cycle=9.0),
]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_the_future_is_the_solution_without_observations(spec: Spec) -> None:
    """A forecast from the final terms equals a joint fit of history and future."""
    n, H = 80, 10
    clock = make_clock(None, n)
    season = Season("7", 7.0, 2, 7.0)
    y = np.random.default_rng(3).standard_normal((2, n)).cumsum(1)
    system = make_system(spec, clock, clock.after(H), [season], fade=5.0)
    longer = make_system(spec, clock.join(clock.after(H)), clock.after(1), [season], fade=5.0,
                         span=float(clock.steps[-1]))  # fmt: skip
    # Weights and slope of the longer system are relative to its own end: use those of the history.
    h = longer.h.copy()
    for j in longer.index("slope"):
        h[:n, j], h[n:, j] = system.h[:, j], system.ahead[:, j]
    w_obs = np.append(system.w_obs, np.zeros(H))
    longer = replace(longer, h=h, w_obs=w_obs)
    whole = trajectories(longer, np.concatenate([y, np.full((2, H), np.nan)], axis=1))
    (states,) = end_states([system], y)
    np.testing.assert_allclose(
        (whole * longer.h).sum(-1)[:, n:], states @ system.ahead.T, atol=1e-6
    )


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_shared_linear_map_of_series_with_identical_gaps(spec: Spec) -> None:
    n, S = 50, 120
    clock = make_clock(None, n)
    season = Season("7", 7.0, 2, 7.0)
    y = np.random.default_rng(4).standard_normal((S, n))
    y[:70, 10:20] = np.nan  # two shared patterns of gaps, and some individual ones
    y[-3:, [3, 17, 40]] = np.nan
    system = make_system(spec, clock, clock.after(4), [season])
    (states,) = end_states([system], y)
    alike, others = same_gaps(np.isfinite(y))
    assert sorted(len(rows) for rows in alike) == [47, 70]
    assert list(others) == [117, 118, 119]
    alone = np.concatenate([end_states([system], row[None])[0] for row in y])
    np.testing.assert_allclose(states, alone, atol=1e-8)


def test_candidates_of_different_size_keep_their_order() -> None:
    n = 40
    clock = make_clock(None, n)
    y = np.random.default_rng(5).standard_normal((2, n))
    systems = [make_system(s, clock, clock.after(3), []) for s in SPECS]
    together = end_states(systems, y)
    for each, states in zip(systems, together):
        assert states.shape == (2, len(each.terms))
        np.testing.assert_allclose(states, end_states([each], y)[0], atol=1e-9)


@given(st.lists(st.floats(0.01, 50.0), min_size=1, max_size=20), st.floats(0.01, 0.999))
def test_weights_of_a_damped_term_on_any_grid(steps: list[float], decay: float) -> None:
    term = system.Term("anomaly", decay=decay, variance=2.0)
    zero, link = system._weights(term, np.array(steps))
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
