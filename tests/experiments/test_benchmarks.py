"""The benchmark scripts: checks, timing and memory."""

import argparse
import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import smnn
from smnn.experiments.bench.solvers import check

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def bench() -> Any:
    """The scripts import each other by name, from their own folder."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield importlib.import_module
    sys.path.remove(str(ROOT / "benchmarks"))


@pytest.fixture(scope="module")
def cases(bench: Any) -> ModuleType:
    return bench("_cases")


@pytest.fixture(scope="module")
def record(bench: Any, cases: ModuleType) -> dict[str, Any]:
    """A benchmark of four small cases, one of each group."""
    solver = bench("bench_solver")
    small = [
        cases.Case("headline", 2, 60, peers=True, backends=("auto", "torch")),
        cases.Case("length", 1, 200),
        cases.Case("batch", 3, 40, backends=("auto", "torch")),
        cases.Case("block", 2, 40, V=2, R=3, backends=("auto", "torch")),
    ]
    options = argparse.Namespace(repeats=1, budget=0.0, threads=1, published=None)
    pytest.importorskip("torchdiffeq")
    return {
        "command": "python benchmarks/bench_solver.py --out /somewhere/else/bench.json",
        "machine": {
            "processor": "P", "cores": 2, "threads": 1, "python": "3.11", "utc": "2026-01-02T03",
            "versions": {"torch": "2", "smnn": "0", "absent": None},
        },
        "cases": [solver.run_case(case, options, None) for case in small],
    }  # fmt: skip


@pytest.mark.parametrize("V", [1, 3])
def test_problem_has_the_solution_it_claims(cases: ModuleType, V: int) -> None:
    data = cases.make_data(cases.Case("x", 2, 100, V=V, R=6))
    y = smnn.solve(data.c, data.d, data.u, data.s)
    assert cases.relative_mse(y[..., 0], data.exact) < 1e-20


def test_required_sizes_are_measured(cases: ModuleType) -> None:
    found = {(c.group, c.B, c.T, c.n) for c in cases.cases(quick=False)}
    assert {("headline", 1, 1000, 3), ("headline", 512, 50, 3)} <= found
    assert {("length", B, 10**k, 3) for B in (1, 16) for k in (3, 4, 5, 6)} <= found
    assert len({n for group, *_, n in found if group == "block"}) >= 5


def test_peers_are_at_least_as_exact(record: dict[str, Any]) -> None:
    results = {r["solver"]: r for r in record["cases"][0]["results"]}
    peers = ("scipy RK45", "scipy LSODA", "torchdiffeq dopri5")
    assert set(results) == {"smnn", "smnn, torch backend", *peers}
    assert all(results[p]["relative_mse"] <= results["smnn"]["relative_mse"] for p in peers)
    assert results["scipy RK45"]["backward_ms"] is None
    assert results["torchdiffeq dopri5"]["backward_ms"] > 0


def test_answers_are_checked(record: dict[str, Any]) -> None:
    for case in record["cases"]:
        ours = case["results"][0]
        assert ours["agrees"] is True
        assert ours["against"] in ("reference backend", "torch backend")
        assert set(ours["gradient_difference"]) == {"c", "d", "u", "s"}
        assert ours["both_ms"] > 0


def test_wrong_gradient_is_found(bench: Any, cases: ModuleType) -> None:
    solvers = bench("_solvers")
    case = cases.Case("x", 1, 30)
    data = cases.make_data(case)
    right = solvers.smnn_candidate(data, "auto")
    assert check(case, data, right)["agrees"]
    wrong = solvers.with_gradients("smnn", data, lambda x: smnn.solve(**{**x, "s": x["s"] * 1.001}))
    assert not check(case, data, wrong)["agrees"]
    halved = solvers.Candidate(
        "smnn", right.forward, lambda y: [g / 2 for g in right.backward(y)], right.error
    )
    assert not check(case, data, halved)["agrees"]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_weighed_exactly(bench: Any, cases: ModuleType) -> None:
    memory = bench("_memory")
    short, long = (
        memory.measure(cases.Case("x", 1, T), "smnn", True, 1, None) for T in (4000, 8000)
    )
    if short is None:
        pytest.skip("the C library does not report its heap")
    inputs = 8 * 4000 * (3 + 1 + 1) + 8
    assert short["extra"] > inputs
    assert long["extra"] / short["extra"] == pytest.approx(2, rel=0.1)
    assert long["peak"] > long["extra"]


def test_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--help"],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    assert "--published" in done.stdout
