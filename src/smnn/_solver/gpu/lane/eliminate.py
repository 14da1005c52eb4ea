"""Elimination with one lane per piece or sequence, in unrolled source.

The algorithm is that of `cpu/eliminate.py`; two lanes may share a whole sequence (`time_index.py`).
Factor, right-hand sides and couplings are laid out as `[warp][step][cell][lane]`, so that the
accesses of a warp are coalesced and sequential. Columns are named `a0..` for the time before last,
`b0..` for the last time, `c0..` for the new time, `L0..` for the left separator and `r` for the
right-hand side.
"""

from __future__ import annotations

from typing import NamedTuple

from smnn._solver.gpu.emit import (
    Row,
    Source,
    Triangle,
    central_weight,
    fill,
    insert,
    prefetching_load,
    rotate,
)
from smnn._solver.gpu.lane.norms import Norms
from smnn._solver.gpu.lane.time_index import TimeIndex
from smnn._solver.rows import unit_link

Blocks = list[tuple[list[Row], list[str]]]  # Triangles with the columns of their diagonals
MOST_PREFETCHED = 16  # Maximum number of coefficients per lane that are prefetched one step ahead


class Spec(NamedTuple):
    """Parameters of the unrolled source."""

    V: int
    m: int
    Q: int
    m_init: int
    scheme: str
    left: bool  # Whether sequences are cut into pieces
    varying: bool  # Whether `K` differs between steps (weights that depend on the order)
    pairs: bool = False  # Whether two lanes process a sequence from both ends

    @property
    def n(self) -> int:
        return self.V * self.m

    @property
    def reach(self) -> int:
        return 2 if self.scheme == "central" else 1

    @property
    def orders(self) -> int:
        """Orders per variable if lanes work in pairs, else 0 (`time_index.py`)."""
        return self.m if self.pairs else 0


def names(letter: str, count: int) -> list[str]:
    return [f"{letter}{i}" for i in range(count)]


def factor_cells(n: int, reach: int, k: int) -> int:
    """Numbers of the factor per time and lane."""
    return n * (n + 1) // 2 + n * (reach * n + k)


def coupling_cells(k: int) -> int:
    """Numbers passed from a piece to the chain: two triangles, a square, two vectors, norms."""
    return k * (k + 1) + k * k + 4 * k


def at_cell(pointer: str, line: str, cells: int, cell: int) -> str:
    """Address of a number in a line of `cells` numbers per lane."""
    return f"{pointer} + (({line}) * {cells} + {cell}) * LANES + thread"


def at_step(pointer: str, step: str, cells: int, cell: int) -> str:
    """Address of one of the `cells` numbers that a lane stores per time."""
    return at_cell(pointer, f"line + ({step})", cells, cell)


def store(out: Source, address: str, value: str, mask: str = "valid") -> None:
    out(f"tl.store({address}, {value}, mask={mask})")


def store_rows(
    out: Source, rows: list[Row], columns: list[str], k: int, step: str, inverse: list[str | None]
) -> None:
    """Store finished rows: reciprocal pivot, own, later and left columns, right-hand side."""
    for j, row in enumerate(rows):
        store_row(out, j, len(rows), row, columns, k, step, inverse[j])


def store_row(
    out: Source, j: int, n: int, row: Row, columns: list[str], k: int, step: str,
    inverse: str | None, mask: str = "valid",
) -> None:  # fmt: skip
    """Store row `j` of the `n` rows of a time."""
    cells = n * (n + 1) // 2 + n * (len(columns) - n + k)
    at = j * (len(columns) + k) - j * (j - 1) // 2
    pivot = inverse or out.new(f"1.0 / {row[columns[j]]}")
    values = [pivot, *(row.get(c, "zero") for c in [*columns[j + 1 :], *names("L", k)])]
    for i, value in enumerate(values):
        store(out, at_step("factor_ptr", step, cells, at + i), value, mask)
    store(out, at_step("z_ptr", step, n, j), row.get("r", "zero"), mask)


def _prefetch_steps(index: TimeIndex, spec: Spec, step: str) -> None:
    """Prefetch step size and weight one step ahead."""
    out = index.out
    index.prefetch_link(step)
    for v in range(spec.V):
        where = f"s_ptr + b * s_sb + coming * s_st + {v} * s_sv"
        out(f"s{v} = {prefetching_load(where, 'wanted', 1.0)}")
        where = f"b * scale_sb + coming * scale_st + {v} * scale_sv"
        out(f"w{v} = tl.load(scale_ptr + {where}, mask=wanted, other=0.0)")


