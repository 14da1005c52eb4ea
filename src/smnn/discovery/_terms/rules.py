"""What is known beforehand: fixed and forbidden terms, signs, equalities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from smnn._util.names import suggestion
from smnn.discovery._fit.arrays import Array
from smnn.discovery._fit.refine import Rules
from smnn.discovery._terms.terms import Term, find_term


@dataclass(frozen=True)
class Positive:
    """The coefficient of a term may not be negative."""

    target: str
    term: str


@dataclass(frozen=True)
class Negative:
    """The coefficient of a term may not be positive."""

    target: str
    term: str


@dataclass(frozen=True)
class Equal:
    """A weighted sum of coefficients has a value.

    `Equal({("x'", "x"): 1, ("x'", "y"): 1})` makes the two coefficients each other's negative.
    """

    weights: Mapping[tuple[str, str], float]
    value: float = field(default=0.0)


Constraint = Positive | Negative | Equal


def make_rules(
    targets: Sequence[str],
    terms: Sequence[Term],
    variables: Sequence[str],
    *,
    fixed: Mapping[str, Mapping[str, float]] | None,
    forbidden: Mapping[str, Sequence[str]] | None,
    constraints: Sequence[Constraint] | None,
    threshold: float,
    strength: float,
) -> tuple[Rules, Array]:
    """Bring what is known to arrays.

    Returns:
        The rules, and (V, P) coefficients that are zero but for the fixed ones.

    Raises:
        ValueError: If a target or term is not there, or the rules contradict each other.
    """
    V, P = len(targets), len(terms)
    allowed = np.ones((V, P), bool)
    held = np.zeros((V, P))
    positive, negative = np.zeros((V, P), bool), np.zeros((V, P), bool)

    def place(target: str, term: str) -> tuple[int, int]:
        if target not in targets:
            raise ValueError(
                f"{target!r} is not the left-hand side of an equation"
                f"{suggestion(target, list(targets)) or '.'} There are: {', '.join(targets)}."
            )
        return list(targets).index(target), find_term(term, terms, variables)

    for target, values in (fixed or {}).items():
        for term, value in values.items():
            at = place(target, term)
            if not np.isfinite(value):
                raise ValueError(f"fixed: the coefficient of {term!r} in {target!r} is {value}.")
            allowed[at], held[at] = False, float(value)
    for target, names in (forbidden or {}).items():
        if isinstance(names, str):
            raise ValueError(f"forbidden: give a list of terms for {target!r}, not a text.")
        for term in names:
            at = place(target, term)
            if held[at] != 0.0:
                raise ValueError(f"{term!r} in {target!r} is both fixed and forbidden.")
            allowed[at] = False
    rows, values_ = [], []
    for constraint in constraints or ():
        if isinstance(constraint, Positive):
            positive[place(constraint.target, constraint.term)] = True
        elif isinstance(constraint, Negative):
            negative[place(constraint.target, constraint.term)] = True
        elif isinstance(constraint, Equal):
            row = np.zeros((V, P))
            for (target, term), weight in constraint.weights.items():
                row[place(target, term)] = float(weight)
            rows.append(row.ravel())
            values_.append(float(constraint.value))
        else:
            raise ValueError(
                f"constraints: got {constraint!r}; expected Positive, Negative or Equal."
            )
    ties: Any = (np.array(rows), np.array(values_)) if rows else None
    none = np.zeros((V, P), bool)
    complexity = np.tile([term.complexity for term in terms], (V, 1))
    return Rules(allowed, none, positive, negative, ties, threshold, strength, complexity), held
