"""Integral regression: initial coefficients without differentiating noisy data.

With states from a smoothing spline, the solver integrates every term `phi_j` to the trajectory
`Y_j` of `y^(order) = phi_j` from zero. In every time window, the measured values are a linear
combination of these trajectories plus a polynomial of free initial values. The residuals are those
of the data themselves, so the noise stays white.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from smnn._solver.api import solve_ex
from smnn.discovery._arrays import Array, Flags, Indices, root_mean_square, triangle_of
from smnn.discovery._constraints import Rules
from smnn.discovery._fit.data import FitInput, Nodes
from smnn.discovery._fit.selection import Selection, penalty_for, select

WINDOW = 50  # Nodes per window
ORDER = 4  # Number of additional derivatives in the solve; more are more accurate
MOST_CANDIDATES = 160
"""Maximum number of candidates in the joint fit; the regression preselects among more."""


class Regression(NamedTuple):
    """Triangular system `|R p - b|^2` of every variable, in the units of the data."""

    R: list[Array]  # V arrays (P, P)
    b: list[Array]  # V arrays (P,)
    cost: Array  # (V,) residual sum of squares with all terms
    rows: Array  # (V,) number of values minus the number of free initial values


def regress(nodes: Nodes, phi: Array, order: int, window: int = WINDOW) -> Regression:
    """Triangular system of every variable, for values phi (N, P) of the terms."""
    nodes, into = nodes.merged()
    if len(into) > len(nodes.t):
        first_of = np.searchsorted(into, np.arange(len(nodes.t)))
        phi = np.add.reduceat(phi, first_of) / np.bincount(into)[:, None]
    V, P = nodes.Y.shape[1], phi.shape[1]
    if nodes.discrete:
        rows, following = _pairs(nodes)
        weight = rows[..., None] * np.concatenate([nodes.roots[1:], nodes.roots[-1:]])[..., None]
        tables = [weight[:, v] * np.column_stack([phi, following[:, v]]) for v in range(V)]
        return _triangles(tables, rows.sum(0))
    first, member, place = _windows(nodes, window)
    Y = _trajectories(nodes, phi, order, first)
    count, longest = int(member.max()) + 1, int(place.max()) + 1
    # Windows as a padded batch; padding has weight zero.
    grid = np.zeros((count, longest), dtype=int)
    filled = np.zeros((count, longest), dtype=bool)
    grid[member, place], filled[member, place] = np.arange(len(member)), True
    start = nodes.t[grid[:, :1]]
    span = np.maximum(nodes.t[grid].max(1, keepdims=True) - start, 1e-300)
    tau = np.where(filled, (nodes.t[grid] - start) / span, 0.0)
    powers = tau[..., None] ** np.arange(order)
    tables, counts = [], np.empty(V)
    for v in range(V):
        weight = (filled * nodes.roots[grid, v])[..., None]
        Q = _basis(powers * weight)
        rows = np.concatenate([Y[grid], np.where(weight > 0, nodes.Y[grid, v][..., None], 0.0)], -1)
        rows = rows * weight
        rows = rows - Q @ (np.swapaxes(Q, 1, 2) @ rows)
        tables.append(rows.reshape(-1, P + 1))
        counts[v] = max((weight > 0).sum() - np.abs(Q).any(1).sum(), 1)
    return _triangles(tables, counts)


def _triangles(tables: Sequence[Array], rows: Array) -> Regression:
    """The regression from the rows of every variable, with the right-hand side last."""
    triangles = [triangle_of(table) for table in tables]
    cost = np.array([R[-1, -1] ** 2 for R in triangles])
    return Regression([R[:-1, :-1] for R in triangles], [R[:-1, -1] for R in triangles], cost, rows)


def _pairs(nodes: Nodes) -> tuple[Flags, Array]:
    """(N, V) mask of the nodes of a map with a known state and next value, and these values."""
    following = np.concatenate([nodes.Y[1:], nodes.Y[-1:]])
    known = (nodes.follows & nodes.seen.all(1))[:, None] & np.isfinite(following)
    return known, np.where(known, following, 0.0)


def operators(nodes: Nodes, order: int, window: int = WINDOW) -> list[tuple[Any, Array]]:
    """The regression as linear operators, for terms that are evaluated many times.

    Returns:
        For every variable a sparse matrix (N, N) from the values of a term at the nodes to its
        column of the regression, without the free initial values, and the right-hand side (N,).
    """
    from scipy.sparse import csr_array, diags_array

    if nodes.discrete:
        known, following = _pairs(nodes)
        roots = known * np.concatenate([nodes.roots[1:], nodes.roots[-1:]])
        return [(diags_array(w).tocsr(), w * y) for w, y in zip(roots.T, following.T)]
    first, member, place = _windows(nodes, window)
    N = len(member)
    impulses = np.eye(int(place.max()) + 1)[place]
    answers = _trajectories(nodes, impulses, order, first)
    out = []
    for v in range(nodes.Y.shape[1]):
        y, parts, at = np.zeros(N), [], []
        for k in range(int(member.max()) + 1):
            mine = np.flatnonzero(member == k)
            weight = nodes.roots[mine, v][:, None]
            tau = nodes.t[mine] - nodes.t[mine[0]]
            powers = (tau / max(float(tau.max()), 1e-300))[:, None] ** np.arange(order) * weight
            Q = _basis(powers[None])[0]
            block = answers[np.ix_(mine, place[mine])] * weight
            parts.append((block - Q @ (Q.T @ block)).ravel())
            at.append((np.repeat(mine, len(mine)), np.tile(mine, len(mine))))
            given = np.where(weight[:, 0] > 0, weight[:, 0] * nodes.Y[mine, v], 0.0)
            y[mine] = given - Q @ (Q.T @ given)
        rows, columns = (np.concatenate([pair[i] for pair in at]) for i in (0, 1))
        out.append((csr_array((np.concatenate(parts), (rows, columns)), shape=(N, N)), y))
    return out


def _basis(columns: Array) -> Array:
    """Orthonormal bases of batched columns; dependent directions are zero."""
    U, values, _ = np.linalg.svd(columns, full_matrices=False)
    good = values > 1e-10 * np.maximum(values[:, :1], 1e-300)
    return U * good[:, None, :]


def _windows(nodes: Nodes, window: int) -> tuple[Flags, Indices, Indices]:
    """Mask of the first nodes of windows, and the window and the position in it of every node."""
    first = np.zeros(len(nodes.t), dtype=bool)
    edges = np.concatenate([[0], np.flatnonzero(~nodes.follows) + 1])
    for a, b in itertools.pairwise(edges):
        pieces = max(round((b - a) / window), 1)
        first[np.linspace(a, b, pieces + 1).astype(int)[:-1]] = True
    member = np.cumsum(first) - 1
    place = np.arange(len(first)) - np.flatnonzero(first)[member]
    return first, member, place


def _trajectories(nodes: Nodes, phi: Array, order: int, first: Flags) -> Array:
    """(N, P) solutions of `y^(order) = phi_j`, zero at the first node of every window."""
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


def regression_of(data: FitInput, phi: Array, top: Array) -> Regression:
    """Regression; with a link, of the inverse link at the smoothed highest derivatives."""
    if data.link is None:
        return regress(data.nodes, phi, data.order)
    known = _pairs(data.nodes)[0] if data.nodes.discrete else np.ones(top.shape, bool)
    tables = [
        np.column_stack([phi, data.link.inverse(top[:, v])])[known[:, v]]
        for v in range(top.shape[1])
    ]
    return _triangles(tables, known.sum(0).astype(float))


def initial_coefficients(
    data: FitInput, regression: Regression, phi: Array, top: Array
) -> tuple[Array, Array]:
    """Coefficients with all terms, and with selected terms; both (V, P)."""
    rules, fixed = data.rules, data.fixed
    every, chosen = fixed.copy(), fixed.copy()
    for v in range(len(fixed)):
        allowed = rules.allowed[v]
        k = int(allowed.sum())
        if k == 0:
            continue
        R, b = regression.R[v][:, allowed], regression.b[v] - regression.R[v] @ fixed[v]
        full = select(R, b, 0.0, required=np.ones(k, bool))
        rows = regression.rows[v]
        spread = max((regression.cost[v] + full.cost) / max(rows - k, 1.0), 1e-300)
        penalty = spread * penalty_for(int(rows), k, rules.strength)
        size = root_mean_square(phi[:, allowed]) / root_mean_square(top[:, v])
        bounds = {"low": rules.low[v, allowed], "high": rules.high[v, allowed]}
        every[v, allowed] = full.p
        chosen[v, allowed] = _above_threshold(R, b, penalty, bounds, size, rules.threshold).p
    return every, chosen


def _above_threshold(
    R: Array, b: Array, penalty: float, bounds: dict[str, Any], size: Array, threshold: float
) -> Selection:
    """Select terms, then remove those below the threshold."""
    found = select(R, b, penalty, **bounds)
    while (small := found.support & (np.abs(found.p) * size < threshold)).any():
        support = found.support.copy()
        support[np.argmin(np.where(small, np.abs(found.p) * size, np.inf))] = False
        found = select(R, b, np.inf, start=support, required=support)
    return found


def preselected(data: FitInput, regression: Regression, chosen: Array) -> Rules:
    """Preselect candidates by orthogonal matching pursuit if there are too many."""
    rules, fixed = data.rules, data.fixed
    if rules.allowed.sum() <= MOST_CANDIDATES:
        return rules
    each = max(MOST_CANDIDATES // len(fixed), 4)
    kept = np.zeros_like(rules.allowed)
    for v in range(len(fixed)):
        where = np.flatnonzero(rules.allowed[v])
        R = regression.R[v][:, where]
        b = regression.b[v] - regression.R[v] @ fixed[v]
        length = np.maximum(np.sqrt((R**2).sum(0)), 1e-300)
        support = chosen[v, where] != 0
        residual = b - R @ np.where(support, chosen[v, where], 0.0)
        while support.sum() < min(each, len(where)):
            gain = np.where(support, -1.0, np.abs(R.T @ residual) / length)
            support[np.argmax(gain)] = True
            p = np.linalg.lstsq(R[:, support], b, rcond=None)[0]
            residual = b - R[:, support] @ p
        kept[v, where[support]] = True
    return replace(rules, allowed=kept)


def regression_deviation(regression: Regression, Xi: Array, rules: Rules) -> Array:
    """(V, P) standard deviations of the coefficients for given terms."""
    out = np.zeros_like(Xi)
    for v in range(len(Xi)):
        support = (Xi[v] != 0) & rules.allowed[v]
        if support.any():
            R = regression.R[v][:, support]
            found = select(R, regression.b[v], 0.0, required=np.ones(int(support.sum()), bool))
            rows = max(regression.rows[v] - support.sum(), 1.0)
            out[v, support] = found.deviation * np.sqrt((regression.cost[v] + found.cost) / rows)
    return out