class _Governing:
    """Loads of the equations and their weights; small ones are prefetched one step ahead."""

    def __init__(self, index: TimeIndex, spec: Spec) -> None:
        self._index, self._out, self._spec = index, index.out, spec
        self._early = spec.Q * (spec.n + 2) <= MOST_PREFETCHED
        if self._early:
            self.prefetch("0")

    def _loads(self, t: str, mask: str) -> list[list[str]]:
        n, rows = self._spec.n, []
        for q in range(self._spec.Q):
            weight = f"wg_ptr + b * wg_sb + {t} * wg_st + {q} * wg_sq"
            where = [f"c_ptr + b * c_sb + {t} * c_st + {q * n + i}" for i in range(n)]
            where += [f"d_ptr + b * d_sb + {t} * d_st + {q}"]
            rows.append([f"tl.load({weight}, mask={mask}, other=0.0)"])
            rows[-1] += [prefetching_load(x, mask) for x in where]
        return rows

    def prefetch(self, step: str) -> None:
        if not self._early:
            return
        out = self._out
        self._index.prefetch_time(step)
        for q, row in enumerate(self._loads("coming", "wanted")):
            for i, x in enumerate(row):
                out(f"gov{q}_{i} = {x}")

    def take(self) -> list[list[str]]:
        rows = self._loads("now", "own")
        if self._early:
            rows = [[f"gov{q}_{i}" for i in range(len(row))] for q, row in enumerate(rows)]
        return [[self._out.new(x) for x in row] for row in rows]


def _link_rows(out: Source, spec: Spec) -> list[Row]:
    """Rows `scale (K D y_t - K F D y_{t-1})`, columns `b` (`L` at a piece's first time) and `c`."""
    V, m, n = spec.V, spec.m, spec.n
    k = spec.reach * n
    K, KF = (x.tolist() for x in unit_link(m - 1, spec.scheme))
    rows: list[Row] = []
    for v in range(V):
        s, w = out.new(f"s{v}"), out.new(f"w{v}")
        out(f"bad_step = bad_step | (linked & ~(({s} > 0.0) & ({s} < float('inf'))))")
        powers = [w]
        for _ in range(1, m):
            powers.append(out.new(f"{powers[-1]} * {s}"))
        for i in range(m):
            row: Row = {}
            for j in range(i, m):
                if spec.varying:
                    where = f"b * k_sb + before * k_st + {v} * k_sv + {i * m + j}"
                    where += ", mask=linked, other=0.0"
                    new = out.new(f"{powers[j]} * tl.load(K_ptr + {where})")
                    old = out.new(f"-{powers[j]} * tl.load(KF_ptr + {where})")
                else:
                    if K[i][j] == 0.0 and KF[i][j] == 0.0:
                        continue
                    new = out.new(f"{powers[j]} * {K[i][j]!r}")
                    old = out.new(f"{powers[j]} * {-KF[i][j]!r}")
                column = v * m + j
                if spec.left:
                    row[f"b{column}"] = out.new(f"tl.where(inner, {old}, 0.0)")
                    row[f"L{k - n + column}"] = out.new(f"tl.where(inner, 0.0, {old})")
                else:
                    row[f"b{column}"] = old
                # Times before the first one of the lane are set to zero.
                gaps = (spec.left or spec.orders) and i == j
                row[f"c{column}"] = out.new(f"tl.where(here, {new}, 1.0)") if gaps else new
            rows.append(row)
    return rows


