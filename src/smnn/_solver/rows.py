r"""The rows of the least-squares problem: their constants, and tensor expressions in them.

In the scaled unknowns $x_r = s^r y_r$, the rows of a step are `after @ x_{t+1} - before @ x_t` with
constant matrices (`step_rows`). Each vanishes on polynomials of degree `R`, so it is a combination
of the forward rows $e = x_{t+1} - F x_t$ with the Taylor matrix $F_{ij} = 1/(j-i)!$:

* `smnn`: all forward and (negated) backward rows, $e$ and $F^{-1} e = F^{-1} x_{t+1} - x_t$, which
  `unit_link` reduces to a triangle $K e$ with $K^\top K = I + F^{-\top} F^{-1}$; `central`: those
  below the top order, and rows over two steps (`central_rows`).
* `iwp`: $K e$ with $K^\top K \propto Q^{-1}$, the covariance of the `R` times integrated Wiener
  process. Row `i` of the triangle $K$ is the diagonal Padé approximation of $\exp$, which links the
  derivative `i` at both ends to order $2(R-i)$.
* `hermite/p`: the first `p` rows of `iwp`. They determine a system whose governing rows include
  their time derivatives up to order `R`; `hermite` adds these to equations of order `p`
  (`derivatives.py`).
* `hermite-l/p`: the same with subdiagonal Padé approximations, which damp stiff components.

The second half applies the rows to a trajectory, applies their transpose, and differentiates the
bilinear form

$$ J(\theta; \lambda, y) = \sum_{\text{rows}} w^2\, (a \cdot \lambda)\, (a \cdot y - b), $$

which at fixed $\lambda, y$ is minus the gradient of a loss. These functions consist of plain tensor
operations, so they can be differentiated any number of times.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from decimal import Context, Decimal, localcontext
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

if TYPE_CHECKING:
    from smnn._solver.problem import Problem

Matrix = list[list[float]]


def taylor_entries(R: int, sign: int = 1) -> Matrix:
    """The matrix `F`, or its inverse, as Python numbers, which `torch.compile` can trace."""
    return [
        [sign ** (j - i) / math.factorial(j - i) if j >= i else 0.0 for j in range(R + 1)]
        for i in range(R + 1)
    ]


def smoothness_top(R: int, scheme: str) -> int:
    """How many orders have rows over a single step."""
    name, _, count = scheme.partition("/")
    if name.startswith("hermite"):
        return min(int(count or 1), R + 1)
    return R if scheme == "central" else R + 1


def step_rows(R: int, scheme: str) -> tuple[list[Matrix], list[Matrix]]:
    """`after` and `before`, `(1 or 2, top, R+1)`: rows of a weight have the same index in `top`."""
    top = smoothness_top(R, scheme)
    if scheme in ("smnn", "central"):
        one = [[float(i == j) for j in range(R + 1)] for i in range(top)]
        step, back = taylor_entries(R)[:top], taylor_entries(R, -1)[:top]
        return [one, back], [step, one]
    rows = [_pade_row(R, i, scheme.startswith("hermite-l")) for i in range(top)]
    return [[after for after, _ in rows]], [[before for _, before in rows]]


def _pade_row(R: int, i: int, subdiagonal: bool) -> tuple[list[float], list[float]]:
    """Link of the derivative `i` and those above it, with the size of row `i` of `iwp`."""
    m = R - i
    low = m - 1 if subdiagonal and m else m

    def entry(degree: int, j: int) -> float:
        below = math.factorial(low + m) * math.factorial(j) * math.factorial(degree - j)
        return math.factorial(low + m - j) * math.factorial(degree) / below

    def norm(k: int) -> float:
        return math.sqrt(2 * k + 1) * math.factorial(2 * k) / math.factorial(k)

    size = norm(m) / norm(R)
    after = [0.0] * i + [(-1) ** j * size * entry(m, j) for j in range(m + 1)]
    before = [0.0] * i + [size * entry(low, j) for j in range(low + 1)] + [0.0] * (m - low)
    return after, before


def taylor(R: int, sign: int = 1) -> Tensor:
    """The matrix `F` (or its inverse, `sign=-1`), float64 on the CPU.

    Created on every call, because a tensor depends on the mode (inference, fake) it is created in.
    """
    return torch.tensor(taylor_entries(int(R), sign), dtype=torch.float64)


def _triangle(weights: Tensor, scheme: str) -> Tensor:
    """`K` for row weights `(..., R+1)`: the triangle of the stacked weighted rows."""
    m = weights.shape[-1]
    after, _ = _step_matrices(m, scheme, weights)
    rows = (weights[..., None, : after.shape[1], None] * after).flatten(-3, -2)
    return torch.linalg.qr(pad(rows, (0, 0, 0, max(0, m - rows.shape[-2]))), mode="r")[1]


def _exact_triangle(rows: np.ndarray) -> np.ndarray:
    """The triangle of a QR factorization, rounded from 60 digits.

    The last bits of LAPACK differ between machines; these constants are part of kernel sources.
    """
    with localcontext(Context(prec=60)):
        A = [[Decimal(float(x)) for x in column] for column in rows.T]
        n = len(A)
        K = [[Decimal(0)] * n for _ in A]
        for i in range(n):
            for j in range(i, n):
                inner = sum(map(operator.mul, A[i], A[j]))
                rest = inner - sum(K[k][i] * K[k][j] for k in range(i))
                if j == i:
                    K[i][i] = -rest.sqrt() if rest > Decimal("1e-40") else Decimal(0)
                elif K[i][i]:
                    K[i][j] = rest / K[i][i]
        return np.array([[float(x) for x in row] for row in K])


def unit_link(R: int, scheme: str) -> tuple[np.ndarray, np.ndarray]:
    """`K` and `K F` for weights of one."""
    after, before = (np.array(x).reshape(-1, R + 1) for x in step_rows(R, scheme))
    short = ((0, max(0, R + 1 - len(after))), (0, 0))
    if scheme not in ("smnn", "central"):  # already a triangle
        return np.pad(after, short), np.pad(before, short)
    K = _exact_triangle(np.pad(after, short))
    columns = [*zip(*taylor_entries(R))]
    return K, np.array([[math.fsum(map(operator.mul, row, f)) for f in columns] for row in K])


def on_device(x: np.ndarray, device: torch.device) -> Tensor:
    """A small constant on a device.

    Filled there while a CUDA graph is captured, which forbids copies from pageable memory.
    """
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return torch.stack(
            [torch.full((), v, dtype=torch.float64, device=device) for v in x.flat]
        ).view(x.shape)
    return torch.from_numpy(x).to(device)


def link_rows(w_smooth: Tensor, scheme: str) -> tuple[Tensor, Tensor, Tensor]:
    """Rows `scale * (K D y_{t+1} - K F D y_t)` of every step and variable.

    Args:
        w_smooth: `(B, T-1, V, R+1)`. If its last axis is broadcast, one constant `K` serves all.
        scheme: As in `Problem`.

    Returns:
        `scale (B, T-1, V)`, and `K` and `K F`, each `(B, T-1, V, R+1, R+1)`, possibly broadcast.
    """
    R = w_smooth.shape[-1] - 1
    shape = (*w_smooth.shape, R + 1)
    unit = [on_device(x, w_smooth.device) for x in unit_link(R, scheme)]
    if w_smooth.stride(-1) == 0 or R == 0:
        return w_smooth[..., 0], unit[0].expand(shape), unit[1].expand(shape)
    sizes = [1 if w_smooth.stride(i) == 0 else w_smooth.shape[i] for i in range(3)]
    weights = w_smooth[: sizes[0], : sizes[1], : sizes[2]]
    scale = torch.ones((), dtype=w_smooth.dtype, device=w_smooth.device)
    scale = scale.expand(w_smooth.shape[:-1])
    if scheme not in ("smnn", "central"):
        K, KF = (weights[..., None] * x for x in unit)
        return scale, K.expand(shape), KF.expand(shape)
    K = _triangle(weights, scheme)
    return scale, K.expand(shape), (K @ taylor(R).to(K.device)).expand(shape)


def link_gram(w_smooth: Tensor, scheme: str) -> Tensor:
    """`K^T K` of weighted rows, `(..., R+1, R+1)`; unlike `K`, differentiable in the weights."""
    after, _ = _step_matrices(w_smooth.shape[-1], scheme, w_smooth)
    squares = w_smooth[..., : after.shape[1]].square()
    return torch.einsum("...i,kij,kil->...jl", squares, after, after)


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


def _step_matrices(m: int, scheme: str, like: Tensor) -> tuple[Tensor, Tensor]:
    """`after` and `before` of `step_rows` as tensors, `(1 or 2, top, R+1)`."""
    rows = step_rows(m - 1, scheme)
    shape = len(rows[0]), smoothness_top(m - 1, scheme), m
    after, before = (torch.tensor(x, dtype=like.dtype).to(like.device).view(shape) for x in rows)
    return after, before


def _over_steps(x: Tensor, powers: Tensor, matrices: tuple[Tensor, Tensor]) -> Tensor:
    """Rows of every step, scaled by `powers`, `(B, T-1, V, 1 or 2, top)`."""
    after, before = (a.flatten(0, 1).mT for a in matrices)
    rows = (powers * x[:, 1:]) @ after - (powers * x[:, :-1]) @ before
    return rows.unflatten(-1, matrices[0].shape[:2])


def smoothness_rows(x: Tensor, s: Tensor, scheme: str) -> Tensor:
    """Rows over one step, weighted by `s^r`: `(B, T-1, V, 1 or 2, top)`.

    Rows with the same last index have the same weight.
    """
    m = x.shape[-1]
    return _over_steps(x, step_powers(s, m), _step_matrices(m, scheme, x))


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
        squares = w_smooth[..., :top] ** 2
        scales = step_powers(s, m) ** 2
        at_end, at_start = (
            scales * (squares @ (x**2).sum(0)) for x in _step_matrices(m, scheme, s)
        )
        out = out + pad(at_start, (0, 0, 0, 0, 0, 1)) + pad(at_end, (0, 0, 0, 0, 1, 0))
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
        powers, matrices = step_powers(s, m), _step_matrices(m, scheme, y)
        forces = w_smooth[..., None, :top] ** 2 * _over_steps(y, powers, matrices)
        at_end, at_start = (powers * (forces.flatten(-2) @ x.flatten(0, 1)) for x in matrices)
        out = out + pad(at_start, (0, 0, 0, 0, 0, 1)) - pad(at_end, (0, 0, 0, 0, 1, 0))
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
    a, rho = governing(c, lam), governing(c, y) - d
    gd, force = w_gov * (w_gov * a), w_gov * (w_gov * rho)
    gc = -(gd[..., None, None] * y.unsqueeze(2) + force[..., None, None] * lam.unsqueeze(2))
    gw_gov = -2 * w_gov * a * rho
    gu = w_init**2 * initial(lam, u)
    gw_init = -2 * w_init * initial(lam, u) * (initial(y, u) - u)
    gs, gw_smooth = smoothness_gradients(problem, lam, y)
    if scheme == "central" and y.shape[1] > 2:
        by_step, by_weight = central_gradients(problem, lam, y)
        gs, gw_smooth = gs + by_step, gw_smooth + by_weight
    return gc, gd, gu, gs, gw_gov, gw_init, gw_smooth


def smoothness_gradients(problem: Problem, lam: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """What the rows over one step contribute to `-dJ` by `s` and `w_smooth`."""
    s, w_smooth, scheme, m = problem.s, problem.w_smooth, problem.scheme, y.shape[-1]
    if not s.shape[1]:
        return torch.zeros_like(s), torch.zeros_like(w_smooth)
    matrices = _step_matrices(m, scheme, y)
    powers = step_powers(s, m)
    slopes = powers * torch.arange(m, dtype=s.dtype, device=s.device) / s.unsqueeze(-1)
    a, rho = (_over_steps(x, powers, matrices) for x in (lam, y))
    slope_a, slope_rho = (_over_steps(x, slopes, matrices) for x in (lam, y))
    w = w_smooth[..., : a.shape[-1]]
    change = (slope_a * rho + a * slope_rho).sum(-2)
    by_weight = -2 * w * (a * rho).sum(-2)
    return -(w**2 * change).sum(-1), pad(by_weight, (0, m - a.shape[-1]))


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
