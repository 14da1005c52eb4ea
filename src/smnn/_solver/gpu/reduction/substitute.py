"""Odd-even reduction (`solve.py`): sorted rows, and substitutions.

A level (`level.py`) has `B` matrices per block. The factor stores them level by level: `M` rows
each, over the block itself, the previous and the next one, `M` columns each. Block `i` has number
`N - N // step + (i + 1) // step // 2`, with `step` the largest power of two that divides `i + 1`.
Loops run over chunks of 32 columns (`high`) or over tiles of rows (`few`). Only the first `wanted`
unknowns of a sequence exist: a last block of two times may be padded.
"""

from __future__ import annotations

from smnn._solver.gpu.emit import Source
from smnn._solver.gpu.reduction.blocks import LANES, tile
from smnn._solver.gpu.reduction.level import PLACES, row_chunk, sources

ROW_ARGUMENTS = [*PLACES, "M", "high", "stop", "count", "width", "sizes_ptr"]
SMALL_ROWS = 16  # Spills that are loaded per iteration: those of eight levels
_BLOCK = ["B", "N", "wanted", "step", "first", "factor_ptr", "z_ptr"]
_FORWARD = ["below", "stop", "g_ptr", "spill_ptr"]
BACK_ARGUMENTS = [*_BLOCK, "M", "high", "few", "y_ptr"]
FORWARD_ARGUMENTS = [*_BLOCK, "M", "high", "few", *_FORWARD]
SMALL_BACK_ARGUMENTS = [*_BLOCK, "y_ptr"]
SMALL_FORWARD_ARGUMENTS = [*_BLOCK, *_FORWARD]


def rows_body(out: Source, ordered: bool) -> None:
    """Rows of a level's matrices: their magnitudes, or the rows in that order (`ordered`).

    A program has 32 rows of a matrix.
    """
    tile(out)
    out("groups = (count + 31) // 32")
    out("matrix = program // groups")
    out("which = row + ((program % groups) * 32).to(tl.int32)")
    out("i = matrix // B")
    out("b = matrix % B")
    sources(out, "which")
    if ordered:
        out("mine = tl.load(sizes_ptr + matrix * count + which, mask=which < count, other=-1.0)")
        out("rank = which * 0")
        with out.block("for chunk in range(0, stop):"):
            out("place = (lane + chunk * 32).to(tl.int32)")
            inside = "mask=place < count, other=-2.0"
            out(f"other = tl.load(sizes_ptr + matrix * count + place, {inside})")
            out("same = (other[None, :] == mine[:, None]) & (place[None, :] < which[:, None])")
            out("larger = (other[None, :] > mine[:, None]) | same")
            out("rank = rank + tl.sum(larger.to(tl.int32), axis=1)")
    else:
        out("most = row[:, None].to(tl.float64) * 0.0 + lane[None, :].to(tl.float64) * 0.0")
    with out.block("for chunk in range(0, high):"):
        out("column = (lane + chunk * 32).to(tl.int32)")
        row_chunk(out)
        if ordered:
            where = "a_ptr + (matrix * count + rank)[:, None] * width + column[None, :]"
            out(f"tl.store({where}, x, mask=(which < count)[:, None] & (column < width)[None, :])")
        else:
            out("size = tl.where(right[None, :], 0.0, tl.abs(x))")
            out("most = tl.maximum(most, tl.where(size == size, size, float('inf')))")
    if not ordered:
        out("most = tl.max(most, axis=1)")
        out("tl.store(sizes_ptr + matrix * count + which, most, mask=which < count)")


def _block(out: Source, rows: int) -> None:
    """Indices of block and sequence, and addresses of the factor; tiles have `rows` rows."""
    tile(out, rows)
    out("i = program // B")
    out("b = program % B")
    out("block = step * (2 * i + 1) - 1")
    out("here_at = first * B + program")
    out("own = factor_ptr + here_at * 3 * M * M")
    out("z = z_ptr + here_at * M")


