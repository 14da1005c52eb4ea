"""CPU kernels: orthogonal elimination of many sequences, or pieces of one, in SIMD lanes.

The unknowns of a piece (`pieces.py`) are eliminated in time order by Givens rotations. If a
sequence is cut into several pieces, the last `reach` times of a piece (its separator) are not
eliminated, and the separator of the previous piece adds `k` extra columns on the right; the
remainder of each piece is a small triangle that couples two separators (`separators.py`).

A row of a block is laid out as `[own n | next n (| after-next n) | left k | rhs 1]`, so that every
rotation and every substitution accesses contiguous cells. `reach` is 1 for the `smnn` scheme
and 2 for `central`, whose top rows couple three times.
"""

# mypy: ignore-errors
from __future__ import annotations

import numpy as np

from smnn._solver.cpu.lanes import (
    W,
    add,
    add_squares,
    clear,
    copy,
    differs,
    gather,
    givens,
    givens_from,
    keep_weakest,
    product,
    quotient,
)
from smnn._solver.cpu.pieces import (
    AHEAD,
    cells,
    constant,
    find,
    find_pieces,
    inner,
    lane_integers,
    longest_piece,
    prefetch_steps,
    release,
    row_cells,
    set_times,
    small,
    split,
    unowned,
)


@small
def build_link(link, squares, K_cells, powers, V, m, width):
    """Link rows of a step: `-K F D` on the old block, `K D` on the new. `powers` holds `w s^j`."""
    n = V * m
    clear(squares, 0, 2 * n)
    for i in range(n):
        for j in range(i, i // m * m + m):
            for side in range(2):
                cell = i * width + side * n + j
                product(link, cell, K_cells, (i * m + j % m) * 2 + side, powers, j)
                add_squares(squares, side * n + j, link, cell, 1)


@small
def insert_left(left, k, row, tail):
    """Rotate the remainder of a row over the left separator into the left triangle."""
    for j in range(k):
        givens(left, j * (k + 1) + j, row, tail + j, k + 1 - j, 0, 0, 0)


@small
def insert_local(blocks, new, n, tail, k, width, row, start, left, squares, at):
    """Rotate a row over one time into the triangle of that time."""
    add_squares(squares, at + start, row, start, n - start)
    for j in range(start, n):
        givens(blocks, new + j * width + j, row, j, n - j, tail - j, tail - j, k + 1)
    insert_left(left, k, row, tail)


@small
def finish(
    blocks, base, n, span, k, width, ones, factor, at, z, z_at, squares, norms, rcond, weakest
):  # fmt: skip
    """Store a finished block; update the smallest pivot relative to its column.

    Padding times have pivots of 1 in columns of norm 1, and are never the weakest.
    """
    for j in range(n):
        start = base + j * width
        keep_weakest(rcond, weakest, blocks, start + j, squares, norms + j, z_at + j)
        quotient(factor, at, ones, 0, blocks, start + j)
        copy(factor, at + 1, blocks, start + j + 1, span - j - 1 + k)
        at += span - j + k
        copy(z, z_at + j, blocks, start + width - 1, 1)


@small
def first_link(row, link, i, n, m, span, k, width, lane_t, lane_t0):
    """Link row `i` of the first two steps, where the previous time may be in another piece."""
    clear(row, 0, width)
    for column in range(i, i // m * m + m):
        for l in range(W):
            t, t0 = lane_t[l], lane_t0[l]
            if t < t0:
                if column == i:  # padding time: y = 0
                    row[(n + column) * W + l] = 1.0
            elif t > 0:
                before = column if t > t0 else span + k - n + column
                row[before * W + l] = link[(i * width + column) * W + l]
                row[(n + column) * W + l] = link[(i * width + n + column) * W + l]


@small
def central_row(row, s, w_top, v, n, m, span, width, lane_b, lane_t, lane_t0):
    """Row of variable `v` that couples the top derivative at `t - 1` with its neighbours."""
    clear(row, 0, width)
    for l in range(W):
        b, t, t0 = lane_b[l], lane_t[l], lane_t0[l]
        if t >= max(t0, 2):
            H = s[b, t - 2, v] + s[b, t - 1, v]
            w = w_top[b, t - 2, v] * H ** (m - 3)
            column = v * m + m - 2
            early = column if t - 2 >= t0 else span + (t - t0) * n + column
            middle = n + column if t - 1 >= t0 else span + n + column
            row[early * W + l] = -w
            row[(middle + 1) * W + l] = -w * H
            row[(2 * n + column) * W + l] = w


@small
def store_coupling(blocks, L, n, reach, k, width, left, squares, left_squares, l, coupling, at):
    """Store the coupling rows of a piece's own and left separators, and norms."""
    size = 2 * k + 1
    norms = at + 2 * k * size
    for i in range(2 * k * size):
        coupling[at + i] = 0.0
    for block in range(reach):
        slot = (L - reach + block) % (reach + 1) * n
        base = slot * width
        for j in range(n):
            coupling[norms + block * n + j] = squares[(slot + j) * W + l]
            target = at + (block * n + j) * size
            for x in range((reach - block) * n):
                coupling[target + block * n + x] = blocks[(base + j * width + x) * W + l]
            for x in range(k + 1):
                coupling[target + k + x] = blocks[(base + (j + 1) * width - k - 1 + x) * W + l]
    for j in range(k):
        for x in range(j, k + 1):
            coupling[at + (k + j) * size + k + x] = left[(j * (k + 1) + x) * W + l]
    for j in range(k):
        coupling[norms + k + j] = left_squares[j * W + l]


@inner
def eliminate(
    c, d, u, s, w_gov, w_init, scale, K, KF, w_top, reach, P, first, last,
    factor, z, coupling, rcond_out, weakest_out,
):  # fmt: skip
    """Eliminate groups `first..last` of `W` lanes (layout in the module docstring)."""
    B, T, Q, V, m = c.shape
    T_init, m_init = u.shape[1], u.shape[3]
    n = V * m
    k = reach * n if P > 1 else 0
    span = (1 + reach) * n
    width, L, size = span + k + 1, longest_piece(T, P), row_cells(n, reach, k)
    steady_K, steady_scale, steady_w = constant(K), constant(scale), constant(w_gov)

    c, d, u, s, w_gov, w_init = unowned((c, d, u, s, w_gov, w_init))
    scale, K, KF, w_top = unowned((scale, K, KF, w_top))
    factor, z, coupling = unowned((factor, z, coupling))
    sizes = (
        (reach + 1) * n * width, width, Q, n * width, n * m * 2, n, 2 * V, 2 * V, k * (k + 1),
        span, 2 * n, k, 1, 1, 1,
    )  # fmt: skip
    numbers, offsets = cells(sizes), lane_integers(12)
    (
        blocks, row, weights, link, K_cells, powers, step_size, old_size, left, squares,
        link_squares, left_squares, rcond, weakest, ones,
    ) = split(numbers, sizes)  # fmt: skip
    (
        lane_b, lane_p, lane_t0, lane_end, lane_t, at_c, at_d, at_w, at_s, at_scale, at_K, at_KF,
    ) = split(offsets, (1,) * 12)  # fmt: skip

    for group in range(first, last):
        find_pieces(group, B, T, P, lane_b, lane_p, lane_t0, lane_end)
        for buffer in (blocks, left, squares, left_squares, weakest):
            buffer[:] = 0.0
        rcond[:], ones[:] = np.inf, 1.0

        for step in range(L):
            new = (step % (reach + 1)) * n
            old = ((step + reach) % (reach + 1)) * n
            oldest = ((step + 1) % (reach + 1)) * n
            set_times(lane_t, lane_end, L, step)
            if step <= 2:  # later, every lane advances by one time per step
                find(at_c, c, lane_b, lane_t)
                find(at_d, d, lane_b, lane_t)
                find(at_w, w_gov, lane_b, lane_t)
                lane_t -= 1
                find(at_s, s, lane_b, lane_t)
                find(at_scale, scale, lane_b, lane_t)
                find(at_K, K, lane_b, lane_t)
                find(at_KF, KF, lane_b, lane_t)
                lane_t += 1
            on = max(step - 2, 0)
            prefetch_steps(c, at_c, on, AHEAD)
            prefetch_steps(d, at_d, on, AHEAD)
            prefetch_steps(s, at_s, on, AHEAD)

            if T > 1:
                fresh = step <= 2 or not steady_K
                for v in range(V):
                    gather(step_size, 2 * v, s, at_s, on * s.strides[1] + v * s.strides[2])
                    fresh = fresh or differs(step_size, 2 * v, old_size, 2 * v)
                    if step <= 2 or not steady_scale:
                        gather(
                            step_size, 2 * v + 1, scale, at_scale,
                            on * scale.strides[1] + v * scale.strides[2],
                        )  # fmt: skip
                        fresh = fresh or differs(step_size, 2 * v + 1, old_size, 2 * v + 1)
                if fresh:
                    copy(old_size, 0, step_size, 0, 2 * V)
                    for v in range(V):
                        copy(powers, v * m, step_size, 2 * v + 1, 1)
                        for j in range(1, m):
                            product(powers, v * m + j, powers, v * m + j - 1, step_size, 2 * v)
                    if step <= 2 or not steady_K:
                        for i in range(n):
                            for j in range(i % m, m):
                                cell = (i * m + j) * 2
                                extra = i // m * KF.strides[2] + on * KF.strides[1]
                                extra += i % m * KF.strides[3] + j * KF.strides[4]
                                gather(K_cells, cell, KF, at_KF, extra)
                                for l in range(W):
                                    K_cells[cell * W + l] *= -1.0
                                extra = i // m * K.strides[2] + on * K.strides[1]
                                extra += i % m * K.strides[3] + j * K.strides[4]
                                gather(K_cells, cell + 1, K, at_K, extra)
                    build_link(link, link_squares, K_cells, powers, V, m, width)

            # Link rows, highest order first: the remainder of row i starts at column i of the new
            # block, so the new triangle needs no elimination of its own.
            if step >= 2:
                add(squares, old, link_squares, 0, n)
                copy(squares, new, link_squares, n, n)
            for i in range(n - 1, -1, -1):
                if step >= 2:
                    givens_from(
                        blocks, (old + i) * width + i, link, i * width + i, row, i, n - i,
                        n, n, width - n - i,
                    )  # fmt: skip
                else:
                    first_link(row, link, i, n, m, span, k, width, lane_t, lane_t0)
                    add_squares(squares, old, row, 0, n)
                    add_squares(squares, new, row, n, n)
                    add_squares(left_squares, 0, row, span, k)
                if step > 0:
                    for j in range(i + (step >= 2), n):
                        gap = n + i - j
                        givens(
                            blocks, (old + j) * width + j, row, j, n - j, gap, gap, width - n - i
                        )  # fmt: skip
                start = (new + i) * width
                copy(blocks, start + i, row, n + i, n - i)
                clear(blocks, start + n, span - n)
                copy(blocks, start + span, row, span, k + 1)

            if reach == 1 and step > 0:
                z_at = group * L + step - 1
                finish(
                    blocks, old * width, n, span, k, width, ones, factor, z_at * size, z, z_at * n,
                    squares, old, rcond, weakest,
                )  # fmt: skip

            for q in range(Q):
                if step <= 1 or not steady_w:
                    gather(weights, q, w_gov, at_w, on * w_gov.strides[1] + q * w_gov.strides[2])
                if step == 0:
                    for l in range(W):
                        if lane_t[l] < lane_t0[l]:
                            weights[q * W + l] = 0.0
                clear(row, n, width - n)
                for j in range(n):
                    extra = on * c.strides[1] + q * c.strides[2]
                    gather(row, j, c, at_c, extra + j // m * c.strides[3] + j % m * c.strides[4])
                    product(row, j, row, j, weights, q)
                gather(row, width - 1, d, at_d, on * d.strides[1] + q * d.strides[2])
                product(row, width - 1, row, width - 1, weights, q)
                insert_local(blocks, new * width, n, span, k, width, row, 0, left, squares, new)

            inside = False
            if step <= T_init:  # no piece extends further back
                for l in range(W):
                    inside = inside or lane_t0[l] <= lane_t[l] < T_init
            if inside:
                for v in range(V):
                    for r in range(m_init):
                        clear(row, 0, width)
                        for l in range(W):
                            b, t = lane_b[l], lane_t[l]
                            if lane_t0[l] <= t < T_init:
                                row[(v * m + r) * W + l] = w_init[b, t, v, r]
                                row[(width - 1) * W + l] = w_init[b, t, v, r] * u[b, t, v, r]
                        insert_local(
                            blocks, new * width, n, span, k, width, row, v * m + r, left,
                            squares, new,
                        )  # fmt: skip

            if reach == 2:  # central row over t - 2, t - 1 and t
                for v in range(V):
                    central_row(row, s, w_top, v, n, m, span, width, lane_b, lane_t, lane_t0)
                    for block, slot in enumerate((oldest, old, new)):
                        add_squares(squares, slot, row, block * n, n)
                    add_squares(left_squares, 0, row, span, k)
                    for block, slot in enumerate((oldest, old, new)):
                        if step + block >= 2:
                            for j in range(n):
                                column = block * n + j
                                givens(
                                    blocks, (slot + j) * width + j, row, column, span - column,
                                    span - j, span - column, k + 1,
                                )  # fmt: skip
                    insert_left(left, k, row, span)
                if step > 1:
                    z_at = group * L + step - 2
                    finish(
                        blocks, oldest * width, n, span, k, width, ones, factor, z_at * size, z,
                        z_at * n, squares, oldest, rcond, weakest,
                    )  # fmt: skip

        # Whole sequences end here; the last blocks of pieces go to the chain of separators.
        if P == 1:
            for step in range(max(L - reach, 0), L):
                slot, z_at = (step % (reach + 1)) * n, group * L + step
                finish(
                    blocks, slot * width, n, span, k, width, ones, factor, z_at * size, z, z_at * n,
                    squares, slot, rcond, weakest,
                )  # fmt: skip
        for l in range(W):
            lane = group * W + l
            if lane < B * P:
                if P > 1:
                    room = 2 * k * (2 * k + 1) + 2 * k
                    store_coupling(
                        blocks, L, n, reach, k, width, left, squares, left_squares, l,
                        coupling, lane * room,
                    )  # fmt: skip
                rcond_out[lane] = rcond[l]
                since = weakest[l] - group * L * n  # in steps of the group
                weakest_out[lane] = max(since + (lane_end[l] - L) * n, lane_t0[l] * n)
    release((numbers, offsets))
