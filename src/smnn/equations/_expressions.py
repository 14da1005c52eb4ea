"""Parser for mathematical expressions; nothing is executed.

    sum      = product { ("+" | "-") product }
    product  = signed { ("*" | "/") signed }
    signed   = ("+" | "-") signed | power
    power    = atom [ ("^" | "**") signed ]
    atom     = number | name | "?" name | function "(" sum ")" | "(" sum ")"

Products need an explicit sign. The parser builds the sympy expression itself; the text is never
passed to sympy or Python. Constant parts are also computed in floating point, so that one that is
too large or not real is rejected before sympy builds it.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, NoReturn

import sympy

from smnn._util.names import suggestion
from smnn.errors import SmnnError

MAX_LENGTH = 1000
"""Characters in an expression."""
MAX_DEPTH = 50
"""Nesting of parentheses, signs and powers."""
MAX_EXPONENT = 32
"""Magnitude of a constant exponent."""
MAX_POWERS = 9
"""Nesting of powers: sympy's time for their signs quadruples with each."""
MAX_NUMBER = 1e100
"""Magnitude of a constant."""

FUNCTIONS: dict[str, tuple[Callable[..., sympy.Expr], Callable[[float], float]]] = {
    "sin": (sympy.sin, math.sin), "cos": (sympy.cos, math.cos), "tan": (sympy.tan, math.tan),
    "exp": (sympy.exp, math.exp), "log": (sympy.log, math.log), "sqrt": (sympy.sqrt, math.sqrt),
    "abs": (sympy.Abs, abs), "tanh": (sympy.tanh, math.tanh), "sinh": (sympy.sinh, math.sinh),
    "cosh": (sympy.cosh, math.cosh), "sign": (sympy.sign, lambda x: float(x > 0) - float(x < 0)),
}  # fmt: skip
"""Functions in expressions: the sympy function and the one for floats."""
_OPERATIONS: dict[str, tuple[Callable[..., Any], Callable[..., float]]] = {
    "+": (operator.add, operator.add), "*": (operator.mul, operator.mul),
    "/": (operator.truediv, operator.truediv), "^": (operator.pow, math.pow),
}  # fmt: skip
CONSTANTS = {"pi": (sympy.pi, math.pi), "e": (sympy.E, math.e)}

PLAIN_NAME = re.compile(r"[^\W\d]\w*'*")
"""Names that need no backticks."""
_TOKEN = re.compile(
    r"(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    rf"|(?P<name>{PLAIN_NAME.pattern})"
    r"|`(?P<quoted>[^`]+)`"
    r"|(?P<constant>\?[^\W\d]\w*)"
    r"|(?P<sign>\*\*|[-+*/^()])"
)
# Typographic variants, as in pasted text.
_SAME = str.maketrans({"−": "-", "–": "-", "·": "*", "×": "*", "⋅": "*", "′": "'", "’": "'"})


class ExpressionError(SmnnError, ValueError):
    """A text is not a mathematical expression in the known variables."""


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class _Value(NamedTuple):
    """A parsed part: the expression and, if it is constant, its value."""

    expr: sympy.Expr
    number: float | None
    powers: int = 0
    """How deep powers are nested."""


_MINUS_ONE = _Value(sympy.Integer(-1), -1.0)


def parse_expression(text: str, variables: Sequence[str], *, constants: bool = False) -> sympy.Expr:
    """Parse an expression such as `x*sin(2*pi*y)/(1 + x^2)`.

    Args:
        text: Numbers, variables, `+ - * / ^ **`, parentheses, the functions sin, cos, tan, exp,
            log, sqrt, abs, tanh, sinh, cosh, sign and the constants pi and e. Names of variables
            may end in primes (`x'`); names with other characters are written in backticks. A
            variable takes precedence over a constant of the same name.
        variables: Names of the variables.
        constants: Whether constants to be fitted are allowed: `?K` is `sympy.Symbol("?K")`.

    Returns:
        A sympy expression in `sympy.Symbol(name)`.

    Raises:
        ExpressionError: With the position, the reason and the known names.
    """
    if not isinstance(text, str):
        raise ExpressionError(f"got {type(text).__name__}; expected an expression as text.")
    if len(text) > MAX_LENGTH:
        raise ExpressionError(
            f"an expression of {len(text)} characters; expected at most {MAX_LENGTH}. "
            "Split it into several terms."
        )
    return _Parser(text.translate(_SAME), tuple(variables), constants).read()


def quoted(name: str) -> str:
    """Return a name as written in an expression: in backticks if needed."""
    return name if PLAIN_NAME.fullmatch(name) else f"`{name}`"


