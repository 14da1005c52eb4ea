"""CPU kernels: a whole solve as one call, or a phase of it for one thread's share."""

# mypy: ignore-errors
from __future__ import annotations

from smnn._solver.cpu.addresses import dense4, run, run_of_integers, view3, view4, view5
from smnn._solver.cpu.eliminate import eliminate
from smnn._solver.cpu.layout import (
    CHAIN,
    ELIMINATE,
    JUDGE,
    KF,
    LOOK,
    NOTES,
    SCALE,
    SUBSTITUTE,
    W_GOV,
    W_INIT,
    W_TOP,
    C,
    D,
    K,
    S,
    U,
    Y,
)
from smnn._solver.cpu.pieces import F, I, compiled, sources
from smnn._solver.cpu.separators import eliminate_chain, judge
from smnn._solver.cpu.substitute import substitute_back


def _of(version):
    """The kernel of one version of the sources."""

    @compiled(I, I, I, I, I, I, I, I, I, I, F, I, I, I, returns=I)
    def forward(
        notes, c, d, u, s, y, factor, scratch, rcond, weakest, doubtful, phases, first, last
    ):
        """Run the phases, each over `first..last` of its groups or sequences; over all if `0..0`.

        `notes` to `weakest` are addresses. Gives what the phase `JUDGE` finds, else 0.
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
        if phases & JUDGE:
            given = notes[U + 2] * notes[U + 4] if phases & LOOK else notes[C + 5]
            return judge(ratio, where, P, c_view, s_view, y_view, given, doubtful, rcond, weakest)
        return 0

    return forward


forward = _of(sources())
