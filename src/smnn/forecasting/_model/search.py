"""Choice of the equations by rolling-origin cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from smnn.forecasting._model import spec
from smnn.forecasting._model.blend import PENALTY, mean_known, recency, windows
from smnn.forecasting._model.panel import Panel, least_history
from smnn.forecasting._model.regression import Fit
from smnn.forecasting._model.spec import Spec

MAX_DECAY = 0.995
"""Largest decay factor of an anomaly per step; beyond it use a random walk."""
MAX_GAP = 2.0
"""Largest gap between the phases of origins, relative to that of equidistant ones."""
MOST_STRIDES = 100
"""Distance of two origins in units of the history from which on they cover only its end."""


def choose_origins(
    count: int, horizon: int, season: float, most: int, seasons: Sequence[float] = ()
) -> list[int]:
    """Choose the origins (lengths of history to forecast from), the latest first.

    Each leaves a substantial part of the history to fit, because the best equation depends on the
    length of the history. They are spread over the remainder, so that rare events are included, but
    are at most about a horizon apart, and overlap by at most one half. Forecasts may be better at
    some phases of a season than at others: if whole seasons fit into the horizon, the origins have
    the phase of the forecast from the end of the history, otherwise they cover all phases.
    """
    least = least_history(count, horizon, season)
    last = count - horizon
    if last < least:
        return []
    room = last - least
    number = min(most, 1 + room // max(1, horizon // 2))
    stride = max(1, room // (number - 1) if number > 1 else 1)
    # Recent behaviour predicts better than that of long ago.
    stride = min(stride, max(horizon, int(min(seasons, default=1.0)), count // MOST_STRIDES))
    whole = [int(stride // s * s) for s in seasons if s <= stride and s % 1 == horizon % s == 0]
    stride = max(whole, default=stride)
    others = [s for s in seasons if abs(horizon / s - round(horizon / s)) * number >= 1]
    stride = spread_over_phases(stride, number, others)
    return [last - i * stride for i in range(number)]


def spread_over_phases(stride: int, number: int, seasons: Sequence[float]) -> int:
    """The longest distance of origins, at most `stride`, at which they cover all phases of seasons.

    Seasons that are longer than all distances together are left out. If no distance down to one
    half of `stride` is suitable, it is returned unchanged.
    """
    seasons = [s for s in seasons if s <= stride * number]
    for shorter in range(stride, stride // 2, -1):
        for s in seasons:
            phases = np.sort(np.arange(number) * shorter / s % 1)
            gap = np.diff(phases, append=phases[0] + 1).max()
            if gap > MAX_GAP / min(number, s) + 1e-9:
                break
        else:
            return shorter
    return stride


@dataclass
class Search:
    """Cross-validation errors of the candidates for a group of series."""

    panel: Panel
    origins: Sequence[int]
    window: int
    errors: dict[Spec, np.ndarray] = field(default_factory=dict)
    """`(S, O)` mean absolute error over the horizon, relative to the scale."""
    fits: dict[Spec, Fit] = field(default_factory=dict)

    def test(self, members: Sequence[Spec]) -> None:
        """Forecast with some candidates from every origin."""
        past = [self.panel.history(origin, self.window) for origin in self.origins]
        enough = [self.panel.scorable(part) for part in past]
        for member, fit in zip(members, self.panel.fit(members, self.origins, self.window)):
            self.fits[member] = fit
            self.errors[member] = np.stack([
                mean_known(np.abs(self.panel.errors(x, origin, known, member.log)))
                for x, origin, known in zip(self.forecasts(member), self.origins, enough)
            ], axis=1)  # fmt: skip

    def forecasts(self, member: Spec) -> np.ndarray:
        """`(O, S, H)` forecasts from the origins on the modelled scale."""
        return self.panel.ahead(self.fits[member], self.origins)

    def score(self, member: Spec) -> float:
        """Pooled error over series and origins, with a penalty on complexity.

        Recent origins have larger weights, because the process may have changed.
        """
        found = self.errors[member]
        seen = np.isfinite(found)
        used = seen.any(0)
        if not used.any():
            return float("inf")
        per_origin = np.where(seen, found, 0.0).sum(0) / np.maximum(seen.sum(0), 1)
        recent = recency(len(used)) * used
        covered = windows(self.origins, self.panel.horizon)
        mean = float((recent * per_origin).sum() / recent.sum())
        return mean * float(np.exp(PENALTY * member.complexity / covered))

    def run(self, trend: str, logs: Sequence[bool]) -> list[Spec]:
        """Test all candidates; return the best of each kind, best first, all log or none."""
        panel = self.panel
        self.test(spec.candidates(self._typical_decay(), trend, logs, bool(panel.seasons)))
        ranked = sorted(self.errors, key=self.score)
        found: dict[tuple[str, ...], Spec] = {}
        for member in ranked:
            if member.log == ranked[0].log:
                found.setdefault(member.kind, member)
        return list(found.values())

    def _typical_decay(self) -> float:
        """Pooled lag-1 autocorrelation of the anomalies from trend and seasons; 0 if small."""
        past = self.panel.history(len(self.panel.clock), self.window)
        residual = self.panel.residual(spec.TREND, past) / self.panel.scale
        before, after = self.panel.lagged(residual, past)
        total = float((before**2).sum())
        decay = round(float((before * after).sum()) / total, 3) if total > 0 else 0.0
        return min(decay, MAX_DECAY) if decay > 0.1 else 0.0
