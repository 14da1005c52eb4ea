"""Conservation laws, and data that only resemble them."""

import numpy as np
from scipy.integrate import solve_ivp

from smnn.discovery import Discovery


def terms_of(found: Discovery) -> list[set[str]]:
    return [{t.name for t, c in zip(found.terms_, row) if c} for row in found.coefficients_]


def test_reversible_reaction() -> None:
    """A + B = 1 exactly, so any multiple of 1 - (A + B)^2 could be added."""
    t = np.linspace(0, 10, 80)
    A = 0.3 + 0.7 * np.exp(-0.9 * t)
    found = Discovery(ensemble=0).fit(np.c_[A, 1 - A], t=t, feature_names=["A", "B"])
    assert all(len(terms) <= 2 for terms in terms_of(found))
    assert np.abs(found.coefficients_).max() < 2.0
    slopes = found.predict(np.c_[A, 1 - A])
    np.testing.assert_allclose(slopes, np.c_[-0.63 * A / 0.7 + 0.27, 0.9 * A - 0.27], atol=1e-6)


def test_epidemic_counts() -> None:
    """Integer counts in a constant population."""

    def rate(t: float, u: np.ndarray) -> list[float]:
        caught = 0.5e-6 * u[0] * u[1]
        return [-caught, caught - 0.1 * u[1], 0.1 * u[1]]

    t = np.arange(81.0)
    X = solve_ivp(rate, (0, 80), [999000, 1000, 0], t_eval=t, rtol=1e-9, atol=1e-12).y.T
    found = Discovery(ensemble=0).fit(X.round(), t=t, feature_names=["S", "I", "R"])
    assert terms_of(found) == [{"S I"}, {"I", "S I"}, {"I"}]


def test_small_variation_on_a_large_offset() -> None:
    """1, T and T^2 agree to many digits, but all of them are needed."""
    t = np.linspace(0, 10, 80)
    T = 1000 + 1 / (1 + 9 * np.exp(-t))  # T' = x - x^2 with x = T - 1000
    found = Discovery(library="poly:2", ensemble=0).fit(T[:, None], t=t, feature_names=["T"])
    np.testing.assert_allclose(found.coefficients_[0], [-1.001e6, 2001.0, -1.0], rtol=1e-3)
