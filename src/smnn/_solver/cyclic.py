"""The `torch` backend: odd-even (cyclic) reduction with batched QR, on any device.

The sequence is a chain of blocks (`blocks.py`), one for each time. For the `central` scheme, whose
rows reach over three times, a block holds two times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from smnn._solver import blocks
from smnn._solver.diagnostics import diagnosed, nothing, relative_pivots
from smnn._solver.plan import Backend, Plan
from smnn._solver.problem import Problem, Solved
from smnn._solver.rows import central_steps, link_rows, normal_residual


def _local_rows(problem: Problem) -> Tensor:
    """Governing and initial rows of every time, `(B, T, rows, n+1)`."""
    c, d, u, w_gov, w_init = problem.c, problem.d, problem.u, problem.w_gov, problem.w_init
    B, T, Q, V, m = c.shape
    n = V * m
    rows = [torch.cat([c.reshape(B, T, Q, n), d.unsqueeze(-1)], -1) * w_gov.unsqueeze(-1)]
    if u.numel():
        fill = (0, m - u.shape[3], 0, 0, 0, T - u.shape[1])
        weight = pad(w_init, fill).reshape(B, T, n)
        value = pad(w_init * u, fill).reshape(B, T, n, 1)
        rows.append(torch.cat([torch.diag_embed(weight), value], -1))
    return torch.cat(rows, 2)


def _link_rows(problem: Problem) -> Tensor:
    """Smoothness rows of every step over two neighbouring times, `(B, T-1, n, 2n)`."""
    scale, K, KF = link_rows(problem.w_smooth, problem.scheme)
    B, steps, V, m = problem.w_smooth.shape
    powers = problem.s.unsqueeze(-1) ** torch.arange(m, device=K.device, dtype=K.dtype)
    columns = (scale.unsqueeze(-1) * powers).unsqueeze(-2)
    out = K.new_zeros(B, steps, V, m, 2, V, m)
    own = out.diagonal(dim1=2, dim2=5)  # a variable's rows are over itself: (B, steps, m, 2, m, V)
    own[:, :, :, 0] = (-KF * columns).permute(0, 1, 3, 4, 2)
    own[:, :, :, 1] = (K * columns).permute(0, 1, 3, 4, 2)
    return out.reshape(B, steps, V * m, 2 * V * m)


def _central_rows(problem: Problem) -> Tensor:
    """Central rows over three neighbouring times, `(B, T-2, V, 3n)`."""
    s, w_smooth = problem.s, problem.w_smooth
    B, T, V, m = problem.y_shape
    R = m - 1
    H, scale = central_steps(s, R)
    w = w_smooth[:, :-1, :, R] * scale
    out = s.new_zeros(B, T - 2, V, 3, V, m)
    for v in range(V):
        out[:, :, v, 0, v, R - 1] = -w[..., v]
        out[:, :, v, 1, v, R] = -(w * H)[..., v]
        out[:, :, v, 2, v, R - 1] = w[..., v]
    return out.reshape(B, T - 2, V, 3 * V * m)


def chain(problem: Problem) -> tuple[Tensor, Tensor]:
    """The whole problem as `local` and `link` rows of the first level."""
    local = _local_rows(problem)
    B, T, V, m = problem.y_shape
    n = V * m
    steps = _link_rows(problem) if T > 1 else local.new_zeros(B, 0, n, 2 * n)
    if problem.reach == 1:
        return local, pad(steps, (0, 1, 0, 0, 1, 1))
    # Two times per block; an odd last block gets a second time whose unknowns are set to zero.
    odd = T % 2
    count = (T + odd) // 2
    rows = local.shape[2]
    if odd:
        local, steps = pad(local, (0, 0, 0, n, 0, 1)), pad(steps, (0, 0, 0, 0, 0, 1))
        local[:, -1, rows:, :n] = torch.eye(n, dtype=local.dtype, device=local.device)
        rows += n
    pairs = local.view(B, count, 2, rows, n + 1)
    wide = local.new_zeros(B, count, 2 * rows + n, 2 * n + 1)
    wide[:, :, :rows, :n], wide[:, :, :rows, -1:] = pairs[:, :, 0, :, :n], pairs[:, :, 0, :, n:]
    wide[:, :, rows : 2 * rows, n:] = pairs[:, :, 1]
    wide[:, :, 2 * rows :, :-1] = steps[:, 0::2]
    link = local.new_zeros(B, count + 1, n + 2 * V, 4 * n + 1)
    link[:, 1:-1, :n, n : 3 * n] = steps[:, 1::2]
    if T > 2:
        central = _central_rows(problem)
        first, second = central[:, 0::2], central[:, 1::2]
        link[:, 1 : 1 + first.shape[1], n : n + V, : 3 * n] = first
        link[:, 1 : 1 + second.shape[1], n + V :, n : 4 * n] = second
    return wide, link


def _levels(count: int) -> list[int]:
    """How many blocks each level eliminates."""
    out = []
    while count:
        out.append((count + 1) // 2)
        count //= 2
    return out


def _sizes(problem: Problem) -> tuple[int, int]:
    T, n = problem.y_shape[1], problem.block
    return (T + problem.reach - 1) // problem.reach, problem.reach * n


class CyclicPlan(Plan):
    def solve(self, tensors: Sequence[Tensor] = ()) -> Solved:
        """Reduce to nothing, substitute back, refine once with the residual of the rows."""
        problem = self.fit(tensors)
        if not problem.c.shape[0]:
            return nothing(problem)
        local, link = chain(problem)
        _, M = _sizes(problem)
        norms = local[..., :-1].square().sum(2) + link[:, :-1, :, M:-1].square().sum(2)
        weights = (norms + link[:, 1:, :, :M].square().sum(2)).sqrt()
        reduced = blocks.reduce(local, link)
        ratios = []
        for R in reduced.factors:
            pivots = R[..., :M].diagonal(dim1=2, dim2=3).abs()
            ratios.append(relative_pivots(pivots, weights[:, 0::2]).flatten(1))
            weights = weights[:, 1::2]
        y = _trajectory(blocks.substitute(reduced), problem)
        factor = torch.cat([f.reshape(-1) for f in reduced.factors])
        y = y + self.adjoint(factor, normal_residual(problem, y))
        rcond, weakest = self._weakest(ratios, problem)
        return diagnosed(self, problem, y, factor, rcond, weakest)

    def _weakest(self, ratios: list[Tensor], problem: Problem) -> tuple[Tensor, Tensor]:
        """Smallest ratio and the unknown it belongs to, in the order of time."""
        count, M = _sizes(problem)
        B, T, V, m = problem.y_shape
        order = torch.arange(count, device=problem.c.device)
        flat = problem.c.new_full((B, count, M), torch.inf)
        for ratio in ratios:
            flat[:, order[0::2]] = ratio.view(B, -1, M)
            order = order[1::2]
        return flat.flatten(1)[:, : T * V * m].min(1)

    def adjoint(self, factor: Tensor, g: Tensor) -> Tensor:
        problem = self.problem
        if not g.numel():
            return torch.empty_like(g)
        count, M = _sizes(problem)
        flat = g.reshape(g.shape[0], -1)
        load = pad(flat, (0, count * M - flat.shape[1])).reshape(-1, count, M)
        return _trajectory(blocks.normal_solve(factors_of(problem, factor), load), problem)

    def covariances(self, tensors: Sequence[Tensor] = ()) -> tuple[Tensor, Tensor, Tensor]:
        factors = blocks.reduce(*chain(self.fit(tensors))).factors
        return *blocks.covariances(factors), blocks.logdet(factors)


def factors_of(problem: Problem, factor: Tensor) -> list[Tensor]:
    """The factor of each level."""
    count, M = _sizes(problem)
    sizes = [(problem.c.shape[0], level, M, 3 * M) for level in _levels(count)]
    parts = factor.split([math.prod(size) for size in sizes])
    return [part.view(size) for part, size in zip(parts, sizes, strict=True)]


def _trajectory(x: Tensor, problem: Problem) -> Tensor:
    """Drop the padding of the last block, and split the unknowns."""
    T, n = problem.y_shape[1], problem.block
    return x.reshape(x.shape[0], -1)[:, : T * n].reshape(problem.y_shape)


class TorchBackend(Backend):
    """Odd-even reduction by batched tensor operations."""

    name = "torch"

    def unavailable(self, device: torch.device | None = None, n: int = 1) -> str | None:
        """Any device with float64 and QR."""
        del n
        if device is not None and device.type == "mps":
            return "float64 does not exist on this device"
        return None

    def factor_size(self, problem: Problem, pieces: int) -> int:
        del pieces
        count, M = _sizes(problem)
        return problem.c.shape[0] * count * 3 * M * M

    def plan(self, problem: Problem, pieces: int | None = None) -> CyclicPlan:
        """Sequences are never cut."""
        return CyclicPlan(self, problem, pieces or 1)
