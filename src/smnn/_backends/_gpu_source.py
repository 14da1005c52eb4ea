"""Triton source of the elimination and substitution kernels for given sizes.

One lane works on one piece of one sequence, as on the CPU (`_eliminate.py`). Factor, right-hand
sides and couplings are laid out `[step][cell][lane]`, so that neighbouring lanes touch neighbouring
addresses. Columns are named `a0..` for the time before last, `b0..` for the last time, `c0..` for
the new time, `L0..` for the left separator and `r` for the right-hand side.
"""

from __future__ import annotations

from typing import NamedTuple

from smnn._backends._gpu_emit import Row, Source, Triangle, fill, insert, rotate
from smnn._taylor import unit_link

MOST_EARLY = 16
"""Numbers of the equations at a time that a lane holds while it works on the time before."""


class Spec(NamedTuple):
    """What the unrolled source depends on."""

    V: int
    m: int
    Q: int
    m_init: int
    scheme: str
    left: bool
    """Whether sequences are cut into pieces."""
    varying: bool
    """Whether `K` differs between steps (weights that depend on the order)."""

    @property
    def n(self) -> int:
        return self.V * self.m

    @property
    def reach(self) -> int:
        return 2 if self.scheme == "central" else 1


def names(letter: str, count: int) -> list[str]:
    return [f"{letter}{i}" for i in range(count)]


def factor_cells(n: int, reach: int, k: int) -> int:
    """Numbers kept per time and lane."""
    return n * (n + 1) // 2 + n * (reach * n + k)


def coupling_cells(k: int) -> int:
    """Numbers that a piece hands to the chain: two triangles, a square, two vectors, norms."""
    return k * (k + 1) + k * k + 4 * k


LANE = """
lane = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
valid = lane < B * P
safe = tl.where(valid, lane, 0)
b = safe // P
p = safe % P
t0 = p * (T // P) + tl.minimum(p, T % P)
pad = L - T // P - tl.where(p < T % P, 1, 0)
zero = tl.zeros([LANES], dtype=tl.float64)
""".strip().splitlines()


def store_cell(
    out: Source, pointer: str, step: str, cells: int, cell: int, value: str, mask: str = "valid"
) -> None:
    out(f"tl.store({pointer} + (({step}) * {cells} + {cell}) * NL + lane, {value}, mask={mask})")


class Norms:
    """Squared norms of the columns, and the smallest pivot relative to them so far."""

    def __init__(self, n: int, reach: int, k: int) -> None:
        self.own = [f"norm_{i}" for i in range((reach + 1) * n)]
        self.left = [f"left_norm_{i}" for i in range(k)]
        self.n = n

    def start(self, out: Source) -> None:
        for name in [*self.own, *self.left]:
            out(f"{name} = zero")
        out("least = zero + 1.0")
        out("least_of = zero + 1.0")
        out("weakest = tl.zeros([LANES], dtype=tl.int64)")

    def add(self, out: Source, rows: list[Row], columns: list[str], base: str) -> None:
        """Take in finished rows over `columns`; the first `n` of them are finished too."""
        for j, row in enumerate(rows):
            self.add_row(out, j, row, columns, base)
        self.move_on(out)

    def add_row(self, out: Source, j: int, row: Row, columns: list[str], base: str) -> None:
        """Take in row `j` of a time. With it, column `j` is finished: no later row reaches it."""
        for name, column in zip(self.own, columns, strict=True):
            if column in row:
                out(f"{name} = {name} + {row[column]} * {row[column]}")
        for i, name in enumerate(self.left):
            if f"L{i}" in row:
                out(f"{name} = {name} + {row[f'L{i}']} * {row[f'L{i}']}")
        square = out.new(f"{row[columns[j]]} * {row[columns[j]]}")
        less = out.new(f"{square} * least_of < least * {self.own[j]}")
        empty = out.new(
            f"({self.own[j]} == 0.0) & (least > 0.0)"
        )  # a column of which no row speaks
        less = out.new(f"{less} | {empty}")
        out(f"least = tl.where({less}, {square}, least)")
        out(f"least_of = tl.where({less}, tl.where({empty}, 1.0, {self.own[j]}), least_of)")
        out(f"weakest = tl.where({less}, {base} + {j}, weakest)")

    def move_on(self, out: Source) -> None:
        """To the next time: its columns become the first."""
        for i, name in enumerate(self.own):
            out(f"{name} = {self.own[i + self.n] if i + self.n < len(self.own) else 'zero'}")


