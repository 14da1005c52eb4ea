r"""The original MNN in linear time: its matrix is banded with a narrow border.

Let $\hat M$ be the band: the normal matrix of the rows without slack and without periodic rows.
The unknown slack, and one multiplier for every periodic row, are the border:

$$ \begin{pmatrix} \hat M & B \\ B^\top & D \end{pmatrix}
   \begin{pmatrix} y \\ w \end{pmatrix} = \begin{pmatrix} g \\ h \end{pmatrix}, \qquad
   S = D - B^\top \hat M^{-1} B, \quad S w = h - B^\top \hat M^{-1} g, \quad
   y = \hat M^{-1} (g - B w). $$

$\hat M^{-1}$ is the solver of this package; no normal matrix is ever formed. A series that is tied
at its ends need not have initial values, and then the band alone is (nearly) singular. So the
values at the first time that are missing are pinned in the band, and the pins are taken out again
by further columns of the border: $\hat M - E^\top E$, with $+1$ in $D$ where periodic rows have
$-1$.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from smnn._solver.diagnostics import OK
from smnn._solver.plan import Plan, choose_backend
from smnn._solver.problem import Problem
from smnn._solver.rows import normal_residual
from smnn.baselines._methods import Method, Outcome, State
from smnn.baselines._system import (
    Point,
    System,
    dot,
    gap,
    over_time,
    relative_size,
    residual,
    slack_column,
    slack_gradient,
    spread_gap,
)

SMALLEST_SCHUR = 1e-14
"""Pivot of the slack, relative to its diagonal entry, below which it counts as undetermined."""


@dataclass(frozen=True)
class _Band:
    """The banded part, which has a unique solution of its own, and how the border touches it."""

    problem: Problem
    """With the pins, and with `d = u = 0`."""
    q: Tensor
    """`(B, T, V, R+1)` the column of the slack."""
    k: int
    """Orders tied by periodic rows."""
    first_pin: int
    """Pinned at time 0: the orders from here to `k`."""

    def transpose(self, y: Tensor) -> Tensor:
        """`B^T y`, `(B, border)`."""
        parts = [dot(self.q, y).unsqueeze(1), gap(y, self.k).flatten(1)]
        return torch.cat([*parts, y[:, 0, :, self.first_pin : self.k].flatten(1)], 1)

    def columns(self) -> list[Tensor]:
        """`B`, column by column, `(B, T, V, R+1)` each."""
        B, T, V, m = self.problem.y_shape
        unit = torch.eye(V * m, dtype=self.q.dtype, device=self.q.device).view(V, m, V, m)
        found = [self.q]
        for v in range(V):
            for r in range(self.k):
                found.append(spread_gap(unit[v, r].expand(B, V, m), T, m))
        for v in range(V):
            for r in range(self.first_pin, self.k):
                found.append(pad(unit[v, r].expand(B, 1, V, m), (0, 0, 0, 0, 0, T - 1)))
        return found

    def diagonal(self, slack_rows: int) -> Tensor:
        """Of `D`, `(border,)`."""
        V = self.problem.y_shape[2]
        signs = [-1.0] * (V * self.k) + [1.0] * (V * (self.k - self.first_pin))
        return self.q.new_tensor([float(slack_rows), *signs])


def _band(system: System, q: Tensor) -> _Band:
    """Initial rows of weight one, plus pins where a periodic series lacks them at time 0."""
    problem, k = system.problem, system.p.shape[-1]
    u, w = problem.u, problem.w_init
    given = u.shape[3] if u.shape[1] else 0
    first_pin = min(given, k)
    if first_pin < k:
        B, _, V, _ = problem.y_shape
        times, orders = max(u.shape[1], 1), max(given, k)
        w = w.new_zeros(B, times, V, orders)
        w[:, : u.shape[1], :, :given] = 1.0
        w[:, 0, :, :k] = 1.0
    zero = q.new_zeros(())
    still = problem._replace(d=zero.expand(problem.d.shape), u=zero.expand(w.shape), w_init=w)
    return _Band(still, q, k, first_pin)


@dataclass(frozen=True)
class Exact(Method):
    """A bordered band, by one of the backends of `smnn.solve`."""

    backend: str

    def _plan(self, problem: Problem) -> Plan:
        B, T, _, _ = problem.y_shape
        engine = choose_backend(self.backend, problem.c.device, problem.block)
        return engine.plan(problem, engine.pieces(B, T, problem.block, 2))

    def solve(self, system: System) -> Outcome:
        """Factor the band, solve for the border, put both together, correct once."""
        problem = system.problem
        band = _band(system, slack_column(problem.s, problem.c.shape[-1]))
        times, orders = (band.problem.u.shape[i] - problem.u.shape[i] for i in (1, 3))
        start = pad(problem.u, (0, orders, 0, 0, 0, times))
        plan = self._plan(band.problem._replace(d=problem.d, u=start))
        y, factor, diagnostics = plan.solve()
        status, *_ = diagnostics.tensors()

        def banded(g: Tensor) -> Tensor:
            return plan.adjoint(factor, g.contiguous())

        Z = [banded(column) for column in band.columns()]
        if len(Z) > 1:  # a column for a pin is nearly cancelled by others: it has to be precise
            pairs = zip(Z, band.columns())
            Z = [z + banded(column + normal_residual(band.problem, z)) for z, column in pairs]
        border = torch.stack([band.transpose(z) for z in Z], -1)
        S = torch.diag(band.diagonal(system.slack_rows)) - border
        state = factor, S, band.q, *Z
        if band.k:
            y = y + banded(spread_gap(system.p, y.shape[1], y.shape[3]))
        x = _close(band, state, y, system.load)
        left = residual(system, band.q, *x)
        step = _close(band, state, banded(left[0]), left[1])
        good = (status == OK) & (S[:, 0, 0].abs() > SMALLEST_SCHUR * system.slack_rows)
        eps = torch.where(good, x.eps + step.eps, torch.nan)
        y = torch.where(over_time(good & eps.isfinite()), x.y + step.y, torch.nan)
        found = Point(y, eps), good & eps.isfinite(), torch.zeros_like(status)
        return Outcome(*found, relative_size(system, left), state)

    def adjoint(self, system: System, state: State, g: Point) -> Point:
        """One solve with the kept factor; the columns of the border are known."""
        band = _band(system, state[2])
        y = self._plan(band.problem).adjoint(state[0], g.y.contiguous())
        return _close(band, state, y, g.eps)

    def gradients(
        self, system: System, lam: Point, x: Point, wanted: list[bool]
    ) -> tuple[Tensor, ...]:
        """Use the kernels of the backend, unless the gradient is differentiated again."""
        if torch.is_grad_enabled():
            return super().gradients(system, lam, x, wanted)
        problem, need = system.problem, [*wanted[:4], False, False, False]
        engine = choose_backend(self.backend, problem.c.device, problem.block)
        found = engine.row_gradients(problem, lam.y, x.y, need)
        empty = (problem.c.new_empty((0,) * x.ndim) for x in problem.tensors)
        gc, gd, gu, gs, *_ = (e if g is None else g for g, e in zip(found, empty))
        if wanted[3]:
            gs = gs - slack_gradient(problem, lam, x)
        return gc, gd, gu, gs, gap(lam.y, system.p.shape[-1]), lam.eps


def _close(band: _Band, state: State, y: Tensor, h: Tensor) -> Point:
    """Solve for the border and correct the solution of the band alone."""
    _, S, _, *Z = state
    right = -band.transpose(y)
    right = torch.cat([right[:, :1] + h.unsqueeze(1), right[:, 1:]], 1)
    if len(Z) == 1:
        w = right / S[:, 0]
    else:
        w = torch.linalg.solve_ex(S, right.unsqueeze(-1))[0][..., 0]
    for i, z in enumerate(Z):
        y = y - over_time(w[:, i].contiguous()) * z
    return Point(y, w[:, 0].contiguous())
