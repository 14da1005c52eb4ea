"""Which solver the layers use: the `config` module of mech-nn."""

from __future__ import annotations

from enum import Enum


class SolverType(Enum):
    """Names of mech-nn, and two more.

    Two of its names, `SPARSE_QR` and `SPARSE_INDIRECT_CG`, led nowhere there.
    """

    DENSE_CHOLESKY = 1
    """The original MNN with dense matrices: `smnn.baselines.mnn_dense`."""
    EXACT = 2
    """The same numbers in linear time: `smnn.baselines.mnn_exact`. The default."""
    SPARSE_QR = 10
    """As `EXACT`, which is an orthogonal elimination of the sparse rows."""
    SPARSE_INDIRECT_CG = 100
    """As `SPARSE_INDIRECT_BLOCK_CG`."""
    SPARSE_INDIRECT_BLOCK_CG = 1000
    """The original MNN by conjugate gradients: `smnn.baselines.mnn_sparse`."""
    LEAST_SQUARES = 10000
    """S-MNN, without slack: `smnn.solve`. Other numbers, and `eps` is zero."""


class ODEConfig:
    """What a layer takes when it is made, unless told otherwise."""

    linear_solver: SolverType = SolverType.EXACT
    cg_max_iter: int = 200
    """Iterations of conjugate gradients."""


def solver_named(name: str | SolverType) -> SolverType:
    """A solver by the name of its member, in any case.

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
