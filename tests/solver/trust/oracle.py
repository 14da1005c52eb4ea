"""Exact least squares for batches of small problems, and bounds on rounding errors.

Shares no code with the package: the rows follow the equations of the paper, are solved by LAPACK's
QR, and refined with residuals in extended precision (Björck's method for the augmented system)
until the solution is exact to float64.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.polynomial import Legendre, Polynomial
from scipy.interpolate import pade
from torch import Tensor

WIDE = np.longdouble
EPS = float(np.finfo(float).eps)


def rows(
    c: Any, d: Any, u: Any, s: Any, w_gov: Any, w_init: Any, w_smooth: Any, scheme: str
) -> tuple[Any, Any]:
    """Weighted rows `A (N, rows, T V (R+1))` and `b (N, rows)`.

    Arrays or tensors, with one batch axis and every axis at its full size; differentiable.
    Governing rows come first, then initial values, then smoothness.
    """
    N, T, Q, V, m = c.shape
    T_init, m_init = u.shape[1], u.shape[3]
    R, top = m - 1, m - (scheme == "central")
    own = other_links(R, scheme)
    links = 2 * top * V * (T - 1) if own is None else len(own) * V * (T - 1)
    central = V * max(T - 2, 0) if scheme == "central" else 0
    count = T * Q + T_init * V * m_init + links + central
    if isinstance(c, Tensor):
        A, b = c.new_zeros(N, count, T, V, m), c.new_zeros(N, count)
    else:
        A, b = np.zeros((N, count, T, V, m), c.dtype), np.zeros((N, count), c.dtype)
    k = 0
    for t in range(T):
        A[:, k : k + Q, t] = w_gov[:, t, :, None, None] * c[:, t]
        b[:, k : k + Q] = w_gov[:, t] * d[:, t]
        k += Q
    for t in range(T_init):
        for v in range(V):
            for r in range(m_init):
                A[:, k, t, v, r] = w_init[:, t, v, r]
                b[:, k] = w_init[:, t, v, r] * u[:, t, v, r]
                k += 1
    times = np.arange(T - 1)
    for v in range(V):
        for r, (after, before) in enumerate(own or ()) if T > 1 else ():
            at, w = k + times, w_smooth[:, :, v, r]
            for j in range(r, m):
                A[:, at, times + 1, v, j] = w * s[:, :, v] ** j * after[j]
                A[:, at, times, v, j] = -w * s[:, :, v] ** j * before[j]
            k += T - 1
        for r in range(top) if T > 1 and own is None else ():
            w = w_smooth[:, :, v, r] * s[:, :, v] ** r
            for sign, here, there in ((1, times, times + 1), (-1, times + 1, times)):
                at = k + times
                A[:, at, there, v, r] = -w
                for j in range(r, m):
                    A[:, at, here, v, j] = (
                        w * (sign * s[:, :, v]) ** (j - r) / math.factorial(j - r)
                    )
                k += T - 1
    if central:
        for v in range(V):
            H = s[:, :-1, v] + s[:, 1:, v]
            w = w_smooth[:, :-1, v, R] * H ** (R - 1)
            middle, at = np.arange(1, T - 1), k + np.arange(T - 2)
            A[:, at, middle + 1, v, R - 1] = w / H
            A[:, at, middle - 1, v, R - 1] = -w / H
            A[:, at, middle, v, R] = -w
            k += T - 2
    assert k == count
    return A.reshape(N, count, T * V * m), b


def other_links(R: int, scheme: str) -> list[tuple[Any, Any]] | None:
    """Coefficients of the rows of `iwp`, `hermite/p` and `hermite-l/p` at both ends of a step.

    `None` for the other schemes.
    """
    name, _, count = scheme.partition("/")
    if name not in ("iwp", "hermite", "hermite-l"):
        return None
    out = []
    for r in range(min(int(count or R + 1), R + 1)):
        # The variance 1 of orthonormal polynomials: `y_j` at 1 from 0 is the integral of white
        # noise times `(1 - x)^(R-j) / (R-j)!`, and row `r` that of a Legendre polynomial.
        m = R - r
        power = Legendre([0] * m + [1], domain=[0, 1]).convert(kind=Polynomial).coef
        after = np.array([0.0] * r + [power[m - j] * math.factorial(m - j) for j in range(m + 1)])
        after *= math.sqrt((2 * m + 1) / (2 * R + 1)) * math.factorial(R) / math.factorial(2 * R)
        steps = [[1 / math.factorial(j - i) if j >= i else 0 for j in range(R + 1)]
                 for i in range(R + 1)]  # fmt: skip
        before = after @ np.array(steps)
        if name == "hermite-l" and m:
            top, below = pade([1 / math.factorial(i) for i in range(2 * m)], m, m - 1)
            scale = after[r] / below.coef[-1]
            before, after = np.zeros(R + 1), np.zeros(R + 1)
            before[r : r + m] = scale * top.coef[::-1]
            after[r:] = scale * below.coef[::-1]
        out.append((after, before))
    return out


class Exact(NamedTuple):
    """The least-squares solution of each sample, and the accuracy to expect of float64."""

    y: np.ndarray
    """`(N, unknowns, k)` for `k` right-hand sides, rounded to float64."""
    norms: np.ndarray
    """`(N, unknowns)` norms of the columns; the unit in which unknowns are compared."""
    condition: np.ndarray
    """`(N,)` of the rows with columns of norm one; infinite if there are too few rows."""
    limit: np.ndarray
    """`(N, k)` one unit of unavoidable error in `norms * y`: rounding times the sensitivity."""
    converged: np.ndarray
    """`(N,)` whether refinement has come to rest far below `limit`."""


def least_squares(A: np.ndarray, b: np.ndarray) -> Exact:
    """Solve in extended precision. `A (N, rows, unknowns)` and `b (N, rows, k)`, extended."""
    N, count, n = A.shape
    k = b.shape[2]
    if count < n:  # too few rows: rows of zeros do no harm
        A = np.concatenate([A, np.zeros((N, n - count, n), A.dtype)], 1)
        b = np.concatenate([b, np.zeros((N, n - count, k), b.dtype)], 1)
    norms = np.sqrt((A * A).sum(1)).astype(float)
    unit = np.exp2(np.round(np.log2(np.where(norms > 0, norms, 1.0))))  # exact to divide by
    A = A / unit[:, None]
    near = A.astype(float)
    Q, triangle = np.linalg.qr(near)
    ones = near / np.where(norms > 0, norms / unit, 1.0)[:, None]
    values = np.linalg.svd(ones, compute_uv=False)
    largest, smallest = values[:, 0], np.where(norms.all(1), values[:, -1], 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        condition = np.where((count < n) | (smallest == 0), np.inf, largest / smallest)
    usable = condition < 1e13
    triangle = np.where(usable[:, None, None], triangle, np.eye(n))
    x, r = np.zeros((N, n, k), WIDE), b.astype(WIDE)
    transposed = A.transpose(0, 2, 1)
    for _ in range(5):
        f = (b - r - A @ x).astype(float)
        g = (-(transposed @ r)).astype(float)
        h = np.linalg.solve(triangle.transpose(0, 2, 1), g)
        own = Q.transpose(0, 2, 1) @ f
        step = np.linalg.solve(triangle, own - h)
        x, r = x + step, r + (f - Q @ (own - h))
    size = (norms / unit)[..., None]
    length = np.linalg.norm((size * x).astype(float), axis=1)
    residual = np.linalg.norm(r.astype(float), axis=1) / np.maximum(largest, 1e-300)[:, None]
    kappa = np.where(usable, condition, 1.0)[:, None]
    limit = EPS * kappa * (length + (1 + kappa) * residual)
    moved = np.linalg.norm(size * step, axis=1)
    converged = usable & (moved <= 1e-3 * limit).all(1)
    return Exact((x / unit[..., None]).astype(float), norms, condition, limit, converged)


def differentiable_solution(*tensors: Tensor, scheme: str) -> Tensor:
    """The same solution by a dense QR that autograd can follow, float64: `(N, unknowns)`."""
    A, b = rows(*tensors, scheme)
    norms = A.detach().norm(dim=1, keepdim=True)
    Q, triangle = torch.linalg.qr(A / norms)
    right = Q.mT @ b.unsqueeze(-1)
    x = torch.linalg.solve_triangular(triangle, right, upper=True)
    return (x / norms.mT).squeeze(-1)
