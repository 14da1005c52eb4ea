"""Elimination in tiles, one or several warps per sequence.

Factor and right-hand sides have the layout of `team/eliminate.py`. Columns are named `a` for the
time before last, `b` for the last time and `c` for the new one. An iteration adds one time:

- `central` only: the central rows, over `a, b, c`, are reflected into the triangle of the time
  before last, which is then finished;
- the links, and the remainder of the central rows, into the triangle of the last time;
- the remainder of all these and the equations form the triangle of the new time.
"""

from __future__ import annotations

from smnn._solver.gpu.emit import Source, poison, status_code
from smnn._solver.gpu.lane.eliminate import Spec
from smnn._solver.gpu.tile.rows import central_rows, governing_rows, initial_rows, link_rows
from smnn._solver.gpu.tile.substitute import back_body
from smnn._solver.gpu.tile.tiles import LANES, Chunk, Shape, Tile, Tiles


class _TriangleRows:
    """Rows of a time's triangle, prefetched one row ahead."""

    def __init__(self, tiles: Tiles, time: str, mask: str, blocks: str) -> None:
        """Prefetch the first row; `blocks` are those that the rows reach, their own first."""
        self._tiles, self._blocks, self._time, self._mask = tiles, blocks, time, mask
        for i, block in enumerate(blocks):
            for _, k in tiles.block(block):
                tiles.out(f"next_{block}{k} = {self._load(block, i, k, '0')}")

    def _load(self, block: str, i: int, k: int, j: str) -> str:
        tiles, n, parts = self._tiles, self._tiles.n, []
        mask = f"(lane * 0 + {j} < {n}) & {self._mask}"
        if block != "c" or not i:  # columns of the new time are not stored yet
            inside = f"(col{k} < {n})" + ("" if i else f" & (col{k} >= {j})")
            where = f"{tiles.cells(self._time)} + {tiles.start(j)} + {i * n} + col{k}"
            parts.append(f"tl.load({where}, mask={inside} & {mask}, other=0.0)")
        if block == "c" and k == tiles.right:
            where = f"y_ptr + (b * T + {self._time}) * {n} + {j} + lane * 0"
            parts.append(f"tl.load({where}, mask=(col{k} == {n}) & {mask}, other=0.0)")
        return " + ".join(parts) or "zero"

    def take(self) -> Tile:
        for i, block in enumerate(self._blocks):
            for _, k in self._tiles.block(block):
                self._tiles.out(f"top_{block}{k} = next_{block}{k}")
                self._tiles.out(f"next_{block}{k} = {self._load(block, i, k, '(j + 1)')}")
        return self._tiles.top(self._blocks)


def _store(
    tiles: Tiles, blocks: str, time: str, mask: str, inverse: str | None, first: int
) -> None:
    """Store row `j` of a time over these blocks, with the reciprocal of its pivot if finished.

    Of its own block, only the chunks from `first` on.
    """
    out, n, top = tiles.out, tiles.n, tiles.top(blocks)
    for i, block in enumerate(blocks):
        for _, k in tiles.own[0 if i else first :]:
            x, valid = top[block, k], f"(col{k} < {n}) & {mask}"
            if not i:
                x = out.new(f"tl.where(col{k} == j, {inverse}, {x})") if inverse else x
                valid += f" & (col{k} >= j)"
            where = f"{tiles.cells(time)} + {tiles.start('j')} + {i * n} + col{k}"
            out(f"tl.store({where}, {x}, mask={valid})")
    k = tiles.right
    where = f"y_ptr + (b * T + {time}) * {n} + j + lane * 0"
    out(f"tl.store({where}, {top['c', k]}, mask=(col{k} == {n}) & {mask})")


class PivotCheck:
    """Squared norms of the columns, and the smallest relative pivot per lane."""

    def __init__(self, tiles: Tiles, blocks: str) -> None:
        self._tiles, self._blocks, out = tiles, blocks, tiles.out
        for _, k in tiles.own:
            for block in blocks:
                out(f"norm_{block}{k} = zero")
            out(f"least{k} = zero + 1.0")
            out(f"least_of{k} = zero + 1.0")
            out(f"weakest{k} = lane.to(tl.int64) * 0")
            out(f"pivot{k} = zero")

    def take(self, top: Tile) -> None:
        out = self._tiles.out
        for block in self._blocks:
            for _, k in self._tiles.own:
                x = top[block, k]
                valid = f"col{k} >= j" if block == self._blocks[0] else "lane >= 0"
                out(f"norm_{block}{k} += tl.where({valid}, {x} * {x}, 0.0)")
        for _, k in self._tiles.own:
            x = top[self._blocks[0], k]
            out(f"pivot{k} = tl.where(col{k} == j, {x}, pivot{k})")

    def move_on(self, time: str) -> None:
        """Update the smallest pivot with a finished time, and shift the norms to the next."""
        out, n, first = self._tiles.out, self._tiles.n, self._blocks[0]
        for _, k in self._tiles.own:
            norm = f"norm_{first}{k}"
            square = out.new(f"pivot{k} * pivot{k}")
            empty = out.new(f"({norm} == 0.0) & (least{k} > 0.0)")
            less = out.new(f"({square} * least_of{k} < least{k} * {norm}) | {empty}")
            less = out.new(f"{less} & (col{k} < {n}) & (lane * 0 + {time} >= 0)")
            out(f"least{k} = tl.where({less}, {square}, least{k})")
            out(f"least_of{k} = tl.where({less}, tl.where({empty}, 1.0, {norm}), least_of{k})")
            out(f"weakest{k} = tl.where({less}, ({time}) * {n} + col{k}, weakest{k})")
            for here, there in zip(self._blocks, self._blocks[1:], strict=False):
                out(f"norm_{here}{k} = norm_{there}{k}")
            out(f"norm_{self._blocks[-1]}{k} = zero")

    def store(self) -> None:
        """Store the smallest pivot ratio of all columns (negative for a bad step) and its index."""
        out, own = self._tiles.out, [k for _, k in self._tiles.own]
        ratios = [out.new(f"tl.sqrt(least{k} / least_of{k})") for k in own]
        out("ratio = tl.min(" + _folded("tl.minimum", ratios) + ", axis=0)")
        far = "9223372036854775807"
        places = [
            out.new(f"tl.where({x} == ratio, weakest{k}, {far})")
            for k, x in zip(own, ratios, strict=True)
        ]
        out("weakest_at = tl.min(" + _folded("tl.minimum", places) + ", axis=0)")
        out("bad_step = tl.sum(bad.to(tl.int32), axis=0) > 0")
        out("ratio = tl.where(bad_step, -1.0, ratio)")
        out("tl.store(rcond_ptr + b, ratio)")
        out("tl.store(weakest_ptr + b, weakest_at)")


