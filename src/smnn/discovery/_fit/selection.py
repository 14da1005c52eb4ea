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
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import qr, solve_triangular

from smnn.discovery._arrays import Array, Flags, Indices

SPANNED = 1e-4
"""Squared norm of the residual below which a unit column lies in the span of others."""
MOST_NEAR = 10
"""Number of terms in the span of others that are tried in pairs."""
ABOUT = 0.25
"""Cost by which a simpler term may be worse, as a fraction of the penalty."""
MOST_SETS = 5000
"""Maximum number of subsets of one size for an exhaustive search."""
MAX_ROUNDS = 200
"""Maximum number of moves of a search; a safeguard only."""


def penalty_for(observations: int, candidates: int, strength: float = 1.0) -> float:
    """Penalty per term: the extended BIC of Chen and Chen (2008)."""
    return strength * (np.log(max(observations, 2)) + 2.0 * np.log(max(candidates, 1)))


@dataclass(frozen=True)
class Selection:
    """Selected terms and their coefficients."""

    support: Flags
    """(m,) mask of the selected terms."""
    p: Array
    """(m,) coefficients, zero outside the support."""
    cost: float
    """`|R p - b|^2`."""
    deviation: Array
    """(m,) standard deviations in units of the noise, zero outside the support."""


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
    R: Array,
    b: Array,
    penalty: float,
    *,
    start: Flags | None = None,
    required: Flags | None = None,
    positive: Flags | None = None,
    negative: Flags | None = None,
    complexity: Array | None = None,
    equation: Indices | None = None,
) -> Selection:
    """Select terms.

    Args:
        R: (k, m) matrix.
        b: (k,) right-hand side.
        penalty: Decrease of the cost that a term must achieve to be kept.
        start: Initial support; by default the better result from all terms and from none.
        required: Terms that are always kept.
        positive: Terms whose coefficient must be non-negative.
        negative: Terms whose coefficient must be non-positive.
        complexity: (m,) complexity; of terms with about equal cost, the simplest is chosen.
        equation: (m,) index of the equation that a term belongs to; by default one for all.
    """
    m = R.shape[1]
    groups = np.zeros(m, int) if equation is None else equation
    triangle = TriangularSystem(R, b)
    kept = np.zeros(m, bool) if required is None else required
    signs: list[tuple[Flags, float]] = [
        (flags, sign) for flags, sign in ((positive, 1.0), (negative, -1.0)) if flags is not None
    ]
    if start is not None:
        return _search(triangle, start | kept, kept, signs, penalty, groups)
    found = _search(triangle, np.ones(m, bool), kept, signs, penalty, groups)
    if not np.isfinite(penalty):
        return found
    if found.support.sum() > max(int(kept.sum()), 1):
        other = _search(triangle, kept, kept, signs, penalty, groups)
        found = min(found, other, key=lambda one: one.cost + penalty * one.support.sum())
    if complexity is None:
        return found
    simple = _simpler(triangle, found, kept, signs, complexity, ABOUT * penalty)
    fewer = _search(triangle, simple.support, kept, signs, penalty, groups)
    return fewer if fewer.support.sum() < simple.support.sum() else simple


def _simpler(
    triangle: TriangularSystem,
    found: Selection,
    kept: Flags,
    signs: list[tuple[Flags, float]],
    complexity: Array,
    slack: float,
) -> Selection:
    """Replace terms by simpler ones of about equal cost: `x y` by `x`, say, if y is constant."""
    for j in np.flatnonzero(found.support & ~kept):
        fewer = found.support.copy()
        fewer[j] = False
        _, _, residual = triangle.solve(fewer)
        after = float(residual @ residual) - triangle.gains(fewer, residual)
        good = ~found.support & (complexity < complexity[j]) & (after < found.cost + slack)
        if good.any():
            fewer[np.flatnonzero(good)[np.lexsort((after[good], complexity[good]))[0]]] = True
            other = triangle.selected(fewer)
            if not (_wrong_signs(fewer, triangle.solve(fewer)[0], signs) & ~kept).any():
                found = other
    return found


def _search(
    triangle: TriangularSystem,
    support: Flags,
    kept: Flags,
    signs: list[tuple[Flags, float]],
    penalty: float,
    groups: Indices,
) -> Selection:
    """Remove, add and swap terms until the penalized cost stops decreasing."""
    barred = np.zeros(len(support), bool)
    visited: set[bytes] = set()
    for _ in range(MAX_ROUNDS):
        support = _drop(triangle, support, kept, penalty)
        p, _, residual = triangle.solve(support)
        wrong = _wrong_signs(support, p, signs) & ~kept
        if wrong.any():
            barred |= wrong
            support = support & ~wrong
            continue
        gains = np.where(barred, 0.0, triangle.gains(support, residual))
        if gains.max(initial=0.0) > penalty:
            support = support.copy()
            support[np.argmax(gains)] = True
            continue
        cost = float(residual @ residual)
        better = _swap(triangle, support, kept, barred, cost)
        if better is None:
            better = _simplify(triangle, support, kept, barred, penalty, cost)
        if better is None:
            better = _fewer(triangle, support, kept, barred, penalty, cost, groups)
        visited.add(support.tobytes())
        if better is None or better.tobytes() in visited:  # a cycle caused by rounding
            break
        support = better
    return triangle.selected(support)


