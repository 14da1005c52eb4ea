"""CPU kernels: derivatives of a loss by every coefficient, row by row.

With `lam = M^-1 dl/dy`, each row `a . y = b` of weight `w` contributes to
`J = sum w^2 (a . lam)(a . y - b)`, and `dl/dtheta = -dJ/dtheta` with `lam` and `y` held fixed.
Lanes are neighbouring times. Outputs with an empty first axis are not wanted and not computed.
"""

# mypy: ignore-errors
from __future__ import annotations

import numpy as np

from smnn._backends._eliminate import I, compiled, find, flat, small, strided
from smnn._backends._lanes import (
    W,
    add_product,
    clear,
    copy,
    gather,
    product,
    reciprocal,
    scatter,
    subtract_dot,
)


@small
def find_all(offsets, tensor, lane_b, lane_t, last, present):
    """Where each lane reads or writes; negative, if `present` says so, where it must not write."""
    find(offsets, lane_b, lane_t, last, tensor.strides[0], tensor.strides[1])
    for l in range(W):
        if present[l] == 0:
            offsets[l] = -1


@compiled(
    strided(4), strided(4), strided(5), strided(3), strided(3), I, I,
    strided(5), strided(3), strided(3),
)  # fmt: skip
def governing_gradients(lam, y, c, d, w_gov, first, last, gc, gd, gw):
    """Gradients by `c`, `d` and `w_gov` for the flattened (sequence, time) pairs `first..last`."""
    B, T, Q, V, m = c.shape
    n = V * m
    x, mu, row = np.empty(n * W), np.empty(n * W), np.empty(n * W)
    a, rho, w, wa, wr = np.empty(W), np.empty(W), np.empty(W), np.empty(W), np.empty(W)
    minus = np.full(W, -1.0)
    lane_b, lane_t = np.empty(W, np.int64), np.empty(W, np.int64)
    always, present = np.ones(W, np.int64), np.ones(W, np.int64)
    at_y, at_c, at_d = np.empty(W, np.int64), np.empty(W, np.int64), np.empty(W, np.int64)
    at_w, to_c = np.empty(W, np.int64), np.empty(W, np.int64)
    to_d, to_w = np.empty(W, np.int64), np.empty(W, np.int64)
    steady = w_gov.strides[0] == 0 and w_gov.strides[1] == 0
    for start in range(first, last, W):
        for l in range(W):
            index = min(start + l, last - 1)
            lane_b[l], lane_t[l] = index // T, index % T
            present[l] = 1 if start + l < last else 0
        find_all(at_y, y, lane_b, lane_t, T - 1, always)
        find_all(at_c, c, lane_b, lane_t, T - 1, always)
        find_all(at_d, d, lane_b, lane_t, T - 1, always)
        if start == first or not steady:
            find_all(at_w, w_gov, lane_b, lane_t, T - 1, always)
        find_all(to_c, gc, lane_b, lane_t, T - 1, present)
        find_all(to_d, gd, lane_b, lane_t, T - 1, present)
        if gw.shape[0] > 0:
            find_all(to_w, gw, lane_b, lane_t, T - 1, present)
        for j in range(n):
            extra = j // m * y.strides[2] + j % m * y.strides[3]
            gather(x, j, y, at_y, extra)
            gather(mu, j, lam, at_y, extra)
        for q in range(Q):
            gather(rho, 0, d, at_d, q * d.strides[2])
            if start == first or not steady or Q > 1:
                gather(w, 0, w_gov, at_w, q * w_gov.strides[2])
            product(rho, 0, rho, 0, minus, 0)
            clear(a, 0, 1)
            for j in range(n):
                extra = q * c.strides[2] + j // m * c.strides[3] + j % m * c.strides[4]
                gather(row, j, c, at_c, extra)
                add_product(a, 0, row, j, mu, j)
                add_product(rho, 0, row, j, x, j)
            product(wa, 0, w, 0, a, 0)
            product(wr, 0, w, 0, rho, 0)
            if gw.shape[0] > 0:
                product(row, 0, wa, 0, rho, 0)
                for l in range(W):
                    row[l] *= -2.0
                scatter(gw, to_w, q * gw.strides[2], row, 0)
            product(wa, 0, w, 0, wa, 0)
            product(wr, 0, w, 0, wr, 0)
            if gd.shape[0] > 0:
                scatter(gd, to_d, q * gd.strides[2], wa, 0)
            if gc.shape[0] > 0:
                product(wa, 0, wa, 0, minus, 0)
                product(wr, 0, wr, 0, minus, 0)
                for j in range(n):
                    product(row, j, wa, 0, x, j)
                    add_product(row, j, wr, 0, mu, j)
                    extra = q * gc.strides[2] + j // m * gc.strides[3] + j % m * gc.strides[4]
                    scatter(gc, to_c, extra, row, j)


