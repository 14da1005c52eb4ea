"""What a backend is: four functions on a `Problem`, and an honest word on what it cannot do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from smnn._problem import Problem
from smnn._rows import column_squares, row_gradients
from smnn._status import (
    DOUBTFUL_PIVOT,
    OK,
    SINGULAR,
    SMALLEST_PIVOT,
    SMALLEST_SINGULAR,
    all_fine,
    status_of,
)


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


def relative_pivots(pivots: Tensor, norms: Tensor) -> Tensor:
    """Pivots relative to the norms of their columns: 0 for an empty column, NaN stays NaN."""
    return torch.where(norms == 0, 0.0, pivots / norms)


def nothing(problem: Problem) -> Solved:
    """The answer to an empty batch."""
    none = problem.c.new_empty(0)
    index = none.new_empty(0, dtype=torch.int64)
    return Solved(problem.c.new_empty(problem.y_shape), none, none, index, index)


class Backend(ABC):
    """One way to compute the answer. All tensors are float64; shapes are those of `Problem`."""

    name: str
    settled = False
    """Whether the status that `solve` gives is the last word, and no sample needs a second look."""

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

    def prepare(self, problem: Problem, pieces: int) -> Any:
        """A shorter way for many calls with tensors of one layout, or `None`."""
        del problem, pieces
        return None

    @abstractmethod
    def factor_size(self, problem: Problem, pieces: int) -> int:
        """Length of `Solved.factor`; must not depend on values."""

    @abstractmethod
    def solve(self, problem: Problem, pieces: int) -> Solved:
        """Factor and solve."""

    @abstractmethod
    def adjoint(self, problem: Problem, factor: Tensor, g: Tensor, pieces: int) -> Tensor:
        """Solve `M x = g` with the kept factor, `M` the normal matrix; `problem.d, .u` unused."""

    def settle(
        self,
        problem: Problem,
        pieces: int,
        y: Tensor,
        factor: Tensor,
        rcond: Tensor,
        weakest: Tensor,
    ) -> Solved:
        """Judge each sample by its smallest pivot, and more closely where that is small.

        On the CPU, doubtful samples are looked at again: two steps of inverse iteration give the
        smallest singular value. On a device this would mean to wait for it, and is left out.
        """
        smallest = SMALLEST_PIVOT
        if y.device.type == "cpu":
            if all_fine(problem, y, rcond):
                return Solved(y, factor, rcond, weakest, torch.zeros_like(weakest))
            smallest = SMALLEST_SINGULAR
            sigma = self._smallest_singular(problem, pieces, factor, weakest)
            rcond = torch.where((rcond < DOUBTFUL_PIVOT) & (rcond > 0), sigma, rcond)
        status = status_of(problem, y, rcond, smallest)
        y = torch.where(status.view(-1, 1, 1, 1) == 0, y, torch.nan)
        return Solved(y, factor, rcond, weakest, status)

    def look_again(
        self,
        problem: Problem,
        pieces: int,
        factor: Tensor,
        status: Tensor,
        rcond: Tensor,
        weakest: Tensor,
    ) -> Tensor:
        """The status with doubtful samples judged by their smallest singular value; waits."""
        if self.settled:
            return status
        doubtful = (status == OK) & (rcond < DOUBTFUL_PIVOT)
        if not bool(doubtful.any()):
            return status
        sigma = self._smallest_singular(problem, pieces, factor, weakest)
        return torch.where(doubtful & ~(sigma > SMALLEST_SINGULAR), SINGULAR, status)

    def _smallest_singular(
        self, problem: Problem, pieces: int, factor: Tensor, weakest: Tensor
    ) -> Tensor:
        """Smallest singular value of the rows with columns of norm one, started at the weakest."""
        norms = column_squares(problem).sqrt()
        x = norms.new_zeros(norms.shape[0], norms[0].numel())
        x = x.scatter(1, weakest.view(-1, 1), 1.0).view_as(norms)
        length = norms.new_zeros(norms.shape[0])
        for _ in range(2):
            x = norms * self.adjoint(problem, factor, norms * x, pieces)
            length = x.flatten(1).norm(dim=1)
            x = x / length.view(-1, 1, 1, 1)
        return length.rsqrt()

    def gradients(
        self,
        problem: Problem,
        factor: Tensor,
        y: Tensor,
        gy: Tensor,
        pieces: int,
        wanted: list[bool],
    ) -> list[Tensor]:
        """Adjoint solve and row gradients; as `row_gradients` of the two."""
        return self.row_gradients(problem, self.adjoint(problem, factor, gy, pieces), y, wanted)

    def row_gradients(
        self, problem: Problem, lam: Tensor, y: Tensor, wanted: list[bool]
    ) -> list[Tensor]:
        """Gradients by `c, d, u, s` and the weights; an empty tensor where not wanted."""
        every = row_gradients(problem, lam, y)
        return [g if w else g.new_empty((0,) * g.ndim) for g, w in zip(every, wanted, strict=True)]
