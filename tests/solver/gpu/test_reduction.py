"""Odd-even reduction: levels, scratch memory, and the choice of registers and reflections."""

from __future__ import annotations

import numpy as np
import pytest

from solver.internals import TRITON, reduction_level, strategy

if not TRITON:
    pytest.skip("Triton is not installed", allow_module_level=True)

from solver.internals import reduction_levels, reduction_programs, reduction_triangle

Shape, Sizes, levels = reduction_levels.Shape, reduction_levels.Sizes, reduction_levels.levels
Form, LANES = reduction_level.Form, reduction_level.LANES
solve_program = reduction_programs.solve_program
NO_STRIDES = (1, *((0,) * len(axes) for _, axes in strategy.INPUTS))


@pytest.mark.parametrize("N", [1, 2, 3, 4, 7, 8, 12, 37, 1000])
def test_every_block_is_eliminated_once(N: int) -> None:
    found = levels(Shape(3, N, 5, 5 * N), 5, 2)
    gone = [level.step * (2 * i + 1) - 1 for level in found for i in range(level.blocks)]
    assert sorted(gone) == list(range(N))
    assert [level.left for level in found] == [N >> i for i in range(N.bit_length())]


@pytest.mark.parametrize("reach", [1, 2])
@pytest.mark.parametrize(
    ("V", "m", "Q", "T_init"), [(1, 3, 1, 1), (1, 1, 0, 2), (2, 2, 5, 2), (1, 8, 0, 0)]
)
@pytest.mark.parametrize("T", [*range(1, 30), 63, 64, 65, 100, 127, 200, 257, 1000])
def test_scratch_memory_is_not_overwritten_too_early(
    T: int, V: int, m: int, Q: int, T_init: int, reach: int
) -> None:
    """Scratch memory is reused: every level must find what was written for it."""
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


def test_scratch_memory_of_a_long_sequence() -> None:
    """Hardly more than the link rows and what the first level leaves of them."""
    sizes = Sizes(1, 10_000, 3, 3, 3, 1, 2, 1)
    _, scratch = solve_program(sizes, NO_STRIDES)
    links, first = 9 * 20, 12 * 20 / 2
    assert scratch < 1.01 * 10_000 * (links + first + 3 * 11 + 9)


def test_number_of_rows_is_bounded() -> None:
    """At every level a link has at most two rows per unknown."""
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
def test_matrices_that_fit_into_registers(M: int, rows: int, form: Form | None) -> None:
    assert reduction_level.form_for(M, rows) == form
    if form is not None:
        assert form.groups * form.rows >= rows
        assert form.chunks * LANES > 3 * M
        # Two numbers of a tile in each thread, of which 255 registers hold 127 at most.
        assert 2 * form.groups * form.chunks <= 44


@pytest.mark.parametrize("count", [5, 100, 160, 161, 416, 700, 2304, 9000])
@pytest.mark.parametrize("alone", [False, True])
def test_every_column_meets_every_reflection_before_it_once(count: int, alone: bool) -> None:
    width, columns = count // 2 + 3, count // 2 + 1
    size = reduction_triangle.form_for(count).columns
    met: list[set[int]] = [set() for _ in range(-(-width // size))]
    made: set[int] = set()
    block = 64
    for turn in reduction_triangle.turns(count, width, columns, alone=alone):
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
