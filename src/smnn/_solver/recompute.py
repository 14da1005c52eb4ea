"""Solve without keeping the factor: the derivative computes it again, part of the batch by part.

The factor is the larger part of what a solve keeps for its derivative. Left out, memory falls to
the inputs, the solution and one part's factor, for the price of a second elimination. Parts of one
size lie in memory alike: where the weights are numbers, all that follows from the shapes is worked
out once for each size (`eager.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from smnn._solver import ops
from smnn._solver.base import Backend
from smnn._solver.diagnostics import Verdict, raise_if_failed
from smnn._solver.eager import (
    Signature,
    laid_out,
    layout_of,
    may_be_quick,
    remember,
    remembered,
    solve_like,
    summed,
)
from smnn._solver.problem import Problem

PART = 64 * 2**20
"""Bytes of factor that are held at a time, or half of those of the solution if that is more; but
those of as many samples as keep the device busy, or of a quarter of all; and of one in any case."""

Tensors = tuple[Tensor, ...]
"""`c, d, u, s`, as the caller has them where weights are numbers; else all seven of a problem."""


def _pieces(problem: Problem, engine: Backend) -> int:
    """Into how many pieces of time each sequence is cut."""
    B, T, V, m = problem.y_shape
    return engine.pieces(B, T, V * m, 2 if problem.scheme == "central" else 1)


def _size(problem: Problem, engine: Backend) -> int:
    """Samples whose factors are held at a time."""
    B, _, V, m = problem.y_shape
    size, limit = B, max(PART, 4 * math.prod(problem.y_shape))
    least = max(1, min(engine.busy(V * m), -(-B // 4)))
    while size > least:  # fewer samples may be cut into more pieces, and those keep more for each
        some = problem._replace(c=problem.c[:size])  # from which its sizes are known
        needed = 8 * engine.factor_size(some, _pieces(some, engine))
        if needed <= limit:
            break
        size = max(least, min(size - 1, size * limit // needed))
    return max(size, 1)


class _Call(NamedTuple):
    """What is known of a solve besides its tensors."""

    engine: Backend
    scheme: str
    shape: tuple[int, ...]
    """Of the solution, with one batch axis."""
    batch: tuple[int, ...]
    known: Signature | None
    """Of the whole batch, where weights are numbers."""
    rest: Any
    """What such a signature is remembered by, besides the tensors."""
    size: int
    """Samples of a part."""

    def problem(self, tensors: Tensors) -> Problem:
        """Of all samples."""
        return self.known.fit(tensors) if self.known else Problem.of(tensors, self.scheme)

    def parts(self, tensors: Tensors) -> Iterator[tuple[slice, Signature, Tensors]]:
        """Slices of the batch, what is known of each part, and its `c, d, u, s`."""
        problem = self.problem(tensors)
        B = problem.y_shape[0]
        if self.known is not None and self.size >= B:
            yield slice(0, B), self.known, tensors
            return
        for start in range(0, max(B, 1), self.size):
            part = slice(start, min(start + self.size, B))
            views = tuple(x[part] for x in problem.tensors[:4])
            yield part, self._of_part(views, problem, part), views

    def _of_part(self, views: Tensors, problem: Problem, part: slice) -> Signature:
        key = None if self.known is None else layout_of(views, self.rest)
        if key is not None and (known := remembered(key)) is not None:
            return known
        weights = [x[part] for x in problem.tensors[4:]]
        piece = Problem.of([*views, *weights], self.scheme)
        fresh = Signature(piece, piece.y_shape[:1], self.engine, _pieces(piece, self.engine))
        if key is None:
            return fresh
        remember(key, views, fresh)
        return remembered(key) or fresh


class _Forgetful(torch.autograd.Function):
    """`y`; nothing but the inputs is kept, and all else is told aside."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        """The tensors, what is known of them, whether to look again, where to tell the rest."""
        *tensors, call, check, aside = args
        ctx.save_for_backward(*tensors)
        ctx.call = call
        ctx.set_materialize_grads(False)
        whole: Tensor | None = None
        every: list[list[Tensor]] = []
        for part, known, views in call.parts(tuple(tensors)):
            y, *told = _solved(known, views, check=check)
            every.append(told)
            if part == slice(0, call.shape[0]):
                whole = y
                break
            if whole is None:
                whole = y.new_empty(call.shape)
            whole[part] = y
        aside += every[0] if len(every) == 1 else map(torch.cat, zip(*every, strict=True))
        assert whole is not None
        return whole

    @staticmethod
    def backward(ctx: Any, gy: Tensor | None) -> tuple[Tensor | None, ...]:
        """As without this option, part by part."""
        call: _Call = ctx.call
        *wanted, _, _, _ = ctx.needs_input_grad
        grads: list[Tensor | None] = [None] * len(wanted)
        if gy is None or True not in wanted:
            return (*grads, None, None, None)
        tensors = ctx.saved_tensors
        if call.known is not None:
            kept = zip(tensors, call.known.kept[:4], strict=True)
            tensors = tuple(laid_out(x, *like) for x, like in kept)
        problem = call.problem(tensors)
        if torch.is_grad_enabled():
            grads = _differentiable(problem, call.engine, tensors, gy, wanted)
            return (*grads, None, None, None)
        for part, known, views in call.parts(tensors):
            y, factor, _ = solve_like(known, views)
            if part == slice(0, call.shape[0]):
                grads = known.gradients([*views], y, factor, gy, wanted)
                break
            if part.start == 0:
                like = zip(problem.tensors, wanted, strict=False)
                grads = [y.new_empty(x.shape) if w else None for x, w in like]
            into = [None if g is None else g[part] for g in grads]
            found = known.gradients([*views], y, factor, gy[part], wanted, into)
            del y, factor  # before the next part asks for them
            for here, g in zip(into, found, strict=True):
                if here is not None and g is not None and g is not here:
                    here.copy_(g.reshape(here.shape))
        pairs = zip(grads, tensors, strict=True)
        grads = [None if g is None else summed(g, x, call.batch) for g, x in pairs]
        return (*grads, None, None, None)


def _solved(signature: Signature, tensors: Tensors, *, check: bool) -> tuple[Tensor, ...]:
    """`y`, status, rcond and weakest."""
    y, factor, told = solve_like(signature, tensors)
    sure = isinstance(told, Verdict) and told.fine
    status, rcond, weakest = told.tensors() if isinstance(told, Verdict) else told
    if check and not sure:
        problem, engine = signature.fit(tensors), signature.engine
        status = engine.look_again(problem, signature.pieces, factor, status, rcond, weakest)
    return y, status, rcond, weakest


def _differentiable(
    problem: Problem, engine: Backend, tensors: Tensors, gy: Tensor, wanted: list[bool]
) -> list[Tensor | None]:
    """Gradients with a graph of their own, through operators that keep no factor either."""
    leaves = [x for x, w in zip(tensors, wanted, strict=True) if w]
    y = ops.solve(*problem, engine.name, 1, 0, False, (problem.y_shape[0],))[0]
    found = iter(torch.autograd.grad(y, leaves, gy, create_graph=True, materialize_grads=True))
    return [next(found) if w else None for w in wanted]


def solve_forgetfully(
    signature: Signature, tensors: Tensors, rest: Any, *, check: bool
) -> tuple[Tensor, list[Tensor]]:
    """`y`; status, rcond and weakest; and no factor that outlives the call.

    Args:
        signature: Of the whole batch.
        tensors: See there. `c, d, u, s` lie in memory as the signature says.
        rest: What the signature is remembered by, besides the tensors; `None` for all seven.
        check: Raise if a sample has no unique finite solution.
    """
    batch, engine = signature.batch, signature.engine
    aside: list[Tensor] = []
    if rest is None and not may_be_quick(tensors):
        how = engine.name, signature.pieces, 0, check, batch
        y, _, *aside = ops.solve(*signature.problem, *how)
        return y, aside
    problem, known = signature.problem, None if rest is None else signature
    size = _size(problem, engine)
    call = _Call(engine, problem.scheme, problem.y_shape, batch, known, rest, size)
    y = _Forgetful.apply(*tensors, call, check, aside)
    if check:
        status, rcond, weakest = aside
        raise_if_failed(call.problem(tensors), status, rcond, weakest, batch)
    return y, aside
