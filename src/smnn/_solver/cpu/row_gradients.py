"""CPU kernels: row gradients of a loss.

With `lam = M^-1 dl/dy`, each row `a . y = b` of weight `w` contributes to
`J = sum w^2 (a . lam)(a . y - b)`, and `dl/dtheta = -dJ/dtheta` with `lam` and `y` held fixed.
Lanes are pieces of sequences, as in `eliminate.py`, traversed from the last time to the first, so
that the back substitution for `lam` can be fused.
"""

# mypy: ignore-errors
from __future__ import annotations

from smnn._solver.cpu.lanes import (
    W,
    add_product,
    clear,
    copy,
    dot,
    gather,
    product,
    quotient,
    scatter,
    subtract_dot,
    taylor_change,
)
from smnn._solver.cpu.pieces import (
    AHEAD,
    back_step,
    cells,
    constant,
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
    small,
    split,
    unowned,
)


@small
def governing(q, row, x, mu, w, a, rho, signs, to_c, to_d, to_w, gc, gd, gw, on, n, m, partly):
    """Gradients of equation `q` at one time: `row` holds `c`, and `rho` holds `d`."""
    dot(a, 0, row, 0, mu, 0, n)
    subtract_dot(rho, 0, row, 0, x, 0, n)
    product(a, 0, a, 0, w, q)
    if gw.shape[0] > 0:
        product(a, 1, a, 0, rho, 0)
        product(a, 1, a, 1, signs, 1)
        scatter(gw, to_w, on * gw.strides[1] + q * gw.strides[2], a, 1, partly)
    product(a, 0, a, 0, w, q)
    if gd.shape[0] > 0:
        scatter(gd, to_d, on * gd.strides[1] + q * gd.strides[2], a, 0, partly)
    if gc.shape[0] > 0:
        product(rho, 0, rho, 0, w, q)
        product(rho, 0, rho, 0, w, q)
        product(a, 0, a, 0, signs, 0)
        for j in range(n):
            product(row, j, a, 0, x, j)
            add_product(row, j, rho, 0, mu, j)
            extra = q * gc.strides[2] + j // m * gc.strides[3] + j % m * gc.strides[4]
            scatter(gc, to_c, on * gc.strides[1] + extra, row, j, partly)


@small
def smoothness(
    v, x, mu, h, w, signs, taylor, near, far, powers, both, total, to_s, to_w, gs, gw,
    on, n, m, partly,
):  # fmt: skip
    """Gradients of the step of variable `v` and its weights, from `x` and `mu` at both ends."""
    for j in range(1, m):
        product(powers, j, powers, j - 1, h, 0)
    for j in range(m):
        product(near, j, x, v * m + j, powers, j)
        product(far, j, x, n + v * m + j, powers, j)
        product(near, m + j, mu, v * m + j, powers, j)
        product(far, m + j, mu, n + v * m + j, powers, j)
    taylor_change(total, both, w, near, far, taylor, m)
    if gs.shape[0] > 0:
        product(h, 0, h, 0, signs, 0)
        quotient(total, 0, total, 0, h, 0)
        scatter(gs, to_s, on * gs.strides[1] + v * gs.strides[2], total, 0, partly)
    if gw.shape[0] > 0:
        for r in range(m):
            product(both, r, both, r, w, r)
            product(both, r, both, r, signs, 2)
            extra = v * gw.strides[2] + r * gw.strides[3]
            scatter(gw, to_w, on * gw.strides[1] + extra, both, r, partly)


@small
def initial(b, t, x, mu, l, m, u, w_init, gu, gw):
    for v in range(u.shape[2]):
        for r in range(u.shape[3]):
            w, a = w_init[b, t, v, r], mu[(v * m + r) * W + l]
            if gu.shape[0] > 0:
                gu[b, t, v, r] = w * w * a
            if gw.shape[0] > 0:
                gw[b, t, v, r] = 2.0 * w * a * (u[b, t, v, r] - x[(v * m + r) * W + l])


