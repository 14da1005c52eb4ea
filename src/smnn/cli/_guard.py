"""How a command ends when something goes wrong: one line and an exit code, or the traceback."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console

FAILED = 1
WRONG_USE = 2
INTERRUPTED = 130

Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def notices() -> Console:
    """Where progress and messages go; standard output is for results."""
    return Console(stderr=True, highlight=False)


@contextlib.contextmanager
def guarded(debug: bool) -> Iterator[None]:
    """Turn exceptions of a command into a message and an exit code."""
    from smnn._files import OutputError
    from smnn._optional import MissingPackageError

    try:
        yield
    except KeyboardInterrupt:
        notices().print("Interrupted; files already complete are kept, no partial ones.")
        raise typer.Exit(INTERRUPTED) from None
    except (OutputError, MissingPackageError) as error:
        if debug:
            raise
        _say(str(error))
        raise typer.Exit(WRONG_USE) from None
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise
    except Exception as error:
        if debug:
            raise
        what = str(error).splitlines()[0] if str(error) else "no message"
        _say(f"{type(error).__name__}: {what} (--debug shows where)")
        raise typer.Exit(FAILED) from None


def _say(message: str) -> None:
    notices().print(f"[bold red]error:[/] {_plain(message)}", soft_wrap=True)


def _plain(message: str) -> str:
    from rich.markup import escape

    return escape(message)
