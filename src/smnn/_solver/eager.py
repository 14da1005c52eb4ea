"""The short way through autograd for ordinary eager code.

A registered operator costs some 100 microseconds of bookkeeping per call, more than many solves.
Without `torch.compile`, `torch.func` or a dispatch mode, an `autograd.Function` around the backend
does the same; a backward that must itself be differentiable goes through the operators. And where
the weights are numbers, all that follows from the shapes is worked out once (`Signature`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from smnn._solver import ops
from smnn._solver.base import Backend
from smnn._solver.diagnostics import Verdict, raise_if_failed
from smnn._solver.gpu.mode import settled
from smnn._solver.gpu.native.extension import CHECKED
from smnn._solver.problem import Problem

Answer = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""`y`, factor, status, rcond, weakest."""


def _unwatched() -> bool:
    """Whether nothing follows the call that only a registered operator can satisfy."""
    return not (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch.is_inference_mode_enabled()
        or torch.autograd.forward_ad._current_level >= 0
    )


_ORDINARY = (Tensor, torch.nn.Parameter)


def _ordinary(tensors: tuple[Tensor, ...]) -> bool:
    """Whether the memory of each holds its values: no subclass, no view that means `-x`."""
    return not any(type(x) not in _ORDINARY or x.is_neg() for x in tensors)


class _Solve(torch.autograd.Function):
    """Forward and first derivative by the backend's own kernels."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Tensor, ...]:
        """`y`, factor, status, rcond, weakest."""
        *tensors, scheme, engine, pieces = args
        solved = engine.solve(Problem.of(tensors, scheme), pieces)
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
        problem = Problem.of(tensors, ctx.scheme)
        if torch.is_grad_enabled():
            grads = ops.differentiable_backward(
                gy, y, factor, problem, ctx.engine.name, ctx.pieces, wanted
            )
        else:
            grads = ctx.engine.gradients(problem, factor, y, gy, ctx.pieces, wanted)
        return (*(g if w else None for g, w in zip(grads, wanted, strict=True)), None, None, None)


Told = list[Tensor] | Verdict
"""Status, `rcond` and `weakest`; or the same with less effort."""


class Signature(NamedTuple):
    """All that a call derives from shapes and numbers, for tensors like the ones it was made of."""

    problem: Problem
    """With the first caller's weights, which are constants; `c, d, u, s` only lend their layout."""
    batch: tuple[int, ...]
    engine: Backend
    pieces: int
    prepared: Any = None
    direct: list[Any] | None = None
    """Room for what `native` gives, if the backend can make that."""
    ready: Callable[[], bool] | None = None
    """Whether it can be made now, if that is known beforehand."""
    brief: Callable[..., tuple[Tensor, Tensor, Verdict]] | None = None
    """`solve` with a verdict, if the backend has that."""
    kept: Sequence[tuple[tuple[int, ...], torch.dtype, torch.device]] = ()
    """Stride, dtype and device of what is saved for the derivative."""
    summed: bool = True
    """Whether gradients may still be in the form of the broadcast tensors."""

    def solve(self, c: Tensor, d: Tensor, u: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Told]:
        """By the shortest way the backend has: `y`, factor, and what is told of them."""
        if self.brief is not None:
            return self.brief(c, d, u, s)
        if self.prepared is not None:
            solved = self.prepared.solve(c, d, u, s)
        else:
            solved = self.engine.solve(self.fit((c, d, u, s)), self.pieces)
        return solved.y, solved.factor, [solved.status, solved.rcond, solved.weakest]

    def native(self, tensors: tuple[Tensor, ...]) -> Any:
        """`solve`, followed by autograd, without Python; where the backend has that ready."""
        if self.direct is None:
            return None
        if not self.direct:
            if self.ready is not None and not self.ready():
                return None
            hand_over = _differentiable if self.brief is None else _derivative
            # What is made refers to a copy without `direct`: no circle through C++.
            made = self.prepared.native(tensors, self._replace(direct=None), hand_over)
            if made is None:
                return None
            self.direct.append(made)
        return self.direct[0]

    def out_of_memory(self, device: torch.device) -> Exception:
        """A lack of memory in C++, explained as the backend does."""
        engine: Any = self.engine
        return engine.out_of_memory(self.problem, self.pieces, device)

    def gradients(
        self, tensors: list[Tensor], y: Tensor, factor: Tensor, gy: Tensor, wanted: Sequence[bool],
        into: Sequence[Tensor | None] | None = None,
    ) -> list[Tensor | None]:  # fmt: skip
        """By the four tensors, in their broadcast form if that is larger.

        And, if `wanted` goes on, by the weights. `into` is contiguous memory that may be used.
        """
        if self.prepared is not None:
            return self.prepared.gradients(tensors, y, factor, gy, wanted, into)
        problem = self.fit(tuple(tensors))
        every = [*wanted, *[False] * (7 - len(wanted))]
        found = self.engine.gradients(problem, factor, y, gy, self.pieces, every)
        return [g if w else None for g, w in zip(found, wanted, strict=False)]

    def fit(self, tensors: tuple[Tensor, ...]) -> Problem:
        """The problem of other tensors of the same layout."""
        views = [
            x if x.shape == like.shape else x.as_strided(like.shape, like.stride())
            for x, like in zip(tensors, self.problem.tensors[:4], strict=True)
        ]
        return Problem.of([*views, *self.problem.tensors[4:]], self.problem.scheme)


