"""Command-line options of an experiment, from the fields of its `Config`."""

from __future__ import annotations

from dataclasses import Field, fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from smnn.cli._guard import Device, Seed, WrongUseError, chosen_device


class Options:
    """Options of a `Config`: parameters of a command, and values of fields from what was given."""

    def __init__(self, config: type[Any]) -> None:
        self.config = config
        self.fields = {f.name: f for f in fields(config) if "help" in f.metadata}
        self.hints = get_type_hints(config)

    def parameters(self) -> dict[str, tuple[Any, Any]]:
        """Annotation and default of each parameter."""
        found = {key: _parameter(f, self.hints[key]) for key, f in self.fields.items()}
        if hasattr(self.config, "quick"):
            text = (self.config.quick.__doc__ or "").splitlines()[0]
            found = {"quick": (Annotated[bool, typer.Option("--quick", help=text)], False)} | found
        return found

    def make(self, given: dict[str, Any], quick: bool) -> Any:
        """The configuration from the options that were given.

        Raises:
            WrongUseError: A value is not valid.
        """
        values = {k: _converted(self.fields[k], self.hints[k], x) for k, x in given.items()}
        try:
            return (self.config.quick if quick else self.config)(**values)
        except ValueError as error:
            raise WrongUseError(str(error)) from None


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
