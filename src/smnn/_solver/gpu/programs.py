"""Kernels of the elimination strategies, and the launch sequences of a solve and its derivative."""

from __future__ import annotations

import functools
import itertools
import math

from smnn._solver.gpu.emit import Source, poison, status_code
from smnn._solver.gpu.lane.chain import chain_body
from smnn._solver.gpu.lane.eliminate import Spec, eliminate_body, store_pivot_ratio
from smnn._solver.gpu.lane.fused import FusedRowGradients
from smnn._solver.gpu.lane.row_gradients import TENSORS, TILE, rows_body, variables_body
from smnn._solver.gpu.lane.substitute import back_body, forward_body
from smnn._solver.gpu.lane.time_index import TimeIndex
from smnn._solver.gpu.launch import Kernel, Launch, Program, Slot, slots_of
from smnn._solver.gpu.strategy import (
    GRADIENTS,
    INPUT_ARGUMENTS,
    INPUTS,
    LARGEST_ROW_IN_A_LANE,
    MIN_LEVELS,
    SIZE_ARGUMENTS,
    VARYING_ARGUMENTS,
    Level,
    Scratch,
    fused_backward,
    stride_arguments,
    strides_of,
)
from smnn._solver.gpu.team.eliminate import solve_body as wide_solve_body
from smnn._solver.gpu.team.substitute import adjoint_body as wide_adjoint_body
from smnn._solver.gpu.tile import panels, tiles
from smnn._solver.gpu.tile.eliminate import solve_body as large_solve_body
from smnn._solver.gpu.tile.eliminate_panels import solve_body as panel_solve_body
from smnn._solver.gpu.tile.row_gradients import equations_body
from smnn._solver.gpu.tile.substitute import adjoint_body as large_adjoint_body

# ---------------------------------------------------------------- kernels

_ROW_ARGUMENTS = [
    "y_ptr", *(a for a in INPUT_ARGUMENTS if not a.startswith(("scale", "wt"))),
    "ws_ptr", *strides_of("ws", "btvr"), *(f"g{name}_ptr" for name in TENSORS),
]  # fmt: skip
"""Arguments of the row gradients besides sizes and the adjoint solution."""

_STATUS_ARGUMENTS = ["rcond_ptr", "weakest_ptr", "status_ptr"]


def _store_status(index: TimeIndex) -> None:
    """Store the status of a whole sequence: bad step, singular, or not finite at either end."""
    out = index.out
    out("finite = tl.abs(y0) < float('inf')")
    if index.orders:
        out(f"finite = finite & ({index.partner(out.new('finite.to(tl.int32)'))} > 0)")
    status_code(out)
    out("tl.store(status_ptr + b, code.to(tl.int64), mask=first)")


@functools.cache
def solve_kernel(spec: Spec) -> Kernel:
    """Elimination of pieces, or of whole sequences followed by substitution."""
    out = Source()
    index = TimeIndex(out, spec.orders)
    eliminate_body(index, spec)
    store_pivot_ratio(index)
    arguments = [
        *SIZE_ARGUMENTS,
        *INPUT_ARGUMENTS,
        *(VARYING_ARGUMENTS if spec.varying else []),
        "factor_ptr",
        "z_ptr",
    ]
    if spec.left:
        return Kernel(
            "eliminate_pieces", out, [*arguments, "coupling_ptr", "rcond_ptr", "weakest_ptr"]
        )
    poison(out)
    out("tl.debug_barrier()")
    back_body(index, spec.n, spec.reach, 0)
    _store_status(index)
    return Kernel("solve_whole", out, [*arguments, "y_ptr", *_STATUS_ARGUMENTS])


@functools.cache
def chain_kernel(k: int, left: bool, depth: int) -> Kernel:
    """Elimination of a chain of separators: of pieces, or whole followed by substitution."""
    out = Source()
    index = TimeIndex(out)
    chain_body(out, k, left=left, depth=depth)
    store_pivot_ratio(index)
    levels = [f"{letter}{i}" for i in range(depth) for letter in "NP"]
    arguments = [
        *SIZE_ARGUMENTS,
        "in_ptr",
        "n0",
        *levels,
        "factor_ptr",
        "z_ptr",
        "rcond_ptr",
        "weakest_ptr",
        "rcond_below_ptr",
        "weakest_below_ptr",
    ]
    if left:
        return Kernel("chain_pieces", out, [*arguments, "coupling_ptr"])
    out("poison = zero")
    out("tl.debug_barrier()")
    back_body(index, k, 1, 0)
    return Kernel("chain_whole", out, [*arguments, "y_ptr"])


