"""Curves through noisy points without a model, by the solver itself.

With no equation at all, the solver's smoothness rows alone bind the values of neighbouring times:
the trajectory is a smoothing spline whose derivatives come with it. How much to smooth is settled
by points left out. Missing values have weight zero, steps may be of any length, and series follow
one another with the smoothness rows between them switched off.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from smnn._solver.api import solve_ex
from smnn.discovery._fit.arrays import Array, Flags
from smnn.discovery._fit.series import Nodes

ORDER = 5
"""Highest derivative that the curves carry."""
WEIGHTS = 10.0 ** np.arange(-3.0, 7.0, 0.5)
"""Weights of the smoothness rows that are tried; a datum weighs one."""
TRIED = 4000
"""How many nodes the choice of the weight looks at, at most."""
LEFT_OUT = 0.2
"""Share of the points that the choice of the weight leaves out."""
NOISE_FLOOR = 1e-10
"""Least noise, as a share of the spread of a variable."""
FAINT = 1e-8
"""Weight of rows that draw every derivative to zero: in a very short series nothing else does."""


def smooth(nodes: Nodes, order: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Curves through the data.

    Args:
        nodes: The data.
        order: How many derivatives are wanted besides the values.
        rng: Chooses the points that are left out.

    Returns:
        Values and derivatives (N, V, order + 1), and by how much the curves miss points that they
        were not told (V,): the noise, or more where points are few.
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
    """Values and derivatives (N, order + 1) a little away from where a jet (N, ORDER + 1) is."""
    out = np.zeros((len(jet), order + 1))
    for r in range(order + 1):
        for j in range(r, ORDER + 1):
            out[:, r] += jet[:, j] * shift ** (j - r) / math.factorial(j - r)
    return out


def _choose(nodes: Nodes, rng: np.random.Generator) -> tuple[Array, Array]:
    """The weight of smoothness for every variable that predicts left-out points best; its error."""
    part = nodes
    if len(nodes.t) > TRIED:  # whole series while they fit, else the first piece of the first
        last = max(int(np.searchsorted(nodes.starts, TRIED, side="right")) - 1, 0)
        part = nodes.part(0, last) if last else _head(nodes, TRIED)
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
        errors = np.where(np.isfinite(errors), errors, np.inf)  # too stiff a curve to be solved for
        best = errors.min()
        missed[v] = np.sqrt(best) * scale[v]
        # Among the nearly equal, the one in the middle of the valley.
        close = np.flatnonzero(errors <= 1.02 * best)
        chosen[v] = WEIGHTS[close[len(close) // 2]] if best > 1e-12 else WEIGHTS[np.argmin(errors)]
    return chosen, missed


def _head(nodes: Nodes, length: int) -> Nodes:
    return Nodes(
        nodes.t[:length],
        nodes.Y[:length],
        nodes.U[:length],
        np.array([0, length]),
        nodes.names,
        nodes.inputs,
    )


def _solve(nodes: Nodes, target: Array, seen: Flags, weights: Array) -> Array:
    """Curves for several weights of smoothness: (weights, N, ORDER + 1)."""
    N, B = len(target), len(weights)
    c = torch.eye(ORDER + 1, dtype=torch.float64)[None, None, :, None].expand(B, 1, -1, 1, -1)
    d = torch.zeros(B, 1, ORDER + 1, dtype=torch.float64)
    u = torch.as_tensor(np.where(seen, target, 0.0))[None, :, None, None].expand(B, N, 1, 1)
    w_init = torch.as_tensor(seen.astype(float))[None, :, None, None]
    unit = float(np.median(nodes.h[nodes.follows]))
    # What a curve may do in a step grows with its length: a long step binds less.
    grip = (nodes.h[:-1] / unit) ** -(ORDER + 0.5) * nodes.follows[:-1]
    w_smooth = torch.as_tensor(weights[:, None] * grip)[:, :, None, None]
    s = torch.as_tensor(nodes.h[:-1] / unit)[None, :].expand(B, N - 1)
    y: Any
    y, _ = solve_ex(c, d, u, s, w_gov=FAINT, w_init=w_init, w_smooth=w_smooth, n_steps=N)
    return y[:, :, 0].numpy() / unit ** np.arange(ORDER + 1)
