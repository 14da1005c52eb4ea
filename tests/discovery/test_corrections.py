"""Corrections of a joint fit for data with integration errors."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import odeint, solve_ivp

from discovery.systems import lorenz, terms_of
from smnn.discovery import Discovery
from smnn.discovery._fit import pipeline
from smnn.discovery._fit.corrections import allow_integration_errors, inflation, missed
from smnn.discovery._fit.refine import JointFit, Refiner

LORENZ = np.zeros((3, 10))
LORENZ[0, [1, 2]] = -10.0, 10.0
LORENZ[1, [1, 2, 6]] = 28.0, -1.0, -1.0
LORENZ[2, [3, 5]] = -8 / 3, 1.0
"""In the terms 1, x, y, z, x^2, x y, x z, y^2, y z, z^2."""


def error_of(found: Discovery) -> float:
    return float(np.abs(found.coefficients_ - LORENZ).max())


def test_default_tolerances_of_odeint() -> None:
    """Accumulated errors of 1e-7, with which a single trajectory would lose more than a digit."""
    t = np.arange(0, 20, 0.01)
    found = Discovery(ensemble=0).fit(odeint(lorenz, (-8, 7, 27), t, tfirst=True), t=t)
    assert error_of(found) < 1e-7


@pytest.mark.parametrize("method", ["RK45", "LSODA"])
def test_default_tolerances_of_solve_ivp(method: str) -> None:
    """Correlated relative errors of 1e-3, which make absent terms look significant."""
    t = np.arange(0, 30, 0.01)
    X = solve_ivp(lorenz, (0, 30), (-8, 7, 27), t_eval=t, method=method).y.T
    found = Discovery(library="poly:2", ensemble=0).fit(X, t=t)
    np.testing.assert_array_equal(found.coefficients_ != 0, LORENZ != 0)
    assert error_of(found) < 0.1


@pytest.mark.parametrize("seed", [0, 1])
def test_few_rows_with_integration_errors(seed: int) -> None:
    """Correlated errors near 1e-6 in half of 512 rows of x' = 0.32 - 0.6 x."""
    t = np.linspace(0, 10, 512)
    X = solve_ivp(
        lambda t, x: 0.32 - 0.6 * x, (0, 10), [0.14], t_eval=t, method="LSODA", rtol=1e-5,
        atol=1e-7, first_step=1e-6, min_step=1e-10,
    ).y.T  # fmt: skip
    kept = np.sort(np.random.default_rng(seed).choice(512, 256, replace=False))
    found = Discovery(ensemble=0).fit(X[kept], t=t[kept])
    assert terms_of(found) == [{"1", "x"}]
    np.testing.assert_allclose(found.coefficients_[0, :2], [0.32, -0.6], rtol=1e-4)


def fits(monkeypatch: pytest.MonkeyPatch, X: np.ndarray, t: np.ndarray) -> tuple[Refiner, JointFit]:
    """The joint fit before the correction for integration errors."""
    caught: list[tuple[Refiner, JointFit]] = []
    unchanged = lambda *both: caught.append(both) or both[1]  # noqa: E731
    monkeypatch.setattr(pipeline, "allow_integration_errors", unchanged)
    Discovery(library="poly:2", ensemble=0).fit(X, t=t)
    return caught[-1]


def circle(t: np.ndarray) -> np.ndarray:
    return np.column_stack([np.cos(t), -np.sin(t)])


@pytest.mark.parametrize("seed", range(3))
def test_white_noise_is_left_alone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    t = np.arange(0, 50, 0.1)
    X = circle(t) + 0.05 * np.random.default_rng(seed).standard_normal((500, 2))
    refiner, fit = fits(monkeypatch, X, t)
    assert 0.4 < inflation(refiner, fit) < 1.8
    loose = replace(fit, rho=5 * fit.rho)
    assert allow_integration_errors(refiner, loose) is loose
    assert (refiner.looseness == 1.0).all()


def test_correlated_errors_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise that is constant over ten steps."""
    t = np.arange(0, 50, 0.1)
    rough = np.repeat(np.random.default_rng(0).standard_normal((50, 2)), 10, 0)
    refiner, fit = fits(monkeypatch, circle(t) + 0.05 * rough, t)
    assert inflation(refiner, refiner.improve(replace(fit, rho=1e-4))) > 2.0


def test_wrong_models_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pendulum has no quadratic equations; reweighting small swings would hide that."""
    t = np.arange(0, 20, 0.04)
    X = solve_ivp(
        lambda t, u: [u[1], -9.8 * np.sin(u[0]) - 0.1 * u[1]], (0, 20), [2.0, 0.0], t_eval=t,
        rtol=1e-9, atol=1e-9,
    ).y.T  # fmt: skip
    refiner, fit = fits(monkeypatch, X, t)
    share = missed(refiner, fit)
    assert share.shape == (2,)
    assert share[1] > 0.02
    assert allow_integration_errors(refiner, fit) is fit