def _subtract_tile(out: Source, values: str, entries: str) -> None:
    """Subtract a tile of entries times known values, with mask `there`."""
    out(f"v = tl.load({values}, mask=there, other=0.0)")
    mask = "there[:, None] & (line < M)[None, :]"
    out(f"tile = tl.load({entries}, mask={mask}, other=0.0)")
    out("w = w - tl.sum(tile * v[:, None], axis=0)")


def _broadcast(out: Source, value: str, j: int) -> str:
    return out.new(f"tl.gather({value}, lane * 0 + {j}, 0)")


def _load_diagonal(out: Source, *, transposed: bool) -> list[str]:
    """Load the columns (or rows, if `transposed`) of a 32 x 32 triangle on the diagonal."""
    out("pivot = tl.load(own + line * (3 * M + 1), mask=line < M, other=1.0)")
    found = []
    for j in range(LANES):
        number, side = f"(p * 32 + {j})", ">" if transposed else "<"
        where = f"{number} * 3 * M + line" if transposed else f"line * 3 * M + {number}"
        mask = f"(line < M) & (lane {side} {j}) & (lane * 0 + {number} < M)"
        found.append(out.new(f"tl.load(own + {where}, mask={mask}, other=0.0)"))
    return found


def _solve_diagonal(out: Source, entries: list[str], *, transposed: bool) -> None:
    """Solve with that triangle or its transpose."""
    out("inverse = 1.0 / pivot")
    for j in range(LANES) if transposed else range(LANES - 1, -1, -1):
        out(f"w = w - {entries[j]} * {_broadcast(out, out.new('w * inverse'), j)}")
    out("w = w * inverse")


def back_body(out: Source, warps: int) -> None:
    """`R y = z` for the blocks of a level, with known neighbours."""
    _block(out, LANES * warps)
    out("y = y_ptr + b * wanted")
    with out.block("for turn in range(0, high):"):
        out("p = high - 1 - turn + program * 0")
        out("line = lane + p * 32")
        out("w = tl.load(z + line, mask=line < M, other=0.0)")
        triangle = _load_diagonal(out, transposed=False)
        with out.block("for item in range(0, 3 * few):"):
            out("part = item // few + program * 0")
            out("other = block + tl.where(part == 0, 0, tl.where(part == 1, -step, step))")
            out(f"k = row + item % few * {LANES * warps}")
            # Per row: the interpreter cannot combine scalar conditions.
            out("across = row * 0 + other")
            out("after = (row * 0 + part > 0) | (k >= p * 32 + 32)")
            out("there = (k < M) & (across >= 0) & (other * M + k < wanted) & after")
            entries = "own + line[None, :] * 3 * M + part * M + k[:, None]"
            _subtract_tile(out, "y + other * M + k", entries)
        _solve_diagonal(out, triangle, transposed=False)
        out("tl.store(y + block * M + line, w, mask=(line < M) & (block * M + line < wanted))")
        out("tl.debug_barrier()")


def _subtract_spills(out: Source, rows: int) -> None:
    """Subtract the spills of the levels below from columns `line` of this block."""
    with out.block("for part in range(0, stop):"):
        out(f"item = (row + part * {rows}).to(tl.int64)")
        out("behind = item % 2")
        out("power = item // 2")
        out("reach = (row * 0 + 1).to(tl.int64) << power")
        out("other = block + tl.where(behind > 0, reach, -reach)")
        out("there_at = (N - (N >> power) + ((other + 1) >> (power + 1))) * B + b")
        out("there = (item < 2 * below) & (other < N)")
        where = "(there_at * 2 * M + (1 - behind) * M)[:, None] + line[None, :]"
        mask = "mask=there[:, None] & (line < M)[None, :], other=0.0"
        out(f"w = w - tl.sum(tl.load(spill_ptr + {where}, {mask}), axis=0)")


