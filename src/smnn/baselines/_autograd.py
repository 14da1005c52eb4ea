"""Derivatives of any order, shared by all methods.

The backward pass of a solve is an adjoint solve with the kept state and a gradient per row; the
backward pass of an adjoint solve is the same again, with a right-hand side of zero
(`smnn._solver.autograd` does likewise for the banded problem).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from smnn.baselines._methods import Method
from smnn.baselines._system import Point, System


class Solve(torch.autograd.Function):
    """`y, eps, converged, iterations, residual` and the state of the method."""

    @staticmethod
    def forward(
        c: Tensor, d: Tensor, u: Tensor, s: Tensor, p: Tensor, load: Tensor, method: Method
    ) -> tuple[Tensor, ...]:
        """Solve."""
        x, converged, iterations, left, state = method.solve(System.of(c, d, u, s, p, load))
        return *x, converged, iterations, left, *state

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Save the problem, its solution and the state."""
        *tensors, ctx.method = inputs
        ctx.save_for_backward(*tensors, *output[:2], *output[5:])
        ctx.mark_non_differentiable(*output[2:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(
        ctx: Any, gy: Tensor | None, ge: Tensor | None, *_: Any
    ) -> tuple[Tensor | None, ...]:
        """Solve the adjoint equation, then compute one gradient per row."""
        c, d, u, s, p, load, y, eps, *state = ctx.saved_tensors
        wanted = list(ctx.needs_input_grad[:6])
        if (gy is None and ge is None) or not any(wanted):
            return (None,) * 7
        gy = torch.zeros_like(y) if gy is None else gy
        ge = torch.zeros_like(eps) if ge is None else ge
        lam = Point(*Adjoint.apply(gy, ge, c, d, u, s, p, ctx.method, *state))
        system = System.of(c, d, u, s, p, load)
        grads = ctx.method.gradients(system, lam, Point(y, eps), wanted)
        return (*(g if w else None for g, w in zip(grads, wanted)), None)


class Adjoint(torch.autograd.Function):
    """Dual unknowns for a gradient with respect to the solution; `d`, `u`, `p` give shapes only."""

    @staticmethod
    def forward(
        gy: Tensor, ge: Tensor, c: Tensor, d: Tensor, u: Tensor, s: Tensor, p: Tensor,
        method: Method, *state: Tensor,
    ) -> Point:  # fmt: skip
        """Solve with the saved state."""
        return method.adjoint(_still(c, d, u, s, p), state, Point(gy, ge))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Point) -> None:
        """Save the problem, the dual unknowns and the state."""
        _, _, *tensors, ctx.method = inputs[:8]
        ctx.save_for_backward(*tensors, *output, *inputs[8:])

    @staticmethod
    def backward(ctx: Any, vy: Tensor, ve: Tensor) -> tuple[Tensor | None, ...]:
        """Solve the adjoint equation again; one gradient per row with `b = 0`."""
        c, d, u, s, p, y, eps, *state = ctx.saved_tensors
        mu = Point(*Adjoint.apply(vy, ve, c, d, u, s, p, ctx.method, *state))
        need = ctx.needs_input_grad
        wanted = [need[2], False, False, need[5], False, False]
        out: list[Tensor | None] = [mu.y, mu.eps, *(None,) * (6 + len(state))]
        if any(wanted):
            found = ctx.method.gradients(_still(c, d, u, s, p), mu, Point(y, eps), wanted)
            out[2], out[5] = (g if w else None for g, w in zip(found[0:4:3], wanted[0:4:3]))
        return tuple(out)


def _still(c: Tensor, d: Tensor, u: Tensor, s: Tensor, p: Tensor) -> System:
    """Return the problem with a right-hand side of zero."""
    zero = c.new_zeros(())
    load = zero.expand(c.shape[0])
    return System.of(c, zero.expand(d.shape), zero.expand(u.shape), s, zero.expand(p.shape), load)
