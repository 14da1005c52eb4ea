"""Discovery of equations with constants inside terms.

The forms of every equation come from the integral regression (`equation`). Their combinations are
fitted jointly with the states, and compared by the evidence of the joint fit, which charges for
every constant and for the number of terms they were chosen from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from smnn.discovery._arrays import Array, Flags, Indices
from smnn.discovery._fit.data import DataError, FitInput, FitResult
from smnn.discovery._fit.pipeline import (
    Attempt,
    Initial,
    Progress,
    StageTimer,
    diagnostics_of,
    result_of,
)
from smnn.discovery._fit.refine import JointFit, Refiner, continuation
from smnn.discovery._fit.regression import Regression, operators
from smnn.discovery._fit.smoothing import smooth
from smnn.discovery._open.equation import EquationSearch, Form
from smnn.discovery._open.ranges import with_ranges
from smnn.discovery._terms import CompiledTerms, Term, compile_terms

MOST_NODES = 1500  # Number of nodes in the regression if the data are longer
SEGMENT = 300  # Length of their segments
LARGEST = 4000  # Number of nodes in the joint fit if the data are longer
ALTERNATIVES = 4  # Number of forms of an equation that are fitted jointly
UNKNOWN = 0.5  # Relative standard deviation above which a constant is not determined
SHARED = 0.25  # Relative difference up to which a constant is shared by two equations
FAULT = 1e12  # Evidence that a term or constant costs that is not acceptable, in nats
IDENTICAL = 1e-9  # Relative difference of equal columns
ROUNDS = 2  # Number of rounds over the equations
DOUBTFUL = 8.0  # Standard deviations of a coefficient up to which a form without it is tried


@dataclass(frozen=True)
class _Combination:
    """A joint fit of one form per equation."""

    forms: tuple[Form, ...]
    refiner: Refiner
    fit: JointFit


def _acceptable(combination: _Combination) -> bool:
    """Whether the fit is finite, without faults."""
    return combination.fit.evidence > -0.5 * FAULT


class SystemSearch:
    """Search for the forms of all equations."""

    def __init__(self, data: FitInput, rng: np.random.Generator, progress: Progress) -> None:
        self.timer, self.progress, self.rng = StageTimer(), progress, rng
        order = data.order
        curves, sigma = smooth(data.nodes, order, rng)
        self.smoothed = np.concatenate([curves[..., r] for r in range(order)], -1)
        nodes, used = data.nodes.segments(LARGEST, SEGMENT)
        self.data, self.used, self.sigma = replace(data, nodes=nodes), used, sigma
        self.Z = self.smoothed[used]
        self.dZ = np.concatenate([curves[used][..., r] for r in range(1, order + 1)], -1)
        self.timer.lap("smoothing")
        X = np.concatenate([self.Z, nodes.U], -1)
        terms = data.terms.terms
        with np.errstate(all="ignore"):
            finite = np.isfinite(data.terms.evaluate(X)).all(0)
        closed = np.array([not term.constants for term in terms])
        self.plain: Indices = np.flatnonzero(closed & finite)
        self.open = [int(p) for p in np.flatnonzero(~closed)]
        step = float(np.median(nodes.h[nodes.follows]))
        columns = data.terms.variables
        self.ranged = {p: with_ranges(terms[p], columns, X, step) for p in self.open}
        self.rules = replace(data.rules, candidates=int(data.rules.allowed.sum()))
        self._search(X)

    def _search(self, X: Array) -> None:
        """Forms of every equation, best first."""
        part, at = self.data.nodes.segments(MOST_NODES, SEGMENT)
        columns, terms = self.data.terms.variables, self.data.terms.terms
        plain = compile_terms([terms[p] for p in self.plain], columns)
        self._values = plain.evaluate(X[at])
        self.forms: list[list[Form]] = []
        self.searches = []
        for v, (operator, y) in enumerate(operators(part, self.data.order)):
            allowed = self.rules.allowed[v]
            held = self._values @ self.data.fixed[v, self.plain]
            search = EquationSearch(
                operator, y - operator @ held, X[at], plain,
                np.flatnonzero(allowed[self.plain]),
                [self.ranged[p] for p in self.open if allowed[p]],
                float(part.scale[v]),
            )  # fmt: skip
            self.searches.append(search)
            self.forms.append(search.search())
            self.progress(f"{self.data.nodes.names[v]}: {len(self.forms[-1])} forms")
        self.timer.lap("search")

    def best(self) -> _Combination | None:
        """The best combination of forms, beginning with the best forms of the regression."""
        options = [forms[:ALTERNATIVES] for forms in self.forms]
        if not all(options):
            return None
        tried: dict[tuple[object, ...], _Combination] = {}

        def better(best: _Combination, v: int, forms: Sequence[Form]) -> _Combination:
            for form in forms:
                now = (*best.forms[:v], form, *best.forms[v + 1 :])
                key = tuple(one.key for one in now)
                if key not in tried:
                    tried[key] = self._fitted(now)
                if tried[key].fit.evidence > best.fit.evidence:
                    best = tried[key]
            return best

        best = self._fitted(tuple(min(mine, key=lambda form: form.score) for mine in options))
        for _ in range(ROUNDS):
            before = best
            for v, mine in enumerate(options):
                best = better(best, v, [*mine, *self._borrowed(best, v)])
                larger = None
                while larger is not best:
                    others = self._simpler(best, v)
                    if _acceptable(best):
                        others += self._merged(best, v) + self._plainer(best, v)
                    larger, best = best, better(best, v, others)
            if best is before:
                break
        self.timer.lap("refinement")
        return best if _acceptable(best) else None

    def _borrowed(self, best: _Combination, v: int) -> list[Form]:
        """Forms of an equation with the terms of another one."""
        others = [form for w, form in enumerate(best.forms) if w != v and form.terms]
        return [form for other in others for form in self.searches[v].with_terms(other.terms)]

    def _simpler(self, best: _Combination, v: int) -> list[Form]:
        """The form of an equation without each of its terms that is not clearly significant."""
        fit, form = best.fit, best.forms[v]
        if fit.deviation is None or len(form.plain) + len(form.terms) < 2:
            return []
        P, out = len(self.plain), []
        ratio = np.abs(fit.Xi[v]) / np.maximum(fit.deviation[v], 1e-300)
        mine, places = self._fitted_terms(best, v)
        for j, p in enumerate(form.plain):
            if ratio[p] < DOUBTFUL:
                rest = form.plain[:j] + form.plain[j + 1 :]
                out.append(Form(rest, tuple(mine)))
        for j, i in enumerate(places):
            if ratio[P + i] < DOUBTFUL:
                out.append(Form(form.plain, (*mine[:j], *mine[j + 1 :])))
        return out

    def _merged(self, best: _Combination, v: int) -> list[Form]:
        """Forms of an equation with one term in place of a plain and another term.

        With equal `K`, `x/(K + x)` is a sum of multiples of `1` and `1/(K + x)`.
        """
        plain, search, out = best.forms[v].plain, self.searches[v], []
        single = [term for term in search.terms if len(term.constants) == 1]
        if not plain or not single:
            return []
        mine, _ = self._fitted_terms(best, v)
        library = compile_terms(single, search.columns)
        for i, term in enumerate(mine):
            if len(term.constants) != 1:
                continue
            value = term.constants[0].value
            (own,) = compile_terms([term], search.columns).evaluate(search.X).T
            columns = library.at(np.full(len(single), value)).evaluate(search.X)
            for j, p in enumerate(plain):
                two = np.column_stack([self._values[:, p], own])
                for other, column in zip(single, columns.T):
                    if _in_span(column, two):
                        known = {c.name: replace(c, value=value) for c in other.constants}
                        terms = (*mine[:i], other.at(known), *mine[i + 1 :])
                        out.append(Form(plain[:j] + plain[j + 1 :], terms))
        return out

    def _plainer(self, best: _Combination, v: int) -> list[Form]:
        """The best forms of an equation with plain terms in place of one with constants.

        On a short range, `x*exp(k*x)` with a small `k` is not more than a polynomial.
        """
        mine, _ = self._fitted_terms(best, v)
        rests = [tuple(mine[:i] + mine[i + 1 :]) for i in range(len(mine))]
        return [form for rest in rests for form in self.searches[v].with_terms(rest)]

    def _fitted_terms(self, best: _Combination, v: int) -> tuple[list[Term], list[int]]:
        """The terms with fitted constants of an equation, and their indices in the joint fit."""
        terms, places, _ = _joined(best.forms)
        fitted = best.refiner.model(best.fit).terms.fitted(best.fit.theta_deviation)
        known = {c.name: c for t in fitted for c in t.constants}
        mine = []
        for term, i in zip(best.forms[v].terms, places[v]):
            values = {c.name: replace(c, value=known[d.name].value)
                      for c, d in zip(term.constants, terms[i].constants)}  # fmt: skip
            mine.append(term.at(values))
        return mine, places[v]

    def _fitted(self, forms: tuple[Form, ...]) -> _Combination:
        """Joint fit of one form per equation."""
        terms, places, owners = _joined(forms)
        known = {str(self.ranged[p].formula): p for p in self.open}
        sources = []
        for own in owners:
            match = [p for p in self.open if self.ranged[p].formula == own.formula]
            alike = [p for p in self.open if self.ranged[p].constants == own.constants]
            sources.append((match or alike or [known.get(str(own.formula), self.open[0])])[0])
        all_terms = [self.data.terms.terms[p] for p in self.plain] + terms
        compiled = compile_terms(all_terms, self.data.terms.variables)
        rules = self.rules.only(np.array([*self.plain, *sources], dtype=int))
        P = len(self.plain)
        chosen = np.zeros_like(rules.allowed)
        for v, form in enumerate(forms):
            chosen[v, [*np.searchsorted(self.plain, self.plain[list(form.plain)])]] = True
            chosen[v, [P + i for i in places[v]]] = True
        allowed = rules.allowed.copy()
        allowed[:, P:] &= chosen[:, P:]
        rules = replace(rules, allowed=allowed)
        fixed = np.pad(self.data.fixed[:, self.plain], ((0, 0), (0, len(terms))))
        Xi = self._coefficients(compiled, chosen, fixed)
        data = self.data
        refiner = Refiner(data.nodes, compiled, data.order, rules, data.link, self.progress)
        fit = continuation(refiner, self.Z, self.dZ, Xi, self.sigma, keep=True)
        fault = FAULT * self._faults(refiner, fit, chosen & allowed)
        fit = replace(fit, evidence=fit.evidence - fault)
        return _Combination(forms, refiner, fit)

    def _coefficients(self, compiled: CompiledTerms, chosen: Flags, fixed: Array) -> Array:
        Xi = fixed.copy()
        for v, search in enumerate(self.searches):
            if chosen[v].any():
                A = search.operator @ compiled.evaluate(search.X)[:, chosen[v]]
                length = np.maximum(np.linalg.norm(A, axis=0), 1e-300)
                xi = np.linalg.lstsq(A / length, search.y, rcond=None)[0] / length
                Xi[v, chosen[v]] = np.where(xi == 0.0, 1e-300, xi)
        return Xi

    @staticmethod
    def _faults(refiner: Refiner, fit: JointFit, chosen: Flags) -> int:
        """Number of terms below the threshold, and of constants at bounds or not determined."""
        if not np.isfinite(fit.evidence):
            return 0
        share = np.abs(fit.Xi) * refiner.sizes(fit)
        low, high = (np.array([getattr(c, e) for c in refiner.constants]) for e in ("low", "high"))
        inside = (fit.theta > low) & (fit.theta < high)
        known = fit.theta_deviation <= UNKNOWN * np.abs(fit.theta)
        return int((share[chosen] < refiner.rules.threshold).sum() + (~(inside & known)).sum())

    def result(self, best: _Combination, ensemble: int) -> FitResult:
        """Intervals, inclusion and diagnostics of a combination."""
        refiner, fit = best.refiner, best.fit
        terms = refiner.model(fit).terms.fitted(fit.theta_deviation)
        fit = refiner.freeze(fit)
        data = replace(self.data, terms=refiner.terms, rules=refiner.rules,
                       fixed=np.where(refiner.rules.allowed, 0.0, fit.Xi))  # fmt: skip
        kept = np.ones(len(refiner.terms.terms), bool)
        none = np.zeros(self.smoothed.shape, bool)[:, : refiner.V]
        initial = Initial(
            data, kept, self.used, self.smoothed, self.Z, self.dZ, self.dZ, self.Z, self.sigma,
            Regression([], [], np.zeros(0), np.zeros(0)), [],
        )  # fmt: skip
        attempt = Attempt(initial, refiner, fit, diagnostics_of(refiner, fit), self.timer, none)
        return replace(result_of(attempt, data, ensemble, self.rng), terms=terms)


def _joined(forms: Sequence[Form]) -> tuple[list[Term], list[list[int]], list[Term]]:
    """The terms of all forms, their indices by equation, and the terms before renaming.

    Equations share a term if its constants are about equal, and constants that may not differ.
    """
    terms: list[Term] = []
    owners: list[Term] = []
    places: list[list[int]] = []
    for form in forms:
        mine: list[int] = []
        names: dict[str, str] = {}
        for term in form.terms:
            same = [i for i, other in enumerate(owners) if _same(term, other) and i not in mine]
            if same:
                mine.append(same[0])
                continue
            for constant in term.constants:
                taken = {c.name for other in terms for c in other.constants} | set(names.values())
                if constant.own and constant.name not in names:
                    names[constant.name] = _free_name(constant.name, taken)
            mine.append(len(terms))
            terms.append(term.renamed(names))
            owners.append(term)
        places.append(mine)
    return terms, places, owners


def _in_span(column: Array, two: Array) -> bool:
    """Whether a column is a sum of multiples of two others, and of neither alone."""
    if not (np.isfinite(column).all() and np.isfinite(two).all()):
        return False

    def distance(basis: Array) -> float:
        Q = np.linalg.qr(basis)[0]
        return float(np.linalg.norm(column - Q @ (Q.T @ column)))

    near = IDENTICAL * float(np.linalg.norm(column))
    return distance(two) < near < min(distance(two[:, :1]), distance(two[:, 1:]))


def _same(a: Term, b: Term) -> bool:
    if a.formula != b.formula or (a.formula is None and a != b):
        return False
    pairs = zip(a.constants, b.constants)
    return all(
        not x.own or abs(x.value - y.value) <= SHARED * max(abs(x.value), abs(y.value))
        for x, y in pairs
    )


def _free_name(name: str, taken: set[str]) -> str:
    """`?K`, `?K2`, ... for a constant of a library."""
    letter = name.split("_")[0]
    number = 2
    found = letter
    while found in taken:
        found, number = f"{letter}{number}", number + 1
    return found


def discover_open(
    data: FitInput, *, ensemble: int, rng: np.random.Generator, progress: Progress
) -> FitResult:
    """Fit coefficients and the constants inside terms.

    Raises:
        DataError: If no equations with these terms can be fitted.
    """
    search = SystemSearch(data, rng, progress)
    best = search.best()
    if best is None:
        raise DataError(
            "no equations with constants inside terms could be fitted; the data may be too few, "
            "or the constants outside their bounds. Give bounds, or another library."
        )
    return search.result(best, ensemble)
