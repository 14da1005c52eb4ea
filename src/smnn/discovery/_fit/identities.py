"""Laws of conservation: terms that add up to nothing on the data, such as `S + I + R - N`.

An equation may have any multiple of such a sum without a change on the data, so one that has all of
its terms is not determined: it binds the states to the law and follows rounding, with coefficients
as large as one likes. Its terms are chosen again among the plainest independent ones.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from smnn.discovery._fit.arrays import Array, Flags
from smnn.discovery._fit.refine import Fit, Refiner, Rules

SMALL = 1e-4
"""A sum of terms of size one that is larger than this is no identity, whatever the noise."""
NOISE = 3.0
"""A sum of terms is nothing if it is smaller than so many of its standard deviations."""
ABOVE = 10.0
"""Factor by which a term must exceed the sum to be independent of others."""


def without_identities(refiner: Refiner, fit: Fit) -> Rules | None:
    """Rules with fewer candidates for every equation that has all terms of an identity."""
    X = np.concatenate([fit.Z, refiner.nodes.U], -1)
    phi, slopes = refiner.terms.evaluate(X), refiner.terms.jacobian(X)[..., : refiner.V]
    size = np.maximum(np.sqrt((phi**2).mean(0)), 1e-300)
    phi, slopes = phi / size, slopes / size[:, None]
    noise, rules = refiner.noise_of(fit), refiner.rules
    allowed = rules.allowed.copy()
    for v, present in enumerate((fit.Xi != 0) & rules.allowed):
        if present.sum() < 2 or (rules.required[v] & present).any():
            continue
        combination = np.zeros(len(size))
        combination[present] = np.linalg.svd(phi[:, present], full_matrices=False)[2][-1]
        sum_ = float(np.sqrt(((phi @ combination) ** 2).mean()))
        doubt = np.einsum("npd,p->nd", slopes, combination) * noise
        if sum_ < SMALL and sum_ < NOISE * float(np.sqrt((doubt**2).sum(1).mean())):
            order = np.zeros(len(size)) if rules.complexity is None else rules.complexity[v]
            allowed[v] &= _independent(phi, order, ABOVE * sum_)
    return None if (allowed == rules.allowed).all() else replace(rules, allowed=allowed)


def _independent(phi: Array, order: Array, tolerance: float) -> Flags:
    """(P,) terms that are not sums of plainer ones."""
    kept = np.zeros(phi.shape[1], bool)
    basis = np.empty((len(phi), 0))
    for j in np.argsort(order, kind="stable"):
        rest = phi[:, j]
        for _ in range(2):  # once more against cancellation
            rest = rest - basis @ (basis.T @ rest)
        length = float(np.linalg.norm(rest))
        if length > max(tolerance, 1e-13) * np.sqrt(len(phi)):
            kept[j] = True
            basis = np.column_stack([basis, rest / length])
    return kept
