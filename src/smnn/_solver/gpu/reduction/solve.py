"""Odd-even reduction on a GPU: the algorithm of `cyclic.py` with dedicated kernels.

For few long sequences of larger blocks, which leave a device idle if eliminated in time order. Half
of the remaining blocks are eliminated in parallel: more work, in a number of launches logarithmic
in the length. Matrices that fit into registers take one launch per level. Blocks may have any size,
because a program only needs some columns of a matrix (`triangle.py`).
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
    final_sizes,
    kept,
    refine_program,
    rows_program,
    solve_program,
    triangle_programs,
)
from smnn._solver.gpu.reduction.triangle import form_for
from smnn._solver.plan import in_memory
from smnn._solver.problem import Problem, Solved

MANY = 3_000_000
"""Total number of matrix entries from which matrix products are faster than our own kernel."""
ROOM = 1 << 25  # Words for stored reflections; larger batches of matrices are split
AT_ONCE = 1 << 15  # Maximum number of matrices per library call (a grid axis has at most 65,535)


def to_triangles(a: Tensor, columns: int) -> None:
    """Reduce the first columns of matrices `(matrices, count, width)` to triangles, in place."""
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
            # Product of the reflections of a block: 1 - V' L^-1 V, with normal vectors as rows of V.
            V = normals[:, : high - low, low:]
            L, scale = V @ V.mT, scales[:, : high - low]
            L.diagonal(dim1=1, dim2=2).copy_(torch.where(scale > 0, 1 / scale, 1.0))
            rest = a[:, low:, behind:]
            along = torch.linalg.solve_triangular(L, V @ rest, upper=False)
            rest.baddbmm_(V.mT, along, alpha=-1)


def solve(problem: Problem, tensors: dict[str, Tensor], strides: Any) -> Solved:
    """Reduce, substitute back, refine once with the residual of the rows.

    Args:
        problem: Problem to solve.
        tensors: Input tensors of the kernels, by name.
        strides: Their strides.
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
        tensors |= {name: new(size) for name, size in final_sizes(sizes.shape).items()}
        refine_program(sizes, strides).run(tensors)
    return Solved(y, factor, Diagnostics(status, rcond, weakest))


def _reduce(sizes: Sizes, tensors: dict[str, Tensor]) -> Tensor:
    """Eliminate level by level; writes the factor and returns its right-hand side."""
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
