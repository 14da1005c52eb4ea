"""What discovery claims about data whose answer is known.

Three groups of data are fitted with default settings: tables of unrelated columns, systems whose
terms are in the library, and systems with terms, inputs or variables that are missing. Verdicts are
counted, intervals are compared with the true coefficients, and inclusion frequencies with the
fraction of the terms that are right.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from smnn.datasets.dynamics import canonical
from smnn.experiments.cases import Results, run_cases
from smnn.experiments.cases import ticks as ticks
from smnn.experiments.experiment import Tick, no_progress, option
from smnn.experiments.honesty.trials import GROUPS, TRUE, Trial, draw

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
    experiment: ClassVar[str] = "honesty"

    @classmethod
    def quick(cls, **changes: Any) -> Config:
        """A tenth of the data sets: a few minutes."""
        return cls(**{"unrelated": 50, "known": 12, "missing": 14, **changes})

    def cases(self) -> list[tuple[str, int]]:
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

    @property
    def key(self) -> tuple[str, int]:
        """The case as listed by `Config.cases`."""
        return self.group, self.seed

    @property
    def label(self) -> str:
        """The case in the progress bar."""
        return self.kind


@dataclass
class Honesty(Results):
    """Results of the experiment."""

    case: ClassVar[type] = Case

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

    def summary(self) -> dict[str, Any]:
        """Coverage, cost and verdicts."""
        number, within = self.coverage()
        levels = {group: [c.level for c in self.of(group)] for group in GROUPS}
        return {
            "coefficients": number, "within_90_percent": within, "verdict_cost": self.cost(),
            "stability": {group: self.stability(group) for group in GROUPS},
            "established": {g: [x.count(LEVELS[0]), len(x)] for g, x in levels.items()},
        }  # fmt: skip


def run(config: Config, tick: Tick = no_progress, out: Path | None = None) -> Honesty:
    """Fit all data sets, on one thread; arguments as those of `run_cases`."""
    return run_cases(Honesty, config, lambda key: do_case(draw(*key)), tick, out)


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
