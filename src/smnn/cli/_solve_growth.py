"""What the coefficients say before anything is solved: values needed, and how fast solutions grow.

The solver minimises all residuals together. Where a solution grows by many powers of ten, the rows
at its large end outweigh those at its start, and the cheapest compromise gives up the values. If
everything is given at one time, the rows are therefore weighted by the growth since then.
"""

from __future__ import annotations

import numpy as np

from smnn._util.optional import require

SAMPLES = 200
"""Times at which coefficients that change are looked at."""
LARGEST = 600.0
"""Growth, as a power of e, that numbers can hold with room for derivatives."""


def freedom(c: np.ndarray) -> int | None:
    """How many values a system of as many equations as variables needs; `None` if it has none.

    It is the degree of the determinant of `sum_r c_r x^r`, with the coefficients of the middle of
    the grid: the sum of the orders, less what equations without derivatives take away.

    Args:
        c: `(T or 1, Q, V, R+1)` with `Q = V`.
    """
    c = c[len(c) // 2]
    c = c / np.abs(c).max((1, 2), keepdims=True)
    far = 1e4
    logs = []
    for x in (far, 2 * far):
        sign, size = np.linalg.slogdet((c * x ** np.arange(c.shape[-1])).sum(-1))
        if sign == 0 or size < -600:
            return None
        logs.append(size)
    return round((logs[1] - logs[0]) / np.log(2))


def growth(c: np.ndarray, t: np.ndarray, start: float) -> np.ndarray:
    """How far solutions may have grown since `start`, as powers of e, `(T,)`.

    Args:
        c: `(T or 1, Q, V, R+1)` with `Q = V`.
        t: `(T,)` times.
        start: Where everything is given.
    """
    every = np.unique(np.linspace(0, len(c) - 1, min(len(c), SAMPLES)).round().astype(int))
    rates = np.array([_rates(c[i]) for i in every])  # (samples, 2)
    at = t[every] if len(c) > 1 else t[:1]
    up, down = (np.maximum(np.interp(t, at, rates[:, k]), 0.0) for k in (0, 1))
    steps = np.diff(t)
    rising = np.concatenate([[0.0], np.cumsum(steps * (up[1:] + up[:-1]) / 2)])
    falling = np.concatenate([[0.0], np.cumsum(steps * (down[1:] + down[:-1]) / 2)])
    origin = int(np.abs(t - start).argmin())
    forward, backward = rising - rising[origin], falling[origin] - falling
    return np.where(np.arange(len(t)) >= origin, forward, backward)


def _rates(c: np.ndarray) -> tuple[float, float]:
    """Fastest growth with time, and against it, with coefficients `(V, V, R+1)` held fixed."""
    eigvals = require("scipy.linalg", "find out how fast solutions grow").eigvals
    V, R = c.shape[0], c.shape[-1] - 1
    A, B = np.eye(V * R, k=V), np.eye(V * R)
    A[-V:] = -np.concatenate(list(np.moveaxis(c[..., :R], -1, 0)), axis=1)
    B[-V:, -V:] = c[..., R]
    with np.errstate(all="ignore"):
        found = eigvals(A, B)
    # Equations without derivatives make eigenvalues at infinity, which are no solutions.
    real = found.real[np.isfinite(found) & (np.abs(found) < 1e8)]
    return (float(real.max()), float(-real.min())) if len(real) else (0.0, 0.0)
