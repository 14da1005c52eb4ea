"""The benchmark of the original MNN checks what it times, and says what it cannot do."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def bench() -> Any:
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module("bench_mnn")
    sys.path.remove(str(BENCHMARKS))


@pytest.mark.filterwarnings("ignore:mnn_sparse")
def test_one_case(bench: Any) -> None:
    record = bench.run_case(bench.Case("length", 2, 300), budget=0.0)
    dense, exact, sparse = record["results"]
    assert (dense["solver"], exact["solver"]) == ("dense", "exact")
    assert set(exact["difference"]) >= {"y", "eps", "gradient by c", "gradient by s"}
    assert max(exact["difference"].values()) < 1e-9
    assert exact["relative_mse"] == pytest.approx(dense["relative_mse"], rel=1e-6)
    assert exact["both_ms"] > 0
    assert sparse["converged"] == "0 of 2"
    assert bench.disagreements({"cases": [record]}) == []
    exact["difference"]["gradient by s"] = 1e-3
    assert bench.disagreements({"cases": [record]}) == ["exact at T=300: 1.0e-03"]


def test_what_dense_cannot_do(bench: Any) -> None:
    assert bench.too_large(bench.Case("length", 1, 1_000)) is None
    assert bench.too_large(bench.Case("length", 1, 3_000)) == "would take too long"
    assert "GiB" in bench.too_large(bench.Case("length", 1, 100_000))
    assert max(case.T for case in bench.cases(quick=False)) == 100_000
