"""Prior knowledge about coefficients: fixed and forbidden terms, signs, linear equalities."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from smnn._util.names import suggestion
from smnn.discovery._arrays import Array, Flags
from smnn.discovery._terms import Term, find_term
from smnn.equations import ExpressionError, parse_expression
from smnn.report import maths


@dataclass(frozen=True)
class Bounds:
    """Constrain the coefficient of a term to an interval; a term is kept if it excludes zero."""

    target: str
    term: str
    low: float = -np.inf
    high: float = np.inf

    @classmethod
    def parse(cls, text: str) -> Bounds:
        """Read `x' : 0 <= x y <= 2`, of which one bound may be left out.

        Raises:
            ValueError: The text is not of this form.
        """
        target, _, rest = (part.strip() for part in text.partition(":"))
        parts = [part.strip() for part in re.split("<=|<", rest)]
        with contextlib.suppress(ValueError):
            if len(parts) == 3:
                return cls(target, parts[1], float(parts[0]), float(parts[2]))
            if len(parts) == 2:
                with contextlib.suppress(ValueError):
                    return cls(target, parts[1], low=float(parts[0]))
                return cls(target, parts[0], high=float(parts[1]))
        raise ValueError(f'got {text!r}; expected bounds as in "x\' : 0 <= x y <= 2".')


@dataclass(frozen=True)
class Positive(Bounds):
    """Constrain the coefficient of a term to be non-negative."""

    low: float = 0.0


@dataclass(frozen=True)
class Negative(Bounds):
    """Constrain the coefficient of a term to be non-positive."""

    high: float = 0.0


@dataclass(frozen=True)
class Equal:
    """Constrain a weighted sum of coefficients to a value.

    `Equal({("x'", "x"): 1, ("x'", "y"): 1})` makes the two coefficients each other's negative.
    """

    weights: Mapping[tuple[str, str], float]
    value: float = field(default=0.0)


Constraint = Bounds | Equal


@dataclass(frozen=True)
class Rules:
    """Constraints on the coefficients and options of the term selection, as (V, P) arrays."""

    allowed: Flags
    """Candidate terms; all other coefficients keep their fixed value."""
    required: Flags
    low: Array
    """Bounds of the coefficients."""
    high: Array
    ties: tuple[Array, Array] | None = None
    """Equalities `C p = e` between coefficients, C (ties, V P)."""
    threshold: float = 1e-3
    """Smallest contribution of a term, as a fraction of its right-hand side."""
    strength: float = 1.0
    """Factor of the sparsity penalty."""
    complexity: Array | None = None
    """(V, P) complexity of the terms; decides between equally good ones."""
    candidates: int = 0
    """Number of candidates that the terms were chosen from, if more than are allowed."""
    defining: int | None = None
    """The equation that defines a hidden variable; other terms there only change its definition."""

    def only(self, keep: Flags) -> Rules:
        """The rules for a subset of the terms (P,)."""
        ties = self.ties
        if ties is not None:
            C = ties[0].reshape(len(ties[0]), *self.allowed.shape)[..., keep]
            ties = (C.reshape(len(C), -1), ties[1])
        return replace(
            self, allowed=self.allowed[:, keep], required=self.required[:, keep],
            low=self.low[:, keep], high=self.high[:, keep], ties=ties,
            complexity=None if self.complexity is None else self.complexity[:, keep],
        )  # fmt: skip


def make_rules(
    targets: Sequence[str], terms: Sequence[Term], variables: Sequence[str], *,
    fixed: Mapping[str, Mapping[str, float] | str] | None,
    forbidden: Mapping[str, Sequence[str]] | None, constraints: Sequence[Constraint] | None,
    threshold: float, strength: float,
) -> tuple[Rules, Array]:  # fmt: skip
    """Convert the constraints to arrays.

    Returns:
        The rules, and the (V, P) fixed coefficients, zero elsewhere.

    Raises:
        ValueError: If a target or term does not exist, or constraints contradict each other.
    """
    V, P = len(targets), len(terms)
    allowed = np.ones((V, P), bool)
    held = np.zeros((V, P))
    low, high = np.full((V, P), -np.inf), np.full((V, P), np.inf)

    def place(target: str, term: str) -> tuple[int, int]:
        if target not in targets:
            raise ValueError(
                f"{target!r} is not the left-hand side of an equation"
                f"{suggestion(target, list(targets)) or '.'} Expected one of: "
                f"{', '.join(targets)}."
            )
        return list(targets).index(target), find_term(term, terms, variables)

    for target, values in (fixed or {}).items():
        for term, value in _coefficients_of(target, values, variables).items():
            at = place(target, term)
            if not np.isfinite(value):
                raise ValueError(f"fixed: the coefficient of {term!r} in {target!r} is {value}.")
            allowed[at], held[at] = False, float(value)
    for target, names in (forbidden or {}).items():
        if isinstance(names, str):
            raise ValueError(f"forbidden: give a list of terms for {target!r}, not a string.")
        for term in names:
            at = place(target, term)
            if held[at] != 0.0:
                raise ValueError(f"{term!r} in {target!r} is both fixed and forbidden.")
            allowed[at] = False
    rows, sums = [], []
    for constraint in constraints or ():
        if isinstance(constraint, Bounds):
            at = place(constraint.target, constraint.term)
            low[at] = max(low[at], float(constraint.low))
            high[at] = min(high[at], float(constraint.high))
            if not low[at] < high[at]:
                raise ValueError(f"constraints: got {constraint!r}; expected low < high.")
        elif isinstance(constraint, Equal):
            row = np.zeros((V, P))
            for (target, term), weight in constraint.weights.items():
                row[place(target, term)] = float(weight)
            rows.append(row.ravel())
            sums.append(float(constraint.value))
        else:
            raise ValueError(
                f"constraints: got {constraint!r}; expected Positive, Negative, Bounds or Equal."
            )
    ties: Any = (np.array(rows), np.array(sums)) if rows else None
    required = allowed & ((low > 0.0) | (high < 0.0))
    complexity = np.tile([term.complexity for term in terms], (V, 1))
    return Rules(allowed, required, low, high, ties, threshold, strength, complexity), held


def _coefficients_of(
    target: str, values: Mapping[str, float] | str, variables: Sequence[str]
) -> Mapping[str, float]:
    """Coefficients by term; those of a sum of terms if they are given as text."""
    if not isinstance(values, str):
        return values
    try:
        expr = parse_expression(values, variables)
    except ExpressionError as error:
        raise ExpressionError(f"fixed terms of {target!r}, {values!r}: {error}") from None
    factors = (part.as_coeff_Mul() for part in expr.as_ordered_terms())
    return {maths.write(term, maths.TEXT, tuple(variables)): float(c) for c, term in factors}
