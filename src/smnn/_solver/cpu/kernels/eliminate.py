"""CPU kernel: orthogonal elimination of many sequences, or pieces of one, in SIMD lanes.

The unknowns of a piece (`frame.py`) are eliminated in time order by Givens rotations. If a
sequence is cut into several pieces, the last `reach` times of a piece (its separator) are not
eliminated, and the separator of the previous piece adds `k` extra columns on the right; the
remainder of each piece is a small triangle that couples two separators (`chain.py`).

A row of a block is laid out as `[own n | next n (| after-next n) | left k | rhs 1]`, so that every
rotation and every substitution accesses contiguous cells. `reach` is 1 for the `smnn` scheme
and 2 for `central`, whose top rows couple three times.
"""

from __future__ import annotations

from collections.abc import Mapping

from smnn._solver.cpu.kernels.emit import Cells, Code, Number, Value
from smnn._solver.cpu.kernels.frame import Frame, clear, copy, rotate
from smnn._solver.cpu.kernels.layout import coupling_cells
from smnn._solver.problem import scheme_of
from smnn._solver.rows import unit_link


class Elimination(Frame):
    """The state of the elimination: the blocks of the last times, and norms of their columns."""

    def __init__(self, known: Mapping[str, int]) -> None:
        super().__init__("eliminate", known)
        self.find_lanes()
        self.factors, self.z = self.factor()
        names = ("oldest", "old", "new")
        self.blocks = [(self.array(x), self.array(f"{x}_norms")) for x in names]
        self.row, self.left = self.array("row"), self.array("left")
        self.left_norms = self.array("left_norms")
        self.equations, self.links = self.array("equations"), self.array("links")
        self.powers, self.at_next_step = self.array("powers"), self.word()
        if self.straight:
            found = [self.code.local(1) for _ in range(4)]
        else:
            cells = self.array("near")  # unused by this kernel otherwise; at least two cells
            found = [cells.at(0), cells.at(1), self.array("far"), self.array("changes")]
        self.rcond, self.weakest, self.bad_step, self.high_order = self.found = found
        self.rcond[0] = float("inf")


def eliminate(known: Mapping[str, int]) -> Code:
    """Eliminate one group of lanes (layout in the module docstring)."""
    f = Elimination(known)
    e, L, reach = f.code, f["L"], f.reach
    oldest, old, new = f.blocks
    for step in e.range(0, L):
        t = f.start + step
        clear(f, new[0], f.n * f.width)
        clear(f, new[1], f.n)
        for _ in e.when(f["T"] > 1 if f.cut else step > 0):
            _read_link(f, t, step)
            _link_rows(f, t)
        for _ in e.when((reach == 1) & (step > 0)):
            _finish(f, old, step - 1)
        _governing_rows(f, t, step)
        _initial_rows(f, t, step)
        for _ in e.when(reach == 2):
            _central_rows(f, t, step)
            for _ in e.when(step > 1):
                _finish(f, oldest, step - 2)
            _replace(f, oldest, old)
        _replace(f, old, new)
    for _ in e.when(f.k == 0):  # the last blocks of pieces go to the chain of separators
        for _ in e.when((reach == 2) & (L > 1)):
            _finish(f, oldest, L - 2)
        for _ in e.when(f["open"] == 1):  # not final: its pivots will grow
            for j in e.range(0, f.n):
                old[1][j] = 1e-300
        _finish(f, old, L - 1)
    for _ in e.when(f.k > 0):
        _store_coupling(f)
    found = e.memory(f["@found"])
    for i, x in enumerate(f.found):
        found[f.group * 4 + i] = x[0]
    return e


def _replace(f: Elimination, to: tuple[Cells, Cells], of: tuple[Cells, Cells]) -> None:
    copy(f, to[0], of[0], f.n * f.width)
    copy(f, to[1], of[1], f.n)


def _insert(f: Elimination, step: Number, first: int = 2) -> None:
    """Rotate the row, over the new time or also those before (from block `first` on), into theirs.

    A row over the new time only begins with its columns, as if there were no time before.
    """
    e, n, span, k = f.code, f.n, f.span, f.k
    for block, (_, norms) in enumerate(f.blocks[first:]):
        for j in e.range(0, n):
            x = f.row[n * block + j]
            norms[j] = norms[j] + x * x
    for j in e.range(0, k if first < 2 else 0):
        x = f.row[span + j]
        f.left_norms[j] = f.left_norms[j] + x * x
    for block, (cells, _) in enumerate(f.blocks[first:]):
        for _ in e.when(step >= 2 - block if first < 2 else True):
            for j in e.range(0, n):
                column = n * block + j
                runs = (0, 0, n * (3 - first) - column), (span - j, span - column, k + 1)
                rotate(f, cells.at(j * f.width + j), f.row.at(column), *runs)
    for j in e.range(0, k):  # the remainder is over the left separator
        rotate(f, f.left.at(j * (k + 1) + j), f.row.at(span + j), (0, 0, k + 1 - j))


