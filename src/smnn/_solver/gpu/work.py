"""What is launched for problems of one layout, whichever way they are spread over a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from smnn._solver.gpu import strategy as plans
from smnn._solver.gpu.reduction import programs as reduction
from smnn._solver.gpu.reduction.levels import Sizes

if TYPE_CHECKING:
    from smnn._solver.gpu.launch import Program

Shape = tuple[int, int, int, int]


class Work(NamedTuple):
    """What is launched for a solve and its derivative, and the memory that takes."""

    solve: Program
    scratch: int
    adjoint: Program
    adjoint_scratch: int
    """Of an adjoint solve, or of a whole backward."""
    rows: Callable[[tuple[bool, ...]], Program]
    """Row gradients that are wanted, alone or with the adjoint solve."""
    factor: int
    """Numbers kept."""
    verdicts: int
    together: bool = False
    """Whether a backward is one program."""
    held: int = 0
    """Lanes per sequence that hold its adjoint solution, in the scratch."""


def in_pieces(levels: tuple[plans.Level, ...], shape: Shape, spec: Any, strides: Any) -> Work:
    """That of sequences which are whole or cut into pieces, with solutions of this shape."""
    program, scratch = plans.solve_program(levels, spec, strides)
    held, together = plans.held(levels), plans.together(levels)

    def rows(wanted: tuple[bool, ...]) -> Program:
        found: Program
        if together:
            found, _ = plans.backward_program(levels, spec, strides, wanted)
        else:
            found = plans.rows_program(shape, spec, strides, wanted, held)
        return found

    return Work(
        program, scratch, plans.adjoint_program(levels, held > 0)[0],
        plans.backward_scratch(levels), rows, sum(level.factor_size for level in levels),
        plans.verdicts(levels), together, held,
    )  # fmt: skip


def by_reduction(sizes: Sizes, shape: Shape, spec: Any, strides: Any) -> Work:
    """That of sequences which are reduced by matrices that have room in registers."""

    def rows(wanted: tuple[bool, ...]) -> Program:
        found: Program = plans.rows_program(shape, spec, strides, wanted)
        return found

    solve, adjoint = reduction.solve_program(sizes, strides), reduction.adjoint_program(sizes.shape)
    return Work(*solve, *adjoint, rows, sizes.shape.factor_size, verdicts=1)
