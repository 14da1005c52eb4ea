"""Triton source of the substitutions with a kept factor (layout in `_gpu_source.py`)."""

from __future__ import annotations

from smnn._backends._gpu_emit import Source
from smnn._backends._gpu_source import factor_cells, names, store_cell


class _Ahead:
    """Factor rows and right-hand sides of the next step, asked for before they are needed.

    The memory answers while the step at hand is computed.
    """

    def __init__(self, out: Source, n: int, cells: int, first: str, *, with_z: bool) -> None:
        self.n, self.cells, self.with_z = n, cells, with_z
        for i in range(cells):
            out(f"f{i} = {self._cell('factor_ptr', first, cells, i)}")
        for j in range(n if with_z else 0):
            out(f"z{j} = {self._cell('z_ptr', first, n, j)}")

    @staticmethod
    def _cell(pointer: str, step: str, cells: int, cell: int) -> str:
        return f"tl.load({pointer} + (({step}) * {cells} + {cell}) * NL + lane)"

    def take(self, out: Source, following: str) -> tuple[list[str], list[str]]:
        """What was asked for last time; asks for the following step."""
        factor = [out.new(f"f{i}") for i in range(self.cells)]
        right = [out.new(f"z{j}") for j in range(self.n if self.with_z else 0)]
        out(f"following = {following}")
        for i in range(self.cells):
            out(f"f{i} = {self._cell('factor_ptr', 'following', self.cells, i)}")
        for j in range(self.n if self.with_z else 0):
            out(f"z{j} = {self._cell('z_ptr', 'following', self.n, j)}")
        return factor, right


def back_body(out: Source, n: int, reach: int, k: int) -> None:
    """Solve `R y = z` from the last time to the first; separators are known, `poison` is NaN or 0."""
    cells = factor_cells(n, reach, k)
    window = names("y", (reach + 1) * n)
    for i, name in enumerate(window):
        if k and i < k:
            out(f"{name} = tl.load(sep_ptr + safe * {k} + {i}) + poison")
            out(
                f"tl.store(y_ptr + (b * T + t0 + L - pad - {reach - i // n}) * {n} + {i % n}, {name}, mask=valid)"
            )
        else:
            out(f"{name} = zero + poison")
    for i in range(k):
        out(f"left{i} = tl.load(sep_ptr + (safe - 1) * {k} + {i}, mask=p > 0, other=0.0)")
    end = f"L - {reach}" if k else "L"
    ahead = _Ahead(out, n, cells, f"{end} - 1", with_z=True)
    with out.block(f"for turn in range(0, {end}):"):
        out(f"step = {end} - 1 - turn")
        out("t = t0 + step - pad")
        factor, right = ahead.take(out, "tl.maximum(step - 1, 0)")
        for i in range((reach + 1) * n - 1, n - 1, -1):
            out(f"y{i} = y{i - n}")
        at = cells
        for j in range(n - 1, -1, -1):
            at -= (1 + reach) * n - j + k
            total = right[j]
            others = [*window[j + 1 :], *(f"left{i}" for i in range(k))]
            for i, other in enumerate(others):
                total = out.new(f"{total} - {factor[at + 1 + i]} * {other}")
            out(f"y{j} = {total} * {factor[at]}")
        for j in range(n):
            out(f"tl.store(y_ptr + (b * T + t) * {n} + {j}, y{j}, mask=valid & (t >= t0))")


def forward_body(out: Source, n: int, reach: int, k: int, *, paired: bool) -> None:
    """Solve `R^T z = g` from the first time to the last; the rest falls on the separators.

    With `paired`, the load of a chain's node is the sum of two: `g[node, 0]` and `g[node + 1, 1]`.
    """
    cells = factor_cells(n, reach, k)
    window = names("g", (reach + 1) * n)
    for name in [*window, *names("gl", k)]:
        out(f"{name} = zero")
    end = f"L - {reach}" if k else "L"

    def load(j: int, where: str) -> str:
        if not paired:
            return f"tl.load(g_ptr + (b * T + {where}) * {n} + {j}, mask={where} >= t0, other=0.0)"
        own = f"tl.load(g_ptr + (b * T + {where}) * {2 * n} + {j}, mask={where} >= t0, other=0.0)"
        spill = f"(b * T + {where} + 1) * {2 * n} + {n + j}"
        inside = f"({where} >= t0) & ({where} + 1 < T)"
        return f"{own} + tl.load(g_ptr + {spill}, mask={inside}, other=0.0)"

    ahead = _Ahead(out, n, cells, "0", with_z=False)
    with out.block(f"for step in range(0, {end}):"):
        out("t = t0 + step - pad")
        factor, _ = ahead.take(out, f"tl.minimum(step + 1, {end} - 1)")
        live = {name: name for name in [*window, *names("gl", k)]}
        at = 0
        for j in range(n):
            live[f"g{j}"] = out.new(f"{live[f'g{j}']} + {load(j, 't')}")
        for j in range(n):
            z = out.new(f"{live[f'g{j}']} * {factor[at]}")
            store_cell(out, "z_ptr", "step", n, j, z)
            for i, other in enumerate([*window[j + 1 :], *names("gl", k)]):
                live[other] = out.new(f"{live[other]} - {factor[at + 1 + i]} * {z}")
            at += (1 + reach) * n - j + k
        for i, name in enumerate(window):
            later = f"g{i + n}"
            out(f"{name} = {live[later] if i + n < len(window) else 'zero'}")
        for name in names("gl", k):
            out(f"{name} = {live[name]}")
    for i in range(k):
        out(f"t = t0 + L - pad - {reach - i // n}")
        own = out.new(f"g{i} + {load(i % n, 't')}")
        out(f"tl.store(sep_ptr + safe * {2 * k} + {i}, {own}, mask=valid)")
        out(f"tl.store(sep_ptr + safe * {2 * k} + {k + i}, gl{i}, mask=valid)")
