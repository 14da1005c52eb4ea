r"""Linear inverse model: anomalies of a grid as a linear ODE $x' = L x$ for their leading modes.

The modes are the principal components of the anomalies; their propagator over one month is
estimated by regularized regression, and $L$ is its logarithm. The solver gives the trajectory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

import smnn
from smnn._util.optional import require

COUNT = 20
RIDGE = 0.03
SLOWEST = 0.9995
"""Largest factor of a mode over a month: none grows."""
FASTEST = 1e-3
"""Smallest factor; a mode that vanishes within a month has no logarithm."""
ORDER, PARTS = 4, 4
"""Derivatives that the solver carries, and substeps per month, which fast modes need."""


@dataclass(frozen=True)
class Modes:
    """Leading patterns and their dynamics."""

    patterns: np.ndarray
    """`(N, K)` orthonormal."""
    last: np.ndarray
    """`(K,)` amplitudes at the end of the history."""
    matrix: np.ndarray
    """`(K, K)` the matrix `L`, per step."""
    residual: np.ndarray
    """`(N,)` last anomaly minus its projection on the patterns."""
    decay: float
    """Factor of the residual over a step."""
    explained: float
    """Share of the variance that the patterns explain."""

    def amplitudes(self, horizon: int) -> np.ndarray:
        """`(horizon, K)` solution of `x' = L x` from the last amplitudes."""
        K = len(self.last)
        L = torch.from_numpy(self.matrix)
        c = torch.stack([-L, torch.eye(K, dtype=L.dtype)], -1)[None]  # (1, K, K, 2)
        u = torch.from_numpy(self.last)[None, :, None]
        step = L.new_full((PARTS * horizon,), 1 / PARTS)
        y = smnn.solve(c, L.new_zeros(1, K), u, step, order=ORDER)
        return np.asarray(y[PARTS::PARTS, :, 0].numpy())

    def forecast(self, horizon: int) -> np.ndarray:
        """`(horizon, N)` anomalies after the history."""
        fading = self.decay ** np.arange(1, horizon + 1)[:, None]
        return np.asarray(self.amplitudes(horizon) @ self.patterns.T + fading * self.residual)


def fit_modes(anomalies: np.ndarray, count: int = COUNT, ridge: float = RIDGE) -> Modes:
    """Fit the model to equally spaced anomalies `(T, N)`.

    At most `count` patterns, and a quarter of the times; `ridge` is relative to each variance.
    """
    T, N = anomalies.shape
    count = min(count, N, T // 4)
    if count < 1:
        raise ValueError(f"anomalies: got {T} times; expected at least 4.")
    values, vectors = np.linalg.eigh(anomalies @ anomalies.T)
    sizes = np.sqrt(np.maximum(values[::-1][:count], 1e-300))
    U = vectors[:, ::-1][:, :count]
    x, patterns = U * sizes, anomalies.T @ (U / sizes)
    G = x[:-1].T @ x[:-1]
    M = np.linalg.solve(G + ridge * np.diag(np.diag(G)), x[:-1].T @ x[1:]).T
    residual = anomalies - x @ patterns.T
    square = float((residual[:-1] ** 2).sum())
    decay = (
        float(np.clip((residual[:-1] * residual[1:]).sum() / square, 0, 0.99))
        if square > 0
        else 0.0
    )
    explained = float(sizes @ sizes / max((anomalies**2).sum(), 1e-300))
    return Modes(patterns, x[-1], logarithm(M), residual[-1], decay, explained)


def logarithm(M: np.ndarray) -> np.ndarray:
    """The real matrix `L` with `exp(L) = M`, after making `M` stable and invertible.

    Real eigenvalues below `FASTEST`, including negative ones, are raised to it.
    """
    linalg = require("scipy.linalg", "take the logarithm of a matrix")
    values, V = np.linalg.eig(M.astype(complex))
    size = np.abs(values)
    values = values * np.minimum(1.0, SLOWEST / np.maximum(size, 1e-300))
    real = np.abs(values.imag) <= 1e-12 * np.maximum(size, 1e-300)
    values = np.where(real & (values.real < FASTEST), FASTEST, values)
    values = np.where(np.abs(values) < FASTEST, FASTEST, values)
    steady = (V @ np.diag(values) @ np.linalg.inv(V)).real
    return np.asarray(linalg.logm(steady).real)
