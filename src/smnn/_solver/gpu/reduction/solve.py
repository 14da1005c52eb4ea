"""Odd-even reduction on a GPU, with kernels for what `cyclic.py` does by tensor operations.

Few long sequences of larger blocks: eliminated one time after the other they leave most of a device
idle. Here half of the blocks that are left are eliminated at once. It is more work, in a number of
launches that grows with the logarithm of the length. Matrices that have room in registers take a
launch for each level. Blocks of any size go this way, because no program needs to hold more than
some columns of a matrix (`triangle.py`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from smnn._solver.diagnostics import Diagnostics, nothing
from smnn._solver.gpu.reduction.levels import Sizes, shape_of, sizes_of
from smnn._solver.gpu.reduction.programs import (
    adjoint_program,
    blocks_program,
    finishing,
    kept,
    refine_program,
    rows_program,
    solve_program,
    triangle_programs,
)
from smnn._solver.gpu.reduction.triangle import form_for
from smnn._solver.plan import Solved, in_memory
from smnn._solver.problem import Problem

MANY = 3_000_000
"""Numbers in all matrices from which on products of matrices are sooner done than our own kernel."""
ROOM = 1 << 25
"""Words for reflections: with more matrices than have room there, some are done after the others."""
AT_ONCE = 1 << 15
"""Matrices that a library is given at once: fewer than the 65,535 that an axis of a grid may have."""


def to_triangles(a: Tensor, columns: int) -> None:
    """The first columns of matrices `(matrices, count, width)` become triangles, in place."""
    alone = a.numel() > MANY
    for part in a.split(min(AT_ONCE, max(1, ROOM // (kept(alone) * a.shape[1])))):
        _part_to_triangles(part, columns, alone=alone)


def _part_to_triangles(a: Tensor, columns: int, *, alone: bool) -> None:
    matrices, count, width = a.shape
    size = form_for(count).columns
    normals = a.new_empty(matrices, kept(alone), count)
    scales = a.new_empty(matrices, kept(alone))
    tensors = {"a": a, "normals": normals, "scales": scales}
    for low, high, program in triangle_programs(matrices, count, width, columns, alone):
        program.run(tensors)
        behind = -(-high // size) * size
        if alone and behind < width:
            # All reflections of a block: 1 - V' L^-1 V, with normals as the rows of V.
            V = normals[:, : high - low, low:]
            L, scale = V @ V.mT, scales[:, : high - low]
            L.diagonal(dim1=1, dim2=2).copy_(torch.where(scale > 0, 1 / scale, 1.0))
            rest = a[:, low:, behind:]
            along = torch.linalg.solve_triangular(L, V @ rest, upper=False)
            rest.baddbmm_(V.mT, along, alpha=-1)


def solve(problem: Problem, tensors: dict[str, Tensor], strides: Any) -> Solved:
    """Reduce to nothing, substitute back, refine once with the residual of the rows.

    Args:
        problem: What is to be solved.
        tensors: All that the kernels read, by the names they have there.
        strides: Of these.
    """
    sizes = sizes_of(problem)
    B, _, M, _ = sizes.shape
    if not B:
        return nothing(problem)
    new = problem.c.new_empty
    y, factor, rcond = new(problem.y_shape), new(sizes.shape.factor_size), new(B)
    weakest, status = new(B, dtype=torch.int64), new(B, dtype=torch.int64)
    tensors = tensors | {"y": y, "factor": factor}
    tensors |= {"rcond": rcond, "weakest": weakest, "status": status}
    if sizes.at_once:
        program, scratch = solve_program(sizes, strides)
        program.run(tensors | {"scratch": new(scratch)})
    else:
        link = new(sizes.shape.N + 1, B, sizes.slots, 2 * M + 2)
        tensors |= {"link": link, "local": new(sizes.shape.N, B, sizes.own, M + 2)}
        blocks_program(sizes, strides).run(tensors)
        tensors["z"] = _reduce(sizes, tensors)
        tensors |= {name: new(size) for name, size in finishing(sizes.shape).items()}
        refine_program(sizes, strides).run(tensors)
    return Solved(y, factor, Diagnostics(status, rcond, weakest))


def _reduce(sizes: Sizes, tensors: dict[str, Tensor]) -> Tensor:
    """Level by level, each from what the one before has left.

    Writes the factor, and gives what is on its right-hand side.
    """
    B, N, M, _ = shape = sizes.shape
    local, rows = tensors["local"], tensors["link"]
    new, outer, done = local.new_empty, local, 0
    factor, z = tensors["factor"].view(N, B, M, 3 * M), new(N, B, M)
    every = sizes.levels
    for level, following in zip(every, (*every[1:], every[0]), strict=True):
        a = new(level.blocks * B, level.rows, 3 * M + 1)
        rows_program(shape, level).run(
            {"link": rows, "outer": outer, "local": local, "a": a, "sizes": new(a.shape[:2])}
        )
        if following.apart and not level.apart:
            outer = rows.view(level.links, B, level.height, -1)[level.left]
            outer = outer[:, M : M + level.slots, M:].contiguous()
        rows = a
        to_triangles(a, level.columns)
        end = done + level.blocks
        factor[done:end].view(-1, M, 3 * M).copy_(a[:, :M, :-1])
        z[done:end].view(-1, M).copy_(a[:, :M, -1])
        done = end
    return z


def adjoint(problem: Problem, factor: Tensor, g: Tensor) -> Tensor:
    """`R^T z = g` up the levels, `R x = z` back down."""
    out = torch.empty_like(g, memory_format=torch.contiguous_format)
    if g.numel():
        program, scratch = adjoint_program(shape_of(problem))
        tensors = {"g": in_memory(g), "factor": factor, "y": out}
        program.run(tensors | {"scratch": factor.new_empty(scratch)})
    return out