def _folded(function: str, values: list[str]) -> str:
    first, *rest = values
    for x in rest:
        first = f"{function}({first}, {x})"
    return first


def _segments(n: int, width: int) -> list[tuple[int, int]]:
    """Column ranges that do not cross the boundary of a chunk."""
    return [(low, min(low + width, n)) for low in range(0, n, width)]


def _triangle(tiles: Tiles, rows: list[Tile], *, further: bool = False) -> None:
    """Reduce these rows to the triangle of time `t`; with `further`, add them to it."""
    tops = _TriangleRows(tiles, "t", "(lane >= 0)", "c") if further else None
    for low, high in _segments(tiles.n, LANES):
        at = "c", low // LANES
        reached = [key for key in tiles.block("c") if key >= at]
        with tiles.columns(str(low), str(high), str(at[1] * LANES)):
            tiles.reflect(tops.take() if tops else None, rows, at, reached)
            _store(tiles, "c", "t", "(lane >= 0)", None, at[1])


def _eliminate(
    tiles: Tiles, rows: list[Tile], links: list[Tile], pivots: PivotCheck, blocks: str, *,
    final: bool,
) -> None:  # fmt: skip
    """Reflect rows into the triangle of an earlier time, that of the first block."""
    first = blocks[0]
    time = f"(t - {len(blocks) - 1})"
    mask = f"(lane * 0 + {time} >= 0) & (lane * 0 + {time} < L)"
    tops = _TriangleRows(tiles, time, mask, blocks)
    for low, high in _segments(tiles.n, 16):
        at = first, low // LANES
        reached: list[Chunk] = [key for key in tiles.block(first) if key >= at]
        reached += [key for block in blocks[1:] for key in tiles.block(block)]
        # Link rows are zero before their own column, so earlier reflections leave them unchanged.
        some = [*rows, *links[: tiles.groups(high)]]
        with tiles.columns(str(low), str(high), str(at[1] * LANES)):
            top = tops.take()
            inverse = tiles.reflect(top, some, at, reached)
            if final:
                pivots.take(top)
            _store(tiles, blocks, time, mask, inverse if final else None, at[1])
    if final:
        pivots.move_on(time)


def solve_body(out: Source, spec: Spec, form: Shape) -> None:
    central = spec.reach == 2
    tiles = Tiles(out, spec, form)
    pivots = PivotCheck(tiles, "abc" if central else "bc")
    out("bad = lane < 0")
    most = 4 * form.rows  # equations that fit into the registers
    with out.block(f"for turn in range(0, L + {spec.reach}):"):
        out("t = turn + b * 0")
        rows: list[Tile] = []
        if central:
            rows = list(central_rows(tiles))
            _eliminate(tiles, rows, [], pivots, "abc", final=True)
        links = list(link_rows(tiles))
        _eliminate(tiles, rows, links, pivots, "bc", final=not central)
        with out.block("if turn < L:"):
            _triangle(tiles, [*links, *rows, *governing_rows(tiles, "0", min(most, spec.Q))])
            if most < spec.Q:
                with out.block(f"for first in range({most}, {spec.Q}, {most}):"):
                    out("tl.debug_barrier()")
                    _triangle(tiles, list(governing_rows(tiles, "first", most)), further=True)
            if spec.m_init:
                with out.block("if turn < T_init:"):
                    out("tl.debug_barrier()")
                    _triangle(tiles, list(initial_rows(tiles)), further=True)
        out("tl.debug_barrier()")
    pivots.store()
    substitute(tiles)


def substitute(tiles: Tiles) -> None:
    """Store the pivot ratios, substitute back, and store the status."""
    out, n = tiles.out, tiles.n
    poison(out)
    out("tl.debug_barrier()")
    back_body(out, n, tiles.spec.reach, tiles.form.warps)
    wrong = " | ".join(f"((col{k} < {n}) & ~(tl.abs(y0_{k}) < float('inf')))" for _, k in tiles.own)
    out(f"finite = tl.sum(({wrong}).to(tl.int32), axis=0) == 0")
    status_code(out)
    out("tl.store(status_ptr + b, code.to(tl.int64))")
