"""Triton source of the substitutions with a kept factor (layout in `_gpu_source.py`)."""

from __future__ import annotations

from collections.abc import Callable

from smnn._backends._gpu_emit import Source
from smnn._backends._gpu_source import factor_cells, names, store_cell

AHEAD = 64
"""Numbers that a lane asks for in advance: the memory answers while it computes."""
DEEPEST = 3
"""Steps ahead, at most."""


def _cell(pointer: str, cells: int, cell: int) -> str:
    return f"tl.load({pointer} + (STEP * {cells} + {cell}) * NL + lane)"


class _Ahead:
    """Factor rows and right-hand sides of the next steps, asked for before they are needed.

    Small blocks are asked for several steps ahead: a few lanes must keep the memory busy. Large
    ones would fill the registers, and are read when they are needed.

    Args:
        out: The kernel.
        cells: Numbers of the factor per time.
        steps: The first steps in the order they are taken, as a function of how many come before.
        right: How a step's right-hand sides are read; `STEP` stands for it.
    """

    def __init__(
        self, out: Source, cells: int, steps: Callable[[int], str], right: list[str]
    ) -> None:
        self.depth = min(DEEPEST, AHEAD // (cells + len(right)))
        self._places = [_cell("factor_ptr", cells, i) for i in range(cells)] + right
        self._cells = cells
        for turn in range(self.depth):
            for i in range(len(self._places)):
                out(f"f{turn}_{i} = {self._load(steps(turn), i)}")

    def _load(self, step: str, i: int) -> str:
        return self._places[i].replace("STEP", f"({step})")

    def take(self, out: Source, following: str) -> tuple[list[str], list[str]]:
        """What was asked for first; asks for the step `depth` turns later, `following`."""
        if not self.depth:
            taken = [out.new(self._load(following, i)) for i in range(len(self._places))]
            return taken[: self._cells], taken[self._cells :]
        taken = [out.new(f"f0_{i}") for i in range(len(self._places))]
        for turn in range(self.depth - 1):
            for i in range(len(self._places)):
                out(f"f{turn}_{i} = f{turn + 1}_{i}")
        out(f"following = {following}")
        for i in range(len(self._places)):
            out(f"f{self.depth - 1}_{i} = {self._load('following', i)}")
        return taken[: self._cells], taken[self._cells :]


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
    ahead = _Ahead(
        out,
        cells,
        lambda i: f"tl.maximum({end} - {1 + i}, 0)" if i else f"{end} - 1",
        [_cell("z_ptr", n, j) for j in range(n)],
    )
    with out.block(f"for turn in range(0, {end}):"):
        out(f"step = {end} - 1 - turn")
        out("t = t0 + step - pad")
        factor, right = ahead.take(out, f"tl.maximum(step - {ahead.depth}, 0)")
        for i in range((reach + 1) * n - 1, n - 1, -1):
            out(f"y{i} = y{i - n}")
        at = cells
        for j in range(n - 1, -1, -1):
            at -= (1 + reach) * n - j + k
            total = right[j]
            others = list(enumerate([*window[j + 1 :], *(f"left{i}" for i in range(k))], at + 1))
            # First what is known since long, last what has just been found: nothing waits for it.
            for i, other in [*others[n - 1 - j :], *reversed(others[: n - 1 - j])]:
                total = out.new(f"{total} - {factor[i]} * {other}")
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

    ahead = _Ahead(
        out,
        cells,
        lambda i: f"tl.maximum(tl.minimum({i}, {end} - 1), 0)" if i else "0",
        [load(j, "(t0 + STEP - pad)") for j in range(n)],
    )
    with out.block(f"for step in range(0, {end}):"):
        factor, g = ahead.take(out, f"tl.minimum(step + {ahead.depth}, {end} - 1)")
        live = {name: name for name in [*window, *names("gl", k)]}
        at = 0
        for j in range(n):
            live[f"g{j}"] = out.new(f"{live[f'g{j}']} + {g[j]}")
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
