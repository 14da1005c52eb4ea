"""What a backend is: four functions on a `Problem`, and an honest word on what it cannot do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from smnn._problem import Problem
from smnn._rows import row_gradients
from smnn._status import status_of


class Solved(NamedTuple):
    """What a factorisation with one right-hand side leaves behind."""

    y: Tensor
    """`(B, T, V, R+1)` the solution, float64."""
    factor: Tensor
    """`(size,)` whatever the backend needs to solve again; only the backend can read it."""
    rcond: Tensor
    """`(B,)` smallest pivot relative to the norm of its column."""
    weakest: Tensor
    """`(B,)` where: flattened `(time, variable, order)` of that pivot, int64."""
    status: Tensor
    """`(B,)` a code of `_status.py`, int64; a failed sample of `y` holds NaN."""


def judged(problem: Problem, y: Tensor, factor: Tensor, rcond: Tensor, weakest: Tensor) -> Solved:
    """Add a status to each sample, and take numbers away from those that failed."""
    status = status_of(problem, y, rcond)
    y = torch.where(status.view(-1, 1, 1, 1) == 0, y, torch.nan)
    return Solved(y, factor, rcond, weakest, status)


class Backend(ABC):
    """One way to compute the answer. All tensors are float64; shapes are those of `Problem`."""

    name: str

    def unusable(self) -> str | None:
        """Why this backend cannot run in this process, or `None`."""
        return None

    @abstractmethod
    def unsupported(self, device: torch.device, n: int) -> str | None:
        """Why this backend cannot take blocks of `n = V (R+1)` unknowns on `device`, or `None`."""

    def pieces(self, B: int, T: int, n: int, reach: int) -> int:
        """Into how many pieces of time each sequence is cut."""
        del B, T, n, reach
        return 1

    @abstractmethod
    def factor_size(self, problem: Problem, pieces: int) -> int:
        """Length of `Solved.factor`; must not depend on values."""

    @abstractmethod
    def solve(self, problem: Problem, pieces: int) -> Solved:
        """Factor and solve."""

    @abstractmethod
    def adjoint(self, problem: Problem, factor: Tensor, g: Tensor, pieces: int) -> Tensor:
        """Solve `M x = g` with the kept factor, `M` the normal matrix; `problem.d, .u` unused."""

    def row_gradients(
        self, problem: Problem, lam: Tensor, y: Tensor, wanted: list[bool]
    ) -> list[Tensor]:
        """Gradients by `c, d, u, s` and the weights; an empty tensor where not wanted."""
        every = row_gradients(problem, lam, y)
        return [g if w else g.new_empty((0,) * g.ndim) for g, w in zip(every, wanted, strict=True)]
