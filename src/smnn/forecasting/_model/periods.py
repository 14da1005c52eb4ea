r"""Detection of periods in evenly spaced series: a test with a controlled false-positive rate.

White noise, random walks and damped anomalies have smooth spectra; a season is a set of spectral
lines $1/P, 2/P, \dots$. For each integer period $P$ the power at the first of these lines, and the
mean over several of them, relative to the power at neighbouring frequencies, are compared with
their distribution under the null hypothesis (an $F$ distribution, because the neighbours are few).
The level is divided by the number of tests (Bonferroni), so the probability of a false detection is
at most `LEVEL` per call. The spectra of several series are averaged, with the degrees of freedom of
as many series as are independent. Once a period is found, its profile is subtracted and the test is
repeated for its multiples, so a day and a week are both found.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from smnn._util.optional import require

LEVEL = 0.01
"""Probability of a false detection in one call."""
MIN_TIMES = 16
MIN_CYCLES = 3
"""Number of full cycles that the history must contain."""
NESTED = 3
"""Least ratio of a period to a shorter one that it contains."""
NESTED_SHARE = 0.7
"""Least share of the explained variance for which the shorter period is a season of its own."""
MAX_LINES = 6
"""Number of multiples of the base frequency that are tested."""
MAX_PROFILE = 24
"""Number of them that describe the profile of a season."""
OVERSAMPLING = 8
"""Spectral grid points per resolved frequency."""
SIDE = 9
"""Neighbours on each side of a line that estimate the background power."""
EFFICIENCY = 0.6
"""Statistical efficiency of the median of the neighbours relative to their mean."""
MAX_SERIES = 64
"""Series in the pooled test."""
EXACT = 1e-6
"""Floor of the residual variance, relative to the total variance."""
MAX_CANDIDATES = 16
"""Significant periods that are compared."""
BATCH_SIZE = 4_000_000
"""Numbers in one batch of spectra; bounds the memory."""


def find_periods(values: np.ndarray) -> tuple[int, ...]:
    """Periods in steps, increasing, that evenly spaced series `(S, n)` have in common."""
    S = len(values)
    if S > MAX_SERIES:
        values = values[np.linspace(0, S - 1, MAX_SERIES).astype(int)]
    y, _ = _detrended(values)
    return _find(y, pooled=True)[0] if len(y) else ()


def group_by_periods(values: np.ndarray) -> list[tuple[np.ndarray, tuple[int, ...]]]:
    """Indices of the series `(S, n)` with the same periods, and these periods.

    A series has its own periods if they are significant even if all series are tested. The others
    have the periods that they have in common, or else those of most series.
    """
    S = len(values)
    own: dict[int, tuple[int, ...]] = {}
    if S > 1:
        y, rows = _detrended(values)
        each = max(1, BATCH_SIZE // (2 * SIDE * OVERSAMPLING * max(y.shape[1], 1)))
        for i in range(0, len(y), each):
            found = _find(y[i : i + each], tests=S)
            own |= {int(row): p for row, p in zip(rows[i : i + each], found) if p}
    others = np.array([i for i in range(S) if i not in own], dtype=int)
    common = find_periods(values[others])
    if not common and own:
        common, count = Counter(own.values()).most_common(1)[0]
        common = common if 2 * count > S else ()
    groups: dict[tuple[int, ...], list[int]] = {}
    for i in range(S):
        periods = own.get(i, common)
        # A longer cycle is easier to detect in several series.
        wider = {p for p in common if any(p % q == 0 for q in periods)}
        groups.setdefault(tuple(sorted({*periods, *wider})), []).append(i)
    return [(np.array(rows), periods) for periods, rows in groups.items()]


def interpolated(y: np.ndarray) -> np.ndarray:
    """Fill gaps by linear interpolation; a series without any value becomes zero."""
    y = y.copy()
    for i in np.flatnonzero(~np.isfinite(y).all(1)):
        row = y[i]
        seen = np.isfinite(row)
        if seen.any():
            row[~seen] = np.interp(np.flatnonzero(~seen), np.flatnonzero(seen), row[seen])
        else:
            row[:] = 0.0
    return y


def _detrended(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Interpolate gaps and subtract a straight line.

    Returns:
        `(S', n)` the last times of the series that are long enough and not a straight line, with
        unit variance, and their indices. `n` is the median of the lengths.
    """
    seen = np.isfinite(values)
    lengths = values.shape[1] - seen.argmax(1)[seen.any(1)]
    n = int(np.median(lengths)) if len(lengths) else 0
    if n < MIN_TIMES:
        return np.zeros((0, 0)), np.zeros(0, dtype=int)
    rows = np.flatnonzero(seen[:, -n:].sum(1) >= max(MIN_TIMES, n / 2))
    y = interpolated(values[rows, -n:])
    y = y / np.maximum(np.abs(y).max(1, keepdims=True), 1e-300)
    t = np.linspace(-1.0, 1.0, n)
    y = y - y.mean(1, keepdims=True)
    y = y - (y @ t / (t @ t))[:, None] * t
    spread = y.std(1)
    kept = spread > 1e-9  # not a straight line, up to rounding
    return y[kept] / spread[kept, None], rows[kept]


