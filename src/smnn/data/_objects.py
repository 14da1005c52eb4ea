"""Columns of objects in memory: frames, arrays, tensors, xarray, dictionaries and lists."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from smnn._util.optional import require
from smnn.data._times import TIME_NAMES
from smnn.errors import DataError

MAX_COLUMNS = 10_000
"""Columns of one table: more suggest that it is transposed."""


@dataclass
class Source:
    """Named columns that have been opened, and perhaps not yet read."""

    label: str
    """Name of the file, or kind of the object, for messages."""
    names: list[str]
    columns: dict[int, np.ndarray] = field(default_factory=dict)
    """Columns by position: float64, `datetime64[us]`, `timedelta64[ns]` or text as objects."""
    zones: dict[int, str] = field(default_factory=dict)
    """Time zones of columns of dates, which are in UTC."""
    units: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    load: Callable[[Sequence[int], Sequence[int]], Any] | None = None
    """Reads some columns of a text file as a pandas frame; the second are to stay text."""
    line: Callable[[int, Callable[[str], bool]], tuple[int, str] | None] = lambda column, bad: None
    """Line number and text of the first bad entry of a column of a text file."""
    decimal: str | None = None
    """Decimal sign in text; `None` to find it for each column."""
    index: int | None = None
    """Position of a column that is the index of a frame, and so its time."""
    weak_index: int | None = None
    """Position of an index that is the time if no column is."""
    series: tuple[int, ...] = ()
    """Positions of columns that separate series."""
    plain: bool = False
    """Whether it is an array without names, all of whose columns are variables."""


def unique_names(label: str, given: Iterable[Any]) -> list[str]:
    """Names of columns as text; those without one are numbered."""
    names = [
        " ".join(re.sub("[\u200b\ufeff]", "", str(n)).split()) or f"column{i + 1}"
        for i, n in enumerate(given)
    ]
    if len(names) > MAX_COLUMNS:
        raise DataError(
            f"{label} has {len(names):,} columns; expected at most {MAX_COLUMNS:,}, a column "
            "for each variable and a row for each time. Is it transposed?"
        )
    name, count = Counter(names).most_common(1)[0] if names else ("", 0)
    if count > 1:
        raise DataError(
            f"{label}: got the column {name!r} {count} times; expected each name once. Rename the "
            "columns."
        )
    return names


def from_columns(label: str, columns: Mapping[Any, Any], **more: Any) -> Source:
    """Columns of one length."""
    source = Source(label, unique_names(label, columns), **more)
    for i, values in enumerate(columns.values()):
        source.columns[i], zone = as_array(values)
        source.zones |= {i: zone} if zone else {}
    sizes = {name: len(source.columns[i]) for i, name in enumerate(source.names)}
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name} {size}" for name, size in list(sizes.items())[:12])
        raise DataError(f"{label}: got columns of different lengths ({listed}); expected one.")
    if not any(sizes.values()):
        raise DataError(f"{label} has no rows; expected a row for each time.")
    return source


def as_array(values: Any) -> tuple[np.ndarray, str | None]:
    """A column as float64, `datetime64[us]` (UTC), `timedelta64[ns]` or text, and its time zone."""
    zone = None
    if hasattr(values, "iloc"):  # pandas
        dtype, kind = values.dtype, getattr(values.dtype, "kind", "O")
        if getattr(dtype, "tz", None) is not None:
            name = str(dtype.tz)
            zone = name.removesuffix("+00:00") if name.startswith("UTC") else name
            values = values.dt.tz_convert("UTC").dt.tz_localize(None)
        elif type(dtype).__name__ == "PeriodDtype":
            values, kind = values.dt.to_timestamp(), "M"
        if kind in "iufb" and type(dtype).__name__ != "CategoricalDtype":
            return values.to_numpy(np.float64, na_value=np.nan), None
        if kind not in "mM":
            values = np.where(values.isna(), "", values.astype(object))
        else:
            values = values.to_numpy("datetime64[us]" if kind == "M" else "timedelta64[ns]")
    elif hasattr(values, "detach"):
        values = from_tensor(values)
    elif not isinstance(values, np.ndarray):
        if all(v is None or isinstance(v, int | float) for v in values):
            return np.asarray(values, np.float64), None
        return np.array([_text(v) for v in values], object), None
    if isinstance(values, np.ma.MaskedArray) and values.dtype.kind in "iufb":
        values = np.ma.filled(values.astype(np.float64), np.nan)
    if values.ndim != 1:
        raise DataError(f"got a column of shape {values.shape}; expected one value for each row.")
    kind = values.dtype.kind
    if kind in "iufbmM":
        return values.astype({"m": "m8[ns]", "M": "M8[us]"}.get(kind, "f8")), zone
    if kind not in "OUST":
        raise DataError(f"got a column of {values.dtype}; expected numbers, dates or text.")
    return np.array([_text(v) for v in values.tolist()], object), None


def from_tensor(values: Any) -> np.ndarray:
    """A tensor as an array; numbers as float64, since NumPy has no bfloat16."""
    values = values.detach().cpu()
    return np.asarray((values if values.is_complex() else values.double()).numpy())


def _text(value: Any) -> str:
    if value is None or value is np.ma.masked or value != value:
        return ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value).strip()


def from_object(data: Any) -> Source:
    """Columns of an object in memory."""
    if hasattr(data, "dims") and hasattr(data, "coords"):
        return from_xarray(data, "the xarray object")
    if hasattr(data, "iloc"):
        return _pandas(data)
    if isinstance(data, Mapping):
        return _mapping(data)
    if isinstance(data, np.ndarray) and data.dtype.names:
        return from_columns("the structured array", {n: data[n] for n in data.dtype.names})
    if isinstance(data, list | tuple):
        return _sequence(data)
    kind = type(data).__module__.split(".")[0]
    if kind in ("polars", "pyarrow") or hasattr(data, "__narwhals_dataframe__"):
        return _narwhals(data)
    if hasattr(data, "__array__"):
        array = from_tensor(data) if hasattr(data, "detach") else np.asanyarray(data)
        return from_array("the array", array)
    raise DataError(
        f"got an object of type {type(data).__name__}; expected a path, a pandas, polars, Arrow or "
        "xarray object, an array, a tensor, a dictionary of columns, or a list of series."
    )


def _pandas(data: Any) -> Source:
    pd = require("pandas", "read data frames")
    frame = data.to_frame("y" if data.name is None else data.name) if data.ndim == 1 else data
    names = [" ".join(map(str, n)) if isinstance(n, tuple) else n for n in frame.columns]
    index = frame.index
    levels = [index.get_level_values(i) for i in range(index.nlevels)]
    if isinstance(index, pd.RangeIndex) and index.name is None and abs(index.step) == 1:
        levels = []
    kinds = [_level_kind(pd, level, len(levels) == 1) for level in levels]
    best = max(kinds, default=0)
    strong = kinds.index(best) if best > 1 else None
    heads: list[str] = []
    for level, kind in zip(levels, kinds):
        unnamed = "time" if kind else f"level_{len(heads)}"
        head = unnamed if level.name is None else str(level.name)
        heads.append(f"{head} (index)" if head in names else head)
    columns = [*(level.to_series() for level in levels), *(x for _, x in frame.items())]
    unique_names("the data frame", [*heads, *names])
    source = from_columns("the data frame", dict(zip([*heads, *names], columns)))
    source.index, source.weak_index = strong, 0 if best == 1 else None
    if strong is not None:
        source.series = tuple(i for i in range(len(levels)) if i != strong)
    return source


def _level_kind(pd: Any, level: Any, alone: bool) -> int:
    """How surely a level of an index is the time: 4 dates, 1 numbers without a name, 0 text."""
    if isinstance(level, pd.DatetimeIndex | pd.TimedeltaIndex | pd.PeriodIndex):
        return 4
    if level.name is not None and (alone or TIME_NAMES[0].fullmatch(str(level.name))):
        return 3
    if pd.api.types.is_float_dtype(level.dtype):
        return 2
    if not pd.api.types.is_numeric_dtype(level.dtype) or level.name is not None:
        return 0
    if not alone:
        raise DataError(
            "the data frame has an index of several levels without names; expected names, as with "
            "frame.index.names = ['series', 'time']."
        )
    return 1


def _narwhals(data: Any) -> Source:
    nw = require("narwhals.stable.v2", "read polars and Arrow tables")
    data = data.collect() if hasattr(data, "collect") else data
    try:
        frame = nw.from_native(data, eager_only=True, allow_series=True)
    except TypeError as error:
        raise DataError(f"got {type(data).__name__}; expected a table ({error}).") from None
    frame = frame if hasattr(frame, "columns") else frame.to_frame()
    columns: dict[str, Any] = {}
    zones: dict[int, str] = {}
    for i, name in enumerate(frame.columns):
        column, kind = frame[name], frame[name].dtype
        if kind == nw.Datetime or kind == nw.Duration:
            dated = kind == nw.Datetime
            zones |= {i: str(kind.time_zone)} if dated and kind.time_zone else {}
            ticks = column.dt.timestamp("us") if dated else column.dt.total_nanoseconds()
            absent = np.iinfo(np.int64).min  # NaT
            columns[name] = np.array([absent if x is None else x for x in ticks.to_list()],
                                     "M8[us]" if dated else "m8[ns]")  # fmt: skip
        else:
            columns[name] = column.to_list()
    source = from_columns("the table", columns)
    source.zones.update(zones)
    return source


def _mapping(data: Mapping[Any, Any]) -> Source:
    first = next(iter(data.values()), None)
    rows = isinstance(first, list) and bool(first) and isinstance(first[0], Mapping)
    if rows or (getattr(first, "ndim", 1) == 2 and hasattr(first, "columns")):
        return stacked(list(map(from_object, data.values())), list(map(str, data)))
    columns: dict[str, Any] = {}
    single = [str(k) for k, v in data.items() if np.isscalar(v) or getattr(v, "ndim", 1) == 0]
    for name, values in data.items():
        values = from_tensor(values) if hasattr(values, "detach") else values
        axes = 0 if values is None else getattr(values, "ndim", 1)
        if name in single and len(single) < len(data):
            continue
        if axes == 2:
            columns |= {f"{name}{i + 1}": values[:, i] for i in range(values.shape[1])}
        elif axes == 1:
            columns[str(name)] = values
        else:
            raise DataError(
                f"got {name!r} with shape {np.shape(values)}; expected columns (T,) or tables "
                "(T, V) of one length."
            )
    out = from_columns("the dictionary", columns)
    out.notes += [f"left out, a single value: {', '.join(single)}."] if single else []
    return out


def _sequence(data: Sequence[Any]) -> Source:
    if not data:
        raise DataError("got an empty list; expected at least one series.")
    first = data[0]
    if isinstance(first, Mapping):
        if not isinstance(next(iter(first.values()), None), np.ndarray | list):
            names = list(dict.fromkeys(name for row in data for name in row))
            return from_columns("the list", {n: [row.get(n) for row in data] for n in names})
    elif first is None or np.isscalar(first) or (
        isinstance(first, list | tuple) and np.ndim(np.array(first, object)) == 1
    ):  # fmt: skip
        try:
            return from_array("the list", np.array(data, np.float64))
        except (ValueError, TypeError):
            if isinstance(first, list | tuple) and len({*map(len, data)}) == 1:  # rows of text
                columns = {f"x{i + 1}": list(x) for i, x in enumerate(zip(*data))}
                return from_columns("the list", columns)
            raise DataError("got a list of rows of different lengths; expected one.") from None
    return stacked([from_object(np.asarray(x) if isinstance(x, list | tuple) else x) for x in data],
                   [str(i + 1) for i in range(len(data))])  # fmt: skip


def stacked(sources: Sequence[Source], labels: Sequence[str]) -> Source:
    """Series with the same columns, one below the other."""
    first = sources[0]
    for label, source in zip(labels, sources):
        if source.names != first.names:
            raise DataError(
                f"series {label!r} has the columns {', '.join(source.names[:12])}; expected those "
                f"of the first series, {', '.join(first.names[:12])}."
            )
    name = "series"
    while name in first.names:
        name += "_"
    count = len(first.names)
    columns = {i: np.concatenate([x.columns[i] for x in sources]) for i in range(count)}
    sizes = [len(x.columns[0]) for x in sources]
    return Source(
        "the list of series", [*first.names, name], notes=first.notes, zones=first.zones,
        columns=columns | {count: np.repeat(np.array(labels, object), sizes)}, series=(count,),
        index=first.index, weak_index=first.weak_index, plain=first.plain,
    )  # fmt: skip


def from_array(label: str, values: np.ndarray) -> Source:
    """`(T,)`, `(T, V)`, or `(series, T, V)`."""
    if values.ndim not in (1, 2, 3) or values.dtype.kind not in "fiub":
        raise DataError(
            f"{label}: got an array of {values.dtype} with shape {values.shape}; expected "
            "numbers of shape (T,), (T, V) or (series, T, V)."
        )
    if values.ndim == 3:
        parts = [from_array(label, x) for x in values]
        out = stacked(parts, [str(i + 1) for i in range(len(parts))])
        out.label = label
        return out
    values = values[:, None] if values.ndim == 1 else values
    columns = {f"x{i + 1}": values[:, i] for i in range(min(values.shape[1], MAX_COLUMNS + 1))}
    return from_columns(label, columns, plain=True)


def from_xarray(data: Any, label: str) -> Source:
    """Variables along time; of a single array also along one other axis."""
    single = not hasattr(data, "data_vars")
    if single:
        data = data.to_dataset(name="y" if data.name is None else str(data.name))
    sizes = {str(name): size for name, size in data.sizes.items() if size > 1}
    if not sizes:
        raise DataError(f"{label} has no axis along which anything changes.")
    dated = [d for d in sizes if d in data.coords and data[d].dtype.kind in "mM"]
    named = [d for p in TIME_NAMES for d in sizes if p.fullmatch(d)]
    axis = next(iter([*(["time"] if "time" in sizes else []), *dated, *named, *sizes]))
    if len(sizes) > 1 and not dated and not named:
        shown = ", ".join(f"{name} ({size})" for name, size in sizes.items())
        raise DataError(
            f"{label} has the dimensions {shown}; expected one called time. Rename it, as with "
            "data.rename(x='time')."
        )
    columns = {axis: data[axis].values}  # counted without a coordinate
    units = [data[axis].attrs.get("units")]
    left = []
    for name, values in data.data_vars.items():
        values = values.squeeze(drop=True)
        more = [d for d in values.dims if d != axis]
        if values.dims == (axis,):
            columns[str(name)] = values.values
            units.append(values.attrs.get("units"))
        elif single and axis in values.dims and len(more) == 1 and sizes[more[0]] <= MAX_COLUMNS:
            keys = values[more[0]].values
            columns |= {str(k): values.sel({more[0]: k}).values for k in keys}
        else:
            left.append(f"{name} {tuple(values.dims)}")
    if not set(columns) - {axis}:
        raise DataError(
            f"{label}: got {', '.join(left) or 'no variables'}; expected variables along "
            f"{axis!r} alone. Select one place or average first."
        )
    source = from_columns(label, columns)
    source.notes = [f"left out, not a series along {axis!r}: {', '.join(left)}."] if left else []
    source.units = {i: str(unit) for i, unit in enumerate(units) if unit}
    source.index = 0 if named or axis in data.coords else None
    source.weak_index = 0
    return source
