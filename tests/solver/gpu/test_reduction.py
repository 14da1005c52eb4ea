"""Odd-even reduction: its plan, and all of it but the kernels, for which others stand in."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers import random_problem
from smnn._solver.gpu.reduction.level import LANES, Form
from smnn._solver.gpu.reduction.level import form_for as form_at_once
from smnn._solver.gpu.reduction.levels import Shape, Sizes, levels
from smnn._solver.gpu.reduction.programs import solve_program
from smnn._solver.gpu.reduction.triangle import form_for, turns
from solver.gpu import reduction_stand_ins
from solver.internals import INPUTS, Problem, Solved, backend_named, make_problem, reduction

NO_STRIDES = (1, *((0,) * len(axes) for _, axes in INPUTS))


@pytest.fixture(autouse=True)
def _stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    for function in reduction_stand_ins.ALL:
        monkeypatch.setattr(reduction, function.__name__, function)
    monkeypatch.setattr(Sizes, "at_once", False)


def solve(problem: Problem) -> Solved:
    given: Any = {"problem": problem}
    return reduction.solve(problem, given, None)


def relative(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max() / b.abs().max())


@pytest.mark.parametrize("scheme", ["smnn", "central"])
@pytest.mark.parametrize("T", [1, 2, 3, 5, 6, 12, 28, 100])
@pytest.mark.parametrize("T_init", [0, 1, 2])
def test_answers_are_those_of_another_backend(scheme: str, T: int, T_init: int) -> None:
    """Lengths that leave a block over at the first level, at later ones, or at none."""
    case = random_problem(T, T=T, V=2, Q=8, R=2, T_init=min(T, T_init), batch=(3,), limit=None)
    problem, _ = make_problem(*case.args, scheme=scheme)
    judge = backend_named("cpu")
    found, expected = solve(problem), judge.plan(problem, 1).solve()
    assert not found.diagnostics.status.any()
    assert relative(found.y, expected.y) < 1e-10
    g = torch.randn_like(found.y)
    x, z = (
        reduction.adjoint(problem, found.factor, g),
        judge.plan(problem, 1).adjoint(expected.factor, g),
    )
    assert relative(x, z) < 1e-9
    assert found.y.is_contiguous()  # as torch.compile takes it to be
    assert x.is_contiguous()


@pytest.mark.parametrize("scheme", ["smnn", "central"])
def test_no_equations(scheme: str) -> None:
    """A state that is given, carried on by the smoothness of its course alone."""
    case = random_problem(0, T=7, V=2, Q=0, R=1, T_init=1, R_init=1, batch=(3,))
    problem, _ = make_problem(*case.args, scheme=scheme)
    found = solve(problem)
    assert not found.diagnostics.status.any()
    assert relative(found.y, backend_named("cpu").plan(problem, 1).solve().y) < 1e-10


def small_steps() -> Problem:
    """`y''' + y'' + y' = 0` with initial values, in steps of 0.001."""
    f64 = torch.float64
    c = torch.tensor([0.0, 1.0, 1.0, 1.0, 0.0], dtype=f64).expand(1, 5000, 1, 1, 5)
    u = torch.tensor([0.4, -0.3, 0.7], dtype=f64).view(1, 1, 1, 3)
    s = torch.full((1, 4999), 0.001, dtype=f64)
    return make_problem(c, torch.zeros(1, 5000, 1, dtype=f64), u, s)[0]


def lost(problem: Problem) -> float:
    """Error of the solution, relative to rotations one time after the other."""
    found = solve(problem).y
    return relative(found[..., 0], backend_named("cpu").plan(problem, 1).solve().y[..., 0])


def test_many_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What reduction loses there, one refinement wins back."""
    assert lost(small_steps()) < 1e-11
    nothing = lambda problem, y: torch.zeros_like(y)  # noqa: E731
    monkeypatch.setattr(reduction_stand_ins.refine_program, "residual", nothing)
    assert lost(small_steps()) > 1e-10


