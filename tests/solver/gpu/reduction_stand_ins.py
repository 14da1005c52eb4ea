"""What the kernels of `_solver/gpu/reduction/solve.py` do, by tensor operations.

For sizes that an interpreter is too slow for, by matrices that take several launches. Each has the
name of what it stands for, and finds the problem among its tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from smnn._solver.cyclic import chain
from smnn._solver.gpu.reduction.levels import Level, Shape, Sizes, levels
from smnn._solver.rows import column_squares, normal_residual
from solver.internals import Problem


class Program:
    """Launched once, all at once."""

    def __init__(self, run: Callable[[dict[str, Tensor]], None]) -> None:
        self.run = run


def _first_values(problem: Problem, link: Tensor) -> None:
    """Initial values of a single time as rows of the link before it, which leads to nothing."""
    u, w, (_, _, V, m) = problem.u, problem.w_init, problem.y_shape
    M, n = (link.shape[-1] - 1) // 2, V * m
    fill = (0, m - u.shape[3])
    rows = link[:, 0, :n]
    rows[..., M : M + n].diagonal(dim1=1, dim2=2).copy_(pad(w[:, 0], fill).flatten(1))
    rows[..., -1] = pad((w * u)[:, 0], fill).flatten(1)


def blocks_program(sizes: Sizes, strides: object) -> Program:
    """Rows of blocks and links, and how large they are."""

    def run(t: dict[str, Any]) -> None:
        problem = bare = t["problem"]
        if sizes.T_init == 1:
            bare = problem._replace(u=problem.u[:, :0], w_init=problem.w_init[:, :0])
        local, link = chain(bare)
        if sizes.T_init == 1:
            _first_values(problem, link)
        for name, rows in (("local", local), ("link", link)):
            size = rows[..., :-1].abs().amax(-1, keepdim=True).nan_to_num(torch.inf)
            t[name].copy_(torch.cat([rows, size], -1).transpose(0, 1))

    return Program(run)


def rows_program(shape: Shape, level: Level) -> Program:
    """Put the rows of a level together, the largest first."""
    B, _, M, _ = shape
    slots = max(level.slots, level.apart)

    def put(there: Tensor, link: Tensor, own: int, beside: int, column: int) -> None:
        there[:, :, :M] = link[..., own : own + M]
        there[:, :, column : column + M] = link[..., beside : beside + M]
        there[..., -1] = link[..., -1]

    def run(t: dict[str, Tensor]) -> None:
        a = t["a"].zero_()
        matrices = a.view(level.blocks, B, level.rows, 3 * M + 1)
        links = t["link"][..., :-1]
        if level.step > 1:
            links = t["link"].view(level.links, B, level.height, -1)
            links = links[:, :, M : M + level.slots, M:]
        local = t["local"][level.step - 1 :: 2 * level.step, ..., :-1]
        for i, matrix in enumerate(matrices):
            put(matrix[:, : level.slots], links[2 * i], M, 0, M)
            if 2 * i + 1 < level.links:
                put(matrix[:, slots : slots + level.slots], links[2 * i + 1], 0, M, 2 * M)
            elif level.apart:
                put(matrix[:, slots : slots + level.apart], t["outer"], 0, M, 2 * M)
            inner = matrix[:, 2 * slots : 2 * slots + level.own]
            inner[..., :M], inner[..., -1] = local[i][..., :-1], local[i][..., -1]
        size = a[..., :-1].abs().amax(-1).nan_to_num(torch.inf)
        order = size.sort(dim=-1, descending=True, stable=True).indices
        a.copy_(a.gather(1, order.unsqueeze(-1).expand_as(a)))

    return Program(run)


def _part_to_triangles(a: Tensor, columns: int, *, alone: bool) -> None:
    """By LAPACK."""
    del alone
    found, scales = torch.geqrf(a[..., :columns].contiguous())
    rest = a[..., columns:].contiguous()
    a[..., columns:] = torch.ormqr(found, scales, rest, left=True, transpose=True)
    a[..., :columns] = found.triu()


def substitute(shape: Shape, t: dict[str, Tensor], y: Tensor, g: Tensor | None = None) -> None:
    """`R y = z`; before it, `R^T z = g`."""
    B, N, M, wanted = shape
    every = levels(shape, 0, 0)
    blocks = [torch.arange(x.blocks) * 2 * x.step + x.step - 1 for x in every]
    starts = [sum(x.blocks for x in every[:i]) for i in range(len(every))]
    factor, z = t["factor"].view(N, B, M, 3 * M), t["z"].view(N, B, M)
    whole = y.new_zeros(B, N, M)

    def beside(level: Level, which: Tensor) -> list[tuple[slice, Tensor, Tensor]]:
        """For either side: columns, neighbours, and which blocks have one."""
        out = []
        for i, step in ((1, -level.step), (2, level.step)):
            there = (which + step >= 0) & (which + step < N)
            out.append((slice(i * M, (i + 1) * M), (which + step)[there], there))
        return out

    if g is not None:
        load = pad(g.reshape(B, -1), (0, N * M - wanted)).view(B, N, M).transpose(0, 1).clone()
        for level, which, at in zip(every, blocks, starts, strict=True):
            R = factor[at : at + level.blocks]
            own = load[which].unsqueeze(-1)
            own = torch.linalg.solve_triangular(R[..., :M].mT, own, upper=False)
            z[at : at + level.blocks] = own.squeeze(-1)
            for columns, others, there in beside(level, which):
                load[others] -= (R[there][..., columns].mT @ own[there]).squeeze(-1)
    for level, which, at in [*zip(every, blocks, starts, strict=True)][::-1]:
        R = factor[at : at + level.blocks]
        w = z[at : at + level.blocks].unsqueeze(-1).clone()
        for columns, others, there in beside(level, which):
            w[there] -= R[there][..., columns] @ whole[:, others].transpose(0, 1).unsqueeze(-1)
        found = torch.linalg.solve_triangular(R[..., :M], w, upper=True)
        whole[:, which] = found.squeeze(-1).transpose(0, 1)
    y.view(B, -1).copy_(whole.view(B, -1)[:, :wanted])


def adjoint_program(shape: Shape) -> tuple[Program, int]:
    """An adjoint solve."""

    def run(t: dict[str, Tensor]) -> None:
        z = t["factor"].new_empty(shape.N * shape.B * shape.M)
        substitute(shape, t | {"z": z}, t["y"], t["g"])

    return Program(run), 0


def refine_program(sizes: Sizes, strides: object) -> Program:
    """Substitution, one correction, and a verdict by the smallest pivot."""

    def run(t: dict[str, Any]) -> None:
        (B, N, M, wanted), problem, y = sizes.shape, t["problem"], t["y"]
        substitute(sizes.shape, t, y)
        correction = torch.empty_like(y)
        substitute(sizes.shape, t, correction, refine_program.residual(problem, y))
        y += correction
        every = levels(sizes.shape, 0, 0)
        order = torch.cat([torch.arange(x.step - 1, N, 2 * x.step) for x in every])
        pivots = y.new_empty(B, N, M)
        pivots[:, order] = t["factor"].view(N, B, M, -1).diagonal(dim1=2, dim2=3).transpose(0, 1)
        ratios = pivots.abs().flatten(1)[:, :wanted] / column_squares(problem).sqrt().flatten(1)
        rcond, weakest = ratios.min(1)
        t["rcond"].copy_(rcond), t["weakest"].copy_(weakest)
        t["status"].copy_(torch.where(rcond > 1e-14, 0, 3))

    return Program(run)


refine_program.residual = normal_residual  # type: ignore[attr-defined]
ALL = (blocks_program, rows_program, _part_to_triangles, refine_program, adjoint_program)
