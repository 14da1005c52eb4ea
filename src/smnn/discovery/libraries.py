"""Libraries of candidate terms for the right-hand sides of equations.

A library is plain data; `terms` creates its terms for given variables:

    >>> from smnn.discovery.libraries import Expressions, Polynomial
    >>> library = Polynomial(2, bias=False) + Expressions(["exp(-x)"])
    >>> [term.name for term in library.terms(["x", "y"])]
    ['x', 'y', 'x^2', 'x y', 'y^2', 'exp(-x)']
"""

from __future__ import annotations

import abc
import inspect
import itertools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import sympy

from smnn._util.names import suggestion
from smnn.discovery._terms import (
    Opaque,
    Term,
    check_names,
    distinct,
    make_term,
    multiply,
    open_term,
)
from smnn.equations import ExpressionError, parse_expression, quoted
from smnn.errors import SmnnError

TIME = "t"  # Name of the time in terms
MAX_TERMS = 5000  # Maximum number of terms of a library


class LibraryError(SmnnError, ValueError):
    """Invalid library, or one that does not apply to the variables."""


class Library(abc.ABC):
    """Base class of libraries: candidate terms for any number of variables.

    The sum of libraries is their union, and the product consists of all products of their terms. A
    subclass is a frozen dataclass that defines `kind`, `count` and `make_terms`.
    """

    kind: ClassVar[str]
    """Name of the class in JSON."""
    kinds: ClassVar[dict[str, type[Library]]] = {}
    """All subclasses by name."""

    def __init_subclass__(cls) -> None:
        if hasattr(cls, "kind"):
            Library.kinds[cls.kind] = cls

    def terms(self, variables: Sequence[str]) -> list[Term]:
        """The terms for these variables, without duplicates.

        Raises:
            LibraryError: The library does not apply to the variables, or has too many terms.
            ExpressionError: An expression contains a name that is not a variable.
        """
        names = check_names(variables)
        if (count := self.count(len(names))) > MAX_TERMS:
            raise LibraryError(
                f"{self} has {count:,} terms in {len(names)} variables; expected at most "
                f"{MAX_TERMS:,}. Lower the degree, or use fewer variables."
            )
        return distinct(self.make_terms(names))

    @abc.abstractmethod
    def count(self, variables: int) -> int:
        """Number of terms for a number of variables, including duplicates."""

    @abc.abstractmethod
    def make_terms(self, variables: tuple[str, ...]) -> list[Term]:
        """Create the terms; called by `terms` after checking the names and the count."""

    def to_json(self) -> dict[str, Any]:
        """The library as plain data for `json.dumps`; by default the fields of the dataclass."""
        record: dict[str, Any] = {"kind": self.kind}
        for one in fields(self):  # type: ignore[arg-type]
            value = getattr(self, one.name)
            record[one.name] = list(value) if isinstance(value, tuple) else value
        return record

    @staticmethod
    def from_json(record: Mapping[str, Any] | str) -> Library:
        """The library from the result of `to_json`, or from its JSON text.

        Raises:
            LibraryError: The record does not describe a library.
        """
        try:
            found = dict(json.loads(record) if isinstance(record, str) else record)
            return Library.kinds[found.pop("kind")]._of(found)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, LibraryError):
                raise
            raise LibraryError(
                f"got {str(record)[:80]!r}; expected a result of to_json, with a kind out of "
                f"{', '.join(Library.kinds)}."
            ) from error

    @classmethod
    def _of(cls, record: dict[str, Any]) -> Library:
        return cls(**record)

    def __add__(self, other: Library) -> Library:
        return Union(_parts(Union, self, other)) if isinstance(other, Library) else NotImplemented

    def __mul__(self, other: Library) -> Library:
        return (
            Product(_parts(Product, self, other)) if isinstance(other, Library) else NotImplemented
        )


def _parts(kind: type[Union] | type[Product], *libraries: Library) -> tuple[Library, ...]:
    inside = (x.libraries if isinstance(x, kind) else (x,) for x in libraries)
    return tuple(itertools.chain.from_iterable(inside))


@dataclass(frozen=True)
class _Combination(Library, abc.ABC):
    """Several libraries."""

    libraries: tuple[Library, ...]

    def to_json(self) -> dict[str, Any]:
        """The library as plain data for `json.dumps`."""
        return {"kind": self.kind, "libraries": [x.to_json() for x in self.libraries]}

    @classmethod
    def _of(cls, record: dict[str, Any]) -> Library:
        return cls(tuple(Library.from_json(x) for x in record["libraries"]))


