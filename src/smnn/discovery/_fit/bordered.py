"""Bordered block-bidiagonal least squares by one sweep of Householder reflections.

The unknowns are the updates `dx_k` of the states at all nodes and the updates `dp` of `m`
parameters shared by all steps. The rows are

    step     wq_k (dx_{k+1} - A_k dx_k - B_k dp) = -wq_k r_k      where node k + 1 follows node k
    data     wd_k dx_k = wd_k e_k

The states are eliminated one by one; each node leaves a few rows in `dp` alone. These rows are
stored per node, so that a bootstrap can reweight parts of the data without another sweep. Normal
equations are avoided: step rows may be many orders of magnitude heavier than data rows, and placing
them first keeps Householder reflections row-wise accurate (Cox and Higham 1998).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from smnn._util.jit import jit
from smnn.discovery._arrays import Array, Flags


class Chain(NamedTuple):
    """Rows of the problem; `N` nodes, `D` state components, `m` parameters."""

    A: Array  # (N, D, D); the entry of the last node of a series is unused
    B: Array  # (N, D, m)
    r: Array  # (N, D)
    wq: Array  # (N, D); zero where no node follows in the same series
    wd: Array  # (N, D); zero where values are missing
    e: Array  # (N, D)
    follows: Flags  # (N,) whether node k + 1 belongs to the same series


class Eliminated(NamedTuple):
    """Result of a sweep."""

    kept: Array  # (N, D, 2D + m + 1) triangular rows of the states, right-hand side last
    left: Array  # (N, D, m + 1) rows in the parameters alone

    @property
    def log_determinant(self) -> float:
        """Log-determinant of the triangular factor of the states."""
        D = self.kept.shape[1]
        diagonal = np.abs(self.kept[:, np.arange(D), np.arange(D)])
        return float(np.log(np.maximum(diagonal, np.finfo(float).tiny)).sum())


@jit()
def _reflect(W: Array, top: int, rows: int, column: int, end: int) -> None:
    """Annihilate `W[top + 1:rows, column]`, updating the columns up to `end`."""
    norm2 = 0.0
    for i in range(top, rows):
        norm2 += W[i, column] * W[i, column]
    if norm2 == 0.0:
        return
    alpha = W[top, column]
    beta = -np.sqrt(norm2) if alpha > 0.0 else np.sqrt(norm2)
    head = alpha - beta
    scale = -1.0 / (beta * head)  # 2 / |v|^2 with v = (head, tail)
    for j in range(column + 1, end):
        dot = head * W[top, j]
        for i in range(top + 1, rows):
            dot += W[i, column] * W[i, j]
        dot *= scale
        if dot != 0.0:
            W[top, j] -= dot * head
            for i in range(top + 1, rows):
                W[i, j] -= dot * W[i, column]
    W[top, column] = beta
    for i in range(top + 1, rows):
        W[i, column] = 0.0


@jit()
def _sweep(
    A: Array,
    B: Array,
    r: Array,
    wq: Array,
    wd: Array,
    e: Array,
    follows: Flags,
    anchor: Array,
    kept: Array,
    left: Array,
) -> None:
    N, D, m = B.shape
    width = 2 * D + m + 1
    W = np.zeros((3 * D, width))
    fresh = True
    for k in range(N):
        if fresh:  # a weak anchor at the first node, so that no state is undetermined
            W[:, :] = 0.0
            for i in range(D):
                W[D + i, i] = anchor[i]
        for i in range(D):  # rows of the data
            W[2 * D + i, :] = 0.0
            W[2 * D + i, i] = wd[k, i]
            W[2 * D + i, width - 1] = wd[k, i] * e[k, i]
        if follows[k]:
            for i in range(D):
                w = wq[k, i]
                for j in range(D):
                    W[i, j] = -w * A[k, i, j]
                    W[i, D + j] = 0.0
                W[i, D + i] = w
                for j in range(m):
                    W[i, 2 * D + j] = -w * B[k, i, j]
                W[i, width - 1] = -w * r[k, i]
            for j in range(D):
                _reflect(W, j, 3 * D, j, width)
            for i in range(D):
                kept[k, i, :] = W[i, :]
            for j in range(D):
                _reflect(W, D + j, 3 * D, D + j, width)
            for i in range(D):
                left[k, i, :] = W[2 * D + i, 2 * D :]
            for i in range(D):  # move the rows of the next node into place
                for j in range(D):
                    W[D + i, j] = W[D + i, D + j]
                    W[D + i, D + j] = 0.0
            fresh = False
        else:
            for j in range(D):
                _reflect(W, D + j, 3 * D, j, width)
            for i in range(D):
                kept[k, i, :] = W[D + i, :]
                left[k, i, :] = W[2 * D + i, 2 * D :]
            fresh = True


@jit()
def _back(kept: Array, follows: Flags, dp: Array, dx: Array) -> None:
    N, D, width = kept.shape
    m = width - 2 * D - 1
    for k in range(N - 1, -1, -1):
        for i in range(D - 1, -1, -1):
            value = kept[k, i, width - 1]
            for j in range(m):
                value -= kept[k, i, 2 * D + j] * dp[j]
            if follows[k]:
                for j in range(D):
                    value -= kept[k, i, D + j] * dx[k + 1, j]
            for j in range(i + 1, D):
                value -= kept[k, i, j] * dx[k, j]
            pivot = kept[k, i, i]
            dx[k, i] = value / pivot if pivot != 0.0 else 0.0


def eliminate(chain: Chain, anchor: Array) -> Eliminated:
    """Eliminate the states.

    Args:
        chain: The rows.
        anchor: (D,) small weights of rows `dx = 0` at the first node of every series.
    """
    N, D, m = chain.B.shape
    kept = np.empty((N, D, 2 * D + m + 1))
    left = np.empty((N, D, m + 1))
    rows: Any = [np.ascontiguousarray(x) for x in chain]
    _sweep(*rows, np.asarray(anchor, float), kept, left)
    return Eliminated(kept, left)


def states_for(eliminated: Eliminated, chain: Chain, dp: Array) -> Array:
    """Back-substitute for the state updates (N, D), given the parameter updates."""
    dx = np.empty(eliminated.kept.shape[:2])
    _back(eliminated.kept, np.ascontiguousarray(chain.follows), np.ascontiguousarray(dp), dx)
    return dx
