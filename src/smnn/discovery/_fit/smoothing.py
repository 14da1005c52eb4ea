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
from scipy.spatial import cKDTree

from smnn._solver.api import solve_ex
from smnn.discovery._arrays import Array, Flags
from smnn.discovery._fit.data import DataError, Nodes

ORDER = 5  # Highest derivative of the spline
SMOOTH = 0.05
"""Error on left-out points, relative to the standard deviation of a variable, up to which the order
of its spline is not questioned."""
WEIGHTS = 10.0 ** np.arange(-3.0, 7.0, 0.5)
"""Candidate weights of the smoothness rows; data rows have weight one."""
MAX_NODES = 4000  # Maximum number of nodes used to choose the weight
PARTS = 5  # The points are divided into so many parts, of which one is left out
ENOUGH = 30  # Number of left-out values that suffice; with fewer, every part is left out in turn
NOISE_FLOOR = 1e-10
"""Lower bound of the noise estimate, relative to the standard deviation of a variable."""
FEWEST_PAIRS = 8  # Minimum number of pairs of consecutive states of a map
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
    if nodes.discrete:
        return _iterates(nodes)
    few, into = nodes.merged()
    scale = nodes.scale
    y = np.empty((len(nodes.t), len(scale), order + 1))
    missed = np.empty(len(scale))
    shift = nodes.t - few.t[into]
    for v in range(len(scale)):
        highest, weight, missed[v] = _choose(few, v, order, rng)
        one = _solve(few, few.Y[:, v] / scale[v], few.roots[:, v], np.array([weight]), highest)
        y[:, v] = _shifted(one[0, into], shift, order) * scale[v]
    return y, np.clip(missed, NOISE_FLOOR, 1.0) * scale


def _iterates(nodes: Nodes) -> tuple[Array, Array]:
    """States and next states (N, V, 2) of a map, and an upper bound of its noise (V,).

    States that are close have next states that differ by their noise, amplified by the map.
    """
    Y = np.where(nodes.seen, nodes.Y, np.nanmean(nodes.Y, 0))
    following = np.concatenate([Y[1:], Y[-1:]])
    known = nodes.seen.all(1) & nodes.follows
    known[:-1] &= nodes.seen[1:].all(1)
    if known.sum() < FEWEST_PAIRS:
        raise DataError(
            f"{int(known.sum())} pairs of consecutive rows without missing values; expected at "
            f"least {FEWEST_PAIRS} for a map."
        )
    X = np.concatenate([Y / nodes.scale, nodes.U / np.maximum(np.std(nodes.U, 0), 1e-300)], 1)
    near = cKDTree(X[known]).query(X[known], 2)[1][:, 1]
    gaps = following[known] - following[known][near]
    noise = np.sqrt(0.5 * np.quantile(gaps**2, 0.75, axis=0))
    return np.stack([Y, following], -1), np.clip(
        noise / nodes.scale, NOISE_FLOOR, 1.0
    ) * nodes.scale


def _shifted(jet: Array, shift: Array, order: int) -> Array:
    """Taylor expansion of jets (N, R + 1) by a shift (N,): (N, order + 1)."""
    out = np.zeros((len(jet), order + 1))
    for r in range(order + 1):
        for j in range(r, jet.shape[1]):
            out[:, r] += jet[:, j] * shift ** (j - r) / math.factorial(j - r)
    return out


def _choose(nodes: Nodes, v: int, order: int, rng: np.random.Generator) -> tuple[int, float, float]:
    """Order and weight of the spline that predicts left-out points of a variable best, its error.

    A spline of order 5 overshoots between few, unevenly spaced points.
    """
    part = nodes
    if len(nodes.t) > MAX_NODES:  # as many whole series as fit, else the first part of the first
        last = max(int(np.searchsorted(nodes.starts, MAX_NODES, side="right")) - 1, 0)
        part, _ = nodes.take(nodes.bounds[:last] or [(0, MAX_NODES)])
    hidden = _left_out(part, v, rng)
    target = np.where(part.seen[:, v], part.Y[:, v], 0.0) / nodes.scale[v]
    weight, error = _best_weight(part, target, hidden, part.roots[:, v], ORDER)
    if error > SMOOTH:
        other, less = _best_weight(part, target, hidden, part.roots[:, v], order)
        if less < 0.5 * error:
            return order, other, less
    return ORDER, weight, error


def _left_out(nodes: Nodes, v: int, rng: np.random.Generator) -> list[Flags]:
    """Masks of values to leave out; a spline is not extrapolated beyond the ends of a series."""
    seen = nodes.seen[:, v]
    inside = seen.copy()
    for a, b in nodes.bounds:
        inside[a + np.flatnonzero(seen[a:b])[[0, -1]] if seen[a:b].any() else []] = False
    part = (PARTS * rng.random(len(seen))).astype(int)
    parts = [inside & (part == k) for k in range(PARTS)]
    parts = parts[: 1 if parts[0].sum() >= ENOUGH else PARTS]
    parts = [hidden for hidden in parts if hidden.any() and (seen & ~hidden).sum() >= 4]
    return parts or [inside & (np.cumsum(seen) % 2 == 0)]


def _best_weight(
    nodes: Nodes, target: Array, parts: list[Flags], roots: Array, order: int
) -> tuple[float, float]:
    """Weight with the smallest error on the parts that are left out, and this error."""
    squares = np.zeros(len(WEIGHTS))
    count = 1e-300
    for hidden in parts:
        y = _solve(nodes, target, roots * ~hidden, WEIGHTS, order)[..., 0]
        squares += ((roots * (y - target))[:, hidden] ** 2).sum(1)
        count += float((roots[hidden] ** 2).sum())
    # Not finite if the solve failed because it was too stiff.
    errors = np.where(np.isfinite(squares), squares, np.inf) / count
    best = errors.min()
    # The middle one of the weights that do about equally well.
    close = np.flatnonzero(errors <= 1.02 * best)
    middle = close[len(close) // 2] if best > 1e-12 else np.argmin(errors)
    return float(WEIGHTS[middle]), float(np.sqrt(best))


def _solve(nodes: Nodes, target: Array, roots: Array, weights: Array, order: int) -> Array:
    """Splines of an order for several smoothing weights: (weights, N, order + 1)."""
    N, B = len(target), len(weights)
    c = torch.eye(order + 1, dtype=torch.float64)[None, None, :, None].expand(B, 1, -1, 1, -1)
    d = torch.zeros(B, 1, order + 1, dtype=torch.float64)
    u = torch.as_tensor(np.where(roots > 0, target, 0.0))[None, :, None, None].expand(B, N, 1, 1)
    w_init = torch.as_tensor(roots)[None, :, None, None]
    unit = float(np.median(nodes.h[nodes.follows]))
    # The variation of a spline over a step grows with its length, so long steps weigh less.
    scaling = (nodes.h[:-1] / unit) ** -(order + 0.5) * nodes.follows[:-1]
    w_smooth = torch.as_tensor(weights[:, None] * scaling)[:, :, None, None]
    s = torch.as_tensor(nodes.h[:-1] / unit)[None, :].expand(B, N - 1)
    y: Any
    y, _ = solve_ex(c, d, u, s, w_gov=FAINT, w_init=w_init, w_smooth=w_smooth, n_steps=N)
    return y[:, :, 0].numpy() / unit ** np.arange(order + 1)
