"""Substitutions with a stored factor (layout in `eliminate.py`)."""

from __future__ import annotations

from collections.abc import Callable

from smnn._solver.gpu.emit import Source, prefetching_load
from smnn._solver.gpu.lane.eliminate import at_step, factor_cells, names, store
from smnn._solver.gpu.lane.time_index import TimeIndex

AHEAD = 64  # Numbers per lane that are prefetched
DEEPEST = 3  # Maximum prefetch distance in steps


def _cell(pointer: str, cells: int, cell: int) -> str:
    return f"tl.load({at_step(pointer, 'STEP', cells, cell)})"


class _Prefetch:
    """Prefetches factor rows and right-hand sides of the next steps into registers.

    Small blocks are prefetched several steps ahead, so that few lanes keep the memory busy. Of
    large blocks, which would exceed the registers, only the numbers that are used first are
    prefetched, one step ahead.

    Args:
        out: Source under construction.
        cells: Numbers of the factor per time.
        steps: Function from the iteration to its step, for the first iterations.
        right: Loads of a step's right-hand sides (placeholder `STEP`).
        backwards: Whether the last numbers of the factor are used first.
    """

    def __init__(
        self, out: Source, cells: int, steps: Callable[[int], str], right: list[str], *,
        backwards: bool,
    ) -> None:  # fmt: skip
        self.depth = max(1, min(DEEPEST, AHEAD // (cells + len(right))))
        self._places = [_cell("factor_ptr", cells, i) for i in range(cells)] + right
        self._cells = cells
        order = range(cells - 1, -1, -1) if backwards else range(cells)
        self._early = sorted([*range(cells, cells + len(right)), *order][:AHEAD])
        for turn in range(self.depth):
            for i in self._early:
                out(f"f{turn}_{i} = {self._load(steps(turn), i)}")

    def _load(self, step: str, i: int) -> str:
        return self._places[i].replace("STEP", f"({step})")

    def take(self, out: Source, step: str, following: str) -> tuple[list[str], list[str]]:
        """Numbers of `step`; prefetches the step `depth` iterations later, `following`."""
        late = {
            i: out.new(self._load(step, i))
            for i in range(len(self._places))
            if i not in self._early
        }
        taken = late | {i: out.new(f"f0_{i}") for i in self._early}
        for turn in range(self.depth - 1):
            for i in self._early:
                out(f"f{turn}_{i} = f{turn + 1}_{i}")
        out(f"following = {following}")
        for i in self._early:
            out(f"f{self.depth - 1}_{i} = {self._load('following', i)}")
        values = [taken[i] for i in range(len(self._places))]
        return values[: self._cells], values[self._cells :]


def back_body(index: TimeIndex, n: int, reach: int, k: int, *, in_place: bool = False) -> None:
    """Solve `R y = z` from the last time to the first, with known separators.

    `poison` is NaN or 0. With `in_place`, the solution replaces `z`.
    """
    out = index.out
    cells = factor_cells(n, reach, k)
    window = names("y", (reach + 1) * n)
    for i, name in enumerate(window):
        if k and i < k:
            out(f"{name} = tl.load(sep_ptr + safe * {k} + {i}) + poison")
            where = f"y_ptr + (b * T + t0 + L - pad - {reach - i // n}) * {n} + {i % n}"
            store(out, where, name)
        else:
            out(f"{name} = zero + poison")
    for i in range(k):
        out(f"left{i} = tl.load(sep_ptr + (safe - 1) * {k} + {i}, mask=p > 0, other=0.0)")
    end = f"L - {reach}" if k else "L"
    ahead = _Prefetch(
        out,
        cells,
        lambda i: f"tl.maximum({end} - {1 + i}, 0)" if i else f"{end} - 1",
        [_cell("z_ptr", n, j) for j in range(n)],
        backwards=True,
    )
    with out.block(f"for turn in range(0, {end}):"):
        out(f"step = {end} - 1 - turn")
        index.set_time("step")
        factor, right = ahead.take(out, "step", f"tl.maximum(step - {ahead.depth}, 0)")
        for i in range((reach + 1) * n - 1, n - 1, -1):
            out(f"y{i} = y{i - n}")
        at = cells
        for j in range(n - 1, -1, -1):
            at -= (1 + reach) * n - j + k
            total = right[j]
            others = list(enumerate([*window[j + 1 :], *(f"left{i}" for i in range(k))], at + 1))
            # The most recent unknowns last, to hide their latency.
            for i, other in [*others[n - 1 - j :], *reversed(others[: n - 1 - j])]:
                total = out.new(f"{total} - {factor[i]} * {other}")
            out(f"y{j} = {total} * {factor[at]}")
        for j in range(n):
            value = index.directed(f"y{j}", j)
            if in_place:
                store(out, at_step("z_ptr", "step", n, j), value)
            else:
                store(out, f"y_ptr + (b * T + t) * {n} + {j}", value, "valid & own")


def forward_body(index: TimeIndex, n: int, reach: int, k: int, *, paired: bool) -> None:
    """Solve `R^T z = g` from the first time to the last; the remainder goes to the separators.

    With `paired`, the right-hand side of a chain's node is `g[node, 0] + g[node + 1, 1]`.
    """
    out = index.out
    cells = factor_cells(n, reach, k)
    window = names("g", (reach + 1) * n)
    for name in [*window, *names("gl", k)]:
        out(f"{name} = zero")
    end = f"L - {reach}" if k or index.orders else "L"

    def load(j: int, step: str, only: str = "") -> str:
        where, there = index.time_of(step)
        there += only
        if not paired:
            return index.directed(
                prefetching_load(f"g_ptr + (b * T + {where}) * {n} + {j}", there), j
            )
        own = f"tl.load(g_ptr + (b * T + {where}) * {2 * n} + {j}, mask={there}, other=0.0)"
        spill = f"(b * T + {where} + 1) * {2 * n} + {n + j}"
        return f"{own} + tl.load(g_ptr + {spill}, mask={there} & ({where} + 1 < T), other=0.0)"

    ahead = _Prefetch(
        out,
        cells,
        lambda i: f"tl.maximum(tl.minimum({i}, {end} - 1), 0)" if i else "0",
        [load(j, "STEP") for j in range(n)],
        backwards=False,
    )
    with out.block(f"for step in range(0, {end}):"):
        factor, g = ahead.take(out, "step", f"tl.minimum(step + {ahead.depth}, {end} - 1)")
        live = {name: name for name in [*window, *names("gl", k)]}
        at = 0
        for j in range(n):
            live[f"g{j}"] = out.new(f"{live[f'g{j}']} + {g[j]}")
        for j in range(n):
            z = out.new(f"{live[f'g{j}']} * {factor[at]}")
            store(out, at_step("z_ptr", "step", n, j), z)
            for i, other in enumerate([*window[j + 1 :], *names("gl", k)]):
                live[other] = out.new(f"{live[other]} - {factor[at + 1 + i]} * {z}")
            at += (1 + reach) * n - j + k
        for i, name in enumerate(window):
            later = f"g{i + n}"
            out(f"{name} = {live[later] if i + n < len(window) else 'zero'}")
        for name in names("gl", k):
            out(f"{name} = {live[name]}")
    for i in range(k):
        own = out.new(f"g{i} + {load(i % n, f'L - {reach - i // n}')}")
        out(f"tl.store(sep_ptr + safe * {2 * k} + {i}, {own}, mask=valid)")
        out(f"tl.store(sep_ptr + safe * {2 * k} + {k + i}, gl{i}, mask=valid)")
    if index.orders:
        sums = [out.new(f"g{j} + {load(j, 'L - 1', ' & (p == 0)')}") for j in range(n)]
        sums = [out.new(f"{x} + {index.partner(x, j)}") for j, x in enumerate(sums)]
        at = 0
        for j in range(n):
            z = out.new(f"{sums[j]} * {_at_meeting(cells, at)}")
            store(out, at_step("z_ptr", "L - 1", n, j), z)
            for i in range(j + 1, n):
                sums[i] = out.new(f"{sums[i]} - {_at_meeting(cells, at + i - j)} * {z}")
            at += 2 * n - j


def _at_meeting(cells: int, cell: int) -> str:
    """Load a number of the factor where the two lanes of a pair meet."""
    return _cell("factor_ptr", cells, cell).replace("STEP", "(L - 1)")
