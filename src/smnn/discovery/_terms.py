"""Candidate terms: names, products, and evaluation with derivatives."""

from __future__ import annotations

import copy
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import sympy
import torch
from torch import Tensor

from smnn._util.names import suggestion
from smnn.equations import ExpressionError, Tape, parse_expression, quoted
from smnn.equations import RowTape as Plan
from smnn.report import maths

HALF_WIDTH = 1.6448536269514722  # Half width of a 90 % interval in standard deviations
_STEP = float(np.finfo(np.float64).eps) ** 0.2


def intervals_of(values: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """90 % confidence intervals (..., 2)."""
    return np.stack([values - HALF_WIDTH * deviation, values + HALF_WIDTH * deviation], -1)


@dataclass(frozen=True)
class Constant:
    """Constant inside a term, which is fitted together with the coefficients.

    Terms that contain a constant of the same name share it.
    """

    name: str
    """Name, beginning with a question mark: `?K`."""
    low: float = -np.inf
    high: float = np.inf
    value: float = np.nan
    """Current value; NaN before the fit."""
    deviation: float = 0.0
    """Standard deviation; zero before the fit."""
    own: bool = False
    """Whether it may differ between equations."""
    alike: str = ""
    """Common name of the constants of several series, which start from equal values."""

    @property
    def interval(self) -> tuple[float, float]:
        """90 % confidence interval."""
        return self.value - HALF_WIDTH * self.deviation, self.value + HALF_WIDTH * self.deviation


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
    formula: sympy.Expr | None = None
    """The expression with the symbols of its constants, if it has any."""
    factors: tuple[str, ...] = ()
    """Names of constants that multiply the term, which is thus the name of its coefficient."""
    constants: tuple[Constant, ...] = ()
    """Constants inside the term; `symbolic` contains their values, or symbols before the fit."""

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
        return float(inside + 3 * len(self.opaque) + len(self.constants))

    def at(self, constants: Mapping[str, Constant]) -> Term:
        """The term with fitted constants; its name has four significant digits of them."""
        if self.formula is None:
            return self
        mine = tuple(constants[c.name] for c in self.constants)

        values = {sympy.Symbol(c.name): sympy.Float(c.value, 17) for c in mine}
        filled = self.formula.xreplace(values)
        name = maths.write(_short(filled), maths.TEXT, self.order)
        return replace(self, name=name, symbolic=filled, constants=mine)

    @property
    def source(self) -> str:
        """The term as text that `Expressions` reads, with its constants marked."""
        formula = self.symbolic if self.formula is None else self.formula
        return maths.write(formula, maths.SOURCE, self.order)

    def renamed(self, names: Mapping[str, str]) -> Term:
        """The term with other names of its constants."""
        symbols = {sympy.Symbol(a): sympy.Symbol(b) for a, b in names.items()}
        formula = self.formula.xreplace(symbols) if self.formula is not None else None
        mine = tuple(replace(c, name=names.get(c.name, c.name)) for c in self.constants)
        return replace(self, formula=formula, constants=mine)

    def _written(self, style: maths.Style) -> str:
        factors = [] if self.symbolic == 1 and self.opaque else [self.symbolic]
        parts = [maths.write(_short(f), style, self.order) for f in factors]
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


def open_term(
    formula: sympy.Expr,
    variables: Sequence[str],
    bounds: Mapping[str, tuple[float, float]],
    own: bool = False,
) -> Term:
    """Create a term from an expression that may contain constants to be fitted."""
    term = make_term(formula, variables)
    names = sorted(s.name for s in formula.free_symbols if s.name.startswith("?"))
    ends = [bounds.get(name[1:], (-np.inf, np.inf)) for name in names]
    constants = tuple(Constant(name, a, b, own=own) for name, (a, b) in zip(names, ends))
    return replace(term, formula=formula, constants=constants) if names else term


def _short(expr: sympy.Expr) -> sympy.Expr:
    """An expression with floating-point numbers of four significant digits."""
    return expr.xreplace({x: sympy.Float(f"{float(x):.4g}") for x in expr.atoms(sympy.Float)})


def multiply(a: Term, b: Term) -> Term:
    """Product of two terms of the same variables."""
    product = make_term(a.symbolic * b.symbolic, a.order, (*a.opaque, *b.opaque))
    constants = {c.name: c for term in (a, b) for c in term.constants}
    if not constants:
        return product
    return replace(product, formula=product.symbolic, constants=tuple(constants.values()))


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
    """Prepare terms for evaluation."""
    return CompiledTerms(terms, variables)


class CompiledTerms:
    """Terms prepared for evaluation by `compile_terms`."""

    def __init__(self, terms: Sequence[Term], variables: Sequence[str]) -> None:
        self.terms: tuple[Term, ...] = tuple(terms)
        self.variables = check_names(variables)
        self._index = {name: v for v, name in enumerate(self.variables)}
        self._opaque = [p for p, term in enumerate(self.terms) if term.opaque]
        self._check()
        known = {c.name: c for term in self.terms for c in term.constants}
        self.constants: tuple[Constant, ...] = tuple(known.values())
        self.theta = np.array([c.value for c in self.constants])
        """(K,) values of the constants inside the terms."""
        self._formulas = [t.symbolic if t.formula is None else t.formula for t in self.terms]
        self._tape = self._new_tape()
        self._slots = [self._tape.add(formula) for formula in self._formulas]
        self._plan = Plan(self._tape, self._slots, range(len(self.terms)))

    def at(self, theta: np.ndarray) -> CompiledTerms:
        """The terms with other values (K,) of their constants."""
        other = copy.copy(self)
        other.theta = theta
        return other

    def fitted(self, deviation: np.ndarray) -> list[Term]:
        """The terms with the values of the constants and their standard deviations (K,)."""
        found = {
            c.name: replace(c, value=float(x), deviation=float(s))
            for c, x, s in zip(self.constants, self.theta, deviation)
        }
        return [term.at(found) for term in self.terms]

    @functools.cached_property
    def uses(self) -> np.ndarray:
        """(P, K) mask of the constants in the terms."""
        names = [{c.name for c in term.constants} for term in self.terms]
        found = [[c.name in mine for c in self.constants] for mine in names]
        return np.array(found, bool).reshape(len(self.terms), len(self.constants))

    def _new_tape(self) -> Tape:
        return Tape([*self.variables, *(c.name for c in self.constants)])

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
            self._plan.fill([*columns, *self.theta], values)
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
        slopes = self._filled(self._slope_plan, columns, len(self.variables))
        with np.errstate(all="ignore"):
            for p in self._opaque:
                slopes[p] = self._product_rule(p, slopes[p], columns)
        return np.moveaxis(slopes.reshape(*slopes.shape[:2], *batch), (0, 1), (-2, -1))

    def tangents(self, X: np.ndarray) -> np.ndarray:
        """Derivatives of the terms with respect to their constants.

        Args:
            X: `(..., V)` values of the variables.

        Returns:
            `(..., P, K)` float64.
        """
        columns, batch = self._columns(X)
        slopes = self._filled(self._tangent_plan, columns, len(self.constants))
        return np.moveaxis(slopes.reshape(*slopes.shape[:2], *batch), (0, 1), (-2, -1))

    def _filled(self, plan: Plan, columns: np.ndarray, count: int) -> np.ndarray:
        """`(P, count, N)` derivatives of the expressions."""
        P, N = len(self.terms), columns.shape[1]
        slopes = np.zeros((P * count, N))
        with np.errstate(all="ignore"):
            plan.fill([*columns, *self.theta], slopes)
        return slopes.reshape(P, count, N)

    def evaluate_torch(self, X: Tensor, theta: Tensor | None = None) -> Tensor:
        """Values of the terms, differentiable by autograd.

        Python functions of a `Custom` library are called with NumPy arrays; they have the first
        derivatives of `jacobian`, and no second derivatives.

        Args:
            X: `(..., V)`, floating, on any device.
            theta: `(K,)` values of the constants inside the terms, if other than `self.theta`.

        Returns:
            `(..., P)` of the same dtype and device.
        """
        if X.shape[-1:] != (len(self.variables),):
            raise self._wrong_width(tuple(X.shape))
        columns = X.unbind(-1)
        inner = X.new_tensor(self.theta) if theta is None else theta.to(X)
        values = self._tape.run_torch([*columns, *inner.unbind()])
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
            used = {s.name for s in term.symbolic.free_symbols if not s.name.startswith("?")}
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
        return self._derivatives(self.variables)

    @functools.cached_property
    def _tangent_plan(self) -> Plan:
        """Non-zero derivatives; entry `(p, k)` is stored in row `p K + k`."""
        return self._derivatives([c.name for c in self.constants])

    def _derivatives(self, names: Sequence[str]) -> Plan:
        """Derivatives of all terms with respect to variables or constants."""
        every = [*self.variables, *(c.name for c in self.constants)]
        real = {sympy.Symbol(v): sympy.Symbol(v, real=True) for v in every}
        back = {new: old for old, new in real.items()}
        tape = self._new_tape()
        slots, rows = [], []
        for p, formula in enumerate(self._formulas):
            expr = formula.xreplace(real)  # |x| is differentiable for real x only
            for v, name in enumerate(names):
                slope = expr.diff(real[sympy.Symbol(name)])
                slope = slope.replace(sympy.DiracDelta, lambda *_: sympy.S.Zero)
                if slope != 0:
                    slots.append(tape.add(slope.xreplace(back)))
                    rows.append(p * len(names) + v)
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
