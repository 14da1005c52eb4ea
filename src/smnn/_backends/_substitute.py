"""CPU kernels: substitution with a kept factor, lane by lane (layout in `_eliminate.py`)."""

# mypy: ignore-errors
from __future__ import annotations

import numpy as np

from smnn._backends._eliminate import I, compiled, flat, piece_start, row_cells, small, strided
from smnn._backends._lanes import (
    W,
    add_product,
    clear,
    copy,
    gather,
    product,
    scatter,
    subtract_dot,
    subtract_multiple,
)


@small
def find_lanes(offsets, group, step, B, T, P, L, stride_b, stride_t):
    """Byte offset of each lane's sequence and time in a tensor, negative where there is none."""
    for l in range(W):
        lane = group * W + l
        offsets[l] = -1
        if lane < B * P:
            p = lane % P
            t = piece_start(p + 1, T, P) - L + step
            if t >= piece_start(p, T, P):
                offsets[l] = lane // P * stride_b + t * stride_t


@compiled(flat(), flat(), strided(3), strided(4), I, I, I, I)
def substitute_back(factor, z, separators, y, reach, P, first, last):
    """Solve `R y = z`, from the last time to the first, with the separators already known."""
    B, T, V, m = y.shape
    n = V * m
    k = reach * n if P > 1 else 0
    span = (1 + reach) * n
    L = T // P + (1 if T % P else 0)
    cells = row_cells(n, reach, k)
    window, out = np.zeros((span + k) * W), np.empty(W, np.int64)
    for group in range(first, last):
        clear(window, 0, span + k)
        end = L
        if P > 1:
            end = L - reach
            for l in range(W):
                lane = min(group * W + l, B * P - 1)
                b, p = lane // P, lane % P
                for j in range(k):
                    window[j * W + l] = separators[b, p, j]
                    if p > 0:
                        window[(span + j) * W + l] = separators[b, p - 1, j]
                    if lane == group * W + l:
                        t = piece_start(p + 1, T, P) - reach + j // n
                        y[b, t, (j % n) // m, j % m] = separators[b, p, j]
        for step in range(end - 1, -1, -1):
            for j in range(span - n - 1, -1, -1):
                copy(window, n + j, window, j, 1)
            at = (group * L + step + 1) * cells
            for j in range(n - 1, -1, -1):
                at -= span - j + k
                copy(window, j, z, (group * L + step) * n + j, 1)
                subtract_dot(window, j, factor, at + 1, window, j + 1, span - j - 1 + k)
                product(window, j, window, j, factor, at)
            if step < 2 or step == end - 1:
                find_lanes(out, group, step, B, T, P, L, y.strides[0], y.strides[1])
                origin = step
            for j in range(n):
                extra = (step - origin) * y.strides[1]
                scatter(y, out, extra + j // m * y.strides[2] + j % m * y.strides[3], window, j)


@compiled(flat(), strided(4), flat(), strided(4), I, I, I, I)
def substitute_forward(factor, g, z, separators, reach, P, first, last):
    """Solve `R^T z = g`, from the first time to the last.

    What falls on the separators goes to `separators[b, p, 0 | 1]`: own, and the one on the left.
    """
    B, T, V, m = g.shape
    n = V * m
    k = reach * n if P > 1 else 0
    span = (1 + reach) * n
    L = T // P + (1 if T % P else 0)
    cells = row_cells(n, reach, k)
    window, load = np.zeros((span + k) * W), np.zeros(n * W)
    present = np.ones(W)
    at_g = np.empty(W, np.int64)
    for group in range(first, last):
        clear(window, 0, span + k)
        end = L - reach if P > 1 else L
        for step in range(L):
            if step < 2:
                find_lanes(at_g, group, step, B, T, P, L, g.strides[0], g.strides[1])
                origin = step
                for l in range(W):
                    present[l] = 1.0 if at_g[l] >= 0 else 0.0
                    at_g[l] = max(at_g[l], 0)
            place = max(step - end, 0) * n  # the separator's own cells stay in the window
            for j in range(n):
                extra = (step - origin) * g.strides[1]
                gather(load, j, g, at_g, extra + j // m * g.strides[2] + j % m * g.strides[3])
                add_product(window, place + j, load, j, present, 0)
            if step < end:
                at = (group * L + step) * cells
                for j in range(n):
                    product(window, j, window, j, factor, at)
                    subtract_multiple(
                        window, j + 1, factor, at + 1, window, j, span - j - 1 + k
                    )  # fmt: skip
                    at += span - j + k
                copy(z, (group * L + step) * n, window, 0, n)
                copy(window, 0, window, n, span - n)
                clear(window, span - n, n)
        if P > 1:
            for l in range(W):
                lane = group * W + l
                if lane < B * P:
                    b, p = lane // P, lane % P
                    for j in range(k):
                        separators[b, p, 0, j] = window[j * W + l]
                        separators[b, p, 1, j] = window[(span + j) * W + l]
