"""Names: finding things by them, and suggestions where they are misspelled."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ParamSpec, TypeVar

from smnn.errors import DataError

P = ParamSpec("P")
T = TypeVar("T")


def suggestion(word: str, known: Sequence[str]) -> str:
    """Return `; did you mean 'x'?` for the closest known name, or an empty string."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6) or [
        name for name in known if name.lower() == word.lower()
    ]
    return f"; did you mean {near[0]!r}?" if near else ""


def slug(name: str) -> str:
    """A name in lower case, without accents, words joined by hyphens."""
    letters = unicodedata.normalize("NFKD", name.strip().lower())
    bare = "".join(c for c in letters if not unicodedata.combining(c))
    return re.sub(r"[^a-z0-9]+", "-", bare).strip("-")


def find(name: str, items: Mapping[str, T], what: str) -> T:
    """The item of that name, or the only one whose name begins with it; compared by `slug`.

    Raises:
        DataError: There is none, or several; the message has similar names.
    """
    wanted, known = slug(name), {slug(key): key for key in items}
    found = [wanted] if wanted in known else [k for k in known if wanted and k.startswith(wanted)]
    if len(found) == 1:
        return items[known[found[0]]]
    if found:
        names = ", ".join(known[k] for k in found)
        raise DataError(f"several {what}s fit {name!r}: {names}. Name one.")
    raise DataError(f"there is no {what} {name!r}{suggestion(wanted, list(known)) or '.'}")


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
