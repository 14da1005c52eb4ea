"""All GPU kernels in Triton's interpreter, compared with other backends."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from solver.internals import OK, SINGULAR, TRITON

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not TRITON, reason="Triton is not installed")]
REDUCED = [
    "smnn, 1 time", "smnn, 7 times", "smnn, 9 times", "smnn, no equation", "smnn, 12 unknowns",
    "smnn, 18 unknowns", "smnn, 33 unknowns", "central, 2 times", "central, 13 times",
    "central, 18 times", "central, 6 unknowns",
]  # fmt: skip
CASES = {
    "others": [
        *(f"smnn {i}" for i in range(25)),
        *(f"central {i}" for i in (1, 2, 4, 6, 9, 11, 13, 17, 22, 24)),
        "smnn, 27 unknowns", "smnn, 32 unknowns", "central, 27 unknowns", "central, 33 unknowns",
    ],
    "panels": ["smnn, 34 unknowns", "central, 18 unknowns"],
    "reduced": REDUCED,
}  # fmt: skip
BY_LAUNCHES = ["smnn, 9 times", "central, 18 times", "smnn, 33 unknowns"]
WAYS = [("others", way) for way in ("whole", "pieces", "warps", "teams", "tiles")]
WAYS += [("panels", "panels"), ("reduced", "reduced")]


@functools.cache
def results(part: str) -> dict[str, Any]:
    """Output of `interpreted.py`. Triton reads once per process whether to interpret."""
    script = Path(__file__).with_name("interpreted.py")
    command = [sys.executable, "-W", "ignore", str(script), *([part] if part != "others" else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(json.loads(done.stdout))


def agrees(result: dict[str, Any]) -> None:
    """Solution, adjoint solution, gradients and diagnostics are those of another backend."""
    assert not any(result["status"])
    assert result["y"] < 1e-12
    assert result["adjoint"] < 1e-12
    assert result["gradients"] < 1e-11
    assert result["rcond"] < 1e-12
    assert result["weakest"]


@pytest.mark.parametrize(("part", "case"), [(part, x) for part in CASES for x in CASES[part]])
def test_kernels_agree_with_other_backends(part: str, case: str) -> None:
    agrees(results(part)["cases"][case])


@pytest.mark.parametrize(("part", "way"), WAYS)
def test_failed_samples_are_reported_and_do_not_affect_others(part: str, way: str) -> None:
    assert results(part)["failures"][way] == [[0, 1, 2, 3], [False, True, True, True]]


@pytest.mark.parametrize(("part", "way"), WAYS)
def test_rows_of_very_different_size(part: str, way: str) -> None:
    """Reflections that do not put the largest row first lose a digit or two, or fail."""
    assert results(part)["uneven"][way] < 5e-12


def test_condition_is_estimated_where_pivots_cannot_decide() -> None:
    at_first, closer = results("others")["long"]
    assert at_first == [OK, OK]
    assert closer == [SINGULAR, SINGULAR]


def test_single_time_is_solved_directly() -> None:
    """Rotations by the rows of an empty end would cost eight roundings; four are documented."""
    assert results("others")["short"] < 4


def test_gradients_without_memory_of_their_own() -> None:
    assert results("others")["odd gradients"] == [0, 0, 0]


def test_each_gradient_alone() -> None:
    assert max(results("others")["some gradients"]) == 0


def test_squares_of_weights_may_overflow() -> None:
    assert max(results("others")["large weights"]) < 1e-9


@pytest.mark.parametrize("case", ["smnn, 18 unknowns", "central, 6 unknowns"])
def test_reduction_by_matrix_products(case: str) -> None:
    agrees(results("reduced")["products"][case])


@pytest.mark.parametrize("case", BY_LAUNCHES)
def test_reduction_levels_of_several_launches(case: str) -> None:
    """As for matrices that do not fit into registers."""
    agrees(results("reduced")["launches"][case])


@pytest.mark.parametrize("case", BY_LAUNCHES)
def test_iterative_refinement(case: str) -> None:
    """One step from any `y` gives the solution; a correction that overflows is not applied."""
    residual, error, after_overflow = results("reduced")["refined"][case]
    assert residual < 1e-14
    assert error < 1e-12
    assert after_overflow < 1e-12
