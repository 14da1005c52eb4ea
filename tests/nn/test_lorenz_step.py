"""The benchmark of the paper's Lorenz step: the right model, checked before it is timed."""

import argparse
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import smnn
from helpers import relative

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def bench() -> Iterator[ModuleType]:
    """The scripts import each other by name, from their own folder."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield importlib.import_module("bench_lorenz_step")
    sys.path.remove(str(ROOT / "benchmarks"))


@pytest.fixture(scope="module")
def model(bench: ModuleType) -> ModuleType:
    return importlib.import_module("_lorenz_model")


def arguments(bench: ModuleType, out: Path, *more: str) -> argparse.Namespace:
    small = ["--sizes", "4x8,3x5", "--hidden", "16", "--repeats", "3", "--device", "cpu"]
    return bench.parse(["--out", str(out), *small, *more])


def test_parameters_are_those_of_the_paper(model: ModuleType) -> None:
    paper = model.LorenzModel(50, smnn.nn.MechanisticLayer())
    assert sum(p.numel() for p in paper.parameters()) == 2_504_948


def test_trajectory_obeys_the_lorenz_equations(model: ModuleType) -> None:
    x = model.trajectory(200)
    xi = torch.zeros(10, 3, dtype=torch.float64)
    for name, column, value in [
        ("x", 0, -10), ("y", 0, 10), ("x", 1, 28), ("y", 1, -1), ("xz", 1, -1), ("xy", 2, 1),
        ("z", 2, -8 / 3),
    ]:  # fmt: skip
        xi[model.MONOMIALS.index(name), column] = value
    slope = (x[2:] - x[:-2]) / (2 * model.STEP)
    assert relative(slope, (model.basis(x) @ xi)[1:-1]) < 0.01


def test_model_integrates_its_right_hand_side(model: ModuleType) -> None:
    """With states that are the window itself, the solution is the integral of the equations."""
    torch.manual_seed(0)
    net = model.LorenzModel(8, smnn.nn.MechanisticLayer(), hidden=16).double()
    window = model.windows(4, 8)
    solution, states, xi = net(window)
    d = model.basis(states) @ xi
    c = torch.tensor([0.0, 1.0, 0.0]).double().expand(4, 3, 8, 1, 1, 3)
    s = torch.full((4, 3, 7), model.STEP, dtype=torch.float64)
    for v in range(3):
        y = smnn.solve(c[:, v], d[..., v, None], states[:, :1, v, None, None], s[:, v])
        assert relative(solution[..., v], y[..., 0, 0]) < 1e-12
    expected = (solution - window).square().mean() + (states - window).square().mean()
    assert net.loss(window).item() == pytest.approx(expected.item())


def test_solvers_are_compared_and_timed(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    whole = bench.write_json

    def write(path: Path, record: dict[str, Any]) -> Path:
        written.append(len(record["cases"]))
        return whole(path, record)

    monkeypatch.setattr(bench, "write_json", write)
    solvers = "mnn-exact,smnn,mnn-dense,mnn-sparse,published"
    bench.run(arguments(bench, tmp_path / "step.json", "--solvers", solvers))
    assert written == list(range(1, 11))  # after every case
    cases = json.loads((tmp_path / "step.json").read_text())["cases"]
    assert cases[0]["solver"] == "smnn"
    for case in cases:
        if case["solver"] == "published":
            assert case["status"] == "absent"
            assert "--published" in case["reason"]
            continue
        assert case["status"] == "measured", case
        assert case["agrees"]
        assert case["gradient_apart"] < (1e-6 if case["solver"] == "smnn" else 0.05)
        assert case["ms"] > 0
        assert case["ms_in_a_row"] > 0
        assert case["loss_at_the_end"] < case["loss"]


def test_a_wrong_solver_is_seen(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = smnn.nn.MechanisticLayer()

    def make(name: str, *_: Any) -> Any:
        return layer if name == "smnn" else lambda ode: 1.5 * layer(ode)

    monkeypatch.setattr(bench, "make", make)
    result = bench.run(arguments(bench, tmp_path / "s.json", "--solvers", "smnn,published"))
    assert [case["agrees"] for case in result["cases"]] == [True, True, False, False]
