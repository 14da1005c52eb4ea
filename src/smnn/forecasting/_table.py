"""Reading of text tables: CSV and its variants."""

from __future__ import annotations

import io
import re
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from smnn._util.files import InputError, open_bounded
from smnn._util.optional import require
from smnn.forecasting._time import SeriesError

TIME_NAMES = {
    "time", "t", "date", "datetime", "timestamp", "ds", "day", "week", "month", "quarter", "year",
    "period", "hour",
}  # fmt: skip
PARSED = 0.95
"""Smallest fraction of dates in a time column."""
MISSING = {"", "-", "--", ".", "?", "*", "missing", "none", "na", "n/a", "nan", "null", "#n/a"}
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$")
DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+$")
THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?$")
DELIMITERS = (",", ";", "\t", "|")
SNIFFED = 50
"""Number of lines from which the format is detected."""


def read_table(path: Path, columns: list[str] | None, time: str | None) -> Any:
    """Read a `DataFrame` of numbers indexed by time; `attrs["notes"]` lists decisions made.

    Raises:
        SeriesError: If the file is not a table or contains no series.
    """
    pandas = require("pandas", "read a table")
    text = _text(path)
    lines = [x for x in text.splitlines()[: 4 * SNIFFED] if x.strip() and x.lstrip()[0] != "#"]
    if not lines:
        raise SeriesError(f"{path}: the file is empty; expected a header row and rows of numbers.")
    lines = lines[:SNIFFED]
    delimiter = _delimiter(lines)
    headed = not all(_plain_number(x) for x in _split(lines[0], delimiter))
    try:
        with warnings.catch_warnings():
            # Rows longer than the header are an error; do not drop values silently.
            warnings.simplefilter("error", pandas.errors.ParserWarning)
            table = pandas.read_csv(
                io.StringIO(text), sep=delimiter, header=0 if headed else None, comment="#",
                dtype=str, keep_default_na=False, skipinitialspace=True, engine="c",
                index_col=False,
            )  # fmt: skip
    except (ValueError, pandas.errors.ParserError, pandas.errors.ParserWarning) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SeriesError(f"{path}: cannot be read as a table ({first}).") from None
    table.columns = [
        str(c).strip() if headed else f"column {i + 1}" for i, c in enumerate(table.columns)
    ]
    if table.empty:
        raise SeriesError(f"{path}: there are no rows below the header.")
    if headed and any(isinstance(v, float) for v in table.iloc[0]):
        table = table.fillna("")
    notes: list[str] = [] if headed else ["there is no header row: columns are numbered"]
    decimal = "," if delimiter != "," else "."
    numbers = {c: _numbers(table[c], decimal, pandas) for c in table.columns}
    if time is None:
        table, numbers = _joined_dates(table, numbers)
    when = _time_column(table, numbers, time, path)
    stamps = None if when is None else _as_times(table[when], numbers[when], pandas)
    if when is not None and stamps is None:
        raise SeriesError(
            f"{path}: column {when!r} contains neither dates nor numbers (its first entry is "
            f"{table[when].iloc[0]!r}). Pass the name of the time column as `time`."
        )
    if when is not None and stamps is not None and stamps.isna().any():
        row = int(np.flatnonzero(stamps.isna())[0])
        raise SeriesError(
            f"{path}: column {when!r} has no time in row {row + 1} below the header "
            f"({table[when].iloc[row]!r}). Drop rows without a time."
        )
    names = [c for c in table.columns if c != when]
    if stamps is not None and stamps.duplicated().any():
        out = _side_by_side(table, names, numbers, stamps, columns, path, pandas)
    else:
        chosen = _chosen(table, names, numbers, columns, path, notes)
        out = pandas.DataFrame({c: numbers[c] for c in chosen})
        if stamps is not None:
            out.index = pandas.Index(stamps)
    if stamps is not None and not out.index.is_monotonic_increasing:
        out = out.sort_index()
        notes.append("rows were not in order of time and have been sorted")
    out.attrs["notes"] = notes
    return out


