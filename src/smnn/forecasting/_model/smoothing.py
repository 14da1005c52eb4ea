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
    K = table.shape[1]
    size = K * max(sum(grid.lengths), len(origins) * horizon, 1)
    each = max(1, BATCH_SIZE // size)
    parts = []
    for i in range(0, len(y), each):
        own = _Filter(y[i : i + each], table[i : i + each], grid)
        found = own.run(origins, horizon)
        parts.append(np.stack([sum(part.values()) for part in found]))
    return np.concatenate(parts, axis=1)


def components(
    y: np.ndarray, table: np.ndarray, grid: Grid, horizon: int
) -> Mapping[str, np.ndarray]:
    """`(S, K, H)` contribution of each component to the forecasts from the end of `y`."""
    return _Filter(y, table, grid).run([y.shape[1]], horizon)[0]


class _Filter:
    """States `(S, K)` of all series and candidates, and their recursion."""

    def __init__(self, y: np.ndarray, table: np.ndarray, grid: Grid) -> None:
        self.y, self.table, self.grid = y, table, grid
        self.gains = np.moveaxis(table, -1, 0)  # (P, S, K)
        self.autoregressive = np.flatnonzero((table[..., LAGS] > 0).any(0))
        S, K = table.shape[:2]
        level, slope, seasons = _initial(y, grid)
        sloped = self.gains[SLOPE] > 0
        self.level = np.repeat(level[:, None], K, axis=1)
        self.slope = np.where(sloped, slope[:, None], 0.0)
        self.anomaly = np.zeros((S, K))
        used = [(self.gains[LAGS + 1 + j] > 0) for j in range(len(seasons))]
        self.seasons = [
            np.where(u, season[..., None], 0.0) for u, season in zip(used, seasons)
        ]  # (m, S, K)

    def run(self, origins: Sequence[int], horizon: int) -> list[dict[str, np.ndarray]]:
        """Components `(S, K, H)` of the forecasts from each origin."""
        S, n = self.y.shape
        level, slope, damping, decay, anomaly, _, *gains = self.gains
        seen = np.isfinite(self.y)
        y = np.where(seen, self.y, 0.0)
        # The first errors determine the level: its gain starts as that of a mean.
        count = np.cumsum(seen, axis=1) + max(self.grid.lengths, default=1)
        errors = np.zeros((n, S, len(self.autoregressive)))
        out: dict[int, dict[str, np.ndarray]] = {}
        for t in range(n + 1):
            if t in origins:
                out[t] = self._forecast(t, errors[:t], horizon)
            if t == n:
                break
            drift, fading = damping * self.slope, decay * self.anomaly
            error = y[:, t, None] - self.level - drift - fading
            now = [season[phase[t]] for season, phase in zip(self.seasons, self.grid.phases)]
            for season in now:
                error -= season
            error *= seen[:, t, None]
            self.level += drift + np.maximum(level, 1.0 / count[:, t, None]) * error
            self.slope = drift + slope * error
            self.anomaly = fading + anomaly * error
            for season, gain in zip(now, gains):
                season += gain * error
            if len(self.autoregressive):
                errors[t] = error[:, self.autoregressive]
        return [out[origin] for origin in origins]

    def _forecast(self, t: int, errors: np.ndarray, horizon: int) -> dict[str, np.ndarray]:
        level, _, damping, decay, *_ = self.gains
        ahead = np.arange(1, horizon + 1)
        trend = self.level[..., None] + self.slope[..., None] * np.cumsum(
            damping[..., None] ** ahead, axis=-1
        )
        anomaly = self.anomaly[..., None] * decay[..., None] ** ahead
        for j, place in enumerate(self.autoregressive):
            orders = self.table[:, place, LAGS].astype(int)
            for order in np.unique(orders[orders > 0]):
                rows = orders == order
                own = errors[:, rows, j]
                drift = _drift(own) * (level[rows, place] == 1)
                future = _autoregression(own - drift, int(order), horizon) + drift[:, None]
                before = np.cumsum(future, axis=1) - future
                anomaly[rows, place] += future
                trend[rows, place] += level[rows, place, None] * before
        parts = {"trend": trend, "anomaly": anomaly}
        for season, phase, length in zip(self.seasons, self.grid.phases, self.grid.lengths):
            parts[f"season {length}"] = np.moveaxis(season[phase[t : t + horizon]], 0, -1)
        return parts


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


def _drift(x: np.ndarray) -> np.ndarray:
    """`(S,)` mean of `x (n, S)`, shrunk by its uncertainty."""
    mean = x.sum(0) / max(len(x), 1)
    square = ((x - mean) ** 2).sum(0) / max(len(x), 1) ** 2
    out: np.ndarray = mean * np.maximum(0.0, 1.0 - square / np.maximum(mean**2, 1e-300))
    return out


def _autoregression(x: np.ndarray, order: int, horizon: int) -> np.ndarray:
    """`(S, H)` continuation of `x (n, S)` by an autoregression fitted by ridge regression."""
    n, S = x.shape
    out = np.zeros((S, horizon))
    if n < 3 * order:
        return out
    # Autocovariances give the normal equations up to the ends, and a stationary process.
    lags = np.arange(order + 1)
    covariance = np.stack([(x[k:] * x[: n - k]).sum(0) for k in lags], axis=1)  # (S, order + 1)
    covariance[:, 0] = covariance[:, 0] * (1 + RIDGE) + 1e-300
    matrix = covariance[:, np.abs(lags[1:, None] - lags[1:])]
    weights = np.linalg.solve(matrix, covariance[:, 1:, None])[..., 0]
    recent = x[-1 : -order - 1 : -1].T.copy()  # the latest first
    for h in range(horizon):
        out[:, h] = (weights * recent).sum(1)
        recent = np.concatenate([out[:, h, None], recent[:, :-1]], axis=1)
    return out
