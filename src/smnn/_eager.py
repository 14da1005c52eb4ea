"""The short way through autograd for ordinary eager code.

A registered operator costs some 100 microseconds of bookkeeping per call, more than many solves.
Without `torch.compile`, `torch.func` or a dispatch mode, an `autograd.Function` around the backend
does the same; a backward that must itself be differentiable goes through the operators.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from smnn._backends.base import Backend
from smnn._ops import differentiable_backward, solve_op
from smnn._problem import Problem
from smnn._status import raise_if_failed


def _plain(problem: Problem) -> bool:
    """Whether nothing watches the call that only a registered operator can satisfy."""
    return not (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
        or any(type(x) not in (Tensor, torch.nn.Parameter) for x in problem[:7])
    )


class _Solve(torch.autograd.Function):
    """Forward and first derivative by the backend's own kernels."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Tensor, ...]:
        """`y`, factor, status, rcond, weakest."""
        *tensors, scheme, engine, pieces = args
        solved = engine.solve(Problem(*tensors, scheme), pieces)
        ctx.save_for_backward(*tensors, solved.y, solved.factor)
        ctx.scheme, ctx.engine, ctx.pieces = scheme, engine, pieces
        ctx.set_materialize_grads(False)
        y, factor, rcond, weakest, status = solved
        ctx.mark_non_differentiable(factor, status, rcond, weakest)
        return y, factor, status, rcond, weakest

    @staticmethod
    def backward(ctx: Any, gy: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        """Adjoint solve, then a gradient per row."""
        wanted = list(ctx.needs_input_grad[:7])
        if gy is None or not any(wanted):
            return (None,) * 10
        *tensors, y, factor = ctx.saved_tensors
        problem = Problem(*tensors, ctx.scheme)
        if torch.is_grad_enabled():
            grads = differentiable_backward(
                gy, y, factor, problem, ctx.engine.name, ctx.pieces, wanted
            )
        else:
            lam = ctx.engine.adjoint(problem, factor, gy, ctx.pieces)
            grads = ctx.engine.row_gradients(problem, lam, y, wanted)
        return (*(g if w else None for g, w in zip(grads, wanted, strict=True)), None, None, None)


def solve_problem(
    problem: Problem, batch: tuple[int, ...], engine: Backend, pieces: int, *, check: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """`y`, factor, status, rcond and weakest, by whichever way the surroundings allow."""
    if not _plain(problem):
        return solve_op(*problem, engine.name, pieces, True, check, batch)
    if torch.is_grad_enabled() and any(x.requires_grad for x in problem[:7]):
        out = _Solve.apply(*problem, engine, pieces)
    else:
        y, factor, rcond, weakest, status = engine.solve(problem, pieces)
        out = y, factor, status, rcond, weakest
    if check:
        raise_if_failed(problem, out[2], out[3], out[4], batch)
    return out
