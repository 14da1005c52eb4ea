"""Odd-even reduction on a GPU, with kernels for what `cyclic.py` does by tensor operations.

Few long sequences of larger blocks: eliminated one time after the other they leave most of a device
idle. Here half of the blocks that are left are eliminated at once. It is more work, in a number of
launches that grows with the logarithm of the length. Blocks of any size go this way, because no
program needs to hold more than some columns of a matrix (`_gpu_triangle.py`).
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import pad

from smnn._backends._gpu_mode import capturing, settled
from smnn._backends._gpu_reduction_plan import (
    Shape,
    kept,
    levels,
    rows_program,
    substitution,
    triangle_programs,
)
from smnn._backends._gpu_triangle import form_for
from smnn._backends.base import Solved, nothing, relative_pivots
from smnn._backends.cyclic import Links, TorchBackend, chain
from smnn._problem import Problem

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


def _order(N: int, device: torch.device) -> Tensor:
    """The blocks in the order in which they are eliminated."""
    steps = [1 << i for i in range(N.bit_length())]
    return torch.cat([torch.arange(step - 1, N, 2 * step, device=device) for step in steps])


@functools.lru_cache(maxsize=64)
def _known_order(N: int, device: torch.device) -> Tensor:
    order = _order(N, device)
    settled(device)
    return order


def _first_values(problem: Problem, link: Tensor) -> None:
    """Initial values of a single time as rows of the link before it, which leads to nothing."""
    u, w, (_, _, V, m) = problem.u, problem.w_init, problem.y_shape
    M, n = (link.shape[-1] - 1) // 2, V * m
    fill = (0, m - u.shape[3])
    rows = link[:, 0, :n]
    rows[..., M : M + n].diagonal(dim1=1, dim2=2).copy_(pad(w[:, 0], fill).flatten(1))
    rows[..., -1] = pad((w * u)[:, 0], fill).flatten(1)


def _norms(local: Tensor, link: Tensor) -> Tensor:
    """Of the columns of all blocks."""
    M = local.shape[-1] - 1
    parts = local[..., :-1], link[:, :-1, :, M:-1], link[:, 1:, :, :M]
    return vector_norm(torch.stack([vector_norm(x, dim=2) for x in parts]), dim=0)


def _times(matrices: Tensor, x: Tensor) -> Tensor:
    """`(B, N, rows, columns)` times `(B, N, columns)`."""
    flat = x.flatten(0, 1).unsqueeze(-1)
    pairs = zip(matrices.flatten(0, 1).split(AT_ONCE), flat.split(AT_ONCE), strict=True)
    found = [torch.bmm(*pair) for pair in pairs]
    return (found[0] if len(found) == 1 else torch.cat(found)).view(matrices.shape[:3])


def _residual(local: Tensor, link: Tensor, y: Tensor) -> Tensor:
    """Rows, transposed, times what they leave of their right-hand sides: zero at the solution.

    `normal_residual` copies constants from the host, which no graph can hold.
    """
    M = y.shape[-1]
    own, left, right = local[..., :-1], link[..., :M], link[..., M:-1]
    ring = pad(y, (0, 0, 1, 1))
    inner = local[..., -1] - _times(own, y)
    between = link[..., -1] - _times(left, ring[:, :-1]) - _times(right, ring[:, 1:])
    beside = _times(right.mT, between)[:, :-1] + _times(left.mT, between)[:, 1:]
    return _times(own.mT, inner) + beside


class Reduction(TorchBackend):
    """As `TorchBackend`, of which it is the part of a GPU; its factor lies in another order.

    Args:
        links: Rows of the links of a problem, as `_taylor.link_rows` gives them, without a copy
            from the host.
    """

    def __init__(self, links: Links) -> None:
        self._links = links

    def _shape(self, problem: Problem) -> Shape:
        return Shape(problem.c.shape[0], *self._sizes(problem))

    def solve(self, problem: Problem, pieces: int) -> Solved:
        """Reduce to nothing, substitute back, refine once with the residual of the rows."""
        if not problem.c.shape[0]:
            return nothing(problem)
        shape = self._shape(problem)
        B, N, M = shape
        local, link = self._chain(problem)
        norms = _norms(local, link)
        factor, z = self._reduce(shape, local, link)
        y = norms.new_empty(B, N, M)
        substitution(shape, adjoint=False).run({"factor": factor, "z": z, "y": y})
        tensors = {"factor": factor, "z": z, "g": _residual(local, link, y)}
        better = torch.empty_like(y)
        substitution(shape, adjoint=True).run(tensors | {"y": better})
        order = (_order if capturing(y.device) else _known_order)(N, y.device)
        pivots = factor[..., :M].diagonal(dim1=2, dim2=3).abs()
        ratios = torch.empty_like(norms)
        ratios[:, order] = relative_pivots(pivots.transpose(0, 1), norms[:, order])
        wanted = math.prod(problem.y_shape[1:])
        rcond, weakest = ratios.flatten(1)[:, :wanted].min(1)
        # A residual may overflow where an answer does not.
        better = better.nan_to_num(0.0, 0.0, 0.0)
        y = (y + better).flatten(1)[:, :wanted].reshape(problem.y_shape).contiguous()
        return self.settle(problem, pieces, y, factor.view(-1), rcond, weakest)

    def _chain(self, problem: Problem) -> tuple[Tensor, Tensor]:
        """Rows of the blocks and of the links between them."""
        if problem.u.shape[1] != 1:
            local, link = chain(problem, self._links)
        else:  # no block but the first needs room for such rows
            bare = problem._replace(u=problem.u[:, :0], w_init=problem.w_init[:, :0])
            local, link = chain(bare, self._links)
            _first_values(problem, link)
        return local.contiguous(), link.contiguous()

    def _reduce(self, shape: Shape, local: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Level by level, each from what the one before has left.

        Gives the factor, and what is on its right-hand side.
        """
        B, N, M = shape
        new, outer, done = local.new_empty, local, 0
        factor, z = new(N, B, M, 3 * M), new(N, B, M)
        every = levels(shape, rows.shape[2], local.shape[2])
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
        return factor, z

    def adjoint(self, problem: Problem, factor: Tensor, g: Tensor, pieces: int) -> Tensor:
        """`R^T z = g` up the levels, `R x = z` back down."""
        del pieces
        if not g.numel():
            return torch.empty_like(g)
        shape = self._shape(problem)
        B, N, M = shape
        flat = g.reshape(B, -1)
        load = pad(flat, (0, N * M - flat.shape[1])).contiguous()
        out, z = torch.empty_like(load), torch.empty_like(load)
        tensors = {"factor": factor, "g": load, "z": z, "y": out}
        substitution(shape, adjoint=True).run(tensors)
        return out[:, : flat.shape[1]].reshape(g.shape).contiguous()
