r"""Least-squares problem of the original MNN: the banded rows of `smnn`, and a border.

Its smoothness rows are those of `scheme="central"`, each with one more unknown $\epsilon$, the
slack, which all of them share. With $q = A^\top \sigma$, where $\sigma = \pm 1$ is the sign of the
slack in a row, and $N$ the number of these rows, the normal equations are

$$ \begin{pmatrix} A^\top A & q \\ q^\top & N \end{pmatrix}
   \begin{pmatrix} y \\ \epsilon \end{pmatrix}
   = \begin{pmatrix} A^\top b \\ \gamma \alpha \end{pmatrix}. $$

Rows that tie the ends of the series together (periodic boundaries) have no slack.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from smnn._solver.problem import Problem
from smnn._solver.rows import normal_residual, row_gradients


class System(NamedTuple):
    """A batch of problems with one batch axis, float64."""

    problem: Problem
    """The banded rows: scheme `"central"`, weights one."""
    p: Tensor
    """`(B, V, k)` target of `y(0) - y(T-1)` for the orders below `k`; `k` is 0 or `R`."""
    load: Tensor
    """`(B,)` the product of gamma and alpha."""

    @classmethod
    def of(cls, c: Tensor, d: Tensor, u: Tensor, s: Tensor, p: Tensor, load: Tensor) -> System:
        """Create a problem from its tensors, with weights of one."""
        one = c.new_ones(())
        w_smooth = one.expand(*s.shape, c.shape[-1])
        weights = one.expand(d.shape), one.expand(u.shape), w_smooth
        return cls(Problem(c, d, u, s, *weights, "central"), p, load)

    @property
    def slack_rows(self) -> int:
        """Number of rows with the slack."""
        _, T, V, m = self.problem.y_shape
        return 2 * (T - 1) * V * (m - 1) + max(T - 2, 0) * V


def slack_column(s: Tensor, m: int) -> Tensor:
    r"""Return the vector $q$, `(B, T, V, R+1)`, from the steps `(B, T-1, V)` and `m = R + 1`.

    The slack has the sign $-1$ in forward rows, $-(-1)^r$ in backward and $+1$ in central ones.
    """
    R = m - 1
    powers = s.unsqueeze(-1) ** torch.arange(m, dtype=s.dtype, device=s.device)
    signs = [(-1.0) ** j for j in range(m)]
    taylor = [sum(1 / math.factorial(j - r) for r in range(min(j + 1, R))) for j in range(m)]
    below = [1.0] * R + [0.0]  # the top order has neither forward nor backward rows
    at_start = [k - sign * e for k, sign, e in zip(taylor, signs, below)]
    at_end = [sign * k - e for k, sign, e in zip(taylor, signs, below)]
    q = pad(powers * powers.new_tensor(at_start), (0, 0, 0, 0, 0, 1))
    q = q + pad(powers * powers.new_tensor(at_end), (0, 0, 0, 0, 1, 0))
    if s.shape[1] > 1:
        H = s[:, :-1] + s[:, 1:]
        slope = H ** (R - 2)
        ends = pad(slope, (0, 0, 2, 0)) - pad(slope, (0, 0, 0, 2))
        q = q + pad(ends.unsqueeze(-1), (R - 1, 1))
        q = q - pad(pad(slope * H, (0, 0, 1, 1)).unsqueeze(-1), (R, 0))
    return q


def gap(y: Tensor, k: int) -> Tensor:
    """Return `y(0) - y(T-1)` for the orders below `k`: `(B, V, k)`."""
    return y[:, 0, :, :k] - y[:, -1, :, :k]


def spread_gap(p: Tensor, T: int, m: int) -> Tensor:
    """Return the transpose of `gap`: `(B, T, V, m)`."""
    end = pad(p, (0, m - p.shape[-1])).unsqueeze(1)
    return pad(end, (0, 0, 0, 0, 0, T - 1)) - pad(end, (0, 0, 0, 0, T - 1, 0))


def over_time(x: Tensor) -> Tensor:
    """Reshape one number per sample for multiplication with a trajectory."""
    return x.view(-1, 1, 1, 1)


def dot(x: Tensor, y: Tensor) -> Tensor:
    """Inner product per sample."""
    return (x * y).flatten(1).sum(1)


def residual(system: System, q: Tensor, y: Tensor, eps: Tensor) -> tuple[Tensor, Tensor]:
    """Return the residual of the normal equations at `(y, eps)`."""
    problem, p, load = system
    _, T, _, m = problem.y_shape
    left = normal_residual(problem, y) - over_time(eps) * q
    left = left + spread_gap(p - gap(y, p.shape[-1]), T, m)
    return left, load - dot(q, y) - system.slack_rows * eps


def right_side(system: System) -> Tensor:
    """`A^T b`, `(B, T, V, R+1)`; the entry of the slack is the load."""
    (c, d, u, *_), p, _ = system
    _, T, _, m = system.problem.y_shape
    start = pad(u, (0, m - u.shape[3], 0, 0, 0, T - u.shape[1]))
    return torch.einsum("btqvr,btq->btvr", c, d) + start + spread_gap(p, T, m)


def relative_size(system: System, left: tuple[Tensor, Tensor]) -> Tensor:
    """Return the norm of a residual relative to the right-hand side; 0 if both are 0."""
    whole = dot(g := right_side(system), g) + system.load.square()
    part = dot(left[0], left[0]) + left[1].square()
    return torch.where(part == 0, 0.0, (part / whole).sqrt())


class Point(NamedTuple):
    """A vector of primal or dual unknowns."""

    y: Tensor
    """`(B, T, V, R+1)`."""
    eps: Tensor
    """`(B,)`."""


def gradients(system: System, lam: Point, x: Point) -> tuple[Tensor, ...]:
    r"""Gradients by `c, d, u, s, p` and the load, from $\lambda = M^{-1}\,\partial\ell/\partial x$.

    As `row_gradients`; the slack adds $\lambda_\epsilon\, q \cdot y + \epsilon\, q \cdot \lambda$
    to the bilinear form, which depends on the steps alone.
    """
    problem, p, _ = system
    gc, gd, gu, gs, *_ = row_gradients(problem, lam.y, x.y)
    gs = gs - slack_gradient(problem, lam, x)
    return gc, gd, gu, gs, gap(lam.y, p.shape[-1]), lam.eps


def slack_gradient(problem: Problem, lam: Point, x: Point) -> Tensor:
    """Return the gradient with respect to the steps of the slack terms."""
    m = problem.c.shape[-1]
    both = over_time(lam.eps) * x.y + over_time(x.eps) * lam.y
    transpose = torch.func.vjp(lambda s: slack_column(s, m), problem.s)[1]
    return transpose(both)[0]