def _local_rows(
    index: TimeIndex, spec: Spec, triangle: list[Row], left: list[Row], loads: list[list[str]]
) -> None:
    """Rotate the governing rows, then the initial rows, into the new triangle."""
    out, V, m, n = index.out, spec.V, spec.m, spec.n
    columns, k = names("c", n), spec.reach * n if spec.left else 0
    for w, *entries, right in loads:
        row = {f"c{i}": out.new(index.directed(f"{w} * {x}", i)) for i, x in enumerate(entries)}
        row["r"] = out.new(f"{w} * {right}")
        insert(out, triangle, columns, row)
        insert(out, left, names("L", k), row)
    if not spec.m_init:
        return
    tail = [*names("L", k), "r"]
    fill(out, triangle, columns, tail)
    state = Triangle("local", columns, tail)
    state.carry(out, triangle)
    if spec.left:
        left_state = Triangle("left", names("L", k), ["r"])
        left_state.carry(out, left)
    with out.block(f"if {index.may_be_initial()}:"):
        inside, inside_left = state.rows(), left_state.rows() if spec.left else []
        out("early = own & (t < T_init)")
        for v in range(V):
            for r in range(spec.m_init):
                where = f"b * wi_sb + now * wi_st + {v} * wi_sv + {r} * wi_sr"
                w = out.new(f"tl.load(wi_ptr + {where}, mask=early, other=0.0)")
                where = f"b * u_sb + now * u_st + {v * spec.m_init + r}"
                x = out.new(f"tl.load(u_ptr + {where}, mask=early, other=0.0)")
                turned = out.new(index.directed(w, r))
                row = {f"c{v * m + r}": turned, "r": out.new(f"{w} * {x}")}
                insert(out, inside, columns, row)
                insert(out, inside_left, names("L", k), row)
        state.carry(out, inside)
        if spec.left:
            left_state.carry(out, inside_left)
    triangle[:] = state.rows()
    if spec.left:
        left[:] = left_state.rows()


def _central_rows(out: Source, spec: Spec, blocks: Blocks, left: list[Row]) -> None:
    """Rows `w H^(R-2) (y_t - y_{t-2} - H y'_{t-1})` at the top order, for `t >= 2`."""
    V, m, n, R = spec.V, spec.m, spec.n, spec.m - 1
    k = 2 * n if spec.left else 0
    for v in range(V):
        out("central = here & (t > 1)")
        steps = (f"s_ptr + b * s_sb + (now - {ago}) * s_st + {v} * s_sv" for ago in (2, 1))
        first, second = (out.new(f"tl.load({x}, mask=central, other=1.0)") for x in steps)
        where = f"wt_ptr + b * wt_sb + (now - 2) * wt_st + {v} * wt_sv"
        w = out.new(f"tl.load({where}, mask=central, other=0.0)")
        H = out.new(f"{first} + {second}")
        w = central_weight(out, w, H, R)
        early, middle = out.new(f"-{w}"), out.new(f"-{w} * {H}")
        i = v * m + R - 1
        row = {f"a{i}": early, f"b{i + 1}": middle, f"c{i}": w}
        if spec.left:
            row[f"a{i}"] = out.new(f"tl.where(t - 2 >= t0, {early}, 0.0)")
            row[f"L{i}"] = out.new(f"tl.where(t == t0, {early}, 0.0)")
            row[f"L{n + i}"] = out.new(f"tl.where(t - 1 == t0, {early}, 0.0)")
            row[f"b{i + 1}"] = out.new(f"tl.where(t - 1 >= t0, {middle}, 0.0)")
            row[f"L{n + i + 1}"] = out.new(f"tl.where(t == t0, {middle}, 0.0)")
        for rows, columns in blocks:
            insert(out, rows, columns, row)
        insert(out, left, names("L", k), row)


