"""Equations as text, LaTeX, SymPy objects, NumPy functions and PyTorch modules."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import sympy
import torch
from sympy.printing.numpy import NumPyPrinter
from torch import Tensor

from smnn.discovery._terms import CompiledTerms, Term
from smnn.report import maths
from smnn.report.numbers import significant, with_uncertainty

FORMATS = ("text", "latex", "sympy")
_LINKS: dict[str, Callable[[sympy.Expr], sympy.Expr]] = {
    "tanh": sympy.tanh,
    "exp": sympy.exp,
    "sin": sympy.sin,
    "sigmoid": lambda a: 1 / (1 + sympy.exp(-a)),
    "softplus": lambda a: sympy.log(1 + sympy.exp(a)),
}


def format_equations(
    targets: Sequence[str], terms: Sequence[Term], coefficients: np.ndarray, *,
    intervals: np.ndarray | None = None, format: str = "text", precision: int = 4,
    link: Any = None,
) -> list[Any]:  # fmt: skip
    """Format equations; terms with a coefficient of exactly zero are omitted.

    Args:
        targets: `V` left-hand sides such as `x'` or `x''`.
        terms: The `P` terms of the library.
        coefficients: `(V, P)`.
        intervals: `(V, P, 2)` confidence intervals. Coefficients are then written with the larger
            distance to an end, `-9.998 ± 0.004`, and with the corresponding number of digits,
            unless the interval is infinite or has no width.
        format: `"text"`; `"latex"`; or `"sympy"` for `sympy.Eq` objects, in which every variable
            is a function of the symbol `t` (`time` if a variable is named `t`).
        precision: Significant digits of coefficients without an interval.
        link: Name of the link function around the right-hand side, or an object with a `name`.

    Returns:
        One equation per target: strings, or `sympy.Eq`.

    Raises:
        ValueError: A shape, the format, the precision or the link is invalid.
    """
    values = np.asarray(coefficients, np.float64)
    size = (len(targets), len(terms))
    _check("coefficients", values.shape, size)
    if intervals is not None:
        _check("intervals", np.shape(intervals), (*size, 2))
    if format not in FORMATS:
        raise ValueError(f"format: got {format!r}; expected one of {', '.join(FORMATS)}.")
    if not isinstance(precision, int) or not 1 <= precision <= 17:
        raise ValueError(f"precision: got {precision!r}; expected a whole number from 1 to 17.")
    around = getattr(link, "name", link)
    if around is not None and around not in _LINKS:
        raise ValueError(f"link: got {link!r}; expected None or one of {', '.join(_LINKS)}.")
    if format == "sympy":
        return _symbolic(targets, terms, values, around)
    style = maths.TEXT if format == "text" else maths.LATEX
    found = []
    for v, target in enumerate(targets):
        parts = []
        for p in map(int, np.flatnonzero(values[v])):
            interval = None if intervals is None else np.asarray(intervals)[v, p]
            parts.append(_part(terms[p], float(values[v, p]), interval, style, precision))
        right = style.sum(parts) if parts else style.number("0")
        if around is not None:
            right = style.call(around, right)
        found.append(f"{style.symbol(target)} = {right}")
    return found


TORCH_LINKS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "exp": torch.exp,
    "sin": torch.sin,
    "sigmoid": torch.sigmoid,
    "softplus": torch.nn.functional.softplus,
}


class EquationModule(torch.nn.Module):
    """Equations as a differentiable right-hand side; made by `Discovery.to_torch`.

    Attributes:
        coefficients: Parameter with the coefficients, in the order of `names`.
        names: Target and term of each coefficient.
        constants: The constants inside the terms, in the order of `constant_names`; a parameter if
            there are any.
    """

    def __init__(
        self, targets: Sequence[str], terms: CompiledTerms, Xi: np.ndarray, link: str | None,
        timed: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.places = tuple(zip(*(map(int, index) for index in np.nonzero(Xi))))
        self.names = [(targets[v], terms.terms[p].name) for v, p in self.places]
        self.coefficients = torch.nn.Parameter(torch.as_tensor(Xi[np.nonzero(Xi)]))
        self.constant_names = [c.name[1:] for c in terms.constants]
        if terms.constants:
            self.constants = torch.nn.Parameter(torch.as_tensor(terms.theta))
        else:
            self.register_buffer("constants", torch.as_tensor(terms.theta), persistent=False)
        self._terms, self._shape, self._link, self._timed = terms, Xi.shape, link, timed

    def forward(self, t: Any, z: Tensor, inputs: Tensor | None = None) -> Tensor:
        """Time derivative of states.

        Args:
            t: Time, a number or `(...)`; ignored if the terms do not contain it.
            z: `(..., V order)` states: values, then derivatives.
            inputs: `(..., inputs)` external inputs, if the equations have any.

        Returns:
            `(..., V order)`.
        """
        V = self._shape[0]
        columns = z if inputs is None else torch.cat([z, inputs], -1)
        if self._timed:
            at = torch.as_tensor(t, dtype=z.dtype, device=z.device).expand(z.shape[:-1])
            columns = torch.cat([columns, at[..., None]], -1)
        phi = self._terms.evaluate_torch(columns, self.constants)
        Xi = self.coefficients.new_zeros(self._shape)
        if self.places:
            Xi = Xi.index_put(tuple(map(torch.tensor, zip(*self.places))), self.coefficients)
        top = phi.to(Xi.dtype) @ Xi.T
        top = top if self._link is None else TORCH_LINKS[self._link](top)
        return torch.cat([z[..., V:], top.to(z.dtype)], -1)


def python_source(
    states: Sequence[str], inputs: Sequence[str], terms: Sequence[Term], coefficients: np.ndarray,
    link: Any = None,
) -> str | None:  # fmt: skip
    """Source of a function `f(t, z)` with the derivatives of the states, for NumPy.

    Args:
        states: Variables, followed by their derivatives below the order of the equations.
        inputs: External inputs, the third argument `u` of the function.
        terms: The `P` terms of the library.
        coefficients: `(V, P)`.
        link: As for `format_equations`.

    Returns:
        The source; `None` if a term is a Python function.
    """
    if any(terms[int(p)].opaque for p in np.flatnonzero(np.any(coefficients, 0))):
        return None
    names: dict[str, str] = {}
    for name in (*states, *inputs):
        stem = name.rstrip("'")
        word = "d" * (len(name) - len(stem)) + re.sub(r"\W", "_", stem)
        word = f"_{word}" if not word.isidentifier() or word in ("t", "z", "u", "numpy") else word
        word = f"{word}_" if keyword.iskeyword(word) else word
        while word in names.values():
            word += "_"
        names[name] = word
    meaning = {sympy.Symbol(name): sympy.Symbol(word) for name, word in names.items()}
    printer = NumPyPrinter()
    V = len(coefficients)
    parts = [names[name] for name in states[V:]]
    for row in coefficients:
        used = map(int, np.flatnonzero(row))
        right = sympy.Add(*(float(row[p]) * terms[p].symbolic.xreplace(meaning) for p in used))
        parts.append(printer.doprint(_LINKS[getattr(link, "name", link)](right) if link else right))
    left = [f"    {', '.join(names[x] for x in states)}{',' * (len(states) == 1)} = z"]
    if inputs:
        left.append(f"    {', '.join(names[x] for x in inputs)}{',' * (len(inputs) == 1)} = u")
    rows = "".join(f"        {part},\n" for part in parts)
    head = f"import numpy\n\n\ndef f(t, z{', u' * bool(inputs)}):\n"
    return head + "\n".join(left) + f"\n    return numpy.array([\n{rows}    ])\n"


def half_width(value: float, interval: Sequence[float] | np.ndarray | None) -> float | None:
    """Larger distance from a value to the ends of its interval; `None` if undefined."""
    if interval is None:
        return None
    ends = np.abs(np.asarray(interval, np.float64) - value)
    half = float(ends.max())  # NaN if an end is
    return half if np.isfinite(half) and half > 0 else None


def _part(
    term: Term, value: float, interval: np.ndarray | None, style: maths.Style, precision: int,
) -> tuple[bool, str]:  # fmt: skip
    """Whether a term is subtracted, and its coefficient and name."""
    half = half_width(value, interval)
    negative = half is None and value < 0
    if half is None:
        number = style.number(significant(abs(value), precision))
    else:
        middle, width, power = with_uncertainty(value, half)
        between = " ± " if style is maths.TEXT else r" \pm "
        number = style.group(f"{middle}{between}{width}")
        if power:
            number += f"e{power}" if style is maths.TEXT else rf" \cdot 10^{{{power}}}"
    name = _term_in(style, term)
    known = half is None and abs(value) == 1  # exactly one: fixed, not estimated
    factors = [x for x in ("" if known and name else number, name) if x]
    if len(factors) == 2 and style is maths.TEXT and name.startswith("1/"):
        return negative, factors[0] + name[1:]
    return negative, style.product(factors)


def _term_in(style: maths.Style, term: Term) -> str:
    """A term after its coefficient: empty for the constant, in parentheses for a sum."""
    if term.expr == 1:
        return ""
    text = term.name if style is maths.TEXT else term.latex
    return style.group(text) if term.expr is not None and term.expr.is_Add else text


def _symbolic(
    targets: Sequence[str], terms: Sequence[Term], values: np.ndarray, link: str | None
) -> list[sympy.Eq]:
    names = {s.name for term in terms for s in term.symbolic.free_symbols}
    names |= {a for term in terms for o in term.opaque for a in o.arguments}
    bare = {name.rstrip("'") for name in (*names, *targets)}
    timed = "t" in names and not any(target.rstrip("'") == "t" for target in targets)
    t = sympy.Symbol("time" if "t" in bare and not timed else "t")

    def function(name: str) -> sympy.Expr:
        if timed and name == "t":
            return t
        if name.startswith("["):  # one in a series, zero in the others
            return sympy.Symbol(name)
        stem = name.rstrip("'")
        order = len(name) - len(stem)
        x = sympy.Function(stem)(t)
        return sympy.Derivative(x, (t, order)) if order else x

    meaning = {sympy.Symbol(name): function(name) for name in names}
    found = []
    for v, target in enumerate(targets):
        right = sympy.Integer(0)
        for p in map(int, np.flatnonzero(values[v])):
            factors = [terms[p].symbolic, *(o.pattern for o in terms[p].opaque)]
            right += sympy.Float(float(values[v, p])) * sympy.Mul(*factors).xreplace(meaning)
        found.append(
            sympy.Eq(function(target), _LINKS[link](right) if link else right, evaluate=False)
        )
    return found


def _check(name: str, got: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if got != expected:
        raise ValueError(
            f"{name}: got shape {got}; expected {expected}, (targets, terms"
            f"{', 2' if len(expected) == 3 else ''})."
        )
