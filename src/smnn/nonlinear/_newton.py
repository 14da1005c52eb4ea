"""Damped Newton and Gauss-Newton iterations over a whole trajectory, and implicit derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from smnn._solver import blocks
from smnn.nonlinear._collocation import Collocation, Linear

SMALLEST_DAMPING = 1e-3
ROUNDING = 1e-7
"""Relative size below which a correction that no longer shrinks counts as rounding."""


class Rows(Protocol):
    """What a problem adds to the equation: initial values, boundary conditions, data."""

    def rows(self, x: Tensor) -> Tensor:
        """Linearized rows on single nodes, `(B, K+1, rows, M+1)`: Jacobian, minus residual."""

    def residual(self, x: Tensor) -> Tensor:
        """The same rows as residuals `(B, ...)`, differentiable in `x` and all inputs."""


class Step(NamedTuple):
    """A full (Gauss-)Newton correction."""

    dx: Tensor
    dZ: Tensor
    linear: Linear
    factors: list[Tensor]
    squares: Tensor
    """`(B,)` sum of the squares of all weighted residuals, infinite if not finite."""


class Outcome(NamedTuple):
    """Result of the iteration."""

    x: Tensor
    Z: Tensor
    converged: Tensor
    """`(B,)`"""
    size: Tensor
    """`(B,)` size of the last correction."""
    iterations: int


def correction(system: Collocation, rows: Rows, x: Tensor, Z: Tensor, weight: Tensor) -> Step:
    """The solution of the problem linearized at `x` and `Z`."""
    linear = system.linear(x, Z)
    local, link = rows.rows(x), system.links(x, Z, linear, weight)
    reduced = blocks.reduce(local, link)
    dx = blocks.substitute(reduced)
    dZ = torch.einsum("bkivm,bkm->bkiv", linear.slope, dx[:, :-1]) + linear.shift
    w = weight if weight.ndim == 3 else weight[:, None]
    gaps = w * torch.cat([Z[:, :, -1], x[:, :-1, system.V :]], -1) - w * x[:, 1:]
    defects = w[:, :, None, : system.V] * linear.defects
    parts = [part.flatten(1).square().sum(1) for part in (local[..., -1], gaps, defects)]
    return Step(dx, dZ, linear, reduced.factors, torch.stack(parts).sum(0).nan_to_num(torch.inf))


def _scale(x: Tensor, dx: Tensor, floor: float) -> Tensor:
    """Size of each variable before and after a correction, `(B, 1, M)`."""
    return torch.maximum(x.abs(), (x + dx).abs()).amax(1, keepdim=True).clamp(min=floor)


def _size(dx: Tensor, dZ: Tensor, scale: Tensor) -> Tensor:
    """Root mean square relative to the scale, `(B,)`; infinite if not finite."""
    size = (dx / scale).square().mean((1, 2)).sqrt()
    finite = size.isfinite() & dZ.isfinite().flatten(1).all(1)
    return torch.where(finite, size, torch.inf)


def newton(
    system: Collocation, rows: Rows, x: Tensor, Z: Tensor, weight: Tensor, *, floor: float,
    max_iterations: int, tolerance: float = 1e-10, monotone: str = "corrections",
) -> Outcome:  # fmt: skip
    """Iterate with a damping for each sample.

    A damped step is accepted if the next correction is smaller than this one (the natural
    monotonicity test), which does not depend on the weights of rows that have to hold exactly; or,
    with `monotone="residuals"`, if the sum of squares decreases, which also gets away from points
    where the linearized problem is almost singular.

    Args:
        system: Equation and mesh.
        rows: Everything else.
        x: Where to start.
        Z: The same at the collocation points.
        weight: Of the links between steps.
        floor: Variables that stay below are measured in this unit.
        max_iterations: Limit for the number of corrections computed.
        tolerance: Size of the last correction, relative to the variables.
        monotone: `"corrections"` or `"residuals"`.
    """
    dx, dZ, *_, squares = correction(system, rows, x, Z, weight)
    size = _size(dx, dZ, _scale(x, dx, floor))
    damping = torch.ones_like(size)
    done = size <= tolerance
    failed = size.isinf()
    iterations = 1
    while iterations < max_iterations and bool((~done & ~failed).any()):
        trial_x = x + damping[:, None, None] * dx
        trial_Z = Z + damping[:, None, None, None] * dZ
        new = correction(system, rows, trial_x, trial_Z, weight)
        iterations += 1
        same = _size(new.dx, new.dZ, _scale(x, dx, floor))  # in the units of the last correction
        better = same <= (1 - damping / 10) * size
        if monotone == "residuals":
            better = same.isfinite() & (new.squares <= (1 - damping / 100) * squares)
        better = better & ~done & ~failed
        done = done | ~better & ~failed & (size <= ROUNDING) & (damping == 1)
        x, Z, dx, dZ = (
            torch.where(better.view(-1, *[1] * (a.ndim - 1)), b, a)
            for a, b in ((x, trial_x), (Z, trial_Z), (dx, new.dx), (dZ, new.dZ))
        )
        squares = torch.where(better, new.squares, squares)
        size = torch.where(better, _size(dx, dZ, _scale(x, dx, floor)), size)
        done = done | (size <= tolerance)
        damping = torch.where(better, (4 * damping).clamp(max=1.0), damping / 4)
        failed = failed | ~done & (damping < SMALLEST_DAMPING)
    x = torch.where(done[:, None, None], x + dx, x)
    Z = torch.where(done[:, None, None, None], Z + dZ, Z)
    return Outcome(x, Z, done, size, iterations)


# ---------------------------------------------------------------- derivatives


class _Implicit(torch.autograd.Function):
    """The solution `x` of `g(x, inputs) = 0`, from `g` at that solution."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, solve: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.solve = solve
        return x.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gx: Tensor) -> tuple[Tensor, None, None]:
        return -ctx.solve(gx), None, None