def keep_rows(
    out: Source, rows: list[Row], columns: list[str], k: int, step: str, inverse: list[str | None]
) -> None:
    """Store finished rows: reciprocal pivot, own and later columns, left columns, right-hand side."""
    for j, row in enumerate(rows):
        keep_row(out, j, len(rows), row, columns, k, step, inverse[j])


def keep_row(
    out: Source, j: int, n: int, row: Row, columns: list[str], k: int, step: str,
    inverse: str | None, mask: str = "valid",
) -> None:  # fmt: skip
    """Store row `j` of the `n` of a time."""
    cells = n * (n + 1) // 2 + n * (len(columns) - n + k)
    at = j * (len(columns) + k) - j * (j - 1) // 2
    pivot = inverse or out.new(f"1.0 / {row[columns[j]]}")
    values = [pivot, *(row.get(c, "zero") for c in [*columns[j + 1 :], *names("L", k)])]
    for i, value in enumerate(values):
        store_cell(out, "factor_ptr", step, cells, at + i, value, mask)
    store_cell(out, "z_ptr", step, n, j, row.get("r", "zero"), mask)


def _ask_steps(out: Source, spec: Spec, step: str) -> None:
    """Ask for step sizes and weights of a step, one step before they are needed."""
    out(f"coming = t0 + ({step}) - pad")
    out("wanted = (coming > 0) & (coming >= t0) & (coming < T)")
    out("coming = tl.maximum(coming - 1, 0)")
    for v in range(spec.V):
        where = f"b * s_sb + coming * s_st + {v} * s_sv"
        out(f"s{v} = tl.load(s_ptr + {where}, mask=wanted, other=1.0)")
        where = f"b * scale_sb + coming * scale_st + {v} * scale_sv"
        out(f"w{v} = tl.load(scale_ptr + {where}, mask=wanted, other=0.0)")


class _Governing:
    """Weights and numbers of the equations: a few are asked for a whole step before their use."""

    def __init__(self, out: Source, spec: Spec) -> None:
        self._out, self._spec = out, spec
        self._early = spec.Q * (spec.n + 2) <= MOST_EARLY
        if self._early:
            self.ask("0")

    def _loads(self, t: str, mask: str) -> list[list[str]]:
        n, rows = self._spec.n, []
        for q in range(self._spec.Q):
            where = [f"wg_ptr + b * wg_sb + {t} * wg_st + {q} * wg_sq"]
            where += [f"c_ptr + b * c_sb + {t} * c_st + {q * n + i}" for i in range(n)]
            where += [f"d_ptr + b * d_sb + {t} * d_st + {q}"]
            rows.append([f"tl.load({x}, mask={mask}, other=0.0)" for x in where])
        return rows

    def ask(self, step: str) -> None:
        """For those of a step to come."""
        if not self._early:
            return
        out = self._out
        out(f"coming = t0 + ({step}) - pad")
        out("wanted = (coming >= t0) & (coming < T)")
        out("coming = tl.maximum(coming, 0)")
        for q, row in enumerate(self._loads("coming", "wanted")):
            for i, x in enumerate(row):
                out(f"gov{q}_{i} = {x}")

    def take(self) -> list[list[str]]:
        """Those of this step."""
        rows = self._loads("now", "here")
        if self._early:
            rows = [[f"gov{q}_{i}" for i in range(len(row))] for q, row in enumerate(rows)]
        return [[self._out.new(x) for x in row] for row in rows]


