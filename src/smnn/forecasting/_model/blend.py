"""Scores of candidates from their cross-validation errors, and weights of a blend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

MAX_RATIO = 1.4
"""Members with at most this multiple of the smallest error take part in the blend."""
POWER = 8
"""Blend weights are the inverse error to this power."""
OLDEST = 0.7
"""Weight of the earliest origin relative to the latest."""
PENALTY = 0.2
"""Relative increase of the score per unit of complexity, for a single window."""
FAR = 3.0
"""Largest error relative to that of the typical member that is distinguished."""


def windows(origins: Sequence[int], horizon: int) -> float:
    """Number of non-overlapping horizons that origins cover."""
    return 1.0 + (max(origins) - min(origins)) / horizon


def recency(count: int) -> np.ndarray:
    """Weights of the origins, the latest first: the process may have changed."""
    return np.linspace(1.0, OLDEST, count)


@dataclass(frozen=True)
class Scores:
    """Errors of members that are compared, and what is known about them."""

    errors: np.ndarray
    """`(M, S, O)` relative to the scale of the series; NaN where not scored."""
    complexity: np.ndarray
    """`(M,)` or `(M, S)` modelling choices; with few origins, the best of many members is often
    best by chance, and a penalty on complexity corrects for it."""
    windows: float
    """Number of non-overlapping horizons that the origins cover."""
    trust: float | None = None
    """Share of the series' own errors in the score; estimated if `None`."""

    def values(self, without: int | None = None) -> np.ndarray:
        """`(M, S)` scores; infinite for members that were not scored for a series.

        Args:
            without: Index of an origin to leave out.
        """
        errors = np.minimum(self.errors, 1e100)
        if without is not None:
            errors = np.delete(errors, without, axis=2)
        seen = np.isfinite(errors)
        own = _weighted_mean(errors, seen)
        typical = np.maximum(_median(own), 1e-300)
        own = own / typical
        penalty = np.exp(PENALTY * self.complexity / self.windows)
        penalty = penalty if penalty.ndim == 2 else penalty[:, None]
        trust = self.estimated_trust() if self.trust is None else self.trust
        if trust < 1:
            near = np.minimum(own, FAR)
            known = np.isfinite(near)
            total = np.where(known, near, 0.0).sum(1) / np.maximum(known.sum(1), 1)
            common = np.where(known.any(1), total, np.inf)[:, None]
            own = np.where(known.any(0), near, common)
            own = common + trust * (own - common)
        return np.where(np.isfinite(own), own, np.inf) * penalty

    def settled(self) -> Scores:
        """The same with the trust that all errors imply."""
        return replace(self, trust=self.estimated_trust())

    def estimated_trust(self) -> float:
        """Variance of the differences between members between series, as a share of the total."""
        M, S, O = self.errors.shape
        if S == 1:
            return 1.0
        typical = np.maximum(_median(_weighted_mean(self.errors, np.isfinite(self.errors))), 1e-300)
        relative = np.minimum(self.errors / typical[..., None], FAR)
        relative = relative - _median(relative)
        seen = np.isfinite(relative)
        count = seen.sum(2)
        mean = np.where(seen, relative, 0.0).sum(2) / np.maximum(count, 1)
        square = np.where(seen, relative - mean[..., None], 0.0) ** 2
        chance = square.sum(2) / np.maximum(count - 1, 1) / np.maximum(count, 1)
        known = (count > 1).all(0)
        if not known.any():
            return 0.0
        among = float(mean[:, known].var(axis=1).mean())
        return max(0.0, 1.0 - float(chance[:, known].mean()) / among) if among > 0 else 0.0


def blend(
    score: np.ndarray, log: np.ndarray, kinds: Sequence[object], scale: np.ndarray | None = None
) -> np.ndarray:
    """`(M, S)` weights: the best member of each kind, log or not as the best.

    Errors within a kind are highly correlated, so only its best member takes part.

    Args:
        score: `(M, S)`.
        log: `(M, S)` whether a member models logarithms.
        kinds: Kind of each member; `None` for one that is a kind of its own.
        scale: `(S,)` whether the blend models logarithms; as the best member if `None`.
    """
    score = np.maximum(score, 1e-12)
    series = np.arange(score.shape[1])
    chosen = log[score.argmin(0), series] if scale is None else scale
    usable = np.where(log == chosen, score, np.inf)
    least = usable.min(0)
    w = np.zeros_like(score)
    places: dict[object, list[int]] = {}
    for i, kind in enumerate(kinds):
        places.setdefault(i if kind is None else kind, []).append(i)
    for own in map(np.array, places.values()):
        best = own[usable[own].argmin(0)]
        near = np.isfinite(least) & (usable[best, series] <= MAX_RATIO * least)
        w[best[near], series[near]] = (least / usable[best, series])[near] ** POWER
    total = w.sum(0)
    out: np.ndarray = w / np.where(total > 0, total, 1.0)
    return out


def _weighted_mean(errors: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """`(M, S)` mean over the origins; NaN where nothing was scored."""
    recent = recency(errors.shape[2]) * seen
    total = recent.sum(2)
    mean = (recent * np.where(seen, errors, 0.0)).sum(2) / np.where(total > 0, total, 1.0)
    return np.where(total > 0, mean, np.nan)


def _median(values: np.ndarray) -> np.ndarray:
    """Median over the members, ignoring NaN; NaN where there are none."""
    ordered = np.sort(values, axis=0)  # NaN last
    count = np.isfinite(values).sum(0)
    middle = np.maximum(count - 1, 0) // 2
    return np.take_along_axis(ordered, middle[None], axis=0)[0]


def mean_known(values: np.ndarray) -> np.ndarray:
    """Mean over the last axis, ignoring NaN; NaN where there is nothing else."""
    total = values.sum(-1)
    if np.isfinite(total).all():
        return np.asarray(total / values.shape[-1])
    seen = ~np.isnan(values)
    count = seen.sum(-1)
    total = np.where(seen, values, 0.0).sum(-1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
