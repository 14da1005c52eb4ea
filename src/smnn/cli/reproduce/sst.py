"""`smnn reproduce sst`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smnn.cli._guard import WRONG_USE, Debug, chosen_device, guarded, notices, plain
from smnn.cli.reproduce._parts import progress, show

if TYPE_CHECKING:
    from smnn.experiments.sst.run import Config, Result

DEFAULT_OUT = Path("smnn-results") / "sst"


def sst(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = DEFAULT_OUT,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not tables.")] = False,
    data: Annotated[
        Path | None, typer.Option(help="Monthly grid (NetCDF); the packaged one by default.")
    ] = None,
    mask: Annotated[Path | None, typer.Option(help="Its land mask, as NOAA's lsmask.nc.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="One hold-out, one seed, short training.")
    ] = False,
    scale: Annotated[str, typer.Option(help="small (a CPU, minutes) or full (a GPU).")] = "small",
    holdouts: Annotated[
        int, typer.Option(min=1, help="Stretches of 48 months to forecast, one before the other.")
    ] = 4,
    seeds: Annotated[int, typer.Option(min=1, help="How often each network is trained.")] = 3,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Training steps; 600 in small scale, 10,000 in full.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The first of the seeds.")] = 0,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.")] = None,
    debug: Debug = False,
) -> None:
    """Forecast four years of sea surface temperature, beside simple forecasts and Ada-GVAE.

    Writes sst.json, five PNGs and report.html into the folder.
    """
    with guarded(debug):
        from smnn._util.files import prepare_output
        from smnn.datasets.sst import DataFormatError, read_grid
        from smnn.experiments.sst.run import Config, run, ticks

        prepare_output(out)
        try:
            config = Config(
                holdouts=1 if quick else holdouts,
                seeds=tuple(range(seed, seed + (1 if quick else seeds))),
                steps=(steps or 120) if quick else steps,
                scale=scale,
                forecaster=not quick,
                device=None if device is None else str(chosen_device(device)),
            )
            grid = None if data is None else read_grid(data, mask)
        except (ValueError, DataFormatError) as error:
            notices().print(f"[bold red]error:[/] {plain(str(error))}", soft_wrap=True)
            raise typer.Exit(WRONG_USE) from None
        with progress(ticks(config), "stages", "Reading the grid", width=32) as tick:
            result = run(config, grid, tick)
        report = _write(result, out, _command(out, result.config, data, mask))
        if as_json:
            typer.echo(json.dumps(result.record(), indent=2))
        else:
            _show(result, report)


def _command(out: Path, config: Config, data: Path | None, mask: Path | None) -> str:
    options = ["--out", str(out), "--scale", config.scale]
    if config.forecaster:
        options += ["--holdouts", str(config.holdouts), "--seeds", str(len(config.seeds))]
    else:
        options.append("--quick")
    options += ["--seed", str(config.seeds[0]), "--steps", str(config.steps)]
    options += ["--device", str(config.device)]
    for name, path in (("--data", data), ("--mask", mask)):
        options += [] if path is None else [name, str(path)]
    return shlex.join(["smnn", "reproduce", "sst", *options])


def _write(result: Result, out: Path, command: str) -> Path:
    """All files, the report last; returns its path."""
    from smnn._util.files import write_atomically, write_json
    from smnn.experiments.sst import view

    write_json(out / "sst.json", {"command": command, **result.record()})
    images = view.pictures(result)
    for name, png in images.items():
        write_atomically(out / f"{name}.png", png)
    return write_atomically(out / "report.html", view.report(result, images, command))


def _show(result: Result, report: Path) -> None:
    from smnn.experiments.sst import view

    show(view.tables(result), view.summary(result), report)
