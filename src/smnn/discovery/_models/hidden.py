"""Equations with a variable that is not measured.

A hidden variable can be replaced by any function of it and of the measured variables. This freedom,
the gauge, is fixed by the equation of one measured variable, `x' = m h + p(x)`: the factor `m` is
one, a measured variable, or a product of two, and `p` has no multiples of `m`, which would only
shift `h`. In this gauge, right-hand sides that are polynomials in all variables and linear in `h`
remain polynomials, and smoothed derivatives give initial values of `h` for the joint fit.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import sympy
from scipy.optimize import minimize

from smnn.discovery._arrays import Array, Flags, root_mean_square
from smnn.discovery._constraints import Rules
from smnn.discovery._fit.data import DataError, FitResult, Nodes
from smnn.discovery._fit.pipeline import LARGEST
from smnn.discovery._fit.refine import STRICT, JointFit, Refiner
from smnn.discovery._fit.regression import MOST_CANDIDATES
from smnn.discovery._fit.smoothing import smooth
from smnn.discovery._terms import Term, compile_terms
from smnn.discovery.libraries import Library, Polynomial
from smnn.report import maths

NEAR = 0.15  # Size of the factor, relative to its typical size, below which h is interpolated
CROSSING = 10  # Number of rows near zeros of the factor that give initial values of `p`
MOST_ROWS = 600  # Number of rows on which gauges are compared if there are more
MOST_GAUGES = 4  # Number of gauges that are fitted
TYPICAL = 0.9  # Quantile of the hidden variable that bounds it there
EDGE = 3  # Rows at the ends of a series, where derivatives of splines are poor
FLOOR = 1e-4  # Relative squared error of derivatives below which smaller errors do not count
COMPARED, BETWEEN, ALIKE = 300, 0.2, 0.05
"""Number of states where laws are compared; their distance from those of the fit, relative to that
between two of these; relative difference of derivatives up to which laws are the same."""
SETTLED = 1.5  # Mean square of the residuals, in units of the noise, up to which equations hold
SHARE = 0.6  # First part of every series whose equations must predict the rest
FEWEST_LATER = 20  # Rows of the rest of a series below which whole series are left out instead
MOST_STATES = 3  # Largest number of states for which polynomials of degree 3 are tried


def check_hidden_library(library: Library | None, columns: Sequence[str]) -> None:
    """Refuse a library with constants inside terms.

    Raises:
        ValueError: It has some.
    """
    if library is not None and any(term.constants for term in library.terms(columns)):
        raise ValueError("hidden=1 does not support constants inside terms; fix their values.")


def hidden_libraries(library: Library | None, states: int) -> list[Library]:
    """Libraries, of which each is tried if equations with the one before do not hold."""
    if library is not None:
        return [library]
    return [Polynomial(degree) for degree in ((2, 3) if states <= MOST_STATES else (2,))]


@dataclass(frozen=True)
class Gauge:
    """Definition of a hidden variable, with initial values.

    The last variable of `nodes` is the hidden one, which has no values.
    """

    equation: int
    factor: tuple[str, ...]  # Variables whose product multiplies the hidden variable
    nodes: Nodes
    curves: Array  # (N, V, 2) smoothed values and derivatives
    sigma: Array  # (V,) noise
    error: float  # Logarithm of the errors of derivatives

    @property
    def name(self) -> str:
        """Name of the hidden variable."""
        return self.nodes.names[-1]

    @property
    def definition(self) -> str:
        """The equation that defines the hidden variable, as text."""
        target, names = f"{self.nodes.names[self.equation]}'", tuple(self.nodes.names)
        factor = maths.write(self._product / sympy.Symbol(self.name), maths.TEXT, names)
        others = f", and {target} has no other multiples of {factor}" * bool(self.factor)
        product = maths.write(self._product, maths.TEXT, names)
        return f"its term {product} in {target} has the coefficient 1{others}."

    @property
    def _product(self) -> sympy.Expr:
        return sympy.Mul(*map(sympy.Symbol, (self.name, *self.factor)))

    def place(self, terms: Sequence[Term]) -> int | None:
        """Index of the term that defines the hidden variable, if there is one."""
        found = (p for p, term in enumerate(terms) if term.symbolic == self._product)
        return next(found, None)

    def apply(self, terms: Sequence[Term], rules: Rules, fixed: Array) -> tuple[Rules, Array]:
        """Restrict the rules of the candidate terms to this gauge.

        Args:
            terms: Candidates, which include the one that defines the hidden variable.
            rules: The rules.
            fixed: (V, P) fixed coefficients.
        """
        own, product, where = sympy.Symbol(self.name), self._product, self.place(terms)
        measured = {sympy.Symbol(n) for n in self.nodes.names}
        allowed, fixed = rules.allowed.copy(), fixed.copy()
        for p, term in enumerate(terms):
            symbols = term.symbolic.free_symbols
            quotient = sympy.fraction(sympy.cancel(term.symbolic * own / product))[1]
            shift = symbols <= measured and not quotient.free_symbols
            allowed[self.equation, p] &= own not in symbols and not shift
        fixed[self.equation, where] = 1.0
        return replace(rules, allowed=allowed, defining=self.equation), fixed

    def first_part(self) -> Gauge:
        """The gauge on the first part of every series, or the first ones if they are short."""
        every = self.nodes.bounds
        bounds = [(a, a + round(SHARE * (b - a))) for a, b in every]
        rest = min(b - end for (_, b), (_, end) in zip(every, bounds))
        if rest < FEWEST_LATER and len(every) > 1:
            bounds = every[: max(round(SHARE * len(every)), 1)]
        nodes, at = self.nodes.take(bounds)
        return replace(self, nodes=nodes, curves=self.curves[at])


def gauges(nodes: Nodes, rng: np.random.Generator) -> list[Gauge]:
    """All gauges with initial values, the most promising first.

    Raises:
        DataError: There are too many rows.
    """
    V = len(nodes.names)
    most = LARGEST // ((V + 1) * (V + 1 + MOST_CANDIDATES))
    if len(nodes.t) > most:
        raise DataError(
            f"the data have {len(nodes.t):,} rows; a hidden variable needs at most {most:,}. "
            "Leave out some rows, or use a part of the data."
        )
    search = _Search(nodes, *smooth(nodes, 2, rng))
    found = [
        search.gauge(v, factor)
        for v, k in itertools.product(range(V), range(3))
        for factor in itertools.combinations_with_replacement(range(V), k)
    ]
    found = [gauge for gauge in found if np.isfinite(gauge.error)]
    return sorted(found, key=lambda gauge: gauge.error)


@dataclass(frozen=True)
class _Search:
    """Initial values of a hidden variable, from smoothed derivatives."""

    nodes: Nodes
    curves: Array  # (N, V, 3)
    sigma: Array

    def gauge(self, v: int, j: tuple[int, ...]) -> Gauge:
        """The gauge `x_v' = m h + p` with a product `m` of variables."""
        nodes, x = self.nodes, self.curves[..., 0]
        factor = x[:, j].prod(1)
        others = [i for i in range(x.shape[1]) if (i,) != j] if j else []
        constant = np.ones((len(x), int(bool(j))))
        plain = np.column_stack([constant, x[:, others], nodes.U])
        size = root_mean_square(factor[:, None])[0]
        good = self._inside & (np.abs(factor) > NEAR * size)
        closure = _Closure(self, v, factor, plain, good)
        p = self._crossing(v, factor, plain, size)
        if x.shape[1] == 1:  # otherwise polynomials in all variables explain too much
            p = closure.best(p)
        h, slope, error = *closure.hidden(p), closure.error(p)
        for a, b in nodes.bounds:
            rows, mine = nodes.t[a:b], good[a:b]
            if mine.sum() < 2:
                return self._made(v, j, h, slope, np.inf)
            h[a:b] = np.interp(rows, rows[mine], h[a:b][mine])
            slope[a:b] = np.interp(rows, rows[mine], slope[a:b][mine])
        return self._made(v, j, h, slope, error)

    def _made(self, v: int, j: tuple[int, ...], h: Array, slope: Array, error: float) -> Gauge:
        nodes = self.nodes
        low, high = np.quantile(h, [0.02, 0.98])
        spread = max(float(np.clip(h, low, high).std()), 1e-12 * float(np.abs(h).max()), 1e-300)
        taken = {*nodes.names, *nodes.inputs}
        name = next(f"h{i}" for i in itertools.count(1) if f"h{i}" not in taken)
        wider = replace(
            nodes, Y=np.column_stack([nodes.Y, np.full(len(h), np.nan)]),
            names=[*nodes.names, name], sizes=np.append(nodes.scale, spread),
            weights=None if nodes.weights is None
            else np.column_stack([nodes.weights, np.ones(len(h))]),
        )  # fmt: skip
        curves = np.concatenate([self.curves[..., :2], np.stack([h, slope], -1)[:, None]], 1)
        sigma = np.append(self.sigma, spread * float((self.sigma / nodes.scale).mean()))
        factor = tuple(nodes.names[i] for i in j)
        return Gauge(v, factor, wider, curves, sigma, error)

    @property
    def _inside(self) -> Flags:
        """(N,) mask of the rows that are not at the ends of a series."""
        out = np.zeros(len(self.nodes.t), bool)
        for a, b in self.nodes.bounds:
            out[a + EDGE : b - EDGE] = True
        return out

    def _crossing(self, v: int, factor: Array, plain: Array, size: float) -> Array:
        """Coefficients of `p` from the rows where the factor vanishes; zero if it never does."""
        near = self._inside & (np.abs(factor) < NEAR * size)
        changes = (factor[near].min(initial=0.0) < 0.0) and (factor[near].max(initial=0.0) > 0.0)
        if near.sum() < CROSSING + 2 * plain.shape[1] or not changes:
            return np.zeros(plain.shape[1])
        columns = np.column_stack([plain, factor, factor[:, None] * plain])[near]
        found = np.linalg.lstsq(columns, self.curves[near, v, 1], rcond=1e-8)[0]
        return np.asarray(found[: plain.shape[1]])


class _Closure:
    """How well polynomials in all variables explain their derivatives, given a gauge."""

    def __init__(self, search: _Search, v: int, factor: Array, plain: Array, good: Flags) -> None:
        nodes, curves = search.nodes, search.curves
        self.factor, self.plain = factor, plain
        self.rate, self.bend = curves[:, v, 1], curves[:, v, 2]
        parts = [slice(a, b) for a, b in nodes.bounds]
        self.slope = np.concatenate([np.gradient(factor[s], nodes.t[s]) for s in parts])
        self.drift = np.concatenate([np.gradient(plain[s], nodes.t[s], axis=0) for s in parts])
        rows = np.flatnonzero(good)
        self.rows = rows[:: max(len(rows) // MOST_ROWS, 1)]
        self.gaps = np.flatnonzero(search._inside & ~good)
        V = len(nodes.names)
        others = [i for i in range(V) if i != v]
        self.rates = curves[self.rows][:, others, 1]
        X = np.column_stack([curves[..., 0], nodes.U])
        self.X = (X / np.maximum(root_mean_square(X), 1e-300))[self.rows]
        names = [f"x{i}" for i in range(X.shape[1] + 1)]
        self.terms = compile_terms(Polynomial(3 if V == 1 else 2).terms(names), names)

    def hidden(self, p: Array) -> tuple[Array, Array]:
        """Values and derivatives (N,) of the hidden variable."""
        with np.errstate(all="ignore"):
            h = (self.rate - self.plain @ p) / self.factor
            return h, (self.bend - self.drift @ p - h * self.slope) / self.factor

    def error(self, p: Array) -> float:
        """Sum of the logarithms of the relative squared errors of the derivatives."""
        if len(self.rows) < 2 * len(self.terms.terms):
            return np.inf
        h, slope = (one[self.rows] for one in self.hidden(p))
        columns = np.column_stack([self.X, h / max(float(np.sqrt((h**2).mean())), 1e-300)])
        phi, weight = self.terms.evaluate(columns), self.factor[self.rows]
        total = _log_error(weight[:, None] * phi, weight * slope, self.bend[self.rows])
        for rate in self.rates.T:
            total += _log_error(phi, rate, rate)
        # Where the factor is small, the rest of the equation must explain the derivative.
        reach = np.abs(self.factor[self.gaps]) * np.quantile(np.abs(h), TYPICAL)
        left = np.abs(self.rate[self.gaps] - self.plain[self.gaps] @ p) - reach
        return total + _log_ratio(np.sum(np.maximum(left, 0.0) ** 2), np.sum(self.rate**2))

    def best(self, first: Array) -> Array:
        """Coefficients of `p` with the smallest error, from two starting points."""
        if not len(first):
            return first
        size = root_mean_square(self.rate[:, None])[0] / np.maximum(
            root_mean_square(self.plain), 1e-300
        )
        starts = [first, np.zeros_like(first)][: 2 if first.any() else 1]
        runs: list[Any] = [
            minimize(
                lambda q: self.error(q * size), start / size, method="Nelder-Mead",
                options={"maxfev": 30 * len(first), "initial_simplex": _simplex(start / size)},
            )
            for start in starts
        ]  # fmt: skip
        return np.asarray(min(runs, key=lambda run: run.fun).x * size)


def _simplex(start: Array) -> Array:
    return start + 0.3 * np.vstack([np.zeros(len(start)), np.eye(len(start))])


def _log_error(columns: Array, target: Array, size: Array) -> float:
    found = np.linalg.lstsq(columns, target, rcond=1e-10)[0]
    return _log_ratio(np.sum((target - columns @ found) ** 2), np.sum(size**2))


def _log_ratio(error: float, total: float) -> float:
    ratio = error / max(total, 1e-300)
    return float(np.log(ratio + FLOOR)) if np.isfinite(ratio) else np.inf


class Fit(Protocol):
    """Fits equations with candidate terms."""

    def __call__(
        self, nodes: Nodes, library: Library, thorough: bool, gauge: Gauge | None
    ) -> FitResult: ...


@dataclass(frozen=True)
class HiddenFit:
    """Equations with a hidden variable."""

    library: Library
    gauge: Gauge
    result: FitResult
    trained: FitResult | None = None
    """The fit to the first part of every series."""
    rival: float = -np.inf
    """Evidence of the best other law that was found, relative to this one."""

    @property
    def evidence(self) -> float:
        return float(self.result.diagnostics["evidence"])

    @property
    def holds(self) -> bool:
        """Whether a trajectory describes the data up to noise."""
        facts = self.result.diagnostics
        return bool(facts["rho"] <= STRICT and facts["misfit"] < SETTLED)

    def differs_from(self, other: HiddenFit) -> bool:
        """Whether measured variables evolve differently, from the same values and derivatives.

        States between those of the fit are compared.
        """
        refiner, fit = self._joint
        rows = np.arange(0, len(fit.Z), max(len(fit.Z) // COMPARED, 1))
        Z, U = fit.Z[rows], refiner.nodes.U[rows]
        Z = Z + BETWEEN * (np.roll(Z, len(Z) // 3, 0) - Z)
        rates, bends = self._motion(Z, U)
        there = other._same_rate(Z[:, :-1], rates, U)
        others = other._motion(there, U)
        known = np.isfinite(there).all(1)
        for one, two in zip((rates, bends), others):
            off = np.abs(one - two)[known] / root_mean_square(one)
            if not (np.median(off, 0) < ALIKE).all():
                return True
        return False

    @property
    def _joint(self) -> tuple[Refiner, JointFit]:
        assert self.result.joint is not None
        return self.result.joint

    def _motion(self, Z: Array, U: Array) -> tuple[Array, Array]:
        """First and second derivatives of the measured variables at states Z."""
        refiner, fit = self._joint
        model, step = refiner.model(fit), 1e-4 * refiner.unit
        with np.errstate(all="ignore"):
            rate = model.rate(Z, U)
            ends = [model.rate(Z + s * step * rate, U) for s in (1.0, -1.0)]
        return rate[:, :-1], (ends[0] - ends[1])[:, :-1] / (2.0 * step)

    def _same_rate(self, x: Array, rates: Array, U: Array) -> Array:
        """States with given values and derivatives of the measured variables."""
        refiner, fit = self._joint
        at, names = self.gauge.equation, self.gauge.nodes.names
        factor = x[:, [names.index(name) for name in self.gauge.factor]].prod(1)
        factor[np.abs(factor) < NEAR * root_mean_square(factor[:, None])] = np.nan
        plain = refiner.model(fit).rate(np.column_stack([x, np.zeros(len(x))]), U)[:, at]
        return np.column_stack([x, (rates[:, at] - plain) / factor])


def find_hidden(
    nodes: Nodes, library: Library | None, fit: Fit, rng: np.random.Generator,
    progress: Callable[[str], None],
) -> HiddenFit:  # fmt: skip
    """The equations with the highest evidence over gauges and libraries.

    Raises:
        DataError: No fit succeeded.
    """
    found: list[HiddenFit] = []
    error = DataError(
        "no definition of a hidden variable suits the data and the library; expected some dozens "
        "of rows, and a library that includes polynomials, as 'poly:2'."
    )
    every = gauges(nodes, rng)
    states = len(nodes.names) + 1 + len(nodes.inputs)
    for one in hidden_libraries(library, states):
        known = [
            g for g in every if g.place(one.terms([*g.nodes.names, *nodes.inputs])) is not None
        ]
        for gauge in known[:MOST_GAUGES]:
            progress(f"hidden variable: {gauge.definition} ({one})")
            try:
                found.append(HiddenFit(one, gauge, fit(gauge.nodes, one, False, gauge)))
            except DataError as failure:
                error = failure
        if any(one.holds for one in found):
            break
    if not found:
        raise error
    best = max(found, key=lambda one: one.evidence)
    rivals = [x.evidence - best.evidence for x in found if x is not best and best.differs_from(x)]
    best = replace(best, rival=max(rivals, default=-np.inf))
    part = best.gauge.first_part()
    with contextlib.suppress(DataError):
        best = replace(best, trained=fit(part.nodes, best.library, False, part))
    return best
