"""Batched Householder triangularization of matrices larger than the registers.

All trailing columns of all matrices are updated in parallel, one chunk of columns per program, so
that few matrices fill a device. A launch applies some reflections to every later chunk; the program
of the first of these chunks then factors it for the next launch.

A chunk has as many columns as fit into registers. Chunks form blocks. Inside a block, reflections
are applied chunk by chunk; those of a whole block are applied to later columns at once, so that
each number is loaded once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from smnn._solver.gpu.emit import Source, reduce_rows, reflect_rows, total

BLOCK = 32  # Columns per block if the same kernel updates the trailing columns
WIDE_BLOCK = 64  # Columns per block if the trailing columns are updated by matrix products
SHARE = 4  # Entries per thread in a group of rows, which limits the length of sequential sums
LANES = 32


class Form(NamedTuple):
    """Layout of a chunk in registers: groups of rows, whose number is no part of the layout."""

    columns: int
    warps: int
    groups: int

    @property
    def group(self) -> int:
        """Rows per group."""
        return SHARE * self.warps * LANES // self.columns


def form_for(count: int) -> Form:
    """Layout for matrices with `count` rows: at most 32 entries per thread, up to 8192 rows.

    Measured on an H200: four warps keep the schedulers busy; more wait for each other.
    """
    columns = 16 if count <= 160 else 8
    while columns > 1 and columns * count > 8192:
        columns //= 2
    form = Form(columns, 4 if columns * count <= 4096 else 8, 0)
    return form._replace(groups=-(-count // form.group))


class Turn(NamedTuple):
    """Arguments of one launch."""

    form: Form
    base: int  # First row to process
    low: int  # First reflection to apply
    high: int  # End of the reflections to apply, and first column to eliminate
    stop: int  # End of the columns to eliminate
    chunk: int  # First chunk to process
    chunks: int


def turns(count: int, width: int, columns: int, *, alone: bool) -> Iterator[Turn]:
    """Launches that reduce the first `columns` columns of matrices `(count, width)` to a triangle.

    With `alone`, each block is factored separately, without updating the columns after it.
    """
    form, block = form_for(count), WIDE_BLOCK if alone else BLOCK
    size = form.columns
    last, end, whole = -(-width // size), -(-columns // size), block // size
    for p in range(end + (end < last and not alone)):
        first = p // whole * whole  # chunk of its block
        base, until = first * size, min(first + whole, end)
        low = max(p - 1, first) * size
        if not alone and p in (first, end):
            # The previous block is not applied yet; after the last one, nothing is eliminated.
            base = low = max(0, (p - 1) // whole * whole * size)
            until = last
        high, stop = min(p * size, columns), min((p + 1) * size, columns)
        rows = form._replace(groups=-(-(count - base) // form.group))
        yield Turn(rows, base, low, high, stop, p, until - p)


ARGUMENTS = ["count", "width", "kept", *Turn._fields[1:], "a_ptr", "v_ptr", "w_ptr"]


def triangle_body(out: Source, form: Form) -> None:
    """Apply reflections `low` to `high`, then eliminate the first chunk up to column `stop`.

    The normal vectors of the last `kept` reflections are stored, with zeros from the first row of
    their block on.
    """
    groups = range(form.groups)
    out(f"ROWS: tl.constexpr = {form.group}")
    out(f"COLUMNS: tl.constexpr = {form.columns}")
    out("program = tl.program_id(0).to(tl.int64)")
    out("b = program // chunks")
    out("ahead = (program % chunks).to(tl.int32)")
    out("row = tl.arange(0, ROWS)")
    out("lane = tl.arange(0, COLUMNS)")
    out("zero = lane.to(tl.float64) * 0.0")
    out("column = lane + (chunk + ahead) * COLUMNS")
    out("matrix = a_ptr + b * count * width + column")
    out("known = column < width")
    out("normals = v_ptr + b * kept * count")
    out("first = normals + base + row")
    for g in groups:
        out(f"line{g} = (row + base + {g * form.group}).to(tl.int32)")
        where, mask = _place(g), f"(line{g} < count)[:, None] & known[None, :]"
        out(f"tile{g} = tl.load({where}, mask={mask}, other=0.0)")
    _apply(out, form, groups)
    with out.block("if ahead == 0:"):
        for g in groups:  # rows above are finished
            mask = f"(line{g} < high)[:, None] & known[None, :]"
            out(f"tl.store({_place(g)}, tile{g}, mask={mask})")
            out(f"tile{g} = tl.where((line{g} < high)[:, None], 0.0, tile{g})")
        _reflect(out, form, groups)
        for g in groups:
            out(f"tile{g} = tl.where((column < stop)[None, :], 0.0, tile{g})")
    for g in groups:
        rest = f"(line{g} < count) & ((line{g} >= stop) | (row * 0 + ahead > 0))"
        out(f"tl.store({_place(g)}, tile{g}, mask=({rest})[:, None] & known[None, :])")


def _place(g: int) -> str:
    return f"matrix[None, :] + (line{g} * width)[:, None]"


def _apply(out: Source, form: Form, groups: range) -> None:
    def prefetch(j: str, some: str = "") -> None:
        out(f"slot = {j} % kept")
        for g in groups:
            # Only the last group may extend beyond the last row.
            masks = [f"(line{g} < count)"] if g == groups[-1] else []
            masks += [f"(row * 0 + {some})"] if some else []
            mask = f", mask={' & '.join(masks)}, other=0.0" if masks else ""
            out(f"next{g} = tl.load(first + (slot * count + {g * form.group}){mask})")
        mask = f", mask=lane * 0 + {some}, other=0.0" if some else ""
        out(f"next_scale = tl.load(w_ptr + (b * kept + slot) + lane * 0{mask})")

    # Not from `high` on: another program may be writing those.
    prefetch("low", "low < high")
    with out.block("for j in range(low, high):"):
        for g in groups:
            out(f"normal{g} = next{g}")
        out("scale = next_scale")
        prefetch("tl.minimum(j + 1, high - 1)")
        dots = total(out, [f"normal{g}[:, None] * tile{g}" for g in groups])
        out(f"along = tl.sum({dots}, axis=0) * scale")
        for g in groups:
            out(f"tile{g} = tile{g} - normal{g}[:, None] * along[None, :]")


def _reflect(out: Source, form: Form, groups: range) -> None:
    """Eliminate the columns of the first chunk; finished rows are removed from the tiles."""
    with out.block("for j in range(high, stop):"):
        out("here = lane * 0 + (j - chunk * COLUMNS)")
        out("inner = row[:, None] * 0 + here[None, :]")
        out("at = (row * 0 + j).to(tl.int32)")
        found = ""
        for g in groups:
            out(f"own{g} = (line{g} == at)[:, None]")
            found = out.new(f"tl.where(own{g}, tile{g}, {found or '0.0'})")
            out(f"tile{g} = tl.where(own{g}, 0.0, tile{g})")
            out(f"tip{g} = tl.gather(tile{g}, inner, 1)")
        dots = total(out, [f"tip{g} * tile{g}" for g in groups])
        reduce_rows(out, {"top": found, "dots": dots})
        out("pivot = tl.gather(top, here, 0)")
        head, scale, _ = reflect_rows(out, "pivot", "dots", "here")
        out(f"along = ({head} * top + dots) * {scale}")
        out(f"top = tl.where(lane < here, 0.0, top - along * {head})")
        out("tl.store(matrix + j * width, top, mask=known)")
        out("mine = lane == here")
        out("slot = j % kept")
        for g in groups:
            out(f"tile{g} = tile{g} - tip{g} * along[None, :]")
            there = f"(first + (slot * count + {g * form.group}))[:, None] + lane[None, :] * 0"
            mask = f"(line{g} != at)" + (f" & (line{g} < count)" if g == groups[-1] else "")
            out(f"tl.store({there}, tip{g}, mask=mine[None, :] & ({mask})[:, None])")
        out(f"tl.store(normals + (slot * count + j) + lane * 0, {head}, mask=mine)")
        out(f"tl.store(w_ptr + (b * kept + slot) + lane * 0, {scale}, mask=mine)")
