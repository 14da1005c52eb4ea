r"""Exponential smoothing: the equations of `spec` with constant gains, for all origins in one pass.

Level, slope, anomaly and the phases of each season are corrected by the one-step error $e$,

$$ \ell \leftarrow \ell + \phi b + \alpha e, \quad b \leftarrow \phi b + \beta e, \quad
   a \leftarrow \rho a + \kappa e, \quad s \leftarrow s + \gamma e. $$

This is the steady state of the Kalman filter of $m'' + m'/\tau = 0$, $x' + kx = 0$ and the seasonal
oscillators with all their harmonics, each with noise. A filter sees only the past, so one pass
gives the forecasts from all origins, of many candidates and series at once. With `lags`, the errors
follow an autoregression of this order, a linear ODE of the same order with noise.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from smnn.forecasting._model.seasons import Season
from smnn.forecasting._time import Clock

LEVEL, SLOPE, DAMPING, DECAY, ANOMALY, LAGS = range(6)
"""Columns of a table of candidates; those after them are the gains of the seasons."""
MAX_LENGTH = 750
"""Longest season in steps; longer ones are left to the oscillators."""
MAX_GAP = 1.5
"""Largest number of steps per time for which gaps in the times are filled with missing values."""
RIDGE = 0.02
"""Shrinkage of autoregressive coefficients, relative to the variance of the errors."""
BATCH_SIZE = 4_000_000
"""Numbers in one batch of forecasts or of seasonal states; bounds the memory."""

LEVELS = (0.1, 0.3, 0.6, 1.0)
SLOPES = ((0.0, 1.0), (0.01, 1.0), (0.05, 0.9), (0.2, 0.8), (0.01, 0.97))
"""Pairs (slope gain, damping)."""
DECAYS = ((0.5, 0.7), (0.8, 0.8), (0.95, 0.8))
"""Pairs (decay, gain) of the anomaly."""
SEASONAL_LEVELS = (0.002, 0.02, 0.1, 0.3)
SEASONAL_DECAYS = ((0.0, 0.0), (0.8, 0.8), (0.95, 0.8), (0.985, 0.9))
SEASON_GAINS = (0.02, 0.1, 0.3)
ORDERS = (3, 10)
"""Orders of the autoregressions."""


def candidates(count: int, trend: str) -> np.ndarray:
    """`(K, 6 + count)` table of candidates for `count` seasons, with the columns named above."""
    none = (0.0,) * count
    plain = [(a, b, p, 0.0, 0.0, 0, *none) for a, (b, p) in itertools.product(LEVELS, SLOPES)]
    plain += [(a, 0.0, 1.0, d, k, 0, *none) for a in (0.005, 0.05, 0.2) for d, k in DECAYS]
    plain += [(a, 0.0, 1.0, 0.0, 0.0, 0, *none) for a in (0.0, 0.02)]
    gains = [none] if not count else [(g,) * count for g in (0.03, 0.2)]
    plain += [
        (a, 0.0, 1.0, 0.0, 0.0, p, *g) for a in (0.002, 0.1, 1.0) for p in ORDERS for g in gains
    ]
    if count:
        several = itertools.product(SEASON_GAINS, *((0.0, *SEASON_GAINS),) * (count - 1))
        for level, (d, k), g in itertools.product(SEASONAL_LEVELS, SEASONAL_DECAYS, several):
            plain.append((level, 0.0, 1.0, d, k, 0, *g))
        sloped = itertools.product(LEVELS[:3], SLOPES[1:], SEASON_GAINS)
        plain += [(a, b, p, 0.0, 0.0, 0, *(g,) * count) for a, (b, p), g in sloped]
        plain.append((0.0, 0.0, 1.0, 0.0, 0.0, 0, *none[:-1], 1.0))  # the last season again
    table = np.array(plain)
    slope, damped = table[:, SLOPE] > 0, table[:, DAMPING] < 1
    keep = {"none": ~slope, "linear": slope & ~damped, "damped": slope & damped}
    return table[keep[trend]] if trend in keep else table


@dataclass(frozen=True)
class Grid:
    """An evenly spaced time axis that contains all times of a clock, and the phases of seasons."""

    places: np.ndarray
    """`(N,)` index of each time."""
    phases: tuple[np.ndarray, ...]
    """`(n + H,)` phase of each season, an integer, also in the future."""
    lengths: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number `n` of times of the history."""
        return int(self.places[-1]) + 1


