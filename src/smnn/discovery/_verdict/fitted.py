"""Fits with their verdicts, and doubts that only maps and delays raise."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.spatial import cKDTree

from smnn.discovery._arrays import Array, Flags
from smnn.discovery._fit.data import FitResult
from smnn.discovery._verdict.verdict import (
    LEVELS,
    NOT_DETERMINED,
    NOT_SUPPORTED,
    SIGNIFICANT,
    TENTATIVE,
    RivalEquation,
    Verdict,
    judge,
    least_ratio,
)
from smnn.discovery.libraries import Library

if TYPE_CHECKING:
    from smnn.discovery._models.delays import DelaySearch

CLEARLY = 6.0  # Gain in evidence, in nats, of constants inside terms that is required
APART = 3.0  # Distance, in standard deviations of the noise, of states that count as different
SMALLEST = 1e-6  # The same relative to the spread of the data, without noise
ENOUGH = 1000  # Number of states that are compared if there are more


@dataclass
class Fitted:
    """A fit of equations of an order with a library, and its verdict."""

    library: Library
    order: int
    result: FitResult

    def __post_init__(self) -> None:
        began = time.perf_counter()
        self.verdict, self.rivals = judge(self.result)
        if self.result.joint is not None and self.result.joint[0].nodes.discrete:
            self.verdict = judged_map(self.verdict, self.result)
        seconds = self.result.diagnostics.setdefault("seconds", {})
        seconds["verdict"] = round(time.perf_counter() - began, 4)

    def record(self) -> dict[str, Any]:
        """What was tried, as plain data."""
        return {
            "library": str(self.library), "order": self.order, "verdict": self.verdict.level,
            "terms": int(np.count_nonzero(self.result.Xi)),
            "evidence": self.result.diagnostics.get("evidence"),
        }  # fmt: skip


def better_of(first: Fitted, other: Fitted) -> Fitted:
    """The other fit, if its evidence and its verdict are better."""
    gain = other.result.diagnostics["evidence"] - first.result.diagnostics["evidence"]
    ranks = [LEVELS.index(one.verdict.level) for one in (other, first)]
    return other if gain > CLEARLY and ranks[0] <= ranks[1] else first


def stored(
    record: Mapping[str, Any], variables: Sequence[str]
) -> tuple[Verdict, list[RivalEquation]]:
    """Verdict and rivals of a model file; files of earlier versions have none.

    Raises:
        ValueError: They cannot be used.
    """
    verdict = Verdict(NOT_DETERMINED, "the file was written without a verdict.", {})
    if record.get("verdict") is not None:
        try:
            verdict = Verdict.from_dict(record["verdict"])
        except ValueError as error:
            raise ValueError(f"'verdict' in the model file: {error}") from None
        if list(verdict.equations) != list(variables):
            raise ValueError("'verdict' in the model file names other variables.")
    try:
        return verdict, [RivalEquation.from_dict(x) for x in record.get("candidates") or []]
    except (TypeError, ValueError) as error:
        raise ValueError(f"'candidates' in the model file: {error}") from None


def different_states(Z: Array, noise: Array, scale: Array) -> int:
    """Number of states (N, V), of which no two are closer than the noise."""
    left = Z[:ENOUGH] / np.maximum(APART * noise, SMALLEST * scale)
    count = 0
    while len(left):
        near = cKDTree(left).query_ball_point(left[0], 1.0)
        left = np.delete(left, near, axis=0)
        count += 1
    return count


def judged_map(verdict: Verdict, result: FitResult) -> Verdict:
    """The verdict, lowered if there are not more different states than candidate terms.

    On a periodic orbit many maps agree.
    """
    assert result.joint is not None
    refiner, fit = result.joint
    states = different_states(fit.Z, refiner.noise_of(fit), refiner.nodes.scale)
    candidates = int(refiner.rules.allowed.sum(1).max(initial=0))
    if states > candidates or LEVELS.index(verdict.level) >= LEVELS.index(NOT_DETERMINED):
        return verdict
    reason = (
        f"the data have {states} different states for {candidates} candidate terms; many maps "
        "agree on these."
    )
    equations = {
        name: replace(one, level=max(one.level, NOT_DETERMINED, key=LEVELS.index), reason=reason)
        for name, one in verdict.equations.items()
    }
    return Verdict(NOT_DETERMINED, reason, equations)


def judged_delay(verdict: Verdict, result: FitResult, used: Flags, search: DelaySearch) -> Verdict:
    """The verdict, lowered for the equations (V,) with delayed values if these are in doubt.

    Delayed values are data, which can explain their own derivatives. The equations must therefore
    follow the data from a past on their own, and no other lag may be as good.
    """
    price, errors = search.price(result.diagnostics["values"]), search.simulation_errors(result)
    equations = {}
    for v, (name, one) in enumerate(verdict.equations.items()):
        if used[v] and one.evidence is not None:
            level, reason, evidence = one.level, one.reason, one.evidence - price
            if not errors[v] < 1.0:
                level, reason = NOT_SUPPORTED, "its simulations leave the data."
            elif search.ambiguous:
                level, reason = NOT_DETERMINED, "other delays explain the data as well."
            elif evidence <= 1.0:
                level = NOT_DETERMINED
            elif least_ratio(result.Xi[v], result.deviation[v]) < SIGNIFICANT:
                level, reason = TENTATIVE, "the data do not determine its coefficients and the lag."
            if LEVELS.index(level) > LEVELS.index(one.level):
                one = replace(one, level=level, reason=reason)
            one = replace(one, evidence=evidence)
        equations[name] = one
    name, worst = max(equations.items(), key=lambda pair: LEVELS.index(pair[1].level))
    if LEVELS.index(worst.level) <= LEVELS.index(verdict.level):
        return replace(verdict, equations=equations)
    return Verdict(worst.level, f"{name}': {worst.reason}", equations)
