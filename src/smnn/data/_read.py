"""`read`: which column is time, which are variables, and where one series ends."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from smnn._util.files import InputError
from smnn._util.names import suggestion
from smnn.data._dataset import TimeSeriesData, rows_text, show_date
from smnn.data._formats import open_file
from smnn.data._objects import Source, as_array, from_object
from smnn.data._text import UNIT
from smnn.data._times import (
    CALENDAR_NAMES,
    TIME_NAMES,
    Axis,
    compose,
    elapsed_match,
    is_date,
    month_number,
    read_axis,
    with_unit,
)
from smnn.data._values import is_missing, is_number, numbers, sentinels
from smnn.errors import DataError

SHORTEST = 3
"""Fewest times that a series for `read_table` must have."""
_SERIES_NAME = re.compile(
    r"(unique|series|id|run|trial|traj(ectory)?|experiment|subject|patient|replicate|batch|sample"
    r"|unit)([ _-]?(id|no|nr|number|name))?",
    re.IGNORECASE,
)
_UNIT = re.compile(
    r"(?P<name>.*\S)\s*(?:[\[(](?P<unit>[^\[\]()]+)[\])]|\s/\s(?P<per>\S{1,8})|,\s(?P<of>\S{1,8}))"
)
_STRONG, _HOURS = TIME_NAMES[:-1], CALENDAR_NAMES["hour"]


def read(
    source: Any,
    *,
    time: Any = None,
    series: str | Sequence[str] | bool | None = None,
    columns: Sequence[str] | None = None,
    inputs: Sequence[str] | None = None,
    skip_rows: int | None = None,
    na: Any = None,
    dayfirst: bool | None = None,
    date_format: str | None = None,
    decimal: str | None = None,
    sheet: str | int = 0,
) -> TimeSeriesData:
    """Read series of numbers with their times from a file or an object.

    Files: CSV and other text (delimiter, decimal sign, encoding, comments, lines above the table,
    units and gzip are recognised), Excel, Parquet, Feather, JSON, `.npy`, `.npz` and NetCDF.
    Objects: pandas, polars, Arrow and xarray; arrays and tensors `(T,)`, `(T, V)` or
    `(series, T, V)`; dictionaries of columns or of frames; lists of series. Tables may be wide (a
    column for each variable) or long (a column that names the series of each row).

    Args:
        source: Path or object.
        time: Name of the time column; an array of times; a step; or `False` for none. By default
            the index of a frame, a column called t, time, date or the like, or the first column
            that grows evenly or holds dates; without any, rows are taken to be 1 apart.
        series: Name (or names) of the column that separates series; `False` for a single series.
            By default a column called unique_id, run, experiment or the like, or any column of
            text without which times would repeat.
        columns: Names of the variables; by default every remaining column of numbers.
        inputs: Names of external inputs: known at all times, not explained.
        skip_rows: Number of lines above the names; found by default.
        na: Additional markers of missing values, such as `"-999"`. By default isolated numbers
            such as -999 are missing values, with a warning; `na=()` keeps them.
        dayfirst: Whether 01/02/2024 is the first of February; needed if no row decides.
        date_format: Format of the dates as for `datetime.strptime`.
        decimal: Decimal sign, `"."` or `","`; found by default.
        sheet: Name or number of the sheet of an Excel file.

    Returns:
        The series, sorted by time, each time once. What was assumed or dropped is in `notes`, what
        may be wrong in `warnings`; `summary()` describes the result.

    Raises:
        DataError: The data cannot be read, or could be read in several ways.
    """
    markers = [na] if isinstance(na, str | int | float) else list(na or ())
    try:
        if isinstance(source, str | Path):
            opened = open_file(Path(source), skip_rows, decimal, sheet, list(map(str, markers)))
        else:
            opened = from_object(source)
        options = {"dayfirst": dayfirst, "date_format": date_format}
        return _Reading(opened, time, series, columns, inputs, markers, na is None, options).data()
    except InputError as error:
        raise DataError(str(error)) from None
    except OSError as error:
        raise DataError(f"cannot read {source}: {error.strerror or error}.") from None
    except MemoryError:
        raise DataError(
            f"{source if isinstance(source, str | Path) else 'the data'} needs more memory than "
            "there is. Name the columns that are needed (columns=), or thin the rows out first."
        ) from None


def read_table(
    path: Any,
    time: str | None = None,
    columns: Sequence[str] | None = None,
    series: str | Sequence[str] | None = None,
    inputs: Sequence[str] | None = None,
    **options: Any,
) -> TimeSeriesData:
    """Read series from which equations can be learned; arguments as those of `smnn.data.read`.

    Variables that never change and series with fewer than three times are left out, with a warning.

    Raises:
        DataError: The data cannot be read, or nothing is left.
    """
    found = read(path, time=time, columns=columns, series=series, inputs=inputs, **options)
    dense = found.dense(SHORTEST)
    if not dense.times:
        several = f", no series with {SHORTEST}" if len(found.times) > 1 else ""
        raise DataError(
            f"{found.source} has {rows_text(found.dense().rows)} with values{several}; expected at "
            f"least {SHORTEST} times, and some dozens to learn from."
        )
    return dense.varying(required=columns is not None)


class _Reading:
    """One table while it is read."""

    def __init__(
        self, source: Source, time: Any, series: Any, columns: Sequence[str] | None,
        inputs: Sequence[str] | None, na: list[Any], find_sentinels: bool, options: dict[str, Any],
    ) -> None:  # fmt: skip
        self.source, self.file = source, source.label
        self.notes, self.warnings = list(source.notes), list[str]()
        self.na = frozenset(str(x).strip().lower() for x in na)
        self.na_numbers = [float(x) for x in map(str, na) if is_number(x)]
        self.find_sentinels, self.options = find_sentinels, options
        if source.plain and columns is not None and inputs is None:
            self._name_columns(columns)
            columns = None
        self.short, self.units = self._short_names()
        self.inputs = [self._find(name, "inputs") for name in _listed(inputs)]
        self.asked = None if columns is None else [
            self._find(n, "columns") for n in _listed(columns)]  # fmt: skip
        self.series: list[int] = [] if source.series is None else [source.series]
        if series is not None and series is not True and series is not False:
            self.series = [self._find(name, "series") for name in _listed(series)]
        self.searched = series is None and not self.series
        self.time = self._find(time, "time") if isinstance(time, str) else None
        self.given = time if not isinstance(time, str | bool) else None
        self.timeless = time is False or self.given is not None
        self.used: set[int] = set()
        self._check_roles()
        self._load()

    # ------------------------------------------------------------ columns

    def _name_columns(self, names: Sequence[str]) -> None:
        free = [i for i in range(len(self.source.names)) if i != self.source.series]
        if len(names) != len(free):
            raise DataError(
                f"columns: got {len(names)} names; expected {len(free)}, one for each column of "
                f"{self.file}."
            )
        for i, name in zip(free, names):
            self.source.names[i] = str(name)

    def _short_names(self) -> tuple[list[str], dict[str, str]]:
        """Names without units where that leaves them distinct: `x [m]` is x, in m."""
        matches = [_UNIT.fullmatch(name) for name in self.source.names]
        matches = [m if m and (not m["of"] or UNIT.fullmatch(m["of"])) else None for m in matches]
        bare = [m["name"] if m else n for m, n in zip(matches, self.source.names)]
        counts = Counter(bare)
        names, units = [], {}
        for i, (name, short, match) in enumerate(zip(self.source.names, bare, matches)):
            alone = counts[short] == 1
            names.append((short if alone else name).replace("`", "'"))
            if match and alone:
                units[names[-1]] = (match["unit"] or match["per"] or match["of"]).strip()
            elif (unit := self.source.units.get(i, "").strip("[]() ")) not in ("", "1", "-"):
                units[names[-1]] = unit
        return names, units

    def _find(self, name: str, role: str) -> int:
        for names in (self.source.names, self.short):
            if name in names:
                return names.index(name)
        known = list(dict.fromkeys([*self.short, *self.source.names]))
        shown = ", ".join(self.source.names[:30]) + (", …" if len(known) > 30 else "")
        raise DataError(
            f"{role}: {self.file} has no column {name!r}{suggestion(name, known) or '.'} "
            f"Its columns: {shown}."
        )

    def _check_roles(self) -> None:
        roles: dict[int, str] = {}
        given = [("columns", i) for i in self.asked or ()] + [("inputs", i) for i in self.inputs]
        given += [("series", i) for i in self.series]
        for role, i in [*given, *([] if self.time is None else [("time", self.time)])]:
            if i in roles:
                raise DataError(
                    f"the column {self.short[i]!r} is named in {roles[i]} and in {role}; expected "
                    "each column in one place, once."
                )
            roles[i] = role

    def _free(self) -> list[int]:
        """Columns that have no role yet."""
        taken = {self.time, *self.series, *self.inputs, *(self.asked or ())}
        loaded = self.source.columns or range(len(self.source.names))
        return [i for i in range(len(self.source.names)) if i not in taken and i in loaded]

    def _named(self, patterns: Sequence[re.Pattern[str]]) -> int | None:
        found = (i for p in patterns for i in self._free() if p.fullmatch(self.short[i]))
        return next(found, None)

    def _load(self) -> None:
        """Read the columns that may be needed, if that was not done on opening."""
        source = self.source
        if source.load is not None:
            wanted = list(range(len(source.names)))
            labels = [*self.series, *(i for i in wanted if _SERIES_NAME.fullmatch(self.short[i]))]
            found = self.time if self.time is not None else self._named(_STRONG)
            if self.asked is not None and found is not None:
                chosen = {*self.asked, *self.inputs, *labels, found}
                wanted = [i for i in wanted if i in chosen]
            labels = [i for i in labels if i not in (*(self.asked or ()), *self.inputs)]
            frame = source.load(wanted, labels)
            if len(frame) == 0:
                raise DataError(f"{self.file} has names but no rows; expected rows of numbers.")
            for i in wanted:
                source.columns[i] = as_array(frame.pop(i))[0]
        self.rows = len(next(iter(source.columns.values())))
        self.numbers: dict[int, np.ndarray] = {}

    def _texts(self, column: int) -> np.ndarray:
        """A column as text, for the names of series."""
        raw = self.source.columns[column]
        if raw.dtype.kind == "f":
            return np.array(["" if np.isnan(v) else f"{v:.15g}" for v in raw], object)
        return np.array(["" if v == "NaT" else str(v).strip() for v in raw.astype(object)], object)

    def _number(self, column: int, *, must: bool) -> np.ndarray | None:
        """A column as floats; `None` if it is text and need not be numbers.

        Raises:
            DataError: It is numbers with something else in between.
        """
        if column in self.numbers:
            return self.numbers[column]
        raw, name = self.source.columns[column], self.short[column]
        if raw.dtype.kind in "mM":
            if must:
                raise DataError(f"{self.file}: the column {name!r} holds dates; expected numbers.")
            return None
        if raw.dtype.kind == "f":
            values, bad, got = raw.copy(), np.isinf(raw), "inf"
        else:
            try:
                values, bad, markers = numbers(raw.tolist(), self.source.decimal, self.na)
            except DataError as error:
                raise DataError(f"{self.file}, column {name!r}: {error}") from None
            known = len(values) - int(np.isnan(values).sum())
            if not must and bad.sum() > 0.5 * known and not all(map(is_number, raw[bad][:9])):
                return None
            got = str(raw[bad][0]) if bad.any() else ""
            for text, count in markers.items():
                entries = "1 entry" if count == 1 else f"{count:,} entries"
                self.notes.append(f"{name}: {entries} {text!r} read as missing.")
        if bad.any():
            low = got.lower()  # `inf` is all that is known of `-Infinity`
            found = self.source.line(
                column, lambda text: text == got or (low == "inf" and low in text.lower())
            )
            row = int(np.flatnonzero(bad)[0]) + 1
            place, got = (f"row {row}", got) if found is None else (f"line {found[0]}", found[1])
            raise DataError(
                f"{self.file}, column {name!r}, {place}: got {got!r}; expected a number, or "
                "nothing or NA where there is none. Correct it, name it as a missing value with "
                "na=, or leave the column out."
            )
        values[np.isin(values, self.na_numbers)] = np.nan
        for number, count in sentinels(values).items():
            self.warnings.append(
                f"{name}: {count:,} times {number:g}, far from all other values; "
                + ("read as missing (na=() keeps it)." if self.find_sentinels else "kept.")
            )
            if self.find_sentinels:
                values[values == number] = np.nan
        self.numbers[column] = values
        return values

    # ------------------------------------------------------------ time

    def _axis(self, labels: np.ndarray) -> Axis:
        """Time of every row."""
        if self.given is not None:
            return self._given_axis(labels)
        if self.time is None and not self.timeless:
            composed = self._find_time(labels)
            if composed is not None:
                return composed
        if self.time is not None:
            return self._column_axis(self.time)
        if not self.timeless and not self.source.plain:
            self.warnings.append("no column looks like time; rows are taken to be 1 apart.")
        return self._counted(labels, 1.0)

    def _counted(self, labels: np.ndarray, step: float) -> Axis:
        t = np.empty(len(labels))
        for _, rows in rows_of(labels):
            t[rows] = step * np.arange(len(rows))
        return Axis(t)

    def _given_axis(self, labels: np.ndarray) -> Axis:
        given: Any = self.given
        if isinstance(given, int | float | np.number):
            if not 0 < float(given) < np.inf:
                raise DataError(f"time: got {given}; expected a positive step.")
            return self._counted(labels, float(given))._replace(name="time")
        many = isinstance(given, list | tuple) and np.ndim(given[0]) == 1
        parts = [as_array(x) for x in (given if many else [given])]
        raw = np.concatenate([x for x, _ in parts])
        series = rows_of(labels)
        if len(raw) != len(labels) and all(len(raw) == len(rows) for _, rows in series):
            raw = np.tile(raw, len(series))  # one time axis for all series
        if len(raw) != len(labels):
            raise DataError(
                f"time: got {len(raw)} times; expected {len(labels)}, one for each row."
            )
        return self._read_axis(raw, "time", parts[0][1], lambda text, row: f"row {row + 1}")

    def _column_axis(self, column: int) -> Axis:
        def where(text: str, row: int) -> str:
            found = self.source.line(column, lambda entry: entry == text)
            return f"row {row + 1}" if found is None else f"line {found[0]}"

        raw = self.source.columns[column]
        axis = self._read_axis(raw, self.short[column], self.source.zones.get(column), where)
        unit = self.units.get(self.short[column])
        return axis if axis.seconds else axis._replace(unit=unit or axis.unit)

    def _read_axis(self, raw: np.ndarray, name: str, zone: str | None, where: Any) -> Axis:
        def parse(texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            values, bad, _ = numbers(texts.tolist(), self.source.decimal, self.na)
            return values, bad

        try:
            return read_axis(raw, name, zone, parse, where, **self.options)
        except DataError as error:
            raise DataError(f"{self.file}: {error}") from None

    def _find_time(self, labels: np.ndarray) -> Axis | None:
        """Set `time`, or make an axis of several columns."""
        free = self._free()
        if self.source.index in free and self._timelike(self.source.index):
            self.time = self.source.index
        elif (strong := self._named(_STRONG)) is not None and not self.source.plain:
            if (axis := self._date_and_clock(strong)) is not None:
                return axis
            self.time = strong
        elif not self.source.plain and (axis := self._calendar_columns()) is not None:
            return axis
        elif self.source.plain:
            return None
        else:
            weak = [i for i in free if TIME_NAMES[-1].fullmatch(self.short[i])]
            self.time = next((i for i in weak if self._timelike(i)), None)
            if self.time is None and self.source.weak_index in free:
                self.time = self.source.weak_index
                self.notes.append("the index of the data frame is taken for the time.")
            elif self.time is None:
                self._time_by_content(labels)
        return None

    def _timelike(self, column: int) -> bool:
        raw = self.source.columns[column]
        if raw.dtype.kind != "O":
            return True
        known = [v for v in raw[:1000] if not is_missing(v)]
        return sum(is_number(v) or is_date(v) for v in known) > 0.9 * len(known) > 0

    def _time_by_content(self, labels: np.ndarray) -> None:
        for i in self._free():
            raw, name = self.source.columns[i], self.short[i]
            if raw.dtype.kind == "f":
                even = all(_even(raw[rows]) for _, rows in rows_of(labels))
                if not even or _row_number(name, raw):
                    continue
            elif raw.dtype.kind == "O" and (
                len(raw) < 3 or sum(map(is_date, raw[:1000])) <= 0.9 * len(raw[:1000])
            ):
                continue
            self.time = i
            self.notes.append(f"time is the column {name!r}: it grows evenly, or holds dates.")
            return

    def _date_and_clock(self, column: int) -> Axis | None:
        """A column of days and one of clock times, or of hours, as one axis."""
        named = [i for i in self._free() if i == column
                 or any(p.fullmatch(self.short[i]) for p in (*_STRONG, _HOURS))]  # fmt: skip
        for day in named:
            for clock in named:
                since = None if day == clock else self._time_of_day(clock)
                if since is None or self.source.columns[day].dtype.kind == "f":
                    continue
                first = self._column_axis(day)
                if first.dates is None or (first.t % 86400.0 > 0).any():
                    continue
                if _HOURS.fullmatch(self.short[clock]) and len({*first.t}) == len(first.t) > 1:
                    continue  # every day once: hours of something else
                self.used.add(clock)
                self.time = day
                self.notes.append(f"{self.short[clock]!r} is the time of day of {first.name!r}.")
                shift = (np.nan_to_num(since) * 1e6).astype("m8[us]")
                dates = np.where(np.isnan(since), np.datetime64("NaT"), first.dates + shift)
                return self._read_axis(dates, self.short[day], first.zone, None)
        return None

    def _time_of_day(self, column: int) -> np.ndarray | None:
        """Clock times, or hours from 0 to 24, in seconds; `None` if the column has neither."""
        raw = self.source.columns[column]
        if raw.dtype.kind == "f":
            hours = _HOURS.fullmatch(self.short[column]) and ((raw >= 0) & (raw <= 24)).all()
            return 3600.0 * raw if hours else None
        known = [v for v in raw if not is_missing(str(v))] if raw.dtype.kind == "O" else []
        if not known or not all(map(elapsed_match, known)):
            return None
        return self._column_axis(column).t % 86400.0

    def _calendar_columns(self) -> Axis | None:
        """Columns of years and months, quarters, weeks or days of the year as one axis."""
        found: dict[str, int] = {}
        for key, pattern in CALENDAR_NAMES.items():
            match = next((i for i in self._free() if pattern.fullmatch(self.short[i])), None)
            if match is not None:
                found[key] = match
        fine = next((k for k in ("month", "quarter", "week", "doy") if k in found), None)
        if "year" not in found or fine is None:
            return None
        keys = ["year", fine]
        for key in ("day", "hour", "minute", "second"):
            dated = key == "day" and fine in ("month", "week")
            if key in found and (dated or keys[-1] in ("day", "doy", "hour", "minute")):
                keys.append(key)
        parts = {}
        for key in keys:
            raw = self.source.columns[found[key]]
            if raw.dtype.kind == "O":
                texts = [v.strip().upper().removeprefix("Q").removeprefix("W") for v in raw]
                raw = np.array([_part(v) for v in texts])
            if raw.dtype.kind != "f":
                return None
            parts[key] = raw
        dates = compose(parts)
        if (bad := np.isnat(dates) & ~np.any([np.isnan(x) for x in parts.values()], 0)).any():
            row = int(np.flatnonzero(bad)[0])
            values = ", ".join(f"{key} {x[row]:g}" for key, x in parts.items())
            raise DataError(f"{self.file}, row {row + 1}: {values} is no date of the calendar.")
        self.used.update(found[key] for key in keys)
        name = "+".join(self.short[found[key]] for key in keys)
        self.notes.append(f"the columns {name} together are the time.")
        return self._read_axis(dates, name, None, None)

    # ------------------------------------------------------------ series

    def _labels(self) -> np.ndarray:
        """`(rows,)` name of the series that each row belongs to."""
        if not self.series and self.searched:
            self._series_by_name()
        if not self.series:
            return np.full(self.rows, "", object)
        marks = [self._texts(i) for i in self.series]
        for i, mark in zip(self.series, marks):
            if (mark == "").any():
                row = int(np.flatnonzero(mark == "")[0])
                raise DataError(
                    f"series: the column {self.short[i]!r} has rows without a name, the first is "
                    f"row {row + 1}; expected one in every row."
                )
        return np.array([" ".join(m) for m in zip(*marks)], object)

    def _series_by_name(self) -> None:
        """Take a column called run, experiment or the like that groups the rows."""
        for i in self._free():
            if not _SERIES_NAME.fullmatch(self.short[i]):
                continue
            marks = self._texts(i)
            count = len(set(marks))
            whole = not any("." in m for m in set(marks))
            if whole and "" not in marks and 2 <= count <= self.rows / 3:
                self.series = [i]
                self.notes.append(f"series are separated by the column {self.short[i]!r}.")
                return

    def _separated(self, labels: np.ndarray, axis: Axis) -> tuple[np.ndarray, Axis]:
        """Use columns of names if times repeat, or start over, without them."""
        if not self.searched or self.series or axis.name is None or not _mixed(axis.t, labels):
            return labels, axis
        free = self._free()
        named = [i for i in free if _SERIES_NAME.fullmatch(self.short[i])]
        texts = [i for i in free if i not in named and self.source.columns[i].dtype.kind == "O"
                 and self._number(i, must=False) is None]  # fmt: skip
        for chosen in [*([i] for i in [*named, *texts]), *([texts] if len(texts) > 1 else [])]:
            marks = [self._texts(i) for i in chosen]
            if any((m == "").any() for m in marks):
                continue
            together = np.array([" ".join(m) for m in zip(*marks)], object)
            if not _mixed(axis.t, together):
                self.series = chosen
                shown = ", ".join(repr(self.short[i]) for i in chosen)
                self.notes.append(f"series are separated by the column {shown}.")
                return together, axis
        return labels, axis

    # ------------------------------------------------------------ all together

    def data(self) -> TimeSeriesData:
        """Everything together."""
        labels = self._labels()
        axis = self._axis(labels)
        labels, axis = self._separated(labels, axis)
        chosen = self._variables()
        U = self._input_values()
        self.source.columns.clear()  # of a large file every copy counts
        Y = np.stack([self.numbers.pop(i) for i in chosen], 1)
        dropped: dict[str, int] = {}
        timed = np.isfinite(axis.t)
        if lost := int((~timed).sum()):
            self.warnings.append(f"{rows_text(lost)} without a time: left out.")
            dropped["without a time"] = lost
        parts = [(label, rows[timed[rows]]) for label, rows in rows_of(labels)]
        parts = [(label, rows) for label, rows in parts if len(rows)]
        step = _median_step(axis.t, [rows for _, rows in parts])
        axis = with_unit(axis, step)
        unit = axis.unit
        if axis.dates is not None:
            first = axis.dates[timed].min()
            unit = f"{unit} since {show_date(first, axis.zone)}"
        names = ", ".join(self.short[i] for i in self.series)
        out = TimeSeriesData(
            [self.short[i] for i in chosen], [], [],
            input_names=[self.short[i] for i in self.inputs], time_name=axis.name, time_unit=unit,
            units=self.units, notes=self.notes, warnings=self.warnings, zone=axis.zone,
            dates=None if axis.dates is None else [], series_name=names or None, source=self.file,
            dropped=dropped,
        )  # fmt: skip
        self.notes.extend(axis.notes)
        self._fill(out, parts, axis, Y, U)
        return out

    def _variables(self) -> list[int]:
        """Positions of the variables; records which columns were left out, and why."""
        if self.asked is not None:
            for i in self.asked:
                values = self._number(i, must=True)
                if values is None or np.isnan(values).all():
                    raise DataError(f"columns: {self.short[i]!r} has no values; leave it out.")
            return self.asked
        found = []
        for i in self._free():
            if i in self.used:
                continue
            name, values = self.short[i], self._number(i, must=False)
            if values is None:
                kind = "text" if self.source.columns[i].dtype.kind == "O" else "dates"
                hint = "" if self.series or kind == "dates" else " (series= separates series by it)"
                self.warnings.append(f"the column {name!r} is {kind} and was left out{hint}.")
            elif i in (self.source.weak_index, self.source.index):
                self.notes.append(f"the index {name!r} of the data frame was left out.")
            elif _row_number(name, values):
                self.notes.append(f"the column {name!r} counts rows and was left out.")
            elif np.isnan(values).all():
                self.warnings.append(f"the column {name!r} has no values and was left out.")
            else:
                found.append(i)
        if not found:
            raise DataError(
                f"{self.file} has no column of numbers beside the time; expected one for each "
                f"variable. Its columns: {', '.join(self.source.names[:30])}."
            )
        return found

    def _input_values(self) -> np.ndarray:
        columns = []
        for i in self.inputs:
            values = self._number(i, must=True)
            if values is None or np.isnan(values).all():
                raise DataError(f"inputs: {self.short[i]!r} has no values; leave it out.")
            columns.append(values)
        return np.stack(columns, 1) if columns else np.empty((self.rows, 0))

    def _fill(
        self, out: TimeSeriesData, parts: list[tuple[str, np.ndarray]], axis: Axis, Y: np.ndarray,
        U: np.ndarray,
    ) -> None:  # fmt: skip
        """Bring every series into the order of time, each time once."""
        moved = merged = filled = 0
        self._refuse_conflicts(parts, axis, np.concatenate([Y, U], 1))
        for label, rows in parts:
            t = axis.t[rows]
            if (np.diff(t) < 0).any():
                rows = rows[np.argsort(t, kind="stable")]
                moved += 1
            t, first = np.unique(axis.t[rows], return_index=True)
            merged += len(rows) - len(t)
            y, u = (np.fmin.reduceat(x[rows], first) if x.shape[1] else x[rows[first]]
                    for x in (Y, U))  # fmt: skip
            for j, name in enumerate(out.input_names):
                known = np.isfinite(u[:, j])
                if not known.any():
                    raise DataError(
                        f"inputs: {name!r} has no values in the series {label!r}; expected some. "
                        "Leave the series or the input out."
                    )
                filled += int((~known).sum())
                u[:, j] = np.interp(t, t[known], u[known, j])
            out.series.append(label)
            out.times.append(t)
            out.values.append(y)
            out.inputs.append(u)
            if out.dates is not None and axis.dates is not None:
                out.dates.append(axis.dates[rows[first]])
        if moved:
            out.warnings.append("rows were not in the order of time and have been sorted.")
        if merged:
            out.warnings.append(f"{rows_text(merged)} repeated with the same values: left out.")
            out.dropped["duplicates"] = merged
        if filled:
            out.warnings.append(f"{filled} missing values of inputs: interpolated.")

    def _refuse_conflicts(
        self, parts: list[tuple[str, np.ndarray]], axis: Axis, X: np.ndarray
    ) -> None:
        """Raise an error where rows of one series at one time differ, or series are mixed."""
        conflicts, example, total = 0, "", sum(len(rows) for _, rows in parts)
        for label, rows in parts:
            t = axis.t[rows]
            inside = f" in the series {label!r}" if label else ""
            if _starts_over(t):
                raise DataError(
                    f"{self.file}: the times{inside} start over, as if several series stood one "
                    "below the other; expected one series, or a column that separates them. Name "
                    "that column with series=, or add one."
                )
            order = rows[np.argsort(t, kind="stable")]
            t, first, count = np.unique(axis.t[order], return_index=True, return_counts=True)
            if len(t) == len(order):
                continue
            low, high = (f.reduceat(X[order], first) for f in (np.fmin, np.fmax))
            bad = (low < high).any(1)
            conflicts += int(count[bad].sum()) - int(bad.sum())
            if bad.any() and not example:
                place = int(np.flatnonzero(bad)[0])
                at = order[first[place] : first[place] + 2] + 1
                example = f"rows {at[0]} and {at[1]} at time {t[place]:g}{inside}"
        if conflicts:
            raise DataError(
                f"{self.file}: {conflicts} of {total} rows have the time of another row but other "
                f"values (such as {example}); expected each time once in a series. If the file "
                "holds several series, name the column that separates them as series=; otherwise "
                "average or correct these rows."
            )


def _listed(names: str | Sequence[str] | None) -> list[str]:
    return [names] if isinstance(names, str) else list(names or ())


def _part(text: str) -> float:
    return float(text) if is_number(text) else month_number(text)


def rows_of(labels: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Each label once, in the order of its first row, with the positions of its rows."""
    codes: dict[str, int] = {}
    at = np.fromiter((codes.setdefault(x, len(codes)) for x in labels), np.int64, len(labels))
    order = np.argsort(at, kind="stable")
    return list(zip(codes, np.split(order, np.cumsum(np.bincount(at))[:-1])))


