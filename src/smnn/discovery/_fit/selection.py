"""Term selection: sparse least squares on a triangular system.

Both the regression and the joint fit reduce to `|R p - b|^2`, in units of the noise, with one entry
of `p` per candidate. A term is kept if removing it raises this cost by more than a penalty. This
tests significance rather than size, so it does not depend on units. The search starts from the full
set and removes, adds and swaps terms until the penalized cost stops decreasing. A second search
starts from the empty set: if terms are collinear, as under a conservation law, backward elimination
can miss the shortest equation.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import qr, solve_triangular

from smnn.discovery._arrays import Array, Flags, Indices

SPANNED = 1e-4  # Squared norm of the residual below which a unit column lies in the span of others
MOST_NEAR = 10  # Number of terms in the span of others that are tried in pairs
ABOUT = 0.25  # Cost by which a simpler term may be worse, as a fraction of the penalty
MOST_SETS = 5000  # Maximum number of subsets of one size for an exhaustive search
MAX_ROUNDS = 200  # Maximum number of moves of a search; a safeguard only


def penalty_for(observations: int, candidates: int, strength: float = 1.0) -> float:
    """Penalty per term: the extended BIC of Chen and Chen (2008)."""
    return strength * (np.log(max(observations, 2)) + 2.0 * np.log(max(candidates, 1)))


@dataclass(frozen=True)
class Selection:
    """Selected terms and their coefficients."""

    support: Flags  # (m,) mask of the selected terms
    p: Array  # (m,) coefficients, zero outside the support
    cost: float  # `|R p - b|^2`
    deviation: Array  # (m,) standard deviations in units of the noise, zero outside the support


class TriangularSystem:
    """`|R p - b|^2` with columns scaled to unit norm."""

    def __init__(self, R: Array, b: Array) -> None:
        self.length = np.sqrt((R**2).sum(0))
        self.length[self.length == 0.0] = 1.0
        self.R = R / self.length
        self.b = b

    def solve(self, support: Flags) -> tuple[Array, Array, Array]:
        """Scaled coefficients, their scaled standard deviations, and the residual."""
        k = int(support.sum())
        if k == 0:
            return np.zeros(0), np.zeros(0), self.b
        Q, S, order = qr(self.R[:, support], mode="economic", pivoting=True)
        diagonal = np.abs(np.diag(S))
        rank = int((diagonal > 1e-12 * diagonal[0]).sum()) if diagonal[0] > 0 else 0
        z = Q.T @ self.b
        p, deviation = np.zeros(k), np.full(k, np.inf)
        if rank:
            inverse = solve_triangular(S[:rank, :rank], np.eye(rank))
            p[order[:rank]] = inverse @ z[:rank]
            deviation[order[:rank]] = np.sqrt((inverse**2).sum(1))
        residual = self.b - Q[:, :rank] @ z[:rank]
        return p, deviation, residual

    def gains(self, support: Flags, residual: Array) -> Array:
        """Decrease of the cost by adding each absent column; zero for the present ones."""
        gains = np.zeros(len(support))
        absent = np.flatnonzero(~support)
        if len(absent) == 0:
            return gains
        columns = self.R[:, absent]
        if support.any():
            Q = np.linalg.qr(self.R[:, support])[0]
            columns = columns - Q @ (Q.T @ columns)
        size = (columns**2).sum(0)
        gains[absent] = np.where(
            size > 1e-10, (columns.T @ residual) ** 2 / np.maximum(size, 1e-300), 0.0
        )
        return gains

    def selected(self, support: Flags) -> Selection:
        """Solve on a support and undo the scaling."""
        p, deviation, residual = self.solve(support)
        full, wide = np.zeros(len(support)), np.zeros(len(support))
        full[support], wide[support] = p / self.length[support], deviation / self.length[support]
        return Selection(support.copy(), full, float(residual @ residual), wide)


def select(
    R: Array, b: Array, penalty: float, *, start: Flags | None = None,
    required: Flags | None = None, low: Array | None = None, high: Array | None = None,
    complexity: Array | None = None, equation: Indices | None = None,
) -> Selection:  # fmt: skip
    """Select terms.

    Args:
        R: (k, m) matrix.
        b: (k,) right-hand side.
        penalty: Decrease of the cost that a term must achieve to be kept.
        start: Initial support; by default the better result from all terms and from none.
        required: Terms that are always kept.
        low: (m,) lower bounds of the coefficients. A term beyond a bound of zero is left out; one
            beyond another bound gets this value.
        high: (m,) upper bounds.
        complexity: (m,) complexity; of terms with about equal cost, the simplest is chosen.
        equation: (m,) index of the equation that a term belongs to; by default one for all.
    """
    m = R.shape[1]
    search = _Search(
        TriangularSystem(R, b),
        penalty,
        np.zeros(m, bool) if required is None else required,
        np.full(m, -np.inf) if low is None else low,
        np.full(m, np.inf) if high is None else high,
        np.zeros(m, int) if equation is None else equation,
    )
    found = _selected(search, start, complexity)
    beyond = np.maximum(search.low - found.p, found.p - search.high) * search.system.length
    beyond[~found.support | search.at_zero(found.p)] = 0.0
    j = int(np.argmax(beyond)) if m else 0
    if not m or beyond[j] <= 0.0:
        return found
    # Keep the value at the bound, and select the other terms again.
    held, rest = float(np.clip(found.p[j], search.low[j], search.high[j])), R.copy()
    rest[:, j] = 0.0
    others = np.arange(m) != j
    chosen = select(
        rest, b - held * R[:, j], penalty, start=None if start is None else start & others,
        required=search.required & others, low=np.where(others, search.low, -np.inf),
        high=np.where(others, search.high, np.inf), complexity=complexity, equation=equation,
    )  # fmt: skip
    p = np.where(others, chosen.p, held)
    return replace(chosen, support=chosen.support | ~others, p=p)


def _selected(search: _Search, start: Flags | None, complexity: Array | None) -> Selection:
    """Select terms without bounds other than zero."""
    if start is not None:
        return search.run(start | search.required)
    found = search.run(np.ones(len(search.required), bool))
    if not np.isfinite(search.penalty):
        return found
    if found.support.sum() > max(int(search.required.sum()), 1):
        other = search.run(search.required)
        found = min(found, other, key=lambda one: one.cost + search.penalty * one.support.sum())
    if complexity is None:
        return found
    simple = search.simpler(found, complexity)
    fewer = search.run(simple.support)
    return fewer if fewer.support.sum() < simple.support.sum() else simple


@dataclass(frozen=True)
class _Search:
    """Local search for the support with the lowest penalized cost."""

    system: TriangularSystem
    penalty: float
    required: Flags
    low: Array
    high: Array
    equation: Indices

    def run(self, support: Flags) -> Selection:
        """Remove, add and swap terms until the penalized cost stops decreasing."""
        barred = np.zeros(len(support), bool)
        visited: set[bytes] = set()
        for _ in range(MAX_ROUNDS):
            support = self._drop(support, self.required)
            p, _, residual = self.system.solve(support)
            wrong = self._wrong_signs(support, p)
            if wrong.any():
                barred |= wrong
                support = support & ~wrong
                continue
            gains = np.where(barred, 0.0, self.system.gains(support, residual))
            if gains.max(initial=0.0) > self.penalty:
                support = support.copy()
                support[np.argmax(gains)] = True
                continue
            cost = float(residual @ residual)
            better = self._swap(support, barred, cost)
            if better is None:
                better = self._simplify(support, barred, cost)
            if better is None:
                better = self._fewer(support, barred, cost)
            visited.add(support.tobytes())
            if better is None or better.tobytes() in visited:  # a cycle caused by rounding
                break
            support = better
        return self.system.selected(support)

    def simpler(self, found: Selection, complexity: Array) -> Selection:
        """Replace terms by simpler ones of about equal cost: `x y` by `x`, say, for constant y."""
        for j in np.flatnonzero(found.support & ~self.required):
            fewer, after = self._without(found.support, int(j))
            limit = found.cost + ABOUT * self.penalty
            good = ~found.support & (complexity < complexity[j]) & (after < limit)
            if good.any():
                fewer[np.flatnonzero(good)[np.lexsort((after[good], complexity[good]))[0]]] = True
                other = self.system.selected(fewer)
                if not self._wrong_signs(fewer, self.system.solve(fewer)[0]).any():
                    found = other
        return found

    def _without(self, support: Flags, j: int) -> tuple[Flags, Array]:
        """The support without a term, and the cost after adding each of the absent terms."""
        fewer = support.copy()
        fewer[j] = False
        _, _, residual = self.system.solve(fewer)
        return fewer, float(residual @ residual) - self.system.gains(fewer, residual)

    def _drop(self, support: Flags, required: Flags) -> Flags:
        """Remove the least significant term while it is worth less than the penalty."""
        support = support.copy()
        while (support & ~required).any():
            p, deviation, _ = self.system.solve(support)
            where = np.flatnonzero(support)
            loss = np.where(np.isinf(deviation), 0.0, p**2 / np.maximum(deviation, 1e-300) ** 2)
            loss[required[where]] = np.inf
            worst = int(np.argmin(loss))
            if loss[worst] > self.penalty:
                break
            support[where[worst]] = False
        return support

    def _swap(self, support: Flags, barred: Flags, cost: float) -> Flags | None:
        """Best swap of one term for another; `None` if no swap lowers the cost."""
        best, found = cost * (1.0 - 1e-9) - 1e-6, None
        for j in np.flatnonzero(support & ~self.required):
            fewer = support.copy()
            fewer[j] = False
            _, _, residual = self.system.solve(fewer)
            gains = np.where(barred, 0.0, self.system.gains(fewer, residual))
            gains[j] = 0.0
            i = int(np.argmax(gains))
            after = float(residual @ residual) - gains[i]
            if after < best:
                best, found = after, fewer.copy()
                found[i] = True
        return found

    def _simplify(self, support: Flags, barred: Flags, cost: float) -> Flags | None:
        """Replace several terms by one or two that span them, as under a conservation law.

        Such terms lie almost in the span of the selected ones, so adding them alone gains nothing.
        """
        if support.sum() < 2 or not np.isfinite(self.penalty):
            return None
        Q = np.linalg.qr(self.system.R[:, support])[0]
        outside = ((self.system.R - Q @ (Q.T @ self.system.R)) ** 2).sum(0)
        near = np.flatnonzero(~support & ~barred & (outside < SPANNED))
        near = near[np.argsort(outside[near])]
        pairs = itertools.combinations(near[:MOST_NEAR], 2) if support.sum() > 2 else ()
        for added in itertools.chain(((int(j),) for j in near), pairs):
            with_them = self.required.copy()
            with_them[list(added)] = True
            fewer = self._drop(support | with_them, with_them)
            _, _, residual = self.system.solve(fewer)
            saved = (support.sum() - fewer.sum()) * self.penalty
            if saved > 0 and float(residual @ residual) - cost < saved:
                return fewer
        return None

    def _fewer(self, support: Flags, barred: Flags, cost: float) -> Flags | None:
        """Best smaller subset of the terms of one equation, if its penalized cost is lower.

        Removing one term at a time fails for nearly collinear terms, such as 1, x, x^2 and x^3 of a
        short decay: each of three terms seems significant although two would do.
        """
        if not np.isfinite(self.penalty):
            return None
        for v in np.unique(self.equation[support & ~self.required]):
            present = support & ~self.required & (self.equation == v)
            others, size = support & ~present, int(present.sum())
            where = np.flatnonzero((self.equation == v) & ~self.required & ~barred)
            columns, right = self.system.R[:, where], self.system.b
            if others.any():
                Q = np.linalg.qr(self.system.R[:, others])[0]
                columns, right = columns - Q @ (Q.T @ columns), right - Q @ (Q.T @ right)
            gram, c = columns.T @ columns, columns.T @ right
            for k in range(1, size):
                if math.comb(len(where), k) > MOST_SETS:
                    break
                found = others.copy()
                found[where[best_subset(gram, c, k, 1e-12)]] = True
                _, _, residual = self.system.solve(found)
                if float(residual @ residual) - cost < (size - k) * self.penalty * (1.0 - 1e-9):
                    return found
        return None

    def _wrong_signs(self, support: Flags, p: Array) -> Flags:
        """Mask of the terms that violate a bound of zero."""
        full: Any = np.zeros(len(support))
        full[support] = p
        return self.at_zero(full) & ~self.required

    def at_zero(self, p: Array) -> Flags:
        """Mask of the coefficients beyond a bound of zero."""
        return np.asarray(((self.low == 0.0) & (p < 0.0)) | ((self.high == 0.0) & (p > 0.0)))


def best_subset(gram: Array, right: Array, k: int, ridge: float) -> Indices:
    """Indices of the k columns that explain most, from normal equations."""
    sets = _sets(len(right), k)
    G = gram[sets[:, :, None], sets[:, None, :]] + ridge * np.eye(k)
    explained = (right[sets] * np.linalg.solve(G, right[sets][..., None])[..., 0]).sum(1)
    return np.asarray(sets[np.argmax(explained)])


@functools.lru_cache(maxsize=64)
def _sets(n: int, k: int) -> Indices:
    """All subsets of size k of n items, one per row."""
    return np.array(list(itertools.combinations(range(n), k)))