def differentiable(
    system: Collocation, rows: Rows, x: Tensor, Z: Tensor, weight: Tensor, step: Step
) -> Tensor:
    """`x` with derivatives by everything in `f` and the rows that requires a gradient.

    By the implicit function theorem for the gradient of half the sum of squares. Its Jacobian is
    applied exactly, by a second derivative; the Gauss-Newton matrix is the preconditioner.
    """
    if not torch.is_grad_enabled():
        return x
    V, leaf = system.V, x.detach().clone()

    def half_squares() -> Tensor:
        ends = torch.cat([system.ends(leaf, Z, step.linear), leaf[:, :-1, V:]], -1)
        w = weight if weight.ndim == 3 else weight[:, None]
        gaps = (w * (leaf[:, 1:] - ends)).square().sum()
        return (gaps + rows.residual(leaf).square().sum()) / 2

    if not half_squares().requires_grad:
        return x
    leaf.requires_grad_()
    (g,) = torch.autograd.grad(half_squares(), leaf, create_graph=True)

    def solve(gx: Tensor) -> Tensor:
        found = blocks.normal_solve(step.factors, gx)
        for _ in range(30):
            (product,) = torch.autograd.grad(g, leaf, found, retain_graph=True)
            change = blocks.normal_solve(step.factors, gx - product)
            found = found + change
            if change.norm() <= 1e-11 * found.norm():
                break
        return found

    found: Tensor = _Implicit.apply(g, x, solve)
    return found


def global_errors(system: Collocation, rows: Rows, x: Tensor, Z: Tensor, weight: Tensor) -> Tensor:
    """Estimated errors of the nodes, `(B, K+1, M)`: those of the steps, through the linearization.

    A correction for the ends of the steps that a method of higher order would find.
    """
    linear = system.linear(x, Z)
    link = system.links(x, Z, linear, weight)
    link[..., -1] = 0.0
    w = weight if weight.ndim == 3 else weight[:, None]
    link[:, 1:-1, : system.V, -1] = w[..., : system.V] * system.local_errors(x, Z)
    local = rows.rows(x)
    local[..., -1] = 0.0
    return blocks.substitute(blocks.reduce(local, link))
