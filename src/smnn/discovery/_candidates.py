"""Choice of the library and of the order of the equations by comparing fits.

Without a given library, polynomials of degree 2 are tried first. If their equations do not hold,
degree 3 and sines and cosines are tried, and the evidence decides: a cubic may hold on the swings
of a pendulum, but less likely than a sine. If the equations of a larger library do not hold either,
it must explain the data far better to be preferred.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from smnn.discovery._fit.corrections import NUMERICAL_ERROR
from smnn.discovery._fit.data import DataError, FitResult, Nodes
from smnn.discovery.libraries import Library, Polynomial, Trigonometric, parse_library

FAR_BETTER = 0.5
"""Gain in evidence per value that a larger library must achieve (a third smaller errors)."""
ENOUGH = 10  # Number of values per candidate that a larger library needs
MOST = 200  # Maximum number of candidates, over all equations, of a larger library
PART = 1500  # Number of nodes on which libraries are compared if the data are longer
MOST_POSITIONS = 3  # Maximum number of variables for which second-order equations are tried
BEGINNING = 1000  # Number of rows on which second-order equations are tried first
MOST_COLUMNS = 4  # Largest number of states and inputs for which they are tried by default
FEWEST_VALUES = 40  # Smallest number of values of each variable for that
FEWEST_ROWS = 8  # Minimum number of rows per series for that

FitLibrary = Callable[[Nodes, Library, bool], FitResult]
"""Fits data with a library; the flag enables the search that takes longer."""


def libraries_for(library: Library | str | None, columns: int, order: int) -> list[Library]:
    """The given library, or the default ones in the order in which they are tried.

    Raises:
        ValueError: If it is none of these.
    """
    if library is None:
        few = columns == 1 or (order > 1 and columns <= 4)
        larger: list[Library] = [] if few else [Polynomial(3)]
        waves = Trigonometric()
        angles = Polynomial(1) + Polynomial(1) * waves + waves * waves
        return [Polynomial(3 if few else 2), *larger, Polynomial(2) + waves, angles]
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
    """The first library, and those of the others for which there are enough data."""
    sizes = [equations * library.count(columns) for library in libraries]
    return [libraries[0]] + [
        library for library, size in zip(libraries[1:], sizes[1:])
        if size <= MOST and ENOUGH * size <= values
    ]  # fmt: skip


def evidence(fit: FitResult) -> float:
    """Evidence per value."""
    return float(fit.diagnostics["evidence"] / max(fit.diagnostics["values"], 1))


def best_library(
    libraries: Sequence[Library], nodes: Nodes, fit: FitLibrary
) -> tuple[Library, FitResult]:
    """Fit with the smallest library if its equations hold, or with the best one.

    If the data are long, libraries are compared on a part of them.

    Raises:
        DataError: If the fit fails.
    """
    first = libraries[0]
    if len(libraries) == 1:
        return first, fit(nodes, first, True)

    def fitted(nodes: Nodes, library: Library, thorough: bool) -> FitResult | DataError:
        try:
            return fit(nodes, library, thorough)
        except DataError as error:
            return error

    smallest = fitted(nodes, first, False)
    if isinstance(smallest, FitResult) and smallest.diagnostics["holds"]:
        return first, smallest
    part, _ = nodes.segments(PART, PART // 3)
    reference = fitted(part, first, True)
    sure = isinstance(reference, FitResult) and bool(reference.diagnostics["holds"])
    tried = [(first, reference)]
    if not sure:
        tried += [(library, fitted(part, library, False)) for library in libraries[1:]]

    def merit(found: FitResult | DataError) -> float:
        if not isinstance(found, FitResult):
            return -np.inf
        better = found is reference or (found.diagnostics["holds"] and not sure)
        return evidence(found) - (0.0 if better else FAR_BETTER)

    best, found = max(tried, key=lambda one: merit(one[1]))
    if part is not nodes or not (best is first or _settled(found)):
        return best, fit(nodes, best, True)
    if not isinstance(found, FitResult):
        raise found
    return best, found


def _settled(found: FitResult | DataError) -> bool:
    """Whether a thorough search would not change the terms."""
    return isinstance(found, FitResult) and bool(found.diagnostics["settled"])


FitOrder = Callable[[Nodes, int], tuple[Library, FitResult]]
"""Fits equations of an order."""


def best_order(nodes: Nodes, fit: FitOrder, second: bool = True) -> tuple[int, Library, FitResult]:
    """Fit equations of first order, or of second order if only those hold.

    A position whose velocity was not measured has no first-order equations.
    """
    library, first = fit(nodes, 1)
    missed = first.diagnostics.get("missed", [0.0])
    if not second or len(nodes.names) > MOST_POSITIONS or max(missed) <= NUMERICAL_ERROR:
        return 1, library, first
    rows = max(BEGINNING // (len(nodes.starts) - 1), FEWEST_ROWS)
    try:
        if not fit(nodes.head(rows), 2)[1].diagnostics["holds"]:
            return 1, library, first
        other, found = fit(nodes, 2)
    except DataError:
        return 1, library, first
    if not found.diagnostics["holds"] or evidence(found) <= evidence(first):
        return 1, library, first
    text = (
        "the equations are of second order, because those of first order do not hold; order=1 "
        "keeps first order."
    )
    return 2, other, replace(found, warnings=[*found.warnings, text])


def open_terms_suit(nodes: Nodes, order: int) -> bool:
    """Whether data are few enough columns, and enough rows, for constants inside terms."""
    columns = order * len(nodes.names) + len(nodes.inputs)
    return columns <= MOST_COLUMNS and int(nodes.seen.sum(0).min()) >= FEWEST_VALUES
