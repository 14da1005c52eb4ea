"""What can go wrong, in words: what was got, what was expected, what to do."""

from __future__ import annotations


class ShapeError(ValueError):
    """A tensor does not fit the problem: its shape, dtype or device."""


class BackendError(RuntimeError):
    """A backend does not exist, is not usable here, or cannot take the problem."""


class SolveError(RuntimeError):
    """A sample has no unique finite solution."""


class DataError(ValueError):
    """Data cannot be used as given; says what was found, what was expected, what to do."""


def mismatch(name: str, got: object, expected: object, advice: str) -> ShapeError:
    """An error about one argument, always in the same three parts."""
    return ShapeError(f"{name}: got {got}; expected {expected}. {advice}")
