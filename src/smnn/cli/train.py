"""`smnn train`: train a registered task, on one device or many."""

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from smnn.cli._guard import (
    FAILED,
    RESULTS,
    WRONG_USE,
    AsJson,
    Debug,
    Device,
    chosen_device,
    guarded,
    notices,
)

if TYPE_CHECKING:
    from smnn.training import FitResult, TrainConfig


@dataclass
class Plan:
    """What to train, with what, how."""

    name: str
    task: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)


def train(
    task: Annotated[
        str | None,
        typer.Argument(metavar="TASK|CONFIG.json", help="A registered task, or a config.json."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; smnn-results/TASK if left out.")
    ] = None,
    devices: Annotated[
        int | None, typer.Option(min=1, help="Processes on each node, one device each.")
    ] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Machines.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A setting: lr=0.01, task.order=3, data.samples=99."
        ),
    ] = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE|FILE.py", help="Python code that registers tasks, to import."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Decides everything random (default 0).")
    ] = None,
    device: Device = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Train a task. Without one, list what is registered.

    With --devices above 1, Lightning starts the other processes by running this command again.

    Under torchrun or SLURM they are there already.
    """
    with guarded(debug), _explained(debug):
        for origin in tasks or []:
            _import(origin)
        if task is None and not resume:
            _show_tasks(as_json)
            return
        plan = _plan(task, out)
        accelerator = None if device is None else chosen_device(device).type
        _change(plan, settings or [], devices=devices, nodes=nodes, seed=seed,
                accelerator=accelerator)  # fmt: skip
        folder = out or RESULTS / plan.name
        result = _run(plan, folder, resume)
        if result.is_main:
            _show(result, folder, as_json)


def _explained(debug: bool) -> Any:
    """Errors of training as one line; processes beside the main one leave the talking to it."""
    import contextlib

    from smnn.training import CheckpointError, ConfigError, TrainingError

    @contextlib.contextmanager
    def context() -> Any:
        try:
            yield
        except (ConfigError, TrainingError) as error:
            if debug:
                raise
            if _is_main():
                line = " ".join(str(error).split())
                notices().print("[bold red]error:[/]", end=" ", soft_wrap=True)
                notices().print(line, soft_wrap=True, markup=False)
            wrong = isinstance(error, ConfigError | CheckpointError)
            raise typer.Exit(WRONG_USE if wrong else FAILED) from None

    return context()


def _is_main() -> bool:
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank() == 0
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))) == 0


# ---------------------------------------------------------------- what to train


def _import(origin: str) -> None:
    """Import code that the person named."""
    import importlib
    import importlib.util

    from smnn.training import ConfigError

    path = Path(origin)
    if path.suffix != ".py":
        try:
            importlib.import_module(origin)
        except ModuleNotFoundError as error:
            raise ConfigError(f"--tasks: {error}; give a module or a .py file.") from None
        return
    if not path.is_file():
        raise ConfigError(f"--tasks: there is no file {path}.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)


def _plan(task: str | None, out: Path | None) -> Plan:
    """From a name, a file, or the folder of a run."""
    from smnn.training import ConfigError
    from smnn.training._registry import task_named

    if task is None:
        if out is None:
            raise ConfigError("--resume needs the folder of the run: give --out.")
        task = str(out / "config.json")
    if not task.endswith(".json"):
        return Plan(task, train=task_named(task).train.to_dict())
    path = Path(task)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}.") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}.") from None
    if not isinstance(found, dict) or not isinstance(found.get("task"), str):
        raise ConfigError(f'{path} does not name a task; it needs "task": "NAME".')
    parts = {}
    for key in ("task_config", "data_config", "train"):
        parts[key] = found.get(key) or {}
        if not isinstance(parts[key], dict):
            raise ConfigError(f"{path}: {key!r} is {parts[key]!r}; expected an object.")
    defaults = task_named(found["task"]).train.to_dict()
    return Plan(
        found["task"], parts["task_config"], parts["data_config"], defaults | parts["train"]
    )


def _change(plan: Plan, settings: list[str], **options: int | str | None) -> None:
    from smnn.training import ConfigError

    for text in settings:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise ConfigError(f"--set: got {text!r}; expected KEY=VALUE.")
        group, _, name = key.rpartition(".")
        place = {"": plan.train, "task": plan.task, "data": plan.data}.get(group)
        if place is None:
            raise ConfigError(f"--set: got {key!r}; expected KEY, task.KEY or data.KEY.")
        place[name] = _value(value)
    plan.train |= {name: value for name, value in options.items() if value is not None}


def _value(text: str) -> Any:
    """JSON where it is JSON (`0.1`, `true`, `null`, `[1, 2]`), else a string."""
    try:
        return json.loads(text)
    except ValueError:
        return text


# ---------------------------------------------------------------- training


def _run(plan: Plan, folder: Path, resume: bool) -> FitResult:
    import inspect

    import torch

    from smnn.training import ConfigError, TrainConfig, fit
    from smnn.training._registry import built, task_named

    config = TrainConfig.from_dict(plan.train)
    entry = task_named(plan.name)
    if entry.data is None:
        raise ConfigError(f"task {plan.name!r} was registered without data; train it with fit().")
    try:
        inspect.signature(entry.data).bind(**plan.data)
    except TypeError as error:
        raise ConfigError(f"data of {plan.name!r}: {error}.") from None
    torch.manual_seed(config.seed)  # the initial weights follow from the seed, too
    task = built(plan.name, plan.task)
    data = entry.data(**plan.data)
    record = {"data_config": plan.data, "command": _command()}
    return fit(task, data, config, folder, resume=resume, record=record)


def _command() -> str:
    """This command without --resume; the options of a torchrun are not known here."""
    program = "torchrun ... -m smnn.cli" if "TORCHELASTIC_RUN_ID" in os.environ else "smnn"
    return f"{program} {shlex.join(a for a in sys.argv[1:] if a != '--resume')}"


# ---------------------------------------------------------------- showing


def _show_tasks(as_json: bool) -> None:
    from smnn.training import registered_tasks

    found = registered_tasks()
    if as_json:
        listed = [
            {"task": e.name, "summary": e.summary, "train": _changed(e.train)}
            for e in found.values()
        ]
        typer.echo(json.dumps(listed, indent=2))
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("task")
    table.add_column("what it learns")
    for entry in found.values():
        table.add_row(entry.name, entry.summary)
    console = Console(highlight=False)
    console.print(table)
    console.print("\nsmnn train TASK --out DIR trains one; --tasks adds your own.")


def _changed(config: TrainConfig) -> dict[str, Any]:
    """Settings that are not the defaults."""
    import dataclasses

    plain = {f.name: f.default for f in dataclasses.fields(config)}
    return {name: value for name, value in config.to_dict().items() if value != plain[name]}


def _show(result: FitResult, folder: Path, as_json: bool) -> None:
    if as_json:
        facts = {
            "steps": result.steps,
            "metrics": result.metrics,
            "best": result.best,
            "stopped_early": result.stopped_early,
            "samples_per_second": result.samples_per_second,
            "graphed": result.graphed,
            "out": str(folder),
        }
        typer.echo(json.dumps(facts, indent=2))
        return
    console = Console(highlight=False)
    end = "stopped early after" if result.stopped_early else "finished after"
    console.print(f"Training {end} {result.steps:,} steps.")
    for name, value in result.metrics.items():
        console.print(f"  {name:<20} {value:.6g}")
    best = result.best
    console.print(f"  best                 {best['value']:.6g} at step {best['step']}")
    console.print(f"Logs and checkpoints: {folder}", soft_wrap=True, markup=False)
    load = f'smnn.training.load_task("{folder}")'
    console.print(f"In Python: {load}", soft_wrap=True, markup=False)
