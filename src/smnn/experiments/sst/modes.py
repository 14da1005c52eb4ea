r"""Anomalies of a grid as a system of linear ODEs, $x' = L x$, of their leading patterns.

The patterns are the principal components of the anomalies; what one month makes of them is learned
by regression with shrinkage, and $L$ is its logarithm: the linear inverse model of climate science.
The solver gives the trajectory.
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
"""Largest part of a mode that a month may leave: none grows."""
FASTEST = 1e-3
"""Smallest; a mode that vanishes within the month has no logarithm."""
ORDER, PARTS = 4, 4
"""Derivatives that the solver carries, and parts that it cuts a step into: some modes are fast."""


@dataclass(frozen=True)
class Modes:
    """Leading patterns and how they move."""

    patterns: np.ndarray
    """`(N, K)` orthonormal."""
    last: np.ndarray
    """`(K,)` amplitudes at the end of the history."""
    matrix: np.ndarray
    """`(K, K)` the matrix `L`, per step."""
    rest: np.ndarray
    """`(N,)` what the patterns do not hold of the last anomaly."""
    decay: float
    """What is left of that after a step."""
    explained: float
    """Part of the variance that the patterns hold."""

    def amplitudes(self, horizon: int) -> np.ndarray:
        """`(horizon, K)` solution of `x' = L x` from the last amplitudes."""
        K = len(self.last)
        L = torch.from_numpy(self.matrix)
        c = torch.stack([-L, torch.eye(K, dtype=L.dtype)], -1)[None]  # (1, K, K, 2)
        u = torch.from_numpy(self.last)[None, :, None]
        step = L.new_full((PARTS * horizon,), 1 / PARTS)
        y = smnn.solve(c, L.new_zeros(1, K), u, step, order=ORDER)
        out: np.ndarray = y[PARTS::PARTS, :, 0].numpy()
        return out

    def forecast(self, horizon: int) -> np.ndarray:
        """`(horizon, N)` anomalies after the history."""
        fading = self.decay ** np.arange(1, horizon + 1)[:, None]
        out: np.ndarray = self.amplitudes(horizon) @ self.patterns.T + fading * self.rest
        return out

    def oscillations(self) -> list[tuple[float, float]]:
        """Period and damping time of every mode in steps, the slowest first."""
        rates = np.linalg.eigvals(self.matrix)
        found = [
            (2 * np.pi / r.imag if r.imag > 1e-9 else float("inf"), -1 / r.real)
            for r in rates
            if r.imag > -1e-9
        ]
        return sorted(((float(p), float(d)) for p, d in found), key=lambda mode: -mode[1])


def fit_modes(anomalies: np.ndarray, count: int = COUNT, ridge: float = RIDGE) -> Modes:
    """Learn from anomalies `(T, N)`.

    Args:
        anomalies: Without mean, seasons and trend; equally spaced in time.
        count: Number of patterns, at most a quarter of the times.
        ridge: Shrinkage of the matrix, relative to the variance of each mode.
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
    rest = anomalies - x @ patterns.T
    square = float((rest[:-1] ** 2).sum())
    decay = float(np.clip((rest[:-1] * rest[1:]).sum() / square, 0, 0.99)) if square > 0 else 0.0
    explained = float(sizes @ sizes / max((anomalies**2).sum(), 1e-300))
    return Modes(patterns, x[-1], logarithm(M), rest[-1], decay, explained)


def logarithm(M: np.ndarray) -> np.ndarray:
    """The real matrix `L` with `exp(L) = M`, for the nearest `M` that decays and has one.

    A real eigenvalue below `FASTEST` (or negative) is raised to it: such a mode is gone in a step.
    """
    linalg = require("scipy.linalg", "take the logarithm of a matrix")
    values, V = np.linalg.eig(M.astype(complex))
    size = np.abs(values)
    values = values * np.minimum(1.0, SLOWEST / np.maximum(size, 1e-300))
    real = np.abs(values.imag) <= 1e-12 * np.maximum(size, 1e-300)
    values = np.where(real & (values.real < FASTEST), FASTEST, values)
    values = np.where(np.abs(values) < FASTEST, FASTEST, values)
    steady = (V @ np.diag(values) @ np.linalg.inv(V)).real
    out: np.ndarray = linalg.logm(steady).real
    return out
