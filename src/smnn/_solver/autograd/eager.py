"""Derivatives in eager mode: one `autograd.Function` around the plan of a backend.

A registered operator costs some 100 microseconds per call, more than many solves. So without
`torch.compile`, `torch.func` or a dispatch mode, this function is used instead of the operators of
`ops.py`. A backward pass that must itself be differentiable uses the operators.

With `keep_factor=False` only the inputs are saved. The factor, which takes most of the memory, is
computed again in the backward pass, for a part of the batch at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from smnn._solver.autograd import ops
from smnn._solver.diagnostics import OK, Diagnostics, final_status
from smnn._solver.plan import ORDINARY, Plan
from smnn._solver.problem import Solved
from smnn._solver.tracing import in_forward_mode, transforms_active, untraced

PART = 64 * 2**20
"""With `keep_factor=False`: bytes of factor in memory at a time, or half of those of the
solution if that is more; but the factors of at least as many samples as keep the device busy, or of
a quarter of the batch."""


def is_eager() -> bool:
    """Whether no transform or mode is active that requires registered operators."""
    return not (
        torch.compiler.is_compiling()
        or transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch.is_inference_mode_enabled()
        or in_forward_mode()
    )


def takes(tensors: Sequence[Tensor]) -> bool:
    """Whether `solve` can be used now for these tensors."""
    return is_eager() and not any(type(x) not in ORDINARY or x.is_neg() for x in tensors)


def solve(plan: Plan, tensors: Sequence[Tensor], *, keep_factor: bool, check: bool) -> Solved:
    """Solve, with a derivative if one is needed.

    Args:
        plan: Of the layout of the tensors.
        tensors: `c, d, u, s`; and the three weights if `plan` was made for this call only.
        keep_factor: Whether to save the factor for the derivative.
        check: Whether to examine doubtful samples, where that needs a factor that is not kept.
    """
    if keep_factor and (compiled := plan.compiled(_differentiable)) is not None:
        try:
            y, factor, *info = compiled(*tensors)
        except torch.OutOfMemoryError as error:
            raise plan.out_of_memory() or error from error
        return Solved(y, factor, Diagnostics(*info))
    if torch.is_grad_enabled() and True in [x.requires_grad for x in tensors]:
        out: list[Any] = []
        y = _Solve.apply(plan, keep_factor, check, out, *tensors)
        return Solved(y, *out)
    return plan.forward(tensors) if keep_factor else _solve_in_parts(plan, tensors, check)


class _Solve(torch.autograd.Function):
    """`y`, differentiable; factor and diagnostics are appended to a list."""

    @staticmethod
    def forward(
        ctx: Any, plan: Plan, keep_factor: bool, check: bool, out: list[Any], *tensors: Tensor
    ) -> Tensor:
        """Solve, and save what the derivative needs."""
        y, factor, diagnostics = (
            plan.forward(tensors) if keep_factor else _solve_in_parts(plan, tensors, check)
        )
        ctx.save_for_backward(*tensors, *((y, factor) if keep_factor else ()))
        ctx.plan = plan
        ctx.failed = None if diagnostics.fine else diagnostics.tensors()[0] != OK
        ctx.set_materialize_grads(False)
        out += factor, diagnostics
        return y

    @staticmethod
    @untraced
    def backward(ctx: Any, gy: Tensor | None) -> tuple[Tensor | None, ...]:
        """Adjoint solve, then a gradient per row, summed where a tensor was broadcast."""
        wanted = ctx.needs_input_grad[4:]
        if gy is None or True not in wanted:
            return (None,) * (4 + len(wanted))
        plan: Plan = ctx.plan
        saved: Sequence[Tensor] = ctx.saved_tensors
        layout = plan.saved_layout
        if [(x.stride(), x.dtype, x.device) for x in saved] != layout[: len(saved)]:
            saved = [_laid_out(x, *like) for x, like in zip(saved, layout, strict=False)]
        tensors, kept = saved[: len(wanted)], saved[len(wanted) :]
        if torch.is_grad_enabled() or not _in_memory(gy):
            return None, None, None, None, *_differentiable(plan, tensors, gy, wanted, bool(kept))
        if kept:
            grads = plan.gradients(tensors, kept[0], kept[1], gy, wanted)
        else:
            grads = _gradients_in_parts(plan, tensors, gy, wanted)
        if ctx.failed is not None:
            grads = [None if g is None else ops.without(ctx.failed, g) for g in grads]
        return (
            None, None, None, None,
            *[None if g is None else _summed(g, x, plan.batch) for g, x in zip(grads, tensors)],
        )  # fmt: skip


def _laid_out(
    x: Tensor, stride: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Restore the memory layout of a saved tensor: hooks may return it repacked."""
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


