"""Regression through the solver: coefficients in one shot, without differentiating noisy data.

With the states taken from a smooth curve, the solver turns every term `phi_j` into the trajectory
`Y_j` of `y^(order) = phi_j` that starts from zero. The measured values are then a linear
combination of these trajectories plus a polynomial of free initial values, in every window of time.
What is compared is data with data, so the noise stays white.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import torch

from smnn._solver.api import solve_ex
from smnn.discovery._fit.arrays import Array, Flags, Indices, triangle_of
from smnn.discovery._fit.series import Nodes

WINDOW = 50
"""Nodes in a window."""
ORDER = 4
"""The trajectories carry this many derivatives more than the equation has."""


class Regression(NamedTuple):
    """For every variable `|R p - b|^2`, in the units of the data."""

    R: list[Array]
    """V arrays (P, P)."""
    b: list[Array]
    """V arrays (P,)."""
    cost: Array
    """(V,) what no combination of the terms explains."""
    rows: Array
    """(V,) how many values count, less the free initial values."""


def regress(nodes: Nodes, phi: Array, order: int, window: int = WINDOW) -> Regression:
    """Reduce the regression to one triangle for every variable.

    Args:
        nodes: The data.
        phi: (N, P) the terms at the smoothed states.
        order: Of the equation.
        window: Nodes in a window.
    """
    nodes, into = nodes.merged()
    if len(into) > len(nodes.t):
        first_of = np.searchsorted(into, np.arange(len(nodes.t)))
        phi = np.add.reduceat(phi, first_of) / np.bincount(into)[:, None]
    V, P = nodes.Y.shape[1], phi.shape[1]
    first, member, place = _windows(nodes, window)
    Y = _trajectories(nodes, phi, order, first)
    count, longest = int(member.max()) + 1, int(place.max()) + 1
    # Windows as a batch; nodes that a window lacks have weight zero.
    grid = np.zeros((count, longest), dtype=int)
    filled = np.zeros((count, longest), dtype=bool)
    grid[member, place], filled[member, place] = np.arange(len(member)), True
    start = nodes.t[grid[:, :1]]
    span = np.maximum(nodes.t[grid].max(1, keepdims=True) - start, 1e-300)
    tau = np.where(filled, (nodes.t[grid] - start) / span, 0.0)
    powers = tau[..., None] ** np.arange(order)
    out: Regression = Regression([], [], np.empty(V), np.empty(V))
    for v in range(V):
        weight = (filled & nodes.seen[grid, v]).astype(float)[..., None]
        Q = _basis(powers * weight)
        rows = np.concatenate([Y[grid], np.where(weight > 0, nodes.Y[grid, v][..., None], 0.0)], -1)
        rows = rows * weight
        rows = rows - Q @ (np.swapaxes(Q, 1, 2) @ rows)
        triangle = triangle_of(rows.reshape(-1, P + 1))
        out.R.append(triangle[:P, :P])
        out.b.append(triangle[:P, P])
        out.cost[v] = triangle[P, P] ** 2
        out.rows[v] = max(weight.sum() - np.abs(Q).any(1).sum(), 1)
    return out


def _basis(columns: Array) -> Array:
    """Orthonormal bases of batched columns; those of dependent columns are zero."""
    U, values, _ = np.linalg.svd(columns, full_matrices=False)
    good = values > 1e-10 * np.maximum(values[:, :1], 1e-300)
    return U * good[:, None, :]


def _windows(nodes: Nodes, window: int) -> tuple[Flags, Indices, Indices]:
    """First nodes of the windows (N,) as flags, and window and place in it of every node."""
    first = np.zeros(len(nodes.t), dtype=bool)
    edges = np.concatenate([[0], np.flatnonzero(~nodes.follows) + 1])
    for a, b in itertools.pairwise(edges):
        pieces = max(round((b - a) / window), 1)
        first[np.linspace(a, b, pieces + 1).astype(int)[:-1]] = True
    member = np.cumsum(first) - 1
    place = np.arange(len(first)) - np.flatnonzero(first)[member]
    return first, member, place


def _trajectories(nodes: Nodes, phi: Array, order: int, first: Flags) -> Array:
    """(N, P) solutions of `y^(order) = phi_j`, from zero at the first node of every window."""
    N, P = phi.shape
    R = order + ORDER
    unit = float(np.median(nodes.h[nodes.follows]))
    size = np.maximum(np.abs(phi).max(0), 1e-300)
    c = torch.zeros(P, 1, 1, 1, R + 1, dtype=torch.float64)
    c[..., order] = 1.0
    d = torch.as_tensor((phi / size).T.copy())[:, :, None]
    u = torch.zeros(P, N, 1, order, dtype=torch.float64)
    s = torch.as_tensor(nodes.h[:-1] / unit)[None].expand(P, N - 1)
    joined = torch.as_tensor((~first[1:]).astype(float))[None, :, None, None]
    begun = torch.as_tensor(first.astype(float))[None, :, None, None]
    y, _ = solve_ex(c, d, u, s, w_init=begun, w_smooth=joined, n_steps=N)
    return y[:, :, 0, 0].numpy().T * size * unit**order