def _link_rows(out: Source, spec: Spec) -> list[Row]:
    """Rows `scale (K D y_t - K F D y_{t-1})`, columns `b` (or `L` at a piece's first time) and `c`."""
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
                    new = out.new(f"{powers[j]} * tl.load(K_ptr + {where}, mask=linked, other=0.0)")
                    old = out.new(
                        f"-{powers[j]} * tl.load(KF_ptr + {where}, mask=linked, other=0.0)"
                    )
                else:
                    if K[i][j] == 0.0 and KF[i][j] == 0.0:
                        continue
                    new, old = (
                        out.new(f"{powers[j]} * {K[i][j]!r}"),
                        out.new(f"{powers[j]} * {-KF[i][j]!r}"),
                    )
                column = v * m + j
                if spec.left:
                    row[f"b{column}"] = out.new(f"tl.where(inner, {old}, 0.0)")
                    row[f"L{k - n + column}"] = out.new(f"tl.where(inner, 0.0, {old})")
                    # A time that is not there (before the piece begins) is set to zero.
                    row[f"c{column}"] = out.new(f"tl.where(here, {new}, 1.0)") if i == j else new
                else:
                    row[f"b{column}"], row[f"c{column}"] = old, new
            rows.append(row)
    return rows


def _local_rows(
    out: Source, spec: Spec, triangle: list[Row], left: list[Row], loads: list[list[str]]
) -> None:
    """Rotate the governing rows, then the initial rows, into the new triangle."""
    V, m, n = spec.V, spec.m, spec.n
    columns, k = names("c", n), spec.reach * n if spec.left else 0
    for w, *entries, right in loads:
        row = {f"c{i}": out.new(f"{w} * {x}") for i, x in enumerate(entries)}
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
    with out.block("if step <= T_init:"):
        inside, inside_left = state.rows(), left_state.rows() if spec.left else []
        out("early = here & (t < T_init)")
        for v in range(V):
            for r in range(spec.m_init):
                where = f"b * wi_sb + now * wi_st + {v} * wi_sv + {r} * wi_sr"
                w = out.new(f"tl.load(wi_ptr + {where}, mask=early, other=0.0)")
                where = f"b * u_sb + now * u_st + {v * spec.m_init + r}"
                x = out.new(f"tl.load(u_ptr + {where}, mask=early, other=0.0)")
                row = {f"c{v * m + r}": w, "r": out.new(f"{w} * {x}")}
                insert(out, inside, columns, row)
                insert(out, inside_left, names("L", k), row)
        state.carry(out, inside)
        if spec.left:
            left_state.carry(out, inside_left)
    triangle[:] = state.rows()
    if spec.left:
        left[:] = left_state.rows()


def _central_rows(
    out: Source, spec: Spec, blocks: list[tuple[list[Row], list[str]]], left: list[Row]
) -> None:
    """Rows `w H^(R-2) (y_t - y_{t-2} - H y'_{t-1})` at the top order, for `t >= 2`."""
    V, m, n, R = spec.V, spec.m, spec.n, spec.m - 1
    k = 2 * n if spec.left else 0
    for v in range(V):
        out("central = here & (t > 1)")
        first = out.new(
            f"tl.load(s_ptr + b * s_sb + (now - 2) * s_st + {v} * s_sv, mask=central, other=1.0)"
        )
        second = out.new(
            f"tl.load(s_ptr + b * s_sb + (now - 1) * s_st + {v} * s_sv, mask=central, other=1.0)"
        )
        w = out.new(
            f"tl.load(wt_ptr + b * wt_sb + (now - 2) * wt_st + {v} * wt_sv, mask=central, other=0.0)"
        )
        H = out.new(f"{first} + {second}")
        if R == 1:
            w = out.new(f"{w} / {H}")
        for _ in range(R - 2):
            w = out.new(f"{w} * {H}")
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


