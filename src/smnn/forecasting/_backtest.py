"""Forecasting the past: how good a forecaster is, beside simple references, and how honest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from smnn.forecasting._forecaster import Forecaster, series_scale
from smnn.forecasting._model.panel import Panel
from smnn.forecasting._model.references import references
from smnn.forecasting._model.seasons import choose_seasons
from smnn.forecasting._time import SeriesError, make_clock
from smnn.forecasting._values import read_inputs, read_values

OURS = "forecaster"


@dataclass(frozen=True)
class Backtest:
    """Errors of forecasts from several origins, each made without anything after its origin."""

    origins: tuple[int, ...]
    """How many times each forecast had seen."""
    names: tuple[str, ...]
    """Of the series."""
    errors: dict[str, np.ndarray]
    """`(O, S, H)` forecast minus observation by method, in units of `scale`; NaN if unobserved."""
    inside: np.ndarray
    """`(O, S, H)` 1 where the observation lay in the interval, 0 where not, NaN if unobserved."""
    level: float
    """What the intervals were meant to hold."""
    scale: np.ndarray
    """`(S,)` spread of each series (one and the same where they share a unit)."""

    def rmse(self, method: str = OURS) -> float:
        """Root mean square error relative to the spread, over origins, series and leads."""
        return float(np.sqrt(np.nanmean(self.errors[method] ** 2)))

    def by_lead(self, method: str = OURS) -> np.ndarray:
        """`(H,)` root mean square error."""
        return np.sqrt(_mean(self.errors[method] ** 2, (0, 1)))

    def by_series(self, method: str = OURS) -> np.ndarray:
        """`(S,)` root mean square error."""
        return np.sqrt(_mean(self.errors[method] ** 2, (0, 2)))

    def skill(self, against: str = "climatology", leads: slice = slice(None)) -> float:
        """1 minus the ratio of mean square errors: 1 is perfect, 0 no better than the reference."""
        ours, theirs = (np.nanmean(self.errors[m][..., leads] ** 2) for m in (OURS, against))
        return float(1 - ours / theirs) if theirs > 0 else float("nan")

    @property
    def coverage(self) -> float:
        """Part of the observations inside their intervals."""
        return float(np.nanmean(self.inside))

    @property
    def methods(self) -> list[str]:
        """The forecaster first, then the references from the best to the worst."""
        others = [m for m in self.errors if m != OURS]
        return [OURS, *sorted(others, key=self.rmse)]

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "origins": list(self.origins),
            "level": self.level,
            "coverage": self.coverage,
            "rmse": {m: self.rmse(m) for m in self.methods},
            "skill_against_climatology": self.skill(),
            "rmse_by_lead": {m: [float(x) for x in self.by_lead(m)] for m in self.methods},
        }


def backtest(
    y: Any,
    t: Any = None,
    *,
    horizon: int,
    origins: int | Sequence[int] = 8,
    forecaster: Forecaster | None = None,
    inputs: Any = None,
    tick: Callable[[int], None] | None = None,
) -> Backtest:
    """Refit at several past origins and compare with what came, beside simple references.

    Args:
        y: As for `Forecaster.fit`.
        t: As for `Forecaster.fit`.
        horizon: Steps ahead.
        origins: How many, evenly spaced over the second half of the history; or lengths of history.
        forecaster: What to test; a default one if `None`.
        inputs: As for `Forecaster.fit`.
        tick: Called after each origin with the number of origins done.
    """
    forecaster = Forecaster() if forecaster is None else forecaster
    values = read_values(y, t)
    clock = make_clock(values.t, len(values.array))
    chosen = _origins(origins, len(clock), horizon)
    rows = values.rows
    alive = np.isfinite(rows[:, : min(chosen)]).any(1)
    if not alive.any():
        raise SeriesError("y: no series has a value before the first origin.")
    rows = rows[alive]
    names = tuple(n for n, a in zip(values.names, alive) if a)
    same = len(values.shape) > 1 if forecaster.same_units is None else forecaster.same_units
    scale = series_scale(rows, same)
    known = None if inputs is None else read_inputs(inputs, len(clock), "time of the history")
    errors: dict[str, list[np.ndarray]] = {}
    inside = []
    for done, origin in enumerate(chosen, 1):
        history, truth = rows[:, :origin], rows[:, origin : origin + horizon]
        fitted = Forecaster(**{**forecaster.get_params(), "same_units": same})
        before = None if known is None else known[:origin]
        after = None if known is None else known[origin : origin + horizon]
        fitted.fit(history.T, clock.stamps[:origin], horizon=horizon, inputs=before)
        forecast = fitted.predict(inputs=after)
        mean, low, high = (x.T for x in (forecast.mean, forecast.lower, forecast.upper))
        seen = np.isfinite(truth)
        inside.append(np.where(seen, (truth >= low) & (truth <= high), np.nan))
        seasons = choose_seasons(forecaster.season, clock[:origin], history, forecaster.harmonics)
        panel = Panel(rows, rows, clock, seasons, None, scale, same, horizon)
        found = references(panel, origin, clock[origin : origin + horizon])
        for method, ahead in {OURS: mean, **found}.items():
            errors.setdefault(method, []).append((ahead - truth) / scale)
        if tick is not None:
            tick(done)
    everywhere = {m: np.stack(e) for m, e in errors.items() if len(e) == len(chosen)}
    return Backtest(
        tuple(chosen), names, everywhere, np.stack(inside), forecaster.level, scale[:, 0]
    )


def _origins(origins: int | Sequence[int], count: int, horizon: int) -> list[int]:
    if horizon < 1:
        raise SeriesError(f"horizon: got {horizon}; expected at least 1 step.")
    if not isinstance(origins, int):
        wrong = [o for o in origins if not 2 <= o <= count - horizon]
        if wrong or not len(origins):
            raise SeriesError(
                f"origins: got {list(origins)}; expected lengths of history from 2 to "
                f"{count - horizon}, which leave {horizon} steps to compare with."
            )
        return [int(o) for o in origins]
    last, first = count - horizon, max(count // 2, 8)
    if origins < 1 or last < first:
        raise SeriesError(
            f"a back-test of {horizon} steps needs a history of at least {2 * horizon + 8} times; "
            f"there are {count}. Shorten the horizon."
        )
    stride = max(1, (last - first) // max(origins - 1, 1))
    return [last - i * stride for i in range(origins) if last - i * stride >= first]


def _mean(square: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    seen = np.isfinite(square)
    total = np.where(seen, square, 0.0).sum(axes)
    out: np.ndarray = np.where(seen.any(axes), total / np.maximum(seen.sum(axes), 1), np.nan)
    return out
