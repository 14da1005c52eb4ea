"""Elimination with a team of lanes per sequence.

The factor is laid out as `[sequence][time][cell]` with the cells of `lane.eliminate.store_row`; the
right-hand side is stored in the output until its substitution. Sequences are not cut. If two teams
start from both ends, each stores its rows in its own direction of time.
"""

from __future__ import annotations

from smnn._solver.gpu.emit import Source, central_weight, poison, status_code
from smnn._solver.gpu.lane.eliminate import Spec, factor_cells
from smnn._solver.gpu.team.columns import Columns, Row, Rows, TeamIndex, reflect
from smnn._solver.gpu.team.substitute import back_body
from smnn._solver.rows import unit_link


def _per_lane(columns: Columns, spec: Spec) -> None:
    """Variable and order of each lane's column in the last two times, and its link coefficients."""
    out, n, m, pitch = columns.out, spec.n, spec.m, columns.pitch
    start = columns.newest - pitch
    K, KF = (x.tolist() for x in unit_link(m - 1, spec.scheme))
    for i in range(columns.count):
        out(f"at{i} = col{i} - {start}")
        out(f"new{i} = (at{i} >= {pitch}) & (at{i} < {pitch + n})")
        out(f"old{i} = (at{i} >= 0) & (at{i} < {n})")
        out(f"local{i} = tl.where(new{i}, at{i} - {pitch}, at{i}) * (old{i} | new{i}).to(tl.int32)")
        out(f"var{i} = local{i} // {m}")
        out(f"order{i} = local{i} % {m}")
        for r in range(m):
            value = "zero"
            for order in range(r, m):
                entry = f"tl.where(new{i}, zero + {K[r][order]!r}, zero + {-KF[r][order]!r})"
                value = out.new(f"tl.where(order{i} == {order}, {entry}, {value})")
            out(f"link{i}_{r} = tl.where(old{i} | new{i}, {value}, 0.0)")
        if columns.index.orders:
            out(f"turned{i} = {columns.index.sign(f'order{i}')}")


def _prefetch_steps(columns: Columns, step: str) -> None:
    out = columns.out
    columns.index.prefetch_link(step)
    for i in range(columns.count):
        mask = f"mask=(old{i} | new{i}) & wanted"
        where = f"b * s_sb + coming * s_st + var{i} * s_sv"
        out(f"s{i} = tl.load(s_ptr + {where}, {mask}, other=1.0)")
        where = f"b * scale_sb + coming * scale_st + var{i} * scale_sv"
        out(f"w{i} = tl.load(scale_ptr + {where}, {mask}, other=0.0)")


def _governing(columns: Columns, spec: Spec, which: range) -> list[Row]:
    """Some of the equations at time `t`."""
    index, out, n, right = columns.index, columns.out, spec.n, columns.right
    first, rows = columns.newest, []
    for q in which:
        w = out.new(f"tl.load(wg_ptr + b * wg_sb + now * wg_st + {q} * wg_sq{index.masked()})")
        chunks = []
        for i in range(columns.count):
            if (i + 1) * columns.team <= first:
                chunks.append("zero")
                continue
            where = f"c_ptr + b * c_sb + now * c_st + {q * n} + (col{i} - {first})"
            mask = f"(col{i} >= {first}) & (col{i} < {right})"
            value = out.new(f"tl.load({where}{index.masked(mask)})")
            if i == right // columns.team:
                where = f"d_ptr + b * d_sb + now * d_st + {q} + lane * 0"
                d = out.new(f"tl.load({where}{index.masked(f'(col{i} == {right})')})")
                value = out.new(f"{value} + {d}")
            turned = f" * turned{i}" if index.orders else ""
            chunks.append(out.new(f"{value} * {w}{turned}"))
        rows.append(Row(chunks, set(range(first, right + 1))))
    return rows


