"""Rows at the first level of odd-even reduction (`solve.py`).

The sequence is a chain of blocks: of one time each, or of two for the `central` scheme, whose rows
span three. `local` are rows over one block, `link` rows over blocks `i - 1` and `i`; the outermost
links refer to blocks that do not exist. Both are laid out as `[block][sequence][row]`; a row holds
its columns, its right-hand side, and its magnitude.
"""

from __future__ import annotations

from typing import NamedTuple

from smnn._solver.gpu.emit import Source
from smnn._solver.rows import unit_link

LANES = 32
LOCAL_ARGUMENTS = ["B", "T", "Q", "high", "per", "extra", "own", "local_ptr"]
LINK_ARGUMENTS = ["B", "N", "T", "high", "start", "link_ptr"]


class Kind(NamedTuple):
    """Parameters of the source."""

    V: int
    m: int
    m_init: int
    reach: int
    varying: bool = False  # Whether `K` differs between steps (weights that depend on the order)

    @property
    def n(self) -> int:
        return self.V * self.m

    @property
    def M(self) -> int:
        """Unknowns per block."""
        return self.reach * self.n

    @property
    def slots(self) -> int:
        """Rows per link."""
        return self.n + (2 * self.V if self.reach == 2 else 0)


def tile(out: Source, rows: int = LANES) -> None:
    out("program = tl.program_id(0).to(tl.int64)")
    out(f"ROWS: tl.constexpr = {rows}")
    out(f"COLUMNS: tl.constexpr = {LANES}")
    out("row = tl.arange(0, ROWS)")
    out("lane = tl.arange(0, COLUMNS)")


def _begin(out: Source, count: str) -> None:
    """A program has 32 of `count` rows (`which`) of block or link `i` of sequence `b`."""
    tile(out)
    out(f"groups = ({count} + 31) // 32")
    out("place = program // groups")
    out("which = row + ((program % groups) * 32).to(tl.int32)")
    out("i = place // B + row.to(tl.int64) * 0")  # per row: scalar conditions cannot be combined
    out("b = place % B")
    out("most = row[:, None].to(tl.float64) * 0.0 + lane[None, :].to(tl.float64) * 0.0")
    out("blank = most")


def _finish(out: Source, pointer: str, count: str, M: int) -> None:
    """Store a chunk of columns, and update the magnitudes."""
    out(f"at = (place * {count} + which)[:, None] * {M + 2}")
    kept = f"(which < {count})[:, None] & (column <= {M})[None, :]"
    out(f"tl.store({pointer} + at + column[None, :], x, mask={kept})")
    out(f"size = tl.where((column < {M})[None, :], tl.abs(x), 0.0)")
    out("most = tl.maximum(most, tl.where(size == size, size, float('inf')))")


def _end(out: Source, pointer: str, count: str, M: int) -> None:
    where = f"{pointer} + (place * {count} + which) * {M + 2} + {M + 1}"
    out(f"tl.store({where}, tl.max(most, axis=1), mask=which < {count})")


def _initial(out: Source, kind: Kind, given: str, unknown: str) -> tuple[str, str]:
    """Weights and weighted initial values of the rows `given`, each over one unknown at `t`."""
    if not kind.m_init:
        return "blank_row", "blank_row"
    v, a = out.new(f"{unknown} // {kind.m}"), out.new(f"{unknown} % {kind.m}")
    known = out.new(f"{given} & ({a} < {kind.m_init})")
    where = f"b * wi_sb + t * wi_st + {v} * wi_sv + {a} * wi_sr"
    w = out.new(f"tl.load(wi_ptr + {where}, mask={known}, other=0.0)")
    where = f"b * u_sb + t * u_st + {v} * {kind.m_init} + {a}"
    return w, out.new(f"{w} * tl.load(u_ptr + {where}, mask={known}, other=0.0)")


