"""All GPU kernels, executed without a GPU."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from solver.gpu.interpreter_runs import agrees, run
from solver.internals import OK, SINGULAR

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)


@pytest.fixture(scope="module")
def interpreted() -> dict[str, Any]:
    return run()


@pytest.mark.parametrize("scheme", ["smnn", "central"])
@pytest.mark.parametrize("case", range(25))
def test_kernels_agree_with_other_backends(
    interpreted: dict[str, Any], scheme: str, case: int
) -> None:
    agrees(interpreted["cases"][f"{scheme} {case}"])


@pytest.mark.parametrize(
    "case",
    ["smnn, 27 unknowns", "smnn, 32 unknowns", "smnn, 64 unknowns",
     "central, 27 unknowns", "central, 33 unknowns"],
)  # fmt: skip
def test_kernels_of_large_blocks_agree_with_other_backends(
    interpreted: dict[str, Any], case: str
) -> None:
    agrees(interpreted["cases"][case])


@pytest.mark.parametrize("way", ["whole", "pieces", "warps", "teams", "tiles"])
def test_failed_samples_are_named_and_disturb_no_other(
    interpreted: dict[str, Any], way: str
) -> None:
    status, lost = interpreted["failures"][way]
    assert status == [0, 1, 2, 3]
    assert lost == [False, True, True, True]


@pytest.mark.parametrize("way", ["whole", "pieces", "warps", "teams", "tiles"])
def test_rows_of_very_different_size(interpreted: dict[str, Any], way: str) -> None:
    """Reflections that do not put the largest row first lose a digit or two more here."""
    assert interpreted["uneven"][way] < 5e-12


def test_every_case_is_looked_at(interpreted: dict[str, Any]) -> None:
    assert len(interpreted["shapes"]) == 25


def test_blocks_of_more_than_32_columns(interpreted: dict[str, Any]) -> None:
    """Among the cases with a warp per sequence, whose lanes then have several columns each."""
    widest = max(
        (V * (R + 1) for *_, V, R, _, _, pieces, _ in interpreted["shapes"] if not pieces),
        default=0,
    )
    assert 3 * widest + 1 > 32  # times at hand, and the right-hand side, for `central`


def test_a_check_looks_again_where_pivots_cannot_decide(interpreted: dict[str, Any]) -> None:
    at_first, closer = interpreted["long"]
    assert at_first == [OK, OK]
    assert closer == [SINGULAR, SINGULAR]


def test_a_single_time_takes_no_detour(interpreted: dict[str, Any]) -> None:
    """Rotating by the rows of an end that has none costs eight roundings; four are promised."""
    assert interpreted["short"] < 4


def test_gradients_without_memory_of_their_own(interpreted: dict[str, Any]) -> None:
    assert interpreted["odd gradients"] == [0, 0, 0]


def test_gradients_that_are_wanted_alone(interpreted: dict[str, Any]) -> None:
    assert max(interpreted["some gradients"]) == 0
