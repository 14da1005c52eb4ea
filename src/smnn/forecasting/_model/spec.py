r"""Candidate equations: what each term does, and how stiffly the data hold it.

A series is the sum of a level, a slope, seasonal oscillators and an anomaly:

$$ y(t) = \sum_j h_j(t)\, z_j(t) + \varepsilon, \qquad z_j' = -k_j z_j + \text{noise}, $$

where every $h_j$ is a solution of a homogeneous linear ODE (1, $t$, $\cos \omega t$, $\sin \omega
t$). With $k_j = 0$ and no noise $z_j$ is a constant; with noise it wanders; with $k_j > 0$ it is
damped. A damped pair with $\cos \omega t$ and $\sin \omega t$ is a damped oscillator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

Axis = Sequence["Spec"]

WEAK = 0.01
"""A pull that only keeps the system regular."""


@dataclass(frozen=True)
class Spec:
    """One candidate. Variances are relative to that of the noise of a single observation."""

    trend: str = "linear"
    """`"none"`, `"linear"`, or `"damped"`: a slope that dies out over half of the horizon."""
    pull: float = WEAK
    """Weight that pulls the slope, as the change over the whole history, to that of all series
    together, or to zero if there is one."""
    half_life: float = float("inf")
    """Steps after which an observation counts half."""
    decay: float = 0.8
    """Of the anomaly in one step; 1 is a random walk."""
    ratio: float = 4.0
    """Variance of the anomaly (of its steps, for a random walk); 0 takes it out."""
    evolve: float = 0.0
    """Variance of the steps of seasonal amplitudes; 0 keeps them constant."""
    cycle: float = 0.0
    """Length of a free oscillation in steps; 0 for none."""
    cycle_decay: float = 0.98
    """Of the free oscillation in one step."""
    log: bool = False
    """Whether the logarithm of the series is modelled."""
    seasonal: bool = True
    """Whether the seasons take part."""

    @property
    def complexity(self) -> float:
        """How many choices it takes to tell it from the simplest: a constant, or the last value."""
        simple = self.ratio == 0 or (self.wanders and self.ratio >= 1)
        kept = (self.trend != "none", np.isfinite(self.half_life), not simple, self.evolve > 0)
        return sum(kept) + 2.0 * bool(self.cycle)

    @property
    def wanders(self) -> bool:
        """Whether the level is a random walk."""
        return self.ratio > 0 and self.decay >= 1


CLIMATOLOGY = Spec(trend="none", ratio=0.0)
TREND = Spec(trend="linear", ratio=0.0)

ANOMALIES = (
    (1.0, 0.0), (0.5, 4.0), (0.8, 4.0), (0.8, 1.0), (0.95, 4.0), (0.95, 0.5), (0.99, 4.0),
    (0.99, 0.2), (1.0, 0.01), (1.0, 0.1), (1.0, 1.0), (1.0, 10.0),
)  # fmt: skip
"""Decay and ratio, from a constant level over damped anomalies to a random walk."""
PULLS = (WEAK, 1.0, 2.0, 4.0)
EVOLVE = (0.0, 0.0003, 0.003, 0.03)
CYCLE_DECAYS = (0.9, 0.97, 0.99, 1.0)


def anomalies(base: Spec, usual: float) -> Axis:
    """The same with other anomalies, among them such that fade as the series' own usually do."""
    own = [(usual, 10.0), (usual, 2.0)] if usual > 0 else []
    return [replace(base, decay=d, ratio=r) for d, r in (*ANOMALIES, *own)]


def basics(usual: float, log: bool) -> Axis:
    """What simple references say, as equations: these are tried whatever else is."""
    out = [CLIMATOLOGY, TREND, Spec("none", decay=1.0, ratio=10.0)]
    if usual > 0:
        out += [Spec(trend, decay=usual, ratio=10.0) for trend in ("none", "linear")]
    return [replace(spec, log=log) for spec in out]


def trends(base: Spec, count: int, horizon: int, season: float) -> Axis:
    """The same with other trends and memories.

    Args:
        base: To start from.
        count: Length of the history.
        horizon: Steps to forecast; a slope is not learned from less than this.
        season: Longest season in steps, or 0.
    """
    least = max(float(horizon), season)
    half_lives = {float("inf"), max(count / 3, least), max(count / 8, least)}
    out = []
    for half_life in sorted(half_lives, reverse=True):
        out.append(replace(base, trend="none", pull=WEAK, half_life=half_life))
        out.append(replace(base, trend="damped", pull=WEAK, half_life=half_life))
        for pull in PULLS:
            out.append(replace(base, trend="linear", pull=pull, half_life=half_life))
    return out


def seasons(base: Spec) -> Axis:
    """The same with seasons that change more or less, and without any."""
    changing = [replace(base, evolve=q, seasonal=True) for q in EVOLVE]
    return [*changing, replace(base, evolve=0.0, seasonal=False)]


def cycles(base: Spec, length: float) -> Axis:
    """The same without and with a free oscillation."""
    damped = [replace(base, cycle=length, cycle_decay=d) for d in CYCLE_DECAYS]
    return [replace(base, cycle=0.0), *damped]


def scales(base: Spec) -> Axis:
    """The series itself, and its logarithm."""
    return [replace(base, log=False), replace(base, log=True)]
