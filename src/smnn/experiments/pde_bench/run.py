"""Laws of evolution recovered from noisy fields, by `FieldDiscovery` and by PySINDy.

Fields are those of `smnn.datasets.fields` with noise relative to the spread of the field: complete,
with 30 % of the values missing, or cut to 60 % of the domain, which is then not periodic. A law is
exact if it has the right terms and no others; the error is that of its worst coefficient. PySINDy's
threshold is tuned by the Bayesian information criterion; its best threshold in hindsight, which
needs the truth, is reported beside it.
"""

from __future__ import annotations

import re
import statistics
import time
import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import sympy

from smnn._util.files import InputError, write_json
from smnn._util.machine import describe_machine, package_versions
from smnn._util.optional import require
from smnn.datasets.fields import LAWS, FieldData, simulate_law
from smnn.equations import parse_expression
from smnn.experiments.experiment import Tick, no_progress, option, read_record
from smnn.experiments.pde_bench.sindy import Field, Law, fit_all
from smnn.experiments.timing import threads

METHODS = ("smnn", "pde-find", "weak form")
DATA = ("complete", "missing", "cut")
ONE_DIRECTION = tuple(name for name, law in LAWS.items() if len(law.points) == 1)
MISSING, CUT = 0.3, (0.15, 0.75)
REAL = {"nls": {"u": "-0.5*v_xx - u^2*v - v^3", "v": "0.5*u_xx + u^3 + u*v^2"}}
"""Complex laws in real and imaginary parts."""

Key = tuple[str, str, float, int, str]
"""Law, kind of data, noise, seed and method, which identify a case."""


@dataclass(frozen=True)
class Config:
    """Laws and settings of the data."""

    laws: tuple[str, ...] = option(("burgers", "kdv"), f"Laws: {', '.join(ONE_DIRECTION)}.")
    noise: tuple[float, ...] = option((0.0, 0.1, 0.5), "Noise, relative to the spread.")
    data: tuple[str, ...] = option(("complete",), f"Kinds of data: {', '.join(DATA)}.")
    methods: tuple[str, ...] = option(METHODS, f"Methods: {', '.join(METHODS)}.", shown="all")
    seeds: int = option(1, "Realizations of initial values and noise.", minimum=1)
    seed: int = option(0, "Seed of the first realization.", minimum=0)

    def __post_init__(self) -> None:
        known = {"laws": ONE_DIRECTION, "data": DATA, "methods": METHODS}
        for name, names in known.items():
            given = getattr(self, name)
            if not given or set(given) - set(names):
                raise ValueError(f"{name}: got {given}; expected some of {', '.join(names)}.")
        if any(not 0 <= x <= 2 for x in self.noise):
            raise ValueError(f"noise: got {self.noise}; expected numbers from 0 to 2.")

    @classmethod
    def quick(cls, **changes: Any) -> Config:
        """Burgers' equation with 10 % noise."""
        return cls(**{"laws": ("burgers",), "noise": (0.1,), **changes})

    def cases(self) -> list[Key]:
        """All cases, in the order in which they are computed."""
        return [
            (law, kind, x, seed, method)
            for law in self.laws for kind in self.data for x in self.noise
            for seed in range(self.seed, self.seed + self.seeds) for method in self.methods
        ]  # fmt: skip


@dataclass
class Case:
    """Result of a method on one field."""

    law: str
    data: str
    noise: float
    seed: int
    method: str
    exact: bool = False
    error: float | None = None
    """Largest relative error of a coefficient of an exact law."""
    hindsight: float | None = None
    """The smallest such error over all thresholds; `None` if none gives the right terms."""
    deviations: list[float] = field(default_factory=list)
    """Errors of the coefficients of an exact law in standard deviations."""
    verdict: str = ""
    equations: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def key(self) -> Key:
        """The case as listed by `Config.cases`."""
        return self.law, self.data, self.noise, self.seed, self.method


@dataclass
class PdeBench:
    """Results of the experiment."""

    config: Config
    machine: dict[str, Any]
    cases: list[Case] = field(default_factory=list)

    def of(self, law: str, data: str, noise: float, method: str) -> list[Case]:
        """All realizations of a setting."""
        wanted = (law, data, noise, method)
        return [c for c in self.cases if (c.law, c.data, c.noise, c.method) == wanted]

    def record(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "experiment": "pde-bench", "settings": asdict(self.config), "machine": self.machine,
            "cases": [asdict(case) for case in self.cases],
        }  # fmt: skip


def median_error(cases: Iterable[Case], hindsight: bool = False) -> float | None:
    """Median of the errors; `None` if half of the laws are not exact."""
    found = [c.hindsight if hindsight else c.error for c in cases]
    middle = statistics.median_high([np.inf if e is None else e for e in found] or [np.inf])
    return None if middle == np.inf else float(middle)


