"""Writes Triton source in which a warp works on one sequence, each of its lanes on a column.

One lane per sequence (`_gpu_source.py`) keeps whole triangles in the registers of one thread, which
has room for small blocks only, and few sequences then leave most of the device idle. Here the
columns of the times at hand and of the right-hand side are spread over the 32 lanes of a warp; a
Householder reflection treats all of them at once, and its vector is handed round by shuffles. More
than 32 columns lie in several chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from smnn._backends._gpu_emit import Source, inverse_root, reciprocal

LANES = 32


class Row(NamedTuple):
    """A row of the system: its entries by chunk of columns, and which columns can be other than 0."""

    chunks: list[str]
    support: set[int]


class Columns:
    """Blocks of `n` columns from the oldest time to the newest, then the right-hand side.

    Args:
        out: The kernel.
        n: Unknowns per time.
        blocks: How many times there are columns for.
    """

    def __init__(self, out: Source, n: int, blocks: int) -> None:
        self.out, self.n, self.right = out, n, blocks * n
        self.count = -(-(self.right + 1) // LANES)
        out("b = tl.program_id(0).to(tl.int64)")
        out("lane = tl.arange(0, LANES)")
        out("zero = tl.zeros([LANES], dtype=tl.float64)")
        for i in range(self.count):
            out(f"col{i} = lane + {i * LANES}")

    def each(self, text: str) -> list[str]:
        """One expression per chunk; `COL` stands for its columns."""
        return [self.out.new(text.replace("COL", f"col{i}")) for i in range(self.count)]

    def entry(self, row: Row, column: int) -> str:
        """An entry of a row, known to every lane."""
        return broadcast(self.out, row.chunks[column // LANES], column % LANES)

    def moved(self, row: list[str], *, keep_right: bool = True) -> list[str]:
        """The columns of the next time become those of this one; the newest are zero."""
        n, out = self.n, self.out
        moved = []
        for i in range(self.count):
            first, turn = i + n // LANES, n % LANES
            index = out.new(f"(lane + {turn}) % {LANES}")
            parts = [
                out.new(f"tl.gather({row[j]}, {index}, 0)") if j < self.count else "zero"
                for j in (first, first + 1)
            ]
            shifted = parts[0]
            if turn:
                shifted = out.new(f"tl.where(lane + {turn} < {LANES}, {parts[0]}, {parts[1]})")
            shifted = out.new(f"tl.where(col{i} < {self.right - n}, {shifted}, 0.0)")
            if keep_right and i == self.right // LANES:
                shifted = out.new(f"tl.where(col{i} == {self.right}, {row[i]}, {shifted})")
            moved.append(shifted)
        return moved


def broadcast(out: Source, vector: str, lane: int) -> str:
    """What one lane holds, for all."""
    return out.new(f"tl.gather({vector}, lane * 0 + {lane}, 0)")


def _sum(out: Source, products: list[str], chains: int, start: str) -> str:
    """Their sum, by a few chains of additions: a single one waits for itself."""
    totals = [start]
    for i, product in enumerate(products):
        if i and i < chains:
            totals.append(out.new(product))
        else:
            totals[i % chains] = out.new(f"{product} + {totals[i % chains]}")
    while len(totals) > 1:
        totals = [
            out.new(f"{a} + {b}") for a, b in zip(totals[::2], totals[1::2], strict=False)
        ] + ([totals[-1]] if len(totals) % 2 else [])
    return totals[0]


def reflect(columns: Columns, pivot: Row, others: list[Row], column: int) -> str | None:
    """Householder: `others[column]` go into `pivot[column]`; gives the reciprocal of the new pivot.

    Rows that cannot reach the column stay as they are.
    """
    out = columns.out
    others = [row for row in others if column in row.support]
    if not others:
        return None
    top = columns.entry(pivot, column)
    tips = [columns.entry(row, column) for row in others]
    square = _sum(out, [f"{x} * {x}" for x in (top, *tips)], 4, "(zero + 1e-300)")
    some = out.new(f"{square} > 1e-280")
    inverse = inverse_root(out, square)
    part = reciprocal(out, out.new(f"tl.abs({top}) * {inverse} + 1.0"))
    scale = out.new(f"tl.where({some}, ({inverse} * {inverse}) * {part}, 0.0)")
    sign = out.new(f"tl.where({top} < 0.0, zero - 1.0, 1.0)")
    head = out.new(f"{top} + {sign} * ({square} * {inverse})")
    support = set().union(pivot.support, *(row.support for row in others))
    reached = {c // LANES for c in support}
    for i in range(columns.count):
        if i not in reached:
            continue
        products = [f"{tip} * {row.chunks[i]}" for tip, row in zip(tips, others, strict=True)]
        along = _sum(out, products, 2, "zero")
        along = out.new(f"({head} * {pivot.chunks[i]} + {along}) * {scale}")
        pivot.chunks[i] = out.new(f"{pivot.chunks[i]} - {along} * {head}")
        for tip, row in zip(tips, others, strict=True):
            row.chunks[i] = out.new(f"{row.chunks[i]} - {along} * {tip}")
    pivot.support.update(support)
    for row in others:
        row.support.update(support)
        row.support.discard(column)
    return out.new(f"-{sign} * {inverse}")


class Rows:
    """Rows that live through the loop: fixed names for it to carry."""

    def __init__(self, columns: Columns, name: str, count: int) -> None:
        self._columns = columns
        self._names = [[f"{name}_{i}_{j}" for j in range(columns.count)] for i in range(count)]

    def carry(self, rows: list[list[str]]) -> None:
        """These rows are the next ones."""
        # Through temporaries: a value may still carry the name that another is about to take.
        out = self._columns.out
        held = [[out.new(x) for x in row] for row in rows]
        for names, values in zip(self._names, held, strict=True):
            for name, value in zip(names, values, strict=True):
                out(f"{name} = {value}")

    def rows(self, support: set[int]) -> list[Row]:
        """The rows as they are, which can be other than 0 in these columns."""
        return [Row(list(names), set(support)) for names in self._names]


@contextmanager
def times(out: Source, *, backwards: bool = False) -> Iterator[None]:
    """The loop over all times, `t`."""
    with out.block("for turn in range(0, L):"):
        out("t = L - 1 - turn + b * 0" if backwards else "t = turn + b * 0")
        yield
