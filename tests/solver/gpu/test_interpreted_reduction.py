"""Kernels of odd-even reduction, executed without a GPU."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from solver.gpu.interpreter_runs import agrees, run

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)
CASES = ["smnn, 1 time", "smnn, 7 times", "smnn, 9 times", "smnn, 12 unknowns",
         "smnn, 18 unknowns", "smnn, 33 unknowns", "smnn, 70 unknowns", "central, 2 times",
         "central, 13 times", "central, 18 times", "central, 6 unknowns"]  # fmt: skip
BY_LAUNCHES = ["smnn, 9 times", "central, 18 times", "smnn, 33 unknowns"]


@pytest.fixture(scope="module")
def interpreted() -> dict[str, Any]:
    return run("reduced")


@pytest.mark.parametrize("case", CASES)
def test_kernels_agree_with_other_backends(interpreted: dict[str, Any], case: str) -> None:
    agrees(interpreted["cases"][case])


@pytest.mark.parametrize("case", ["smnn, 18 unknowns", "central, 6 unknowns"])
def test_products_of_matrices(interpreted: dict[str, Any], case: str) -> None:
    agrees(interpreted["products"][case])


@pytest.mark.parametrize("case", BY_LAUNCHES)
def test_levels_of_several_launches(interpreted: dict[str, Any], case: str) -> None:
    """As for matrices that registers have no room for."""
    agrees(interpreted["launches"][case])


@pytest.mark.parametrize("case", BY_LAUNCHES)
def test_residual_and_refinement(interpreted: dict[str, Any], case: str) -> None:
    """From any `y`, one correction by the residual of the rows leads to the solution."""
    residual, error, _ = interpreted["refined"][case]
    assert residual < 1e-14
    assert error < 1e-12


@pytest.mark.parametrize("case", BY_LAUNCHES)
def test_a_correction_that_overflows_spoils_nothing(interpreted: dict[str, Any], case: str) -> None:
    assert interpreted["refined"][case][2] < 1e-12


def test_failed_samples_are_named_and_disturb_no_other(interpreted: dict[str, Any]) -> None:
    assert interpreted["failures"]["reduced"] == [[0, 1, 2, 3], [False, True, True, True]]


def test_rows_of_very_different_size(interpreted: dict[str, Any]) -> None:
    """Reflections of rows that are not sorted fail."""
    assert interpreted["uneven"]["reduced"] < 5e-12