@small
def previous_piece(x, mu, y, lam, given, window, b, t, l, n, m, first, left):
    """Set up a lane for the step from the last time `t` before its piece to the first of its piece.

    The values at the latter are in the cells from `first` on. The adjoint at `t` is given, or in
    `left`.
    """
    for j in range(n):
        x[(n + j) * W + l] = x[(first + j) * W + l]
        mu[(n + j) * W + l] = mu[(first + j) * W + l]
        if t >= 0:
            x[j * W + l] = y[b, t, j // m, j % m]
            mu[j * W + l] = lam[b, t, j // m, j % m] if given else window[(left + j) * W + l]


@inner
def row_gradients(
    factor, z, separators, lam, y, c, d, u, s, w_gov, w_init, w_smooth, taylor,
    top, reach, P, first, last, gc, gd, gu, gs, gw_gov, gw_init, gw_smooth,
):  # fmt: skip
    """Gradients of groups `first..last` of `W` pieces; empty outputs are skipped.

    Without a factor, `lam` is given. With one, it is the solution of `R lam = z`, as in
    `substitute_back`, and is written unless its array is empty. The first `top` orders have Taylor
    rows; `taylor` holds the negative Taylor matrix and its inverse.
    """
    B, T, Q, V, m = c.shape
    n = V * m
    given = factor.size == 0
    k = reach * n if P > 1 and not given else 0
    span, L, size = (1 + reach) * n, longest_piece(T, P), row_cells(n, reach, k)
    tile = max(4, 128 // n)  # substitutions in a row: fewer concurrent memory streams
    by_equations = gc.shape[0] > 0 or gd.shape[0] > 0 or gw_gov.shape[0] > 0
    by_steps = T > 1 and (gs.shape[0] > 0 or gw_smooth.shape[0] > 0)
    by_start = gu.shape[0] > 0 or gw_init.shape[0] > 0
    steady_w, steady_smooth = constant(w_gov), constant(w_smooth) and V == 1

    factor, z, taylor = unowned((factor, z, taylor))
    separators, lam, y, c, d, u, s = unowned((separators, lam, y, c, d, u, s))
    w_gov, w_init, w_smooth = unowned((w_gov, w_init, w_smooth))
    gc, gd, gu, gs = unowned((gc, gd, gu, gs))
    gw_gov, gw_init, gw_smooth = unowned((gw_gov, gw_init, gw_smooth))
    sizes = (
        span + k, tile * n, 2 * n, 2 * n, n, 2, 1, 1, 1, Q, m, 3, 2 * m, 2 * m, m, m,
    )  # fmt: skip
    numbers, lanes = cells(sizes), lane_integers(18)
    (
        window, solved, mu, x, row, a, rho, total, h, weights, smooth, signs, near, far, powers,
        both,
    ) = split(numbers, sizes)  # fmt: skip
    powers[:W], signs[:W], signs[W : 2 * W], signs[2 * W :] = 1.0, -1.0, 2.0, -2.0
    (
        lane_b, lane_p, lane_t0, lane_end, lane_t, at_y, at_lam, at_c, at_d, at_w, at_s, at_smooth,
        to_lam, to_c, to_d, to_w, to_s, to_smooth,
    ) = split(lanes, (1,) * 18)  # fmt: skip

    for group in range(first, last):
        find_pieces(group, B, T, P, lane_b, lane_p, lane_t0, lane_end)
        clear(window, 0, span)
        put_left(window, separators, lane_b, lane_p, span, k)

        # The last iteration, -1, handles the steps between pieces.
        for step in range(L - 1, -1 if P == 1 else -2, -1):
            if step >= L - 2 or step <= 0:  # in between, every lane advances by one time per step
                set_times(lane_t, lane_end, L, step)
                for l in range(W if step < 0 else 0):
                    start = lane_t0[l] - lane_end[l] + L
                    lane_t[l] = lane_t0[l] - 1
                    lane_t0[l] = max(lane_t[l], 0)
                    previous_piece(
                        x, mu, y, lam, given, window, lane_b[l], lane_t[l], l, n, m,
                        start * n, span + k - n,
                    )  # fmt: skip
                find(at_y, y, lane_b, lane_t)
                find(at_lam, lam, lane_b, lane_t)
                find(at_c, c, lane_b, lane_t)
                find(at_d, d, lane_b, lane_t)
                find(at_w, w_gov, lane_b, lane_t)
                find(at_s, s, lane_b, lane_t)
                find(at_smooth, w_smooth, lane_b, lane_t)
                find_present(to_lam, lam, lane_b, lane_t, lane_t0)
                find_present(to_c, gc, lane_b, lane_t, lane_t0)
                find_present(to_d, gd, lane_b, lane_t, lane_t0)
                find_present(to_w, gw_gov, lane_b, lane_t, lane_t0)
                find_present(to_s, gs, lane_b, lane_t, lane_t0)
                find_present(to_smooth, gw_smooth, lane_b, lane_t, lane_t0)
                origin = step
            on, partly = step - origin, step <= 0
            for offsets, tensor in ((at_y, y), (at_lam, lam)):
                prefetch_steps(tensor, offsets, on, -AHEAD)
            for offsets, tensor in ((at_c, c), (to_c, gc)):
                prefetch_steps(tensor, offsets, on, -AHEAD)
            for offsets, tensor in ((at_d, d), (at_s, s), (to_d, gd), (to_s, gs)):
                prefetch_steps(tensor, offsets, on, -AHEAD)

            if step >= 0:
                if not given and (L - 1 - step) % tile == 0:
                    for back in range(step, max(step - tile, -1), -1):
                        back_step(
                            window, factor, z, separators, lane_b, lane_p, back, group * L,
                            L - k // n, n, span, k, size,
                        )  # fmt: skip
                        copy(solved, (step - back) * n, window, 0, n)
                copy(mu, n, mu, 0, n)
                copy(x, n, x, 0, n)
                if not given:
                    copy(mu, 0, solved, (L - 1 - step) % tile * n, n)
                for j in range(n):
                    v, r = j // m, j % m
                    extra = on * y.strides[1] + v * y.strides[2] + r * y.strides[3]
                    gather(x, j, y, at_y, extra)
                    extra = on * lam.strides[1] + v * lam.strides[2] + r * lam.strides[3]
                    if given:
                        gather(mu, j, lam, at_lam, extra)
                    elif lam.shape[0] > 0:
                        scatter(lam, to_lam, extra, mu, j, partly)

            if step >= 0 and by_equations:
                for q in range(Q):
                    if step == L - 1 or partly or not steady_w:
                        extra = on * w_gov.strides[1] + q * w_gov.strides[2]
                        gather(weights, q, w_gov, at_w, extra)
                    gather(rho, 0, d, at_d, on * d.strides[1] + q * d.strides[2])
                    for j in range(n):
                        extra = j // m * c.strides[3] + j % m * c.strides[4]
                        extra += on * c.strides[1] + q * c.strides[2]
                        gather(row, j, c, at_c, extra)
                    governing(
                        q, row, x, mu, weights, a, rho, signs, to_c, to_d, to_w, gc, gd, gw_gov,
                        on, n, m, partly,
                    )  # fmt: skip

            if by_steps and step < L - 1:
                for v in range(V):
                    gather(h, 0, s, at_s, on * s.strides[1] + v * s.strides[2])
                    if step == L - 2 or partly or not steady_smooth:
                        for r in range(top):
                            extra = v * w_smooth.strides[2] + r * w_smooth.strides[3]
                            extra += on * w_smooth.strides[1]
                            gather(smooth, r, w_smooth, at_smooth, extra)
                    smoothness(
                        v, x, mu, h, smooth, signs, taylor, near, far, powers, both, total, to_s,
                        to_smooth, gs, gw_smooth, on, n, m, partly,
                    )  # fmt: skip

            if by_start and 0 <= step <= u.shape[1]:
                for l in range(W):
                    t = lane_end[l] - L + step
                    if lane_t0[l] <= t < u.shape[1]:
                        initial(lane_b[l], t, x, mu, l, m, u, w_init, gu, gw_init)
    release((numbers, lanes))


@small
def central_row(x, b, t, v, R, H):
    """Central row around time `t + 1`, and its derivative with respect to `H`."""
    rise = x[b, t + 2, v, R - 1] - x[b, t, v, R - 1]
    top = x[b, t + 1, v, R]
    value = H ** (R - 2) * (rise - H * top)
    return value, (R - 2) * value / H - H ** (R - 2) * top


@inner
def central_gradients(lam, y, s, w_smooth, first, last, gs, gw):
    """Add the contributions of the central rows of sequences `first..last`."""
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
