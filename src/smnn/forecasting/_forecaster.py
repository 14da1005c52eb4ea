"""`Forecaster`: fit, predict, and say what was found."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from smnn.forecasting._forecast import Forecast
from smnn.forecasting._model.model import Group, Model, fit_model
from smnn.forecasting._model.panel import Panel, without_outliers
from smnn.forecasting._model.seasons import Season, SeasonChoice, choose_seasons
from smnn.forecasting._model.spec import Spec
from smnn.forecasting._model.system import trajectories
from smnn.forecasting._time import Clock, SeriesError, make_clock
from smnn.forecasting._values import Values, read_inputs, read_values
from smnn.forecasting._words import Equation, describe

TRENDS = ("auto", "none", "linear", "damped")
FEWEST = 4
"""Observations of a series below which there is nothing to learn."""


class Forecaster:
    r"""Forecast one or many series by linear ODEs whose terms can be read.

    A series is a trend, seasonal oscillators, a damped anomaly and, where the data show one, a free
    oscillation, each a linear ODE; the fit is the least-squares trajectory that `smnn.solve` finds
    between these equations and the observations. Which equation (how much damping, which trend, how
    long a memory, logarithms or not) is decided by forecasting the past from several origins; the
    best of each kind are blended. Where series belong together, modes that they share couple them.
    Intervals come from the errors at those origins, of a single series by blends chosen without
    them.

    Args:
        season: `"auto"`, `None`, `"year"`, `"week"`, `"day"`, a length in the unit of `t` (in steps
            for dates), or several of these. `"auto"` takes what the calendar offers; without dates,
            a period that the data clearly repeat with.
        harmonics: Of each season; chosen from its length if `None`.
        trend: `"auto"`, `"none"`, `"linear"`, or `"damped"`.
        log: Whether to model logarithms; `None` tries both where all values are positive.
        modes: `"auto"`, 0 for none, or how many modes couple the series.
        nonnegative: Whether forecasts and intervals end at zero; `None` does so for each series
            that was never negative.
        same_units: Whether all series are measured alike, as the cells of a grid are: then large
            variations count more. `None` assumes so for arrays with more than two axes.
        origins: From how many past times the equations are tested; a few series are tested from up
            to three times as many.
        level: Probability that prediction intervals are meant to hold.

    Examples:
        >>> import numpy as np
        >>> from smnn.forecasting import Forecaster
        >>> t = np.arange(120)
        >>> y = 10 + 0.1 * t + 3 * np.sin(2 * np.pi * t / 12)
        >>> forecast = Forecaster(season=12).fit(y, horizon=12).predict()
        >>> bool(
        ...     np.abs(
        ...         forecast.mean - (22 + 0.1 * t[:12] + 3 * np.sin(2 * np.pi * t[:12] / 12))
        ...     ).max()
        ...     < 0.05
        ... )
        True
    """

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
        level: float = 0.9,
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
        """The arguments, as scikit-learn asks for them."""
        del deep
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Forecaster:
        """Change arguments, as scikit-learn does."""
        for name, value in params.items():
            if name not in self.get_params():
                raise ValueError(f"{name!r} is not an argument of Forecaster.")
            setattr(self, name, value)
        return self

    def fit(
        self, y: Any, t: Any = None, *, horizon: int | None = None, inputs: Any = None
    ) -> Forecaster:
        """Learn from a history.

        Args:
            y: `(N,)`, `(N, S)` or `(N, ...)`, time first; a pandas `Series` or `DataFrame`; an
                xarray `DataArray` with a dimension `time`. NaN is missing.
            t: `(N,)` times: dates or numbers, at any spacing. Taken from `y` if it brings them, and
                counted otherwise.
            horizon: How many steps will be forecast: equations are tested at this distance. Two
                seasons if `None`, at most a quarter of the history.
            inputs: `(N, I)` influences that are known in advance (holidays, prices); `predict` then
                needs their future.

        Raises:
            SeriesError: Something does not fit; says what was got and what was expected.
        """
        self._check()
        values = read_values(y, t)
        clock = make_clock(values.t, len(values.array))
        rows = values.rows
        counts = np.isfinite(rows).sum(1)
        seen = counts >= FEWEST
        if not counts.any():
            raise SeriesError("y: every value is missing. There is nothing to learn from.")
        if not seen.any():
            raise SeriesError(
                f"y: got {counts.max()} observation{'' if counts.max() == 1 else 's'}; expected at "
                f"least {FEWEST}. A forecast needs a history."
            )
        if not seen.all() and len(values.shape) < 2:
            empty = [values.names[i] for i in np.flatnonzero(~seen)[:3]]
            warnings.warn(
                f"{int((~seen).sum())} of {len(seen)} series have fewer than {FEWEST} values "
                f"({', '.join(empty)}); their forecasts are missing.",
                stacklevel=2,
            )
        seasons = choose_seasons(self.season, clock, rows[seen], self.harmonics)
        horizon = _default_horizon(len(clock), seasons) if horizon is None else int(horizon)
        if not 1 <= horizon <= len(clock):
            raise SeriesError(
                f"horizon: got {horizon}; expected from 1 to {len(clock)} steps: nobody sees "
                "farther ahead than the history goes back."
            )
        self._inputs_scale: tuple[np.ndarray, np.ndarray] | None = None
        scaled = None
        if inputs is not None:
            raw = read_inputs(inputs, len(clock), "time of the history")
            spread = raw.std(0)
            self._inputs_scale = raw.mean(0), np.where(spread > 0, spread, 1.0)
            scaled = (raw - self._inputs_scale[0]) / self._inputs_scale[1]
        same = len(values.shape) > 1 if self.same_units is None else self.same_units
        panel = Panel(
            rows[seen],
            rows[seen],
            clock,
            seasons,
            scaled,
            series_scale(rows[seen], same),
            same,
            horizon,
        )
        self._values: Values = values
        self._seen = seen
        below = ~(np.nan_to_num(rows[seen]) < 0).any(1)
        self._floored = below if self.nonnegative is None else np.full(seen.sum(), self.nonnegative)
        self._model: Model = fit_model(
            without_outliers(panel),
            origins=self.origins, trend=self.trend, log=self.log, modes=self.modes,
        )  # fmt: skip
        self.horizon_ = horizon
        self.seasons_: Sequence[Season] = seasons
        self.origins_ = [int(o) for o in self._model.origins]
        return self

    def predict(
        self, horizon: int | None = None, *, inputs: Any = None, level: float | None = None
    ) -> Forecast:
        """Forecast what comes after the history.

        Args:
            horizon: Steps ahead; that of `fit` if `None`.
            inputs: `(horizon, I)` future of the inputs that `fit` was given.
            level: Of the prediction intervals.
        """
        model = self._fitted()
        horizon = self.horizon_ if horizon is None else int(horizon)
        if horizon < 1:
            raise SeriesError(f"horizon: got {horizon}; expected at least 1 step.")
        ahead = self._future_inputs(inputs, horizon)
        count = len(model.panel.clock)
        future = model.panel.clock.after(horizon)
        parts, _ = model.parts(count, future, ahead)
        mean = np.sum(list(parts.values()), axis=0)
        level = self.level if level is None else level

        def interval(p: float) -> tuple[np.ndarray, np.ndarray]:
            width = model.calibration.width(p, horizon)
            return self._shaped(self._units(mean - width)), self._shaped(self._units(mean + width))

        lower, upper = interval(level)
        log = np.zeros(len(self._seen), dtype=bool)
        log[self._seen] = model.log
        return Forecast(
            future.stamps,
            self._shaped(self._units(mean)),
            lower,
            upper,
            level,
            {name: self._shaped(part) for name, part in parts.items()},
            log.reshape(self._values.shape),
            self._values.names,
            interval,
        )

    def history(self) -> np.ndarray:
        """`(N, *shape)` the trajectory of each series' leading equation over the history."""
        model = self._fitted()
        N = len(model.panel.clock)
        past = model.panel.history(N, model.window)
        out = np.full((len(model.panel.values), N), np.nan)
        for group in model.groups:
            ((system, centre, _),) = group.panel.states([group.lead], past, self._now(past))
            y = group.panel.worked(past, group.lead.log) - centre
            fitted = centre + (trajectories(system, y) * system.h).sum(-1)
            out[group.rows, past] = np.exp(fitted) if group.lead.log else fitted
        return self._shaped(out)

    def equation(self, series: int | str = 0) -> Equation:
        """The leading equation of one series in words and numbers.

        Args:
            series: Its name, or its place in the flattened shape.
        """
        model = self._fitted()
        place = self._place(series)
        if not self._seen[place]:
            return Equation(self._values.names[place], ("no value to learn from",))
        row = int(self._seen[:place].sum())
        group = next(g for g in model.groups if row in g.rows)
        mine = int(np.flatnonzero(group.rows == row)[0])
        past = model.panel.history(len(model.panel.clock), model.window)
        spec = _leading(group, mine)
        ((system, centre, states),) = group.panel.states([spec], past, self._now(past))
        matrix = None
        if model.modes is not None:
            _, modes = model.parts(len(model.panel.clock), model.panel.clock.after(1), self._none())
            assert modes is not None
            matrix = modes.matrix(max(model.mode_counts(len(model.panel.clock))))
        share = float(group.weights.get(spec, np.zeros(len(group.rows)))[mine])
        return describe(
            self._values.names[place], spec, system, float(centre[mine, 0]), states[mine],
            model.panel.clock[past], self.seasons_, share, matrix,
        )  # fmt: skip

    def _check(self) -> None:
        if self.trend not in TRENDS:
            raise SeriesError(f"trend: got {self.trend!r}; expected one of {', '.join(TRENDS)}.")
        if not 0 < self.level < 1:
            raise SeriesError(f"level: got {self.level}; expected a probability, such as 0.9.")
        if self.modes != "auto" and not (isinstance(self.modes, int) and self.modes >= 0):
            raise SeriesError(f"modes: got {self.modes!r}; expected 'auto' or a number from 0 on.")
        if self.origins < 1:
            raise SeriesError(f"origins: got {self.origins}; expected at least 1.")

    def _fitted(self) -> Model:
        if not hasattr(self, "_model"):
            raise RuntimeError("this Forecaster has not been fitted; call fit(y) first.")
        return self._model

    def _place(self, series: int | str) -> int:
        names = self._values.names
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

    def _now(self, past: slice) -> Clock:
        return self._model.panel.clock[past].after(1)

    def _none(self) -> np.ndarray | None:
        """Inputs at their mean, where only the equation is wanted."""
        return None if self._inputs_scale is None else np.zeros((1, len(self._inputs_scale[0])))

    def _future_inputs(self, inputs: Any, horizon: int) -> np.ndarray | None:
        if self._inputs_scale is None:
            if inputs is not None:
                raise SeriesError("inputs: fit was given none, so they mean nothing here.")
            return None
        if inputs is None:
            raise SeriesError("inputs: fit was given some; predict needs their future values.")
        raw = read_inputs(inputs, horizon, "step ahead")
        if raw.shape[1] != len(self._inputs_scale[0]):
            raise SeriesError(
                f"inputs: got {raw.shape[1]}; expected {len(self._inputs_scale[0])}, as in fit."
            )
        out: np.ndarray = (raw - self._inputs_scale[0]) / self._inputs_scale[1]
        return out

    def _units(self, x: np.ndarray) -> np.ndarray:
        """From the modelled scale to that of the data."""
        log = self._model.log[:, None]
        out = np.where(log, np.exp(np.where(log, np.minimum(x, 700.0), 0.0)), x)
        return np.where(self._floored[:, None], np.maximum(out, 0.0), out)

    def _shaped(self, x: np.ndarray) -> np.ndarray:
        """`(S, H)` to `(H, *shape)`, NaN for series without values."""
        out = np.full((len(self._seen), x.shape[1]), np.nan)
        out[self._seen] = x
        return out.T.reshape(x.shape[1], *self._values.shape)


def _leading(group: Group, mine: int) -> Spec:
    """The equation with the largest share in one series."""
    shares = {m: w[mine] for m, w in group.weights.items() if isinstance(m, Spec)}
    best = max(shares, key=lambda m: shares[m]) if shares else group.lead
    return best if shares.get(best, 0.0) > 0 else group.lead


def series_scale(rows: np.ndarray, same: bool) -> np.ndarray:
    """`(S, 1)` spread of each series, or the typical one of all."""
    seen = np.isfinite(rows)
    count = np.maximum(seen.sum(1, keepdims=True), 1)
    mean = np.where(seen, rows, 0.0).sum(1, keepdims=True) / count
    variance = np.where(seen, rows - mean, 0.0) ** 2
    square = variance.sum(1, keepdims=True) / count
    if same:
        square = np.full_like(square, square.mean())
    return np.where(square > 0, np.sqrt(square), 1.0)


def _default_horizon(count: int, seasons: Sequence[Season]) -> int:
    longest = max((s.length for s in seasons), default=0.0)
    wanted = round(2 * longest) if longest else 24
    return int(max(1, min(wanted, count // 4)))
