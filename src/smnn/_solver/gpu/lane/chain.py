"""Elimination of the chain that couples the separators of pieces.

A node of the chain is a separator of `k` unknowns. Each piece contributes rows over its own
separator and the previous one, stored as `[warp][cell][lane]` (`coupling_cells`). Long chains are
cut into pieces themselves, whose separators form the next chain.
"""

from __future__ import annotations

from smnn._solver.gpu.emit import Row, Source, Triangle, insert, rotate
from smnn._solver.gpu.lane.eliminate import (
    coupling_cells,
    names,
    store_coupling,
    store_row,
    store_rows,
)
from smnn._solver.gpu.lane.norms import Norms


def _read(out: Source, k: int) -> tuple[list[Row], list[Row], list[str], list[str]]:
    """Rows of a node over its own columns `c` and those of the previous node `o`, and its norms."""
    cell, cells = 0, coupling_cells(k)

    def take() -> str:
        nonlocal cell
        where = f"in_ptr + (node // LANES * {cells} + {cell}) * LANES + node % LANES"
        value = out.new(f"tl.load({where}, mask=here, other=0.0)")
        cell += 1
        return value

    own = [{c: take() for c in [*names("c", k)[i:], *names("o", k), "r"]} for i in range(k)]
    old = [{c: take() for c in [*names("o", k)[i:], "r"]} for i in range(k)]
    own_norms, old_norms = [take() for _ in range(k)], [take() for _ in range(k)]
    if cell != cells:
        raise AssertionError("layout of the coupling rows differs from that written by the pieces")
    return own, old, own_norms, old_norms


def _place(out: Source, row: Row, k: int, *, left: bool) -> Row:
    """Rename columns of the previous node: `b` inside a piece, `L` at its first node."""
    placed = {c: x for c, x in row.items() if not c.startswith("o")}
    for i in range(k):
        if f"o{i}" in row:
            x = row[f"o{i}"]
            placed[f"b{i}"] = out.new(f"tl.where(inner, {x}, 0.0)") if left else x
            if left:
                placed[f"L{i}"] = out.new(f"tl.where(inner, 0.0, {x})")
    return placed


def _unknown(depth: int) -> str:
    """Index in the sequence of a node's first unknown, through `depth` levels of pieces.

    A level with as many nodes as pieces leaves the index unchanged.
    """
    node = "(t - 1)"
    for level in range(depth - 1, 0, -1):
        node = f"(({node} + 1) * (N{level} // P{level}) + tl.minimum({node} + 1, N{level} % P{level}) - 1)"
    return f"(({node} + 1) * (N0 // P0) + tl.minimum({node} + 1, N0 % P0)) * n0 - {{k}}"


def _merge_ratio_below(out: Source) -> None:
    """Merge the pivot ratio of the piece below into the worst one of the chain."""
    out("place = tl.maximum(t, 0) * B + b")
    out("ratio_below = tl.load(rcond_below_ptr + place, mask=here, other=1.0)")
    out("at_below = tl.load(weakest_below_ptr + place, mask=here, other=0)")
    out("bad_step = bad_step | (ratio_below < 0.0)")
    out("less = (ratio_below < worst) | (ratio_below != ratio_below)")
    out("worst = tl.where(less, ratio_below, worst)")
    out("worst_at = tl.where(less, at_below, worst_at)")


def chain_body(out: Source, k: int, *, left: bool, depth: int) -> None:
    b, c = names("b", k), names("c", k)
    L = names("L", k) if left else []
    last, left_triangle = Triangle("last", b, [*L, "r"]), Triangle("left", L, ["r"])
    norms = Norms(k, 1, k if left else 0)
    last.start(out, unit=True)
    left_triangle.start(out, unit=False)
    norms.start(out)
    out("bad_step = lane < 0")
    out("worst = zero + 1.0")
    out("worst_at = tl.zeros([LANES], dtype=tl.int64)")
    with out.block("for step in range(0, L):"):
        out("t = t0 + step - pad")
        out("here = t >= t0")
        out("inner = t > t0")
        out("node = b * T + tl.maximum(t, 0)")
        _merge_ratio_below(out)
        own, old, own_norms, old_norms = _read(out, k)
        rows, left_rows = last.rows(), left_triangle.rows()
        for row in old:
            placed = _place(out, row, k, left=left)
            insert(out, rows, b, placed)
            insert(out, left_rows, L, placed)
        for i in range(k):
            if left:
                out(f"norm_{i} = norm_{i} + tl.where(inner, {old_norms[i]}, 0.0)")
                out(f"left_norm_{i} = left_norm_{i} + tl.where(inner, 0.0, {old_norms[i]})")
            else:
                out(f"norm_{i} = norm_{i} + {old_norms[i]}")
        new = [_place(out, row, k, left=left) for row in own]
        for i in range(k if left else 0):
            new[i][f"c{i}"] = out.new(f"tl.where(here, {new[i][f'c{i}']}, 1.0)")
        out("known = valid & (step > 0)")
        for j in range(k):
            inverse: str | None = None
            for i in range(k - 1, -1, -1):
                inverse = rotate(out, rows[j], new[i], b[j]) or inverse
            norms.add_row(out, j, rows[j], [*b, *c], _unknown(depth).format(k=k))
            store_row(out, j, k, rows[j], [*b, *c], len(L), "step - 1", inverse, "known")
        norms.move_on(out)
        for i in range(k):
            out(f"norm_{i} = norm_{i} + {own_norms[i]}")
        last.carry(out, new, dict(zip(c, b, strict=True)))
        if left:
            left_triangle.carry(out, left_rows)
    rows = last.rows()
    if left:
        store_coupling(out, [(rows, b)], left_triangle.rows(), norms, k)
    else:
        out("t = zero.to(tl.int64) + L")
        norms.add(out, rows, [*b, *["-"] * k], _unknown(depth).format(k=k))
        store_rows(out, rows, [*b, *["-"] * k], 0, "L - 1", [None] * k)
    out("below = worst * worst * least_of < least")  # false for NaN, which must be kept
    out("below = below | (worst != worst)")
    out("least = tl.where(below, worst * worst, least)")
    out("least_of = tl.where(below, 1.0, least_of)")
    out("weakest = tl.where(below, worst_at, weakest)")
