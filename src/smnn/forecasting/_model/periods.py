r"""A period that undated series repeat with, if there is one: a test with a known error rate.

White noise, random walks and damped anomalies have smooth spectra; a season is a set of lines
$1/P, 2/P, \dots$ that stand out of theirs. For each whole period $P$ the power at its lines,
relative to the power at neighbouring frequencies, is compared with what chance gives (an $F$
distribution, because neighbours are few), at a level that is divided by the number of periods
tried. So the chance of seeing a season where there is none is at most `LEVEL` for each series
searched, however many periods there are.
"""

from __future__ import annotations

import numpy as np

from smnn._util.optional import require

LEVEL = 0.01
"""Chance of a false season in one search."""
FEWEST = 16
"""Times below which nothing can be told."""
CYCLES = 3
"""How often a period must have been seen."""
MOST_LINES = 6
"""Multiples of the base frequency that are looked at."""
FINER = 8
"""Frequencies on a grid so many times as fine as the series itself resolves."""
SIDE = 9
"""Neighbours on each side of a line that tell the power around it."""
EFFICIENCY = 0.6
"""A median of so many neighbours is known as well as a mean of this part of them."""
MOST_SERIES = 64
EXACT = 1e-6
"""Part of the variance below which a misfit counts as none."""


def find_period(values: np.ndarray) -> int:
    """The period of series `(S, n)` at even times in steps, or 0.

    Of many series, the first few dozen speak for all: the mean of what each shows must be clear.
    """
    rows = [x for x in map(_prepared, values[:MOST_SERIES]) if x is not None]
    n = values.shape[1]
    if not rows or n < FEWEST:
        return 0
    power = np.mean([_power(x) for x in rows], axis=0)
    stats = require("scipy.stats", "look for a season")
    periods = range(3, n // CYCLES + 1)
    lines = [min(MOST_LINES, (period - 1) // 2) for period in periods]
    places = np.concatenate(
        [np.rint(FINER * n * np.arange(1, m + 1) / p) for m, p in zip(lines, periods)]
    ).astype(int)  # fmt: skip
    places = np.minimum(places, len(power) - 1)
    each = np.split(np.arange(len(places)), np.cumsum(lines)[:-1])
    ratio, neighbours = _stand_out(power, places)
    mean = np.array([ratio[own].mean() for own in each])
    freedom = 2 * EFFICIENCY * np.array([neighbours[own].mean() for own in each])
    chance = stats.f.sf(mean, 2 * np.array(lines), freedom)
    found = [period for period, p in zip(periods, chance) if p < LEVEL / len(periods)]
    return min(found, key=lambda period: _cost(rows, period)) if found else 0


def _cost(rows: list[np.ndarray], period: int) -> float:
    """Of describing the series by a mean for each phase: misfit and number of means (BIC).

    Among periods that chance rules out, this tells a period from its parts and multiples, whatever
    the shape of the season.
    """
    total = 0.0
    for x in rows:
        n = len(x)
        phase = np.arange(n) % period
        mean = np.bincount(phase, x, period) / np.maximum(np.bincount(phase, minlength=period), 1)
        left = float(((x - mean[phase]) ** 2).mean())
        total += n * np.log(max(left, EXACT)) + period * np.log(n)
    return total


def _prepared(row: np.ndarray) -> np.ndarray | None:
    """Gaps closed, straight line and persistence taken off, of unit size; `None` if nothing moves.

    Where a series is persistent its spectrum is steep, and neighbours of a line say little about
    it; what each step adds to a part of the value before has a nearly level one. Twice, because a
    slope may wander as well.
    """
    seen = np.isfinite(row)
    n = len(row)
    if seen.sum() < max(FEWEST, n / 2):
        return None
    t = np.arange(n)
    x = np.interp(t, t[seen], row[seen])
    size = float(np.abs(x).max())
    x = x - np.polynomial.Polynomial.fit(t, x, 1)(t)
    if np.abs(x).max() <= 1e-9 * size:  # a straight line, but for rounding
        return None
    for _ in range(2):
        total = float((x[:-1] ** 2).sum())
        if total <= 0:
            return None
        decay = float(np.clip((x[1:] * x[:-1]).sum() / total, -1.0, 1.0))
        x = x[1:] - (1.0 if decay > 1 - 8 / n else decay) * x[:-1]  # as good as a random walk
    x = x - x.mean()
    spread = x.std()
    return x / spread if spread > 1e-12 * size else None


def _power(x: np.ndarray) -> np.ndarray:
    """At `FINER` frequencies for each that the series resolves, up to half a cycle a step."""
    n = len(x) + 2
    out: np.ndarray = np.abs(np.fft.rfft(x, FINER * n)) ** 2 / len(x)
    return out


def _stand_out(power: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Power at places relative to what is around each, and how many neighbours told that."""
    steps = FINER * np.arange(1, SIDE + 1)
    near = places[:, None] + np.concatenate([-steps, steps])
    inside = (near >= FINER) & (near < len(power))
    around = np.sort(np.where(inside, power[np.where(inside, near, 0)], np.inf), axis=1)
    count = inside.sum(1)
    row = np.arange(len(places))
    median = (around[row, (count - 1) // 2] + around[row, count // 2]) / 2
    usual = np.maximum(median / np.log(2), 1e-300)  # the median of an exponential distribution
    return power[places] / usual, count
