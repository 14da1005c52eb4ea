"""What the kernels of `_gpu_reduction.py` do, by tensor operations.

For sizes that an interpreter is too slow for. Each has the name of what it stands for.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from smnn._backends import _gpu_reduction_plan as plan
from smnn._backends._gpu_reduction_plan import Level, Shape


class Program:
    """Launched once, all at once."""

    def __init__(self, run: Callable[[dict[str, Tensor]], None]) -> None:
        self.run = run


def rows_program(shape: Shape, level: Level) -> Program:
    """Put the rows of a level together, the largest first."""
    B, _, M = shape
    slots = max(level.slots, level.apart)

    def put(there: Tensor, link: Tensor, own: int, beside: int, column: int) -> None:
        there[:, :, :M] = link[..., own : own + M]
        there[:, :, column : column + M] = link[..., beside : beside + M]
        there[..., -1] = link[..., -1]

    def run(t: dict[str, Tensor]) -> None:
        a = t["a"].zero_()
        matrices = a.view(level.blocks, B, level.rows, 3 * M + 1)
        links = t["link"].transpose(0, 1)
        if level.step > 1:
            links = t["link"].view(level.links, B, level.height, -1)
            links = links[:, :, M : M + level.slots, M:]
        local = t["local"].transpose(0, 1)[level.step - 1 :: 2 * level.step]
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


def substitution(shape: Shape, *, adjoint: bool) -> Program:
    """`R y = z`; before it, `R^T z = g`."""
    B, N, M = shape
    levels = plan.levels(shape, 0, 0)
    blocks = [torch.arange(x.blocks) * 2 * x.step + x.step - 1 for x in levels]
    starts = [sum(x.blocks for x in levels[:i]) for i in range(len(levels))]
    every = list(zip(levels, blocks, starts, strict=True))

    def beside(level: Level, which: Tensor) -> list[tuple[slice, Tensor, Tensor]]:
        """For either side: columns, neighbours, and which blocks have one."""
        out = []
        for i, step in ((1, -level.step), (2, level.step)):
            there = (which + step >= 0) & (which + step < N)
            out.append((slice(i * M, (i + 1) * M), (which + step)[there], there))
        return out

    def run(t: dict[str, Tensor]) -> None:
        factor, z, y = t["factor"].view(N, B, M, 3 * M), t["z"].view(N, B, M), t["y"].view(B, N, M)
        if adjoint:
            load = t["g"].view(B, N, M).transpose(0, 1).clone()
            for level, which, at in every:
                R = factor[at : at + level.blocks]
                own = load[which].unsqueeze(-1)
                own = torch.linalg.solve_triangular(R[..., :M].mT, own, upper=False)
                z[at : at + level.blocks] = own.squeeze(-1)
                for columns, others, there in beside(level, which):
                    load[others] -= (R[there][..., columns].mT @ own[there]).squeeze(-1)
        for level, which, at in reversed(every):
            R = factor[at : at + level.blocks]
            w = z[at : at + level.blocks].unsqueeze(-1).clone()
            for columns, others, there in beside(level, which):
                w[there] -= R[there][..., columns] @ y[:, others].transpose(0, 1).unsqueeze(-1)
            found = torch.linalg.solve_triangular(R[..., :M], w, upper=True)
            y[:, which] = found.squeeze(-1).transpose(0, 1)

    return Program(run)


ALL = (rows_program, _part_to_triangles, substitution)
