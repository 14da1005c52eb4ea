"""What a backend is: four functions on a `Problem`, and an honest word on what it cannot do."""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from smnn._solver.diagnostics import (
    DOUBTFUL_PIVOT,
    OK,
    SINGULAR,
    SMALLEST_PIVOT,
    SMALLEST_SINGULAR,
    all_fine,
    status_of,
)
from smnn._solver.problem import Problem
from smnn._solver.rows import column_squares, normal_residual, row_gradients


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
    """`(B,)` a code of `diagnostics.py`, int64; a failed sample of `y` holds NaN."""


def relative_pivots(pivots: Tensor, norms: Tensor) -> Tensor:
    """Pivots relative to the norms of their columns: 0 for an empty column, NaN stays NaN."""
    return torch.where(norms == 0, 0.0, pivots / norms)


def nothing(problem: Problem) -> Solved:
    """The answer to an empty batch."""
    none = problem.c.new_empty(0)
    index = none.new_empty(0, dtype=torch.int64)
    return Solved(problem.c.new_empty(problem.y_shape), none, none, index, index)


_HOME = os.getpid()


@contextlib.contextmanager
def safe_threads() -> Iterator[None]:
    """PyTorch's own parallel loops hang in a forked process: one thread there, for the while."""
    threads = torch.get_num_threads()
    if os.getpid() == _HOME or threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


Solve = Callable[[Tensor], Tensor]
"""`M^-1 g` for `g (B, T, V, R+1)`, with `M` the normal matrix."""


def _weakest_direction(
    norms: Tensor, solve: Solve, x: Tensor, rounds: int
) -> tuple[Tensor, Tensor]:
    """Inverse iteration: the smallest singular value of the rows with columns of norm one.

    Returns:
        The value, `(B,)`, never below the true one but for rounding; and its direction, like `x`.
    """
    length = norms.new_zeros(norms.shape[0])
    for _ in range(rounds):
        x = solve(norms * x).mul_(norms)
        length = x.flatten(1).norm(dim=1)
        x.div_(length.view(-1, 1, 1, 1))
    return length.rsqrt(), x


def _scattered(like: Tensor) -> Tensor:
    """Numbers without a pattern, in `[-1/2, 3/2)`: no direction of interest is orthogonal to them.

    A sine of large arguments, because generators of random numbers have a state, and no place in
    a compiled graph.
    """
    k = torch.arange(like[0].numel(), dtype=like.dtype, device=like.device)
    x = (torch.sin(12.9898 * k + 78.233) * 43758.5453).remainder(1.0) * 2 - 0.5
    return x.view(1, *like.shape[1:]).expand_as(like)


def condition_of(
    problem: Problem, solve: Solve, weakest: Tensor, *, closely: bool
) -> tuple[Tensor, Tensor]:
    """Condition number of the rows with columns of norm one, and the least certain direction.

    By inverse iteration, from a scattered start that favours the weakest pivot: a lower bound. Seen
    closely, four rounds and three of power iteration: within a factor of three in practice. Else
    one round, and the largest singular value is taken for one: enough to know where to look.

    Args:
        problem: Whose rows.
        solve: With its normal matrix.
        weakest: `(B,)` where the smallest pivot is.
        closely: Whether the number itself is wanted.

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
    smallest, x = _weakest_direction(norms, solve, start, 4 if closely else 1)
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

    def busy(self, n: int) -> int:
        """Samples with blocks of `n` unknowns; fewer of them at a time take nearly as long."""
        del n
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
            with safe_threads():
                sigma = self._smallest_singular(problem, pieces, factor, weakest)
            # Inverse iteration with a singular factor may end in infinity over infinity.
            sigma = sigma.nan_to_num(nan=0.0)
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

        def solve(g: Tensor) -> Tensor:
            return self.adjoint(problem, factor, g, pieces)

        return _weakest_direction(norms, solve, x, 2)[0]

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


def refuse_zeros(tensors: Sequence[Tensor]) -> None:
    """A tensor may be known to be zero and have no memory; PyTorch makes such for derivatives."""
    for name, x in zip("cdus", tensors, strict=True):
        if x._is_zerotensor() and x.numel():
            raise RuntimeError(f"{name} is a ZeroTensor, without memory. Pass torch.zeros instead.")


def in_memory(g: Tensor) -> Tensor:
    """The same where kernels can read it: no view that means `-g`, no zero without memory."""
    return g.new_zeros(g.shape) if g._is_zerotensor() else g.resolve_neg().contiguous()
