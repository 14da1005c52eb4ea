"""Solve without keeping the factor: the derivative computes it again, part of the batch by part.

The factor is the larger part of what a solve keeps for its derivative. Left out, memory falls to
the inputs, the solution and one part's factor, for the price of a second elimination.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from smnn import _ops
from smnn._backends.base import Backend
from smnn._eager import may_be_quick
from smnn._problem import Problem
from smnn._status import raise_if_failed

PART = 64 * 2**20
"""Bytes of factor that are held at a time, if one sample's is not larger."""


def _parts(problem: Problem, engine: Backend) -> Iterator[tuple[slice, Problem, int]]:
    """Slices of the batch, their problems, and into how many pieces of time each is cut."""
    B, T, V, m = problem.y_shape
    reach = 2 if problem.scheme == "central" else 1

    def piece(part: slice) -> tuple[slice, Problem, int]:
        cut = Problem.of([x[part] for x in problem.tensors], problem.scheme)
        return part, cut, engine.pieces(cut.y_shape[0], T, V * m, reach)

    size = B
    while size > 1:  # fewer samples may be cut into more pieces, and those keep more for each
        _, some, pieces = piece(slice(0, size))
        needed = 8 * engine.factor_size(some, pieces)
        if needed <= PART:
            break
        size = max(1, min(size - 1, size * PART // needed))
    for start in range(0, B, max(size, 1)):
        yield piece(slice(start, min(start + size, B)))


class _Forgetful(torch.autograd.Function):
    """`y`, status, rcond, weakest; nothing but the inputs is kept."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Tensor, ...]:
        """The seven tensors of a problem, the scheme, the backend, whether to look again."""
        *tensors, scheme, engine, check = args
        problem = Problem.of(tensors, scheme)
        ctx.save_for_backward(*tensors)
        ctx.scheme, ctx.engine = scheme, engine
        ctx.set_materialize_grads(False)
        B = problem.y_shape[0]
        y, rcond = problem.c.new_empty(problem.y_shape), problem.c.new_empty(B)
        weakest = rcond.new_empty(B, dtype=torch.int64)
        status = torch.empty_like(weakest)
        for part, piece, pieces in _parts(problem, engine):
            y[part], factor, rcond[part], weakest[part], status[part] = engine.solve(piece, pieces)
            if check:
                told = status[part], rcond[part], weakest[part]
                status[part] = engine.look_again(piece, pieces, factor, *told)
            del factor  # before the next part asks for one
        ctx.mark_non_differentiable(status, rcond, weakest)
        return y, status, rcond, weakest

    @staticmethod
    def backward(ctx: Any, gy: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        """As without this option, part by part."""
        wanted = list(ctx.needs_input_grad[:7])
        if gy is None or not any(wanted):
            return (None,) * 10
        problem, engine = Problem.of(ctx.saved_tensors, ctx.scheme), ctx.engine
        if torch.is_grad_enabled():
            return (*_differentiable(problem, engine, gy, wanted), None, None, None)
        grads = [
            torch.empty_like(x, memory_format=torch.contiguous_format) if w else None
            for x, w in zip(problem.tensors, wanted, strict=True)
        ]
        for part, piece, pieces in _parts(problem, engine):
            solved = engine.solve(piece, pieces)
            found = engine.gradients(piece, solved.factor, solved.y, gy[part], pieces, wanted)
            for g, x in zip(grads, found, strict=True):
                if g is not None:
                    g[part] = x
            del solved, found, x
        return (*grads, None, None, None)


def _differentiable(
    problem: Problem, engine: Backend, gy: Tensor, wanted: list[bool]
) -> list[Tensor | None]:
    """Gradients with a graph of their own, through operators that keep no factor either."""
    leaves = [x for x, w in zip(problem.tensors, wanted, strict=True) if w]
    y = _ops.solve(*problem, engine.name, 1, 0, False, (problem.y_shape[0],))[0]
    found = iter(torch.autograd.grad(y, leaves, gy, create_graph=True, materialize_grads=True))
    return [next(found) if w else None for w in wanted]


def solve_forgetfully(
    problem: Problem, batch: tuple[int, ...], engine: Backend, pieces: int, *, check: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`y`, status, rcond and weakest, without a factor that outlives the call."""
    if not may_be_quick(problem.tensors):
        y, _, *info = _ops.solve(*problem, engine.name, pieces, 0, check, batch)
        return (y, *info)
    y, status, rcond, weakest = _Forgetful.apply(*problem, engine, check)
    if check:
        raise_if_failed(problem, status, rcond, weakest, batch)
    return y, status, rcond, weakest
