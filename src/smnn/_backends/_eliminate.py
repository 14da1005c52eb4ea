"""CPU kernels: orthogonal elimination of many sequences, or pieces of one, side by side.

One lane works on one *piece*: a run of consecutive times of one sequence. Its unknowns are
eliminated in time order by Givens rotations. If a sequence is cut into several pieces, the last
`reach` times of a piece (its separator) are not eliminated, and the separator of the piece before
rides along as `k` extra columns on the right; what remains of each piece is a small triangle that
couples two separators (`_separators.py`).

A row of a block is laid out as `[own n | next n (| after-next n) | left k | rhs 1]`, so that every
rotation and every substitution runs over neighbouring cells. `reach` is 1 for the `smnn` scheme
and 2 for `central`, whose top rows tie three times together.
"""

# mypy: ignore-errors
from __future__ import annotations

import numba as nb
import numpy as np

from smnn._backends._lanes import (
    W,
    add_squares,
    clear,
    copy,
    differs,
    gather,
    givens,
    keep_weakest,
    product,
    reciprocal,
)

F = nb.float64
I = nb.int64


def strided(ndim: int) -> nb.types.Array:
    """Any layout: one compiled version serves contiguous, transposed and broadcast tensors."""
    return nb.types.Array(F, ndim, "A")


def flat() -> nb.types.Array:
    """A flat working buffer."""
    return nb.types.Array(F, 1, "C")


def compiled(*arguments: nb.types.Type, returns: nb.types.Type = nb.void):
    """Compile ahead for one signature, keep it on disk, run without the interpreter lock."""
    return nb.njit(returns(*arguments), cache=True, nogil=True, error_model="numpy")


small = nb.njit(inline="always", error_model="numpy")