class _Steps:
    """Rows `scale (K D y_{t+1} - K F D y_t)`: with mask `there`, of step `time`, number `r`."""

    def __init__(self, out: Source, kind: Kind, there: str, time: str, r: str) -> None:
        self._out, self._kind, self._there = out, kind, there
        self._v, self._order = out.new(f"{r} // {kind.m}"), out.new(f"{r} % {kind.m}")
        where = f"b * s_sb + ({time}) * s_st + {self._v} * s_sv"
        self._s = out.new(f"tl.load(s_ptr + {where}, mask={there}, other=1.0)")
        where = f"b * scale_sb + ({time}) * scale_st + {self._v} * scale_sv"
        self._w = out.new(f"tl.load(scale_ptr + {where}, mask={there}, other=0.0)")
        if kind.varying:
            own = f"{self._v} * k_sv + {self._order} * {kind.m}"
            self._at = out.new(f"b * k_sb + ({time}) * k_st + {own}")

    def entries(self, before: str, after: str) -> str:
        """Entries in columns `k`; `before` and `after` are masks of the two times of the step."""
        out, m = self._out, self._kind.m
        out(f"j = k % {m}")
        mine = out.new(f"{self._there}[:, None] & ((k // {m})[None, :] == {self._v}[:, None])")
        power = out.new("blank + 1.0")
        for q in range(1, m):
            power = out.new(f"tl.where((j >= {q})[None, :], {power} * {self._s}[:, None], {power})")
        new, old = out.new(f"{mine} & ({after})[None, :]"), out.new(f"{mine} & ({before})[None, :]")
        found = self._loaded(new, old) if self._kind.varying else self._known(new, old)
        return out.new(f"{self._w}[:, None] * {power} * {found}")

    def _loaded(self, new: str, old: str) -> str:
        """Entries of `K` and `-K F`, loaded with these masks."""
        out = self._out
        where = out.new(f"{self._at}[:, None] + j[None, :]")
        loads = [
            f"tl.load({name}_ptr + {where}, mask={mask}, other=0.0)"
            for name, mask in (("K", new), ("KF", old))
        ]
        return out.new(" - ".join(loads))

    def _known(self, new: str, old: str) -> str:
        """The same for weights of one, from constants; both are triangular."""
        out, m = self._out, self._kind.m
        K, KF = unit_link(m - 1, "central" if self._kind.reach == 2 else "smnn")
        found = "blank"
        for i in range(m):
            for j in range(i, m):
                here = out.new(f"({self._order} == {i})[:, None] & (j == {j})[None, :]")
                for x, sign, mask in ((K, 1.0, new), (KF, -1.0, old)):
                    value = sign * float(x[i][j])
                    found = out.new(f"tl.where({here} & {mask}, {value!r}, {found})")
        return found


def _columns(out: Source, n: int) -> None:
    out("column = (lane + chunk * 32).to(tl.int32)")
    out(f"h = column // {n}")
    out(f"k = column - h * {n}")


def local_body(out: Source, kind: Kind) -> None:
    """Rows over one block.

    For each time `per` rows: the equations, `extra` initial-value rows, and for a padding time
    after the last one, which completes a block of two, rows that set it to zero. Then the step
    between the two times of a block.
    """
    n, M, reach = kind.n, kind.M, kind.reach
    _begin(out, "own")
    out("blank_row = row.to(tl.float64) * 0.0")
    out("half = (which // per).to(tl.int32)" if reach == 2 else "half = which * 0")
    out("r = (which - half * per).to(tl.int32)")
    out(f"inside = which < {reach} * per")
    out(f"t = i * {reach} + half")
    out("governing = inside & (r < Q) & (t < T)")
    out("e = (r - Q - tl.where(r >= Q + extra, extra, 0)).to(tl.int32)")
    out("given = inside & (r >= Q) & (r < Q + extra) & (t < T_init)")
    unit, right = _initial(out, kind, "given", "e")
    out(f"unit = {unit}")
    if reach == 2:
        out("unit = unit + tl.where(inside & (r >= Q + extra) & (t >= T), 1.0, 0.0)")
        out("linked = (which >= 2 * per) & (which < own) & (2 * i + 1 < T)")
        steps = _Steps(out, kind, "linked", "2 * i", out.new("(which - 2 * per).to(tl.int32)"))
    where = "wg_ptr + b * wg_sb + t * wg_st + r * wg_sq"
    out(f"w = tl.load({where}, mask=governing, other=0.0)")
    where = "d_ptr + b * d_sb + t * d_st + r"
    out(f"right = {right} + w * tl.load({where}, mask=governing, other=0.0)")
    with out.block("for chunk in range(0, high):"):
        _columns(out, n)
        out(f"mine = (h[None, :] == half[:, None]) & (column < {M})[None, :]")
        where = f"c_ptr + (b * c_sb + t * c_st + r * {n})[:, None] + k[None, :]"
        out(f"c = tl.load({where}, mask=governing[:, None] & mine, other=0.0)")
        out("x = w[:, None] * c")
        out("x = x + tl.where(mine & (k[None, :] == e[:, None]), unit[:, None], 0.0)")
        out(f"x = x + tl.where((column == {M})[None, :], right[:, None], 0.0)")
        if reach == 2:
            out(f"x = x + {steps.entries('h == 0', 'h == 1')}")
        _finish(out, "local_ptr", "own", M)
    _end(out, "local_ptr", "own", M)


