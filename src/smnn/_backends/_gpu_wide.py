"""Writes Triton source in which a warp works on a few sequences, each of its lanes on a column.

One lane per sequence (`_gpu_source.py`) keeps whole triangles in the registers of one thread, which
has room for small blocks only, and few sequences then leave most of the device idle. Here the
columns of the times at hand and of the right-hand side are spread over the lanes of a team: a warp,
or a part of one. A Householder reflection treats all of them at once, and its vector is handed
round by shuffles. More columns than the team has lanes lie in several chunks: one behind the other
in a whole warp, which is done soonest; a chunk for every time in smaller teams, which do more
sequences with the same shuffles, when there are many.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from smnn._backends._gpu_emit import Source, inverse_root, reciprocal

LANES = 32
"""Of a warp."""


class Row(NamedTuple):
    """A row of the system: its entries by chunk of columns, and which columns can be other than 0."""

    chunks: list[str]
    support: set[int]


class Columns:
    """Blocks of `n` columns from the oldest time to the newest, then the right-hand side.

    A column is meant by its position: chunk after chunk, and in these lane after lane.

    Args:
        out: The kernel.
        n: Unknowns per time.
        blocks: How many times there are columns for.
        team: Lanes that work on a sequence, more than `n`.
    """

    def __init__(self, out: Source, n: int, blocks: int, team: int) -> None:
        self.out, self.n, self.team = out, n, team
        self.pitch = n if team == LANES else team
        self.newest = (blocks - 1) * self.pitch
        self.right = self.newest + n
        self.count = -(-(self.right + 1) // team)
        out("program = tl.program_id(0).to(tl.int64)")
        out("thread = tl.arange(0, LANES)")
        if team == LANES:
            out("b = program")
            out("lane = thread")
        else:  # a team without a sequence of its own does the last one again, in step with its own
            out(f"b = tl.minimum(program * {LANES // team} + thread // {team}, B - 1)")
            out(f"lane = thread % {team}")
        out("first = thread - lane")
        out("zero = tl.zeros([LANES], dtype=tl.float64)")
        for i in range(self.count):
            out(f"col{i} = lane + {i * team}")

    def each(self, text: str) -> list[str]:
        """One expression per chunk; `COL` stands for its columns."""
        return [self.out.new(text.replace("COL", f"col{i}")) for i in range(self.count)]

    def block(self, k: int) -> range:
        """Where the columns of a time are; the oldest is number 0."""
        return range(k * self.pitch, k * self.pitch + self.n)

    def number(self, i: int) -> tuple[str, str]:
        """Of each column of a chunk among all, without gaps; and which lanes have one."""
        if self.pitch == self.n:
            return f"col{i}", f"(col{i} < {self.right})"
        return f"(lane + {i * self.n})", f"(lane < {self.n})"

    def entry(self, row: Row, column: int) -> str:
        """An entry of a row, known to every lane."""
        return broadcast(self.out, row.chunks[column // self.team], column % self.team)

    def all(self, values: str, join: str) -> str:
        """One value for the whole team, of `join(A, B)`."""
        distance = self.team // 2
        while distance:
            other = self.out.new(f"tl.gather({values}, thread ^ {distance}, 0)")
            values = self.out.new(join.replace("A", values).replace("B", other))
            distance //= 2
        return values

    def from_newest(self, row: list[str]) -> list[str]:
        """The chunks of a row that has nothing left before the newest time."""
        return [x if (i + 1) * self.team > self.newest else "zero" for i, x in enumerate(row)]

    def moved(self, row: list[str], *, keep_right: bool = True) -> list[str]:
        """The columns of the next time become those of this one; the newest are zero."""
        out, team, pitch = self.out, self.team, self.pitch
        moved = []
        for i in range(self.count):
            first, turn = i + pitch // team, pitch % team
            parts = [row[j] if j < self.count else "zero" for j in (first, first + 1)]
            shifted = parts[0]
            if turn:
                index = out.new(f"first + (lane + {turn}) % {team}")
                near, far = (x if x == "zero" else f"tl.gather({x}, {index}, 0)" for x in parts)
                shifted = out.new(f"tl.where(lane + {turn} < {team}, {near}, {far})")
            shifted = out.new(f"tl.where(col{i} < {self.right - pitch}, {shifted}, 0.0)")
            if keep_right and i == self.right // team:
                shifted = out.new(f"tl.where(col{i} == {self.right}, {row[i]}, {shifted})")
            moved.append(shifted)
        return moved


def broadcast(out: Source, vector: str, lane: int) -> str:
    """What one lane holds, for all of its team."""
    return out.new(f"tl.gather({vector}, first + {lane}, 0)")


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


def _largest_first(
    columns: Columns, pivot: Row, others: list[Row], entries: list[str], reached: list[int]
) -> list[str]:
    """Exchange rows until the pivot's entry is the largest; gives the entries in their new order.

    A reflection adds shares of the pivot to all others. If one of them is much larger, what the
    pivot said is lost in it, as by rounding the large row.
    """
    out = columns.out
    top, *tips = entries
    for k, row in enumerate(others):
        tip = tips[k]
        less = out.new(f"tl.abs({top}) < tl.abs({tip})")
        top, tips[k] = (out.new(f"tl.where({less}, {a}, {b})") for a, b in ((tip, top), (top, tip)))
        for i in reached:
            one, two = pivot.chunks[i], row.chunks[i]
            pivot.chunks[i] = out.new(f"tl.where({less}, {two}, {one})")
            row.chunks[i] = out.new(f"tl.where({less}, {one}, {two})")
    return [top, *tips]


def reflect(columns: Columns, pivot: Row, others: list[Row], column: int) -> str | None:
    """Householder: `others[column]` go into `pivot[column]`; gives the reciprocal of the new pivot.

    Rows that cannot reach the column stay as they are.
    """
    out = columns.out
    others = [row for row in others if column in row.support]
    if not others:
        return None
    support = set().union(pivot.support, *(row.support for row in others))
    reached = sorted({c // columns.team for c in support})
    entries = [columns.entry(row, column) for row in (pivot, *others)]
    top, *tips = _largest_first(columns, pivot, others, entries, reached)
    square = _sum(out, [f"{x} * {x}" for x in (top, *tips)], 4, "(zero + 1e-300)")
    some = out.new(f"{square} > 1e-280")
    inverse = inverse_root(out, square)
    part = reciprocal(out, out.new(f"tl.abs({top}) * {inverse} + 1.0"))
    scale = out.new(f"tl.where({some}, ({inverse} * {inverse}) * {part}, 0.0)")
    sign = out.new(f"tl.where({top} < 0.0, zero - 1.0, 1.0)")
    head = out.new(f"{top} + {sign} * ({square} * {inverse})")
    for i in reached:
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
        out("t = L - 1 - turn + program * 0" if backwards else "t = turn + program * 0")
        yield
