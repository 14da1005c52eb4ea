"""What discovery claims about data whose answer is known.

Three groups of data are fitted with default settings: tables of unrelated columns, systems whose
terms are in the library, and systems with terms, inputs or variables that are missing. Verdicts are
counted, intervals are compared with the true coefficients, and inclusion frequencies with the
fraction of the terms that are right.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from smnn._util.files import InputError, write_json
from smnn._util.machine import describe_machine
from smnn._util.optional import require
from smnn.datasets.dynamics import canonical
from smnn.experiments.experiment import Tick, no_progress, option, read_record
from smnn.experiments.honesty.trials import GROUPS, MISSING, TRUE, UNRELATED, Trial, draw
from smnn.experiments.timing import threads

LEVELS = ("established", "tentative", "not determined", "not supported", "nothing found")
NO_FIT = "no fit"
"""Level of data that were refused."""
STABILITY = (0.0, 0.5, 0.8, 0.95, 1.0)
"""Limits of the classes of inclusion frequencies."""
FRESH = 10_000
"""First seed of the published figures; smaller ones were used to choose the thresholds."""


@dataclass(frozen=True)
class Config:
    """Numbers of data sets, and their seeds."""

    unrelated: int = option(500, "Tables of unrelated columns.", minimum=0)
    known: int = option(120, "Data sets of systems whose terms are in the library.", minimum=0)
    missing: int = option(140, "Data sets of systems whose terms are not.", minimum=0)
    seed: int = option(FRESH, "First seed; any other gives fresh data.", minimum=0)

    @classmethod
    def quick(cls, **changes: Any) -> Config:
        """A tenth of the data sets: a few minutes."""
        return cls(**{"unrelated": 50, "known": 12, "missing": 14, **changes})

    def wanted(self) -> list[tuple[str, int]]:
        """Group and seed of all data sets."""
        counts = zip(GROUPS, (self.unrelated, self.known, self.missing))
        return [(group, self.seed + k) for group, count in counts for k in range(count)]


@dataclass
class Case:
    """Verdict on one data set."""

    group: str
    kind: str
    seed: int
    rows: int
    noise: float | None = None
    level: str = NO_FIT
    reason: str = ""
    equations: list[dict[str, Any]] = field(default_factory=list)
    """Variable, text, level, reason and evidence of every equation; whether its terms are right;
    inclusion frequencies of its terms and whether they are true; and, if its terms are right,
    the number of its coefficients and of those within their intervals."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Time of the stages of the fit."""


@dataclass
class Honesty:
    """Results of the experiment."""

    config: Config
    machine: dict[str, Any]
    cases: list[Case] = field(default_factory=list)

    def of(self, group: str) -> list[Case]:
        """Cases of a group."""
        return [case for case in self.cases if case.group == group]

    def equations(self, group: str, right: bool | None = None) -> list[dict[str, Any]]:
        """Equations with terms of a group; only those with right or wrong terms if given."""
        found = [e for case in self.of(group) for e in case.equations if e["stability"]]
        return [e for e in found if right is None or e["right"] == right]

    def coverage(self) -> tuple[int, int]:
        """Coefficients of equations with right terms in noisy data: number, within intervals."""
        found = [e for c in self.of(TRUE) if c.noise for e in c.equations if e["right"]]
        return sum(e["coefficients"] for e in found), sum(e["within"] for e in found)

    def stability(self, group: str) -> list[tuple[int, int]]:
        """Number of terms, and of true ones, by class of inclusion frequency."""
        terms = [(s, t) for e in self.equations(group) for s, t in zip(e["stability"], e["true"])]
        classes = np.digitize([s for s, _ in terms], STABILITY[1:-1]).tolist()
        return [
            (sum(c == k for c in classes), sum(t for (_, t), c in zip(terms, classes) if c == k))
            for k in range(len(STABILITY) - 1)
        ]

    def cost(self) -> float | None:
        """Median time of the verdict relative to that of the rest of the fit."""
        shares = [
            c.seconds["verdict"] / max(sum(c.seconds.values()) - c.seconds["verdict"], 1e-9)
            for c in self.cases if "verdict" in c.seconds
        ]  # fmt: skip
        return float(np.median(shares)) if shares else None

    def record(self) -> dict[str, Any]:
        """JSON-serializable record."""
        number, within = self.coverage()
        return {
            "experiment": "honesty",
            "settings": asdict(self.config),
            "machine": self.machine,
            "summary": {
                "coefficients": number, "within_90_percent": within, "verdict_cost": self.cost(),
                "stability": {group: self.stability(group) for group in GROUPS},
                "established": {
                    group: [sum(c.level == LEVELS[0] for c in self.of(group)), len(self.of(group))]
                    for group in GROUPS
                },
            },
            "cases": [asdict(case) for case in self.cases],
        }  # fmt: skip


