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

    try:
        grid = path.exists() and path.suffix.lower() in GRIDS
        found = describe_grid(path, options.get("columns")) if grid else None
        found = {"file": str(path)} | (found or describe(read(path, **options)))
    except DataError as error:
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


def show(found: dict[str, Any]) -> None:
    """Print a description."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    kind = {"table": "a table of series", "grid": "a grid over time"}[found["kind"]]
    size = f"{found['rows']:,} rows"
    size += f", {found['series']:,} series" if (found["series"] or 0) > 1 else ""
    console.print(f"{plain(found['file'])} is {kind}: {size}.", soft_wrap=True)
    time = found["time"]
    times = f"Times: {time['column']}, from {time['start']} to {time['end']}."
    console.print(found.get("summary", times), soft_wrap=True, markup=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("column", "smallest", "mean", "largest", "missing"):
        table.add_column(heading, justify="left" if heading == "column" else "right", no_wrap=True)
    for column in found["columns"][:MOST_COLUMNS]:
        unit = f" [{column['unit']}]" if column["unit"] else ""
        shape = f" {tuple(column['shape'])}" if "shape" in column else ""
        figures = [column.get(key) for key in ("smallest", "mean", "largest")]
        shown = ["" if x is None else significant(x, 5) for x in figures]
        table.add_row(plain(f"{column['name']}{unit}{shape}"), *shown, f"{column['missing']:,}")
    console.print(table)
    for text in found["decided"]:
        console.print(f"  {plain(as_options(text))}", soft_wrap=True)
    for text in found["problems"]:
        console.print(f"[yellow]problem:[/] {plain(as_options(text))}", soft_wrap=True)
    if not found["problems"]:
        console.print("No problems found.")
    for i, command in enumerate(found["next"]):
        console.print(f"{'or' if i else 'Next'}: {plain(command)}", soft_wrap=True)
