"""Recovery of known equations from noisy data, by several methods.

Every method gets the same series and the same candidate terms. Measured are whether its equations
have exactly the right terms, and the errors of the coefficients. The variants of PySINDy are tuned
(see `sindy`); the result of an ideal tuning is recorded too. Each case is written to disk as soon
as it is done, so that a run can be interrupted and resumed.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from smnn._util.optional import MissingPackageError
from smnn.datasets.dynamics import (
    HARE_LYNX,
    SYSTEMS,
    Problem,
    Record,
    Series,
    System,
    add_noise,
    find_system,
    simulate,
)
from smnn.experiments.cases import Results, run_cases
from smnn.experiments.cases import ticks as ticks
from smnn.experiments.discovery_bench.methods import Method, Smnn, in_hindsight, score
from smnn.experiments.discovery_bench.sindy import VARIANTS
from smnn.experiments.experiment import Tick, no_progress, option

_ALL: tuple[Method, ...] = (Smnn(), Smnn("regression"), *VARIANTS)
METHODS: dict[str, Method] = {method.name: method for method in _ALL}
"""All methods by name."""

Key = tuple[str, float, int, str, int | None]
"""System, noise, seed, method and samples, which identify a case."""
NAME_WIDTH = 46
"""Width of the names in the progress bar."""

QUICK_SYSTEMS = ("Lorenz", "Lotka-Volterra", "Duffing (positions)", "FitzHugh-Nagumo",
                 "Logistic (short series)", "Thomas (sines)")  # fmt: skip
QUICK_METHODS = ("smnn", "pysindy-default", "pysindy-smoothed", "pysindy-weak")


@dataclass(frozen=True)
class Config:
    """Systems, noise levels and methods to compare."""

    systems: tuple[str, ...] = option(
        tuple(s.name for s in SYSTEMS),
        "Systems: comma-separated names, or unique beginnings of names.",
    )
    noise: tuple[float, ...] = option(
        (0.0, 0.01, 0.05, 0.1),
        "Noise levels: comma-separated fractions of the standard deviation of each variable.",
    )
    seeds: int = option(3, "Noise realizations of each system and positive level.", minimum=1)
    methods: tuple[str, ...] = option(
        tuple(METHODS), "Methods to compare, comma-separated.", shown="all"
    )
    samples: int | None = option(None, "Samples of every series (default: by system).", minimum=25)
    again: tuple[str, ...] = option(
        (), "Methods to compute again, comma-separated, even if their results are stored."
    )
    record: bool = True
    """Whether the measured hare and lynx series are included."""
    among: ClassVar[tuple[System, ...]] = SYSTEMS
    """The systems to choose from."""
    experiment: ClassVar[str] = "discovery-bench"
    title: ClassVar[str] = "Recovering known equations"

    def __post_init__(self) -> None:
        for name in self.methods:
            if name not in METHODS:
                raise ValueError(f"methods: got {name!r}; expected some of {', '.join(METHODS)}.")
        if any(not 0 <= x < 10 for x in self.noise):
            raise ValueError(f"noise: got {self.noise}; expected fractions such as 0.05.")
        object.__setattr__(self, "systems", tuple(self.find(s).name for s in self.systems))

    def find(self, name: str) -> System:
        """One of the systems."""
        return find_system(name, self.among)

    @classmethod
    def quick(cls, **changes: Any) -> Config:
        """Six systems, two noise levels, one realization and four methods: a few minutes."""
        quick = {"systems": QUICK_SYSTEMS, "noise": (0.0, 0.05), "seeds": 1,
                 "methods": QUICK_METHODS}  # fmt: skip
        return cls(**{**quick, **changes})

    def cases(self) -> list[Key]:
        """All cases, in the order in which they are computed."""
        draws = [(x, k) for x in self.noise for k in range(self.seeds if x else 1)]
        found: list[Key] = [
            (s, x, k, m, self.samples) for s in self.systems for x, k in draws for m in self.methods
        ]
        return found + [(HARE_LYNX.name, 0.0, 0, m, None) for m in self.methods if self.record]


@dataclass
class Case:
    """One method on one set of series."""

    system: str
    noise: float
    seed: int
    method: str
    samples: int | None = None
    seconds: float | None = None
    note: str = ""
    coefficients: dict[str, dict[str, float]] = field(default_factory=dict)
    score: dict[str, Any] | None = None
    """Comparison with the truth; `None` for measured data, or if the method failed."""
    hindsight: dict[str, Any] | None = None
    """Score of the best candidate of the method; `None` if it has no alternatives."""
    error: str | None = None
    """The exception that the method raised."""

    @property
    def key(self) -> Key:
        """The case as listed by `Config.cases`."""
        return self.system, self.noise, self.seed, self.method, self.samples

    @property
    def label(self) -> str:
        """The case in the progress bar."""
        return f"{self.system}, {self.noise:.0%}, {self.method}"


@dataclass
class Bench(Results):
    """Results of the benchmark."""

    case: ClassVar[type] = Case

    def select(self, method: str, noise: float | None = None) -> list[Case]:
        """Cases of a method on systems with known equations."""
        return [
            c for c in self.cases
            if c.method == method and c.system != HARE_LYNX.name and noise in (None, c.noise)
        ]  # fmt: skip

    def share(self, method: str, noise: float, hindsight: bool = False) -> float | None:
        """Share of the cases with exactly the right terms; failures count as wrong."""
        scores = self._scores(method, noise, hindsight)
        return sum(bool(s.get("exact")) for s in scores) / len(scores) if scores else None

    def error(self, method: str, noise: float, hindsight: bool = False) -> float | None:
        """Median of the largest relative coefficient error; a failure counts as 1."""
        scores = self._scores(method, noise, hindsight)
        return statistics.median(s.get("max_rel", 1.0) for s in scores) if scores else None

    def _scores(self, method: str, noise: float, hindsight: bool) -> list[dict[str, Any]]:
        cases = self.select(method, noise)
        return [(c.hindsight or c.score if hindsight else c.score) or {} for c in cases]

    def seconds(self, method: str) -> float | None:
        """Median processor time of a case."""
        known = [c.seconds for c in self.select(method) if c.seconds is not None]
        return statistics.median(known) if known else None

    def summary(self) -> dict[str, Any]:
        """Shares of exact equations and errors, by method and noise."""
        return {
            m: {
                f"{x:g}": {
                    "exact": self.share(m, x),
                    "exact_in_hindsight": self.share(m, x, hindsight=True),
                    "median_max_rel": self.error(m, x),
                }
                for x in self.config.noise
            }
            for m in self.config.methods
        }


def run(config: Config, tick: Tick = no_progress, out: Path | None = None) -> Bench:
    """Compute all cases, on one thread; arguments as those of `run_cases`."""

    def problem_of(name: str) -> System | Record:
        return HARE_LYNX if name == HARE_LYNX.name else config.find(name)

    @functools.lru_cache(maxsize=1)
    def clean(name: str, samples: int | None) -> list[Series]:
        problem = problem_of(name)
        return simulate(problem, n=samples) if isinstance(problem, System) else [*problem.series]

    def compute(key: Key) -> Case:
        name, noise, seed, method, samples = key
        series = add_noise(clean(name, samples), noise, seed)
        return do_case(Case(*key), METHODS[method], series, problem_of(name))

    return run_cases(Bench, config, compute, tick, out, ("pysindy",))


def do_case(case: Case, method: Method, series: Sequence[Series], problem: Problem) -> Case:
    """Fit a method and score its equations."""
    try:
        found = method.fit(series, problem)
        if not all(math.isfinite(x) for e in found.coefficients.values() for x in e.values()):
            raise ArithmeticError("the coefficients are not finite")
    except MissingPackageError:
        raise
    except Exception as error:  # a failure counts as a wrong result
        return replace(case, error=f"{type(error).__name__}: {error}"[:300])
    case = replace(case, seconds=found.seconds, note=found.note, coefficients=found.coefficients)
    if not isinstance(problem, System):
        return case
    best = asdict(score(in_hindsight(found, problem), problem)) if found.candidates else None
    return replace(case, score=asdict(score(found.coefficients, problem)), hindsight=best)
