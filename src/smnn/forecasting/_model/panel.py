"""The data of a fit: series on one time axis, cleaned and scaled, and forecasts in their units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from smnn.forecasting._model.seasons import Season
from smnn.forecasting._model.spec import CLIMATOLOGY, TREND, WEAK, Spec
from smnn.forecasting._model.system import System, end_states, make_system, same_gaps
from smnn.forecasting._time import Clock

OUTLIER = 8.0
"""Robust standard deviations from its neighbours that make a single value an outlier."""
NEIGHBOURS = 7
ENOUGH_TO_SHARE = 8
"""Series from which a common slope is learned."""


@dataclass(frozen=True)
class Repeat:
    """The last season again: no equation, but hard to beat where the season changes its shape."""

    length: float
    """In steps."""
    log: bool = False

    @property
    def complexity(self) -> float:
        """As of a `Spec`: it follows every change of the last season."""
        return 1.0


Member = Spec | Repeat


@dataclass(frozen=True)
class Panel:
    """Series on one time axis."""

    values: np.ndarray
    """`(S, N)` observations without outliers, NaN where missing."""
    raw: np.ndarray
    """`(S, N)` observations as given: what forecasts are held against."""
    clock: Clock
    seasons: Sequence[Season]
    inputs: np.ndarray | None
    """`(N, I)` standardised, for the history."""
    scale: np.ndarray
    """`(S, 1)` spread of each series, or of all of them if they share a unit."""
    same_units: bool
    """Whether all series are measured alike."""
    horizon: int
    """Steps that forecasts are wanted for: what a damped slope goes by."""
    _waves: dict[tuple[float, float, int], list[np.ndarray]] = field(
        default_factory=dict, repr=False, compare=False
    )
    """Seasonal columns at times that were asked for before."""

    @property
    def positive(self) -> bool:
        """Whether logarithms can be taken."""
        return bool((np.isnan(self.values) | (self.values > 0)).all())

    @property
    def span(self) -> float:
        """Steps of the whole history."""
        return max(float(self.clock.steps[-1] - self.clock.steps[0]), 1.0)

    @property
    def longest(self) -> float:
        """Season in steps, or 0."""
        return max((s.length for s in self.seasons), default=0.0)

    def part(self, rows: np.ndarray) -> Panel:
        """Some of the series."""
        return replace(self, values=self.values[rows], raw=self.raw[rows], scale=self.scale[rows])

    def history(self, count: int, window: int) -> slice:
        """The times that a forecast from origin `count` learns from."""
        return slice(max(0, count - window), count)

    def system(
        self, spec: Spec, past: slice, future: Clock, inputs_ahead: np.ndarray | None
    ) -> System:
        """The rows of a candidate on a part of the history."""
        inputs = None if self.inputs is None else self.inputs[past]
        clock = self.clock[past]
        waves = (self._seasonal(clock), self._seasonal(future)) if spec.seasonal else ([], [])
        return make_system(
            spec, clock, future, self.seasons if spec.seasonal else [], inputs, inputs_ahead,
            fade=max(self.horizon / 2, 1.0), span=self.span, waves=waves,
        )  # fmt: skip

    def _seasonal(self, clock: Clock) -> list[np.ndarray]:
        """`(n, 2 * harmonics)` columns of each season."""
        key = (float(clock.steps[0]), float(clock.steps[-1]), len(clock))
        if key not in self._waves:
            self._waves[key] = [season.waves(clock) for season in self.seasons]
        return self._waves[key]

    def ahead(
        self, members: Sequence[Member], past: slice, future: Clock,
        inputs_ahead: np.ndarray | None = None,
    ) -> list[np.ndarray]:  # fmt: skip
        """`(S, H)` forecast by each member from the end of `past`; of logarithms if it says so."""
        specs = [m for m in members if isinstance(m, Spec)]
        solved = dict(zip(specs, self.states(specs, past, future, inputs_ahead)))
        out = []
        for member in members:
            if isinstance(member, Repeat):
                out.append(self._repeated(member, past, future))
            else:
                system, centre, states = solved[member]
                out.append(centre + states @ system.ahead.T)
        return out

    def states(
        self, specs: Sequence[Spec], past: slice, future: Clock,
        inputs_ahead: np.ndarray | None = None,
    ) -> list[tuple[System, np.ndarray, np.ndarray]]:  # fmt: skip
        """For each candidate its rows, the centre `(S, 1)` and the terms `(S, V)` at the end."""
        out: dict[Spec, tuple[System, np.ndarray, np.ndarray]] = {}
        for log in {spec.log for spec in specs}:
            chosen = [spec for spec in specs if spec.log == log]
            y = self.worked(past, log)
            seen = np.isfinite(y)
            total = np.where(seen, y, 0.0).sum(1, keepdims=True)
            centre = total / np.maximum(seen.sum(1, keepdims=True), 1)
            y = y - centre
            systems = [self.system(spec, past, future, inputs_ahead) for spec in chosen]
            pulled = [i for i, system in enumerate(systems) if self._shares(system)]
            free = dict.fromkeys(replace(chosen[i], pull=WEAK) for i in pulled)
            nowhere = self.clock[past][:1]
            freed = [self.system(spec, past, nowhere, None) for spec in free]
            states = end_states([*systems, *freed], y)
            if pulled:
                slopes = dict(zip(free, states[len(systems) :]))
                self._share_slopes([systems[i] for i in pulled], states, pulled, slopes, seen)
            out |= {
                spec: (system, centre, state)
                for spec, system, state in zip(chosen, systems, states)
            }  # fmt: skip
        return [out[spec] for spec in specs]

    def _shares(self, system: System) -> bool:
        """Whether slopes are pulled to that of all series together."""
        pulled = bool(system.index("slope")) and system.spec.pull > WEAK
        return pulled and len(self.values) >= ENOUGH_TO_SHARE

    def _share_slopes(
        self, systems: Sequence[System], states: list[np.ndarray], places: Sequence[int],
        free: Mapping[Spec, np.ndarray], seen: np.ndarray,
    ) -> None:  # fmt: skip
        """Let slopes be pulled to the typical one instead of to zero.

        Taking the typical slope off the observations changes the terms by what a straight line
        alone would give, because they are linear in the observations.
        """
        alike, others = same_gaps(seen)
        rows = [*alike, *(np.array([i]) for i in others)]
        for system, place in zip(systems, places):
            (slope,) = system.index("slope")
            freely = free[replace(system.spec, pull=WEAK)][:, slope, None]
            shared = float(np.median(freely / self.scale)) * self.scale
            line = np.stack([np.where(seen[r[0]], system.h[:, slope], np.nan) for r in rows])
            (response,) = end_states([system], line)
            for r, change in zip(rows, response):
                states[place][r] -= shared[r] * change
            states[place][:, slope] += shared[:, 0]

    def worked(self, past: slice, log: bool) -> np.ndarray:
        """`(S, n)` the series or their logarithms."""
        y = self.values[:, past]
        return np.log(y) if log else y

    def _repeated(self, member: Repeat, past: slice, future: Clock) -> np.ndarray:
        y = filled(self.worked(past, member.log))
        steps = self.clock.steps[past]
        back = np.ceil((future.steps - steps[-1] - 1e-9) / member.length) * member.length
        at = np.abs((future.steps - back)[:, None] - steps).argmin(1)
        return y[:, at]


def filled(y: np.ndarray) -> np.ndarray:
    """Gaps closed by straight lines; a series without any value becomes zero."""
    y = y.copy()
    for i in np.flatnonzero(~np.isfinite(y).all(1)):
        row = y[i]
        seen = np.isfinite(row)
        if seen.any():
            row[~seen] = np.interp(np.flatnonzero(~seen), np.flatnonzero(seen), row[seen])
        else:
            row[:] = 0.0
    return y


def without_outliers(panel: Panel) -> Panel:
    """Single values far from their neighbours brought back to the edge of what is usual.

    A value is compared with the median of its neighbours after trend and seasons are taken off, so
    that a change of level, a peak of the season or a run of high values stays what it is.
    """
    n = panel.values.shape[1]
    if n < 3 * NEIGHBOURS:
        return panel
    base = TREND if n > 3 * panel.longest else CLIMATOLOGY
    past = slice(0, n)
    ((system, centre, states),) = panel.states([base], past, panel.clock.after(1))
    rest = panel.values - centre - states @ system.h.T
    values = panel.values.copy()
    for i in range(0, len(rest), 512):
        values[i : i + 512] -= _excess(rest[i : i + 512])
    return replace(panel, values=values)


def _excess(rest: np.ndarray) -> np.ndarray:
    """`(S, n)` how far single values lie beyond what is usual; zero for all others."""
    side = NEIGHBOURS // 2
    padded = np.pad(rest, ((0, 0), (side, side)), constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, NEIGHBOURS, axis=1)
    seen = np.isfinite(rest)
    around = np.zeros_like(rest)
    around[seen] = np.nanmedian(windows[seen], axis=-1)
    off = np.where(seen, rest - around, 0.0)
    sizes = np.where(seen, np.abs(off), np.nan)
    some = seen.any(1)
    spread = np.zeros((len(rest), 1))
    spread[some, 0] = 1.4826 * np.nanmedian(sizes[some], axis=1)
    # The median is its own neighbour in a calm series, so the middle half alone may be too narrow.
    ninth = np.zeros((len(rest), 1))
    ninth[some, 0] = np.nanquantile(sizes[some], 0.9, axis=1) / 1.645
    edge = OUTLIER * np.maximum(spread, ninth)
    far = (np.abs(off) > edge) & (edge > 0)
    # The last value may be the first of a new level: nobody can tell yet.
    far[:, -1] = False
    return np.where(far, off - np.sign(off) * edge / 2, 0.0)