def _links(columns: Columns, spec: Spec) -> list[Row]:
    """Rows `scale (K D y_t - K F D y_{t-1})`."""
    out, m = columns.out, spec.m
    powers = []
    for i in range(columns.count):
        s = out.new(f"s{i}")
        bad = f"(old{i} | new{i}) & linked & (({s} <= 0.0) | ~({s} < float('inf')))"
        out(f"bad{i} = bad{i} | ({bad})")
        power = out.new(f"w{i}")
        for order in range(1, m):
            power = out.new(f"tl.where(order{i} >= {order}, {power} * {s}, {power})")
        powers.append(power)
    rows, old, new = [], columns.newest - columns.pitch, columns.newest
    for v in range(spec.V):
        for r in range(m):
            chunks = []
            for i in range(columns.count):
                share = f"link{i}_{r}"
                if spec.varying:
                    where = f"b * k_sb + before * k_st + var{i} * k_sv + {r * m} + order{i}"
                    mask = f"linked & (order{i} >= {r})"
                    K = out.new(f"tl.load(K_ptr + {where}, mask=new{i} & {mask}, other=0.0)")
                    KF = out.new(f"tl.load(KF_ptr + {where}, mask=old{i} & {mask}, other=0.0)")
                    share = out.new(f"{K} - {KF}")
                mine = f"(old{i} | new{i}) & (var{i} == {v})"
                chunks.append(out.new(f"tl.where({mine}, {share} * {powers[i]}, 0.0)"))
            some = {v * m + order for order in range(r, m)}
            rows.append(Row(chunks, {old + x for x in some} | {new + x for x in some}))
    return rows


def _initial(columns: Columns, spec: Spec) -> list[Row]:
    index, out, right = columns.index, columns.out, columns.right
    rows, masked = [], index.masked("(t < T_init)") if index.orders else ""
    for v in range(spec.V):
        for r in range(spec.m_init):
            column = columns.newest + v * spec.m + r
            where = f"wi_ptr + b * wi_sb + now * wi_st + {v} * wi_sv + {r} * wi_sr"
            w = out.new(f"tl.load({where}{masked})")
            u = out.new(f"tl.load(u_ptr + b * u_sb + now * u_st + {v * spec.m_init + r}{masked})")
            turned = index.directed(w, r)
            chunks = columns.each(
                f"tl.where(COL == {column}, zero + {turned}, 0.0) + "
                f"tl.where(COL == {right}, zero + {w} * {u}, 0.0)"
            )
            rows.append(Row(chunks, {column, right}))
    return rows


def _central(columns: Columns, spec: Spec) -> list[Row]:
    """Rows `w H^(R-2) (y_t - y_{t-2} - H y'_{t-1})` at the top order, for `t >= 2`."""
    out, R = columns.out, spec.m - 1
    oldest, last, new = (columns.block(k) for k in range(3))
    rows = []
    out("far = tl.maximum(t - 2, 0)")
    for v in range(spec.V):
        load = f"s_ptr + b * s_sb + {v} * s_sv + lane * 0"
        first = out.new(f"tl.load({load} + far * s_st, mask=times > 1, other=1.0)")
        second = out.new(f"tl.load({load} + (far + 1) * s_st, mask=times > 1, other=1.0)")
        where = f"wt_ptr + b * wt_sb + far * wt_st + {v} * wt_sv + lane * 0"
        w = out.new(f"tl.load({where}, mask=times > 1, other=0.0)")
        H = out.new(f"{first} + {second}")
        w = central_weight(out, w, H, R)
        i = spec.m * v + R - 1
        places = {oldest[i]: f"(-{w})", last[i + 1]: f"(-{w} * {H})", new[i]: w}
        parts = (f"tl.where(COL == {c}, zero + {x}, 0.0)" for c, x in places.items())
        rows.append(Row(columns.each(" + ".join(parts)), set(places)))
    return rows