def ticks(config: Config) -> int:
    """Number of progress reports of `run`."""
    return len(config.wanted())


def run(config: Config, tick: Tick = no_progress, out: Path | None = None) -> Honesty:
    """Fit all data sets that are not stored yet, on one thread.

    Args:
        config: Settings.
        tick: Called after every data set with its kind.
        out: Folder of `honesty.json`, which holds the cases of an interrupted run and gets every
            new case.

    Raises:
        InputError: The file holds something else.
    """
    store = None if out is None else out / "honesty.json"
    stored = {} if store is None else load(store)
    pools = require("threadpoolctl", "keep the linear algebra to one thread")
    with threads(1), pools.threadpool_limits(limits=1):
        result = Honesty(config, describe_machine())
        for case, fresh in _cases(config, stored):
            result.cases.append(case)
            if fresh and store is not None:
                write_json(store, result.record())
            tick(case.kind)
    return result


def load(store: Path) -> dict[tuple[str, int], Case]:
    """The cases in a file by group and seed; none if there is no file.

    Raises:
        InputError: It is not a result of this experiment.
    """
    if not store.exists():
        return {}
    try:
        cases = cases_of(read_record(store, "honesty"))
    except (KeyError, TypeError) as error:
        raise InputError(f"{store} has entries that are not cases ({error}).") from error
    return {(case.group, case.seed): case for case in cases}


def cases_of(record: Mapping[str, Any]) -> list[Case]:
    """The cases of a record."""
    return [Case(**case) for case in record["cases"]]


def _cases(config: Config, stored: dict[tuple[str, int], Case]) -> Iterator[tuple[Case, bool]]:
    """All cases, and whether they were computed now."""
    for key in config.wanted():
        yield (stored[key], False) if key in stored else (do_case(draw(*key)), True)


def do_case(trial: Trial) -> Case:
    """Fit a data set with default settings and compare with the truth."""
    from smnn.discovery import DataError, Discovery, DiscoveryWarning

    rows = sum(len(t) for t in trial.times)
    case = Case(trial.group, trial.kind, trial.seed, rows, trial.noise)
    model = Discovery(library=trial.library, order=trial.order)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DiscoveryWarning)
            model.fit(
                trial.series, t=trial.times, inputs=trial.inputs, feature_names=list(trial.names)
            )
    except DataError as error:
        return replace(case, reason=str(error))
    return replace(
        case, level=model.verdict_.level, reason=model.verdict_.reason,
        equations=[_equation(model, v, trial) for v in range(len(trial.names))],
        seconds=model.report_["seconds"],
    )  # fmt: skip


def _equation(model: Any, v: int, trial: Trial) -> dict[str, Any]:
    """Verdict, stability and intervals of one equation."""
    name = model.variables_[v]
    columns = (*model.state_names_, *model.inputs_)
    truth = {canonical(k, columns): x for k, x in trial.truth.get(name, {}).items()}
    present = [int(p) for p in np.flatnonzero(model.coefficients_[v])]
    terms = [_known(model.terms_[p].name, columns) for p in present]
    right = bool(truth) and set(terms) == set(truth)
    exact = right and all(map(math.isfinite, truth.values()))
    low, high = model.intervals_[v].T
    inside = [low[p] <= truth[term] <= high[p] for p, term in zip(present, terms) if exact]
    verdict = model.verdict_.equations[name]
    return {
        "variable": name, "text": model.equations()[v], "level": verdict.level,
        "reason": verdict.reason, "evidence": verdict.evidence, "right": right,
        "stability": [float(model.inclusion_[v, p]) for p in present],
        "true": [term in truth for term in terms],
        "coefficients": len(inside), "within": int(sum(inside)),
    }  # fmt: skip


def _known(name: str, columns: tuple[str, ...]) -> str:
    """Canonical name of a term; the name itself for other functions."""
    try:
        return canonical(name, columns)
    except ValueError:
        return name


def counted(config: Config) -> dict[str, int]:
    """Number of data sets by group."""
    return dict(zip((UNRELATED, TRUE, MISSING), (config.unrelated, config.known, config.missing)))
