"""Suggestions for misspelled names and arguments."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def suggestion(word: str, known: Sequence[str]) -> str:
    """Return `; did you mean 'x'?` for the closest known name, or an empty string."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6) or [
        name for name in known if name.lower() == word.lower()
    ]
    return f"; did you mean {near[0]!r}?" if near else ""


def check_arguments(function: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Check names of arguments.

    Raises:
        TypeError: One is not known; the message has the closest name and all others.
    """
    for name in given:
        if name not in known:
            raise TypeError(
                f"{function}: got an unknown argument {name!r}{suggestion(name, known) or '.'} "
                f"Its arguments: {', '.join(known)}."
            )


def explained(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function so that an unknown keyword argument names the closest known one."""
    known = [name for name in inspect.signature(function).parameters if name != "self"]

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        owner, _, name = function.__qualname__.rpartition(".")
        owner = type(args[0]).__name__ if owner and args else owner  # the class of an object
        check_arguments(f"{owner}.{name}".removesuffix(".__init__").lstrip("."), kwargs, known)
        return function(*args, **kwargs)

    return call
