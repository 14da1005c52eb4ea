"""The public functions: validate, find a plan, solve, check."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from smnn._solver.autograd import eager, ops
from smnn._solver.cpu.backend import CpuBackend
from smnn._solver.cyclic import TorchBackend
from smnn._solver.derivatives import derivatives, differentiated_right, pose
from smnn._solver.diagnostics import (
    Diagnostics,
    SolveInfo,
    condition_of,
    final_status,
    raise_if_failed,
    refuse_ill_conditioned,
    with_condition,
)
from smnn._solver.gpu.backend import GpuBackend
from smnn._solver.plan import Backend, Plan, choose_backend, plan_for, register
from smnn._solver.problem import HERMITE, Problem, Weight, fit, make_problem, require_tensors
from smnn._solver.reference import ReferenceBackend
from smnn._solver.rows import (
    central_rows,
    governing,
    initial,
    normal_residual,
    smoothness_rows,
    smoothness_top,
)
from smnn.errors import mismatch

for _backend in (CpuBackend(), GpuBackend(), TorchBackend(), ReferenceBackend()):
    register(_backend)


class Residuals(NamedTuple):
    """Root mean square of the unweighted rows of each kind, `(*B)` each."""

    governing: Tensor
    """How well the equations hold."""
    initial: Tensor
    """How well the initial values hold."""
    smoothness: Tensor
    """How well each derivative is the derivative of the order below (rows scaled by `s^r`)."""


def solve(
    c: Tensor,
    d: Tensor,
    u: Tensor,
    s: Tensor,
    *,
    w_gov: Weight = 1.0,
    w_init: Weight = 1.0,
    w_smooth: Weight = 1.0,
    order: int | None = None,
    scheme: str = "smnn",
    n_steps: int | None = None,
    backend: str = "auto",
    check: bool = True,
    keep_factor: bool = True,
) -> Tensor:
    r"""Solve a batch of linear ODEs in time and memory linear in `T`.

    Returns the exact minimiser of the weighted squares of the governing rows
    $\sum_{vr} c_{tqvr}\, y_{tvr} = d_{tq}$, the initial rows $y_{tvr} = u_{tvr}$, and the
    smoothness rows, which tie the derivatives at neighbouring times by their Taylor expansions.
    Differentiable in every tensor, any number of times.

    Args:
        c: `(*B, T, Q, V, R+1)` coefficients. Time size 1 means constant in time.
        d: `(*B, T, Q)` right-hand side.
        u: `(*B, T_init, V, R_init+1)` initial values on the first `T_init` times, for the orders
            `0..R_init`. May be empty.
        s: `(*B, T-1)` steps, or `(*B, T-1, V)` for a grid per variable. Positive.
        w_gov: Weight of the governing rows: a number, or a tensor that broadcasts against
            `(*B, T, Q)`. Zero removes a row. Weights enter squared.
        w_init: Weight of the initial rows, `(*B, T_init, V, R_init+1)`.
        w_smooth: Weight of the smoothness rows, `(*B, T-1, V, R+1)`; with `scheme="central"` the
            entry `[t, v, R]` belongs to the central row around time `t + 1`, and with
            `"hermite/p"` those from order `p` on have no row.
        order: Carry derivatives up to this order, beyond what `c` has. The error falls steeply
            with it.
        scheme: How neighbouring times are linked: `"smnn"` by the Taylor rows of the paper,
            `"central"` with central differences at the top order, `"iwp"` by the integrated Wiener
            process, `"hermite"` by Padé rows of order `2R` together with time derivatives of the
            equations, `"hermite-l"` by those that damp stiff components; `"auto"` takes
            `"hermite"` if `c` and `d` are constant in time, with an equation for each variable,
            and else `"iwp"`. The derivatives of `c` and `d` are finite differences on the grid;
            `"hermite/p"` does not differentiate, if the rows of `c` contain all derivatives of
            equations of order `p`.
        n_steps: Number of times `T`, needed when `c`, `d` and `s` are all constant in time.
        backend: `"auto"` or a name in `available_backends()`.
        check: Raise if a sample has no unique finite solution. On a GPU this waits for the
            device; use `solve_ex` to avoid it. If there are fewer initial values than derivatives
            in the equations, the condition number is checked too, which takes a few times as
            long as the solution.
        keep_factor: Keep the factor for the derivative. `False` recomputes it in the backward
            pass, for a part of the batch at a time: less memory, more time.

    Returns:
        `y (*B, T, V, R+1)`: the trajectories with their derivatives.

    Raises:
        ShapeError: An argument has the wrong shape; the message gives actual and expected shape.
        SolveError: A sample is singular or not finite; names it and the likely cause.
        BackendError: The backend cannot be used.

    Examples:
        $y' + y = 0,\ y(0) = 1$ on $[0, 1]$, carrying four derivatives:

        >>> import smnn, torch
        >>> c = torch.tensor([1.0, 1.0], dtype=torch.float64).view(1, 1, 1, 2)
        >>> d, u = c.new_zeros(1, 1), c.new_ones(1, 1, 1)
        >>> y = smnn.solve(c, d, u, c.new_full((100,), 0.01), order=4)
        >>> f"{y[-1, 0, 0]:.12f}"
        '0.367879441106'
    """
    tensors, options = _posed(
        (c, d, u, s), order, Options(w_gov, w_init, w_smooth, scheme, n_steps, backend, keep_factor)
    )
    y = _solve(tensors, options, check=check).y
    return y if y.dtype == c.dtype else y.to(c.dtype)


def solve_ex(
    c: Tensor,
    d: Tensor,
    u: Tensor,
    s: Tensor,
    *,
    w_gov: Weight = 1.0,
    w_init: Weight = 1.0,
    w_smooth: Weight = 1.0,
    order: int | None = None,
    scheme: str = "smnn",
    n_steps: int | None = None,
    backend: str = "auto",
    condition: bool = False,
    keep_factor: bool = True,
) -> tuple[Tensor, SolveInfo]:
    """Like `solve`, but returns diagnostics instead of raising, and does not synchronize.

    Failed samples are NaN in `y` and have a non-zero `info.status`; the others are not affected.
    Arguments are those of `solve`, except that `check` is replaced by `condition`: estimate the
    condition number of each sample for `info.condition`, and count one above 1e15 as singular. This
    takes about ten times as long as the solution.
    """
    tensors, options = _posed(
        (c, d, u, s), order, Options(w_gov, w_init, w_smooth, scheme, n_steps, backend, keep_factor)
    )
    found = _solve(tensors, options, condition=condition)
    return found.y.to(c.dtype), SolveInfo(*(_with_batch(x, found.batch) for x in found.info()))


class Options(NamedTuple):
    """Options of a call besides its tensors."""

    w_gov: Weight = 1.0
    w_init: Weight = 1.0
    w_smooth: Weight = 1.0
    scheme: str = "smnn"
    n_steps: int | None = None
    backend: str = "auto"
    keep_factor: bool = True


def _posed(
    tensors: Sequence[Tensor], order: int | None, options: Options
) -> tuple[Sequence[Tensor], Options]:
    """`c, d, u, s` and options with the order raised, and the rows that the scheme adds.

    Derivatives of coefficients are computed in float64, of tensors that have the same dtype.
    """
    c, d, u, s = tensors
    if options.scheme in HERMITE:
        require_tensors({"c": c, "d": d, "u": u, "s": s})
        if c.dtype != torch.float64:
            w_gov, w_init, w_smooth = (
                w.double() if isinstance(w, Tensor) and w.dtype == c.dtype else w
                for w in options[:3]
            )
            options = options._replace(w_gov=w_gov, w_init=w_init, w_smooth=w_smooth)
            c, d, u, s = (x.double() for x in tensors)
    c, d, w_gov, scheme = pose(c, d, s, options.w_gov, order, options.scheme)
    return (c, d, u, s), options._replace(w_gov=w_gov, scheme=scheme)


class _Solution(NamedTuple):
    """Result of a call: `y` with the caller's batch axes, the rest with one batch axis."""

    y: Tensor
    factor: Tensor
    diagnostics: Diagnostics
    condition: Tensor | None
    batch: tuple[int, ...]

    def info(self) -> list[Tensor]:
        found = self.diagnostics.tensors()
        return found if self.condition is None else [*found, self.condition]


