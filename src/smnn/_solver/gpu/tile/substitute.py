"""Substitutions with a factor stored by `eliminate.py`."""

from __future__ import annotations

from smnn._solver.gpu.emit import Source
from smnn._solver.gpu.lane.eliminate import Spec, factor_cells
from smnn._solver.gpu.tile.tiles import LANES, Shape, Tiles, chunks


def _batch(n: int) -> int:
    """Columns or rows of the factor loaded per iteration.

    Measured optimum up to 64 unknowns; beyond, limited by the registers.
    """
    if n > 2 * LANES:
        return 8 if n <= 4 * LANES else 4
    return 4 if LANES <= n <= 48 else 16


def back_body(out: Source, n: int, reach: int, warps: int) -> None:
    """Solve `R y = z` from the last time to the first; lane `i` has the unknowns `i`, `i + 32`, ...

    `poison` is NaN or 0; `z` is stored in the output. Several warps do the same work redundantly.
    """
    own = [k for _, k in chunks("", n)]
    cells, width = factor_cells(n, reach, 0), (reach + 1) * n - 1
    for k in own:
        out(f"start{k} = col{k} * {width} - col{k} * (col{k} - 1) // 2")
        for r in range(reach + 1):
            out(f"y{r}_{k} = zero + poison")
    with out.block("for turn in range(0, L):"):
        out("t = L - 1 - turn + b * 0")
        out(f"cells = factor_ptr + (b * T + t) * {cells}")
        for k in own:
            for r in range(reach, 0, -1):
                out(f"y{r}_{k} = y{r - 1}_{k}")
            mask = f"mask=col{k} < {n}, other=0.0"
            out(f"z{k} = tl.load(y_ptr + (b * T + t) * {n} + col{k}, {mask})")
            out(f"inverse{k} = tl.load(cells + start{k} + col{k}, {mask})")
        if warps > 1:
            out("tl.debug_barrier()")  # before the right-hand side is overwritten
        for r in range(1, reach + 1):
            for p in own:
                _coupled(out, n, own, r, p)
        for p in reversed(own):
            _triangle(out, n, own[: p + 1], p)
        for k in own:
            out(f"y0_{k} = z{k} * inverse{k}")
            out(f"tl.store(y_ptr + (b * T + t) * {n} + col{k}, y0_{k}, mask=col{k} < {n})")


def _column(out: Source, own: list[int], column: str, mask: str) -> list[str]:
    masks = {k: mask.replace("ROW", f"col{k}") for k in own}
    return [
        out.new(f"tl.load(cells + start{k} + {column}, mask={x}, other=0.0)")
        for k, x in masks.items()
    ]


def _subtract(out: Source, own: list[int], column: list[str], x: str) -> None:
    for k, f in zip(own, column, strict=True):
        out(f"z{k} = z{k} - {f} * {x}")


def _coupled(out: Source, n: int, own: list[int], r: int, p: int) -> None:
    """Subtract the contribution of chunk `p` of the `r`-th later time."""
    count, batch = min(LANES, n - p * LANES), _batch(n)
    out(f"later = y{r}_{p}")
    out(f"first = {r * n + p * LANES} + b * 0")
    with (
        out.block(f"for group in range(0, {-(-count // batch)}):"),
        out.subroutine(*(f"z{k}" for k in own)),
    ):
        out(f"at = group * {batch}")
        columns = [
            _column(
                out, own, f"(first + {i} + at)",
                f"(ROW < {n}) & (lane * 0 + at + {i} < {count})",
            )
            for i in range(batch)
        ]  # fmt: skip
        for i, column in enumerate(columns):
            _subtract(out, own, column, out.new(f"tl.gather(later, lane * 0 + (at + {i}), 0)"))


def _triangle(out: Source, n: int, own: list[int], p: int) -> None:
    """Solve for the unknowns of chunk `p`, last to first."""
    batch = _batch(n)
    groups = -(-min(LANES, n - p * LANES) // batch)
    with out.block(f"for group in range(0, {groups}):"), out.subroutine(*(f"z{k}" for k in own)):
        out(f"at = {groups * batch - 1} - group * {batch}")
        which = [f"(at + {p * LANES - i})" for i in range(batch)]
        columns = [_column(out, own, j, f"(ROW < {j}) & (lane * 0 + {j} < {n})") for j in which]
        for i, column in enumerate(columns):
            x = out.new(f"z{p} * inverse{p}")
            _subtract(out, own, column, out.new(f"tl.gather({x}, lane * 0 + (at - {i}), 0)"))


def adjoint_body(out: Source, n: int, reach: int) -> None:
    """Solve `R^T z = g`, then `R y = z`; one warp per sequence."""
    spec = Spec(n, 1, 0, 0, "central" if reach == 2 else "smnn", left=False, varying=False)
    tiles = Tiles(out, spec, Shape(1, 1))
    own, batch = [k for _, k in tiles.own], _batch(n)
    keys = [(r, k) for r in range(reach + 1) for k in own]
    for r, k in keys:
        out(f"load{r}_{k} = zero")
    with out.block("for turn in range(0, L):"):
        out("t = turn + b * 0")
        out(f"cells = {tiles.cells('t')}")
        for k in own:
            where = f"g_ptr + (b * T + t) * {n} + col{k}"
            out(f"load0_{k} = load0_{k} + tl.load({where}, mask=col{k} < {n}, other=0.0)")
            out(f"z{k} = zero")
        for p in own:
            count = min(LANES, n - p * LANES)
            reached = [(r, k) for r, k in keys if r or k >= p]
            changed = [f"z{p}", *(f"load{r}_{k}" for r, k in reached)]
            groups = -(-count // batch)
            with out.block(f"for group in range(0, {groups}):"), out.subroutine(*changed):
                rows = []
                for i in range(batch):
                    out(f"j = group * {batch} + {p * LANES + i} + b * 0")
                    out(f"start = cells + {tiles.start('j')}")
                    row = []
                    for r, k in reached:
                        mask = f"(col{k} < {n}) & (lane * 0 + j < {n})"
                        mask += "" if r else f" & (col{k} >= j)"
                        where = f"start + {r * n} + col{k}"
                        row.append(out.new(f"tl.load({where}, mask={mask}, other=0.0)"))
                    rows.append(row)
                for i, row in enumerate(rows):
                    at = f"(lane * 0 + group * {batch} + {i})"
                    x = out.new(f"load0_{p} * {row[reached.index((0, p))]}")
                    x = out.new(f"tl.gather({x}, {at}, 0)")
                    out(f"z{p} = tl.where(lane == {at}, {x}, z{p})")
                    for (r, k), f in zip(reached, row, strict=True):
                        # The remainder in its own column is not used again.
                        out(f"load{r}_{k} = load{r}_{k} - {f} * {x}")
        for k in own:
            out(f"tl.store(y_ptr + (b * T + t) * {n} + col{k}, z{k}, mask=col{k} < {n})")
        for r, k in keys:
            out(f"load{r}_{k} = " + (f"load{r + 1}_{k}" if r < reach else "zero"))
    out("poison = zero")
    out("tl.debug_barrier()")
    back_body(out, n, reach, tiles.form.warps)
