"""Search over supports by complete joint fits, for few data or models that hold only approximately.

If the selection in the linearized problem does not converge, supports of every size from the
regression are fitted with fixed terms. The best one is then modified by one term at a time while
the evidence increases.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from smnn.discovery._arrays import Array, Flags
from smnn.discovery._fit.refine import JointFit, Refiner, continuation
from smnn.discovery._fit.regression import Regression
from smnn.discovery._fit.selection import TriangularSystem, best_subset

LARGEST = 6  # Maximum number of terms per equation in the initial supports
EFFORT = 200_000
"""Budget in fits times nodes times candidates, about ten seconds. Fits are counted instead of
timed, so that results are reproducible."""
FEWEST, MOST = 16, 300  # Minimum and maximum number of fits
MOVES = 4  # Number of terms to add, and to remove, that are tried per round
EXHAUSTIVE = 4  # Largest number of terms per equation for which all subsets are compared
MOST_SETS = 20_000  # Maximum number of subsets to compare


def search_supports(
    refiner: Refiner, Z: Array, dZ: Array, fixed: Array, sigma: Array, regression: Regression
) -> JointFit:
    """Joint fit with the highest evidence among the supports that are tried."""
    allowed = refiner.rules.allowed
    limit = min(max(EFFORT // (len(Z) * max(int(allowed.sum()), 1)), FEWEST), MOST)
    tried: dict[bytes, JointFit] = {}

    def fitted(support: Flags) -> JointFit:
        support = support | refiner.rules.required
        key = support.tobytes()
        if key not in tried:
            Xi = _coefficients(regression, support, fixed, refiner.rules.allowed)
            fit = continuation(refiner, Z, dZ, Xi, sigma, keep=True)
            share = np.abs(fit.Xi) * refiner.sizes(fit)
            if (share[support & refiner.rules.allowed] < refiner.rules.threshold).any():
                fit = replace(fit, evidence=-np.inf)  # some term is below the threshold
            tried[key] = fit
        return tried[key]

    best: JointFit | None = None
    for support in _small(regression, allowed, fixed) + _nested(regression, allowed, fixed):
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
        refiner.progress(f"{int((best.Xi != 0).sum())} terms, evidence {best.evidence:.5g}")
    return best


def _small(regression: Regression, allowed: Flags, fixed: Array) -> list[Flags]:
    """Best supports with 1, 2, ... terms per equation, by exhaustive search while feasible.

    Backward elimination misses them if terms are collinear.
    """
    most = int(allowed.sum(1).max())
    sizes = [k for k in range(1, EXHAUSTIVE + 1) if math.comb(most, k) <= MOST_SETS]
    out = [np.zeros_like(allowed) for _ in sizes]
    for v, mine in enumerate(allowed):
        where = np.flatnonzero(mine)
        triangle = TriangularSystem(
            regression.R[v][:, where], regression.b[v] - regression.R[v] @ fixed[v]
        )
        gram, right = triangle.R.T @ triangle.R, triangle.R.T @ triangle.b
        for support, k in zip(out, sizes):
            if len(where):
                few = min(k, len(where))
                support[v, where[best_subset(gram, right, few, 1e-10)]] = True
    return out


def _nested(regression: Regression, allowed: Flags, fixed: Array) -> list[Flags]:
    """Supports with 1, 2, ... terms per equation, by backward elimination."""
    V, P = allowed.shape
    paths: list[list[Flags]] = []
    for v in range(V):
        triangle = TriangularSystem(regression.R[v], regression.b[v] - regression.R[v] @ fixed[v])
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


def _coefficients(regression: Regression, support: Flags, fixed: Array, allowed: Flags) -> Array:
    Xi = fixed.copy()
    for v in range(len(support)):
        mine = support[v] & allowed[v]
        if mine.any():
            b = regression.b[v] - regression.R[v] @ fixed[v]
            Xi[v, mine] = np.linalg.lstsq(regression.R[v][:, mine], b, rcond=None)[0]
            Xi[v, mine & (Xi[v] == 0.0)] = 1e-300  # nonzero, so that the term is kept
    return Xi


def _neighbours(refiner: Refiner, fit: JointFit) -> list[Flags]:
    """Supports that differ by one or two terms, the most promising first."""
    free = refiner.rules.allowed
    found = refiner.triangle(fit, free)
    present = (fit.Xi != 0) & free
    if found is None:
        return []
    triangle = TriangularSystem(found[0], found[1])
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
