"""Discovery with default settings on ODEBench, a public set of 63 systems.

Every system is fitted on the trajectory from its first initial state. Its equations are then
integrated from that state (reconstruction) and from the second one, which was not fitted
(generalization); both count as right if R² is above 0.9, as in the publication of ODEFormer. Noise
is multiplicative, and a part of the rows can be deleted. The law counts as found if its right-hand
side is right within 1 % (root mean square) on both trajectories: other forms of the same law count.

The default library and the search for constants inside terms were developed with odd-numbered
systems in view, so even-numbered ones are reported separately.
"""

from __future__ import annotations

import statistics
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from smnn.experiments.cases import Results, run_cases
from smnn.experiments.cases import ticks as ticks
from smnn.experiments.experiment import Tick, no_progress, option
from smnn.experiments.odebench.systems import POINTS, SYSTEMS, Array, OdeSystem

GOOD = 0.9  # R² above which a trajectory is right
RIGHT = 0.01  # Relative error of the right-hand side up to which a law is found
GROUPS = {"all": (1, 0), "odd numbers": (1,), "even numbers": (0,)}
"""Groups of systems, by the remainder of their number."""

Key = tuple[int, float, float, int]
"""Number, noise, deleted share and seed, which identify a case."""


@dataclass(frozen=True)
class Config:
    """Systems and settings of the data."""

    systems: tuple[int, ...] = option(
        tuple(s.number for s in SYSTEMS), "Numbers of systems, comma-separated.", shown="all"
    )
    noise: tuple[float, ...] = option((0.0, 0.05), "Noise levels: factors x (1 + noise).")
    deleted: tuple[float, ...] = option((0.0, 0.5), "Shares of the rows that are deleted.")
    seeds: int = option(1, "Realizations of noise and deletion.", minimum=1)
    experiment: ClassVar[str] = "odebench"

    def __post_init__(self) -> None:
        known = range(1, len(SYSTEMS) + 1)
        if not self.systems or any(n not in known for n in self.systems):
            raise ValueError(
                f"systems: got {self.systems}; expected numbers from 1 to {known[-1]}."
            )
        if any(not 0 <= x < 1 for x in (*self.noise, *self.deleted)):
            raise ValueError("noise and deleted: expected fractions from 0 to below 1.")

    @classmethod
    def quick(cls, **changes: Any) -> Config:
        """Every fifth system, without noise and with 5 %."""
        quick = {"systems": tuple(range(1, len(SYSTEMS) + 1, 5)), "deleted": (0.0,)}
        return cls(**{**quick, **changes})

    def cases(self) -> list[Key]:
        """All cases, in the order in which they are computed."""
        return [
            (n, x, d, k)
            for x in self.noise for d in self.deleted for k in range(self.seeds)
            for n in self.systems if x or d or k == 0
        ]  # fmt: skip


@dataclass
class Case:
    """Result on one data set."""

    system: int
    noise: float
    deleted: float
    seed: int
    reconstruction: float = -np.inf
    """R² of the trajectory from the first initial state, the smallest of all variables."""
    generalization: float = -np.inf
    """R² of the trajectory from the second initial state."""
    law: float = np.inf
    """Relative error of the right-hand side on both trajectories, the largest of all variables."""
    verdict: str = "no fit"
    equations: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def key(self) -> Key:
        """The case as listed by `Config.cases`."""
        return self.system, self.noise, self.deleted, self.seed

    @property
    def label(self) -> str:
        """The case in the progress bar."""
        return f"system {self.system}"


@dataclass
class OdeBench(Results):
    """Results of the experiment."""

    case: ClassVar[type] = Case

    def settings(self) -> list[tuple[float, float]]:
        """Noise and deleted share of all settings."""
        return [(x, d) for x in self.config.noise for d in self.config.deleted]

    def of(self, setting: tuple[float, float], group: str = "all") -> list[Case]:
        """Cases of a setting and a group of systems."""
        return [
            c for c in self.cases
            if (c.noise, c.deleted) == setting and c.system % 2 in GROUPS[group]
        ]  # fmt: skip

    def shares(self, setting: tuple[float, float], group: str = "all") -> dict[str, float]:
        """Shares of cases, and the median time; empty without cases."""
        cases = self.of(setting, group)
        if not cases:
            return {}
        sure = [c for c in cases if c.verdict == "established"]
        return {
            "reconstruction": sum(c.reconstruction > GOOD for c in cases) / len(cases),
            "generalization": sum(c.generalization > GOOD for c in cases) / len(cases),
            "law": sum(c.law < RIGHT for c in cases) / len(cases),
            "established": len(sure) / len(cases),
            "established and wrong": sum(not c.generalization > GOOD for c in sure) / len(cases),
            "seconds": statistics.median(c.seconds for c in cases),
        }

    def summary(self) -> list[dict[str, Any]]:
        """Shares by setting and group."""
        return [
            {"noise": s[0], "deleted": s[1], "group": g, **self.shares(s, g)}
            for s in self.settings() for g in GROUPS
        ]  # fmt: skip


def run(config: Config, tick: Tick = no_progress, out: Path | None = None) -> OdeBench:
    """Fit all data sets, on one thread; arguments as those of `run_cases`."""
    return run_cases(OdeBench, config, lambda key: do_case(*key), tick, out)


def do_case(number: int, noise: float, deleted: float, seed: int) -> Case:
    """Fit one data set and compare with the truth."""
    from smnn.discovery import Discovery

    system = SYSTEMS[number - 1]
    rng = np.random.default_rng([number, seed])
    t, clean = system.trajectory(0)
    X = clean * (1.0 + noise * rng.standard_normal(clean.shape))
    kept = np.sort(rng.permutation(POINTS)[: round(POINTS * (1.0 - deleted))])
    case = Case(number, noise, deleted, seed)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = Discovery().fit(X[kept], t=t[kept], feature_names=system.names)
        except ValueError:
            return case
        finally:
            case.seconds = round(time.process_time() - began, 3)
        case.verdict, case.equations = model.verdict_.level, model.equations()
        paths = [clean, system.trajectory(1)[1]]
        case.reconstruction, case.generalization = (
            _r2(model.simulate(path[0], t), path) for path in paths
        )
        case.law = _law_error(model, system, paths, t)
    return case


def _r2(found: Array, truth: Array) -> float:
    """Smallest R² of the variables; minus infinity after a divergence."""
    spread = ((truth - truth.mean(0)) ** 2).sum(0)
    error = ((found - truth) ** 2).sum(0)
    still = spread < 1e-12 * np.maximum((truth**2).sum(0), 1e-300)  # a constant variable
    size = np.where(still, np.maximum((truth**2).sum(0), 1e-12) * 1e-4, spread)
    scores = 1.0 - error / size
    return float(scores.min()) if np.isfinite(scores).all() else -np.inf


def _law_error(model: Any, system: OdeSystem, paths: list[Array], t: Array) -> float:
    X = np.concatenate(paths)
    truth = system.rate()(X.T).T
    with np.errstate(all="ignore"):
        error = model.predict(X, t=np.tile(t, len(paths))) - truth
    size = np.sqrt((truth**2).mean(0))
    worst = float((np.sqrt((error**2).mean(0)) / np.maximum(size, 1e-12)).max())
    return worst if np.isfinite(worst) else np.inf
