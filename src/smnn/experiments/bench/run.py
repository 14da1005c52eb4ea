"""A short benchmark of the solver on this machine, against SciPy and torchdiffeq.

All solvers get the same problems, which have closed forms. The peers run at the loosest tolerance
that makes them as accurate as smnn. Results are checked before they are timed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from smnn._util.machine import describe_machine, package_versions
from smnn._util.optional import MissingPackageError
from smnn.experiments.bench.cases import Case, make_data
from smnn.experiments.bench.solvers import (
    Candidate,
    check,
    compare,
    scipy_candidate,
    smnn_candidate,
    time_all,
    torchdiffeq_candidate,
)
from smnn.experiments.experiment import Tick, no_progress
from smnn.experiments.timing import threads
from smnn.report.tables import Cell, Row, Table, best_of

CASES = (
    Case("one long sequence", 1, 1000, backends=("auto", "torch")),
    Case("some sequences", 64, 200, backends=("auto", "torch")),
    Case("many short ones", 512, 50, backends=("auto", "torch")),
)


@dataclass(frozen=True)
class Config:
    """Settings of the benchmark."""

    repeats: int = 10
    """Timed rounds."""
    budget: float = 1.0
    """Seconds for each solver and case; slow solvers get fewer rounds."""
    threads: int = 1
    """Threads of every solver."""
    cases: tuple[Case, ...] = CASES


@dataclass(frozen=True)
class Bench:
    """Results of the benchmark."""

    config: Config
    cases: list[dict[str, Any]]
    machine: dict[str, Any]
    skipped: dict[str, str] = field(default_factory=dict)
    """Solvers that are not installed, and how to install them."""

    @property
    def wrong(self) -> list[str]:
        """Backends of this package that differ from the reference."""
        return [
            f"{r['solver']} at B={c['B']} T={c['T']}"
            for c in self.cases
            for r in c["results"]
            if r["agrees"] is False
        ]

    def record(self) -> dict[str, Any]:
        """JSON-serializable record."""
        settings = {k: v for k, v in asdict(self.config).items() if k != "cases"}
        return {
            "benchmark": "bench", "settings": settings, "cases": self.cases,
            "skipped": self.skipped, "machine": self.machine,
        }  # fmt: skip


def run(config: Config, tick: Tick = no_progress) -> Bench:
    """Run the benchmark; `tick` is called `ticks(config)` times."""
    skipped: dict[str, str] = {}
    with threads(config.threads):
        machine = describe_machine()
        machine["versions"] |= package_versions(("torchdiffeq",))
        cases = [_case(case, config, skipped, tick) for case in config.cases]
    return Bench(config, cases, machine, skipped)


def ticks(config: Config) -> int:
    """Number of progress reports: after preparing and after timing each case."""
    return 2 * len(config.cases)


def _case(case: Case, config: Config, skipped: dict[str, str], tick: Tick) -> dict[str, Any]:
    data = make_data(case)
    ours = [smnn_candidate(data, backend) for backend in case.backends]
    checks = {ours[0].name: check(case, data, ours[0])}
    y = ours[0].forward(False)
    for other in ours[1:]:
        checks[other.name] = compare(other.forward(False), y, ours[0].name)
    target = ours[0].error
    peers: list[Candidate] = []
    for name, build in (
        ("scipy", lambda: scipy_candidate(case, data, "RK45", target)),
        ("scipy", lambda: scipy_candidate(case, data, "LSODA", target)),
        ("torchdiffeq", lambda: torchdiffeq_candidate(case, data, target)),
    ):
        try:
            peers.append(build())
        except MissingPackageError as error:
            skipped[name] = str(error)
    tick(case.group)
    candidates = [*ours, *peers]
    results = []
    for candidate, times in zip(candidates, time_all(candidates, config.repeats, config.budget)):
        checked = checks.get(candidate.name, {"against": None, "difference": None, "agrees": None})
        results.append(
            {"solver": candidate.name, "note": candidate.note, "relative_mse": candidate.error,
             **checked, **times}
        )  # fmt: skip
    tick(case.group)
    return {"case": case.group, "B": case.B, "T": case.T, "V": case.V, "R": case.R,
            "results": results}  # fmt: skip


def table(bench: Bench) -> Table:
    """Times and errors."""
    cpu = bench.config.threads
    view = Table(
        "Time of one solve, median, in ms",
        ["solve", "+ gradients", "rel. MSE"],
        f"{cpu} thread{'s' * (cpu != 1)}. The peers run at the loosest tolerance that makes them "
        "as accurate as smnn. SciPy has no gradients.",
    )
    for case in bench.cases:
        fastest = best_of([r["forward_ms"] for r in case["results"]])
        quickest = best_of([r["both_ms"] for r in case["results"]])
        group = f"{case['B']} x {case['T']:,}"
        for r in case["results"]:
            both = r["both_ms"]
            cells = [
                Cell(f"{r['forward_ms']:.3g}", r["forward_ms"] == fastest),
                Cell("–" if both is None else f"{both:.3g}", both is not None and both == quickest),
                Cell(f"{r['relative_mse']:.1e}"),
            ]
            note = f" ({r['note']})" if r["note"] else ""
            view.rows.append(Row(group, r["solver"] + note, cells, quiet=r["agrees"] is False))
    return view
