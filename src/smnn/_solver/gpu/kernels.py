"""The kernels: what each is called, what it does, and its arguments."""

from __future__ import annotations

import functools

from smnn._solver.gpu.emit import Source
from smnn._solver.gpu.lane.chain import chain_body
from smnn._solver.gpu.lane.clock import Clock
from smnn._solver.gpu.lane.eliminate import Spec, eliminate_body, verdict
from smnn._solver.gpu.lane.substitute import back_body, forward_body
from smnn._solver.gpu.lane.together import Together
from smnn._solver.gpu.launch import Kernel
from smnn._solver.gpu.row_gradients import TENSORS, rows_body, variables_body
from smnn._solver.gpu.team.eliminate import solve_body as wide_solve_body
from smnn._solver.gpu.team.substitute import adjoint_body as wide_adjoint_body
from smnn._solver.gpu.tile.eliminate import solve_body as large_solve_body
from smnn._solver.gpu.tile.eliminate_panels import solve_body as panel_solve_body
from smnn._solver.gpu.tile.row_gradients import equations_body
from smnn._solver.gpu.tile.substitute import adjoint_body as large_adjoint_body
from smnn._solver.gpu.tile.tiles import shape


def _strides(name: str, axes: str) -> list[str]:
    return [f"{name}_s{axis}" for axis in axes]


SIZES = ["B", "T", "P", "L"]
INPUTS = [
    "c_ptr", *_strides("c", "bt"), "d_ptr", *_strides("d", "bt"), "u_ptr", *_strides("u", "bt"),
    "s_ptr", *_strides("s", "btv"), "wg_ptr", *_strides("wg", "btq"),
    "wi_ptr", *_strides("wi", "btvr"), "scale_ptr", *_strides("scale", "btv"),
    "wt_ptr", *_strides("wt", "btv"), "T_init",
]  # fmt: skip
VARYING = ["K_ptr", "KF_ptr", *_strides("k", "btv")]
_OF_ROWS = [
    "y_ptr", *(a for a in INPUTS if not a.startswith(("scale", "wt"))),
    "ws_ptr", *_strides("ws", "btvr"), *(f"g{name}_ptr" for name in TENSORS),
]  # fmt: skip
"""What row gradients read besides the adjoint solution, and what they write."""


def _finish(clock: Clock) -> None:
    """Status of a whole sequence: bad step, singular, or not finite at its first or last time."""
    out = clock.out
    out("finite = tl.abs(y0) < float('inf')")
    if clock.orders:
        out(f"finite = finite & ({clock.other(out.new('finite.to(tl.int32)'))} > 0)")
    out("code = tl.where(finite | (ratio <= 1e-14), tl.where(ratio > 1e-14, 0, 3), 2)")
    out("code = tl.where(bad_step, 1, code)")
    out("tl.store(status_ptr + b, code.to(tl.int64), mask=first)")


@functools.cache
def solve_kernel(spec: Spec) -> Kernel:
    """Elimination of whole sequences with substitution, or of pieces without."""
    out = Source()
    clock = Clock(out, spec.orders)
    eliminate_body(clock, spec)
    verdict(clock)
    arguments = [*SIZES, *INPUTS, *(VARYING if spec.varying else []), "factor_ptr", "z_ptr"]
    if spec.left:
        return Kernel(
            "eliminate_pieces", out, [*arguments, "coupling_ptr", "rcond_ptr", "weakest_ptr"]
        )
    out("poison = tl.where(ratio > 1e-14, 0.0, float('nan')).to(tl.float64)")
    out("tl.debug_barrier()")
    back_body(clock, spec.n, spec.reach, 0)
    _finish(clock)
    return Kernel(
        "solve_whole", out, [*arguments, "y_ptr", "rcond_ptr", "weakest_ptr", "status_ptr"]
    )


