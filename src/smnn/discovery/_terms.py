"""Candidate terms: names, products, and evaluation with derivatives."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy
import torch
from torch import Tensor

from smnn._util.names import suggestion
from smnn.equations import ExpressionError, Tape, parse_expression, quoted
from smnn.equations import RowTape as Plan
from smnn.report import maths

_STEP = float(np.finfo(np.float64).eps) ** 0.2


@dataclass(frozen=True)
class Opaque:
    """A Python function, of which only values are available."""

    name: str
    function: Callable[..., Any]
    """Takes one array per argument, all of the same shape, and returns an array of that shape."""
    arguments: tuple[str, ...]
    """Names of the variables it is called with."""

    @property
    def pattern(self) -> sympy.Expr:
        """The function as an undefined SymPy function."""
        return sympy.Function(self.name)(*(sympy.Symbol(a) for a in self.arguments))


@dataclass(frozen=True, eq=False)
class Term:
    """Candidate term of the right-hand side of an equation.

    Two terms are equal if they have the same expression and the same Python functions.
    """

    name: str
    """Readable name: `1`, `x y`, `x^2`, `sin(x)`."""
    symbolic: sympy.Expr
    """Factor that is an expression."""
    opaque: tuple[Opaque, ...] = ()
    """Python functions among the factors, sorted by name."""
    order: tuple[str, ...] = ()
    """The variables, in the order of the factors in the name."""

    @property
    def expr(self) -> sympy.Expr | None:
        """SymPy expression in the symbols of the variables; `None` with Python functions."""
        return None if self.opaque else self.symbolic

    @property
    def latex(self) -> str:
        """The term as LaTeX, for math mode."""
        return self._written(maths.LATEX)

    @property
    def mathml(self) -> str:
        """The term as presentation MathML, without the outer element."""
        return self._written(maths.MATHML)

    @property
    def key(self) -> tuple[Any, ...]:
        """Key for comparison and hashing."""
        return self.symbolic, tuple((o.name, o.arguments) for o in self.opaque)

    @property
    def complexity(self) -> float:
        """Number of variables and operations; Python functions count three."""
        inside = len(self.symbolic.free_symbols) + self.symbolic.count_ops()
        return float(inside + 3 * len(self.opaque))

    def exponents(self, variables: Sequence[str]) -> np.ndarray | None:
        """`(V,)` exponents if the term is a monomial (any real exponents), else `None`."""
        if self.opaque:
            return None
        powers = self.symbolic.as_powers_dict()
        symbols = {sympy.Symbol(v): i for i, v in enumerate(variables)}
        found = np.zeros(len(variables))
        for base, exponent in powers.items():
            if base == 1:
                continue
            if base not in symbols or not exponent.is_number:
                return None
            found[symbols[base]] = float(exponent)
        return found

    def _written(self, style: maths.Style) -> str:
        factors = [] if self.symbolic == 1 and self.opaque else [self.symbolic]
        parts = [maths.write(f, style, self.order) for f in factors]
        return style.product([*parts, *(style.symbol(o.name) for o in self.opaque)])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Term) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"Term({self.name!r})"


def make_term(
    symbolic: sympy.Expr, variables: Sequence[str], opaque: Iterable[Opaque] = ()
) -> Term:
    """Create a term with its canonical name."""
    functions = tuple(sorted(opaque, key=lambda o: (o.name, o.arguments)))
    order = tuple(variables)
    parts = [] if symbolic == 1 and functions else [maths.write(symbolic, maths.TEXT, order)]
    if functions and symbolic.is_Add:
        parts = [f"({parts[0]})"]
    return Term(" ".join([*parts, *(o.name for o in functions)]), symbolic, functions, order)


def multiply(a: Term, b: Term) -> Term:
    """Product of two terms of the same variables."""
    return make_term(a.symbolic * b.symbolic, a.order, (*a.opaque, *b.opaque))


def distinct(terms: Iterable[Term]) -> list[Term]:
    """Remove duplicates, keeping the first occurrences."""
    return list(dict.fromkeys(terms))


def find_term(text: str, terms: Sequence[Term], variables: Sequence[str]) -> int:
    """Index of a term given by its name or as an expression.

    Raises:
        ExpressionError: The text is not an expression, or not among the terms.
    """
    names = [term.name for term in terms]
    wanted = " ".join(text.split())
    if wanted in names:
        return names.index(wanted)
    expr = parse_expression(text, variables)
    if expr in [term.expr for term in terms]:
        return [term.expr for term in terms].index(expr)
    shown = ", ".join(names[:30]) + (", …" if len(names) > 30 else "")
    raise ExpressionError(
        f"{text.strip()!r} is not a term of the library{suggestion(wanted, names) or '.'} "
        f"Its terms: {shown}. Add it with library + Expressions([{text.strip()!r}])."
    )


def check_names(variables: Sequence[str]) -> tuple[str, ...]:
    """Validate the names of variables: distinct strings without backticks.

    Raises:
        ExpressionError: A name is invalid or occurs twice.
    """
    for name in variables:
        if not isinstance(name, str) or not name.strip() or "`" in name:
            raise ExpressionError(
                f"got the variable {name!r}; expected a name without backticks. Rename it."
            )
    doubled = sorted(quoted(v) for v, count in Counter(variables).items() if count > 1)
    if doubled:
        raise ExpressionError(f"variables that occur twice: {', '.join(doubled)}. Rename them.")
    return tuple(variables)


def compile_terms(terms: Sequence[Term], variables: Sequence[str]) -> CompiledTerms:
    """Prepare terms for evaluation.

    Args:
        terms: `P` terms of a library.
        variables: `V` names, the columns of the arrays to evaluate at.
    """
    return CompiledTerms(terms, variables)


class CompiledTerms:
    """Terms prepared for evaluation by `compile_terms`."""

    def __init__(self, terms: Sequence[Term], variables: Sequence[str]) -> None:
        self.terms: tuple[Term, ...] = tuple(terms)
        self.variables = check_names(variables)
        self._index = {name: v for v, name in enumerate(self.variables)}
        self._opaque = [p for p, term in enumerate(self.terms) if term.opaque]
        self._check()
        self._tape = Tape(self.variables)
        self._slots = [self._tape.add(term.symbolic) for term in self.terms]
        self._plan = Plan(self._tape, self._slots, range(len(self.terms)))

    def evaluate(self, X: np.ndarray) -> np.ndarray:
        """Values of the terms.

        Args:
            X: `(..., V)` values of the variables.

        Returns:
            `(..., P)` float64; NaN or infinite outside the domain of a term, without a warning.
        """
        columns, batch = self._columns(X)
        values = np.empty((len(self.terms), columns.shape[1]))
        with np.errstate(all="ignore"):
            self._plan.fill(columns, values)
            for p in self._opaque:
                for function in self.terms[p].opaque:
                    values[p] *= _call(function, self._chosen(function, columns))
        return np.moveaxis(values.reshape(len(self.terms), *batch), 0, -1)

    def jacobian(self, X: np.ndarray) -> np.ndarray:
        """Derivatives of the terms with respect to the variables.

        Exact for expressions. Python functions of a `Custom` library are differentiated by
        fourth-order central differences with a step of 7e-4 times the size of the variable; the
        relative error is about 1e-11 for smooth functions.

        Args:
            X: `(..., V)` values of the variables.

        Returns:
            `(..., P, V)` float64.
        """
        columns, batch = self._columns(X)
        P, V = len(self.terms), len(self.variables)
        slopes = np.zeros((P, V, columns.shape[1]))
        with np.errstate(all="ignore"):
            self._slope_plan.fill(columns, slopes.reshape(P * V, columns.shape[1]))
            for p in self._opaque:
                slopes[p] = self._product_rule(p, slopes[p], columns)
        return np.moveaxis(slopes.reshape(P, V, *batch), (0, 1), (-2, -1))

    def evaluate_torch(self, X: Tensor) -> Tensor:
        """Values of the terms, differentiable by autograd.

        Python functions of a `Custom` library are called with NumPy arrays; they have the first
        derivatives of `jacobian`, and no second derivatives.

        Args:
            X: `(..., V)`, floating, on any device.

        Returns:
            `(..., P)` of the same dtype and device.
        """
        if X.shape[-1:] != (len(self.variables),):
            raise self._wrong_width(tuple(X.shape))
        columns = X.unbind(-1)
        values = self._tape.run_torch(columns)
        zero = X.new_zeros(X.shape[:-1])
        parts = []
        for term, slot in zip(self.terms, self._slots):
            part = values[slot] if isinstance(values[slot], Tensor) else zero + values[slot]
            for function in term.opaque:
                chosen = [columns[self._index[a]] for a in function.arguments]
                part = part * _OpaqueOperation.apply(function, *chosen)
            parts.append(part)
        return torch.stack(parts, -1) if parts else X.new_zeros((*X.shape[:-1], 0))

    def _check(self) -> None:
        for term in self.terms:
            used = {s.name for s in term.symbolic.free_symbols}
            used |= {a for function in term.opaque for a in function.arguments}
            if missing := sorted(used - set(self.variables)):
                raise ExpressionError(
                    f"the term {term.name!r} needs {missing[0]!r}; "
                    f"expected only {', '.join(self.variables)}. Make it for these variables."
                )

    def _columns(self, X: np.ndarray) -> tuple[np.ndarray, tuple[int, ...]]:
        X = np.asarray(X, np.float64)
        if X.shape[-1:] != (len(self.variables),):
            raise self._wrong_width(X.shape)
        return np.ascontiguousarray(X.reshape(-1, X.shape[-1]).T), X.shape[:-1]

    def _wrong_width(self, shape: tuple[int, ...]) -> ValueError:
        return ValueError(
            f"X: got shape {shape}; expected (..., {len(self.variables)}), "
            f"a column for each of {', '.join(self.variables)}."
        )

    def _chosen(self, function: Opaque, columns: np.ndarray) -> list[np.ndarray]:
        return [columns[self._index[a]] for a in function.arguments]

    @functools.cached_property
    def _slope_plan(self) -> Plan:
        """Non-zero derivatives; entry `(p, v)` is stored in row `p V + v`."""
        real = {sympy.Symbol(v): sympy.Symbol(v, real=True) for v in self.variables}
        back = {new: old for old, new in real.items()}
        tape = Tape(self.variables)
        slots, rows = [], []
        for p, term in enumerate(self.terms):
            expr = term.symbolic.xreplace(real)  # |x| is differentiable for real x only
            for v, name in enumerate(self.variables):
                slope = expr.diff(real[sympy.Symbol(name)])
                slope = slope.replace(sympy.DiracDelta, lambda *_: sympy.S.Zero)
                if slope != 0:
                    slots.append(tape.add(slope.xreplace(back)))
                    rows.append(p * len(self.variables) + v)
        return Plan(tape, slots, rows)

    def _product_rule(self, p: int, slope: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """`(V, N)` derivatives of a term with Python functions, by the product rule."""
        alone = CompiledTerms([make_term(self.terms[p].symbolic, ())], self.variables)
        factors, slopes = [alone.evaluate(columns.T)[:, 0]], [slope]
        for function in self.terms[p].opaque:
            chosen = self._chosen(function, columns)
            factors.append(_call(function, chosen))
            slopes.append(np.zeros_like(slope))
            for i, name in enumerate(function.arguments):
                slopes[-1][self._index[name]] += _difference(function, chosen, i)
        total = np.zeros_like(slope)
        for i, part in enumerate(slopes):
            total += part * np.prod([f for j, f in enumerate(factors) if j != i], axis=0)
        return total


def _call(function: Opaque, arguments: Sequence[np.ndarray]) -> np.ndarray:
    """Validated values of a Python function."""
    values = np.asarray(function.function(*arguments))
    if values.dtype.kind not in "fiub" or values.shape not in ((), arguments[0].shape):
        raise ExpressionError(
            f"the function {function.name!r} returned {values.dtype} of shape {values.shape}; "
            f"expected real numbers of shape {arguments[0].shape}, one for each row."
        )
    return np.broadcast_to(values.astype(np.float64), arguments[0].shape)


def _difference(function: Opaque, arguments: list[np.ndarray], i: int) -> np.ndarray:
    """Derivative with respect to argument `i` by fourth-order central differences."""
    x = arguments[i]
    typical = float(np.sqrt(np.mean(x**2))) if x.size else 1.0
    h = _STEP * np.maximum(np.abs(x), typical if typical > 0 else 1.0)

    def at(shift: float) -> np.ndarray:
        return _call(function, [*arguments[:i], x + shift * h, *arguments[i + 1 :]])

    return (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * h)


class _OpaqueOperation(torch.autograd.Function):
    """A Python function on tensors: evaluated by NumPy, differentiated by differences."""

    @staticmethod
    def forward(ctx: Any, function: Opaque, *arguments: Tensor) -> Tensor:
        ctx.function = function
        ctx.save_for_backward(*arguments)
        plain = [a.detach().cpu().double().numpy() for a in arguments]
        return torch.from_numpy(_call(function, plain).copy()).to(arguments[0])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        plain = [a.detach().cpu().double().numpy() for a in saved]
        slopes = [_difference(ctx.function, plain, i) for i in range(len(plain))]
        return None, *(g * torch.from_numpy(np.array(s)).to(g) for s in slopes)
