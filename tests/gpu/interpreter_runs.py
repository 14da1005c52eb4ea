"""Run scripts in Triton's interpreter, and judge what they found."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def output(script: str, *arguments: str) -> Any:
    """What a script beside this one prints, in a process that interprets: Triton is told once."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(Path(__file__).with_name(script)), *arguments],
        capture_output=True, text=True, check=False, env=os.environ | {"TRITON_INTERPRET": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def run(*parts: str) -> dict[str, Any]:
    """What `interpreted.py` finds: no races, and what is to be judged."""
    said = output("interpreted.py", *parts)
    # On a device, programs and warps come in another order.
    assert not said["races"], "\n".join(f"{x} ({n})" for x, n in said["races"].items())
    return said["found"]


def agrees(result: dict[str, Any]) -> None:
    """Values, adjoint solution, gradients and verdict of a case are those of other backends."""
    assert not any(result["status"])
    assert result["y"] < 1e-12
    assert result["adjoint"] < 1e-12
    assert result["gradients"] < 1e-11
    assert result["rcond"] < 1e-12
    assert result["weakest"]
