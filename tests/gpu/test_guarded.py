"""No launch that is prepared reads or writes beyond the memory that it is given."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from gpu.interpreter_runs import run

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return run("guarded")


@pytest.mark.parametrize(
    "case",
    ["one launch", "one launch, several warps", "two launches", "two launches, even", "a lane",
     "pieces", "pieces of pieces", "pieces, central", "teams", "tiles", "panels",
     "reduction", "reduction, eight warps", "reduction, central"],
)  # fmt: skip
def test_answers_and_guards(found: dict[str, Any], case: str) -> None:
    """What is read beyond is a number that no answer survives."""
    assert found[case]["touched"] == 0
    assert found[case]["error"] < 1e-11


def test_every_case_is_looked_at(found: dict[str, Any]) -> None:
    assert len(found) == 14
