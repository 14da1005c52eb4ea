r"""Candidate equations: their terms and variances, and the alternatives that the search tries.

A series is the sum of a level, a slope, seasonal oscillators, inputs and an anomaly:

$$ y(t) = \sum_j x_j(t)\, b_j + z(t) + \varepsilon, \qquad z' = -k z + \text{noise}, $$

where every $x_j$ is a solution of a homogeneous linear ODE (1, $t$, $\cos \omega t$, $\sin \omega
t$). The anomaly $z$ is damped if $k > 0$, and a random walk if $k = 0$.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

MAX_LOG = 700.0
"""Largest logarithm that is exponentiated."""


@dataclass(frozen=True)
class Spec:
    """One candidate. Variances are relative to the variance of the observation noise."""

    trend: str = "linear"
    """`"none"`, `"linear"`, or `"damped"`: a slope that decays over half of the horizon."""
    decay: float = 0.8
    """Factor by which the anomaly decays in one step; 1 is a random walk."""
    ratio: float = 4.0
    """Variance of the anomaly (of its increments, for a random walk); 0 removes it."""
    log: bool = False
    """Whether the logarithm of the series is modelled."""
    seasonal: bool = True
    """Whether the seasonal terms are included."""

    @property
    def complexity(self) -> float:
        """Number of modelling choices beyond the simplest model (a constant, or the last value)."""
        simple = self.ratio == 0 or (self.random_walk and self.ratio >= 1)
        return float(self.trend != "none") + float(not simple)

    @property
    def random_walk(self) -> bool:
        """Whether the level is a random walk."""
        return self.ratio > 0 and self.decay >= 1

    @property
    def kind(self) -> tuple[str, ...]:
        """Candidates of one kind have highly correlated errors."""
        level = "constant" if self.ratio == 0 else ("walk" if self.random_walk else "damped")
        return level, self.trend, "" if self.seasonal else "no season", str(self.log)


CLIMATOLOGY = Spec(trend="none", ratio=0.0)
TREND = Spec(trend="linear", ratio=0.0)

TRENDS = ("none", "damped", "linear")
ANOMALIES = (
    (1.0, 0.0), (0.8, 4.0), (0.95, 4.0), (0.99, 0.2), (1.0, 0.1), (1.0, 10.0),
)  # fmt: skip
"""Pairs (decay, ratio), from a constant level over damped anomalies to a random walk."""


def candidates(typical: float, trend: str, logs: Sequence[bool], seasonal: bool) -> list[Spec]:
    """All combinations of a trend, an anomaly and a scale, with and without seasons.

    Args:
        typical: Estimated decay of the anomaly in one step, or 0.
        trend: `"auto"`, or the only trend to use.
        logs: Whether to model the series, their logarithms, or both.
        seasonal: Whether there are seasons.
    """
    noises = [*ANOMALIES, (typical, 10.0), (typical, 2.0)] if typical > 0 else ANOMALIES
    trends = TRENDS if trend == "auto" else (trend,)
    seasons = (True, False) if seasonal else (True,)
    combined = itertools.product(trends, noises, logs, seasons)
    return [Spec(t, decay, ratio, log, s) for t, (decay, ratio), log, s in combined]
