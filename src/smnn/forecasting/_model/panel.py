"""The data of a fit: series on one time axis, cleaned and scaled; forecasts by candidates."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from smnn.forecasting._model.periods import interpolated
from smnn.forecasting._model.seasons import Season
from smnn.forecasting._model.smoothing import Grid, make_grid
from smnn.forecasting._model.spec import CLIMATOLOGY, MAX_LOG, TREND, WEAK, Spec
from smnn.forecasting._model.system import System, end_states, make_system, same_gaps
from smnn.forecasting._time import Clock

OUTLIER = 8.0
"""Robust standard deviations from its neighbours beyond which a single value is an outlier."""
NEIGHBOURS = 7
SHIFT = 6.0
"""Robust standard deviations of the other steps beyond which a step may be a change of level."""
MIN_SHIFTED = 3
"""Observations on both sides of a change of level."""
MIN_SHARED = 8
"""Smallest number of series for which slopes are shrunk towards their median."""
MIN_HISTORY = 8
"""Observations before the first origin."""
MIN_FRACTION = 0.25
"""Fraction of the history before the first origin."""


@dataclass(frozen=True)
class Panel:
    """Series on one time axis."""

    values: np.ndarray
    """`(S, N)` observations without outliers, NaN where missing."""
    raw: np.ndarray
    """`(S, N)` observations as given; forecasts are scored against these."""
    clock: Clock
    seasons: Sequence[Season]
    inputs: np.ndarray | None
    """`(N, I)` standardized exogenous inputs over the history."""
    scale: np.ndarray
    """`(S, 1)` standard deviation of each series, or a common one if they share a unit."""
    same_units: bool
    """Whether all series have the same unit."""
    horizon: int
    """Steps to forecast; also sets the decay of a damped slope."""
    _waves: dict[tuple[float, float, int], list[np.ndarray]] = field(
        default_factory=dict, repr=False, compare=False
    )
    """Cache of the seasonal columns by time range."""

    @property
    def positive(self) -> np.ndarray:
        """`(S,)` which series have only positive values."""
        out: np.ndarray = (np.isnan(self.values) | (self.values > 0)).all(1)
        return out

    @property
    def span(self) -> float:
        """Length of the whole history in steps."""
        return max(float(self.clock.steps[-1] - self.clock.steps[0]), 1.0)

    @property
    def longest(self) -> float:
        """Length of the longest season in steps, or 0."""
        return max((s.length for s in self.seasons), default=0.0)

    def part(
        self, rows: np.ndarray, start: int = 0, seasons: Sequence[Season] | None = None
    ) -> Panel:
        """Select some of the series, from a time on, with other seasons if any are given."""
        values, raw = self.values[rows, start:], self.raw[rows, start:]
        out = replace(self, values=values, raw=raw, scale=self.scale[rows])
        if start:
            inputs = None if self.inputs is None else self.inputs[start:]
            out = replace(out, clock=self.clock[start:], inputs=inputs)
        return out if seasons is None else replace(out, seasons=seasons, _waves={})

    def history(self, count: int, window: int) -> slice:
        """Times used by a forecast from origin `count`: the last `window` before it."""
        return slice(max(0, count - window), count)

    def after(self, origin: int) -> tuple[Clock, np.ndarray | None]:
        """Times of the history after an origin, up to the horizon, and the inputs there."""
        part = slice(origin, origin + self.horizon)
        return self.clock[part], None if self.inputs is None else self.inputs[part]

    def scorable(self, past: slice) -> np.ndarray:
        """`(S,)` which series have enough observations in `past` for a meaningful forecast.

        The requirement is half of what `least_history` demands of a series on its own. In ragged
        panels, other series have no level yet, and their errors would measure the missing data.
        """
        seen = np.isfinite(self.values)
        counts, which = np.unique(seen.sum(1), return_inverse=True)
        least = np.array([least_history(int(n), self.horizon, self.longest) for n in counts])
        least = np.minimum(least, past.stop - past.start)
        enough: np.ndarray = seen[:, past].sum(1) >= np.maximum(least / 2, MIN_HISTORY)[which]
        return enough

    def errors(
        self, ahead: np.ndarray, origin: int, scorable: np.ndarray, log: bool | np.ndarray
    ) -> np.ndarray:
        """`(S, H)` forecast minus observation relative to the scale; NaN where not scorable.

        Args:
            ahead: `(S, H)` forecast from `origin`.
            origin: Length of the history before the forecast.
            scorable: `(S,)` from the method of this name.
            log: Whether the forecast is that of logarithms; one value or `(S, 1)`.
        """
        ahead = np.where(log, np.exp(np.where(log, np.minimum(ahead, MAX_LOG), 0.0)), ahead)
        error = (ahead - self.raw[:, origin : origin + self.horizon]) / self.scale
        error[~scorable] = np.nan
        return error

    def system(
        self, spec: Spec, past: slice, future: Clock, inputs_ahead: np.ndarray | None
    ) -> System:
        """Build the rows of a candidate on a part of the history."""
        inputs = None if self.inputs is None else self.inputs[past]
        clock = self.clock[past]
        waves = (self._seasonal(clock), self._seasonal(future)) if spec.seasonal else ([], [])
        return make_system(
            spec, clock, future, self.seasons if spec.seasonal else [], inputs, inputs_ahead,
            fade=max(self.horizon / 2, 1.0), span=self.span, waves=waves,
        )  # fmt: skip

    def _seasonal(self, clock: Clock) -> list[np.ndarray]:
        """Columns `(n, 2 * harmonics)` of each season."""
        key = (float(clock.steps[0]), float(clock.steps[-1]), len(clock))
        if key not in self._waves:
            self._waves[key] = [season.waves(clock) for season in self.seasons]
        return self._waves[key]

    def ahead(
        self, specs: Sequence[Spec], past: slice, future: Clock,
        inputs_ahead: np.ndarray | None = None,
    ) -> list[np.ndarray]:  # fmt: skip
        """`(S, H)` forecast of each candidate from the end of `past`, on its own scale."""
        solved = self.states(specs, past, future, inputs_ahead)
        return [centre + states @ system.ahead.T for system, centre, states in solved]

    def grid(self, past: slice, future: Clock) -> Grid | None:
        """The evenly spaced times that contain those of `past`; `None` if there are none."""
        return make_grid(self.clock[past], future, self.seasons)

    def on_grid(self, past: slice, grid: Grid, log: np.ndarray) -> np.ndarray:
        """`(S, n)` series, or their logarithms where `log (S,)` is true, on the times of a grid."""
        y = self.values[:, past]
        if log.any():
            positive = np.where(y > 0, y, np.nan)
            y = np.where(log[:, None], np.log(positive), y)
        if grid.size == y.shape[1]:
            return y
        out = np.full((len(y), grid.size), np.nan)
        out[:, grid.places] = y
        return out

    def states(
        self, specs: Sequence[Spec], past: slice, future: Clock | None = None,
        inputs_ahead: np.ndarray | None = None,
    ) -> list[tuple[System, np.ndarray, np.ndarray]]:  # fmt: skip
        """For each candidate its system, the centre `(S, 1)` and the final terms `(S, V)`."""
        future = self.clock[past].after(1) if future is None else future
        out: dict[Spec, tuple[System, np.ndarray, np.ndarray]] = {}
        for log in {spec.log for spec in specs}:
            chosen = [spec for spec in specs if spec.log == log]
            y = self.transformed(past, log)
            seen = np.isfinite(y)
            total = np.where(seen, y, 0.0).sum(1, keepdims=True)
            centre = total / np.maximum(seen.sum(1, keepdims=True), 1)
            y = y - centre
            systems = [self.system(spec, past, future, inputs_ahead) for spec in chosen]
            pulled = [i for i, system in enumerate(systems) if self._shares_slope(system)]
            free = dict.fromkeys(replace(chosen[i], pull=WEAK) for i in pulled)
            unused = self.clock[past][:1]
            freed = [self.system(spec, past, unused, None) for spec in free]
            states = end_states([*systems, *freed], y)
            if pulled:
                slopes = dict(zip(free, states[len(systems) :]))
                self._share_slopes([systems[i] for i in pulled], states, pulled, slopes, seen, past)
            out |= {
                spec: (system, centre, state)
                for spec, system, state in zip(chosen, systems, states)
            }  # fmt: skip
        return [out[spec] for spec in specs]

    def residual(self, spec: Spec, past: slice) -> np.ndarray:
        """`(S, n)` residual of a candidate with constant terms only, NaN where missing."""
        ((system, centre, states),) = self.states([spec], past)
        y = self.transformed(past, spec.log)
        out: np.ndarray = y - centre - states @ system.h.T
        return out

    def lagged(self, x: np.ndarray, past: slice) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of values one typical step apart; zeros where either is missing."""
        pairs = np.abs(np.diff(self.clock.steps[past]) - 1.0) < 0.25
        before, after = x[:, :-1][:, pairs], x[:, 1:][:, pairs]
        both = np.isfinite(before) & np.isfinite(after)
        return np.where(both, before, 0.0), np.where(both, after, 0.0)

    def _shares_slope(self, system: System) -> bool:
        """Whether slopes are shrunk towards the median slope of the panel."""
        pulled = bool(system.index("slope")) and system.spec.pull > WEAK
        return pulled and len(self.values) >= MIN_SHARED

    def _share_slopes(
        self, systems: Sequence[System], states: list[np.ndarray], places: Sequence[int],
        free: Mapping[Spec, np.ndarray], seen: np.ndarray, past: slice,
    ) -> None:  # fmt: skip
        """Shrink slopes towards the median slope instead of towards zero, in place.

        The terms are linear in the observations, so subtracting the median slope from the data
        changes them by the response to a straight line.
        """
        enough = self.scorable(past)
        typical = enough if enough.any() else np.ones(len(seen), dtype=bool)
        alike, others = same_gaps(seen)
        rows = [*alike, *(np.array([i]) for i in others)]
        for system, place in zip(systems, places):
            (slope,) = system.index("slope")
            freely = free[replace(system.spec, pull=WEAK)][:, slope, None]
            shared = float(np.median((freely / self.scale)[typical])) * self.scale
            line = np.stack([np.where(seen[r[0]], system.h[:, slope], np.nan) for r in rows])
            (response,) = end_states([system], line)
            for r, change in zip(rows, response):
                states[place][r] -= shared[r] * change
            states[place][:, slope] += shared[:, 0]

    def transformed(self, past: slice, log: bool) -> np.ndarray:
        """`(S, n)` series or their logarithms."""
        y = self.values[:, past]
        return np.log(y) if log else y