class _PivotCheck:
    """Squared norms of the columns, and the smallest relative pivot per lane."""

    def __init__(self, columns: Columns) -> None:
        self._columns, out = columns, columns.out
        for i in range(columns.count):
            out(f"norm{i} = zero")
        out("least = zero + 1.0")
        out("least_of = zero + 1.0")
        out("weakest = lane.to(tl.int64) * 0")

    def take(self, rows: list[Row], time: str, there: str) -> None:
        columns, out, n = self._columns, self._columns.out, self._columns.n
        pivot = "zero"
        for j, row in enumerate(rows):
            for i in range(columns.count):
                square = f"{row.chunks[i]} * {row.chunks[i]}"
                if i * columns.team < j:
                    square = f"tl.where(col{i} >= {j}, {square}, 0.0)"
                out(f"norm{i} = norm{i} + {square}")
            pivot = out.new(f"tl.where(lane == {j}, {row.chunks[0]}, {pivot})")
        square = out.new(f"{pivot} * {pivot}")
        empty = out.new("(norm0 == 0.0) & (least > 0.0)")
        less = out.new(f"({square} * least_of < least * norm0) | {empty}")
        less = out.new(f"{less} & (lane < {n}) & {there}")
        out(f"least = tl.where({less}, {square}, least)")
        out(f"least_of = tl.where({less}, tl.where({empty}, 1.0, norm0), least_of)")
        out(f"weakest = tl.where({less}, ({time}) * {n} + lane, weakest)")
        moved = columns.moved([f"norm{i}" for i in range(columns.count)], keep_right=False)
        for i, x in enumerate(moved):
            out(f"norm{i} = {x}")

    def meet(self) -> None:
        """Combine both halves; the norms are those of the time where they meet."""
        index, out = self._columns.index, self._columns.out
        for i in range(self._columns.count):
            out(f"norm{i} = norm{i} + {index.partner(f'norm{i}')}")
            bad = index.partner(out.new(f"bad{i}.to(tl.int32)"))
            out(f"bad{i} = bad{i} | ({bad} > 0)")
        index.merge_pivots()

    def store(self) -> None:
        """Store the smallest pivot ratio of all lanes (negative for a bad step) and its index."""
        index, out = self._columns.index, self._columns.out
        ratios = out.new("tl.sqrt(least / least_of)")
        if index.orders:  # rounded as the first end has it, so that both mean the same
            ratios = out.new(f"tl.where(back, {index.partner(ratios)}, {ratios})")
        out(f"ratio = {self._columns.all(ratios, 'tl.minimum(A, B)')}")
        far = "9223372036854775807"
        where = out.new(f"tl.where({ratios} == ratio, weakest, {far})")
        where = self._columns.all(where, "tl.minimum(A, B)")
        bad = " | ".join(f"bad{i}" for i in range(self._columns.count))
        bad = self._columns.all(out.new(f"({bad}).to(tl.int32)"), "A | B")
        out(f"bad_step = {bad} > 0")
        out("ratio = tl.where(bad_step, -1.0, ratio)")
        out(f"first = (lane == 0){' & (p == 0)' if index.orders else ''}")
        out("tl.store(rcond_ptr + b + lane * 0, ratio, mask=first)")
        out(f"tl.store(weakest_ptr + b + lane * 0, {where}, mask=first)")


def _store(
    columns: Columns, blocks: int, rows: list[Row], inverse: list[str | None], time: str, mask: str
) -> None:
    """Store the finished rows of a time: factor with reciprocal pivots, and right-hand sides."""
    out, n, right = columns.out, columns.n, columns.right
    cells = factor_cells(n, blocks - 1, 0)
    for j, row in enumerate(rows):
        start = j * blocks * n - j * (j - 1) // 2 - j
        for i, x in enumerate(row.chunks):
            if j // columns.team == i:
                pivot = inverse[j] or f"1.0 / {x}"
                x = out.new(f"tl.where(col{i} == {j}, {pivot}, {x})")
            number, own = columns.number(i)
            where = f"factor_ptr + (b * T + {time}) * {cells} + {start} + {number}"
            out(f"tl.store({where}, {x}, mask=(col{i} >= {j}) & {own} & {mask})")
        i = right // columns.team
        where = f"y_ptr + (b * T + {time}) * {n} + {j} + lane * 0"
        out(f"tl.store({where}, {row.chunks[i]}, mask=(col{i} == {right}) & {mask})")


def _triangle(columns: Columns, rows: list[Row]) -> list[Row]:
    """Reduce the rows over the new time to a triangle."""
    rows = [Row(columns.from_newest(row.chunks), row.support) for row in rows]
    for j in range(columns.n):
        reflect(columns, rows[j], rows[j + 1 :], columns.newest + j)
    return rows[: columns.n]


def _insert(columns: Columns, triangle: list[Row], rows: list[Row]) -> None:
    """Reflect further rows into the triangle over the new time."""
    for j in range(columns.n):
        reflect(columns, triangle[j], rows, columns.newest + j)


def _meet(columns: Columns, m: int, rows: list[Row]) -> list[str | None]:
    """Combine the rows of both halves at the time where they meet; returns the new pivots."""
    out, right = columns.out, columns.right
    odd = columns.each(f"tl.where((COL < {columns.n}) & (COL % {m} % 2 == 1), zero - 1.0, 1.0)")
    support = {*columns.block(0), right}
    others = [
        Row(
            [
                out.new(f"{columns.index.partner(x)} * {o}")
                for x, o in zip(row.chunks, odd, strict=True)
            ],
            set(support),
        )
        for row in rows
    ]
    return [reflect(columns, rows[j], others, j) for j in range(columns.n)]