def eliminate_body(out: Source, spec: Spec) -> None:
    """The loop over the times of a piece, from the first to the last."""
    n, reach = spec.n, spec.reach
    k = reach * n if spec.left else 0
    tail = [*names("L", k), "r"]
    a, b, c = names("a", n), names("b", n), names("c", n)
    last, before_last = Triangle("last", b, tail), Triangle("prior", a, [*b, *tail])
    left = Triangle("left", names("L", k), ["r"])
    norms = Norms(n, reach, k)
    last.start(out, unit=True)
    if reach == 2:
        before_last.start(out, unit=True)
    left.start(out, unit=False)
    norms.start(out)
    out("bad_step = lane < 0")
    _ask_steps(out, spec, "0")
    governing = _Governing(out, spec)
    with out.block("for step in range(0, L):"):
        out("t = t0 + step - pad")
        out("here = t >= t0")
        out("inner = t > t0")
        out("linked = here & (t > 0)")
        out("now = tl.maximum(t, 0)")
        out("before = tl.maximum(t - 1, 0)")
        loads = governing.take()
        rows, left_rows = last.rows(), left.rows()
        new = _link_rows(out, spec)
        _ask_steps(out, spec, "step + 1")
        governing.ask("step + 1")
        out("known = valid & (step > 0)")
        # Column by column, so that a row is stored as soon as it is finished, and from the bottom
        # up: what remains of the links is the new triangle.
        for j in range(n):
            inverse: str | None = None
            for i in range(n - 1, -1, -1):
                inverse = rotate(out, rows[j], new[i], b[j]) or inverse
            if reach == 1:
                norms.add_row(out, j, rows[j], [*b, *c], f"(t - 1) * {n}")
                keep_row(out, j, n, rows[j], [*b, *c], k, "step - 1", inverse, "known")
        if reach == 1:
            norms.move_on(out)
        _local_rows(out, spec, new, left_rows, loads)
        if reach == 2:
            prior = before_last.rows()
            _central_rows(out, spec, [(prior, a), (rows, b), (new, c)], left_rows)
            norms.add(out, prior, [*a, *b, *c], f"(t - 2) * {n}")
            with out.block("if step > 1:"):
                keep_rows(out, prior, [*a, *b, *c], k, "step - 2", [None] * n)
            before_last.carry(out, rows, dict(zip([*b, *c], [*a, *b], strict=True)))
        last.carry(out, new, dict(zip(c, b, strict=True)))
        if spec.left:
            left.carry(out, left_rows)
    rows, left_rows = last.rows(), left.rows()
    blocks = [(before_last.rows(), [*a, *b]), (rows, b)] if reach == 2 else [(rows, b)]
    if not spec.left:
        for back, (block, columns) in enumerate(blocks):
            shift = reach - 1 - back
            columns = [*columns, *["-"] * ((reach + 1) * n - len(columns))]
            norms.add(out, block, columns, f"(L - {1 + shift}) * {n}")
            with out.block(f"if L > {shift}:"):
                keep_rows(out, block, columns, 0, f"L - {1 + shift}", [None] * n)
        return
    hand_over(out, blocks, left_rows, norms, k)


def hand_over(
    out: Source, blocks: list[tuple[list[Row], list[str]]], left: list[Row], norms: Norms, k: int
) -> None:
    """What a piece leaves: its own separator's rows, the left separator's rows, and norms."""
    total = coupling_cells(k)
    own = blocks[0][1][:k] if len(blocks) > 1 else blocks[0][1]
    cell = 0
    for i, row in enumerate([row for rows, _ in blocks for row in rows]):
        for column in [*own[i:], *names("L", k), "r"]:
            store_cell(out, "coupling_ptr", "0", total, cell, row.get(column, "zero"))
            cell += 1
    for i, row in enumerate(left):
        for column in [*names("L", k)[i:], "r"]:
            store_cell(out, "coupling_ptr", "0", total, cell, row.get(column, "zero"))
            cell += 1
    for name in [*norms.own[:k], *norms.left]:
        store_cell(out, "coupling_ptr", "0", total, cell, name)
        cell += 1


def verdict(out: Source) -> None:
    """Per lane: the smallest pivot ratio (negative for a bad step) and where it is, `[piece][b]`."""
    out("ratio = tl.sqrt(least / least_of)")
    out("ratio = tl.where(bad_step, -1.0, ratio)")
    out("tl.store(rcond_ptr + p * B + b, ratio, mask=valid)")
    out("tl.store(weakest_ptr + p * B + b, weakest, mask=valid)")
