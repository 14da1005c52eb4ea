"""What `smnn data check` finds out about a file: the readers are those of the other commands."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np

from smnn.cli._guard import WrongUseError, plain
from smnn.report.numbers import significant

UNEVEN = 1e-3
"""Spread of the steps, relative to the usual one, up to which they count as even."""
GAP = 1.5
"""A step longer than this times the usual one is a gap."""
FEW = 30
"""Rows below which little can be learned."""
MOST_COLUMNS = 40


def examine(
    path: Path, time: str | None, columns: str | None, series: str | None
) -> dict[str, Any]:
    """Everything that is said about a file, as plain data.

    Raises:
        WrongUseError: No reader takes it; says why.
    """
    from smnn.data._tables import TableError, read_table

    suffix = path.suffix.lower()
    if path.is_file() and suffix in (".h5", ".hdf5"):
        return _waves(path)
    if path.is_file() and suffix in (".nc", ".nc4", ".cdf") and (grid := _grid(path)):
        return grid
    names = None if columns is None else [n.strip() for n in columns.split(",") if n.strip()]
    try:
        table = read_table(path, time, names, series)
    except TableError as error:
        if (system := _equations(path)) is not None:
            return system
        raise WrongUseError(str(error)) from None
    return _table(path, table, time, names, series)


def _table(
    path: Path, table: Any, time: str | None, names: list[str] | None, series: str | None
) -> dict[str, Any]:
    steps = np.concatenate([np.diff(t) for t in table.times])
    usual = float(np.median(steps))
    even = bool(np.ptp(steps) <= UNEVEN * usual)
    gaps = int((steps > GAP * usual).sum())
    X = np.concatenate(table.values)
    described = []
    for v, name in enumerate(table.names):
        known = X[np.isfinite(X[:, v]), v]
        described.append(
            {"name": name, "unit": table.units.get(name), "missing": int(np.isnan(X[:, v]).sum()),
             "smallest": float(known.min()), "largest": float(known.max()),
             "mean": float(known.mean())}
        )  # fmt: skip
    problems = list(table.warnings)
    if table.rows < FEW:
        problems.append(f"{table.rows} rows are few; some dozens are needed to learn from.")
    if gaps:
        problems.append(
            f"{gaps} of {len(steps):,} steps are longer than {GAP} times the usual one."
        )
    if len(table.names) > 30:
        problems.append(
            f"{len(table.names)} variables are many for `smnn discover`; choose with --columns."
        )
    when = [] if time is None else [f"--time={time}"]
    options = [*when, *([] if names is None else [f"--columns={','.join(names)}"])]
    options += [] if series is None else [f"--series={series}"]
    following = [shlex.join(["smnn", "discover", str(path), *options])]
    if len(table.times) == 1:
        picks = [f"--column={n}" for n in names or ()]
        following.append(shlex.join(["smnn", "forecast", str(path), *when, *picks]))
    return {
        "file": str(path), "kind": "table", "rows": table.rows, "series": len(table.times),
        "time": {
            "column": table.time_name, "unit": table.time_unit,
            "start": float(min(t[0] for t in table.times)),
            "end": float(max(t[-1] for t in table.times)),
            "step": usual, "shortest_step": float(steps.min()), "longest_step": float(steps.max()),
            "even": even, "gaps": gaps,
        },
        "columns": described, "missing": table.missing, "decided": table.notes,
        "problems": problems, "next": following,
    }  # fmt: skip


def _grid(path: Path) -> dict[str, Any] | None:
    """A NetCDF file whose variables have more axes than time; `None` if it is a table."""
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
    """For a person."""
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
    if time["column"] is None:
        return f"No column of times: rows are counted from 0 to {time['end']:g}."
    unit = f" ({time['unit']})" if time["unit"] else ""
    ends = [x if isinstance(x, str) else significant(x, 6) for x in (time["start"], time["end"])]
    text = f"Times: {time['column']}{unit}, from {ends[0]} to {ends[1]}"
    if "step" not in time:
        return text + "."
    if time["even"]:
        return f"{text}, every {significant(time['step'])}."
    low, high = significant(time["shortest_step"]), significant(time["longest_step"])
    return f"{text}, uneven: every {low} to {high}, usually {significant(time['step'])}."
