"""Run `interpreted.py`, and judge what it found."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("interpreted.py")


def run(*parts: str) -> dict[str, Any]:
    """In a process of its own: Triton is told once whether to interpret."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(SCRIPT), *parts],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def agrees(result: dict[str, Any]) -> None:
    """Values, adjoint solution, gradients and verdict of a case are those of other backends."""
    assert not any(result["status"])
    assert result["y"] < 1e-12
    assert result["adjoint"] < 1e-12
    assert result["gradients"] < 1e-11
    assert result["rcond"] < 1e-12
    assert result["weakest"]
