"""The data of a fit: series on one time axis, cleaned and scaled; forecasts by candidates."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from smnn.forecasting._model.periods import interpolated
from smnn.forecasting._model.regression import Fit, Term, fit_all, trajectory
from smnn.forecasting._model.seasons import Season
from smnn.forecasting._model.smoothing import Grid, make_grid
from smnn.forecasting._model.spec import CLIMATOLOGY, MAX_LOG, TREND, Spec
from smnn.forecasting._time import Clock

OUTLIER = 8.0
"""Robust standard deviations from its neighbours beyond which a single value is an outlier."""
NEIGHBOURS = 7
SHIFT = 6.0
"""Robust standard deviations of the other steps beyond which a step may be a change of level."""
MIN_SHIFTED = 3
"""Observations on both sides of a change of level."""
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
        return out if seasons is None else replace(out, seasons=seasons)

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

    @property
    def terms(self) -> list[Term]:
        """What the columns of the regression are."""
        waves = [(s.name, s.waves(self.clock[:1]).shape[1]) for s in self.seasons]
        inputs = 0 if self.inputs is None else self.inputs.shape[1]
        return [
            Term("level"), Term("slope"),
            *(Term("season", name) for name, count in waves for _ in range(count)),
            *(Term("input", str(j)) for j in range(inputs)),
        ]  # fmt: skip

    def columns(self, clock: Clock, inputs: np.ndarray | None) -> np.ndarray:
        """`(n, P)` columns of the regression at some times; the slope is zero at the last time."""
        slope = (clock.steps - self.clock.steps[-1]) / self.unit
        parts = [np.ones((len(clock), 1)), slope[:, None]]
        parts += [season.waves(clock) for season in self.seasons]
        if self.inputs is not None:
            empty = np.zeros((len(clock), self.inputs.shape[1]))
            parts.append(empty if inputs is None else inputs)
        return np.concatenate(parts, axis=1)

    @property
    def unit(self) -> float:
        """Steps over which the column of the slope increases by one."""
        return self.span / np.sqrt(12.0)  # unit variance over the span

    @functools.cached_property
    def _past(self) -> np.ndarray:
        return self.columns(self.clock, self.inputs)

    def fit(self, specs: Sequence[Spec], origins: Sequence[int], window: int) -> list[Fit]:
        """Fit candidates to the last `window` times before each origin."""
        if not specs:
            return []
        S, part = len(self.values), slice(max(0, min(origins) - window), max(origins))
        logs = sorted({spec.log for spec in specs})
        y = [self.transformed(part, log) for log in logs]
        plain = list(dict.fromkeys(replace(spec, log=False) for spec in specs))
        fits = fit_all(
            y[0] if len(y) == 1 else np.concatenate(y), self.clock.steps[part], self.terms,
            self._past[part], plain, [o - part.start for o in origins], window,
        )  # fmt: skip
        found = dict(zip(plain, fits))
        own = {log: slice(i * S, (i + 1) * S) for i, log in enumerate(logs)}
        return [found[replace(spec, log=False)].part(own[spec.log], spec) for spec in specs]

    def ahead(self, fit: Fit, origins: Sequence[int]) -> np.ndarray:
        """`(O, S, H)` forecasts of a candidate, fitted at these origins, up to the horizon."""
        rows = np.minimum(
            np.asarray(origins)[:, None] + np.arange(self.horizon), len(self.clock) - 1
        )
        steps, ends = self.clock.steps[rows], self.clock.steps[np.asarray(origins) - 1]
        columns = self._faded(fit.spec, self._past[rows], steps, ends)[..., fit.used]
        out = fit.coefficients @ columns.swapaxes(1, 2) + fit.centre
        if fit.spec.ratio > 0:
            lead = steps - ends[:, None]
            out += fit.anomaly[..., None] * fit.spec.decay ** lead[:, None]
        return np.asarray(out)

    def components(
        self, fit: Fit, count: int, future: Clock, inputs: np.ndarray | None
    ) -> dict[str, np.ndarray]:
        """`(S, H)` contribution of each kind of term to the forecast of a fit at one origin."""
        end = self.clock.steps[count - 1 : count]
        columns = self.columns(future, inputs)[None]
        columns = self._faded(fit.spec, columns, future.steps[None], end)[0]
        out = {"trend": np.repeat(fit.centre, len(future), axis=1)}
        for j, place in enumerate(fit.used):
            part = fit.coefficients[0, :, j, None] * columns[:, place]
            name = self.terms[place].part
            out[name] = out[name] + part if name in out else part
        if fit.spec.ratio > 0:
            out["anomaly"] = fit.anomaly[0][:, None] * fit.spec.decay ** (future.steps - end)
        return out

    def _faded(
        self, spec: Spec, columns: np.ndarray, steps: np.ndarray, ends: np.ndarray
    ) -> np.ndarray:
        """Columns `(O, H, P)` of a forecast, in which a damped slope decays."""
        if spec.trend != "damped":
            return columns
        fade = max(self.horizon / 2, 1.0)
        run = -np.expm1(-(steps - ends[:, None]) / fade) * fade
        columns = columns.copy()
        columns[..., 1] = (ends[:, None] + run - self.clock.steps[-1]) / self.unit
        return columns

    def residual(self, spec: Spec, past: slice) -> np.ndarray:
        """`(S, n)` residual from the constant terms of a candidate, NaN where missing."""
        (fit,) = self.fit([spec], [past.stop], past.stop - past.start)
        return self.without_constants(fit, past)

    def without_constants(self, fit: Fit, past: slice, place: int = 0) -> np.ndarray:
        """`(S, n)` series without the constant terms of a fit at one of its origins."""
        constant = fit.coefficients[place] @ self._past[past][:, fit.used].T
        return np.asarray(self.transformed(past, fit.spec.log) - fit.centre - constant)

    def fitted(self, spec: Spec, window: int) -> np.ndarray:
        """`(S, n)` least-squares trajectory of a candidate over the last times of the history."""
        past = self.history(len(self.clock), window)
        (fit,) = self.fit([spec], [past.stop], window)
        constant = fit.centre + fit.coefficients[0] @ self._past[past][:, fit.used].T
        y = self.transformed(past, spec.log) - constant
        out = constant + trajectory(y, self.clock.steps[past], spec)
        return np.asarray(np.exp(out) if spec.log else out)

    def grid(self, future: Clock) -> Grid | None:
        """The evenly spaced times that contain those of the history; `None` if there are none."""
        return make_grid(self.clock, future, self.seasons)

    def on_grid(self, grid: Grid, log: np.ndarray) -> np.ndarray:
        """`(S, n)` series, or their logarithms where `log (S,)` is true, on the times of a grid."""
        y = self.values
        if log.any():
            positive = np.where(y > 0, y, np.nan)
            y = np.where(log[:, None], np.log(positive), y)
        if grid.size == y.shape[1]:
            return y
        out = np.full((len(y), grid.size), np.nan)
        out[:, grid.places] = y
        return out

    def lagged(self, x: np.ndarray, past: slice) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of values one typical step apart; zeros where either is missing."""
        pairs = np.abs(np.diff(self.clock.steps[past]) - 1.0) < 0.25
        before, after = x[:, :-1][:, pairs], x[:, 1:][:, pairs]
        both = np.isfinite(before) & np.isfinite(after)
        return np.where(both, before, 0.0), np.where(both, after, 0.0)

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