@dataclass(frozen=True)
class Union(_Combination):
    """Union of libraries, created by `a + b`."""

    kind: ClassVar[str] = "union"

    def count(self, variables: int) -> int:
        """Sum of the counts."""
        return sum(library.count(variables) for library in self.libraries)

    def make_terms(self, variables: tuple[str, ...]) -> list[Term]:
        """Create the terms."""
        return [term for library in self.libraries for term in library.make_terms(variables)]


@dataclass(frozen=True)
class Product(_Combination):
    """All products of terms of several libraries, created by `a * b`."""

    kind: ClassVar[str] = "product"

    def count(self, variables: int) -> int:
        """Product of the counts; empty libraries count as one."""
        return math.prod(max(1, library.count(variables)) for library in self.libraries)

    def make_terms(self, variables: tuple[str, ...]) -> list[Term]:
        """Create the terms."""
        found = [make_term(sympy.S.One, variables)]
        for library in self.libraries:
            found = distinct(multiply(a, b) for a in found for b in library.make_terms(variables))
        return found


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
        """Binomial coefficient."""
        every = math.comb(variables + self.degree, self.degree) - 1
        return int(self.bias) + (every if self.interaction else variables * self.degree)

    def make_terms(self, variables: tuple[str, ...]) -> list[Term]:
        """Create the terms."""
        symbols = [sympy.Symbol(v) for v in variables]
        found = [sympy.S.One] if self.bias else []
        for degree in range(1, self.degree + 1):
            if self.interaction:
                choices = itertools.combinations_with_replacement(symbols, degree)
                found += [sympy.Mul(*choice) for choice in choices]
            else:
                found += [x**degree for x in symbols]
        return [make_term(expr, variables) for expr in found]


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
        """One or two per variable and frequency."""
        return variables * len(self.frequencies) * (int(self.sin) + int(self.cos))

    def make_terms(self, variables: tuple[str, ...]) -> list[Term]:
        """Create the terms."""
        functions = [sympy.sin] * self.sin + [sympy.cos] * self.cos
        return [
            make_term(function(_exact(k) * sympy.Symbol(v)), variables)
            for k in self.frequencies
            for v in variables
            for function in functions
        ]


@dataclass(frozen=True)
class Rational(Library):
    """Saturating terms `x^n / (K + x^n)`, alone and times each other variable.

    These are Michaelis-Menten and Hill kinetics and saturating functional responses. `K` and `n`
    enter nonlinearly and are not fitted: list the values to try. `1 / (K + x^n)` is not included
    because it is a linear combination of 1 and the saturating term.
    """

    powers: tuple[float, ...] = (1,)
    constants: tuple[float, ...] = (1,)
    interaction: bool = True
    kind: ClassVar[str] = "rational"

    def __post_init__(self) -> None:
        object.__setattr__(self, "powers", _positive("powers", self.powers))
        object.__setattr__(self, "constants", _positive("constants", self.constants))

    def count(self, variables: int) -> int:
        """One per variable, power and constant; with interaction one per pair of variables."""
        each = variables * (variables if self.interaction else 1)
        return each * len(self.powers) * len(self.constants)

    def make_terms(self, variables: tuple[str, ...]) -> list[Term]:
        """Create the terms."""
        symbols = [sympy.Symbol(v) for v in variables]
        found = []
        for n, K in itertools.product(map(_exact, self.powers), map(_exact, self.constants)):
            rates = [x**n / (K + x**n) for x in symbols]
            found += rates
            if self.interaction:
                found += [y * r for x, r in zip(symbols, rates) for y in symbols if y != x]
        return [make_term(expr, variables) for expr in found]


@dataclass(frozen=True)
class Expressions(Library):
    """Terms given as text, such as `["exp(-x)", "x*sin(y)"]`.

    The text is parsed and never executed. A numerical factor is dropped because it is fitted: `2*x`
    is the term `x`. The name `t` is the time, unless a variable has this name.

    A question mark marks a constant that is fitted: `"x/(?K + x)"`. Expressions that contain the
    same constant share it. Its range follows from the data and the place of the constant (an
    exponent, a frequency, a rate, a level of a variable), unless `bounds` gives it.
    """

    expressions: tuple[str, ...] = ()
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict, hash=False)
    """Smallest and largest value of constants, by name: `{"K": (0.1, 10)}`."""
    kind: ClassVar[str] = "expressions"

    def __post_init__(self) -> None:
        given = self.expressions
        if isinstance(given, str) or not all(isinstance(e, str) for e in given) or not given:
            raise LibraryError(f"expressions: got {given!r}; expected a list of texts.")
        object.__setattr__(self, "expressions", tuple(given))
        object.__setattr__(self, "bounds", _checked_bounds(self.bounds, given))

    def to_json(self) -> dict[str, Any]:
        """The library as plain data for `json.dumps`."""
        record: dict[str, Any] = {"kind": self.kind, "expressions": list(self.expressions)}
        if self.bounds:
            record["bounds"] = {name: list(ends) for name, ends in self.bounds.items()}
        return record

    def count(self, variables: int) -> int:
        """Number of expressions."""
        return len(self.expressions)

    def make_terms(self, variables: tuple[str, ...]) -> list[Term]:
        """Create the terms."""
        return [_parsed(text, variables, self.bounds) for text in self.expressions]


