"""Rows distributed over a team of lanes, one column per lane.

One lane per sequence (`lane/eliminate.py`) keeps whole triangles in the registers of one thread,
which is only possible for small blocks and leaves a device idle for small batches. Here the columns
of the active times and the right-hand side are distributed over a team: a warp or a part of one.
Householder reflections treat all columns at once; the normal vector is broadcast by shuffles. If
there are more columns than lanes, they form several chunks: contiguous in a whole warp, which has
the lowest latency; one chunk per time in smaller teams, which process more sequences with the same
shuffles. Two warps process a sequence from both ends if the scheme allows it; every value then has
two axes, ends and lanes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from smnn._solver.gpu.emit import Source, inverse_root, reflection
from smnn._solver.gpu.lane.time_index import ENDS, TimeIndex

LANES = 32  # Lanes per warp


class TeamIndex(TimeIndex):
    """Index arithmetic of a team.

    Args:
        out: Source under construction; the header is written at once.
        team: Lanes per sequence, or per half.
        orders: Orders per variable if two teams (warps) start from both ends, else 0.
    """

    def __init__(self, out: Source, team: int, orders: int) -> None:
        self.team = team
        super().__init__(out, orders)

    @property
    def axis(self) -> int:
        return 1 if self.orders else 0

    def write_header(self) -> None:
        out, team = self.out, self.team
        out("program = tl.program_id(0).to(tl.int64)")
        if self.orders:
            out("ROWS: tl.constexpr = 2")
            out(f"COLUMNS: tl.constexpr = {LANES}")
            out("p = tl.arange(0, ROWS)[:, None] + tl.arange(0, COLUMNS)[None, :] * 0")
            out("thread = p * 0 + tl.arange(0, COLUMNS)[None, :]")
            out("partner = 1 - p")
            out("zero = thread.to(tl.float64) * 0.0")
        else:
            out("thread = tl.arange(0, LANES)")
            out("zero = tl.zeros([LANES], dtype=tl.float64)")
        if team == LANES:
            out("b = program")
            out("lane = thread")
        else:  # surplus teams repeat the last sequence
            out(f"b = tl.minimum(program * {LANES // team} + thread // {team}, B - 1)")
            out(f"lane = thread % {team}")
        out("start = thread - lane")
        for line in ENDS if self.orders else ():
            out(line)

    def set_time(self, step: str) -> None:
        out = self.out
        if self.orders:
            super().set_time(step)
            return
        out(f"t = {step} + program * 0")
        out("times = lane * 0 + t")  # per lane: the interpreter cannot combine scalar conditions
        out("linked = times > 0")
        for line in ("prior = t - 1", "now = t", "before = tl.maximum(t - 1, 0)"):
            out(line)

    def prefetch_link(self, step: str) -> None:
        if self.orders:
            super().prefetch_link(step)
            return
        self.out(f"ends = lane * 0 + {step}")
        self.out("wanted = (ends > 0) & (ends < T)")
        self.out(f"coming = tl.maximum({step} - 1, 0)")

    def masked(self, mask: str = "") -> str:
        """Mask arguments of a load; the meeting time belongs to the first end."""
        masks = [x for x in ("own" if self.orders else "", mask) if x]
        return f", mask={' & '.join(masks)}, other=0.0" if masks else ""

    def at(self, step: str) -> str:
        """Time of a step, clamped to the sequence."""
        if not self.orders:
            return f"({step})"
        return f"tl.minimum(tl.maximum({self.time_of(f'({step})')[0]}, 0), T - 1)"

    def sign(self, order: str) -> str:
        """Per lane: -1 for odd derivatives under time reversal, else 1."""
        return self.out.new(f"tl.where(({order}) % 2 == 1, flip, zero + 1.0)")

    def may_be_initial(self) -> str:
        return super().may_be_initial() if self.orders else "t < T_init"

    @contextmanager
    def times(self, end: str = "L", *, backwards: bool = False) -> Iterator[None]:
        with self.out.block(f"for turn in range(0, {end}):"):
            self.out("step = L - 1 - turn" if backwards else "step = turn")
            self.set_time("step")
            yield


class Row(NamedTuple):
    """Entries of a row per chunk of columns, and its structurally nonzero columns."""

    chunks: list[str]
    support: set[int]


class Columns:
    """Columns of `blocks` times of `n` unknowns, oldest first, then the right-hand side.

    Columns are identified by position: chunk by chunk, lane by lane.

    Args:
        index: Index arithmetic; teams have more than `n` lanes.
        n: Unknowns per time.
        blocks: Number of times.
    """

    def __init__(self, index: TeamIndex, n: int, blocks: int) -> None:
        self.index, self.out, self.n, self.team = index, index.out, n, index.team
        out, team = self.out, self.team
        self.pitch = n if team == LANES else team
        self.newest = (blocks - 1) * self.pitch
        self.right = self.newest + n
        self.count = -(-(self.right + 1) // team)
        for i in range(self.count):
            out(f"col{i} = lane + {i * team}")

    def each(self, text: str) -> list[str]:
        """One expression per chunk; `COL` is replaced by its columns."""
        return [self.out.new(text.replace("COL", f"col{i}")) for i in range(self.count)]

    def block(self, k: int) -> range:
        """Column positions of a time; 0 is the oldest."""
        return range(k * self.pitch, k * self.pitch + self.n)

    def number(self, i: int) -> tuple[str, str]:
        """Indices of a chunk's columns without gaps, and the mask of lanes that have one."""
        if self.pitch == self.n:
            return f"col{i}", f"(col{i} < {self.right})"
        return f"(lane + {i * self.n})", f"(lane < {self.n})"

    def entry(self, row: Row, column: int) -> str:
        return broadcast(self.index, row.chunks[column // self.team], column % self.team)

    def all(self, values: str, join: str) -> str:
        """All-reduce over the team with `join(A, B)`."""
        distance = self.team // 2
        while distance:
            other = self.out.new(f"tl.gather({values}, thread ^ {distance}, {self.index.axis})")
            values = self.out.new(join.replace("A", values).replace("B", other))
            distance //= 2
        return values

    def from_newest(self, row: list[str]) -> list[str]:
        """Chunks of a row that is zero before the newest time."""
        return [x if (i + 1) * self.team > self.newest else "zero" for i, x in enumerate(row)]

    def moved(self, row: list[str], *, keep_right: bool = True) -> list[str]:
        """Shift a row by one time; the newest columns become zero."""
        out, team, pitch = self.out, self.team, self.pitch
        moved = []
        for i in range(self.count):
            first, turn = i + pitch // team, pitch % team
            parts = [row[j] if j < self.count else "zero" for j in (first, first + 1)]
            shifted = parts[0]
            if turn:
                index = out.new(f"start + (lane + {turn}) % {team}")
                near, far = (
                    x if x == "zero" else f"tl.gather({x}, {index}, {self.index.axis})"
                    for x in parts
                )
                shifted = out.new(f"tl.where(lane + {turn} < {team}, {near}, {far})")
            shifted = out.new(f"tl.where(col{i} < {self.right - pitch}, {shifted}, 0.0)")
            if keep_right and i == self.right // team:
                shifted = out.new(f"tl.where(col{i} == {self.right}, {row[i]}, {shifted})")
            moved.append(shifted)
        return moved


def broadcast(index: TeamIndex, vector: str, lane: int) -> str:
    return index.out.new(f"tl.gather({vector}, start + {lane}, {index.axis})")


def _sum(out: Source, products: list[str], chains: int, start: str) -> str:
    """Sum of products, by several independent chains of additions to hide their latency."""
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
    columns: Columns, rows: list[Row], entries: list[str], reached: list[int]
) -> list[str]:
    """Swap rows so that the first has the largest entry; returns the reordered entries.

    A reflection adds multiples of the first row to all others. If one of these is much larger, the
    first row is lost in its rounding errors. The rows are compared as in a tournament, so that the
    comparisons of a round are independent.
    """
    out, entries, distance = columns.out, list(entries), 1
    while distance < len(rows):
        for i in range(0, len(rows) - distance, 2 * distance):
            j = i + distance
            one, two = entries[i], entries[j]
            less = out.new(f"tl.abs({one}) < tl.abs({two})")
            entries[i] = out.new(f"tl.where({less}, {two}, {one})")
            entries[j] = out.new(f"tl.where({less}, {one}, {two})")
            for k in reached:
                one, two = rows[i].chunks[k], rows[j].chunks[k]
                rows[i].chunks[k] = out.new(f"tl.where({less}, {two}, {one})")
                rows[j].chunks[k] = out.new(f"tl.where({less}, {one}, {two})")
        distance *= 2
    return entries


def _norm(columns: Columns, rows: list[Row], column: int) -> tuple[str, str]:
    """Squared norm of a column over these rows, and the reciprocal of the norm.

    Every lane computes those of its own column; only the results are broadcast.
    """
    out, chunk, lane = columns.out, column // columns.team, column % columns.team
    entries = [row.chunks[chunk] for row in rows]
    square = _sum(out, [f"{x} * {x}" for x in entries], 4, "(zero + 1e-300)")
    inverse = inverse_root(out, square)
    return broadcast(columns.index, square, lane), broadcast(columns.index, inverse, lane)


def reflect(columns: Columns, pivot: Row, others: list[Row], column: int) -> str | None:
    """Householder reflection of `others[column]` into `pivot[column]`; returns the inverse pivot.

    Rows with a structural zero in the column are unchanged.
    """
    out = columns.out
    others = [row for row in others if column in row.support]
    if not others:
        return None
    rows = [pivot, *others]
    support = set().union(*(row.support for row in rows))
    reached = sorted({c // columns.team for c in support})
    square, inverse = _norm(columns, rows, column)
    entries = [columns.entry(row, column) for row in rows]
    top, *tips = _largest_first(columns, rows, entries, reached)
    head, scale, new = reflection(out, top, square, inverse)
    for i in reached:
        products = [f"{tip} * {row.chunks[i]}" for tip, row in zip(tips, others, strict=True)]
        along = _sum(out, products, 2, "zero")
        along = out.new(f"({head} * {pivot.chunks[i]} + {along}) * {scale}")
        pivot.chunks[i] = out.new(f"{pivot.chunks[i]} - {along} * {head}")
        for tip, row in zip(tips, others, strict=True):
            row.chunks[i] = out.new(f"{row.chunks[i]} - {along} * {tip}")
    for row in rows:
        row.support.update(support)
    for row in others:
        row.support.discard(column)
    return new


class Rows:
    """Rows that are carried through the loop under fixed variable names."""

    def __init__(self, columns: Columns, name: str, count: int) -> None:
        self._columns = columns
        self._names = [[f"{name}_{i}_{j}" for j in range(columns.count)] for i in range(count)]

    def carry(self, rows: list[list[str]]) -> None:
        # Through temporaries: a value may still carry the name that another is about to take.
        out = self._columns.out
        fresh = [[out.new(x) for x in row] for row in rows]
        for names, values in zip(self._names, fresh, strict=True):
            for name, value in zip(names, values, strict=True):
                out(f"{name} = {value}")

    def rows(self, support: set[int]) -> list[Row]:
        """The rows at the head of an iteration, with these structurally nonzero columns."""
        return [Row(list(names), set(support)) for names in self._names]