def _median_step(t: np.ndarray, parts: Sequence[np.ndarray]) -> float:
    steps = np.concatenate([np.diff(np.unique(t[rows])) for rows in parts])
    return float(np.median(steps)) if len(steps) else 1.0


def _mixed(t: np.ndarray, labels: np.ndarray) -> bool:
    """Whether a time occurs twice within a series, or the times start over."""
    for _, rows in rows_of(labels):
        x = t[rows][np.isfinite(t[rows])]
        if len(np.unique(x)) < len(x) or _starts_over(x):
            return True
    return False


def _starts_over(t: np.ndarray) -> bool:
    """Whether increasing runs of times follow each other that all begin near the start."""
    cuts = np.flatnonzero(np.diff(t) < 0) + 1
    if not len(cuts) or len(t) < 3 * (len(cuts) + 1):
        return False
    runs = np.split(t, cuts)
    early = runs[0][0] + 0.2 * max(np.ptp(run) for run in runs)
    overlap = all(run.max() > runs[0].min() for run in runs)
    distinct = len(np.unique(t)) > max(map(len, runs))
    return bool(overlap and distinct and all(run[0] <= early for run in runs))


def _even(values: np.ndarray) -> bool:
    if len(values) < 3 or not np.isfinite(values).all():
        return False
    steps = np.diff(values)
    return bool(steps.min() > 0 and np.ptp(steps) < 1e-3 * float(np.median(steps)))


def _row_number(name: str, values: np.ndarray) -> bool:
    """Whether it is the column of row numbers that many programs write without a name."""
    counted = np.arange(len(values))
    return bool(
        re.fullmatch(r"column1|Unnamed: 0|index", name)
        and (np.array_equal(values, counted) or np.array_equal(values, counted + 1))
    )
