"""Search for the terms with constants inside of one equation, in the integral regression.

Columns of the regression are computed for starting values of all constants. For every small set of
plain terms, the column that explains most of the remainder is found; its constants are refined by
variable projection, and further terms are added in the same way. Forms are compared by an
information criterion that charges for every coefficient, every constant, and the choice of terms.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import sympy

from smnn.discovery._arrays import Array, Indices
from smnn.discovery._open.ranges import starts
from smnn.discovery._terms import CompiledTerms, Constant, Term, compile_terms, open_term

MOST_PLAIN = 3  # Maximum number of plain terms beside a term with constants
MOST_OPEN = 2  # Maximum number of terms with constants, not counting pairs of sine and cosine
MOST_SETS = 700  # Maximum number of sets of plain terms
BEAM = 12  # Number of forms that are refined in each round
SAME_TERM = 3  # Maximum number of them with the same term
KEPT = 3  # Number of forms to which another term is added
FLOOR = 1e-5  # Error relative to the spread of the data, below which smaller errors do not count
ITERATIONS = 25
EDGE = 0.01  # Distance to a bound, relative to the range of a constant, that counts as reaching it
INDEPENDENT = 1e-7  # Squared sine of the angle to other columns below which a column is dependent


@dataclass(frozen=True)
class Form:
    """Terms of one equation."""

    plain: tuple[int, ...]  # Indices of plain terms
    terms: tuple[Term, ...]  # Terms with the values of their constants
    score: float = np.inf  # Information criterion, in nats; smaller is better

    @property
    def constants(self) -> dict[str, Constant]:
        """The constants by name."""
        return {c.name: c for term in self.terms for c in term.constants}

    @property
    def key(self) -> tuple[Any, ...]:
        """What distinguishes forms: plain terms, and expressions of the others."""
        return self.plain, frozenset(str(t.formula or t.symbolic) for t in self.terms)

    def contains(self, other: Form) -> bool:
        """Whether it has all terms of another form."""
        (plain, terms), (few, mine) = self.key, other.key
        return set(few) <= set(plain) and mine <= terms


class EquationSearch:
    """Data of one equation: plain columns, starting columns, and the right-hand side.

    Args:
        operator: Matrix (N, N) from values of a term to its column of the regression.
        y: (N,) right-hand side.
        X: (N, columns) states, inputs and possibly the time.
        plain: Compiled plain terms.
        allowed: Indices of the plain terms that may be used.
        terms: Terms with constants, with their ranges.
        scale: Standard deviation of the variable.
    """

    def __init__(
        self, operator: Any, y: Array, X: Array, plain: CompiledTerms, allowed: Indices,
        terms: Sequence[Term], scale: float,
    ) -> None:  # fmt: skip
        self.operator, self.y, self.X, self.scale = operator, y, X, scale
        self.columns, self.allowed = plain.variables, allowed
        self.terms = list(terms)
        self.n = max(int(np.count_nonzero(operator.indptr[1:] - operator.indptr[:-1])), 2)
        self.plain = operator @ plain.evaluate(X)
        self.price_plain = 0.5 * np.log(self.n) + np.log(max(len(allowed), 1))
        self.price_open = 0.5 * np.log(self.n) + np.log(max(len(terms), 1))
        self.price_constant = 0.5 * np.log(self.n)
        self._start()

    def _start(self) -> None:
        """Columns for all starting values."""
        values: list[Array] = []
        self.starts: list[tuple[int, Array]] = []
        for p, term in enumerate(self.terms):
            compiled = compile_terms([term], self.columns)
            for theta in starts(term, self.columns, self.X) if term.constants else [np.zeros(0)]:
                column = compiled.at(theta).evaluate(self.X)[:, 0]
                if np.isfinite(column).all() and np.abs(column).max() < 1e100:
                    values.append(column / max(np.abs(column).max(), 1e-300))
                    self.starts.append((p, theta))
        self.pool = self.operator @ np.array(values).T if values else np.empty((len(self.y), 0))

    def criterion(self, squares: float, form: Form) -> float:
        """The information criterion for a sum of squared residuals."""
        price = len(form.plain) * self.price_plain + len(form.terms) * self.price_open
        price += len(form.constants) * self.price_constant
        k = len(form.plain) + len(form.terms) + len(form.constants)
        small_sample = self.n / max(self.n - k - 2.0, 0.5)
        error = squares / self.n / self.scale**2
        return float(0.5 * self.n * np.log(error + FLOOR**2) + small_sample * price)

    def search(self) -> list[Form]:
        """The best forms with terms with constants, best first."""
        found: dict[Any, Form] = {}
        bases = [Form((), ())]
        for _ in range(MOST_OPEN):
            new: list[Form] = []
            for base in bases:
                new += [r for r in map(self.refined, self._extended(base)) if r is not None]
            new.sort(key=lambda form: form.score)
            fewer = [few for f in new[:KEPT] for few in self.with_terms(f.terms)]
            again = [r for r in map(self.refined, fewer) if r is not None]
            for form in [*new, *again, *(r for f in new for r in self._with_partner(f))]:
                if form.key not in found or form.score < found[form.key].score:
                    found[form.key] = form
            bases = new[:KEPT]
        best: list[Form] = []
        for form in sorted(
            [*found.values(), *self.with_terms((), BEAM)], key=lambda form: form.score
        ):
            if not any(form.contains(better) for better in best):
                best.append(form)
        return best

    def with_terms(self, terms: tuple[Term, ...], most: int = 2) -> list[Form]:
        """The best forms with given terms with constants and any plain terms."""
        compiled, out = compile_terms(terms, self.columns), []
        for few in self._sets(len(self.allowed)):
            form = Form(tuple(self.allowed[list(few)].tolist()), terms)
            fixed = self.plain[:, list(form.plain)]
            squares = self._projected(compiled, compiled.theta, fixed)[0]
            if np.isfinite(squares) and (few or terms):
                out.append(replace(form, score=self.criterion(squares, form)))
        return sorted(out, key=lambda form: form.score)[:most]

    def _extended(self, base: Form) -> list[Form]:
        """Forms with one more term, at its best starting values, and any plain terms."""
        if not self.starts:
            return []
        forced = [self.column(t) for t in base.terms]
        P = np.column_stack([self.plain[:, self.allowed], *forced])
        length = np.maximum(np.linalg.norm(P, axis=0), 1e-300)
        P = P / length
        A, y = self.pool, self.y
        squares = np.maximum((A**2).sum(0), 1e-300)
        G, GA, c, a = P.T @ P, P.T @ A, P.T @ y, A.T @ y
        count, own = len(self.allowed), np.arange(len(self.allowed), P.shape[1])
        owners = np.array([p for p, _ in self.starts])
        scored: list[tuple[float, tuple[int, ...], int]] = []
        for few in self._sets(count):
            S = np.array([*few, *own], dtype=int)
            left, norm, rest = a, squares, float(y @ y)
            if len(S):
                try:
                    W = np.linalg.solve(G[np.ix_(S, S)] + 1e-13 * np.eye(len(S)),
                                        np.column_stack([c[S], GA[S]]))  # fmt: skip
                except np.linalg.LinAlgError:
                    continue
                rest = rest - float(c[S] @ W[:, 0])
                left = a - GA[S].T @ W[:, 0]
                norm = squares - (GA[S] * W[:, 1:]).sum(0)
            gain = np.where(norm > INDEPENDENT * squares, left**2 / np.maximum(norm, 1e-300), 0.0)
            best = np.argpartition(-gain, min(SAME_TERM, len(gain) - 1))[:SAME_TERM]
            for i in best:
                form = Form(few, (*base.terms, self.terms[owners[i]]))
                scored.append((self.criterion(max(rest - gain[i], 0.0), form), few, int(i)))
        scored.sort(key=lambda item: item[0])
        out: list[Form] = []
        taken: dict[Any, int] = {}
        for score, few, i in scored:
            p, theta = self.starts[i]
            if taken.get(p, 0) >= SAME_TERM:
                continue
            taken[p] = taken.get(p, 0) + 1
            at = _at(self.terms[p], theta)
            out.append(Form(tuple(self.allowed[list(few)].tolist()), (*base.terms, at), score))
            if len(out) >= BEAM:
                break
        return out

    @staticmethod
    def _sets(count: int) -> list[tuple[int, ...]]:
        """Sets of plain terms, the smaller ones first."""
        sizes = range(MOST_PLAIN + 1)
        every = itertools.chain.from_iterable(
            itertools.combinations(range(count), k) for k in sizes
        )
        return list(itertools.islice(every, MOST_SETS))

    def column(self, term: Term) -> Array:
        """Column of a term with values of its constants."""
        values = compile_terms([term], self.columns).evaluate(self.X)[:, 0]
        return np.asarray(self.operator @ values)

    def refined(self, form: Form) -> Form | None:
        """The form with the best constants; `None` if one reaches its bounds, or none are best."""
        compiled = compile_terms(form.terms, self.columns)
        theta = compiled.theta
        low, high = (np.array([getattr(c, e) for c in compiled.constants]) for e in ("low", "high"))
        fixed = self.plain[:, list(form.plain)]
        squares, xi, rest, Q = self._projected(compiled, theta, fixed)
        damping = 1e-2
        for _ in range(ITERATIONS if len(theta) else 0):
            slopes = np.einsum("npk,p->nk", compiled.at(theta).tangents(self.X), xi)
            if not np.isfinite(slopes).all():
                return None
            J = self.operator @ slopes
            J = J - Q @ (Q.T @ J)
            size = np.maximum(np.linalg.norm(J, axis=0), 1e-300)
            rows = np.vstack([J, np.diag(np.sqrt(damping) * size)])
            right = np.concatenate([rest, np.zeros(len(theta))])
            step = np.linalg.lstsq(rows, right, rcond=None)[0]
            limit = 0.5 * np.maximum(np.abs(theta), 1e-300)
            other = np.clip(theta + np.clip(step, -limit, limit), low, high)
            new = self._projected(compiled, other, fixed)
            if new[0] < squares:
                done = squares - new[0] < 1e-7 * squares
                theta, damping = other, max(0.2 * damping, 1e-8)
                squares, xi, rest, Q = new
                if done:
                    break
            else:
                damping *= 8.0
                if damping > 1e6:
                    break
        inside = EDGE * np.minimum(np.abs(high - low), np.maximum(np.abs(theta), 1e-300))
        if not np.isfinite(squares) or ((theta - low < inside) | (high - theta < inside)).any():
            return None
        terms = tuple(compiled.at(theta).fitted(np.zeros(len(theta))))
        form = replace(form, terms=terms)
        return replace(form, score=self.criterion(squares, form))

    def _projected(
        self, compiled: CompiledTerms, theta: Array, fixed: Array
    ) -> tuple[float, Array, Array, Array]:
        """Sum of squares, coefficients of the open terms, residuals, and basis of all columns."""
        values = compiled.at(theta).evaluate(self.X)
        if not np.isfinite(values).all():
            return np.inf, np.zeros(values.shape[1]), self.y, np.zeros((len(self.y), 0))
        A = np.column_stack([fixed, self.operator @ values])
        length = np.maximum(np.linalg.norm(A, axis=0), 1e-300)
        Q, R = np.linalg.qr(A / length)
        if np.abs(np.diag(R)).min(initial=1.0) ** 2 < INDEPENDENT:
            return np.inf, np.zeros(values.shape[1]), self.y, Q
        z = Q.T @ self.y
        xi = np.linalg.solve(R, z) / length
        rest = self.y - Q @ z
        return float(rest @ rest), xi[fixed.shape[1] :], rest, Q

    def _with_partner(self, form: Form) -> list[Form]:
        """The form with the cosine beside a sine of time, or the reverse, of the same frequency."""
        term = form.terms[-1] if form.terms else None
        time = sympy.Symbol("t")
        if term is None or term.formula is None or time not in term.formula.free_symbols:
            return []
        formula = term.formula
        if formula.has(sympy.sin):
            other = formula.replace(sympy.sin, sympy.cos)
        elif formula.has(sympy.cos):
            other = formula.replace(sympy.cos, sympy.sin)
        else:
            return []
        bounds = {c.name[1:]: (c.low, c.high) for c in term.constants}
        partner = open_term(other, term.order, bounds).at({c.name: c for c in term.constants})
        found = self.refined(Form(form.plain, (*form.terms, partner)))
        return [] if found is None else [found]


def _at(term: Term, theta: Array) -> Term:
    values = {c.name: replace(c, value=float(x)) for c, x in zip(term.constants, theta)}
    return term.at(values)
