"""Triton source of the kernels for the chain that couples the separators of pieces.

A node of the chain is a separator of `k` unknowns; a piece has left, in `[cell][lane]` order, rows
over its own separator and the one before (`coupling_cells`). Chains of many nodes are cut into
pieces themselves, whose separators form a chain in turn.
"""

from __future__ import annotations

from smnn._backends._gpu_emit import Row, Source, Triangle, insert, rotate
from smnn._backends._gpu_source import Norms, coupling_cells, hand_over, keep_rows, names


def _read(out: Source, k: int) -> tuple[list[Row], list[Row], list[str], list[str]]:
    """Rows of a node (own columns `c`, columns of the node before `o`), and its norms."""
    cell = 0

    def take() -> str:
        nonlocal cell
        value = out.new(f"tl.load(in_ptr + {cell} * IN_NL + node, mask=here, other=0.0)")
        cell += 1
        return value

    own = [{c: take() for c in [*names("c", k)[i:], *names("o", k), "r"]} for i in range(k)]
    old = [{c: take() for c in [*names("o", k)[i:], "r"]} for i in range(k)]
    own_norms, old_norms = [take() for _ in range(k)], [take() for _ in range(k)]
    if cell != coupling_cells(k):
        raise AssertionError("the chain reads another layout than the pieces write")
    return own, old, own_norms, old_norms


def _place(out: Source, row: Row, k: int, *, left: bool) -> Row:
    """Columns of the node before are `b` inside a piece and `L` at its first node."""
    placed = {c: x for c, x in row.items() if not c.startswith("o")}
    for i in range(k):
        if f"o{i}" in row:
            x = row[f"o{i}"]
            placed[f"b{i}"] = out.new(f"tl.where(inner, {x}, 0.0)") if left else x
            if left:
                placed[f"L{i}"] = out.new(f"tl.where(inner, 0.0, {x})")
    return placed


def _unknown(depth: int) -> str:
    """Which unknown of the sequence a node's first entry is: through `depth` levels of pieces."""
    node = "(t - 1)"
    for level in range(depth - 1, 0, -1):
        node = f"(({node} + 1) * (N{level} // P{level}) + tl.minimum({node} + 1, N{level} % P{level}) - 1)"
    return f"(({node} + 1) * (N0 // P0) + tl.minimum({node} + 1, N0 % P0)) * n0 - {{k}}"


def chain_body(out: Source, k: int, *, left: bool, depth: int) -> None:
    """The loop over the nodes of a piece of the chain."""
    b, c = names("b", k), names("c", k)
    L = names("L", k) if left else []
    last, left_triangle = Triangle("last", b, [*L, "r"]), Triangle("left", L, ["r"])
    norms = Norms(k, 1, k if left else 0)
    last.start(out, unit=True)
    left_triangle.start(out, unit=False)
    norms.start(out)
    out("bad_step = lane < 0")
    with out.block("for step in range(0, L):"):
        out("t = t0 + step - pad")
        out("here = t >= t0")
        out("inner = t > t0")
        out("node = b * T + tl.maximum(t, 0)")
        own, old, own_norms, old_norms = _read(out, k)
        rows, left_rows = last.rows(), left_triangle.rows()
        for row in old:
            placed = _place(out, row, k, left=left)
            insert(out, rows, b, placed)
            insert(out, left_rows, L, placed)
        inverse: list[str | None] = [None] * k
        new: list[Row] = [{} for _ in range(k)]
        for i in range(k - 1, -1, -1):
            placed = _place(out, own[i], k, left=left)
            if left:
                placed[f"c{i}"] = out.new(f"tl.where(here, {placed[f'c{i}']}, 1.0)")
            for j in range(k):
                inverse[j] = rotate(out, rows[j], placed, b[j]) or inverse[j]
            new[i] = placed
        for i in range(k):
            if left:
                out(f"norm_{i} = norm_{i} + tl.where(inner, {old_norms[i]}, 0.0)")
                out(f"left_norm_{i} = left_norm_{i} + tl.where(inner, 0.0, {old_norms[i]})")
            else:
                out(f"norm_{i} = norm_{i} + {old_norms[i]}")
        norms.add(out, rows, [*b, *c], _unknown(depth).format(k=k))
        for i in range(k):
            out(f"norm_{i} = norm_{i} + {own_norms[i]}")
        with out.block("if step > 0:"):
            keep_rows(out, rows, [*b, *c], len(L), "step - 1", inverse)
        last.carry(out, new, dict(zip(c, b, strict=True)))
        if left:
            left_triangle.carry(out, left_rows)
    rows = last.rows()
    if left:
        hand_over(out, [(rows, b)], left_triangle.rows(), norms, k)
        return
    out("t = zero.to(tl.int64) + L")
    norms.add(out, rows, [*b, *["-"] * k], _unknown(depth).format(k=k))
    keep_rows(out, rows, [*b, *["-"] * k], 0, "L - 1", [None] * k)
