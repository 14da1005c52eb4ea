"""From loose to strict: the levels of a joint fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from smnn.discovery._fit.arrays import Array
from smnn.discovery._fit.flow import Model
from smnn.discovery._fit.refine import Fit, Refiner

LOWER = 0.2
"""Factor from one level of `rho` to the next."""
HARDEST = 1e-12
"""Smallest `rho`: nearer to an exact model rounding would not follow."""
STRICT = 0.02
"""Below this `rho` residuals are noise: the states no longer follow every point."""
PASSES = 4
"""Times that clean data are gone over again, with finer steps."""
PATIENCE = 3
"""Levels without a gain in evidence after which the search ends."""


def anneal(
    refiner: Refiner, Z: Array, dZ: Array, Xi: Array, sigma: Array, *, keep: bool = False
) -> Fit:
    """Lower `rho` level by level; the fit at the level of highest evidence.

    Args:
        refiner: Data, terms and rules.
        Z: (N, D) states to begin with.
        dZ: (N, D) their rates.
        Xi: (V, P) coefficients to begin with.
        sigma: (V,) noise, or somewhat more.
        keep: Whether the terms stay those of `Xi`.
    """
    refiner.prepare(Z, dZ, Xi, sigma)
    rho = _first_rho(refiner, Z, Xi)
    best = _descend(refiner, Fit(Z, Xi, rho, sigma), [], keep)
    for _ in range(PASSES):
        noise = refiner.noise_of(best)
        if best.rho > STRICT or not (noise < 0.2 * sigma).all():
            break
        sigma = noise
        # The data are cleaner than they looked: integrate as finely as they deserve.
        refiner.prepare(best.Z, dZ, best.Xi, sigma)
        rho = min(best.rho, _first_rho(refiner, best.Z, best.Xi))
        again = _descend(refiner, replace(best, rho=rho, sigma=sigma), best.history, keep)
        if again.evidence <= best.evidence:
            break
        best = again
    return best


def _descend(refiner: Refiner, fit: Fit, levels: list[dict[str, Any]], keep: bool) -> Fit:
    """From the level of a fit downwards."""
    levels = list(levels)
    span = refiner.unit * np.diff(refiner.nodes.starts).max()
    best, worse = replace(fit, evidence=-np.inf), 0
    first = True
    while True:
        fit = replace(fit, cost=refiner.cost(fit.Z, fit.Xi, fit.rho, fit.sigma))
        if not keep:
            chosen = refiner.choose(refiner.improve(fit, 1) if first else fit)
            if chosen is None:
                break
            first, fit = False, chosen[0]
        fit = refiner.improve(fit)
        terms, misfit = int((fit.Xi != 0).sum()), fit.cost / refiner.freedom(0)
        levels.append({"rho": fit.rho, "evidence": fit.evidence, "terms": terms, "misfit": misfit})
        refiner.say(f"rho {fit.rho:.1e}: {terms} terms, misfit {misfit:.4g}")
        if fit.evidence > best.evidence:
            best, worse = fit, 0
        else:
            worse += 1
        noise = (fit.sigma / refiner.rates[: refiner.V]).min()
        last = max(1e-3 * noise / np.sqrt(refiner.unit * span), HARDEST)
        if fit.rho <= last or worse >= PATIENCE:
            break
        sigma = fit.sigma
        if worse == 0 and fit.rho <= STRICT and misfit < 4.0:
            sigma = np.clip(refiner.noise_of(fit), 0.2 * sigma, 2.0 * sigma)
        fit = replace(fit, rho=max(fit.rho * LOWER, last), sigma=sigma)
    return replace(best, history=levels)


def _first_rho(refiner: Refiner, Z: Array, Xi: Array) -> float:
    """Where the model meets the smoothed data as well as it can."""
    model = Model(refiner.terms, Xi, refiner.order, refiner.link)
    with np.errstate(all="ignore"):
        ends = refiner.ends(model, Z)
        return _typical(refiner, Z, ends)


def _typical(refiner: Refiner, Z: Array, ends: Array) -> float:
    follows = refiner.follows[:-1]
    defect = (Z[1:] - ends[:-1])[follows]
    relative = defect / (refiner.rates * np.sqrt(refiner.h * refiner.unit)[:-1][follows, None])
    typical = float(np.sqrt(np.nanmean(np.minimum(relative**2, 1e6))))
    return float(np.clip(typical, 1e-6, 0.5)) if np.isfinite(typical) else 0.5
