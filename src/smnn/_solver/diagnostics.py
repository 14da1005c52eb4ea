"""Per-sample diagnostics: status, reciprocal condition, error messages, condition estimates."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from smnn._solver.problem import HERMITE, Problem, Solved
from smnn._solver.rows import column_squares, normal_residual, smoothness_top
from smnn._solver.tracing import safe_threads
from smnn.errors import SolveError

if TYPE_CHECKING:
    from smnn._solver.plan import Plan

OK, BAD_STEP, NOT_FINITE, SINGULAR = 0, 1, 2, 3
SMALLEST_PIVOT = 1e-14
"""A pivot below this, relative to its column, counts as zero where nothing better is known."""
DOUBTFUL_PIVOT = 1e-8  # Below this, the smallest singular value is estimated
SMALLEST_SINGULAR = 1e-15
"""Singular systems come out below 5e-16, relative to their columns; hard but regular ones (third
order, integrated over 10^5 times) above 5e-15."""
LARGEST_CONDITION = 1 / SMALLEST_SINGULAR
"""A sample with a larger condition number is singular in float64."""
DOUBTFUL_CONDITION = 1e12
"""Above this, the rough estimate is refined: it may be too small by the fourth root of the number
of unknowns."""


class Diagnostics(NamedTuple):
    """Outcome of a solve per sample: NumPy arrays on the CPU, converted to tensors on demand."""

    status: np.ndarray | Tensor | None
    """`(B,)` one of the codes above; `None` if all are `OK`."""
    rcond: np.ndarray | Tensor
    """`(B,)` smallest pivot (or singular value, where estimated) relative to its column."""
    weakest: np.ndarray | Tensor
    """`(B,)` where: flattened index `(time, variable, order)` of that pivot."""
    fine: bool = False
    """Whether every status is known to be `OK`."""
    started: bool = False
    """Whether there are known to be as many initial values as derivatives."""

    def tensors(self) -> list[Tensor]:
        """Status, `rcond` and `weakest`."""
        if isinstance(self.rcond, Tensor):
            return [self.status, self.rcond, self.weakest]  # type: ignore[list-item]
        rcond, weakest = torch.from_numpy(self.rcond), torch.from_numpy(self.weakest)
        status = torch.zeros_like(weakest) if self.status is None else torch.as_tensor(self.status)
        return [status, rcond, weakest]


class SolveInfo(NamedTuple):
    """Diagnostics of each sample, `(*B)` each."""

    status: Tensor
    """0 solved, 1 a step is not positive and finite, 2 not finite, 3 singular (int64)."""
    rcond: Tensor
    """Smallest pivot relative to its column; on the CPU, where that is doubtful, the smallest
    singular value relative to the columns."""
    weakest: Tensor
    """Where that pivot is: flattened index into `(T, V, R+1)` (int64)."""
    condition: Tensor | None = None
    """Estimated condition number of the rows with columns of norm one; `None` if not requested."""


# ---------------------------------------------------------------- status


def relative_pivots(pivots: Tensor, norms: Tensor) -> Tensor:
    """Pivots relative to the norms of their columns: 0 for an empty column, NaN stays NaN."""
    return torch.where(norms == 0, 0.0, pivots / norms)


def nothing(problem: Problem) -> Solved:
    """The solution of an empty batch."""
    none = problem.c.new_empty(0)
    index = none.new_empty(0, dtype=torch.int64)
    return Solved(problem.c.new_empty(problem.y_shape), none, Diagnostics(index, none, index))


def _stored(x: Tensor) -> Tensor:
    """Drop broadcast repetitions, so that a check costs no more than the data."""
    for i in range(1, x.ndim):
        if x.stride(i) == 0 and x.shape[i] > 1:
            x = x.narrow(i, 0, 1)
    return x


def status_of(problem: Problem, y: Tensor, rcond: Tensor, smallest: float) -> Tensor:
    """One code per sample, without synchronization; `rcond` below `smallest` means singular."""
    steps = _stored(problem.s).flatten(1)
    bad_step = ~((steps > 0) & (steps < math.inf)).all(1)
    # A value that is not finite spreads along the whole sequence in the substitution, to time 0.
    finite = y[:, 0].isfinite().flatten(1).all(1)
    status = torch.where(rcond > smallest, OK, SINGULAR)
    status = torch.where(finite | (status == SINGULAR) & rcond.isfinite(), status, NOT_FINITE)
    return torch.where(bad_step, BAD_STEP, status)


def _all_fine(problem: Problem, y: Tensor, rcond: Tensor) -> bool:
    """Whether every status is certainly `OK`: a fast check on the CPU for the usual case."""
    steps = _stored(problem.s).numpy()
    return bool(
        (steps.size == 0 or (steps.min() > 0 and steps.max() < math.inf))
        and (rcond.numel() == 0 or rcond.numpy().min() > DOUBTFUL_PIVOT)
        and np.isfinite(y[:, 0].numpy()).all()
    )


def diagnosed(
    plan: Plan, problem: Problem, y: Tensor, factor: Tensor, rcond: Tensor, weakest: Tensor
) -> Solved:
    """Determine the status of each sample, and set failed samples of `y` to NaN.

    On the CPU, samples with a small pivot are examined by two steps of inverse iteration, which
    give the smallest singular value. On other devices this would synchronize, and is left out.
    """
    smallest = SMALLEST_PIVOT
    if y.device.type == "cpu":
        if _all_fine(problem, y, rcond):
            return Solved(y, factor, Diagnostics(torch.zeros_like(weakest), rcond, weakest, True))
        smallest = SMALLEST_SINGULAR
        with safe_threads():
            sigma = _smallest_singular(plan, problem, factor, weakest)
        rcond = torch.where((rcond < DOUBTFUL_PIVOT) & (rcond > 0), sigma, rcond)
    status = status_of(problem, y, rcond, smallest)
    y = torch.where(status.view(-1, 1, 1, 1) == 0, y, torch.nan)
    return Solved(y, factor, Diagnostics(status, rcond, weakest))


def final_status(
    plan: Plan, problem: Problem, factor: Tensor, status: Tensor, rcond: Tensor, weakest: Tensor
) -> Tensor:
    """Status, with doubtful samples checked by their smallest singular value; synchronizes."""
    if plan.status_is_final:
        return status
    doubtful = (status == OK) & (rcond < DOUBTFUL_PIVOT)
    if not bool(doubtful.any()):
        return status
    sigma = _smallest_singular(plan, problem, factor, weakest)
    return torch.where(doubtful & ~(sigma > SMALLEST_SINGULAR), SINGULAR, status)


def few_initial_values(problem: Problem) -> bool:
    """Whether a sample has fewer initial values than its equations have derivatives.

    Components left undetermined may decay along the sequence. Then no pivot is small, because the
    last times are certain, and only the condition number shows that the first ones are not.
    """
    c, w_init = _stored(problem.c), problem.w_init
    B, T, V, m = problem.y_shape
    if T == 1 or not B:
        return False
    given = int((w_init != 0).flatten(1).sum(1).min())
    if problem.scheme.startswith(HERMITE):  # derivatives in addition come from differentiation
        return smoothness_top(m - 1, problem.scheme) > given // V
    return any(bool(c[..., r].any()) for r in range(m - 1, given // V, -1))


# ---------------------------------------------------------------- messages


def raise_if_failed(
    problem: Problem, status: Tensor, rcond: Tensor, weakest: Tensor, batch: tuple[int, ...]
) -> None:
    """Raise an error that names the failed samples and the likely cause.

    Raises:
        SolveError: If any status is not `OK`.
    """
    failed = status.nonzero().flatten().tolist()
    if not failed:
        return
    lines = [f"{len(failed)} of {status.numel()} samples have no unique finite solution."]
    for b in failed[:3]:
        where = f"sample {_unravel(b, batch)}: " if batch else ""
        lines.append(
            f"  {where}{_reason(problem, int(status[b]), float(rcond[b]), int(weakest[b]), b)}"
        )
    if len(failed) > 3:
        lines.append(
            f"  and {len(failed) - 3} more: {failed[3:11]}{' ...' if len(failed) > 11 else ''}"
        )
    lines.append("Use smnn.solve_ex to get the other samples and a status for each.")
    raise SolveError("\n".join(lines))


def _unravel(index: int, batch: tuple[int, ...]) -> str:
    return str(tuple(int(i) for i in np.unravel_index(index, batch)))


def _reason(problem: Problem, status: int, rcond: float, weakest: int, b: int) -> str:
    _, _, V, m = problem.y_shape
    if status == BAD_STEP:
        s = problem.s[b]
        t, v = (~((s > 0) & (s < math.inf))).nonzero()[0].tolist()
        return (
            f"step s[{t}] of variable {v} is {s[t, v].item():g}; steps must be positive and finite."
        )
    if status == NOT_FINITE:
        named = zip(problem._fields, problem[:7], strict=False)
        guilty = [name for name, x in named if not bool(_stored(x[b : b + 1]).isfinite().all())]
        return (
            f"{', '.join(guilty)} contain NaN or infinity. Mark missing values with weight zero."
            if guilty
            else "the solution overflows. Are coefficients or steps of extreme size?"
        )
    t, v, r = weakest // (V * m), weakest // m % V, weakest % m
    condition = f"at least {1 / rcond:.0e}" if rcond > 0 else "infinite"
    return (
        f"singular (condition number {condition}; float64 ends at {LARGEST_CONDITION:.0e}): "
        f"nothing determines the derivative of order {r} of variable {v}, seen at time {t}. "
        "Likely causes: (a) too few initial values, (b) an equation with zero coefficients or "
        "zero weight, (c) fewer equations than variables."
    )


# ---------------------------------------------------------------- condition

Solve = Callable[[Tensor], Tensor]  # `M^-1 g` for `g (B, T, V, R+1)`, with `M` the normal matrix


def _inverse_iteration(
    norms: Tensor, solve: Solve, x: Tensor, rounds: int
) -> tuple[Tensor, Tensor]:
    """The smallest singular value of the rows with columns of norm one.

    Returns:
        The value, `(B,)`, never below the true one but for rounding; and its direction, like `x`.
        The value is 0 where the iteration overflows, as it may with a singular factor.
    """
    length = norms.new_zeros(norms.shape[0])
    for _ in range(rounds):
        x = solve(norms * x).mul_(norms)
        length = x.flatten(1).norm(dim=1)
        x.div_(length.view(-1, 1, 1, 1))
    value = length.rsqrt()
    return torch.where(value.isfinite(), value, 0.0), x


def _smallest_singular(plan: Plan, problem: Problem, factor: Tensor, weakest: Tensor) -> Tensor:
    """Smallest singular value of the rows with columns of norm one, started at the weakest."""
    norms = column_squares(problem).sqrt()
    x = norms.new_zeros(norms.shape[0], norms[0].numel())
    x = x.scatter(1, weakest.view(-1, 1), 1.0).view_as(norms)
    return _inverse_iteration(norms, lambda g: plan.adjoint(factor, g), x, 2)[0]


def _scattered(like: Tensor) -> Tensor:
    """Pseudo-random numbers in `[-1/2, 3/2)`, not orthogonal to any direction of interest.

    From a sine of large arguments: random generators have a state, and cannot be traced.
    """
    k = torch.arange(like[0].numel(), dtype=like.dtype, device=like.device)
    x = (torch.sin(12.9898 * k + 78.233) * 43758.5453).remainder(1.0) * 2 - 0.5
    return x.view(1, *like.shape[1:]).expand_as(like)


@torch.no_grad()
def condition_of(
    problem: Problem, solve: Solve, weakest: Tensor, *, closely: bool
) -> tuple[Tensor, Tensor]:
    """Condition number of the rows with columns of norm one, and the least certain direction.

    A lower bound by inverse iteration from a scattered start that favours the weakest pivot. With
    `closely`, four rounds and three of power iteration: within a factor of three in practice.
    Otherwise one round, with one for the largest singular value: enough to find doubtful samples.

    Args:
        problem: Whose rows.
        solve: Solves with its normal matrix.
        weakest: `(B,)` where the smallest pivot is.
        closely: Whether the number itself is needed.

    Returns:
        `(B,)` the estimate: infinite if a pivot is zero, NaN if the rows are not finite; and the
        direction, `(B, T, V, R+1)`.
    """
    norms = column_squares(problem).sqrt()
    B = norms.shape[0]
    if not norms.numel():
        return norms.new_zeros(B), norms
    start = _scattered(norms)
    largest = _largest_singular(problem, norms, start) if closely else norms.new_ones(B)
    peak = start.flatten(1).norm(dim=1, keepdim=True)
    start = start.flatten(1).scatter(1, weakest.view(-1, 1), peak).view_as(norms)
    smallest, x = _inverse_iteration(norms, solve, start, 4 if closely else 1)
    estimate = torch.where(smallest > 0, largest / smallest, torch.inf)
    estimate = torch.where(norms.flatten(1).sum(1).isfinite(), estimate, torch.nan)
    return estimate, x


def _largest_singular(problem: Problem, norms: Tensor, x: Tensor) -> Tensor:
    """Power iteration from `x`; columns of norm zero are left as they are."""
    known = torch.where(norms > 0, norms, 1.0)
    left = problem._replace(d=torch.zeros_like(problem.d), u=torch.zeros_like(problem.u))
    length = x.flatten(1).norm(dim=1)
    for _ in range(3):
        x = x / (length.view(-1, 1, 1, 1) * known)
        x = normal_residual(left, x) / known
        length = x.flatten(1).norm(dim=1)
    return length.sqrt()


def refuse_ill_conditioned(
    problem: Problem, batch: tuple[int, ...], solve: Solve, info: list[Tensor]
) -> None:
    """Raise if a sample is singular although no pivot is small, which takes few initial values.

    Raises:
        SolveError: Names the samples and the unknown that is least certain.
    """
    status, _, weakest = info
    with safe_threads():
        if not few_initial_values(problem):
            return
        rough, _ = condition_of(problem, solve, weakest, closely=False)
        if not bool((rough > DOUBTFUL_CONDITION).any()):
            return
        estimate, x = condition_of(problem, solve, weakest, closely=True)
        singular = (status == OK) & (estimate > LARGEST_CONDITION)
        if bool(singular.any()):
            place = torch.where(x.isfinite(), x.abs(), 0.0).flatten(1).argmax(1)
            place = torch.where(estimate.isfinite(), place, weakest)
            status = torch.where(singular, SINGULAR, status)
            raise_if_failed(problem, status, 1 / estimate, place, batch)


def with_condition(
    problem: Problem, solve: Solve, y: Tensor, info: list[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """Append the condition numbers to `info`; samples found to be singular become NaN in `y`."""
    status, rcond, weakest = info
    estimate, _ = condition_of(problem, solve, weakest, closely=True)
    singular = (status == OK) & (estimate > LARGEST_CONDITION)
    status = torch.where(singular, SINGULAR, status)
    return y.masked_fill(singular.view(-1, 1, 1, 1), torch.nan), [status, rcond, weakest, estimate]
