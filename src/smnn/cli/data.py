"""`smnn data`: write example data sets, and check how a file is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from smnn.cli import _guard as shared
from smnn.cli._guard import WrongUseError, guarded, notices, plain
from smnn.cli._reading import reads_data
from smnn.errors import DataError

app = typer.Typer(help="Write example data sets; check how a file is read.", no_args_is_help=True)
SUFFIXES = {".csv": "csv", ".nc": "nc", ".h5": "h5"}


@app.command("list")
def list_sets(as_json: shared.AsJson = False, debug: shared.Debug = False) -> None:
    """List the data sets, with their sizes and sources."""
    with guarded(debug):
        from smnn.datasets.catalogue import all_sets

        found = list(all_sets().values())
        if as_json:
            typer.echo(json.dumps([data.record() for data in found], indent=2))
            return
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for heading in ("name", "content and source"):
            table.add_column(heading, no_wrap=heading == "name")
        for data in found:
            content = f"{data.what}: {data.size} [dim]({', '.join(data.formats)}). {data.source}[/]"
            table.add_row(data.name, content)
        console = Console(highlight=False)
        console.print(table)
        console.print("\n`smnn data make NAME` writes one to a file.")


@app.command("make")
def make(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Data set, see `smnn data list`.")],
    noise: Annotated[float | None, typer.Option(
        min=0.0, help="Noise, relative to the standard deviation.")] = None,
    samples: Annotated[int | None, typer.Option(
        min=3, help="Times of every series (kdv: number of series).")] = None,
    step: Annotated[float | None, typer.Option(help="Time between two samples.")] = None,
    split: Annotated[str | None, typer.Option(help="kdv: train, valid or test.")] = None,
    seed: shared.Seed = 0,
    device: shared.Device = None,
    form: Annotated[str | None, typer.Option(
        "--format", help="csv, nc (NetCDF) or h5 (HDF5).")] = None,
    out: Annotated[Path, typer.Option(
        help="Folder, or a file ending in .csv, .nc or .h5.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    as_json: shared.AsJson = False,
    debug: shared.Debug = False,
) -> None:  # fmt: skip
    """Write a data set to a file."""
    with guarded(debug, DataError):
        from smnn._util.files import prepare_output
        from smnn.datasets.catalogue import Options, find_set

        data = find_set(name)
        asked = {"noise": noise, "samples": samples, "step": step, "split": split, "device": device}
        _check(data, asked, seed)
        path = _path(data, form, out)
        prepare_output(path.parent)
        if path.exists() and not force:
            raise WrongUseError(f"{path} exists; give another --out, or --force to replace it.")
        options = Options(
            noise, seed, samples, step, split,
            "cpu" if "device" not in data.options else str(shared.chosen_device(device)),
        )  # fmt: skip
        with notices().status(f"Making {data.name}") as status:
            done = 0

            def tick(more: int) -> None:
                nonlocal done
                done += more
                status.update(f"Making {data.name}: {done} of {samples or 512}")

            content = data.write(path, options, tick)
        if as_json:
            facts = {"name": data.name, "file": str(path), "content": content,
                     "bytes": path.stat().st_size, "source": data.source, "seed": seed,
                     **{k: v for k, v in asked.items() if v is not None}}  # fmt: skip
            typer.echo(json.dumps(facts, indent=2))
        else:
            console = Console(highlight=False)
            console.print(f"{plain(str(path))}: {plain(content)}", soft_wrap=True)
            console.print(f"[dim]Source: {plain(data.source)}[/]", soft_wrap=True)


def _check(data: Any, asked: dict[str, Any], seed: int) -> None:
    """Raise an error for options without effect."""
    given = {key for key, value in asked.items() if value is not None}
    given |= {"seed"} if seed else set()
    if useless := sorted(given - data.options):
        takes = ", ".join(f"--{x}" for x in sorted(data.options)) or "no options of its own"
        raise WrongUseError(f"--{useless[0]} has no effect for {data.name}, which takes {takes}.")
    if asked["step"] is not None and not 0 < asked["step"] < float("inf"):
        raise WrongUseError(f"--step: got {asked['step']}; expected a positive number.")
    if asked["split"] not in (None, "train", "valid", "test"):
        raise WrongUseError(f"--split: got {asked['split']!r}; expected train, valid or test.")


def _path(data: Any, form: str | None, out: Path) -> Path:
    suffix = SUFFIXES.get(out.suffix.lower())
    ending = form or suffix or data.formats[0]
    if ending not in data.formats:
        can = " or ".join(data.formats)
        raise WrongUseError(f"{data.name} cannot be written as {ending}; expected {can}.")
    if suffix is not None and form is not None and suffix != form:
        raise WrongUseError(f"--format {form} does not fit the name {out.name}.")
    return out if suffix is not None and not out.is_dir() else out / f"{data.name}.{ending}"


@app.command("check")
@reads_data
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Table or grid.")],
    reading: dict[str, Any],
    as_json: shared.AsJson = False,
    debug: shared.Debug = False,
) -> None:  # fmt: skip  # fmt: skip
    """Show what is read from a file, and what may be wrong with it."""
    with guarded(debug):
        from smnn.cli._data_check import examine, show

        found = examine(file, reading)
        if as_json:
            typer.echo(json.dumps(found, indent=2, allow_nan=False))
        else:
            show(found)
