"""Triton source of odd-even reduction (`_gpu_reduction.py`): all but the triangles themselves.

Blocks are numbered from 0 as they come in time. Level `l` eliminates every second of those that are
left: numbers `step (2 i + 1) - 1` with `step = 2^l`, whose neighbours are `step` away. A level has
`B` matrices for each of its blocks, and the factor has them all in that order, level by level: of
each, `M` rows over the block itself, the one before it and the one behind it, `M` columns each.
Loops are over parts of 32 columns (`high`), or over as many rows as a program takes (`few`).
"""

from __future__ import annotations

from smnn._backends._gpu_emit import Source

LANES = 32
ROW_ARGUMENTS = [
    "B", "M", "high", "stop", "slots", "own", "count", "width", "links",
    "link_ptr", "link_sb", "link_sk", "link_sr", "link_rows",
    "outer_ptr", "outer_sb", "outer_sr", "outer_rows",
    "local_ptr", "local_sb", "local_sk", "local_sr", "sizes_ptr",
]  # fmt: skip
BACK_ARGUMENTS = ["B", "N", "M", "high", "few", "step", "first", "factor_ptr", "z_ptr", "y_ptr"]
FORWARD_ARGUMENTS = [*BACK_ARGUMENTS[:-1], "stop", "g_ptr"]


def _tile(out: Source, rows: int = LANES) -> None:
    out("program = tl.program_id(0).to(tl.int64)")
    out(f"ROWS: tl.constexpr = {rows}")
    out(f"COLUMNS: tl.constexpr = {LANES}")
    out("row = tl.arange(0, ROWS)")
    out("lane = tl.arange(0, COLUMNS)")


def rows_body(out: Source, *, ordered: bool) -> None:
    """The rows of a level's matrices: how large they are, or in the order of that.

    Columns are those of the block itself, of the one before it and of the one behind it, and the
    right-hand side. A program has 32 rows of a matrix.
    """
    _tile(out)
    out("groups = (count + 31) // 32")
    out("matrix = program // groups")
    out("which = row + ((program % groups) * 32).to(tl.int32)")
    out("i = matrix // B")
    out("b = matrix % B")
    out("before = which < slots")
    out("after = (which >= slots) & (which < 2 * slots)")
    out("inner = (which >= 2 * slots) & (which < 2 * slots + own)")
    out("r = which - tl.where(before, 0, tl.where(after, slots, 2 * slots))")
    out("link = tl.where(before, 2 * i, 2 * i + 1)")
    out("known = (before | after) & (link < links) & (r < link_rows)")
    out("beyond = after & (link >= links) & (r < outer_rows)")
    out("link_at = b * link_sb + link * link_sk + r * link_sr")
    out("outer_at = b * outer_sb + r * outer_sr")
    out("local_at = b * local_sb + i * local_sk + r * local_sr")
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
        _row_chunk(out)
        if ordered:
            where = "a_ptr + (matrix * count + rank)[:, None] * width + column[None, :]"
            out(f"tl.store({where}, x, mask=(which < count)[:, None] & (column < width)[None, :])")
        else:
            out("size = tl.where(right[None, :], 0.0, tl.abs(x))")
            out("most = tl.maximum(most, tl.where(size == size, size, float('inf')))")
    if not ordered:
        out("most = tl.max(most, axis=1)")
        out("tl.store(sizes_ptr + matrix * count + which, most, mask=which < count)")


def _row_chunk(out: Source) -> None:
    """Some columns of the rows, `x`."""
    out("column = (lane + chunk * 32).to(tl.int32)")
    out("part = column // M")
    out("k = column - part * M")
    out("right = column == 3 * M")
    out("first = (part == 0)[None, :] & (row >= 0)[:, None]")
    out("second = first == before[:, None]")
    out("source = tl.where(right[None, :], 2 * M, tl.where(second, M, 0) + k[None, :])")
    out("beside = tl.where(before[:, None], (part == 1)[None, :], (part == 2)[None, :])")
    out("there = first | right[None, :] | beside")
    for name in ("link", "outer"):
        held = "known" if name == "link" else "beyond"
        mask = f"mask={held}[:, None] & there, other=0.0"
        out(f"{name}_x = tl.load({name}_ptr + {name}_at[:, None] + source, {mask})")
    out("source = tl.where(right, M, k)")
    mask = "mask=inner[:, None] & (first | right[None, :]), other=0.0"
    out(f"x = tl.load(local_ptr + local_at[:, None] + source[None, :], {mask})")
    out("x = x + link_x + outer_x")


