r"""Seasons: cycles of known length, from the calendar, from the user, or detected in the data.

Period detection for undated series is a test with a controlled false-positive rate. White noise,
random walks and damped anomalies have smooth spectra; a season is a set of spectral lines
$1/P, 2/P, \dots$. For each integer period $P$ the mean power at these lines, relative to the power
at neighbouring frequencies, is compared with its distribution under the null hypothesis (an $F$
distribution, because the neighbours are few). The level is divided by the number of periods tested
(Bonferroni), so the probability of a false detection is at most `LEVEL` per call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from smnn._util.optional import require
from smnn.forecasting._time import DAY, Clock, SeriesError, years

NAMED = {"day": 1.0, "week": 7.0}
"""Lengths in days; a year follows the calendar."""
YEAR = 365.2425
MONDAY = np.datetime64("2000-01-03", "ns")
MAX_HARMONICS = 6
MAX_TOTAL_HARMONICS = 8
"""Default limit on the harmonics of all seasons together."""

LEVEL = 0.01
"""Probability of a false detection in one call of `find_period`."""
MIN_TIMES = 16
MIN_CYCLES = 3
"""Number of full cycles that the history must contain."""
MAX_LINES = 6
"""Number of multiples of the base frequency that are tested."""
OVERSAMPLING = 8
"""Spectral grid points per resolved frequency."""
SIDE = 9
"""Neighbours on each side of a line that estimate the background power."""
EFFICIENCY = 0.6
"""Statistical efficiency of the median of the neighbours relative to their mean."""
MAX_SERIES = 64
EXACT = 1e-6
"""Floor of the residual variance, relative to the total variance."""

SeasonChoice = str | float | None | Sequence[str | float]


@dataclass(frozen=True)
class Season:
    """A cycle of fixed length: an undamped oscillator and its harmonics."""

    name: str
    length: float
    """In typical steps of the series."""
    harmonics: int
    """Number of multiples of the base frequency."""
    period: float = 1.0
    """In the user's unit of time; days for `"day"` and `"week"`."""

    def cycles(self, clock: Clock) -> np.ndarray:
        """`(n,)` time in units of the cycle; the fractional part is the phase."""
        if self.name == "year" and clock.dated:
            return years(clock.stamps)
        if clock.dated:
            return (clock.stamps - MONDAY).astype(float) / DAY / self.period
        return (clock.stamps - clock.origin) / self.period

    def waves(self, clock: Clock) -> np.ndarray:
        """Cosines and sines of unit mean square; the sine at the Nyquist rate is omitted.

        Returns:
            `(n, 2 * harmonics)`, or one column less.
        """
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
    """Resolve the `season` argument of `Forecaster`.

    Args:
        choice: `"auto"`, `None`, `"year"`, `"week"`, `"day"`, a length in the user's unit of time,
            or several of these.
        clock: Times of the history.
        values: `(S, n)` series, searched for a period if the times are not dates.
        harmonics: Harmonics per season; chosen from its length if `None`.
    """
    if choice is None:
        return []
    if isinstance(choice, str) and choice == "auto":
        named = _by_calendar(clock) if clock.dated else _by_data(clock, values)
        return _make(named, clock, harmonics, strict=False)
    several = [choice] if isinstance(choice, str | int | float) else list(choice)
    return _make(several, clock, harmonics, strict=True)


def group_seasons(
    choice: SeasonChoice, clock: Clock, values: np.ndarray, harmonics: int | None
) -> list[tuple[np.ndarray, list[Season]]]:
    """Series with the same seasons, as indices, and these seasons; arguments as above."""
    return [(np.arange(len(values)), choose_seasons(choice, clock, values, harmonics))]


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


def _by_data(clock: Clock, values: np.ndarray) -> list[str | float]:
    """The detected period, if there is one and the times are evenly spaced."""
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