def link_body(out: Source, kind: Kind) -> None:
    """Rows over two blocks: the step between them, and central rows over three of their times.

    The link before the first block holds the initial values if there is one such time (`start` is
    1), so that the other blocks need no space for these rows.
    """
    n, M, reach, slots = kind.n, kind.M, kind.reach, kind.slots
    _begin(out, str(slots))
    out("blank_row = row.to(tl.float64) * 0.0")
    out("inside = (i > 0) & (i < N)")
    out("t = i * 0")
    out(f"given = (i < start) & (which < {n})")
    unit, right = _initial(out, kind, "given", "which")
    out(f"linked = inside & (which < {n})")
    steps = _Steps(out, kind, "linked", f"{reach} * i - 1", "which")
    if reach == 2:
        _central(out, kind)
    with out.block("for chunk in range(0, high):"):
        _columns(out, n)
        out(f"x = {steps.entries(f'h == {reach - 1}', f'h == {reach}')}")
        out(f"first = (column - {M})[None, :] == which[:, None]")
        out(f"x = x + tl.where(first, {unit}[:, None], 0.0)")
        out(f"x = x + tl.where((column == {2 * M})[None, :], {right}[:, None], 0.0)")
        if reach == 2:
            out("later = h[None, :] - half[:, None]")
            out(f"order = k[None, :] - v[:, None] * {kind.m}")
            below, top = f"(order == {kind.m - 2})", f"(order == {kind.m - 1})"
            out(f"x = x + tl.where((later == 2) & {below}, weight[:, None], 0.0)")
            out(f"x = x - tl.where((later == 0) & {below}, weight[:, None], 0.0)")
            out(f"x = x - tl.where((later == 1) & {top}, middle[:, None], 0.0)")
        _finish(out, "link_ptr", str(slots), 2 * M)
    _end(out, "link_ptr", str(slots), 2 * M)


def _central(out: Source, kind: Kind) -> None:
    """Rows `w H^(R-2) (y_t - y_{t-2} - H y'_{t-1})` with `t` one of the times of a block."""
    n, V, R = kind.n, kind.V, kind.m - 1
    out(f"half = (which - {n}) // {V}")
    out(f"v = (which - {n}) % {V}")
    out(f"central = inside & (which >= {n}) & (which < {kind.slots}) & (2 * i + half < T)")
    out("newest = 2 * i + half")
    steps = [f"s_ptr + b * s_sb + (newest - {ago}) * s_st + v * s_sv" for ago in (2, 1)]
    out("H = " + " + ".join(f"tl.load({x}, mask=central, other=1.0)" for x in steps))
    where = "wt_ptr + b * wt_sb + (newest - 2) * wt_st + v * wt_sv"
    out(f"weight = tl.load({where}, mask=central, other=0.0)")
    if R == 1:
        out("weight = weight / H")
    for _ in range(R - 2):
        out("weight = weight * H")
    out("middle = weight * H")
