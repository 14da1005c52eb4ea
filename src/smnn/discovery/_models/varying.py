"""Parameters that differ between series.

Every series has a column `[name]` that is one in this series and zero in the others. A coefficient
that varies is one coefficient per series, of the term times this column; a constant inside a term
that varies is one constant per series, in the sum of the terms times these columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import sympy

from smnn._util.names import suggestion
from smnn.discovery._arrays import Array, Flags
from smnn.discovery._fit.data import DataError, Nodes
from smnn.discovery._terms import Term, find_term, make_term, multiply, open_term
from smnn.equations import ExpressionError
from smnn.report import maths

MOST_SERIES = 40  # Maximum number of series with their own parameters

Varies = Sequence[str] | Mapping[str, Sequence[str]]


def indicator(series: str) -> str:
    """Name of the column of a series."""
    return f"[{series}]"


def with_indicators(nodes: Nodes, series: Sequence[str]) -> Nodes:
    """The nodes with a column for each series.

    Raises:
        DataError: There is one series only, or too many.
    """
    if not 2 <= len(series) <= MOST_SERIES:
        raise DataError(
            f"the data have {len(series)} series; parameters that vary between them need 2 to "
            f"{MOST_SERIES}."
        )
    columns: Array = np.zeros((len(nodes.t), len(series)))
    for i, (a, b) in enumerate(nodes.bounds):
        columns[a:b, i] = 1.0
    return nodes.with_columns([indicator(name) for name in series], columns)


@dataclass(frozen=True)
class _Splitter:
    """Replaces terms by terms of every series."""

    terms: Sequence[Term]
    series: Sequence[str]
    targets: Sequence[str]
    columns: Sequence[str]

    def coefficients(self, name: str) -> list[int]:
        """Indices of the terms whose coefficients have a name; or of the term with this name."""
        named = [p for p, term in enumerate(self.terms) if f"?{name}" in term.factors]
        return named or [find_term(name, self.terms, self.columns)]

    def per_series(self, term: Term) -> list[Term]:
        """The term times the column of every series."""
        order = (*self.columns, *map(indicator, self.series))
        factors = [make_term(sympy.Symbol(indicator(s)), order) for s in self.series]
        return [multiply(replace(term, order=order), factor) for factor in factors]

    def own_constant(self, term: Term, name: str) -> Term:
        """The term with a constant per series."""
        order = (*self.columns, *map(indicator, self.series))
        formula = term.formula if term.formula is not None else term.symbolic
        bounds = {c.name[1:]: (c.low, c.high) for c in term.constants}
        parts = []
        for i, label in enumerate(self.series):
            own = f"{name}_{label if label.isidentifier() or label.isdigit() else i}"
            bounds[own] = bounds[name]
            at = {sympy.Symbol(f"?{name}"): sympy.Symbol(f"?{own}")}
            parts.append(sympy.Symbol(indicator(label)) * formula.xreplace(at))
        found = open_term(sympy.Add(*parts), order, bounds)
        shared = tuple(
            replace(c, alike=name) if c.name.startswith(f"?{name}_") else c for c in found.constants
        )
        return replace(found, constants=shared)


def split_terms(
    terms: Sequence[Term], varies: Varies, series: Sequence[str], targets: Sequence[str],
    columns: Sequence[str],
) -> tuple[list[Term], Flags]:  # fmt: skip
    """Terms of every series in place of those that vary, and the (V, P) mask of the candidates.

    Args:
        terms: Terms of the library.
        varies: Names of constants, or terms whose coefficients vary; the latter also by equation.
        series: Names of the series.
        targets: Left-hand sides of the equations.
        columns: States and inputs.

    Raises:
        ExpressionError: A name is not that of a constant or a term.
        ValueError: A target does not exist.
    """
    constants = {c.name[1:] for term in terms for c in term.constants}
    by_target = varies if isinstance(varies, Mapping) else dict.fromkeys(targets, varies)
    found = list(terms)
    split = _Splitter(terms, series, targets, columns)
    where: dict[int, set[int]] = {}  # equations in which the coefficient of a term varies
    for target, names in by_target.items():
        if target not in targets or isinstance(names, str):
            hint = suggestion(target, list(targets)) or "."
            raise ValueError(
                f"varies: got {varies!r}; expected a list of names, or lists of terms by "
                f"equation ({', '.join(targets)}){hint}"
            )
        for name in (str(given).removeprefix("?") for given in names):
            if name in constants and not isinstance(varies, Mapping):
                for p, term in enumerate(found):
                    if f"?{name}" in [c.name for c in term.constants]:
                        found[p] = split.own_constant(term, name)
                continue
            try:
                for p in split.coefficients(name):
                    where.setdefault(p, set()).add(list(targets).index(target))
            except ExpressionError as error:
                known = f" Constants: {', '.join(sorted(constants))}." if constants else ""
                raise ExpressionError(f"varies: {error}{known}") from None
    allowed = np.ones((len(targets), len(found)), bool)
    for p, equations in where.items():
        flags = np.zeros(len(targets), bool)
        flags[list(equations)] = True
        allowed[flags, p] = False
        found += split.per_series(found[p])
        more = np.repeat(flags[:, None], len(series), 1)
        allowed = np.concatenate([allowed, more], 1)
    keep = np.flatnonzero(allowed.any(0))
    return [found[p] for p in keep], allowed[:, keep]


def in_series(term: Term, series: Sequence[str], chosen: int) -> Term:
    """The term in one of the series, which may be zero."""
    values = {
        sympy.Symbol(indicator(name)): sympy.Integer(i == chosen) for i, name in enumerate(series)
    }
    if not term.symbolic.free_symbols & set(values):
        return term
    symbolic = term.symbolic.xreplace(values)
    formula = None if term.formula is None else term.formula.xreplace(values)
    letters = set() if formula is None else {s.name for s in formula.free_symbols}
    mine = tuple(c for c in term.constants if c.name in letters)
    name = maths.write(symbolic, maths.TEXT, term.order)
    return replace(
        term, symbolic=symbolic, formula=formula if mine else None, constants=mine, name=name
    )