@compiled(strided(4), strided(4), strided(4), strided(4), I, I, strided(4), strided(4))
def initial_gradients(lam, y, u, w_init, first, last, gu, gw):
    """Gradients by `u` and `w_init` for the sequences `first..last`."""
    for b in range(first, last):
        for t in range(u.shape[1]):
            for v in range(u.shape[2]):
                for r in range(u.shape[3]):
                    w, a = w_init[b, t, v, r], lam[b, t, v, r]
                    if gu.shape[0] > 0:
                        gu[b, t, v, r] = w * w * a
                    if gw.shape[0] > 0:
                        gw[b, t, v, r] = -2.0 * w * a * (y[b, t, v, r] - u[b, t, v, r])


@small
def rows_of(before, after, taylor, inverse, top, m, part, forward, backward):
    """Forward Taylor rows from `s^j x_j` at both ends of a step; the backward ones follow."""
    for r in range(part, part + m):
        copy(forward, r, after, r, 1)
        subtract_dot(forward, r, taylor, (r - part) * (m + 1), before, r, m - r + part)
    clear(backward, part, m)
    for r in range(part, part + top):
        subtract_dot(backward, r, inverse, (r - part) * (m + 1), forward, r, m - r + part)


@compiled(
    strided(4), strided(4), strided(3), strided(4), flat(), flat(), I, I, I,
    strided(3), strided(4),
)  # fmt: skip
def taylor_gradients(lam, y, s, w_smooth, taylor, inverse, top, first, last, gs, gw):
    """Gradients by `s` and `w_smooth` from the Taylor rows, for flattened (sequence, step) pairs.

    `taylor` and `inverse` hold the two Taylor matrices, every entry repeated over the lanes.
    """
    B, T, V, m = y.shape
    steps = T - 1
    orders, powers = np.empty(m * W), np.empty(m * W)
    for j in range(m):
        for l in range(W):
            orders[j * W + l] = j
            powers[j * W + l] = 1.0
    # [trajectory or adjoint][value or slope] of before, after, forward, backward
    before, after = np.empty(4 * m * W), np.empty(4 * m * W)
    forward, backward = np.empty(4 * m * W), np.empty(4 * m * W)
    h, inv, w, total, both = np.empty(W), np.empty(W), np.empty(W), np.empty(W), np.empty(W)
    lane_b, lane_t = np.empty(W, np.int64), np.empty(W, np.int64)
    always, present = np.ones(W, np.int64), np.ones(W, np.int64)
    at_y, at_s, at_w = np.empty(W, np.int64), np.empty(W, np.int64), np.empty(W, np.int64)
    to_s, to_w = np.empty(W, np.int64), np.empty(W, np.int64)
    steady = w_smooth.strides[0] == 0 and w_smooth.strides[1] == 0 and V == 1
    steady = steady and w_smooth.strides[3] == 0
    for start in range(first, last, W):
        for l in range(W):
            index = min(start + l, last - 1)
            lane_b[l], lane_t[l] = index // steps, index % steps
            present[l] = 1 if start + l < last else 0
        find_all(at_y, y, lane_b, lane_t, T - 1, always)
        find_all(at_s, s, lane_b, lane_t, T - 1, always)
        if start == first or not steady:
            find_all(at_w, w_smooth, lane_b, lane_t, T - 1, always)
        find_all(to_s, gs, lane_b, lane_t, T - 1, present)
        if gw.shape[0] > 0:
            find_all(to_w, gw, lane_b, lane_t, T - 1, present)
        for v in range(V):
            gather(h, 0, s, at_s, v * s.strides[2])
            reciprocal(inv, 0, h, 0)
            for j in range(1, m):
                product(powers, j, powers, j - 1, h, 0)
            for j in range(m):
                extra = v * y.strides[2] + j * y.strides[3]
                for which in range(2):
                    cell = 2 * which * m + j
                    if which == 0:
                        gather(before, cell, y, at_y, extra)
                        gather(after, cell, y, at_y, extra + y.strides[1])
                    else:
                        gather(before, cell, lam, at_y, extra)
                        gather(after, cell, lam, at_y, extra + y.strides[1])
                    product(before, cell, before, cell, powers, j)
                    product(after, cell, after, cell, powers, j)
                    product(before, cell + m, before, cell, orders, j)
                    product(after, cell + m, after, cell, orders, j)
            for part in range(4):
                rows_of(before, after, taylor, inverse, top, m, part * m, forward, backward)
            clear(total, 0, 1)
            for r in range(m):
                clear(both, 0, 1)
                if r < top:
                    if not steady or (start == first and r == 0):
                        extra = v * w_smooth.strides[2] + r * w_smooth.strides[3]
                        gather(w, 0, w_smooth, at_w, extra)
                    for rows in (forward, backward):
                        add_product(both, 0, rows, r, rows, 3 * m + r)
                        add_product(both, 0, rows, m + r, rows, 2 * m + r)
                    product(both, 0, both, 0, w, 0)
                    add_product(total, 0, both, 0, w, 0)
                if gw.shape[0] > 0:
                    clear(both, 0, 1)
                    if r < top:
                        for rows in (forward, backward):
                            add_product(both, 0, rows, r, rows, 2 * m + r)
                        product(both, 0, both, 0, w, 0)
                    for l in range(W):
                        both[l] *= -2.0
                    scatter(gw, to_w, v * gw.strides[2] + r * gw.strides[3], both, 0)
            if gs.shape[0] > 0:
                product(total, 0, total, 0, inv, 0)
                for l in range(W):
                    total[l] = -total[l]
                scatter(gs, to_s, v * gs.strides[2], total, 0)


