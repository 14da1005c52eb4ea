"""Data that no single trajectory explains, though the equations are right: computed ones.

An integrator makes a small error in every step, and larger ones where the solution is fast. That is
not noise of the measurements, which the joint fit expects: the errors come in runs, add up along
the trajectory, and a chaotic system makes them grow. To force one smooth trajectory through such
data costs digits, and errors in runs make terms significant that are not there. Here the states are
let nearer to the data, steps are weighed by how well the model holds around them, and terms are
asked again to be worth their place, all as far as the likelihood rises.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
from scipy.ndimage import uniform_filter1d

from smnn.discovery._fit.arrays import Array
from smnn.discovery._fit.refine import Fit, Refiner

NEARER = 0.2
"""Factor from one noise to the next smaller one."""
ROUNDS = 12
"""Of every kind, at most."""
AROUND = 11
"""Steps over which the errors of the model are averaged."""
FAINTEST = 1e-6
"""A step is never bound tighter than by this share of the typical error: roundings."""
HARM = 2.0
"""Factor by which weights may raise the errors of the model: if it is wrong somewhere and not only
computed coarsely, to weigh the places where it is right would hide that."""
STRETCHES = 40
"""Stretches of time by which runs of errors are told."""
SHORTEST = 10
"""Nodes in a stretch, at least."""
SMALL = 0.02
"""Share of the change in a step that errors can be; a model that misses more is another one."""
RUNS = 2.0
"""Variance of sums of errors over stretches, of one, above which errors come in runs."""


def follow(refiner: Refiner, fit: Fit) -> Fit:
    """The fit, nearer to the data where that is more likely, without terms that errors explain.

    A fit that holds strictly, or whose errors look like noise, stays as it is.
    """
    levels = [level["rho"] for level in fit.history]
    if not levels or fit.rho <= 1.01 * min(levels):
        return fit
    if inflation(refiner, fit) < RUNS:
        return fit
    near, rules = _nearer(refiner, fit), refiner.rules
    share = float(missed(refiner, near).max())
    if share > SMALL:
        return fit
    refiner.rules = replace(rules, threshold=max(rules.threshold, share))
    best = _weighed(refiner, near)
    for _ in range(ROUNDS):
        runs = max(inflation(refiner, best), 1.0)
        refiner.rules = replace(refiner.rules, strength=rules.strength * runs)
        chosen = refiner.choose(best)
        if chosen is None or ((chosen[0].Xi != 0) == (best.Xi != 0)).all():
            break
        refiner.looseness = np.ones_like(refiner.looseness)
        best = _weighed(refiner, refiner.improve(chosen[0]))
    return best


def _nearer(refiner: Refiner, fit: Fit) -> Fit:
    """With less and less noise, as long as that is more likely."""
    for _ in range(ROUNDS):
        nearer = refiner.improve(replace(fit, sigma=NEARER * fit.sigma))
        gain = nearer.evidence - fit.evidence
        if not gain > 0.0:
            break
        fit = nearer
        if gain < 1.0:
            break
    return fit


def inflation(refiner: Refiner, fit: Fit) -> float:
    """How much more sums of errors vary from stretch to stretch than independent ones would.

    The trace of Takeuchi (1976): variance of the scores by their expected curvature, on average
    over the coefficients of all candidates. One for errors without memory.
    """
    N = len(fit.Z)
    found = refiner.triangle(fit, refiner.rules.allowed)
    if found is None or N < STRETCHES * SHORTEST:
        return 1.0
    left = found[2][1].left
    m = left.shape[2] - 1
    edges = np.linspace(0, N, STRETCHES + 1).astype(int)
    scores = np.stack(
        [(left[a:b, :, :m] * left[a:b, :, m:]).sum((0, 1)) for a, b in itertools.pairwise(edges)]
    )
    U, values, Vt = np.linalg.svd(found[0])
    good = values > 1e-10 * values[0]
    white = (scores @ Vt[good].T) / values[good]
    each = (left[..., m] ** 2).sum() / refiner.freedom(int((fit.Xi != 0).sum()))
    return float((white**2).sum() / good.sum() / max(each, 1e-300))


def missed(refiner: Refiner, fit: Fit) -> Array:
    """(V,) what the model misses of the change in a step, as a share of its mean square root."""
    relative = refiner.defects(fit) / (refiner.rates * refiner.h[:, None])
    share = np.sqrt((relative[refiner.follows] ** 2).mean(0))
    return share.reshape(refiner.order, refiner.V).max(0)


def _weighed(refiner: Refiner, fit: Fit) -> Fit:
    """Steps weighed by the errors around them, if that is worth a parameter for every stretch."""
    best, kept = fit, refiner.looseness
    limit = HARM * _errors(refiner, fit).mean()
    freedom = 0.5 * len(fit.Z) / AROUND * np.log(max(refiner.seen.sum(), 2))
    for i in range(ROUNDS):
        refiner.looseness = _looseness(refiner, best)
        found = refiner.improve(best)
        worth = found.evidence > best.evidence + (freedom if i == 0 else 1.0)
        if not worth or _errors(refiner, found).mean() > limit:
            break
        best, kept = found, refiner.looseness
    refiner.looseness = kept
    return best


def _errors(refiner: Refiner, fit: Fit) -> Array:
    """(N,) squares of what the model misses in the steps, in the units of its weights."""
    relative = refiner.defects(fit) / (refiner.rates * np.sqrt(refiner.h * refiner.unit)[:, None])
    return (relative**2).mean(1)


def _looseness(refiner: Refiner, fit: Fit) -> Array:
    """(N,) with a mean square of one: how large the errors of the model are around a step."""
    square = _errors(refiner, fit)
    square /= max(square[refiner.follows].mean(), 1e-300)
    out = np.empty_like(square)
    for a, b in itertools.pairwise(refiner.nodes.starts):
        out[a:b] = uniform_filter1d(square[a:b], AROUND, mode="nearest")
    return np.sqrt(out + FAINTEST**2)