@functools.cache
def chain_kernel(k: int, left: bool, depth: int) -> Kernel:
    """Elimination of a chain of separators, whole with substitution, or in pieces without."""
    out = Source()
    clock = Clock(out)
    chain_body(out, k, left=left, depth=depth)
    verdict(clock)
    levels = [f"{letter}{i}" for i in range(depth) for letter in "NP"]
    arguments = [
        *SIZES,
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
    back_body(clock, k, 1, 0)
    return Kernel("chain_whole", out, [*arguments, "y_ptr"])


@functools.cache
def back_kernel(n: int, reach: int, k: int, judge: bool) -> Kernel:
    """Back substitution in pieces; with `judge`, failed sequences are poisoned and reported."""
    out = Source()
    clock = Clock(out)
    arguments = [*SIZES, "factor_ptr", "z_ptr", "sep_ptr", "y_ptr"]
    if judge:
        out("ratio = tl.load(rcond_ptr + b)")
        out("bad_step = ratio < 0.0")
        out("poison = tl.where(ratio > 1e-14, 0.0, float('nan')).to(tl.float64)")
        arguments += ["rcond_ptr", "status_ptr"]
    else:
        out("poison = zero")
    back_body(clock, n, reach, k)
    if judge:
        out("first = valid & (p == 0)")
        _finish(clock)
    return Kernel("back_pieces", out, arguments)


@functools.cache
def adjoint_kernel(
    n: int, reach: int, k: int, paired: bool, orders: int, held: bool = False
) -> Kernel:
    """`R^T z = g`; for whole sequences followed by `R y = z`, where `z` was if `held`."""
    out = Source()
    clock = Clock(out, orders)
    forward_body(clock, n, reach, k, paired=paired)
    arguments = [*SIZES, "factor_ptr", "z_ptr", "g_ptr"]
    if k:
        return Kernel("forward_pieces", out, [*arguments, "sep_ptr"])
    out("poison = zero")
    out("tl.debug_barrier()")
    back_body(clock, n, reach, 0, held=held)
    if held:
        return Kernel("adjoint_held", out, arguments)
    return Kernel("adjoint_whole", out, [*arguments, "y_ptr"])


@functools.cache
def backward_kernel(
    V: int, m: int, Q: int, m_init: int, scheme: str, orders: int, wanted: tuple[bool, ...]
) -> Kernel:
    """`adjoint_kernel` of whole sequences and `rows_kernel` in one."""
    out = Source()
    clock = Clock(out, orders)
    forward_body(clock, V * m, 1, 0, paired=False)
    out("poison = zero")
    out("tl.debug_barrier()")
    back_body(clock, V * m, 1, 0, Together(clock, V, m, Q, m_init, scheme, wanted))
    return Kernel("backward_whole", out, [*SIZES, "factor_ptr", "z_ptr", "g_ptr", *_OF_ROWS])


@functools.cache
def wide_solve_kernel(spec: Spec, team: int) -> Kernel:
    """Elimination and substitution of whole sequences, a team of lanes for each, or for each end."""
    out = Source()
    wide_solve_body(out, spec, team)
    arguments = ["B", "T", "L", *INPUTS, *(VARYING if spec.varying else []), "factor_ptr", "y_ptr"]
    return Kernel("solve_wide", out, [*arguments, "rcond_ptr", "weakest_ptr", "status_ptr"])


@functools.cache
def large_solve_kernel(spec: Spec) -> Kernel:
    """Elimination and substitution of whole sequences, one or several warps for each."""
    out = Source()
    large_solve_body(out, spec, shape(spec.n))
    arguments = ["T", "L", *INPUTS, *VARYING, "factor_ptr", "y_ptr"]
    return Kernel("solve_large", out, [*arguments, "rcond_ptr", "weakest_ptr", "status_ptr"])


@functools.cache
def panel_solve_kernel(spec: Spec) -> Kernel:
    """As `large_solve_kernel`, with rows that lie in memory."""
    out = Source()
    panel_solve_body(out, spec)
    arguments = ["T", "L", *INPUTS, *VARYING, "factor_ptr", "z_ptr", "y_ptr"]
    return Kernel("solve_panels", out, [*arguments, "rcond_ptr", "weakest_ptr", "status_ptr"])


@functools.cache
def large_adjoint_kernel(n: int, reach: int) -> Kernel:
    """`R^T z = g`, then `R y = z`, a warp for each sequence."""
    out = Source()
    large_adjoint_body(out, n, reach)
    return Kernel("adjoint_large", out, ["T", "L", "factor_ptr", "g_ptr", "y_ptr"])


@functools.cache
def wide_adjoint_kernel(n: int, reach: int, team: int, orders: int) -> Kernel:
    """`R^T z = g`, then `R y = z`, a team of lanes for each sequence, or one from each end."""
    out = Source()
    wide_adjoint_body(out, n, reach, team, orders)
    return Kernel("adjoint_wide", out, ["B", "T", "L", "factor_ptr", "g_ptr", "y_ptr"])


@functools.cache
def rows_kernel(
    V: int, m: int, Q: int, m_init: int, scheme: str, wanted: tuple[bool, ...], held: int = 0
) -> Kernel:
    """Gradients by everything that is wanted; the adjoint solution is `held` by so many lanes."""
    out = Source()
    rows_body(out, V, m, Q, m_init, scheme, wanted, held)
    return _rows_kernel("row_gradients", out)


@functools.cache
def variables_kernel(V: int, m: int, m_init: int, scheme: str, wanted: tuple[bool, ...]) -> Kernel:
    """Gradients by everything that is wanted and no part of an equation."""
    out = Source()
    variables_body(out, V, m, m_init, scheme, wanted)
    return _rows_kernel("variable_gradients", out)


@functools.cache
def equations_kernel(V: int, m: int, Q: int, wanted: tuple[bool, ...]) -> Kernel:
    """Gradients by what is wanted of the equations."""
    out = Source()
    equations_body(out, V, m, Q, wanted)
    return _rows_kernel("equation_gradients", out)


def _rows_kernel(name: str, out: Source) -> Kernel:
    return Kernel(name, out, ["B", "T", "lam_ptr", *_OF_ROWS])
