"""`smnn data check`: what the readers of the other commands find in a file."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from smnn.cli._guard import WrongUseError, plain
from smnn.report.numbers import significant

if TYPE_CHECKING:
    from smnn.data import TimeSeriesData

GAP = 1.5
"""A step longer than this times the median step is a gap."""
FEW = 30
"""Rows below which little can be learned."""
MOST_COLUMNS = 40


def examine(path: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Describe a file as plain data.

    Args:
        path: The file.
        options: Arguments of `smnn.data.read` that were given.

    Raises:
        WrongUseError: No reader accepts it; says why.
    """
    from smnn.data import DataError, read

    suffix = path.suffix.lower()
    if path.is_file() and suffix in (".h5", ".hdf5"):
        return _waves(path)
    if path.is_file() and suffix in (".nc", ".nc4", ".cdf") and (grid := _grid(path)):
        return grid
    try:
        data = read(path, **options)
    except DataError as error:
        if (system := _equations(path)) is not None:
            return system
        raise WrongUseError(str(error)) from None
    return _table(path, data, options)


def _table(path: Path, data: TimeSeriesData, options: dict[str, Any]) -> dict[str, Any]:
    steps = np.concatenate([np.diff(t) for t in data.times])
    usual = data.step
    gaps = 0 if usual is None else int((steps > GAP * usual).sum())
    X = np.concatenate(data.values)
    described, problems = [], list(data.warnings)
    for v, name in enumerate(data.names):
        known = X[np.isfinite(X[:, v]), v]
        described.append(
            {"name": name, "unit": data.units.get(name), "missing": int(np.isnan(X[:, v]).sum()),
             "smallest": float(known.min()) if len(known) else None,
             "largest": float(known.max()) if len(known) else None,
             "mean": float(known.mean()) if len(known) else None}
        )  # fmt: skip
        if len(known) > 1 and np.ptp(known) == 0:
            problems.append(f"{name!r} is {known[0]:g} everywhere; `smnn discover` leaves it out.")
    if data.rows < FEW:
        problems.append(f"{data.rows} rows are few; some dozens are needed to learn from.")
    if gaps:
        problems.append(
            f"{gaps} of {len(steps):,} steps are longer than {GAP} times the median step."
        )
    if len(data.names) > 30:
        problems.append(
            f"{len(data.names)} variables are many for `smnn discover`; choose with --columns."
        )
    return {
        "file": str(path), "kind": "table", "summary": data.summary(), "rows": data.rows,
        "series": len(data.times),
        "time": {
            "column": data.time_name, "unit": data.time_unit, "zone": data.zone,
            "start": float(min(t[0] for t in data.times)),
            "end": float(max(t[-1] for t in data.times)), "step": usual,
            "shortest_step": float(steps.min()) if len(steps) else None,
            "longest_step": float(steps.max()) if len(steps) else None,
            "even": data.even, "gaps": gaps,
        },
        "columns": described, "missing": data.missing, "dropped": data.dropped,
        "decided": data.notes, "problems": problems, "next": _commands(path, data, options),
    }  # fmt: skip


def _commands(path: Path, data: TimeSeriesData, options: dict[str, Any]) -> list[str]:
    """Commands for the same data with the same options."""
    words = []
    for name, value in options.items():
        joined = ",".join(value) if isinstance(value, list) else value
        if name == "dayfirst":
            words.append("--dayfirst" if value else "--monthfirst")
        else:
            words.append(f"--{name.replace('_', '-')}={joined}")
    found = []
    long = max(len(t) for t in data.times) >= 3
    if long and (np.nanstd(np.concatenate(data.values), axis=0) > 0).any():
        found.append(["smnn", "discover", str(path), *words])
    words = [word for word in words if not word.startswith("--columns=")]
    words += [f"--column={name}" for name in options.get("columns", ())]
    found.append(["smnn", "forecast", str(path), *words])
    return list(map(shlex.join, found))


def _grid(path: Path) -> dict[str, Any] | None:
    """A NetCDF file whose variables have further axes; `None` if it is a table."""
    from smnn.data import DataFormatError, open_netcdf

    try:
        with open_netcdf(path) as data:
            fields = {n: x for n, x in data.data_vars.items() if x.ndim > 1 and "time" in x.dims}
            if not fields:
                return None
            name, field = next(iter(fields.items()))
            when = np.asarray(field["time"].values)
            values = np.asarray(field.values)
            holes = int(np.isnan(values).sum()) if values.dtype.kind == "f" else 0
            steps = np.diff(when).astype(float)
            even = bool(len(steps) and np.ptp(steps) <= 0.12 * np.median(steps))
            others = [str(n) for n in fields if n != name]
            problems = []
            if len(steps) and steps.min() <= 0:
                problems.append("times are not increasing.")
            return {
                "file": str(path), "kind": "grid", "rows": len(when), "series": None,
                "time": {"column": "time", "unit": None, "start": str(when[0])[:10],
                         "end": str(when[-1])[:10], "even": even},
                "columns": [{
                    "name": str(name), "unit": field.attrs.get("units"), "missing": holes,
                    "shape": list(field.shape), "dims": [str(d) for d in field.dims],
                    "smallest": _number(values, np.nanmin), "largest": _number(values, np.nanmax),
                    "mean": _number(values, np.nanmean),
                }],
                "missing": holes,
                "decided": [f"also there: {', '.join(others)}."] if others else [],
                "problems": problems,
                "next": [shlex.join(["smnn", "forecast", str(path), f"--column={name}"])],
            }  # fmt: skip
    except DataFormatError as error:
        raise WrongUseError(str(error)) from None
    except (OSError, ValueError, KeyError) as error:
        first = (str(error) or type(error).__name__).splitlines()[0]
        raise WrongUseError(f"{path.name} cannot be read as NetCDF: {first}.") from None


