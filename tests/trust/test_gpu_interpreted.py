"""Random problems for the GPU kernels without a GPU: few, because the interpreter is slow."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROPERTIES = ("exact_least_squares", "direction_of_time", "gradients", "weight_zero_is_absent")
FEWEST = 128


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_random_problems(tmp_path: Path) -> None:
    """Four shapes, 32 problems each; pieces of time are cut in `tests/gpu`."""
    out = tmp_path / "found.json"
    script = ROOT / "tools" / "long_run.py"
    command = [sys.executable, "-W", "ignore", str(script), "--small", "--backends", "gpu"]
    command += ["--problems", str(FEWEST), "--properties", ",".join(PROPERTIES), "--out", str(out)]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:] + run.stdout
    found = json.loads(out.read_text())["backends"]["gpu"]
    assert found["problems"] >= FEWEST
    assert found["failures"] == []
    assert set(found["properties"]) == set(PROPERTIES)
