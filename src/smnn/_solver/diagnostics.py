"""Did each sample work, and if not, why: in a tensor first, in words when asked."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from smnn._solver.problem import Problem
from smnn.errors import SolveError

OK, BAD_STEP, NOT_FINITE, SINGULAR = 0, 1, 2, 3
SMALLEST_PIVOT = 1e-14
"""A pivot below this part of its column is taken for noise, where nothing better is known."""
DOUBTFUL_PIVOT = 1e-8
"""A pivot below this is worth an estimate of the smallest singular value."""
SMALLEST_SINGULAR = 1e-15
"""A singular system comes out below 5e-16, relative to its columns; hard but regular ones (a third
order integrated over 10^5 times) above 5e-15."""

LARGEST_CONDITION = 1 / SMALLEST_SINGULAR
"""A sample whose condition number is known to exceed this is singular in float64."""
DOUBTFUL_CONDITION = 1e12
"""Above this, a rough estimate is worth a better one: it is too small by the fourth root of the
number of unknowns."""


class Verdict(NamedTuple):
    """What a solve on the CPU says of its samples, in arrays until somebody asks for tensors."""

    fine: bool
    """Whether every status is `OK`, beyond doubt."""
    started: bool
    """Whether there are as many initial values as derivatives, as far as a glance shows."""
    rcond: np.ndarray
    weakest: np.ndarray
    status: np.ndarray | None = None
    """`None` if all is fine."""

    def tensors(self) -> list[Tensor]:
        """Status, `rcond` and `weakest` of each sample."""
        rcond, weakest = torch.from_numpy(self.rcond), torch.from_numpy(self.weakest)
        status = self.status
        return [
            torch.zeros_like(weakest) if status is None else torch.from_numpy(status),
            rcond,
            weakest,
        ]


def few_initial_values(problem: Problem) -> bool:
    """Whether a sample has fewer initial values than its equations have derivatives; waits.

    What such a sample leaves open may die out along the sequence. Then no pivot is small, because
    the last times are certain, and only the condition number shows that the first are not.
    """
    c, w_init = _free(problem.c), problem.w_init
    B, T, V, m = problem.y_shape
    if T == 1 or not B:
        return False
    given = int((w_init != 0).flatten(1).sum(1).min())
    return any(bool(c[..., r].any()) for r in range(m - 1, given // V, -1))


def _free(x: Tensor) -> Tensor:
    """Drop what broadcasting repeats, so that a check costs no more than the data."""
    for i in range(1, x.ndim):
        if x.stride(i) == 0 and x.shape[i] > 1:
            x = x.narrow(i, 0, 1)
    return x


def status_of(problem: Problem, y: Tensor, rcond: Tensor, smallest: float) -> Tensor:
    """One code per sample, without waiting for a device; `rcond` below `smallest` is singular."""
    steps = _free(problem.s).flatten(1)
    bad_step = ~((steps > 0) & (steps < math.inf)).all(1)
    # Whatever is not finite spreads along the whole sequence in the substitution, back to time 0.
    finite = y[:, 0].isfinite().flatten(1).all(1)
    status = torch.where(rcond > smallest, OK, SINGULAR)
    status = torch.where(finite | (status == SINGULAR) & rcond.isfinite(), status, NOT_FINITE)
    return torch.where(bad_step, BAD_STEP, status)


def all_fine(problem: Problem, y: Tensor, rcond: Tensor) -> bool:
    """Whether every status is `OK` beyond doubt: the short way, on the CPU, for the usual case."""
    steps = _free(problem.s).numpy()
    return bool(
        (steps.size == 0 or (steps.min() > 0 and steps.max() < math.inf))
        and (rcond.numel() == 0 or rcond.numpy().min() > DOUBTFUL_PIVOT)
        and np.isfinite(y[:, 0].numpy()).all()
    )


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
    out = []
    for size in reversed(batch):
        out.append(index % size)
        index //= size
    return str(tuple(reversed(out)))


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
        guilty = [name for name, x in named if not bool(_free(x[b : b + 1]).isfinite().all())]
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
