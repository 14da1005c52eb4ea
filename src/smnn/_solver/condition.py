"""A closer look at each sample: its condition number, where pivots alone are not to be trusted."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from smnn._solver.base import Backend, condition_of, safe_threads
from smnn._solver.diagnostics import (
    DOUBTFUL_CONDITION,
    LARGEST_CONDITION,
    OK,
    SINGULAR,
    few_initial_values,
    raise_if_failed,
)
from smnn._solver.eager import may_be_quick
from smnn._solver.ops import adjoint
from smnn._solver.problem import Problem
from smnn._solver.registry import choose_backend


class SolveInfo(NamedTuple):
    """How the solution of each sample came out, `(*B)` each."""

    status: Tensor
    """0 solved, 1 a step is not positive and finite, 2 not finite, 3 singular (int64)."""
    rcond: Tensor
    """Smallest pivot relative to its column; on the CPU, where that is doubtful, the smallest
    singular value relative to the columns."""
    weakest: Tensor
    """Where that pivot is: flattened index into `(T, V, R+1)` (int64)."""
    condition: Tensor | None = None
    """Estimated condition number of the rows with columns of norm one; `None` if not asked for."""


def engine_for(problem: Problem, backend: str) -> tuple[Backend, int]:
    """The backend, and the number of pieces it wants to cut each sequence into."""
    B, T, V, m = problem.y_shape
    engine = choose_backend(backend, problem.c.device, V * m)
    reach = 2 if problem.scheme == "central" else 1
    return engine, engine.pieces(B, T, V * m, reach)


def with_condition(
    problem: Problem, engine: Backend, pieces: int, factor: Tensor, y: Tensor, info: list[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """`y` and status, rcond, weakest, with the condition number of each sample behind them.

    A sample that turns out to be singular is NaN in `y`, and its status says so.
    """
    status, rcond, weakest = info
    estimate, _ = condition_number(problem, engine, pieces, factor, weakest, closely=True)
    singular = (status == OK) & (estimate > LARGEST_CONDITION)
    status = torch.where(singular, SINGULAR, status)
    return y.masked_fill(singular.view(-1, 1, 1, 1), torch.nan), [status, rcond, weakest, estimate]


def refuse_noise(
    problem: Problem,
    batch: tuple[int, ...],
    engine: Backend,
    pieces: int,
    factor: Tensor,
    info: list[Tensor],
) -> None:
    """Look for samples that are singular though no pivot is small, where there may be any.

    Raises:
        SolveError: Names them and the unknown that is least certain.
    """
    if not may_be_quick(problem.tensors):
        return
    status, _, weakest = info
    with safe_threads():
        if not few_initial_values(problem):
            return
        rough, _ = condition_number(problem, engine, pieces, factor, weakest, closely=False)
        if not bool((rough > DOUBTFUL_CONDITION).any()):
            return
        estimate, x = condition_number(problem, engine, pieces, factor, weakest, closely=True)
        singular = (status == OK) & (estimate > LARGEST_CONDITION)
        if bool(singular.any()):
            place = torch.where(x.isfinite(), x.abs(), 0.0).flatten(1).argmax(1)
            place = torch.where(estimate.isfinite(), place, weakest)
            status = torch.where(singular, SINGULAR, status)
            raise_if_failed(problem, status, 1 / estimate, place, batch)


@torch.no_grad()
def condition_number(
    problem: Problem,
    engine: Backend,
    pieces: int,
    factor: Tensor,
    weakest: Tensor,
    *,
    closely: bool,
) -> tuple[Tensor, Tensor]:
    """The estimate of `condition_of`, by whichever way the surroundings allow."""
    c, _, _, s, w_gov, w_init, w_smooth, scheme = problem

    def solve(g: Tensor) -> Tensor:
        if may_be_quick((g, factor)):
            return engine.adjoint(problem, factor, g, pieces)
        left = c, s, w_gov, w_init, w_smooth, scheme
        return adjoint(g, factor, *left, engine.name, pieces)

    return condition_of(problem, solve, weakest, closely=closely)
