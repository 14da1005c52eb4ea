"""Simulation of a law that was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy

from smnn.datasets.fields import Columns, PeriodicGrid, SpectralLaw, integrate
from smnn.discovery._field.data import on_grid
from smnn.errors import DataError

Field = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class FieldSimulation:
    """Solution of a law from an initial field.

    Attributes:
        u: `(T, *grid, F)` values at the times that were reached.
        t: `(T,)` these times; fewer than were asked for if the solution diverged.
        status: `"ok"`, `"diverged"`, or `"inaccurate"`: halving the steps still changes it.
        message: What the status means for this solution.
    """

    u: Field
    t: Field
    status: str
    message: str


def simulate_field(
    columns: Columns, expressions: Sequence[sympy.Expr], axes: Sequence[Field],
    periodic: Sequence[bool], functions: Mapping[str, Any], u0: Any, t: Any, rtol: float,
) -> FieldSimulation:  # fmt: skip
    """Solve a law on its periodic grid, to a relative accuracy.

    Raises:
        DataError: The domain is not periodic, or an argument has the wrong shape.
    """
    if not all(periodic):
        raise DataError(
            "the domain is not periodic, and its boundary conditions are not known; simulate "
            "needs a periodic domain (periodic=True if it is one)."
        )
    shape = tuple(len(x) for x in axes)
    start, F = np.asarray(u0), len(columns.fields)
    if start.shape == shape and F == 1:
        start = start[..., None]
    if start.shape != (*shape, F):
        raise DataError(f"u0 has shape {start.shape}; expected {(*shape, F)}.")
    times = np.asarray(t, float).ravel()
    if not len(times) or not np.isfinite(times).all() or (np.diff(times) <= 0).any():
        raise DataError("t must be finite and increasing.")
    if not np.isfinite(start).all():
        raise DataError("u0 has values that are not finite; fill them in first.")
    if np.iscomplexobj(start) and not columns.is_complex:
        raise DataError("u0 is complex, but the law is for real fields.")
    lengths = [len(x) * float(x[1] - x[0]) for x in axes]
    grid = PeriodicGrid(shape, lengths, columns.is_complex)
    law = SpectralLaw(columns, expressions, grid, on_grid(axes, functions))
    found = integrate(law, np.moveaxis(start, -1, 0), times, rtol=rtol, most=512)
    u = np.moveaxis(grid.inverse(found.modes), 1, -1)
    reached = times[: len(u)]
    messages = {
        "ok": f"the solution is accurate to about {found.error:.1g}.",
        "diverged": f"the solution grows without bound after t = {reached[-1]:.4g}.",
        "inaccurate": f"halving the steps still changes the solution by {found.error:.1g}.",
    }
    return FieldSimulation(u, reached, found.status, messages[found.status])
