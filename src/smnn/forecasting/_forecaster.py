"""The `Forecaster` estimator."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from smnn._util.names import explained
from smnn.forecasting import _storage
from smnn.forecasting._equation import Equation, describe
from smnn.forecasting._forecast import Forecast
from smnn.forecasting._history import History, read_history, read_inputs
from smnn.forecasting._model.intervals import Interval, Scale
from smnn.forecasting._model.model import Model, Part, fit_parts
from smnn.forecasting._model.panel import Panel
from smnn.forecasting._model.periods import interpolated
from smnn.forecasting._model.seasons import Season
from smnn.forecasting._model.spec import Spec
from smnn.forecasting._seasons import SeasonChoice, choose_seasons
from smnn.forecasting._time import SeriesError
from smnn.forecasting._view import charts, report
from smnn.report.charts import Chart
from smnn.report.display import Displayable, Overview, chosen
from smnn.report.numbers import probabilities

TRENDS = ("auto", "none", "linear", "damped")
STATE = (
    "_parts", "_scale", "_names", "_history", "_inputs_scale", "horizon_", "seasons_", "origins_",
)  # fmt: skip
"""Attributes of a fitted forecaster."""
MIN_OBSERVATIONS = 4
"""Smallest number of observations of a series that is fitted."""


class Forecaster(Displayable):
    r"""Forecast one or many series by interpretable linear ODEs.

    A series is modelled as the sum of a trend, seasonal oscillators and a damped anomaly. Each is a
    linear ODE; the fit is the least-squares trajectory between these equations and the
    observations. The equation (damping, type of trend, seasons, logarithms or not) is selected by
    rolling-origin cross-validation, and the best equations of each kind are blended with
    exponential smoothings. Related series can be coupled
    by shared modes. Prediction intervals are calibrated by the cross-validation errors; for a
    single series, these are errors of blends chosen without the origin in question.

    Args:
        season: `"auto"`, `None`, `"year"`, `"week"`, `"day"`, a length in the unit of `t` (in steps
            for dates), or several of these. `"auto"` uses the cycles of the calendar; without
            dates, a period that is statistically significant.
        harmonics: Harmonics per season; chosen from its length if `None`.
        trend: `"auto"`, `"none"`, `"linear"`, or `"damped"`.
        log: Whether to model logarithms; `None` selects this by cross-validation where all values
            are positive.
        modes: `"auto"`, 0 for none, or the number of modes that couple the series.
        nonnegative: Whether to clip forecasts and intervals at zero; `None` does so for each series
            without negative values.
        same_units: Whether all series have the same unit, as the cells of a grid do; errors are
            then not normalized per series. `None` assumes so for arrays with more than two axes.
        origins: Number of origins for cross-validation; up to three times as many are used for a
            few series.
        level: Nominal coverage of the prediction intervals: a probability, or several, or per cent
            as in `[80, 95]`.

    Examples:
        >>> import numpy as np
        >>> from smnn.forecasting import Forecaster
        >>> t = np.arange(120)
        >>> y = 10 + 0.1 * t + 3 * np.sin(2 * np.pi * t / 12)
        >>> forecast = Forecaster(season=12).fit(y, horizon=12).predict()
        >>> expected = 22 + 0.1 * t[:12] + 3 * np.sin(2 * np.pi * t[:12] / 12)
        >>> bool(np.abs(forecast.mean - expected).max() < 0.05)
        True
    """

    @explained
    def __init__(
        self,
        *,
        season: SeasonChoice = "auto",
        harmonics: int | None = None,
        trend: str = "auto",
        log: bool | None = None,
        modes: int | str = "auto",
        nonnegative: bool | None = None,
        same_units: bool | None = None,
        origins: int = 8,
        level: float | Sequence[float] = 0.9,
    ) -> None:
        self.season = season
        self.harmonics = harmonics
        self.trend = trend
        self.log = log
        self.modes = modes
        self.nonnegative = nonnegative
        self.same_units = same_units
        self.origins = origins
        self.level = level

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor arguments, following the scikit-learn convention."""
        del deep
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Forecaster:
        """Set constructor arguments, following the scikit-learn convention."""
        for name, value in params.items():
            if name not in self.get_params():
                raise ValueError(f"{name!r} is not a parameter of Forecaster.")
            setattr(self, name, value)
        return self

    def fit(
        self,
        y: Any,
        t: Any = None,
        *,
        horizon: int | None = None,
        h: int | None = None,
        inputs: Any = None,
        **reading: Any,
    ) -> Forecaster:
        """Fit the model to a history.

        Args:
            y: `(N,)`, `(N, S)` or `(N, ...)`, time first; a data frame with a column for each
                series, or a long one with columns such as `unique_id`, `ds` and `y`; an xarray
                `DataArray` with a dimension `time`; the path of a table. NaN is missing.
            t: `(N,)` times: dates or numbers, at any spacing; or the name of the time column of a
                table. `None` uses the index or the time column of `y`, or counts steps if it has
                none.
            horizon: Number of steps to forecast; equations are selected for this horizon. `None`
                uses two seasons, but at most a quarter of the history.
            h: The same as `horizon`.
            inputs: `(N, I)` exogenous inputs that are known in advance (holidays, prices);
                `predict` then requires their future values.
            **reading: Arguments of `smnn.data.read` for a file or frame, such as `time="date"`,
                `series="shop"` or `columns=["sales"]`.

        Raises:
            SeriesError: If the data or an argument cannot be used.
        """
        history = read_history(y, t, reading)
        self._fit(history, _one_of(horizon, h), inputs)
        if text := self._not_fitted():
            warnings.warn(text, stacklevel=2)
        return self

    def _fit(self, history: History, horizon: int | None, inputs: Any) -> None:
        self._check()
        clock, rows = history.clock, history.rows
        fitted = _enough_observations(rows)
        rows = rows[fitted]
        if self.log and (rows <= 0).any():
            name = history.names[np.flatnonzero(fitted)[(rows <= 0).any(1).argmax()]]
            raise SeriesError(
                f"log: got True, but series {name!r} has values that are not positive. Use "
                "log=None, or add a constant to the series."
            )
        groups = choose_seasons(self.season, clock, rows, self.harmonics)
        seasons = list(dict.fromkeys(s for _, own in groups for s in own))
        horizon = _default_horizon(len(clock), seasons) if horizon is None else int(horizon)
        if not 1 <= horizon <= len(clock):
            raise SeriesError(
                f"horizon: got {horizon}; expected from 1 to {len(clock)} steps, the length of the "
                "history."
            )
        self._inputs_scale: tuple[np.ndarray, np.ndarray] | None = None
        if inputs is not None:
            inputs = read_inputs(inputs, len(clock), "time of the history")
            spread = inputs.std(0)
            self._inputs_scale = inputs.mean(0), np.where(spread > 0, spread, 1.0)
            inputs = (inputs - self._inputs_scale[0]) / self._inputs_scale[1]
        same = share_units(self, history)
        scale = series_scale(rows, same)
        panel = Panel(rows, rows, clock, seasons, inputs, scale, same, horizon)
        # Forecasts of poor candidates may overflow; their errors are then infinite.
        with np.errstate(over="ignore", invalid="ignore"):
            parts = fit_parts(
                panel, groups,
                origins=self.origins, trend=self.trend, log=self.log, modes=self.modes,
            )  # fmt: skip
        log = np.zeros(len(rows), dtype=bool)
        for part in parts:
            log[part.rows] = part.model.log
        floored = ~(rows < 0).any(1)
        if self.nonnegative is not None:
            floored = np.full(len(rows), self.nonnegative)
        self._parts: list[Part] = parts
        self._scale = Scale(log, floored, fitted, history.shape)
        self._names, self._history = history.names, history
        self.horizon_ = horizon
        self.seasons_: Sequence[Season] = seasons
        first = max(parts, key=lambda part: len(part.rows)).model
        self.origins_ = [len(clock) - len(first.panel.clock) + int(o) for o in first.origins]

    @explained
    def predict(
        self,
        horizon: int | None = None,
        *,
        h: int | None = None,
        inputs: Any = None,
        level: float | Sequence[float] | None = None,
    ) -> Forecast:
        """Forecast the times after the history.

        Args:
            horizon: Number of steps; that of `fit` if `None`.
            h: The same as `horizon`.
            inputs: `(horizon, I)` future values of the inputs given to `fit`.
            level: Nominal coverage of the intervals, as in the constructor, which is the default.
        """
        parts, horizon = self._fitted(), _one_of(horizon, h)
        horizon = self.horizon_ if horizon is None else int(horizon)
        if horizon < 1:
            raise SeriesError(f"horizon: got {horizon}; expected at least 1 step.")
        ahead = self._future_inputs(inputs, horizon)
        future = self._history.clock.after(horizon)
        scale = self._scale
        terms: dict[str, np.ndarray] = {}
        for part in parts:
            found, _ = part.model.parts(future, ahead)
            for name, values in found.items():
                out = terms.setdefault(name, np.zeros((len(scale.log), horizon)))
                out[part.rows] = values
        mean = np.sum(list(terms.values()), axis=0)
        levels = probabilities(self.level if level is None else level)
        known = [(p.rows, p.model.calibration) for p in parts if p.model.calibration is not None]
        interval = Interval(mean, known, scale)
        lower, upper = interval(levels[-1])
        log = np.zeros(len(scale.fitted), dtype=bool)
        log[scale.fitted] = scale.log
        return Forecast(
            future.stamps,
            scale.units(mean),
            lower,
            upper,
            levels[-1],
            {name: scale.shaped(part) for name, part in terms.items()},
            log.reshape(scale.shape),
            self._names,
            levels,
            interval,
            copy.copy(self),
        )

    def report(self, path: str | Path, *, name: str = "series") -> Path:
        """Write an HTML page with the forecast and the equations, as `Forecast.report`.

        Args:
            path: File to write.
            name: Name of the data, for the title.
        """
        return self.predict().report(path, name=name)

    def to_frame(self) -> Any:
        """Return the forecast over the horizon of `fit` as a frame, as `Forecast.to_frame`."""
        return self.predict().to_frame()

    def save(self, path: str | Path) -> Path:
        """Save the fitted forecaster as one safetensors file; no code is stored in it."""
        self._fitted()
        state = {name: getattr(self, name) for name in STATE}
        return _storage.write(path, {"parameters": self.get_params(), "state": state})

    @classmethod
    def load(cls, path: str | Path) -> Forecaster:
        """Load a forecaster that `save` wrote.

        Raises:
            SeriesError: If the file is damaged or is no such file.
        """
        record = _storage.read(path)
        try:
            self = cls(**record["parameters"])
            self._check()
            vars(self).update({name: record["state"][name] for name in STATE})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SeriesError(f"{path} cannot be used: {error}.") from None
        return self

    def _charts(self, names: Sequence[str] | None) -> list[Chart]:
        self._fitted()
        shown = chosen(names, self._names, report.SOME_SHOWN, "series")
        return charts.fitted_curves(self._history, self.history(), shown)

    def _overview(self) -> Overview:
        self._fitted()
        return report.forecaster_overview(self)

    def _repr_html_(self) -> str:
        return super()._repr_html_() if hasattr(self, "_parts") else f"<code>{self!r}</code>"

    def __repr__(self) -> str:
        defaults = type(self)().get_params()
        changed = {k: v for k, v in self.get_params().items() if v != defaults[k]}
        return f"Forecaster({', '.join(f'{k}={v!r}' for k, v in changed.items())})"

    def history(self) -> np.ndarray:
        """`(N, *shape)` fitted trajectory of each series' leading equation over the history."""
        parts, count = self._fitted(), len(self._history.clock)
        out, rows = np.full((len(self._scale.log), count), np.nan), self._history.rows
        rows = rows[self._scale.fitted]
        for part in parts:
            model = part.model
            fitted = model.panel.fitted(model.lead, model.window)
            given, used = (y[:, -len(fitted[0]) :] for y in (rows[part.rows], model.panel.raw))
            out[part.rows, count - len(fitted[0]) :] = _on_levels_of(given, used, fitted)
        return self._scale.shaped(out)

    def equation(self, series: int | str = 0) -> Equation:
        """Describe the leading equation of one series.

        Args:
            series: Its name, or its index in the flattened shape.
        """
        parts = self._fitted()
        place = self._index(series)
        name = self._names[place]
        if not self._scale.fitted[place]:
            return Equation(name, (f"not fitted: fewer than {MIN_OBSERVATIONS} values",))
        row = int(self._scale.fitted[:place].sum())
        part = next(part for part in parts if row in part.rows)
        model, own = part.model, int(np.flatnonzero(part.rows == row)[0])
        spec, panel = _leading(model, own), model.panel
        (fit,) = panel.fit([spec], [len(panel.clock)], model.window)
        matrix = None
        if model.modes is not None:
            # Inputs do not change the modes: use their mean.
            inputs = (
                None if self._inputs_scale is None else np.zeros((1, len(self._inputs_scale[0])))
            )
            _, modes = model.parts(panel.clock.after(1), inputs)
            assert modes is not None
            matrix = modes.matrix(max(model.mode_counts()))
        share = float(model.weights[spec][own])
        return describe(name, panel, fit.part(slice(own, own + 1), spec), share, matrix)

    def _not_fitted(self) -> str:
        """Warning about series that were not fitted, if there are any outside of a grid."""
        few = np.flatnonzero(~self._scale.fitted)
        if not len(few) or len(self._scale.shape) > 1:
            return ""
        names = ", ".join(self._names[i] for i in few[:3]) + ", ..." * (len(few) > 3)
        return (
            f"{len(few)} of {len(self._names)} series have fewer than {MIN_OBSERVATIONS} values "
            f"({names}); their forecasts are missing."
        )

    def _check(self) -> None:
        if self.trend not in TRENDS:
            raise SeriesError(f"trend: got {self.trend!r}; expected one of {', '.join(TRENDS)}.")
        try:
            probabilities(self.level)
        except ValueError as error:
            raise SeriesError(str(error)) from None
        if self.modes != "auto" and not (isinstance(self.modes, int) and self.modes >= 0):
            raise SeriesError(
                f"modes: got {self.modes!r}; expected 'auto' or a non-negative integer."
            )
        if self.origins < 1:
            raise SeriesError(f"origins: got {self.origins}; expected at least 1.")

    def _fitted(self) -> list[Part]:
        if not hasattr(self, "_parts"):
            raise RuntimeError("this Forecaster has not been fitted; call fit(y) first.")
        return self._parts

    def _index(self, series: int | str) -> int:
        names = self._names
        if isinstance(series, str):
            if series not in names:
                raise SeriesError(
                    f"series: no {series!r}; there are {', '.join(names[:5])}"
                    f"{' and more' if len(names) > 5 else ''}."
                )
            return names.index(series)
        if not -len(names) <= series < len(names):
            raise SeriesError(f"series: got {series}; there are {len(names)}, counted from 0.")
        return series % len(names)

    def _future_inputs(self, inputs: Any, horizon: int) -> np.ndarray | None:
        if self._inputs_scale is None:
            if inputs is not None:
                raise SeriesError("inputs: got some, but fit was given none.")
            return None
        if inputs is None:
            raise SeriesError("inputs: got none, but fit was given some; pass their future values.")
        values = read_inputs(inputs, horizon, "step ahead")
        if values.shape[1] != len(self._inputs_scale[0]):
            raise SeriesError(
                f"inputs: got {values.shape[1]}; expected {len(self._inputs_scale[0])}, as in fit."
            )
        out: np.ndarray = (values - self._inputs_scale[0]) / self._inputs_scale[1]
        return out