def _parsed(
    text: str,
    variables: Sequence[str],
    bounds: Mapping[str, tuple[float, float]],
    own: bool = False,
) -> Term:
    """A term from text without its numerical factor; `t` is the time."""
    known = (*variables, *([] if TIME in variables else [TIME]))
    try:
        expr = parse_expression(text, known, constants=True)
    except ExpressionError as error:
        raise ExpressionError(f"cannot read the term {text!r}: {error}") from None
    if expr == 0:
        raise LibraryError(f"the term {text!r} is zero; expected a non-zero term.")
    expr = sympy.S.One if expr.is_number else expr.as_coeff_Mul()[1]
    outside = [f for f in sympy.Mul.make_args(expr) if f.is_Symbol and f.name.startswith("?")]
    term = open_term(expr / sympy.Mul(*outside), variables, bounds, own)
    return replace(term, factors=tuple(f.name for f in outside)) if outside else term


def _checked_bounds(given: Any, texts: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Bounds of constants in expressions.

    Raises:
        LibraryError: They are not pairs of increasing numbers, or a constant does not occur.
    """
    known = {name for text in texts for name in re.findall(r"\?([^\W\d]\w*)", text)}
    try:
        found = {str(name): (float(low), float(high)) for name, (low, high) in given.items()}
    except (AttributeError, TypeError, ValueError):
        found = {"": (1.0, 0.0)}
    for name, (low, high) in found.items():
        if not (-math.inf < low < high < math.inf):
            raise LibraryError(
                f"bounds: got {given!r}; expected pairs of increasing numbers by name, as in "
                '{"K": (0.1, 10)}.'
            )
        if name not in known:
            raise LibraryError(
                f"bounds: {name!r} is not a constant of the expressions; expected one of "
                f"{', '.join(sorted(known)) or 'those that are written with ?, as in x/(?K + x)'}."
            )
    return found


@dataclass(frozen=True)
class _Open(Library, abc.ABC):
    """Terms with a constant inside that is fitted, for every variable."""

    of: tuple[str, ...] | None = None
    """The variables, or `("t",)` for the time; by default all variables."""
    interaction: bool = True
    """Include products with each variable."""
    forms: ClassVar[tuple[str, ...]]
    """Texts of the terms of a variable {x}, with constants {c}."""
    letter: ClassVar[str]
    """Name of the constants."""
    times_itself: ClassVar[bool] = True
    """Whether products with the variable itself are other terms."""

    def __post_init__(self) -> None:
        if isinstance(self.of, str):
            object.__setattr__(self, "of", (self.of,))
        elif self.of is not None:
            object.__setattr__(self, "of", tuple(self.of))

    def _forms(self) -> tuple[str, ...]:
        return self.forms

    def count(self, variables: int) -> int:
        """Number of forms per variable, and with interaction per pair of variables."""
        each = variables if self.of is None else len(self.of)
        return each * len(self._forms()) * (1 + variables * self.interaction)

    def make_terms(self, variables: tuple[str, ...]) -> list[Term]:
        """Create the terms."""
        chosen = variables if self.of is None else self.of
        for name in chosen:
            if name not in (*variables, TIME):
                raise LibraryError(
                    f"of: got {name!r}; expected variables out of {', '.join(variables)}, or t."
                )
        found = []
        factors = [None, *variables] if self.interaction else [None]
        for x in chosen:
            own = quoted(x)
            for i, form in enumerate(self._forms()):
                for factor in factors:
                    if factor == x and not self.times_itself:
                        continue
                    parts = [i, _word(x, variables)]
                    parts += [] if factor is None else [_word(factor, variables)]
                    end = "_".join(map(str, ["", *parts]))
                    text = form.format(x=own, c=f"?{self.letter}{end}", n=f"?n{end}")
                    text = text if factor is None else f"{quoted(factor)}*{text}"
                    found.append(_parsed(text, variables, {}, own=True))
        return found


def _word(name: str, variables: Sequence[str]) -> str:
    return name if name.isidentifier() else str(list(variables).index(name))


@dataclass(frozen=True)
class Hill(_Open):
    """`x^n/(K^n + x^n)` and smaller powers of `x` above the same `K^n + x^n`, with `K` fitted.

    These are Michaelis-Menten and Hill kinetics, repression, and functional responses.
    """

    powers: tuple[float, ...] | None = (1, 2, 3, 4)
    """The exponents n; `None` for one that is fitted."""
    kind: ClassVar[str] = "hill"
    letter: ClassVar[str] = "K"
    times_itself: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.powers is not None:
            object.__setattr__(self, "powers", _positive("powers", self.powers))

    def _forms(self) -> tuple[str, ...]:
        if self.powers is None:
            return tuple(f"{above}/({{c}}^{{n}} + {{x}}^{{n}})" for above in ("1", "{x}"))
        return tuple(
            f"{above}/({{c}}^{n} + {{x}}^{n})"
            for n in self.powers
            for above in (f"{{x}}^{n}", "1", *(["{x}"] if n == 2 else []))
        )


@dataclass(frozen=True)
class Exponential(_Open):
    """`exp(-k x)` and `exp(k x)`, with the rate `k` fitted."""

    kind: ClassVar[str] = "exponential"
    letter: ClassVar[str] = "k"
    forms: ClassVar[tuple[str, ...]] = ("exp(-{c}*{x})", "exp({c}*{x})")


@dataclass(frozen=True)
class Power(_Open):
    """`x^p`, with the exponent `p` fitted."""

    kind: ClassVar[str] = "power"
    letter: ClassVar[str] = "p"
    times_itself: ClassVar[bool] = False
    forms: ClassVar[tuple[str, ...]] = ("{x}^{c}",)


@dataclass(frozen=True)
class Logarithm(_Open):
    """`log(x)`, and `log(c + x)` with the constant `c` fitted."""

    kind: ClassVar[str] = "logarithm"
    letter: ClassVar[str] = "c"
    forms: ClassVar[tuple[str, ...]] = ("log({x})", "log({c} + {x})")


@dataclass(frozen=True)
class Harmonic(_Open):
    """`sin(w x)` and `cos(w x)`, with the frequency `w` fitted."""

    kind: ClassVar[str] = "harmonic"
    letter: ClassVar[str] = "w"
    forms: ClassVar[tuple[str, ...]] = ("sin({c}*{x})", "cos({c}*{x})")


def open_library() -> Union:
    """All terms with fitted constants, also those of time."""
    time = (TIME,)
    return Union(
        (Hill(), Exponential(), Power(), Logarithm(), Harmonic(), Exponential(time), Harmonic(time))
    )


def feedback_library(delayed: Sequence[str]) -> Union:
    """Linear terms, and saturating and exponential feedback by delayed values."""
    columns = tuple(delayed)
    return Union((Polynomial(1), Hill(columns, False, None), Exponential(columns)))


def library_of(
    library: Library, variables: Sequence[str], terms: Sequence[Term], every: bool = False
) -> Library:
    """The library of a fit: the plain terms of a library, and the chosen terms with constants.

    Args:
        library: The library from which the terms were chosen.
        variables: States and inputs.
        terms: The terms of the fit.
        every: Take all plain terms from those of the fit.
    """
    parts: list[Library] = []
    libraries = library.libraries if isinstance(library, Union) else (library,)
    for part in () if every else libraries:
        own = part.terms(variables)
        plain = [term for term in own if term in terms and not term.constants]
        if len(plain) == len(own):
            parts.append(part)
        elif plain:
            parts.append(Expressions(tuple(term.source for term in plain)))
    rest = [term.source for term in terms if every and not term.constants]
    if rest:
        parts.append(Expressions(tuple(rest)))
    chosen = [term for term in terms if term.constants]
    if chosen:
        bounds = {c.name[1:]: (c.low, c.high) for term in chosen for c in term.constants}
        parts.append(Expressions(tuple(term.source for term in chosen), bounds))
    return parts[0] if len(parts) == 1 else Union(tuple(parts))


Function = Callable[..., Any]


@dataclass(frozen=True)
class Custom(Library):
    """Python functions by name: `Custom({"hill": lambda x: x**4 / (1 + x**4)})`.

    A function is called with one array per parameter, all of the same shape, and returns an array
    of that shape. Its parameters have the names of variables; if that is impossible (`x'`, or a
    NumPy function), give a pair of the function and the names:
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
        """Number of functions."""
        return len(self.functions)

    def make_terms(self, variables: tuple[str, ...]) -> list[Term]:
        """Create the terms."""
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
        """Not supported: Python functions are not saved.

        Raises:
            LibraryError: Always.
        """
        raise LibraryError(
            f"Python functions ({', '.join(self.functions)}) cannot be saved; "
            "write the terms as Expressions([...])."
        )


_WORD = re.compile(r"\s*([A-Za-z]\w*)\s*((?::[^:*]*)*)\s*")
OPEN: dict[str, Callable[..., Library]] = {
    "hill": Hill, "exponential": Exponential, "power": Power, "logarithm": Logarithm,
    "harmonic": Harmonic,
}  # fmt: skip
"""Words of libraries with fitted constants in the text form."""


def parse_library(text: str) -> Library:
    """Parse the text form of a library: `poly:3,trig:1,exp(-x),x*sin(y)`.

    Items are separated by commas outside parentheses. `poly:3` is `Polynomial(3)`, `trig:1:2`
    is `Trigonometric((1, 2))`, `rational:2` is `Rational((2,))`; `*` between such items is their
    product (`poly:1*trig`); `hill:1:2` is `Hill(powers=(1, 2))`, `harmonic:t` is
    `Harmonic(("t",))`, and so on for the other libraries with fitted constants; `open` is
    polynomials of degree 2 and all of these; anything else is an expression.

    Raises:
        LibraryError: An item is empty, or its name or numbers are invalid.
    """
    found: list[Library] = []
    for item in _split(text):
        if item == "open":
            found += [Polynomial(2), *open_library().libraries]
            continue
        library = _named(item)
        if library is None and isinstance(found[-1] if found else None, Expressions):
            library = Expressions((*found.pop().expressions, item))  # type: ignore[attr-defined]
        found.append(library or Expressions((item,)))
    return found[0] if len(found) == 1 else Union(tuple(found))


def _split(text: str) -> list[str]:
    items, depth = [""], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == "," and depth <= 0:
            items.append("")
        else:
            items[-1] += c
    if not all(item.strip() for item in items):
        raise LibraryError(
            f"got {text!r}, with an empty item; expected items such as poly:2, trig:1 or "
            "exp(-x), separated by commas."
        )
    return [item.strip() for item in items]


def _named(item: str) -> Library | None:
    """Library of a product such as `poly:1*trig`; `None` if the item is an expression."""
    matches = [_WORD.fullmatch(part) for part in item.split("*")]
    known = {"poly": Polynomial, "trig": Trigonometric, "rational": Rational} | OPEN
    first = re.match(r"\s*([^\s:*]+)\s*:", item)
    if first and first[1] not in known:
        raise LibraryError(
            f"unknown library {first[1]!r} in {item!r}{suggestion(first[1], list(known)) or '.'} "
            f"Expected poly:DEGREE, trig:FREQUENCIES, rational:POWERS, hill:POWERS, "
            f"{', '.join(f'{name}:VARIABLE' for name in [*OPEN][1:])} or an expression."
        )
    if not all(match and match[1] in known for match in matches):
        return None
    made = [_with_numbers(match[1], match[2], item) for match in matches if match]
    return made[0] if len(made) == 1 else Product(tuple(made))


def _with_numbers(word: str, arguments: str, item: str) -> Library:
    parts = tuple(x.strip() for x in arguments.split(":")[1:])
    if word in OPEN and word != "hill":
        return OPEN[word](parts or None)
    try:
        numbers = [float(x) for x in parts]
        if word == "hill":
            return Hill(powers=_positive(item, numbers)) if numbers else Hill()
        if word == "trig":
            return Trigonometric(tuple(numbers)) if numbers else Trigonometric()
        if word == "rational":
            return Rational(tuple(numbers)) if numbers else Rational()
        degree = int(numbers[0]) if numbers else 2
        if len(numbers) > 1 or [float(degree)] != (numbers or [2.0]):
            raise ValueError
        return Polynomial(degree)
    except LibraryError as error:
        raise LibraryError(f"{item}: {error}") from None
    except (ValueError, OverflowError):
        wanted = (
            "one whole number, as in poly:3" if word == "poly" else f"numbers, as in {word}:1:2"
        )
        raise LibraryError(f"got {item!r}; expected {wanted}.") from None


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
                f"the parameters of {name!r} are not named; expected a pair of the function and "
                'the names of its variables, as in (np.sinc, ["x"]).'
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
    """A decimal number as an exact fraction."""
    return sympy.Rational(str(number))


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
