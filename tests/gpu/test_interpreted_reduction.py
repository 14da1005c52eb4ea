"""Odd-even reduction on a GPU: its plan, and its kernels executed without one."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch

from gpu.interpreter_runs import agrees, run
from helpers import random_problem
from smnn._backends._gpu_reduction import Reduction, _residual
from smnn._backends._gpu_reduction_plan import Shape, levels
from smnn._backends._gpu_triangle import form_for, turns
from smnn._problem import make_problem
from smnn._rows import normal_residual
from smnn._taylor import link_rows

interpreter = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)
CASES = ["smnn, 1 time", "smnn, 7 times", "smnn, 12 times", "smnn, 18 unknowns",
         "smnn, 33 unknowns", "central, 2 times", "central, 13 times",
         "central, 6 unknowns"]  # fmt: skip


@pytest.fixture(scope="module")
def interpreted() -> dict[str, Any]:
    return run("reduced")


@interpreter
@pytest.mark.parametrize("case", CASES)
def test_kernels_agree_with_other_backends(interpreted: dict[str, Any], case: str) -> None:
    agrees(interpreted["cases"][case])


@interpreter
@pytest.mark.parametrize("case", ["smnn, 18 unknowns", "central, 6 unknowns"])
def test_products_of_matrices(interpreted: dict[str, Any], case: str) -> None:
    agrees(interpreted["products"][case])


@interpreter
def test_failed_samples_are_named_and_disturb_no_other(interpreted: dict[str, Any]) -> None:
    assert interpreted["failures"]["reduced"] == [[0, 1, 2, 3], [False, True, True, True]]


@interpreter
def test_rows_of_very_different_size(interpreted: dict[str, Any]) -> None:
    """Reflections of rows that are not sorted fail."""
    assert interpreted["uneven"]["reduced"] < 1e-10


@pytest.mark.parametrize("scheme", ["smnn", "central"])
@pytest.mark.parametrize(("T", "T_init"), [(1, 1), (6, 1), (7, 3), (7, 0)])
def test_residual_of_the_rows(
    scheme: str, T: int, T_init: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the blocks is that of the problem, at any `y`; also if it is computed in parts."""
    monkeypatch.setattr("smnn._backends._gpu_reduction.AT_ONCE", 4)
    case = random_problem(0, T=T, V=2, Q=3, R=2, T_init=T_init, batch=(3,), limit=None)
    problem, _ = make_problem(*case.args, scheme=scheme)
    reduction = Reduction(link_rows)
    y = torch.randn(problem.y_shape, dtype=torch.float64)
    _, N, M = reduction._shape(problem)
    blocks = torch.zeros(3, N * M, dtype=torch.float64)
    blocks[:, : y[0].numel()] = y.flatten(1)
    found = _residual(*reduction._chain(problem), blocks.view(3, N, M))
    found = found.flatten(1)[:, : y[0].numel()].view_as(y)
    torch.testing.assert_close(found, normal_residual(problem, y), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("N", [1, 2, 3, 4, 7, 8, 12, 37, 1000])
def test_every_block_is_eliminated_once(N: int) -> None:
    found = levels(Shape(3, N, 5), 5, 2)
    gone = [level.step * (2 * i + 1) - 1 for level in found for i in range(level.blocks)]
    assert sorted(gone) == list(range(N))
    assert [level.left for level in found] == [N >> i for i in range(N.bit_length())]


def test_rows_do_not_grow() -> None:
    """Of a link there are at most two rows for each of its unknowns, at any level."""
    for level in levels(Shape(1, 4095, 24), 24, 8):
        assert max(level.slots, level.apart) <= 48
        assert level.columns in (24, 72)
    assert levels(Shape(1, 4095, 24), 24, 8)[0].columns == 24


@pytest.mark.parametrize("count", [5, 100, 160, 161, 416, 700, 2304, 9000])
@pytest.mark.parametrize("alone", [False, True])
def test_every_column_meets_every_reflection_before_it_once(count: int, alone: bool) -> None:
    width, columns = count // 2 + 3, count // 2 + 1
    size = form_for(count).columns
    met: list[set[int]] = [set() for _ in range(-(-width // size))]
    made: set[int] = set()
    block = 64
    for turn in turns(count, width, columns, alone=alone):
        assert turn.form.group * turn.form.groups >= count - turn.base
        assert set(range(turn.low, turn.high)) <= made
        for chunk in range(turn.chunk, turn.chunk + turn.chunks):
            new = set(range(turn.low, turn.high))
            assert not new & met[chunk]
            met[chunk] |= new
        if turn.stop > turn.high:
            start = turn.high // block * block if alone else 0
            assert met[turn.chunk] == set(range(start, turn.high))
            made |= set(range(turn.high, turn.stop))
    assert made == set(range(columns))
    if not alone:
        behind = -(-columns // size)
        assert all(x == made for x in met[behind:])
