"""From nodes to coefficients: smooth, regress, refine, and ask how sure that is."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from smnn.discovery._fit.anneal import STRICT, anneal
from smnn.discovery._fit.arrays import Array, Flags
from smnn.discovery._fit.bootstrap import resample
from smnn.discovery._fit.explore import explore
from smnn.discovery._fit.identities import without_identities
from smnn.discovery._fit.one_shot import (
    MOST_CANDIDATES,
    one_shot,
    regression_deviation,
    regression_of,
    thinned,
)
from smnn.discovery._fit.outliers import wild_values, without
from smnn.discovery._fit.question import Question
from smnn.discovery._fit.refine import Fit, Refiner
from smnn.discovery._fit.regression import Regression
from smnn.discovery._fit.selection import penalty_for, select
from smnn.discovery._fit.series import DataError
from smnn.discovery._fit.smoothing import smooth
from smnn.discovery._fit.unsteady import follow, missed

LARGEST = 6_000_000
"""Numbers in the derivatives of the steps of a joint fit; more data are used in stretches."""
MANY_DATA = 6
"""Data for every candidate above which the joint fit may begin with all of them."""
LOOSE = 0.05
"""`rho` at which resamples of a regression are judged: states near the smoothed data."""
DOUBT = 3.0
"""Standard deviations from a fixed coefficient to what it would be, beyond which it is wrong."""
CLEAN = 1e-4
"""Noise below this share of the spread of the data is none worth searching for."""


@dataclass(frozen=True)
class Outcome:
    """What a fit has found."""

    Xi: Array
    """(V, P)."""
    deviation: Array
    """(V, P) standard deviations."""
    inclusion: Array | None
    """(V, P) share of the resamples that chose a term."""
    Z: Array
    """(N, V order) states."""
    noise: Array
    """(V,)."""
    diagnostics: dict[str, Any]

    def among(self, keep: Flags) -> Outcome:
        """The same with the terms (P,) that were not looked at, which have coefficient zero."""

        def wide(values: Array) -> Array:
            out = np.zeros((len(values), len(keep)))
            out[:, keep] = values
            return out

        inclusion = None if self.inclusion is None else wide(self.inclusion)
        return replace(self, Xi=wide(self.Xi), deviation=wide(self.deviation), inclusion=inclusion)


class _Clock:
    """Seconds of every stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] = round(now - self._last, 4)
        self._last = now


