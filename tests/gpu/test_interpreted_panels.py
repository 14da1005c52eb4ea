"""The GPU kernels of the largest blocks, executed without a GPU."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)
SCRIPT = Path(__file__).with_name("interpreted.py")


@pytest.fixture(scope="module")
def interpreted() -> dict[str, Any]:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", str(SCRIPT), "panels"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout)


@pytest.mark.parametrize("case", ["smnn, 34 unknowns", "smnn, 64 unknowns", "central, 33 unknowns"])
def test_kernels_agree_with_other_backends(interpreted: dict[str, Any], case: str) -> None:
    result = interpreted["cases"][case]
    assert not any(result["status"])
    assert result["y"] < 1e-12
    assert result["adjoint"] < 1e-12
    assert result["gradients"] < 1e-11
    assert result["rcond"] < 1e-12
    assert result["weakest"]


def test_failed_samples_are_named_and_disturb_no_other(interpreted: dict[str, Any]) -> None:
    assert interpreted["failures"]["panels"] == [[0, 1, 2, 3], [False, True, True, True]]


def test_rows_of_very_different_size(interpreted: dict[str, Any]) -> None:
    """Reflections that do not put the largest row first, and keep to that in all columns, fail."""
    assert interpreted["uneven"]["panels"] < 1e-10