def _whitened(y: np.ndarray) -> np.ndarray:
    """Prewhiten by AR(1) twice and standardize.

    The spectrum of a persistent series is steep, so neighbouring frequencies do not estimate the
    background of a line; that of the AR(1) residuals is nearly flat. The second pass handles a
    drifting slope.
    """
    for _ in range(2):
        total = np.maximum((y[:, :-1] ** 2).sum(1), 1e-300)
        decay = np.clip((y[:, 1:] * y[:, :-1]).sum(1) / total, -1.0, 1.0)
        decay = np.where(decay > 1 - 8 / y.shape[1], 1.0, decay)  # close to a unit root
        y = y[:, 1:] - decay[:, None] * y[:, :-1]
    y = y - y.mean(1, keepdims=True)
    out: np.ndarray = y / np.maximum(y.std(1, keepdims=True), EXACT)
    return out


def _find(y: np.ndarray, *, pooled: bool = False, tests: int = 1) -> list[tuple[int, ...]]:
    """Periods of each detrended series, or of all together; `tests` divides the level.

    A second period is a multiple of the first, or the other way round: without this condition, a
    season that changes in time would be taken for two seasons with similar lengths.
    """
    n = y.shape[1]
    periods = np.arange(3, n // MIN_CYCLES + 1)
    found: list[list[int]] = [[] for _ in range(1 if pooled else len(y))]
    active = np.arange(len(found))
    while len(active):
        x = _whitened(y)
        chance = _chances(x, periods, n, pooled)
        for i, row in enumerate(active):
            allowed = chance[i] < LEVEL / (2 * len(periods) * tests)
            if found[row]:
                allowed &= (periods % found[row][0] == 0) & (periods > found[row][0])
            if not allowed.any():
                found[row].append(0)
                continue
            own = slice(None) if pooled else slice(i, i + 1)
            chosen = periods[allowed][np.argsort(chance[i, allowed])[:MAX_CANDIDATES]]
            share = np.array([_explained(x[own], p) for p in chosen])
            # BIC: divisors of a period misfit, multiples have more parameters.
            rest, parameters = np.log1p(-share).sum(1), np.minimum(2 * MAX_PROFILE, chosen - 1)
            cost = len(x[own]) * parameters * np.log(n) + n * rest
            best, share = chosen[cost.argmin()], share.mean(1)
            inner = (best % chosen == 0) & (NESTED * chosen <= best)
            inner &= share > NESTED_SHARE * share[cost.argmin()]
            if inner.any() and not found[row]:
                found[row].append(chosen[inner][cost[inner].argmin()])
            found[row].append(best)
            y[own] -= _profile(y[own], int(best))
        more = np.array([len(found[row]) == 1 and found[row][0] > 0 for row in active], dtype=bool)
        active, y = active[more], y if pooled else y[more]
    return [tuple(sorted(int(p) for p in row if p)) for row in found]


def _profile(y: np.ndarray, period: int) -> np.ndarray:
    """`(S, n)` mean of each phase."""
    n = y.shape[1]
    padded = np.pad(y, ((0, 0), (0, -n % period))).reshape(len(y), -1, period)
    mean = padded.sum(1) / np.bincount(np.arange(n) % period, minlength=period)
    out: np.ndarray = np.take(mean, np.arange(n) % period, axis=1)
    return out


def _explained(x: np.ndarray, period: int) -> np.ndarray:
    """`(S,)` share of the variance that a profile of at most `MAX_PROFILE` harmonics explains."""
    if period <= 2 * MAX_PROFILE:
        fitted = _profile(x, period)
    else:
        angle = 2 * np.pi * np.arange(x.shape[1]) / period
        waves = np.exp(1j * np.outer(angle, np.arange(1, MAX_PROFILE + 1)))
        q = np.linalg.qr(np.concatenate([waves.real, waves.imag], axis=1))[0]
        fitted = x @ q @ q.T
    out: np.ndarray = np.minimum((fitted * x).mean(1), 1 - EXACT)
    return out


def _chances(x: np.ndarray, periods: np.ndarray, n: int, pooled: bool) -> np.ndarray:
    """`(R, P)` probability of as much power at the lines of each period without a season."""
    power = np.abs(np.fft.rfft(x, OVERSAMPLING * n)) ** 2 / x.shape[1]
    independent = 1.0
    if pooled:
        power, independent = power.mean(0, keepdims=True), _independent(x)
    stats = require("scipy.stats", "detect a season")
    lines = np.minimum(MAX_LINES, (periods - 1) // 2)
    starts = np.concatenate([[0], np.cumsum(lines)[:-1]])
    multiple = np.arange(lines.sum()) - np.repeat(starts, lines) + 1
    places = np.rint(OVERSAMPLING * n * multiple / np.repeat(periods, lines)).astype(int)
    unique, which = np.unique(np.minimum(places, power.shape[1] - 1), return_inverse=True)
    ratio, neighbours = _line_ratio(power, unique, independent)
    ratio, neighbours = ratio[:, which], neighbours[which]
    freedom = 2 * EFFICIENCY * independent
    first = stats.f.sf(ratio[:, starts], 2 * independent, freedom * neighbours[starts])
    mean = np.add.reduceat(ratio, starts, axis=1) / lines
    around = np.add.reduceat(neighbours, starts) / lines
    several = stats.f.sf(mean, 2 * independent * lines, freedom * around)
    return np.asarray(np.minimum(first, several))


def _independent(x: np.ndarray) -> float:
    """Number of independent series with the same mean square correlation."""
    S, n = x.shape
    square = float(((x @ x.T / n) ** 2).sum())
    among = max(0.0, square - S - S * (S - 1) / n)
    return S**2 / (S + among)


def _line_ratio(
    power: np.ndarray, places: np.ndarray, independent: float
) -> tuple[np.ndarray, np.ndarray]:
    """Power at the given bins relative to the local background, and the number of neighbours."""
    stats = require("scipy.stats", "detect a season")
    steps = OVERSAMPLING * np.arange(1, SIDE + 1)
    near = places[:, None] + np.concatenate([-steps, steps])
    inside = (near >= OVERSAMPLING) & (near < power.shape[1])
    around = np.sort(np.where(inside, power[:, np.where(inside, near, 0)], np.inf), axis=2)
    count = inside.sum(1)
    line = np.arange(len(places))
    median = (around[:, line, (count - 1) // 2] + around[:, line, count // 2]) / 2
    # A mean of exponential distributions has a gamma distribution.
    background = np.maximum(median / (stats.gamma.median(independent) / independent), 1e-300)
    return power[:, places] / background, count
