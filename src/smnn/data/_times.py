"""Time columns: numbers, elapsed times, and calendar dates in one format per column."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from smnn._util.optional import require
from smnn.data._values import is_missing, is_number
from smnn.errors import DataError

# In the order in which they are looked for.
TIME_NAMES = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"t|time|times|ds",
        r"date[ _-]?time|time[ _-]?stamp|date|(timestamp|datetime|time|date)[ _-]?utc",
        r"(t|time)[ _-]?(s|sec|secs|seconds?|ms|min|minutes?|h|hrs?|hours?|d|days?|y|yrs?|years?)",
        r"zeit|datum|temps|tiempo|fecha|tempo|data e ora|tid|tijd|czas|zeitpunkt|uhrzeit",
        r"(sec|second|minute|hour|day|week|month|quarter|year)s?|jahr|tag|monat|period",
    )
]
_NAMED_UNIT = re.compile(
    r"(?:(?:time|t)[ _-]?)?(ms|second|sec|s|minute|min|hour|hr|h|day|d|week|month|year|yr|y)s?",
    re.I,
)
_UNIT_WORDS = {
    "ms": "ms", "s": "s", "sec": "s", "second": "s", "min": "min", "minute": "min", "h": "h",
    "hr": "h", "hour": "h", "d": "days", "day": "days", "week": "weeks", "month": "months",
    "y": "years", "yr": "years", "year": "years",
}  # fmt: skip
_LENGTHS = (("years", 365.25 * 86400.0), ("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0))
_ABBREVIATIONS = "janfebmaraprmayjunjulaugsepoctnovdec"
_MONTHS = {_ABBREVIATIONS[3 * i : 3 * i + 3]: i + 1 for i in range(12)}
_MONTHS |= {"jän": 1, "mär": 3, "mai": 5, "okt": 10, "dez": 12}
_CLOCK = r"(?:(?:[ T,]|[ ]?-[ ])\s*(?P<H>\d{1,2}):(?P<M>\d\d)(?::(?P<S>\d\d(?:[.,]\d+)?))?"
_CLOCK += r"\s*(?P<ampm>[AaPp]\.?[Mm]\.?)?)?(?:\s*(?P<zone>Z|UTC|GMT|[+-]\d\d(?::?\d\d)?))?"
_FORMATS = [
    re.compile(pattern)
    for pattern in (
        r"(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})" + _CLOCK,
        r"(?P<y>\d{4})[-/](?P<m>\d{1,2})",
        r"(?P<a>\d{1,2})(?P<sep>[./-])(?P<b>\d{1,2})(?P=sep)(?P<y>\d{4}|\d\d)" + _CLOCK,
        r"(?P<y>\d{4})(?P<m>[01]\d)(?P<d>[0-3]\d)(?:T(?P<H>\d\d)(?P<M>\d\d)(?P<S>\d\d)(?P<zone>Z)?)?",
        r"(?P<y>\d{4})[ -]?[Qq](?P<q>[1-4])|[Qq](?P<q2>[1-4])[ /-]?(?P<y2>\d{4})",
        r"(?P<y>\d{4})-?[Ww](?P<w>\d\d?)(?:-(?P<wd>[1-7]))?",
        r"(?P<y>\d{4})[Mm](?P<m>\d\d)",
        r"(?:[A-Za-z]{2,9},?[ ])?(?P<d>\d{1,2})(?:\.|st|nd|rd|th)?[ -]?"
        r"(?P<mon>[^\W\d_]{3,9})\.?,?[ -](?P<y>\d{4}|\d\d)" + _CLOCK,
        r"(?P<mon>[^\W\d_]{3,9})\.?[ ](?P<d>\d{1,2})(?:st|nd|rd|th)?,?[ ](?P<y>\d{4})" + _CLOCK,
        r"(?P<mon>[^\W\d_]{3,9})\.?[ '-](?P<y>\d{4}|\d\d)",
        r"(?P<y>\d{4})[ -](?P<mon>[^\W\d_]{3,9})",
    )
]
_ELAPSED = re.compile(
    r"(?P<sign>-)?(?:(?P<days>\d+) days?,?(?: \+?|$))?"
    r"(?:(?P<H>\d+):(?P<M>[0-5]\d)(?::(?P<S>[0-5]\d(?:[.,]\d+)?)|(?P<f>[.,]\d+))?)?"
)
_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.]\d+)?)?)?")
DAY_US = 86_400_000_000


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


def name_unit(name: str) -> str | None:
    """Unit that the name of a time column states: `time_s`, `hours`."""
    match = _NAMED_UNIT.fullmatch(name)
    return _UNIT_WORDS.get(match[1].lower()) if match and name.lower() not in ("t", "s") else None


def is_date(text: str) -> bool:
    """Whether a field looks like a calendar date or an elapsed time, but not like a number."""
    text = text.strip()
    return (
        len(text) < 45 and any(c.isdigit() for c in text) and not text.isdigit()
        and (any(p.fullmatch(text) for p in _FORMATS) or bool(elapsed_match(text)))
        and _month(text)
    )  # fmt: skip


def _month(text: str) -> bool:
    words = re.findall(r"[^\W\d_]{3,9}", text)
    return not words or any(w[:3].lower() in _MONTHS or w in ("UTC", "GMT", "days") for w in words)


def elapsed_match(text: str) -> re.Match[str] | None:
    """A match of `HH:MM:SS` and its relatives, or `None`."""
    match = _ELAPSED.fullmatch(text)
    return match if match and (match["days"] or match["H"]) else None


def read_axis(
    raw: np.ndarray, name: str, zone: str | None, parse: Callable[[np.ndarray], Any],
    where: Callable[[str, int], str], dayfirst: bool | None, date_format: str | None,
) -> Axis:  # fmt: skip
    """A column as time.

    Args:
        raw: Floats, dates, durations or text.
        name: Its name.
        zone: Time zone of dates.
        parse: Numbers in text: values and where they are none.
        where: Describes the place of an entry in messages.
        dayfirst: Reading of dates such as 01/02/2024.
        date_format: Format of `datetime.strptime`.

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
        if np.isnan(raw).all():
            raise _no_times(name)
        if date_format is None:
            packed = _packed(raw, name)
            return Axis(raw, name, name_unit(name)) if packed is None else packed
        raw = np.array(["" if np.isnan(v) else f"{v:.12g}" for v in raw], object)
    texts = np.array([str(v).strip() for v in raw], object)
    absent = np.array([is_missing(v) for v in texts], dtype=bool)
    if absent.all():
        raise _no_times(name)
    known = texts[~absent]
    if date_format is not None:
        return _dated(_spread(_formatted(known, date_format, name), absent), name, None)
    values, bad = (texts, ~absent) if _ISO.fullmatch(known[0]) else parse(texts)
    if not bad.any():
        packed = _packed(values, name)
        return Axis(values, name, name_unit(name)) if packed is None else packed
    found, zone, notes = _dates(known, name, dayfirst)
    if found is not None:
        return _dated(_spread(found, absent), name, zone, notes)
    matches = [elapsed_match(v) for v in known]
    if all(matches):
        t, notes = _elapsed([m for m in matches if m])
        return Axis(_spread(t, absent), name, seconds=True, notes=notes)
    good = [is_date(v) or is_number(v) for v in texts]
    numeric = sum(is_number(v) for v in known) >= 0.5 * len(known)
    wrong = [i for i, v in enumerate(texts) if not absent[i] and (
        not is_number(v) if numeric else not _same_format(v, known))]  # fmt: skip
    row = wrong[0] if wrong else good.index(False) if False in good else 0
    raise DataError(
        f"the time column {name!r} has {texts[row]!r} in {where(texts[row], row)}; expected a "
        "number, or a date such as 2024-01-31 or 2024-01-31T12:00:00, in one format for the whole "
        "column. State another format with date_format=, or name another column with time=."
    )