def _solve(
    tensors: Sequence[Tensor], options: Options, *, check: bool = False, condition: bool = False
) -> _Solution:
    """Solve with the plan of this layout, or by operators where a transform requires them."""
    plan, dtype = None, None
    if isinstance(tensors[0], Tensor):
        dtype, check = tensors[0].dtype, check and not tensors[0].is_meta  # no values to check
    w_gov, w_init, w_smooth, scheme, n_steps, backend, keep_factor = options
    if eager.is_eager():
        plan = plan_for(tensors, (w_gov, w_init, w_smooth), scheme, n_steps, backend)
    if plan is None:
        problem, batch = make_problem(
            *tensors, w_gov=w_gov, w_init=w_init, w_smooth=w_smooth, scheme=scheme, n_steps=n_steps
        )
        engine = choose_backend(backend, problem.c.device, problem.block, scheme)
        if not eager.takes(problem.tensors):
            solution = _solve_by_operators(problem, batch, engine, keep_factor, check, condition)
            return solution._replace(y=solution.y.to(dtype))
        plan, tensors = engine.plan(problem), problem.tensors
        plan.batch = batch
    y, factor, found = eager.solve(plan, tensors, keep_factor=keep_factor, check=check)
    estimate = None
    if check:
        _raise_if_failed(plan, tensors, factor if keep_factor else None, found)
    if condition or (check and not _has_initial_values(found, tensors, w_init, scheme)):
        y, found, estimate = _examine(plan, tensors, y, factor, found, condition)
    return _Solution(_with_batch(y, plan.batch).to(dtype), factor, found, estimate, plan.batch)