def _drop(triangle: TriangularSystem, support: Flags, kept: Flags, penalty: float) -> Flags:
    """Remove the least significant term while it is worth less than the penalty."""
    support = support.copy()
    while (support & ~kept).any():
        p, deviation, _ = triangle.solve(support)
        where = np.flatnonzero(support)
        loss = np.where(np.isinf(deviation), 0.0, p**2 / np.maximum(deviation, 1e-300) ** 2)
        loss[kept[where]] = np.inf
        worst = int(np.argmin(loss))
        if loss[worst] > penalty:
            break
        support[where[worst]] = False
    return support


def _swap(
    triangle: TriangularSystem, support: Flags, kept: Flags, barred: Flags, cost: float
) -> Flags | None:
    """Best swap of one term for another; `None` if no swap lowers the cost."""
    best, found = cost * (1.0 - 1e-9) - 1e-6, None
    for j in np.flatnonzero(support & ~kept):
        fewer = support.copy()
        fewer[j] = False
        _, _, residual = triangle.solve(fewer)
        gains = np.where(barred, 0.0, triangle.gains(fewer, residual))
        gains[j] = 0.0
        i = int(np.argmax(gains))
        after = float(residual @ residual) - gains[i]
        if after < best:
            best, found = after, fewer.copy()
            found[i] = True
    return found


def _simplify(
    triangle: TriangularSystem,
    support: Flags,
    kept: Flags,
    barred: Flags,
    penalty: float,
    cost: float,
) -> Flags | None:
    """Replace several terms by one or two that span them, as under a conservation law.

    Such terms lie almost in the span of the selected ones, so adding them alone gains nothing.
    """
    if support.sum() < 2 or not np.isfinite(penalty):
        return None
    Q = np.linalg.qr(triangle.R[:, support])[0]
    outside = ((triangle.R - Q @ (Q.T @ triangle.R)) ** 2).sum(0)
    near = np.flatnonzero(~support & ~barred & (outside < SPANNED))
    near = near[np.argsort(outside[near])]
    pairs = itertools.combinations(near[:MOST_NEAR], 2) if support.sum() > 2 else ()
    for added in itertools.chain(((int(j),) for j in near), pairs):
        with_them = kept.copy()
        with_them[list(added)] = True
        fewer = _drop(triangle, support | with_them, with_them, penalty)
        _, _, residual = triangle.solve(fewer)
        saved = (support.sum() - fewer.sum()) * penalty
        if saved > 0 and float(residual @ residual) - cost < saved:
            return fewer
    return None


def _fewer(
    triangle: TriangularSystem,
    support: Flags,
    kept: Flags,
    barred: Flags,
    penalty: float,
    cost: float,
    groups: Indices,
) -> Flags | None:
    """Best smaller subset of the terms of one equation, if its penalized cost is lower.

    Removing one term at a time fails for nearly collinear terms, such as 1, x, x^2 and x^3 of a
    short decay: each of three terms seems significant although two would do.
    """
    if not np.isfinite(penalty):
        return None
    for v in np.unique(groups[support & ~kept]):
        present = support & ~kept & (groups == v)
        others, size = support & ~present, int(present.sum())
        where = np.flatnonzero((groups == v) & ~kept & ~barred)
        columns, right = triangle.R[:, where], triangle.b
        if others.any():
            Q = np.linalg.qr(triangle.R[:, others])[0]
            columns, right = columns - Q @ (Q.T @ columns), right - Q @ (Q.T @ right)
        gram, c = columns.T @ columns, columns.T @ right
        for k in range(1, size):
            if math.comb(len(where), k) > MOST_SETS:
                break
            sets = _sets(len(where), k)
            G = gram[sets[:, :, None], sets[:, None, :]] + 1e-12 * np.eye(k)
            explained = (c[sets] * np.linalg.solve(G, c[sets][..., None])[..., 0]).sum(1)
            found = others.copy()
            found[where[sets[np.argmax(explained)]]] = True
            _, _, residual = triangle.solve(found)
            if float(residual @ residual) - cost < (size - k) * penalty * (1.0 - 1e-9):
                return found
    return None


@functools.lru_cache(maxsize=64)
def _sets(n: int, k: int) -> Indices:
    """All subsets of size k of n items, one per row."""
    return np.array(list(itertools.combinations(range(n), k)))


def _wrong_signs(support: Flags, p: Array, signs: list[tuple[Flags, float]]) -> Flags:
    full: Any = np.zeros(len(support))
    full[support] = p
    wrong = np.zeros(len(support), bool)
    for flags, sign in signs:
        wrong |= flags & (sign * full < 0.0)
    return wrong