def eliminate_body(index: TimeIndex, spec: Spec) -> None:
    out, n, reach = index.out, spec.n, spec.reach
    k = reach * n if spec.left else 0
    tail = [*names("L", k), "r"]
    a, b, c = names("a", n), names("b", n), names("c", n)
    last, before_last = Triangle("last", b, tail), Triangle("prior", a, [*b, *tail])
    left = Triangle("left", names("L", k), ["r"])
    norms = Norms(n, reach, k)
    unlike = reach == 2 and spec.left and not spec.m_init
    last.start(out, unit=True, unlike=unlike)
    if reach == 2:
        before_last.start(out, unit=True, unlike=unlike)
    left.start(out, unit=False, unlike=unlike)
    norms.start(out)
    out("bad_step = lane < 0")
    _prefetch_steps(index, spec, "0")
    governing = _Governing(index, spec)
    with out.block("for step in range(0, L):"):
        index.set_time("step")
        loads = governing.take()
        rows, left_rows = last.rows(), left.rows()
        new = _link_rows(out, spec)
        _prefetch_steps(index, spec, "step + 1")
        governing.prefetch("step + 1")
        out("known = valid & (step > 0)")
        # Column by column, so that finished rows are stored early, and from the bottom up, so that
        # the remaining link rows form the new triangle.
        for j in range(n):
            inverse: str | None = None
            for i in range(n - 1, -1, -1):
                inverse = rotate(out, rows[j], new[i], b[j]) or inverse
            if reach == 1:
                norms.add_row(out, j, rows[j], [*b, *c], f"prior * {n}")
                store_row(out, j, n, rows[j], [*b, *c], k, "step - 1", inverse, "known")
        if reach == 1:
            norms.move_on(out)
        _local_rows(index, spec, new, left_rows, loads)
        if reach == 2:
            prior = before_last.rows()
            _central_rows(out, spec, [(prior, a), (rows, b), (new, c)], left_rows)
            norms.add(out, prior, [*a, *b, *c], f"(t - 2) * {n}")
            with out.block("if step > 1:"):
                store_rows(out, prior, [*a, *b, *c], k, "step - 2", [None] * n)
            before_last.carry(out, rows, dict(zip([*b, *c], [*a, *b], strict=True)))
        last.carry(out, new, dict(zip(c, b, strict=True)))
        if spec.left:
            left.carry(out, left_rows)
    rows, left_rows = last.rows(), left.rows()
    blocks = [(before_last.rows(), [*a, *b]), (rows, b)] if reach == 2 else [(rows, b)]
    if spec.left:
        store_coupling(out, blocks, left_rows, norms, k)
    else:
        _store_last_rows(index, spec, blocks, norms)


def _store_last_rows(index: TimeIndex, spec: Spec, blocks: Blocks, norms: Norms) -> None:
    """Finish a whole sequence: at its last times, or where both halves meet."""
    out, n, reach = index.out, spec.n, spec.reach
    if spec.orders:
        ((rows, b),) = blocks
        _meet(index, rows, b, norms)
        norms.add(out, rows, [*b, *["-"] * n], f"T // 2 * {n}")
        store_rows(out, rows, [*b, *["-"] * n], 0, "L - 1", [None] * n)
        return
    for back, (block, columns) in enumerate(blocks):
        shift = reach - 1 - back
        columns = [*columns, *["-"] * ((reach + 1) * n - len(columns))]
        norms.add(out, block, columns, f"(L - {1 + shift}) * {n}")
        with out.block(f"if L > {shift}:"):
            store_rows(out, block, columns, 0, f"L - {1 + shift}", [None] * n)


def _meet(index: TimeIndex, rows: list[Row], columns: list[str], norms: Norms) -> None:
    """Combine the rows of both lanes of a pair at the time where they meet."""
    out = index.out
    for row in [index.partner_row(row, columns[0][0]) for row in rows]:
        insert(out, rows, columns, row)
    for name in norms.own[: len(columns)]:
        out(f"{name} = {name} + {index.partner(name)}")
    index.merge_pivots()
    out(f"bad_step = bad_step | ({index.partner(out.new('bad_step.to(tl.int32)'))} > 0)")


def store_coupling(out: Source, blocks: Blocks, left: list[Row], norms: Norms, k: int) -> None:
    """Store the coupling rows of a piece over its own and its left separator, and norms."""
    total = coupling_cells(k)
    own = blocks[0][1][:k] if len(blocks) > 1 else blocks[0][1]
    cell = 0
    for i, row in enumerate([row for rows, _ in blocks for row in rows]):
        for column in [*own[i:], *names("L", k), "r"]:
            store(out, at_cell("coupling_ptr", "program", total, cell), row.get(column, "zero"))
            cell += 1
    for i, row in enumerate(left):
        for column in [*names("L", k)[i:], "r"]:
            store(out, at_cell("coupling_ptr", "program", total, cell), row.get(column, "zero"))
            cell += 1
    for name in [*norms.own[:k], *norms.left]:
        store(out, at_cell("coupling_ptr", "program", total, cell), name)
        cell += 1


def store_pivot_ratio(index: TimeIndex) -> None:
    """Store the smallest pivot ratio (negative for a bad step) and its index, `[piece][b]`."""
    out = index.out
    out("ratio = tl.sqrt(least / least_of)")
    out("ratio = tl.where(bad_step, -1.0, ratio)")
    place = "b" if index.orders else "p * B + b"
    out(f"tl.store(rcond_ptr + {place}, ratio, mask=first)")
    out(f"tl.store(weakest_ptr + {place}, weakest, mask=first)")
