"""Libraries of candidate terms: what the right-hand side of an equation may be made of.

A library is plain data. It becomes terms when it is told the names of the variables:

    >>> from smnn.discovery.libraries import Expressions, Polynomial
    >>> library = Polynomial(2, bias=False) + Expressions(["exp(-x)"])
    >>> [term.name for term in library.terms(["x", "y"])]
    ['x', 'y', 'x^2', 'x y', 'y^2', 'exp(-x)']
"""

from __future__ import annotations

import inspect
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import sympy

from smnn._util.names import suggestion
from smnn.discovery._terms.library import Library as Library
from smnn.discovery._terms.library import LibraryError as LibraryError
from smnn.discovery._terms.library import Product as Product
from smnn.discovery._terms.library import Union as Union
from smnn.discovery._terms.terms import Opaque, Term, make_term
from smnn.equations import ExpressionError, parse_expression


@dataclass(frozen=True)
class Polynomial(Library):
    """Monomials up to a total degree: `1, x, y, x^2, x y, y^2` for degree 2."""

    degree: int = 2
    bias: bool = True
    """Include the constant 1."""
    interaction: bool = True
    """Include products of different variables."""
    kind: ClassVar[str] = "polynomial"

    def __post_init__(self) -> None:
        if not _whole(self.degree) or not 1 <= self.degree <= 20:
            raise LibraryError(
                f"degree: got {self.degree!r}; expected a whole number from 1 to 20."
            )

    def count(self, variables: int) -> int:
        """As the binomial coefficient has it."""
        every = math.comb(variables + self.degree, self.degree) - 1
        return int(self.bias) + (every if self.interaction else variables * self.degree)

    def _terms(self, variables: tuple[str, ...]) -> list[Term]:
        symbols = [sympy.Symbol(v) for v in variables]
        found = [sympy.S.One] if self.bias else []
        for degree in range(1, self.degree + 1):
            if self.interaction:
                choices = itertools.combinations_with_replacement(symbols, degree)
                found += [sympy.Mul(*choice) for choice in choices]
            else:
                found += [x**degree for x in symbols]
        return [make_term(expr, variables) for expr in found]

    def to_json(self) -> dict[str, Any]:
        """The library as plain data."""
        return {"kind": self.kind, "degree": self.degree, "bias": self.bias,
                "interaction": self.interaction}  # fmt: skip


@dataclass(frozen=True)
class Trigonometric(Library):
    """`sin(k x)` and `cos(k x)` of every variable, for every frequency `k`."""

    frequencies: tuple[float, ...] = (1,)
    sin: bool = True
    cos: bool = True
    kind: ClassVar[str] = "trigonometric"

    def __post_init__(self) -> None:
        object.__setattr__(self, "frequencies", _positive("frequencies", self.frequencies))
        if not (self.sin or self.cos):
            raise LibraryError("got sin=False and cos=False; expected one of them to be True.")

    def count(self, variables: int) -> int:
        """One or two for each variable and frequency."""
        return variables * len(self.frequencies) * (int(self.sin) + int(self.cos))

    def _terms(self, variables: tuple[str, ...]) -> list[Term]:
        functions = [sympy.sin] * self.sin + [sympy.cos] * self.cos
        return [
            make_term(function(_exact(k) * sympy.Symbol(v)), variables)
            for k in self.frequencies
            for v in variables
            for function in functions
        ]

    def to_json(self) -> dict[str, Any]:
        """The library as plain data."""
        return {"kind": self.kind, "frequencies": list(self.frequencies), "sin": self.sin,
                "cos": self.cos}  # fmt: skip


