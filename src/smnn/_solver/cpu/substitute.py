"""CPU kernels: substitution with a stored factor, lane by lane (layout in `eliminate.py`)."""

# mypy: ignore-errors
from __future__ import annotations

from smnn._solver.cpu.lanes import W, add, clear, copy, gather, product, scatter, subtract_multiple
from smnn._solver.cpu.pieces import (
    AHEAD,
    back_step,
    cells,
    find,
    find_pieces,
    find_present,
    inner,
    lane_integers,
    longest_piece,
    prefetch_steps,
    put_left,
    release,
    row_cells,
    set_times,
    split,
    unowned,
)


@inner
def substitute_back(factor, z, separators, y, reach, P, first, last):
    """Solve `R y = z`, from the last time to the first, with known separators."""
    B, T, V, m = y.shape
    n = V * m
    k = reach * n if P > 1 else 0
    span, L, size = (1 + reach) * n, longest_piece(T, P), row_cells(n, reach, k)
    factor, z, separators, y = unowned((factor, z, separators, y))
    scratch = cells((span + k,)), lane_integers(6)
    (window,) = split(scratch[0], (span + k,))
    out, lane_b, lane_p, lane_t0, lane_end, lane_t = split(scratch[1], (1,) * 6)
    for group in range(first, last):
        find_pieces(group, B, T, P, lane_b, lane_p, lane_t0, lane_end)
        clear(window, 0, span)
        put_left(window, separators, lane_b, lane_p, span, k)
        for step in range(L - 1, -1, -1):
            back_step(
                window, factor, z, separators, lane_b, lane_p, step, group * L, L - k // n,
                n, span, k, size,
            )  # fmt: skip
            if step == L - 1 or step == 0:
                origin = step
                set_times(lane_t, lane_end, L, step)
                find_present(out, y, lane_b, lane_t, lane_t0)
            for j in range(n):
                extra = (step - origin) * y.strides[1]
                extra += j // m * y.strides[2] + j % m * y.strides[3]
                scatter(y, out, extra, window, j, step == 0)
    release(scratch)


@inner
def substitute_forward(factor, g, z, separators, reach, P, first, last):
    """Solve `R^T z = g`, from the first time to the last.

    The remainder goes to `separators[b, p, 0 | 1]`: own and left.
    """
    B, T, V, m = g.shape
    n = V * m
    k = reach * n if P > 1 else 0
    span, L, size = (1 + reach) * n, longest_piece(T, P), row_cells(n, reach, k)
    factor, g, z, separators = unowned((factor, g, z, separators))
    sizes = span + k, n, 1
    scratch = cells(sizes), lane_integers(6)
    window, load, present = split(scratch[0], sizes)
    at_g, lane_b, lane_p, lane_t0, lane_end, lane_t = split(scratch[1], (1,) * 6)
    for group in range(first, last):
        find_pieces(group, B, T, P, lane_b, lane_p, lane_t0, lane_end)
        clear(window, 0, span + k)
        end = L - k // n
        for step in range(L):
            if step < 2:
                origin = step
                set_times(lane_t, lane_end, L, step)
                find(at_g, g, lane_b, lane_t)
            prefetch_steps(g, at_g, step - origin, AHEAD)
            for j in range(n):
                extra = (step - origin) * g.strides[1]
                gather(load, j, g, at_g, extra + j // m * g.strides[2] + j % m * g.strides[3])
            if step == 0:
                for l in range(W):
                    present[l] = 1.0 if lane_end[l] - L >= lane_t0[l] else 0.0
                for j in range(n):
                    product(load, j, load, j, present, 0)
            place = max(step - end, 0) * n  # the separator's own cells stay in the window
            add(window, place, load, 0, n)
            if step < end:
                at = (group * L + step) * size
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
                for j in range(k):
                    separators[lane_b[l], lane_p[l], 0, j] = window[j * W + l]
                    separators[lane_b[l], lane_p[l], 1, j] = window[(span + j) * W + l]
    release(scratch)
