"""Continuation of discovered equations beyond the data, with prediction intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from smnn.discovery._arrays import Array, Flags
from smnn.discovery._fit.data import DataError
from smnn.discovery._fit.model import (
    COOPER_VERNER,
    ESCAPE,
    MAP,
    OdeModel,
    StepGrid,
    flow,
    flow_with_derivatives,
)
from smnn.report.charts import Band, Chart, Line
from smnn.report.display import Displayable, Overview, chosen
from smnn.report.numbers import probabilities, significant
from smnn.report.tables import forecast_frame

if TYPE_CHECKING:
    from smnn.data import Table
    from smnn.discovery._estimator import Discovery

DRAWS = 500
"""Number of simulations that the intervals are made from."""
MOST_ROWS = 2000
"""Last rows of the data that determine the last state."""
SUBSTEPS = 2
WIDE = 10.0
"""Prior standard deviation of the filter, in typical sizes of states and coefficients."""
MOST_CHARTS = 12
EXACT = 1e-9
"""Smallest measurement noise relative to the size of a state, for data without noise."""


@dataclass(frozen=True)
class EquationForecast(Displayable):
    """Equations continued beyond the data; made by `Discovery.forecast`."""

    t: np.ndarray
    """`(H,)` times: dates, if the data have dates."""
    mean: np.ndarray
    """`(H, V)` simulation with the estimated coefficients; NaN after it has diverged."""
    lower: np.ndarray
    """`(H, V)` lower bounds of the prediction intervals at the largest level."""
    upper: np.ndarray
    """`(H, V)` upper bounds."""
    levels: tuple[float, ...]
    """Nominal coverage of the intervals that `to_frame` lists, increasing."""
    names: tuple[str, ...]
    """Names of the variables."""
    warnings: tuple[str, ...]
    """What the fit warned about; the intervals do not include errors of the equations."""
    time_label: str
    _draws: np.ndarray = field(repr=False, compare=False)
    _history: tuple[np.ndarray, np.ndarray] = field(repr=False, compare=False)

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds at another level, `(H, V)` each; infinite if draws diverge."""
        (share,) = probabilities(level)
        last = len(self._draws) - 1
        low = round(last * (0.5 - share / 2))
        return self._draws[low], self._draws[last - low]

    def to_frame(self) -> Any:
        """Return a pandas `DataFrame` with columns unique_id, ds, smnn, smnn-lo-90, smnn-hi-90."""
        bounds = {level: self.interval(level) for level in self.levels}
        return forecast_frame(self.names, self.t, self.mean, bounds)

    def _charts(self, names: Sequence[str] | None) -> list[Chart]:
        t, values = self._history
        parts = []
        for v in chosen(names, self.names, MOST_CHARTS, "variables"):
            label = f"{100 * self.levels[-1]:.4g} % interval"
            bands = [Band(self.t, self.lower[:, v], self.upper[:, v], label, 1)]
            lines = [
                Line(t, values[:, v], "data", 6, "dots"),
                Line(self.t, self.mean[:, v], "forecast", 1),
            ]
            parts.append(Chart(self.names[v], lines, self.time_label, bands=bands))
        return parts

    def _overview(self) -> Overview:
        items = [(f"{len(self.t)} steps", f"from {_shown(self.t[0])} to {_shown(self.t[-1])}")]
        for v in chosen(None, self.names, MOST_CHARTS, "variables"):
            low, mean, high = (
                significant(float(x[-1, v])) for x in (self.lower, self.mean, self.upper)
            )
            meaning = f"at the end, {100 * self.levels[-1]:.4g} % interval {low} to {high}"
            items.append((f"{self.names[v]} = {mean}", meaning))
        return Overview("Continued equations", "", (), items, self.warnings)


def continue_equations(
    model: Discovery, h: int, level: float | Sequence[float], series: str | int | None, inputs: Any,
    time_axis: Callable[[Table], tuple[Callable[[Any], Any], str]],
) -> EquationForecast:  # fmt: skip
    """Simulate a model and draws of its coefficients from the last state of a series."""
    table = model.table_
    if table is None:
        raise DataError("the model has no fitted states; it was loaded from a file.")
    if model.lag_ is not None:
        raise DataError("equations with a delay have no forecast; use simulate.")
    if isinstance(h, bool) or int(h) != h or h < 1:
        raise DataError(f"h: got {h!r}; expected a number of steps, at least 1.")
    i = index_of(table.series, series)
    last = float(model.times_[i][-1])
    t: Array = last + model.step_ * np.arange(int(h) + 1, dtype=np.float64)
    driving = None
    if model.inputs_:
        driving = np.concatenate([table.inputs[i][-1:], model._input_rows(inputs, int(h))])
    elif inputs is not None:
        raise DataError("inputs: got some, but the equations have none.")
    mean = model.simulate(model.states_[i][-1], t, driving, series=i)
    V = len(table.names)  # without a hidden variable
    draws = simulate_draws(model, i, t, driving)[..., :V]
    bounds = probabilities(level)
    x, label = time_axis(table)
    tail = slice(-max(4 * int(h), 60), None)
    made = EquationForecast(
        x(t[1:]), mean[1:, :V], mean, mean, bounds, tuple(table.names), tuple(model.warnings_),
        label, draws, (x(model.times_[i][tail]), table.values[i][tail]),
    )  # fmt: skip
    lower, upper = made.interval(bounds[-1])
    return EquationForecast(**{**vars(made), "lower": lower, "upper": upper})


