"""The kernels of odd-even reduction (`solve.py`), and their arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable

from smnn._solver.gpu.emit import Source
from smnn._solver.gpu.kernels import INPUTS, VARYING
from smnn._solver.gpu.launch import Kernel
from smnn._solver.gpu.reduction import blocks, refine, triangle
from smnn._solver.gpu.reduction import level as matrices
from smnn._solver.gpu.reduction import substitute as source


def _kernel(
    name: str,
    arguments: list[str],
    write: Callable[..., None],
    *what: object,
    fused: bool = True,
) -> Kernel:
    out = Source()
    write(out, *what)
    return Kernel(name, out, arguments, fused=fused)


@functools.cache
def block_kernels(kind: blocks.Kind) -> tuple[Kernel, Kernel]:
    """Rows of blocks, and of the links between them."""
    given = [*INPUTS, *(VARYING if kind.varying else [])]
    return (
        _kernel("block_rows", [*blocks.LOCAL_ARGUMENTS, *given], blocks.local_body, kind),
        _kernel("link_rows", [*blocks.LINK_ARGUMENTS, *given], blocks.link_body, kind),
    )


@functools.cache
def level_kernel(form: matrices.Form) -> Kernel:
    """A level whose matrices have room in registers."""
    return _kernel("reduction_level", matrices.arguments(form), matrices.level_body, form)


@functools.cache
def row_kernels() -> tuple[Kernel, Kernel]:
    """How large rows are; and the rows, in that order."""
    arguments, write = source.ROW_ARGUMENTS, functools.partial(source.rows_body, ordered=False)
    return (
        _kernel("reduction_sizes", arguments, write),
        _kernel(
            "reduction_rows",
            [*arguments, "a_ptr"],
            functools.partial(source.rows_body, ordered=True),
        ),
    )


@functools.cache
def substitution_kernels(warps: int) -> tuple[Kernel, Kernel]:
    """Forward and back, for the blocks of a level, with so many warps for each."""
    return (
        _kernel("reduction_forward", source.FORWARD_ARGUMENTS, source.forward_body, warps),
        _kernel("reduction_back", source.BACK_ARGUMENTS, source.back_body, warps),
    )


@functools.cache
def small_substitution_kernels(M: int) -> tuple[Kernel, Kernel]:
    """The same with a lane for each of at most 32 unknowns."""
    return (
        _kernel("small_forward", source.SMALL_FORWARD_ARGUMENTS, source.small_forward_body, M),
        _kernel("small_back", source.SMALL_BACK_ARGUMENTS, source.small_back_body, M),
    )


@functools.cache
def triangle_kernel(form: triangle.Form) -> Kernel:
    """Reflections of some columns, on chunks of that form."""
    return _kernel("triangle", triangle.ARGUMENTS, triangle.triangle_body, form)


@functools.cache
def residual_kernel() -> Kernel:
    """What a solution leaves of the rows.

    Terms that cancel each other do so only if each product is rounded like the other.
    """
    arguments, write = refine.RESIDUAL_ARGUMENTS, refine.residual_body
    return _kernel("reduction_residual", arguments, write, fused=False)


@functools.cache
def verdict_kernels() -> tuple[Kernel, Kernel, Kernel]:
    """The smallest pivot of each block; of each sequence; and its solution, if it has one."""
    return (
        _kernel("reduction_ratios", refine.RATIO_ARGUMENTS, refine.ratio_body),
        _kernel("reduction_judge", refine.JUDGE_ARGUMENTS, refine.judge_body),
        _kernel("reduction_final", refine.FINAL_ARGUMENTS, refine.final_body),
    )