@functools.cache
def back_kernel(n: int, reach: int, k: int, report: bool) -> Kernel:
    """Back substitution in pieces; with `report`, also NaN and status of failed sequences."""
    out = Source()
    index = TimeIndex(out)
    arguments = [*SIZE_ARGUMENTS, "factor_ptr", "z_ptr", "sep_ptr", "y_ptr"]
    if report:
        out("ratio = tl.load(rcond_ptr + b)")
        out("bad_step = ratio < 0.0")
        poison(out)
        arguments += ["rcond_ptr", "status_ptr"]
    else:
        out("poison = zero")
    back_body(index, n, reach, k)
    if report:
        out("first = valid & (p == 0)")
        _store_status(index)
    return Kernel("back_pieces", out, arguments)


@functools.cache
def adjoint_kernel(
    n: int, reach: int, k: int, paired: bool, orders: int, in_place: bool = False
) -> Kernel:
    """`R^T z = g`, followed by `R y = z` for whole sequences; with `in_place`, over `z`."""
    out = Source()
    index = TimeIndex(out, orders)
    forward_body(index, n, reach, k, paired=paired)
    arguments = [*SIZE_ARGUMENTS, "factor_ptr", "z_ptr", "g_ptr"]
    if k:
        return Kernel("forward_pieces", out, [*arguments, "sep_ptr"])
    out("poison = zero")
    out("tl.debug_barrier()")
    back_body(index, n, reach, 0, in_place=in_place)
    if in_place:
        return Kernel("adjoint_held", out, arguments)
    return Kernel("adjoint_whole", out, [*arguments, "y_ptr"])


@functools.cache
def backward_kernel(
    V: int, m: int, Q: int, m_init: int, scheme: str, orders: int, wanted: tuple[bool, ...]
) -> Kernel:
    """`adjoint_kernel` of whole sequences fused with `rows_kernel`."""
    out = Source()
    index = TimeIndex(out, orders)
    forward_body(index, V * m, 1, 0, paired=False)
    out("poison = zero")
    out("tl.debug_barrier()")
    back_body(index, V * m, 1, 0, FusedRowGradients(index, V, m, Q, m_init, scheme, wanted))
    return Kernel(
        "backward_whole", out, [*SIZE_ARGUMENTS, "factor_ptr", "z_ptr", "g_ptr", *_ROW_ARGUMENTS]
    )


@functools.cache
def wide_solve_kernel(spec: Spec, team: int) -> Kernel:
    """Elimination and substitution with a team of lanes per sequence or half."""
    out = Source()
    wide_solve_body(out, spec, team)
    arguments = [
        "B",
        "T",
        "L",
        *INPUT_ARGUMENTS,
        *(VARYING_ARGUMENTS if spec.varying else []),
        "factor_ptr",
        "y_ptr",
    ]
    return Kernel("solve_wide", out, [*arguments, *_STATUS_ARGUMENTS])


@functools.cache
def large_solve_kernel(spec: Spec) -> Kernel:
    """Elimination and substitution with one or several warps per sequence."""
    out = Source()
    large_solve_body(out, spec, tiles.shape(spec.n))
    arguments = ["T", "L", *INPUT_ARGUMENTS, *VARYING_ARGUMENTS, "factor_ptr", "y_ptr"]
    return Kernel("solve_large", out, [*arguments, *_STATUS_ARGUMENTS])


@functools.cache
def panel_solve_kernel(spec: Spec) -> Kernel:
    """As `large_solve_kernel`, with the rows in memory."""
    out = Source()
    panel_solve_body(out, spec)
    arguments = ["T", "L", *INPUT_ARGUMENTS, *VARYING_ARGUMENTS, "factor_ptr", "z_ptr", "y_ptr"]
    return Kernel("solve_panels", out, [*arguments, *_STATUS_ARGUMENTS])


@functools.cache
def large_adjoint_kernel(n: int, reach: int) -> Kernel:
    """`R^T z = g`, then `R y = z`, one warp per sequence."""
    out = Source()
    large_adjoint_body(out, n, reach)
    return Kernel("adjoint_large", out, ["T", "L", "factor_ptr", "g_ptr", "y_ptr"])


@functools.cache
def wide_adjoint_kernel(n: int, reach: int, team: int, orders: int) -> Kernel:
    """`R^T z = g`, then `R y = z`, a team of lanes per sequence or half."""
    out = Source()
    wide_adjoint_body(out, n, reach, team, orders)
    return Kernel("adjoint_wide", out, ["B", "T", "L", "factor_ptr", "g_ptr", "y_ptr"])


