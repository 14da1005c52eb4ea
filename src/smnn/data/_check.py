"""What a file holds and what may be wrong with it, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from smnn.data._dataset import TimeSeriesData
from smnn.data._netcdf import open_netcdf

GAP = 1.5
"""A step longer than this times the median step is a gap."""
FEW, MANY = 30, 30
"""Rows below which little can be learned; variables above which fits are slow."""


def describe(data: TimeSeriesData) -> dict[str, Any]:
    """Describe series: times, variables, what was assumed, and what may be wrong, as plain data."""
    steps = np.concatenate([np.diff(t) for t in data.times])
    gaps = 0 if data.step is None else int((steps > GAP * data.step).sum())
    X = np.concatenate(data.values)
    columns = [{"name": n, "unit": data.units.get(n), **_figures(X[:, v])}
               for v, n in enumerate(data.names)]  # fmt: skip
    problems = [*data.warnings]
    problems += [
        f"{c['name']!r} is {c['smallest']:g} everywhere; equations leave it out."
        for c in columns
        if c["smallest"] is not None and c["smallest"] == c["largest"]
    ]
    if data.rows < FEW:
        problems.append(f"{data.rows} rows are few; some dozens are needed to learn from.")
    if gaps:
        problems.append(f"{gaps} of {len(steps):,} steps are longer than {GAP} median steps.")
    if len(columns) > MANY:
        problems.append(f"{len(columns)} variables are many for equations; choose with columns=.")
    return {
        "kind": "table", "summary": data.summary(), "rows": data.rows, "series": len(data.times),
        "time": {
            "column": data.time_name, "unit": data.time_unit, "zone": data.zone,
            "start": float(min(t[0] for t in data.times)),
            "end": float(max(t[-1] for t in data.times)), "step": data.step,
            "shortest_step": float(steps.min()) if len(steps) else None,
            "longest_step": float(steps.max()) if len(steps) else None,
            "longest_series": max(map(len, data.times)), "even": data.even, "gaps": gaps,
        },
        "columns": columns, "missing": data.missing, "dropped": data.dropped,
        "decided": data.notes, "problems": problems,
    }  # fmt: skip


def describe_grid(path: Path, columns: Sequence[str] | None = None) -> dict[str, Any] | None:
    """Describe a variable on a grid over time, by default the first; `None` for a table.

    Raises:
        DataFormatError: The file cannot be read.
    """
    with open_netcdf(path) as data:
        timed = {str(n): x for n, x in data.data_vars.items() if "time" in x.dims}
        fields = {n: x for n, x in timed.items() if x.ndim > 1 and "bnds" not in n}
        series = {n for n, x in timed.items() if x.ndim == 1}
        table = bool(series) and set(columns or series) <= series
        return _grid(fields, columns) if fields and not table else None


def _grid(fields: dict[Any, Any], columns: Sequence[str] | None) -> dict[str, Any]:
    name = (columns or [next(iter(fields))])[0]
    field = fields.get(name, next(iter(fields.values())))
    when, figures = np.asarray(field["time"].values), _figures(np.asarray(field.values))
    steps = np.diff(when).astype(float)
    others = [str(n) for n in fields if n != field.name]
    return {
        "kind": "grid", "rows": len(when), "series": None,
        "time": {"column": "time", "unit": None, "start": str(when[0])[:10],
                 "end": str(when[-1])[:10],
                 "even": bool(len(steps) and np.ptp(steps) <= 0.12 * np.median(steps))},
        "columns": [{"name": str(field.name), "unit": field.attrs.get("units"), **figures,
                     "shape": list(field.shape), "dims": [str(d) for d in field.dims]}],
        "missing": figures["missing"],
        "decided": [f"also there: {', '.join(others)}."] if others else [],
        "problems": ["times are not increasing."] if len(steps) and steps.min() <= 0 else [],
    }  # fmt: skip


def _figures(x: np.ndarray) -> dict[str, Any]:
    known = x[np.isfinite(x)] if x.dtype.kind == "f" else x.ravel()
    found: dict[str, Any] = {"missing": int(np.isnan(x).sum()) if x.dtype.kind == "f" else 0}
    if not len(known):
        return found | {"smallest": None, "largest": None, "mean": None}
    figures = {"smallest": known.min(), "largest": known.max(), "mean": known.mean()}
    return found | {key: float(value) for key, value in figures.items()}
