"""Thousands of small random problems for the GPU kernels, without a GPU.

Triton's interpreter takes about 20 microseconds per vector operation, whatever its length. So the
shapes are small, and a program has more lanes than the 32 of a warp on a device. Where a warp (or
more) works on one sequence, each sample is a program of its own, so there are only a few.

Compiled kernels run on an emulated device, with some problems of each kind.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from solver.internals import TRITON
from solver.trust.properties import PROPERTIES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not TRITON, reason="Triton is not installed"),
]
ROOT = Path(__file__).resolve().parents[3]
IN_PIECES = (
    "exact_least_squares", "direction_of_time", "weight_zero_is_absent", "many_right_hand_sides",
    "gradients", "condition_is_estimated", "float32",
)  # fmt: skip
BY_TEAMS = ("exact_least_squares", "direction_of_time", "gradients", "weight_zero_is_absent")
SMALL = ["--small", "--samples"]
RUNS: dict[str, tuple[int, list[str], list[str], set[str]]] = {
    "whole": (2048, list(PROPERTIES), [*SMALL, "104", "--lanes", "128"], {"lane", "twin"}),
    "in pieces": (
        800, list(IN_PIECES), [*SMALL, "128", "--lanes", "512", "--cut"], {"lane, pieces"}
    ),
    "a warp for each": (
        12, list(BY_TEAMS), [*SMALL, "3", "--warps", "--seed", "1"],
        {"team of 32", "twin, team of 32"},
    ),
    "a team for each": (24, list(BY_TEAMS), [*SMALL, "6", "--teams"], {"team of 8"}),
    "tiles": (1, ["gradients"], ["--large", "25", "--samples", "1", "--seed", "38"], {"large"}),
    "compiled, whole": (
        256, list(BY_TEAMS), [*SMALL, "32", "--emulated", "--whole"], {"lane", "twin"}
    ),
    "compiled, in pieces": (
        64, list(BY_TEAMS), [*SMALL, "16", "--emulated", "--cut"], {"lane, pieces"}
    ),
    "compiled, reduced": (
        12, list(BY_TEAMS), [*SMALL, "3", "--emulated", "--reduced"], {"reduced"}
    ),
}  # fmt: skip
"""Minimum number of problems, properties, options, expected kernels."""


@pytest.mark.parametrize("name", RUNS)
def test_random_problems(name: str, tmp_path: Path) -> None:
    fewest, properties, options, ways = RUNS[name]
    out = tmp_path / "found.json"
    script = ROOT / "tools" / "long_run.py"
    command = [sys.executable, "-W", "ignore", str(script), "--backends", "gpu"]
    command += ["--problems", str(fewest), "--properties", ",".join(properties), *options]
    how = "emulated" if "--emulated" in options else "interpreted"
    environment = {**os.environ, "TRITON_INTERPRET": str(int(how == "interpreted"))}
    run = subprocess.run(
        [*command, "--out", str(out)], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:] + run.stdout
    record = json.loads(out.read_text())
    found, seen = record["backends"]["gpu"], record["seen"]
    assert found["problems"] >= fewest
    assert found["failures"] == []
    assert set(found["ways"]) == {f"{way}, {how}" for way in ways}
    assert sum(found["ways"].values()) == found["problems"]
    assert set(found["properties"]) == set(properties)
    if record["shapes"] > 4:
        assert seen["scheme"] == ["central", "smnn"]
        assert {"zeros", "tensor"} <= set(seen["weights"])
        assert "" in seen["constant"]
        assert any("c" in x for x in seen["constant"])
        assert len(seen["T"]) > 3


def test_extremes() -> None:
    """The fastest ones; a device runs all of them."""
    chosen = [
        f"tests/solver/trust/test_extremes.py::test_against_120_digits[{name}-gpu]"
        for name in (
            "steps from 1e-6 to 1e3, oscillator, R = 2, smnn",
            "no equation at a third of the times",
            "no equation, observations alone",
        )
    ]
    command = [sys.executable, "-W", "ignore", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    run = subprocess.run(
        [*command, *chosen], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout[-3000:]
    assert "3 passed" in run.stdout
    assert "skipped" not in run.stdout
