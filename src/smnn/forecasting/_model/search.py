"""Choice of the equations by rolling-origin cross-validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from smnn.forecasting._model import spec
from smnn.forecasting._model.panel import Member, Panel, Repeat, least_history
from smnn.forecasting._model.spec import Spec
from smnn.forecasting._model.system import same_gaps

MAX_RATIO = 1.4
"""Members with at most this multiple of the smallest error take part in the blend."""
POWER = 8
"""Blend weights are the inverse error to this power."""
CYCLE_GAIN, CYCLE_WINS = 0.95, 0.75
"""A free oscillation is kept if it reduces the error to the first fraction and is better at the
second fraction of the origins; otherwise noise is too easily mistaken for an oscillation."""
SHRINKAGE = 3.0
"""Number of windows at which the simple references get half of the blend of a single series."""
PENALTY = 0.2
"""Relative increase of the score per unit of complexity, for a single window."""
OLDEST = 0.7
"""Weight of the earliest origin relative to the latest."""
MAX_DECAY = 0.995
"""Largest decay factor of an anomaly per step; beyond it use a random walk."""
CANDIDATES = 60
"""Approximate number of candidates in one search."""
SHARED = 40
"""Cost of a group of series with the same gaps, in solutions."""
BUDGET = 1e7
"""Blocks (samples times times) per search; the number of origins is reduced to fit."""


def choose_origins(count: int, horizon: int, season: float, most: int) -> list[int]:
    """Choose the origins (lengths of history to forecast from), the latest first.

    Each leaves a substantial part of the history to fit, because the best equation depends on the
    length of the history. They are spread over the remainder, so that rare events are included, and
    consecutive horizons overlap by at most one half.
    """
    least = least_history(count, horizon, season)
    last = count - horizon
    if last < least:
        return []
    room = last - least
    number = min(most, 1 + room // max(1, horizon // 2))
    stride = room // (number - 1) if number > 1 else 1
    return [last - i * max(stride, 1) for i in range(number)]


@dataclass
class Search:
    """Cross-validation errors of the candidates for a group of series."""

    panel: Panel
    origins: Sequence[int]
    window: int
    errors: dict[Member, np.ndarray] = field(default_factory=dict)
    """`(S, O)` root mean square error over the horizon, relative to the scale."""
    forecasts: dict[Member, list[np.ndarray]] = field(default_factory=dict)
    """`(S, H)` from every origin on the modelled scale; only stored for a single series."""
    references: set[Spec] = field(default_factory=set)
    """Equations of the simple references."""

    def test(self, members: Sequence[Member]) -> None:
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
            per_origin.append([_rms(error) for error in errors])
            if len(self.panel.values) == 1:
                for member, x in zip(new, ahead):
                    self.forecasts.setdefault(member, []).append(x)
        for i, member in enumerate(new):
            self.errors[member] = np.stack([rms[i] for rms in per_origin], axis=1)

    @property
    def windows(self) -> float:
        """Number of non-overlapping horizons that the origins cover."""
        return 1.0 + (max(self.origins) - min(self.origins)) / self.panel.horizon

    def score(self, member: Member, without: int | None = None) -> float:
        """Pooled error over series and origins, with a penalty on complexity.

        With few origins, the best of many candidates is often best by chance; the penalty corrects
        for it. Recent origins have larger weights, because the process may have changed.

        `without` is the index of an origin to leave out.
        """
        self.test([member])
        square = self.errors[member] ** 2
        seen = np.isfinite(square)
        per_origin = np.where(seen, square, 0.0).sum(0) / np.maximum(seen.sum(0), 1)
        recent = np.linspace(1.0, OLDEST, len(per_origin))  # the latest origin comes first
        used = seen.any(0)
        if without is not None:
            used[without] = False
        if not used.any():
            return float("inf")
        mean = float((recent * np.sqrt(per_origin))[used].sum() / recent[used].sum())
        return mean * float(np.exp(PENALTY * member.complexity / self.windows))

    def run(self, cycle: float, trend: str, log: bool | None) -> Spec:
        """Coordinate search: optimize one property after the other, in two passes.

        `cycle` is the period of the free oscillation to try, or 0.
        """
        best = Spec(log=bool(log))
        if trend != "auto":
            best = replace(best, trend=trend)
        count = min(len(self.panel.clock), self.window)

        def allowed(candidates: Sequence[Spec]) -> list[Spec]:
            return [c for c in candidates if trend in ("auto", c.trend)]

        typical = self._typical_decay()
        both = (False, True) if log is None and self.panel.positive else (bool(log),)
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
        if log is None and self.panel.positive:
            axes.append(spec.scales)
        for _ in range(2):
            for axis in axes:
                self.test(axis(best))
                best = min(axis(best), key=self.score)
        best = self._without_doubtful_cycles(best)
        if trend == "auto" and 0 < self.panel.longest < min(self.origins):
            self.score(Repeat(self.panel.longest, best.log))
        return best

    def _typical_decay(self) -> float:
        """Pooled lag-1 autocorrelation of the anomalies from trend and seasons; 0 if small."""
        past = self.panel.history(len(self.panel.clock), self.window)
        residual = self.panel.residual(spec.TREND, past) / self.panel.scale
        before, after = self.panel.lagged(residual, past)
        total = float((before**2).sum())
        decay = round(float((before * after).sum()) / total, 3) if total > 0 else 0.0
        return min(decay, MAX_DECAY) if decay > 0.1 else 0.0

    def best_of_each_kind(self) -> list[Member]:
        """The best member of each kind, best first; all log or none, as the best overall."""
        found: dict[tuple[str, ...], Member] = {}
        ranked = sorted(self.errors, key=self.score)
        for member in ranked:
            if member.log == ranked[0].log:
                found.setdefault(_kind(member), member)
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

    def held_out(self, log: bool) -> np.ndarray:
        """`(O, H)` forecasts of a single series, each with weights from the other origins only."""
        members = [m for m in self.errors if m.log == log]
        out = []
        for i in range(len(self.origins)):
            score = np.array([[self.score(m, without=i)] for m in members])
            if not np.isfinite(score).any():  # no observations at the other origins
                out.append(np.full(self.forecasts[members[0]][i].shape[1], np.nan))
                continue
            blend = self._shrunk(members, score)
            out.append(sum(float(w[0]) * self.forecasts[m][i][0] for m, w in blend.items()))
        return np.stack(out)

    def weights(self) -> dict[Member, np.ndarray]:
        """`(S,)` blend weights of each member that any series uses; they sum to one per series.

        Scores combine the errors of a series with the pooled errors. The series' own share
        increases with the variance between series relative to that between origins.
        """
        members = list(self.errors)
        pooled = np.array([self.score(m) for m in members])[:, None]
        if len(self.panel.values) == 1:
            return self._shrunk(members, pooled)
        own = np.stack([self.errors[m] for m in members])  # (M, S, O)
        typical = np.maximum(own.mean(0), 1e-12)
        relative = own / typical
        seen = np.isfinite(relative)
        count = seen.sum(2)
        mean = np.where(seen, relative, 0.0).sum(2) / np.maximum(count, 1)
        deviation = np.where(seen, relative - mean[..., None], 0.0)
        by_chance = (deviation**2).sum(2) / np.maximum(count - 1, 1) / np.maximum(count, 1)
        known = (count > 1).all(0)
        among = mean[:, known].var(axis=1).mean() if known.any() else 0.0
        chance = by_chance[:, known].mean() if known.any() else 1.0
        # Halved, because the origins of one series are correlated.
        trust = 0.5 * max(0.0, 1.0 - chance / among) if among > 0 else 0.0
        common = pooled / max(float(pooled.mean()), 1e-12)
        score = common + trust * np.where(count > 0, mean - common, 0.0)
        return _blend(members, score)

    def _shrunk(self, members: Sequence[Member], score: np.ndarray) -> dict[Member, np.ndarray]:
        """Blend for a single series, shrunk towards the simple references.

        The shrinkage increases as the number of windows decreases.
        """
        best = _blend(members, score)
        log = next(iter(best)).log
        plain = [i for i, m in enumerate(members) if m in self.references and m.log == log]
        if not plain:
            return best
        simple = _blend([members[i] for i in plain], score[plain])
        share = SHRINKAGE / (SHRINKAGE + self.windows)
        out = {m: (1 - share) * w for m, w in best.items()}
        for member, w in simple.items():
            out[member] = out[member] + share * w if member in out else share * w
        return out


def _blend(members: Sequence[Member], score: np.ndarray) -> dict[Member, np.ndarray]:
    """Weights from scores `(M, S)`: blend the best member of each kind, log or not as the best.

    Errors within a kind are highly correlated, so only its best member takes part.
    """
    score = np.maximum(score, 1e-12)
    log = np.array([m.log for m in members])
    usable = np.where(log[:, None] == log[score.argmin(0)], score, np.inf)
    least = usable.min(0)
    w = np.zeros_like(score)
    series = np.arange(score.shape[1])
    kinds = [_kind(m) for m in members]
    for kind in dict.fromkeys(kinds):
        places = np.array([i for i, k in enumerate(kinds) if k == kind])
        best = places[usable[places].argmin(0)]
        near = usable[best, series] <= MAX_RATIO * least
        w[best[near], series[near]] = (least / usable[best, series])[near] ** POWER
    w /= w.sum(0)
    return {m: w[i] for i, m in enumerate(members) if w[i].any()}


def _rms(error: np.ndarray) -> np.ndarray:
    """`(S,)` root mean square of `(S, H)`, ignoring NaN."""
    seen = np.isfinite(error)
    total = np.where(seen, error, 0.0) ** 2
    out: np.ndarray = np.sqrt(total.sum(1) / np.maximum(seen.sum(1), 1))
    out[~seen.any(1)] = np.nan
    return out


def _kind(member: Member) -> tuple[str, ...]:
    if isinstance(member, Repeat):
        return ("repeat",)
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