def _no_times(name: str) -> DataError:
    return DataError(f"the time column {name!r} got no times; expected numbers or dates.")


def _spread(found: np.ndarray, absent: np.ndarray) -> np.ndarray:
    out = np.full(len(absent), np.nan if found.dtype.kind == "f" else np.datetime64("NaT"),
                  found.dtype)  # fmt: skip
    out[~absent] = found
    return out


def _dated(dates: np.ndarray, name: str, zone: str | None, notes: tuple[str, ...] = ()) -> Axis:
    known = ~np.isnat(dates)
    if not known.any():
        raise _no_times(name)
    since = (dates - dates[known].min()).astype(np.float64) / 1e6
    return Axis(np.where(known, since, np.nan), name, None, dates, zone, True, notes)


def _formatted(known: np.ndarray, date_format: str, name: str) -> np.ndarray:
    pd = require("pandas", "read dates")
    try:
        found = pd.to_datetime(pd.Series(known), format=date_format, errors="coerce", utc=True)
    except (ValueError, TypeError) as error:
        raise DataError(f"date_format: got {date_format!r}; {error}.") from None
    if (bad := found.isna().to_numpy()).any():
        raise DataError(
            f"the time column {name!r} has {known[bad][0]!r}; expected the format {date_format!r}."
        )
    return np.asarray(found.dt.tz_localize(None).to_numpy().astype("M8[us]"))


