"""The columns of a table: which names and units they have, which role, and their numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from smnn._util.names import suggestion
from smnn.data._objects import Source, as_array
from smnn.data._times import TIME_NAMES, is_date, month_number
from smnn.data._values import (
    UNIT,
    decimal_sign,
    is_number,
    numbers,
    repeated_outlier,
    sentinels,
    times_text,
)
from smnn.errors import DataError

SERIES_NAME = re.compile(
    r"(unique|series|id|run|trial|traj(ectory)?|experiment|subject|patient|replicate|batch|sample"
    r"|unit)([ _-]?(id|no|nr|number|name))?",
    re.IGNORECASE,
)
_WITH_UNIT = re.compile(
    r"(?P<name>.*\S)\s*(?:[\[(](?P<unit>[^\[\]()]+)[\])]|\s/\s(?P<per>\S{1,8})|,\s(?P<of>\S{1,8}))"
)


class Columns:
    """Columns with their roles: time, series, inputs, variables."""

    def __init__(
        self, source: Source, columns: Sequence[str] | None, inputs: Sequence[str] | None,
        series: Any, time: Any, na: list[Any], find_sentinels: bool,
    ) -> None:  # fmt: skip
        self.source, self.file = source, source.label
        self.notes, self.warnings = list(source.notes), list[str]()
        self.na = frozenset(str(x).strip().lower() for x in na)
        self.na_numbers = [float(x) for x in map(str, na) if is_number(x)]
        self.find_sentinels = find_sentinels
        if source.plain and columns is not None and inputs is None:
            self._name_columns(columns)
            columns = None
        self.names, self.units = self._names_and_units()
        self.inputs = [self._find(name, "inputs") for name in _listed(inputs)]
        self.asked = None if columns is None else [
            self._find(n, "columns") for n in _listed(columns)]  # fmt: skip
        self.series = list(source.series)
        if series is not None and not isinstance(series, bool):
            self.series = [self._find(name, "series") for name in _listed(series)]
        self.time = self._find(time, "time") if isinstance(time, str) else None
        roles: dict[int, str] = {}
        for role, group in (("columns", self.asked or []), ("inputs", self.inputs),
                            ("series", self.series), ("time", [self.time])):  # fmt: skip
            for i in (i for i in group if i is not None):
                if i in roles:
                    raise DataError(
                        f"the column {self.names[i]!r} is named in {roles[i]} and in {role}; "
                        "expected each column in one place, once."
                    )
                roles[i] = role
        self._load()
        self._numbers: dict[int, np.ndarray] = {}

    def _name_columns(self, names: Sequence[str]) -> None:
        free = [i for i in range(len(self.source.names)) if i not in self.source.series]
        if len(names) != len(free):
            raise DataError(
                f"columns: got {len(names)} names; expected {len(free)}, one for each column of "
                f"{self.file}."
            )
        for i, name in zip(free, names):
            self.source.names[i] = str(name)

    def _names_and_units(self) -> tuple[list[str], dict[str, str]]:
        """Names without units where that leaves them distinct: `x [m]` is x, in m."""
        matches = [_WITH_UNIT.fullmatch(name) for name in self.source.names]
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
        for names in (self.source.names, self.names):
            if name in names:
                return names.index(name)
        known = list(dict.fromkeys([*self.names, *self.source.names]))
        shown = ", ".join(self.source.names[:30]) + (", …" if len(known) > 30 else "")
        raise DataError(
            f"{role}: {self.file} has no column {name!r}{suggestion(name, known) or '.'} "
            f"Its columns: {shown}."
        )

    def free(self) -> list[int]:
        """Columns that have no role yet."""
        taken = {self.time, *self.series, *self.inputs, *(self.asked or ())}
        loaded = self.source.columns or range(len(self.source.names))
        return [i for i in range(len(self.source.names)) if i not in taken and i in loaded]

    def named(self, patterns: Sequence[re.Pattern[str]]) -> list[int]:
        """Free columns with such names, in the order of the patterns."""
        free = [i for i in self.free() if i != self.source.weak_index]
        return [i for p in patterns for i in free if p.fullmatch(self.names[i])]

    def _load(self) -> None:
        """Read the columns that may be needed, if that was not done on opening."""
        source = self.source
        if source.load is not None:
            wanted = list(range(len(source.names)))
            labels = {*self.series, *(i for i in wanted if SERIES_NAME.fullmatch(self.names[i]))}
            found = self.named(TIME_NAMES[:-1])[:1] if self.time is None else [self.time]
            if self.asked is not None and found:
                wanted = sorted({*self.asked, *self.inputs, *labels, *found})
            frame = source.load(wanted, sorted(labels - {*(self.asked or ()), *self.inputs}))
            if len(frame) == 0:
                raise DataError(f"{self.file} has names but no rows; expected rows of numbers.")
            self.notes += [note for note in source.notes if note not in self.notes]
            for i in wanted:
                source.columns[i] = as_array(frame.pop(i))[0]
        self.rows = len(next(iter(source.columns.values())))

    def raw(self, column: int) -> np.ndarray:
        """A column as it was read."""
        return self.source.columns[column]

    def texts(self, column: int) -> np.ndarray:
        """A column as text, for the names of series."""
        raw = self.raw(column)
        if raw.dtype.kind == "f":
            return np.array(["" if np.isnan(v) else f"{v:.15g}" for v in raw], object)
        return np.array(["" if v == "NaT" else str(v).strip() for v in raw.astype(object)], object)

    def where(self, column: int, row: int, bad: Any) -> tuple[str, str]:
        """Place and text of an entry, for messages."""
        found = self.source.line(column, bad)
        return (f"row {row + 1}", "") if found is None else (f"line {found[0]}", found[1])

    def numbers(self, column: int, role: str = "") -> np.ndarray | None:
        """A column as floats; `None` if it is text, unless it has a role."""
        if column in self._numbers:
            return self._numbers[column]
        raw, name = self.raw(column), self.names[column]
        if raw.dtype.kind in "mM":
            if role:
                raise DataError(f"{self.file}: the column {name!r} holds dates; expected numbers.")
            return None
        values, bad = raw, np.isinf(raw) if raw.dtype.kind == "f" else None
        if bad is None:
            found = self._parsed(raw, name, bool(role))
            if found is None:
                return None
            values, bad = found
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            got = str(raw[row])
            low = got.lower()  # `inf` is all that is known of `-Infinity`
            place, text = self.where(
                column, row, lambda text: text == got or (low == "inf" and low in text.lower())
            )
            raise DataError(
                f"{self.file}, column {name!r}, {place}: got {text or got!r}; expected a number, "
                "or nothing or NA where there is none. Correct it, name it as a missing value "
                "with na=, or leave the column out."
            )
        values = np.where(np.isin(values, self.na_numbers), np.nan, values)
        for number, count in sentinels(values).items():
            told = "read as missing (na=() keeps it)." if self.find_sentinels else "kept."
            self.warnings.append(
                f"{name}: {number:g} occurs {times_text(count)}, far from all other values; {told}"
            )
            if self.find_sentinels:
                values[values == number] = np.nan
        if self.find_sentinels and (outlier := repeated_outlier(values)) is not None:
            number, count = outlier
            self.warnings.append(
                f"{name}: {number:g} occurs {times_text(count)}, far from all other values; kept. "
                f"If it stands for a missing value, state na='{number:g}'."
            )
        if role and np.isnan(values).all():
            raise DataError(f"{role}: {name!r} has no values; leave it out.")
        self._numbers[column] = values
        return values

    def parsed(self, texts: np.ndarray) -> Any:
        """What `numbers` finds in a column of text."""
        decimal = self.source.decimal
        sign = decimal_sign(texts[:1000], ";") if decimal is None else decimal
        return numbers(texts.tolist(), sign, self.na)

    def _parsed(
        self, raw: np.ndarray, name: str, must: bool
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Text as numbers, and where it is none; `None` if most of it is none."""
        try:
            values, bad, markers, units = self.parsed(raw)
        except DataError as error:
            raise DataError(f"{self.file}, column {name!r}: {error}") from None
        known = len(values) - int(np.isnan(values).sum())
        if not must and bad.sum() > 0.5 * known and not all(map(is_number, raw[bad][:9])):
            return None
        if len(units) > 1:
            first, second = list(units.values())[:2]
            raise DataError(
                f"{self.file}, column {name!r}: got {first!r} and {second!r}; expected numbers in "
                "one unit. Convert them to one."
            )
        for unit in filter(None, units):
            self.units.setdefault(name, unit)
            self.notes.append(f"{name}: {unit!r} beside the numbers is read as their unit.")
        if count := sum(markers.values()):
            entries = "1 entry" if count == 1 else f"{count:,} entries"
            shown = ", ".join(map(repr, list(markers)[:3])) + (", …" if len(markers) > 3 else "")
            self.notes.append(f"{name}: {entries} {shown} read as missing.")
        return values, bad

    def variables(self, used: set[int], time: str | None) -> list[int]:
        """Positions of the variables; records which columns were left out, and why."""
        if self.asked is not None:
            for i in self.asked:
                self.numbers(i, "columns")
            return self.asked
        found = []
        for i in self.free():
            if i in used:
                continue
            name, values = self.names[i], self.numbers(i)
            if i in (self.source.weak_index, self.source.index):
                self.notes.append(f"the index {name!r} of the data frame was left out.")
            elif values is None:
                self.warnings.append(f"the column {name!r} {self._kind(i)}.")
            elif row_number(name, values):
                self.notes.append(f"the column {name!r} counts rows and was left out.")
            elif np.isnan(values).all():
                self.warnings.append(f"the column {name!r} has no values and was left out.")
            else:
                found.append(i)
        if not found:
            beside = "beside the time" if time is None else f"beside the time {time!r}"
            raise DataError(
                f"{self.file} has no column of numbers {beside}; expected one for each "
                f"variable. Its columns: {', '.join(self.source.names[:30])}.{self._examples()}"
            )
        year = re.compile(r"(1[89]|2[01])\d\d" if time is None else r"(?!)")
        times = [n for n in (self.names[i] for i in found)
                 if is_date(n) or month_number(n) or year.fullmatch(n)]  # fmt: skip
        if len(times) > 2 and len(times) >= len(found) - 1:
            raise DataError(
                f"{self.file} has times as names of columns ({', '.join(times[:3])}, …); expected "
                "a row for each time. Reshape the table, as with pandas.melt, or name the columns "
                "with columns=."
            )
        return found

    def _kind(self, column: int) -> str:
        if self.raw(column).dtype.kind in "mM":
            return "holds dates and was left out"
        text = next((str(v) for v in self.raw(column) if v), "")
        return f"is text, such as {text[:30]!r}, and was left out (series= separates series by it)"

    def _examples(self) -> str:
        texts = [i for i in self.free() if self.raw(i).dtype.kind == "O"]
        found = [
            (self.names[i], next((str(v) for v in self.raw(i) if v and not is_number(v)), ""))
            for i in texts[:3]
        ]
        shown = ", ".join(f"{v[:30]!r} in {n!r}" for n, v in found if v)
        return f" Not numbers: {shown}." if shown else ""


def _listed(names: str | Sequence[str] | None) -> list[str]:
    return [names] if isinstance(names, str) else list(names or ())


def row_number(name: str, values: np.ndarray) -> bool:
    """Whether it is a column of row numbers, as many programs write them."""
    named = (
        r"column1|Unnamed: 0|index|id|no\.?|nr|#|row|rows?[ _-]?id|record|RN|obs(ervation)?|sample"
        r"|frame"
    )
    return (
        len(values) > 2
        and re.fullmatch(named, name, re.IGNORECASE) is not None
        and bool((np.diff(values) == 1).all())
        and values[0] in (0, 1)
    )
