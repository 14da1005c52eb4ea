"""Substitutions with a factor stored by `eliminate.py`."""

from __future__ import annotations

from smnn._solver.gpu.emit import Source
from smnn._solver.gpu.lane.eliminate import factor_cells
from smnn._solver.gpu.team.columns import Columns, TeamIndex, broadcast


class _Prefetch:
    """Prefetches the factor of the next time."""

    def __init__(self, out: Source, places: list[tuple[str, str]], first: str) -> None:
        self._out, self._places = out, places
        for k in range(len(places)):
            out(f"f{k} = {self._load(k, first)}")

    def _load(self, k: int, time: str) -> str:
        where, mask = self._places[k]
        return f"tl.load({where.replace('TIME', f'(b * T + {time})')}, mask={mask}, other=0.0)"

    def last(self) -> list[str]:
        return [self._out.new(f"f{k}") for k in range(len(self._places))]

    def take(self, following: str) -> list[str]:
        """Numbers of this time; prefetches those of the `following` one."""
        out, taken = self._out, self.last()
        out(f"following = {following}")
        for k in range(len(self._places)):
            out(f"f{k} = {self._load(k, 'following')}")
        return taken


def _sign(index: TeamIndex) -> str:
    return index.sign(f"lane % {index.orders}")


def back_body(index: TeamIndex, n: int, reach: int, right: str) -> None:
    """Solve `R y = z` from the last time to the first, unknown by unknown; lane `i` has the `i`-th.

    With two ends, each proceeds from the middle, which is stored in the direction of the first end.
    `poison` is NaN or 0; `z` is at `right`, the solution goes to `y_ptr`.
    """
    out = index.out
    cells, columns = factor_cells(n, reach, 0), (reach + 1) * n
    out(f"row = lane * {columns} - lane * (lane - 1) // 2 - lane")
    start = f"factor_ptr + TIME * {cells} + row"
    places = [(f"{right} + TIME * {n} + lane", f"lane < {n}")]
    places += [(f"{start} + lane", f"lane < {n}")]
    places += [(f"{start} + {c}", f"lane < {min(c, n)}") for c in range(columns)]
    ahead = _Prefetch(out, places, index.at("L - 1"))
    for k in range(reach + 1):
        out(f"y{k} = zero + poison")
    if index.orders:
        sign = _sign(index)
        out("tl.debug_barrier()")  # the halves share a time
    with index.times(backwards=True):
        z, inverse, *factor = ahead.take(index.at("tl.maximum(step - 1, 0)"))
        for k in range(reach, 0, -1):
            out(f"y{k} = y{k - 1}")
        # Two independent chains of additions, to hide their latency.
        chains = [z, "zero"]
        for c in range(n, columns):
            x = broadcast(index, f"y{c // n}", c % n)
            chains[c % 2] = out.new(f"{chains[c % 2]} - {factor[c]} * {x}")
        total = out.new(f"{chains[0]} + {chains[1]}")
        for j in range(n - 1, 0, -1):
            x = broadcast(index, out.new(f"{total} * {inverse}"), j)
            total = out.new(f"{total} - {factor[j]} * {x}")
        out(f"y0 = {total} * {inverse}")
        value, mask = "y0", f"lane < {n}"
        if index.orders:
            out(f"y0 = tl.where(lane * 0 + turn == 0, y0 * {sign}, y0)")
            value, mask = f"y0 * {sign}", f"(lane < {n}) & own"
        out(f"tl.store(y_ptr + (b * T + t) * {n} + lane, {value}, mask={mask})")


def adjoint_body(out: Source, n: int, reach: int, team: int, orders: int) -> None:
    """Solve `R^T z = g`, from the first time to the last or from both ends; then `R y = z`."""
    index = TeamIndex(out, team, orders)
    columns = Columns(index, n, reach + 1)
    cells, blocks = factor_cells(n, reach, 0), reach + 1
    places = [(f"g_ptr + TIME * {n} + lane", f"lane < {n}")]
    for j in range(n):
        start = j * blocks * n - j * (j - 1) // 2 - j
        for i in range(columns.count):
            number, own = columns.number(i)
            where = f"factor_ptr + TIME * {cells} + {start} + {number}"
            places.append((where, f"(col{i} >= {j}) & {own}"))
    ahead = _Prefetch(out, places, index.at("0"))
    for i in range(columns.count):
        out(f"load{i} = zero")

    def solved(loads: list[str], rows: list[str], time: str, mask: str) -> list[str]:
        """Store `z` of a time; returns the loads on the following times."""
        z = "zero"
        for j in range(n):
            row = rows[j * columns.count : (j + 1) * columns.count]
            # The remainder in its own column is not used again.
            x = broadcast(index, out.new(f"{loads[0]} * {row[0]}"), j)
            z = out.new(f"tl.where(lane == {j}, {x}, {z})")
            loads = [out.new(f"{a} - {f} * {x}") for a, f in zip(loads, row, strict=True)]
        out(f"tl.store(y_ptr + (b * T + {time}) * {n} + lane, {z}, mask={mask})")
        return loads

    own, sign = f"lane < {n}", _sign(index) if orders else ""
    with index.times("L - 1" if orders else "L"):
        g, *rows = ahead.take(index.at("tl.minimum(step + 1, L - 1)"))
        loads = [f"load{i}" for i in range(columns.count)]
        if orders:
            g = out.new(f"tl.where(here, {g} * {sign}, 0.0)")
        loads[0] = out.new(f"load0 + {g}")
        loads = solved(loads, rows, "t", f"({own}) & here" if orders else own)
        for i, x in enumerate(columns.moved(loads, keep_right=False)):
            out(f"load{i} = {x}")
    if orders:
        g, *rows = ahead.last()
        total = out.new(f"load0 + tl.where(back, 0.0, {g})")
        odd = f"tl.where(lane % {orders} % 2 == 1, zero - 1.0, 1.0)"
        total = out.new(f"{total} + {index.partner(total)} * {odd}")
        solved([total, *["zero"] * (columns.count - 1)], rows, "T // 2", f"({own}) & (p == 0)")
    out("poison = zero")
    out("tl.debug_barrier()")
    back_body(index, n, reach, "y_ptr")
