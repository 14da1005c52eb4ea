r"""The rows of the least-squares problem: their constants, and tensor expressions in them.

With $D = \mathrm{diag}(s^r)$ and the Taylor matrix $F_{ij} = 1/(j-i)!$, the forward rows of a step
are $e = D y_{t+1} - F D y_t$ and the backward rows $D y_t - F^{-1} D y_{t+1} = -F^{-1} e$.
Both together are one triangular set of rows $K e$ with $K^\top K = I + F^{-\top} F^{-1}$. A new
smoothness scheme is a new $K$ (`unit_link`), or a new set of rows beside `central_rows`.

The second half applies the rows to a trajectory, applies their transpose, and differentiates the
bilinear form

$$ J(\theta; \lambda, y) = \sum_{\text{rows}} w^2\, (a \cdot \lambda)\, (a \cdot y - b), $$

which at fixed $\lambda, y$ is minus the gradient of a loss. These functions consist of plain tensor
operations, so they can be differentiated any number of times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

if TYPE_CHECKING:
    from smnn._solver.problem import Problem


def _entries(R: int, sign: int) -> list[list[float]]:
    """The entries of `taylor` as Python numbers, which `torch.compile` can trace."""
    return [
        [sign ** (j - i) / math.factorial(j - i) if j >= i else 0.0 for j in range(R + 1)]
        for i in range(R + 1)
    ]


def taylor(R: int, sign: int = 1) -> Tensor:
    """The matrix `F` (or its inverse, `sign=-1`), float64 on the CPU.

    Created on every call, because a tensor depends on the mode (inference, fake) it is created in.
    """
    return torch.tensor(_entries(int(R), sign), dtype=torch.float64)


def smoothness_top(R: int, scheme: str) -> int:
    """How many orders have forward and backward rows."""
    return R if scheme == "central" else R + 1


def _triangle(weights: Tensor, scheme: str) -> Tensor:
    """`K` for row weights `(..., R+1)`: the triangle of the stacked weighted rows."""
    R = weights.shape[-1] - 1
    top = smoothness_top(R, scheme)
    inverse = taylor(R, -1).to(weights.device)
    w = weights[..., :top, None]
    rows = torch.cat(
        [w * torch.eye(R + 1, dtype=w.dtype, device=w.device)[:top], w * inverse[:top]], -2
    )
    if rows.shape[-2] < R + 1:
        rows = torch.nn.functional.pad(rows, (0, 0, 0, R + 1 - rows.shape[-2]))
    return torch.linalg.qr(rows, mode="r")[1]


def unit_link(R: int, scheme: str) -> tuple[np.ndarray, np.ndarray]:
    """`K` and `K F` for weights of one."""
    top = smoothness_top(R, scheme)
    rows = np.concatenate([np.eye(R + 1)[:top], np.array(_entries(R, -1))[:top]])
    rows = np.pad(rows, ((0, max(0, R + 1 - len(rows))), (0, 0)))
    K: np.ndarray = np.linalg.qr(rows)[1]
    return K, K @ np.array(_entries(R, 1))


def link_rows(w_smooth: Tensor, scheme: str) -> tuple[Tensor, Tensor, Tensor]:
    """Rows `scale * (K D y_{t+1} - K F D y_t)` of every step and variable.

    Args:
        w_smooth: `(B, T-1, V, R+1)`. If its last axis is broadcast, one constant `K` serves all.
        scheme: `"smnn"` or `"central"`.

    Returns:
        `scale (B, T-1, V)`, and `K` and `K F`, each `(B, T-1, V, R+1, R+1)`, possibly broadcast.
    """
    R = w_smooth.shape[-1] - 1
    shape = (*w_smooth.shape, R + 1)
    if w_smooth.stride(-1) == 0 or R == 0:
        K, KF = (torch.from_numpy(x).to(w_smooth.device) for x in unit_link(R, scheme))
        return w_smooth[..., 0], K.expand(shape), KF.expand(shape)
    sizes = [1 if w_smooth.stride(i) == 0 else w_smooth.shape[i] for i in range(3)]
    K = _triangle(w_smooth[: sizes[0], : sizes[1], : sizes[2]], scheme)
    scale = torch.ones((), dtype=K.dtype, device=K.device).expand(w_smooth.shape[:-1])
    return scale, K.expand(shape), (K @ taylor(R).to(K.device)).expand(shape)


def link_gram(w_smooth: Tensor, scheme: str) -> Tensor:
    """`K^T K` of weighted rows, `(..., R+1, R+1)`; unlike `K`, differentiable in the weights."""
    if scheme != "smnn":
        raise NotImplementedError(f"scheme {scheme!r} has no link between neighbouring times only")
    back = taylor(w_smooth.shape[-1] - 1, -1).to(w_smooth.device)
    squares = w_smooth.square()
    return torch.diag_embed(squares) + (back.T * squares.unsqueeze(-2)) @ back


def governing(c: Tensor, x: Tensor) -> Tensor:
    """`sum_vr c x`, `(B, T, Q)`."""
    return torch.einsum("btqvr,btvr->btq", c, x)


def initial(x: Tensor, u: Tensor) -> Tensor:
    """The part of `x` for which initial values are given: `(B, T_init, V, R_init+1)`."""
    return x[:, : u.shape[1], :, : u.shape[3]]


def step_powers(s: Tensor, m: int) -> Tensor:
    """`s^r`, `(B, T-1, V, R+1)`."""
    out = [torch.ones_like(s)]
    for _ in range(m - 1):  # products are several times faster than powers
        out.append(out[-1] * s)
    return torch.stack(out, -1)


def _taylor_pair(x: Tensor, powers: Tensor, top: int) -> tuple[Tensor, Tensor]:
    m = x.shape[-1]
    before, after = powers * x[:, :-1], powers * x[:, 1:]
    step, back = taylor(m - 1).to(x.device)[:top], taylor(m - 1, -1).to(x.device)[:top]
    return after[..., :top] - before @ step.T, before[..., :top] - after @ back.T


def taylor_rows(x: Tensor, s: Tensor, scheme: str) -> tuple[Tensor, Tensor]:
    """Forward and backward rows, weighted by `s^r`: each `(B, T-1, V, R+1)`, or `R` if central."""
    m = x.shape[-1]
    return _taylor_pair(x, step_powers(s, m), smoothness_top(m - 1, scheme))


def central_steps(s: Tensor, R: int) -> tuple[Tensor, Tensor]:
    """Sum `H` of neighbouring steps, and the scale `H^(R-2)` of central rows: `(B, T-2, V)`."""
    H = s[:, :-1] + s[:, 1:]
    return H, H ** (R - 2)


def central_rows(x: Tensor, s: Tensor) -> Tensor:
    """Central rows at the top order: `(B, T-2, V)`."""
    R = x.shape[-1] - 1
    H, scale = central_steps(s, R)
    return scale * (x[:, 2:, :, R - 1] - x[:, :-2, :, R - 1] - H * x[:, 1:-1, :, R])


def column_squares(problem: Problem) -> Tensor:
    """Squared norms of the columns of the weighted rows: the diagonal of the normal matrix."""
    c, _, u, s, w_gov, w_init, w_smooth, scheme = problem
    B, T, V, m = problem.y_shape
    R, top = m - 1, smoothness_top(m - 1, scheme)
    # Weights are multiplied once at a time: their squares may underflow where the rows do not.
    out = (w_gov[..., None, None] * c).square().sum(2)
    out = out + pad(w_init**2, (0, m - u.shape[3], 0, 0, 0, T - u.shape[1]))
    if T > 1:
        w = w_smooth[..., :top] ** 2
        across = w @ taylor(R).to(s.device)[:top] ** 2 + pad(w, (0, m - top))
        both = step_powers(s, m) ** 2 * across  # the same at both ends of a step
        out = out + pad(both, (0, 0, 0, 0, 0, 1)) + pad(both, (0, 0, 0, 0, 1, 0))
    if scheme == "central" and T > 2:
        H, scale = central_steps(s, R)
        row = (w_smooth[:, :-1, :, R] * scale) ** 2
        below = pad(row, (0, 0, 2, 0)) + pad(row, (0, 0, 0, 2))
        out = out + pad(below.unsqueeze(-1), (R - 1, 1))
        out = out + pad(pad(H**2 * row, (0, 0, 1, 1)).unsqueeze(-1), (R, 0))
    return out


def normal_residual(problem: Problem, y: Tensor) -> Tensor:
    """`A^T W (b - A y)`: zero at the solution. Used to refine an approximate one."""
    c, d, u, s, w_gov, w_init, w_smooth, scheme = problem
    T, V, m = y.shape[1:]
    R, top = m - 1, smoothness_top(m - 1, scheme)
    rho = w_gov * (d - governing(c, y))
    out = torch.einsum("btqvr,btq->btvr", w_gov[..., None, None] * c, rho)
    at_start = w_init**2 * (u - initial(y, u))
    out = out + pad(at_start, (0, m - u.shape[3], 0, 0, 0, T - u.shape[1]))
    if T > 1:
        w = w_smooth[..., :top] ** 2
        powers = step_powers(s, m)
        forward, backward = (-w * row for row in _taylor_pair(y, powers, top))
        step, back = taylor(R).to(y.device)[:top], taylor(R, -1).to(y.device)[:top]
        before = pad(backward, (0, m - top)) - forward @ step
        after = pad(forward, (0, m - top)) - backward @ back
        out = (
            out + pad(powers * before, (0, 0, 0, 0, 0, 1)) + pad(powers * after, (0, 0, 0, 0, 1, 0))
        )
    if scheme == "central" and T > 2:
        H, scale = central_steps(s, R)
        row = -(w_smooth[:, :-1, :, R] ** 2) * central_rows(y, s) * scale
        below = pad(row, (0, 0, 2, 0)) - pad(row, (0, 0, 0, 2))
        out = out + pad(below.unsqueeze(-1), (R - 1, 1))
        out = out - pad(pad(H * row, (0, 0, 1, 1)).unsqueeze(-1), (R, 0))
    return out


def row_gradients(problem: Problem, lam: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """`-dJ` by `c, d, u, s, w_gov, w_init, w_smooth`."""
    c, d, u, s, w_gov, w_init, w_smooth, scheme = problem
    T, V, m = y.shape[1:]
    top = smoothness_top(m - 1, scheme)
    a, rho = governing(c, lam), governing(c, y) - d
    gd, force = w_gov * (w_gov * a), w_gov * (w_gov * rho)
    gc = -(gd[..., None, None] * y.unsqueeze(2) + force[..., None, None] * lam.unsqueeze(2))
    gw_gov = -2 * w_gov * a * rho
    gu = w_init**2 * initial(lam, u)
    gw_init = -2 * w_init * initial(lam, u) * (initial(y, u) - u)
    gs, gw_smooth = torch.zeros_like(s), torch.zeros_like(w_smooth)
    if T > 1:
        w = w_smooth[..., :top]
        powers = step_powers(s, m)
        slopes = powers * torch.arange(m, dtype=s.dtype, device=s.device) / s.unsqueeze(-1)
        left, right = _taylor_pair(lam, powers, top), _taylor_pair(y, powers, top)
        d_left, d_right = _taylor_pair(lam, slopes, top), _taylor_pair(y, slopes, top)
        both = left[0] * right[0] + left[1] * right[1]
        change = d_left[0] * right[0] + left[0] * d_right[0]
        change = change + d_left[1] * right[1] + left[1] * d_right[1]
        gs = gs - (w**2 * change).sum(-1)
        gw_smooth = gw_smooth - pad(2 * w * both, (0, m - top))
    if scheme == "central" and T > 2:
        by_step, by_weight = central_gradients(problem, lam, y)
        gs, gw_smooth = gs + by_step, gw_smooth + by_weight
    return gc, gd, gu, gs, gw_gov, gw_init, gw_smooth


def central_gradients(problem: Problem, lam: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """What the central rows contribute to `-dJ` by `s` and `w_smooth`."""
    s, R = problem.s, y.shape[3] - 1
    w = problem.w_smooth[:, :-1, :, R]
    H, scale = central_steps(s, R)
    a, rho = central_rows(lam, s), central_rows(y, s)
    slope_a = (R - 2) * a / H - scale * lam[:, 1:-1, :, R]
    slope_rho = (R - 2) * rho / H - scale * y[:, 1:-1, :, R]
    change = w**2 * (slope_a * rho + a * slope_rho)
    by_step = -pad(change, (0, 0, 0, 1)) - pad(change, (0, 0, 1, 0))
    return by_step, -pad(pad(2 * w * a * rho, (0, 0, 0, 1)).unsqueeze(-1), (R, 0))


# ---------------------------------------------------------------- along tangents


def residual_tangent(problem: Problem, tangents: Sequence[Tensor | None], y: Tensor) -> Tensor:
    r"""Tangent of `normal_residual` at fixed `y` from tangents of the seven tensors.

    It is $r$ in $J = -\lambda \cdot r$, and `row_gradients` is linear in $\lambda$: the gradient by
    $\lambda$ of its product with the tangents is the result. `None` is a tangent of zeros.
    """

    def product(lam: Tensor) -> Tensor:
        parts = zip(row_gradients(problem, lam, y), tangents, strict=True)
        return torch.stack([(g * t).sum() for g, t in parts if t is not None]).sum()

    if all(t is None for t in tangents):
        return torch.zeros_like(y)
    total, transpose, *_ = torch.func.vjp(product, torch.zeros_like(y))
    return transpose(torch.ones_like(total))[0]


def row_gradients_tangent(
    problem: Problem, lam: Tensor, y: Tensor, tangents: Sequence[Tensor | None],
    wanted: Sequence[bool],
) -> tuple[Tensor, ...]:  # fmt: skip
    """Tangents of the requested `row_gradients` from tangents of `lam`, `y` and the seven tensors.

    The transpose of the transpose, because forward mode cannot be entered a second time.
    """
    inputs = (lam, y, *problem.tensors)
    along = tuple(
        torch.zeros_like(x) if t is None else t for x, t in zip(inputs, tangents, strict=True)
    )

    def chosen(lam: Tensor, y: Tensor, *theta: Tensor) -> tuple[Tensor, ...]:
        every = row_gradients(problem.of(theta, problem.scheme), lam, y)
        return tuple(g for g, w in zip(every, wanted, strict=True) if w)

    found, transpose, *_ = torch.func.vjp(chosen, *inputs)
    _, again, *_ = torch.func.vjp(transpose, tuple(torch.zeros_like(x) for x in found))
    return again(along)[0]
