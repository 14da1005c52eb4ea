"""Few data, or a model that does not hold strictly: compare whole joint fits.

Where the linearised choice of terms does not settle, supports of every size from the regression are
fitted with their terms held, and the best of them is varied by one term at a time, as long as the
evidence grows.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np

from smnn.discovery._fit.anneal import anneal
from smnn.discovery._fit.arrays import Array, Flags
from smnn.discovery._fit.refine import Fit, Refiner
from smnn.discovery._fit.regression import Regression
from smnn.discovery._fit.selection import Triangle

LARGEST = 6
"""Terms of an equation in the supports that are tried first."""
EFFORT = 200_000
"""Fits times nodes times candidates after which no other is begun: some ten seconds."""
FEWEST, MOST = 16, 300
"""Fits, whatever their size. They are counted and not timed: an answer must not depend on haste."""
MOVES = 4
"""Terms to add, and to drop, that are tried in a round."""
EXHAUSTIVE = 4
"""Largest number of terms in an equation for which all sets of terms are looked at."""
MOST_SETS = 20_000
"""Sets that are looked at, at most."""


def explore(
    refiner: Refiner, Z: Array, dZ: Array, held: Array, sigma: Array, regression: Regression
) -> Fit:
    """The best of the joint fits with given terms."""
    allowed = refiner.rules.allowed
    limit = min(max(EFFORT // (len(Z) * max(int(allowed.sum()), 1)), FEWEST), MOST)
    tried: dict[bytes, Fit] = {}

    def fitted(support: Flags) -> Fit:
        key = support.tobytes()
        if key not in tried:
            Xi = _coefficients(regression, support, held, refiner.rules.allowed)
            fit = anneal(refiner, Z, dZ, Xi, sigma, keep=True)
            share = np.abs(fit.Xi) * refiner.sizes(fit)
            if (share[support & refiner.rules.allowed] < refiner.rules.threshold).any():
                fit = replace(fit, evidence=-np.inf)  # terms that make no difference
            tried[key] = fit
        return tried[key]

    best: Fit | None = None
    for support in _small(regression, allowed, held) + _nested(regression, allowed, held):
        fit = fitted(support)
        if best is None or fit.evidence > best.evidence:
            best = fit
        if len(tried) >= limit:
            break
    assert best is not None
    while len(tried) < limit:
        found = best
        for support in _neighbours(refiner, best):
            fit = fitted(support)
            if fit.evidence > found.evidence:
                found = fit
            if len(tried) >= limit:
                break
        if found is best:
            break
        best = found
        refiner.say(f"{int((best.Xi != 0).sum())} terms, evidence {best.evidence:.5g}")
    return best


def _small(regression: Regression, allowed: Flags, held: Array) -> list[Flags]:
    """Supports with 1, 2, ... terms in every equation: the best of all, as far as they are few.

    Dropping one term after the other does not find them where terms stand in for each other.
    """
    sizes = [k for k in range(1, EXHAUSTIVE + 1) if _all_in_reach(allowed, k)]
    out = [np.zeros_like(allowed) for _ in sizes]
    for v, mine in enumerate(allowed):
        where = np.flatnonzero(mine)
        triangle = Triangle(regression.R[v][:, where], regression.b[v] - regression.R[v] @ held[v])
        gram, right = triangle.R.T @ triangle.R, triangle.R.T @ triangle.b
        for support, k in zip(out, sizes):
            few = min(k, len(where))
            sets = np.array(list(itertools.combinations(range(len(where)), few)))
            if sets.size == 0:
                continue
            G = gram[sets[:, :, None], sets[:, None, :]] + 1e-10 * np.eye(few)
            explained = (right[sets] * np.linalg.solve(G, right[sets][..., None])[..., 0]).sum(1)
            support[v, where[sets[np.argmax(explained)]]] = True
    return out


def _all_in_reach(allowed: Flags, k: int) -> bool:
    return math.comb(int(allowed.sum(1).max()), k) <= MOST_SETS


def _nested(regression: Regression, allowed: Flags, held: Array) -> list[Flags]:
    """Supports with 1, 2, ... terms in every equation, by dropping the least useful one."""
    V, P = allowed.shape
    paths: list[list[Flags]] = []
    for v in range(V):
        triangle = Triangle(regression.R[v], regression.b[v] - regression.R[v] @ held[v])
        support = allowed[v].copy()
        path = [support.copy()]
        while support.any():
            p, deviation, _ = triangle.solve(support)
            loss = np.where(np.isinf(deviation), 0.0, (p / np.maximum(deviation, 1e-300)) ** 2)
            support[np.flatnonzero(support)[np.argmin(loss)]] = False
            path.append(support.copy())
        paths.append(path[::-1])  # path[k] has k terms
    out = []
    for k in range(1, min(LARGEST, P) + 1):
        out.append(np.stack([path[min(k, len(path) - 1)] for path in paths]))
    return out


def _coefficients(regression: Regression, support: Flags, held: Array, allowed: Flags) -> Array:
    Xi = held.copy()
    for v in range(len(support)):
        mine = support[v] & allowed[v]
        if mine.any():
            b = regression.b[v] - regression.R[v] @ held[v]
            Xi[v, mine] = np.linalg.lstsq(regression.R[v][:, mine], b, rcond=None)[0]
            Xi[v, mine & (Xi[v] == 0.0)] = 1e-300  # a term that is held stays
    return Xi


def _neighbours(refiner: Refiner, fit: Fit) -> list[Flags]:
    """Supports with one term less or more, the most promising first."""
    free = refiner.rules.allowed
    found = refiner.triangle(fit, free)
    present = (fit.Xi != 0) & free
    if found is None:
        return []
    triangle = Triangle(found[0], found[1])
    support = present[free]
    p, deviation, residual = triangle.solve(support)
    loss = (p / np.maximum(deviation, 1e-300)) ** 2
    gains = triangle.gains(support, residual)
    places = np.flatnonzero(free.ravel())
    out = []

    def changed(*flat: int) -> Flags:
        new = present.copy().ravel()
        new[list(flat)] ^= True
        return new.reshape(present.shape)

    weak = places[np.flatnonzero(support)[np.argsort(loss)[:MOVES]]]
    strong = places[np.argsort(-gains)[: min(MOVES, int((~support).sum()))]]
    out += [changed(i) for i in weak]
    out += [changed(i) for i in strong]
    out += [changed(i, j) for i in weak[:2] for j in strong[:2]]
    return out
