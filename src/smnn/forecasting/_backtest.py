"""Back-test: forecasts from past origins, compared with simple references."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smnn._util.files import write_atomically
from smnn._util.machine import describe_machine
from smnn._util.optional import require
from smnn.forecasting._forecaster import (
    MIN_OBSERVATIONS,
    Forecaster,
    series_scale,
    share_units,
)
from smnn.forecasting._history import History, nanmean, read_history, read_inputs
from smnn.forecasting._model.panel import Panel
from smnn.forecasting._model.search import spread_over_phases
from smnn.forecasting._references import references
from smnn.forecasting._seasons import choose_seasons
from smnn.forecasting._time import SeriesError, make_clock
from smnn.forecasting._view import charts, report
from smnn.forecasting._view.report import ForecastReport
from smnn.report.charts import Chart
from smnn.report.display import Displayable, Overview, chosen
from smnn.report.numbers import probabilities

OURS = "forecaster"
ORIGINS, MANY_SERIES, FEWER_ORIGINS = 8, 1000, 4
"""Default number of origins; the last for more than `MANY_SERIES` series."""
FEW_ORIGINS = 4
"""A back-test with fewer origins causes a warning."""
COVERAGE = (0.75, 0.99)
"""Coverage of 90 % intervals outside of which there is a warning; scaled for other levels."""
WORSE = 1.02
"""Ratio of the error to that of a reference above which there is a warning."""


@dataclass(frozen=True)
class Backtest(Displayable):
    """Errors of forecasts from several origins, each based only on the data before its origin."""

    origins: tuple[int, ...]
    """Lengths of the history that the forecasts used."""
    names: tuple[str, ...]
    """Names of the series."""
    errors: dict[str, np.ndarray]
    """`(O, S, H)` forecast minus observation by method, in units of `scale`; NaN if there is no
    observation, or if the series has too few observations before the origin."""
    inside: np.ndarray
    """`(O, S, H)` 1 if the observation is inside the interval, 0 if outside, NaN as in `errors`."""
    level: float
    """Nominal coverage of the intervals."""
    scale: np.ndarray
    """`(S,)` standard deviation of each series (a common value if they share a unit)."""
    step: str = "step"
    """Name of a step of the forecasts, such as `month`."""

    def rmse(self, method: str = OURS) -> float:
        """Root mean square error relative to `scale`, over origins, series and leads."""
        return float(np.sqrt(self._square(method, (0, 1, 2))))

    def by_lead(self, method: str = OURS) -> np.ndarray:
        """`(H,)` root mean square error of each lead."""
        return np.sqrt(self._square(method, (0, 1)))

    def by_series(self, method: str = OURS) -> np.ndarray:
        """`(S,)` root mean square error of each series."""
        return np.sqrt(self._square(method, (0, 2)))

    def skill(
        self, against: str = "climatology", leads: slice = slice(None), method: str = OURS
    ) -> float:
        """1 minus the ratio of the mean square errors; 1 is perfect, 0 equals the reference.

        Args:
            against: The reference.
            leads: The leads to include, counted from 0.
            method: The method to compare with the reference.
        """
        ours, theirs = (float(self._square(m, (0, 1, 2), leads)) for m in (method, against))
        return 1 - ours / theirs if theirs > 0 else float("nan")

    def _square(self, method: str, axes: tuple[int, ...], leads: slice = slice(None)) -> np.ndarray:
        """Mean square error over some axes."""
        with np.errstate(over="ignore"):  # an absurd forecast has an infinite error
            return nanmean(self.errors[method][..., leads] ** 2, axes)

    @property
    def coverage(self) -> float:
        """Fraction of the observations inside their intervals."""
        return float(nanmean(self.inside, (0, 1, 2)))

    def coverage_by_lead(self) -> np.ndarray:
        """`(H,)` fraction of the observations inside their intervals."""
        return nanmean(self.inside, (0, 1))

    def coverage_by_series(self) -> np.ndarray:
        """`(S,)` fraction of the observations inside their intervals."""
        return nanmean(self.inside, (0, 2))

    @property
    def methods(self) -> list[str]:
        """The forecaster, followed by the references by increasing error."""
        others = [m for m in self.errors if m != OURS]
        return [OURS, *sorted(others, key=self.rmse)]

    @property
    def best_reference(self) -> str:
        """The reference with the smallest error over all series."""
        return self.methods[1]

    @property
    def ratio(self) -> float:
        """Error relative to that of the best reference; NaN if that is zero."""
        return float(_ratio(np.array(self.rmse()), np.array(self.rmse(self.best_reference))))

    def ratio_by_series(self) -> np.ndarray:
        """`(S,)` error of each series relative to that of the best reference; NaN if unknown."""
        return _ratio(self.by_series(), self.by_series(self.best_reference))

    def worst_series(self, most: int | None = None) -> list[int]:
        """Indices of the series by decreasing `ratio_by_series`, without unknown ones."""
        ratio = self.ratio_by_series()
        order = np.argsort(-ratio, kind="stable")  # NaN last
        return [int(i) for i in order[:most] if np.isfinite(ratio[i])]

    def warnings(self) -> list[str]:
        """Reasons to distrust the forecast: a better reference, poor coverage, few origins."""
        out = []
        best = self.best_reference
        if self.rmse() > WORSE * max(self.rmse(best), 1e-300):
            out.append(
                f"in the back-test the simple reference '{best}' was better: its error is "
                f"{100 * self.rmse(best) / self.rmse():.0f} % of that of this forecast. Consider "
                "using it"
            )
        ratio = self.ratio_by_series()
        worse = int((ratio > WORSE).sum())
        if len(self.names) > 1 and worse:
            worst = self.worst_series(1)[0]
            out.append(
                f"the reference '{best}' was better for {worse} of {len(self.names)} series; the "
                f"worst is '{self.names[worst]}' with {100 * ratio[worst]:.0f} % of its error"
            )
        low, high = (1 - (1 - x) * (1 - self.level) / 0.1 for x in COVERAGE)
        if not low <= self.coverage <= high:
            out.append(
                f"the {100 * self.level:.0f} % intervals contained {100 * self.coverage:.0f} % of "
                "the observations: their width is unreliable"
            )
        if (count := len(self.origins)) < FEW_ORIGINS:
            out.append(
                f"the back-test has only {count} origin{'s' * (count != 1)}: its results are "
                "uncertain"
            )
        return out

    def to_frame(self) -> Any:
        """Return a pandas `DataFrame` with a row for each series and method.

        `rmse` is relative to the standard deviation of the series, `ratio` relative to the best
        reference; `coverage` is that of the intervals of the forecaster.
        """
        pandas = require("pandas", "make a data frame")
        best = self.by_series(self.best_reference)
        parts = []
        for method in self.methods:
            error = self.by_series(method)
            inside = self.coverage_by_series() if method == OURS else np.nan
            columns = {"unique_id": self.names, "method": method, "rmse": error}
            parts.append({**columns, "ratio": _ratio(error, best), "coverage": inside})
        return pandas.concat(map(pandas.DataFrame, parts), ignore_index=True)

    def report(self, path: str | Path) -> Path:
        """Write an HTML page with the results by method, lead and series."""
        return write_atomically(Path(path), report.backtest_page(self))

    def _charts(self, names: Sequence[str] | None) -> list[Chart]:
        parts = charts.by_lead(self)
        return [parts[i] for i in chosen(names, [x.title for x in parts], 2, "charts")]

    def _overview(self) -> Overview:
        return report.backtest_overview(self)

    def record(self, most_series: int | None = None) -> dict[str, Any]:
        """Return the results as a dictionary that can be written as JSON.

        Args:
            most_series: Limit on the series listed under `by_series`; the worst come first.
        """
        error, ratio = self.by_series(), self.ratio_by_series()
        inside = self.coverage_by_series()
        return {
            "origins": list(self.origins),
            "level": self.level,
            "coverage": self.coverage,
            "rmse": {m: self.rmse(m) for m in self.methods},
            "skill_against_climatology": self.skill(),
            "rmse_by_lead": {m: [float(x) for x in self.by_lead(m)] for m in self.methods},
            "best_reference": self.best_reference,
            "by_series": {
                self.names[i]: {
                    "rmse": float(error[i]),
                    "ratio_to_best_reference": float(ratio[i]),
                    "coverage": float(inside[i]),
                }
                for i in np.argsort(-ratio, kind="stable")[:most_series]
            },
        }


def backtest(
    y: Any,
    t: Any = None,
    *,
    horizon: int,
    origins: int | Sequence[int] | None = ORIGINS,
    forecaster: Forecaster | None = None,
    inputs: Any = None,
    tick: Callable[[int], None] | None = None,
) -> Backtest:
    """Refit at several past origins and compare the forecasts with the observations.

    Args:
        y: As for `Forecaster.fit`.
        t: As for `Forecaster.fit`.
        horizon: Number of steps to forecast.
        origins: Number of origins, evenly spaced over the second half of the history and over the
            phases of its seasons, or the lengths of history to use. `None` chooses 8, or 4 for more
            than 1,000 series.
        forecaster: Forecaster to test; a default one if `None`.
        inputs: As for `Forecaster.fit`.
        tick: Called after each origin with the number of origins done.

    Raises:
        SeriesError: If the history is too short, or an argument cannot be used.
    """
    forecaster = Forecaster() if forecaster is None else forecaster
    return run_backtest(read_history(y, t), horizon, origins, forecaster, inputs, tick)


def run_backtest(
    history: History, horizon: int, origins: int | Sequence[int] | None, forecaster: Forecaster,
    inputs: Any = None, tick: Callable[[int], None] | None = None,
) -> Backtest:  # fmt: skip
    """As `backtest`, for a history that has been read."""
    rows, clock = history.rows, history.clock
    if origins is None:
        origins = ORIGINS if len(rows) <= MANY_SERIES else FEWER_ORIGINS
    groups = choose_seasons(forecaster.season, clock, rows, forecaster.harmonics)
    seasons = sorted({season.length for _, own in groups for season in own})
    chosen = _choose_origins(origins, len(clock), horizon, seasons)
    usable = np.isfinite(rows[:, : max(chosen)]).sum(1) >= MIN_OBSERVATIONS
    if not (np.isfinite(rows[:, : min(chosen)]).sum(1) >= MIN_OBSERVATIONS).any():
        raise SeriesError(
            f"y: no series has {MIN_OBSERVATIONS} values before the first origin, entry "
            f"{min(chosen)}. Shorten the horizon or use fewer origins."
        )
    rows = rows[usable]
    names = tuple(n for n, used in zip(history.names, usable) if used)
    same = share_units(forecaster, history)
    scale = series_scale(rows, same)
    if inputs is not None:
        inputs = read_inputs(inputs, len(clock), "time of the history")
    errors: dict[str, list[np.ndarray]] = {}
    inside = []
    for done, origin in enumerate(chosen, 1):
        past, ahead = slice(0, origin), slice(origin, origin + horizon)
        known = History(rows[:, past].T, make_clock(clock.stamps[past], origin), names)
        fitted = Forecaster(**{**forecaster.get_params(), "same_units": same})
        fitted._fit(known, horizon, None if inputs is None else inputs[past])
        forecast = fitted.predict(inputs=None if inputs is None else inputs[ahead])
        mean, low, high = (x.T for x in (forecast.mean, forecast.lower, forecast.upper))
        # A series without enough history at this origin is scored for no method.
        truth = np.where(np.isnan(mean), np.nan, rows[:, ahead])
        seen = np.isfinite(truth)
        inside.append(np.where(seen, (truth >= low) & (truth <= high), np.nan))
        panel = Panel(rows, rows, clock, [], None, scale, same, horizon)
        simple = _references(panel, forecaster, origin)
        for method, values in {OURS: mean, **simple}.items():
            errors.setdefault(method, []).append((values - truth) / scale)
        if tick is not None:
            tick(done)
    complete = {m: np.stack(e) for m, e in errors.items() if len(e) == len(chosen)}
    level, step = probabilities(forecaster.level)[-1], clock.unit()
    return Backtest(tuple(chosen), names, complete, np.stack(inside), level, scale[:, 0], step)


def _references(panel: Panel, forecaster: Forecaster, origin: int) -> dict[str, np.ndarray]:
    """Reference forecasts `(S, H)` of all series, each with its own seasons."""
    past, (future, _) = slice(0, origin), panel.after(origin)
    clock, rows = panel.clock[past], panel.values[:, past]
    groups = choose_seasons(forecaster.season, clock, rows, forecaster.harmonics)
    found = [references(panel.part(own, 0, seasons), origin, future) for own, seasons in groups]
    order = np.argsort(np.concatenate([own for own, _ in groups]))
    common = [name for name in found[0] if all(name in each for each in found)]
    return {name: np.concatenate([each[name] for each in found])[order] for name in common}


def _choose_origins(
    origins: int | Sequence[int], count: int, horizon: int, seasons: Sequence[float]
) -> list[int]:
    if horizon < 1:
        raise SeriesError(f"horizon: got {horizon}; expected at least 1 step.")
    if not isinstance(origins, int):
        wrong = [o for o in origins if not 2 <= o <= count - horizon]
        if wrong or not len(origins):
            raise SeriesError(
                f"origins: got {list(origins)}; expected lengths of history from 2 to "
                f"{count - horizon}, so that {horizon} steps remain for the comparison."
            )
        return [int(o) for o in origins]
    last, first = count - horizon, max(count // 2, 8)
    if origins < 1 or last < first:
        raise SeriesError(
            f"a back-test of {horizon} steps needs a history of at least {2 * horizon + 8} times; "
            f"there are {count}. Shorten the horizon."
        )
    stride = max(1, (last - first) // max(origins - 1, 1))
    stride = spread_over_phases(stride, origins, seasons)
    return [last - i * stride for i in range(origins) if last - i * stride >= first]


def _ratio(error: np.ndarray, reference: np.ndarray) -> np.ndarray:
    out: np.ndarray = np.where(reference > 0, error / np.where(reference > 0, reference, 1), np.nan)
    return out


def make_report(
    y: Any,
    t: Any = None,
    *,
    forecaster: Forecaster | None = None,
    horizon: int | None = None,
    origins: int | Sequence[int] | None = None,
    name: str = "series",
    command: str = "",
    tick: Callable[[int], None] | None = None,
) -> ForecastReport:
    """Fit, forecast and back-test, and gather the results for presentation.

    Args:
        y: As for `Forecaster.fit`.
        t: As for `Forecaster.fit`.
        forecaster: The forecaster to fit; a default one if `None`.
        horizon: As for `Forecaster.fit`.
        origins: As for `backtest`; 0 skips the back-test.
        name: Name of the data, for titles.
        command: Command line that repeats the forecast.
        tick: As for `backtest`.

    Raises:
        SeriesError: If the data or an argument cannot be used.
    """
    start = time.perf_counter()
    forecaster = Forecaster() if forecaster is None else forecaster
    history = read_history(y, t)
    forecaster._fit(history, horizon, None)
    not_fitted = forecaster._not_fitted()
    test, skipped = None, "no origins were requested"
    if origins is None or origins:
        try:
            test = run_backtest(history, forecaster.horizon_, origins, forecaster, tick=tick)
            skipped = ""
        except SeriesError as error:  # the history is too short
            skipped = str(error)
    return ForecastReport(
        name, y, history, forecaster, forecaster.predict(), test, skipped,
        (not_fitted,) if not_fitted else (), command, time.perf_counter() - start,
        describe_machine(),
    )  # fmt: skip