def make_grid(clock: Clock, future: Clock, seasons: Sequence[Season]) -> Grid | None:
    """The grid of a history, with its shortest and longest season; `None` if spaced unevenly."""
    steps = np.concatenate([clock.steps, future.steps]) - clock.steps[0]
    places = np.rint(steps).astype(int)
    n = int(places[len(clock) - 1]) + 1
    if np.abs(steps - places).max() > 0.3 or (np.diff(places) < 1).any():
        return None
    if n > MAX_GAP * len(clock) or places[-1] != n + len(future) - 1:
        return None
    used = sorted(
        (s for s in seasons if s.length <= min(MAX_LENGTH, n / 2)), key=lambda s: s.length
    )
    used = used if len(used) < 2 else [used[0], used[-1]]
    phases = []
    for season in used:
        m = round(season.length)
        if abs(season.length - m) < 1e-6:
            phases.append(np.arange(n + len(future)) % m)
            continue
        cycles = np.concatenate([season.cycles(clock), season.cycles(future)])
        filled = np.interp(np.arange(n + len(future)), places, cycles)
        phases.append(np.rint(filled % 1 * m).astype(int) % m)
    return Grid(places[: len(clock)], tuple(phases), tuple(round(s.length) for s in used))


def smooth(
    y: np.ndarray, table: np.ndarray, grid: Grid, origins: Sequence[int], horizon: int
) -> np.ndarray:
    """`(O, S, K, H)` forecasts from each origin, an index of the grid.

    Args:
        y: `(S, n)` series on the grid, NaN where missing.
        table: `(K, P)` candidates, or `(S, K, P)` own ones of each series.
        grid: From `make_grid`.
        origins: Numbers of grid times before each forecast.
        horizon: Number of steps.
    """
    table = np.broadcast_to(table, (len(y), *table.shape[-2:]))
    size = table.shape[1] * len(origins) * max(sum(grid.lengths), horizon)
    each = max(1, BATCH_SIZE // size)
    parts = []
    for i in range(0, len(y), each):
        found = components(y[i : i + each], table[i : i + each], grid, origins, horizon)
        parts.append(sum(found.values()))
    return np.concatenate(parts, axis=1)


def components(
    y: np.ndarray, table: np.ndarray, grid: Grid, origins: Sequence[int], horizon: int
) -> Mapping[str, np.ndarray]:
    """`(O, S, K, H)` contribution of each component to the forecasts from each origin."""
    states, errors = _filtered(y, table, grid, origins)
    gains = np.moveaxis(table, -1, 0)[..., None]  # (P, S, K, 1)
    ahead = np.arange(1, horizon + 1)
    slopes = np.cumsum(gains[DAMPING] ** ahead, axis=-1)
    trend = states["level"][..., None] + states["slope"][..., None] * slopes
    anomaly = states["anomaly"][..., None] * gains[DECAY] ** ahead
    rows, columns = np.nonzero(table[..., LAGS] > 0)
    orders = table[rows, columns, LAGS].astype(int)
    for order in np.unique(orders):
        own = orders == order
        i, j = rows[own], columns[own]
        level = table[i, j, LEVEL][:, None]
        future = _autoregression(errors[:, own], level[:, 0] == 1, order, origins, horizon)
        anomaly[:, i, j] += future
        trend[:, i, j] += level * (np.cumsum(future, axis=2) - future)
    out = {"trend": trend, "anomaly": anomaly}
    at, places = np.arange(len(origins))[:, None], np.array(origins)[:, None] + ahead - 1
    for length, phase, season in zip(grid.lengths, grid.phases, states["seasons"]):
        then = season[at, phase[np.minimum(places, len(phase) - 1)]]
        out[f"season {length}"] = np.moveaxis(then, 1, -1)
    return out


def _filtered(
    y: np.ndarray, table: np.ndarray, grid: Grid, origins: Sequence[int]
) -> tuple[dict[str, Any], np.ndarray]:
    """States before each origin, `(O, S, K)` or `(O, m, S, K)`, and errors `(n, Q)`.

    The errors are those of the `Q` pairs of series and candidates with an autoregression.
    """
    (S, n), K = y.shape, table.shape[1]
    level_gain, slope_gain, damping, decay, anomaly_gain, lags, *gains = np.moveaxis(table, -1, 0)
    pairs = np.nonzero(lags > 0)
    level, slope, seasons = _initial(y, grid)
    level = np.repeat(level[:, None], K, axis=1)
    slope = np.where(slope_gain > 0, slope[:, None], 0.0)
    anomaly = np.zeros((S, K))
    seasons = [np.where(gain > 0, x[..., None], 0.0) for gain, x in zip(gains, seasons)]
    seen = np.isfinite(y)
    values, observed = np.where(seen, y, 0.0).T[..., None], seen.T[..., None]
    # The first errors determine the level: its gain starts as that of a mean.
    least = 1.0 / (np.cumsum(seen, axis=1) + max(grid.lengths, default=1)).T[..., None]
    errors = np.zeros((n, len(pairs[0])))
    at = {origin: i for i, origin in enumerate(origins)}
    out: dict[str, Any] = {x: np.empty((len(at), S, K)) for x in ("level", "slope", "anomaly")}
    out["seasons"] = [np.empty((len(at), *season.shape)) for season in seasons]
    for t in range(n + 1):
        if t in at:
            now = level, slope, anomaly, *seasons
            kept = out["level"], out["slope"], out["anomaly"], *out["seasons"]
            for store, state in zip(kept, now):
                store[at[t]] = state
        if t == n:
            break
        drift, fading = damping * slope, decay * anomaly
        error = values[t] - level - drift - fading
        current = [season[phase[t]] for season, phase in zip(seasons, grid.phases)]
        for season in current:
            error -= season
        error *= observed[t]
        level += drift + np.maximum(level_gain, least[t]) * error
        slope = drift + slope_gain * error
        anomaly = fading + anomaly_gain * error
        for season, gain in zip(current, gains):
            season += gain * error
        errors[t] = error[pairs]
    return out, errors


def _initial(y: np.ndarray, grid: Grid) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Level `(S,)`, slope `(S,)` and seasons `(m, S)` of the first times of each series."""
    S, n = y.shape
    lengths = grid.lengths
    width = min(n, max(2 * lengths[0], lengths[-1]) if lengths else max(4, min(10, n // 3)))
    start = np.minimum(np.isfinite(y).argmax(1), n - width)
    at = start[:, None] + np.arange(width)
    first = np.take_along_axis(y, at, axis=1)
    middle = _mean(first)
    halves = _mean(first[:, width // 2 :]) - _mean(first[:, : width // 2])
    slope = np.nan_to_num(halves / max(width - width // 2, 1))
    line = slope[:, None] * (np.arange(width) - (width - 1) / 2)
    rest = first - np.nan_to_num(middle)[:, None] - line
    seasons = []
    for j, (length, phase) in enumerate(zip(lengths, grid.phases)):
        total, count = np.zeros((length, S)), np.zeros((length, S))
        known = np.isfinite(rest)
        rows = np.repeat(np.arange(S)[:, None], width, axis=1)
        np.add.at(total, (phase[at], rows), np.where(known, rest, 0.0))
        np.add.at(count, (phase[at], rows), known)
        profile = total / np.maximum(count, 1)
        rest = rest - profile[phase[at], rows]
        # A single cycle of a longer season is mostly noise.
        seasons.append(profile if j == 0 else 0.5 * profile)
    level = np.nan_to_num(middle) - slope * (width - 1) / 2
    return level, slope, seasons


def _mean(y: np.ndarray) -> np.ndarray:
    seen = np.isfinite(y)
    out: np.ndarray = np.where(seen, y, 0.0).sum(1) / np.maximum(seen.sum(1), 1)
    out[~seen.any(1)] = np.nan
    return out


def _autoregression(
    errors: np.ndarray, drifting: np.ndarray, order: int, origins: Sequence[int], horizon: int
) -> np.ndarray:
    """`(O, Q, H)` continuation of `errors (n, Q)` from each origin.

    An autoregression is fitted by ridge regression to the errors before each origin, without their
    mean where `drifting (Q,)` is true. The mean is shrunk by its uncertainty.
    """
    count = np.array(origins)[:, None]
    total = _sums(errors)
    mean = total[origins] / np.maximum(count, 1)
    square = np.maximum(_sums(errors**2)[origins] / np.maximum(count, 1) - mean**2, 0.0)
    shrunk = np.maximum(0.0, 1.0 - square / np.maximum(count * mean**2, 1e-300))
    drift = np.where(drifting, mean * shrunk, 0.0)  # (O, Q)
    lags = np.arange(order + 1)
    covariance = np.empty((len(origins), errors.shape[1], order + 1))
    for k in lags:
        # Autocovariances give the normal equations up to the ends, and a stationary process.
        last = np.maximum(count[:, 0] - k, 0)
        both = total[origins] - total[np.minimum(k, origins)] + total[last]
        product = _sums(errors[k:] * errors[: len(errors) - k])[last]
        covariance[..., k] = product - drift * both + last[:, None] * drift**2
    covariance[..., 0] = covariance[..., 0] * (1 + RIDGE) + 1e-300
    matrix = covariance[..., np.abs(lags[1:, None] - lags[1:])]
    weights = np.linalg.solve(matrix, covariance[..., 1:, None])[..., 0]
    weights[count[:, 0] < 3 * order] = 0.0
    latest = np.maximum(count - 1 - np.arange(order), 0)
    recent = np.moveaxis(errors[latest], 1, 2) - drift[..., None]  # the latest first
    out = np.empty((*drift.shape, horizon))
    for h in range(horizon):
        out[..., h] = (weights * recent).sum(-1)
        recent = np.concatenate([out[..., h, None], recent[..., :-1]], axis=-1)
    return out + drift[..., None]


def _sums(x: np.ndarray) -> np.ndarray:
    """`(n + 1, Q)` sums over the first entries of `x (n, Q)`."""
    return np.concatenate([np.zeros((1, x.shape[1])), np.cumsum(x, axis=0)])
