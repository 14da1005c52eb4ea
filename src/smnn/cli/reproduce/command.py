"""The commands: their options come from the `Config` of an experiment, the rest is the same."""

from __future__ import annotations

import functools
import inspect
import json
import shlex
from collections.abc import Callable
from dataclasses import Field, fields
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, get_args, get_type_hints

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

from smnn.cli._guard import (
    FAILED,
    RESULTS,
    AsJson,
    Debug,
    Device,
    Seed,
    WrongUseError,
    chosen_device,
    complain,
    guarded,
    plain,
)
from smnn.cli.reproduce.progress import progress
from smnn.experiments.experiment import EXPERIMENTS, load


class ExperimentCommand(TyperCommand):
    """A command that imports its experiment when its options are needed."""

    def __init__(self, name: str) -> None:
        files = f"Writes {name}.json, figures and report.html into the folder."
        super().__init__(name, help=f"{EXPERIMENTS[name]}\n\n{files}")

    @functools.cached_property
    def _command(self) -> Any:
        app = typer.Typer(add_completion=False)
        app.command()(build(self.name or ""))
        return typer.main.get_command(app)

    @property
    def params(self) -> list[Any]:
        """Options of the command."""
        found: list[Any] = self._command.params
        return found

    @params.setter
    def params(self, value: list[Any]) -> None:
        """Ignore the empty list that the base class sets."""

    def invoke(self, ctx: Any) -> Any:
        """Run the experiment."""
        return self._command.invoke(ctx)


class ExperimentGroup(TyperGroup):
    """All experiments."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands.update({name: ExperimentCommand(name) for name in EXPERIMENTS})

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the paper."""
        return list(self.commands)


app = typer.Typer(
    cls=ExperimentGroup, help="Reproduce an experiment of the paper.", no_args_is_help=True
)


@app.callback()
def _group() -> None:
    pass


def build(name: str) -> Callable[..., None]:
    """The function behind a command, with a signature that typer can read."""
    run, view = load(name)
    options = {f.name: f for f in fields(run.Config) if "help" in f.metadata}
    hints = get_type_hints(run.Config)

    def command(
        context: typer.Context, out: Path, as_json: bool, debug: bool, **given: Any
    ) -> None:
        from smnn._util.files import InputError
        from smnn.data import DataFormatError

        quick = given.pop("quick", False)
        with guarded(debug, InputError, DataFormatError):
            sources = {key: context.get_parameter_source(key) for key in given}
            values = {
                key: _converted(options[key], hints[key], value)
                for key, value in given.items()
                if (source := sources[key]) is not None and source.name != "DEFAULT"
            }
            try:
                config = run.Config.quick(**values) if quick else run.Config(**values)
            except ValueError as error:
                raise WrongUseError(str(error)) from None
            execute(name, run, view, config, out, as_json)

    parameters: dict[str, tuple[Any, Any]] = {}
    parameters["context"] = typer.Context, inspect.Parameter.empty
    parameters["out"] = (
        Annotated[Path, typer.Option(help="Folder for the results.")], RESULTS / name,
    )  # fmt: skip
    parameters["as_json"], parameters["debug"] = (AsJson, False), (Debug, False)
    if hasattr(run.Config, "quick"):
        text = (run.Config.quick.__doc__ or "").splitlines()[0]
        parameters["quick"] = (Annotated[bool, typer.Option("--quick", help=text)], False)
    parameters |= {key: _parameter(f, hints[key]) for key, f in options.items()}
    kind = inspect.Parameter.KEYWORD_ONLY
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(k, kind, annotation=a, default=d) for k, (a, d) in parameters.items()]
    )
    command.__annotations__ = {key: annotation for key, (annotation, _) in parameters.items()}
    return command


def _parameter(option: Field[Any], hint: Any) -> tuple[Any, Any]:
    """Annotation and default of the parameter for an option."""
    if option.name == "seed":
        return Seed, option.default
    if option.name == "device":
        return Device, option.default
    text, flag = option.metadata["help"], f"--{option.name.replace('_', '-')}"
    if hint is bool:
        flag = f"--no-{flag[2:]}" if option.default else flag
        return Annotated[bool, typer.Option(flag, help=text)], False
    default = option.default
    if isinstance(default, tuple):
        hint, default = str, ",".join(f"{x:g}" if isinstance(x, float) else str(x) for x in default)
    elif option.metadata["file"]:
        hint = Path | None
    least, shown = option.metadata["minimum"], option.metadata["shown"]
    return Annotated[hint, typer.Option(flag, help=text, min=least, show_default=shown)], default


def _converted(option: Field[Any], hint: Any, value: Any) -> Any:
    """The value of a field from that of its option."""
    if option.name == "device":
        return None if value is None else str(chosen_device(value))
    if hint is bool:
        return not option.default
    if isinstance(option.default, tuple):
        kind = get_args(hint)[0]
        words = [word.strip() for word in value.split(",") if word.strip()]
        try:
            return tuple(kind(word) for word in words)
        except ValueError:
            flag = f"--{option.name.replace('_', '-')}"
            raise WrongUseError(
                f"{flag}: got {value!r}; expected numbers separated by commas."
            ) from None
    return str(value) if isinstance(value, Path) else value


def repeated(name: str, config: Any, out: Path) -> str:
    """The command that repeats an experiment with the same settings."""
    if hasattr(config, "resolved"):
        config = config.resolved()
    words = ["smnn", "reproduce", name, "--out", str(out)]
    for option in fields(config):
        value = getattr(config, option.name)
        if "help" not in option.metadata or value == option.default:
            continue
        flag = option.name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
            continue
        items = value if isinstance(value, tuple) else (value,)
        text = ",".join(f"{x:g}" if isinstance(x, float) else str(x) for x in items)
        words += [f"--{flag}", text]
    return shlex.join(words)


def execute(
    name: str, run: ModuleType, view: ModuleType, config: Any, out: Path, as_json: bool
) -> None:
    """Run an experiment; write its record, figures and report; print its results."""
    from smnn._util.files import prepare_output, write_atomically, write_json

    prepare_output(out)
    resumable = "out" in inspect.signature(run.run).parameters
    with progress(run.ticks(config) or None, width=getattr(run, "NAME_WIDTH", 22)) as tick:
        result = run.run(config, tick, out) if resumable else run.run(config, tick)
    command = repeated(name, config, out)
    write_json(out / f"{name}.json", {"command": command, **result.record()})
    figures: dict[str, bytes] = view.figures(result)
    for file, content in figures.items():
        write_atomically(out / file, content)
    report = write_atomically(out / "report.html", view.report(result, figures, command))
    if as_json:
        typer.echo(json.dumps(result.record(), indent=2))
    else:
        _print(result, view, report)
    failures = view.failures(result) if hasattr(view, "failures") else []
    for line in failures:
        complain(line)
    if failures:
        raise typer.Exit(FAILED)


def _print(result: Any, view: ModuleType, report: Path) -> None:
    from smnn.report.tables import rich_table

    console = Console(highlight=False)
    for table in getattr(view, "terminal_tables", view.tables)(result):
        console.print()
        console.print(rich_table(table))
    console.print()
    notes = view.notes(result) if hasattr(view, "notes") else []
    for line in notes:
        console.print(line, soft_wrap=True, markup=False)
    if notes:
        console.print()
    for value, meaning in view.summary(result):
        console.print(f"[bold]{value}[/]  {meaning}")
    console.print()
    console.print(f"Report: {plain(str(report))}", soft_wrap=True)