@dataclass(frozen=True)
class Rational(Library):
    """Saturating terms `x^n / (K + x^n)`, alone and times each other variable.

    They are the rates of Michaelis and Menten, of Hill, and of a predator that gets full. `K` and
    `n` enter nonlinearly, so they are not fitted: list the values to try. `1 / (K + x^n)` is not
    among the terms because it is the constant 1 less a multiple of the saturating one.
    """

    powers: tuple[float, ...] = (1,)
    constants: tuple[float, ...] = (1,)
    interaction: bool = True
    kind: ClassVar[str] = "rational"

    def __post_init__(self) -> None:
        object.__setattr__(self, "powers", _positive("powers", self.powers))
        object.__setattr__(self, "constants", _positive("constants", self.constants))

    def count(self, variables: int) -> int:
        """One for each variable, power and constant; with interaction one for each pair."""
        each = variables * (variables if self.interaction else 1)
        return each * len(self.powers) * len(self.constants)

    def _terms(self, variables: tuple[str, ...]) -> list[Term]:
        symbols = [sympy.Symbol(v) for v in variables]
        found = []
        for n, K in itertools.product(map(_exact, self.powers), map(_exact, self.constants)):
            rates = [x**n / (K + x**n) for x in symbols]
            found += rates
            if self.interaction:
                found += [y * r for x, r in zip(symbols, rates) for y in symbols if y != x]
        return [make_term(expr, variables) for expr in found]

    def to_json(self) -> dict[str, Any]:
        """The library as plain data."""
        return {"kind": self.kind, "powers": list(self.powers),
                "constants": list(self.constants), "interaction": self.interaction}  # fmt: skip


@dataclass(frozen=True)
class Expressions(Library):
    """Terms written as text, such as `["exp(-x)", "x*sin(y)"]`.

    The text is read by a parser of its own and never executed. A factor in front of a term is left
    out, since it is fitted: `2*x` is the term `x`.
    """

    expressions: tuple[str, ...] = ()
    kind: ClassVar[str] = "expressions"

    def __post_init__(self) -> None:
        given = self.expressions
        if isinstance(given, str) or not all(isinstance(e, str) for e in given) or not given:
            raise LibraryError(f"expressions: got {given!r}; expected a list of texts.")
        object.__setattr__(self, "expressions", tuple(given))

    def count(self, variables: int) -> int:
        """As many as were written."""
        return len(self.expressions)

    def _terms(self, variables: tuple[str, ...]) -> list[Term]:
        found = []
        for text in self.expressions:
            try:
                expr = parse_expression(text, variables)
            except ExpressionError as error:
                raise ExpressionError(f"cannot read the term {text!r}: {error}") from None
            if expr == 0:
                raise LibraryError(f"the term {text!r} is zero; expected one that is not.")
            found.append(sympy.S.One if expr.is_number else expr.as_coeff_Mul()[1])
        return [make_term(expr, variables) for expr in found]

    def to_json(self) -> dict[str, Any]:
        """The library as plain data."""
        return {"kind": self.kind, "expressions": list(self.expressions)}


Function = Callable[..., Any]


@dataclass(frozen=True)
class Custom(Library):
    """Functions of your own, by name: `Custom({"hill": lambda x: x**4 / (1 + x**4)})`.

    A function is called with one array for each of its parameters, all of one shape, and returns
    an array of that shape. Its parameters are named like the variables they stand for; where that
    cannot be (`x'`, or a function of numpy), give a pair of the function and the names:
    `Custom({"sinc": (np.sinc, ["x'"])})`.
    """

    functions: Mapping[str, Function | tuple[Function, Sequence[str]]] = field(default_factory=dict)
    kind: ClassVar[str] = "custom"

    def __post_init__(self) -> None:
        if not isinstance(self.functions, Mapping) or not self.functions:
            raise LibraryError(
                f"functions: got {self.functions!r}; expected a dictionary of names and functions."
            )
        object.__setattr__(
            self, "_opaque", tuple(_opaque(*item) for item in self.functions.items())
        )

    def count(self, variables: int) -> int:
        """As many as were given."""
        return len(self.functions)

    def _terms(self, variables: tuple[str, ...]) -> list[Term]:
        found = []
        for function in self.__dict__["_opaque"]:
            for name in function.arguments:
                if name not in variables:
                    raise LibraryError(
                        f"the function {function.name!r} takes {name!r}; expected a variable out "
                        f"of {', '.join(variables)}{suggestion(name, variables) or '.'} Rename the "
                        "parameter, or give a pair of the function and the names."
                    )
            found.append(make_term(sympy.S.One, variables, [function]))
        return found

    def to_json(self) -> dict[str, Any]:
        """Refused: a Python function is not data.

        Raises:
            LibraryError: Always.
        """
        raise LibraryError(
            f"functions of Python ({', '.join(self.functions)}) cannot be written to a file; "
            "expected terms that are text. Write them as Expressions([...])."
        )


_WORD = re.compile(r"\s*([A-Za-z]\w*)\s*((?::[^:*]*)*)\s*")


