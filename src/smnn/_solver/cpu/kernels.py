"""CPU kernels: a whole solve or derivative in one call, or one phase of it for one thread."""

# mypy: ignore-errors
from __future__ import annotations

from smnn._solver.cpu.eliminate import eliminate
from smnn._solver.cpu.layout import (
    ADJOINT,
    CENTRAL,
    CHAIN,
    CHECK,
    CHECK_INITIAL,
    ELIMINATE,
    KF,
    LOAD,
    NOTES,
    ROWS,
    SCALE,
    SEPARATE,
    SUBSTITUTE,
    W_GOV,
    W_INIT,
    W_SMOOTH,
    W_TOP,
    C,
    D,
    K,
    S,
    U,
    Y,
)  # fmt: skip
from smnn._solver.cpu.pieces import (
    F,
    I,
    compiled,
    dense3,
    dense4,
    dense5,
    run,
    run_of_integers,
    sources,
    spread4,
    view3,
    view4,
    view5,
)  # fmt: skip
from smnn._solver.cpu.row_gradients import central_gradients, row_gradients
from smnn._solver.cpu.separators import check_pivots, eliminate_chain, solve_chain
from smnn._solver.cpu.substitute import substitute_back, substitute_forward


def _forward(version):

    @compiled(I, I, I, I, I, I, I, I, I, I, F, I, I, I, returns=I)
    def forward(
        notes, c, d, u, s, y, factor, scratch, rcond, weakest, doubtful, phases, first, last
    ):
        """Run the phases, each over `first..last` of its groups or sequences; over all if `0..0`.

        `notes` to `weakest` are addresses. Returns the result of phase `CHECK`, else 0.
        """
        _ = version
        notes = run_of_integers(notes, NOTES)
        B, T, P, n, reach, k, groups = (
            notes[0], notes[1], notes[2], notes[3], notes[4], notes[5], notes[6],
        )  # fmt: skip
        z_size, lane_factor, chain_factor, room = notes[7], notes[8], notes[9], notes[10]
        lanes = run(factor, lane_factor)
        chain = run(factor + 8 * lane_factor, chain_factor)
        at, pieces = z_size + room, B * P
        scratch = run(scratch, at + (2 + k) * pieces)
        z, coupling = scratch[:z_size], scratch[z_size:at]
        ratio, where = scratch[at : at + pieces], scratch[at + pieces : at + 2 * pieces]
        separators = scratch[at + 2 * pieces :].reshape((B, P, k))
        rcond, weakest = run(rcond, B), run_of_integers(weakest, B)
        c_view, s_view, y_view = view5(notes, C, c), view3(notes, S, s), dense4(notes, Y, y)
        end_of_groups, end_of_batch = (groups, B) if last == 0 else (last, last)
        if phases & ELIMINATE:
            eliminate(
                c_view, view3(notes, D, d), view4(notes, U, u), s_view, view3(notes, W_GOV, 0),
                view4(notes, W_INIT, 0), view3(notes, SCALE, 0), view5(notes, K, 0),
                view5(notes, KF, 0), view3(notes, W_TOP, 0), reach, P, first, end_of_groups,
                lanes, z, coupling, ratio, where,
            )  # fmt: skip
        if phases & CHAIN:
            eliminate_chain(
                coupling, k, n, T, P, first, end_of_batch, chain, separators, ratio, where
            )
        if phases & SUBSTITUTE:
            substitute_back(lanes, z, separators, y_view, reach, P, first, end_of_groups)
        if phases & CHECK:
            given = notes[U + 2] * notes[U + 4] if phases & CHECK_INITIAL else notes[C + 5]
            return check_pivots(
                ratio, where, P, c_view, s_view, y_view, given, doubtful, rcond, weakest
            )
        return 0

    return forward


forward = _forward(sources())


def _backward(version):

    @compiled(*[I] * 26)
    def backward(
        notes, c, d, u, s, y, factor, g, step0, step1, step2, step3, scratch, taylor, top, lam,
        gc, gd, gu, gs, gw_gov, gw_init, gw_smooth, phases, first, last,
    ):  # fmt: skip
        """Run the phases, each over `first..last` of its groups or sequences; over all if `0..0`.

        All tensors are addresses; the gradient `g` of the solution is passed with its strides.
        Gradients with address 0 are not computed. `lam` is written by `ADJOINT`, read by `CENTRAL`,
        and by `ROWS` if there is no factor; otherwise `ROWS` continues after `SEPARATE`, and writes
        it unless its address is 0.
        """
        _ = version
        notes = run_of_integers(notes, NOTES)
        B, P, reach, k, groups = notes[0], notes[2], notes[4], notes[5], notes[6]
        z_size, lane_factor, chain_factor = notes[7], notes[8], notes[9]
        if factor == 0:
            z_size, lane_factor, chain_factor, k = 0, 0, 0, 0
        lanes = run(factor, lane_factor)
        chain = run(factor + 8 * lane_factor, chain_factor)
        pieces, m = B * P, notes[Y + 4]
        scratch = run(scratch, z_size + 3 * k * pieces)
        z, taylor = scratch[:z_size], run(taylor, 2 * m * m)
        loads = scratch[z_size : z_size + 2 * k * pieces].reshape((B, P, 2, k))
        separators = scratch[z_size + 2 * k * pieces :].reshape((B, P, k))
        end_of_groups, end_of_batch = (groups, B) if last == 0 else (last, last)
        lam_view = dense4(notes, Y, lam)
        if phases & LOAD:
            load = spread4(notes, Y, g, step0, step1, step2, step3)
            substitute_forward(lanes, load, z, loads, reach, P, first, end_of_groups)
        if phases & SEPARATE:
            solve_chain(chain, loads, separators, first, end_of_batch)
        if phases & ADJOINT:
            substitute_back(lanes, z, separators, lam_view, reach, P, first, end_of_groups)
        if phases & (ROWS | CENTRAL):
            y_view, s_view = dense4(notes, Y, y), view3(notes, S, s)
            w_smooth = view4(notes, W_SMOOTH, 0)
            gs_view, gw_smooth_view = dense3(notes, S, gs), dense4(notes, W_SMOOTH, gw_smooth)
            if phases & ROWS:
                row_gradients(
                    lanes, z, separators, lam_view, y_view, view5(notes, C, c), view3(notes, D, d),
                    view4(notes, U, u), s_view, view3(notes, W_GOV, 0), view4(notes, W_INIT, 0),
                    w_smooth, taylor, top, reach, P, first, end_of_groups, dense5(notes, C, gc),
                    dense3(notes, D, gd), dense4(notes, U, gu), gs_view,
                    dense3(notes, W_GOV, gw_gov), dense4(notes, W_INIT, gw_init), gw_smooth_view,
                )  # fmt: skip
            if phases & CENTRAL:
                central_gradients(
                    lam_view, y_view, s_view, w_smooth, first, end_of_batch, gs_view, gw_smooth_view
                )

    return backward


backward = _backward(sources())
