"""Triton source of the substitutions with a kept factor (layout in `_gpu_source.py`)."""

from __future__ import annotations

from smnn._backends._gpu_emit import Source
from smnn._backends._gpu_source import factor_cells, load_cell, names, store_cell


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
    with out.block(f"for turn in range(0, {end}):"):
        out(f"step = {end} - 1 - turn")
        out("t = t0 + step - pad")
        for i in range((reach + 1) * n - 1, n - 1, -1):
            out(f"y{i} = y{i - n}")
        at = cells
        for j in range(n - 1, -1, -1):
            at -= (1 + reach) * n - j + k
            total = load_cell(out, "z_ptr", "step", n, j)
            others = [*window[j + 1 :], *(f"left{i}" for i in range(k))]
            for i, other in enumerate(others):
                x = load_cell(out, "factor_ptr", "step", cells, at + 1 + i)
                total = out.new(f"{total} - {x} * {other}")
            pivot = load_cell(out, "factor_ptr", "step", cells, at)
            out(f"y{j} = {total} * {pivot}")
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

    with out.block(f"for step in range(0, {end}):"):
        out("t = t0 + step - pad")
        live = {name: name for name in [*window, *names("gl", k)]}
        at = 0
        for j in range(n):
            live[f"g{j}"] = out.new(f"{live[f'g{j}']} + {load(j, 't')}")
        for j in range(n):
            pivot = load_cell(out, "factor_ptr", "step", cells, at)
            z = out.new(f"{live[f'g{j}']} * {pivot}")
            store_cell(out, "z_ptr", "step", n, j, z)
            for i, other in enumerate([*window[j + 1 :], *names("gl", k)]):
                x = load_cell(out, "factor_ptr", "step", cells, at + 1 + i)
                live[other] = out.new(f"{live[other]} - {x} * {z}")
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
