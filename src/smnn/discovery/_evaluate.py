"""Evaluation of fitted equations: hold-out simulations, and whether the equations hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from smnn.data import Table
from smnn.discovery._arrays import Array
from smnn.discovery._fit.data import DataError, as_matrix

if TYPE_CHECKING:
    from smnn.discovery._estimator import Discovery

FEWEST_FITTED = 8  # Minimum number of rows per series that are not held out
TOLERANCE = 0.4
"""Error, in standard deviations of the data, up to which a simulation follows the data."""


class DiscoveryWarning(UserWarning):
    """Something that `Discovery.fit` changed or noticed, such as outliers."""


class VerdictWarning(DiscoveryWarning):
    """The data do not support the equations: the verdict is below `"tentative"`."""


ModelMisfitWarning = VerdictWarning
"""Earlier name of `VerdictWarning`."""


@dataclass(frozen=True)
class HeldOutSeries:
    """Simulation of a series from its last fitted state, and the held-out data."""

    index: int
    """Index among the fitted series."""
    series: str
    """Name of the series."""
    start: float
    """Time of the last fitted row, where the simulation starts."""
    t: Array
    """`(T,)` held-out times."""
    data: Array
    """`(T, V)` held-out data, NaN where missing."""
    simulated: Array
    """`(T, V)` simulation, NaN after it has diverged."""
    error: Array
    """`(T,)` root mean square over the variables, in standard deviations; infinite if diverged."""

    inputs: Array | None = None
    """`(T+1, inputs)` external inputs from `start` on."""

    @property
    def until(self) -> float | None:
        """Time after which the error exceeds the tolerance; `None` if it never does."""
        beyond = np.flatnonzero(self.error > TOLERANCE)
        return float(self.t[beyond[0]] - self.start) if len(beyond) else None

    @property
    def length(self) -> float:
        """Length of the held-out time span."""
        return float(self.t[-1] - self.start)


@dataclass(frozen=True)
class HoldOutResult:
    """Result of `evaluate`."""

    series: list[HeldOutSeries]
    scale: Array
    """`(V,)` standard deviation of the fitted and held-out data, the unit of the errors."""
    tolerance: float = TOLERANCE
    """Error up to which a simulation follows the data."""

    @property
    def error(self) -> float | None:
        """Root-mean-square error in standard deviations; `None` if nothing was held out."""
        squares = np.concatenate([s.error**2 for s in self.series]) if self.series else np.empty(0)
        squares = squares[~np.isnan(squares)]
        return float(np.sqrt(squares.mean())) if len(squares) else None

    @property
    def length(self) -> float:
        """Total length of the held-out time spans."""
        return sum(s.length for s in self.series)

    @property
    def followed(self) -> float | None:
        """Fraction of the held-out time over which the simulations follow the data."""
        if not self.series:
            return None
        lasted = [s.length if s.until is None else s.until for s in self.series]
        return float(sum(lasted) / self.length)


def first_rows(table: Table, values: int) -> Table:
    """The first rows of every series, if a table has more than a number of values.

    Rows are not thinned out, because the remaining ones might not resolve the dynamics.
    """
    most = values // max(1, len(table.names))
    if table.rows <= most:
        return table
    sizes = [max(FEWEST_FITTED, int(most / table.rows * len(t))) for t in table.times]
    used = sum(min(n, len(t)) for n, t in zip(sizes, table.times))
    text = f"the first {used:,} of {table.rows:,} rows are used. Split the data to use others."
    short = _rows(table, [slice(n) for n in sizes])
    return replace(short, warnings=[*table.warnings, text])


def hold_out(table: Table, fraction: float = 0.2) -> tuple[Table, Table]:
    """Split every series of a table into a first part to fit and a last part to hold out.

    At least 8 rows of every series are kept for the fit, or all if there are fewer.

    Args:
        table: The data.
        fraction: Fraction of the rows of each series to hold out.

    Raises:
        DataError: If a variable has values only in the part that is held out.
    """
    sizes = [
        max(len(t) - round(fraction * len(t)), min(FEWEST_FITTED, len(t))) for t in table.times
    ]

    fitted = _rows(table, [slice(n) for n in sizes])
    held_out = _rows(table, [slice(n, None) for n in sizes])
    for i, name in enumerate(table.names):
        empty = not any(np.isfinite(x[:, i]).any() for x in fitted.values)
        if empty and any(np.isfinite(x[:, i]).any() for x in held_out.values):
            raise DataError(
                f"{name} has values only in the part that is held out; leave the column out, or "
                "hold out less."
            )
    return fitted, held_out


def _rows(table: Table, rows: Sequence[slice]) -> Table:
    """Rows of every series."""
    return replace(
        table,
        times=[t[r].copy() for t, r in zip(table.times, rows)],
        values=[x[r].copy() for x, r in zip(table.values, rows)],
        inputs=[u[r].copy() for u, r in zip(table.inputs, rows)],
        dates=table.dates and [d[r] for d, r in zip(table.dates, rows)],
    )


def evaluate(model: Discovery, X: Any, *, t: Any = None, inputs: Any = None) -> HoldOutResult:
    """Simulate from the last fitted states and compare with held-out data.

    Args:
        model: A fitted `Discovery`.
        X: Data that follow the fitted ones: a `Table` such as the second one of `hold_out`, a
            (T, V) array, or a list of arrays, one per fitted series and possibly empty.
        t: (T,) times, or a list of these; with a table, its own.
        inputs: (T, inputs) external inputs, or a list of these; with a table, its own.

    Raises:
        DataError: If the data do not continue those that were fitted.
    """
    table = model.table_
    if table is None:
        raise DataError("the model has no fitted states; it was loaded from a file.")
    if isinstance(X, Table):
        X, t, inputs = X.values, X.times, X.inputs if X.input_names else None
    elif not isinstance(X, list | tuple):
        X, t = [X], None if t is None else [t]
        inputs = None if inputs is None else [inputs]
    parts = _held_out_parts(table, X, t, inputs)
    everything = [x for pair in zip(table.values, (part[0] for part in parts)) for x in pair]
    scale = np.nanstd(np.concatenate(everything), axis=0)
    found = []
    for i, (data, times, U) in enumerate(parts):
        if len(times) == 0:
            continue
        start = float(table.times[i][-1])
        path = model.simulate(model._past(i), np.append(start, times), U, series=i)
        path = path[1:, : len(scale)]
        error = _error(path, data, scale)
        found.append(HeldOutSeries(i, table.series[i], start, times, data, path, error, U))
    return HoldOutResult(found, scale)


def _held_out_parts(
    table: Table, X: Sequence[Any], t: Any, inputs: Any
) -> list[tuple[Array, Array, Array | None]]:
    """Held-out data, times, and inputs from the last fitted time on, of every series."""
    n = len(table.times)
    if t is None or len(X) != n or len(t) != n or (inputs is not None and len(inputs) != n):
        raise DataError(f"expected held-out data and times for each of the {n} fitted series.")
    parts: list[tuple[Array, Array, Array | None]] = []
    for i, (x, at) in enumerate(zip(X, t)):
        data, times = as_matrix(x, f"X[{i}]"), np.asarray(at, float).ravel()
        if data.shape != (len(times), len(table.names)):
            raise DataError(
                f"X[{i}] has shape {data.shape}; expected ({len(times)}, {len(table.names)})."
            )
        if (np.diff(times, prepend=table.times[i][-1]) <= 0).any():
            raise DataError(f"t[{i}] must increase, and start after the last fitted time.")
        U = None
        if table.input_names:
            if inputs is None:
                raise DataError(f"the model has inputs ({', '.join(table.input_names)}).")
            U = np.concatenate([table.inputs[i][-1:], as_matrix(inputs[i], f"inputs[{i}]")])
        parts.append((data, times, U))
    return parts


def _error(path: Array, data: Array, scale: Array) -> Array:
    """(T,) root mean square over the measured variables, in units of the scale."""
    off = (path - data) / scale
    known = np.isfinite(data)
    squares = np.where(known, np.where(np.isfinite(off), off**2, np.inf), 0.0).sum(1)
    count = known.sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count > 0, np.sqrt(squares / count), np.nan)
