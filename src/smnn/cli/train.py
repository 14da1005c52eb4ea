"""`smnn train`: train a registered task, on one device or many."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from smnn.cli import _guard as shared
from smnn.cli._guard import RESULTS, WrongUseError, complain, guarded

if TYPE_CHECKING:
    from smnn.training import FitResult


def train(
    task: Annotated[str | None, typer.Argument(
        metavar="TASK|CONFIG.json", help="Registered task, or config.json of a run.")] = None,
    out: Annotated[Path | None, typer.Option(
        help="Folder for the results (default smnn-results/TASK).")] = None,
    devices: Annotated[int | None, typer.Option(
        min=1, help="Processes per node, each with one device.")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Number of nodes (machines).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Setting: lr=0.01, task.order=3, data.samples=99."
        ),
    ] = None,
    tasks: Annotated[list[str] | None, typer.Option(
        metavar="MODULE|FILE.py", help="Python code to import that registers tasks.")] = None,
    seed: Annotated[int | None, typer.Option(
        min=0, help="Seed of all random numbers (default 0).")] = None,
    device: shared.Device = None,
    as_json: shared.AsJson = False,
    debug: shared.Debug = False,
) -> None:  # fmt: skip
    """Train a task. Without TASK, list the registered tasks.

    With --devices above 1, the other processes are started automatically. Under torchrun and SLURM,
    the processes that these have started are used.
    """
    from smnn.training import RunSpec, fit, import_tasks

    with guarded(debug), _training_errors(debug):
        for origin in tasks or []:
            import_tasks(origin)
        if task is None and not resume:
            _show_tasks(as_json)
            return
        if task is None and out is None:
            raise WrongUseError("--resume needs the folder of the run; add --out.")
        source = task or str((out or RESULTS) / "config.json")
        spec = RunSpec.read(source) if source.endswith(".json") else RunSpec(source)
        for text in settings or []:
            spec.set(text)
        accelerator = None if device is None else shared.chosen_device(device).type
        options = {"devices": devices, "nodes": nodes, "seed": seed, "accelerator": accelerator}
        spec.train |= {name: value for name, value in options.items() if value is not None}
        folder = out or RESULTS / spec.name
        record = {"data_config": spec.data, "command": _command()}
        result = fit(*spec.build(), folder, resume=resume, record=record)
        if result.is_main:
            _show(result, folder, as_json)


@contextlib.contextmanager
def _training_errors(debug: bool) -> Iterator[None]:
    """Print an error of training in one line, in the main process only."""
    from smnn.training import CheckpointError, ConfigError, TrainingError, is_main_process

    try:
        yield
    except (ConfigError, TrainingError) as error:
        if debug:
            raise
        if is_main_process():
            complain(" ".join(str(error).split()))
        wrong = isinstance(error, ConfigError | CheckpointError)
        raise typer.Exit(shared.WRONG_USE if wrong else shared.FAILED) from None


def _command() -> str:
    """This command without --resume; the options of torchrun are not available here."""
    program = "torchrun ... -m smnn.cli" if "TORCHELASTIC_RUN_ID" in os.environ else "smnn"
    return f"{program} {shlex.join(a for a in sys.argv[1:] if a != '--resume')}"


def _show_tasks(as_json: bool) -> None:
    from smnn.training import registered_tasks

    entries = registered_tasks().values()
    if as_json:
        facts = [
            {"task": e.name, "summary": e.summary, "train": e.train.changed()} for e in entries
        ]
        typer.echo(json.dumps(facts, indent=2))
        return
    table = Table("task", "description", box=None, pad_edge=False)
    for entry in entries:
        table.add_row(entry.name, entry.summary)
    console = Console(highlight=False)
    console.print(table)
    console.print("\nsmnn train TASK --out DIR trains a task; --tasks adds your own.")


def _show(result: FitResult, folder: Path, as_json: bool) -> None:
    if as_json:
        names = ("steps", "metrics", "best", "stopped_early", "samples_per_second", "graphed")
        facts = {name: getattr(result, name) for name in names}
        typer.echo(json.dumps({**facts, "out": str(folder)}, indent=2))
        return
    console = Console(highlight=False)
    end = "stopped early after" if result.stopped_early else "finished after"
    console.print(f"Training {end} {result.steps:,} steps.")
    for name, value in result.metrics.items():
        console.print(f"  {name:<20} {value:.6g}")
    best = result.best
    console.print(f"  {'best':<20} {best['value']:.6g} at step {best['step']}")
    console.print(f"Logs and checkpoints: {folder}", soft_wrap=True, markup=False)
    console.print(f'In Python: smnn.training.load_task("{folder}")', soft_wrap=True, markup=False)
