"""Kernels of the elimination strategies, and the launch sequences of a solve and its derivative."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable

from smnn._solver.gpu import strategy
from smnn._solver.gpu.emit import Source, poison, status_code
from smnn._solver.gpu.lane.chain import chain_body
from smnn._solver.gpu.lane.eliminate import Spec, eliminate_body, store_pivot_ratio
from smnn._solver.gpu.lane.row_gradients import TENSORS, TILE, rows_body, variables_body
from smnn._solver.gpu.lane.substitute import back_body, forward_body
from smnn._solver.gpu.lane.time_index import TimeIndex
from smnn._solver.gpu.launch import Kernel, Launch, Program, Slot, kernel_from, slots_of
from smnn._solver.gpu.strategy import Level, Scratch, stride_arguments
from smnn._solver.gpu.team.eliminate import solve_body as wide_solve_body
from smnn._solver.gpu.team.substitute import adjoint_body as wide_adjoint_body
from smnn._solver.gpu.tile import panels, tiles
from smnn._solver.gpu.tile.eliminate import solve_body as large_solve_body
from smnn._solver.gpu.tile.eliminate_panels import solve_body as panel_solve_body
from smnn._solver.gpu.tile.row_gradients import equations_body
from smnn._solver.gpu.tile.substitute import adjoint_body as large_adjoint_body

# ---------------------------------------------------------------- kernels

_ROW_ARGUMENTS = [
    "y_ptr", *(a for a in strategy.INPUT_ARGUMENTS if not a.startswith(("scale", "wt"))),
    "ws_ptr", *strategy.strides_of("ws", "btvr"), *(f"g{name}_ptr" for name in TENSORS),
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


def _inputs(varying: bool) -> list[str]:
    return [*strategy.INPUT_ARGUMENTS, *(strategy.VARYING_ARGUMENTS if varying else [])]


@functools.cache
def solve_kernel(spec: Spec) -> Kernel:
    """Elimination of pieces, or of whole sequences followed by substitution."""
    out = Source()
    index = TimeIndex(out, spec.orders)
    eliminate_body(index, spec)
    store_pivot_ratio(index)
    arguments = [*strategy.SIZE_ARGUMENTS, *_inputs(spec.varying), "factor_ptr", "z_ptr"]
    if spec.left:
        return Kernel("eliminate_pieces", out, [*arguments, "coupling_ptr", *_STATUS_ARGUMENTS[:2]])
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
    arguments = [
        *strategy.SIZE_ARGUMENTS, "in_ptr", "n0", *(f"{x}{i}" for i in range(depth) for x in "NP"),
        "factor_ptr", "z_ptr", "rcond_ptr", "weakest_ptr", "rcond_below_ptr", "weakest_below_ptr",
    ]  # fmt: skip
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
    arguments = [*strategy.SIZE_ARGUMENTS, "factor_ptr", "z_ptr", "sep_ptr", "y_ptr"]
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
    arguments = [*strategy.SIZE_ARGUMENTS, "factor_ptr", "z_ptr", "g_ptr"]
    if k:
        return Kernel("forward_pieces", out, [*arguments, "sep_ptr"])
    out("poison = zero")
    out("tl.debug_barrier()")
    back_body(index, n, reach, 0, in_place=in_place)
    if in_place:
        return Kernel("adjoint_held", out, arguments)
    return Kernel("adjoint_whole", out, [*arguments, "y_ptr"])


@functools.cache
def wide_solve_kernel(spec: Spec, team: int) -> Kernel:
    """Elimination and substitution with a team of lanes per sequence or half."""
    arguments = ["B", "T", "L", *_inputs(spec.varying), "factor_ptr", "y_ptr", *_STATUS_ARGUMENTS]
    return kernel_from("solve_wide", arguments, wide_solve_body, spec, team)


@functools.cache
def large_solve_kernel(spec: Spec) -> Kernel:
    """Elimination and substitution with one or several warps per sequence."""
    arguments = ["T", "L", *_inputs(True), "factor_ptr", "y_ptr", *_STATUS_ARGUMENTS]
    return kernel_from("solve_large", arguments, large_solve_body, spec, tiles.shape(spec.n))


@functools.cache
def panel_solve_kernel(spec: Spec) -> Kernel:
    """As `large_solve_kernel`, with the rows in memory."""
    arguments = ["T", "L", *_inputs(True), "factor_ptr", "z_ptr", "y_ptr", *_STATUS_ARGUMENTS]
    return kernel_from("solve_panels", arguments, panel_solve_body, spec)


@functools.cache
def large_adjoint_kernel(n: int, reach: int) -> Kernel:
    """`R^T z = g`, then `R y = z`, one warp per sequence."""
    arguments = ["T", "L", "factor_ptr", "g_ptr", "y_ptr"]
    return kernel_from("adjoint_large", arguments, large_adjoint_body, n, reach)


@functools.cache
def wide_adjoint_kernel(n: int, reach: int, team: int, orders: int) -> Kernel:
    """`R^T z = g`, then `R y = z`, a team of lanes per sequence or half."""
    arguments = ["B", "T", "L", "factor_ptr", "g_ptr", "y_ptr"]
    return kernel_from("adjoint_wide", arguments, wide_adjoint_body, n, reach, team, orders)


def _rows_kernel(name: str, write: Callable[..., None], *parameters: object) -> Kernel:
    return kernel_from(name, ["B", "T", "lam_ptr", *_ROW_ARGUMENTS], write, *parameters)


@functools.cache
def rows_kernel(
    V: int, m: int, Q: int, m_init: int, scheme: str, wanted: tuple[bool, ...], lanes: int = 0
) -> Kernel:
    """All gradients; with `lanes` per sequence, `lam` is in the layout of `z`."""
    return _rows_kernel("row_gradients", rows_body, V, m, Q, m_init, scheme, wanted, lanes)


@functools.cache
def variables_kernel(V: int, m: int, m_init: int, scheme: str, wanted: tuple[bool, ...]) -> Kernel:
    """Gradients of everything except the equations."""
    return _rows_kernel("variable_gradients", variables_body, V, m, m_init, scheme, wanted)


@functools.cache
def equations_kernel(V: int, m: int, Q: int, wanted: tuple[bool, ...]) -> Kernel:
    return _rows_kernel("equation_gradients", equations_body, V, m, Q, wanted)


@functools.cache
def clear_kernel(names: tuple[str, ...]) -> Kernel:
    """Zero the gradients of failed samples, which are NaN; one program per sample."""
    out = Source()
    out("b = tl.program_id(0).to(tl.int64)")
    out("failed = tl.load(status_ptr + b) != 0")
    out("lane = tl.arange(0, LANES)")
    out("nothing = tl.zeros([LANES], dtype=tl.float64)")
    for name in names:
        with out.block(f"for start in range(0, tl.where(failed, {name}_words, 0), LANES):"):
            out("i = start + lane")
            out(f"tl.store({name}_ptr + b * {name}_words + i, nothing, mask=i < {name}_words)")
    arguments = ["status_ptr", *(f"{name}_{x}" for name in names for x in ("ptr", "words"))]
    return Kernel("clear_failed", out, arguments)


# ---------------------------------------------------------------- launches


class _Memory:
    """Memory of all levels: their factors, one after the other, and the scratch memory."""

    def __init__(self, levels: tuple[Level, ...]) -> None:
        self._levels, self.scratch = levels, Scratch()
        self._factors = [*itertools.accumulate((x.factor_size for x in levels), initial=0)]
        self._ratios = [*itertools.accumulate((x.P for x in levels), initial=0)]
        self._z = [self.take(level.z_size) for level in levels]

    def take(self, words: int) -> Slot:
        return Slot("scratch", self.scratch.take(words))

    def arguments(self, depth: int) -> dict[str, int | Slot]:
        """Arguments of all kernels of a level."""
        factor = Slot("factor", self._factors[depth])
        return self._levels[depth].sizes() | {"factor_ptr": factor, "z_ptr": self._z[depth]}

    def ratios(self, depth: int, name: str = "") -> dict[str, int | Slot]:
        """Arguments for the pivot ratios of a level."""
        offset = self._levels[0].B * self._ratios[depth]
        return {f"{x}{name}_ptr": Slot(x, offset) for x in ("rcond", "weakest")}

    def solution(self, depth: int) -> Slot:
        level = self._levels[depth]
        return self.take(level.B * level.N * level.n) if depth else Slot("y")

    def back(self, answer: Slot, status: dict[str, int | Slot]) -> list[Launch]:
        """Back substitution from the last but one level, given the solution of the last."""
        launches = []
        for depth in range(len(self._levels) - 2, -1, -1):
            level, target = self._levels[depth], self.solution(depth)
            values = self.arguments(depth) | status | {"sep_ptr": answer, "y_ptr": target}
            kernel = back_kernel(level.n, level.reach, level.k, depth == 0 and bool(status))
            launches.append(Launch(kernel, level.lanes, level.width, values))
            answer = target
        return launches


def _whole_solve(
    level: Level, spec: Spec, memory: _Memory, inputs: dict[str, int | Slot]
) -> Launch:
    values = memory.arguments(0) | memory.ratios(0) | inputs | slots_of("y", "status")
    if not level.large:
        kernel = wide_solve_kernel(spec, level.team) if level.team else solve_kernel(spec)
        return Launch(kernel, level.lanes, level.program, values)
    if level.panels:
        kernel, form = panel_solve_kernel(spec), panels.form(level.n)
        memory.take(level.B * panels.area(level.n, spec.V, level.reach).words)
    else:
        kernel, form = large_solve_kernel(spec), tiles.shape(level.n)
    width = level.width * form.warps
    return Launch(kernel, level.B * width, width, values)


@functools.lru_cache(maxsize=256)
def solve_program(levels, spec, strides):  # type: ignore[no-untyped-def]
    """Launches of a solve, and the length of their scratch memory."""
    first, memory = levels[0], _Memory(levels)
    inputs = slots_of(*(name for name, _ in strategy.INPUTS)) | stride_arguments(strides)
    if first.P == 1:
        return Program([_whole_solve(first, spec, memory, inputs)]), memory.scratch.size
    coupling = memory.take(first.coupling_size)
    values = memory.arguments(0) | memory.ratios(0) | inputs | {"coupling_ptr": coupling}
    launches = [Launch(solve_kernel(spec), first.lanes, first.width, values)]
    known = max(len(levels) - 1, strategy.MIN_LEVELS)
    # Unused levels have one node per node of the level above.
    cuts = {"n0": first.n} | {f"{letter}{i}": 1 for i in range(known) for letter in "NP"}
    for depth, level in enumerate(levels[1:], 1):
        below = levels[depth - 1]
        cuts |= {f"N{depth - 1}": below.N, f"P{depth - 1}": below.P}
        values = memory.arguments(depth) | memory.ratios(depth) | cuts | {"in_ptr": coupling}
        values |= memory.ratios(depth - 1, "_below")
        if level.P > 1:
            values["coupling_ptr"] = coupling = memory.take(level.coupling_size)
        else:
            values["y_ptr"] = answer = memory.solution(depth)
        kernel = chain_kernel(level.n, level.P > 1, known)
        launches.append(Launch(kernel, level.lanes, level.width, values))
    status = memory.ratios(len(levels) - 1) | slots_of("status")
    return Program([*launches, *memory.back(answer, status)]), memory.scratch.size


@functools.lru_cache(maxsize=256)
def adjoint_program(levels, in_place=False):  # type: ignore[no-untyped-def]
    """Launches of an adjoint solve, and the length of their scratch memory.

    With `in_place`, the solution is at the start of the scratch memory.
    """
    memory, launches, load = _Memory(levels), [], Slot("g")
    for depth, level in enumerate(levels):
        values = memory.arguments(depth) | {"g_ptr": load}
        if level.P > 1:
            values["sep_ptr"] = load = memory.take(level.lanes * 2 * level.k)
        else:
            values["y_ptr"] = answer = memory.solution(depth)
        n, reach, orders = level.n, level.reach, level.orders
        if level.large:
            kernel = large_adjoint_kernel(n, reach)
        elif level.team:
            kernel = wide_adjoint_kernel(n, reach, level.team, orders)
        else:
            kernel = adjoint_kernel(n, reach, level.k, depth > 0, orders, in_place)
        launches.append(Launch(kernel, level.lanes, level.program, values))
    return Program([*launches, *memory.back(answer, {})]), memory.scratch.size


def _row_arguments(strides):  # type: ignore[no-untyped-def]
    return stride_arguments(strides) | slots_of(
        *(name for name, _ in strategy.INPUTS), "y", *strategy.GRADIENTS
    )


@functools.lru_cache(maxsize=256)
def rows_program(shape, spec, strides, wanted, adjoint_lanes=0):  # type: ignore[no-untyped-def]
    """Launches of the row gradients; `adjoint_lanes`: see `strategy.adjoint_lanes`."""
    B, T, V, m = shape
    values = _row_arguments(strides) | {"B": B, "T": T, "lam_ptr": Slot("lam")}
    if V * m <= strategy.LARGEST_ROW_IN_A_LANE:
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


def clear_program(B: int, words: dict[str, int]) -> Program:
    """Launch that zeroes the gradients of failed samples, of these numbers of words per sample."""
    values = slots_of("status", *words) | {f"{name}_words": n for name, n in words.items()}
    return Program([Launch(clear_kernel(tuple(words)), 32 * B, 32, values)])
