"""Options and error handling shared by all commands.

Exit codes: 0 success, 1 failure, 2 wrong use (options, input files, missing packages), 130
interrupted. Errors are printed to standard error, with a traceback only if --debug is given.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from smnn.cli._reading import as_options
from smnn.errors import SmnnError

if TYPE_CHECKING:
    import torch

FAILED = 1
WRONG_USE = 2
INTERRUPTED = 130
RESULTS = Path("smnn-results")
"""Default folder of --out."""
KEPT = "Interrupted. Files that were complete are kept; there are no partial files."

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of errors.")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda (default: cuda if available).")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")]


def results_folder(command: str, source: Path) -> Path:
    """Return the default output folder: one for each command and input."""
    full, here = source.resolve(), Path.cwd().resolve()
    name = re.sub(r"\.(csv|txt)(\.gz)?$", "", full.name).replace(".", "-")
    if full.is_relative_to(here):
        words = [*full.relative_to(here).parts[:-1], name]
    else:
        words = [name, hashlib.sha256(str(full.parent).encode()).hexdigest()[:6]]
    return RESULTS / "-".join([command, *words])


class WrongUseError(SmnnError, ValueError):
    """Wrong use of a command; the message says what to change."""


def notices() -> Console:
    """Return the console for progress and messages; standard output is for results."""
    return Console(stderr=True, highlight=False)


@contextlib.contextmanager
def guarded(debug: bool, *wrong: type[Exception], interrupted: str = KEPT) -> Iterator[None]:
    """Convert exceptions of a command to a message and an exit code.

    Args:
        debug: Do not convert exceptions.
        wrong: Further exceptions that mean wrong use, with a message for the user.
        interrupted: Message after Ctrl-C.
    """
    from smnn._util.files import OutputError
    from smnn._util.optional import MissingPackageError

    expected: tuple[type[Exception], ...] = (
        OutputError, MissingPackageError, WrongUseError, *wrong,
    )  # fmt: skip
    try:
        yield
    except KeyboardInterrupt:
        notices().print(interrupted)
        raise typer.Exit(INTERRUPTED) from None
    except expected as error:
        if debug:
            raise
        complain(str(error))
        raise typer.Exit(WRONG_USE) from None
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise
    except Exception as error:
        if debug or type(error).__module__.startswith(("click", "typer")):
            raise
        what = str(error).splitlines()[0] if str(error) else "no message"
        complain(f"{type(error).__name__}: {what} (--debug shows where)")
        raise typer.Exit(FAILED) from None


def repeated(context: typer.Context, folder: Path) -> str:
    """Return the command line of this call, with the folder that was used."""
    words = ["smnn", context.command.name or ""]
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if parameter.name in ("out", "debug", "as_json") or value in (None, [], ()):
            continue
        if value == parameter.default:
            continue
        if parameter.param_type_name == "argument":
            words.append(str(value))
        elif isinstance(value, bool):
            words.append((parameter.opts if value else parameter.secondary_opts)[0])
        else:
            many = value if isinstance(value, list | tuple) else [value]
            words += [word for item in many for word in (parameter.opts[0], str(item))]
    return shlex.join([*words, "--out", str(folder)])


def complain(message: str) -> None:
    """Print an error."""
    notices().print(f"[bold red]error:[/] {plain(as_options(message))}", soft_wrap=True)


def remark(message: str) -> None:
    """Print a note."""
    notices().print(f"[yellow]note:[/] {plain(as_options(message))}", soft_wrap=True)


def facts(console: Console, pairs: Iterable[tuple[str, str]]) -> None:
    """Print figures and what they mean."""
    for value, meaning in pairs:
        console.print(f"[bold]{plain(value)}[/] {plain(meaning)}")
    console.print()


def plain(message: str) -> str:
    """Escape rich markup and replace control characters."""
    from rich.markup import escape

    return escape("".join(c if c.isprintable() or c in "\n\t" else "�" for c in message))


def chosen_device(name: str | None) -> torch.device:
    """Return the device of the option --device; by default CUDA if it is available."""
    from smnn._util.machine import usable_device

    try:
        return usable_device(name)
    except ValueError as error:
        raise WrongUseError(f"--device: {error}") from None
