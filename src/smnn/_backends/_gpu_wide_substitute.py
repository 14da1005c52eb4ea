"""Triton source of the substitutions with a factor kept by `_gpu_wide_source.py`."""

from __future__ import annotations

from smnn._backends._gpu_emit import Source
from smnn._backends._gpu_source import factor_cells
from smnn._backends._gpu_wide import Columns, broadcast, times


class _Ahead:
    """Numbers of the factor for the next time, asked for while this one is worked on."""

    def __init__(self, out: Source, places: list[tuple[str, str]], first: str) -> None:
        self._out, self._places = out, places
        for k in range(len(places)):
            out(f"f{k} = {self._load(k, first)}")

    def _load(self, k: int, time: str) -> str:
        where, mask = self._places[k]
        return f"tl.load({where.replace('TIME', f'(b * T + {time})')}, mask={mask}, other=0.0)"

    def take(self, following: str) -> list[str]:
        """Those of this time, in the order of their places."""
        out = self._out
        taken = [out.new(f"f{k}") for k in range(len(self._places))]
        out(f"following = {following}")
        for k in range(len(self._places)):
            out(f"f{k} = {self._load(k, 'following')}")
        return taken


def back_body(out: Source, n: int, reach: int, right: str) -> None:
    """Solve `R y = z` from the last time to the first, unknown by unknown; lane `i` has the `i`-th.

    `poison` is NaN or 0; `right` is where `z` lies, and `y_ptr` where the answer goes.
    """
    cells, columns = factor_cells(n, reach, 0), (reach + 1) * n
    out(f"row = lane * {columns} - lane * (lane - 1) // 2 - lane")
    start = f"factor_ptr + TIME * {cells} + row"
    places = [(f"{right} + TIME * {n} + lane", f"lane < {n}")]
    places += [(f"{start} + lane", f"lane < {n}")]
    places += [(f"{start} + {c}", f"lane < {min(c, n)}") for c in range(columns)]
    ahead = _Ahead(out, places, "(L - 1)")
    for k in range(reach + 1):
        out(f"y{k} = zero + poison")
    with times(out, backwards=True):
        z, inverse, *factor = ahead.take("tl.maximum(t - 1, 0)")
        for k in range(reach, 0, -1):
            out(f"y{k} = y{k - 1}")
        # Two chains of additions, because one waits for itself.
        chains = [z, "zero"]
        for c in range(n, columns):
            x = broadcast(out, f"y{c // n}", c % n)
            chains[c % 2] = out.new(f"{chains[c % 2]} - {factor[c]} * {x}")
        total = out.new(f"{chains[0]} + {chains[1]}")
        for j in range(n - 1, 0, -1):
            x = broadcast(out, out.new(f"{total} * {inverse}"), j)
            total = out.new(f"{total} - {factor[j]} * {x}")
        out(f"y0 = {total} * {inverse}")
        out(f"tl.store(y_ptr + (b * T + t) * {n} + lane, y0, mask=lane < {n})")


def adjoint_body(out: Source, n: int, reach: int, team: int) -> None:
    """Solve `R^T z = g` from the first time to the last, then `R y = z`."""
    columns = Columns(out, n, reach + 1, team)
    cells, blocks = factor_cells(n, reach, 0), reach + 1
    places = [(f"g_ptr + TIME * {n} + lane", f"lane < {n}")]
    for j in range(n):
        start = j * blocks * n - j * (j - 1) // 2 - j
        for i in range(columns.count):
            number, own = columns.number(i)
            where = f"factor_ptr + TIME * {cells} + {start} + {number}"
            places.append((where, f"(col{i} >= {j}) & {own}"))
    ahead = _Ahead(out, places, "0")
    for i in range(columns.count):
        out(f"load{i} = zero")
    with times(out):
        g, *rows = ahead.take("tl.minimum(t + 1, L - 1)")
        loads = [f"load{i}" for i in range(columns.count)]
        loads[0] = out.new(f"load0 + {g}")
        z = "zero"
        for j in range(n):
            row = rows[j * columns.count : (j + 1) * columns.count]
            # What it leaves behind in its own column is not looked at again.
            x = broadcast(out, out.new(f"{loads[0]} * {row[0]}"), j)
            z = out.new(f"tl.where(lane == {j}, {x}, {z})")
            loads = [out.new(f"{a} - {f} * {x}") for a, f in zip(loads, row, strict=True)]
        out(f"tl.store(y_ptr + (b * T + t) * {n} + lane, {z}, mask=lane < {n})")
        for i, x in enumerate(columns.moved(loads, keep_right=False)):
            out(f"load{i} = {x}")
    out("poison = zero")
    out("tl.debug_barrier()")
    back_body(out, n, reach, "y_ptr")
