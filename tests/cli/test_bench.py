"""`smnn bench`, and the code that it shares with the benchmarks folder."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from smnn.cli import app
from smnn.experiments.bench import run as bench
from smnn.experiments.bench.cases import Case, make_data, relative_mse
from smnn.experiments.bench.solvers import smnn_candidate

runner = CliRunner()
SMALL = (Case("small", 2, 30, backends=("auto", "torch")),)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = bench.Config
    monkeypatch.setattr(
        bench, "Config", lambda **options: plain(**options, cases=SMALL, budget=0.02)
    )


def invoke(*words: object) -> Any:
    return runner.invoke(app, ["bench", "--repeats", "1", *map(str, words)])


@pytest.mark.usefixtures("small")
def test_table_and_record(tmp_path: Path) -> None:
    pytest.importorskip("torchdiffeq")
    done = invoke("--out", tmp_path)
    assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / "bench.json").read_text())
    (case,) = record["cases"]
    names = [r["solver"] for r in case["results"]]
    assert names == ["smnn", "smnn, torch backend", "scipy RK45", "scipy LSODA",
                     "torchdiffeq dopri5"]  # fmt: skip
    ours = case["results"][0]
    assert ours["agrees"]
    assert ours["against"] == "reference backend"
    assert case["results"][1]["agrees"]
    for r in case["results"]:
        assert r["forward_ms"] > 0
        assert r["relative_mse"] <= ours["relative_mse"] * (1 + 1e-6)  # as exact, at least
        assert r["solver"] in done.stdout
    assert case["results"][2]["both_ms"] is None
    assert record["command"] == f"smnn bench --repeats=1 --threads=1 --out={tmp_path}"
    assert record["machine"]["threads"] == 1
    assert "2 x 30" in done.stdout
    assert "…" not in done.stdout


@pytest.mark.usefixtures("small")
def test_missing_peers_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchdiffeq", None)
    done = invoke("--out", tmp_path, "--json")
    assert done.exit_code == 0, done.output
    record = json.loads(done.stdout)
    assert "pip install torchdiffeq" in record["skipped"]["torchdiffeq"]
    assert "torchdiffeq was skipped" in done.stderr


@pytest.mark.usefixtures("small")
def test_wrong_results_are_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smnn.experiments.bench.solvers.AGREE", 0.0)
    done = invoke("--out", tmp_path)
    assert done.exit_code == 1
    assert "the result of smnn at B=2 T=30 differs from that of the reference" in done.stderr


def test_the_number_of_threads_is_restored(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    bench.run(bench.Config(repeats=1, budget=0.01, threads=1, cases=SMALL))
    assert torch.get_num_threads() == before


def test_the_closed_form_solves_the_problem() -> None:
    data = make_data(Case("", 3, 200, V=2, R=5))
    candidate = smnn_candidate(data, "auto")
    assert candidate.error < 1e-12
    assert relative_mse(data.exact, data.exact) == 0
