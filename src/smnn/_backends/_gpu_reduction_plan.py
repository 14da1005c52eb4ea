"""Levels of odd-even reduction (`_gpu_reduction.py`), and the launches that work them off."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from smnn._backends import _gpu_reduction_source as source
from smnn._backends import _gpu_triangle as triangle

if TYPE_CHECKING:
    from smnn._backends._gpu_launch import Kernel, Launch, Program, Slot

LARGEST_OF_A_WARP = 64
"""Unknowns of a block that one warp substitutes."""


class Shape(NamedTuple):
    """The chain of blocks of all sequences."""

    B: int
    N: int
    """Blocks."""
    M: int
    """Unknowns of a block."""


class Level(NamedTuple):
    """Blocks that are eliminated at once, and where the rows of their matrices come from."""

    step: int
    """Blocks from one that is left to the next."""
    left: int
    blocks: int
    """How many of those that are left go."""
    links: int
    """Links whose rows lie where the level before has left them; one more may be apart."""
    slots: int
    """Rows of each of these."""
    apart: int
    """Rows of that one."""
    height: int
    """Rows of the matrices that the level before has left them in."""
    own: int
    """Rows on a block alone."""
    M: int

    @property
    def rows(self) -> int:
        """Of a matrix."""
        return max(self.M, 2 * max(self.slots, self.apart) + self.own)

    @property
    def columns(self) -> int:
        """Columns to be taken to a triangle.

        Rows beyond the block's own may be few enough as they are, or nobody wants them.
        """
        return self.M if self.rows <= 3 * self.M or self.left == 1 else 3 * self.M

    @property
    def rest(self) -> int:
        """Rows that are left of a matrix for the blocks beside it."""
        return min(self.rows, 3 * self.M) - self.M


@functools.lru_cache(maxsize=1024)
def levels(shape: Shape, slots: int, own: int) -> tuple[Level, ...]:
    """All levels; `slots` rows of each link and `own` rows of each block are there to begin with."""
    _, left, M = shape
    out, step, links, apart, height = [], 1, left + 1, 0, slots
    while left:
        level = Level(step, left, (left + 1) // 2, links, slots, apart, height, own, M)
        out.append(level)
        # The link behind the last block stays if that block does. At first it is empty.
        if left % 2:
            apart = 0
        elif step > 1 and not apart and links > left:
            apart = slots
        step, left, links = 2 * step, left // 2, level.blocks
        slots, height = level.rest, level.rows
    return tuple(out)


def words(B: int, T: int, n: int, reach: int) -> int:
    """Of memory that a solve takes, roughly: the factor, links, and the matrices of two levels."""
    return 5 * 3 * B * T * n * n * reach


def _parts(x: int, size: int = source.LANES) -> int:
    return -(-x // size)


@functools.cache
def row_kernels() -> tuple[Kernel, Kernel]:
    """How large rows are; and the rows, in that order."""
    from smnn._backends._gpu_emit import Source
    from smnn._backends._gpu_launch import Kernel

    sizes, ordered = Source(), Source()
    source.rows_body(sizes, ordered=False)
    source.rows_body(ordered, ordered=True)
    return (
        Kernel("reduction_sizes", sizes, source.ROW_ARGUMENTS),
        Kernel("reduction_rows", ordered, [*source.ROW_ARGUMENTS, "a_ptr"]),
    )


@functools.cache
def substitution_kernels(warps: int) -> tuple[Kernel, Kernel]:
    """Forward and back, for the blocks of a level, with so many warps for each."""
    from smnn._backends._gpu_emit import Source
    from smnn._backends._gpu_launch import Kernel

    forward, back = Source(), Source()
    source.forward_body(forward, warps)
    source.back_body(back, warps)
    return (
        Kernel("reduction_forward", forward, source.FORWARD_ARGUMENTS),
        Kernel("reduction_back", back, source.BACK_ARGUMENTS),
    )


@functools.cache
def triangle_kernel(form: triangle.Form) -> Kernel:
    """Reflections of some columns, on chunks of that form."""
    from smnn._backends._gpu_emit import Source
    from smnn._backends._gpu_launch import Kernel

    out = Source()
    triangle.triangle_body(out, form)
    return Kernel("triangle", out, triangle.ARGUMENTS)


@functools.lru_cache(maxsize=512)
def rows_program(shape: Shape, level: Level) -> Program:
    """Put the rows of a level together, the largest first."""
    from smnn._backends._gpu_launch import Launch, Program, Slot

    B, N, M = shape
    width, line, count = 3 * M + 1, M + 1, level.rows
    at, per_row = (0, 2 * M + 1) if level.step == 1 else (M * width + M, width)
    if level.step == 1:  # links of a sequence one behind the other, else sequences of a link
        per_link = level.slots * per_row
        per_sequence = (N + 1) * per_link
    else:
        per_sequence = level.height * width
        per_link = B * per_sequence
    values: dict[str, int | Slot] = {
        "B": B, "M": M, "high": _parts(width), "stop": _parts(count), "own": level.own,
        "slots": max(level.slots, level.apart), "count": count, "width": width,
        "links": level.links, "link_rows": level.slots, "link_ptr": Slot("link", at),
        "link_sb": per_sequence, "link_sk": per_link, "link_sr": per_row,
        "outer_ptr": Slot("outer"), "outer_rows": level.apart,
        "outer_sb": level.apart * (2 * M + 1), "outer_sr": 2 * M + 1,
        "local_ptr": Slot("local", (level.step - 1) * level.own * line),
        "local_sb": N * level.own * line, "local_sk": 2 * level.step * level.own * line,
        "local_sr": line, "sizes_ptr": Slot("sizes"), "a_ptr": Slot("a"),
    }  # fmt: skip
    lanes = 128 * B * level.blocks * _parts(count)
    return Program([Launch(kernel, lanes, 128, values) for kernel in row_kernels()])


def kept(alone: bool) -> int:
    """Reflections that are remembered: those of a block, and of the next while it is made."""
    return triangle.WIDE_BLOCK if alone else 2 * triangle.BLOCK


@functools.lru_cache(maxsize=512)
def triangle_programs(
    matrices: int, count: int, width: int, columns: int, alone: bool
) -> list[tuple[int, int, Program]]:
    """From which column to which one, and how: block by block if they are on their own."""
    from smnn._backends._gpu_launch import Launch, Program, Slot

    block = triangle.WIDE_BLOCK if alone else columns
    found: dict[int, list[Launch]] = {}
    values: dict[str, int | Slot] = {
        "count": count, "width": width, "kept": kept(alone),
        "a_ptr": Slot("a"), "v_ptr": Slot("normals"), "w_ptr": Slot("scales"),
    }  # fmt: skip
    for turn in triangle.turns(count, width, columns, alone=alone):
        lanes = source.LANES * turn.form.warps
        own = values | dict(zip(turn._fields[1:], turn[1:], strict=True))
        start = min(turn.high, columns - 1) // block * block
        found.setdefault(start, []).append(
            Launch(triangle_kernel(turn.form), lanes * matrices * turn.chunks, lanes, own)
        )
    return [(x, min(x + block, columns), Program(launches)) for x, launches in found.items()]


@functools.lru_cache(maxsize=256)
def substitution(shape: Shape, *, adjoint: bool) -> Program:
    """`R y = z` from the last level to the first; before it, `R^T z = g` the other way."""
    from smnn._backends._gpu_launch import Launch, Program, Slot

    B, N, M = shape
    warps = 1 if M <= LARGEST_OF_A_WARP else 4
    (forward, back), lanes = substitution_kernels(warps), source.LANES * warps
    up: list[Launch] = []
    down: list[Launch] = []
    first = 0
    for i, level in enumerate(levels(shape, 0, 0)):
        values: dict[str, int | Slot] = {
            "B": B, "N": N, "M": M, "high": _parts(M), "few": _parts(M, lanes), "first": first,
            "step": level.step, "stop": i, "factor_ptr": Slot("factor"), "z_ptr": Slot("z"),
            "y_ptr": Slot("y"), "g_ptr": Slot("g"),
        }  # fmt: skip
        total = lanes * B * level.blocks
        up.append(Launch(forward, total, lanes, values))
        down.append(Launch(back, total, lanes, values))
        first += level.blocks
    return Program([*(up if adjoint else []), *down[::-1]])
