"""One level of odd-even reduction (`solve.py`), one program per matrix.

Blocks are numbered from 0 in time order. Level `l` eliminates every second remaining block: numbers
`step (2 i + 1) - 1` with `step = 2^l`, whose neighbours are at distance `step`. The rows that
involve such a block, those of its two links and its own, are reduced to a triangle, largest rows
first. The first rows become part of the factor; the remainder is the link between the neighbours.
The matrix must fit into the registers of a few warps; larger ones take several launches
(`triangle.py`).
"""

from __future__ import annotations

from typing import NamedTuple

from smnn._solver.gpu.emit import Source, reduce_rows, reflect_rows, total
from smnn._solver.gpu.reduction.blocks import LANES, tile

SHARE = 2  # Rows of a tile per warp
FEW, MOST = 128, 320
"""Largest matrix, in rows times chunks of columns, for four warps and for eight."""
PLACES = [
    "B", "slots", "own", "links", "link_ptr", "link_sb", "link_sk", "link_sr", "link_rows",
    "outer_ptr", "outer_sb", "outer_sr", "outer_rows",
    "local_ptr", "local_sb", "local_sk", "local_sr",
]  # fmt: skip
"""Arguments that locate the rows."""


class Form(NamedTuple):
    """Layout of a matrix in registers: tiles of some rows by 32 columns, one column per lane."""

    M: int  # Unknowns per block
    warps: int
    groups: int  # Number of tiles in a column

    @property
    def rows(self) -> int:
        """Rows per tile."""
        return SHARE * self.warps

    @property
    def chunks(self) -> int:
        """Number of tiles in a row: columns of three blocks and the right-hand side."""
        return -(-(3 * self.M + 1) // LANES)

    @property
    def loops(self) -> int:
        """Chunks with columns to eliminate."""
        return -(-3 * self.M // LANES)


def form_for(M: int, rows: int) -> Form | None:
    """Layout for matrices with `rows` rows; `None` if they exceed the registers."""
    form = Form(M, 4, 0)
    size = rows * form.chunks
    if size > MOST:
        return None
    form = form._replace(warps=4 if size <= FEW else 8)
    return form._replace(groups=-(-rows // form.rows))


def stops(form: Form, columns: int) -> dict[str, int]:
    """Arguments with the last column to eliminate in each chunk."""
    return {f"stop{c}": max(c * LANES, min(columns, (c + 1) * LANES)) for c in range(form.loops)}


def arguments(form: Form) -> list[str]:
    made = ["count", "made_rows", "kept_rows", *stops(form, 0)]
    return [*PLACES, *made, "factor_ptr", "z_ptr", "rest_ptr", "here"]


def sources(out: Source, which: str) -> None:
    """Locate rows by number: the link before the block, the one after it, its own.

    The link after the last block may be stored separately (`outer`).
    """
    out(f"before = {which} < slots")
    out(f"after = ({which} >= slots) & ({which} < 2 * slots)")
    out(f"inner = ({which} >= 2 * slots) & ({which} < 2 * slots + own)")
    out(f"r = {which} - tl.where(before, 0, tl.where(after, slots, 2 * slots))")
    out("link = tl.where(before, 2 * i, 2 * i + 1)")
    out("known = (before | after) & (link < links) & (r < link_rows)")
    out("beyond = after & (link >= links) & (r < outer_rows)")
    out("link_at = b * link_sb + link * link_sk + r * link_sr")
    out("outer_at = b * outer_sb + r * outer_sr")
    out("local_at = b * local_sb + i * local_sk + r * local_sr")


def row_chunk(out: Source) -> None:
    """Load columns `column` of the rows located by `sources`, as `x`.

    Columns are those of the block, of the previous and the next one, and the right-hand side.
    """
    out("part = column // M")
    out("k = column - part * M")
    out("right = column == 3 * M")
    out("first = (part == 0)[None, :] & (row >= 0)[:, None]")
    out("second = first == before[:, None]")
    out("source = tl.where(right[None, :], 2 * M, tl.where(second, M, 0) + k[None, :])")
    out("beside = tl.where(before[:, None], (part == 1)[None, :], (part == 2)[None, :])")
    out("there = first | right[None, :] | beside")
    for name in ("link", "outer"):
        valid = "known" if name == "link" else "beyond"
        mask = f"mask={valid}[:, None] & there, other=0.0"
        out(f"{name}_x = tl.load({name}_ptr + {name}_at[:, None] + source, {mask})")
    out("source = tl.where(right, M, k)")
    mask = "mask=inner[:, None] & (first | right[None, :]), other=0.0"
    out(f"x = tl.load(local_ptr + local_at[:, None] + source[None, :], {mask})")
    out("x = x + link_x + outer_x")


def _sizes(out: Source, name: str, which: str) -> None:
    """Load the magnitudes of rows; negative for missing rows."""
    with out.subroutine(name):
        sources(out, which)
        behind = {"link": ("known", "2 * M + 1"), "outer": ("beyond", "2 * M + 1")}
        for place, (mask, at) in (behind | {"local": ("inner", "M + 1")}).items():
            out(f"{place}_size = tl.load({place}_ptr + {place}_at + {at}, mask={mask}, other=-1.0)")
        out(f"{name} = tl.maximum(tl.maximum(link_size, outer_size), local_size)")


def _order(out: Source, form: Form) -> None:
    """Sort the rows by magnitude: source rows `from0..`, largest first."""
    groups, parts = range(form.groups), range(-(-form.groups * form.rows // LANES))
    # Issue all loads first.
    for g in groups:
        _sizes(out, f"size{g}", f"line{g}")
        out(f"from{g} = row * 0")
    for part in parts:
        out(f"other{part} = lane + {part * LANES}")
        _sizes(out, f"other_size{part}", f"other{part}")
    for part in parts:
        out("larger = row[:, None] * 0 + lane[None, :] * 0")
        for g in groups:
            size, other = f"size{g}[:, None]", f"other_size{part}[None, :]"
            same = f"({size} == {other}) & (line{g}[:, None] < other{part}[None, :])"
            out(f"ahead = (({size} > {other}) | ({same})) & (line{g} < count)[:, None]")
            out("larger = larger + ahead.to(tl.int32)")
        out("rank = tl.sum(larger, axis=0)")
        out(f"which = row[:, None] * 0 + other{part}[None, :]")
        for g in groups:
            out(f"here_is = (rank[None, :] == line{g}[:, None]) & (which < count)")
            out(f"from{g} = from{g} + tl.sum(tl.where(here_is, which, 0), axis=1)")


def level_body(out: Source, form: Form) -> None:
    """Load a matrix with its rows sorted, reduce it to a triangle, and store the remainder.

    Of `count` rows, the remainder is the triangle of the last two blocks (`made_rows`), or the rows
    below the first triangle (`kept_rows`).
    """
    groups, chunks, M = range(form.groups), range(form.chunks), form.M
    tile(out, form.rows)
    out(f"M: tl.constexpr = {M}")
    out("i = program // B")
    out("b = program % B")
    out("zero = lane.to(tl.float64) * 0.0")
    out(f"own_rows = factor_ptr + (here + program) * {3 * M * M}")
    out(f"own_z = z_ptr + (here + program) * {M}")
    out(f"rest = rest_ptr + program * (made_rows + kept_rows) * {2 * M + 2}")
    for g in groups:
        out(f"line{g} = row + {g * form.rows}")
    _order(out, form)
    for g in groups:
        sources(out, f"from{g}")
        for name in ("known", "beyond", "inner"):
            out(f"{name} = {name} & (line{g} < count)")
        for c in chunks:
            out(f"column = lane + {c * LANES}")
            row_chunk(out)
            out(f"tile{g}_{c} = x")
    for c in range(form.loops):
        with out.block(f"for j in range({c * LANES}, stop{c}):"):
            _reflect(out, form, c)
    # Rows below the first triangle, if they are few enough to remain unreduced.
    for g in groups:
        out(f"place = line{g} - {M}")
        out("mask = (place >= 0) & (place < kept_rows)")
        most = ""
        for c in chunks:
            if (c + 1) * LANES <= M:
                continue
            out(f"column = lane + {c * LANES}")
            where = f"rest + (place * {2 * M + 2})[:, None] + (column - {M})[None, :]"
            there = f"((column >= {M}) & (column <= {3 * M}))[None, :]"
            out(f"tl.store({where}, tile{g}_{c}, mask=mask[:, None] & {there})")
            size = f"tl.where(((column >= {M}) & (column < {3 * M}))[None, :], tl.abs(tile{g}_{c}), 0.0)"
            size = out.new(size)
            most = out.new(f"tl.maximum({most}, {_numbers(size)})" if most else _numbers(size))
        where = f"rest + place * {2 * M + 2} + {2 * M + 1}"
        out(f"tl.store({where}, tl.max({most}, axis=1), mask=mask)")


def _numbers(size: str) -> str:
    """Magnitude with NaN replaced by infinity."""
    return f"tl.where({size} == {size}, {size}, float('inf'))"


def _reflect(out: Source, form: Form, at: int) -> None:
    """Eliminate column `j` of chunk `at` into row `j`, which is then finished."""
    groups, reached, M = range(form.groups), range(at, form.chunks), form.M
    out(f"inside = lane * 0 + (j - {at * LANES})")
    out("spread = row[:, None] * 0 + inside[None, :]")
    out("this = (row * 0 + j).to(tl.int32)")
    found = dict.fromkeys(reached, "0.0")
    for g in groups:
        out(f"own{g} = (line{g} == this)[:, None]")
        for c in reached:
            found[c] = out.new(f"tl.where(own{g}, tile{g}_{c}, {found[c]})")
            out(f"tile{g}_{c} = tl.where(own{g}, 0.0, tile{g}_{c})")
        # Finished rows are zero in the tiles.
        out(f"tip{g} = tl.gather(tile{g}_{at}, spread, 1)")
    sums = {f"top{c}": found[c] for c in reached}
    for c in reached:
        sums[f"dots{c}"] = total(out, [f"tip{g} * tile{g}_{c}" for g in groups])
    reduce_rows(out, sums)
    out(f"pivot = tl.gather(top{at}, inside, 0)")
    head, scale, _ = reflect_rows(out, "pivot", f"dots{at}", "inside")
    for c in reached:
        out(f"along = ({head} * top{c} + dots{c}) * {scale}")
        out(f"top{c} = top{c} - along * {head}")
        for g in groups:
            out(f"tile{g}_{c} = tile{g}_{c} - tip{g} * along[None, :]")
    out(f"top{at} = tl.where(lane < inside, 0.0, top{at})")
    factor, rest = at * LANES < M, (at + 1) * LANES > M
    most = ""
    for c in reached:
        out(f"column = lane + {c * LANES}")
        if factor:
            mine = f"(lane * 0 + j < {M})"
            mask = f"{mine} & (column < {3 * M})"
            out(f"tl.store(own_rows + j * {3 * M} + column, top{c}, mask={mask})")
            if c == form.chunks - 1:
                out(f"tl.store(own_z + j + lane * 0, top{c}, mask={mine} & (column == {3 * M}))")
        if rest:
            mine = f"(lane * 0 + (j - {M}) < made_rows) & (lane * 0 + j >= {M})"
            out(f"stored = {mine}")
            where = f"rest + (j - {M}) * {2 * M + 2} + (column - {M})"
            out(f"tl.store({where}, top{c}, mask=stored & (column >= {M}) & (column <= {3 * M}))")
            size = out.new(f"tl.where((column >= {M}) & (column < {3 * M}), tl.abs(top{c}), 0.0)")
            most = out.new(f"tl.maximum({most}, {_numbers(size)})" if most else _numbers(size))
    for c in range(M // LANES, at):  # columns before the first one
        out(f"column = lane + {c * LANES}")
        where = f"rest + (j - {M}) * {2 * M + 2} + (column - {M})"
        out(f"tl.store({where}, zero, mask=stored & (column >= {M}))")
    if rest:
        where = f"rest + (j - {M}) * {2 * M + 2} + {2 * M + 1} + lane * 0"
        out(f"most = tl.max({most}, axis=0)")
        out(f"tl.store({where}, zero + most, mask=stored & (lane == 0))")