@pytest.mark.parametrize("N", [1, 2, 3, 4, 7, 8, 12, 37, 1000])
def test_every_block_is_eliminated_once(N: int) -> None:
    found = levels(Shape(3, N, 5, 5 * N), 5, 2)
    gone = [level.step * (2 * i + 1) - 1 for level in found for i in range(level.blocks)]
    assert sorted(gone) == list(range(N))
    assert [level.left for level in found] == [N >> i for i in range(N.bit_length())]


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize("reach", [1, 2])
@pytest.mark.parametrize(
    ("V", "m", "Q", "T_init"), [(1, 3, 1, 1), (1, 1, 0, 2), (2, 2, 5, 2), (1, 8, 0, 0)]
)
@pytest.mark.parametrize("T", [*range(1, 30), 63, 64, 65, 100, 127, 200, 257, 1000])
def test_what_a_level_reads_is_still_there(
    T: int, V: int, m: int, Q: int, T_init: int, reach: int
) -> None:
    """Scratch is used again as soon as it may be: who wrote each of its words last."""
    sizes = Sizes(2, T, Q, V, m, T_init, min(m, 2), reach)
    program, scratch = solve_program(sizes, NO_STRIDES)
    writer = np.full(scratch, -1)  # 0: rows of links, 1: rows of blocks, 2..: levels
    B, N, M, _ = sizes.shape
    line, done, behind = 2 * M + 2, 2, 0
    links, blocks = (N + 1) * B * sizes.slots * line, N * B * sizes.own * (M + 2)
    for launch in program.launches:
        x = dict(zip(launch.kernel.arguments, launch.template, strict=False))
        for i, _, offset in launch.slots:
            x[launch.kernel.arguments[i]] = offset

        def words(name: str, count: int, x: dict[str, int] = x) -> np.ndarray:
            found = writer[x[f"{name}_ptr"] :][:count]
            assert len(found) == count
            return found

        if launch.kernel.name == "link_rows":
            words("link", links)[:] = 0
        elif launch.kernel.name == "block_rows":
            words("local", blocks)[:] = 1
        elif launch.kernel.name == "reduction_level":
            before = done - 1 if done > 2 else 0
            made = words("rest", launch.grid * (x["made_rows"] + x["kept_rows"]) * line)
            for _ in range(2):  # before and after: it writes beside what it reads
                assert (words("link", x["links"] * x["link_sk"]) == before).all()
                assert (words("outer", x["B"] * x["outer_rows"] * line) == behind).all()
                made[:] = done
            behind = behind if x["outer_rows"] else before
            done += 1
        elif launch.kernel.name == "reduction_residual":
            assert (words("link", links) == 0).all()
            assert (words("local", blocks) == 1).all()
    assert done == 2 + len(sizes.levels)


def test_memory_of_a_long_sequence() -> None:
    """Rows of links and what the first level leaves of them, and little else."""
    sizes = Sizes(1, 10_000, 3, 3, 3, 1, 2, 1)
    _, scratch = solve_program(sizes, NO_STRIDES)
    links, first = 9 * 20, 12 * 20 / 2
    assert scratch < 1.01 * 10_000 * (links + first + 3 * 11 + 9)


def test_rows_do_not_grow() -> None:
    """Of a link there are at most two rows for each of its unknowns, at any level."""
    for level in levels(Shape(1, 4095, 24, 4095 * 24), 24, 8):
        assert max(level.slots, level.apart) <= 48
        assert level.columns in (24, 72)
    assert levels(Shape(1, 4095, 24, 4095 * 24), 24, 8)[0].columns == 24


@pytest.mark.parametrize(
    ("M", "rows", "form"),
    [
        (3, 13, Form(3, 4, 2)),
        (9, 39, Form(9, 4, 5)),
        (24, 104, Form(24, 8, 7)),
        (24, 107, None),
        (32, 80, Form(32, 8, 5)),
        (42, 180, None),
    ],
)
def test_matrices_that_have_room_in_registers(M: int, rows: int, form: Form | None) -> None:
    assert form_at_once(M, rows) == form
    if form is not None:
        assert form.groups * form.rows >= rows
        assert form.chunks * LANES > 3 * M
        # Two numbers of a tile in each thread, of which 255 registers hold 127 at most.
        assert 2 * form.groups * form.chunks <= 44


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
