"""The `torch` backend: odd-even (cyclic) reduction with batched QR, on any device.

The sequence is a chain of blocks. All even blocks are eliminated at once, which leaves a chain of
half the length: O(T) work in O(log T) tensor operations. For the `central` scheme, whose rows
reach over three times, a block holds two times.

At every level, `local (B, N, rows, M+1)` are rows on one block and `link (B, N+1, rows, 2M+1)` rows
on blocks `i-1` and `i`; the outermost links lead to blocks that do not exist and are zero there.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from smnn._solver.diagnostics import diagnosed, nothing, relative_pivots
from smnn._solver.plan import Backend, Plan, Solved
from smnn._solver.problem import Problem
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
    blocks = (T + odd) // 2
    rows = local.shape[2]
    if odd:
        local, steps = pad(local, (0, 0, 0, n, 0, 1)), pad(steps, (0, 0, 0, 0, 0, 1))
        local[:, -1, rows:, :n] = torch.eye(n, dtype=local.dtype, device=local.device)
        rows += n
    pairs = local.view(B, blocks, 2, rows, n + 1)
    wide = local.new_zeros(B, blocks, 2 * rows + n, 2 * n + 1)
    wide[:, :, :rows, :n], wide[:, :, :rows, -1:] = pairs[:, :, 0, :, :n], pairs[:, :, 0, :, n:]
    wide[:, :, rows : 2 * rows, n:] = pairs[:, :, 1]
    wide[:, :, 2 * rows :, :-1] = steps[:, 0::2]
    link = local.new_zeros(B, blocks + 1, n + 2 * V, 4 * n + 1)
    link[:, 1:-1, :n, n : 3 * n] = steps[:, 1::2]
    if T > 2:
        central = _central_rows(problem)
        first, second = central[:, 0::2], central[:, 1::2]
        link[:, 1 : 1 + first.shape[1], n : n + V, : 3 * n] = first
        link[:, 1 : 1 + second.shape[1], n + V :, n : 4 * n] = second
    return wide, link


def _reduce(rows: Tensor, M: int) -> Tensor:
    """Triangle of `rows (..., count, 3M+1)`, largest rows first, as `(..., 3M, 3M+1)`."""
    order = rows[..., :-1].abs().amax(-1).argsort(-1, descending=True)
    rows = rows.gather(-2, order.unsqueeze(-1).expand_as(rows))
    triangle = torch.linalg.qr(rows, mode="r")[1][..., : 3 * M, :]
    return pad(triangle, (0, 0, 0, 3 * M - triangle.shape[-2]))


def _levels(blocks: int) -> list[int]:
    """How many blocks each level eliminates."""
    out = []
    while blocks:
        out.append((blocks + 1) // 2)
        blocks //= 2
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
        blocks, M = _sizes(problem)
        norms = local[..., :-1].square().sum(2) + link[:, :-1, :, M:-1].square().sum(2)
        norms = norms + link[:, 1:, :, :M].square().sum(2)
        weights, factors, rights = norms.sqrt(), [], []
        ratios = []
        while local.shape[1]:
            before, after = link[:, 0:-1:2], link[:, 1::2]
            here = local[:, 0::2]
            rows = torch.cat(
                [
                    torch.cat(
                        [before[..., M:-1], before[..., :M], torch.zeros_like(before[..., :M])], -1
                    ),
                    torch.cat(
                        [after[..., :M], torch.zeros_like(after[..., :M]), after[..., M:-1]], -1
                    ),
                    pad(here[..., :-1], (0, 2 * M)),
                ],
                2,
            )
            right = torch.cat([before[..., -1:], after[..., -1:], here[..., -1:]], 2)
            triangle = _reduce(torch.cat([rows, right], -1), M)
            factors.append(triangle[:, :, :M, :-1])
            rights.append(triangle[:, :, :M, -1:])
            pivots = triangle[:, :, :M, :M].diagonal(dim1=2, dim2=3).abs()
            ratios.append(relative_pivots(pivots, weights[:, 0::2]).flatten(1))
            new = triangle[:, :, M:, M:]
            if local.shape[1] % 2 == 0:  # the last block is odd: its outer link stays
                outer = link[:, -1:]
                count = max(new.shape[2], outer.shape[2])
                new = pad(new, (0, 0, 0, count - new.shape[2]))
                new = torch.cat([new, pad(outer, (0, 0, 0, count - outer.shape[2]))], 1)
            local, link, weights = local[:, 1::2], new, weights[:, 1::2]
        y = self._back(factors, rights, problem)
        factor = torch.cat([f.reshape(-1) for f in factors])
        y = y + self.adjoint(factor, normal_residual(problem, y))
        rcond, weakest = self._weakest(ratios, problem)
        return diagnosed(self, problem, y, factor, rcond, weakest)

    def _weakest(self, ratios: list[Tensor], problem: Problem) -> tuple[Tensor, Tensor]:
        """Smallest ratio and the unknown it belongs to, in the order of time."""
        blocks, M = _sizes(problem)
        B, T, V, m = problem.y_shape
        order = torch.arange(blocks, device=problem.c.device)
        flat = problem.c.new_full((B, blocks, M), torch.inf)
        for ratio in ratios:
            flat[:, order[0::2]] = ratio.view(B, -1, M)
            order = order[1::2]
        return flat.flatten(1)[:, : T * V * m].min(1)

    def _back(self, factors: list[Tensor], rights: list[Tensor], problem: Problem) -> Tensor:
        """From the last level to the first: `R y = z` with the neighbours already known."""
        M = factors[0].shape[2]
        B, T, V, m = problem.y_shape
        odd = factors[0].new_zeros(B, 0, M)
        for R, z in zip(reversed(factors), reversed(rights), strict=True):
            ring = pad(odd, (0, 0, 1, 1))
            even = R.shape[1]
            known = torch.cat([ring[:, :even], ring[:, 1 : even + 1]], -1).unsqueeze(-1)
            y = torch.linalg.solve_triangular(R[..., :M], z - R[..., M:] @ known, upper=True)
            whole = y.new_empty(B, even + odd.shape[1], M)
            whole[:, 0::2], whole[:, 1::2] = y.squeeze(-1), odd
            odd = whole
        return odd.reshape(B, -1)[:, : T * V * m].reshape(problem.y_shape)

    def adjoint(self, factor: Tensor, g: Tensor) -> Tensor:
        problem = self.problem
        if not g.numel():
            return torch.empty_like(g)
        blocks, M = _sizes(problem)
        B = g.shape[0]
        counts = _levels(blocks)
        parts = factor.split([B * count * 3 * M * M for count in counts])
        factors = [p.view(B, count, M, 3 * M) for p, count in zip(parts, counts, strict=True)]
        flat = g.reshape(B, -1)
        load = pad(flat, (0, blocks * M - flat.shape[1])).reshape(B, blocks, M)
        rights = []
        for R in factors:
            z = torch.linalg.solve_triangular(R[..., :M].mT, load[:, 0::2, :, None], upper=False)
            rights.append(z)
            spill = (R[..., M:].mT @ z).squeeze(-1)
            load = load[:, 1::2].clone()
            odd = load.shape[1]
            load -= spill[:, :odd, M:]
            load[:, : R.shape[1] - 1] -= spill[:, 1:, :M]
        return self._back(factors, rights, problem)


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
        blocks, M = _sizes(problem)
        return problem.c.shape[0] * blocks * 3 * M * M

    def plan(self, problem: Problem, pieces: int | None = None) -> CyclicPlan:
        """Sequences are never cut."""
        return CyclicPlan(self, problem, pieces or 1)
