"""`read`: which column is time, which are variables, and where one series ends."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from smnn._util.files import InputError
from smnn._util.names import explained
from smnn.data._columns import SERIES_NAME, Columns, row_number
from smnn.data._dataset import TimeSeriesData, rows_text, show_date
from smnn.data._formats import open_file
from smnn.data._objects import as_array, from_object
from smnn.data._text import TextOptions
from smnn.data._times import (
    CALENDAR_NAMES,
    TIME_NAMES,
    Axis,
    calendar_part,
    compose,
    elapsed_match,
    is_date,
    month_number,
    read_axis,
    with_unit,
    zone_name,
    zone_offset,
)
from smnn.data._values import decimal_sign, is_missing, is_number, numbers
from smnn.errors import DataError

SHORTEST = 3
"""Fewest times that a series for `read_table` must have."""
FOOTER = 10
"""Most rows of words that are looked for below the table."""
_STRONG, _HOURS = TIME_NAMES[:-1], CALENDAR_NAMES["hour"]
_TIMES = re.compile(
    r"(?<![^\W_])(time|date|timestamp|datetime|datum|zeit|fecha|decimal|julian|m?jd|epoch|unix)"
    r"(?![^\W_])", re.IGNORECASE,
)  # fmt: skip
"""In the name of a column of times."""
_OF_VARIABLES = re.compile("variable|parameter|quantity|indicator|metric|analyte|measure", re.I)


@explained
def read(
    source: Any, *, time: Any = None, series: str | Sequence[str] | bool | None = None,
    columns: Sequence[str] | None = None, inputs: Sequence[str] | None = None,
    skip_rows: int | None = None, na: Any = None, dayfirst: bool | None = None,
    date_format: str | None = None, decimal: str | None = None, encoding: str | None = None,
    sheet: str | int = 0,
) -> TimeSeriesData:  # fmt: skip
    """Read series of numbers with their times from a file or an object.

    Files: CSV and other text (delimiter, decimal sign, encoding, comments, lines above the table,
    units and gzip are recognised), Excel, Parquet, Feather, JSON, `.npy`, `.npz`, NetCDF and Zarr.
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
        date_format: Format of the dates as for `datetime.strptime`; formats without a date, such as
            `"%H:%M"`, `"%H:%M:%S"` and `"%M:%S"`, are elapsed times.
        decimal: Decimal sign, `"."` or `","`; found by default.
        encoding: Encoding of text, such as `"latin-1"`; found by default.
        sheet: Name or number of the sheet of an Excel file; by default the first that is not empty.

    Returns:
        The series, sorted by time, each time once. What was assumed or dropped is in `notes`, what
        may be wrong in `warnings`; `summary()` describes the result.

    Raises:
        DataError: The data cannot be read, or could be read in several ways.
    """
    markers = [na] if isinstance(na, str | int | float) else list(na or ())
    try:
        if isinstance(source, str | Path):
            text = TextOptions(skip_rows, decimal, encoding, list(map(str, markers)))
            opened = open_file(Path(source), text, sheet)
        else:
            opened = from_object(source)
        opened.decimal = decimal or opened.decimal
        found = Columns(opened, columns, inputs, series, time, markers, na is None)
        return _Reading(found, time, series is None, dayfirst, date_format).data()
    except InputError as error:
        raise DataError(str(error)) from None
    except OSError as error:
        raise DataError(f"cannot read {source}: {error.strerror or error}.") from None
    except MemoryError:
        raise DataError(
            f"{source if isinstance(source, str | Path) else 'the data'} needs more memory than "
            "there is. Name the columns that are needed (columns=), or thin the rows out first."
        ) from None


def read_times(
    values: Any, *, dayfirst: bool | None = None, date_format: str | None = None
) -> np.ndarray:
    """Read times as they stand in a column: numbers, dates, durations, or text of either.

    Args:
        values: Column of a frame, array or list.
        dayfirst: Whether 01/02/2024 is the first of February; needed if no entry decides.
        date_format: Format of the dates as for `datetime.strptime`.

    Returns:
        `(T,)` `datetime64[us]` for dates (UTC if they have a time zone); otherwise floats, elapsed
        times in seconds. Missing entries are NaT or NaN.

    Raises:
        DataError: They are no times, ambiguous, or in several formats.
    """
    raw, zone = as_array(values)
    text = raw.dtype.kind == "O"
    decimal = decimal_sign(raw[:1000], ";") if text else "."
    axis = read_axis(
        raw, "t", zone, lambda texts: numbers(texts.tolist(), decimal, frozenset())[:2],
        lambda text, row: f"entry {row}", dayfirst, date_format,
    )  # fmt: skip
    return axis.t if axis.dates is None else axis.dates


def read_table(
    path: Any, time: str | None = None, columns: Sequence[str] | None = None,
    series: str | Sequence[str] | None = None, inputs: Sequence[str] | None = None, **options: Any,
) -> TimeSeriesData:  # fmt: skip
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
    """The times of the rows of a table, and the series they belong to."""

    def __init__(
        self, columns: Columns, time: Any, searched: bool, dayfirst: bool | None,
        date_format: str | None,
    ) -> None:  # fmt: skip
        self.columns, self.source, self.names = columns, columns.source, columns.names
        self.notes, self.warnings = columns.notes, columns.warnings
        self.rows, self.file = columns.rows, columns.file
        self.searched = searched and not columns.series
        self.given = time if time is not False and not isinstance(time, str) else None
        self.timeless = time is False or self.given is not None
        self.dayfirst, self.date_format = dayfirst, date_format
        self.used: set[int] = set()
        self.below = 0

    # ------------------------------------------------------------ time

    def _axis(self, labels: np.ndarray) -> Axis:
        """Time of every row."""
        if self.given is not None:
            return self._given_axis(labels)
        if self.columns.time is None and not self.timeless:
            composed = self._find_time(labels)
            if composed is not None:
                return composed
        if self.columns.time is not None:
            return self._column_axis(self.columns.time)
        if not self.timeless and not self.source.plain:
            self.warnings.append("no column looks like time; rows are taken to be 1 apart.")
        return Axis(_counted(labels))

    def _given_axis(self, labels: np.ndarray) -> Axis:
        given: Any = self.given
        if given is True:
            raise DataError("time: got True; expected a name, times, a step, or False for none.")
        if isinstance(given, int | float | np.number):
            if not 0 < float(given) < np.inf:
                raise DataError(f"time: got {given}; expected a positive step.")
            return Axis(float(given) * _counted(labels), "time")
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
        return self._read_axis(raw, "time", parts[0][1])

    def _column_axis(self, column: int) -> Axis:
        raw = self._without_footer(self.columns.raw(column))
        axis = self._read_axis(raw, self.names[column], self.source.zones.get(column), column)
        unit = self.columns.units.get(self.names[column])
        if axis.dates is not None and axis.zone is None and re.match("(UTC|GMT)", unit or ""):
            offset = zone_offset(str(unit)) or 0
            dates = axis.dates - np.timedelta64(offset, "m")
            axis = axis._replace(dates=dates, zone=zone_name(offset))
        return axis if axis.seconds else axis._replace(unit=unit or axis.unit)

    def _without_footer(self, raw: np.ndarray) -> np.ndarray:
        """Times without words below the table, such as `Total`."""
        end = len(raw) if raw.dtype.kind == "O" else 0

        def words(text: str) -> bool:
            plain = is_missing(text) or is_number(text) or is_date(text)
            return not plain and bool(re.search(r"[^\W\d_]{3}", text))

        while end > 2 and words(raw[end - 1]):
            end -= 1
        self.below = len(raw) - end
        if not end or not 0 < self.below <= min(FOOTER, end) or not (
            is_number(raw[end - 1]) or is_date(raw[end - 1])
        ):  # fmt: skip
            self.below = 0
            return raw
        self.warnings.append(
            f"{rows_text(self.below)} at the end without a time ({raw[end][:30]!r}): left out."
        )
        return np.array([*raw[:end], *[""] * self.below], object)

    def _read_axis(
        self, raw: np.ndarray, name: str, zone: str | None = None, column: int | None = None
    ) -> Axis:
        def parse(texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            values, bad, _, units = self.columns.parsed(texts)
            unit = next(iter(units), "") if len(units) == 1 else ""
            if unit and not bad.any():
                self.columns.units.setdefault(name, unit)
            return values, bad | (len(units) > 1)

        def where(text: str, row: int) -> str:
            if column is None:
                return f"row {row + 1}"
            return self.columns.where(column, row, lambda entry: entry == text)[0]

        unit = re.sub("inutes?|in|econds?|ec|[^a-z]", "", self.columns.units.get(name, "").lower())
        colons = raw.dtype.kind == "O" and any(":" in str(v) for v in raw[:100])
        stated = self.date_format or ("%M:%S" if unit in ("ms", "mmss") and colons else None)
        try:
            return read_axis(raw, name, zone, parse, where, self.dayfirst, stated)
        except DataError as error:
            raise DataError(f"{self.file}: {error}") from None

    def _find_time(self, labels: np.ndarray) -> Axis | None:
        """Find the column of times, or make an axis of several columns."""
        columns, free, index = self.columns, self.columns.free(), self.source.index
        if index in free and self._timelike(index):
            columns.time = index
        elif self.source.plain or (axis := self._composed(labels)) is not None:
            return None if self.source.plain else axis
        elif strong := columns.named(_STRONG):
            columns.time = strong[0]
        elif weak := [i for i in columns.named(TIME_NAMES[-1:]) if self._timelike(i)] or [
            i for i in free if _TIMES.search(self.names[i]) and self._increases(i, labels)
        ]:
            columns.time = weak[0]
        elif self.source.weak_index in free:
            columns.time = self.source.weak_index
            self.notes.append("the index is taken for the time.")
        else:
            columns.time = next((i for i in free if self._grows(i, labels)), None)
            if columns.time is not None:
                name = self.names[columns.time]
                self.notes.append(f"time is the column {name!r}: it grows evenly, or holds dates.")
        return None

    def _timelike(self, column: int | None) -> bool:
        raw = self.columns.raw(column or 0)
        if raw.dtype.kind != "O":
            return True
        known = [v for v in raw[:1000] if not is_missing(v)]
        return sum(is_number(v) or is_date(v) for v in known) > 0.9 * len(known) > 0

    def _increases(self, column: int, labels: np.ndarray) -> bool:
        """Whether a column holds dates, or numbers that increase in every series."""
        raw = self.columns.raw(column)
        if raw.dtype.kind == "f":
            return all((np.diff(raw[rows]) > 0).all() for _, rows in rows_of(labels))
        return raw.dtype.kind == "M" or self._timelike(column)

    def _grows(self, column: int, labels: np.ndarray) -> bool:
        """Whether a column without a telling name grows evenly, or holds dates."""
        raw, name = self.columns.raw(column), self.names[column]
        if raw.dtype.kind == "O":
            return len(raw) > 1 and sum(map(is_date, raw[:1000])) > 0.9 * len(raw[:1000])
        if raw.dtype.kind != "f":
            return True
        if sum(self.columns.raw(i).dtype.kind == "f" for i in self.columns.free()) < 2:
            return False
        for _, rows in rows_of(labels):
            steps = np.diff(raw[rows])
            if len(rows) < 3 or not (steps > 0).all() or np.ptp(steps) >= 1e-3 * np.median(steps):
                return False
        return not row_number(name, raw)

    def _composed(self, labels: np.ndarray) -> Axis | None:
        """One axis of several columns: date and clock time, or year and month and so on."""
        columns = self.columns
        strong = columns.named(_STRONG)
        found = {k: i for k, p in CALENDAR_NAMES.items() for i in columns.named([p])[:1]}
        hours = [found["hour"]] if "hour" in found else []
        clock = next((i for i in [*strong, *hours] if self._clock(i) is not None), None)
        days = [i for i in strong if i != clock]
        fine = next((k for k in ("month", "quarter", "week", "doy") if k in found), None)
        unnamed = not days and "year" not in found and (pair := self._unnamed_pair(clock))
        if unnamed:
            days, clock = [pair[0]], pair[1]
        zone = None
        if days and clock is not None:
            day = self._column_axis(days[0])
            if day.dates is None or (day.t % 86400.0 > 0).any():
                return None
            dates, zone, used = day.dates, day.zone, days[:1]
        elif "year" in found and fine and not set(strong) - {clock}:
            dates, used = self._calendar(found, fine)
        else:
            return None
        days_once = all(len(np.unique(dates[x])) == len(x) for _, x in rows_of(labels))
        if days_once and (unnamed or clock in hours):
            clock = None  # hours of work or of sunshine: one for each day
            if used == days[:1]:
                return None
        if clock is not None:
            seconds = self._clock(clock)
            used = [*used, clock]
            if clock not in hours and self.columns.raw(clock).dtype.kind == "f":
                self.notes.append(f"the numbers in {self.names[clock]!r} are clock times HHMM.")
            for key, length in (("minute", 60.0), ("second", 1.0)):
                if clock in hours and key in found:
                    seconds = seconds + length * self._part(found[key])
                    used = [*used, found[key]]
            absent = np.isnan(seconds)
            shift = np.round(1e6 * np.where(absent, 0, seconds)).astype("m8[us]")
            dates = np.where(absent, np.datetime64("NaT"), dates + shift)
        self.used.update(used)
        name = "+".join(self.names[i] for i in used)
        self.notes.append(f"the columns {name} together are the time.")
        return self._read_axis(dates, name, zone)

    def _unnamed_pair(self, clock: int | None) -> list[int]:
        """A column of dates and one of clock times beside it, whatever their names."""
        for i in self.columns.free():
            pair = [i, i + 1] if clock is None else [i, clock]
            if pair[1] == i + 1 < len(self.names) and all(
                self.columns.raw(j).dtype.kind == "O" and self._timelike(j) for j in pair
            ):
                dated = [is_date(v) and not elapsed_match(v) for v in self.columns.raw(i)[:1000]]
                if all(dated) and self._clock(i + 1) is not None:
                    return pair
        return []

    def _calendar(self, found: dict[str, int], fine: str) -> tuple[np.ndarray, list[int]]:
        """Dates of columns of years, months and so on, and which columns these are."""
        keys = ["year", fine]
        if "day" in found and fine in ("month", "week"):
            whole = np.nan_to_num(self._part(found["day"])) % 1 == 0  # dy may be a variable
            keys += ["day"] if whole.all() else []
        parts = {key: self._part(found[key]) for key in keys}
        dates = compose(parts)
        known = ~np.any([np.isnan(x) for x in parts.values()], 0)
        early = known & (parts["year"] < 100)
        if (bad := (np.isnat(dates) & known) | early).any():
            row = int(np.flatnonzero(bad)[0])
            values = ", ".join(f"{key} {x[row]:g}" for key, x in parts.items())
            why = "has a year of two digits" if early[row] else "is no date of the calendar"
            raise DataError(f"{self.file}, row {row + 1}: {values} {why}.")
        return dates, [found[key] for key in keys]

    def _clock(self, column: int) -> Any:
        """Clock times, HHMM, or hours from 0 to 24, in seconds; `None` if there are none."""
        raw, name = self.columns.raw(column), self.names[column]
        if raw.dtype.kind == "f":
            if _HOURS.fullmatch(name) and ((raw >= 0) & (raw <= 24)).all():
                return 3600.0 * raw
            if name in self.columns.units or not np.isfinite(raw).all() or raw.max() < 100:
                return None
            steps, minutes = np.diff(raw), raw % 100
            counted = not (steps < 0).any() and (len(set(steps)) == 1 or not minutes.any())
            clock = (raw == np.floor(raw)) & (raw >= 0) & (raw <= 2400) & (minutes < 60)
            return None if counted or not clock.all() else 3600.0 * (raw // 100) + 60.0 * minutes
        known = [v for v in raw if not is_missing(str(v))] if raw.dtype.kind == "O" else []
        if not known or not all(map(elapsed_match, known)):
            return None
        return self._read_axis(raw, self.names[column]).t % 86400.0

    def _part(self, column: int) -> np.ndarray:
        """A column of years, months, and so on as numbers; NaN where it has none."""
        raw = self.columns.raw(column)
        if raw.dtype.kind == "O":
            texts = [v.strip().upper().removeprefix("Q").removeprefix("W") for v in raw]
            found = [float(v) if v.isdigit() else month_number(v) or np.nan for v in texts]
            raw = np.array(found, np.float64)
        return raw if raw.dtype.kind == "f" else np.full(len(raw), np.nan)

    # ------------------------------------------------------------ series

    def _labels(self) -> np.ndarray:
        """`(rows,)` name of the series that each row belongs to."""
        columns = self.columns
        if self.searched:
            for i in columns.free():
                marks = columns.texts(i) if SERIES_NAME.fullmatch(self.names[i]) else [""]
                whole = "" not in marks and not any("." in m for m in set(marks))
                if whole and 2 <= len(set(marks)) <= self.rows / 3:
                    return self._separate([i])
        for i in columns.series:
            if (bad := columns.texts(i) == "").any():
                raise DataError(
                    f"series: the column {self.names[i]!r} has rows without a name, the first is "
                    f"row {int(np.flatnonzero(bad)[0]) + 1}; expected one in every row."
                )
        return self._marks(columns.series)

    def _marks(self, chosen: Sequence[int]) -> np.ndarray:
        if not chosen:
            return np.full(self.rows, "", object)
        return np.array([" ".join(m) for m in zip(*map(self.columns.texts, chosen))], object)

    def _separate(self, chosen: list[int]) -> np.ndarray:
        self.columns.series = chosen
        shown = ", ".join(repr(self.names[i]) for i in chosen)
        self.notes.append(f"series are separated by the column {shown}.")
        if len(chosen) == 1 and _OF_VARIABLES.fullmatch(self.names[chosen[0]]):
            self.warnings.append(
                f"the column {shown} may name variables, which are read as series of one variable; "
                "for a column for each, reshape the table, as with pandas.pivot."
            )
        return self._marks(chosen)

    def _separated(self, labels: np.ndarray, axis: Axis) -> np.ndarray:
        """Use columns of names if times repeat, or start over, without them."""
        if (
            not self.searched
            or self.columns.series
            or axis.name is None
            or not _mixed(axis.t, labels)
        ):
            return labels
        free = [i for i in self.columns.free() if i not in self.used]
        named = [i for i in free if SERIES_NAME.fullmatch(self.names[i])]
        texts = [i for i in free if i not in named and self.columns.raw(i).dtype.kind == "O"
                 and self.columns.numbers(i) is None]  # fmt: skip
        for chosen in [*([i] for i in [*named, *texts]), *([texts] if len(texts) > 1 else [])]:
            complete = not any((self.columns.texts(i) == "").any() for i in chosen)
            if complete and not _mixed(axis.t, self._marks(chosen)):
                return self._separate(chosen)
        return labels

    def _check_names(self, axis: Axis) -> None:
        """Refuse names of series that stand in the first row of each only, as in merged cells."""
        timed = np.isfinite(axis.t)
        for i in self.columns.free() if self.searched and not self.columns.series else ():
            if not SERIES_NAME.fullmatch(self.names[i]) or self.columns.raw(i).dtype.kind != "O":
                continue
            marks = self.columns.texts(i)[timed]
            if len(marks) and marks[0] and "" in marks and len(set(marks)) > 2:
                raise DataError(
                    f"{self.file}: the column {self.names[i]!r} names a series in "
                    f"{int((marks != '').sum())} of {len(marks)} rows; expected a name in every "
                    "row. Fill the names down, or state series=False if it is no name of series."
                )

    def _check_times(self, axis: Axis, labels: np.ndarray) -> None:
        """Leave out further columns of times; refuse several that differ."""
        if axis.name is None or self.columns.asked is not None:
            return
        for key, pattern in CALENDAR_NAMES.items():
            for i in self.columns.named([pattern]):
                part = None if axis.dates is None else calendar_part(axis.dates, key)
                if i not in self.used and part is not None and (part == self._part(i)).all():
                    self.used.add(i)
                    self.notes.append(f"{self.names[i]!r} repeats the {key} and was left out.")
        stem = re.fullmatch(r"((t|time|date)[ _-]?)\d+", axis.name, re.IGNORECASE)
        twins = [n for n in self.names if stem and re.fullmatch(re.escape(stem[1]) + r"\d+", n)]
        for i in self.columns.free():
            if i in (*self.used, self.source.index, self.source.weak_index):
                continue
            if self.columns.raw(i).dtype.kind != "f":
                continue
            name, raw = self.names[i], self.columns.raw(i)
            if name in twins and (raw != self.columns.raw(self.columns.time or 0)).any():
                raise DataError(
                    f"{self.file} has several columns of times ({axis.name}, {name}) that differ; "
                    "expected one. Name it with time=, and its variables with columns=."
                )
            if (_TIMES.search(name) or TIME_NAMES[2].fullmatch(name)) and all(
                (np.diff(raw[rows[np.argsort(axis.t[rows])]]) > 0).all()
                for _, rows in rows_of(labels)
            ):
                self.used.add(i)
                self.warnings.append(
                    f"the column {name!r} is another column of times and was left out (columns= "
                    "keeps it)."
                )

    def _hint(self, axis: Axis) -> str:
        """Columns that would separate series, for errors about times that repeat."""
        free = [i for i in self.columns.free() if i not in self.used]
        few = [i for i in free if 2 <= len(set(self.columns.texts(i))) <= self.rows / 3]
        found = [repr(self.names[i]) for i in few if not _mixed(axis.t, self._marks([i]))]
        for pair in itertools.combinations(few[:6], 2) if not found else ():
            if not _mixed(axis.t, self._marks(pair)):
                found = [" and ".join(repr(self.names[i]) for i in pair)]
                break
        return f" (such as {', '.join(found[:3])})" if found else ""

    # ------------------------------------------------------------ all together

    def data(self) -> TimeSeriesData:
        """Everything together."""
        columns = self.columns
        labels = self._labels()
        axis = self._axis(labels)
        labels = self._separated(labels, axis)
        self._check_names(axis)
        self._check_times(axis, labels)
        chosen = columns.variables(self.used, axis.name)
        found = [columns.numbers(i) for i in chosen]
        found += [columns.numbers(i, "inputs") for i in columns.inputs]
        X = np.stack([x for x in found if x is not None], 1)
        timed = np.isfinite(axis.t)
        parts = [(label, rows[timed[rows]]) for label, rows in rows_of(labels)]
        parts = [(label, rows) for label, rows in parts if len(rows)]
        steps = np.concatenate([np.diff(np.unique(axis.t[rows])) for _, rows in parts])
        axis = with_unit(axis, float(np.median(steps)) if len(steps) else 1.0)
        unit = axis.unit
        if axis.dates is not None:
            unit = f"{unit} since {show_date(axis.dates[timed].min(), axis.zone)}"
        lost = int((~timed).sum())
        if lost > 0.5 * len(timed):
            raise DataError(
                f"{self.file}: {lost} of {len(timed)} rows have no time in {axis.name!r}; expected "
                "one in every row. Fill the empty cells, or name another column with time=."
            )
        if lost > self.below:
            self.warnings.append(f"{rows_text(lost - self.below)} without a time: left out.")
        self.notes.extend(axis.notes)
        for texts in (self.notes, self.warnings):
            texts[:] = dict.fromkeys(texts)
        out = TimeSeriesData(
            [self.names[i] for i in chosen], [], [],
            input_names=[self.names[i] for i in columns.inputs], time_name=axis.name,
            time_unit=unit, units=columns.units, notes=self.notes, warnings=self.warnings,
            zone=axis.zone, dates=None if axis.dates is None else [], source=self.file,
            series_name=", ".join(self.names[i] for i in columns.series) or None,
            dropped={"without a time": lost} if lost else {},
        )  # fmt: skip
        _refuse_conflicts(self.file, parts, axis.t, X, partial(self._hint, axis))
        _fill(out, parts, axis, X)
        return out


def _fill(
    out: TimeSeriesData, parts: list[tuple[str, np.ndarray]], axis: Axis, X: np.ndarray
) -> None:
    """Bring every series into the order of time, each time once."""
    moved, merged, filled, V = False, 0, 0, len(out.names)
    for label, rows in parts:
        moved |= bool((np.diff(axis.t[rows]) < 0).any())
        rows = rows[np.argsort(axis.t[rows], kind="stable")]
        t, first = np.unique(axis.t[rows], return_index=True)
        merged += len(rows) - len(t)
        x = np.fmin.reduceat(X[rows], first)
        for j, name in enumerate(out.input_names, V):
            known = np.isfinite(x[:, j])
            if not known.any():
                raise DataError(
                    f"inputs: {name!r} has no values in the series {label!r}; expected some. "
                    "Leave the series or the input out."
                )
            filled += int((~known).sum())
            x[:, j] = np.interp(t, t[known], x[known, j])
        out.series.append(label)
        out.times.append(t)
        out.values.append(x[:, :V])
        out.inputs.append(x[:, V:])
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
    file: str, parts: list[tuple[str, np.ndarray]], t: np.ndarray, X: np.ndarray, hint: Any
) -> None:
    """Raise an error where rows of one series at one time differ, or series are mixed."""
    conflicts, example, total = 0, "", sum(len(rows) for _, rows in parts)
    for label, rows in parts:
        inside = f" in the series {label!r}" if label else ""
        if _starts_over(t[rows]):
            raise DataError(
                f"{file}: the times{inside} start over, as if several series stood one below the "
                f"other; expected one series, or a column that separates them{hint()}. Name that "
                "column with series=, or add one."
            )
        order = rows[np.argsort(t[rows], kind="stable")]
        times, first, count = np.unique(t[order], return_index=True, return_counts=True)
        low, high = (f.reduceat(X[order], first) for f in (np.fmin, np.fmax))
        bad = (low < high).any(1)
        conflicts += int(count[bad].sum()) - int(bad.sum())
        if bad.any() and not example:
            place = int(np.flatnonzero(bad)[0])
            at = order[first[place] : first[place] + 2] + 1
            example = f"rows {at[0]} and {at[1]} at time {times[place]:g}{inside}"
    if conflicts:
        raise DataError(
            f"{file}: {conflicts} of {total} rows have the time of another row but other values "
            f"(such as {example}); expected each time once in a series. If the file holds several "
            f"series, name the column that separates them{hint()} as series=; otherwise average or "
            "correct these rows."
        )


def rows_of(labels: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Each label once, in the order of its first row, with the positions of its rows."""
    codes: dict[str, int] = {}
    at = np.fromiter((codes.setdefault(x, len(codes)) for x in labels), np.int64, len(labels))
    order = np.argsort(at, kind="stable")
    return list(zip(codes, np.split(order, np.cumsum(np.bincount(at))[:-1])))


def _counted(labels: np.ndarray) -> np.ndarray:
    """Rows of each series, counted from 0."""
    t = np.empty(len(labels))
    for _, rows in rows_of(labels):
        t[rows] = np.arange(len(rows))
    return t


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
