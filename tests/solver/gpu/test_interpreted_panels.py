"""The GPU kernels of the largest blocks, executed without a GPU."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from solver.gpu.interpreter_runs import agrees, run

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)


@pytest.fixture(scope="module")
def interpreted() -> dict[str, Any]:
    return run("panels")


@pytest.mark.parametrize("case", ["smnn, 34 unknowns", "smnn, 64 unknowns", "central, 33 unknowns"])
def test_kernels_agree_with_other_backends(interpreted: dict[str, Any], case: str) -> None:
    agrees(interpreted["cases"][case])


def test_failed_samples_are_named_and_disturb_no_other(interpreted: dict[str, Any]) -> None:
    assert interpreted["failures"]["panels"] == [[0, 1, 2, 3], [False, True, True, True]]


def test_rows_of_very_different_size(interpreted: dict[str, Any]) -> None:
    """Reflections that do not put the largest row first, and keep to that in all columns, fail."""
    assert interpreted["uneven"]["panels"] < 5e-12
