"""Blocked Householder elimination for blocks whose rows exceed the registers.

As `tiles.py`, with the rows in memory. The columns to eliminate are processed in panels of 32: a
panel is factored in registers, then its reflections are applied to all later columns. Each number
is therefore loaded once per 32 reflections.

A triangle is stored in the place of the factor. Rows to be added to it are stored in working
memory, in groups of 32.
"""

from __future__ import annotations

from typing import NamedTuple

from smnn._solver.gpu.emit import Source, reduce_rows, reflect_rows, total
from smnn._solver.gpu.lane.eliminate import Spec
from smnn._solver.gpu.tile.tiles import LANES, Shape, Tile, Tiles

ROWS = 32  # Rows per group
TRAILING = range(2)
"""Chunks of trailing columns updated at a time; two halve the number of barriers."""


def form(n: int) -> Shape:
    """Smallest number of warps whose registers hold the rows of a panel."""
    return Shape(4 if n <= 128 else 8, ROWS)


class Area(NamedTuple):
    """Working memory of a sequence: the active rows over all blocks of columns."""

    groups: int
    chunks: int

    @property
    def width(self) -> int:
        """Words per row, including an unused chunk at the end."""
        return LANES * (self.chunks + 1)

    @property
    def words(self) -> int:
        return self.groups * ROWS * self.width


