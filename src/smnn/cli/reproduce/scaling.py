"""`smnn reproduce scaling`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smnn.cli._guard import WRONG_USE, Debug, chosen_device, guarded, notices, plain
from smnn.cli.reproduce._parts import progress, show

if TYPE_CHECKING:
    from smnn.experiments.scaling.run import Config, Scaling

DEFAULT_OUT = Path("smnn-results") / "scaling"
LENGTHS = "26,52,104,208,416,832,1727"


def scaling(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = DEFAULT_OUT,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not tables.")] = False,
    record: Annotated[
        Path | None, typer.Option(help="Draw this scaling.json; measure nothing.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Weekly grid; the packaged monthly one, interpolated, else.")
    ] = None,
    mask: Annotated[Path | None, typer.Option(help="Its land mask, as NOAA's lsmask.nc.")] = None,
    lengths: Annotated[str, typer.Option(help="Weeks, rising, with commas.")] = LENGTHS,
    pairs: Annotated[
        int | None, typer.Option(min=1, help="Pairs in a batch; 6,480 on a GPU, 16 on a CPU.")
    ] = None,
    hidden: Annotated[
        int | None, typer.Option(min=1, help="Width of networks; 1,024 on a GPU, 64 on a CPU.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Training of each point.")] = 6.0,
    limit: Annotated[float, typer.Option(min=0.1, help="Seconds that one step may take.")] = 20.0,
    seed: Annotated[int, typer.Option(min=0, help="Of networks and batches.")] = 0,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.")] = None,
    debug: Debug = False,
) -> None:
    """Measure error, time and memory against the length: S-MNN, MNN dense and sparse, Ada-GVAE.

    Writes scaling.json (again after every point), scaling.png and report.html into the folder.
    """
    with guarded(debug):
        from smnn._util.files import prepare_output, write_json
        from smnn.datasets.sst import DataFormatError, read_grid
        from smnn.experiments.scaling.run import Config, from_record, run, ticks

        prepare_output(out)
        try:
            if record is not None:
                result = from_record(json.loads(record.read_text()))
            else:
                config = Config(
                    lengths=tuple(int(x) for x in lengths.split(",")), pairs=pairs, hidden=hidden,
                    seconds=seconds, limit=limit, seed=seed,
                    device=None if device is None else str(chosen_device(device)),
                )  # fmt: skip
                grid = None if data is None else read_grid(data, mask)
        except (ValueError, KeyError, OSError, DataFormatError) as error:
            notices().print(f"[bold red]error:[/] {plain(str(error))}", soft_wrap=True)
            raise typer.Exit(WRONG_USE) from None
        if record is None:
            command = _command(out, config, data, mask)
            with progress(ticks(config), "points", "Reading the grid") as tick:

                def told(name: str, so_far: Scaling) -> None:
                    write_json(out / "scaling.json", {"command": command, **so_far.record()})
                    tick(name)

                result = run(config, grid, told)
        else:
            command = shlex.join(
                ["smnn", "reproduce", "scaling", "--record", str(record), "--out", str(out)]
            )
        report = _write(result, out, command)
        if as_json:
            typer.echo(json.dumps(result.record(), indent=2))
        else:
            _show(result, report)


def _command(out: Path, config: Config, data: Path | None, mask: Path | None) -> str:
    config = config.resolved()
    options = ["--out", str(out), "--lengths", ",".join(map(str, config.lengths))]
    options += ["--pairs", str(config.pairs), "--hidden", str(config.hidden)]
    options += ["--seconds", f"{config.seconds:g}", "--limit", f"{config.limit:g}"]
    options += ["--seed", str(config.seed), "--device", str(config.device)]
    for name, path in (("--data", data), ("--mask", mask)):
        options += [] if path is None else [name, str(path)]
    return shlex.join(["smnn", "reproduce", "scaling", *options])


def _write(result: Scaling, out: Path, command: str) -> Path:
    """All files, the report last; returns its path."""
    from smnn._util.files import write_atomically, write_json
    from smnn.experiments.scaling import view

    write_json(out / "scaling.json", {"command": command, **result.record()})
    png = view.figure(result)
    write_atomically(out / "scaling.png", png)
    return write_atomically(out / "report.html", view.report(result, png, command))


def _show(result: Scaling, report: Path) -> None:
    from smnn.experiments.scaling import view

    show([view.table(result)], view.summary(result), report)
