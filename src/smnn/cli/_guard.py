"""What all commands share: names of options, and how one ends when something goes wrong.

0 is success, 1 a failure, 2 wrong use (options, files, packages that are not there), 130 an
interruption. An error is a message on standard error, without a traceback unless --debug asks.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

if TYPE_CHECKING:
    import torch

FAILED = 1
WRONG_USE = 2
INTERRUPTED = 130
RESULTS = Path("smnn-results")
"""Where results go unless --out says otherwise."""
KEPT = "Interrupted; files already complete are kept, no partial ones."

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Device = Annotated[
    str | None, typer.Option(help="cpu or cuda (default cuda where there is a device).")
]
Seed = Annotated[int, typer.Option(min=0, help="Decides everything random.")]
Time = Annotated[str | None, typer.Option(help="Time column.")]
Series = Annotated[
    str | None, typer.Option(metavar="S", help="Column (or columns) that separates series.")
]
SkipRows = Annotated[
    int | None, typer.Option(min=0, help="Lines above the names (default: found).")
]
Na = Annotated[str | None, typer.Option(metavar="-999,bad", help="More markers of missing values.")]
Dayfirst = Annotated[
    bool | None, typer.Option("--dayfirst/--monthfirst", help="Whether 01/02/2024 is in February.")
]
DateFormat = Annotated[str | None, typer.Option(metavar="%d.%m.%y", help="Format of the dates.")]
Decimal = Annotated[str | None, typer.Option(help="Decimal sign (default: found).")]


def names(text: str | None) -> list[str] | None:
    """Names separated by commas."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def reading(
    series: str | None, skip_rows: int | None, na: str | None, dayfirst: bool | None,
    date_format: str | None, decimal: str | None,
) -> dict[str, Any]:  # fmt: skip
    """Options of `smnn.data.read` that were given."""
    found = {"series": names(series), "skip_rows": skip_rows, "na": names(na),
             "dayfirst": dayfirst, "date_format": date_format, "decimal": decimal}  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}


class WrongUseError(ValueError):
    """What was asked for cannot be done; the message says what to change."""


def notices() -> Console:
    """Where progress and messages go; standard output is for results."""
    return Console(stderr=True, highlight=False)


@contextlib.contextmanager
def guarded(debug: bool, *wrong: type[Exception], interrupted: str = KEPT) -> Iterator[None]:
    """Turn exceptions of a command into a message and an exit code.

    Args:
        debug: Let them through instead.
        wrong: Errors that say what the person has to change, beside those that always do.
        interrupted: What Ctrl-C leaves behind.
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
    """The command as it was given, with the folder that was used."""
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
    """An error, in full."""
    notices().print(f"[bold red]error:[/] {plain(message)}", soft_wrap=True)


def remark(message: str) -> None:
    """Something that the person should know, before or after the work."""
    notices().print(f"[yellow]note:[/] {plain(message)}", soft_wrap=True)


def plain(message: str) -> str:
    """Text in which brackets mean nothing to rich, and control characters nothing to a terminal."""
    from rich.markup import escape

    return escape("".join(c if c.isprintable() or c in "\n\t" else "�" for c in message))


def chosen_device(name: str | None) -> torch.device:
    """The device that --device names; CUDA where there is one if it names none.

    Raises:
        WrongUseError: It is not a device, or is not there.
    """
    import torch

    there = torch.cuda.is_available()
    if name is None:
        return torch.device("cuda" if there else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise WrongUseError(f"--device: got {name!r}; expected cpu or cuda.") from None
    if device.type not in ("cpu", "cuda"):
        raise WrongUseError(f"--device: got {name!r}; expected cpu or cuda.")
    if device.type == "cuda" and not there:
        raise WrongUseError(
            "--device: there is no CUDA device here; use cpu. `smnn info` says why."
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise WrongUseError(f"--device: got {name!r}; there are {count} CUDA devices, from 0 on.")
    return device
