"""Least squares over a chain of blocks by odd-even reduction: batched tensor operations only.

A chain has `N` blocks of `M` unknowns. `local (B, N, rows, M+1)` holds rows on one block with their
right-hand side, and `link (B, N+1, rows, 2M+1)` rows on blocks `i-1` and `i`; the outermost links
lead to blocks that do not exist and are zero there. All even blocks are eliminated at once, which
leaves a chain of half the length: O(N) work in O(log N) tensor operations.

The factor is a list with one tensor `(B, even blocks, M, 3M)` per level: `[R | before | after]`, so
that `R x + before x_before + after x_after = z` for an eliminated block and its neighbours.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad


class Reduced(NamedTuple):
    """A reduced chain: one tensor per level, finest first."""

    factors: list[Tensor]
    """`(B, even blocks, M, 3M)` rows of the eliminated blocks."""
    rights: list[Tensor]
    """`(B, even blocks, M, 1)` their right-hand sides."""


def _triangle(rows: Tensor, M: int) -> Tensor:
    """Triangle of `rows (..., count, 3M+1)`, largest rows first, as `(..., 3M, 3M+1)`."""
    order = rows[..., :-1].abs().amax(-1).argsort(-1, descending=True)
    rows = rows.gather(-2, order.unsqueeze(-1).expand_as(rows))
    triangle = torch.linalg.qr(rows, mode="r")[1][..., : 3 * M, :]
    return pad(triangle, (0, 0, 0, 3 * M - triangle.shape[-2]))


def reduce(local: Tensor, link: Tensor) -> Reduced:
    """Eliminate all blocks of a chain."""
    M = local.shape[-1] - 1
    out = Reduced([], [])
    while local.shape[1]:
        before, after, here = link[:, 0:-1:2], link[:, 1::2], local[:, 0::2]
        rows = [
            torch.cat([before[..., M:-1], before[..., :M], torch.zeros_like(before[..., :M])], -1),
            torch.cat([after[..., :M], torch.zeros_like(after[..., :M]), after[..., M:-1]], -1),
            pad(here[..., :-1], (0, 2 * M)),
        ]
        right = torch.cat([before[..., -1:], after[..., -1:], here[..., -1:]], 2)
        triangle = _triangle(torch.cat([torch.cat(rows, 2), right], -1), M)
        out.factors.append(triangle[:, :, :M, :-1])
        out.rights.append(triangle[:, :, :M, -1:])
        new = triangle[:, :, M:, M:]
        if local.shape[1] % 2 == 0:  # the last block is odd: its outer link stays
            outer = link[:, -1:]
            count = max(new.shape[2], outer.shape[2])
            new = pad(new, (0, 0, 0, count - new.shape[2]))
            new = torch.cat([new, pad(outer, (0, 0, 0, count - outer.shape[2]))], 1)
        local, link = local[:, 1::2], new
    return out


def substitute(reduced: Reduced) -> Tensor:
    """The solution `(B, N, M)`: from the last level to the first, `R x = z`."""
    M = reduced.factors[0].shape[2]
    odd = reduced.factors[0].new_zeros(reduced.factors[0].shape[0], 0, M)
    for R, z in zip(reversed(reduced.factors), reversed(reduced.rights), strict=True):
        ring = pad(odd, (0, 0, 1, 1))
        even = R.shape[1]
        known = torch.cat([ring[:, :even], ring[:, 1 : even + 1]], -1).unsqueeze(-1)
        y = torch.linalg.solve_triangular(R[..., :M], z - R[..., M:] @ known, upper=True)
        odd = _merged(y.squeeze(-1), odd)
    return odd


def _merged(even: Tensor, odd: Tensor) -> Tensor:
    """Blocks 0, 2, ... and 1, 3, ... in one tensor."""
    whole = even.new_empty(even.shape[0], even.shape[1] + odd.shape[1], *even.shape[2:])
    whole[:, 0::2], whole[:, 1::2] = even, odd
    return whole


def normal_solve(factors: list[Tensor], load: Tensor) -> Tensor:
    """Solve `A^T A x = load (B, N, M)` with the factor of `A`."""
    M = factors[0].shape[2]
    rights = []
    for R in factors:
        z = torch.linalg.solve_triangular(R[..., :M].mT, load[:, 0::2, :, None], upper=False)
        rights.append(z)
        spill = (R[..., M:].mT @ z).squeeze(-1)
        load = load[:, 1::2].clone()
        odd = load.shape[1]
        load -= spill[:, :odd, M:]
        load[:, : R.shape[1] - 1] -= spill[:, 1:, :M]
    return substitute(Reduced(factors, rights))


def logdet(factors: list[Tensor]) -> Tensor:
    """`log det A^T A`, `(B,)`."""
    pivots = [R.diagonal(dim1=2, dim2=3).abs().log().flatten(1).sum(1) for R in factors]
    return 2 * torch.stack(pivots).sum(0)


# ---------------------------------------------------------------- selected inverse


def _gain(R: Tensor) -> tuple[Tensor, Tensor]:
    """Inverse triangle, and `G` in `x = -G [x_before, x_after] + noise`."""
    M = R.shape[2]
    eye = torch.eye(M, dtype=R.dtype, device=R.device).expand_as(R[..., :M])
    both = torch.linalg.solve_triangular(R[..., :M], torch.cat([eye, R[..., M:]], -1), upper=True)
    return both[..., :M], both[..., M:]


def _around(diag: Tensor, lag: Tensor, even: int) -> Tensor:
    """Joint blocks `(B, even, 2M, 2M)` of the neighbours of each even block; 0 outside."""
    ring = pad(diag, (0, 0, 0, 0, 1, 1))
    across = pad(lag, (0, 0, 0, 0, 1, 1 + even - lag.shape[1]))[:, :even]
    top = torch.cat([ring[:, :even], across], -1)
    return torch.cat([top, torch.cat([across.mT, ring[:, 1 : even + 1]], -1)], -2)


def _woven(own: Tensor, cross: Tensor, diag: Tensor) -> tuple[Tensor, Tensor]:
    """Blocks of one level finer, from those of its even blocks and their odd neighbours."""
    M, odd = own.shape[-1], diag.shape[1]
    forward, backward = cross[:, :odd, :, M:], cross[:, 1:, :, :M].mT
    return _merged(own, diag), _merged(forward, backward)


def covariances(factors: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Blocks of `(A^T A)^-1`: the diagonal `(B, N, M, M)`, and those right of it `(B, N-1, M, M)`.

    A sum of positive semidefinite terms (no subtraction, so variances cannot become negative).
    """
    diag = factors[0].new_zeros(factors[0].shape[0], 0, *factors[0].shape[2:3] * 2)
    lag = diag
    for R in reversed(factors):
        inverse, G = _gain(R)
        product = G @ _around(diag, lag, R.shape[1])
        own = inverse @ inverse.mT + product @ G.mT
        diag, lag = _woven(own, -product, diag)
    return diag, lag


