"""Reading somebody's table: which column is time, which are variables, where one series ends.

Everything that is decided for the user is written down in `notes`, everything that may be wrong
with the data in `warnings`; what cannot be decided is an error that says how to decide it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from smnn._util.files import InputError
from smnn._util.names import suggestion
from smnn.data._formats import Source, open_source
from smnn.data._rows import Rows, fill_inputs, merge_rows, rows_of, sort_rows
from smnn.data._rows import Table as Table
from smnn.data._text import MISSING
from smnn.data._text import TableError as TableError
from smnn.data._times import TIME_NAMES, Axis, looks_like_time, read_axis

SHORTEST = 3
"""Fewest times that a series must have."""
REPEATED = 0.1
"""Share of repeated times above which averaging them would hide that series are mixed."""
_SERIES_NAME = re.compile(
    r"(series|id|run|trial|traj(ectory)?|experiment|subject|patient|replicate|batch|sample|unit)"
    r"([ _-]?(id|no|nr|number|name))?",
    re.IGNORECASE,
)
_UNIT = re.compile(r"(?P<name>.*\S)\s*[\[(](?P<unit>[^\[\]()]+)[\])]")


def read_table(
    path: str | Path,
    time: str | None = None,
    columns: Sequence[str] | None = None,
    series: str | None = None,
    inputs: Sequence[str] | None = None,
) -> Table:
    """Read a table of numbers with a column for each variable and a row for each time.

    CSV, TSV and other text (delimiter, decimal comma, comments, encoding and gzip are recognised),
    .npy, .npz, .json, .nc, and .parquet or .xlsx where pandas can. Empty fields and NA, NaN, null,
    None, `-`, `?` and `.` are missing values.

    Args:
        path: The file.
        time: Heading of the time column: numbers, or dates in ISO form. Otherwise a column called
            t, time, date or the like is taken, or the first one that grows evenly or holds dates;
            without any, rows are taken to be one unit apart.
        columns: Headings of the variables; otherwise every column of numbers that is left.
        series: Heading of a column that tells series apart, if there are several.
        inputs: Headings of external inputs: known at all times, not explained.

    Returns:
        The series, sorted in time. Rows at the same time are averaged, with a warning; if that
        happens to more than a tenth of them it is an error, since series are probably mixed.

    Raises:
        TableError: Says what was got, what was expected and what to do.
    """
    try:
        source = open_source(Path(path))
        return _Reading(source, time, columns, series, inputs).table()
    except InputError as error:
        raise TableError(str(error)) from None
    except OSError as error:
        raise TableError(f"cannot read {path}: {error.strerror or error}.") from None
    except MemoryError:
        raise TableError(
            f"{Path(path).name} needs more memory than there is. Name the columns that are needed, "
            "or thin the rows out first."
        ) from None


class _Reading:
    """One table on its way in."""

    def __init__(
        self,
        source: Source,
        time: str | None,
        columns: Sequence[str] | None,
        series: str | None,
        inputs: Sequence[str] | None,
    ) -> None:
        self.source = source
        self.file = source.path.name
        self.notes = list(source.notes)
        self.warnings: list[str] = []
        self.short, self.units = self._short_names()
        self.inputs = [self._find(name, "inputs") for name in inputs or ()]
        self.asked = None if columns is None else [self._find(n, "columns") for n in columns]
        self.series = source.series if series is None else self._find(series, "series")
        self.time = None if time is None else self._find(time, "time")
        self._check_roles()
        if self.time is None:
            self.time = self._time_by_name()
        every = range(len(source.names))
        wanted = list(every)
        if self.asked is not None and self.time is not None:
            chosen = {*self.asked, *self.inputs, self.time}
            wanted = [i for i in every if i in chosen or i == self.series]
        texts = [] if self.series is None else [self.series]
        self.frame = source.load(wanted, texts)
        if len(self.frame) == 0:
            raise TableError(f"{self.file} has names but no rows; expected rows of numbers.")
        self.numbers: dict[int, np.ndarray] = {}

    # ------------------------------------------------------------ columns

    def _short_names(self) -> tuple[list[str], dict[str, str]]:
        """Names without units where that leaves them distinct: `x [m]` is x, in m."""
        matches = [_UNIT.fullmatch(name) for name in self.source.names]
        bare = [m["name"] if m else n for m, n in zip(matches, self.source.names)]
        counts = Counter(bare)
        names, units = [], {}
        for name, short, match in zip(self.source.names, bare, matches):
            alone = counts[short] == 1
            names.append((short if alone else name).replace("`", "'"))
            if match and alone:
                units[names[-1]] = match["unit"].strip()
        return names, units

    def _find(self, name: str, role: str) -> int:
        for names in (self.source.names, self.short):
            if name in names:
                return names.index(name)
        known = list(dict.fromkeys([*self.short, *self.source.names]))
        shown = ", ".join(self.source.names[:30]) + (", …" if len(known) > 30 else "")
        raise TableError(
            f"{role}: {self.file} has no column {name!r}{suggestion(name, known) or '.'} "
            f"Its columns: {shown}."
        )

    def _check_roles(self) -> None:
        roles: dict[int, str] = {}
        given = [("columns", i) for i in self.asked or ()] + [("inputs", i) for i in self.inputs]
        for role, i in [*given, ("series", self.series), ("time", self.time)]:
            if i is None:
                continue
            if i in roles:
                raise TableError(
                    f"the column {self.short[i]!r} is named in {roles[i]} and in {role}; expected "
                    "each column in one place, once."
                )
            roles[i] = role

    def _free(self) -> list[int]:
        """Columns that have no part yet."""
        taken = {self.time, self.series, *self.inputs, *(self.asked or ())}
        return [i for i in range(len(self.source.names)) if i not in taken]

    def _time_by_name(self) -> int | None:
        free = self._free()
        for pattern in TIME_NAMES:
            for i in free:
                if pattern.fullmatch(self.short[i]):
                    return i
        return None

    def _number(self, column: int, *, must: bool) -> np.ndarray | None:
        """A column as floats; `None` if it is text and need not be numbers.

        Raises:
            TableError: It is numbers with something else in between.
        """
        if column in self.numbers:
            return self.numbers[column]
        import pandas as pd

        raw = self.frame[column]
        if pd.api.types.is_bool_dtype(raw) or pd.api.types.is_numeric_dtype(raw):
            values = raw.to_numpy(np.float64, na_value=np.nan)
            bad = np.isinf(values)
        elif pd.api.types.is_datetime64_any_dtype(raw):
            if must:
                raise TableError(
                    f"{self.file}: the column {self.short[column]!r} holds dates; expected numbers."
                )
            return None
        else:
            text = raw.astype("str").str.strip()
            absent = (raw.isna() | text.isin(MISSING)).to_numpy()
            if self.source.decimal == ",":
                text = text.str.replace(",", ".", regex=False)
            values = pd.to_numeric(text.mask(absent), errors="coerce").to_numpy(np.float64)
            bad = ~np.isfinite(values) & ~absent
            if not must and bad.sum() > 0.5 * (~absent).sum():
                return None
        if bad.any():
            raise TableError(
                f"{self.file}, column {self.short[column]!r}, "
                f"{self.source.where(column, np.flatnonzero(bad))}; expected a number, or nothing "
                "or NA where there is none. Correct it, or leave the column out."
            )
        self.numbers[column] = values
        return values

    # ------------------------------------------------------------ parts

    def table(self) -> Table:
        """Everything together."""
        labels = self._labels()
        axis = self._axis(labels)
        labels, axis = self._separated(labels, axis)
        chosen = self._variables()
        U = self._input_values()
        del self.frame  # of a large file every copy counts
        Y = np.stack([self.numbers.pop(i) for i in chosen], 1)
        kept = np.isfinite(axis.t) & np.isfinite(Y).any(1)
        if lost := int((~np.isfinite(axis.t)).sum()):
            self.warnings.append(f"{_rows(lost)} without a time: left out.")
        if empty := int((np.isfinite(axis.t) & ~kept).sum()):
            self.notes.append(f"{_rows(empty)} without any value: left out.")
        out = Table(
            [self.short[i] for i in chosen], [], [],
            input_names=[self.short[i] for i in self.inputs], time_name=axis.name,
            time_unit=axis.unit, units=self.units, notes=self.notes, warnings=self.warnings,
        )  # fmt: skip
        rows = Rows(axis.t, Y, U)
        if not kept.all():
            labels, rows = labels[kept], Rows(*(x[kept] for x in rows))
        self._fill(out, labels, rows)
        return out

    def _labels(self) -> np.ndarray:
        """`(rows,)` the series that each row belongs to."""
        if self.series is None:
            return np.full(len(self.frame), "", object)
        raw = self.frame[self.series]
        if raw.isna().any() or (raw.astype("str").str.strip() == "").any():
            raise TableError(
                f"series: the column {self.short[self.series]!r} has rows without a mark; expected "
                "one in every row."
            )
        return raw.astype("str").str.strip().to_numpy(object)

    def _axis(self, labels: np.ndarray) -> Axis:
        if self.time is not None:
            name = self.short[self.time]
            axis = read_axis(self.file, name, self.frame[self.time], self.source)
            return axis._replace(unit=axis.unit or self.units.get(name))
        for i in self._free():
            if looks_like_time(self.frame[i], labels) and not _row_number(
                self.short[i], self.frame[i].to_numpy()
            ):
                self.time = i
                name = self.short[i]
                axis = read_axis(self.file, name, self.frame[i], self.source)
                self.notes.append(f"time is the column {name!r}: it grows evenly, or holds dates.")
                return axis._replace(unit=axis.unit or self.units.get(name))
        self.warnings.append("no column looks like time; rows are taken to be 1 apart.")
        t = np.empty(len(labels))
        for _, rows in rows_of(labels):
            t[rows] = np.arange(len(rows))
        return Axis(t, None, None)

    def _separated(self, labels: np.ndarray, axis: Axis) -> tuple[np.ndarray, Axis]:
        """Use a column of marks if times repeat without it and not with it.

        That is one called id, run or the like, or any that is text.
        """
        if self.series is not None or axis.name is None or not _repeats(axis.t, labels):
            return labels, axis
        free = self._free()
        named = [i for i in free if _SERIES_NAME.fullmatch(self.short[i])]
        for i in named + [i for i in free if i not in named]:
            if i not in named and self._number(i, must=False) is not None:
                continue
            text = self.frame[i].astype("str").str.strip()
            if text.isna().any() or (text == "").any():  # not a mark for every row
                continue
            marks = text.to_numpy(object)
            if not _repeats(axis.t, marks):
                self.series = i
                self.notes.append(f"series are told apart by the column {self.short[i]!r}.")
                return marks, axis
        return labels, axis

    def _variables(self) -> list[int]:
        """Positions of the variables; says which columns were left out, and why."""
        if self.asked is not None:
            for i in self.asked:
                values = self._number(i, must=True)
                if (why := _useless(values)) is not None:
                    raise TableError(
                        f"columns: {self.short[i]!r} {why}; expected a column that changes in "
                        "time. Leave it out."
                    )
            return self.asked
        found = []
        for i in self._free():
            values = self._number(i, must=False)
            name = self.short[i]
            if values is None:
                hint = " (series= tells series apart by it)" if self.series is None else ""
                self.warnings.append(f"the column {name!r} is text and was left out{hint}.")
            elif _row_number(name, values):
                self.notes.append(f"the column {name!r} counts rows and was left out.")
            elif (why := _useless(values)) is not None:
                self.warnings.append(f"the column {name!r} {why} and was left out.")
            else:
                found.append(i)
        if not found:
            raise TableError(
                f"{self.file} has no column of numbers that changes in time; expected one for each "
                f"variable. Its columns: {', '.join(self.source.names[:30])}."
            )
        return found

    def _input_values(self) -> np.ndarray:
        columns = []
        for i in self.inputs:
            values = self._number(i, must=True)
            assert values is not None
            if np.isnan(values).all():
                raise TableError(f"inputs: {self.short[i]!r} has no values; leave it out.")
            columns.append(values)
        return np.stack(columns, 1) if columns else np.empty((len(self.frame), 0))

    def _fill(self, out: Table, labels: np.ndarray, every: Rows) -> None:
        """Cut the rows into series and bring each into order."""
        moved = lost = filled = 0
        short = []
        for label, mine in rows_of(labels):
            whole = len(mine) == len(labels)
            rows, unsorted = sort_rows(every if whole else Rows(*(x[mine] for x in every)))
            rows, merged = merge_rows(rows)
            if len(rows.t) < SHORTEST:
                short.append(str(label))
                continue
            try:
                rows, gaps = fill_inputs(rows)
            except ValueError as error:
                raise TableError(
                    f"inputs: {out.input_names[error.args[0]]!r} has no values in the series "
                    f"{str(label)!r}; expected some. Leave the series or the input out."
                ) from None
            moved, lost, filled = moved + unsorted, lost + merged, filled + gaps
            out.series.append(str(label))
            out.times.append(rows.t)
            out.values.append(rows.Y)
            out.inputs.append(rows.U)
        if lost > REPEATED * len(labels):
            raise TableError(
                f"{self.file}: {lost} of {len(labels)} rows have the time of another row; expected "
                "each time once. If the file holds several series, name the column that tells "
                "them apart as series."
            )
        if not out.times:
            raise TableError(
                f"{self.file} has {_rows(len(labels))} with values"
                + (f", no series with {SHORTEST}" if len(short) > 1 else "")
                + f"; expected at least {SHORTEST} times, and some dozens to learn from."
            )
        for count, text in (
            (moved, "rows were not in the order of time and have been sorted."),
            (lost, f"{_rows(lost)} at a time that occurred before: averaged with it."),
            (filled, f"{filled} missing values of inputs: interpolated."),
            (short, f"{len(short)} series with fewer than {SHORTEST} times: left out."),
        ):
            if count:
                self.warnings.append(text)
        if out.missing:
            self.notes.append(
                f"{out.missing:,} of {out.rows * len(out.names):,} values are missing."
            )


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"


def _repeats(t: np.ndarray, labels: np.ndarray) -> bool:
    """Whether a time occurs twice within a series."""
    return any(len(np.unique(x := t[rows][np.isfinite(t[rows])])) < len(x)
               for _, rows in rows_of(labels))  # fmt: skip


def _useless(values: np.ndarray | None) -> str | None:
    """Why a column cannot be a variable."""
    known = values[np.isfinite(values)] if values is not None else np.empty(0)
    if len(known) == 0:
        return "has no values"
    return f"is {known[0]:g} everywhere" if np.ptp(known) == 0 and len(known) > 1 else None


def _row_number(name: str, values: np.ndarray) -> bool:
    """Whether it is the nameless column of row numbers that many programs write."""
    counted = np.arange(len(values))
    return bool(
        re.fullmatch(r"column1|Unnamed: 0|index", name)
        and (np.array_equal(values, counted) or np.array_equal(values, counted + 1))
    )
