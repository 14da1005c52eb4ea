r"""The solver as three PyTorch operators, differentiable to any order.

`smnn::solve` gives $y$. Its backward is $\lambda = M^{-1}\,\partial\ell/\partial y$
(`smnn::adjoint`, two substitutions with the kept factor) followed by
$-\partial J/\partial\theta$ (`smnn::row_gradients`, see `rows.py`). The backward of
`smnn::adjoint` is again an adjoint solve and a row gradient with $b = 0$, because
$\lambda^\top M \mu = J(\theta; \mu, \lambda)$ for $b = 0$; the backward of `smnn::row_gradients` is
plain tensor arithmetic. In forward mode, $M\,dy = dr$ with the residual $r$ of the normal equations
at fixed $y$. All state is in the arguments: nothing is kept between calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from smnn._solver.diagnostics import final_status, raise_if_failed
from smnn._solver.plan import backend_named
from smnn._solver.problem import Problem
from smnn._solver.rows import residual_tangent, row_gradients, row_gradients_tangent
from smnn._solver.tracing import in_forward_mode, transforms_active

Seven = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


@torch.library.custom_op("smnn::solve", mutates_args=())
def solve_op(
    c: Tensor, d: Tensor, u: Tensor, s: Tensor, w_gov: Tensor, w_init: Tensor, w_smooth: Tensor,
    scheme: str, backend: str, pieces: int, size: int, check: bool, batch: Sequence[int],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """`y`, the factor, `status`, `rcond` and `weakest` per sample.

    `size` is the length of the factor, 0 if it is not to be kept. It is an argument, though it
    follows from the others, so that a compiled graph kept on disk cannot outlive a change of
    layout.
    """
    problem = Problem(c, d, u, s, w_gov, w_init, w_smooth, scheme)
    plan = backend_named(backend).plan(problem, pieces)
    y, factor, diagnostics = plan.solve()
    status, rcond, weakest = diagnostics.tensors()
    if check:
        status = final_status(plan, problem, factor, status, rcond, weakest)
        raise_if_failed(problem, status, rcond, weakest, tuple(batch))
    return y, factor if size else factor.new_empty(0), status, rcond, weakest


@solve_op.register_fake
def _(c, d, u, s, w_gov, w_init, w_smooth, scheme, backend, pieces, size, check, batch):  # type: ignore[no-untyped-def]
    problem = Problem(c, d, u, s, w_gov, w_init, w_smooth, scheme)
    B = c.shape[0]
    index = c.new_empty(B, dtype=torch.int64)
    y = c.new_empty(problem.y_shape)
    return y, c.new_empty(size), index, c.new_empty(B), torch.empty_like(index)


@torch.library.custom_op("smnn::adjoint", mutates_args=())
def adjoint_op(
    g: Tensor, factor: Tensor, c: Tensor, s: Tensor, w_gov: Tensor, w_init: Tensor,
    w_smooth: Tensor, scheme: str, backend: str, pieces: int,
) -> Tensor:  # fmt: skip
    """Solve `M x = g`. An empty factor is computed again."""
    problem = _homogeneous(c, s, w_gov, w_init, w_smooth, scheme)
    plan = backend_named(backend).plan(problem, pieces)
    if factor.numel() == 0:
        factor = plan.solve().factor
    return plan.adjoint(factor.contiguous(), g)


@adjoint_op.register_fake
def _(g, factor, c, s, w_gov, w_init, w_smooth, scheme, backend, pieces):  # type: ignore[no-untyped-def]
    return torch.empty_like(g, memory_format=torch.contiguous_format)


@torch.library.custom_op("smnn::row_gradients", mutates_args=())
def row_gradients_op(
    lam: Tensor, y: Tensor, c: Tensor, d: Tensor, u: Tensor, s: Tensor, w_gov: Tensor,
    w_init: Tensor, w_smooth: Tensor, scheme: str, backend: str, wanted: Sequence[bool],
) -> Seven:  # fmt: skip
    """`-dJ` by `c, d, u, s` and the weights; empty where not requested."""
    problem = Problem(c, d, u, s, w_gov, w_init, w_smooth, scheme)
    out = backend_named(backend).row_gradients(problem, lam, y, list(wanted))
    # Outputs must not share memory, not even empty ones.
    fresh = (
        c.new_empty((0,) * x.ndim) if g is None else g.contiguous()
        for x, g in zip(problem.tensors, out, strict=True)
    )  # fmt: skip
    return tuple(fresh)  # type: ignore[return-value]


@row_gradients_op.register_fake
def _(lam, y, c, d, u, s, w_gov, w_init, w_smooth, scheme, backend, wanted):  # type: ignore[no-untyped-def]
    tensors = (c, d, u, s, w_gov, w_init, w_smooth)
    shapes = [x.shape if w else (0,) * x.ndim for x, w in zip(tensors, wanted, strict=True)]
    return tuple(lam.new_empty(shape) for shape in shapes)


def _homogeneous(
    c: Tensor, s: Tensor, w_gov: Tensor, w_init: Tensor, w_smooth: Tensor, scheme: str
) -> Problem:
    """The same left-hand side with `d = 0` and `u = 0`."""
    zero = c.new_zeros(())
    d, u = zero.expand(w_gov.shape), zero.expand(w_init.shape)
    return Problem(c, d, u, s, w_gov, w_init, w_smooth, scheme)


# ---------------------------------------------------------------- derivatives


def _save_solve(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:7], output[0], output[1])
    ctx.save_for_forward(*inputs[:7], output[0], output[1])
    ctx.scheme, ctx.backend, ctx.pieces = inputs[7:10]
    ctx.mark_non_differentiable(*output[1:])


def differentiable_backward(
    gy: Tensor, y: Tensor, factor: Tensor, problem: Problem, backend: str, pieces: int,
    wanted: list[bool],
) -> Seven:  # fmt: skip
    """Gradients by every tensor of the problem, through operators that have derivatives."""
    c, _, _, s, w_gov, w_init, w_smooth, scheme = problem
    lam = adjoint(gy, factor, c, s, w_gov, w_init, w_smooth, scheme, backend, pieces)
    return row_gradients_of(lam, y, *problem, backend, wanted)


def _solve_backward(ctx: Any, gy: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    *tensors, y, factor = ctx.saved_tensors
    wanted = list(ctx.needs_input_grad[:7])
    if gy is None or not any(wanted):
        return (None,) * 13
    problem = Problem.of(tensors, ctx.scheme)
    grads = differentiable_backward(gy, y, factor, problem, ctx.backend, ctx.pieces, wanted)
    failed = y[:, 0].flatten(1).isnan().any(1)
    found = [without(failed, g) if w else None for g, w in zip(grads, wanted, strict=True)]
    return (*found, *(None,) * 6)


def without(failed: Tensor, g: Tensor) -> Tensor:
    """Set the gradients of failed samples to zero.

    They are NaN, and would make the gradient of everything that samples share NaN.
    """
    mask = failed.view(-1, *(1,) * (g.ndim - 1)) if len(failed) == len(g) else None
    if mask is None:  # several batch axes
        return torch.where(failed.unsqueeze(1), 0.0, g.reshape(len(failed), -1)).view(g.shape)
    return torch.where(mask, 0.0, g)


def _chosen(grads: Sequence[Tensor], wanted: Sequence[bool]) -> list[Tensor | None]:
    return [g if w else None for g, w in zip(grads, wanted, strict=True)]


def _save_adjoint(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[1:7], output)
    ctx.save_for_forward(*inputs[1:7], output)
    ctx.scheme, ctx.backend, ctx.pieces = inputs[7:]


def _adjoint_backward(ctx: Any, v: Tensor) -> tuple[Tensor | None, ...]:
    factor, c, s, w_gov, w_init, w_smooth, lam = ctx.saved_tensors
    mu = adjoint(v, factor, c, s, w_gov, w_init, w_smooth, ctx.scheme, ctx.backend, ctx.pieces)
    need = ctx.needs_input_grad
    wanted = [need[2], False, False, need[3], need[4], need[5], need[6]]
    if not any(wanted):
        return (mu, *(None,) * 9)
    problem = _homogeneous(c, s, w_gov, w_init, w_smooth, ctx.scheme)
    grads = _chosen(row_gradients_of(mu, lam, *problem, ctx.backend, wanted), wanted)
    return (mu, None, grads[0], *grads[3:], None, None, None)


def _save_row_gradients(ctx: Any, inputs: tuple[Any, ...], output: Seven) -> None:
    ctx.save_for_backward(*inputs[:9])
    ctx.save_for_forward(*inputs[:9])
    ctx.scheme, ctx.wanted = inputs[9], inputs[11]


def _row_gradients_backward(ctx: Any, *v: Tensor | None) -> tuple[Tensor | None, ...]:
    """Plain tensor arithmetic, so its transpose is left to `torch.func`."""
    wanted = [i for i, (g, w) in enumerate(zip(v, ctx.wanted, strict=True)) if w and g is not None]

    def chosen(lam: Tensor, y: Tensor, *theta: Tensor) -> tuple[Tensor, ...]:
        every = row_gradients(Problem.of(theta, ctx.scheme), lam, y)
        return tuple(every[i] for i in wanted)

    transpose = torch.func.vjp(chosen, *ctx.saved_tensors)[1]
    return (*transpose(tuple(v[i] for i in wanted)), None, None, None)


# ---------------------------------------------------------------- forward mode


def _solve_jvp(ctx: Any, *tangents: Any) -> tuple[Tensor | None, ...]:
    *tensors, y, factor = ctx.saved_tensors
    problem = Problem.of(tensors, ctx.scheme)
    change = residual_tangent(problem, tangents[:7], y)
    c, _, _, s, *weights, scheme = problem
    dy = adjoint(change, factor, c, s, *weights, scheme, ctx.backend, ctx.pieces)
    return dy, None, None, None, None


def _adjoint_jvp(ctx: Any, *tangents: Any) -> Tensor:
    """`M dx = dg - dM x`."""
    factor, c, s, w_gov, w_init, w_smooth, x = ctx.saved_tensors
    dg, _, dc, *rest = tangents[:7]
    problem = _homogeneous(c, s, w_gov, w_init, w_smooth, ctx.scheme)
    change = residual_tangent(problem, [dc, None, None, *rest], x)
    change = change if dg is None else change + dg
    left = c, s, w_gov, w_init, w_smooth, ctx.scheme
    return adjoint(change, factor, *left, ctx.backend, ctx.pieces)


def _row_gradients_jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, ...]:
    lam, y, *tensors = ctx.saved_tensors
    problem = Problem.of(tensors, ctx.scheme)
    found = iter(row_gradients_tangent(problem, lam, y, tangents[:9], ctx.wanted))
    none = [x.new_empty((0,) * x.ndim) for x in tensors]
    return tuple(next(found) if w else x for x, w in zip(none, ctx.wanted, strict=True))


def forward_mode() -> bool:
    """Whether tangents may come along with the tensors: in a level of `torch.autograd.forward_ad`.

    Raises:
        NotImplementedError: Forward mode inside forward mode, which PyTorch gets wrong.
    """
    if not (in_forward_mode() and torch._C._is_fwd_grad_enabled()):
        return False
    stack = torch._C._functorch.get_interpreter_stack() or []
    if sum(x.key() == torch._C._functorch.TransformType.Jvp for x in stack) > 1:
        raise NotImplementedError(
            "smnn has no forward mode inside forward mode; for second derivatives use "
            "torch.func.hessian, which is jacfwd(jacrev(...)), or jacrev(jacfwd(...))."
        )
    return True


# ---------------------------------------------------------------- vmap: one more batch axis


def _merge(x: Tensor, dim: int | None, size: int) -> Tensor:
    """Move the mapped axis to the front and merge it with the batch."""
    x = x.unsqueeze(0).expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
    return x.flatten(0, 1)


def _split(x: Tensor, size: int) -> Tensor:
    return x.unflatten(0, (size, x.shape[0] // size))


def _merge_all(tensors: Sequence[Any], dims: Sequence[int | None], size: int) -> list[Tensor]:
    return [_merge(x, dim, size) for x, dim in zip(tensors, dims, strict=True)]


def _vmap_solve(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
    N = info.batch_size
    tensors = _merge_all(args[:7], in_dims[:7], N)
    scheme, backend, pieces, _, check, batch = args[7:]
    y, factor, *rest = solve(*tensors, scheme, backend, pieces, 0, check, [N, *batch])
    return (_split(y, N), factor, *(_split(x, N) for x in rest)), (0, None, 0, 0, 0)


def _vmap_adjoint(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
    N = info.batch_size
    g = _merge(args[0], in_dims[0], N)
    tensors = _merge_all(args[2:7], in_dims[2:7], N)
    return _split(adjoint(g, g.new_empty(0), *tensors, *args[7:]), N), 0


def _vmap_row_gradients(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
    N = info.batch_size
    out = row_gradients_of(*_merge_all(args[:9], in_dims[:9], N), *args[9:])
    wanted = args[11]
    parts = tuple(_split(x, N) if w else x for x, w in zip(out, wanted, strict=True))
    return parts, tuple(0 if w else None for w in wanted)


# ---------------------------------------------------------------- registration


def _differentiable(
    op: Any, save: Callable[..., None], backward: Callable[..., Any], jvp: Callable[..., Any],
    vmap: Callable[..., Any],
) -> Callable[..., Any]:  # fmt: skip
    """An operator with its derivative, for `torch.compile` and for `torch.func` alike.

    The derivative that an operator registers serves ordinary autograd and `torch.compile`, but not
    the transforms of `torch.func` nor forward mode; for those the same functions go into an
    `autograd.Function`.
    """

    def forward(*args: Any) -> Any:
        return call(*args)  # one transform fewer is active here

    rules = {
        "forward": staticmethod(forward),
        "setup_context": staticmethod(save),
        "backward": staticmethod(backward),
        "jvp": staticmethod(jvp),
        "vmap": staticmethod(vmap),
    }
    function: Any = type("Transformed", (torch.autograd.Function,), rules)

    def call(*args: Any) -> Any:
        if torch.compiler.is_compiling():
            return op(*args)
        if forward_mode() or transforms_active():
            return function.apply(*args)
        return op(*args)

    op.register_autograd(backward, setup_context=save)
    return call


solve = _differentiable(solve_op, _save_solve, _solve_backward, _solve_jvp, _vmap_solve)
adjoint = _differentiable(adjoint_op, _save_adjoint, _adjoint_backward, _adjoint_jvp, _vmap_adjoint)
row_gradients_of = _differentiable(
    row_gradients_op,
    _save_row_gradients,
    _row_gradients_backward,
    _row_gradients_jvp,
    _vmap_row_gradients,
)