def area(n: int, V: int, reach: int) -> Area:
    """Working memory for link rows and, if `reach` is 2, central rows."""
    own, last = -(-n // LANES), -(-(n + 1) // LANES)
    return Area(own + (-(-V // ROWS) if reach == 2 else 0), reach * own + last)


class Stage(NamedTuple):
    """Rows to be reflected into a triangle."""

    blocks: str  # Blocks of columns of the rows, that of the triangle first
    time: str  # Time of the triangle
    groups: list[list[int]]  # Nonzero groups of rows for each panel
    own: bool = False  # Whether the triangle is new: row `j` of the rows becomes its row `j`
    final: bool = False
    """Whether the rows of the triangle are finished; they then store reciprocal pivots."""


class Panel(NamedTuple):
    """Columns of a triangle, as numbers or names of variables."""

    number: str
    low: str  # First column
    high: str  # End of the columns
    chunk: str  # Chunk in working memory


class Panels(Tiles):
    """Rows in working memory, and the application of reflections to them."""

    number = 511

    def __init__(self, out: Source, spec: Spec) -> None:
        super().__init__(out, spec, form(spec.n))
        self.area = area(spec.n, spec.V, spec.reach)
        self.before = "abc"[3 - self.blocks :]  # Blocks in their order in memory
        out(f"work = z_ptr + b * {self.area.words}")

    def chunk(self, block: str, k: int) -> int:
        """Index of a chunk among those of all blocks."""
        return len(self.own) * self.before.index(block) + k

    def place(self, group: int, chunk: str) -> str:
        rows = f"(row[:, None] + {group * ROWS}) * {self.area.width}"
        return f"work + {rows} + ({chunk} * {LANES} + lane)[None, :]"

    def put(self, group: int, tile: Tile) -> None:
        for (block, k), name in tile.items():
            self.out(f"tl.store({self.place(group, str(self.chunk(block, k)))}, {name})")

    def reduce_into(self, stage: Stage) -> None:
        """Reflect the rows of a stage into its triangle."""
        count, first = len(stage.groups), self.chunk(stage.blocks[0], 0)
        if count > 1 and not stage.own and all(x == stage.groups[0] for x in stage.groups):
            with self.out.block(f"for p in range(0, {count}):"):
                low = f"(p * {LANES})"  # the interpreter would turn a variable into a tensor
                last = f"p // {count - 1} * {count * LANES - self.n}"
                panel = Panel("p", low, f"{low} + {LANES} - {last}", f"({first} + p)")
                self._process_panel(stage, panel, stage.groups[0])
            return
        for p, groups in enumerate(stage.groups):
            high = min((p + 1) * LANES, self.n)
            panel = Panel(str(p), str(p * LANES), str(high), str(first + p))
            self._process_panel(stage, panel, groups, followed=first + p + 1 < self.area.chunks)

    def _process_panel(
        self, stage: Stage, panel: Panel, groups: list[int], *, followed: bool = True
    ) -> None:
        out, each = self.out, len(TRAILING)
        with out.subroutine(*(f"normal{g}" for g in groups), "heads", "scales", "swaps", "swapped"):
            self._factor_panel(stage, panel, groups)
        if followed:
            loop = f"for chunk in range({panel.chunk} + 1, {self.area.chunks}, {each}):"
            with out.subroutine(), out.block(loop):
                self._update_trailing(stage, panel, groups)

    def _top(self, stage: Stage, i: int, j: str, *, panel: bool = False) -> str:
        """Load chunk `i` of row `j` of the triangle."""
        if stage.own:
            return "zero"
        here = f"(lane * 0 + {j} < {self.n})"
        within = f"known{i} & (within{i} >= {j})" if panel else f"known{i}"
        where = f"{self.cells(stage.time)} + {self.start(j)} + offset{i}"
        kept = f"tl.load({where}, mask={within} & {here}, other=0.0)"
        where = f"y_ptr + (b * T + {stage.time}) * {self.n} + {j} + lane * 0"
        return f"{kept} + tl.load({where}, mask=right{i} & {here}, other=0.0)"

    def _next(self, stage: Stage, i: int, *, panel: bool = False) -> None:
        """Use the prefetched row `j` of the triangle, and prefetch the next."""
        self.out(f"top{i} = ahead{i}")
        self.out(f"ahead{i} = {self._top(stage, i, '(j + 1)', panel=panel)}")

    def _store(self, stage: Stage, i: int, value: str, mask: str) -> None:
        where = f"{self.cells(stage.time)} + {self.start('j')} + offset{i}"
        self.out(f"tl.store({where}, {value}, mask={mask})")
        where = f"y_ptr + (b * T + {stage.time}) * {self.n} + j + lane * 0"
        self.out(f"tl.store({where}, top{i}, mask=right{i})")

    def _where(self, stage: Stage, i: int, chunk: str) -> None:
        """Columns of a chunk, and their offsets in the triangle."""
        out, n, size = self.out, self.n, len(self.own)
        first, last = self.before.index(stage.blocks[0]), self.blocks - 1
        out(f"block{i} = tl.minimum(lane * 0 + {chunk} // {size}, {last})")
        out(f"within{i} = lane + ({chunk} - block{i} * {size}) * {LANES}")
        out(f"offset{i} = (block{i} - {first}) * {n} + within{i}")
        out(f"reached{i} = lane * 0 + {chunk} < {self.area.chunks}")
        out(f"kept{i} = reached{i} & (within{i} < {n})")
        # Columns of the new time are not stored yet.
        out(f"known{i} = kept{i}" + ("" if first == last else f" & (block{i} < {last})"))
        out(f"right{i} = reached{i} & (block{i} == {last}) & (within{i} == {n})")

    def _tips(self, groups: list[int]) -> None:
        """Column `here` of the normal vectors."""
        for g in groups:
            self.out(f"tip{g} = tl.gather(normal{g}, inside, 1)")

    def _dots(self, groups: list[int], rows: str) -> str:
        """Products of the rows with the normal vector, not yet summed."""
        return total(self.out, [f"tip{g} * {rows}{g}" for g in groups])

    def _factor_panel(self, stage: Stage, panel: Panel, groups: list[int]) -> None:
        """Factor a panel, and keep its reflections in registers."""
        out, chunk, p = self.out, panel.chunk, panel.number
        for g in groups:
            out(f"normal{g} = tl.load({self.place(g, chunk)})")
        for name in ("heads", "scales"):
            out(f"{name} = zero")
        out("swaps = lane * 0 - 1")
        self._where(stage, 0, chunk)
        out(f"ahead0 = {self._top(stage, 0, panel.low, panel=True)}")
        changed = [*(f"normal{g}" for g in groups), "heads", "scales", "swaps", "ahead0"]
        with self.columns(panel.low, panel.high, panel.low), out.subroutine(*changed):
            self._next(stage, 0, panel=True)
            if stage.own:
                chosen = out.new("(row[:, None] == inside) & (lane[None, :] >= inside)")
                top = out.new(f"tl.where({chosen}, normal{p}, 0.0)")
                out(f"normal{p} = tl.where({chosen}, 0.0, normal{p})")
            self._tips(groups)
            tips = {g: f"tip{g}" for g in groups}
            sizes, most = self.sizes(tips)
            values = {"top0": top} if stage.own else {}
            reduce_rows(out, values | {"dots0": self._dots(groups, "normal")}, most)
            out("pivot = tl.gather(top0, here, 0)")
            out("swap = lane * 0 - 1")
            rows = {g: {("", 0): f"normal{g}"} for g in groups}
            # Earlier columns hold the normal vectors of previous reflections.
            ahead = "(lane[None, :] >= inside)"
            with self.swap_rows(
                {("", 0): "top0"}, rows, "pivot", tips, [("", 0)], sizes, "most", ahead
            ):
                out(f"swap = most & {self.number}")
                out(f"dots0 = tl.sum({self._dots(groups, 'normal')}, axis=0)")
            head, scale, new = reflect_rows(out, "pivot", "dots0", "here")
            along = out.new(f"({head} * top0 + dots0) * {scale}")
            out(f"top0 = top0 - {along} * {head}")
            value = f"tl.where(lane == here, {new}, top0)" if stage.final else "top0"
            self._store(stage, 0, value, "kept0 & (lane >= here)")
            spread = out.new(f"blank + tl.where(lane > here, {along}, 0.0)[None, :]")
            for g in groups:
                out(f"normal{g} = normal{g} - {spread} * tip{g}")
            for name, x in (("heads", head), ("scales", scale), ("swaps", "swap")):
                out(f"{name} = tl.where(lane == here, {x}, {name})")
        out("swapped = tl.sum(tl.where(swaps >= 0, (lane * 0 + 1) << lane, 0), axis=0)")

    def _update_trailing(self, stage: Stage, panel: Panel, groups: list[int]) -> None:
        """Apply the reflections of a panel to trailing chunks, starting with number `chunk`."""
        out, p = self.out, panel.number
        for i in TRAILING:
            for g in groups:
                out(f"tile{i}_{g} = tl.load({self.place(g, f'(chunk + {i})')})")
            self._where(stage, i, f"(chunk + {i})")
            out(f"ahead{i} = {self._top(stage, i, panel.low)}")
        changed = [f"ahead{i}" for i in TRAILING]
        changed += [f"tile{i}_{g}" for i in TRAILING for g in groups]
        with self.columns(panel.low, panel.high, panel.low), out.subroutine(*changed):
            self._tips(groups)
            values = {}
            for i in TRAILING:
                self._next(stage, i)
                if stage.own:
                    mine = f"tile{i}_{p}"
                    values[f"top{i}"] = out.new(f"tl.where(row[:, None] == inside, {mine}, 0.0)")
                    out(f"{mine} = tl.where(row[:, None] == inside, 0.0, {mine})")
                values[f"dots{i}"] = self._dots(groups, f"tile{i}_")
            reduce_rows(out, values)
            with out.block(f"if ((swapped >> (j - {panel.low})) & 1) != 0:"):
                self._swap_trailing(groups)
            head, scale = (out.new(f"tl.gather({x}, here, 0)") for x in ("heads", "scales"))
            for i in TRAILING:
                along = out.new(f"({head} * top{i} + dots{i}) * {scale}")
                out(f"top{i} = top{i} - {along} * {head}")
                self._store(stage, i, f"top{i}", f"kept{i}")
                spread = out.new(f"blank + {along}[None, :]")
                for g in groups:
                    out(f"tile{i}_{g} = tile{i}_{g} - {spread} * tip{g}")
        for i in TRAILING:
            for g in groups:
                out(f"tl.store({self.place(g, f'(chunk + {i})')}, tile{i}_{g})")

    def _swap_trailing(self, groups: list[int]) -> None:
        out = self.out
        out("swap = tl.gather(swaps, here, 0)")
        masks = {g: out.new(f"row[:, None] + {g * ROWS} == swap[None, :]") for g in groups}
        for i in TRAILING:
            found = total(self.out, [f"tl.where({masks[g]}, tile{i}_{g}, 0.0)" for g in groups])
            for g in groups:
                out(f"tile{i}_{g} = tl.where({masks[g]}, blank + top{i}[None, :], tile{i}_{g})")
            out(f"top{i} = tl.sum({found}, axis=0)")
            out(f"dots{i} = tl.sum({self._dots(groups, f'tile{i}_')}, axis=0)")
