"""The public functions: check the arguments, choose a backend, call the operators."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from smnn._solver.condition import SolveInfo as SolveInfo
from smnn._solver.condition import engine_for, refuse_noise, with_condition
from smnn._solver.diagnostics import Verdict, few_initial_values
from smnn._solver.eager import (
    Signature,
    check_like,
    layout_of,
    may_be_quick,
    remember,
    remember_latest,
    remembered,
    solve_like,
    solve_like_latest,
    solve_problem,
)
from smnn._solver.gpu.native.extension import CHECKED, INFO, SOLUTION
from smnn._solver.problem import Problem, Weight, make_problem, with_orders
from smnn._solver.recompute import solve_forgetfully
from smnn._solver.rows import central_rows, governing, initial, taylor_rows
from smnn.errors import mismatch


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
            entry `[t, v, R]` belongs to the central row around time `t + 1`.
        order: Carry derivatives up to this order, beyond what `c` has. The error falls steeply
            with it.
        scheme: `"smnn"`, or `"central"` for central differences at the top order.
        n_steps: Number of times `T`, needed when `c`, `d` and `s` are all constant in time.
        backend: `"auto"` or a name in `available_backends()`.
        check: Raise if a sample has no unique finite solution. On a GPU this waits for the
            device; use `solve_ex` to avoid it. Where there are fewer initial values than the
            equations have derivatives, their condition number is looked at as well, which takes
            a few times as long as the solution.
        keep_factor: Keep the factor for the derivative. `False` computes it again there, for a part
            of the batch at a time: less memory, more time.

    Returns:
        `y (*B, T, V, R+1)`: the trajectories with their derivatives.

    Raises:
        ShapeError: An argument does not fit; says what was got and what was expected.
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
    c = with_orders(c, order)
    rest = (w_gov, w_init, w_smooth), scheme, n_steps, backend
    if keep_factor:
        known = solve_like_latest(c, d, u, s, rest, CHECKED if check else SOLUTION)
        if known is not None:
            found, signature = known
            if isinstance(found, Tensor):
                return _shaped(found, signature.batch)
            return _judged((c, d, u, s), rest[0], check, False, signature, *found)[0]
    return _solve(c, d, u, s, rest, check=check, condition=False, keep_factor=keep_factor)[0]


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
    """As `solve`, without raising and without waiting for the device.

    Failed samples are NaN in `y` and have a non-zero `info.status`; the others are not disturbed.

    Args:
        c: As in `solve`.
        d: As in `solve`.
        u: As in `solve`.
        s: As in `solve`.
        w_gov: As in `solve`.
        w_init: As in `solve`.
        w_smooth: As in `solve`.
        order: As in `solve`.
        scheme: As in `solve`.
        n_steps: As in `solve`.
        backend: As in `solve`.
        condition: Estimate the condition number of each sample for `info.condition`, and count
            one above 1e15 as singular. Takes some ten times as long as the solution.
        keep_factor: As in `solve`.
    """
    c = with_orders(c, order)
    rest = (w_gov, w_init, w_smooth), scheme, n_steps, backend
    if keep_factor and not condition:
        known = solve_like_latest(c, d, u, s, rest, INFO)
        if known is not None:
            (y, status, rcond, weakest), signature = known
            if len(signature.batch) == 1:
                return y, SolveInfo(status, rcond, weakest)
            info = [status, rcond, weakest]
            return _shaped(y, signature.batch), _informed(info, signature.batch)
    y, told, batch = _solve(
        c, d, u, s, rest, check=False, condition=condition, keep_factor=keep_factor
    )
    return y, _informed(told.tensors() if isinstance(told, Verdict) else told, batch)


def _informed(info: list[Tensor], batch: tuple[int, ...]) -> SolveInfo:
    """With the batch axes."""
    return SolveInfo(*[x if len(batch) == 1 else x.view(batch) for x in info])


Told = Verdict | list[Tensor]
"""Status, rcond and weakest, and perhaps the condition; or a verdict, for who asks for them."""


def _solve(
    c: Tensor,
    d: Tensor,
    u: Tensor,
    s: Tensor,
    rest: Any,
    *,
    check: bool,
    condition: bool,
    keep_factor: bool,
) -> tuple[Tensor, Told, tuple[int, ...]]:
    """Solve with what is remembered of an earlier call with the same shapes, or from the start.

    Args:
        c: As in `solve`, like the next three.
        d: See there.
        u: See there.
        s: See there.
        rest: The weights, scheme, number of times, and backend.
        check: As in `solve`.
        condition: As in `solve_ex`.
        keep_factor: As in `solve`.

    Returns:
        `y`, what is told of each sample, and the batch shape.
    """
    tensors = c, d, u, s
    info: list[Tensor]
    again = _solve_again if keep_factor else _solve_again_forgetfully
    key = layout_of(tensors, rest)
    if key is not None and (known := remembered(key)) is not None:
        return again(known, tensors, rest, check, condition)
    (w_gov, w_init, w_smooth), scheme, n_steps, backend = rest
    problem, batch = make_problem(
        c, d, u, s, w_gov=w_gov, w_init=w_init, w_smooth=w_smooth, scheme=scheme, n_steps=n_steps
    )
    engine, pieces = engine_for(problem, backend)
    signature = Signature(problem, batch, engine, pieces)
    if key is not None:
        # Keep for the derivative what later calls keep: a checkpoint compares its second run.
        remember(key, tensors, signature)
        if (known := remembered(key)) is not None:
            return again(known, tensors, rest, check, condition)
    started = not check or _amply_started(c, u, w_init)
    if keep_factor:
        y, factor, *info = solve_problem(problem, batch, engine, pieces, check=check)
        if condition or not started:
            y, info = _look(problem, signature, factor, y, info, condition)
    else:
        y, info = solve_forgetfully(signature, problem.tensors, None, check=check)
        started = started or not may_be_quick(problem.tensors)
        y, info = _look_without(problem, signature, y, info, condition, started)
    return _shaped(y, batch).to(c.dtype), info, batch


def _look_without(
    problem: Problem, signature: Signature, y: Tensor, info: list[Tensor], condition: bool,
    started: bool,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """As `_look`, where no factor was kept, and if there is a reason to."""
    if not (condition or (not started and few_initial_values(problem))):
        return y, info
    with torch.no_grad():
        factor = signature.engine.solve(problem, signature.pieces).factor
    return _look(problem, signature, factor, y, info, condition)


def _solve_again(
    signature: Signature, tensors: tuple[Tensor, ...], rest: Any, check: bool, condition: bool
) -> tuple[Tensor, Told, tuple[int, ...]]:
    """For tensors of a known layout and known options."""
    found = solve_like(signature, tensors)
    remember_latest(rest, signature)
    return _judged(tensors, rest[0], check, condition, signature, *found)


def _solve_again_forgetfully(
    signature: Signature, tensors: tuple[Tensor, ...], rest: Any, check: bool, condition: bool
) -> tuple[Tensor, Told, tuple[int, ...]]:
    """The same with `keep_factor=False`."""
    y, info = solve_forgetfully(signature, tensors, rest, check=check)
    started = not check or _amply_started(tensors[0], tensors[2], rest[0][1])
    problem, batch = signature.fit(tensors), signature.batch
    y, info = _look_without(problem, signature, y, info, condition, started)
    return _shaped(y, batch), info, batch


def _judged(
    tensors: tuple[Tensor, ...],
    weights: tuple[Weight, Weight, Weight],
    check: bool,
    condition: bool,
    signature: Signature,
    y: Tensor,
    factor: Tensor,
    told: Told,
) -> tuple[Tensor, Told, tuple[int, ...]]:
    """What was found for tensors of a known layout, looked at as closely as is asked for."""
    batch, w_init = signature.batch, weights[1]
    if check:
        check_like(signature, tensors, y, factor, told)
    if isinstance(told, Verdict):
        started = told.started and w_init != 0
    else:
        started = not check or _amply_started(tensors[0], tensors[2], w_init)
    if condition or (check and not started):
        info = told.tensors() if isinstance(told, Verdict) else told
        y, told = _look(signature.fit(tensors), signature, factor, y, info, condition)
    return _shaped(y, batch), told, batch


def _look(
    problem: Problem,
    signature: Signature,
    factor: Tensor,
    y: Tensor,
    info: list[Tensor],
    condition: bool,
) -> tuple[Tensor, list[Tensor]]:
    """Estimate the condition if it is wanted, or make sure that it is not too large."""
    engine, pieces = signature.engine, signature.pieces
    if condition:
        return with_condition(problem, engine, pieces, factor, y, info)
    refuse_noise(problem, signature.batch, engine, pieces, factor, info)
    return y, info


def _amply_started(c: Tensor, u: Tensor, w_init: Weight) -> bool:
    """Whether there are as many initial values as derivatives, as far as a glance shows."""
    if isinstance(w_init, Tensor) or w_init == 0:
        return False
    given = u.shape[-3] * u.shape[-1]
    if given >= c.shape[-1] - 1:
        return True
    if c.device.type != "cpu" or not may_be_quick((c,)):
        return False
    return not c.detach().numpy()[..., given + 1 :].any()


def _shaped(x: Tensor, batch: tuple[int, ...]) -> Tensor:
    """Give the batch axes back."""
    return x if len(batch) == 1 else x.view(batch + x.shape[1:])


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
    """How well each kind of row holds for a solution `y`, per sample: the measure of trust.

    Rows of weight zero are left out. A governing residual far above rounding means that the
    equations contradict each other or the initial values; a large smoothness residual that the step
    is too long for the order carried.
    """
    problem, batch = make_problem(
        with_orders(c, order), d, u, s, w_gov=w_gov, w_init=w_init, w_smooth=w_smooth,
        scheme=scheme, n_steps=y.shape[-3],
    )  # fmt: skip
    expected = batch + problem.y_shape[1:]
    if y.shape != expected:
        raise mismatch("y", f"shape {tuple(y.shape)}", f"{expected}", "It is what solve returns.")
    x = y.to(problem.c.dtype).reshape(problem.y_shape)
    top = x.shape[-1] - (scheme == "central")
    w = problem.w_smooth[..., :top]
    smooth = [(row, w) for row in taylor_rows(x, problem.s, scheme)]
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
