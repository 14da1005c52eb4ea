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

from smnn._solver.cpu.emit import Cells, Code, Number, Value
from smnn._solver.cpu.frame import Frame, clear, copy, rotate
from smnn._solver.cpu.layout import coupling_cells, row_cells
from smnn._solver.problem import scheme_of
from smnn._solver.rows import unit_link


class Elimination(Frame):
    """The state of the elimination: the blocks of the last times, and norms of their columns."""

    def __init__(self, known: Mapping[str, int]) -> None:
        super().__init__("eliminate", known)
        self.find_lanes()
        self.factors, self.z = self.factor()
        names = ("oldest", "old", "new")
        self.oldest, self.old, self.new = (self.array(x) for x in names)
        norms = (self.array(f"{x}_norms") for x in names)
        self.oldest_norms, self.old_norms, self.new_norms = norms
        self.row, self.left = self.array("row"), self.array("left")
        self.left_norms = self.array("left_norms")
        self.equations, self.links = self.array("equations"), self.array("links")
        self.powers = self.array("powers")
        if self.straight:
            found = [self.code.local(1) for _ in range(4)]
        else:
            cells = self.array("near")  # unused by this kernel otherwise; at least two cells
            found = [cells.at(0), cells.at(1), self.array("far"), self.array("changes")]
        self.rcond, self.weakest, self.bad_step, self.high_order = found
        self.rcond[0] = float("inf")


def eliminate(known: Mapping[str, int]) -> Code:
    """Eliminate one group of lanes (layout in the module docstring)."""
    f = Elimination(known)
    e, L = f.code, f["L"]
    places = {x: f.word() for x in ("c", "d", "w_gov", "s", "scale", "K", "KF", "u", "w_init")}
    for step in e.range(0, L):
        t = f.start + step
        clear(f, f.new, f.n * f.width)
        clear(f, f.new_norms, f.n)
        for _ in e.when(f["T"] > 1 if f.cut() else step > 0):
            _read_link(f, places, t, step)
            _link_rows(f, t, step)
        for _ in e.when(e.both(e.same(f.reach, 1), step > 0)):
            _finish(f, f.old, f.old_norms, step - 1)
        _governing_rows(f, places, t, step)
        _initial_rows(f, places, t)
        for _ in e.when(e.same(f.reach, 2)):
            _central_rows(f, t, step)
            for _ in e.when(step > 1):
                _finish(f, f.oldest, f.oldest_norms, step - 2)
            copy(f, f.oldest, f.old, f.n * f.width)
            copy(f, f.oldest_norms, f.old_norms, f.n)
        copy(f, f.old, f.new, f.n * f.width)
        copy(f, f.old_norms, f.new_norms, f.n)
    for _ in e.when(e.same(f.k, 0)):  # the last blocks of pieces go to the chain of separators
        for _ in e.when(e.same(f.reach, 2)):
            for _ in e.when(L > 1):
                _finish(f, f.oldest, f.oldest_norms, L - 2)
        _finish(f, f.old, f.old_norms, L - 1)
    for _ in e.when(f.k > 0):
        _store_coupling(f)
    found = e.memory(f["@found"])
    for i, x in enumerate((f.rcond, f.weakest, f.bad_step, f.high_order)):
        found[f.group * 4 + i] = x[0]
    return e


def _insert(f: Elimination) -> None:
    """Rotate the row, which is over one time, into the triangle of that time."""
    e, n, span, k = f.code, f.n, f.span, f.k
    for j in e.range(0, n):
        x = f.row[j]
        f.new_norms[j] = f.new_norms[j] + x * x
    for j in e.range(0, n):
        tail = span - j
        rotate(f, f.new.at(j * f.width + j), f.row.at(j), (0, 0, n - j), (tail, tail, k + 1))
    _insert_left(f)


def _insert_left(f: Elimination) -> None:
    """Rotate the remainder of the row over the left separator into the left triangle."""
    for j in f.code.range(0, f.k):
        rotate(f, f.left.at(j * (f.k + 1) + j), f.row.at(f.span + j), (0, 0, f.k + 1 - j))


def _finish(f: Elimination, block: Cells, norms: Cells, step: Number) -> None:
    """Store a finished block; update the smallest pivot relative to its column.

    Padding times have pivots of 1 in columns of norm 1, and are never the weakest.
    """
    e, n, kept = f.code, f.n, f.span + f.k
    at = step * row_cells(n, f.reach, f.k)
    for j in e.range(0, n):
        row = block.at(j * f.width)
        pivot, norm, worst = row[j], norms[j], f.rcond[0]
        square = pivot * pivot
        empty = norm.equals(0.0)
        for _ in e.when(e.any(e.less_or_nan(square, worst * norm) | empty)):
            ratio = e.select(empty, 0.0, square / norm)
            less = e.less_or_nan(ratio, f.rcond[0])
            f.weakest[0] = e.select(less, e.as_float(step * n + j), f.weakest[0])
            f.rcond[0] = e.select(less, ratio, f.rcond[0])
        start = j * kept - (j * (j - 1)) // 2 + at
        f.factors[start] = 1.0 / pivot
        for i in e.range(1, kept - j):
            f.factors[start + i] = row[j + i]
        f.z[step * n + j] = row[f.width - 1]


