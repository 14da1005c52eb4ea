"""CPU kernels: a whole derivative as one call, or a phase of it for one thread's share."""

# mypy: ignore-errors
from __future__ import annotations

from smnn._solver.cpu.addresses import (
    dense3,
    dense4,
    dense5,
    run,
    run_of_integers,
    spread4,
    view3,
    view4,
    view5,
)
from smnn._solver.cpu.layout import (
    ADJOINT,
    CENTRAL,
    LOAD,
    NOTES,
    ROWS,
    SEPARATE,
    W_GOV,
    W_INIT,
    W_SMOOTH,
    C,
    D,
    S,
    U,
    Y,
)
from smnn._solver.cpu.pieces import I, compiled, sources
from smnn._solver.cpu.row_gradients import central_gradients, row_gradients
from smnn._solver.cpu.separators import solve_chain
from smnn._solver.cpu.substitute import substitute_back, substitute_forward


def _of(version):
    """The kernel of one version of the sources."""

    @compiled(*[I] * 26)
    def backward(
        notes, c, d, u, s, y, factor, g, step0, step1, step2, step3, scratch, taylor, top, lam,
        gc, gd, gu, gs, gw_gov, gw_init, gw_smooth, phases, first, last,
    ):  # fmt: skip
        """Run the phases, each over `first..last` of its groups or sequences; over all if `0..0`.

        All tensors are addresses; the gradient `g` by the solution comes with its strides. A
        gradient with address 0 is not wanted. `lam` is written by `ADJOINT`, read by `CENTRAL`, and
        by `ROWS` if there is no factor; otherwise `ROWS` goes on where `SEPARATE` ended, and writes
        it if it has an address.
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


backward = _of(sources())