def parse_library(text: str) -> Library:
    """A library from the command line: `poly:3,trig:1,exp(-x),x*sin(y)`.

    Pieces are separated by commas outside parentheses. `poly:3` is `Polynomial(3)`, `trig:1:2`
    is `Trigonometric((1, 2))`, `rational:2` is `Rational((2,))`; a `*` between such words
    multiplies them (`poly:1*trig`); anything else is an expression.

    Raises:
        LibraryError: A piece is empty, or a word or number is not understood.
    """
    found: list[Library] = []
    for piece in _split(text):
        library = _words(piece)
        if library is None and isinstance(found[-1] if found else None, Expressions):
            library = Expressions((*found.pop().expressions, piece))  # type: ignore[attr-defined]
        found.append(library or Expressions((piece,)))
    return found[0] if len(found) == 1 else Union(tuple(found))


def _split(text: str) -> list[str]:
    pieces, depth = [""], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == "," and depth <= 0:
            pieces.append("")
        else:
            pieces[-1] += c
    if not all(piece.strip() for piece in pieces):
        raise LibraryError(
            f"got {text!r}, with an empty piece; expected pieces such as poly:2, trig:1 or "
            "exp(-x), separated by commas."
        )
    return [piece.strip() for piece in pieces]


def _words(piece: str) -> Library | None:
    """A product of words such as `poly:2`; `None` if it is an expression."""
    matches = [_WORD.fullmatch(part) for part in piece.split("*")]
    known = {"poly": Polynomial, "trig": Trigonometric, "rational": Rational}
    first = re.match(r"\s*([^\s:*]+)\s*:", piece)
    if first and first[1] not in known:
        raise LibraryError(
            f"unknown library {first[1]!r} in {piece!r}{suggestion(first[1], list(known)) or '.'} "
            f"Expected poly:DEGREE, trig:FREQUENCIES, rational:POWERS or an expression."
        )
    if not all(match and match[1] in known for match in matches):
        return None
    made = [_worded(match[1], match[2], piece) for match in matches if match]
    return made[0] if len(made) == 1 else Product(tuple(made))


def _worded(word: str, rest: str, piece: str) -> Library:
    try:
        numbers = [float(x) for x in rest.split(":")[1:]]
        if word == "trig":
            return Trigonometric(tuple(numbers)) if numbers else Trigonometric()
        if word == "rational":
            return Rational(tuple(numbers)) if numbers else Rational()
        degree = int(numbers[0]) if numbers else 2
        if len(numbers) > 1 or [float(degree)] != (numbers or [2.0]):
            raise ValueError
        return Polynomial(degree)
    except LibraryError as error:
        raise LibraryError(f"{piece}: {error}") from None
    except (ValueError, OverflowError):
        wanted = (
            "one whole number, as in poly:3" if word == "poly" else f"numbers, as in {word}:1:2"
        )
        raise LibraryError(f"got {piece!r}; expected {wanted}.") from None


def _opaque(name: str, given: Any) -> Opaque:
    function, names = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    if not isinstance(name, str) or not name.strip() or not callable(function):
        raise LibraryError(f"got {name!r}: {given!r}; expected a name and a function.")
    if names is None:
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):
            parameters = None
        plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if not parameters or any(p.kind not in plain for p in parameters):
            raise LibraryError(
                f"the parameters of {name!r} have no names of variables; expected a pair of the "
                'function and the names, as in (np.sinc, ["x"]).'
            )
        names = [p.name for p in parameters if p.default is p.empty]
    if isinstance(names, str) or not names:
        raise LibraryError(f"{name!r}: got the names {names!r}; expected a list of variables.")
    return Opaque(name, function, tuple(names))


def _positive(name: str, values: Any) -> tuple[float, ...]:
    given = (values,) if isinstance(values, int | float) else tuple(values)
    if not given or not all(
        isinstance(x, int | float) and not isinstance(x, bool) and 0 < x <= 1e6 for x in given
    ):
        raise LibraryError(f"{name}: got {values!r}; expected numbers above 0 and up to 1e6.")
    return tuple(int(x) if x == int(x) else float(x) for x in given)


def _exact(number: float) -> sympy.Expr:
    """A short decimal as the fraction it stands for."""
    return sympy.Rational(str(number))


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
