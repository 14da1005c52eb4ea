"""The command `smnn` with its subcommands."""

from __future__ import annotations

import _thread
import sys
import threading
from typing import Annotated

import typer

from smnn.cli import bench, data, discover, forecast, info, reproduce, solve, train
from smnn.cli._guard import INTERRUPTED, notices

app = typer.Typer(
    name="smnn", help="Find and use the differential equations behind data.", no_args_is_help=True,
    pretty_exceptions_enable=False, rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip
app.command("discover")(discover.discover)
app.command("forecast")(forecast.forecast)
app.command("solve")(solve.solve)
app.command("train")(train.train)
app.add_typer(reproduce.app, name="reproduce")
app.command("bench")(bench.bench)
app.add_typer(data.app, name="data")
app.command("info")(info.info)


def _show_version(wanted: bool) -> None:
    if wanted:
        from smnn import __version__

        typer.echo(f"smnn {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", is_eager=True, callback=_show_version),
    ] = False,
) -> None:
    pass


def _repeat_interrupt(lost: sys.UnraisableHookArgs) -> None:
    """Send Ctrl-C again that arrived in a callback of a C library, where exceptions are lost."""
    if isinstance(lost.exc_value, KeyboardInterrupt):
        threading.Timer(0.01, _thread.interrupt_main).start()
    else:
        sys.__unraisablehook__(lost)


def main() -> None:
    """Entry point of the console script."""
    sys.unraisablehook = _repeat_interrupt
    try:
        app()
    except KeyboardInterrupt:
        notices().print("Interrupted.")
        sys.exit(INTERRUPTED)
