"""`smnn data check`: what the reader of the other commands finds in a file."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from smnn.cli._guard import WrongUseError, plain
from smnn.cli._reading import as_options
from smnn.report.numbers import significant

GRIDS = (".nc", ".nc4", ".cdf", ".netcdf", ".zarr")
MOST_COLUMNS = 40


def examine(path: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Describe a file, read with the options that were given, as plain data.

    Raises:
        WrongUseError: No reader accepts it; says why.
    """
    from smnn.data import DataError, describe, describe_grid, read

    if path.is_file() and path.suffix.lower() in (".h5", ".hdf5"):
        return _waves(path)
    try:
        grid = path.exists() and path.suffix.lower() in GRIDS
        found = describe_grid(path, options.get("columns")) if grid else None
        found = {"file": str(path)} | (found or describe(read(path, **options)))
    except DataError as error:
        if (system := _equations(path)) is not None:
            return system
        raise WrongUseError(str(error)) from None
    words = [word for name, value in options.items() for word in _words(name, value)]
    if found["kind"] == "grid":
        words = [f"--columns={found['columns'][0]['name']}"]
    changing = any(c["smallest"] != c["largest"] for c in found["columns"])
    equations = found["kind"] == "table" and found["time"]["longest_series"] >= 3 and changing
    commands = ["discover", "forecast"] if equations else ["forecast"]
    found["next"] = [shlex.join(["smnn", command, str(path), *words]) for command in commands]
    return found


def _words(name: str, value: Any) -> list[str]:
    """An option as it is typed."""
    if name == "dayfirst":
        return ["--dayfirst" if value else "--monthfirst"]
    joined = ",".join(value) if isinstance(value, list) else value
    return [f"--{name.replace('_', '-')}={joined}"]


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
        console.print(f"  {plain(as_options(text))}", soft_wrap=True)
    for text in found["problems"]:
        console.print(f"[yellow]problem:[/] {plain(as_options(text))}", soft_wrap=True)
    if not found["problems"]:
        console.print("No problems found.")
    for i, command in enumerate(found["next"]):
        console.print(f"{'or' if i else 'Next'}: {plain(command)}", soft_wrap=True)


def _times(time: dict[str, Any]) -> str:
    ends = [x if isinstance(x, str) else significant(x, 6) for x in (time["start"], time["end"])]
    step = f", every {significant(time['step'])}" if "step" in time else ""
    return f"Times: {time['column']}, from {ends[0]} to {ends[1]}{step}."
