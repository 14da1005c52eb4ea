"""Residual, pivot ratios and status after an odd-even reduction.

Rows of blocks and links have the layout of `blocks.py`.
"""

from __future__ import annotations

from smnn._solver.diagnostics import SMALLEST_PIVOT
from smnn._solver.gpu.emit import Source
from smnn._solver.gpu.reduction.blocks import tile

_ROWS = ["B", "N", "M", "wanted", "slots", "own", "high", "few", "stop", "link_ptr", "local_ptr"]
RESIDUAL_ARGUMENTS = [*_ROWS, "y_ptr", "g_ptr"]
RATIO_ARGUMENTS = [
    *_ROWS, "T", "V", "reach", "s_ptr", "s_sb", "s_st", "s_sv",
    "factor_ptr", "ratio_ptr", "where_ptr",
]  # fmt: skip
STATUS_ARGUMENTS = [
    "N", "n", "wanted", "high", "few", "ratio_ptr", "where_ptr", "y_ptr", "better_ptr",
    "rcond_ptr", "weakest_ptr", "status_ptr",
]  # fmt: skip
FINAL_ARGUMENTS = ["size", "wanted", "status_ptr", "better_ptr", "y_ptr"]
BAD_STEP, NO_NUMBER = -2.0, -1.0
"""Codes in place of a pivot ratio; the smallest value of a sequence takes precedence."""


def _links(out: Source) -> None:
    """Rows of the link before the block (`side` 0), then of the one after it."""
    out("side = item // few + program * 0")
    out("r = row + item % few * 32")
    out("link = i + side")
    out("at = ((link * B + b) * slots + r) * (2 * M + 2)")
    out("there = r < slots")


def _locals(out: Source) -> None:
    out("r = row + item * 32")
    out("at = ((i * B + b) * own + r) * (M + 2)")
    out("there = r < own")


def _own_columns(out: Source, pointer: str, shift: str) -> None:
    """Load columns `line` of the block, as `tile`."""
    where = f"{pointer} + at[:, None] + ({shift} + line)[None, :]"
    mask = "mask=there[:, None] & (line < M)[None, :], other=0.0"
    out(f"tile = tl.load({where}, {mask})")


def _left_over(out: Source, pointer: str, block: str, shift: str) -> None:
    """Subtract the contribution of a chunk `c` of a block from the residual."""
    out("k = lane + c % high * 32")
    out(f"other = {block} + program * 0")
    out("across = lane * 0 + other")
    out("mine = (k < M) & (across >= 0) & (across * M + k < wanted)")
    out("v = tl.load(y_ptr + b * wanted + other * M + k, mask=mine, other=0.0)")
    mask = "mask=there[:, None] & mine[None, :], other=0.0"
    out(f"tile = tl.load({pointer} + at[:, None] + ({shift} + k)[None, :], {mask})")
    out("left_over = left_over - tl.sum(tile * v[None, :], axis=1)")


def _start(out: Source) -> None:
    tile(out)
    out("i = program // B")
    out("b = program % B")


def residual_body(out: Source) -> None:
    """Transposed rows times residual: zero at the solution."""
    _start(out)
    with out.block("for p in range(0, high):"):
        out("line = lane + p * 32")
        out("g = lane.to(tl.float64) * 0.0")
        with out.block("for item in range(0, 2 * few):"):
            _links(out)
            out("left_over = tl.load(link_ptr + at + 2 * M, mask=there, other=0.0)")
            with out.block("for c in range(0, 2 * high):"):
                _left_over(out, "link_ptr", "link - 1 + c // high", "c // high * M")
            _own_columns(out, "link_ptr", "(1 - side) * M")
            out("g = g + tl.sum(tile * left_over[:, None], axis=0)")
        with out.block("for item in range(0, stop):"):
            _locals(out)
            out("left_over = tl.load(local_ptr + at + M, mask=there, other=0.0)")
            with out.block("for c in range(0, high):"):
                _left_over(out, "local_ptr", "i", "0")
            _own_columns(out, "local_ptr", "0")
            out("g = g + tl.sum(tile * left_over[:, None], axis=0)")
        kept = "(line < M) & (i * M + line < wanted)"
        out(f"tl.store(g_ptr + b * wanted + i * M + line, g, mask={kept})")