@functools.cache
def rows_kernel(
    V: int,
    m: int,
    Q: int,
    m_init: int,
    scheme: str,
    wanted: tuple[bool, ...],
    adjoint_lanes: int = 0,
) -> Kernel:
    """All gradients; `adjoint_lanes` is the number of lanes per sequence in the layout of `lam`."""
    out = Source()
    rows_body(out, V, m, Q, m_init, scheme, wanted, adjoint_lanes)
    return _rows_kernel("row_gradients", out)


@functools.cache
def variables_kernel(V: int, m: int, m_init: int, scheme: str, wanted: tuple[bool, ...]) -> Kernel:
    """Gradients of everything except the equations."""
    out = Source()
    variables_body(out, V, m, m_init, scheme, wanted)
    return _rows_kernel("variable_gradients", out)


@functools.cache
def equations_kernel(V: int, m: int, Q: int, wanted: tuple[bool, ...]) -> Kernel:
    """Gradients of the equations."""
    out = Source()
    equations_body(out, V, m, Q, wanted)
    return _rows_kernel("equation_gradients", out)


def _rows_kernel(name: str, out: Source) -> Kernel:
    return Kernel(name, out, ["B", "T", "lam_ptr", *_ROW_ARGUMENTS])


# ---------------------------------------------------------------- launches


def _offsets(sizes: list[int]) -> list[int]:
    return list(itertools.accumulate(sizes, initial=0))


@functools.lru_cache(maxsize=256)
def solve_program(levels, spec, strides):  # type: ignore[no-untyped-def]
    """Launches of a solve, and the length of their scratch memory."""
    first, scratch = levels[0], Scratch()
    factor_at = _offsets([level.factor_size for level in levels])
    ratio_at = _offsets([level.P for level in levels])
    inputs = slots_of(*(name for name, _ in INPUTS)) | stride_arguments(strides)
    z = [scratch.take(level.z_size) for level in levels]

    def common(depth: int) -> dict[str, int | Slot]:
        return levels[depth].sizes() | {
            "factor_ptr": Slot("factor", factor_at[depth]),
            "z_ptr": Slot("scratch", z[depth]),
            "rcond_ptr": Slot("rcond", first.B * ratio_at[depth]),
            "weakest_ptr": Slot("weakest", first.B * ratio_at[depth]),
        }

    if first.P == 1:
        values = common(0) | inputs | {"y_ptr": Slot("y"), "status_ptr": Slot("status")}
        if first.large:
            if first.panels:
                made, form = panel_solve_kernel(spec), panels.form(first.n)
                scratch.take(first.B * panels.area(first.n, spec.V, first.reach).words)
            else:
                made, form = large_solve_kernel(spec), tiles.shape(first.n)
            width = first.width * form.warps
            return Program([Launch(made, first.B * width, width, values)]), scratch.size
        kernel = wide_solve_kernel(spec, first.team) if first.team else solve_kernel(spec)
        return Program([Launch(kernel, first.lanes, first.program, values)]), scratch.size
    coupling = scratch.take(first.coupling_size)
    values = common(0) | inputs | {"coupling_ptr": Slot("scratch", coupling)}
    launches = [Launch(solve_kernel(spec), first.lanes, first.width, values)]
    known = max(len(levels) - 1, MIN_LEVELS)
    # Unused levels have one node per node of the level above.
    cuts = {"n0": first.n} | {f"{letter}{i}": 1 for i in range(known) for letter in "NP"}
    for depth, level in enumerate(levels[1:], 1):
        below = levels[depth - 1]
        cuts |= {f"N{depth - 1}": below.N, f"P{depth - 1}": below.P}
        values = common(depth) | cuts
        values["in_ptr"] = Slot("scratch", coupling)
        for name in ("rcond", "weakest"):
            values[f"{name}_below_ptr"] = Slot(name, first.B * ratio_at[depth - 1])
        if level.P > 1:
            coupling = scratch.take(level.coupling_size)
            values["coupling_ptr"] = Slot("scratch", coupling)
        else:
            answer = scratch.take(level.B * level.N * level.n)
            values["y_ptr"] = Slot("scratch", answer)
        kernel = chain_kernel(level.n, level.P > 1, known)
        launches.append(Launch(kernel, level.lanes, level.width, values))
    ratio = Slot("rcond", first.B * ratio_at[-2])
    for depth in range(len(levels) - 2, -1, -1):
        level = levels[depth]
        target = Slot("y")
        if depth:
            target = Slot("scratch", scratch.take(level.B * level.N * level.n))
        values = common(depth) | {"sep_ptr": Slot("scratch", answer), "y_ptr": target}
        values |= {"rcond_ptr": ratio, "status_ptr": Slot("status")}
        kernel = back_kernel(level.n, level.reach, level.k, depth == 0)
        launches.append(Launch(kernel, level.lanes, level.width, values))
        answer = target.offset
    return Program(launches), scratch.size