def sandwich(factors: list[Tensor], diag: Tensor, lag: Tensor) -> tuple[Tensor, Tensor]:
    """The same blocks of `S H S` with `S = (A^T A)^-1`, for a symmetric block tridiagonal `H`.

    It is the derivative of `S` along `-H`, so this differentiates the reduction and `covariances`.

    Args:
        factors: Of the chain.
        diag: `(B, N, M, M)` diagonal blocks of `H`, symmetric.
        lag: `(B, N-1, M, M)` blocks right of the diagonal.
    """
    diag, lag, levels = -diag, -lag, []
    for R in factors:  # tangents of the Schur complements
        M, even, odd = R.shape[2], R.shape[1], diag.shape[1] // 2
        inverse, G = _gain(R)
        before = pad(lag[:, 1::2].mT, (0, 0, 0, 0, 1, 0))[:, :even]
        after = pad(lag[:, 0::2], (0, 0, 0, 0, 0, 1))[:, :even]
        to_both = torch.cat([before, after], -1)
        slope = diag[:, 0::2]
        levels.append((inverse, G, slope, to_both))
        product = to_both.mT @ G
        change = G.mT @ slope @ G - product - product.mT
        diag = diag[:, 1::2] + change[:, :odd, M:, M:]
        diag[:, : even - 1] += change[:, 1:, :M, :M]
        lag = change[:, 1:odd, :M, M:]
    diag = lag = d_diag = d_lag = factors[0].new_zeros(diag.shape[0], 0, M, M)
    for inverse, G, slope, to_both in reversed(levels):
        even = G.shape[1]
        around, d_around = _around(diag, lag, even), _around(d_diag, d_lag, even)
        own = inverse @ inverse.mT
        d_G = own @ (to_both - slope @ G)
        product, d_product = G @ around, d_G @ around + G @ d_around
        half = d_G @ product.mT
        d_own = half + half.mT + G @ d_around @ G.mT - own @ slope @ own
        d_diag, d_lag = _woven(d_own, -d_product, d_diag)
        diag, lag = _woven(own + product @ G.mT, -product, diag)
    return d_diag, d_lag
