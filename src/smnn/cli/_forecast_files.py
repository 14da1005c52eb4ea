"""The files that `smnn forecast` leaves behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from smnn._util.files import write_atomically, write_json
from smnn._util.optional import require
from smnn.cli import _forecast_view as view
from smnn.cli._forecast_run import Outcome

MOST_RECORDED = 64
"""Series whose values stand in the JSON file; of more, those that are shown."""


def write(outcome: Outcome, folder: Path) -> Path:
    """All files, the report last; returns its path."""
    if outcome.is_grid:
        write_atomically(folder / "forecast.nc", _netcdf(outcome))
    else:
        write_atomically(folder / "forecast.csv", outcome.forecast.frame().to_csv(index=False))
    write_json(folder / "forecast.json", record(outcome))
    return write_atomically(folder / "report.html", view.report(outcome))


def record(outcome: Outcome) -> dict[str, Any]:
    """The result as plain data."""
    f = outcome.forecast
    H = len(f.t)
    listed = range(len(f.names)) if len(f.names) <= MOST_RECORDED else outcome.shown
    return {
        "command": outcome.command,
        "data": {
            "file": outcome.source, "series": len(f.names), "times": len(outcome.clock),
            "first": view.when(outcome.clock.stamps[0]),
            "last": view.when(outcome.clock.stamps[-1]),
            "step": outcome.clock.unit(),
            "missing": int(np.isnan(outcome.values.array).sum()),
            "notes": outcome.series.attrs["notes"],
        },
        "seasons": [
            {"name": s.name, "steps": float(s.length), "harmonics": s.harmonics}
            for s in outcome.forecaster.seasons_
        ],
        "level": f.level,
        "times": [view.when(t) for t in f.t],
        "forecast": {
            f.names[i]: {
                name: [_finite(x) for x in getattr(f, name).reshape(H, -1)[:, i]]
                for name in ("mean", "lower", "upper")
            }
            for i in listed
        },
        "equations": {
            f.names[i]: {"words": list(e.lines), "numbers": _plain(e.numbers)}
            for i, e in ((i, outcome.forecaster.equation(i)) for i in outcome.shown)
        },
        "backtest": None if outcome.tested is None else _plain(outcome.tested.record()),
        "warnings": outcome.doubts(),
        "seconds": round(outcome.seconds, 2),
        "machine": outcome.machine,
    }  # fmt: skip


def _netcdf(outcome: Outcome) -> bytes:
    xarray = require("xarray", "write a grid")
    f, source = outcome.forecast, outcome.series
    coords: dict[str, Any] = {"time": f.t}
    coords |= {d: source[d].values for d in source.dims[1:] if d in source.coords}
    data = {
        name: (source.dims, getattr(f, name).astype(np.float32), {"units": outcome.unit})
        for name in ("mean", "lower", "upper")
    }
    about = {"title": f"Forecast of {outcome.source}", "interval_level": f.level}
    return bytes(xarray.Dataset(data, coords, about).to_netcdf(engine="scipy"))


def _plain(x: Any) -> Any:
    """Without numbers that JSON does not have."""
    if isinstance(x, dict):
        return {k: _plain(v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return [_plain(v) for v in x]
    return _finite(x) if isinstance(x, float) else x


def _finite(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None