def ticks(config: Config) -> int:
    """Number of progress reports of `run`."""
    return len(config.cases())


def run(config: Config, tick: Tick = no_progress, out: Path | None = None) -> PdeBench:
    """Fit all fields that are not stored yet, on one thread.

    Args:
        config: Settings.
        tick: Called after every case with its law.
        out: Folder of `pde-bench.json`, which holds the cases of an interrupted run and gets every
            new case; cases of other settings in it are kept.

    Raises:
        InputError: The file holds something else.
    """
    store = None if out is None else out / "pde-bench.json"
    stored = _load(store) if store is not None and store.exists() else {}
    machine = describe_machine()
    machine["versions"] |= package_versions(("pysindy",))
    pools = require("threadpoolctl", "keep the linear algebra to one thread")
    with threads(1), pools.threadpool_limits(limits=1):
        result = PdeBench(config, machine)
        result.cases = list(stored.values())
        for key in config.cases():
            if key not in stored:
                result.cases.append(do_case(*key))
            if store is not None and key not in stored:
                write_json(store, result.record())
            tick(key[0])
    return result


def _load(store: Path) -> dict[Key, Case]:
    try:
        cases = [Case(**entry) for entry in read_record(store, "pde-bench")["cases"]]
    except (KeyError, TypeError) as error:
        raise InputError(f"{store} has entries that are not cases ({error}).") from error
    return {case.key: case for case in cases}


def do_case(law: str, kind: str, noise: float, seed: int, method: str) -> Case:
    """Fit one field and compare with the truth."""
    case = Case(law, kind, noise, seed, method)
    data = simulate_law(law, seed)
    u = data.noisy(noise, missing=MISSING if kind == "missing" else 0.0, seed=seed)
    x = data.x[0]
    if kind == "cut":
        first, last = (round(share * len(x)) for share in CUT)
        u, x = u[:, first:last], x[first:last]
    began = time.process_time()
    if method == "smnn":
        _ours(case, data, u, x)
    else:
        real = np.concatenate([u.real, u.imag], -1) if np.iscomplexobj(u) else u
        paths = fit_all(method, _without_gaps(real, data.t), data.t, x)
        _compare(case, paths, truth_of(REAL.get(law, data.law)))
    case.seconds = round(time.process_time() - began, 3)
    return case


def _ours(case: Case, data: FieldData, u: Field, x: Field) -> None:
    from smnn.discovery import FieldDiscovery

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = FieldDiscovery().fit(u, t=data.t, x=x)
    places = {
        (model.fields_[f], model.terms_[p].symbolic): (f, p)
        for f, p in np.argwhere(model.coefficients_)
    }
    found = {k: float(model.coefficients_[place]) for k, place in places.items()}
    truth = truth_of(data.law)
    case.error = _error(found, truth)
    if case.error is not None and model.deviation_.any():
        case.deviations = [
            round(float((found[k] - a) / max(model.deviation_[places[k]], 1e-300)), 3)
            for k, a in truth.items()
        ]
    case.exact, case.hindsight = case.error is not None, case.error
    case.verdict, case.equations = model.verdict_.level, model.equations()


def _compare(case: Case, paths: list[list[Law]], truth: Law) -> None:
    """Errors of the chosen law of the first setting that has one, and of the best."""
    case.error = _error(paths[0][0], truth)
    case.exact = case.error is not None
    errors = [e for laws in paths for law in laws if (e := _error(law, truth)) is not None]
    case.hindsight = min(errors, default=None)
    case.equations = [f"{f}_t: {a:.4g} {term}" for (f, term), a in paths[0][0].items()][:12]


def truth_of(law: dict[str, str]) -> Law:
    """Coefficients of a law by field and term."""
    found: Law = {}
    for name, text in law.items():
        names = set(re.findall(r"[a-z]\w*", text)) | {"i"}
        expression = sympy.expand(parse_expression(text, sorted(names)))
        for term in sympy.Add.make_args(expression):
            coefficient, rest = term.as_coeff_Mul()
            found[name, rest] = float(coefficient)
    return found


def _error(found: Law, truth: Law) -> float | None:
    """Largest relative error; `None` if the terms differ."""
    if {k for k, a in found.items() if a} != set(truth):
        return None
    return max(abs(found[k] / a - 1) for k, a in truth.items())


def _without_gaps(u: Field, t: Field) -> Field:
    """Missing values interpolated in time."""
    flat = u.reshape(len(u), -1).copy()
    for column in flat.T:
        known = np.isfinite(column)
        column[~known] = np.interp(t[~known], t[known], column[known])
    return flat.reshape(u.shape)
