"""Candidate terms of fields: products of powers and derivatives, and those of a library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement

import sympy

from smnn.datasets.fields import IMAGINARY, Columns
from smnn.discovery._terms import Term, distinct, make_term
from smnn.discovery.libraries import Library


def default_terms(
    columns: Columns, degree: int, order: int, functions: Sequence[sympy.Expr] = ()
) -> list[Term]:
    """Monomials of the fields, alone and times one derivative, and products of two gradients.

    Args:
        columns: Names of the fields and derivatives.
        degree: Highest total degree.
        order: Highest order of the derivatives.
        functions: Coefficient functions; each multiplies every term.
    """
    symbols = {name: sympy.Symbol(name) for name in columns.upto(order)}
    values = [s for n, s in symbols.items() if sum(columns.upto(order)[n].orders) == 0]
    slopes = [s for s in symbols.values() if s not in values]
    first = [symbols[n] for n, c in columns.upto(min(order, 1)).items() if sum(c.orders) == 1]
    found = [
        _product(m) for k in range(degree + 1) for m in combinations_with_replacement(values, k)
    ]
    found += [
        _product(m) * slope
        for k in range(degree)
        for slope in slopes
        for m in combinations_with_replacement(values, k)
    ]
    if degree > 1 and not columns.is_complex:
        found += [_product(m) for m in combinations_with_replacement(first, 2)]
    return finished([f * t for f in (sympy.S.One, *functions) for t in found], columns)


def library_terms(
    library: Library, columns: Columns, order: int, extra: Sequence[str]
) -> list[Term]:
    """Terms of a library whose variables are the fields, their derivatives and coordinates."""
    terms = library.terms([*columns.upto(order), *extra])
    for term in terms:
        if term.opaque:
            raise ValueError(
                f"library: the term {term.name!r} is a Python function; expected expressions, "
                "whose derivatives are known. Use Expressions([...])."
            )
    return finished([term.symbolic for term in terms], columns)


def finished(
    expressions: Sequence[sympy.Expr], columns: Columns, units: Sequence[sympy.Expr] | None = None
) -> list[Term]:
    """Terms with names; of complex fields each also multiplied by the imaginary unit."""
    names = sorted({s.name for e in expressions for s in e.free_symbols})
    known = [IMAGINARY, *columns.upto(6)]
    order = [IMAGINARY, *(n for n in names if n not in known), *known[1:]]
    if units is None:
        both = (sympy.S.One, sympy.Symbol(IMAGINARY))
        units = both if columns.is_complex else both[:1]
    units = units or (sympy.S.One,)
    return distinct(make_term(unit * e, order) for e in expressions for unit in units)


def right_hand_sides(
    terms: Sequence[Term], coefficients: Sequence[Mapping[int, float]]
) -> list[sympy.Expr]:
    """The expression of each equation."""
    return [
        sympy.Add(*(sympy.Float(a, 17) * terms[p].symbolic for p, a in one.items()))
        for one in coefficients
    ]


def _product(factors: Sequence[sympy.Expr]) -> sympy.Expr:
    return sympy.Mul(*factors)
