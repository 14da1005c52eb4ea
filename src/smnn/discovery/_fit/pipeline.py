"""Stages of a fit: smoothing, regression, joint fit, corrections, bootstrap."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from smnn.discovery._arrays import Array, Flags, Indices
from smnn.discovery._constraints import Rules
from smnn.discovery._fit.bootstrap import resample
from smnn.discovery._fit.corrections import (
    allow_integration_errors,
    missed,
    outlier_warnings,
    outliers_of,
    without,
    without_identities,
)
from smnn.discovery._fit.data import DataError, FitInput, FitResult, left_out
from smnn.discovery._fit.refine import LOOSE, STRICT, JointFit, Refiner, continuation
from smnn.discovery._fit.regression import (
    MOST_CANDIDATES,
    Regression,
    initial_coefficients,
    preselected,
    regression_deviation,
    regression_of,
)
from smnn.discovery._fit.selection import penalty_for, select
from smnn.discovery._fit.smoothing import smooth
from smnn.discovery._fit.subsets import search_supports

LARGEST = 6_000_000
"""Maximum size of the derivatives of a joint fit; longer data are reduced to spread segments."""
MANY_DATA = 6  # Number of values per candidate above which the joint fit also starts from all terms
DOUBT = 3.0
"""Standard deviations between a fixed coefficient and its estimate that trigger a warning."""
CLEAN = 1e-4  # Noise below this fraction of the standard deviation of the data counts as none
OUTLIER_ROUNDS = 3  # Maximum number of repetitions of a fit without outliers

Progress = Callable[[str], None]


class StageTimer:
    """Wall-clock seconds of every stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """End a stage."""
        now = time.perf_counter()
        self.seconds[stage] = round(now - self._last, 4)
        self._last = now


@dataclass(frozen=True)
class Initial:
    """Smoothed states and the regression, from which the joint fit starts."""

    data: FitInput  # The data and terms that are used
    kept: Flags  # (P,) mask of the terms that are used
    used: Indices  # Nodes that are used
    smoothed: Array  # (all nodes, D) smoothed states
    Z: Array  # (N, D) smoothed states of the nodes that are used
    dZ: Array  # (N, D) their time derivatives
    top: Array  # (N, V) highest derivatives
    phi: Array  # (N, P) values of the terms
    sigma: Array  # (V,) noise
    regression: Regression
    warnings: list[str]


def discover(
    data: FitInput,
    *,
    method: str,
    ensemble: int,
    rng: np.random.Generator,
    progress: Progress,
    thorough: bool = True,
    smoothed: tuple[Array, Array] | None = None,
) -> FitResult:
    """Fit the coefficients; repeated without outliers if there are any.

    Args:
        data: Data, terms and constraints.
        method: `"regression"` stops before the joint fit.
        ensemble: Number of bootstrap resamples.
        rng: Generator for left-out points and resamples.
        progress: Called with progress messages.
        thorough: Search over supports by complete fits if the selection does not converge.
        smoothed: Initial values and derivatives (N, V, order + 1), and noise (V,), if some
            variables have no values; by default those of smoothing splines.
    """
    attempts: list[Attempt] = []
    outliers = np.zeros(data.nodes.Y.shape, dtype=bool)
    while True:
        timer = StageTimer()
        cleaned = replace(data, nodes=without(data.nodes, outliers))
        initial = _initial(cleaned, smoothed, rng, progress, timer)
        if method == "regression":
            return _regression_result(initial, ensemble, rng, timer, progress)
        every, chosen, rules = _coefficients(initial, timer, progress)
        refiner, fit = _joint_fit(initial, rules, every, chosen, thorough, progress)
        diagnostics = diagnostics_of(refiner, fit)
        fit = allow_integration_errors(refiner, fit)
        timer.lap("refinement")
        progress(f"joint fit: {int((fit.Xi != 0).sum())} terms at rho {fit.rho:.1e}")
        attempts.append(Attempt(initial, refiner, fit, diagnostics, timer, outliers))
        found = np.zeros_like(outliers)
        found[initial.used] = outliers_of(refiner, fit, data.nodes.Y[initial.used], STRICT)
        if len(attempts) > OUTLIER_ROUNDS or (found == outliers).all():
            break
        outliers = found
    # Values are outliers only if the equations hold without them; otherwise the model is wrong.
    best = attempts[-1] if attempts[-1].diagnostics["holds"] else attempts[0]
    return result_of(best, data, ensemble, rng)


class Attempt(NamedTuple):
    """A joint fit without some outliers."""

    initial: Initial
    refiner: Refiner
    fit: JointFit
    diagnostics: dict[str, Any]
    timer: StageTimer
    outliers: Flags  # (all nodes, V)