@small
def central_row(x, b, t, v, R, H):
    """Central row around time `t + 1`, and its slope in `H`."""
    rise = x[b, t + 2, v, R - 1] - x[b, t, v, R - 1]
    top = x[b, t + 1, v, R]
    value = H ** (R - 2) * (rise - H * top)
    return value, (R - 2) * value / H - H ** (R - 2) * top


@compiled(
    strided(4), strided(4), strided(3), strided(4), I, I, strided(3), strided(4)
)  # fmt: skip
def central_gradients(lam, y, s, w_smooth, first, last, gs, gw):
    """Add what the central rows of the sequences `first..last` contribute."""
    B, T, V, m = y.shape
    R = m - 1
    for b in range(first, last):
        for t in range(T - 2):
            for v in range(V):
                H = s[b, t, v] + s[b, t + 1, v]
                w = w_smooth[b, t, v, R]
                a, slope_a = central_row(lam, b, t, v, R, H)
                rho, slope_rho = central_row(y, b, t, v, R, H)
                if gs.shape[0] > 0:
                    change = w * w * (slope_a * rho + a * slope_rho)
                    gs[b, t, v] -= change
                    gs[b, t + 1, v] -= change
                if gw.shape[0] > 0:
                    gw[b, t, v, R] = -2.0 * w * a * rho