def _block(out: Source, warps: int) -> None:
    """Which block of which sequence, and where its rows are."""
    _tile(out, LANES * warps)
    out("i = program // B")
    out("b = program % B")
    out("block = step * (2 * i + 1) - 1")
    out("here_at = first * B + program")
    out("own = factor_ptr + here_at * 3 * M * M")
    out("z = z_ptr + here_at * M")


def _take_off(out: Source, values: str, entries: str) -> None:
    """What entries, a tile of them, make of values that are known, where they are `there`."""
    out(f"v = tl.load({values}, mask=there, other=0.0)")
    mask = "there[:, None] & (line < M)[None, :]"
    out(f"tile = tl.load({entries}, mask={mask}, other=0.0)")
    out("w = w - tl.sum(tile * v[:, None], axis=0)")


def _solve_diagonal(out: Source, *, transposed: bool) -> None:
    """`w` is divided by the 32 x 32 triangle on the diagonal, or by its transpose."""
    out("pivot = tl.load(own + line * (3 * M + 1), mask=line < M, other=1.0)")
    out("inverse = 1.0 / pivot")

    def ask(j: str) -> None:
        number = f"(p * 32 + {j})"
        where = f"{number} * 3 * M + line" if transposed else f"line * 3 * M + {number}"
        side = ">" if transposed else "<"
        mask = f"(line < M) & (lane {side} {j}) & (lane * 0 + {number} < M)"
        out(f"next = tl.load(own + {where}, mask={mask}, other=0.0)")

    first, then = ("0", "jj") if transposed else ("31", "(31 - jj)")
    following = "(jj + 1)" if transposed else "(30 - jj)"
    ask(first)
    with out.block("for jj in range(0, 32):"):
        out("entries = next")
        ask(following)
        out(f"w = w - entries * tl.gather(w * inverse, lane * 0 + {then}, 0)")
    out("w = w * inverse")


def back_body(out: Source, warps: int) -> None:
    """`R y = z` for the blocks of a level, whose neighbours are known."""
    _block(out, warps)
    out("y = y_ptr + b * N * M")
    with out.block("for turn in range(0, high):"):
        out("p = high - 1 - turn + program * 0")
        out("line = lane + p * 32")
        out("w = tl.load(z + line, mask=line < M, other=0.0)")
        with out.block("for item in range(0, 3 * few):"):
            out("part = item // few + program * 0")
            out("other = block + tl.where(part == 0, 0, tl.where(part == 1, -step, step))")
            out(f"k = row + item % few * {LANES * warps}")
            # By row: in the interpreter, shared conditions mix with none.
            out("across = row * 0 + other")
            out("after = (row * 0 + part > 0) | (k >= p * 32 + 32)")
            out("there = (k < M) & (across >= 0) & (across < N) & after")
            entries = "own + line[None, :] * 3 * M + part * M + k[:, None]"
            _take_off(out, "y + other * M + k", entries)
        _solve_diagonal(out, transposed=False)
        out("tl.store(y + block * M + line, w, mask=line < M)")
        out("tl.debug_barrier()")


def forward_body(out: Source, warps: int) -> None:
    """`R^T z = g` for the blocks of level `stop`, with the blocks of all levels before it known."""
    _block(out, warps)
    with out.block("for turn in range(0, high):"):
        out("p = turn + program * 0")
        out("line = lane + p * 32")
        out("w = tl.load(g_ptr + (b * N + block) * M + line, mask=line < M, other=0.0)")
        out("start = program * 0")
        out("reach = program * 0 + 1")
        with out.block("for level in range(0, stop):"):
            with out.block("for item in range(0, 2 * few):"):
                out("side = item // few + program * 0")
                out("other = block - reach + side * 2 * reach")
                out("there_at = (start + ((other + 1) // reach - 1) // 2) * B + b")
                out(f"k = row + item % few * {LANES * warps}")
                out("there = (k < M) & (row * 0 + other < N)")
                entries = "factor_ptr + there_at * 3 * M * M + (k * 3 * M)[:, None]"
                entries += " + ((2 - side) * M + line)[None, :]"
                _take_off(out, "z_ptr + there_at * M + k", entries)
            out("start = start + (N // reach + 1) // 2")
            out("reach = reach * 2")
        with out.block("for c in range(0, few):"):
            out(f"k = row + c * {LANES * warps}")
            out("there = (k < M) & (k < p * 32)")
            _take_off(out, "z + k", "own + k[:, None] * 3 * M + line[None, :]")
        _solve_diagonal(out, transposed=True)
        out("tl.store(z + line, w, mask=line < M)")
        out("tl.debug_barrier()")