def result_of(best: Attempt, data: FitInput, ensemble: int, rng: np.random.Generator) -> FitResult:
    """Intervals, inclusion and warnings of a joint fit."""
    initial, refiner, fit, diagnostics, timer, outliers = best
    warnings = [
        *initial.warnings,
        *outlier_warnings(data.nodes, outliers),
        *_contradicted_coefficients(refiner, fit, initial.data),
    ]
    diagnostics["weak_terms"] = _weak_terms(refiner, fit, initial.data)
    deviation = np.zeros_like(fit.Xi) if fit.deviation is None else fit.deviation
    inclusion = None
    if ensemble:
        inclusion, spread = resample(refiner, fit, ensemble, rng)
        deviation = np.maximum(deviation, np.where(fit.Xi != 0, spread, 0.0))
    timer.lap("ensemble")
    initial.smoothed[initial.used] = fit.Z
    return FitResult(
        fit.Xi, deviation, inclusion, initial.smoothed, _noise(refiner, fit),
        {"seconds": timer.seconds, **diagnostics}, warnings, (refiner, fit),
    ).among(initial.kept)  # fmt: skip


def _initial(
    data: FitInput, given: tuple[Array, Array] | None, rng: np.random.Generator,
    progress: Progress, timer: StageTimer,
) -> Initial:  # fmt: skip
    """Smooth the data, and set up the regression."""
    nodes, order = data.nodes, data.order
    curves, sigma = smooth(nodes, order, rng) if given is None else given
    smoothed = Z = np.concatenate([curves[..., r] for r in range(order)], -1)
    dZ = np.concatenate([curves[..., r] for r in range(1, order + 1)], -1)
    top = curves[..., order]
    timer.lap("smoothing")
    progress("smoothed the data")
    with np.errstate(all="ignore"):
        phi = data.terms.evaluate(np.concatenate([Z, nodes.U], -1))
    data, kept, bad = data.usable(phi)
    phi = phi[:, kept]
    D = Z.shape[1]
    width = D * (D + min(int(data.rules.allowed.sum()), MOST_CANDIDATES))
    nodes, used = nodes.segments(max(LARGEST // width, 1000))
    if len(used) < len(Z):
        progress(f"{len(used):,} of {len(Z):,} times are used from here on, in segments")
        data = replace(data, nodes=nodes)
        Z, dZ, top, phi = Z[used], dZ[used], top[used], phi[used]
    filled = np.where(nodes.hidden, Z[:, : len(nodes.names)], nodes.Y)
    regression = regression_of(replace(data, nodes=replace(nodes, Y=filled)), phi, top)
    if not all(np.isfinite(x).all() for x in (*regression.R, *regression.b)):
        raise DataError(
            f"{len(nodes.t)} times with {int(np.isfinite(nodes.Y).sum())} values are too few for "
            "an initial estimate of the equations; give more, at least some dozens."
        )
    return Initial(
        data, kept, used, smoothed, Z, dZ, top, phi, sigma, regression, left_out(bad)
    )  # fmt: skip


def _coefficients(
    initial: Initial, timer: StageTimer, progress: Progress
) -> tuple[Array, Array, Rules]:
    """Coefficients of the regression with all and with selected terms; rules after preselection."""
    data, regression = initial.data, initial.regression
    every, chosen = initial_coefficients(data, regression, initial.phi, initial.top)
    rules = preselected(data, regression, chosen)
    timer.lap("regression")
    progress(f"regression: {int((chosen != 0).sum())} terms")
    return every, chosen, rules


def _regression_result(
    initial: Initial,
    ensemble: int,
    rng: np.random.Generator,
    timer: StageTimer,
    progress: Progress,
) -> FitResult:
    """Result of `method="regression"`."""
    data, sigma = initial.data, initial.sigma
    _, chosen, rules = _coefficients(initial, timer, progress)
    refiner = Refiner(data.nodes, data.terms, data.order, rules, data.link, progress)
    refiner.prepare(initial.Z, initial.dZ, chosen, sigma)
    fit = JointFit(initial.Z, chosen, LOOSE, sigma)
    inclusion = resample(refiner, fit, ensemble, rng)[0] if ensemble else None
    timer.lap("ensemble")
    return FitResult(
        chosen, regression_deviation(initial.regression, chosen, rules), inclusion,
        initial.smoothed, sigma, {"seconds": timer.seconds}, initial.warnings, (refiner, fit),
    ).among(initial.kept)  # fmt: skip


def _joint_fit(
    initial: Initial,
    rules: Rules,
    every: Array,
    chosen: Array,
    thorough: bool,
    progress: Progress,
) -> tuple[Refiner, JointFit]:
    """The joint fit; repeated with fewer candidates if equations contain a conservation law."""
    data = initial.data
    refiner = Refiner(data.nodes, data.terms, data.order, rules, data.link, progress)
    fit = _best_start(refiner, initial, every, chosen, thorough)
    fewer = without_identities(refiner, fit)
    if fewer is None:
        return refiner, fit
    refiner = Refiner(data.nodes, data.terms, data.order, fewer, data.link, progress)
    every, chosen = initial_coefficients(
        replace(data, rules=fewer), initial.regression, initial.phi, initial.top
    )
    return refiner, _best_start(refiner, initial, every, chosen, thorough)


def _best_start(
    refiner: Refiner, initial: Initial, every: Array, chosen: Array, thorough: bool
) -> JointFit:
    """Joint fit from all terms, if there are enough data, and from those of the regression."""
    Z, dZ, sigma = initial.Z, initial.dZ, initial.sigma
    enough = refiner.seen.sum() > MANY_DATA * refiner.rules.allowed.sum()
    fits = []
    for Xi in ([every] if enough else []) + [chosen]:
        fit = continuation(refiner, Z, dZ, np.where(refiner.rules.allowed, Xi, chosen), sigma)
        fits.append(fit)
        if _converged(fit, refiner):
            break
    else:
        if thorough and refiner.rules.ties is None:
            fixed, regression = initial.data.fixed, initial.regression
            fits.append(search_supports(refiner, Z, dZ, fixed, sigma, regression))
    best = max(fits, key=lambda fit: fit.evidence)
    if not np.isfinite(best.evidence):
        raise DataError(
            "the joint fit of states and coefficients failed: the model is not finite near the "
            "data. Remove candidate terms that grow fast, or use method='regression'."
        )
    if len(fits) > 1:  # integration steps are those of the last fit that was tried
        refiner.prepare(best.Z, dZ, best.Xi, best.sigma)
        again = refiner.improve(best)
        best = again if np.isfinite(again.evidence) else best
    return best


def _converged(fit: JointFit, refiner: Refiner) -> bool:
    """Whether the model holds with the strongest constraint and the residuals are only noise."""
    if not fit.history or not np.isfinite(fit.evidence):
        return False
    strict = fit.rho <= 1.01 * min(level["rho"] for level in fit.history)
    noise = fit.cost < 1.5 * refiner.freedom(0)
    clean = bool((refiner.noise_of(fit) < CLEAN * refiner.nodes.scale).all())
    return (strict and noise) or (fit.rho <= STRICT and clean)


def _noise(refiner: Refiner, fit: JointFit) -> Array:
    """(V,) noise: the residuals of a strong constraint, else the noise level of the likelihood."""
    if fit.rho <= STRICT:
        return refiner.noise_of(fit)
    return fit.sigma * np.sqrt(fit.cost / refiner.freedom(int((fit.Xi != 0).sum())))


def diagnostics_of(refiner: Refiner, fit: JointFit) -> dict[str, Any]:
    share = missed(refiner, fit)
    return {
        "levels": fit.history,
        "rho": fit.rho,
        "misfit": fit.cost / refiner.freedom(refiner.parameters(fit)),
        "evidence": fit.evidence,
        "values": int(refiner.seen.sum()),
        "settled": _converged(fit, refiner),
        "missed": share.tolist(),
        "holds": float(share.max()) <= max(refiner.rules.threshold, 1e-3),
    }


def _weak_terms(refiner: Refiner, fit: JointFit, data: FitInput) -> list[dict[str, Any]]:
    """Significant terms that were left out because their share is below the threshold."""
    rules, free = refiner.rules, refiner.rules.allowed
    found = refiner.triangle(fit, free)
    if found is None:
        return []
    present = (fit.Xi != 0)[free]
    penalty = refiner.spread(fit) * penalty_for(
        int(refiner.seen.sum()), len(present), rules.strength
    )
    R, b = refiner.tied(*found[:2], fit.Xi, free)
    chosen = select(R, b, penalty, start=present, required=present)
    share = np.abs(chosen.p) * refiner.sizes(fit)[free]
    weak = np.flatnonzero(chosen.support & ~present & (share < rules.threshold))
    rows, columns = np.nonzero(free)
    return [
        {
            "equation": data.nodes.names[rows[i]],
            "term": data.names[columns[i]],
            "share": float(share[i]),
        }
        for i in weak
    ]


def _contradicted_coefficients(refiner: Refiner, fit: JointFit, data: FitInput) -> list[str]:
    """Warnings about fixed coefficients without which the data are explained better."""
    rules, given = refiner.rules, data.fixed
    fixed = ~rules.allowed & (given != 0)
    if rules.defining is not None:  # its coefficient is a convention
        fixed[rules.defining] = False
    free = fixed | rules.allowed
    found = refiner.triangle(fit, free) if fixed.any() else None
    if found is None:
        return []
    R, b, _ = found
    spread = refiner.spread(fit)
    penalty = spread * penalty_for(int(refiner.seen.sum()), int(free.sum()), rules.strength)
    other = select(R, b, penalty, required=fixed[free])
    now = ((R @ fit.Xi[free] - b) ** 2).sum() + penalty * (rules.allowed & (fit.Xi != 0)).sum()
    if now - (other.cost + penalty * other.support.sum()) < penalty:
        return []
    value, deviation = given.copy(), np.zeros(given.shape)
    value[free], deviation[free] = other.p, other.deviation * np.sqrt(spread)
    return [
        f"the data contradict a fixed coefficient: {data.names[j]} in the equation of "
        f"{data.nodes.names[v]} is fixed at {given[v, j]:.4g}; its estimate is about "
        f"{value[v, j]:.4g}. Correct it, or do not fix it."
        for v, j in zip(*np.nonzero(fixed & (np.abs(value - given) > DOUBT * deviation)))
    ]
