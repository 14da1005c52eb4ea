"""Verdict on maps: whether the data visit enough different states to determine the terms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.spatial import cKDTree

from smnn.discovery._arrays import Array
from smnn.discovery._fit.data import FitResult
from smnn.discovery._verdict.verdict import LEVELS, NOT_DETERMINED, Verdict

APART = 3.0  # Distance, in standard deviations of the noise, of states that count as different
SMALLEST = 1e-6  # The same relative to the spread of the data, without noise
ENOUGH = 1000  # Number of states that are compared if there are more


def different_states(Z: Array, noise: Array, scale: Array) -> int:
    """Number of states (N, V), of which no two are closer than the noise."""
    left = Z[:ENOUGH] / np.maximum(APART * noise, SMALLEST * scale)
    count = 0
    while len(left):
        near = cKDTree(left).query_ball_point(left[0], 1.0)
        left = np.delete(left, near, axis=0)
        count += 1
    return count


def judged(verdict: Verdict, result: FitResult) -> Verdict:
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
