"""Seasons: cycles of known length, by the calendar or in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from smnn.forecasting._model.periods import find_period
from smnn.forecasting._time import DAY, Clock, SeriesError, years

NAMED = {"day": 1.0, "week": 7.0}
"""Lengths in days; a year goes by the calendar."""
YEAR = 365.2425
MONDAY = np.datetime64("2000-01-03", "ns")
MOST_HARMONICS = 6
MOST_PAIRS = 8
"""Harmonics over all seasons: what a first model needs; more are for the user to ask for."""

SeasonChoice = str | float | None | Sequence[str | float]


@dataclass(frozen=True)
class Season:
    """One cycle: an undamped oscillator and its harmonics."""

    name: str
    length: float
    """In typical steps of the series."""
    harmonics: int
    """How many multiples of the base frequency."""
    period: float = 1.0
    """In the user's unit of time; days for `"day"` and `"week"`."""

    def cycles(self, clock: Clock) -> np.ndarray:
        """`(n,)` time in cycles; its fractional part is the phase."""
        if self.name == "year" and clock.dated:
            return years(clock.stamps)
        if clock.dated:
            return (clock.stamps - MONDAY).astype(float) / DAY / self.period
        return (clock.stamps - clock.origin) / self.period

    def waves(self, clock: Clock) -> np.ndarray:
        """`(n, 2 * harmonics)` cosines and sines of unit mean square; one at the Nyquist rate."""
        angle = 2 * np.pi * self.cycles(clock)
        columns = []
        for j in range(1, self.harmonics + 1):
            columns.append(np.cos(j * angle))
            if abs(2 * j - self.length) > 1e-6:
                columns.append(np.sin(j * angle))
        return np.sqrt(2) * np.stack(columns, axis=1)


def choose_seasons(
    choice: SeasonChoice, clock: Clock, values: np.ndarray, harmonics: int | None
) -> list[Season]:
    """The seasons asked for, or those that the sampling and the data speak for.

    Args:
        choice: `"auto"`, `None`, `"year"`, `"week"`, `"day"`, a length in the user's unit of time,
            or several of these.
        clock: Times of the history.
        values: `(S, n)` the series.
        harmonics: For every season; chosen from its length if `None`.
    """
    if choice is None:
        return []
    if isinstance(choice, str) and choice == "auto":
        named = _by_calendar(clock) if clock.dated else _by_data(clock, values)
        return _make(named, clock, harmonics, strict=False)
    several = [choice] if isinstance(choice, str | int | float) else list(choice)
    return _make(several, clock, harmonics, strict=True)


def _by_calendar(clock: Clock) -> list[str | float]:
    """Cycles that are sampled at least twice and seen at least twice."""
    span = float((clock.stamps[-1] - clock.stamps[0]) / np.timedelta64(1, "D"))
    found: list[str | float] = []
    for name, days in (*NAMED.items(), ("year", YEAR)):
        seen_twice = span + clock.days >= 2 * days - 0.5 * clock.days
        finest = {"day": 0.5, "week": 1.5, "year": 100.0}[name]
        if clock.days < finest and seen_twice:
            found.append(name)
    return found


def _by_data(clock: Clock, values: np.ndarray) -> list[str | float]:
    """A period that the series clearly repeat with, if their times are even."""
    if len(clock) < 2 or not np.allclose(np.diff(clock.steps), 1.0, rtol=1e-3):
        return []
    found = find_period(values)
    return [found * clock.length] if found else []


def _make(
    wanted: Sequence[str | float], clock: Clock, harmonics: int | None, *, strict: bool
) -> list[Season]:
    made = []
    for item in wanted:
        name, period, length = _measure(item, clock)
        if length < 2:
            raise SeriesError(
                f"season: got {item!r}, {length:.3g} steps long; expected at least 2 steps. "
                "A cycle shorter than that cannot be seen at this sampling."
            )
        if strict and float(clock.steps[-1]) + 1 < length:
            raise SeriesError(
                f"season: got {item!r}, {length:.4g} steps long; expected no more than the "
                f"{float(clock.steps[-1]) + 1:.4g} steps of the history. Use season=None."
            )
        most = int(length / 2 + 1e-9)
        count = min(MOST_HARMONICS, most) if harmonics is None else min(harmonics, most)
        if harmonics is None and float(clock.steps[-1]) + 1 < 2 * length:
            count = min(count, 2)  # one cycle says little about its details
        made.append(Season(name, length, count, period))
    if harmonics is None and sum(s.harmonics for s in made) > MOST_PAIRS:
        share = MOST_PAIRS // len(made)
        made = [Season(s.name, s.length, min(s.harmonics, share), s.period) for s in made]
    return made


def _measure(item: str | float, clock: Clock) -> tuple[str, float, float]:
    """Name, period in the user's unit, length in typical steps."""
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
        # Dates have no unit of their own: a number counts typical steps.
        days = period * clock.days
        whole_year = clock.months and abs(period * clock.months - 12) < 1e-9
        return ("year", YEAR, period) if whole_year else (f"{period:g} steps", days, period)
    return f"{period:g}", period, period / clock.length
