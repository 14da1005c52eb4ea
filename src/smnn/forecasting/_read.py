"""Series from files: tables in CSV, grids in NetCDF."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from smnn._optional import require
from smnn.datasets.sst import DataFormatError, open_netcdf
from smnn.forecasting._time import SeriesError

TIME_NAMES = {
    "time", "t", "date", "datetime", "timestamp", "ds", "day", "week", "month", "quarter", "year",
    "period", "hour",
}  # fmt: skip
PARSED = 0.95
"""Part of a column that must read as dates for it to be the time."""


def read_series(path: str | Path, columns: list[str] | None = None, time: str | None = None) -> Any:
    """Read series with their times.

    Args:
        path: `.csv`, `.tsv` or `.txt` with a heading; `.nc` with a dimension `time`.
        columns: Names of the columns to forecast (of the variable, for NetCDF); all numeric ones if
            `None`.
        time: Name of the column that holds the times; found by its name or content if `None`.

    Returns:
        A pandas `DataFrame` with times as its index, or an xarray `DataArray`.

    Raises:
        SeriesError: If the file cannot be read or holds nothing to forecast.
    """
    path = Path(path)
    if not path.exists():
        raise SeriesError(f"{path}: no such file.")
    if path.suffix.lower() in (".nc", ".nc4", ".cdf", ".netcdf"):
        return _read_grid(path, columns)
    return _read_table(path, columns, time)


def _read_grid(path: Path, columns: list[str] | None) -> Any:
    try:
        with open_netcdf(path) as data:
            usable = [str(v) for v in data.data_vars if "time" in data[v].dims]
            usable = [v for v in usable if data[v].dtype.kind in "iuf" and "bnds" not in v]
            if columns is not None and len(columns) == 1 and columns[0] in usable:
                usable = columns
            elif columns is not None:
                raise SeriesError(
                    f"{path}: no variable {', '.join(columns)} over time; it has "
                    f"{', '.join(usable) or 'none'}."
                )
            if len(usable) != 1:
                raise SeriesError(
                    f"{path}: {len(usable)} variables have a dimension 'time' "
                    f"({', '.join(usable) or 'none'}). Name one with --column."
                )
            return data[usable[0]].transpose("time", ...).load()
    except DataFormatError as error:
        raise SeriesError(str(error)) from None


def _read_table(path: Path, columns: list[str] | None, time: str | None) -> Any:
    pandas = require("pandas", "read a table")
    try:
        table = pandas.read_csv(path, sep=None, engine="python", skipinitialspace=True)
    except (ValueError, pandas.errors.ParserError, UnicodeDecodeError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SeriesError(f"{path}: not a table that can be read ({first}).") from None
    table.columns = [str(c).strip() for c in table.columns]
    if table.empty:
        raise SeriesError(f"{path}: there are no rows.")
    when = _time_column(table, time, path)
    stamps = None if when is None else _as_times(table[when], pandas)
    if when is not None and stamps is None:
        raise SeriesError(f"{path}: column {when!r} holds neither dates nor numbers.")
    rest = table.drop(columns=[when]) if when is not None else table
    if stamps is not None and stamps.duplicated().any():
        rest = _side_by_side(rest, stamps, columns, path)
    elif stamps is not None:
        rest = rest.set_index(pandas.Index(stamps))
    chosen = _numbers(rest, columns, path, pandas)
    return chosen.sort_index() if stamps is not None else chosen


def _time_column(table: Any, time: str | None, path: Path) -> str | None:
    names = list(table.columns)
    if time is not None:
        if time not in names:
            raise SeriesError(f"{path}: no column {time!r}; it has {', '.join(names)}.")
        return time
    for name in names:
        if name.lower() in TIME_NAMES:
            return str(name)
    first = names[0]
    if table[first].dtype == object or table[first].dtype.kind in "OUT":
        pandas = require("pandas", "read a table")
        if _as_times(table[first], pandas) is not None:
            return str(first)
    return None


def _as_times(column: Any, pandas: Any) -> Any:
    """Dates, or numbers that may be years; `None` if neither."""
    if column.dtype.kind in "iuf":
        values = column.to_numpy()
        dates = column.astype("int64").astype(str) if column.dtype.kind in "iu" else None
        if dates is not None and (dates.str.len() == 8).all() and _plausible(values // 10000):
            return pandas.to_datetime(dates, format="%Y%m%d")
        return column.astype(float)
    text = column.astype(str).str.strip()
    quarters = text.str.extract(r"^(\d{4})[ -]?[Qq]([1-4])$")
    if quarters.notna().all(axis=None):
        month = (quarters[1].astype(int) * 3 - 2).astype(str).str.zfill(2)
        return pandas.to_datetime(quarters[0] + "-" + month + "-01")
    parsed = pandas.to_datetime(text, errors="coerce", format="ISO8601")
    if parsed.notna().mean() < PARSED:
        parsed = pandas.to_datetime(text, errors="coerce", format="mixed")
    if parsed.notna().mean() < PARSED:
        return None
    if getattr(parsed.dt, "tz", None) is not None:
        parsed = parsed.dt.tz_convert(None)
    return parsed


def _plausible(year: np.ndarray) -> bool:
    return bool(((year >= 1000) & (year <= 2999)).all())


def _side_by_side(rest: Any, stamps: Any, columns: list[str] | None, path: Path) -> Any:
    """A long table, with a column that names the series, as one column for each series."""
    labels = [c for c in rest.columns if rest[c].dtype.kind not in "iufb"]
    numbers = [c for c in rest.columns if rest[c].dtype.kind in "iuf"]
    if columns is not None:
        numbers = [c for c in numbers if c in columns] or numbers
    if not labels or len(numbers) != 1:
        raise SeriesError(
            f"{path}: times repeat, so the rows must belong to several series; expected one "
            f"numeric column beside columns that name the series, got {', '.join(rest.columns)}. "
            "Choose one with --column, or bring the table into one column for each series."
        )
    names = rest[labels].astype(str).agg(" ".join, axis=1)
    return rest.assign(_time=stamps.to_numpy(), _name=names).pivot_table(
        index="_time", columns="_name", values=numbers[0], aggfunc="mean"
    )


def _numbers(rest: Any, columns: list[str] | None, path: Path, pandas: Any) -> Any:
    """The columns to forecast, as numbers."""
    if columns is not None:
        missing = [c for c in columns if c not in rest.columns]
        if missing:
            have = ", ".join(map(str, list(rest.columns)[:10]))
            raise SeriesError(f"{path}: no column {', '.join(missing)}; it has {have}.")
        rest = rest[columns]
    numeric = rest.apply(lambda c: pandas.to_numeric(c, errors="coerce"))
    usable = [c for c in numeric.columns if numeric[c].notna().sum() >= rest[c].notna().sum() / 2]
    usable = [c for c in usable if numeric[c].notna().any()]
    if not usable:
        raise SeriesError(f"{path}: no column holds numbers. Name one with --column.")
    if columns is not None and len(usable) < len(columns):
        bad = ", ".join(c for c in columns if c not in usable)
        raise SeriesError(f"{path}: column {bad} does not hold numbers.")
    return numeric[usable]