class _Quick(torch.autograd.Function):
    """As `_Solve`, from the caller's own `c, d, u, s` on; gives `y`, and tells the rest aside."""

    @staticmethod
    def forward(
        ctx: Any, c: Tensor, d: Tensor, u: Tensor, s: Tensor, signature: Signature, aside: list[Any]
    ) -> Tensor:
        """`y`; `aside` receives the factor, and what is told of it."""
        y, factor, told = signature.solve(c, d, u, s)
        aside += factor, told
        ctx.save_for_backward(c, d, u, s, y, factor)
        ctx.signature = signature
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    def backward(ctx: Any, gy: Tensor | None) -> tuple[Tensor | None, ...]:
        """Adjoint solve, then a gradient per row, summed where the tensor was broadcast."""
        *wanted, _, _ = ctx.needs_input_grad
        if gy is None or True not in wanted:
            return (None,) * 6
        return (*_derivative(ctx.signature, ctx.saved_tensors, gy, wanted), None, None)


_quickly: Callable[..., Tensor] = super(torch.autograd.Function, _Quick).apply
"""`_Quick.apply` without the search for `torch.func`, which `_unwatched` has seen to."""


def _derivative(
    signature: Signature, saved: Sequence[Tensor], gy: Tensor, wanted: Sequence[bool]
) -> list[Tensor | None]:
    """Gradients by `c, d, u, s`, from these, `y` and the factor as autograd gives them back."""
    if [(x.stride(), x.dtype, x.device) for x in saved] != signature.kept:
        saved = [laid_out(x, *kept) for x, kept in zip(saved, signature.kept, strict=True)]
    *tensors, y, factor = saved
    if torch.is_grad_enabled():
        return _differentiable(signature, tensors, gy, wanted)
    grads = signature.gradients(tensors, y, factor, gy, wanted)
    if not signature.summed:
        return grads
    return [
        None if g is None else summed(g, x, signature.batch)
        for g, x in zip(grads, tensors, strict=True)
    ]