def _number(values: np.ndarray, what: Any) -> float | None:
    return float(what(values)) if values.size and np.isfinite(values).any() else None


def _waves(path: Path) -> dict[str, Any]:
    from smnn.datasets.kdv import KdVFileError, read_file

    try:
        data = read_file(path)
    except KdVFileError as error:
        raise WrongUseError(f"{error} Only HDF5 files of KdV waves are known.") from None
    N, T, X = data.u.shape
    return {
        "file": str(path), "kind": "waves", "rows": N * T, "series": N,
        "time": {"column": "t", "unit": None, "start": float(data.t[:, 0].min()),
                 "end": float(data.t[:, -1].max()), "even": True},
        "columns": [{"name": "u", "unit": None, "missing": 0, "shape": [N, T, X],
                     "smallest": float(data.u.min()), "largest": float(data.u.max()),
                     "mean": float(data.u.mean())}],
        "missing": 0, "decided": [], "problems": [],
        "next": [shlex.join(["smnn", "reproduce", "kdv", "--pretrained", f"--data={path}"])],
    }  # fmt: skip


def _equations(path: Path) -> dict[str, Any] | None:
    """A file for `smnn solve`; `None` if it is none."""
    from smnn.equations import EquationError, read

    try:
        system = read(path)
    except EquationError:
        return None
    return {
        "file": str(path), "kind": "equations", "rows": None, "series": None,
        "time": {"column": system.time, "unit": None, "start": system.start,
                 "end": system.end, "step": system.step, "even": True},
        "columns": [{"name": n, "unit": None, "missing": 0} for n in system.variables],
        "missing": 0, "decided": [e.statement.text for e in system.equations], "problems": [],
        "next": [shlex.join(["smnn", "solve", str(path)])],
    }  # fmt: skip


def show(found: dict[str, Any]) -> None:
    """Print a description."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    kinds = {
        "table": "a table of series", "grid": "a grid over time", "waves": "waves for KdV",
        "equations": "linear equations",
    }  # fmt: skip
    sizes = [f"{found['rows']:,} rows"] if found["rows"] is not None else []
    sizes += [f"{found['series']:,} series"] if (found["series"] or 0) > 1 else []
    size = f": {', '.join(sizes)}" if sizes else ""
    console.print(f"{plain(found['file'])} is {kinds[found['kind']]}{size}.", soft_wrap=True)
    if found["kind"] == "table":
        console.print(found["summary"], soft_wrap=True, markup=False)
    else:
        console.print(_times(found["time"]), soft_wrap=True, markup=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("column", "smallest", "mean", "largest", "missing"):
        table.add_column(heading, justify="left" if heading == "column" else "right", no_wrap=True)
    for column in found["columns"][:MOST_COLUMNS]:
        unit = f" [{column['unit']}]" if column["unit"] else ""
        shape = f" {tuple(column['shape'])}" if "shape" in column else ""
        figures = [column.get(key) for key in ("smallest", "mean", "largest")]
        shown = ["" if x is None else significant(x, 5) for x in figures]
        table.add_row(plain(f"{column['name']}{unit}{shape}"), *shown, f"{column['missing']:,}")
    if found["kind"] != "equations":
        console.print(table)
    for text in found["decided"]:
        console.print(f"  {plain(text)}", soft_wrap=True)
    for text in found["problems"]:
        console.print(f"[yellow]problem:[/] {plain(text)}", soft_wrap=True)
    if not found["problems"]:
        console.print("No problems found.")
    for i, command in enumerate(found["next"]):
        console.print(f"{'or' if i else 'Next'}: {plain(command)}", soft_wrap=True)


def _times(time: dict[str, Any]) -> str:
    ends = [x if isinstance(x, str) else significant(x, 6) for x in (time["start"], time["end"])]
    step = f", every {significant(time['step'])}" if "step" in time else ""
    return f"Times: {time['column']}, from {ends[0]} to {ends[1]}{step}."