def _packed(values: np.ndarray, name: str) -> Axis | None:
    """Whole numbers such as 20240131, or 202401, that are dates; or a Unix time."""
    known = values[np.isfinite(values)]
    if re.search("unix|epoch|time_?stamp", name, re.IGNORECASE) and len(known):
        for unit, scale in (("seconds", 1e6), ("milliseconds", 1e3)):
            if ((known * scale > 1e14) & (known * scale < 1e16)).all():  # 1973 to 2286
                stamps = np.where(np.isnan(values), np.iinfo(np.int64).min, values * scale)
                note = f"the numbers in {name!r} are read as {unit} since 1970."
                return _dated(stamps.astype(np.int64).astype("M8[us]"), name, "UTC", (note,))
    if not len(known) or (known != np.floor(known)).any():
        return None
    days = bool(((known > 1.7e7) & (known < 2.2e7)).all())
    if not days and not ((known > 1.7e5) & (known < 2.2e5)).all():
        return None
    whole = known.astype(np.int64) * (1 if days else 100) + (0 if days else 1)
    found = _calendar(whole // 10000, whole // 100 % 100, whole % 100)
    if np.isnat(found).any():
        return None
    dates = np.full(len(values), np.datetime64("NaT"), "M8[us]")
    dates[np.isfinite(values)] = found
    form = "YYYYMMDD" if days else "YYYYMM"
    return _dated(dates, name, None, (f"the numbers in {name!r} are read as dates {form}.",))


def _calendar(year: Any, month: Any, day: Any) -> np.ndarray:
    """Dates, NaT where there is no such day."""
    year, month, day = (np.asarray(x, np.int64) for x in np.broadcast_arrays(year, month, day))
    first = ((year - 1970) * 12 + month - 1).astype("M8[M]")
    dates = first.astype("M8[D]") + (day - 1).astype("m8[D]")
    good = (month >= 1) & (month <= 12) & (day >= 1) & (dates.astype("M8[M]") == first)
    return np.asarray(np.where(good, dates, np.datetime64("NaT"))).astype("M8[us]")


def _same_format(text: str, known: np.ndarray) -> bool:
    best = max(_FORMATS, key=lambda p: sum(bool(p.fullmatch(v)) for v in known[:1000]))
    return bool(best.fullmatch(text))


def _dates(
    known: np.ndarray, name: str, dayfirst: bool | None
) -> tuple[np.ndarray | None, str | None, tuple[str, ...]]:
    """Text as dates in one format, with the time zone; `None` if they are none."""
    if len(known) > 1000 and all(map(_ISO.fullmatch, known)):
        try:
            return np.array(known, "U").astype("M8[us]"), None, ()
        except ValueError:
            pass
    for pattern in _FORMATS:
        if pattern.fullmatch(known[0]) is None:
            continue
        matches = [pattern.fullmatch(v) for v in known]
        if not all(matches):
            continue
        groups = list(pattern.groupindex)
        parts = dict(zip(groups, zip(*(m.group(*groups) for m in matches if m))))
        if "mon" in parts and any(m[:3].lower() not in _MONTHS for m in parts["mon"]):
            continue
        day, notes = _day(parts, known, name, dayfirst)
        if (bad := np.isnat(day)).any():
            raise DataError(
                f"the time column {name!r} has {known[bad][0]!r}, which is no date of the "
                "calendar; expected one format for the whole column. State it with date_format= "
                "or dayfirst=."
            )
        clock, zone, more = _clock(parts)
        return day + clock, zone, (*notes, *more)
    return None, None, ()


def _whole(texts: tuple[str, ...]) -> np.ndarray:
    return np.array([int(v) for v in texts], np.int64)


def _day(
    parts: Mapping[str, Any], known: np.ndarray, name: str, dayfirst: bool | None
) -> tuple[np.ndarray, list[str]]:
    notes = []
    year = _whole(tuple(y or z for y, z in zip(parts["y"], parts.get("y2", parts["y"]))))
    if (short := year < 100).any():
        year = np.where(short, year + np.where(year < 69, 2000, 1900), year)
        notes.append(f"years of two digits in {name!r} are read as {year.min()} to {year.max()}.")
    if "q" in parts:
        quarter = _whole(tuple(a or b for a, b in zip(parts["q"], parts["q2"])))
        return _calendar(year, 3 * quarter - 2, 1), notes
    if "w" in parts:
        weekday = np.array([int(v or 1) for v in parts["wd"]])
        return iso_week(year, _whole(parts["w"]), weekday), notes
    if "a" in parts:
        a, b = _whole(parts["a"]), _whole(parts["b"])
        first = _day_first(a, b, known, parts["sep"], name, dayfirst)
        return _calendar(year, b if first else a, a if first else b), notes
    month = (
        np.array([_MONTHS[m[:3].lower()] for m in parts["mon"]])
        if "mon" in parts else _whole(parts["m"])
    )  # fmt: skip
    return _calendar(year, month, _whole(parts["d"]) if "d" in parts else 1), notes


def iso_week(year: np.ndarray, week: np.ndarray, weekday: Any = 1) -> np.ndarray:
    """First day of ISO weeks, or another of their days; NaT where there is no such week."""
    fourth = _calendar(year, 1, 4).astype("M8[D]")
    monday = fourth - ((fourth.astype(np.int64) + 3) % 7).astype("m8[D]")
    days = monday + (7 * (week - 1) + weekday - 1).astype("m8[D]")
    good = (week >= 1) & (week <= 53)
    return np.asarray(np.where(good, days, np.datetime64("NaT"))).astype("M8[us]")


def _day_first(
    a: np.ndarray, b: np.ndarray, known: np.ndarray, sep: tuple[str, ...], name: str,
    dayfirst: bool | None,
) -> bool:  # fmt: skip
    """Whether 01/02/2024 is the first of February, from the rest of the column."""
    if (a > 12).any() and (b > 12).any():
        raise DataError(
            f"the time column {name!r} has {known[a > 12][0]!r} and {known[b > 12][0]!r}, one with "
            "the day first and one with the month first; expected one format. Correct the rows."
        )
    certain = True if (a > 12).any() else False if (b > 12).any() else None
    if certain is None and (a == b).all():
        certain = bool(dayfirst)
    if dayfirst is not None:
        if certain is not None and certain != dayfirst and not (a == b).all():
            row = known[(a > 12) | (b > 12)][0]
            raise DataError(
                f"dayfirst: got {dayfirst}, but the time column {name!r} has {row!r}; leave "
                "dayfirst out, or correct the rows."
            )
        return dayfirst
    if certain is None and set(sep) == {"."}:
        return True
    if certain is None:
        row = int(np.flatnonzero(a != b)[0])
        year = known[row].split(sep[row])[2][:4].split(" ")[0]
        year = year if len(year) == 4 else f"20{year[:2]}"
        raise DataError(
            f"the time column {name!r} has {known[row]!r}, which may be "
            f"{year}-{b[row]:02d}-{a[row]:02d} (dayfirst=True) or "
            f"{year}-{a[row]:02d}-{b[row]:02d} (dayfirst=False), and no row decides. State which: "
            "dayfirst=True or dayfirst=False."
        )
    return certain


def _clock(parts: Mapping[str, Any]) -> tuple[np.ndarray, str | None, tuple[str, ...]]:
    """Time of day in UTC, `(n,)` microseconds, and the time zone."""
    n = len(parts["y"])
    us = np.zeros(n)
    if any(parts.get("H", ())):
        half = {"a": 0, "p": 12}
        for i, (h, m, s) in enumerate(zip(parts["H"], parts["M"], parts["S"])):
            hour = int(h or 0)
            if "ampm" in parts and parts["ampm"][i]:
                hour = hour % 12 + half[parts["ampm"][i][0].lower()]
            seconds = float((s or "0").replace(",", "."))
            us[i] = round(1e6 * (3600 * hour + 60 * int(m or 0) + seconds))
    zones = parts.get("zone", ())
    if not any(zones):
        return us.astype("m8[us]"), None, ()
    if not all(zones):
        raise DataError(
            f"{sum(map(bool, zones))} of {n} times state a time zone; expected all or none."
        )
    offsets = [_offset(z) for z in zones]
    usual = sorted(set(offsets))
    named = [_zone_name(x) for x in usual]
    note = (f"times have the offsets {', '.join(named[:4])}; they are shown in UTC.",)
    return (
        (us - 6e7 * np.array(offsets)).astype("m8[us]"), named[0] if len(usual) == 1 else "UTC",
        note if len(usual) > 1 else (),
    )  # fmt: skip


def _offset(zone: str) -> int:
    """Minutes east of Greenwich."""
    if zone[0] not in "+-":
        return 0
    digits = zone[1:].replace(":", "")
    return (-1 if zone[0] == "-" else 1) * (60 * int(digits[:2]) + int(digits[2:] or 0))


def _zone_name(minutes: int) -> str:
    hours, rest = divmod(abs(minutes), 60)
    return f"UTC{'-' if minutes < 0 else '+'}{hours:02d}:{rest:02d}" if minutes else "UTC"


def _elapsed(matches: list[re.Match[str]]) -> tuple[np.ndarray, tuple[str, ...]]:
    """`HH:MM:SS`, `HH:MM` or `MM:SS.s` as seconds."""
    short = any(m["f"] for m in matches)
    t = np.zeros(len(matches))
    for i, m in enumerate(matches):
        seconds = float((m["S"] or m["f"] or "0").replace(",", "."))
        high, low = int(m["H"] or 0), int(m["M"] or 0)
        value = 60 * high + low + seconds if short else 3600 * high + 60 * low + seconds
        t[i] = (86400 * int(m["days"] or 0) + value) * (-1 if m["sign"] else 1)
    form = "MM:SS" if short else "HH:MM:SS" if any(m["S"] for m in matches) else "HH:MM"
    notes = [f"times {form} are read as elapsed time."]
    drops = np.diff(t) < -43200.0
    if not short and drops.any() and t.max() < 86400.0:
        wrapped = t + 86400.0 * np.concatenate([[0], np.cumsum(drops)])
        if (np.diff(wrapped) >= 0).all():
            t = wrapped
            notes.append("clock times that pass midnight are continued on the next day.")
    return t, tuple(notes)


def with_unit(axis: Axis, step: float) -> Axis:
    """Seconds in the unit that fits their step."""
    if not axis.seconds:
        return axis
    # A year of 365 days is shorter than the mean year.
    unit, length = next(((n, s) for n, s in _LENGTHS if step >= 0.99 * s), ("seconds", 1.0))
    return axis._replace(t=axis.t / length, unit=unit, seconds=False)


CALENDAR = {
    "year": r"years?|jahr|yr", "quarter": r"quarters?|qtr|quartal", "month": r"months?|monat|mon",
    "week": r"(iso[ _-]?)?weeks?", "day": r"days?|tag|day[ _-]?of[ _-]?month",
    "doy": r"doy|day[ _-]?of[ _-]?year|yday", "hour": r"hours?|hr|stunde",
    "minute": r"minutes?|min", "second": r"seconds?|sec",
}  # fmt: skip
CALENDAR_NAMES = {k: re.compile(v, re.IGNORECASE) for k, v in CALENDAR.items()}


def compose(parts: Mapping[str, np.ndarray]) -> np.ndarray:
    """Dates `(n,)` from columns of years and months, quarters, weeks or days of the year.

    NaT where a part is missing, or where there is no such date.
    """
    absent = np.any([np.isnan(x) for x in parts.values()], axis=0)
    whole = {k: np.where(absent, 1, x).astype(np.int64) for k, x in parts.items()}
    year = whole["year"]
    if "month" in whole:
        days = _calendar(year, whole["month"], whole.get("day", 1))
    elif "quarter" in whole:
        days = _calendar(year, 3 * whole["quarter"] - 2, 1)
    elif "week" in whole:
        days = iso_week(year, whole["week"], whole.get("day", 1))
    else:
        days = _calendar(year, 1, 1) + ((whole["doy"] - 1) * DAY_US).astype("m8[us]")
    for key, length in (("hour", 3600), ("minute", 60), ("second", 1)):
        if key in parts:
            days = days + np.where(absent, 0, parts[key] * length * 1e6).astype("m8[us]")
    return np.where(absent, np.datetime64("NaT"), days)


def month_number(text: str) -> float:
    """Number of a month from its name; NaN if it is none."""
    return float(_MONTHS.get(text.strip()[:3].lower(), np.nan))
