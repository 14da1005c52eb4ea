"""Choice of GPU kernels by size, and `tools/long_run.py`."""

import json
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from solver.internals import REDUCED, GpuBackend, gpu

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))

import long_run  # noqa: E402


@pytest.mark.parametrize(
    ("B", "T", "n", "reduced"),
    [
        (1, 1000, 3, False),  # pieces of lanes
        (1, 299, 10, False),
        (1, 300, 10, True),
        (49, 800, 10, False),
        (49, 900, 10, True),
        (481, 10_000, 10, False),
        (1, 299, 13, False),
        (1, 300, 13, True),
        (49, 900, 13, False),
        (48, 300, 24, True),
        (49, 300, 24, False),
        (1, 100, 24, False),
        (1, 50, 96, True),
        (1000, 2, 256, False),
        (1000, 2, 257, True),
    ],
)
def test_reduction_is_chosen_for_few_long_sequences(B: int, T: int, n: int, reduced: bool) -> None:
    for reach in (1, 2):
        assert (GpuBackend().pieces(B, T, n, reach) == REDUCED) == reduced


@pytest.mark.parametrize(
    ("B", "n", "reach", "pieces"),
    [
        (1, 6, 1, 256), (1, 7, 1, REDUCED), (49, 12, 1, REDUCED), (1000, 12, 1, 0),
        (1, 3, 2, 256), (1, 4, 2, REDUCED), (49, 6, 2, REDUCED), (9000, 7, 2, 1),
    ],
)  # fmt: skip
def test_pieces_are_chosen_only_for_kernels_that_compile_quickly(
    B: int, n: int, reach: int, pieces: int
) -> None:
    """Kernels for 9 unknowns take a minute to compile."""
    assert GpuBackend().pieces(B, 10_000, n, reach) == pieces


def test_reduction_is_not_chosen_without_enough_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_memory", lambda: 2**30)
    assert GpuBackend().pieces(1, 1000, 24, 1) == REDUCED
    assert GpuBackend().pieces(1, 10_000, 24, 1) == 0
    assert GpuBackend().pieces(1, 10_000, 300, 1) == REDUCED  # there is no other way


def test_long_run_of_large_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "found.json"
    options = ["--backends", "reference,cpu", "--large", "25-64", "--samples", "4"]
    options += ["--problems", "60", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["long_run.py", *options])
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)  # those of other tests
    assert long_run.main() == 0
    found = json.loads(out.read_text())
    assert found["seen"]["n"][0] >= 25
    assert len(found["seen"]["n"]) > 5
    for x in found["backends"].values():
        assert x["problems"] >= 60
        assert x["well_posed"] > 30
        assert x["ways"] == {}
    assert Counter(found["commands"]) == {
        "python tools/long_run.py --backends reference,cpu --large 25-64 --samples 4 "
        "--problems 60": 1
    }