def laid_out(
    x: Tensor, stride: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> Tensor:
    """The same values where kernels look for them: hooks may give a saved tensor back repacked."""
    if x.dtype != dtype or x.device != device:
        raise RuntimeError(
            f"saved tensor: got {x.dtype} on {x.device}; expected {dtype} on {device}. "
            "If a hook unpacks saved tensors, it has to give them back as they were."
        )
    if x.stride() == stride:
        return x
    small = x
    for i, step in enumerate(stride):
        if step == 0 and x.shape[i] > 1:
            small = small.narrow(i, 0, 1)
    out = torch.empty_strided(small.shape, stride, dtype=dtype, device=device).copy_(small)
    return out.as_strided(x.shape, stride)


def summed(g: Tensor, x: Tensor, batch: tuple[int, ...]) -> Tensor:
    """The gradient by `x`, from that by its broadcast form with one batch axis."""
    if g.shape == x.shape:
        return g
    if g.numel() == x.numel():
        return g.view(x.shape)
    full = batch + g.shape[1:]
    own = x.shape if x.ndim == len(full) else (*x.shape, 1)  # one step for all variables
    return g.view(full).sum_to_size(own).view(x.shape)


def _differentiable(
    signature: Signature, tensors: list[Tensor], gy: Tensor, wanted: Sequence[bool]
) -> list[Tensor | None]:
    """The same gradients with a graph of their own: solve again, through the operators."""
    leaves = [x for x, w in zip(tensors, wanted, strict=True) if w]
    problem = signature.fit(tuple(tensors))
    engine, pieces = signature.engine, signature.pieces
    size = engine.factor_size(problem, pieces)
    y = ops.solve(*problem, engine.name, pieces, size, False, signature.batch)[0]
    found = iter(torch.autograd.grad(y, leaves, gy, create_graph=True, materialize_grads=True))
    return [next(found) if w else None for w in wanted]


def _numbers(weights: Any) -> bool:
    w_gov, w_init, w_smooth = weights
    return isinstance(w_gov, float) and isinstance(w_init, float) and isinstance(w_smooth, float)


def layout_of(tensors: tuple[Tensor, ...], rest: Any) -> Any:
    """What a signature is remembered by; `None` for a call that cannot use one.

    Args:
        tensors: `c, d, u, s`.
        rest: All other options, the three weights first.
    """
    if not _numbers(rest[0]) or not _unwatched():
        return None
    layout = []
    for x in tensors:
        if type(x) not in _ORDINARY or x.dtype is not torch.float64 or x.is_neg():
            return None
        layout.append((x.shape, x.stride(), x.device))
    return tuple(layout), rest, torch.get_num_threads()


_signatures: OrderedDict[Any, Signature] = OrderedDict()
"""The layouts seen last. Holds constants and views of nothing: no tensor of a caller."""


def remembered(key: Any) -> Signature | None:
    """The signature of an earlier call like this one."""
    return _signatures.get(key)


def remember(key: Any, tensors: tuple[Tensor, ...], signature: Signature) -> None:
    """Keep a signature if the problem is made of the caller's tensors as they lie in memory.

    Not while a graph is captured: its weights have no values before that is replayed.
    """
    problem = signature.problem
    if not settled(problem.c.device):
        return
    views = zip(tensors, problem.tensors[:4], strict=True)
    if any(x.data_ptr() != y.data_ptr() for x, y in views) or not problem.c.numel():
        return
    layout = [
        torch.empty(0, device="meta").as_strided(x.shape, x.stride()) for x in problem.tensors[:4]
    ]
    kept = Problem.of([*layout, *problem.tensors[4:]], problem.scheme)
    prepared = signature.engine.prepare(kept, signature.pieces)
    y_stride = torch.empty(kept.y_shape, device="meta").stride()
    strides = [*(x.stride() for x in tensors), y_stride, (1,)]
    _signatures[key] = signature._replace(
        problem=kept,
        prepared=prepared,
        direct=[] if hasattr(prepared, "native") else None,
        ready=getattr(prepared, "native_ready", None),
        brief=getattr(prepared, "brief", None),
        kept=[(stride, problem.c.dtype, problem.c.device) for stride in strides],
        summed=not hasattr(prepared, "brief")
        or any(x.numel() != y.numel() for x, y in zip(tensors, layout, strict=True)),
    )
    if len(_signatures) > 512:
        _signatures.popitem(last=False)


def _check(
    problem: Problem, batch: tuple[int, ...], engine: Backend, pieces: int, out: Answer
) -> None:
    _, factor, status, rcond, weakest = out
    status = engine.look_again(problem, pieces, factor, status, rcond, weakest)
    raise_if_failed(problem, status, rcond, weakest, batch)


def solve_like(signature: Signature, tensors: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Told]:
    """Solve for tensors of a remembered layout: `y`, factor, and what is told of them."""
    if (native := signature.native(tensors)) is not None:
        try:
            y, factor, *told = native(*tensors)
        except torch.OutOfMemoryError as error:
            raise signature.out_of_memory(tensors[0].device) from error
        return y, factor, told if signature.brief is None else told[0]
    if torch.is_grad_enabled() and True in [x.requires_grad for x in tensors]:
        aside: list[Any] = []
        y = _quickly(*tensors, signature, aside)
        factor, told = aside
        return y, factor, told
    return signature.solve(*tensors)


def check_like(
    signature: Signature, tensors: tuple[Tensor, ...], y: Tensor, factor: Tensor, told: Told
) -> None:
    """Raise if a sample that `solve_like` solved has no unique finite solution."""
    if isinstance(told, Verdict) and told.fine:
        return
    status, rcond, weakest = told.tensors() if isinstance(told, Verdict) else told
    out = y, factor, status, rcond, weakest
    _check(signature.fit(tensors), signature.batch, signature.engine, signature.pieces, out)


_latest: dict[Any, Signature] = {}
"""By all that is no tensor: the signature of the last call that went without Python."""


def solve_like_latest(
    c: Tensor, d: Tensor, u: Tensor, s: Tensor, rest: Any, want: int
) -> tuple[Any, Signature] | None:
    """Solve as the last call with the same options did, if the tensors lie in memory alike.

    Returns:
        What `want` of `gpu/native/extension.py` says, and the signature. `CHECKED` only where a
        verdict comes with it; else to check is the longer part.
    """
    if not _numbers(rest[0]) or not _unwatched() or (signature := _latest.get(rest)) is None:
        return None
    if want == CHECKED and (signature.brief is None or rest[0][1] == 0):
        return None
    try:
        found = signature.direct[0](c, d, u, s, want)  # type: ignore[index]
    except torch.OutOfMemoryError as error:
        raise signature.out_of_memory(c.device) from error
    return None if found is None else (found, signature)


def remember_latest(rest: Any, signature: Signature) -> None:
    """Try this signature first next time, if it goes without Python."""
    if signature.direct:
        if len(_latest) > 64:
            _latest.clear()
        _latest[rest] = signature


def may_be_quick(tensors: tuple[Tensor, ...]) -> bool:
    """Whether a call on these tensors may use a remembered signature."""
    return _unwatched() and _ordinary(tensors)


def solve_problem(
    problem: Problem, batch: tuple[int, ...], engine: Backend, pieces: int, *, check: bool
) -> Answer:
    """Solve by whichever way the surroundings allow."""
    if not (_unwatched() and _ordinary(problem.tensors)):
        size = engine.factor_size(problem, pieces)
        return ops.solve(*problem, engine.name, pieces, size, check, batch)
    if torch.is_grad_enabled() and any(x.requires_grad for x in problem.tensors):
        out = _Solve.apply(*problem, engine, pieces)
    else:
        y, factor, rcond, weakest, status = engine.solve(problem, pieces)
        out = y, factor, status, rcond, weakest
    if check:
        _check(problem, batch, engine, pieces, out)
    return out