@small
def piece_start(p, T, P):
    """First time of piece `p` when `T` times are cut into `P` pieces as evenly as possible."""
    return p * (T // P) + min(p, T % P)


@small
def row_cells(n, reach, k):
    """Cells of one stored factor row set: triangle, coupling to later blocks, left columns."""
    return n * (n + 1) // 2 + n * (reach * n + k)


@small
def find(offsets, lane_b, lane_t, last, stride_b, stride_t):
    """Byte offset of every lane's sequence and time in a tensor; times stay inside `0..last`."""
    for l in range(W):
        offsets[l] = lane_b[l] * stride_b + min(max(lane_t[l], 0), last) * stride_t


@small
def build_link(link, K_cells, powers, V, m):
    """Link rows of a step: `-K F D` on the old block, `K D` on the new. `powers` holds `w s^j`."""
    for v in range(V):
        for i in range(m):
            for j in range(i, m):
                cell = ((v * m + i) * m + j) * 2
                product(link, cell, K_cells, cell, powers, v * m + j)
                product(link, cell + 1, K_cells, cell + 1, powers, v * m + j)


@small
def insert_left(left, k, row, tail):
    """Rotate what a row still says about the left separator into the left triangle."""
    for j in range(k):
        givens(left, j * (k + 1) + j, row, tail + j, k + 1 - j, 0, 0, 0)


@small
def insert_local(blocks, new, n, tail, k, width, row, start, left):
    """Rotate a row that lives at one time into the triangle of that time."""
    for j in range(start, n):
        at = new + j * width
        givens(blocks, at + j, row, j, n - j, at + tail, tail, k + 1)
    insert_left(left, k, row, tail)


@small
def finish(blocks, base, n, span, k, width, factor, at, z, z_at, squares, left_squares):
    """Keep a block that no later row touches, and add its rows to the norms of the columns."""
    for j in range(n):
        start = base + j * width
        reciprocal(factor, at, blocks, start + j)
        copy(factor, at + 1, blocks, start + j + 1, span - j - 1 + k)
        at += span - j + k
        copy(z, z_at + j, blocks, start + width - 1, 1)
        add_squares(squares, j, blocks, start + j, span - j)
        add_squares(left_squares, 0, blocks, start + span, k)


@small
def weigh(blocks, base, n, span, width, squares, lane_t, back, index, rcond, weakest):
    """Track the smallest pivot relative to its column; then move the norms on by one block.

    A time that is not there has pivots of 1 in columns of norm 1, and never counts.
    """
    for j in range(n):
        for l in range(W):
            index[l] = (lane_t[l] - back) * n + j
        keep_weakest(rcond, weakest, blocks, base + j * width + j, squares, j, index, 0)
    copy(squares, 0, squares, n, span - n)
    clear(squares, span - n, n)


@small
def hand_over(blocks, L, n, reach, k, width, left, squares, left_squares, l, coupling, at):
    """Write the rows that couple a piece's own separator with the one on its left, and norms."""
    size = 2 * k + 1
    for i in range(2 * k * size):
        coupling[at + i] = 0.0
    for block in range(reach):
        base = ((L - reach + block) % (reach + 1)) * n * width
        for j in range(n):
            target = at + (block * n + j) * size
            for x in range((reach - block) * n):
                coupling[target + block * n + x] = blocks[(base + j * width + x) * W + l]
            for x in range(k + 1):
                coupling[target + k + x] = blocks[(base + (j + 1) * width - k - 1 + x) * W + l]
    for j in range(k):
        for x in range(j, k + 1):
            coupling[at + (k + j) * size + k + x] = left[(j * (k + 1) + x) * W + l]
    norms = at + 2 * k * size
    for j in range(k):
        coupling[norms + j] = squares[j * W + l]
        coupling[norms + k + j] = left_squares[j * W + l]


@compiled(
    strided(5), strided(3), strided(4), strided(3), strided(3), strided(4), strided(3),
    strided(5), strided(5), strided(3), I, I, I, I, flat(), flat(), flat(), flat(), flat(),
)  # fmt: skip
def eliminate(
    c, d, u, s, w_gov, w_init, scale, K, KF, w_top, reach, P, first, last,
    factor, z, coupling, rcond_out, weakest_out,
):  # fmt: skip
    """Eliminate groups `first..last` of `W` lanes. See the module text for the layout."""
    B, T, Q, V, m = c.shape
    T_init, m_init = u.shape[1], u.shape[3]
    n, R = V * m, m - 1
    k = reach * n if P > 1 else 0
    span = (1 + reach) * n
    width = span + k + 1
    L = T // P + (1 if T % P else 0)
    cells = row_cells(n, reach, k)
    steady_K = K.strides[0] == 0 and K.strides[1] == 0

    blocks = np.zeros((reach + 1) * n * width * W)
    row, weight = np.zeros(width * W), np.zeros(W)
    link, K_cells = np.zeros(n * m * 2 * W), np.zeros(n * m * 2 * W)
    powers, step_size, old_size = np.zeros(n * W), np.zeros(2 * V * W), np.zeros(2 * V * W)
    left = np.zeros(k * (k + 1) * W)
    squares, left_squares = np.zeros(span * W), np.zeros(k * W)
    lane_b, lane_t0 = np.empty(W, np.int64), np.empty(W, np.int64)
    lane_pad, lane_t = np.empty(W, np.int64), np.empty(W, np.int64)
    at_c, at_d, at_w = np.empty(W, np.int64), np.empty(W, np.int64), np.empty(W, np.int64)
    at_s, at_scale = np.empty(W, np.int64), np.empty(W, np.int64)
    at_K, at_KF = np.empty(W, np.int64), np.empty(W, np.int64)
    rcond, weakest, index = np.empty(W), np.empty(W), np.empty(W)

    for group in range(first, last):
        for l in range(W):
            lane = min(group * W + l, B * P - 1)
            p = lane % P
            lane_b[l], lane_t0[l] = lane // P, piece_start(p, T, P)
            lane_pad[l] = L - (piece_start(p + 1, T, P) - lane_t0[l])
            rcond[l], weakest[l] = np.inf, 0.0
        for buffer in (blocks, left, squares, left_squares):
            buffer[:] = 0.0

        for step in range(L):
            new = (step % (reach + 1)) * n * width
            old = ((step + reach) % (reach + 1)) * n * width
            oldest = ((step + 1) % (reach + 1)) * n * width
            for l in range(W):
                lane_t[l] = lane_t0[l] + step - lane_pad[l]
            if step <= 2:  # from then on every lane moves by one time a step
                find(at_c, lane_b, lane_t, T - 1, c.strides[0], c.strides[1])
                find(at_d, lane_b, lane_t, T - 1, d.strides[0], d.strides[1])
                find(at_w, lane_b, lane_t, T - 1, w_gov.strides[0], w_gov.strides[1])
                lane_t -= 1
                find(at_s, lane_b, lane_t, T - 2, s.strides[0], s.strides[1])
                find(at_scale, lane_b, lane_t, T - 2, scale.strides[0], scale.strides[1])
                find(at_K, lane_b, lane_t, T - 2, K.strides[0], K.strides[1])
                find(at_KF, lane_b, lane_t, T - 2, KF.strides[0], KF.strides[1])
                lane_t += 1
            on = max(step - 2, 0)

            if T > 1:
                fresh = step <= 2 or not steady_K
                for v in range(V):
                    gather(step_size, 2 * v, s, at_s, on * s.strides[1] + v * s.strides[2])
                    gather(
                        step_size, 2 * v + 1, scale, at_scale,
                        on * scale.strides[1] + v * scale.strides[2],
                    )  # fmt: skip
                    fresh = fresh or differs(step_size, 2 * v, old_size, 2 * v)
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
                    build_link(link, K_cells, powers, V, m)

            # Link rows, highest order first: what is left of row i starts at column i of the new
            # block, so the new triangle needs no elimination of its own.
            for i in range(n - 1, -1, -1):
                clear(row, i, width - i)
                v, r = i // m, i % m
                if step >= 2:
                    for j in range(r, m):
                        cell, column = (i * m + j) * 2, v * m + j
                        copy(row, column, link, cell, 1)
                        copy(row, n + column, link, cell + 1, 1)
                else:
                    for j in range(r, m):
                        cell, column = (i * m + j) * 2, v * m + j
                        for l in range(W):
                            t, t0 = lane_t[l], lane_t0[l]
                            if t < t0:
                                if j == r:  # a time that is not there: y = 0
                                    row[(n + column) * W + l] = 1.0
                            elif t > 0:
                                before = column if t > t0 else span + k - n + column
                                row[before * W + l] = link[cell * W + l]
                                row[(n + column) * W + l] = link[(cell + 1) * W + l]
                if step > 0:
                    for j in range(i, n):
                        at = old + j * width
                        givens(
                            blocks, at + j, row, j, n - j, at + n + i, n + i, width - n - i
                        )  # fmt: skip
                start = new + i * width
                copy(blocks, start + i, row, n + i, n - i)
                clear(blocks, start + n, span - n)
                copy(blocks, start + span, row, span, k + 1)

            if reach == 1 and step > 0:
                at, z_at = (group * L + step - 1) * cells, (group * L + step - 1) * n
                finish(
                    blocks, old, n, span, k, width, factor, at, z, z_at, squares, left_squares
                )  # fmt: skip
                weigh(
                    blocks, old, n, span, width, squares, lane_t, 1, index, rcond, weakest
                )  # fmt: skip

            for q in range(Q):
                gather(weight, 0, w_gov, at_w, on * w_gov.strides[1] + q * w_gov.strides[2])
                if step == 0:
                    for l in range(W):
                        if lane_t[l] < lane_t0[l]:
                            weight[l] = 0.0
                clear(row, n, width - n)
                for j in range(n):
                    extra = on * c.strides[1] + q * c.strides[2]
                    gather(row, j, c, at_c, extra + j // m * c.strides[3] + j % m * c.strides[4])
                    product(row, j, row, j, weight, 0)
                gather(row, width - 1, d, at_d, on * d.strides[1] + q * d.strides[2])
                product(row, width - 1, row, width - 1, weight, 0)
                insert_local(blocks, new, n, span, k, width, row, 0, left)

            inside = False
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
                        insert_local(blocks, new, n, span, k, width, row, v * m + r, left)

            if reach == 2:  # the central row of time t - 1 ties t - 2, t - 1 and t
                for v in range(V):
                    clear(row, 0, width)
                    for l in range(W):
                        b, t, t0 = lane_b[l], lane_t[l], lane_t0[l]
                        if t >= max(t0, 2):
                            H = s[b, t - 2, v] + s[b, t - 1, v]
                            w = w_top[b, t - 2, v] * H ** (R - 2)
                            column = v * m + R - 1
                            early = column if t - 2 >= t0 else span + (t - t0) * n + column
                            middle = n + column if t - 1 >= t0 else span + n + column
                            row[early * W + l] = -w
                            row[(middle + 1) * W + l] = -w * H
                            row[(2 * n + column) * W + l] = w
                    if step > 1:
                        for j in range(n):
                            at = oldest + j * width
                            givens(
                                blocks, at + j, row, j, span - j, at + span, span, k + 1
                            )  # fmt: skip
                    if step > 0:
                        for j in range(n):
                            at = old + j * width
                            givens(
                                blocks, at + j, row, n + j, 2 * n - j, at + span, span, k + 1
                            )  # fmt: skip
                    for j in range(n):
                        at = new + j * width
                        givens(blocks, at + j, row, 2 * n + j, n - j, at + span, span, k + 1)
                    insert_left(left, k, row, span)
                if step > 1:
                    at, z_at = (group * L + step - 2) * cells, (group * L + step - 2) * n
                    finish(
                        blocks, oldest, n, span, k, width, factor, at, z, z_at,
                        squares, left_squares,
                    )  # fmt: skip
                    weigh(
                        blocks, oldest, n, span, width, squares, lane_t, 2, index, rcond, weakest
                    )  # fmt: skip

        # A whole sequence ends here; a piece hands its last blocks to the chain of separators.
        if P == 1:
            for step in range(max(L - reach, 0), L):
                base = (step % (reach + 1)) * n * width
                at, z_at = (group * L + step) * cells, (group * L + step) * n
                finish(
                    blocks, base, n, span, k, width, factor, at, z, z_at, squares, left_squares
                )  # fmt: skip
                weigh(
                    blocks, base, n, span, width, squares, lane_t, L - 1 - step, index,
                    rcond, weakest,
                )  # fmt: skip
        for l in range(W):
            lane = group * W + l
            if lane < B * P:
                if P > 1:
                    size = 2 * k * (2 * k + 1) + 2 * k
                    hand_over(
                        blocks, L, n, reach, k, width, left, squares, left_squares, l,
                        coupling, lane * size,
                    )  # fmt: skip
                rcond_out[lane], weakest_out[lane] = rcond[l], weakest[l]
