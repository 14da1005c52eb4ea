"""Equations with values at an earlier time, `x' = f(x, x_lag)` with `x_lag(t) = x(t - lag)`.

The delayed values are further columns, interpolated in the smoothed and later in the fitted states.
An unknown lag is found by scanning the regression of a flexible right-hand side over a range, and
refined by the cost of the joint fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.interpolate import CubicHermiteSpline, PchipInterpolator

from smnn.discovery._arrays import Array, Flags
from smnn.discovery._fit.data import DataError, FitResult, Nodes
from smnn.discovery._fit.model import ESCAPE, OdeModel
from smnn.discovery._fit.refine import JointFit, Refiner
from smnn.discovery._fit.regression import regress
from smnn.discovery._fit.smoothing import smooth
from smnn.discovery._terms import compile_terms
from smnn.discovery.libraries import Polynomial

MOST_LAGS = 50  # Number of lags of the scan
SHORTEST, LONGEST = 2.0, (0.1, 0.25)
"""Ranges if none is given: steps, and parts of the length of the shortest series. Longer lags leave
fewer rows, without the beginning, and are tried if there is no peak at shorter ones."""
FEWEST_ROWS = 20  # Fewest rows of a series after the longest lag
DEGREES = {1: 6, 2: 3}  # Degree of the polynomials of the scan by number of variables; otherwise 2
REFINEMENTS = 3  # Number of steps in which the joint fit refines the lag
FLOOR = 1e-5  # Error, relative to the spread of the data, below which smaller errors do not count
RIVAL = 6.0  # Difference in evidence, in nats, up to which another lag is as good
WINDOWS, SPAN = 6, 3.0  # Number of simulations per series for the verdict; their length in lags
AWAY, NOISY = 0.1, 5.0
"""Error of these, relative to the changes of the data and to the noise, above which they leave the
data."""
SUBSTEPS = 4  # Steps of a simulation per step of the data

History = Callable[[float], Array]
"""States (V,) up to the initial time."""


def delayed_names(variables: Sequence[str]) -> list[str]:
    """Names of the columns of delayed values."""
    return [f"{name}_lag" for name in variables]


def lag_range(delay: Any) -> tuple[float, float] | None:
    """Smallest and largest lag of the option `delay`; `None` if the data decide.

    Raises:
        ValueError: It is not a lag, a pair of lags, `True` or `"auto"`.
    """
    if delay is True or delay == "auto":
        return None
    try:
        low, high = map(float, [delay, delay] if isinstance(delay, int | float) else delay)
        if not (0.0 < low <= high < math.inf):
            raise ValueError
    except (TypeError, ValueError):
        raise ValueError(
            f"delay={delay!r}; expected a positive lag, its smallest and largest value, or True."
        ) from None
    return low, high


class DelaySearch:
    """Data with delayed values, and the search for their lag.

    Args:
        nodes: The data.
        delay: The lag, or its range; `True` for up to a quarter of the shortest series.
        rng: Generator for the smoothing.

    Raises:
        DataError: The series are too short for the largest lag.
    """

    def __init__(self, nodes: Nodes, delay: Any, rng: np.random.Generator) -> None:
        self.nodes, self.deviation = nodes, 0.0
        curves, self.sigma = smooth(nodes, 1, rng)
        self.states, self.rates = curves[..., 0].copy(), curves[..., 1].copy()
        self.step = float(np.median(nodes.h[nodes.follows]))
        shortest = min(float(nodes.t[b - 1] - nodes.t[a]) for a, b in nodes.bounds)
        given = lag_range(delay)
        self.rival, self.tried = -np.inf, 0
        ranges = [given] if given else [(SHORTEST * self.step, x * shortest) for x in LONGEST]
        for low, high in ranges:
            self._limit(low, high)
            self.lag, spacing = self._scan() if low < high else (low, 0.0)
            if self.rival < 0.0:
                break
        if given is None:  # the rows that only longer lags needed as history can be fitted
            self._limit(max(self.lag - spacing, low), min(self.lag + spacing, high))

    def _limit(self, low: float, high: float) -> None:
        """Set the range of the lag, and the rows that follow the longest one."""
        nodes, self.low, self.high = self.nodes, low, high
        self.kept: Flags = np.concatenate(
            [nodes.t[a:b] >= nodes.t[a] + high * (1.0 + 1e-12) for a, b in nodes.bounds]
        )
        fewest = min(int(self.kept[a:b].sum()) for a, b in nodes.bounds)
        if fewest < FEWEST_ROWS:
            raise DataError(
                f"{fewest} rows of a series follow its first {high:g} time units; expected at "
                f"least {FEWEST_ROWS}. Give longer series, or a smaller largest delay."
            )

    def data(self, lag: float | None = None) -> Nodes:
        """The rows after the largest lag, with delayed values."""
        lag, nodes, parts = self.lag if lag is None else lag, self.nodes, []
        for a, b in nodes.bounds:
            spline = CubicHermiteSpline(nodes.t[a:b], self.states[a:b], self.rates[a:b])
            at = nodes.t[a:b][self.kept[a:b]] - lag
            parts.append(spline(np.maximum(at, nodes.t[a])))
        bounds = [(a + int((~self.kept[a:b]).sum()), b) for a, b in nodes.bounds]
        return nodes.take(bounds)[0].with_columns(delayed_names(nodes.names), np.concatenate(parts))

    def _scan(self) -> tuple[float, float]:
        """The lag with the best polynomials in all columns, and the spacing of the scan."""
        count = int(np.clip((self.high - self.low) / (0.5 * self.step), 5, MOST_LAGS))
        lags = np.linspace(self.low, self.high, count)
        scores = np.array([self._score(lag) for lag in lags])
        best, self.rival = _peak(scores)
        self.tried, spacing = self.tried + count, float(lags[1] - lags[0])
        while lags[1] - lags[0] > 0.25 * self.step:
            lags = np.linspace(lags[max(best - 1, 0)], lags[min(best + 1, len(lags) - 1)], 5)
            scores = np.array([self._score(lag) for lag in lags])
            best = int(np.argmax(scores))
        return float(lags[best]), spacing

    def _score(self, lag: float) -> float:
        """Evidence for a lag, in nats: that of the best polynomial degree in the regression."""
        nodes = self.data(lag)
        names = [*nodes.names, *nodes.inputs]
        X = np.column_stack([self.states[self.kept], nodes.U])
        X = (X - X.mean(0)) / np.maximum(X.std(0), 1e-300)
        highest = DEGREES.get(len(nodes.names), 2)
        terms = compile_terms(Polynomial(highest).terms(names), names)  # by increasing degree
        found = regress(nodes, terms.evaluate(X), 1)
        scores = []
        for degree in range(1, highest + 1):
            k = Polynomial(degree).count(len(names))
            left = [cost + (b[k:] ** 2).sum() for cost, b in zip(found.cost, found.b)]
            error = left / found.rows / nodes.scale**2 + FLOOR**2
            score = -0.5 * found.rows * np.log(error) - 0.5 * k * np.log(found.rows)
            scores.append(float(score.sum()))
        return max(scores)

    def refine(self, result: FitResult) -> FitResult:
        """Improve the lag by the joint fit, and the delayed values by its states.

        Returns:
            The result, with the uncertainty of the lag in the standard deviations.
        """
        assert result.joint is not None
        refiner, fit = result.joint
        if len(refiner.nodes.t) == int(self.kept.sum()) and self.low < self.high:
            result = self._improved_lag(result)
        self.states[self.kept] = result.Z
        self.rates[self.kept] = refiner.model(fit).rate(result.Z, self._inputs(refiner, self.lag))
        return result

    def _improved_lag(self, result: FitResult) -> FitResult:
        """Minimize the cost of the joint fit over the lag."""
        assert result.joint is not None
        refiner, fit = result.joint
        if result.terms is not None:  # the constants inside the terms depend on the lag, too
            terms = compile_terms(result.terms, refiner.terms.variables)
            refiner = refiner.on(refiner.nodes, terms=terms)
            fit = replace(fit, theta=terms.theta)
        step = 0.1 * refiner.unit
        low = max(self.lag - 0.5 * refiner.unit, self.low)
        high = min(self.lag + 0.5 * refiner.unit, self.high)
        change = np.zeros(fit.Xi.size + len(fit.theta))
        for _ in range(REFINEMENTS):
            lags = self.lag + step * np.array([-1.0, 0.0, 1.0])
            fits = [self._at(refiner, fit, lag) for lag in lags]
            costs = [one.cost for one in fits]
            a = (costs[0] - 2 * costs[1] + costs[2]) / (2 * step**2)
            b = (costs[2] - costs[0]) / (2 * step)
            if not a > 0.0:
                break
            self.deviation = float(np.sqrt(refiner.spread(fit) / a))
            ends = [np.concatenate([one.Xi.ravel(), one.theta]) for one in (fits[0], fits[2])]
            change = (ends[1] - ends[0]) / (2 * step) * self.deviation
            move = np.clip(-b / (2 * a), -5 * step, 5 * step)
            self.lag = float(np.clip(self.lag + move, low, high))
            step = float(np.clip(2 * self.deviation, 1e-4 * refiner.unit, step))
        return result.widened(change[: fit.Xi.size].reshape(fit.Xi.shape), change[fit.Xi.size :])

    def _at(self, refiner: Refiner, fit: JointFit, lag: float) -> JointFit:
        """The joint fit with another lag."""
        nodes = replace(refiner.nodes, U=self._inputs(refiner, lag))
        return refiner.on(nodes).improve(fit)

    def _inputs(self, refiner: Refiner, lag: float) -> Array:
        """Inputs of the joint fit: external ones, delayed values, and the time if terms use it."""
        nodes = self.data(lag)
        timed = len(refiner.terms.variables) - refiner.D - nodes.U.shape[1]
        return np.column_stack([nodes.U, *[nodes.t] * timed])

    def simulation_errors(self, result: FitResult) -> Array:
        """(V,) typical error of simulations over some lags, relative to the accepted one."""
        assert result.joint is not None
        refiner, fit = result.joint
        model, nodes, found = refiner.model(fit), self.nodes, []
        states = self.all_states(result.Z)
        for a, b in nodes.bounds:
            t = nodes.t[a:b]
            past = CubicHermiteSpline(t, states[a:b], self.rates[a:b])
            inputs = PchipInterpolator(t, nodes.U[a:b], axis=0)
            length = max(SPAN * self.lag, 0.1 * (t[-1] - t[0]))
            for start in np.linspace(t[0] + self.high, max(t[-1] - length, t[0]), WINDOWS):
                rows = np.flatnonzero((t >= start) & (t <= start + length))
                if len(rows) > 1:
                    path = simulate_delayed(
                        model, past, t[rows], inputs, self.lag, refiner.unit, nodes.scale
                    )
                    off = np.nan_to_num(path - states[a + rows], nan=np.inf)
                    limit = np.maximum(AWAY * states[a + rows].std(0), NOISY * result.noise)
                    found.append(np.sqrt((off**2).mean(0)) / np.maximum(limit, 1e-300))
        return np.asarray(np.median(found, axis=0))

    @property
    def ambiguous(self) -> bool:
        """Whether another lag is as good."""
        return self.rival > -RIVAL

    def price(self, values: int) -> float:
        """Evidence, in nats, that the choice of the lag costs."""
        return 0.0 if self.low == self.high else float(0.5 * np.log(values) + np.log(self.tried))

    def all_states(self, Z: Array) -> Array:
        """(all nodes, V) fitted states; the smoothed ones before."""
        out = self.states.copy()
        out[self.kept] = Z
        return out


def _peak(scores: Array) -> tuple[int, float]:
    """Index of the highest peak, and the height of the next one relative to it.

    Scores rise towards short lags, because a value and one shortly before show the derivative; so a
    maximum at the end of the range does not count as a peak, and is taken only if there is none.
    """
    tops = [
        k for k in range(1, len(scores) - 1)
        if scores[k] > max(scores[k - 1], scores[k + 1])
        and scores[k] > max(scores[:k].min(), scores[k + 1 :].min()) + RIVAL
    ]  # fmt: skip
    if not tops:
        return int(np.argmax(scores)), 0.0
    tops.sort(key=lambda k: -scores[k])
    second = scores[tops[1]] if len(tops) > 1 else -np.inf
    return tops[0], float(second - scores[tops[0]])


@dataclass(frozen=True)
class Past:
    """States at earlier times: a function, or a constant state."""

    given: Any
    width: int

    def __call__(self, t: float) -> Array:
        """States (V,)."""
        value = self.given(t) if callable(self.given) else self.given
        state = np.asarray(value, float).ravel()
        if state.shape != (self.width,) or not np.isfinite(state).all():
            raise DataError(f"x0 has values {state}; expected {self.width} finite ones.")
        return state


def simulate_delayed(
    model: OdeModel, past: History, t: Array, driven: Callable[[float], Array], lag: float,
    step: float, scale: Array,
) -> Array:  # fmt: skip
    """Integrate by the classical Runge-Kutta method.

    Args:
        model: The right-hand side; its inputs are the external ones, delayed values, and the time.
        past: States up to the first time.
        t: (T,) increasing times.
        driven: External inputs as a function of time.
        lag: The delay.
        step: Step of the data.
        scale: (V,) typical size of the states.

    Returns:
        (T, V) states; NaN after the trajectory has diverged.
    """
    out = np.full((len(t), len(scale)), np.nan)
    times, states = [float(t[0])], [past(float(t[0]))]
    rates: list[Array] = []
    timed = len(model.terms.variables) - 2 * len(scale) - len(driven(float(t[0])))

    def before(at: float) -> Array:
        if at <= times[0]:
            return past(at)
        k = min(int(np.searchsorted(times, at, side="right")) - 1, len(times) - 2)
        h = times[k + 1] - times[k]
        x = (at - times[k]) / h
        start = (1 + 2 * x) * states[k] + x * h * rates[k]
        end = (3 - 2 * x) * states[k + 1] + (x - 1) * h * rates[k + 1]
        return np.asarray((1 - x) ** 2 * start + x**2 * end)

    def rate(at: float, z: Array) -> Array:
        columns = [driven(at), before(at - lag), np.full(timed, at)]
        return model.rate(z, np.concatenate(columns))

    out[0] = states[0]
    rates.append(rate(times[0], states[0]))
    with np.errstate(all="ignore"):
        for k in range(len(t) - 1):
            n = math.ceil((t[k + 1] - t[k]) / min(step / SUBSTEPS, lag) - 1e-9)
            h = float(t[k + 1] - t[k]) / n
            for _ in range(n):
                at, z = times[-1], states[-1]
                k1 = rates[-1]
                k2 = rate(at + h / 2, z + h / 2 * k1)
                k3 = rate(at + h / 2, z + h / 2 * k2)
                k4 = rate(at + h, z + h * k3)
                z = z + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
                if not (np.abs(z) < ESCAPE * scale).all():
                    return out
                times.append(at + h)
                states.append(z)
                rates.append(rate(at + h, z))
            out[k + 1] = states[-1]
    return out
