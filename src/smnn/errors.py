"""Exceptions of the library.

Every exception that smnn defines derives from `SmnnError`, and also from the built-in class that
describes it best, so that `except ValueError` works as well. The exceptions of a single package
are defined there.
"""

from __future__ import annotations


class SmnnError(Exception):
    """Base class of all exceptions that smnn raises on purpose."""


class ShapeError(SmnnError, ValueError):
    """A tensor has the wrong shape, dtype or device for the problem."""


class DataError(SmnnError, ValueError):
    """A file or a data set cannot be used as it is."""


class InputError(DataError):
    """A path cannot be read: it is not a regular file, or too large."""


class OutputError(SmnnError, RuntimeError):
    """Results cannot be written to the given path."""


class MissingPackageError(SmnnError, RuntimeError):
    """An optional package is not installed."""


class BackendError(SmnnError, RuntimeError):
    """A backend does not exist, cannot be used on this machine, or does not support the problem."""


class SolveError(SmnnError, RuntimeError):
    """At least one sample of the batch has no unique finite solution."""


def mismatch(name: str, got: object, expected: object, advice: str) -> ShapeError:
    """Return a `ShapeError` about one argument: what was found, what was expected, what to do."""
    return ShapeError(f"{name}: got {got}; expected {expected}. {advice}")
