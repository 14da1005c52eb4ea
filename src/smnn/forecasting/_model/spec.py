r"""Candidate equations: their terms and variances, and the alternatives that the search tries.

A series is the sum of a level, a slope, seasonal oscillators and an anomaly:

$$ y(t) = \sum_j h_j(t)\, z_j(t) + \varepsilon, \qquad z_j' = -k_j z_j + \text{noise}, $$

where every $h_j$ is a solution of a homogeneous linear ODE (1, $t$, $\cos \omega t$, $\sin \omega
t$). With $k_j = 0$, $z_j$ is a constant without noise and a random walk with noise; with $k_j > 0$
it is damped. A damped pair with $\cos \omega t$ and $\sin \omega t$ is a damped oscillator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

MAX_LOG = 700.0
"""Largest logarithm that is exponentiated."""
WEAK = 0.01
"""Pull that only regularizes the system."""


@dataclass(frozen=True)
class Spec:
    """One candidate. Variances are relative to the variance of the observation noise."""

    trend: str = "linear"
    """`"none"`, `"linear"`, or `"damped"`: a slope that decays over half of the horizon."""
    pull: float = WEAK
    """Weight that pulls the slope (as the change over the whole history) towards the median slope
    of the panel, or towards zero for a few series."""
    half_life: float = float("inf")
    """Age in steps at which the squared weight of an observation is one half."""
    decay: float = 0.8
    """Factor by which the anomaly decays in one step; 1 is a random walk."""
    ratio: float = 4.0
    """Variance of the anomaly (of its increments, for a random walk); 0 removes it."""
    evolve: float = 0.0
    """Variance of the increments of the seasonal amplitudes; 0 keeps them constant."""
    cycle: float = 0.0
    """Period of a free oscillation in steps; 0 for none."""
    cycle_decay: float = 0.98
    """Factor by which the free oscillation decays in one step."""
    log: bool = False
    """Whether the logarithm of the series is modelled."""
    seasonal: bool = True
    """Whether the seasonal terms are included."""

    @property
    def complexity(self) -> float:
        """Number of modelling choices beyond the simplest model (a constant, or the last value)."""
        simple = self.ratio == 0 or (self.random_walk and self.ratio >= 1)
        kept = (self.trend != "none", np.isfinite(self.half_life), not simple, self.evolve > 0)
        return sum(kept) + 2.0 * bool(self.cycle)

    @property
    def random_walk(self) -> bool:
        """Whether the level is a random walk."""
        return self.ratio > 0 and self.decay >= 1


CLIMATOLOGY = Spec(trend="none", ratio=0.0)
TREND = Spec(trend="linear", ratio=0.0)

ANOMALIES = (
    (1.0, 0.0), (0.8, 4.0), (0.95, 4.0), (0.99, 0.2), (1.0, 0.1), (1.0, 10.0),
)  # fmt: skip
"""Pairs (decay, ratio), from a constant level over damped anomalies to a random walk."""
PULLS = (WEAK, 2.0)
EVOLVE = (0.0, 0.003)
CYCLE_DECAYS = (0.9, 0.97, 1.0)


def anomalies(base: Spec, typical: float) -> Sequence[Spec]:
    """Vary the anomaly; `typical` is the estimated decay of the data, or 0."""
    own = [(typical, 10.0), (typical, 2.0)] if typical > 0 else []
    return [replace(base, decay=d, ratio=r) for d, r in (*ANOMALIES, *own)]


def reference_specs(typical: float, log: bool) -> Sequence[Spec]:
    """The simple reference forecasts as equations; these are always tested."""
    out = [CLIMATOLOGY, TREND, Spec("none", decay=1.0, ratio=10.0)]
    if typical > 0:
        out += [Spec(trend, decay=typical, ratio=10.0) for trend in ("none", "linear")]
    return [replace(spec, log=log) for spec in out]


def trends(base: Spec, count: int, horizon: int, season: float) -> Sequence[Spec]:
    """Vary the trend and the half-life, which is no shorter than horizon and longest season."""
    least = max(float(horizon), season)
    half_lives = {float("inf"), max(count / 5, least)}
    out = []
    for half_life in sorted(half_lives, reverse=True):
        out.append(replace(base, trend="none", pull=WEAK, half_life=half_life))
        out.append(replace(base, trend="damped", pull=WEAK, half_life=half_life))
        for pull in PULLS:
            out.append(replace(base, trend="linear", pull=pull, half_life=half_life))
    return out


def seasons(base: Spec) -> Sequence[Spec]:
    """Vary how fast the seasons change, and drop them."""
    changing = [replace(base, evolve=q, seasonal=True) for q in EVOLVE]
    return [*changing, replace(base, evolve=0.0, seasonal=False)]


def cycles(base: Spec, length: float) -> Sequence[Spec]:
    """Vary the free oscillation: none, or one of this length with several decays."""
    damped = [replace(base, cycle=length, cycle_decay=d) for d in CYCLE_DECAYS]
    return [replace(base, cycle=0.0), *damped]


def scales(base: Spec) -> Sequence[Spec]:
    """The series itself and its logarithm."""
    return [replace(base, log=False), replace(base, log=True)]
