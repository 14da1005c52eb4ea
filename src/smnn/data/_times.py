"""Time columns: numbers, elapsed times, and calendar dates in one format per column."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from smnn._util.optional import require
from smnn.data._values import is_missing, is_number, sentinels, times_text
from smnn.errors import DataError

# In the order in which they are looked for.
TIME_NAMES = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?-i:t)|time|times|ds",
        r"date[ _-]?time|time[ _-]?stamp|date|(timestamp|datetime|time|date)[ _-]?utc",
        r"(t|time)[ _-]?(s|sec|secs|seconds?|ms|min|minutes?|h|hrs?|hours?|d|days?|y|yrs?|years?)",
        r"zeit|datum|temps|tiempo|fecha|tempo|data e ora|tid|tijd|czas|zeitpunkt|uhrzeit"
        r"|(?-i:T)",  # a time if nothing else is: more often a temperature
        r"(sec|second|minute|hour|day|week|month|quarter|year)s?|jahr|tag|monat|quartal|period|(?-i:KW)|woche"
        r"|(dec|decimal|frac|fractional)[ _.-]?(year|date|day)|(year|date)[ _.-]?(dec|decimal)"
        r"|m?jd|julian[ _-]?(day|date)|elapsed([ _-]?time)?",
    )
]
CALENDAR_NAMES = {
    key: re.compile(names, re.IGNORECASE)
    for key, names in {
        "year": r"years?|jahr|yr|yy|yyyy", "quarter": r"quarters?|qtr|quartal",
        "month": r"months?|monat|mon?|(?-i:MM)", "week": r"(iso[ _-]?)?weeks?|(?-i:KW)|woche",
        "day": r"days?|tag|day[ _-]?of[ _-]?month|dy|dd", "doy": r"doy|day[ _-]?of[ _-]?year|yday",
        "hour": r"hours?|hr|stunde|hh", "minute": r"minutes?|min|mn|(?-i:mm)",
        "second": r"seconds?|sec|ss",
    }.items()
}  # fmt: skip
_NAMED_UNIT = re.compile(
    r"(?:(?:time|t|decimal)[ _-]?)?"
    r"(ms|second|sec|s|minute|min|hour|hr|h|day|d|week|month|year|yr|y)s?",
    re.I,
)
_UNIT_WORDS = {
    "ms": "ms", "s": "s", "sec": "s", "second": "s", "min": "min", "minute": "min", "h": "h",
    "hr": "h", "hour": "h", "d": "days", "day": "days", "week": "weeks", "month": "months",
    "y": "years", "yr": "years", "year": "years",
}  # fmt: skip
_WEEK = re.compile("week|(?-i:KW)|woche|semaine|semana", re.IGNORECASE)
_LENGTHS = (("years", 365.25 * 86400.0), ("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0))
_MONTHS = {
    name: number + 1
    for number, names in enumerate(
        (
            "jan jän ene gen", "feb fév", "mar mär", "apr avr abr", "may mai mag", "jun juin giu",
            "jul juil lug", "aug aoû ago", "sep set", "oct okt ott", "nov", "dec dez dic déc",
        )
    )
    for name in names.split()
}  # fmt: skip
"""Beginnings of the names of months: English, German, French, Spanish and Italian."""
_CLOCK = (
    r"(?:(?:[ T,:]|[ ]?-[ ])\s*(?P<H>\d{1,2}):(?P<M>\d\d)(?::(?P<S>\d\d(?:[.,]\d+)?))?"
    r"\s*(?P<half>[AaPp]\.?[Mm]\.?)?(?: Uhr)?)?(?:\s*(?P<zone>Z|[+-]\d\d(?::?\d\d)?|[A-Z]{3,4}))?"
)
_FORMATS = [
    re.compile(pattern)
    for pattern in (
        r"(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})" + _CLOCK,
        r"(?P<y>\d{4})[-/](?P<m>\d{1,2})",
        r"(?P<a>\d{1,2})(?P<sep>[./-])(?P<b>\d{1,2})(?P=sep)(?P<y>\d{4}|\d\d)" + _CLOCK,
        r"(?P<y>\d{4})(?P<m>[01]\d)(?P<d>[0-3]\d)"
        r"(?:[T ](?P<H>\d\d):?(?P<M>\d\d)(?::?(?P<S>\d\d))?(?P<zone>Z)?)?",
        r"(?P<y>\d{4})[ -]?[Qq](?P<q>[1-4])",
        r"(?:[Qq](?P<q>[1-4])|(?P<q1>[1-4])\. ?Quartal)[ /-]?(?P<y>\d{4}|\d\d)",
        r"(?P<y>\d{4})-?[Ww](?P<w>\d\d?)(?:-?(?P<d>[1-7]))?",
        r"(?P<y>\d{4})[Mm](?P<m>\d\d)",
        r"(?:[A-Za-z]{2,9},?[ ])?(?P<d>\d{1,2})(?:\.|st|nd|rd|th|er)?[ /-]?"
        r"(?P<mon>[^\W\d_]{3,9})\.?,?[ /-]?(?P<y>\d{4}|\d\d)" + _CLOCK,
        r"(?P<m>\d{1,2})/(?P<y>\d{4})",
        r"(?:[A-Za-z]{3,9},?[ ])?(?P<mon>[^\W\d_]{3,9})\.?[ ](?P<d>\d{1,2})(?:st|nd|rd|th)?,?[ ]"
        r"(?P<y>\d{4})" + _CLOCK,
        r"(?P<mon>[^\W\d_]{3,9})\.?[ '-](?P<y>\d{4}|\d\d)",
        r"(?P<y>\d{4})[ -](?P<mon>[^\W\d_]{3,9})",
    )
]
_ELAPSED = [
    re.compile(
        r"(?P<sign>-)?(?=\d)(?:(?P<days>\d+) days?,?(?: \+?|$))?(?:(?P<H>\d+):(?P<M>[0-5]\d)"
        r"(?::(?P<S>[0-5]\d(?:[.,:]\d+)?))?(?:\s*(?P<half>[AaPp]\.?[Mm]\.?))?)?"
    ),
    re.compile(r"(?P<sign>-)?(?P<M>\d+):(?P<S>[0-5]\d[.,]\d+)"),
]
_STATED = {"%M:%S": re.compile(r"(?P<sign>-)?(?P<M>\d+):(?P<S>[0-5]\d(?:[.,]\d+)?)")}
_STATED |= dict.fromkeys(("%H:%M", "%H:%M:%S"), _ELAPSED[0])
"""Elapsed times in formats that are stated."""
_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.]\d+)?)?)?")
_FORMAT_HELP = (
    "expected a number, or a date such as 2024-01-31 or 2024-01-31T12:00:00, in one format for the "
    "whole column. State another format with date_format=, or name another column with time=."
)


class Axis(NamedTuple):
    """Time of every row, before a unit is chosen."""

    t: np.ndarray
    """`(rows,)` numbers, or seconds; NaN where there is no time."""
    name: str | None = None
    unit: str | None = None
    dates: np.ndarray | None = None
    """`(rows,)` `datetime64[us]`, UTC if there is a zone."""
    zone: str | None = None
    seconds: bool = False
    """Whether `t` is in seconds and a unit is to be chosen."""
    notes: tuple[str, ...] = ()


def is_date(text: str) -> bool:
    """Whether a field looks like a calendar date or an elapsed time, but not like a number."""
    text = text.strip()
    if len(text) > 45 or text.isdigit() or not any(c.isdigit() for c in text):
        return False
    found = next(filter(None, (p.fullmatch(text) for p in _FORMATS)), None)
    month = found.groupdict().get("mon") if found else None
    return bool((found and (month is None or month_number(month))) or elapsed_match(text))


def elapsed_match(text: str) -> re.Match[str] | None:
    """A match of `HH:MM:SS` and its relatives, or `None`."""
    found = next(filter(None, (p.fullmatch(text) for p in _ELAPSED)), None)
    return found if found and (found["M"] or found["days"]) else None


def month_number(text: str) -> int:
    """Number of a month from its name; 0 if it is none."""
    low = text.strip().lower()
    return _MONTHS.get(low[:4]) or _MONTHS.get(low[:3], 0)


def read_axis(
    raw: np.ndarray, name: str, zone: str | None, parse: Callable[[np.ndarray], Any],
    where: Callable[[str, int], str], dayfirst: bool | None, date_format: str | None,
) -> Axis:  # fmt: skip
    """A column of floats, dates, durations or text as time.

    `parse` reads text as numbers (values, and where they are none); `where` says in which place an
    entry is.

    Raises:
        DataError: It is neither numbers nor dates, or ambiguous.
    """
    if raw.dtype.kind == "M":
        return _dated(raw.astype("M8[us]"), name, zone)
    if raw.dtype.kind == "m":
        t = raw.astype("m8[ns]").astype(np.float64) / 1e9
        return Axis(np.where(np.isnat(raw), np.nan, t), name, seconds=True)
    if raw.dtype.kind == "f":
        if np.isinf(raw).any():
            raise DataError(f"the time column {name!r} has an infinite entry; expected numbers.")
        if date_format is None:
            return _numeric(raw, name)
        raw = np.array(["" if np.isnan(v) else f"{v:.15g}" for v in raw], object)
        width = max(map(len, raw))  # numbers have lost their leading zeros
        raw = np.array([v and v.zfill(width) if v.isdigit() else v for v in raw], object)
    texts = np.array([str(v).strip() for v in raw], object)
    absent = np.array([is_missing(v) for v in texts], dtype=bool)
    known = texts[~absent]
    if not len(known):
        raise _no_times(name)
    found: np.ndarray | None
    notes: Sequence[str] = ()
    if date_format is not None and date_format not in _STATED:
        found, zone = _formatted(known, date_format, name)
        if not re.search("%[aAbBcdGjmuUVwWxyY]", date_format):
            t = np.full(len(texts), np.nan)
            t[~absent] = (found - np.datetime64("1900-01-01", "us")).astype(np.float64) / 1e6
            return Axis(t, name, seconds=True)
    elif date_format is not None:
        found = None
    else:
        if not _ISO.fullmatch(known[0]):
            values, bad = parse(texts)
            if not bad.any():
                return _numeric(values, name)
        found, zone, notes = _dates(known, name, dayfirst)
    if found is not None:
        dates = np.full(len(texts), np.datetime64("NaT"), "M8[us]")
        dates[~absent] = found
        return _dated(dates, name, zone, tuple(notes))
    stated = _STATED.get(date_format or "")
    matches = [m for m in map(stated.fullmatch if stated else elapsed_match, known) if m]
    if len(matches) == len(known) and len({m.re for m in matches}) == 1:
        t = np.full(len(texts), np.nan)
        t[~absent], notes = _elapsed(matches, name, date_format is not None)
        return Axis(t, name, seconds=True, notes=tuple(notes))
    usual = max(_FORMATS, key=lambda p: sum(bool(p.fullmatch(v)) for v in known[:1000]))
    numeric = 2 * sum(map(is_number, known)) >= len(known)
    strange = [i for i in np.flatnonzero(~absent)
               if not (is_number(texts[i]) if numeric else usual.fullmatch(texts[i]))]  # fmt: skip
    row = int(strange[0]) if strange else 0
    place = where(texts[row], row)
    raise DataError(f"the time column {name!r} has {texts[row]!r} in {place}; {_FORMAT_HELP}")


def _no_times(name: str) -> DataError:
    return DataError(f"the time column {name!r} got no times; expected numbers or dates.")


def _dated(dates: np.ndarray, name: str, zone: str | None, notes: tuple[str, ...] = ()) -> Axis:
    known = ~np.isnat(dates)
    if not known.any():
        raise _no_times(name)
    since = (dates - dates[known].min()).astype(np.float64) / 1e6
    return Axis(np.where(known, since, np.nan), name, None, dates, zone, True, notes)


def _formatted(known: np.ndarray, date_format: str, name: str) -> tuple[np.ndarray, str | None]:
    pd = require("pandas", "read dates")
    try:
        found = pd.to_datetime(pd.Series(known), format=date_format, errors="coerce", utc=True)
    except (ValueError, TypeError) as error:
        raise DataError(f"date_format: got {date_format!r}; {error}.") from None
    if (bad := found.isna().to_numpy()).any():
        raise DataError(
            f"the time column {name!r} has {known[bad][0]!r}; expected the format {date_format!r}."
        )
    dates = np.asarray(found.dt.tz_localize(None).to_numpy().astype("M8[us]"))
    return dates, "UTC" if re.search("%[zZ]", date_format) else None


def _numeric(values: np.ndarray, name: str) -> Axis:
    """Numbers as time; some stand for dates: 20240131, 1706659200 (Unix) or 45322 (Excel)."""
    there = np.isfinite(values)
    known = values[there]
    if not len(known):
        raise _no_times(name)
    low, high = known.min(), known.max()
    dated = bool(re.search("date|datum|fecha", name, re.IGNORECASE))
    found, form = _coded_dates(known, name, dated)
    if form:
        dates = np.full(len(values), np.datetime64("NaT"), "M8[us]")
        dates[there] = found
        zone = "UTC" if form.endswith("since 1970") else None
        return _dated(dates, name, zone, (f"the numbers in {name!r} are read as {form}.",))
    months = np.round(known % 1 * 1e4)  # 1.2024 may be a month
    packed = (known == np.floor(known)).all() and 99_999 < high < 100_000_000
    days = np.round(known % 1 * 100, 6)  # 31.12 may be a day
    short = (low >= 1) & (high < 32) & (days.min() >= 1) & (days.max() <= 12)
    short = short and (days == np.round(days)).all()
    if dated and (packed or short or (high < 13 and months.min() > 1700 and months.max() < 2200)):
        expected = "a date with its year" if short else "a date"
        raise DataError(
            f"the time column {name!r} has {known[0]:.12g}, which is no date of the form YYYYMMDD "
            f"or YYYYMM; expected {expected}. State the format, such as date_format='%d%m%Y', or "
            "name another column with time=."
        )
    if (clock := _clock_numbers(values, name)) is not None:
        return clock
    worded = _NAMED_UNIT.fullmatch(name) if name.lower() not in ("t", "s") else None
    notes = []
    for number, count in sentinels(values).items():
        values = np.where(values == number, np.nan, values)
        notes.append(
            f"{name}: {number:g} occurs {times_text(count)}, far from all other times; left out."
        )
    stated = _UNIT_WORDS.get(worded[1].lower()) if worded else None
    turned = np.diff(known) < -50
    if stated == "years" and high < 100 and turned.any():
        raise DataError(
            f"the time column {name!r} has {known[0]:g} and {known[-1]:g}, years of two digits in "
            "two centuries; expected four digits. Add the century."
        )
    return Axis(values, name, stated, notes=tuple(notes))


def _coded_dates(known: np.ndarray, name: str, dated: bool) -> tuple[np.ndarray, str]:
    """Numbers that stand for dates, and how; nothing if they do not."""
    low, high = known.min(), known.max()
    digits = len(str(int(low)))
    if (known == np.floor(known)).all() and len(str(int(high))) == digits in (6, 8, 10, 12, 14):
        week = digits == 6 and _WEEK.search(name)
        keys = ("week" if week else "month", "day", "hour", "minute", "second")[: digits // 2 - 2]
        parts = {"year": known // 10 ** (digits - 4)}
        parts |= {k: known // 10 ** (digits - 6 - 2 * i) % 100 for i, k in enumerate(keys)}
        found = compose(parts)
        if not np.isnat(found).any() and 1700 <= parts["year"].min() <= parts["year"].max() < 2200:
            form = f"dates of the form {'YYYYMMDDhhmmss'[:digits]}"
            return found, "ISO weeks YYYYWW" if week else form
        if week:
            raise DataError(
                f"the time column {name!r} has {known[np.argmax(np.isnat(found))]:.12g}, which is "
                "no week of the form YYYYWW; expected an ISO week such as 202453. Name another "
                "column with time=."
            )
    for unit, ticks in ("seconds", 1), ("milliseconds", 1e3), ("microseconds", 1e6), \
            ("nanoseconds", 1e9):  # fmt: skip
        if low > 5e8 * ticks and high < 5e9 * ticks:  # 1985 to 2128
            found = np.round(known * (1e6 / ticks)).astype(np.int64).astype("M8[us]")
            return found, f"{unit} since 1970"
    if dated and low > 25569 and high < 60000:  # 1970 to 2064
        found = np.datetime64("1899-12-30", "us") + np.round(known * 8.64e10).astype("m8[us]")
        return found, "serial dates of a spreadsheet"
    return np.array([], "M8[us]"), ""


def _clock_numbers(values: np.ndarray, name: str) -> Axis | None:
    """Numbers that grow evenly only as clock times HHMM or HHMMSS, such as 945, 1000, 1015."""
    for form, scale in (("HHMM", 100), ("HHMMSS", 1)):
        whole, steps = values * scale, np.diff(values)
        hour, minute, second = whole // 10000, whole // 100 % 100, whole % 100
        good = (values == np.floor(values)) & (hour >= 0) & (hour < 24)
        good = good & (minute < 60) & (second < 60)
        even = np.diff(3600.0 * hour + 60.0 * minute + second) % 86400.0
        if len(values) > 3 and good.all() and np.ptp(steps) > 0 and np.ptp(even) == 0 < even[0]:
            first = 3600.0 * hour[0] + 60.0 * minute[0] + second[0]
            notes = (f"the numbers in {name!r} are read as clock times {form}.",)
            return Axis(first + even[0] * np.arange(len(values)), name, seconds=True, notes=notes)
    return None


def _dates(
    known: np.ndarray, name: str, dayfirst: bool | None
) -> tuple[np.ndarray | None, str | None, list[str]]:
    """Text as dates in one format, with the time zone; `None` if they are none."""
    if len(known) > 1000 and all(map(_ISO.fullmatch, known)):
        try:
            return np.array(known, "U").astype("M8[us]"), None, []
        except ValueError:
            pass
    for pattern in _FORMATS:
        if pattern.fullmatch(known[0]) is None:
            continue
        matches = [m for m in map(pattern.fullmatch, known) if m]
        parts = {k: [m[k] for m in matches] for k in pattern.groupindex}
        if len(matches) == len(known) and all(map(month_number, parts.get("mon", ()))):
            break
    else:
        return None, None, []
    notes = []
    year = np.array(parts["y"], np.int64)
    if (short := np.array([len(y) for y in parts["y"]]) == 2).any():
        full = np.where(short, year + np.where(year < 69, 2000, 1900), year)
        year = full if np.ptp(full) < 60 else np.where(short, year + 1900, year)
        _refuse_days_of_months(parts, known, name)
        notes.append(f"years of two digits in {name!r} are read as {year.min()} to {year.max()}.")
    if "q" in parts:
        parts["q"] = [a or b for a, b in zip(parts["q"], parts.get("q1", parts["q"]))]
    if "mon" in parts:
        parts["m"] = list(map(month_number, parts["mon"]))
    if "a" in parts:
        first = _day_first(parts, year, known, name, dayfirst)
        parts["m"], parts["d"] = parts["b" if first else "a"], parts["a" if first else "b"]
    keys = {"m": "month", "q": "quarter", "w": "week", "d": "day"}
    if {*parts} == {"y", "m"} and _WEEK.search(name):
        parts["w"] = parts.pop("m")
    elif {*parts} == {"y", "m"} and len({*known}) > 1:
        _refuse_pairs_of_years(year, parts["m"], known, name)
    dates = compose({"year": year} | {
        word: np.array([int(v or 1) for v in parts[k]]) for k, word in keys.items() if k in parts
    })  # fmt: skip
    if (bad := np.isnat(dates)).any():
        raise DataError(
            f"the time column {name!r} has {known[bad][0]!r}, which is no date of the calendar; "
            "expected one format for the whole column. State it with date_format= or dayfirst=."
        )
    offset, zone, more = _zones(parts.get("zone", [None]), name)
    clock = np.round(1e6 * _seconds(parts, len(known))).astype("m8[us]")
    return dates + clock - offset, zone, notes + more


def _refuse_pairs_of_years(year: np.ndarray, m: list[str], known: np.ndarray, name: str) -> None:
    """2009-10, 2010-11 and 2011-12 are fiscal years or seasons, not months."""
    if (np.array(m, np.int64) == (year + 1) % 100).all():
        raise DataError(
            f"the time column {name!r} has {known[0]!r} and {known[-1]!r}, which may be months or "
            "years that end in the next one; expected one meaning. State date_format='%Y-%m' for "
            "months, or write a single year."
        )


def _refuse_days_of_months(parts: Mapping[str, Any], known: np.ndarray, name: str) -> None:
    """Jan-01, Jan-02 and Jan-03 may be days of one January."""
    if {*parts} != {"mon", "y"} or len(known) < 3:
        return
    steps, same = np.diff(np.array(parts["y"], np.int64)), np.array(parts["mon"])
    if 2 * ((steps == 1) & (same[1:] == same[:-1])).sum() > len(steps):
        raise DataError(
            f"the time column {name!r} has {known[0]!r} and {known[1]!r}, which may be days of a "
            "month or months of several years; expected dates with all digits of the year. State "
            "date_format='%b-%y' for months, or add the years."
        )


def _day_first(
    parts: Mapping[str, Any], year: np.ndarray, known: np.ndarray, name: str, dayfirst: bool | None
) -> bool:
    """Whether 01/02/2024 is the first of February, from the rest of the column."""
    a, b, y = (np.array(parts[k], np.int64) for k in "aby")
    decided = {first: known[x > 12][0] for first, x in ((True, a), (False, b)) if (x > 12).any()}
    column = f"the time column {name!r} has"
    if len(decided) == 2:
        raise DataError(
            f"{column} {decided[True]!r} and {decided[False]!r}, one with the day first and one "
            "with the month first; expected one format. Correct the rows."
        )
    if dayfirst is not None and decided and dayfirst not in decided:
        raise DataError(
            f"dayfirst: got {dayfirst}, but {column} {decided[not dayfirst]!r}; leave dayfirst "
            "out, or correct the rows."
        )
    dates = {True: compose({"year": year, "month": b, "day": a}),
             False: compose({"year": year, "month": a, "day": b})}  # fmt: skip
    given = decided if dayfirst is None else {dayfirst: ""}
    if given or set(parts["sep"]) == {"."} or (a == b).all():
        first = next(iter(given), True)
        other = compose({"year": 2000 + a, "month": b, "day": y})
        if (y < 100).all() and _monotone(other) and not _monotone(dates[first]):
            raise DataError(
                f"{column} {known[0]!r}, which may be {str(other[0])[:10]} or "
                f"{str(dates[first][0])[:10]}; only with the first are the times in order. State "
                "the format, such as date_format='%y-%m-%d' or '%d-%m-%y'."
            )
        return first
    row = int(np.flatnonzero(a != b)[0])
    raise DataError(
        f"{column} {known[row]!r}, which may be {str(dates[True][row])[:10]} (dayfirst=True) or "
        f"{str(dates[False][row])[:10]} (dayfirst=False), and no row decides. State which: "
        "dayfirst=True or dayfirst=False."
    )


def _monotone(dates: np.ndarray) -> bool:
    steps = np.diff(dates.astype(np.int64))
    return not np.isnat(dates).any() and bool((steps >= 0).all() or (steps <= 0).all())


def _seconds(parts: Mapping[str, Any], count: int) -> np.ndarray:
    """Clock times, or elapsed times, in seconds."""

    def read(key: str) -> np.ndarray:
        texts = parts.get(key, ["0"] * count)
        return np.array([float(re.sub("[,:]", ".", v or "0")) for v in texts])

    hours = read("H")
    for i, half in enumerate(parts.get("half", ())):
        if half:
            hours[i] = hours[i] % 12 + (12 if half[0] in "Pp" else 0)
    return 86400 * read("days") + 3600 * hours + 60 * read("M") + read("S")


def _zones(zones: Sequence[str | None], name: str) -> tuple[Any, str | None, list[str]]:
    """Offsets from UTC, the common zone, and a note if there are several."""
    if not any(zones):
        return np.timedelta64(0, "us"), None, []
    if not all(zones):
        raise DataError(
            f"{sum(map(bool, zones))} of {len(zones)} times state a time zone; expected all or "
            "none."
        )
    found = {str(z): zone_offset(str(z)) for z in zones}
    if strange := [zone for zone, offset in found.items() if offset is None]:
        raise DataError(
            f"the time column {name!r} has the time zone {strange[0]!r}, which has no unique "
            "offset; expected Z, UTC or an offset such as +01:00. Replace it."
        )
    minutes = np.array([found[str(z)] for z in zones])
    named = [zone_name(m) for m in np.unique(minutes)]
    note = f"times have the offsets {', '.join(named[:4])}; they are shown in UTC."
    offsets = (minutes * 60_000_000).astype("m8[us]")
    return offsets, named[0] if len(named) == 1 else "UTC", [note] if len(named) > 1 else []


def zone_offset(zone: str) -> int | None:
    """Minutes east of Greenwich; `None` for a zone without a fixed offset."""
    found = re.fullmatch(r"(?:UTC|GMT|Z)?(?:([+-])(\d\d?):?(\d\d)?)?", zone)
    minutes = 60 * int(found[2] or 0) + int(found[3] or 0) if found else None
    return -minutes if minutes and found and found[1] == "-" else minutes


def zone_name(minutes: int) -> str:
    """`UTC`, `UTC+01:00`."""
    hours, rest = divmod(abs(int(minutes)), 60)
    return f"UTC{'-' if minutes < 0 else '+'}{hours:02d}:{rest:02d}" if minutes else "UTC"


def _elapsed(matches: list[re.Match[str]], name: str, stated: bool) -> tuple[np.ndarray, list[str]]:
    """`HH:MM:SS`, `HH:MM` or `MM:SS.s` as seconds."""
    parts = {k: [m[k] for m in matches] for k in matches[0].re.groupindex}
    t = _seconds(parts, len(matches)) * np.array([-1.0 if s else 1.0 for s in parts["sign"]])
    form = "MM:SS" if "H" not in parts else "HH:MM:SS" if any(parts["S"]) else "HH:MM"
    if form == "HH:MM" and t.max() > 86400.0 and not stated:
        raise DataError(
            f"the time column {name!r} has {matches[int(t.argmax())][0]!r}, which may be hours and "
            "minutes or minutes and seconds; expected HH:MM:SS. State which: date_format='%H:%M' "
            "or date_format='%M:%S'."
        )
    other = " (date_format='%M:%S' reads minutes and seconds)" if form == "HH:MM" else ""
    notes = [f"times {form} are read as elapsed time{'' if stated else other}."]
    if any(parts.get("half", ())):
        notes = ["clock times without a date are counted from midnight."]
    drops = np.diff(t) < -43200.0
    if "H" in parts and drops.any() and t.max() < 86400.0:
        wrapped = t + 86400.0 * np.concatenate([[0], np.cumsum(drops)])
        if (np.diff(wrapped) >= 0).all():
            t = wrapped
            notes.append("clock times that pass midnight are continued on the next day.")
    return t, notes


def with_unit(axis: Axis, step: float) -> Axis:
    """Seconds in the unit that fits their step."""
    if not axis.seconds:
        return axis
    # A year of 365 days is shorter than the mean year.
    unit, length = next(((n, s) for n, s in _LENGTHS if step >= 0.99 * s), ("seconds", 1.0))
    return axis._replace(t=axis.t / length, unit=unit, seconds=False)


def compose(parts: Mapping[str, Any]) -> np.ndarray:
    """Dates `(n,)` from years and months, quarters, ISO weeks or days of the year.

    NaT where a part is missing, or where there is no such date.
    """
    absent = np.any([np.isnan(x) for x in parts.values()], axis=0)
    whole = {k: np.where(absent, 1, x).astype(np.int64) for k, x in parts.items()}
    year, day = whole["year"], whole.get("day", np.ones(1, np.int64))
    month = 3 * whole["quarter"] - 2 if "quarter" in whole else whole.get("month", 1)
    first = ((year - 1970) * 12 + month - 1).astype("M8[M]").astype("M8[D]")
    date = first
    good = (month >= 1) & (month <= 12)
    if "week" in whole:
        fourth = first + np.timedelta64(3, "D")  # the fourth of January lies in the first week
        monday = fourth - ((fourth.astype(np.int64) + 3) % 7).astype("m8[D]")
        date = monday + (7 * (whole["week"] - 1) + day - 1).astype("m8[D]")
        thursday = monday + np.timedelta64(3, "D")
        last = (thursday + (7 * (whole["week"] - 1)).astype("m8[D]")).astype("M8[Y]")
        good = good & (whole["week"] >= 1) & (last == first.astype("M8[Y]"))
    elif "doy" in whole:
        date = first + (whole["doy"] - 1).astype("m8[D]")
        good = good & (date.astype("M8[Y]") == first.astype("M8[Y]"))
    elif "day" in whole:
        date = first + (day - 1).astype("m8[D]")
        good = good & (date.astype("M8[M]") == first.astype("M8[M]"))
    date = date.astype("M8[us]")
    for key, length, most in (("hour", 3600, 24), ("minute", 60, 59), ("second", 1, 60)):
        if key in parts:
            value = np.where(absent, 0, parts[key])
            date = date + np.round(value * length * 1e6).astype("m8[us]")
            good = good & (value >= 0) & (value <= most)
    return np.asarray(np.where(absent | ~good, np.datetime64("NaT"), date)).astype("M8[us]")


def calendar_part(dates: np.ndarray, key: str) -> np.ndarray | None:
    """Years, months and so on of dates, as floats; `None` for other parts."""
    year, month, day = (dates.astype(f"M8[{unit}]") for unit in "YMD")
    months = month.astype(np.int64)
    parts = {
        "year": year.astype(np.int64) + 1970, "quarter": months % 12 // 3 + 1,
        "month": months % 12 + 1, "day": (day - month.astype("M8[D]")).astype(np.int64) + 1,
        "doy": (day - year.astype("M8[D]")).astype(np.int64) + 1,
        "hour": (dates.astype("M8[h]") - day).astype(np.int64),
    }  # fmt: skip
    return None if key not in parts else parts[key].astype(np.float64)
