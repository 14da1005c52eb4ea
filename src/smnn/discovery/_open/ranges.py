"""Ranges and starting values of the constants inside terms.

They follow from the place of a constant in its term: an exponent, a frequency, a rate, a shift, or
a level of a variable; and from the range of that variable in the data.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import sympy

from smnn.discovery._arrays import Array
from smnn.discovery._terms import Constant, Term

EXPONENTS = (-3, -2, -1.5, -1, -0.75, -0.5, -0.25, 0.25, 0.5, 0.75, 1.25, 1.5, 1.75, 2.5, 3.5, 5, 8)
LARGEST_EXPONENT = 12.0
MOST_FREQUENCIES = 300  # Maximum number of starting values of a frequency
PER_CYCLE = 6.0  # Number of samples per cycle of the highest frequency of time
MOST_STARTS = 400  # Maximum number of starting values of a term with several constants
_WAVES, _GROWTHS = (sympy.sin, sympy.cos, sympy.tan), (sympy.exp, sympy.tanh, sympy.sinh,
                                                       sympy.cosh)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Where a constant is in a term."""

    role: str  # "exponent", "frequency", "rate", "phase", "shift" or "level"
    variable: str


def place_of(constant: str, formula: sympy.Expr) -> Place:
    """The place of a constant in an expression."""
    symbol = sympy.Symbol(constant)
    variable = _variable(formula)
    for node in sympy.preorder_traversal(formula):
        if symbol not in node.free_symbols:
            continue
        if node.is_Pow and symbol in node.exp.free_symbols:
            return Place("exponent", _variable(node.base) or variable)
        if isinstance(node, (*_WAVES, *_GROWTHS)):
            inner, wave = node.args[0], isinstance(node, _WAVES)
            name = _variable(inner) or variable
            if _variable(inner.diff(symbol)):
                return Place("frequency" if wave else "rate", name)
            return Place("phase" if wave else "shift", name)
        if node.is_Add:
            beside = [arg for arg in node.args if symbol not in arg.free_symbols]
            variable = next((v for v in map(_variable, beside) if v), variable)
    return Place("level", variable)


def _variable(expr: sympy.Expr) -> str:
    names = sorted(s.name for s in expr.free_symbols if not s.name.startswith(("?", "[")))
    return names[0] if names else ""


def with_ranges(term: Term, columns: Sequence[str], X: Array, steps: float) -> Term:
    """The term with bounds for its constants where none are given."""
    found = []
    for constant in term.constants:
        if np.isinf(constant.low):
            low, high = _range(place_of(constant.name, term.formula), columns, X, steps)
            constant = replace(constant, low=low, high=high)
        found.append(constant)
    return replace(term, constants=tuple(found))


def _range(place: Place, columns: Sequence[str], X: Array, step: float) -> tuple[float, float]:
    x = X[:, list(columns).index(place.variable)] if place.variable else np.array([0.0, 1.0])
    spread = max(float(np.ptp(x)), 1e-300)
    size = max(float(np.abs(x).max()), 1e-300)
    if place.role == "exponent":
        return -LARGEST_EXPONENT, LARGEST_EXPONENT
    if place.role == "frequency":
        if place.variable == "t":
            return 2.0 / spread, max(2 * np.pi / (PER_CYCLE * step), 4.0 / spread)
        return 0.5 / spread, 60.0 / spread
    if place.role == "rate":
        return 0.1 / spread, 60.0 / spread
    if place.role == "phase":
        return -np.pi, np.pi
    if place.role == "shift":
        return -12.0, 12.0
    return 0.01 * size, 5.0 * size


def starts(term: Term, columns: Sequence[str], X: Array) -> Array:
    """(starts, K) values of the constants of a term to start from."""
    each = []
    groups = [c.alike or c.name for c in term.constants]
    distinct = list(dict.fromkeys(groups))
    share = MOST_STARTS ** (1.0 / len(distinct))
    for constant in (term.constants[groups.index(name)] for name in distinct):
        place = place_of(constant.name, term.formula)
        values = _values(constant, place, columns, X)
        if len(distinct) > 1 and len(values) > share:
            values = values[np.linspace(0, len(values) - 1, int(share)).astype(int)]
        each.append(values)
    return np.array(list(itertools.product(*each)))[:, [distinct.index(name) for name in groups]]


def _values(constant: Constant, place: Place, columns: Sequence[str], X: Array) -> Array:
    low, high = constant.low, constant.high
    if place.role == "exponent":
        inside = [p for p in EXPONENTS if low < p < high]
        return np.array(inside or [0.5 * (low + high)])
    if place.role == "frequency":
        spread = max(float(np.ptp(X[:, list(columns).index(place.variable)])), 1e-300)
        count = int(np.clip((high - low) * spread / 1.5, 8, MOST_FREQUENCIES))
        return low + (high - low) * (np.arange(count) + 0.5) / count
    if low <= 0.0:
        return low + (high - low) * (np.arange(16) + 0.5) / 16
    ends = (low * 3.0, high / 2.5) if high / low > 100.0 else (low, high)
    return np.geomspace(*ends, 16)