def _solve_by_operators(
    problem: Problem, batch: tuple[int, ...], engine: Backend, keep_factor: bool, check: bool,
    condition: bool,
) -> _Solution:  # fmt: skip
    pieces = engine.pieces_of(problem)
    size = engine.factor_size(problem, pieces) if keep_factor else 0
    y, factor, *info = ops.solve(*problem, engine.name, pieces, size, check, batch)
    if condition:
        solve = _adjoint_operator(problem, engine, pieces, factor)
        y, info = with_condition(problem, solve, y, info)
    status, rcond, weakest, *estimate = info
    found = Diagnostics(status, rcond, weakest)
    return _Solution(
        _with_batch(y, batch), factor, found, estimate[0] if condition else None, batch
    )


def _adjoint_operator(
    problem: Problem, engine: Backend, pieces: int, factor: Tensor
) -> Callable[[Tensor], Tensor]:
    c, _, _, s, *weights, scheme = problem
    left = c, s, *weights, scheme, engine.name, pieces
    return lambda g: ops.adjoint(g, factor, *left)


def _raise_if_failed(
    plan: Plan, tensors: Sequence[Tensor], factor: Tensor | None, found: Diagnostics
) -> None:
    if found.fine:
        return
    problem, (status, rcond, weakest) = plan.fit(tensors), found.tensors()
    if factor is not None:  # without one, doubtful samples have been examined part by part
        status = final_status(plan, problem, factor, status, rcond, weakest)
    raise_if_failed(problem, status, rcond, weakest, plan.batch)


def _has_initial_values(
    found: Diagnostics, tensors: Sequence[Tensor], w_init: Weight, scheme: str
) -> bool:
    """A fast, conservative check that there are as many initial values as derivatives."""
    if isinstance(w_init, Tensor) or w_init == 0:
        return False
    if found.started:
        return True
    c, _, u, *_ = tensors
    given = u.shape[-3] * u.shape[-1]
    top = c.shape[-1] - 1
    if given >= (smoothness_top(top, scheme) if scheme.startswith(HERMITE) else top):
        return True
    return c.device.type == "cpu" and not c.detach().numpy()[..., given + 1 :].any()


def _examine(
    plan: Plan, tensors: Sequence[Tensor], y: Tensor, factor: Tensor, found: Diagnostics,
    condition: bool,
) -> tuple[Tensor, Diagnostics, Tensor | None]:  # fmt: skip
    """Estimate the condition number, or raise if it is too large though no pivot is small."""
    problem, info = plan.fit([x.detach() for x in tensors]), found.tensors()
    known = [factor] if plan.forward_keeps_factor and factor.numel() else []

    def solve(g: Tensor) -> Tensor:
        if not known:
            known.append(plan.solve([x.detach() for x in tensors]).factor)
        return plan.adjoint(known[0], g)

    if not condition:
        refuse_ill_conditioned(problem, plan.batch, solve, info)
        return y, found, None
    y, (status, rcond, weakest, estimate) = with_condition(problem, solve, y, info)
    return y, Diagnostics(status, rcond, weakest), estimate


def _with_batch(x: Tensor, batch: tuple[int, ...]) -> Tensor:
    return x if len(batch) == 1 else x.view(batch + x.shape[1:])


# ---------------------------------------------------------------- factorize