@functools.lru_cache(maxsize=256)
def adjoint_program(levels, in_place=False):  # type: ignore[no-untyped-def]
    """Launches of an adjoint solve, and the length of their scratch memory.

    With `in_place`, the solution is at the start of the scratch memory.
    """
    scratch = Scratch()
    factor_at = _offsets([level.factor_size for level in levels])
    z = [scratch.take(level.z_size) for level in levels]
    launches, load = [], Slot("g")

    def common(depth: int) -> dict[str, int | Slot]:
        return levels[depth].sizes() | {
            "factor_ptr": Slot("factor", factor_at[depth]),
            "z_ptr": Slot("scratch", z[depth]),
        }

    answer = Slot("y")
    for depth, level in enumerate(levels):
        values = common(depth) | {"g_ptr": load}
        if level.P > 1:
            load = Slot("scratch", scratch.take(level.lanes * 2 * level.k))
            values["sep_ptr"] = load
        else:
            if depth:
                answer = Slot("scratch", scratch.take(level.B * level.N * level.n))
            values["y_ptr"] = answer
        if level.large:
            kernel = large_adjoint_kernel(level.n, level.reach)
        elif level.team:
            kernel = wide_adjoint_kernel(level.n, level.reach, level.team, level.orders)
        else:
            kernel = adjoint_kernel(
                level.n, level.reach, level.k, depth > 0, level.orders, in_place
            )
        launches.append(Launch(kernel, level.lanes, level.program, values))
    for depth in range(len(levels) - 2, -1, -1):
        level = levels[depth]
        target = Slot("y")
        if depth:
            target = Slot("scratch", scratch.take(level.B * level.N * level.n))
        values = common(depth) | {"sep_ptr": answer, "y_ptr": target}
        kernel = back_kernel(level.n, level.reach, level.k, False)
        launches.append(Launch(kernel, level.lanes, level.width, values))
        answer = target
    return Program(launches), scratch.size


def backward_scratch(levels: tuple[Level, ...]) -> int:
    """Length of the scratch memory of a backward pass."""
    scratch: int = levels[0].z_size if fused_backward(levels) else adjoint_program(levels)[1]
    return scratch


@functools.lru_cache(maxsize=256)
def backward_program(levels, spec, strides, wanted):  # type: ignore[no-untyped-def]
    """Fused launch of adjoint solve and row gradients, and its scratch memory."""
    level = levels[0]
    values = _row_arguments(strides) | level.sizes() | {"g_ptr": Slot("g")}
    values |= {"factor_ptr": Slot("factor"), "z_ptr": Slot("scratch")}
    V, m, Q, m_init, scheme = spec[:5]
    kernel = backward_kernel(V, m, Q, m_init, scheme, level.orders, wanted)
    return Program([Launch(kernel, level.lanes, level.width, values)]), backward_scratch(levels)


def _row_arguments(strides):  # type: ignore[no-untyped-def]
    """Arguments of the row gradients besides sizes and the adjoint solution."""
    return stride_arguments(strides) | slots_of(*(name for name, _ in INPUTS), "y", *GRADIENTS)


@functools.lru_cache(maxsize=256)
def rows_program(shape, spec, strides, wanted, adjoint_lanes=0):  # type: ignore[no-untyped-def]
    """Launches of the row gradients; `adjoint_lanes` as in `rows_kernel`."""
    B, T, V, m = shape
    values = _row_arguments(strides) | {"B": B, "T": T, "lam_ptr": Slot("lam")}
    if V * m <= LARGEST_ROW_IN_A_LANE:
        kernel = rows_kernel(V, m, spec.Q, spec.m_init, spec.scheme, wanted, adjoint_lanes)
        lanes = -(-B // TILE[0]) * -(-T // TILE[1]) * math.prod(TILE) if adjoint_lanes else B * T
        return Program([Launch(kernel, lanes, 128, values)])
    c, d, u, s, wg, wi, ws = wanted
    launches = []
    if c or d or wg:
        kernel = equations_kernel(V, m, spec.Q, wanted)
        launches.append(Launch(kernel, 32 * B * T, 32, values))
    if u or s or wi or ws:
        kernel = variables_kernel(V, m, spec.m_init, spec.scheme, wanted)
        launches.append(Launch(kernel, B * T * V, 128, values))
    return Program(launches)