def ratio_body(out: Source) -> None:
    """Smallest pivot of a block relative to the norm of its column, and its unknown.

    Or a code for an invalid step to or inside the block, or for NaN.
    """
    _start(out)
    out("step = (i + 1) & (0 - (i + 1))")
    out("here_at = (N - N // step + (i + 1) // step // 2) * B + b")
    out("least = lane.to(tl.float64) * 0.0 + 2.0")
    out("least_at = lane.to(tl.float64) * 0.0")
    with out.block("for p in range(0, high):"):
        out("line = lane + p * 32")
        out("square = lane.to(tl.float64) * 0.0")
        with out.block("for item in range(0, 2 * few):"):
            _links(out)
            _own_columns(out, "link_ptr", "(1 - side) * M")
            out("square = square + tl.sum(tile * tile, axis=0)")
        with out.block("for item in range(0, stop):"):
            _locals(out)
            _own_columns(out, "local_ptr", "0")
            out("square = square + tl.sum(tile * tile, axis=0)")
        where = "factor_ptr + here_at * 3 * M * M + line * (3 * M + 1)"
        out(f"pivot = tl.abs(tl.load({where}, mask=line < M, other=0.0))")
        out("ratio = tl.where(square == 0.0, 0.0, pivot / tl.sqrt(square))")
        out(f"ratio = tl.where(ratio == ratio, ratio, {NO_NUMBER})")
        out("ratio = tl.where((line < M) & (i * M + line < wanted), ratio, 2.0)")
        out("v = lane * 0 + line")
        for late in (0, 1):  # steps that end with the block's first time, or with its second
            out(f"time = reach * i - 1 + {late} + v * 0")
            out(f"mine = (v < V) & (time >= 0) & (time < T - 1) & (v * 0 + reach > {late})")
            where = "s_ptr + b * s_sb + time * s_st + v * s_sv"
            out(f"s = tl.load({where}, mask=mine, other=1.0)")
            out(f"ratio = tl.where((s > 0.0) & (s < float('inf')), ratio, {BAD_STEP})")
        out("less = ratio < least")
        out("least_at = tl.where(less, (i * M + line).to(tl.float64), least_at)")
        out("least = tl.where(less, ratio, least)")
    out("low = tl.min(least, axis=0)")
    out("at = tl.min(tl.where(least == low, least_at, 1e300), axis=0)")
    for name, value in (("ratio", "low"), ("where", "at")):
        where = f"{name}_ptr + b * N + i + lane * 0"
        out(f"tl.store({where}, lane.to(tl.float64) * 0.0 + {value}, mask=lane == 0)")


def _corrected(out: Source, where: str, mask: str) -> None:
    """Refined value `x`. The residual may overflow where the solution does not."""
    out(f"better = tl.load(better_ptr + {where}, mask={mask}, other=0.0)")
    out("better = tl.where(tl.abs(better) < float('inf'), better, 0.0)")
    out(f"x = tl.load(y_ptr + {where}, mask={mask}, other=0.0) + better")


def status_body(out: Source) -> None:
    """Store smallest ratio, its index, and the status of a sequence."""
    out("b = tl.program_id(0).to(tl.int64)")
    out("thread = tl.arange(0, LANES)")
    out("zero = tl.zeros([LANES], dtype=tl.float64)")
    out("least = zero + 2.0")
    out("least_at = zero")
    with out.block("for c in range(0, few):"):
        out("place = thread + c * LANES")
        out("ratio = tl.load(ratio_ptr + b * N + place, mask=place < N, other=2.0)")
        out("at = tl.load(where_ptr + b * N + place, mask=place < N, other=0.0)")
        out("less = ratio < least")
        out("least_at = tl.where(less, at, least_at)")
        out("least = tl.where(less, ratio, least)")
    out("low = tl.min(least, axis=0)")
    out("at = tl.min(tl.where(least == low, least_at, 1e300), axis=0)")
    out("wrong = zero")
    with out.block("for c in range(0, high):"):
        out("place = thread + c * LANES")
        _corrected(out, "b * wanted + place", "place < n")
        out("wrong = tl.where(tl.abs(x) < float('inf'), wrong, 1.0)")
    out("ratio = zero + low")
    out("finite = (zero + tl.max(wrong, axis=0)) == 0.0")
    out(f"code = tl.where(ratio > {SMALLEST_PIVOT}, tl.where(finite, 0, 2), 3)")
    out(f"code = tl.where(ratio == {NO_NUMBER}, 2, code)")
    out(f"code = tl.where(ratio == {BAD_STEP}, 1, code)")
    out(f"ratio = tl.where(ratio == {NO_NUMBER}, float('nan'), ratio)")
    out(f"ratio = tl.where(ratio == {BAD_STEP}, -1.0, ratio)")
    out("only = thread == 0")
    out("tl.store(rcond_ptr + b + thread * 0, ratio, mask=only)")
    out("tl.store(weakest_ptr + b + thread * 0, (zero + at).to(tl.int64), mask=only)")
    out("tl.store(status_ptr + b + thread * 0, code.to(tl.int64), mask=only)")


def final_body(out: Source) -> None:
    """Store the refined solution; NaN for failed sequences."""
    out("lane = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)")
    out("valid = lane < size")
    _corrected(out, "lane", "valid")
    out("status = tl.load(status_ptr + lane // wanted, mask=valid, other=0)")
    out("tl.store(y_ptr + lane, tl.where(status == 0, x, float('nan')), mask=valid)")
