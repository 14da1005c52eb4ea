"""Doubts that only equations with a hidden variable raise.

A hidden variable can follow any curve, so that equations with enough terms describe smooth data of
any origin. Equations that were fitted to the first part of the data must therefore also describe
the rest, with nothing but new initial states.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from smnn.discovery._fit.data import FitResult
from smnn.discovery._fit.refine import Refiner
from smnn.discovery._verdict.evidence import curves, score, shooting_errors
from smnn.discovery._verdict.fitted import Fitted
from smnn.discovery._verdict.verdict import (
    ESTABLISHED,
    NOT_DETERMINED,
    NOTHING,
    TENTATIVE,
    Verdict,
)
from smnn.report.numbers import percent

WINDOWS = (1, 2, 4)  # Numbers of windows of the rest, with initial states of their own
SHORTEST = 8  # Smallest number of rows of a window
FIRM, LEAST = 5.0, 1.0
"""Evidence of the predictions, in nats, for an established and for a tentative verdict."""
CLOSE = -9.0  # Evidence of another law, relative to the equations, above which it is as good
STABLE = 0.9  # Smallest fraction of the resamples that select a term
NEEDED = 10.0  # Evidence by which a hidden variable must improve on the equations without it


def prediction_evidence(trained: FitResult, whole: FitResult) -> float:
    """Score of equations, fitted to the first part of the data, for the rest, in nats.

    Args:
        trained: The fit to the first part.
        whole: The fit to all data, whose states are the initial guess.

    Returns:
        The score minus that of the best plain curves; minus infinity without enough data.
    """
    assert trained.joint is not None
    assert whole.joint is not None
    (old, fit), (refiner, best) = trained.joint, whole.joint
    at = np.arange(len(refiner.nodes.t))
    rules = replace(old.rules, allowed=np.zeros_like(old.rules.allowed))
    part = Refiner(refiner.nodes, old.terms, 1, rules)
    part.copy_scales(refiner, at)
    fit = replace(fit, Z=best.Z, rho=best.rho, sigma=best.sigma)
    used = [b - a for a, b in old.nodes.bounds]
    used += [0] * (len(refiner.nodes.bounds) - len(used))
    rest = [(a + n, b) for (a, b), n in zip(refiner.nodes.bounds, used) if a + n < b]
    found, plain = -np.inf, curves(refiner.nodes.take(rest)[0])[-1]
    for windows in WINDOWS:
        if min(b - a for a, b in rest) < windows * SHORTEST:
            break
        edges = [np.linspace(a, b, windows + 1).astype(int).tolist() for a, b in rest]
        bounds = [pair for one in edges for pair in itertools.pairwise(one)]
        errors = shooting_errors(part, fit, bounds)
        later = Refiner(refiner.nodes.take(rest)[0], old.terms, 1, rules)
        found = max(found, float(score(later, fit, errors, windows)[-1] - plain))
    return found


def judged_hidden(
    found: Fitted, plain: Fitted, trained: FitResult | None, rival: float
) -> Fitted:  # fmt: skip
    """Lower the verdict on equations with a hidden variable if these are in doubt.

    Args:
        found: The equations.
        plain: Equations without a hidden variable.
        trained: The fit of the equations to the first part of the data, if it succeeded.
        rival: Evidence of the best other law with a hidden variable, relative to the equations.
    """
    gain = found.result.diagnostics["evidence"] - plain.result.diagnostics["evidence"]
    predicted, same = -np.inf, False
    if trained is not None:
        predicted = prediction_evidence(trained, found.result)
        same = bool(((trained.Xi != 0) == (found.result.Xi != 0)).all())
    facts = {"gain": gain, "predicted": predicted, "rival": rival, "same_terms": same}
    found.result.diagnostics["hidden"] = facts
    found.verdict = _judged(found.verdict, gain, predicted, rival, same)
    return found


def _judged(
    verdict: Verdict, gain: float, predicted: float, rival: float, same: bool
) -> Verdict:  # fmt: skip
    """The verdict, given the evidence relative to other equations, and that of predictions."""
    chosen = [one.chosen for one in verdict.equations.values() if one.chosen is not None]
    level, reason = verdict.level, verdict.reason
    if gain < NEEDED:
        level = NOT_DETERMINED
        reason = "equations without a hidden variable explain the data about as well."
    elif verdict.doubtful:
        level, reason = NOT_DETERMINED, f"no equations with a hidden variable hold ({reason})"
    elif any(one.level == NOTHING for one in verdict.equations.values()):
        level, reason = NOT_DETERMINED, "an equation without terms holds as well."
    elif rival > CLOSE:
        level = NOT_DETERMINED
        reason = "another law, with another hidden variable, explains the data about as well."
    elif min(chosen, default=1.0) < STABLE:
        share = percent(min(chosen))
        level, reason = NOT_DETERMINED, f"a term was selected in {share} of resamples only."
    elif predicted < LEAST:
        level = NOT_DETERMINED
        reason = "equations of the first part of the data do not predict the rest."
    elif not same and level != ESTABLISHED:
        level, reason = NOT_DETERMINED, "equations of the first part of the data have other terms."
    elif not same:
        level, reason = TENTATIVE, "equations of the first part of the data have other terms."
    elif predicted < FIRM and level == ESTABLISHED:
        level = TENTATIVE
        reason = "equations of the first part of the data hardly predict the rest."
    if (level, reason) == (verdict.level, verdict.reason):
        return verdict
    equations = {
        name: replace(one, level=NOT_DETERMINED if level == NOT_DETERMINED else TENTATIVE,
                      reason=reason)
        for name, one in verdict.equations.items()
    }  # fmt: skip
    return Verdict(level, reason, equations)


def without_hidden(plain: Fitted) -> Fitted:
    """Equations that hold without a hidden variable, with a verdict that says so."""
    reason = "the data do not need a hidden variable: equations without one are established."
    plain.verdict = Verdict(NOT_DETERMINED, reason, plain.verdict.equations)
    return plain
