"""The commands: their options come from the `Config` of an experiment, the rest is the same."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

from smnn.cli._guard import FAILED, RESULTS, AsJson, Debug, complain, guarded, plain
from smnn.cli.reproduce.options import Options
from smnn.cli.reproduce.progress import progress
from smnn.experiments.experiment import EXPERIMENTS, execute, load


class ExperimentCommand(TyperCommand):
    """A command that imports its experiment when its options are needed."""

    def __init__(self, name: str) -> None:
        files = f"Writes {name}.json, figures and report.html into the folder."
        help = f"{EXPERIMENTS[name]}\n\n{files}"
        super().__init__(name, help=help, rich_markup_mode=None)

    @functools.cached_property
    def _command(self) -> Any:
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
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
    options = Options(run.Config)

    def command(
        context: typer.Context, out: Path, as_json: bool, debug: bool, **given: Any
    ) -> None:
        from smnn._util.files import InputError, prepare_output
        from smnn.data import DataFormatError

        quick = given.pop("quick", False)
        with guarded(debug, InputError, DataFormatError):
            sources = {key: context.get_parameter_source(key) for key in given}
            chosen = {
                key: value
                for key, value in given.items()
                if (source := sources[key]) is not None and source.name != "DEFAULT"
            }
            config = options.make(chosen, quick)
            prepare_output(out, ("report.html",))
            with progress(run.ticks(config) or None, getattr(run, "NAME_WIDTH", 22)) as tick:
                result, report = execute(name, config, out, tick)
            if as_json:
                typer.echo(json.dumps(result.record(), indent=2))
            else:
                _print(result, view, report)
            failures = view.failures(result) if hasattr(view, "failures") else []
            for line in failures:
                complain(line)
            if failures:
                raise typer.Exit(FAILED)

    parameters: dict[str, tuple[Any, Any]] = {
        "context": (typer.Context, inspect.Parameter.empty),
        "out": (Annotated[Path, typer.Option(help="Folder for the results.")], RESULTS / name),
        "as_json": (AsJson, False), "debug": (Debug, False), **options.parameters(),
    }  # fmt: skip
    kind = inspect.Parameter.KEYWORD_ONLY
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(k, kind, annotation=a, default=d) for k, (a, d) in parameters.items()]
    )
    command.__annotations__ = {key: annotation for key, (annotation, _) in parameters.items()}
    return command


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
