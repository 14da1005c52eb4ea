"""Conversion of arrays, tensors, data frames and xarray grids to series on one time axis."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smnn._util.names import check_arguments
from smnn.data import DataError, TimeSeriesData, read, sentinels
from smnn.forecasting._time import Clock, SeriesError, make_clock


@dataclass(frozen=True)
class History:
    """Series on one time axis."""

    array: np.ndarray
    """`(N, *shape)` float64, NaN where missing."""
    clock: Clock
    names: tuple[str, ...]
    """One name per series, in the order of the flattened shape."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the values at one time."""
        return self.array.shape[1:]

    @property
    def rows(self) -> np.ndarray:
        """`(S, N)` array of all series."""
        return np.ascontiguousarray(self.array.reshape(len(self.array), -1).T)


TABULAR = {"unique_id", "ds", "t", "time", "date", "datetime", "timestamp", "series", "year"}
"""Names of columns by which a frame of numbers is more than one column for each series."""


def read_history(y: Any, t: Any = None, reading: Mapping[str, Any] | None = None) -> History:
    """Convert series and their times.

    Args:
        y: Array, tensor or nested list `(N,)`, `(N, S)` or `(N, ...)`, time first; a data frame,
            wide or long; an xarray `DataArray` with a dimension `time`; the path of a table.
        t: Times, or the name of the time column of a table; `None` uses the index of `y`, or counts
            steps if it has none.
        reading: Further arguments of `smnn.data.read`.

    Raises:
        SeriesError: If `y` is empty, not numeric or infinite, or `t` does not fit.
    """
    options = dict(reading or {})
    known = [name for name in inspect.signature(read).parameters if name != "source"]
    check_arguments("Forecaster.fit", options, ["horizon", "h", *known])
    if t is not None:
        options.setdefault("time", t)
    if reading or isinstance(t, str) or _needs_reading(y):
        try:
            return _from_table(read(_without_row_numbers(y), **options))
        except DataError as error:
            raise SeriesError(str(error)) from None
    names: list[str] | None = None
    own: Any = None
    if hasattr(y, "dims") and hasattr(y, "transpose"):  # xarray
        if "time" in y.dims:
            y = y.transpose("time", ...)
        own = y[y.dims[0]].values if y.dims[0] in y.coords else None
        names = _cell_names(y)
        raw = y.values
    elif hasattr(y, "columns"):
        names, own, raw = [str(c) for c in y.columns], _index(y.index), y.to_numpy()
    elif hasattr(y, "index") and hasattr(y, "to_numpy"):
        names, own, raw = [str(y.name or "y")], _index(y.index), y.to_numpy()
    elif hasattr(y, "detach"):
        raw = y.detach().cpu()
        raw = raw if raw.is_complex() else raw.double().numpy()  # NumPy has no bfloat16
    else:
        raw = y
    try:
        if np.iscomplexobj(raw):
            raise TypeError("got complex numbers")
        array = np.asarray(raw, dtype=float)
    except (TypeError, ValueError) as error:
        raise SeriesError(
            f"y: expected numbers; {error}. Drop columns that are not numeric."
        ) from None
    if array.ndim == 0 or array.size == 0:
        raise SeriesError(f"y: got shape {array.shape}; expected (times,) or (times, series).")
    if np.isinf(array).any():
        where = tuple(int(i) for i in np.argwhere(np.isinf(array))[0])
        raise SeriesError(f"y: infinite at {where}. Use NaN for missing values.")
    count = int(np.prod(array.shape[1:]))
    if names is None or len(names) != count:
        names = ["y"] if count == 1 else [f"y{i}" for i in range(count)]
    clock = make_clock(own if t is None else t, len(array))
    return History(_without_sentinels(array, names), clock, tuple(names))


