"""Choice of PySINDy's threshold and settings without knowledge of the true equations.

Of the criteria tried on all systems (held-out derivative error with and without the one-standard-
error rule, information criteria with several effective sample sizes), these gave PySINDy the most
exact recoveries, within a few per cent of the best choice in hindsight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from smnn._util.optional import require
from smnn.datasets.dynamics import Array, Problem, Series

NEGLIGIBLE = 0.03
"""Misfits below this share of the standard deviation of a derivative do not justify a term."""


class Rows(NamedTuple):
    """Data of a linear regression."""

    terms: Array
    """`(N, P)`."""
    targets: Array
    """`(N, V)`."""
    independent: float
    """Effective number of independent rows."""


class Path(NamedTuple):
    """Regularization path of one setting."""

    label: str
    chosen: Array
    """`(V, P)` coefficients at the chosen thresholds."""
    fits: list[Array]
    """`(V, P)` coefficients at every threshold."""


def choose(rows: Rows, fits: Sequence[Array]) -> Array:
    """For every target the fit that minimizes the information criterion, `(V, P)`."""
    chosen = []
    for v, y in enumerate(rows.targets.T):
        spread = max(float(y.var()), float(np.finfo(float).tiny))

        def criterion(fit: Array, v: int = v, y: Array = y, spread: float = spread) -> float:
            misfit = float(np.square(y - rows.terms @ fit[v]).mean()) / spread + NEGLIGIBLE**2
            size = np.count_nonzero(fit[v])
            return rows.independent * float(np.log(misfit)) + size * float(np.log(rows.independent))

        chosen.append(min(fits, key=criterion)[v])
    return np.stack(chosen)


def best(paths: Sequence[Path], error: Callable[[Array], Array]) -> Path:
    """The sparsest of the results whose simulation error is within 5 % of the smallest."""
    if len(paths) == 1:
        return paths[0]
    errors = np.stack([error(one.chosen) for one in paths])
    errors = errors[:, errors.min(axis=0).argmin()]  # from the better of the two kinds of start
    good = [i for i, size in enumerate(errors) if size <= 1.05 * errors.min()]
    return paths[min(good, key=lambda i: (np.count_nonzero(paths[i].chosen), errors[i]))]


class SimulationError:
    """Median error of short simulations from many places along the data.

    They start from measured and from smoothed states: the former are better at low noise, the
    latter at high noise.

    Args:
        series: The data.
        problem: What they are of.
        names: The terms, in the order of the coefficients.
    """

    STARTS, AHEAD, PARTS = 80, 25, 4

    def __init__(self, series: Sequence[Series], problem: Problem, names: Sequence[str]) -> None:
        ps = require("pysindy", "compare with PySINDy")
        self.problem, self.V = problem, len(problem.variables)
        self.columns = [problem.terms.index(name) for name in names]
        self.scale = np.concatenate([s.x for s in series]).std(axis=0)
        shortest = min(len(s.t) for s in series)
        self.ahead = min(self.AHEAD, shortest // 2)
        window = min(21, (shortest - 1) // 2 * 2 + 1)
        kinds = ps.FiniteDifference(order=4), smoothed(ps, window, min(5, window - 1))
        share = max(1, self.STARTS // len(series))
        starts: list[list[Array]] = [[], []]
        truth, times, inputs = [], [], []
        for s in series:
            states = [derivatives(kind, s, problem.order)[0] for kind in kinds]
            for k in np.linspace(0, len(s.t) - 1 - self.ahead, share).astype(int):
                for one, state in zip(starts, states):
                    one.append(state[k])
                future = slice(k, k + self.ahead + 1)
                truth.append(s.x[future])
                fine = _divided(s.t[future], 2 * self.PARTS)
                times.append(fine[:: 2 * self.PARTS])
                inputs.append(_at(s, fine))
        self.starts = [np.stack(one) for one in starts]
        self.truth, self.inputs = np.stack(truth), np.stack(inputs)
        self.steps = np.diff(np.stack(times), axis=1)[..., None] / self.PARTS

    def __call__(self, coefficients: Array) -> Array:
        """Errors of `coefficients (V, P)` in standard deviations, for both kinds of start."""
        with np.errstate(all="ignore"):
            return np.array([self._error(start, coefficients) for start in self.starts])

    def _error(self, x: Array, coefficients: Array) -> float:
        errors = []
        for k in range(self.ahead):
            for j in range(self.PARTS):
                i = 2 * (k * self.PARTS + j)
                x = self._step(x, self.steps[:, k], self.inputs[:, i : i + 3], coefficients)
            misfit = (x[:, : self.V] - self.truth[:, k + 1]) / self.scale
            errors.append(np.square(misfit).mean(axis=1))
        each = np.nan_to_num(np.mean(errors, axis=0), nan=np.inf, posinf=np.inf)
        return float(np.median(each))

    def _step(self, x: Array, h: Array, u: Array, coefficients: Array) -> Array:
        """A Runge-Kutta step, with inputs at its beginning, middle and end."""
        a = self._slope(x, u[:, 0], coefficients)
        b = self._slope(x + h / 2 * a, u[:, 1], coefficients)
        c = self._slope(x + h / 2 * b, u[:, 1], coefficients)
        d = self._slope(x + h * c, u[:, 2], coefficients)
        return np.asarray(x + h / 6 * (a + 2 * b + 2 * c + d))

    def _slope(self, x: Array, u: Array, coefficients: Array) -> Array:
        names = (*self.problem.states, *self.problem.inputs)
        features = self.problem.basis.features(np.hstack([x, u]), names)[:, self.columns]
        return np.hstack([x[:, self.V :], features @ coefficients.T])


def _divided(t: Array, parts: int) -> Array:
    """Times with each interval divided into `parts`."""
    fine = t[:-1, None] + np.diff(t)[:, None] * np.arange(parts) / parts
    return np.append(fine.ravel(), t[-1])


def _at(s: Series, times: Array) -> Array:
    """Inputs of a series, interpolated between its samples."""
    if s.u is None:
        return np.empty((len(times), 0))
    spline = require("scipy.interpolate", "simulate with inputs").CubicSpline(s.t, s.u)
    return np.asarray(spline(times))


def smoothed(ps: Any, window: int, degree: int) -> Any:
    """PySINDy's fourth-order differences after a Savitzky-Golay filter."""
    options = {"window_length": window, "polyorder": degree}
    return ps.SmoothedFiniteDifference(order=4, smoother_kws=options)


def derivatives(difference: Any, s: Series, order: int) -> tuple[Array, Array]:
    """States `(T, V order)` as smoothed by the differentiation, and the highest derivative."""
    states, x = [], s.x
    for _ in range(order):
        slope = np.asarray(difference(x, s.t))
        states.append(np.asarray(difference.smoothed_x_))
        x = slope
    return np.hstack(states), x