def _finish(f: Elimination, block: tuple[Cells, Cells], step: Number) -> None:
    """Store a finished block; update the smallest pivot relative to its column.

    Padding times have pivots of 1 in columns of norm 1, and are never the weakest.
    """
    e, n = f.code, f.n
    for j in e.range(0, n):
        row = block[0].at(j * f.width)
        pivot, norm, worst = row[j], block[1][j], f.rcond[0]
        square = pivot * pivot
        empty = norm == 0.0
        for _ in e.when(square.below_or_nan(worst * norm) | empty):
            ratio = e.select(empty, 0.0, square / norm)
            less = ratio.below_or_nan(f.rcond[0])
            f.weakest[0] = e.select(less, e.as_float(step * n + j), f.weakest[0])
            f.rcond[0] = e.select(less, ratio, f.rcond[0])
        start = f.factor_row(step, j)
        f.factors[start] = 1.0 / pivot
        for i in e.range(1, f.span + f.k - j):
            f.factors[start + i] = row[j + i]
        f.z[step * n + j] = row[f.width - 1]


# ---------------------------------------------------------------- rows


def _read_link(f: Elimination, t: Number, step: Number) -> None:
    """Powers `scale s^j` of the step before time `t`, and `-K F` and `K` of its rows."""
    e, V, m = f.code, f.V, f.m
    before = e.most(t - 1, 0)
    for _ in e.when(f.moves("s", step, 1) | f.moves("scale", step, 1)):
        f.look("s", before)
        f.look("scale", before)
        for v in e.range(0, V):
            h = f.number("s", v)
            f.bad_step[0] = e.select((h > 0.0) & (h < float("inf")), f.bad_step[0], 1.0)
            f.powers[v * m] = f.number("scale", v)
            for j in e.range(1, m):
                f.powers[v * m + j] = f.powers[v * m + (j - 1)] * h
    unit = unit_link(m - 1, scheme_of(f["unit"])) if f.straight and f["unit"] else None
    for _ in e.when(True if unit else f.moves("K", step, 1)):
        if not unit:
            f.look("K", before)
            f.look("KF", before)
        for i in e.range(0, f.n):
            for j in e.range(0, m):
                index = (i // m, i % m, j)
                K, KF = (
                    (float(x[i % m, j]) for x in unit) if unit
                    else (f.number(x, *index) for x in ("K", "KF"))
                )  # fmt: skip
                f.links[(i * m + j) * 2], f.links[(i * m + j) * 2 + 1] = -KF, K


def _link_rows(f: Elimination, t: Number) -> None:
    """Rotate in the rows of the step before time `t`.

    From the highest order on: the remainder of row i then starts at column i of the new block, so
    the new triangle needs no elimination of its own.
    """
    e, n, m, span, width = f.code, f.n, f.m, f.span, f.width
    _, (old, old_norms), (new, new_norms) = f.blocks
    for i in e.range(n - 1, -1, -1):
        clear(f, f.row, width)
        for column in e.range(i, i // m * m + m):
            cell = (i * m + column % m) * 2
            before = f.links[cell] * f.powers[column]
            after = f.links[cell + 1] * f.powers[column]
            if f.cut:  # the previous time may be in another piece, or the time be padding: y = 0
                edge = e.select((t > 0) & (t == f.t0), before, 0.0)
                for _ in e.when(f.k > 0):
                    left = f.k - n + column
                    f.row[span + left] = edge
                    f.left_norms[left] = f.left_norms[left] + edge * edge
                own = e.select(column == i, 1.0, 0.0)
                before = e.select(t > f.t0, before, 0.0)
                after = e.select(t < f.t0, own, e.select(t > 0, after, 0.0))
            f.row[column], f.row[n + column] = before, after
            old_norms[column] = old_norms[column] + before * before
            new_norms[column] = new_norms[column] + after * after
        for j in e.range(i, n):
            gap = n + i - j
            runs = (0, 0, n - j), (gap, gap, width - n - i)
            rotate(f, old.at(j * width + j), f.row.at(j), *runs)
        copy(f, new.at(i * width + i), f.row.at(n + i), n - i)
        copy(f, new.at(i * width + span), f.row.at(span), width - span)


def _governing_rows(f: Elimination, t: Number, step: Number) -> None:
    """Weighted rows `c . y = d`."""
    e, n, m = f.code, f.n, f.m
    for _ in e.when(f.moves("c", step) | f.moves("d", step) | f.moves("w_gov", step)):
        for name in ("c", "d", "w_gov"):
            f.look(name, t)
        for q in e.range(0, f.Q):
            w, start = f.number("w_gov", q), q * (n + 1)
            for j in e.range(0, n):
                x = f.number("c", q, j // m, j % m)
                for _ in e.when(j % m >= f["high"]):
                    f.high_order[0] = e.select(x != 0.0, 1.0, f.high_order[0])
                f.equations[start + j] = x * w
            f.equations[start + n] = f.number("d", q) * w
    for q in e.range(0, f.Q):
        clear(f, f.row, f.width)
        for j in e.range(0, n + 1):
            column = e.select(j == n, f.width - 1, j)
            f.row[column] = e.select(f.begun(t), f.equations[q * (n + 1) + j], 0.0)
        _insert(f, step)


def _initial_rows(f: Elimination, t: Number, step: Number) -> None:
    """Rows `w y = w u` at the times that have initial values."""
    e, T_init, m_init = f.code, f["T_init"], f["m_init"]
    inside = (t < T_init) & f.begun(t)
    for _ in e.when(inside):
        for name in ("u", "w_init"):
            f.look(name, e.most(e.least(t, T_init - 1), 0))
        for i in e.range(0, m_init * f.V, unrolled=False):  # rare: not worth more code
            v, r = i // m_init, i % m_init
            clear(f, f.row, f.width)
            w, u = f.number("w_init", v, r), f.number("u", v, r)
            here = inside if f.cut else True
            for j in e.range(0, f.n):
                f.row[j] = e.select(here, e.select(j == v * f.m + r, w, 0.0), 0.0)
            f.row[f.width - 1] = e.select(here, w * u, 0.0)
            _insert(f, step)


def _central_rows(f: Elimination, t: Number, step: Number) -> None:
    """Rows that couple the top derivative at `t - 1` with its neighbours."""
    e, n, m = f.code, f.n, f.m
    inside = t >= e.most(f.t0, 2)
    for _ in e.when(inside):
        f.look("s", e.most(t - 1, 0))
        f.at_next_step[0] = f.at["s"][0]
        f.look("s", e.most(t - 2, 0))
        f.look("w_top", e.most(t - 2, 0))
        for v in e.range(0, f.V):
            clear(f, f.row, f.width)
            H = f.number("s", v) + e.gather(f.at_next_step, f.offset("s", v))
            f.row[0] = f.number("w_top", v) / H
            for _ in e.range(1, m - 1):
                f.row[0] = f.row[0] * H
            w = e.select(inside if f.cut else True, f.row[0], 0.0)
            f.row[0] = 0.0
            column = v * m + m - 2
            for block, value in enumerate((-w, -w * H, w)):
                _place(f, t, block, column + 1 if block == 1 else column, value)
            _insert(f, step, first=0)


def _place(f: Elimination, t: Number, block: int, column: Number, value: Value) -> None:
    """Put an entry of a central row into its own column, or that of the left separator."""
    e, time = f.code, t - (2 - block)
    f.row[f.n * block + column] = e.select(f.begun(time), value, 0.0)
    for back in (1, 2) if f.cut else ():
        for _ in e.when(f.k > 0):
            left = f.span + (f.k - f.n * back) + column
            here = e.select(time == f.t0 - back, value, 0.0)
            f.row[left] = f.row[left] + here


def _store_coupling(f: Elimination) -> None:
    """Store the coupling rows of the pieces' own and left separators, and norms."""
    e, n, k, span = f.code, f.n, f.k, f.span
    size, where = k * 2 + 1, f.word()
    where[0] = (f.b * f["P"] + f.p) * (coupling_cells(k) * 8) + f["@coupling"]
    norms = k * 2 * size

    def put(cell: Number, x: Value) -> None:
        e.scatter(where, cell * 8, x)

    def put_block(block: tuple[Cells, Cells], number: Number, later: Number) -> None:
        for j in e.range(0, n):
            put(norms + number * n + j, block[1][j])
            row, target = block[0].at(j * f.width), (number * n + j) * size
            for x in e.range(j, later * n + n):
                put(target + number * n + x, row[x])
            for x in e.range(0, k + 1):
                put(target + k + x, row[span + x])

    for _ in e.when(f.reach == 2):
        put_block(f.blocks[0], 0, 1)
    put_block(f.blocks[1], f.reach - 1, 0)
    for j in e.range(0, k):
        put(norms + k + j, f.left_norms[j])
        for x in e.range(j, k + 1):
            put((k + j) * size + k + x, f.left[j * (k + 1) + x])
