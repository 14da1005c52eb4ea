"""The `reference` backend: every row of the paper written out, solved by dense least squares.

Slow, and deliberately naive: it shares no formula with the other backends, and they are tested
against it. The cost is cubic in `T V (R+1)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import torch
from torch import Tensor

from smnn._solver.diagnostics import diagnosed, nothing, relative_pivots
from smnn._solver.plan import Backend, Plan
from smnn._solver.problem import Problem, Solved


def dense_rows(problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """`A (B, rows, T V (R+1))`, `b (B, rows)` and weights `(B, rows)` such that `A y ~ b`."""
    c, d, u, s, w_gov, w_init, w_smooth, scheme = problem
    B, T, Q, V, m = c.shape
    R = m - 1
    A, b, w = [], [], []
    zero = c.new_zeros(B)

    def add(entries: list[tuple[int, int, int, Tensor]], rhs: Tensor, weight: Tensor) -> None:
        row = c.new_zeros(B, T, V, m)
        for t, v, r, value in entries:
            row[:, t, v, r] += value
        A.append(row.reshape(B, -1))
        b.append(rhs)
        w.append(weight)

    for t in range(T):
        for q in range(Q):
            entries = [(t, v, r, c[:, t, q, v, r]) for v in range(V) for r in range(m)]
            add(entries, d[:, t, q], w_gov[:, t, q])
    for t in range(u.shape[1]):
        for v in range(V):
            for r in range(u.shape[3]):
                add([(t, v, r, zero + 1)], u[:, t, v, r], w_init[:, t, v, r])
    links = _links(R, scheme)
    for t in range(T - 1):
        for v in range(V):
            h = s[:, t, v]
            for r, after, before in links:
                entries = [(t + 1, v, j, h ** (j - r) * a) for j, a in enumerate(after) if a]
                entries += [(t, v, j, h ** (j - r) * -a) for j, a in enumerate(before) if a]
                add(entries, zero, w_smooth[:, t, v, r] * h**r)
    if scheme == "central":
        for t in range(1, T - 1):
            for v in range(V):
                H = s[:, t - 1, v] + s[:, t, v]
                entries = [(t + 1, v, R - 1, 1 / H), (t - 1, v, R - 1, -1 / H), (t, v, R, zero - 1)]
                add(entries, zero, w_smooth[:, t - 1, v, R] * H ** (R - 1))
    if not A:  # no equation, no initial value, one time
        return c.new_zeros(B, 0, T * V * m), c.new_zeros(B, 0), c.new_zeros(B, 0)
    return torch.stack(A, 1), torch.stack(b, 1), torch.stack(w, 1)


def _links(R: int, scheme: str) -> list[tuple[int, list[float], list[float]]]:
    """Order and coefficients at both ends of the rows of a unit step."""
    name, _, count = scheme.partition("/")
    out: list[tuple[int, list[float], list[float]]] = []
    if name in ("smnn", "central"):
        for r in range(R if name == "central" else R + 1):
            unit = [float(j == r) for j in range(R + 1)]
            for sign in (1, -1):
                series = [sign ** (j - r) / math.factorial(max(j - r, 0)) for j in range(R + 1)]
                series = [x if j >= r else 0.0 for j, x in enumerate(series)]
                out.append((r, unit, series) if sign == 1 else (r, series, unit))
        return out
    first = Fraction(1)
    for r in range(min(int(count), R + 1) if count else R + 1):
        m = R - r
        after, before = _exact_link(m, m)
        variance = _wiener_variance(after)
        first = variance if r == 0 else first
        if name == "hermite-l" and m:
            after, before = _exact_link(m, m - 1)
        size = math.sqrt(first / variance)
        scaled = [[0.0] * r + [size * float(x) for x in row] for row in (after, before)]
        out.append((r, scaled[0], scaled[1]))
    return out


def _exact_link(m: int, low: int) -> tuple[list[Fraction], list[Fraction]]:
    """`y + a_1 y' + ...` at 1 minus `y + b_1 y' + ...` at 0, of orders `m` and `low`.

    The coefficients make it vanish for all polynomials up to degree `m + low`.
    """
    rows = []
    for degree in range(1, m + low + 1):
        at_end = [Fraction(math.perm(degree, j)) for j in range(1, m + 1)]
        at_start = [Fraction(-math.factorial(j) * (j == degree)) for j in range(1, low + 1)]
        rows.append([*at_end, *at_start, Fraction(-1)])
    for i in range(len(rows)):  # Gauss-Jordan
        pivot = next(k for k in range(i, len(rows)) if rows[k][i])
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for k in range(len(rows)):
            if k != i:
                rows[k] = [x - rows[k][i] * y for x, y in zip(rows[k], rows[i])]
    x = [row[-1] for row in rows]
    one = [Fraction(1)]
    return one + x[:m], one + x[m:] + [Fraction(0)] * (m - low)


def _wiener_variance(a: list[Fraction]) -> Fraction:
    """Variance at time 1 of a combination of the `m` times integrated Wiener process, from 0."""
    m, total = len(a) - 1, Fraction(0)
    for i, x in enumerate(a):
        for j, y in enumerate(a):
            scale = math.factorial(m - i) * math.factorial(m - j) * (2 * m + 1 - i - j)
            total += x * y / scale
    return total


def _twice(R: Tensor, g: Tensor) -> Tensor:
    z = torch.linalg.solve_triangular(R.mT, g, upper=False)
    return torch.linalg.solve_triangular(R, z, upper=True)


class DensePlan(Plan):
    """Dense QR of the explicit rows, largest rows first, refined once with their residual."""

    def solve(self, tensors: Sequence[Tensor] = ()) -> Solved:
        """Orthogonalise `[A b]`; the triangle is the factor."""
        problem = self.fit(tensors)
        if not problem.c.shape[0]:
            return nothing(problem)
        A, b, w = dense_rows(problem)
        rows = torch.cat([w.unsqueeze(-1) * A, (w * b).unsqueeze(-1)], -1)
        N = A.shape[-1]
        order = rows[..., :N].abs().amax(-1).argsort(1, descending=True)
        rows = rows.gather(1, order.unsqueeze(-1).expand_as(rows))
        short = N + 1 - rows.shape[1]
        if short > 0:
            rows = torch.nn.functional.pad(rows, (0, 0, 0, short))
        triangle = torch.linalg.qr(rows, mode="r")[1]
        R, z = triangle[:, :N, :N].contiguous(), triangle[:, :N, N:]
        rcond, weakest = relative_pivots(R.diagonal(dim1=1, dim2=2).abs(), R.norm(dim=1)).min(1)
        y = torch.linalg.solve_triangular(R, z, upper=True)
        left, right = rows[..., :N], rows[..., N:]  # a dense QR mixes large rows into small ones
        y = y + _twice(R, left.mT @ (right - left @ y))
        y = y.reshape(problem.y_shape)
        return diagnosed(self, problem, y, R.reshape(-1), rcond, weakest)

    def adjoint(self, factor: Tensor, g: Tensor) -> Tensor:
        if not g.numel():
            return torch.empty_like(g)
        N = g[0].numel()
        R = factor.view(-1, N, N)
        return _twice(R, g.reshape(-1, N, 1)).reshape(self.problem.y_shape)

    def covariances(self, tensors: Sequence[Tensor] = ()) -> tuple[Tensor, Tensor, Tensor]:
        solved = self.solve(tensors)
        B, T, V, m = self.problem.y_shape
        n = V * m
        R = solved.factor.view(B, T * n, T * n)
        inverse = torch.linalg.solve_triangular(R, torch.eye(T * n).to(R).expand_as(R), upper=True)
        grid = (inverse @ inverse.mT).view(B, T, n, T, n)
        diag = torch.stack([grid[:, t, :, t] for t in range(T)], 1)
        lags = [grid[:, t, :, t + 1] for t in range(T - 1)]
        lag = torch.stack(lags, 1) if lags else diag[:, :0]
        return diag, lag, 2 * R.diagonal(dim1=1, dim2=2).abs().log().sum(1)


class ReferenceBackend(Backend):
    """The dense oracle; its cost is cubic in the number of unknowns."""

    name = "reference"

    def unavailable(self, device: torch.device | None = None, n: int = 1) -> str | None:
        """Any device that can hold the dense matrix."""
        del device, n
        return None

    def factor_size(self, problem: Problem, pieces: int) -> int:
        del pieces
        B, T, V, m = problem.y_shape
        return B * (T * V * m) ** 2

    def plan(self, problem: Problem, pieces: int | None = None) -> DensePlan:
        return DensePlan(self, problem, pieces or 1)