# ---------------------------------------------------------------- rows


def _read_link(f: Elimination, places: dict[str, Cells], t: Number, step: Number) -> None:
    """Powers `scale s^j` of the step before time `t`, and `-K F` and `K` of its rows."""
    e, V, m = f.code, f.V, f.m
    before = e.most(t - 1, 0)
    for _ in e.when(e.either(f.moves("s", step, 1), f.moves("scale", step, 1))):
        for name in ("s", "scale"):
            places[name][0] = f.bases(name) + before * f[f"{name}.1"]
        for v in e.range(0, V):
            h = f.number(places["s"], "s", v)
            right = (h > 0.0) & (h < float("inf"))
            f.bad_step[0] = e.select(right, f.bad_step[0], 1.0)
            f.powers[v * m] = f.number(places["scale"], "scale", v)
            for j in e.range(1, m):
                f.powers[v * m + j] = f.powers[v * m + (j - 1)] * h
    if f.straight and f["unit"]:
        K, KF = unit_link(m - 1, scheme_of(f["unit"]))
        for i in range(f.n):
            for j in range(m):
                f.links[(i * m + j) * 2] = -float(KF[i % m, j])
                f.links[(i * m + j) * 2 + 1] = float(K[i % m, j])
        return
    for _ in e.when(f.moves("K", step, 1)):
        for name in ("K", "KF"):
            places[name][0] = f.bases(name) + before * f[f"{name}.1"]
        for i in e.range(0, f.n):
            for j in e.range(0, m):
                cell, index = (i * m + j) * 2, (i // m, i % m, j)
                f.links[cell] = -f.number(places["KF"], "KF", *index)
                f.links[cell + 1] = f.number(places["K"], "K", *index)


def _link_rows(f: Elimination, t: Number, step: Number) -> None:
    """Rotate in the rows of the step before time `t`.

    From the highest order on: the remainder of row i then starts at column i of the new block, so
    the new triangle needs no elimination of its own.
    """
    e, n, m, span, width = f.code, f.n, f.m, f.span, f.width
    for i in e.range(n - 1, -1, -1):
        clear(f, f.row, width)
        for column in e.range(i, i // m * m + m):
            cell = (i * m + column % m) * 2
            before = f.links[cell] * f.powers[column]
            after = f.links[cell + 1] * f.powers[column]
            if f.cut():  # the previous time may be in another piece, or the time be padding: y = 0
                edge = e.select((t > 0) & t.equals(f.t0), before, 0.0)
                for _ in e.when(f.k > 0):
                    f.row[span + f.k - n + column] = edge
                    left = f.k - n + column
                    f.left_norms[left] = f.left_norms[left] + edge * edge
                own = e.select(e.same(column, i), 1.0, 0.0)
                before = e.select(t > f.t0, before, 0.0)
                after = e.select(t > 0, after, 0.0)
                after = e.select(t < f.t0, own, after)
            f.row[column], f.row[n + column] = before, after
            f.old_norms[column] = f.old_norms[column] + before * before
            f.new_norms[column] = f.new_norms[column] + after * after
        for j in e.range(i, n):
            gap = n + i - j
            rotate(
                f, f.old.at(j * width + j), f.row.at(j), (0, 0, n - j), (gap, gap, width - n - i)
            )
        start = f.new.at(i * width)
        for j in e.range(i, n):
            start[j] = f.row[n + j]
        for j in e.range(span, width):
            start[j] = f.row[j]


def _governing_rows(f: Elimination, places: dict[str, Cells], t: Number, step: Number) -> None:
    """Weighted rows `c . y = d`; `places` tells where the lanes read."""
    e, n, m, Q = f.code, f.n, f.m, f.Q
    moving = e.either(f.moves("c", step), e.either(f.moves("d", step), f.moves("w_gov", step)))
    for _ in e.when(moving):
        for name in ("c", "d", "w_gov"):
            places[name][0] = f.bases(name) + t * f[f"{name}.1"]
        for q in e.range(0, Q):
            w, start = f.number(places["w_gov"], "w_gov", q), q * (n + 1)
            for j in e.range(0, n):
                x = f.number(places["c"], "c", q, j // m, j % m)
                for _ in e.when(j % m >= f["high"]):
                    f.high_order[0] = e.select(x.differs(0.0), 1.0, f.high_order[0])
                f.equations[start + j] = x * w
            f.equations[start + n] = f.number(places["d"], "d", q) * w
    for q in e.range(0, Q):
        clear(f, f.row, f.width)
        for j in e.range(0, n + 1):
            x = f.equations[q * (n + 1) + j]
            column = e.select(e.same(j, n), f.width - 1, j)
            f.row[column] = e.select(t >= f.t0, x, 0.0) if f.cut() else x
        _insert(f)


def _initial_rows(f: Elimination, places: dict[str, Cells], t: Number) -> None:
    """Rows `w y = w u` at the times that have initial values."""
    e, T_init = f.code, f["T_init"]
    inside = t < T_init
    if f.cut():
        inside = inside & (t >= f.t0)
    for _ in e.when(e.any(inside) if f.cut() else inside):
        for name in ("u", "w_init"):
            places[name][0] = f.bases(name) + e.most(e.least(t, T_init - 1), 0) * f[f"{name}.1"]
        m_init = f["m_init"]
        for i in e.range(0, m_init * f.V, unrolled=False):  # rare: not worth more code
            v, r = i // m_init, i % m_init
            clear(f, f.row, f.width)
            w, u = f.number(places["w_init"], "w_init", v, r), f.number(places["u"], "u", v, r)
            for j in e.range(0, f.n):
                here = e.select(e.same(j, v * f.m + r), w, 0.0)
                f.row[j] = e.select(inside, here, 0.0) if f.cut() else here
            f.row[f.width - 1] = e.select(inside, w * u, 0.0) if f.cut() else w * u
            _insert(f)


def _central_rows(f: Elimination, t: Number, step: Number) -> None:
    """Rows that couple the top derivative at `t - 1` with its neighbours."""
    e, n, m = f.code, f.n, f.m
    inside = t >= e.most(f.t0, 2)
    for _ in e.when(e.any(inside) if f.cut() else inside):
        at_s, at_w = [f.word(), f.word()], f.word()
        for back, where in ((2, at_s[0]), (1, at_s[1])):
            where[0] = f.bases("s") + e.most(t - back, 0) * f["s.1"]
        at_w[0] = f.bases("w_top") + e.most(t - 2, 0) * f["w_top.1"]
        for v in e.range(0, f.V):
            clear(f, f.row, f.width)
            H = f.number(at_s[0], "s", v) + f.number(at_s[1], "s", v)
            f.row[0] = f.number(at_w, "w_top", v) / H
            for _ in e.range(1, m - 1):
                f.row[0] = f.row[0] * H
            w = e.select(inside, f.row[0], 0.0) if f.cut() else f.row[0]
            f.row[0] = 0.0
            column = v * m + m - 2
            for block, value in enumerate((-w, -w * H, w)):
                cell = n * block + (column + 1 if block == 1 else column)
                if f.cut():  # times before the piece belong to the left separator
                    _place(f, t, block, cell, value)
                else:
                    f.row[cell] = value
            _insert_central(f, step)


def _place(f: Elimination, t: Number, block: int, cell: Number, value: Value) -> None:
    """Put an entry of a central row into its own column, or that of the left separator."""
    e, time = f.code, t - (2 - block)
    f.row[cell] = e.select(time >= f.t0, value, 0.0)
    column = cell - f.n * block
    for _ in e.when(f.k > 0):
        for back in (1, 2):
            left = f.span + (f.k - f.n * back) + column
            here = e.select(time.equals(f.t0 - back), value, 0.0)
            f.row[left] = f.row[left] + here


def _insert_central(f: Elimination, step: Number) -> None:
    e, n, span = f.code, f.n, f.span
    blocks = ((f.oldest, f.oldest_norms), (f.old, f.old_norms), (f.new, f.new_norms))
    for block, (_, norms) in enumerate(blocks):
        for j in e.range(0, n):
            x = f.row[n * block + j]
            norms[j] = norms[j] + x * x
    for j in e.range(0, f.k):
        x = f.row[span + j]
        f.left_norms[j] = f.left_norms[j] + x * x
    for block, (cells, _) in enumerate(blocks):
        for _ in e.when(step >= 2 - block):
            for j in e.range(0, n):
                column = n * block + j
                rotate(
                    f, cells.at(j * f.width + j), f.row.at(column), (0, 0, span - column),
                    (span - j, span - column, f.k + 1),
                )  # fmt: skip
    _insert_left(f)


def _store_coupling(f: Elimination) -> None:
    """Store the coupling rows of the pieces' own and left separators, and norms."""
    e, n, k, span = f.code, f.n, f.k, f.span
    size, where = k * 2 + 1, f.word()
    where[0] = (f.b * f["P"] + f.p) * (coupling_cells(k) * 8) + f["@coupling"]
    norms = k * 2 * size

    def put(cell: Number, x: Value) -> None:
        e.scatter(where, cell * 8, x)

    def put_block(block: Cells, squares: Cells, number: Number, later: Number) -> None:
        for j in e.range(0, n):
            put(norms + number * n + j, squares[j])
            row, target = block.at(j * f.width), (number * n + j) * size
            for x in e.range(j, later * n + n):
                put(target + number * n + x, row[x])
            for x in e.range(0, k + 1):
                put(target + k + x, row[span + x])

    for _ in e.when(e.same(f.reach, 2)):
        put_block(f.oldest, f.oldest_norms, 0, 1)
    put_block(f.old, f.old_norms, f.reach - 1, 0)
    for j in e.range(0, k):
        put(norms + k + j, f.left_norms[j])
        for x in e.range(j, k + 1):
            put((k + j) * size + k + x, f.left[j * (k + 1) + x])