def find_period(values: np.ndarray) -> int:
    """Detect the period, in steps, of evenly spaced series `(S, n)`; 0 if there is none.

    The spectra of the first `MAX_SERIES` series are averaged.
    """
    rows = [x for x in map(_whitened, values[:MAX_SERIES]) if x is not None]
    n = values.shape[1]
    if not rows or n < MIN_TIMES:
        return 0
    power = np.mean([_power(x) for x in rows], axis=0)
    stats = require("scipy.stats", "detect a season")
    periods = range(3, n // MIN_CYCLES + 1)
    lines = [min(MAX_LINES, (period - 1) // 2) for period in periods]
    places = np.concatenate(
        [np.rint(OVERSAMPLING * n * np.arange(1, m + 1) / p) for m, p in zip(lines, periods)]
    ).astype(int)  # fmt: skip
    places = np.minimum(places, len(power) - 1)
    each = np.split(np.arange(len(places)), np.cumsum(lines)[:-1])
    ratio, neighbours = _line_ratio(power, places)
    mean = np.array([ratio[own].mean() for own in each])
    freedom = 2 * EFFICIENCY * np.array([neighbours[own].mean() for own in each])
    chance = stats.f.sf(mean, 2 * np.array(lines), freedom)
    found = [period for period, p in zip(periods, chance) if p < LEVEL / len(periods)]
    return min(found, key=lambda period: _cost(rows, period)) if found else 0


def _cost(rows: list[np.ndarray], period: int) -> float:
    """BIC of the model with one mean per phase.

    Selects among the significant periods: divisors misfit, multiples have more parameters.
    """
    total = 0.0
    for x in rows:
        n = len(x)
        phase = np.arange(n) % period
        mean = np.bincount(phase, x, period) / np.maximum(np.bincount(phase, minlength=period), 1)
        residual = float(((x - mean[phase]) ** 2).mean())
        total += n * np.log(max(residual, EXACT)) + period * np.log(n)
    return total


def _whitened(row: np.ndarray) -> np.ndarray | None:
    """Interpolate gaps, detrend, prewhiten by AR(1) twice and standardize; `None` if constant.

    The spectrum of a persistent series is steep, so neighbouring frequencies do not estimate the
    background of a line; that of the AR(1) residuals is nearly flat. The second pass handles a
    drifting slope.
    """
    seen = np.isfinite(row)
    n = len(row)
    if seen.sum() < max(MIN_TIMES, n / 2):
        return None
    t = np.arange(n)
    x = np.interp(t, t[seen], row[seen])
    size = float(np.abs(x).max())
    x = x - np.polynomial.Polynomial.fit(t, x, 1)(t)
    if np.abs(x).max() <= 1e-9 * size:  # a straight line, up to rounding
        return None
    for _ in range(2):
        total = float((x[:-1] ** 2).sum())
        if total <= 0:
            return None
        decay = float(np.clip((x[1:] * x[:-1]).sum() / total, -1.0, 1.0))
        x = x[1:] - (1.0 if decay > 1 - 8 / n else decay) * x[:-1]  # close to a unit root
    x = x - x.mean()
    spread = x.std()
    return x / spread if spread > 1e-12 * size else None


def _power(x: np.ndarray) -> np.ndarray:
    """Periodogram, oversampled by `OVERSAMPLING`, from 0 to half a cycle per step."""
    n = len(x) + 2
    out: np.ndarray = np.abs(np.fft.rfft(x, OVERSAMPLING * n)) ** 2 / len(x)
    return out


def _line_ratio(power: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Power at the given bins relative to the local background, and the number of neighbours."""
    steps = OVERSAMPLING * np.arange(1, SIDE + 1)
    near = places[:, None] + np.concatenate([-steps, steps])
    inside = (near >= OVERSAMPLING) & (near < len(power))
    around = np.sort(np.where(inside, power[np.where(inside, near, 0)], np.inf), axis=1)
    count = inside.sum(1)
    row = np.arange(len(places))
    median = (around[row, (count - 1) // 2] + around[row, count // 2]) / 2
    background = np.maximum(median / np.log(2), 1e-300)  # the median of an exponential distribution
    return power[places] / background, count