class Factorization:
    """A factorized left-hand side, to be solved for many right-hand sides. See `factorize`."""

    def __init__(
        self,
        problem: Problem,
        batch: tuple[int, ...],
        backend: str,
        *,
        check: bool,
        dtype: torch.dtype,
        rows: Callable[[Tensor], Tensor],
    ) -> None:
        engine = choose_backend(backend, problem.c.device, problem.block, problem.scheme)
        pieces = engine.pieces_of(problem)
        if eager.takes(problem.tensors):
            with torch.no_grad():
                plan = engine.plan(problem, pieces)
                _, factor, found = plan.solve()
            if check:
                plan.batch = batch
                _raise_if_failed(plan, problem.tensors, factor, found)
                solve = functools.partial(plan.adjoint, factor)
                refuse_ill_conditioned(problem, batch, solve, found.tensors())
            info = found.tensors()
        else:
            size = engine.factor_size(problem, pieces)
            _, factor, *info = ops.solve(*problem, engine.name, pieces, size, check, batch)
        self._problem, self._batch, self._dtype, self._rows = problem, batch, dtype, rows
        self._adjoint = _adjoint_operator(problem, engine, pieces, factor)
        self.info = SolveInfo(*(x.view(batch) for x in info))

    def condition(self) -> Tensor:
        """Estimated condition number of each sample, `(*B)`.

        Of the weighted rows with columns of norm one: the factor by which rounding, and any other
        relative error of the inputs, may be larger in the solution. A lower bound by iteration, in
        practice within a factor of three. Above 1e15 there is no answer in float64.
        """
        weakest = self.info.weakest.flatten()
        estimate, _ = condition_of(self._problem, self._adjoint, weakest, closely=True)
        return estimate.view(self._batch)

    def solve(self, d: Tensor, u: Tensor) -> Tensor:
        """Solve for `d (*E, *B, T, Q)` and `u (*E, *B, T_init, V, R_init+1)`.

        Further axes `*E` in front of the batch of the factor hold further right-hand sides. They
        may be in both or in one; a size of 1 broadcasts.

        Differentiable in `d`, `u` and everything that was factorized. One step of refinement with
        the row residuals replaces the rotations, which are not kept.

        Returns:
            `y (*E, *B, T, V, R+1)`.
        """
        if isinstance(d, Tensor) and d.ndim > 1 and d.dtype == self._dtype:
            d = self._rows(d)
        extra, d, u = self._many(d, u)
        if extra is None:
            return self._solve(d, u)
        results = [self._solve(*one) for one in zip(d, u, strict=True)]
        shape = extra + self._batch + tuple(self._problem.y_shape[1:])
        return torch.stack(results).view(shape) if results else d.new_empty(shape)

    def _many(self, d: Tensor, u: Tensor) -> tuple[tuple[int, ...] | None, Tensor, Tensor]:
        """The axes in front of the batch, merged into one in both; `None` if there are none."""
        if not (isinstance(d, Tensor) and isinstance(u, Tensor)):
            return None, d, u  # `fit` raises the error
        nb = len(self._batch)
        front_d = tuple(d.shape[: max(d.ndim - nb - 2, 0)])
        front_u = tuple(u.shape[: max(u.ndim - nb - 3, 0)])
        if not front_d and not front_u:
            return None, d, u
        if not front_d:
            d, front_d = d.view((1,) * len(front_u) + d.shape), (1,) * len(front_u)
        if not front_u:
            u, front_u = u.view((1,) * len(front_d) + u.shape), (1,) * len(front_d)
        if len(front_d) != len(front_u) or any(
            a != b and 1 not in (a, b) for a, b in zip(front_d, front_u, strict=True)
        ):
            raise mismatch(
                "u",
                f"{front_u} in front of the batch",
                f"{front_d} as d has, with 1 where it broadcasts",
                "Axes in front of the batch of the factor number right-hand sides.",
            )
        extra = tuple(torch.broadcast_shapes(front_d, front_u))
        k, count = len(extra), math.prod(extra)
        d, u = (x.expand(extra + x.shape[k:]).reshape((count, *x.shape[k:])) for x in (d, u))
        return extra, d, u

    def _solve(self, d: Tensor, u: Tensor) -> Tensor:
        problem = self._problem
        d = self._fit("d", d, problem.w_gov.shape[1:], time=1)
        u = self._fit("u", u, problem.w_init.shape[1:], time=0)
        whole = problem._replace(d=d, u=u)
        y = self._adjoint(normal_residual(whole, d.new_zeros(problem.y_shape)))
        y = y + self._adjoint(normal_residual(whole, y))
        return y.view(self._batch + y.shape[1:]).to(self._dtype)

    def _fit(self, name: str, x: Tensor, tail: tuple[int, ...], time: int) -> Tensor:
        return fit(name, x, self._batch, tail, self._dtype, self._problem.c.device, time=time)


