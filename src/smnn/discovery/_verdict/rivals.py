"""Rival equations: the same data explained by other terms, also by terms outside the library.

The joint fit is linearized once with additional columns for terms that the library lacks: products
up to degree three, sines, exponentials, logarithms, roots and saturating quotients, each with
constants of the size of the data. Swapping and adding columns in this linearization shows whether
another form of an equation explains the data as well, without fitting it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from smnn.discovery._arrays import Array, Flags, Indices
from smnn.discovery._constraints import Rules
from smnn.discovery._fit.refine import JointFit, Refiner
from smnn.discovery._fit.selection import TriangularSystem, penalty_for, select
from smnn.discovery._terms import CompiledTerms, Constant
from smnn.report.numbers import significant

MOST_NODES = 1500  # Number of nodes that are used if the data are longer
SEGMENT = 300  # Length of their segments
MOST_VARIABLES = 3  # Number of columns above which products of three are left out
MOST_PAIRED = 12  # Number of columns above which functions of two columns are left out
LARGEST = 30_000_000  # Size of the derivatives of all states by all coefficients, in numbers
TINY = 1e-300
SAME = 1e-9  # Squared sine of the angle between two columns that count as the same term
CANDIDATES = 3  # Number of rivals that are reported per equation
MORE = 2  # Number of terms that they may have in addition
NEAR = 6.0  # Difference of evidence, in nats, up to which rivals are reported

Function = Callable[[Array], Array]
"""Values (...,) of a term at values (..., columns) of states and inputs."""
Univariate = Callable[[Array, float], Array]
"""Values of a function of one variable with a constant of its size."""

ALWAYS: tuple[tuple[str, Univariate], ...] = (
    ("sin({x})", lambda x, c: np.sin(x)),
    ("cos({x})", lambda x, c: np.cos(x)),
    ("exp({x}/{c})", lambda x, c: np.exp(x / c)),
    ("exp(-{x}/{c})", lambda x, c: np.exp(-x / c)),
)
POSITIVE: tuple[tuple[str, Univariate], ...] = (
    ("log({x})", lambda x, c: np.log(np.maximum(x, TINY))),
    ("{x} log({x})", lambda x, c: x * np.log(np.maximum(x, TINY))),
    ("sqrt({x})", lambda x, c: np.sqrt(np.maximum(x, 0.0))),
    ("{x}/({x} + {c}/3)", lambda x, c: x / (np.abs(x) + c / 3)),
    ("{x}/({x} + {c})", lambda x, c: x / (np.abs(x) + c)),
    ("{x}^2/({x}^2 + {c}^2)", lambda x, c: x**2 / (x**2 + c**2)),
)
SIGNED: tuple[tuple[str, Univariate], ...] = (
    ("{x} |{x}|", lambda x, c: x * np.abs(x)),
    ("{x}/({x}^2 + {c}^2)", lambda x, c: x / (x**2 + c**2)),
    ("1/({x}^2 + {c}^2)", lambda x, c: 1.0 / (x**2 + c**2)),
)


class Wider:
    """Terms of the library, and functions that it lacks; the latter have coefficients of zero."""

    def __init__(self, terms: CompiledTerms, functions: list[tuple[str, Function]]) -> None:
        self.terms, self.functions = terms, functions
        self.constants: tuple[Constant, ...] = ()  # those of the terms keep their values
        self.theta = np.zeros(0)
        self.uses = np.pad(terms.uses, ((0, len(functions)), (0, 0)))
        self.names = [t.name for t in terms.terms] + [name for name, _ in functions]

    def evaluate(self, X: Array) -> Array:
        """Values (..., P)."""
        with np.errstate(all="ignore"):
            more = [f(X)[..., None] for _, f in self.functions]
        return np.concatenate([self.terms.evaluate(X), *more], -1)

    def jacobian(self, X: Array) -> Array:
        """Derivatives (..., P, columns); zero for the functions, whose coefficients are zero."""
        known = self.terms.jacobian(X)
        more = np.zeros((*known.shape[:-2], len(self.functions), known.shape[-1]))
        return np.concatenate([known, more], -2)


def _product(columns: list[int], X: Array) -> Array:
    return np.asarray(X[..., columns].prod(-1))


def _uptake(i: int, j: int, half: float, X: Array) -> Array:
    return np.asarray(X[..., i] * X[..., j] / (np.abs(X[..., j]) + half))


def _of_column(f: Univariate, j: int, c: float, X: Array) -> Array:
    return f(X[..., j], c)


def _term(terms: CompiledTerms, p: int, X: Array) -> Array:
    return terms.evaluate(X)[..., p]


def _functions(names: list[str], X: Array) -> list[tuple[str, Function]]:
    """Functions of columns with values X (N, columns) that libraries often lack."""
    out: list[tuple[str, Function]] = []
    degree = 3 if len(names) <= MOST_VARIABLES else 2 if len(names) <= MOST_PAIRED else 1
    for k in (2, 3):
        for powers in itertools.combinations_with_replacement(range(len(names)), k):
            if k <= degree or len(set(powers)) == 1:
                counts = Counter(powers).items()
                text = " ".join(names[j] + (f"^{n}" if n > 1 else "") for j, n in counts)
                out.append((text, partial(_product, list(powers))))
    for j, name in enumerate(names):
        size = float(f"{max(np.sqrt((X[:, j] ** 2).mean()), TINY):.3g}")
        kind = POSITIVE if X[:, j].min() > 0.0 else SIGNED
        for template, f in (*ALWAYS, *kind):
            text = template.format(x=name, c=significant(size, 3))
            out.append((text, partial(_of_column, f, j, size)))
        for i, other in enumerate(names):
            if i != j and kind is POSITIVE and degree > 1:
                text = f"{other} {name}/({name} + {significant(size, 3)})"
                out.append((text, partial(_uptake, i, j, size)))
    return out


def _new(terms: CompiledTerms, functions: list[tuple[str, Function]], X: Array) -> Wider:
    """The functions that are finite on the data and not multiples of a term or of each other."""
    columns = terms.evaluate(X)
    columns = columns / np.maximum(np.linalg.norm(columns, axis=0), TINY)
    kept = []
    for name, f in functions:
        with np.errstate(all="ignore"):
            values = f(X)
            values = values / max(float(np.linalg.norm(values)), TINY)
        if np.isfinite(values).all() and (1.0 - (values @ columns) ** 2 > SAME).all():
            kept.append((name, f))
            columns = np.column_stack([columns, values])
    return Wider(terms, kept)


@dataclass(frozen=True)
class Rival:
    """Another equation for a variable."""

    terms: list[str]
    coefficients: list[float]
    evidence: float  # Relative to the selected equation, in nats; positive if the rival is better
    outside: list[str]  # Those of the terms that are not in the library
    functions: list[Function]

    def rate(self, X: Array) -> Array:
        """Right-hand side (without a link) at values (N, columns)."""
        parts = [a * f(X) for a, f in zip(self.coefficients, self.functions)]
        return np.asarray(sum(parts, np.zeros(len(X))))


@dataclass(frozen=True)
class Comparison:
    """Equation of one variable against its rivals."""

    inside: float  # Evidence of the best rival within the library, in nats
    outside: float  # Evidence of the best rival with other terms
    missing: list[str]  # The latter
    drift: float  # Change of the coefficients between parts of the data: mean squared z-score
    rivals: list[Rival]


def compare(refiner: Refiner, fit: JointFit) -> list[Comparison] | None:
    """Compare every equation with its rivals; `None` if the model is not finite near the data."""
    nodes, at = refiner.nodes.segments(MOST_NODES, SEGMENT)
    X = np.concatenate([fit.Z[at], nodes.U], -1)
    names = list(refiner.terms.variables)
    wider = _new(refiner.terms, _functions(names, X), X)
    count = len(wider.functions)
    most = LARGEST // (refiner.V**2 * (len(refiner.terms.terms) + count))
    if most < len(at):
        nodes, at = refiner.nodes.segments(most, min(SEGMENT, most))
    part = refiner.on(nodes, at, wider, _wider(refiner.rules, count))
    fit = replace(fit, Z=fit.Z[at], Xi=np.pad(fit.Xi, ((0, 0), (0, count))))
    allowed = part.rules.allowed
    found = part.triangle(fit, allowed)
    if found is None:
        return None
    left = found[2][1].left
    cost = part.cost(fit)
    spread = max(cost / part.freedom(int((fit.Xi != 0).sum())), part.spread(fit))
    search = _Search(
        TriangularSystem(found[0] / np.sqrt(spread), found[1] / np.sqrt(spread)),
        (fit.Xi != 0)[allowed], np.nonzero(allowed)[0], np.nonzero(allowed)[1],
        len(refiner.terms.terms), part.rules.required, wider, float(part.seen.sum()),
    )  # fmt: skip
    drifts = _drift(left / np.sqrt(spread), search.chosen, search.equation, refiner.V)
    return [search.comparison(v, drifts[v]) for v in range(refiner.V)]


def _wider(rules: Rules, count: int) -> Rules:
    """The rules with a number of further candidates."""

    def padded(flags: Any, value: float) -> Any:
        return np.pad(flags, ((0, 0), (0, count)), constant_values=value)

    allowed = padded(rules.allowed, True)
    if rules.defining is not None:
        allowed[rules.defining, rules.allowed.shape[1] :] = False
    return replace(
        rules, allowed=allowed, required=padded(rules.required, False),
        low=padded(rules.low, -np.inf), high=padded(rules.high, np.inf),
        ties=None, complexity=None,
    )  # fmt: skip


def _drift(left: Array, chosen: Flags, equation: Indices, V: int) -> Array:
    """(V,) mean squared z-score of the difference of the coefficients between two halves."""
    columns = np.flatnonzero(chosen)
    m = left.shape[2] - 1
    halves = [half.reshape(-1, m + 1) for half in np.array_split(left, 2)]
    halves = [half[:, [*columns, m]] for half in halves]
    both = np.vstack(halves)
    p = np.linalg.lstsq(both[:, :-1], both[:, -1], rcond=None)[0] if len(columns) else np.zeros(0)
    out = np.zeros(V)
    for v in range(V):
        mine = equation[columns] == v
        for half in halves if mine.any() else ():
            rest = half[:, -1] - half[:, :-1] @ p
            basis = np.linalg.qr(half[:, :-1][:, mine])[0]
            out[v] += float(((basis.T @ rest) ** 2).sum()) / mine.sum()
    return out


@dataclass(frozen=True)
class _Search:
    """Linearized joint fit, in units of the noise."""

    system: TriangularSystem
    chosen: Flags  # (m,) selected columns
    equation: Indices  # (m,)
    term: Indices  # (m,)
    known: int  # Number of terms of the library
    required: Flags  # (V, P)
    wider: Wider
    values: float

    def comparison(self, v: int, drift: float) -> Comparison:
        """Compare the equation of a variable with its rivals."""
        mine = self.equation == v
        present = self.chosen & mine
        if not present.any():
            return Comparison(-np.inf, -np.inf, [], 0.0, [])
        now = self._score(self.chosen)
        supports = {s.tobytes(): s for s in self._supports(mine, present)}
        supports.pop(self.chosen.tobytes(), None)
        scored = [(self._score(s) - now, s) for s in supports.values()]
        scored.sort(key=lambda pair: -pair[0])
        inside = [bool(self.term[s & mine].max(initial=0) < self.known) for _, s in scored]
        best = {
            flag: max((x for (x, _), i in zip(scored, inside) if i == flag), default=-np.inf)
            for flag in (True, False)
        }
        near = [
            (x, s) for x, s in scored
            if x > -NEAR and (x > 0.0 or not (s >= self.chosen).all())
            and s.sum() <= self.chosen.sum() + MORE
        ]  # fmt: skip
        rivals = [self._rival(x, s, mine) for x, s in near[:CANDIDATES]]
        strangers = [self._rival(x, s, mine) for (x, s), i in zip(scored, inside) if not i][:1]
        missing = strangers[0].outside if strangers else []
        return Comparison(float(best[True]), float(best[False]), missing, drift, rivals)

    @property
    def _price(self) -> float:
        """Penalty per term: the extended BIC for the candidates of one equation."""
        return float(penalty_for(int(self.values), len(self.wider.names)))

    def _score(self, support: Flags) -> float:
        """Evidence in nats, up to a constant."""
        residual = self.system.solve(support)[2]
        return -0.5 * (float(residual @ residual) + self._price * float(support.sum()))

    def _supports(self, mine: Flags, present: Flags) -> list[Flags]:
        """Sets of columns that differ in one equation: additions, removals, swaps, a new search."""
        own = self.term < self.known
        out = []
        required = self.required[self.equation[present], self.term[present]]
        for fixed in (None, *np.flatnonzero(present)[~required]):
            fewer = self.chosen.copy()
            if fixed is not None:
                fewer[fixed] = False
                out.append(fewer)
            gains = self.system.gains(fewer, self.system.solve(fewer)[2])
            for among in (mine & own, mine & ~own):
                gain = np.where(among & ~self.chosen, gains, 0.0)
                if gain.max(initial=0.0) > 0.0:
                    other = fewer.copy()
                    other[np.argmax(gain)] = True
                    out.append(other)
        others = self.chosen & ~mine
        Q = np.linalg.qr(self.system.R[:, others])[0]
        for among in (mine & own, mine):
            C = self.system.R[:, among]
            b = self.system.b - Q @ (Q.T @ self.system.b)
            found = select(C - Q @ (Q.T @ C), b, self._price)
            other = others.copy()
            other[np.flatnonzero(among)[found.support]] = True
            out.append(other)
        return out

    def _rival(self, evidence: float, support: Flags, mine: Flags) -> Rival:
        found = self.system.selected(support)
        where = np.flatnonzero(support & mine)
        terms = [int(self.term[i]) for i in where]
        functions: list[Function] = [
            partial(_term, self.wider.terms, p) if p < self.known
            else self.wider.functions[p - self.known][1]
            for p in terms
        ]  # fmt: skip
        outside = [self.wider.names[p] for p in terms if p >= self.known]
        return Rival(
            [self.wider.names[p] for p in terms], found.p[where].tolist(), float(evidence), outside,
            functions,
        )  # fmt: skip
