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

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from smnn._solver.cpu.kernels.emit import I64, Cells, Code, Number, compiled
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


def _reflect(e: Code, W: Cells, width: Number, span: tuple[Number, Number, Number]) -> None:
    """Annihilate a column of the rows after `top`; `span` is `(top, column, rows)`."""
    top, column, rows = span
    norm2, dot = e.local(1), e.local(1)
    norm2[0] = 0.0
    for i in e.range(top, rows):
        norm2[0] = norm2[0] + W[i * width + column] * W[i * width + column]
    for _ in e.when(norm2[0] > 0.0):
        pivot = top * width + column
        alpha, root = W[pivot], e.call("llvm.sqrt.f64", "double", ["double"], norm2[0])
        beta = e.select(alpha > 0.0, -root, root)
        head = alpha - beta
        scale = -1.0 / (beta * head)  # 2 / |v|^2 with v = (head, tail)
        for j in e.range(column + 1, width):
            dot[0] = head * W[top * width + j]
            for i in e.range(top + 1, rows):
                dot[0] = dot[0] + W[i * width + column] * W[i * width + j]
            dot[0] = dot[0] * scale
            W[top * width + j] = W[top * width + j] - dot[0] * head
            for i in e.range(top + 1, rows):
                W[i * width + j] = W[i * width + j] - dot[0] * W[i * width + column]
        W[pivot] = beta
        for i in e.range(top + 1, rows):
            W[i * width + column] = 0.0


def _sweep() -> Code:
    e = Code("sweep", 1, 14, False)
    N, D, m, *addresses, at_follows = e.arguments
    A, B, r, wq, wd, data, anchor, kept, left, W = (e.memory(x) for x in addresses)
    follows, fresh = e.memory(at_follows, I64), e.local(1, I64)
    width, rows = D * 2 + m + 1, D * 3
    fresh[0] = 1
    for k in e.range(0, N):
        for _ in e.when(fresh[0] == 1):  # a weak anchor, so that no state is undetermined
            for i in e.range(0, rows * width):
                W[i] = 0.0
            for i in e.range(0, D):
                W[(D + i) * width + i] = anchor[i]
        for i in e.range(0, D):  # rows of the data
            row = W.at((D * 2 + i) * width)
            for j in e.range(0, width):
                row[j] = 0.0
            row[i], row[width - 1] = wd[k * D + i], wd[k * D + i] * data[k * D + i]
        for _ in e.when(follows[k] != 0):
            for i in e.range(0, D):  # rows of the step
                row, w, cell = W.at(i * width), wq[k * D + i], k * D + i
                for j in e.range(0, D):
                    row[j], row[D + j] = -w * A[cell * D + j], 0.0
                row[D + i], row[width - 1] = w, -w * r[cell]
                for j in e.range(0, m):
                    row[D * 2 + j] = -w * B[cell * m + j]
            for j in e.range(0, D):
                _reflect(e, W, width, (j, j, rows))
            _keep(e, kept, W, k * D, D, width)
            for j in e.range(0, D):
                _reflect(e, W, width, (D + j, D + j, rows))
            for i in e.range(0, D):
                for j in e.range(0, m + 1):
                    left[(k * D + i) * (m + 1) + j] = W[(D * 2 + i) * width + D * 2 + j]
                for j in e.range(0, D):  # move the rows of the next node into place
                    row = W.at((D + i) * width)
                    row[j], row[D + j] = row[D + j], 0.0
            fresh[0] = 0
        for _ in e.when(follows[k] == 0):
            for j in e.range(0, D):
                _reflect(e, W, width, (D + j, j, rows))
            _keep(e, kept, W.at(D * width), k * D, D, width)
            for i in e.range(0, D):
                for j in e.range(0, m + 1):
                    left[(k * D + i) * (m + 1) + j] = W[(D * 2 + i) * width + D * 2 + j]
            fresh[0] = 1
    return e


def _keep(e: Code, kept: Cells, rows: Cells, first: Number, D: Number, width: Number) -> None:
    for i in e.range(0, D * width):
        kept[first * width + i] = rows[i]


def _back() -> Code:
    e = Code("back", 1, 7, False)
    N, D, m, *addresses, at_follows = e.arguments
    kept, dp, dx = (e.memory(x) for x in addresses)
    follows, value = e.memory(at_follows, I64), e.local(1)
    width = D * 2 + m + 1
    for k in e.range(N - 1, -1, -1):
        for i in e.range(D - 1, -1, -1):
            row = kept.at((k * D + i) * width)
            value[0] = row[width - 1]
            for j in e.range(0, m):
                value[0] = value[0] - row[D * 2 + j] * dp[j]
            for _ in e.when(follows[k] != 0):
                for j in e.range(0, D):
                    value[0] = value[0] - row[D + j] * dx[(k + 1) * D + j]
            for j in e.range(i + 1, D):
                value[0] = value[0] - row[j] * dx[k * D + j]
            pivot = row[i]
            dx[k * D + i] = e.select(pivot == 0.0, 0.0, value[0] / pivot)
    return e


@functools.cache
def _functions() -> tuple[Any, Any]:
    return compiled([_sweep()]), compiled([_back()])


def _run(which: int, sizes: Sequence[int], arrays: Sequence[Any]) -> None:
    """Call one of the functions; the arrays are contiguous."""
    _functions()[which][1](*sizes, *(x.ctypes.data for x in arrays))


def eliminate(chain: Chain, anchor: Array) -> Eliminated:
    """Eliminate the states.

    Args:
        chain: The rows.
        anchor: (D,) small weights of rows `dx = 0` at the first node of every series.
    """
    N, D, m = chain.B.shape
    kept = np.empty((N, D, 2 * D + m + 1))
    left = np.empty((N, D, m + 1))
    rows = np.empty((3 * D, 2 * D + m + 1))
    *given, follows = [*chain[:6], anchor, kept, left, rows, chain.follows]
    arrays = [np.ascontiguousarray(x, float) for x in given]
    _run(0, (N, D, m), [*arrays, np.ascontiguousarray(follows, np.int64)])
    return Eliminated(kept, left)


def states_for(eliminated: Eliminated, chain: Chain, dp: Array) -> Array:
    """Back-substitute for the state updates (N, D), given the parameter updates."""
    N, D, m = chain.B.shape
    dx = np.empty((N, D))
    given = [np.ascontiguousarray(x, float) for x in (eliminated.kept, dp)]
    _run(1, (N, D, m), [*given, dx, np.ascontiguousarray(chain.follows, np.int64)])
    return dx
