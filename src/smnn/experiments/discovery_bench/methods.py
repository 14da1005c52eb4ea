"""Interface of the compared methods, the scores of their equations, and the method of smnn."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from smnn.datasets.dynamics import Problem, Series, System, canonical

Equation = dict[str, float]
"""Nonzero coefficients of an equation by term."""


@dataclass(frozen=True)
class Found:
    """Equations found by a method."""

    coefficients: dict[str, Equation]
    """Equation of every target."""
    seconds: float
    """Processor time, including the choice of settings."""
    note: str = ""
    """Chosen settings."""
    candidates: dict[str, list[Equation]] = field(default_factory=dict)
    """Equations of every target at all settings tried."""
    report: Mapping[str, Any] = field(default_factory=dict)
    """Further diagnostics."""


class Method(Protocol):
    """A method of equation discovery."""

    @property
    def name(self) -> str:
        """Name in tables and on the command line."""
        ...

    def fit(self, series: Sequence[Series], problem: Problem) -> Found:
        """Find the equations, without using the true ones that a problem may contain."""
        ...


@dataclass(frozen=True)
class Score:
    """Comparison of equations with the true ones."""

    exact: bool
    """Exactly the right terms in every equation."""
    missing: int
    extra: int
    max_abs: float
    """Largest error of a coefficient, including those of superfluous terms."""
    max_rel: float
    """Largest relative error of a true coefficient; 1 for one that is missing."""


def score(found: Mapping[str, Equation], system: System) -> Score:
    """Compare the terms by name and the coefficients by value."""
    missing = extra = 0
    max_abs = max_rel = 0.0
    for target in system.targets:
        truth, got = system.truth[target], found.get(target, {})
        missing += len(truth.keys() - got.keys())
        extra += len(got.keys() - truth.keys())
        for term in truth.keys() | got.keys():
            error = abs(got.get(term, 0.0) - truth.get(term, 0.0))
            max_abs = max(max_abs, error)
            if term in truth:
                max_rel = max(max_rel, error / abs(truth[term]))
    return Score(missing + extra == 0, missing, extra, max_abs, max_rel)


def in_hindsight(found: Found, system: System) -> dict[str, Equation]:
    """For every target the candidate closest to the truth: the result of an ideal tuning."""

    def distance(target: str, equation: Equation) -> tuple[int, float]:
        truth = system.truth[target]
        error = max(abs(equation.get(x, 0.0) / a - 1) for x, a in truth.items())
        return len(truth.keys() ^ equation.keys()), error

    chosen = {}
    for target in system.targets:
        candidates = [found.coefficients[target], *found.candidates.get(target, [])]
        chosen[target] = min(candidates, key=lambda equation: distance(target, equation))
    return chosen


@dataclass(frozen=True)
class Smnn:
    """`smnn.discovery.Discovery` with default settings, given the library and the order."""

    method: str = "auto"
    neural: Mapping[str, Any] | None = None
    """Settings of the networks, for the method `neural`."""

    @property
    def name(self) -> str:
        """`smnn`, followed by the method unless that is chosen automatically."""
        return "smnn" if self.method == "auto" else f"smnn-{self.method}"

    def fit(self, series: Sequence[Series], problem: Problem) -> Found:
        """Fit one estimator to all series."""
        from smnn.discovery import Discovery
        from smnn.discovery.libraries import Library, Polynomial, Trigonometric

        library: Library = Polynomial(problem.basis.degree)
        if problem.basis.frequencies:
            library = library + Trigonometric(problem.basis.frequencies)
        start = time.process_time()
        estimator = Discovery(
            library=library, order=problem.order, method=self.method, neural=self.neural,
            random_state=0,
        )  # fmt: skip
        estimator.fit(
            [s.x for s in series],
            t=[s.t for s in series],
            inputs=[s.u for s in series] if problem.inputs else None,
            feature_names=list(problem.variables),
        )
        seconds = time.process_time() - start
        return Found(_read(estimator, problem), seconds, report=estimator.report_)


def _read(estimator: Any, problem: Problem) -> dict[str, Equation]:
    """Coefficients of a fitted estimator, with canonical names of the terms."""
    names = (*problem.states, *problem.inputs)
    terms = [canonical(term.name, names) for term in estimator.terms_]
    return {
        target: {name: float(value) for name, value in zip(terms, row) if value != 0}
        for target, row in zip(problem.targets, estimator.coefficients_, strict=True)
    }