def least_history(count: int, horizon: int, season: float) -> int:
    """Shortest history to forecast from when a series of `count` observations is back-tested."""
    least = max(MIN_HISTORY, min(horizon, count // 3), int(MIN_FRACTION * count))
    if count > 3 * season + horizon:
        least = max(least, int(np.ceil(2 * season)) + 2)
    return least


def cleaned(panel: Panel) -> Panel:
    """Move the history before a change of level to the new level, and winsorize isolated outliers.

    A value is compared with the median of its neighbours after trend and seasons are removed, so
    seasonal peaks and runs of high values are left as they are. A series with positive values only
    is compared on both scales: growth looks like a run of outliers on one of them.
    """
    n = panel.values.shape[1]
    if n < 3 * NEIGHBOURS:
        return panel
    base = TREND if n > 3 * panel.longest else CLIMATOLOGY
    season = min((s.length for s in panel.seasons), default=0.0)
    for find in (functools.partial(_shift, season=season), _excess):
        change = _found(panel, base, find)
        some = np.flatnonzero(change.any(1))
        log = some[panel.positive[some]]
        if len(log):
            logarithm = _found(panel.part(log), replace(base, log=True), find)
            change[log] = np.where(change[log] != 0, logarithm, 0.0)
        plain = np.setdiff1d(some, log)
        values, raw = panel.values.copy(), panel.raw.copy()
        for y in (values, raw) if find is not _excess else (values,):
            y[plain] -= change[plain]
            y[log] *= np.exp(-change[log])
        panel = replace(panel, values=values, raw=raw)
    return panel


def _found(panel: Panel, base: Spec, find: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """`(S, n)` amounts that are found in the residuals from trend and seasons."""
    residual = panel.residual(base, slice(0, panel.values.shape[1]))
    return np.concatenate([find(residual[i : i + 512]) for i in range(0, len(residual), 512)])


def _shift(residual: np.ndarray, season: float) -> np.ndarray:
    """`(S, n)` amount to subtract from the values before a change of level.

    A change is one step that is far beyond the others and persists for a season, in a series whose
    level is stable otherwise. Several such steps are left as they are: they are part of the
    dynamics.
    """
    n = residual.shape[1]
    out = np.zeros_like(residual)
    step = np.abs(np.diff(interpolated(residual), axis=1))
    edge = SHIFT * _spread(step)
    last = n - max(MIN_SHIFTED, int(np.ceil(season)))
    for i in np.flatnonzero(((step > edge) & (edge > 0))[:, :last].any(1)):
        padded = np.pad(residual[i], NEIGHBOURS, constant_values=np.nan)
        windows = np.lib.stride_tricks.sliding_window_view(padded, NEIGHBOURS)
        seen = np.isfinite(windows).sum(1) >= MIN_SHIFTED
        level, size = np.full(len(windows), np.nan), np.full(len(windows), np.nan)
        level[seen] = np.nanmedian(windows[seen], axis=1)
        size[seen] = np.nanmax(windows[seen], axis=1) - np.nanmin(windows[seen], axis=1)
        change = level[NEIGHBOURS:] - level[:-NEIGHBOURS]  # after minus before each time
        least = np.maximum(size[NEIGHBOURS:], size[:-NEIGHBOURS])
        least = np.maximum(least, SHIFT * _spread(np.abs(change[None]))[0])[1:n]
        found = (step[i] > edge[i]) & (np.abs(change[1:n]) > np.maximum(least, 0.5 * step[i]))
        places = np.flatnonzero(found) + 1
        if len(places) == 1 and places[0] <= last:
            out[i, : places[0]] = -change[places[0]]
    return out


def _spread(sizes: np.ndarray) -> np.ndarray:
    """`(S, 1)` robust standard deviation of errors of these sizes; zero for unknown ones."""
    some = np.isfinite(sizes).any(1)
    out = np.zeros((len(sizes), 1))
    # In a series with many equal values the median deviation is too small a measure of spread.
    middle, ninth = np.nanquantile(sizes[some], (0.5, 0.9), axis=1)
    out[some, 0] = np.maximum(1.4826 * middle, ninth / 1.645)
    return out


def _excess(residual: np.ndarray) -> np.ndarray:
    """`(S, n)` amount by which outliers exceed the limit; zero for all other values."""
    side = NEIGHBOURS // 2
    padded = np.pad(residual, ((0, 0), (side, side)), constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, NEIGHBOURS, axis=1)
    seen = np.isfinite(residual)
    around = np.zeros_like(residual)
    around[seen] = np.nanmedian(windows[seen], axis=-1)
    off = np.where(seen, residual - around, 0.0)
    edge = OUTLIER * _spread(np.where(seen, np.abs(off), np.nan))
    far = (np.abs(off) > edge) & (edge > 0)
    # The last value may be the first of a new level.
    far[:, -1] = False
    return np.where(far, off - np.sign(off) * edge / 2, 0.0)
