"""The time column of a table: numbers, or dates turned into numbers with a unit."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from smnn.data._formats import Source
from smnn.data._rows import rows_of
from smnn.data._text import MISSING, TableError

# In the order in which they are looked for.
TIME_NAMES = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"t|time|times",
        r"date[ _-]?time|time[ _-]?stamp|date|timestamp[ _-]?utc|datetime[ _-]?utc",
        r"(t|time)[ _-]?(s|sec|secs|seconds?|ms|min|minutes?|h|hrs?|hours?|d|days?|y|yrs?|years?)",
        r"(sec|second|minute|hour|day|week|month|year)s?",
        r"zeit|datum|temps|tiempo|fecha|tempo|data e ora|tid|tijd|czas",
    )
]
_UNITS = (("years", 365.25 * 86400.0), ("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0))


class Axis(NamedTuple):
    """Time of every row."""

    t: np.ndarray
    """`(rows,)`, NaN where there is none."""
    name: str | None
    unit: str | None


def read_axis(file: str, name: str, raw: Any, source: Source) -> Axis:
    """A column as time.

    Raises:
        TableError: It is neither numbers nor dates in ISO form.
    """
    import pandas as pd

    if pd.api.types.is_numeric_dtype(raw) and not pd.api.types.is_bool_dtype(raw):
        t = raw.to_numpy(np.float64, na_value=np.nan)
        if np.isinf(t).any():
            raise TableError(
                f"{file}, column {name!r}: got an infinite time; expected numbers or dates."
            )
        if np.isnan(t).all():
            raise _no_times(file, name)
        return Axis(t, name, None)
    absent = (raw.isna() | raw.astype("str").str.strip().isin(MISSING)).to_numpy()
    dates = parse_dates(raw.mask(absent))
    if (bad := dates.isna().to_numpy() & ~absent).any():
        text = raw.astype("str")
        if source.decimal == ",":
            text = text.str.replace(",", ".", regex=False)
        t = pd.to_numeric(text.mask(absent), errors="coerce").to_numpy(np.float64)
        if not (np.isnan(t) & ~absent).any():
            return Axis(t, name, None)
        if (~np.isnan(t)).sum() > dates.notna().sum():
            bad = np.isnan(t) & ~absent  # numbers, mostly
        first = raw.iloc[int(np.flatnonzero(bad)[0])]
        raise TableError(
            f"{file}, column {name!r}: got {str(first)!r} in row {int(np.flatnonzero(bad)[0]) + 1} "
            "as a time; expected a number, or a date such as 2024-01-31 or 2024-01-31T12:00:00. "
            "Put date and clock time into one column of that form, or name another one as time."
        )
    if dates.notna().sum() == 0:
        raise _no_times(file, name)
    seconds = (dates - dates.min()).dt.total_seconds().to_numpy(np.float64)
    steps = np.diff(np.unique(seconds[np.isfinite(seconds)]))
    step = float(np.median(steps)) if len(steps) else 1.0
    # A year of 365 days is shorter than the mean one.
    unit, length = next(((n, s) for n, s in _UNITS if step >= 0.99 * s), ("seconds", 1.0))
    start = dates.min().isoformat().replace("+00:00", "Z").replace("T00:00:00", "")
    return Axis(seconds / length, name, f"{unit} since {start}")


def _no_times(file: str, name: str) -> TableError:
    return TableError(f"{file}, column {name!r}: got no times; expected numbers or dates.")


def parse_dates(raw: Any) -> Any:
    """A column as dates in ISO form, NaT where it is none."""
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(raw):
        return pd.to_datetime(raw, utc=True).dt.tz_localize(None)
    text = raw.astype("str").str.strip()
    text = text.where(text.str.match(r"\d{4}-\d\d"))  # a bare number is no date
    found = pd.to_datetime(text, format="ISO8601", errors="coerce", utc=True)
    return found.dt.tz_localize(None)


def looks_like_time(raw: Any, labels: np.ndarray) -> bool:
    """Whether a column grows evenly within every series, or holds dates."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(raw) and not pd.api.types.is_bool_dtype(raw):
        values = raw.to_numpy(np.float64, na_value=np.nan)
        if len(values) < 3 or not np.isfinite(values).all():
            return False
        return all(_even(values[rows]) for _, rows in rows_of(labels))
    dates = parse_dates(raw)
    return bool(len(dates) > 2 and dates.notna().mean() > 0.9)


def _even(values: np.ndarray) -> bool:
    steps = np.diff(values)
    return len(steps) > 1 and steps.min() > 0 and np.ptp(steps) < 1e-3 * float(np.median(steps))
