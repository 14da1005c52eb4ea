"""The files that `smnn discover` leaves behind."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from smnn._util.files import write_atomically
from smnn.cli import _discover_view as view
from smnn.cli._discover_run import TOLERATED, Found


def write(found: Found, folder: Path) -> Path:
    """All files, the report last; returns its path."""
    model = found.model
    model.save(folder / "model.json")
    write_atomically(folder / "equations.txt", _text(found))
    write_atomically(folder / "equations.tex", _latex(found))
    write_atomically(folder / "coefficients.csv", _coefficients(found))
    write_atomically(folder / "states.csv", _states(found))
    return write_atomically(folder / "report.html", view.report(found))


def record(found: Found) -> dict[str, Any]:
    """The result as plain data."""
    model, table = found.model, found.table
    return {
        "command": found.command,
        "data": {
            "file": found.source, "variables": table.names, "inputs": table.input_names,
            "time": table.time_name, "time_unit": table.time_unit,
            "series": len(table.times), "rows": table.rows, "missing": table.missing,
            "fitted": sum(len(x) for x in found.fitted), "notes": table.notes,
        },
        "equations": model.equations(),
        "latex": model.equations(format="latex"),
        "coefficients": [
            {"target": target, "term": term, "coefficient": c, "low": low, "high": high,
             "chosen": share}
            for target, term, c, low, high, share in _rows(found) if c
        ],
        "noise": [_finite(x) for x in model.noise_],
        "held_out": None if not found.trials else {
            "error": _finite(found.error), "followed": _finite(found.followed),
            "tolerated": TOLERATED,
            "series": [
                {"series": t.series, "start": t.start, "length": t.length, "followed": t.until}
                for t in found.trials
            ],
        },
        "warnings": found.warnings,
        "seconds": round(found.seconds, 3),
        "machine": found.machine,
    }  # fmt: skip


def _text(found: Found) -> str:
    from smnn.discovery._equations import format_equations

    model = found.model
    precise = format_equations(
        model.targets_, model.terms_, model.coefficients_, intervals=model.intervals_,
        link=model.link,
    )  # fmt: skip
    unit = f" in {found.table.time_unit}" if found.table.time_unit else ""
    head = f"# Time: {found.table.time_name or 'rows'}{unit}. {found.command}"
    below = "# With 90 % intervals:" if model.intervals_ is not None else "# Exactly as fitted:"
    return "\n".join([head, *model.equations(), "", below, *precise, ""])


def _latex(found: Found) -> str:
    lines = [line.replace(" = ", " &= ", 1) for line in found.model.equations(format="latex")]
    return "\\begin{align*}\n" + " \\\\\n".join(lines) + "\n\\end{align*}\n"


def _rows(found: Found) -> Iterable[tuple[str, str, float, Any, Any, Any]]:
    """Target, term, coefficient, ends of its interval, how often it was chosen."""
    model = found.model
    for v, target in enumerate(model.targets_):
        for p, term in enumerate(model.terms_):
            c = float(model.coefficients_[v, p])
            ends: Sequence[float | None] = (None, None)
            if c and model.intervals_ is not None:
                ends = [_finite(x) for x in model.intervals_[v, p]]
            share = None if model.inclusion_ is None else _finite(model.inclusion_[v, p])
            yield target, term.name, c, ends[0], ends[1], share


def _coefficients(found: Found) -> str:
    head = ("target", "term", "coefficient", "low_90", "high_90", "chosen")
    return _csv([head, *(tuple("" if x is None else x for x in row) for row in _rows(found))])


def _states(found: Found) -> str:
    """States without noise at the times that were fitted."""
    model, table = found.model, found.table
    several = len(model.times_) > 1
    name = table.time_name or "row"
    rows: list[Sequence[Any]] = [(*(("series",) if several else ()), name, *model.state_names_)]
    for label, t, states in zip(table.series, model.times_, model.states_):
        first = (label,) if several else ()
        rows += [(*first, at, *map(float, state)) for at, state in zip(map(float, t), states)]
    return _csv(rows)


def _csv(rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _finite(x: Any) -> float | None:
    return float(x) if x is not None and np.isfinite(x) else None
