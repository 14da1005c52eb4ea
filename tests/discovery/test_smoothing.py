"""Smoothing splines, and the regression based on them."""

import numpy as np
import pytest

from discovery.systems import integrate, terms_of
from smnn.discovery import Discovery
from smnn.discovery._fit.data import gather
from smnn.discovery._fit.regression import regress
from smnn.discovery._fit.selection import select
from smnn.discovery._fit.smoothing import smooth


def wave(t: np.ndarray) -> np.ndarray:
    return np.column_stack([np.sin(t), 3.0 + np.cos(2 * t)])


@pytest.mark.parametrize("noise", [0.02, 0.2])
def test_smoothing_reduces_noise(noise: float) -> None:
    t = np.arange(0, 20, 0.05)
    rng = np.random.default_rng(0)
    Y = wave(t) + noise * rng.normal(size=(len(t), 2))
    y, missed = smooth(gather(Y, t), 1, rng)
    assert (np.sqrt(((y[..., 0] - wave(t)) ** 2).mean(0)) < 0.5 * noise).all()
    slope = np.column_stack([np.cos(t), -2 * np.sin(2 * t)])
    assert (np.sqrt(((y[..., 1] - slope) ** 2).mean(0)) < 1.5 * noise).all()
    assert ((0.8 * noise < missed) & (missed < 1.5 * noise)).all()


def test_clean_data_are_reproduced() -> None:
    t = np.arange(0, 10, 0.05)
    y, missed = smooth(gather(wave(t), t), 2, np.random.default_rng(0))
    np.testing.assert_allclose(y[..., 0], wave(t), atol=1e-6)
    np.testing.assert_allclose(y[5:-5, 0, 2], -np.sin(t[5:-5]), atol=1e-3)
    assert (missed < 1e-4).all()


def test_missing_uneven_and_several_series() -> None:
    rng = np.random.default_rng(1)
    times = [np.sort(rng.uniform(0, 12, 400)), np.sort(rng.uniform(3, 9, 150)), np.arange(4) * 0.1]
    series = [wave(t) + 0.01 * rng.normal(size=(len(t), 2)) for t in times]
    for x in series[:2]:
        x[rng.random(x.shape) < 0.3] = np.nan
    nodes = gather(series, times)
    y, _ = smooth(nodes, 1, rng)
    truth = np.concatenate([wave(t) for t in times])
    assert np.isfinite(y).all()
    assert np.sqrt(((y[:550, :, 0] - truth[:550]) ** 2).mean()) < 0.02


@pytest.mark.parametrize("order", [1, 2])
def test_regression_recovers_coefficients(order: int) -> None:
    """x' = -0.5 x + cos t, or x'' = -x - 0.2 x', with the terms given exactly."""
    t = np.arange(0, 20, 0.05)
    if order == 1:
        from scipy.integrate import solve_ivp

        x = solve_ivp(
            lambda s, x: -0.5 * x + np.cos(s), (0, 20), [1.0], t_eval=t, rtol=1e-10, atol=1e-12
        ).y[0]
        phi, truth = np.column_stack([x, np.cos(t), np.ones_like(t)]), [-0.5, 1.0, 0.0]
    else:
        w = np.sqrt(1 - 0.01)
        x = np.exp(-0.1 * t) * np.cos(w * t)
        v = -0.1 * x - w * np.exp(-0.1 * t) * np.sin(w * t)
        phi, truth = np.column_stack([x, v]), [-1.0, -0.2]
    found = regress(gather(x, t), phi, order)
    p = select(found.R[0], found.b[0], 0.0, required=np.ones(phi.shape[1], bool)).p
    np.testing.assert_allclose(p, truth, atol=1e-6)


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_clinical_sampling(noise: float) -> None:
    """Absorption and elimination in three patients at fourteen uneven times."""
    t = np.array([0, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 12, 18, 24])
    doses = ([10.0, 0.0], [7.0, 0.0], [5.0, 1.0])
    rng = np.random.default_rng(1)
    X = [integrate(lambda t, u: [-1.2 * u[0], 1.2 * u[0] - 0.25 * u[1]], x, t) for x in doses]
    X = [x + noise * x.std(0) * rng.standard_normal(x.shape) for x in X]
    _, missed = smooth(gather(X, [t] * 3), 1, rng)
    assert (missed < np.concatenate(X).std(0)).all()
    found = Discovery(library="poly:2", ensemble=0).fit(X, t=t, feature_names=["gut", "blood"])
    assert terms_of(found) == [{"gut"}, {"gut", "blood"}]
    np.testing.assert_allclose(
        found.coefficients_[found.coefficients_ != 0], [-1.2, 1.2, -0.25], rtol=0.01
    )


def test_merged_nodes() -> None:
    t = np.array([0.0, 1.0, 1.001, 2.0, 3.0, 4.0])
    nodes = gather(np.array([0.0, 1.0, 3.0, np.nan, 5.0, 6.0]), t)
    few, into = nodes.merged()
    np.testing.assert_array_equal(into, [0, 1, 1, 2, 3, 4])
    np.testing.assert_allclose(few.Y[:, 0], [0.0, 2.0, np.nan, 5.0, 6.0])
    np.testing.assert_allclose(few.t, [0, 1.0005, 2, 3, 4])


def test_gaps_split_a_series() -> None:
    t = np.concatenate([np.arange(10.0), 1000 + np.arange(10.0)])
    nodes = gather(np.sin(t), t)
    assert nodes.pieces == 2
    assert not nodes.follows[9]
