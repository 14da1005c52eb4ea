"""From nodes to coefficients: smooth, regress, refine, and ask how sure that is."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from smnn.discovery._anneal import anneal
from smnn.discovery._arrays import Array, Flags, root_mean_square, triangle_of
from smnn.discovery._bootstrap import resample
from smnn.discovery._explore import explore
from smnn.discovery._flow import Link, Terms
from smnn.discovery._refine import Fit, Refiner, Rules
from smnn.discovery._regression import Regression, regress
from smnn.discovery._selection import penalty_for, select
from smnn.discovery._series import DataError, Nodes
from smnn.discovery._smoothing import smooth

MOST_CANDIDATES = 160
"""More candidates than this are thinned out by the regression before the joint fit."""
MANY_DATA = 6
"""Data for every candidate above which the joint fit may begin with all of them."""


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


def discover(
    nodes: Nodes,
    terms: Terms,
    term_names: list[str],
    order: int,
    rules: Rules,
    held: Array,
    *,
    link: Link | None,
    method: str,
    ensemble: int,
    rng: np.random.Generator,
    say: Callable[[str], None],
) -> Outcome:
    """Find the coefficients.

    Args:
        nodes: The data.
        terms: The compiled library.
        term_names: For messages.
        order: Of the equations.
        rules: What may be chosen.
        held: (V, P) coefficients of the terms that may not.
        link: The function around the sum of the terms.
        method: `"regression"` stops before the joint fit.
        ensemble: How many resamples.
        rng: For left-out points and resamples.
        say: Called with a line of progress.
    """
    clock = time.perf_counter()
    seconds: dict[str, float] = {}

    def lap(stage: str) -> None:
        nonlocal clock
        now = time.perf_counter()
        seconds[stage], clock = round(now - clock, 4), now

    curves, sigma = smooth(nodes, order, rng)
    V = nodes.Y.shape[1]
    Z = np.concatenate([curves[..., r] for r in range(order)], -1)
    dZ = np.concatenate([curves[..., r] for r in range(1, order + 1)], -1)
    lap("smoothing")
    say("smoothed the data")
    X = np.concatenate([Z, nodes.U], -1)
    with np.errstate(all="ignore"):
        phi = terms.evaluate(X)
    rules, phi = _usable(rules, phi, held, term_names)
    every, chosen = _one_shot(nodes, phi, dZ[:, -V:], order, rules, held, link)
    lap("regression")
    say(f"regression: {int((chosen != 0).sum())} terms")
    rules = _thinned(rules, nodes, phi, order, held, chosen)
    refiner = Refiner(nodes, terms, order, rules, link, say)
    if method == "regression":
        refiner.prepare(Z, dZ, chosen, sigma)
        fit = Fit(Z, chosen, 1.0, sigma)
        regression = regress(nodes, phi, order)
        deviation = _regression_deviation(regression, chosen, rules)
        inclusion = None
        if ensemble:
            inclusion, _ = resample(refiner, replace(fit, rho=0.05), ensemble, rng)
        lap("ensemble")
        return Outcome(chosen, deviation, inclusion, Z, sigma, {"seconds": seconds, "levels": []})
    fit = _joint(refiner, Z, dZ, every, chosen, held, phi, sigma)
    lap("refinement")
    say(f"joint fit: {int((fit.Xi != 0).sum())} terms at rho {fit.rho:.1e}")
    deviation = np.zeros_like(fit.Xi) if fit.deviation is None else fit.deviation
    inclusion = None
    if ensemble:
        inclusion, spread = resample(refiner, fit, ensemble, rng)
        deviation = np.maximum(deviation, np.where(fit.Xi != 0, spread, 0.0))
    lap("ensemble")
    strict = fit.rho <= 0.02 and fit.cost < 4.0 * refiner.freedom(0)
    noise = refiner.noise_of(fit) if strict else fit.sigma
    diagnostics = {
        "seconds": seconds,
        "levels": fit.history,
        "rho": fit.rho,
        "misfit": fit.cost / refiner.freedom(int((fit.Xi != 0).sum())),
        "evidence": fit.evidence,
    }
    return Outcome(fit.Xi, deviation, inclusion, fit.Z, noise, diagnostics)


def _joint(
    refiner: Refiner,
    Z: Array,
    dZ: Array,
    every: Array,
    chosen: Array,
    held: Array,
    phi: Array,
    sigma: Array,
) -> Fit:
    """The joint fit, from all terms if there are data enough, and from those of the regression."""
    enough = refiner.seen.sum() > MANY_DATA * refiner.rules.allowed.sum()
    fits = []
    for Xi in ([every] if enough else []) + [chosen]:
        Xi = np.where(refiner.rules.allowed, Xi, chosen)
        fit = anneal(refiner, Z, dZ, Xi, sigma)
        fits.append(fit)
        if _settled(fit, refiner):
            break
    else:
        if refiner.link is None and refiner.rules.ties is None:
            regression = regress(refiner.nodes, phi, refiner.order)
            fits += explore(refiner, Z, dZ, held, sigma, regression)
    best = max(fits, key=lambda fit: fit.evidence)
    if not np.isfinite(best.evidence):
        raise DataError(
            "the joint fit of states and coefficients broke down: the model is not finite near the "
            "data. Leave out terms that grow fast, or use method='regression'."
        )
    return best


def _settled(fit: Fit, refiner: Refiner) -> bool:
    """Whether a model holds strictly and leaves nothing but noise."""
    levels = fit.history
    return (
        bool(levels)
        and fit.rho <= 1.01 * min(x["rho"] for x in levels)
        and (fit.cost < 1.5 * refiner.freedom(0))
    )


def _usable(rules: Rules, phi: Array, held: Array, names: list[str]) -> tuple[Rules, Array]:
    """Leave out terms that are not finite on the data."""
    bad: Flags = ~np.asarray(np.isfinite(phi).all(0))
    if not bad.any():
        return rules, phi
    listed = ", ".join(name for name, b in zip(names, bad) if b)
    if (held[:, bad] != 0).any():
        raise DataError(f"fixed terms that are not finite on the data: {listed}.")
    warnings.warn(f"terms left out because they are not finite on the data: {listed}", stacklevel=4)
    if bad.all():
        raise DataError("no term of the library is finite on the data.")
    return replace(rules, allowed=rules.allowed & ~bad), np.where(bad, 0.0, phi)


def _one_shot(
    nodes: Nodes,
    phi: Array,
    top: Array,
    order: int,
    rules: Rules,
    held: Array,
    link: Link | None,
) -> tuple[Array, Array]:
    """Coefficients by regression: of all terms, and of chosen ones. Both (V, P)."""
    every, chosen = held.copy(), held.copy()
    regression = regress(nodes, phi, order) if link is None else None
    for v in range(len(held)):
        allowed = rules.allowed[v]
        if not allowed.any():
            continue
        if regression is not None:
            R, b = regression.R[v], regression.b[v] - regression.R[v] @ held[v]
            rows, cost = regression.rows[v], regression.cost[v]
        else:
            assert link is not None
            target = link.inverse(top[:, v]) - phi @ held[v]
            triangle = triangle_of(np.column_stack([phi, target]))
            P = phi.shape[1]
            R, b = triangle[:P, :P], triangle[:P, P]
            rows, cost = float(len(phi)), float(triangle[-1, -1] ** 2)
        R = R[:, allowed]
        k = int(allowed.sum())
        full = select(R, b, 0.0, required=np.ones(k, bool))
        spread = max((cost + full.cost) / max(rows - k, 1.0), 1e-300)
        signs = {"positive": rules.positive[v, allowed], "negative": rules.negative[v, allowed]}
        penalty = spread * penalty_for(int(rows), k, rules.strength)
        few = _big_enough(R, b, penalty, signs, phi[:, allowed], top[:, v], rules.threshold)
        every[v, allowed], chosen[v, allowed] = full.p, few
    return every, chosen


def _big_enough(
    R: Array,
    b: Array,
    penalty: float,
    signs: dict[str, Any],
    phi: Array,
    top: Array,
    threshold: float,
) -> Array:
    """Chosen coefficients without those that make no difference."""
    size = root_mean_square(phi) / root_mean_square(top)
    found = select(R, b, penalty, **signs)
    while (small := found.support & (np.abs(found.p) * size < threshold)).any():
        share = np.where(small, np.abs(found.p) * size, np.inf)
        support = found.support.copy()
        support[np.argmin(share)] = False
        found = select(R, b, np.inf, start=support, required=support)
    return found.p


def _thinned(
    rules: Rules, nodes: Nodes, phi: Array, order: int, held: Array, chosen: Array
) -> Rules:
    """With very many candidates, those that the regression finds most useful."""
    if rules.allowed.sum() <= MOST_CANDIDATES:
        return rules
    each = max(MOST_CANDIDATES // len(held), 4)
    regression = regress(nodes, phi, order)
    kept = np.zeros_like(rules.allowed)
    for v in range(len(held)):
        where = np.flatnonzero(rules.allowed[v])
        R = regression.R[v][:, where]
        b = regression.b[v] - regression.R[v] @ held[v]
        length = np.maximum(np.sqrt((R**2).sum(0)), 1e-300)
        support = chosen[v, where] != 0
        residual = b - R @ np.where(support, chosen[v, where], 0.0)
        while support.sum() < min(each, len(where)):  # orthogonal matching pursuit
            gain = np.where(support, -1.0, np.abs(R.T @ residual) / length)
            support[np.argmax(gain)] = True
            p = np.linalg.lstsq(R[:, support], b, rcond=None)[0]
            residual = b - R[:, support] @ p
        kept[v, where[support]] = True
    return replace(rules, allowed=kept)


def _regression_deviation(regression: Regression, Xi: Array, rules: Rules) -> Array:
    out = np.zeros_like(Xi)
    for v in range(len(Xi)):
        support = (Xi[v] != 0) & rules.allowed[v]
        if support.any():
            R = regression.R[v][:, support]
            found = select(R, regression.b[v], 0.0, required=np.ones(int(support.sum()), bool))
            rows = max(regression.rows[v] - support.sum(), 1.0)
            out[v, support] = found.deviation * np.sqrt((regression.cost[v] + found.cost) / rows)
    return out
