"""Solve without keeping the factor: the derivative computes it again, part of the batch by part.

The factor is the larger part of what a solve keeps for its derivative. Left out, memory falls to
the inputs, the solution and one part's factor, for the price of a second elimination. Parts of one
size lie in memory alike: where the weights are numbers, all that follows from the shapes is worked
out once for each size (`_eager.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from smnn import _ops
from smnn._backends.base import Backend, Solved
from smnn._eager import (
    Signature,
    derivative,
    laid_out,
    layout_of,
    may_be_quick,
    remember,
    remembered,
    solve_like,
    summed,
)
from smnn._problem import Problem
from smnn._status import Verdict, raise_if_failed

PART = 64 * 2**20
"""Bytes of factor that are held at a time, or half of those of the solution if that is more; one
sample's in any case."""


def _cut(problem: Problem, part: slice) -> Problem:
    return Problem.of([x[part] for x in problem.tensors], problem.scheme)


def _pieces(problem: Problem, engine: Backend) -> int:
    """Into how many pieces of time each sequence is cut."""
    B, T, V, m = problem.y_shape
    return engine.pieces(B, T, V * m, 2 if problem.scheme == "central" else 1)


_sizes: dict[Any, int] = {}


def _size(problem: Problem, engine: Backend) -> int:
    """Samples whose factors are held at a time."""
    key = engine.name, problem.y_shape, problem.c.shape, problem.u.shape, problem.scheme, PART
    if key not in _sizes:
        if len(_sizes) >= 512:
            _sizes.clear()
        size, limit = problem.y_shape[0], max(PART, 4 * math.prod(problem.y_shape))
        while size > 1:  # fewer samples may be cut into more pieces, and those keep more for each
            some = _cut(problem, slice(0, size))
            needed = 8 * engine.factor_size(some, _pieces(some, engine))
            if needed <= limit:
                break
            size = max(1, min(size - 1, size * limit // needed))
        _sizes[key] = max(size, 1)
    return _sizes[key]


def _parts(problem: Problem, engine: Backend) -> Iterator[slice]:
    """Slices of the batch."""
    B, size = problem.y_shape[0], _size(problem, engine)
    for start in range(0, B, size):
        yield slice(start, min(start + size, B))


class _Gathered:
    """What is found for the parts of a batch, put together."""

    def __init__(self, problem: Problem) -> None:
        B, new = problem.y_shape[0], problem.c.new_empty
        self.y, self.rcond = new(problem.y_shape), new(B)
        self.weakest, self.status = new(B, dtype=torch.int64), new(B, dtype=torch.int64)

    def put(self, part: slice, found: Solved) -> None:
        """That of a part; its factor is not kept."""
        self.y[part], self.rcond[part] = found.y, found.rcond
        self.weakest[part], self.status[part] = found.weakest, found.status


def _solved(piece: Problem, engine: Backend, pieces: int, *, check: bool) -> Solved:
    found = engine.solve(piece, pieces)
    if not check:
        return found
    told = found.factor, found.status, found.rcond, found.weakest
    return found._replace(status=engine.look_again(piece, pieces, *told))


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
        all_of = _Gathered(problem)
        for part in _parts(problem, engine):
            piece = _cut(problem, part)
            all_of.put(part, _solved(piece, engine, _pieces(piece, engine), check=check))
        told = all_of.status, all_of.rcond, all_of.weakest
        ctx.mark_non_differentiable(*told)
        return all_of.y, *told

    @staticmethod
    def backward(ctx: Any, gy: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        """As without this option, part by part."""
        wanted = list(ctx.needs_input_grad[:7])
        if gy is None or not any(wanted):
            return (None,) * 10
        problem, engine = Problem.of(ctx.saved_tensors, ctx.scheme), ctx.engine
        if torch.is_grad_enabled():
            grads = _differentiable(problem, engine, problem.tensors, gy, wanted)
            return (*grads, None, None, None)
        grads = _room(problem.tensors, wanted)
        for part in _parts(problem, engine):
            piece = _cut(problem, part)
            pieces = _pieces(piece, engine)
            solved = engine.solve(piece, pieces)
            found = engine.gradients(piece, solved.factor, solved.y, gy[part], pieces, wanted)
            _put(grads, part, found)
            del solved, found
        return (*grads, None, None, None)


def _room(tensors: Sequence[Tensor], wanted: Sequence[bool]) -> list[Tensor | None]:
    return [
        torch.empty_like(x, memory_format=torch.contiguous_format) if w else None
        for x, w in zip(tensors, wanted, strict=True)
    ]


def _put(grads: list[Tensor | None], part: slice, found: Sequence[Tensor | None]) -> None:
    for g, x in zip(grads, found, strict=True):
        if g is not None and x is not None:
            here = g[part]
            here.copy_(x.reshape(here.shape))


def _differentiable(
    problem: Problem, engine: Backend, tensors: Sequence[Tensor], gy: Tensor, wanted: Sequence[bool]
) -> list[Tensor | None]:
    """Gradients with a graph of their own, through operators that keep no factor either."""
    leaves = [x for x, w in zip(tensors, wanted, strict=True) if w]
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


Views = tuple[Tensor, ...]
"""`c, d, u, s`, or a part of them."""


def _known_parts(
    signature: Signature, tensors: Views, rest: Any
) -> Iterator[tuple[slice, Signature, Views]]:
    """Slices of the batch, what is known of such a part, and the part of each tensor."""
    problem, engine = signature.fit(tensors), signature.engine
    for part in _parts(problem, engine):
        views = tuple(x[part] for x in problem.tensors[:4])
        key = layout_of(views, rest)
        known = None if key is None else remembered(key)
        if known is None:
            piece = _cut(problem, part)
            known = Signature(piece, piece.y_shape[:1], engine, _pieces(piece, engine))
            if key is not None:
                remember(key, views, known)
                known = remembered(key) or known
        yield part, known, views


class _QuickForgetful(torch.autograd.Function):
    """As `_Forgetful`, from the caller's own `c, d, u, s` on; tells all but `y` aside."""

    @staticmethod
    def forward(
        ctx: Any, c: Tensor, d: Tensor, u: Tensor, s: Tensor, signature: Signature, rest: Any,
        check: bool, aside: list[Any],
    ) -> Tensor:  # fmt: skip
        """`y`; `aside` receives status, rcond and weakest."""
        tensors = c, d, u, s
        ctx.save_for_backward(*tensors)
        ctx.signature, ctx.rest = signature, rest
        ctx.set_materialize_grads(False)
        if _whole(signature):
            found = _solved_like(signature, tensors, check=check)
            aside += found.status, found.rcond, found.weakest
            return found.y
        all_of = _Gathered(signature.fit(tensors))
        for part, known, views in _known_parts(signature, tensors, rest):
            all_of.put(part, _solved_like(known, views, check=check))
        aside += all_of.status, all_of.rcond, all_of.weakest
        return all_of.y

    @staticmethod
    def backward(ctx: Any, gy: Tensor | None) -> tuple[Tensor | None, ...]:
        """As without this option, part by part."""
        wanted, signature = list(ctx.needs_input_grad[:4]), ctx.signature
        if gy is None or not any(wanted):
            return (None,) * 8
        kept = zip(ctx.saved_tensors, signature.kept[:4], strict=True)
        tensors = tuple(laid_out(x, *like) for x, like in kept)
        grads: list[Tensor | None]
        if torch.is_grad_enabled():
            problem = signature.fit(tensors)
            grads = _differentiable(problem, signature.engine, tensors, gy, wanted)
        elif _whole(signature):
            y, factor, _ = solve_like(signature, tensors)
            grads = derivative(signature, (*tensors, y, factor), gy, wanted)
        else:
            grads = _room(signature.fit(tensors).tensors[:4], wanted)
            for part, known, views in _known_parts(signature, tensors, ctx.rest):
                y, factor, _ = solve_like(known, views)
                _put(grads, part, known.gradients([*views], y, factor, gy[part], wanted))
                del y, factor
            grads = [
                None if g is None else summed(g, x, signature.batch)
                for g, x in zip(grads, tensors, strict=True)
            ]
        return (*grads, None, None, None, None)


def _whole(signature: Signature) -> bool:
    """Whether all samples are one part."""
    return _size(signature.problem, signature.engine) >= signature.problem.y_shape[0]


def _solved_like(signature: Signature, tensors: Views, *, check: bool) -> Solved:
    y, factor, told = solve_like(signature, tensors)
    sure = isinstance(told, Verdict) and told.fine
    status, rcond, weakest = told.tensors() if isinstance(told, Verdict) else told
    if check and not sure:
        problem, engine = signature.fit(tensors), signature.engine
        status = engine.look_again(problem, signature.pieces, factor, status, rcond, weakest)
    return Solved(y, factor, rcond, weakest, status)


def solve_forgetfully_like(
    signature: Signature, tensors: Views, rest: Any, *, check: bool
) -> tuple[Tensor, list[Tensor]]:
    """As `solve_forgetfully`, for tensors of a remembered layout."""
    aside: list[Tensor] = []
    y = _QuickForgetful.apply(*tensors, signature, rest, check, aside)
    status, rcond, weakest = aside
    if check:
        raise_if_failed(signature.fit(tensors), status, rcond, weakest, signature.batch)
    return y, aside