def simulate_draws(model: Discovery, i: int, t: Array, inputs: Array | None) -> Array:
    """`(DRAWS, H, V)` sorted future measurements; infinite where a simulation diverged."""
    ode, U = model._model(i), model._driving(inputs, t, len(t))
    rng = np.random.default_rng(model.random_state)
    deviation = model.deviation_[:, model._used_terms(i)[1]]
    free = (ode.Xi != 0) & (deviation > 0)
    root = _root(_covariance(model, i, ode, deviation, free))
    D, V = len(model.state_names_), len(model.variables_)
    shifts = rng.normal(size=(DRAWS, len(root))) @ root.T
    Z = model.states_[i][-1] + model.scale_ * shifts[:, :D]
    Xi = np.repeat(ode.Xi[None], DRAWS, 0)
    Xi[:, free] += deviation[free] * shifts[:, D:]
    sampled = _Sampled(ode, Xi)
    out = np.full((DRAWS, len(t) - 1, V), np.nan)
    with np.errstate(all="ignore"):
        for k, steps in enumerate(_steps(t, U, model.kind)):
            wide = StepGrid(np.repeat(steps.h, DRAWS), np.repeat(steps.U, DRAWS, 0), steps.method)
            Z = flow(sampled, Z, wide)  # type: ignore[arg-type]
            Z[~(np.abs(Z) < ESCAPE * model.scale_).all(1)] = np.nan
            out[:, k] = Z[:, :V]
    out += model.noise_ * rng.normal(size=out.shape)
    signs = np.where(np.arange(DRAWS) % 2 == 0, np.inf, -np.inf)[:, None, None]
    return np.sort(np.where(np.isnan(out), signs, out), axis=0)


class _Sampled(NamedTuple):
    """A right-hand side with different coefficients for every state."""

    model: OdeModel
    Xi: Array  # (draws, V, P)

    def rate(self, Z: Array, U: Array) -> Array:
        a = np.einsum("nvp,np->nv", self.Xi, self.model.terms.evaluate(np.concatenate([Z, U], -1)))
        top = a if self.model.link is None else self.model.link.value(a)
        return np.concatenate([Z[:, self.Xi.shape[1] :], top], -1)


def _steps(t: Array, U: Array, kind: str) -> list[StepGrid]:
    """One step between each time and the next, with inputs interpolated linearly."""
    if kind == "map":
        return [StepGrid(np.ones(1), U[k : k + 1, None, None], MAP) for k in range(len(t) - 1)]
    c = COOPER_VERNER.c
    at = (np.arange(SUBSTEPS)[:, None] + c) / SUBSTEPS  # (substeps, stages)
    between = U[:-1, None, None] + at[:, :, None] * np.diff(U, axis=0)[:, None, None]
    h = np.diff(t)
    return [StepGrid(h[k : k + 1], between[k : k + 1], COOPER_VERNER) for k in range(len(h))]


def _covariance(model: Discovery, i: int, ode: OdeModel, deviation: Array, free: Flags) -> Array:
    """Covariance of the last state and the free coefficients, given the data of one series.

    A Kalman filter along the fitted states, linearized there. States are in units of `scale_`,
    coefficients in units of their standard deviations. The standard deviations of the coefficients
    are then set to those of the fit, which also knows the other series and earlier rows.
    """
    table = model.table_
    assert table is not None
    rows = slice(-MOST_ROWS, None)
    Z, t, Y = model.states_[i][rows], model.times_[i][rows], table.values[i][rows]
    U = model._driving(table.inputs[i][rows] if model.inputs_ else None, t, len(t))
    size = np.concatenate([model.scale_, deviation[free]])
    D, V, n = Z.shape[1], Y.shape[1], len(size)
    grids = _steps(t, U, model.kind)
    h, U_all = (np.concatenate([getattr(g, name) for g in grids]) for name in ("h", "U"))
    joined = StepGrid(h, U_all, grids[0].method)
    with np.errstate(all="ignore"):
        _, FZ, FX = flow_with_derivatives(ode, Z[:-1], joined, free)
    F = np.tile(np.eye(n), (len(FZ), 1, 1))
    F[:, :D] = np.concatenate([FZ, FX], -1)
    F = F * size / size[:, None]
    noise = np.maximum(model.noise_[:V] / model.scale_[:V], EXACT) ** 2
    C = WIDE**2 * np.eye(n)
    for k in range(len(Z)):
        if k:
            C = F[k - 1] @ C @ F[k - 1].T
        seen = np.flatnonzero(np.isfinite(Y[k]))
        gain = np.linalg.solve(C[np.ix_(seen, seen)] + np.diag(noise[seen]), C[seen]).T
        kept = np.eye(n)
        kept[:, seen] -= gain
        C = kept @ C @ kept.T + gain * noise[seen] @ gain.T
    correct = np.ones(n)
    correct[D:] = 1 / np.sqrt(np.maximum(np.diag(C)[D:], 1e-300))
    return C * correct * correct[:, None]


def _root(C: Array) -> Array:
    """Square root of a covariance.

    Raises:
        DataError: It is not finite.
    """
    if not np.isfinite(C).all():
        raise DataError(
            "the equations cannot be integrated along the fitted states, so that there are no "
            "intervals; simulate them from a state of your choice instead."
        )
    values, vectors = np.linalg.eigh((C + C.T) / 2)
    root: Array = vectors * np.sqrt(np.maximum(values, 0.0))
    return root


def index_of(names: list[str], series: str | int | None) -> int:
    if series is None and len(names) == 1:
        return 0
    if isinstance(series, str) and series in names:
        return names.index(series)
    if isinstance(series, int) and -len(names) <= series < len(names):
        return series % len(names)
    raise DataError(
        f"series: got {series!r}; expected a number below {len(names)}, or one of "
        f"{', '.join(names[:12])}."
    )


def _shown(time: Any) -> str:
    return f"{float(time):.6g}" if np.issubdtype(type(time), np.number) else str(time)
