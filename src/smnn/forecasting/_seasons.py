"""Seasons from the calendar, from the user, or detected in the data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from smnn.forecasting._model.periods import group_by_periods
from smnn.forecasting._model.seasons import YEAR, Season
from smnn.forecasting._time import Clock, SeriesError

NAMED = {"day": 1.0, "week": 7.0}
"""Lengths in days; a year follows the calendar."""
MAX_HARMONICS = 6
MAX_TOTAL_HARMONICS = 8
"""Default limit on the harmonics of all seasons together."""

SeasonChoice = str | float | None | Sequence[str | float]


def choose_seasons(
    choice: SeasonChoice, clock: Clock, values: np.ndarray, harmonics: int | None
) -> list[tuple[np.ndarray, list[Season]]]:
    """Resolve the `season` argument of `Forecaster`.

    Args:
        choice: `"auto"`, `None`, `"year"`, `"week"`, `"day"`, a length in the user's unit of time,
            or several of these.
        clock: Times of the history.
        values: `(S, n)` series, searched for periods if the times are not dates.
        harmonics: Harmonics per season; chosen from its length if `None`.

    Returns:
        Indices of series with the same seasons, and these seasons.
    """
    every = np.arange(len(values))
    if not (isinstance(choice, str) and choice == "auto"):
        if choice is None:
            return [(every, [])]
        several = [choice] if isinstance(choice, str | int | float) else list(choice)
        return [(every, _make(several, clock, harmonics, strict=True))]
    if clock.dated:
        return [(every, _make(_by_calendar(clock), clock, harmonics, strict=False))]
    if len(clock) < 2 or not np.allclose(np.diff(clock.steps), 1.0, rtol=1e-3):
        return [(every, [])]
    return [
        (rows, _make([p * clock.length for p in periods], clock, harmonics, strict=False))
        for rows, periods in group_by_periods(values)
    ]


def _by_calendar(clock: Clock) -> list[str | float]:
    """Calendar cycles with at least two samples per cycle and two cycles in the history."""
    span = float((clock.stamps[-1] - clock.stamps[0]) / np.timedelta64(1, "D"))
    found: list[str | float] = []
    for name, days in (*NAMED.items(), ("year", YEAR)):
        two_cycles = span + clock.days >= 2 * days - 0.5 * clock.days
        finest = {"day": 0.5, "week": 1.5, "year": 100.0}[name]
        if clock.days < finest and two_cycles:
            found.append(name)
    return found


def _make(
    wanted: Sequence[str | float], clock: Clock, harmonics: int | None, *, strict: bool
) -> list[Season]:
    made = []
    for item in wanted:
        name, period, length = _measure(item, clock)
        if length < 2:
            raise SeriesError(
                f"season: got {item!r}, {length:.3g} steps long; expected at least 2 steps. "
                "A shorter cycle is not resolved by this sampling."
            )
        if strict and float(clock.steps[-1]) + 1 < length:
            raise SeriesError(
                f"season: got {item!r}, {length:.4g} steps long; expected no more than the "
                f"{float(clock.steps[-1]) + 1:.4g} steps of the history. Use season=None."
            )
        most = int(length / 2 + 1e-9)
        count = min(MAX_HARMONICS, most) if harmonics is None else min(harmonics, most)
        if harmonics is None and float(clock.steps[-1]) + 1 < 2 * length:
            count = min(count, 2)  # less than two cycles do not determine the details
        made.append(Season(name, length, count, period))
    if harmonics is None and sum(s.harmonics for s in made) > MAX_TOTAL_HARMONICS:
        share = MAX_TOTAL_HARMONICS // len(made)
        made = [Season(s.name, s.length, min(s.harmonics, share), s.period) for s in made]
    return made


def _measure(item: str | float, clock: Clock) -> tuple[str, float, float]:
    """Return (name, period in the unit of `t`, length in typical steps)."""
    if isinstance(item, str):
        if item not in (*NAMED, "year"):
            raise SeriesError(
                f"season: got {item!r}; expected 'auto', 'year', 'week', 'day' or a number."
            )
        if not clock.dated:
            raise SeriesError(
                f"season: got {item!r}, but the times are not dates. Give its length as a number, "
                "in the unit of t (12 for a year of monthly steps)."
            )
        if item == "year" and clock.months:
            return item, YEAR, 12.0 / clock.months
        period = YEAR if item == "year" else NAMED[item]
        return item, period, period * (5 / 7 if clock.weekdays else 1.0) / clock.days
    period = float(item)
    if not period > 0:
        raise SeriesError(f"season: got {item!r}; expected a positive length.")
    if clock.dated:
        # With dates, a number is a count of typical steps.
        days = period * clock.days
        whole_year = clock.months and abs(period * clock.months - 12) < 1e-9
        return ("year", YEAR, period) if whole_year else (f"{period:g} steps", days, period)
    return f"{period:g}", period, period / clock.length