def _text(path: Path) -> str:
    try:
        with open_bounded(path) as file:
            raw = file.read()
    except (InputError, EOFError, zlib.error) as error:
        raise SeriesError(str(error)) from None
    except OSError as error:
        raise SeriesError(f"{path}: cannot be read ({error.strerror or error}).") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        marked = raw[:2] in (b"\xff\xfe", b"\xfe\xff")
        text = raw.decode("utf-16" if marked else "latin-1", "replace")
    if "\0" in text[:4096]:
        raise SeriesError(f"{path}: not a text file; expected CSV, TSV or NetCDF (.nc).")
    return text


def _delimiter(lines: list[str]) -> str:
    """The character with the most consistent count per line; white space if there is none."""
    best, most = "", 0.0
    for mark in DELIMITERS:
        counts = [line.count(mark) for line in lines]
        agreed = float(np.mean([c == counts[0] for c in counts])) if counts[0] else 0.0
        # With semicolons or tabs, commas are decimal commas.
        if agreed > most or (agreed >= 0.8 and mark in ";\t" and best == ","):
            best, most = mark, agreed
    if best and most >= 0.5:
        return best
    return r"\s+" if len(lines[0].split()) > 1 and len(lines[-1].split()) > 1 else ","


def _split(line: str, delimiter: str) -> list[str]:
    return line.split() if delimiter == r"\s+" else line.split(delimiter)


def _plain_number(text: str) -> bool:
    return bool(NUMBER.match(text.strip().strip('"')))


def _numbers(column: Any, decimal: str, pandas: Any) -> np.ndarray:
    """Convert to floats: NaN where missing, `inf` where an entry is not a number."""
    text = column.str.strip()
    out = np.array(pandas.to_numeric(text, errors="coerce"), dtype=float)
    for i in np.flatnonzero(np.isnan(out)):
        entry = text.iloc[i]
        if decimal == "," and DECIMAL_COMMA.match(entry):
            out[i] = float(entry.replace(",", "."))
        elif decimal == "." and THOUSANDS.match(entry):
            out[i] = float(entry.replace(",", ""))
        elif entry.lower() not in MISSING:
            out[i] = np.inf
    return out


def _time_column(
    table: Any, numbers: dict[str, np.ndarray], time: str | None, path: Path
) -> str | None:
    names = list(table.columns)
    if time is not None:
        if time not in names:
            raise SeriesError(f"{path}: no column {time!r}; it has {_list(names)}.")
        return time
    for name in names:
        if name.lower() in TIME_NAMES and len(names) > 1:
            return str(name)
    first = str(names[0])
    if len(names) == 1:
        return None
    if np.isinf(numbers[first]).all():
        pandas = require("pandas", "read a table")
        return None if _as_times(table[first], numbers[first], pandas) is None else first
    steps = np.diff(numbers[first]) if len(table) > 2 else np.zeros(1)
    even = np.isfinite(steps).all() and steps[0] > 0 and np.allclose(steps, steps[0])
    return first if even else None  # evenly spaced and increasing


def _joined_dates(
    table: Any, numbers: dict[str, np.ndarray]
) -> tuple[Any, dict[str, np.ndarray]]:  # fmt: skip
    """Combine the columns `year`, `month` and, if present, `day` into one column of dates."""
    named = {str(c).lower(): c for c in table.columns}
    parts = [named[p] for p in ("year", "month", "day") if p in named]
    if len(parts) < 2 or "month" not in named or "year" not in named or "date" in named:
        return table, numbers
    if not all(np.isfinite(numbers[p]).all() for p in parts):
        return table, numbers
    whole = [table[p].str.strip().str.removesuffix(".0").str.zfill(2) for p in parts]
    dates = whole[0] + "-" + whole[1] + "-" + (whole[2] if len(parts) == 3 else "01")
    table = table.drop(columns=parts)
    table.insert(0, "date", dates)
    return table, numbers | {"date": np.full(len(table), np.inf)}