def _is_zero(value: _Value) -> bool:
    """For constants only: for other expressions sympy can take minutes without a result."""
    if value.number is None:
        return value.expr is sympy.S.Zero
    return value.number == 0 or bool(value.expr.is_zero)


def _exponent(base: _Value, exponent: _Value) -> sympy.Expr:
    """The exponent, as a float if the exact power would have a huge number of digits."""
    power = exponent.expr
    roots = any(p.base.is_number for p in base.expr.atoms(sympy.Pow))  # nested roots are expensive
    exact = not power.is_Rational or power.is_Integer or (power.q <= 12 and not roots)
    return power if exact else sympy.Float(float(power))


class _Parser:
    def __init__(self, text: str, variables: tuple[str, ...], constants: bool) -> None:
        self.text, self.variables, self.constants = text, variables, constants
        self.tokens = list(self._tokens())
        self.next = 0
        self.depth = 0

    # ------------------------------------------------------------ tokens

    def _tokens(self) -> Iterator[_Token]:
        at = 0
        while rest := self.text[at:].lstrip():
            at = len(self.text) - len(rest)
            match = _TOKEN.match(self.text, at)
            if match is None:
                self._fail(at, f"{self.text[at]!r} has no meaning in an expression")
            kind = str(match.lastgroup)
            yield _Token(kind, match[kind], at)
            at = match.end()
        yield _Token("end", "", len(self.text.rstrip()))

    @property
    def token(self) -> _Token:
        return self.tokens[self.next]

    def _take(self, *signs: str) -> _Token | None:
        """Consume and return the current token if it is one of these signs."""
        token = self.token
        if token.kind != "sign" or token.text not in signs:
            return None
        self.next += 1
        return token

    def _fail(self, at: int, why: str, advice: str | None = None) -> NoReturn:
        start = max(0, at - 50)
        part = "".join(c if c.isprintable() else " " for c in self.text[start : at + 30])
        if advice is None:
            names = ", ".join(quoted(v) for v in self.variables[:20]) or "none"
            more = ", …" if len(self.variables) > 20 else ""
            advice = (
                f"Known: variables {names}{more}; constants {', '.join(CONSTANTS)}; "
                f"functions {', '.join(FUNCTIONS)}; + - * / ^ and parentheses."
            )
        raise ExpressionError(
            f"{why} (character {at + 1}).\n    {part}\n    {' ' * (at - start)}^\n{advice}"
        )

    # ------------------------------------------------------------ grammar

    def read(self) -> sympy.Expr:
        if self.token.kind == "end":
            self._fail(0, "the expression is empty")
        value = self._sum()
        if self.token[:2] == ("sign", ")"):
            self._fail(self.token.at, "this parenthesis was never opened")
        if self.token.kind != "end":
            self._fail_without_sign()
        return self._checked(value.expr, 0)

    def _sum(self) -> _Value:
        value = self._product()
        while sign := self._take("+", "-"):
            other = self._product()
            if sign.text == "-":
                other = self._combined(sign, _MINUS_ONE, other, "*")
            value = self._combined(sign, value, other, "+")
        return value

    def _product(self) -> _Value:
        value = self._signed()
        while sign := self._take("*", "/"):
            value = self._combined(sign, value, self._signed(), sign.text)
        return value

    def _signed(self) -> _Value:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self._fail(self.token.at, f"nested more than {MAX_DEPTH} deep", "Simplify it.")
        if sign := self._take("+", "-"):
            value = self._signed()
            if sign.text == "-":
                value = self._combined(sign, _MINUS_ONE, value, "*")
        else:
            value = self._power()
        self.depth -= 1
        return value

    def _power(self) -> _Value:
        base = self._atom()
        if sign := self._take("^", "**"):
            return self._combined(sign, base, self._signed(), "^")
        return base

    def _atom(self) -> _Value:
        token = self.token
        if opened := self._take("("):
            return self._inside(opened)
        if token.kind == "constant":
            if not self.constants:
                why = f"{token.text!r} is a constant to be fitted, which is not possible here"
                self._fail(token.at, why, "Write its value.")
            self.next += 1
            return _Value(sympy.Symbol(token.text), None)
        if token.kind not in ("number", "name", "quoted"):
            what = "the end" if token.kind == "end" else repr(token.text)
            self._fail(token.at, f"expected a number, a variable or a parenthesis, found {what}")
        self.next += 1
        return self._number(token) if token.kind == "number" else self._named(token)

    def _inside(self, opened: _Token) -> _Value:
        value = self._sum()
        if self._take(")") is None:
            if self.token.kind == "end":
                self._fail(opened.at, "this parenthesis is never closed")
            self._fail_without_sign()
        return value

    def _fail_without_sign(self) -> NoReturn:
        why = f"expected a sign before {self.token.text!r}"
        self._fail(self.token.at, why, "Write products with *, as in 2*x*y.")

    def _number(self, token: _Token) -> _Value:
        number = float(token.text)
        if not number <= MAX_NUMBER:
            self._fail(token.at, f"the number {token.text} is larger than {MAX_NUMBER:g}", "")
        if number == 0:  # also 1e-999999999, whose fraction would fill the memory
            return _Value(sympy.Integer(0), 0.0)
        if len(token.text) <= 25 and 1e-30 < number < 1e30:
            exact = Fraction(token.text)  # so that 0.5*x and x/2 are the same term
            return _Value(sympy.Rational(exact.numerator, exact.denominator), number)
        return _Value(sympy.Float(number), number)

    def _named(self, token: _Token) -> _Value:
        name, quoted = token.text, token.kind == "quoted"
        called = self.token[:2] == ("sign", "(") and not quoted
        if called and name in FUNCTIONS:
            symbolic, plain = FUNCTIONS[name]
            self.next += 1
            inner = self._inside(self.tokens[self.next - 1])
            number = None if inner.number is None else self._computed(token, plain, inner.number)
            return _Value(self._checked(symbolic(inner.expr), token.at), number, inner.powers)
        if name in self.variables:
            return _Value(sympy.Symbol(name), None)
        if name in CONSTANTS and not quoted:
            return _Value(*CONSTANTS[name])
        if called:
            near = suggestion(name, list(FUNCTIONS))
            self._fail(token.at, f"unknown function {name!r}{near}")
        if name in FUNCTIONS:
            self._fail(token.at, f"{name} is a function; write {name}(...)")
        near = suggestion(name, [*self.variables, *FUNCTIONS, *CONSTANTS])
        self._fail(token.at, f"unknown name {name!r}{near}")

    # ------------------------------------------------------------ building

    def _combined(self, sign: _Token, a: _Value, b: _Value, operation: str) -> _Value:
        if operation == "/" and _is_zero(b):
            self._fail(sign.at, "division by zero", "")
        powers = max(a.powers, b.powers) + (operation == "^")
        if operation == "^":
            self._check_power(sign, a, b)
        if powers > MAX_POWERS:
            self._fail(sign.at, f"powers nested more than {MAX_POWERS} deep", "Simplify them.")
        symbolic, plain = _OPERATIONS[operation]
        number = None
        if a.number is not None and b.number is not None:
            number = self._computed(sign, plain, a.number, b.number)
        right = _exponent(a, b) if operation == "^" else b.expr
        expr = self._checked(symbolic(a.expr, right), sign.at)
        if expr.is_Rational and max(abs(expr.p), expr.q) > 10**15:
            expr = sympy.Float(float(expr))  # exact fractions would grow without bound
        return _Value(expr, number, powers)

    def _check_power(self, sign: _Token, base: _Value, exponent: _Value) -> None:
        if exponent.number is not None and abs(exponent.number) > MAX_EXPONENT:
            self._fail(
                sign.at,
                f"the exponent {exponent.number:g} is beyond ±{MAX_EXPONENT}",
                "Scale the variable, or use exp.",
            )
        if _is_zero(base) and (exponent.number is None or exponent.number <= 0):
            self._fail(sign.at, "zero to this power is not defined", "")

    def _computed(self, token: _Token, compute: Callable[..., float], *values: float) -> float:
        """The value of a constant part; rejects it if it is not real or too large."""
        try:
            number = compute(*values)
        except (ValueError, ZeroDivisionError):
            self._fail(token.at, f"{token.text!r} has no real value here", "")
        except OverflowError:
            number = math.inf
        if not abs(number) <= MAX_NUMBER:
            self._fail(token.at, f"a constant is larger than {MAX_NUMBER:g}", "")
        return number

    def _checked(self, expr: sympy.Expr, at: int) -> sympy.Expr:
        """The expression, if it is finite, real and of bounded degree."""
        if expr.has(sympy.zoo, sympy.oo, -sympy.oo, sympy.nan, sympy.I):
            self._fail(at, "this is not a finite real expression", "")
        for power in expr.atoms(sympy.Pow):
            if power.exp.is_number and abs(float(power.exp)) > MAX_EXPONENT:
                self._fail(
                    at,
                    f"powers multiply to an exponent beyond ±{MAX_EXPONENT}",
                    "Scale the variable, or use exp.",
                )
        return expr
