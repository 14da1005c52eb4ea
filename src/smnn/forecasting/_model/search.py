"""Choosing equations by forecasting the past: from several origins, seeing nothing after them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from smnn.forecasting._model import spec
from smnn.forecasting._model.panel import Member, Panel, Repeat
from smnn.forecasting._model.spec import Spec
from smnn.forecasting._model.system import same_gaps
from smnn.forecasting._time import Clock

FEWEST = 8
"""Observations before the first origin."""
SMALLEST_PART = 0.25
"""Part of the history before the first origin."""
NEAR = 1.4
"""Members up to this many times the error of the best take part in the blend."""
STEEPNESS = 8
"""A member counts with this power of its inverse error."""
CYCLE_GAIN, CYCLE_WINS = 0.95, 0.75
"""A free oscillation must bring the error below this part, and win at this part of the origins:
noise looks like an oscillation often enough."""
SIMPLE = 3.0
"""Windows at which the blend of a single series is half of what simple references say."""
PRICE = 0.2
"""Of one choice in a single window, as a part of the error."""
OLDEST = 0.7
"""What the first origin counts, relative to the latest."""
SLOWEST = 0.995
"""Largest part of an anomaly that is left after one step; more is a random walk."""
CANDIDATES = 60
"""About as many are tried in one search."""
SHARED = 40
"""Solutions that series with the same gaps take together."""
BUDGET = 1e7
"""Blocks (samples times times) that a search may eliminate before it looks at fewer origins."""


def choose_origins(count: int, horizon: int, season: float, most: int) -> list[int]:
    """Lengths of history to forecast from, the latest first.

    All of them leave a good part of the history to learn from: what is best for a few years is not
    what is best for forty. They are spread over the rest of it, so that rare events take part, and
    the horizons overlap by at most a half.
    """
    least = max(FEWEST, min(horizon, count // 3), int(SMALLEST_PART * count))
    if count > 3 * season + horizon:
        least = max(least, int(np.ceil(2 * season)) + 2)
    last = count - horizon
    if last < least:
        return []
    room = last - least
    number = min(most, 1 + room // max(1, horizon // 2))
    stride = room // (number - 1) if number > 1 else 1
    return [last - i * max(stride, 1) for i in range(number)]


@dataclass
class Search:
    """What is known about each candidate for a group of series."""

    panel: Panel
    horizon: int
    origins: Sequence[int]
    window: int
    errors: dict[Member, np.ndarray] = field(default_factory=dict)
    """`(S, O)` root mean square over the horizon, relative to the scale."""
    forecasts: dict[Member, list[np.ndarray]] = field(default_factory=dict)
    """`(S, H)` from every origin on the modelled scale; kept of a single series."""
    basic: set[Spec] = field(default_factory=set)
    """Equations of the simple references."""

    def future(self, origin: int) -> tuple[Clock, np.ndarray | None]:
        """The times after an origin that lie inside the history, and the inputs there."""
        part = slice(origin, origin + self.horizon)
        inputs = self.panel.inputs
        return self.panel.clock[part], None if inputs is None else inputs[part]

    def test(self, members: Sequence[Member]) -> None:
        """Forecast from every origin by those members that have not been tried yet."""
        new = [m for m in dict.fromkeys(members) if m not in self.errors]
        if not new:
            return
        misses = []
        for origin in self.origins:
            past = self.panel.history(origin, self.window)
            ahead = self.panel.ahead(new, past, *self.future(origin))
            misses.append([self._miss(m, x, origin) for m, x in zip(new, ahead)])
            if len(self.panel.values) == 1:
                for member, x in zip(new, ahead):
                    self.forecasts.setdefault(member, []).append(x)
        for i, member in enumerate(new):
            self.errors[member] = np.stack([miss[i] for miss in misses], axis=1)

    def _miss(self, member: Member, ahead: np.ndarray, origin: int) -> np.ndarray:
        """`(S,)` root mean square over the horizon."""
        if member.log:
            ahead = np.exp(np.minimum(ahead, 700.0))
        miss = (ahead - self.panel.raw[:, origin : origin + self.horizon]) / self.panel.scale
        seen = np.isfinite(miss)
        total = np.where(seen, miss, 0.0) ** 2
        out: np.ndarray = np.sqrt(total.sum(1) / np.maximum(seen.sum(1), 1))
        out[~seen.any(1)] = np.nan
        return out

    @property
    def windows(self) -> float:
        """How many horizons the origins see that do not overlap."""
        return 1.0 + (max(self.origins) - min(self.origins)) / self.horizon

    def score(self, member: Member, without: int | None = None) -> float:
        """Error over the origins, of all series together, with a price for complexity.

        With few origins the best of many candidates is often so by chance; the price is what that
        is worth. Recent origins count more: what holds now may not have held then.

        Args:
            member: The candidate.
            without: Place of an origin to leave out.
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
        return mean * float(np.exp(PRICE * member.complexity / self.windows))

    def run(self, cycle: float, trend: str, log: bool | None) -> Spec:
        """Improve one property after the other, twice.

        Args:
            cycle: Length of the free oscillation to try, or 0.
            trend: `"auto"`, or the only kind of trend to consider.
            log: Whether to model logarithms; `None` tries both.
        """
        best = Spec(log=bool(log))
        if trend != "auto":
            best = replace(best, trend=trend)
        count = min(len(self.panel.clock), self.window)

        def allowed(candidates: Sequence[Spec]) -> list[Spec]:
            return [c for c in candidates if trend in ("auto", c.trend)]

        usual = self._usual_decay()
        both = (False, True) if log is None and self.panel.positive else (bool(log),)
        self.basic = {m for each in both for m in allowed(spec.basics(usual, each))}
        self.test(list(self.basic))
        axes: list[Callable[[Spec], Sequence[Spec]]] = [
            lambda b: spec.anomalies(b, usual),
            lambda b: allowed(spec.trends(b, count, self.horizon, self.panel.longest)),
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

    def _usual_decay(self) -> float:
        """What is left of an anomaly from trend and seasons after a step, over all series; or 0."""
        past = self.panel.history(len(self.panel.clock), self.window)
        clock = self.panel.clock[past]
        ((system, centre, states),) = self.panel.states([spec.TREND], past, clock.after(1))
        rest = (self.panel.values[:, past] - centre - states @ system.h.T) / self.panel.scale
        pairs = np.abs(np.diff(clock.steps) - 1.0) < 0.25
        before, after = rest[:, :-1][:, pairs], rest[:, 1:][:, pairs]
        both = np.isfinite(before) & np.isfinite(after)
        before, after = np.where(both, before, 0.0), np.where(both, after, 0.0)
        total = float((before**2).sum())
        decay = round(float((before * after).sum()) / total, 3) if total > 0 else 0.0
        return min(decay, SLOWEST) if decay > 0.1 else 0.0

    def best_of_each_kind(self) -> list[Member]:
        """The best member of each kind, on the scale of the best of all, the best first."""
        found: dict[tuple[str, ...], Member] = {}
        ranked = sorted(self.errors, key=self.score)
        for member in ranked:
            if member.log == ranked[0].log:
                found.setdefault(_kind(member), member)
        return list(found.values())

    def _without_doubtful_cycles(self, best: Spec) -> Spec:
        """Forget oscillations that do not help at most origins; the best that is left."""
        specs = [m for m in self.errors if isinstance(m, Spec)]
        plain = min((m for m in specs if not m.cycle), key=self.score)
        cyclic = [m for m in specs if m.cycle]
        if cyclic:
            with_cycle = min(cyclic, key=self.score)
            wins = np.nanmean(
                np.where(
                    np.isfinite(self.errors[plain]),
                    self.errors[with_cycle] < self.errors[plain],
                    np.nan,
                )
            )
            gained = self.score(with_cycle) < CYCLE_GAIN * self.score(plain)
            if gained and wins >= CYCLE_WINS:
                return min(with_cycle, best, key=self.score)
            for member in cyclic:
                del self.errors[member]
        return plain

    def held_out(self, log: bool) -> np.ndarray:
        """`(O, H)` forecasts of a single series, from each origin by a blend chosen without it.

        Args:
            log: Whether to blend logarithms.
        """
        members = [m for m in self.errors if m.log == log]
        out = []
        for i in range(len(self.origins)):
            score = np.array([[self.score(m, without=i)] for m in members])
            if not np.isfinite(score).any():  # nothing was seen at the others
                out.append(np.full(self.forecasts[members[0]][i].shape[1], np.nan))
                continue
            blend = self._cautious(members, score)
            out.append(sum(float(w[0]) * self.forecasts[m][i][0] for m, w in blend.items()))
        return np.stack(out)

    def weights(self) -> dict[Member, np.ndarray]:
        """`(S,)` for each member that any series uses; they add up to one for every series.

        A series is judged by its own errors and by those of all series: the more by its own, the
        more the differences between series exceed those between origins.
        """
        members = list(self.errors)
        pooled = np.array([self.score(m) for m in members])[:, None]
        if len(self.panel.values) == 1:
            return self._cautious(members, pooled)
        own = np.stack([self.errors[m] for m in members])  # (M, S, O)
        typical = np.maximum(own.mean(0), 1e-12)
        relative = own / typical
        seen = np.isfinite(relative)
        count = seen.sum(2)
        mean = np.where(seen, relative, 0.0).sum(2) / np.maximum(count, 1)
        off = np.where(seen, relative - mean[..., None], 0.0)
        by_chance = (off**2).sum(2) / np.maximum(count - 1, 1) / np.maximum(count, 1)
        known = (count > 1).all(0)
        among = mean[:, known].var(axis=1).mean() if known.any() else 0.0
        chance = by_chance[:, known].mean() if known.any() else 1.0
        # Halved, because the origins of one series are not independent of each other.
        trust = 0.5 * max(0.0, 1.0 - chance / among) if among > 0 else 0.0
        common = pooled / max(float(pooled.mean()), 1e-12)
        score = common + trust * np.where(count > 0, mean - common, 0.0)
        return _blend(members, score)

    def _cautious(self, members: Sequence[Member], score: np.ndarray) -> dict[Member, np.ndarray]:
        """The blend of a single series, drawn to what simple references say.

        The more so the fewer windows there are to tell better from luckier.
        """
        best = _blend(members, score)
        log = next(iter(best)).log
        plain = [i for i, m in enumerate(members) if m in self.basic and m.log == log]
        if not plain:
            return best
        simple = _blend([members[i] for i in plain], score[plain])
        share = SIMPLE / (SIMPLE + self.windows)
        out = {m: (1 - share) * w for m, w in best.items()}
        for member, w in simple.items():
            out[member] = out[member] + share * w if member in out else share * w
        return out


def _blend(members: Sequence[Member], score: np.ndarray) -> dict[Member, np.ndarray]:
    """Weights from scores `(M, S)`: the best of each kind together, all on the scale of the best.

    Members of one kind err alike, so only the best of them takes part; different kinds make up for
    each other.
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
        near = usable[best, series] <= NEAR * least
        w[best[near], series[near]] = (least / usable[best, series])[near] ** STEEPNESS
    w /= w.sum(0)
    return {m: w[i] for i, m in enumerate(members) if w[i].any()}


def _kind(member: Member) -> tuple[str, ...]:
    if isinstance(member, Repeat):
        return ("repeat",)
    level = "still" if member.ratio == 0 else ("wandering" if member.wanders else "damped")
    season = "" if member.seasonal else "no season"
    return level, member.trend, season, "cycle" if member.cycle else "", str(member.log)


def find_cycle(panel: Panel, window: int) -> float:
    """Length in steps of the strongest oscillation beside trend and seasons, or 0.

    The spectrum of all series together; a peak must stand out from its surroundings and be seen
    three times.
    """
    n = len(panel.clock)
    past = panel.history(n, window)
    clock = panel.clock[past]
    n = len(clock)
    if n < 24 or not np.allclose(np.diff(clock.steps), 1.0, atol=0.25):
        return 0.0
    rows = panel.part(np.arange(min(len(panel.values), 256)))
    ((system, centre, states),) = rows.states([spec.TREND], past, clock.after(1))
    rest = rows.values[:, past] - centre - states @ system.h.T
    rest = np.where(np.isfinite(rest), rest, 0.0) / rows.scale
    taper = np.hanning(n)
    power = (np.abs(np.fft.rfft(rest * taper, 4 * n)) ** 2).mean(0)
    frequency = np.fft.rfftfreq(4 * n)
    inside = (frequency > 3.0 / n) & (frequency < 0.34)
    if not inside.any() or not power[inside].any():
        return 0.0
    peak = int(np.flatnonzero(inside)[power[inside].argmax()])
    at = frequency[peak]
    # Within a factor of two of the peak, but not on it.
    around = (frequency > at / 2) & (frequency < 2 * at) & (np.abs(frequency - at) > 2.0 / n)
    if not around.any() or power[peak] < 4 * np.median(power[around]):
        return 0.0
    return float(1 / at)


def distinct(seen: np.ndarray) -> int:
    """How many solutions a candidate takes: those with the same gaps share a few dozen."""
    alike, others = same_gaps(seen)
    return len(others) + sum(min(len(rows), SHARED) for rows in alike)


def affordable(panel: Panel, wanted: Sequence[int], window: int, samples: int) -> list[int]:
    """As many of the origins as the size of the data allows, at least three.

    Args:
        panel: The series.
        wanted: The origins, the latest first.
        window: Times to learn from.
        samples: Solutions for one candidate.
    """
    V = 3 + sum(2 * season.harmonics for season in panel.seasons)
    one = CANDIDATES * samples * min(window, len(panel.clock)) * (V / 14) ** 1.5
    return list(wanted[: max(3, int(BUDGET / one))])