def factorize(
    c: Tensor,
    s: Tensor,
    *,
    init_shape: tuple[int, int] = (1, 1),
    w_gov: Weight = 1.0,
    w_init: Weight = 1.0,
    w_smooth: Weight = 1.0,
    order: int | None = None,
    scheme: str = "smnn",
    n_steps: int | None = None,
    backend: str = "auto",
    check: bool = True,
) -> Factorization:
    """Factor a left-hand side once, to solve it for many right-hand sides.

    The factor belongs to the returned object: nothing is cached elsewhere, and changing `c`
    afterwards has no effect. `init_shape` is `(T_init, R_init+1)`, the shape of the initial values
    that will be passed to `Factorization.solve`. All other arguments are those of `solve`.
    """
    # Later changes of the caller's tensors must not affect the factorization.
    c, s = c.clone(), s.clone()
    w_gov, w_init, w_smooth = (
        w.clone() if isinstance(w, Tensor) else w for w in (w_gov, w_init, w_smooth)
    )
    nb, (Q, V) = c.ndim - 4, c.shape[-3:-1]
    d = c.new_zeros((1,) * (nb + 1) + (Q,))
    u = c.new_zeros((1,) * nb + (init_shape[0], V, init_shape[1]))
    options = Options(w_gov, w_init, w_smooth, scheme, n_steps, backend)
    tensors, options = _posed((c, d, u, s), order, options)
    problem, batch = make_problem(
        *tensors, w_gov=options.w_gov, w_init=options.w_init, w_smooth=options.w_smooth,
        scheme=options.scheme, n_steps=n_steps,
    )  # fmt: skip
    rows = functools.partial(
        _right_rows, s=s, nb=nb, Q=Q, wide=tensors[1].shape[-1], R=problem.y_shape[3] - 1
    )
    check = check and not c.is_meta
    return Factorization(problem, batch, backend, check=check, dtype=c.dtype, rows=rows)


def _right_rows(d: Tensor, s: Tensor, nb: int, Q: int, wide: int, R: int) -> Tensor:
    """The right-hand side with the derivatives that the scheme needs."""
    if d.shape[-1] != Q or wide == Q or d.ndim < nb + 2:
        return d
    found = derivatives(d.double(), s.double(), nb, d.ndim - 2, wide // Q, R)
    return differentiated_right(found, wide // Q).to(d.dtype)


# ---------------------------------------------------------------- residuals


def residuals(
    y: Tensor,
    c: Tensor,
    d: Tensor,
    u: Tensor,
    s: Tensor,
    *,
    w_gov: Weight = 1.0,
    w_init: Weight = 1.0,
    w_smooth: Weight = 1.0,
    order: int | None = None,
    scheme: str = "smnn",
) -> Residuals:
    """Residuals of each kind of row for a solution `y`, per sample.

    Rows of weight zero are left out. A governing residual far above rounding means that the
    equations contradict each other or the initial values; a large smoothness residual that the step
    is too long for the order carried.
    """
    tensors, options = _posed((c, d, u, s), order, Options(w_gov, w_init, w_smooth, scheme))
    problem, batch = make_problem(
        *tensors, w_gov=options.w_gov, w_init=options.w_init, w_smooth=options.w_smooth,
        scheme=options.scheme, n_steps=y.shape[-3],
    )  # fmt: skip
    expected = batch + problem.y_shape[1:]
    if y.shape != expected:
        raise mismatch("y", f"shape {tuple(y.shape)}", f"{expected}", "It is what solve returns.")
    x = y.to(problem.c.dtype).reshape(problem.y_shape)
    rows = smoothness_rows(x, problem.s, problem.scheme)
    smooth = [(rows, problem.w_smooth[..., None, : rows.shape[-1]].expand_as(rows))]
    if scheme == "central" and x.shape[1] > 2:
        smooth.append((central_rows(x, problem.s), problem.w_smooth[:, :-1, :, -1]))
    parts = (
        [(governing(problem.c, x) - problem.d, problem.w_gov)],
        [(initial(x, problem.u) - problem.u, problem.w_init)],
        smooth,
    )
    return Residuals(*(_rms(part).view(batch).to(y.dtype) for part in parts))


def _rms(rows: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Root mean square over all rows of non-zero weight."""
    total = torch.stack([(r.square() * (w != 0)).flatten(1).sum(1) for r, w in rows]).sum(0)
    count = torch.stack([(w != 0).flatten(1).sum(1) for _, w in rows]).sum(0)
    return (total / count.clamp(min=1)).sqrt()
