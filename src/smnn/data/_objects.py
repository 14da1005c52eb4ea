"""Columns of objects in memory: frames, arrays, tensors, xarray, dictionaries and lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from smnn._util.optional import require
from smnn.errors import DataError

MAX_COLUMNS = 10_000
"""Columns of one table: more suggest that it is transposed."""


@dataclass
class Source:
    """Named columns that have been opened, and perhaps not yet read."""

    label: str
    """Name of the file, or kind of the object, for messages."""
    names: list[str]
    """Names of the columns, each once."""
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
    decimal: str = "."
    index: int | None = None
    """Position of a column that is the index of a frame, and so its time."""
    weak_index: int | None = None
    """Position of an index that is the time if no column is."""
    series: int | None = None
    """Position of a column that separates series."""
    plain: bool = False
    """Whether it is an array without names, all of whose columns are variables."""


def unique_names(label: str, given: Iterable[Any]) -> list[str]:
    """Names of columns as text; those without one are numbered.

    Raises:
        DataError: There are too many, or one comes twice.
    """
    names = [" ".join(str(n).split()) or f"column{i + 1}" for i, n in enumerate(given)]
    if len(names) > MAX_COLUMNS:
        raise DataError(
            f"{label} has {len(names):,} columns; expected at most {MAX_COLUMNS:,}, a column "
            "for each variable and a row for each time. Is it transposed?"
        )
    doubled = [name for name, count in Counter(names).items() if count > 1]
    if doubled:
        raise DataError(
            f"{label}: got the column {doubled[0]!r} {names.count(doubled[0])} times; expected "
            "each name once. Rename the columns."
        )
    return names


def from_columns(label: str, columns: Mapping[Any, Any], **more: Any) -> Source:
    """Columns of one length."""
    source = Source(label, unique_names(label, columns), **more)
    for i, values in enumerate(columns.values()):
        source.columns[i], zone = as_array(values)
        if zone:
            source.zones[i] = zone
    sizes = {name: len(source.columns[i]) for i, name in enumerate(source.names)}
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name} {size}" for name, size in list(sizes.items())[:12])
        raise DataError(f"{label}: got columns of different lengths ({listed}); expected one.")
    if not sizes or not next(iter(sizes.values())):
        raise DataError(f"{label} has no rows; expected a row for each time.")
    return source


def as_array(values: Any) -> tuple[np.ndarray, str | None]:
    """A column as float64, `datetime64[us]` (UTC), `timedelta64[ns]` or text, and its time zone."""
    zone = None
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    if hasattr(values, "iloc"):  # pandas
        if hasattr(values.dtype, "tz") and values.dtype.tz is not None:
            zone = _zone(values.dtype.tz)
            values = values.dt.tz_convert("UTC").dt.tz_localize(None)
        elif type(values.dtype).__name__ == "PeriodDtype":
            values = values.dt.to_timestamp()
        kind = getattr(values.dtype, "kind", "O")
        if kind in "iufb" and type(values.dtype).__name__ != "CategoricalDtype":
            return values.to_numpy(np.float64, na_value=np.nan), None
        if kind in "mM":
            values = values.to_numpy(f"{'timedelta' if kind == 'm' else 'datetime'}64[ns]"
                                     if kind == "m" else "datetime64[us]")  # fmt: skip
        else:
            missing = values.isna().to_numpy()
            values = np.where(missing, "", values.astype(object).to_numpy(object))
    array = values if isinstance(values, np.ndarray) else np.asarray(values, _kind_of(values))
    if array.ndim != 1:
        raise DataError(f"got a column of shape {array.shape}; expected one value for each row.")
    if array.dtype.kind in "iufb":
        return array.astype(np.float64), None
    if array.dtype.kind == "M":
        return array.astype("M8[us]"), zone
    if array.dtype.kind == "m":
        return array.astype("m8[ns]"), None
    if array.dtype.kind not in "OUST":
        raise DataError(f"got a column of {array.dtype}; expected numbers, dates or text.")
    return np.array([_text(v) for v in array.tolist()], object), None


def _kind_of(values: Any) -> Any:
    """Lists of numbers with gaps are numbers; anything else that is mixed stays as it is."""
    numeric = all(v is None or isinstance(v, int | float) for v in values)
    return np.float64 if numeric else object


def _text(value: Any) -> str:
    if value is None or value is np.ma.masked or value != value:
        return ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value).strip()


def _zone(tz: Any) -> str:
    name = str(tz)
    return name.removesuffix("+00:00") if name.startswith("UTC") else name


def from_object(data: Any) -> Source:
    """Columns of an object in memory.

    Raises:
        DataError: It is of no kind that can be read.
    """
    if hasattr(data, "dims") and hasattr(data, "coords"):
        return from_xarray(data, "the xarray object")
    if hasattr(data, "iloc"):
        return _pandas(data)
    if isinstance(data, Mapping):
        return _mapping(data)
    if isinstance(data, np.ndarray) and data.dtype.names:
        return from_columns("the structured array", {n: data[n] for n in data.dtype.names})
    if isinstance(data, np.ndarray) or hasattr(data, "detach"):
        array = data.detach().cpu().numpy() if hasattr(data, "detach") else data
        return from_array("the array", array)
    if isinstance(data, list | tuple):
        return _sequence(data)
    if type(data).__module__.split(".")[0] in ("polars", "pyarrow") or hasattr(
        data, "__narwhals_dataframe__"
    ):
        return _narwhals(data)
    if hasattr(data, "__array__"):
        return from_array("the array", np.asarray(data))
    raise DataError(
        f"got an object of type {type(data).__name__}; expected a path, a pandas, polars, Arrow or "
        "xarray object, an array, a tensor, a dictionary of columns, or a list of series."
    )


def _pandas(data: Any) -> Source:
    pd = require("pandas", "read data frames")

    frame = data.to_frame("y" if data.name is None else data.name) if data.ndim == 1 else data
    label, index = "the data frame", frame.index
    columns = {i: frame.iloc[:, i] for i in range(frame.shape[1])}
    names = [" ".join(map(str, n)) if isinstance(n, tuple) else n for n in frame.columns]
    levels: list[Any] = []
    if isinstance(index, pd.MultiIndex):
        levels = [index.get_level_values(i) for i in range(index.nlevels)]
    elif not isinstance(index, pd.RangeIndex) or index.name is not None:
        levels = [index]
    heads, strong, weak = [], None, None
    for i, level in enumerate(levels):
        timed = isinstance(level, pd.DatetimeIndex | pd.TimedeltaIndex | pd.PeriodIndex)
        number = pd.api.types.is_numeric_dtype(level.dtype)
        named = level.name is not None
        if timed or pd.api.types.is_float_dtype(level.dtype) or (named and len(levels) == 1):
            strong = i
        elif number and not named and len(levels) == 1:
            weak = i
        heads.append(str(level.name) if named else "time" if timed or number else f"level_{i}")
    heads = [f"{h} (index)" if h in names else h for h in heads]
    everything = [*(pd.Series(x.to_numpy() if not hasattr(x, "tz") else x) for x in levels)]
    unique_names(label, [*heads, *names])
    source = from_columns(label, dict(zip([*heads, *names], [*everything, *columns.values()])))
    source.index, source.weak_index = strong, weak
    return source


def _narwhals(data: Any) -> Source:
    nw = require("narwhals.stable.v2", "read polars and Arrow tables")
    data = data.collect() if hasattr(data, "collect") else data
    try:
        frame = nw.from_native(data, eager_only=True, allow_series=True)
    except TypeError as error:
        raise DataError(f"got {type(data).__name__}; expected a table ({error}).") from None
    if not hasattr(frame, "columns"):
        frame = frame.to_frame()
    columns, zones = {}, {}
    for i, name in enumerate(frame.columns):
        column = frame[name]
        kind = column.dtype
        if kind == nw.Datetime:
            if kind.time_zone:
                zones[i] = str(kind.time_zone)
            stamps = column.dt.timestamp("us").to_list()
            columns[name] = np.array([_NAT if x is None else x for x in stamps], "M8[us]")
        elif kind == nw.Duration:
            spans = column.dt.total_nanoseconds().to_list()
            columns[name] = np.array([_NAT if x is None else x for x in spans], "m8[ns]")
        elif kind == nw.Date:
            columns[name] = np.array(column.to_list(), "M8[D]")
        elif kind.is_numeric() or kind == nw.Boolean:
            columns[name] = np.array(column.cast(nw.Float64).to_list(), np.float64)
        else:
            columns[name] = np.array(column.to_list(), object)
    source = from_columns("the table", columns)
    source.zones.update(zones)
    return source


_NAT = np.iinfo(np.int64).min


def _mapping(data: Mapping[Any, Any]) -> Source:
    if data and all(hasattr(v, "columns") or hasattr(v, "iloc") for v in data.values()):
        first = next(iter(data.values()))
        if getattr(first, "ndim", 2) == 2:
            return stacked(list(map(from_object, data.values())), list(map(str, data)))
    columns: dict[str, Any] = {}
    for name, values in data.items():
        values = values.detach().cpu().numpy() if hasattr(values, "detach") else values
        if getattr(values, "ndim", 1) == 2:
            columns |= {f"{name}{i + 1}": values[:, i] for i in range(values.shape[1])}
        elif getattr(values, "ndim", 1) == 1 and not np.isscalar(values):
            columns[str(name)] = values
        else:
            raise DataError(
                f"got {name!r} with shape {np.shape(values)}; expected columns (T,) or tables "
                "(T, V) of one length."
            )
    return from_columns("the dictionary", columns)


def _sequence(data: Sequence[Any]) -> Source:
    if not data:
        raise DataError("got an empty list; expected at least one series.")
    if all(isinstance(row, Mapping) for row in data) and not isinstance(
        next(iter(data[0].values()), None), np.ndarray | list
    ):
        names = list(dict.fromkeys(name for row in data for name in row))
        return from_columns("the list", {n: [row.get(n) for row in data] for n in names})
    if np.isscalar(data[0]) or data[0] is None:
        return from_array("the list", np.array(data, np.float64))
    if isinstance(data[0], list | tuple) and np.ndim(data[0]) == 1:
        return from_array("the list", np.array(data, np.float64))
    sources = [from_object(np.asarray(x) if isinstance(x, list | tuple) else x) for x in data]
    return stacked(sources, [str(i + 1) for i in range(len(sources))])


def stacked(sources: Sequence[Source], labels: Sequence[str]) -> Source:
    """Series with the same columns, one below the other."""
    first = sources[0]
    for label, source in zip(labels, sources):
        if source.names != first.names:
            raise DataError(
                f"series {label!r} has the columns {', '.join(source.names[:12])}; expected those "
                f"of the first series, {', '.join(first.names[:12])}."
            )
    out = Source("the list of series", [*first.names, _free_name("series", first.names)])
    out.index, out.weak_index, out.plain = first.index, first.weak_index, first.plain
    out.zones, out.series = first.zones, len(first.names)
    for i in range(len(first.names)):
        out.columns[i] = np.concatenate([x.columns[i] for x in sources])
    sizes = [len(x.columns[0]) for x in sources]
    out.columns[out.series] = np.repeat(np.array(labels, object), sizes)
    return out


def _free_name(name: str, names: Sequence[str]) -> str:
    return name if name not in names else _free_name(f"{name}_", names)


def from_array(label: str, values: np.ndarray) -> Source:
    """`(T,)`, `(T, V)`, or `(series, T, V)`.

    Raises:
        DataError: It has another shape, or is not numeric.
    """
    if values.ndim not in (1, 2, 3) or values.dtype.kind not in "fiub":
        raise DataError(
            f"{label}: got an array of {values.dtype} with shape {values.shape}; expected "
            "numbers of shape (T,), (T, V) or (series, T, V)."
        )
    if values.ndim == 3:
        parts = [from_array(label, x) for x in values]
        out = stacked(parts, [str(i + 1) for i in range(len(parts))])
        out.label, out.notes = label, parts[0].notes
        return out
    values = values[:, None] if values.ndim == 1 else values
    columns = {f"x{i + 1}": values[:, i] for i in range(min(values.shape[1], MAX_COLUMNS + 1))}
    return from_columns(label, columns, plain=True)


def from_xarray(data: Any, label: str) -> Source:
    """Variables along time; of a single array also along one other axis.

    Raises:
        DataError: Nothing varies along time alone.
    """
    single = not hasattr(data, "data_vars")
    if single:
        data = data.to_dataset(name="y" if data.name is None else str(data.name))
    sizes = {str(name): size for name, size in data.sizes.items() if size > 1}
    if not sizes:
        raise DataError(f"{label} has no axis along which anything changes.")
    dated = [d for d in sizes if d in data.coords and data[d].dtype.kind in "mM"]
    axis = "time" if "time" in sizes else (dated or [max(sizes, key=lambda name: sizes[name])])[0]
    columns = {axis: data[axis].values} if axis in data.coords else {}
    units, left = {}, []
    for name, values in data.data_vars.items():
        values = values.squeeze(drop=True)
        more = [d for d in values.dims if d != axis]
        if values.dims == (axis,):
            units[len(columns)] = values.attrs.get("units")
            columns[str(name)] = values.values
        elif single and axis in values.dims and len(more) == 1 and sizes[more[0]] <= MAX_COLUMNS:
            keys = values[more[0]].values
            columns |= {str(k): values.sel({more[0]: k}).values for k in keys}
        else:
            left.append(f"{name} {tuple(values.dims)}")
    notes = [f"left out, not a series along {axis!r}: {', '.join(left)}."] if left else []
    if not set(columns) - {axis}:
        raise DataError(
            f"{label}: got {', '.join(left) or 'no variables'}; expected variables along "
            f"{axis!r} alone. Select one place or average first."
        )
    source = from_columns(label, columns, notes=notes)
    source.units = {i: str(unit) for i, unit in units.items() if unit}
    source.index = 0 if axis in data.coords else None
    if source.index == 0 and (unit := data[axis].attrs.get("units")):
        source.units[0] = str(unit)
    return source
