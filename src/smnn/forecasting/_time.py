"""Time axes, in the unit of the user and in typical steps.

Damping and drift depend on elapsed time in typical steps (all months have the same length). Seasons
follow the calendar: the first of March has the same phase in every year, leap year or not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from smnn._util.optional import require
from smnn.data import read_times
from smnn.errors import DataError

MONTH_DAYS = (27.5, 31.5)
MIN_WEEKDAYS = 12
"""Number of daily dates without a weekend from which steps are taken to be working days."""
DAY = np.timedelta64(1, "D") / np.timedelta64(1, "ns")


class SeriesError(DataError):
    """Raised for data or arguments that cannot be used; the message says what to change."""


@dataclass(frozen=True)
class Clock:
    """Times of a series, past or future."""

    stamps: np.ndarray
    """`(n,)` times as given: `datetime64[ns]`, or floats."""
    steps: np.ndarray
    """`(n,)` time since the start of the history, in typical steps."""
    origin: Any
    """First time of the history."""
    months: int
    """Months in a typical step, or 0 if the step is a fixed duration."""
    length: float
    """Length of a typical step: in nanoseconds for dates, otherwise in the unit of the user."""
    weekdays: bool = False
    """Whether steps are working days, skipping weekends."""

    @property
    def dated(self) -> bool:
        """Whether the times are dates."""
        return bool(np.issubdtype(self.stamps.dtype, np.datetime64))

    @property
    def days(self) -> float:
        """Length of a typical step in days; NaN if the times are not dates."""
        return self.length / DAY if self.dated else float("nan")

    def __len__(self) -> int:
        return len(self.stamps)

    def __getitem__(self, part: slice) -> Clock:
        return replace(self, stamps=self.stamps[part], steps=self.steps[part])

    def after(self, horizon: int) -> Clock:
        """The next `horizon` times, at typical steps."""
        ahead = np.arange(1, horizon + 1)
        last = self.stamps[-1]
        if self.dated and self.months:
            stamps = _add_months(last, ahead * self.months)
        elif self.weekdays:
            day = last.astype("datetime64[D]")
            later = np.busday_offset(day, ahead, roll="backward")
            stamps = later.astype("datetime64[ns]") + (last - day.astype("datetime64[ns]"))
        elif self.dated:
            stamps = last + (ahead * self.length).astype("timedelta64[ns]")
        else:
            stamps = last + ahead * self.length
        return replace(self, stamps=stamps, steps=self.steps[-1] + ahead)

    def join(self, later: Clock) -> Clock:
        """Append later times."""
        stamps = np.concatenate([self.stamps, later.stamps])
        steps = np.concatenate([self.steps, later.steps])
        return replace(self, stamps=stamps, steps=steps)

    def unit(self) -> str:
        """Name of a typical step, such as `month` or `step of 0.5`."""
        if not self.dated:
            return "step" if self.length == 1 else f"step of {self.length:g}"
        if self.months:
            named = {1: "month", 3: "quarter", 6: "half-year", 12: "year"}
            return named.get(self.months, f"{self.months} months")
        if self.weekdays:
            return "working day"
        lengths = {1: "day", 7: "week", 1 / 24: "hour", 1 / 1440: "minute", 1 / 86400: "second"}
        for days, name in lengths.items():
            if abs(self.days / days - 1) < 1e-3:
                return name
        return f"step of {self.days:g} days"


def make_clock(t: Any, count: int) -> Clock:
    """Convert a time axis of `count` entries; `None` counts steps.

    Raises:
        SeriesError: If the length is wrong, or the times do not increase.
    """
    if t is None:
        steps = np.arange(count, dtype=float)
        return Clock(steps, steps, 0.0, 0, 1.0)
    stamps = _stamps(t)
    if stamps.ndim != 1 or len(stamps) != count:
        raise SeriesError(
            f"t: got shape {stamps.shape}; expected ({count},), one time per row of y."
        )
    dated = bool(np.issubdtype(stamps.dtype, np.datetime64))
    bad = np.isnat(stamps) if dated else ~np.isfinite(stamps)
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        raise SeriesError(f"t: entry {first} is not a time. Drop rows without a time.")
    gaps = np.diff(stamps)
    zero = np.timedelta64(0, "ns") if dated else 0.0
    if not (gaps > zero).all():
        first = int(np.flatnonzero(~(gaps > zero))[0])
        what = "repeats" if gaps[first] == zero else "goes back at"
        raise SeriesError(
            f"t: {what} entry {first + 1} ({stamps[first + 1]}); expected increasing times. "
            "Sort the rows, and average or drop those with the same time."
        )
    return _dated_clock(stamps) if dated else _number_clock(stamps)


def _stamps(t: Any) -> np.ndarray:
    """Convert dates to `datetime64[ns]` and everything else to floats."""
    if hasattr(t, "to_timestamp"):  # a pandas PeriodIndex
        t = t.to_timestamp()
    values = np.asarray(_without_zone(t))
    if np.issubdtype(values.dtype, np.datetime64):
        return values.astype("datetime64[ns]")
    if values.dtype == object and values.size and hasattr(values.flat[0], "timetuple"):
        first = values.flat[0]
        if hasattr(first, "calendar"):  # a cftime date, possibly of a model calendar
            return np.array([_model_year(x) for x in values.ravel()]).reshape(values.shape)
        return values.astype("datetime64[ns]")
    try:
        return values.astype(float)
    except (TypeError, ValueError):
        pass
    try:
        times = read_times(values.ravel())
    except DataError as error:
        raise SeriesError(f"t: {error}") from None
    return times if times.dtype.kind == "f" else times.astype("datetime64[ns]")


def _without_zone(t: Any) -> Any:
    """Times with a zone as its clocks show them, or in UTC if clocks are set back among them."""
    first = next(iter(t), None) if hasattr(t, "__len__") else None
    if getattr(first, "tzinfo", None) is None:
        return t
    index = require("pandas", "convert time zones").DatetimeIndex(t)
    local = index.tz_localize(None)
    return local if local.is_monotonic_increasing and local.is_unique else index.tz_convert(None)


def _model_year(date: Any) -> float:
    """Convert a date of any calendar to a fractional year."""
    days = {"360_day": 360.0, "noleap": 365.0, "365_day": 365.0, "all_leap": 366.0}
    length = days.get(date.calendar, 365.25)
    part = (date.hour + date.minute / 60 + date.second / 3600) / 24
    return float(date.year + (date.dayofyr - 1 + part) / length)


def _number_clock(stamps: np.ndarray) -> Clock:
    length = float(np.median(np.diff(stamps))) if len(stamps) > 1 else 1.0
    return Clock(stamps, (stamps - stamps[0]) / length, stamps[0], 0, length)


def _dated_clock(stamps: np.ndarray) -> Clock:
    if len(stamps) == 1:
        return Clock(stamps, np.zeros(1), stamps[0], 0, DAY)
    gaps = np.diff(stamps).astype(float)
    length = float(np.median(gaps))
    months = np.diff(stamps.astype("datetime64[M]")).astype(int)
    within = (stamps - stamps.astype("datetime64[M]")).astype(float) / DAY
    typical = int(np.median(months))
    same_day = np.ptp(within) < 1 or (within > 26.9).all()  # the same day of the month, or the last
    if typical >= 1 and same_day and length / DAY / typical > MONTH_DAYS[0]:
        whole = (stamps.astype("datetime64[M]") - stamps[0].astype("datetime64[M]")).astype(int)
        return Clock(stamps, whole / typical, stamps[0], typical, length)
    days = stamps.astype("datetime64[D]")
    if len(stamps) >= MIN_WEEKDAYS and abs(length / DAY - 1) < 0.01 and np.is_busday(days).all():
        steps = np.busday_count(days[0], days).astype(float)
        if (np.diff(steps) > 0).all():
            return Clock(stamps, steps, stamps[0], 0, length, weekdays=True)
    return Clock(stamps, (stamps - stamps[0]).astype(float) / length, stamps[0], 0, length)


def _add_months(last: np.datetime64, months: np.ndarray) -> np.ndarray:
    """The same day in later months; the last day of a month stays the last."""
    month = last.astype("datetime64[M]")
    inside = last - month.astype("datetime64[ns]")
    first = month + months
    length = (first + 1).astype("datetime64[ns]") - first.astype("datetime64[ns]")
    own = (month + 1).astype("datetime64[ns]") - month.astype("datetime64[ns]")
    day = np.timedelta64(1, "D")
    inside = np.where(
        inside >= own - day, length - (own - inside), np.minimum(inside, length - day)
    )
    stamps: np.ndarray = first.astype("datetime64[ns]") + inside
    return stamps


def years(stamps: np.ndarray) -> np.ndarray:
    """Convert dates to fractional years, with the same phase in every year."""
    year = stamps.astype("datetime64[Y]")
    length = (year + 1).astype("datetime64[ns]") - year.astype("datetime64[ns]")
    part = (stamps - year.astype("datetime64[ns]")) / length
    out: np.ndarray = year.astype(int) + 1970 + part
    return out