def _one_of(horizon: int | None, h: int | None) -> int | None:
    """The horizon under either of its names."""
    if horizon is not None and h is not None and horizon != h:
        raise SeriesError(f"horizon: got {horizon} and h={h}; expected one of them.")
    return h if horizon is None else horizon


def _enough_observations(rows: np.ndarray) -> np.ndarray:
    """`(S,)` which series have enough observations to be fitted.

    Raises:
        SeriesError: If none has.
    """
    counts = np.isfinite(rows).sum(1)
    most = int(counts.max())
    if not most:
        raise SeriesError("y: every value is missing; expected at least one observed series.")
    enough: np.ndarray = counts >= MIN_OBSERVATIONS
    if not enough.any():
        raise SeriesError(
            f"y: got {most} observation{'s' * (most != 1)}; expected at least "
            f"{MIN_OBSERVATIONS}. A forecast needs a longer history."
        )
    return enough


def _on_levels_of(given: np.ndarray, used: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    """Move `fitted` back to the level of the data `given`, which was moved to that of `used`."""
    positive = (np.isnan(used) | (used > 0)).all(1, keepdims=True)
    factor = interpolated(np.where(positive, given / np.where(positive, used, 1.0), 1.0))
    return np.asarray(fitted * factor + interpolated(np.where(positive, 0.0, given - used)))


def _leading(model: Model, own: int) -> Spec:
    """The equation with the largest weight in the forecast of one series."""
    best = max(model.weights, key=lambda spec: model.weights[spec][own])
    return best if model.weights[best][own] > 0 else model.lead


def share_units(forecaster: Forecaster, history: History) -> bool:
    """Whether all series have the same unit; by default those of a grid."""
    same = forecaster.same_units
    return len(history.shape) > 1 if same is None else same


def series_scale(rows: np.ndarray, same: bool) -> np.ndarray:
    """`(S, 1)` standard deviation of each series, or the root mean square of all if `same`."""
    seen = np.isfinite(rows)
    count = np.maximum(seen.sum(1, keepdims=True), 1)
    mean = np.where(seen, rows / count, 0.0).sum(1, keepdims=True)
    off = np.where(seen, rows - mean, 0.0)
    size = max(float(np.abs(off).max()), 1e-300)  # large values have no squares
    square = ((off / size) ** 2).sum(1, keepdims=True) / count
    if same:
        square = np.full_like(square, square.mean())
    return np.where(square > 0, size * np.sqrt(square), 1.0)


def _default_horizon(count: int, seasons: Sequence[Season]) -> int:
    longest = max((s.length for s in seasons), default=0.0)
    wanted = round(2 * longest) if longest else 24
    return int(max(1, min(wanted, count // 4)))
