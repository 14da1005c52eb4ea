"""What a library is, and how libraries are put together."""

from __future__ import annotations

import abc
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import sympy

from smnn.discovery._terms.terms import Term, check_names, distinct, make_term, multiply

MAX_TERMS = 5000
"""More candidates than any data can tell apart; a library refuses to make them."""


class LibraryError(ValueError):
    """A library is not what it should be, or does not fit the variables."""


class Library(abc.ABC):
    """Candidate terms for any variables. Add libraries for their union, multiply for products."""

    kind: ClassVar[str]
    """Its name in JSON."""
    kinds: ClassVar[dict[str, type[Library]]] = {}
    """Every kind of library by its name."""

    def __init_subclass__(cls) -> None:
        Library.kinds[cls.kind] = cls

    def terms(self, variables: Sequence[str]) -> list[Term]:
        """The terms for these variables, each once.

        Raises:
            LibraryError: The library does not fit the variables, or has too many terms.
            ExpressionError: An expression uses a name that is no variable.
        """
        names = check_names(variables)
        if (count := self.count(len(names))) > MAX_TERMS:
            raise LibraryError(
                f"{self} has {count:,} terms in {len(names)} variables; expected at most "
                f"{MAX_TERMS:,}. Lower the degree, or use fewer variables."
            )
        return distinct(self._terms(names))

    @abc.abstractmethod
    def count(self, variables: int) -> int:
        """How many terms there are for so many variables, before duplicates are removed."""

    @abc.abstractmethod
    def _terms(self, variables: tuple[str, ...]) -> list[Term]: ...

    @abc.abstractmethod
    def to_json(self) -> dict[str, Any]:
        """The library as plain data, for `json.dumps`."""

    @staticmethod
    def from_json(record: Mapping[str, Any] | str) -> Library:
        """The library that `to_json` described, from its data or from the text of it.

        Raises:
            LibraryError: It is not such a record.
        """
        try:
            found = dict(json.loads(record) if isinstance(record, str) else record)
            return Library.kinds[found.pop("kind")]._of(found)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, LibraryError):
                raise
            raise LibraryError(
                f"got {str(record)[:80]!r}; expected what to_json returned, with a kind out of "
                f"{', '.join(Library.kinds)}."
            ) from error

    @classmethod
    def _of(cls, record: dict[str, Any]) -> Library:
        return cls(**record)

    def __add__(self, other: Library) -> Library:
        return Union(_parts(Union, self, other)) if isinstance(other, Library) else NotImplemented

    def __mul__(self, other: Library) -> Library:
        return (
            Product(_parts(Product, self, other)) if isinstance(other, Library) else NotImplemented
        )


def _parts(kind: type[Union] | type[Product], *libraries: Library) -> tuple[Library, ...]:
    inside = (x.libraries if isinstance(x, kind) else (x,) for x in libraries)
    return tuple(itertools.chain.from_iterable(inside))


@dataclass(frozen=True)
class Union(Library):
    """The terms of several libraries. Made by `a + b`."""

    libraries: tuple[Library, ...]
    kind: ClassVar[str] = "union"

    def count(self, variables: int) -> int:
        """The sum of their counts."""
        return sum(library.count(variables) for library in self.libraries)

    def _terms(self, variables: tuple[str, ...]) -> list[Term]:
        return [term for library in self.libraries for term in library._terms(variables)]

    def to_json(self) -> dict[str, Any]:
        """The library as plain data."""
        return {"kind": self.kind, "libraries": [x.to_json() for x in self.libraries]}

    @classmethod
    def _of(cls, record: dict[str, Any]) -> Library:
        return cls(tuple(Library.from_json(x) for x in record["libraries"]))


@dataclass(frozen=True)
class Product(Library):
    """Every term of one library times every term of the next. Made by `a * b`."""

    libraries: tuple[Library, ...]
    kind: ClassVar[str] = "product"

    def count(self, variables: int) -> int:
        """The product of their counts; an empty one makes the others no smaller."""
        return math.prod(max(1, library.count(variables)) for library in self.libraries)

    def _terms(self, variables: tuple[str, ...]) -> list[Term]:
        found = [make_term(sympy.S.One, variables)]
        for library in self.libraries:
            found = distinct(multiply(a, b) for a in found for b in library._terms(variables))
        return found

    def to_json(self) -> dict[str, Any]:
        """The library as plain data."""
        return {"kind": self.kind, "libraries": [x.to_json() for x in self.libraries]}

    @classmethod
    def _of(cls, record: dict[str, Any]) -> Library:
        return cls(tuple(Library.from_json(x) for x in record["libraries"]))