def forward_body(out: Source, warps: int) -> None:
    """`R^T z = g` for the blocks of level `below`, and their spills to the neighbours.

    Every block of the levels below has a `spill` of `M` numbers for the previous and for the next
    block, to be subtracted.
    """
    _block(out, LANES * warps)
    with out.block("for turn in range(0, high):"):
        out("p = turn + program * 0")
        out("line = lane + p * 32")
        mask = "mask=(line < M) & (block * M + line < wanted), other=0.0"
        out(f"w = tl.load(g_ptr + b * wanted + block * M + line, {mask})")
        triangle = _load_diagonal(out, transposed=True)
        _subtract_spills(out, LANES * warps)
        with out.block("for c in range(0, few):"):
            out(f"k = row + c * {LANES * warps}")
            out("there = (k < M) & (k < p * 32)")
            _subtract_tile(out, "z + k", "own + k[:, None] * 3 * M + line[None, :]")
        _solve_diagonal(out, triangle, transposed=True)
        out("tl.store(z + line, w, mask=line < M)")
        out("tl.debug_barrier()")
    with out.block("for turn in range(0, 2 * high):"):
        out("side = turn // high + program * 0")
        out("line = lane + turn % high * 32")
        out("w = lane.to(tl.float64) * 0.0")
        with out.block("for c in range(0, few):"):
            out(f"k = row + c * {LANES * warps}")
            out("there = k < M")
            _subtract_tile(
                out, "z + k", "own + (k * 3 * M)[:, None] + ((1 + side) * M + line)[None, :]"
            )
        out("tl.store(spill_ptr + (here_at * 2 + side) * M + line, -w, mask=line < M)")


# ---------------------------------------------------------------- small blocks: one lane per column


def _small_block(out: Source, M: int) -> None:
    """As `_block`, with one lane per unknown."""
    out(f"M: tl.constexpr = {M}")
    _block(out, SMALL_ROWS)
    out("line = lane")
    out("inside = lane < M")
    out("inverse = 1.0 / tl.load(own + lane * (3 * M + 1), mask=inside, other=1.0)")


def _column(out: Source, where: str, mask: str = "inside") -> str:
    return out.new(f"tl.load(own + {where}, mask={mask}, other=0.0)")


def small_back_body(out: Source, M: int) -> None:
    """As `back_body`, for at most 32 unknowns."""
    _small_block(out, M)
    out("y = y_ptr + b * wanted")
    out("w = tl.load(z + lane, mask=inside, other=0.0)")
    beside = []
    for part, shift in ((1, "-step"), (2, "+step")):
        out(f"other = block {shift}")
        out("there = inside & (lane * 0 + other >= 0) & (other * M + lane < wanted)")
        known = out.new("tl.load(y + other * M + lane, mask=there, other=0.0)")
        beside.append((known, [_column(out, f"lane * {3 * M} + {part * M + k}") for k in range(M)]))
    above = [_column(out, f"lane * {3 * M} + {j}", f"lane < {j}") for j in range(M)]
    for known, columns in beside:
        for k, column in enumerate(columns):
            out(f"w = w - {column} * {_broadcast(out, known, k)}")
    for j in range(M - 1, 0, -1):
        out(f"w = w - {above[j]} * {_broadcast(out, out.new('w * inverse'), j)}")
    out("mask = inside & (block * M + lane < wanted)")
    out("tl.store(y + block * M + lane, w * inverse, mask=mask)")


def small_forward_body(out: Source, M: int) -> None:
    """As `forward_body`, for at most 32 unknowns."""
    _small_block(out, M)
    mask = "mask=inside & (block * M + lane < wanted), other=0.0"
    out(f"w = tl.load(g_ptr + b * wanted + block * M + lane, {mask})")
    behind = [_column(out, f"{j * 3 * M} + lane", f"inside & (lane > {j})") for j in range(M)]
    beside = [[_column(out, f"{j * 3 * M + part * M} + lane") for j in range(M)] for part in (1, 2)]
    _subtract_spills(out, SMALL_ROWS)
    spills = [out.new("lane.to(tl.float64) * 0.0") for _ in beside]
    for j in range(M):
        found = _broadcast(out, out.new("w * inverse"), j)
        out(f"w = w - {behind[j]} * {found}")
        spills = [
            out.new(f"{spill} + {columns[j]} * {found}")
            for spill, columns in zip(spills, beside, strict=True)
        ]
    out("tl.store(z + lane, w * inverse, mask=inside)")
    for side, spill in enumerate(spills):
        out(f"tl.store(spill_ptr + (here_at * 2 + {side}) * M + lane, {spill}, mask=inside)")
