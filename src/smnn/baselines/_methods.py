"""Three methods for the same equations: dense Cholesky, conjugate gradients, bordered band.

A method gives the solution and whatever it needs to solve with the same matrix again (its state:
a tuple of tensors, kept by autograd like any other).
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from smnn.baselines._matrix import Entries, entries
from smnn.baselines._system import Point, System, gradients, relative_size, residual, slack_column

State = tuple[Tensor, ...]


class Outcome(NamedTuple):
    """Result of a method."""

    x: Point
    converged: Tensor
    """`(B,)` bool."""
    iterations: Tensor
    """`(B,)` int64."""
    residual: Tensor
    """`(B,)` of the normal equations, relative to their right-hand side."""
    state: State


class Method(ABC):
    """A method that solves the normal equations."""

    @abstractmethod
    def solve(self, system: System) -> Outcome:
        """Solve every sample."""

    @abstractmethod
    def adjoint(self, system: System, state: State, g: Point) -> Point:
        """Solve the same normal equations for another right-hand side."""

    def gradients(
        self, system: System, lam: Point, x: Point, wanted: list[bool]
    ) -> tuple[Tensor, ...]:
        """See `_system.gradients`; gradients that are not `wanted` are arbitrary."""
        return gradients(system, lam, x)


def _joined(x: Point) -> Tensor:
    return torch.cat([x.eps.unsqueeze(1), x.y.flatten(1)], 1)


def _parted(x: Tensor, system: System) -> Point:
    return Point(x[:, 1:].reshape(system.problem.y_shape), x[:, 0].clone())


def _right(table: Entries, system: System) -> Tensor:
    """`A^T b` and the load, `(B, columns)`."""
    g = table.right.new_zeros(len(table.right), table.columns)
    g = g.index_add(1, table.column, table.value * table.right[:, table.row])
    g[:, 0] += system.load
    return g


class Dense(Method):
    """Dense Cholesky: memory is quadratic in `T`, time is cubic."""

    def solve(self, system: System) -> Outcome:
        """Solve with a Cholesky factorization of the normal matrix."""
        table = entries(system)
        A = table.value.new_zeros(*table.right.shape, table.columns)
        A[:, table.row, table.column] = table.value
        L, info = torch.linalg.cholesky_ex(A.mT @ A)
        x = _parted(torch.cholesky_solve(_right(table, system).unsqueeze(-1), L)[..., 0], system)
        q = slack_column(system.problem.s, system.problem.c.shape[-1])
        left = relative_size(system, residual(system, q, *x))
        good = (info == 0) & x.eps.isfinite() & x.y[:, 0].isfinite().flatten(1).all(1)
        return Outcome(x, good, torch.zeros_like(info, dtype=torch.int64), left, (L,))

    def adjoint(self, system: System, state: State, g: Point) -> Point:
        """Two triangular solves."""
        return _parted(torch.cholesky_solve(_joined(g).unsqueeze(-1), state[0])[..., 0], system)


@dataclass(frozen=True)
class Sparse(Method):
    """Conjugate gradients without a preconditioner, from zero, on the sparse normal matrix."""

    max_iter: int
    tol: float

    def solve(self, system: System) -> Outcome:
        """Iterate until every sample is below the tolerance, at most `max_iter` times."""
        table = entries(system)
        M = _normal_matrix(table)
        g = _right(table, system)
        x, iterations, left = self._iterate(M, g)
        state = M.crow_indices(), M.col_indices(), M.values()
        return Outcome(_parted(x, system), left <= self.tol, iterations, left, state)

    def adjoint(self, system: System, state: State, g: Point) -> Point:
        """Run the same iteration; warn if it does not converge."""
        start, column, value = state
        size = len(start) - 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            M = torch.sparse_csr_tensor(start, column, value, (size, size), check_invariants=False)
        x, _, left = self._iterate(M, _joined(g))
        bad = int((left > self.tol).sum())
        if bad:
            warnings.warn(
                f"mnn_sparse: in the backward pass, conjugate gradients did not converge for {bad} "
                f"of {len(left)} samples within {self.max_iter} iterations (relative residual "
                f"up to {left.max().item():.1e}, tol {self.tol:.1e}): the gradient is not exact.",
                RuntimeWarning,
                stacklevel=2,
            )
        return _parted(x, system)

    def _iterate(self, M: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the solution, the iterations and the relative residual of every sample."""
        size = torch.linalg.vector_norm(g, dim=1)
        x, r, direction = torch.zeros_like(g), g, g
        rho = r.square().sum(1)
        running = size > 0
        count = torch.zeros_like(size, dtype=torch.int64)
        for i in range(self.max_iter):
            if i % 10 == 0 and not bool(running.any()):  # reading synchronizes with the device
                break
            image = torch.mv(M, direction.reshape(-1)).view_as(direction)
            step = torch.where(running, rho / (direction * image).sum(1), 0.0)
            x = x + step.unsqueeze(1) * direction
            r = r - step.unsqueeze(1) * image
            before, rho = rho, r.square().sum(1)
            count = count + running
            running = running & (rho.sqrt() > self.tol * size)
            beta = torch.where(running, rho / before, 0.0)
            direction = r + beta.unsqueeze(1) * direction
        return x, count, torch.where(size > 0, rho.sqrt() / size, 0.0)


def _normal_matrix(table: Entries) -> Tensor:
    """`A^T A` of the whole batch as one sparse matrix of diagonal blocks."""
    B, rows = table.right.shape
    item = torch.arange(B, device=table.row.device).unsqueeze(1)
    row = (table.row + rows * item).flatten()
    column = (table.column + table.columns * item).flatten()
    with warnings.catch_warnings():  # "sparse tensors are in beta"
        warnings.simplefilter("ignore", UserWarning)
        A = torch.sparse_coo_tensor(
            torch.stack([row, column]), table.value.flatten(), (B * rows, B * table.columns),
            check_invariants=False,
        ).coalesce()  # fmt: skip
        return torch.sparse.mm(A.t(), A).coalesce().to_sparse_csr()
