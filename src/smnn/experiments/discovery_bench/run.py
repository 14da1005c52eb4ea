"""Do the equations come back? Systems with known equations, noise, and several methods.

Every method gets the same series and the same candidate terms, and is judged by whether its
equations have exactly the right terms and by how far the coefficients are off. PySINDy's variants
are tuned (see `_sindy`); what they could have answered with perfect tuning is recorded beside it.
A case is written to disk as soon as it is done, so that a run can be stopped and continued.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from smnn._util.files import OutputError, write_json
from smnn._util.machine import describe_machine, package_versions
from smnn._util.optional import MissingPackageError, require
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
from smnn.experiments.timing import threads
from smnn.experiments.discovery_bench.methods import Method, Smnn, in_hindsight, score
from smnn.experiments.discovery_bench.sindy import VARIANTS

_ALL: tuple[Method, ...] = (Smnn(), Smnn("regression"), *VARIANTS)
METHODS: dict[str, Method] = {method.name: method for method in _ALL}
"""All methods by name."""

Key = tuple[str, float, int, str, int | None]
"""System, noise, seed, method and samples: what makes a case this one and no other."""

QUICK_SYSTEMS = ("Lorenz", "Lotka-Volterra", "Duffing (positions)", "FitzHugh-Nagumo",
                 "Logistic (short series)", "Thomas (sines)")  # fmt: skip
QUICK_METHODS = ("smnn", "pysindy-default", "pysindy-smoothed", "pysindy-weak")


@dataclass(frozen=True)
class Config:
    """What is compared."""

    systems: tuple[str, ...] = tuple(s.name for s in SYSTEMS)
    noise: tuple[float, ...] = (0.0, 0.01, 0.05, 0.1)
    """Standard deviations of the noise over those of the variables."""
    seeds: int = 3
    """Draws of the noise; without noise there is one case."""
    methods: tuple[str, ...] = tuple(METHODS)
    samples: int | None = None
    """Samples of every series; those of each system by default."""
    record: bool = True
    """Whether the hare and lynx record is looked at too."""

    def __post_init__(self) -> None:
        for name in self.methods:
            if name not in METHODS:
                raise ValueError(
                    f"no method is called {name!r}; expected some of {', '.join(METHODS)}."
                )
        if any(not 0 <= x < 10 for x in self.noise):
            raise ValueError(f"got the noise {self.noise}; expected fractions such as 0.05.")
        object.__setattr__(self, "systems", tuple(find_system(s).name for s in self.systems))

    @classmethod
    def quick(cls) -> Config:
        """Six systems, one draw, four methods: some minutes."""
        return cls(QUICK_SYSTEMS, (0.0, 0.05), 1, QUICK_METHODS)

    def cases(self) -> list[Key]:
        """Everything that is to be done, in this order."""
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
    samples: int | None
    seconds: float | None = None
    note: str = ""
    coefficients: dict[str, dict[str, float]] = field(default_factory=dict)
    score: dict[str, Any] | None = None
    """Against the truth; `None` for a record, or if the method failed."""
    hindsight: dict[str, Any] | None = None
    """The score of the best that the method could have answered; `None` if it had no choice."""
    error: str | None = None
    """What the method raised."""

    @property
    def key(self) -> Key:
        """As `Config.cases` lists it."""
        return self.system, self.noise, self.seed, self.method, self.samples


@dataclass
class Bench:
    """Everything that was found."""

    config: Config
    machine: dict[str, Any]
    cases: list[Case] = field(default_factory=list)
    others: list[Case] = field(default_factory=list)
    """Cases of earlier runs that this one did not ask for: kept, not counted."""

    def select(self, method: str, noise: float | None = None) -> list[Case]:
        """Cases of one method on systems with known equations."""
        return [
            c for c in self.cases
            if c.method == method and c.system != HARE_LYNX.name and noise in (None, c.noise)
        ]  # fmt: skip

    def share(self, method: str, noise: float, hindsight: bool = False) -> float | None:
        """Share of the cases with exactly the right terms; a failure is none."""
        cases = self.select(method, noise)
        scores = [(c.hindsight or c.score if hindsight else c.score) or {} for c in cases]
        return sum(bool(s.get("exact")) for s in scores) / len(cases) if cases else None

    def error(self, method: str, noise: float, hindsight: bool = False) -> float | None:
        """Median of the largest relative coefficient error; a failure counts as 1."""
        cases = self.select(method, noise)
        scores = [(c.hindsight or c.score if hindsight else c.score) or {} for c in cases]
        return statistics.median(s.get("max_rel", 1.0) for s in scores) if cases else None

    def seconds(self, method: str) -> float | None:
        """Median processor time of a case."""
        known = [c.seconds for c in self.select(method) if c.seconds is not None]
        return statistics.median(known) if known else None

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "experiment": "discovery-bench",
            "settings": asdict(self.config),
            "machine": self.machine,
            "summary": {
                m: {
                    f"{x:g}": {
                        "exact": self.share(m, x),
                        "exact_in_hindsight": self.share(m, x, hindsight=True),
                        "median_max_rel": self.error(m, x),
                    }
                    for x in self.config.noise
                }
                for m in self.config.methods
            },
            "cases": [asdict(c) for c in (*self.cases, *self.others)],
        }


def run(
    config: Config,
    store: Path | None = None,
    again: Sequence[str] = (),
    tick: Callable[[str], None] = lambda text: None,
) -> Bench:
    """Do every case that is not in the store yet, on one thread.

    Args:
        config: What is compared.
        store: File that holds what was done before and gets every new case. Cases in it that the
            configuration does not ask for are kept.
        again: Methods whose stored cases are done again.
        tick: Called after every case, with what it was.

    Raises:
        OutputError: If the store holds something else.
    """
    kept = {} if store is None else {c.key: c for c in load(store) if c.method not in again}
    wanted = config.cases()
    pools = require("threadpoolctl", "keep the linear algebra of all methods to one thread")
    with threads(1), pools.threadpool_limits(limits=1):
        bench = Bench(config, _machine())
        for key, case in _cases(wanted, kept):
            if key not in kept:
                kept[key] = case
                if store is not None:
                    write_json(store, _sorted(bench, wanted, kept).record())
            tick(f"{case.system}, {case.noise:.0%}, {case.method}")
    return _sorted(bench, wanted, kept)


def _sorted(bench: Bench, wanted: list[Key], kept: dict[Key, Case]) -> Bench:
    asked = set(wanted)
    return replace(
        bench,
        cases=[kept[key] for key in wanted if key in kept],
        others=[case for key, case in kept.items() if key not in asked],
    )


def load(store: Path) -> list[Case]:
    """The cases that a file holds; none if there is no file.

    Raises:
        OutputError: If it is no result of this experiment.
    """
    if not store.exists():
        return []
    try:
        record = json.loads(store.read_text(encoding="utf-8"))
        if record["experiment"] != "discovery-bench":
            raise KeyError("experiment")
        return [Case(**case) for case in record["cases"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OutputError(
            f"{store} holds no results of this experiment ({error}); remove it, or give another "
            "folder."
        ) from error


def _cases(wanted: list[Key], kept: dict[Key, Case]) -> Iterator[tuple[Key, Case]]:
    """Every wanted case, done if it was not; a system is integrated once."""
    clean: tuple[str, list[Series]] = ("", [])
    for key in wanted:
        if key in kept:
            yield key, kept[key]
            continue
        name, noise, seed, method, samples = key
        problem: System | Record = HARE_LYNX if name == HARE_LYNX.name else find_system(name)
        if clean[0] != name:
            if isinstance(problem, System):
                clean = name, simulate(problem, n=samples)
            else:
                clean = name, list(problem.series)
        series = add_noise(clean[1], noise, seed)
        yield key, do_case(Case(*key), METHODS[method], series, problem)


def do_case(case: Case, method: Method, series: Sequence[Series], problem: Problem) -> Case:
    """Let a method answer, and judge the answer."""
    try:
        found = method.fit(series, problem)
        if not all(math.isfinite(x) for e in found.coefficients.values() for x in e.values()):
            raise ArithmeticError("the coefficients are not finite")
    except MissingPackageError:
        raise
    except Exception as error:  # a method that fails on a system has not found its equations
        return replace(case, error=f"{type(error).__name__}: {error}"[:300])
    case = replace(case, seconds=found.seconds, note=found.note, coefficients=found.coefficients)
    if not isinstance(problem, System):
        return case
    best = score(in_hindsight(found, problem), problem).record() if found.candidates else None
    return replace(case, score=score(found.coefficients, problem).record(), hindsight=best)


def _machine() -> dict[str, Any]:
    machine = describe_machine()
    return {**machine, "versions": {**machine["versions"], **package_versions(("pysindy",))}}