def _as_times(column: Any, numbers: np.ndarray, pandas: Any) -> Any:
    """Convert to dates or numbers; `None` if neither. Missing times are NaT or NaN."""
    text = column.str.strip()
    if text.str.fullmatch(r"[12]\d{3}[01]\d[0-3]\d").all():
        return pandas.to_datetime(text, format="%Y%m%d", errors="coerce")
    if not np.isinf(numbers).any():
        return pandas.Series(numbers)
    quarters = text.str.extract(r"^(\d{4})[ -]?[Qq]([1-4])$")
    if quarters.notna().all(axis=None):
        month = (quarters[1].astype(int) * 3 - 2).astype(str).str.zfill(2)
        return pandas.to_datetime(quarters[0] + "-" + month + "-01")
    parsed = None
    for layout in ("ISO8601", "%d.%m.%Y", "mixed"):
        parsed = pandas.to_datetime(text, errors="coerce", format=layout, utc=True)
        if parsed.notna().mean() >= PARSED:
            return parsed.dt.tz_convert(None)
    return None


def _chosen(
    table: Any, names: list[str], numbers: dict[str, np.ndarray], columns: list[str] | None,
    path: Path, notes: list[str],
) -> list[str]:  # fmt: skip
    """The requested columns, or all numeric ones."""
    if columns is not None:
        missing = [c for c in columns if c not in names]
        if missing:
            raise SeriesError(f"{path}: no column {_list(missing)}; it has {_list(names)}.")
    out = []
    for name in columns or names:
        wrong = np.flatnonzero(np.isinf(numbers[name]))
        filled = int((table[name].str.strip() != "").sum())
        if columns is None and len(wrong) > filled / 2:
            notes.append(f"column {name!r} contains text and is ignored")
        elif len(wrong):
            raise SeriesError(
                f"{path}: column {name!r} contains {table[name].iloc[wrong[0]]!r} in row "
                f"{wrong[0] + 1} below the header; expected a number, or an empty entry if it is "
                "missing. Fix the file, or choose other columns with `columns`."
            )
        elif not np.isfinite(numbers[name]).any():
            if columns is not None:
                raise SeriesError(f"{path}: all values of column {name!r} are missing.")
            notes.append(f"column {name!r} has no values and is ignored")
        else:
            out.append(name)
    if not out and any(np.isnan(numbers[c]).all() for c in names):
        raise SeriesError(f"{path}: every value is missing; expected numbers.")
    if not out:
        raise SeriesError(
            f"{path}: found no numeric column other than the times; it has "
            f"{_list(names) or 'none'}. Choose the columns with `columns` and `time`."
        )
    return out


def _side_by_side(
    table: Any, names: list[str], numbers: dict[str, np.ndarray], stamps: Any,
    columns: list[str] | None, path: Path, pandas: Any,
) -> Any:  # fmt: skip
    """Pivot a long table, whose text columns name the series, to one column per series."""
    labels = [c for c in names if np.isinf(numbers[c]).any()]
    values = [c for c in names if c not in labels]
    if columns is not None:
        values = [c for c in values if c in columns]
    if not labels:
        first = stamps[stamps.duplicated()].iloc[0]
        raise SeriesError(
            f"{path}: the time {first} occurs more than once. Average or drop such rows; if they "
            "belong to several series, add a column with the name of the series."
        )
    if len(values) != 1:
        raise SeriesError(
            f"{path}: times repeat, so the rows belong to several series, named by "
            f"{_list(labels)}; choose one numeric column with `columns` (there are "
            f"{_list([c for c in names if c not in labels]) or 'none'})."
        )
    series = table[labels].agg(" ".join, axis=1)
    long = pandas.DataFrame({"t": stamps, "series": series, "y": numbers[values[0]]})
    if long.duplicated(["t", "series"]).any():
        row = long[long.duplicated(["t", "series"])].iloc[0]
        raise SeriesError(
            f"{path}: series {row['series']!r} contains the time {row['t']} more than once. "
            "Average or drop such rows."
        )
    wide = long.pivot(index="t", columns="series", values="y")
    return wide.rename_axis(None).rename_axis(None, axis=1)


def _list(names: list[str]) -> str:
    shown = ", ".join(map(str, names[:10]))
    return shown + (f" and {len(names) - 10} more" if len(names) > 10 else "")
