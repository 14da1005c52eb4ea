"""`smnn reproduce kdv`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smnn.cli._guard import WRONG_USE, Debug, guarded, notices, plain
from smnn.cli.reproduce._parts import show

if TYPE_CHECKING:
    from smnn.experiments.kdv.run import Result

DEFAULT_OUT = Path("smnn-results") / "kdv"
MODELS = "modes,window,fno-ar-lpsda,resnet-ar-lpsda"


def kdv(
    out: Annotated[Path, typer.Option(help="Folder for data, runs and results.")] = DEFAULT_OUT,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not tables.")] = False,
    pretrained: Annotated[
        bool, typer.Option("--pretrained", help="Score the model of the package; train nothing.")
    ] = False,
    data: Annotated[
        Path | None, typer.Option(help="Score this HDF5 file, in the published layout.")
    ] = None,
    models: Annotated[str, typer.Option(help="Models to train, with commas.")] = MODELS,
    scale: Annotated[str, typer.Option(help="small (a CPU, minutes) or full (a GPU).")] = "small",
    seconds: Annotated[float, typer.Option(min=1, help="Training time of each network.")] = 60.0,
    train: Annotated[int, typer.Option(min=8, help="Training trajectories.")] = 512,
    valid: Annotated[int, typer.Option(min=1, help="Validation trajectories.")] = 64,
    test: Annotated[int, typer.Option(min=1, help="Test trajectories.")] = 512,
    seed: Annotated[int, typer.Option(min=0, help="Decides data and weights.")] = 0,
    debug: Debug = False,
) -> None:
    """Learn to continue waves on a circle: the KdV experiment.

    Writes kdv.json, kdv.png and report.html into the folder. The same command again takes up what
    is unfinished.
    """
    with guarded(debug):
        from smnn.datasets.kdv import KdVFileError
        from smnn.experiments.kdv.run import Config, run

        try:
            config = Config(
                models=tuple(models.split(",")), scale=scale, train=train, valid=valid, test=test,
                seconds=seconds, seed=seed, pretrained=pretrained,
                data=None if data is None else str(data),
            )  # fmt: skip
        except ValueError as error:
            notices().print(f"[bold red]error:[/] {plain(str(error))}", soft_wrap=True)
            raise typer.Exit(WRONG_USE) from None
        try:
            with _progress() as tick:
                result = run(config, out, tick)
        except KdVFileError as error:
            notices().print(f"[bold red]error:[/] {plain(str(error))}", soft_wrap=True, markup=True)
            raise typer.Exit(WRONG_USE) from None
        report = _write(result, out, _command(config, out))
        if as_json:
            typer.echo(json.dumps(result.record(), indent=2))
        else:
            _show(result, report)


def _command(config: object, out: Path) -> str:
    from dataclasses import asdict, fields

    words = ["smnn", "reproduce", "kdv", "--out", str(out)]
    values = asdict(config)  # type: ignore[call-overload]
    for field in fields(config):  # type: ignore[arg-type]
        value = values[field.name]
        if value == field.default:
            continue
        words.append(f"--{field.name}")
        if value is not True:
            words.append(",".join(value) if isinstance(value, tuple) else str(value))
    return shlex.join(words)


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description:<22}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("trajectories"),
        TimeElapsedColumn(),
    )
    bars: dict[str, Progress] = {}
    current: list[str] = []

    def close() -> None:
        for name in current:
            bars[name].stop()
        current.clear()

    def tick(what: str, done: int, total: int) -> None:
        # One bar at a time: training in between shows a bar of its own.
        if what not in bars:
            close()
            bars[what] = Progress(*columns, console=notices())
            bars[what].add_task(what, total=total)
            bars[what].start()
            current.append(what)
        bar = bars[what]
        bar.update(bar.task_ids[0], advance=done)
        if bar.finished:
            close()

    try:
        yield tick
    finally:
        close()


def _write(result: Result, out: Path, command: str) -> Path:
    """All files, the report last; returns its path."""
    from smnn._util.files import write_atomically, write_json
    from smnn.experiments.kdv import view

    write_json(out / "kdv.json", {"command": command, **result.record()})
    png = view.figure(result)
    write_atomically(out / "kdv.png", png)
    return write_atomically(out / "report.html", view.report(result, png, command))


def _show(result: Result, report: Path) -> None:
    from smnn.experiments.kdv import view

    law = [] if result.law is None else [f"Learned law: {result.law}"]
    show([view.table(result)], view.summary(result), report, before=law)
