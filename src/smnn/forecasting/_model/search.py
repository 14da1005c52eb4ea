"""Choice of the equations by rolling-origin cross-validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from smnn.forecasting._model import spec
from smnn.forecasting._model.blend import PENALTY, mean_known, recency, windows
from smnn.forecasting._model.panel import Panel, least_history
from smnn.forecasting._model.spec import Spec
from smnn.forecasting._model.system import same_gaps

CYCLE_GAIN, CYCLE_WINS = 0.95, 0.75
"""A free oscillation is kept if it reduces the error to the first fraction and is better at the
second fraction of the origins; otherwise noise is too easily mistaken for an oscillation."""
MAX_DECAY = 0.995
"""Largest decay factor of an anomaly per step; beyond it use a random walk."""
MOST_STRIDES = 100
"""Distance of two origins in units of the history from which on they cover only its end."""
CANDIDATES = 30
"""Approximate number of candidates in one search."""
SHARED = 40
"""Cost of a group of series with the same gaps, in solutions."""
BUDGET = 1e7
"""Blocks (samples times times) per search; the number of origins is reduced to fit."""


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
    for s in seasons:
        cycles = round(stride / s)
        if cycles and _off_phase(horizon, s, number) and not _off_phase(stride, s, number):
            stride = max(1, int((cycles - 1 / number) * s))
            break
    return [last - i * stride for i in range(number)]


def _off_phase(steps: int, season: float, number: int) -> bool:
    """Whether times so far apart differ in phase by at least one of `number` parts of a season."""
    return abs(steps / season - round(steps / season)) * number >= 1


@dataclass
class Search:
    """Cross-validation errors of the candidates for a group of series."""

    panel: Panel
    origins: Sequence[int]
    window: int
    errors: dict[Spec, np.ndarray] = field(default_factory=dict)
    """`(S, O)` mean absolute error over the horizon, relative to the scale."""
    forecasts: dict[Spec, list[np.ndarray]] = field(default_factory=dict)
    """`(S, H)` from every origin on the modelled scale."""
    references: set[Spec] = field(default_factory=set)
    """Equations of the simple references."""

    def test(self, members: Sequence[Spec]) -> None:
        """Forecast from every origin with those members that have not been tested yet."""
        new = [m for m in dict.fromkeys(members) if m not in self.errors]
        if not new:
            return
        per_origin = []
        for origin in self.origins:
            past = self.panel.history(origin, self.window)
            ahead = self.panel.ahead(new, past, *self.panel.after(origin))
            enough = self.panel.scorable(past)
            errors = (self.panel.errors(x, origin, enough, m.log) for m, x in zip(new, ahead))
            per_origin.append([mean_known(np.abs(error)) for error in errors])
            for member, x in zip(new, ahead):
                self.forecasts.setdefault(member, []).append(x)
        for i, member in enumerate(new):
            self.errors[member] = np.stack([errors[i] for errors in per_origin], axis=1)

    def score(self, member: Spec) -> float:
        """Pooled error over series and origins, with a penalty on complexity.

        Recent origins have larger weights, because the process may have changed.
        """
        self.test([member])
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

    def run(self, cycle: float, trend: str, log: bool | None) -> Spec:
        """Coordinate search: optimize one property after the other.

        `cycle` is the period of the free oscillation to try, or 0.
        """
        best = Spec(log=bool(log))
        if trend != "auto":
            best = replace(best, trend=trend)
        count = min(len(self.panel.clock), self.window)

        def allowed(candidates: Sequence[Spec]) -> list[Spec]:
            return [c for c in candidates if trend in ("auto", c.trend)]

        typical = self._typical_decay()
        both = (False, True) if log is None and self.panel.positive.all() else (bool(log),)
        self.references = {m for x in both for m in allowed(spec.reference_specs(typical, x))}
        self.test(list(self.references))
        axes: list[Callable[[Spec], Sequence[Spec]]] = [
            lambda b: spec.anomalies(b, typical),
            lambda b: allowed(spec.trends(b, count, self.panel.horizon, self.panel.longest)),
        ]
        if self.panel.seasons:
            axes.append(spec.seasons)
        if cycle:
            axes.append(lambda b: spec.cycles(b, cycle))
        if log is None and self.panel.positive.all():
            axes.append(spec.scales)
        for axis in axes:
            self.test(axis(best))
            best = min(axis(best), key=self.score)
        best = self._without_doubtful_cycles(best)
        return best

    def _typical_decay(self) -> float:
        """Pooled lag-1 autocorrelation of the anomalies from trend and seasons; 0 if small."""
        past = self.panel.history(len(self.panel.clock), self.window)
        residual = self.panel.residual(spec.TREND, past) / self.panel.scale
        before, after = self.panel.lagged(residual, past)
        total = float((before**2).sum())
        decay = round(float((before * after).sum()) / total, 3) if total > 0 else 0.0
        return min(decay, MAX_DECAY) if decay > 0.1 else 0.0

    def best_of_each_kind(self) -> list[Spec]:
        """The best member of each kind, best first; all log or none, as the best overall."""
        found: dict[tuple[str, ...], Spec] = {}
        ranked = sorted(self.errors, key=self.score)
        for member in ranked:
            if member.log == ranked[0].log:
                found.setdefault(kind(member), member)
        return list(found.values())

    def _without_doubtful_cycles(self, best: Spec) -> Spec:
        """Remove free oscillations without a clear improvement; return the best remaining spec."""
        specs = [m for m in self.errors if isinstance(m, Spec)]
        plain = min((m for m in specs if not m.cycle), key=self.score)
        cyclic = [m for m in specs if m.cycle]
        if cyclic:
            with_cycle = min(cyclic, key=self.score)
            scored = np.isfinite(self.errors[plain])
            better = (self.errors[with_cycle] < self.errors[plain]) & scored
            wins = better.sum() / max(scored.sum(), 1)
            gained = self.score(with_cycle) < CYCLE_GAIN * self.score(plain)
            if gained and wins >= CYCLE_WINS:
                return min(with_cycle, best, key=self.score)
            for member in cyclic:
                del self.errors[member]
        return plain


def kind(member: Spec) -> tuple[str, ...]:
    """Members of one kind have highly correlated errors."""
    level = "constant" if member.ratio == 0 else ("walk" if member.random_walk else "damped")
    season = "" if member.seasonal else "no season"
    return level, member.trend, season, "cycle" if member.cycle else "", str(member.log)


def find_cycle(panel: Panel, window: int) -> float:
    """Period in steps of the strongest oscillation beside trend and seasons, or 0.

    Uses the mean spectrum of all series. The peak must exceed its surroundings, and the history
    must contain at least three cycles.
    """
    n = len(panel.clock)
    past = panel.history(n, window)
    clock = panel.clock[past]
    n = len(clock)
    if n < 24 or not np.allclose(np.diff(clock.steps), 1.0, atol=0.25):
        return 0.0
    rows = panel.part(np.arange(min(len(panel.values), 256)))
    residual = rows.residual(spec.TREND, past)
    residual = np.where(np.isfinite(residual), residual, 0.0) / rows.scale
    taper = np.hanning(n)
    power = (np.abs(np.fft.rfft(residual * taper, 4 * n)) ** 2).mean(0)
    frequency = np.fft.rfftfreq(4 * n)
    inside = (frequency > 3.0 / n) & (frequency < 0.34)
    if not inside.any() or not power[inside].any():
        return 0.0
    peak = int(np.flatnonzero(inside)[power[inside].argmax()])
    at = frequency[peak]
    # Within a factor of two of the peak, excluding the peak itself.
    around = (frequency > at / 2) & (frequency < 2 * at) & (np.abs(frequency - at) > 2.0 / n)
    if not around.any() or power[peak] < 4 * np.median(power[around]):
        return 0.0
    return float(1 / at)


def solution_count(seen: np.ndarray) -> int:
    """Cost of one candidate in solutions; series with the same gaps share `SHARED` of them."""
    alike, others = same_gaps(seen)
    return len(others) + sum(min(len(rows), SHARED) for rows in alike)


def limit_origins(panel: Panel, origins: Sequence[int], window: int, samples: int) -> list[int]:
    """Keep as many origins as `BUDGET` allows, at least three.

    `samples` is the number of solutions per candidate.
    """
    V = 3 + sum(2 * season.harmonics for season in panel.seasons)
    blocks = CANDIDATES * samples * min(window, len(panel.clock)) * (V / 14) ** 1.5
    return list(origins[: max(3, int(BUDGET / blocks))])
