"""Simulated data, and the terms that were found in them."""

from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from smnn.discovery import Discovery


def integrate(f: Any, x0: Any, t: np.ndarray) -> np.ndarray:
    return solve_ivp(f, (t[0], t[-1]), x0, t_eval=t, rtol=1e-11, atol=1e-13, method="DOP853").y.T


def lorenz(t: float, u: np.ndarray) -> list[float]:
    x, y, z = u
    return [10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z]


def noisy(X: np.ndarray, noise: float, seed: int = 0) -> np.ndarray:
    return X + noise * X.std(0) * np.random.default_rng(seed).standard_normal(X.shape)


def terms_of(found: Discovery) -> list[set[str]]:
    return [{t.name for t, c in zip(found.terms_, row) if c} for row in found.coefficients_]