def discover(
    question: Question,
    *,
    method: str,
    ensemble: int,
    rng: np.random.Generator,
    say: Callable[[str], None],
    thorough: bool = True,
    again: int = 3,
) -> Outcome:
    """Find the coefficients.

    Args:
        question: Data, terms and rules.
        method: `"regression"` stops before the joint fit.
        ensemble: How many resamples.
        rng: For left-out points and resamples.
        say: Called with a line of progress.
        thorough: Whether to compare whole joint fits where the choice of terms does not settle.
        again: How often to begin again without wild values.
    """
    clock, asked = _Clock(), question
    diagnostics: dict[str, Any] = {}
    nodes, order = question.nodes, question.order
    curves, sigma = smooth(nodes, order, rng)
    Z = np.concatenate([curves[..., r] for r in range(order)], -1)
    dZ = np.concatenate([curves[..., r] for r in range(1, order + 1)], -1)
    top = curves[..., order]
    clock.lap("smoothing")
    say("smoothed the data")
    with np.errstate(all="ignore"):
        phi = question.terms.evaluate(np.concatenate([Z, nodes.U], -1))
    question, keep, bad = question.usable(phi)
    if bad:
        warnings.warn(
            f"terms left out because they are not finite on the data: {', '.join(bad)}",
            stacklevel=3,
        )
    phi = phi[:, keep]
    D, smoothed = Z.shape[1], Z
    width = D * (D + min(int(question.rules.allowed.sum()), MOST_CANDIDATES))
    nodes, used = nodes.stretches(max(LARGEST // width, 1000))
    if len(used) < len(Z):
        say(f"{len(used):,} of {len(Z):,} times are used from here on, in stretches")
        question = replace(question, nodes=nodes)
        Z, dZ, top, phi = Z[used], dZ[used], top[used], phi[used]
    regression = regression_of(question, phi, top)
    if not all(np.isfinite(x).all() for x in (*regression.R, *regression.b)):
        raise DataError(
            f"{len(nodes.t)} times with {int(np.isfinite(nodes.Y).sum())} values are too few for a "
            "first estimate of the equations; give more, some dozens to learn from."
        )
    every, chosen = one_shot(question, regression, phi, top)
    rules = thinned(question, regression, chosen)
    clock.lap("regression")
    say(f"regression: {int((chosen != 0).sum())} terms")
    refiner = Refiner(nodes, question.terms, order, rules, question.link, say)
    if method == "regression":
        refiner.prepare(Z, dZ, chosen, sigma)
        fit = Fit(Z, chosen, LOOSE, sigma)
        deviation, noise = regression_deviation(regression, chosen, rules), sigma
        inclusion = resample(refiner, fit, ensemble, rng)[0] if ensemble else None
    else:
        fit = _joint(refiner, Z, dZ, every, chosen, question.held, regression, sigma, thorough)
        fewer = without_identities(refiner, fit)
        if fewer is not None:
            refiner = Refiner(nodes, question.terms, order, fewer, question.link, say)
            every, chosen = one_shot(replace(question, rules=fewer), regression, phi, top)
            fit = _joint(refiner, Z, dZ, every, chosen, question.held, regression, sigma, thorough)
        diagnostics = _diagnostics(refiner, fit)
        fit = follow(refiner, fit)
        clock.lap("refinement")
        say(f"joint fit: {int((fit.Xi != 0).sum())} terms at rho {fit.rho:.1e}")
        wild = wild_values(refiner, fit, STRICT) if again else None
        if wild is not None and wild.any():
            nodes, text = without(asked.nodes, wild, used)
            warnings.warn(text, stacklevel=3 + 3 - again)
            return discover(
                replace(asked, nodes=nodes), method=method, ensemble=ensemble, rng=rng, say=say,
                thorough=thorough, again=again - 1,
            )  # fmt: skip
        _doubt_fixed(refiner, fit, question)
        deviation = np.zeros_like(fit.Xi) if fit.deviation is None else fit.deviation
        inclusion = None
        if ensemble:
            inclusion, spread = resample(refiner, fit, ensemble, rng)
            deviation = np.maximum(deviation, np.where(fit.Xi != 0, spread, 0.0))
        noise = _noise(refiner, fit)
    clock.lap("ensemble")
    diagnostics = {"seconds": clock.seconds, **diagnostics}
    smoothed[used] = fit.Z
    return Outcome(fit.Xi, deviation, inclusion, smoothed, noise, diagnostics).among(keep)


def _noise(refiner: Refiner, fit: Fit) -> Array:
    """Residuals if the model holds strictly; else what the likelihood takes for noise."""
    if fit.rho <= STRICT:
        return refiner.noise_of(fit)
    return fit.sigma * np.sqrt(fit.cost / refiner.freedom(int((fit.Xi != 0).sum())))


def _doubt_fixed(refiner: Refiner, fit: Fit, question: Question) -> None:
    """Warn of fixed coefficients if the data are explained better, or as well by less, without."""
    rules, held = refiner.rules, question.held
    fixed = ~rules.allowed & (held != 0)
    free = fixed | rules.allowed
    found = refiner.triangle(fit, free) if fixed.any() else None
    if found is None:
        return
    R, b, _ = found
    spread = refiner.spread(fit)
    penalty = spread * penalty_for(int(refiner.seen.sum()), int(free.sum()), rules.strength)
    other = select(R, b, penalty, required=fixed[free])
    now = ((R @ fit.Xi[free] - b) ** 2).sum() + penalty * (rules.allowed & (fit.Xi != 0)).sum()
    if now - (other.cost + penalty * other.support.sum()) < penalty:
        return
    value, doubt = held.copy(), np.zeros(held.shape)
    value[free], doubt[free] = other.p, other.deviation * np.sqrt(spread)
    for v, j in zip(*np.nonzero(fixed & (np.abs(value - held) > DOUBT * doubt))):
        warnings.warn(
            f"the data contradict a fixed coefficient: {question.names[j]} in the equation of "
            f"{question.nodes.names[v]} is fixed at {held[v, j]:.4g}; left free it would be about "
            f"{value[v, j]:.4g}. Correct it, or leave it free.",
            stacklevel=4,
        )


def _diagnostics(refiner: Refiner, fit: Fit) -> dict[str, Any]:
    share = missed(refiner, fit)
    return {
        "levels": fit.history,
        "rho": fit.rho,
        "misfit": fit.cost / refiner.freedom(int((fit.Xi != 0).sum())),
        "evidence": fit.evidence,
        "values": int(refiner.seen.sum()),
        "settled": _settled(fit, refiner),
        "missed": share.tolist(),
        "holds": float(share.max()) <= max(refiner.rules.threshold, 1e-3),
    }


def _joint(
    refiner: Refiner,
    Z: Array,
    dZ: Array,
    every: Array,
    chosen: Array,
    held: Array,
    regression: Regression,
    sigma: Array,
    thorough: bool,
) -> Fit:
    """The joint fit, from all terms if there are data enough, and from those of the regression."""
    enough = refiner.seen.sum() > MANY_DATA * refiner.rules.allowed.sum()
    fits = []
    for Xi in ([every] if enough else []) + [chosen]:
        fit = anneal(refiner, Z, dZ, np.where(refiner.rules.allowed, Xi, chosen), sigma)
        fits.append(fit)
        if _settled(fit, refiner):
            break
    else:
        if thorough and refiner.rules.ties is None:
            fits.append(explore(refiner, Z, dZ, held, sigma, regression))
    best = max(fits, key=lambda fit: fit.evidence)
    if not np.isfinite(best.evidence):
        raise DataError(
            "the joint fit of states and coefficients broke down: the model is not finite near the "
            "data. Leave out terms that grow fast, or use method='regression'."
        )
    return best


def _settled(fit: Fit, refiner: Refiner) -> bool:
    """Whether a model holds strictly and leaves nothing but noise, or next to nothing at all."""
    if not fit.history or not np.isfinite(fit.evidence):
        return False
    strict = fit.rho <= 1.01 * min(level["rho"] for level in fit.history)
    noise = fit.cost < 1.5 * refiner.freedom(0)
    clean = bool((refiner.noise_of(fit) < CLEAN * refiner.nodes.scale).all())
    return (strict and noise) or (fit.rho <= STRICT and clean)