def _without_sentinels(array: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Replace numbers such as -999 that stand for missing values, with a warning."""
    rows = array.reshape(len(array), -1)
    found = {i: number for i in range(rows.shape[1]) if (number := sentinels(rows[:, i]))}
    if not found:
        return array
    rows = rows.copy()
    for i, numbers in found.items():
        rows[np.isin(rows[:, i], list(numbers)), i] = np.nan
    first, numbers = next(iter(found.items()))
    several = f", and such numbers in {len(found) - 1} other series" if len(found) > 1 else ""
    warnings.warn(
        f"{names[first]}: {' and '.join(f'{x:g}' for x in numbers)} ({sum(numbers.values())} of "
        f"{len(rows)} values){several}, far from all other values; taken as missing (na=() keeps "
        "it).",
        stacklevel=4,
    )
    return rows.reshape(array.shape)


def _needs_reading(y: Any) -> bool:
    """Whether `y` is a file, or a frame with more than one column of numbers for each series."""
    if isinstance(y, str | Path | Mapping):
        return True
    if hasattr(y, "dims") or not hasattr(y, "columns"):
        return type(y).__module__.split(".")[0] in ("polars", "pyarrow")
    index = getattr(y, "index", None)
    if index is not None and (index.nlevels > 1 or not index.is_monotonic_increasing):
        return True
    kinds = [getattr(kind, "kind", "O") for kind in getattr(y, "dtypes", ["O"])]
    named = any(str(name).lower() in TABULAR for name in y.columns)
    return not hasattr(y, "iloc") or named or any(kind not in "iufb" for kind in kinds)


def _without_row_numbers(y: Any) -> Any:
    """Drop an unnamed index of integers, such as `concat` leaves, beside a column of times."""
    times = TABULAR - {"unique_id", "series"}
    if not (hasattr(y, "iloc") and hasattr(y, "columns") and list(y.index.names) == [None]):
        return y
    timed = any(str(name).lower() in times for name in y.columns)
    return y.reset_index(drop=True) if timed and y.index.dtype.kind in "iu" else y


def _from_table(data: TimeSeriesData) -> History:
    """Series of a table on the union of their times."""
    for text in data.warnings:
        if "looks like time" not in text:
            warnings.warn(text, stacklevel=4)
    dates = data.local_dates() or data.dates
    times: list[np.ndarray] = data.times if dates is None else list(dates)
    union = np.unique(np.concatenate(times))
    array = np.full((len(union), len(times) * len(data.names)), np.nan)
    names = []
    for i, (t, values) in enumerate(zip(times, data.values)):
        first = i * len(data.names)
        array[np.searchsorted(union, t), first : first + len(data.names)] = values
        label, several = data.series[i], len(data.names) > 1
        own = [f"{label} {name}" if several else label for name in data.names]
        names += own if label else data.names
    if len(times) > 1 and len({t[-1] for t in times}) > 1:
        early = min(range(len(times)), key=lambda i: times[i][-1])
        warnings.warn(
            f"series {data.series[early]!r} ends at {times[early][-1]}, others later, up to "
            f"{union[-1]}; all are forecast from there.",
            stacklevel=4,
        )
    clock = make_clock(None if data.time_name is None else union, len(union))
    return History(array, clock, tuple(names))


def _index(index: Any) -> Any:
    """Return the index of a frame, or `None` if it only counts the rows."""
    plain = index.dtype.kind in "iu" and len(index) and (index == np.arange(len(index))).all()
    return None if plain or index.dtype.kind not in "iufMO" else index


def _cell_names(y: Any) -> list[str] | None:
    """Names of grid cells, such as `lat=2.5 lon=190`; `None` for very large grids."""
    if y.ndim == 1:
        return [str(y.name or "y")]
    if y.size // max(len(y), 1) > 100_000 or any(d not in y.coords for d in y.dims[1:]):
        return None
    axes = [[f"{d}={v:g}" if np.isreal(v) else f"{d}={v}" for v in y[d].values] for d in y.dims[1:]]
    names = [""]
    for axis in axes:
        names = [f"{a} {b}".strip() for a in names for b in axis]
    return names


def nanmean(values: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Mean over some axes, ignoring NaN; NaN (without a warning) where there are no values."""
    seen = ~np.isnan(values)
    total = np.where(seen, values, 0.0).sum(axes)
    out: np.ndarray = np.where(seen.any(axes), total / np.maximum(seen.sum(axes), 1), np.nan)
    return out


def read_inputs(inputs: Any, count: int, what: str) -> np.ndarray:
    """Convert exogenous inputs to `(count, I)`.

    Raises:
        SeriesError: If they have the wrong shape or missing values.
    """
    raw = inputs.to_numpy() if hasattr(inputs, "to_numpy") else np.asarray(inputs)
    array = np.asarray(raw, dtype=float)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or len(array) != count:
        raise SeriesError(
            f"inputs: got shape {array.shape}; expected ({count}, number of inputs), "
            f"one row per {what}."
        )
    if not np.isfinite(array).all():
        raise SeriesError("inputs: found missing values. Inputs must be known at every time.")
    return array
