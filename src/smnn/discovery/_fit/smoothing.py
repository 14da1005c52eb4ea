"""Smoothing splines through noisy data, computed by the solver.

Without a governing equation, only the smoothness rows of the solver connect neighbouring times, and
the solution is a smoothing spline together with its derivatives. The smoothing weight is chosen by
the error on left-out points. Missing values have weight zero, steps may be uneven, and the
smoothness rows between two series are switched off.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from smnn._solver.api import solve_ex
from smnn.discovery._arrays import Array, Flags
from smnn.discovery._fit.data import Nodes

ORDER = 5  # Highest derivative of the spline
WEIGHTS = 10.0 ** np.arange(-3.0, 7.0, 0.5)
"""Candidate weights of the smoothness rows; data rows have weight one."""
MAX_NODES = 4000  # Maximum number of nodes used to choose the weight
LEFT_OUT = 0.2  # Fraction of the points left out to choose the weight
NOISE_FLOOR = 1e-10
"""Lower bound of the noise estimate, relative to the standard deviation of a variable."""
FAINT = 1e-8
"""Weight of rows that pull every derivative to zero; they make very short series well-posed."""


def smooth(nodes: Nodes, order: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Smooth the data.

    Args:
        nodes: The data.
        order: Number of derivatives to return besides the values.
        rng: Chooses the points that are left out.

    Returns:
        Values and derivatives (N, V, order + 1), and the root-mean-square error on left-out points
        (V,): an upper bound of the noise, close to it where points are dense.
    """
    few, into = nodes.merged()
    weights, missed = _choose(few, rng)
    scale = nodes.scale
    y = np.empty((len(nodes.t), len(scale), order + 1))
    shift = nodes.t - few.t[into]
    for v, weight in enumerate(weights):
        one = _solve(few, few.Y[:, v] / scale[v], few.seen[:, v], np.array([weight]))
        y[:, v] = _shifted(one[0, into], shift, order) * scale[v]
    return y, np.maximum(missed, NOISE_FLOOR * scale)


def _shifted(jet: Array, shift: Array, order: int) -> Array:
    """Taylor expansion of jets (N, ORDER + 1) by a shift (N,): (N, order + 1)."""
    out = np.zeros((len(jet), order + 1))
    for r in range(order + 1):
        for j in range(r, ORDER + 1):
            out[:, r] += jet[:, j] * shift ** (j - r) / math.factorial(j - r)
    return out


def _choose(nodes: Nodes, rng: np.random.Generator) -> tuple[Array, Array]:
    """Smoothing weight of every variable that predicts left-out points best, and its error."""
    part = nodes
    if len(nodes.t) > MAX_NODES:  # as many whole series as fit, else the first part of the first
        last = max(int(np.searchsorted(nodes.starts, MAX_NODES, side="right")) - 1, 0)
        part, _ = nodes.take(nodes.bounds[:last] or [(0, MAX_NODES)])
    scale = nodes.scale
    chosen, missed = np.empty(len(scale)), np.empty(len(scale))
    for v in range(len(scale)):
        seen = part.seen[:, v]
        hidden = seen & (rng.random(len(seen)) < LEFT_OUT)
        if hidden.sum() < 2 or (seen & ~hidden).sum() < 4:
            hidden = np.zeros_like(seen)
            hidden[np.flatnonzero(seen)[1:-1:2]] = True
        target = np.where(seen, part.Y[:, v], 0.0) / scale[v]
        y = _solve(part, target, seen & ~hidden, WEIGHTS)[..., 0]
        errors = ((y - target)[:, hidden] ** 2).mean(1) if hidden.any() else np.zeros(len(WEIGHTS))
        errors = np.where(np.isfinite(errors), errors, np.inf)  # the solve failed: too stiff
        best = errors.min()
        missed[v] = np.sqrt(best) * scale[v]
        # The middle one of the weights that do about equally well.
        close = np.flatnonzero(errors <= 1.02 * best)
        chosen[v] = WEIGHTS[close[len(close) // 2]] if best > 1e-12 else WEIGHTS[np.argmin(errors)]
    return chosen, missed


def _solve(nodes: Nodes, target: Array, seen: Flags, weights: Array) -> Array:
    """Splines for several smoothing weights: (weights, N, ORDER + 1)."""
    N, B = len(target), len(weights)
    c = torch.eye(ORDER + 1, dtype=torch.float64)[None, None, :, None].expand(B, 1, -1, 1, -1)
    d = torch.zeros(B, 1, ORDER + 1, dtype=torch.float64)
    u = torch.as_tensor(np.where(seen, target, 0.0))[None, :, None, None].expand(B, N, 1, 1)
    w_init = torch.as_tensor(seen.astype(float))[None, :, None, None]
    unit = float(np.median(nodes.h[nodes.follows]))
    # The variation of a spline over a step grows with its length, so long steps weigh less.
    scaling = (nodes.h[:-1] / unit) ** -(ORDER + 0.5) * nodes.follows[:-1]
    w_smooth = torch.as_tensor(weights[:, None] * scaling)[:, :, None, None]
    s = torch.as_tensor(nodes.h[:-1] / unit)[None, :].expand(B, N - 1)
    y: Any
    y, _ = solve_ex(c, d, u, s, w_gov=FAINT, w_init=w_init, w_smooth=w_smooth, n_steps=N)
    return y[:, :, 0].numpy() / unit ** np.arange(ORDER + 1)
