"""Options for reading data, the same in all commands."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias, get_type_hints

import typer

Text: TypeAlias = str | None
Texts: TypeAlias = list[str] | None
Dayfirst = typer.Option("--dayfirst/--monthfirst", help="Whether 01/02/2024 is in February.")
Columns = typer.Option("--columns", "--column", metavar="X,Y", help="Variables (default: all).")
READING: dict[str, Any] = {
    "time": Annotated[Text, typer.Option(help="Time column (default: detected).")],
    "columns": Annotated[Texts, Columns],
    "series": Annotated[Text, typer.Option(help="Column that identifies the series.")],
    "skip_rows": Annotated[int | None, typer.Option(min=0, help="Lines above the header.")],
    "na": Annotated[Text, typer.Option(metavar="-999,bad", help="More missing-value markers.")],
    "dayfirst": Annotated[bool | None, Dayfirst],
    "date_format": Annotated[Text, typer.Option(metavar="%d.%m.%y", help="Format of the dates.")],
    "decimal": Annotated[Text, typer.Option(help="Decimal separator (default: detected).")],
    "encoding": Annotated[Text, typer.Option(help="Encoding of text (default: detected).")],
    "sheet": Annotated[Text, typer.Option(help="Sheet of a spreadsheet (default: the first).")],
}
"""Options of all commands that read data: the arguments of `smnn.data.read`."""
_ARGUMENT = re.compile(rf"\b(?P<name>{'|'.join([*READING, 'inputs'])})(?P<by>=|: )(?P<value>"
                       r"True|False|\(\)|\d+|'[^' ]*')?")  # fmt: skip


def names(text: str | list[str] | None) -> list[str] | None:
    """Split names at commas."""
    texts = [text] if isinstance(text, str) else text
    return None if not texts else [n.strip() for x in texts for n in x.split(",") if n.strip()]


def reads_data(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of `READING` to a command; it receives those given, as `reading`."""
    hints = get_type_hints(command, include_extras=True)
    own = {k: p.replace(annotation=hints[k], kind=inspect.Parameter.KEYWORD_ONLY)
           for k, p in inspect.signature(command).parameters.items() if k != "reading"}  # fmt: skip
    added = {k: inspect.Parameter(k, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=None)
             for k, hint in READING.items()}  # fmt: skip

    def wrapper(**given: Any) -> None:
        reading = {name: given.pop(name) for name in READING}
        for name in ("columns", "series", "na"):
            reading[name] = names(reading[name])
        command(reading={k: v for k, v in reading.items() if v is not None}, **given)

    first = [p for p in own.values() if p.default is inspect.Parameter.empty]
    rest = [p for p in own.values() if p not in first]
    wrapper.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*first, *added.values(), *rest]
    )
    wrapper.__annotations__ = {k: p.annotation for k, p in (own | added).items()}
    wrapper.__doc__ = command.__doc__
    return wrapper


def as_options(message: str) -> str:
    """Replace arguments of `smnn.data.read` in a message by the options of the commands."""

    def option(found: re.Match[str]) -> str:
        name, value = found["name"].replace("_", "-"), found["value"]
        if found["by"] == ": ":
            start = found.start() == 0 or message[: found.start()].endswith("error: ")
            return f"--{name}: {value or ''}" if start else found[0]
        if value in ("True", "False"):
            return "--dayfirst" if value == "True" else "--monthfirst"
        return f"--{name}" + (f" {value}" if value and value != "()" else " ''" if value else "")

    return _ARGUMENT.sub(option, message)


def by_target(option: str, texts: list[str] | None) -> dict[str, list[str]]:
    """`["x' : z, x^2"]` as `{"x'": ["z", "x^2"]}`."""
    found: dict[str, list[str]] = {}
    for text in texts or ():
        target, colon, right = (part.strip() for part in text.partition(":"))
        if not colon or not target or not right:
            raise ValueError(f'{option}: got {text!r}; expected "x\' : terms", as in "x\' : -1*x".')
        found.setdefault(target, []).extend(term.strip() for term in right.split(","))
    return found


def lag(delay: str | None) -> float | list[float] | None:
    """A delay: `17`, or a range `1:30`."""
    try:
        found = [float(x) for x in delay.split(":")] if delay else []
    except ValueError:
        raise ValueError(
            f"--delay: got {delay!r}; expected a lag, or a range as in 1:30."
        ) from None
    return None if not found else found[0] if len(found) == 1 else found
