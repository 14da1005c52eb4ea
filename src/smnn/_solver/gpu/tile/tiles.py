"""Tiles of rows and columns; a program processes one sequence.

For blocks too large for unrolled source (`team/columns.py`). Active rows are stored in tiles of a
few rows by 32 columns, one column per lane and the rows distributed over the warps; the loop over
the columns to eliminate remains a loop. A triangle is needed row by row only, and is stored in
memory in the place of the factor. Blocks of columns are aligned to tiles, so that shifting the
times only renames columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from smnn._solver.gpu.emit import Source, interpreted, reduce_rows, reflect_rows, total
from smnn._solver.gpu.lane.eliminate import Spec, factor_cells

LANES = 32
SWAP_RATIO = 8
"""Rows with an entry larger than the pivot by this factor are swapped with the pivot row."""
Chunk = tuple[str, int]  # A group of 32 columns: name of the block and index in it
Tile = dict[Chunk, str]  # Variables of a group of rows, or of one row, by chunk


class Shape(NamedTuple):
    """Distribution of the rows."""

    warps: int
    rows: int  # Rows per tile; a multiple of the number of warps


def shape(n: int) -> Shape:
    """Smallest number of warps whose registers hold the rows, to minimize communication.

    Measured on an H200 with 512 sequences, where twice as many warps take 1.1 (27 unknowns) to 2.2
    times (64) as long for a solve and its derivative.
    """
    return Shape(1, 4) if n < LANES else Shape(4, 8)


def _upper(x: str) -> str:
    """Sign, exponent and leading bits of a number, as an integer."""
    return f"({x}.to(tl.int64, bitcast=True) >> 32).to(tl.int32)"


def chunks(block: str, count: int) -> list[Chunk]:
    return [(block, i) for i in range(-(-count // LANES))]


class Tiles:
    """Names shared by all tile kernels: rows and columns of a tile."""

    number = 255  # Bit mask of the row number in a pivot key

    def __init__(self, out: Source, spec: Spec, form: Shape) -> None:
        self.out, self.spec, self.form, self.n = out, spec, form, spec.n
        self.blocks = spec.reach + 1
        self.own = chunks("", spec.n)  # Chunks of an unnamed block
        self.right = spec.n // LANES
        """Chunk of the right-hand side, which follows the columns of the newest time."""
        out("b = tl.program_id(0).to(tl.int64)")
        out(f"ROWS: tl.constexpr = {form.rows}")
        out(f"COLUMNS: tl.constexpr = {LANES}")
        out("row = tl.arange(0, ROWS)")
        out("lane = tl.arange(0, COLUMNS)")
        out("zero = lane.to(tl.float64) * 0.0")
        out("blank = row[:, None].to(tl.float64) * 0.0 + zero[None, :]")
        for i in range(-(-(spec.n + 1) // LANES)):
            out(f"col{i} = lane + {i * LANES}")
            out(f"column{i} = row[:, None] * 0 + col{i}[None, :]")

    def block(self, name: str) -> list[Chunk]:
        """Chunks of a block of columns; the newest, `c`, includes the right-hand side."""
        return chunks(name, self.n + (name == "c"))

    def top(self, blocks: str) -> Tile:
        return {(x, k): f"top_{x}{k}" for block in blocks for x, k in self.block(block)}

    def groups(self, count: int) -> int:
        return -(-count // self.form.rows)

    def cells(self, time: str) -> str:
        """Address of the factor of a time."""
        return f"factor_ptr + (b * T + {time}) * {factor_cells(self.n, self.blocks - 1, 0)}"

    def start(self, j: str) -> str:
        """Offset of the row of an unknown in it, less its own column."""
        return f"({j} * {self.blocks * self.n - 1} - {j} * ({j} - 1) // 2)"

    def sums(self, values: dict[Chunk, str]) -> dict[Chunk, str]:
        if self.form.warps == 1 or len(values) == 1 or interpreted():
            return {key: self.out.new(f"tl.sum({x}, axis=0)") for key, x in values.items()}
        found = {key: f"sum_{key[0]}{key[1]}" for key in values}
        reduce_rows(self.out, {found[key]: x for key, x in values.items()})
        return found

    @contextmanager
    def columns(self, low: str, high: str, edge: str) -> Iterator[None]:
        """Loop over columns `j` of a chunk that starts at column `edge`.

        `here` and `inside` are the position of `j` in the chunk.
        """
        out = self.out
        with out.block(f"for j in range({low}, {high}):"):
            out(f"here = lane * 0 + (j - {edge})")
            out("inside = row[:, None] * 0 + here[None, :]")
            yield

    def reflect(self, top: Tile | None, rows: list[Tile], at: Chunk, reached: list[Chunk]) -> str:
        """Householder reflection of column `here` of the rows into the top row.

        The variables are modified in place. Returns the reciprocal of the new pivot.

        Args:
            top: Pivot row; `None` if there is none yet.
            rows: Tiles of rows.
            at: Chunk of the column.
            reached: Chunks that can be nonzero and are still needed.
        """
        out = self.out
        if top is None:
            top = {key: f"top_{key[0]}{key[1]}" for key in reached}
            for name in top.values():
                out(f"{name} = zero")
        tips = [out.new(f"tl.gather({tile[at]}, inside, 1)") for tile in rows]
        pivot = out.new(f"tl.gather({top[at]}, here, 0)")
        self._largest_first(top, rows, pivot, tips, reached)
        products = [
            {key: f"{tip} * {tile[key]}" for key in reached}
            for tip, tile in zip(tips, rows, strict=True)
        ]
        dots = self._added(products)
        head, scale, new = reflect_rows(out, pivot, dots[at], "here")
        for key in reached:
            along = out.new(f"({head} * {top[key]} + {dots[key]}) * {scale}")
            out(f"{top[key]} = {top[key]} - {along} * {head}")
            spread = out.new(f"blank + {along}[None, :]")
            for tip, tile in zip(tips, rows, strict=True):
                out(f"{tile[key]} = {tile[key]} - {spread} * {tip}")
        return new

    def _added(self, parts: list[Tile]) -> Tile:
        totals = {key: total(self.out, [part[key] for part in parts]) for key in parts[0]}
        return self.sums(totals)

    def _largest_first(
        self, top: Tile, rows: list[Tile], pivot: str, tips: list[str], reached: list[Chunk]
    ) -> None:
        numbered = dict(enumerate(tips))
        sizes, most = self.sizes(numbered)
        most = self.out.new(f"tl.max({most}, axis=0)")
        with self.swap_rows(top, dict(enumerate(rows)), pivot, numbered, reached, sizes, most):
            pass

    def sizes(self, tips: dict[int, str]) -> tuple[dict[int, str], str]:
        """Pivot keys: magnitudes as integers, and the largest of each row and lane."""
        # The leading bits are precise enough. The low bits number the rows, so that the maximum is
        # unique.
        out, high = self.out, 0x7FFFFFFF & ~self.number
        sizes = {
            g: out.new(f"({_upper(tip)} & {high}) | (row[:, None] + {g * self.form.rows})")
            for g, tip in tips.items()
        }
        most, *others = sizes.values()
        for size in others:
            most = out.new(f"tl.maximum({most}, {size})")
        return sizes, most

    @contextmanager
    def swap_rows(
        self, top: Tile, rows: dict[int, Tile], pivot: str, tips: dict[int, str],
        reached: list[Chunk], sizes: dict[int, str], most: str, within: str = "",
    ) -> Iterator[None]:  # fmt: skip
        """Swap the top row with the row of the largest entry, if its own is much smaller.

        The reason is given in `team/columns.py`; smaller rows lose at most the factor `MUCH` in
        rounding errors. `sizes` are the pivot keys, and `most` the largest; `within` may restrict
        the columns. The block is executed only if rows are swapped.
        """
        out = self.out
        own = out.new(f"({_upper(f'({SWAP_RATIO} * {pivot})')} & 0x7FFFFFFF) | {self.number}")
        with out.block(f"if tl.max(({most} > {own}).to(tl.int32), axis=0) > 0:"):
            largest = {g: out.new(f"{size} == {most}[None, :]") for g, size in sizes.items()}
            found = self._added(
                [
                    {key: f"tl.where({largest[g]}, {tile[key]}, 0.0)" for key in reached}
                    for g, tile in rows.items()
                ]
            )
            for g, tile in rows.items():
                mask, tip = largest[g], tips[g]
                chosen = out.new(f"{mask} & {within}") if within else mask
                for key in reached:
                    old = tile[key]
                    out(f"{old} = tl.where({chosen}, blank + {top[key]}[None, :], {old})")
                out(f"{tip} = tl.where({mask}, blank + {pivot}[None, :], {tip})")
            for key in reached:
                out(f"{top[key]} = {found[key]}")
            out(f"{pivot} = tl.gather({top[reached[0]]}, here, 0)")
            yield
