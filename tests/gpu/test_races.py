"""Orders that a device may choose are looked at in every kernel that is interpreted.

`interpreter_runs.run` finds no race in any of them; here, that it would.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from gpu.interpreter_runs import output

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)
EXPECTED: dict[str, list[str]] = {
    "other warps read": ["warps meet"],
    "other warps read behind a barrier": [],
    "other warps read behind a sum": [],
    "other lanes of a warp read": [],
    "other programs read": ["programs meet"],
    "a single program reads": [],
    "programs write the same": ["programs meet"],
    "all warps read, one writes": ["warps meet"],
    "all warps read, then one writes": [],
    "all warps read and add, then one writes": [],
    "all warps read and add along rows, one writes": ["warps meet"],
    "a warp reads and writes": [],
    "columns write, rows read": ["warps meet"],
    "rows write and read again": [],
}


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return output("known_races.py")


@pytest.mark.parametrize("kernel", EXPECTED)
def test_kernel(found: dict[str, Any], kernel: str) -> None:
    assert found[kernel] == EXPECTED[kernel]


def test_every_kernel_is_looked_at(found: dict[str, Any]) -> None:
    assert set(found) == set(EXPECTED)
