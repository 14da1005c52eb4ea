"""Elimination with the rows in memory (`panels.py`).

The iteration and the layout of the factor are those of `eliminate.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from smnn._solver.gpu.emit import Source
from smnn._solver.gpu.lane.eliminate import Spec
from smnn._solver.gpu.tile.eliminate import PivotCheck, substitute
from smnn._solver.gpu.tile.panels import ROWS, Panels, Stage
from smnn._solver.gpu.tile.rows import central_rows, governing_rows, initial_rows, link_rows
from smnn._solver.gpu.tile.tiles import Tile


class _StoredPivotCheck(PivotCheck):
    """Pivot check on the stored rows of a finished time."""

    def add_time(self, time: str) -> None:
        panels, n = self._tiles, self._tiles.n
        out = panels.out
        out("tl.debug_barrier()")
        for _, k in panels.own:
            out(f"pivot{k} = zero")
        with out.block(f"for g in range(0, {len(panels.own)}):"):
            out(f"which = row + g * {ROWS}")
            start = panels.start("which")
            for i, block in enumerate(self._blocks):
                for _, k in panels.own:
                    mask = f"(which < {n})[:, None] & (col{k} < {n})[None, :]"
                    mask += "" if i else f" & (which[:, None] <= col{k}[None, :])"
                    where = f"{panels.cells(time)} + {start}[:, None] + ({i * n} + col{k})[None, :]"
                    x = out.new(f"tl.load({where}, mask={mask}, other=0.0)")
                    if not i:  # the diagonal holds reciprocal pivots
                        own = out.new(f"(which[:, None] == col{k}[None, :]) & ({x} != 0.0)")
                        x = out.new(f"tl.where({own}, 1.0 / tl.where({own}, {x}, 1.0), {x})")
                        out(f"pivot{k} += tl.sum(tl.where({own}, {x}, 0.0), axis=0)")
                    out(f"norm_{block}{k} += tl.sum({x} * {x}, axis=0)")
        self.move_on(time)


def _write(panels: Panels, rows: Iterable[Tile], first: int = 0) -> int:
    """Store rows in working memory; returns the number of groups so far."""
    for tile in rows:
        panels.put(first, tile)
        first += 1
    return first


def solve_body(out: Source, spec: Spec) -> None:
    panels, central = Panels(out, spec), spec.reach == 2
    count = len(panels.own)
    links, ties = list(range(count)), list(range(count, panels.area.groups))
    pivots = _StoredPivotCheck(panels, panels.before)
    out("bad = lane < 0")
    with out.block(f"for turn in range(0, L + {spec.reach}):"):
        out("t = turn + b * 0")
        if central:
            _write(panels, central_rows(panels), count)
            with out.block("if turn > 1:"):
                panels.reduce_into(Stage("abc", "(t - 2)", [ties] * count, final=True))
                pivots.add_time("(t - 2)")
        _write(panels, link_rows(panels))
        with out.block(f"if (turn > 0) & (turn < L + {1 if central else 2}):"):
            # Link rows are zero before their own column.
            some = [links[: p + 1] + ties for p in links]
            panels.reduce_into(Stage("bc", "(t - 1)", some, final=not central))
            if not central:
                pivots.add_time("(t - 1)")
        with out.block("if turn < L:"):
            panels.reduce_into(Stage("c", "t", [links[p:] + ties for p in links], own=True))
            _take_batches(panels, spec.Q)
            if spec.m_init:
                with out.block("if turn < T_init:"):
                    _take_more(panels, initial_rows(panels))
        out("tl.debug_barrier()")
    pivots.store()
    substitute(panels)


def _take_batches(panels: Panels, Q: int) -> None:
    """Add the equations, as many at a time as fit into working memory."""
    most = ROWS * len(panels.own)
    if most >= Q:
        _take_more(panels, governing_rows(panels, "0", Q))
        return
    with panels.out.block(f"for first in range(0, {Q}, {most}):"):
        _take_more(panels, governing_rows(panels, "first", most))


def _take_more(panels: Panels, rows: Iterable[Tile]) -> None:
    groups = list(range(_write(panels, rows)))
    panels.out("tl.debug_barrier()")
    panels.reduce_into(Stage("c", "t", [groups] * len(panels.own)))