def _insert_initial(columns: Columns, spec: Spec, rows: list[Row]) -> list[Row]:
    """Add the initial-value rows to the triangle over the new time."""
    early, support = Rows(columns, "early", spec.n), {*range(columns.newest, columns.right + 1)}
    early.carry([row.chunks for row in rows])
    with columns.out.block(f"if {columns.index.may_be_initial()}:"):
        inside = early.rows(support)
        _insert(columns, inside, _initial(columns, spec))
        early.carry([row.chunks for row in inside])
    return early.rows(support)


def _store_last_rows(
    columns: Columns, spec: Spec, last: Rows, prior: Rows, pivots: _PivotCheck
) -> None:
    """Finish a sequence: at its last times, or where both halves meet."""
    n, reach, blocks = spec.n, spec.reach, spec.reach + 1
    if columns.index.orders:
        rows = last.rows({*columns.block(reach - 1), columns.right})
        inverse = _meet(columns, spec.m, rows)
        pivots.meet()
        pivots.take(rows, "(T // 2)", "(lane >= 0)")
        _store(columns, blocks, rows, inverse, "(T // 2)", "(p == 0)")
    else:
        rest = [last.rows(set())] if reach == 1 else [prior.rows(set()), last.rows(set())]
        for back, rows in enumerate(rest):
            if back:  # its columns are those of the second block
                rows = [Row(columns.moved(row.chunks), set()) for row in rows]
            time = f"(L - {len(rest) - back})"
            there = f"(lane * 0 + {time} >= 0)"
            pivots.take(rows, time, there)
            _store(columns, blocks, rows, [None] * n, time, there)


def solve_body(out: Source, spec: Spec, team: int) -> None:
    """Elimination from the first to the last time, or from both ends; then substitution."""
    n, reach, blocks = spec.n, spec.reach, spec.reach + 1
    index = TeamIndex(out, team, spec.orders)
    columns = Columns(index, n, blocks)
    right, old_block = columns.right, columns.block(reach - 1)
    _per_lane(columns, spec)
    last, prior = Rows(columns, "last", n), Rows(columns, "prior", n if reach == 2 else 0)
    for begun, k in ((last, 1), (prior, 0)) if reach == 2 else ((last, 0),):
        unit = [columns.each(f"tl.where(COL == {j}, zero + 1.0, 0.0)") for j in columns.block(k)]
        begun.carry(unit)
    pivots = _PivotCheck(columns)
    for i in range(columns.count):
        out(f"bad{i} = lane < 0")
        out(f"s{i} = zero + 1.0")  # no link ends at the first time
        out(f"w{i} = zero")
    with index.times():
        first, *more = [range(q, min(q + n, spec.Q)) for q in range(0, max(spec.Q, 1), n)]
        governing = _governing(columns, spec, first)
        old = last.rows({*old_block, right})
        new = _links(columns, spec)
        _prefetch_steps(columns, "(step + 1)")
        inverse = [reflect(columns, old[j], new, old_block[j]) for j in range(n)]
        if reach == 1:  # before the rest, to overlap the stores
            pivots.take(old, "prior", "linked")
            _store(columns, blocks, old, inverse, "prior", "linked")
        new = _triangle(columns, [*new, *governing])
        for some in more:  # at most as many equations at a time as unknowns
            _insert(columns, new, _governing(columns, spec, some))
        if spec.m_init:
            new = _insert_initial(columns, spec, new)
        if reach == 2:
            oldest = prior.rows({*columns.block(0), *columns.block(1), right})
            central = _central(columns, spec)
            inverse = [reflect(columns, oldest[j], central, j) for j in range(n)]
            for k, rows in ((1, old), (2, new)):
                for row, column in zip(rows, columns.block(k), strict=True):
                    reflect(columns, row, central, column)
            pivots.take(oldest, "(t - 2)", "(times > 1)")
            _store(columns, blocks, oldest, inverse, "(t - 2)", "(times > 1)")
            prior.carry([columns.moved(row.chunks) for row in old])
        last.carry([columns.moved(row.chunks) for row in new])
    _store_last_rows(columns, spec, last, prior, pivots)
    pivots.store()
    poison(out)
    out("tl.debug_barrier()")
    back_body(index, n, reach, "y_ptr")
    out(f"infinite = (lane < {n}) & ~(tl.abs(y0) < float('inf'))")
    infinite = columns.all(out.new("infinite.to(tl.int32)"), "A | B")
    out(f"finite = {infinite} == 0")
    if index.orders:
        out(f"finite = finite & ({index.partner(infinite)} == 0)")
    status_code(out)
    out("tl.store(status_ptr + b + lane * 0, code.to(tl.int64), mask=first)")
