"""Candidate terms where none were named: as few as explain the data.

Most systems need polynomials of degree 2. Where no trajectory of these fits the data, degree 3 and
then sines and cosines are tried. The first library whose equations hold is taken; if none do, a
larger one must explain the data far better to be preferred.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from smnn.discovery._fit.pipeline import Outcome
from smnn.discovery._fit.series import DataError, Nodes
from smnn.discovery._terms.library import Library
from smnn.discovery.libraries import Polynomial, Trigonometric, parse_library

FAR_BETTER = 0.5
"""Logarithm of the likelihood for every value: errors that are smaller by a third."""
ENOUGH = 10
"""Values for every candidate that the data must have for a larger library to be tried."""
MOST = 200
"""Candidates in all equations up to which a larger library is tried."""

PART = 1500
"""Nodes that decide between libraries, of longer data."""

Attempt = Callable[[Nodes, Library, bool], Outcome]
"""A fit of data with a library, with or without the search that takes longer."""


def libraries_for(library: Library | str | None, columns: int, order: int) -> list[Library]:
    """The library that was named, or those to try one after the other.

    Args:
        library: A library, its text form, or nothing.
        columns: Number of states and inputs.
        order: Of the equations.

    Raises:
        ValueError: It is none of these.
    """
    if library is None:
        few = columns == 1 or (order > 1 and columns <= 4)
        larger: list[Library] = [] if few else [Polynomial(3)]
        return [Polynomial(3 if few else 2), *larger, Polynomial(2) + Trigonometric()]
    if isinstance(library, str):
        return [parse_library(library)]
    if not isinstance(library, Library):
        raise ValueError(
            f"library={library!r}; expected a library such as Polynomial(2), "
            'or its text form such as "poly:2,trig".'
        )
    return [library]


def affordable(
    libraries: Sequence[Library], columns: int, equations: int, values: int
) -> list[Library]:
    """The first library, and those of the others that the data are enough for."""
    sizes = [equations * library.count(columns) for library in libraries]
    return [libraries[0]] + [
        library for library, size in zip(libraries[1:], sizes[1:])
        if size <= MOST and ENOUGH * size <= values
    ]  # fmt: skip


def climb(libraries: Sequence[Library], nodes: Nodes, attempt: Attempt) -> tuple[Library, Outcome]:
    """The first library whose equations hold, or the one that explains the data best.

    Of long data, a part decides between libraries.

    Raises:
        DataError: If the fit breaks down.
    """
    first = libraries[0]
    if len(libraries) == 1:
        return first, _quietly(attempt, nodes, first, True).said()
    plain = _quietly(attempt, nodes, first, False)
    if plain.holds:
        return first, plain.said()
    part, _ = nodes.stretches(PART, PART // 3)
    tried = [_quietly(attempt, part, first, True)]
    for library in libraries[1:] if not tried[0].holds else ():
        tried.append(_quietly(attempt, part, library, False))
        if tried[-1].holds:
            break
    best = max(range(len(tried)), key=lambda i: tried[i].merit - _price(tried, i))
    if part is nodes and (best == 0 or tried[best].settled):
        return libraries[best], tried[best].said()
    return libraries[best], _quietly(attempt, nodes, libraries[best], True).said()


def _price(tried: Sequence[Tried], i: int) -> float:
    """By how much a larger library must explain the data better."""
    return 0.0 if i == 0 or (tried[i].holds and not tried[0].holds) else FAR_BETTER


@dataclass(frozen=True)
class Tried:
    """What came of an attempt, and what it warned of."""

    outcome: Outcome | DataError
    warnings: list[warnings.WarningMessage]

    @property
    def holds(self) -> bool:
        """Whether equations were found that hold."""
        return isinstance(self.outcome, Outcome) and bool(self.outcome.diagnostics["holds"])

    @property
    def settled(self) -> bool:
        """Whether a thorough search would have nothing to look for."""
        return isinstance(self.outcome, Outcome) and bool(self.outcome.diagnostics["settled"])

    @property
    def merit(self) -> float:
        """Evidence for every value."""
        if not isinstance(self.outcome, Outcome):
            return -np.inf
        diagnostics = self.outcome.diagnostics
        return float(diagnostics["evidence"] / max(diagnostics["values"], 1))

    def said(self) -> Outcome:
        """The outcome, with its warnings."""
        if not isinstance(self.outcome, Outcome):
            raise self.outcome
        for warning in self.warnings:
            warnings.warn(warning.message, warning.category, stacklevel=4)
        return self.outcome


def _quietly(attempt: Attempt, nodes: Nodes, library: Library, thorough: bool) -> Tried:
    """An attempt whose warnings are kept for later: it may not be the one that counts."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            return Tried(attempt(nodes, library, thorough), caught)
        except DataError as error:
            return Tried(error, caught)
