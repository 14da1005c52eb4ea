"""Solver selection: the `config` module of mech-nn."""

from __future__ import annotations

from enum import Enum


class SolverType(Enum):
    """Solvers of mech-nn, and two more.

    Two of its names, `SPARSE_QR` and `SPARSE_INDIRECT_CG`, led nowhere there.
    """

    DENSE_CHOLESKY = 1
    """The original MNN with dense matrices: `smnn.baselines.mnn_dense`."""
    EXACT = 2
    """The same numbers in linear time: `smnn.baselines.mnn_exact`. The default."""
    SPARSE_QR = 10
    """Same as `EXACT`, an orthogonal elimination of the sparse rows."""
    SPARSE_INDIRECT_CG = 100
    """Same as `SPARSE_INDIRECT_BLOCK_CG`."""
    SPARSE_INDIRECT_BLOCK_CG = 1000
    """The original MNN by conjugate gradients: `smnn.baselines.mnn_sparse`."""
    LEAST_SQUARES = 10000
    """S-MNN, without slack: `smnn.solve`. The results differ, and `eps` is zero."""


class ODEConfig:
    """Defaults of new layers."""

    linear_solver: SolverType = SolverType.EXACT
    cg_max_iter: int = 200
    """Maximum number of conjugate gradient iterations."""


def solver_named(name: str | SolverType) -> SolverType:
    """Return a solver by name; case is ignored.

    Raises:
        ValueError: If there is none.
    """
    if isinstance(name, SolverType):
        return name
    try:
        return SolverType[str(name).upper()]
    except KeyError:
        known = ", ".join(member.name for member in SolverType)
        raise ValueError(f"solver: got {name!r}; expected one of {known}.") from None