def _summed(g: Tensor, x: Tensor, batch: tuple[int, ...]) -> Tensor:
    """The gradient by `x`, from that by its broadcast form with one batch axis."""
    if g.shape == x.shape:
        return g
    if g.numel() == x.numel():
        return g.view(x.shape)
    full = batch + g.shape[1:]
    own = x.shape if x.ndim == len(full) else (*x.shape, 1)  # one step for all variables
    return g.view(full).sum_to_size(own).view(x.shape)


def _differentiable(
    plan: Plan, tensors: Sequence[Tensor], gy: Tensor, wanted: Sequence[bool], keep_factor: bool
) -> list[Tensor | None]:
    """Gradients by the operators, with a graph of their own if that is enabled: solve again."""
    leaves = [x for x, w in zip(tensors, wanted) if w]
    graph = torch.is_grad_enabled()
    with torch.enable_grad():
        problem = plan.fit(tensors)
        pieces = plan.pieces if keep_factor else 1
        size = plan.backend.factor_size(problem, pieces) if keep_factor else 0
        y = ops.solve(*problem, plan.backend.name, pieces, size, False, plan.batch)[0]
    found = iter(torch.autograd.grad(y, leaves, gy, create_graph=graph, materialize_grads=True))
    return [next(found) if w else None for w in wanted]


def _in_memory(g: Tensor) -> bool:
    """Whether a tensor holds values; in a vectorized Jacobian, it stands for many tensors."""
    try:
        g.data_ptr()
    except RuntimeError:
        return False
    return True


# ---------------------------------------------------------------- keep_factor=False


def part_size(plan: Plan) -> int:
    """Number of samples whose factors are in memory at a time."""
    problem, backend = plan.problem, plan.backend
    B = problem.y_shape[0]
    size, limit = B, max(PART, 4 * math.prod(problem.y_shape))
    least = max(1, min(backend.full_load(problem.block), -(-B // 4)))
    while size > least:  # fewer samples may be cut into more pieces, which keep more for each
        some = problem._replace(c=problem.c[:size])  # determines the sizes
        needed = 8 * backend.factor_size(some, backend.pieces_of(some))
        if needed <= limit:
            break
        size = max(least, min(size - 1, size * limit // needed))
    return max(size, 1)


def _parts(plan: Plan, tensors: Sequence[Tensor]) -> Iterator[tuple[slice, Plan, list[Tensor]]]:
    """Slices of the batch, the plan of each, and its `c, d, u, s`."""
    size, B = part_size(plan), plan.problem.y_shape[0]
    if size >= B:
        yield slice(0, B), plan, [*tensors[:4]]
        return
    problem = plan.fit(tensors[:4])
    for start in range(0, B, size):
        part = slice(start, min(start + size, B))
        own = problem.part(part)
        yield part, plan.backend.plan(own), [*own.tensors[:4]]


def _solve_in_parts(plan: Plan, tensors: Sequence[Tensor], check: bool) -> Solved:
    whole: Tensor | None = None
    every = []
    for part, own, views in _parts(plan, tensors):
        y, factor, diagnostics = own.forward(views)
        if check and not diagnostics.fine:
            info = diagnostics.tensors()
            status = final_status(own, own.fit(views), factor, *info)
            diagnostics = Diagnostics(status, info[1], info[2])
        if own is plan:
            return Solved(y, y.new_empty(0), diagnostics)
        if whole is None:
            whole = y.new_empty(plan.problem.y_shape)
        whole[part] = y
        every.append(diagnostics.tensors())
        del y, factor  # free memory before the next part
    assert whole is not None
    status, rcond, weakest = (torch.cat(x) for x in zip(*every))
    return Solved(whole, whole.new_empty(0), Diagnostics(status, rcond, weakest))


def _gradients_in_parts(
    plan: Plan, tensors: Sequence[Tensor], gy: Tensor, wanted: Sequence[bool]
) -> list[Tensor | None]:
    grads: list[Tensor | None] = [None] * len(wanted)
    for part, own, views in _parts(plan, tensors):
        y, factor, _ = own.solve(views)
        if own is plan:
            return own.gradients(views, y, factor, gy, wanted)
        if part.start == 0:
            like = zip(plan.problem.tensors, wanted)
            grads = [y.new_empty(x.shape) if w else None for x, w in like]
        into = [None if g is None else g[part] for g in grads]
        found = own.gradients(views, y, factor, gy[part], wanted, into)
        del y, factor  # free memory before the next part
        for here, g in zip(into, found):
            if here is not None and g is not None and g is not here:
                here.copy_(g.reshape(here.shape))
    return grads
