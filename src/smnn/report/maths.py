"""Formulas as plain text, LaTeX and MathML.

sympy has printers of its own; they order factors by name and give names such as `x_1'` or
`rate (1/h)` meanings of their own. Here the order is that of the variables, and a name from a data
file is only ever text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Any, ClassVar

SUM, PRODUCT, POWER, ATOM = range(4)
_GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "zeta": "ζ",
    "eta": "η", "theta": "θ", "iota": "ι", "kappa": "κ", "lambda": "λ", "mu": "μ", "nu": "ν",
    "xi": "ξ", "pi": "π", "rho": "ρ", "sigma": "σ", "tau": "τ", "upsilon": "υ", "phi": "φ",
    "chi": "χ", "psi": "ψ", "omega": "ω", "Gamma": "Γ", "Delta": "Δ", "Theta": "Θ", "Lambda": "Λ",
    "Xi": "Ξ", "Pi": "Π", "Sigma": "Σ", "Phi": "Φ", "Psi": "Ψ", "Omega": "Ω",
}  # fmt: skip
_PARTS = re.compile(r"(?P<stem>[^\W\d_]+?)_?(?P<sub>\d+|(?<=_)[^\W_]+)?(?P<primes>'*)")
_PLAIN = re.compile(r"\??[^\W\d]\w*'*")


def split_name(name: str) -> tuple[str, str, str] | None:
    """Split a short name: `x_1'` into stem x, subscript 1, and primes. `None` for other names."""
    match = _PARTS.fullmatch(name)
    if match is None or (len(match["stem"]) > 1 and match["stem"] not in _GREEK):
        return None
    return match["stem"], match["sub"] or "", match["primes"]


class Style:
    """Plain text: `x y`, `x^2`, `sin(x)`, `x/(1 + x)`. Base class of the other styles."""

    minus, plus, first_minus = " - ", " + ", "-"
    between, between_words = " ", " "
    forms: ClassVar[dict[str, str]] = {
        "sum": "{0}", "product": "{0}", "fraction": "{0}/{1}", "power": "{0}^{1}",
        "group": "({0})",
    }  # fmt: skip

    def symbol(self, name: str) -> str:
        """A name, in backticks if it is ambiguous; names in brackets are not."""
        plain = _PLAIN.fullmatch(name) or (name.startswith("[") and name.endswith("]"))
        return name if plain else f"`{name}`"

    def number(self, text: str) -> str:
        """A number."""
        return text

    def sum(self, parts: Sequence[tuple[bool, str]]) -> str:
        """A sum of signed parts."""
        signs = [self.minus if negative else self.plus for negative, _ in parts]
        signs[:1] = [self.first_minus * negative for negative, _ in parts[:1]]
        return self.forms["sum"].format("".join(s + x for s, (_, x) in zip(signs, parts)))

    def product(self, factors: Sequence[str], signs: bool = False) -> str:
        """A product, with signs between the factors if they are words."""
        between = self.between_words if signs else self.between
        return self.forms["product"].format(between.join(factors))

    def fraction(self, above: str, below: str) -> str:
        """A fraction."""
        return self.forms["fraction"].format(above, below)

    def power(self, base: str, exponent: str) -> str:
        """A power."""
        return self.forms["power"].format(base, exponent)

    def call(self, name: str, inner: str) -> str:
        """A function call."""
        return f"{name}({inner})"

    def group(self, inner: str) -> str:
        """In parentheses."""
        return self.forms["group"].format(inner)


class Source(Style):
    """Text that `smnn.equations.parse_expression` reads: `x*y`."""

    between = between_words = "*"

    def symbol(self, name: str) -> str:
        """A name, in backticks if it is not a word."""
        return name if _PLAIN.fullmatch(name) else f"`{name}`"


class Latex(Style):
    """LaTeX in math mode."""

    between, between_words = r" \, ", r" \cdot "
    forms: ClassVar[dict[str, str]] = Style.forms | {
        "fraction": r"\frac{{{0}}}{{{1}}}", "power": "{0}^{{{1}}}", "group": r"\left({0}\right)",
    }  # fmt: skip

    def symbol(self, name: str) -> str:
        """A symbol in italics with subscript, or an upright word."""
        parts = split_name(name)
        if parts is None:
            bare = name.rstrip("'")
            text = rf"\mathrm{{{_latex_text(bare)}}}"
            return text if bare == name else f"{{{text}{name[len(bare) :]}}}"
        stem, sub, primes = parts
        text = rf"\{stem}" if stem in _GREEK and len(stem) > 1 else stem
        if sub:
            text += f"_{{{sub}}}" if len(sub) == 1 or sub.isdigit() else rf"_{{\mathrm{{{sub}}}}}"
        return f"{{{text}{primes}}}" if primes or sub else text

    def number(self, text: str) -> str:
        """A number; powers of ten as superscripts."""
        if text == "pi":
            return r"\pi"
        mantissa, e, exponent = text.partition("e")
        return text if not e or not mantissa else rf"{mantissa} \cdot 10^{{{int(exponent)}}}"

    def call(self, name: str, inner: str) -> str:
        """A function call with an upright name."""
        if name == "sqrt":
            return rf"\sqrt{{{inner}}}"
        if name == "abs":
            return rf"\left|{inner}\right|"
        known = name in {"sin", "cos", "tan", "exp", "log", "tanh", "sinh", "cosh"}
        named = f"\\{name}" if known else rf"\operatorname{{{name}}}"
        return rf"{named}\left({inner}\right)"


class MathML(Style):
    """Presentation MathML; all text is escaped."""

    minus, plus, first_minus = "<mo>−</mo>", "<mo>+</mo>", '<mo form="prefix">−</mo>'
    between, between_words = '<mspace width="0.2em"></mspace>', "<mo>·</mo>"
    forms: ClassVar[dict[str, str]] = {
        "sum": "<mrow>{0}</mrow>", "product": "<mrow>{0}</mrow>",
        "fraction": "<mfrac><mrow>{0}</mrow><mrow>{1}</mrow></mfrac>",
        "power": "<msup><mrow>{0}</mrow><mrow>{1}</mrow></msup>",
    }  # fmt: skip

    def symbol(self, name: str) -> str:
        """A symbol in italics with subscript, or an upright word."""
        parts = split_name(name)
        if parts is None:
            bare = name.rstrip("'")
            return _primed(f'<mi mathvariant="normal">{escape(bare)}</mi>', name[len(bare) :])
        stem, sub, primes = parts
        text = f"<mi>{_GREEK.get(stem, stem)}</mi>"
        if sub:
            kind = "mn" if sub.isdigit() else "mi"
            text = f"<msub>{text}<{kind}>{escape(sub)}</{kind}></msub>"
        return _primed(text, primes)

    def number(self, text: str) -> str:
        """A number; powers of ten as superscripts."""
        if text in ("pi", "e"):
            return f"<mi>{'π' if text == 'pi' else 'e'}</mi>"
        mantissa, e, exponent = text.partition("e")
        if not e:
            return _signed_number(text)
        power = f"<msup><mn>10</mn><mrow>{_signed_number(str(int(exponent)))}</mrow></msup>"
        return f"<mrow>{_signed_number(mantissa)}<mo>·</mo>{power}</mrow>"

    def call(self, name: str, inner: str) -> str:
        """A function call with an upright name."""
        if name == "sqrt":
            return f"<msqrt>{inner}</msqrt>"
        if name == "abs":
            return f"<mrow><mo>|</mo>{inner}<mo>|</mo></mrow>"
        named = f'<mi mathvariant="normal">{escape(name)}</mi>'
        return f"<mrow>{named}<mo>&#x2061;</mo>{self.group(inner)}</mrow>"

    def group(self, inner: str) -> str:
        """Parentheses, which stretch for fractions only: without a maths font they jump in size."""
        kind = "" if "<mfrac" in inner else ' stretchy="false"'
        return f"<mrow><mo{kind}>(</mo>{inner}<mo{kind}>)</mo></mrow>"


TEXT, SOURCE, LATEX, MATHML = Style(), Source(), Latex(), MathML()


def write(expr: Any, style: Style, order: Sequence[str] = ()) -> str:
    """Format a sympy expression in a style; factors follow the names in `order`."""
    place = {name: i for i, name in enumerate(order)}
    return _walk(expr, style, place)[0]


def _walk(expr: Any, style: Style, place: dict[str, int]) -> tuple[str, int]:
    """Return the text and its binding strength."""
    import sympy

    if expr.is_Symbol:
        return style.symbol(expr.name), ATOM
    if expr in (sympy.pi, sympy.E):
        return style.number("pi" if expr is sympy.pi else "e"), ATOM
    if expr.is_Number:
        return _number(expr, style)
    if expr.is_Add:
        return style.sum([_part(arg, style, place) for arg in expr.as_ordered_terms()]), SUM
    if expr.is_Mul or (expr.is_Pow and expr.exp.is_number and expr.exp < 0):
        return _product(expr, style, place)
    if expr.is_Pow:
        if expr.exp == sympy.Rational(1, 2):
            return style.call("sqrt", _walk(expr.base, style, place)[0]), ATOM
        exponent, tight = _walk(expr.exp, style, place)
        if not isinstance(style, Latex | MathML) and tight < ATOM:
            exponent = style.group(exponent)
        return style.power(_held(expr.base, style, place, ATOM), exponent), POWER
    name = type(expr).__name__.lower()
    return style.call(name, _walk(expr.args[0], style, place)[0]), ATOM


def _held(expr: Any, style: Style, place: dict[str, int], least: int) -> str:
    text, tight = _walk(expr, style, place)
    return text if tight >= least else style.group(text)


def _part(expr: Any, style: Style, place: dict[str, int]) -> tuple[bool, str]:
    """Return whether a summand is negative, and the summand without its sign."""
    negative = expr.could_extract_minus_sign() and not expr.is_Add
    return negative, _held(-expr if negative else expr, style, place, PRODUCT)


def _number(expr: Any, style: Style) -> tuple[str, int]:
    if expr.is_Rational and expr.q > 1 and 10**6 % expr.q:
        text = style.fraction(style.number(str(abs(expr.p))), style.number(str(expr.q)))
        return (style.sum([(True, text)]), SUM) if expr < 0 else (text, PRODUCT)
    text = str(expr) if expr.is_Integer else f"{float(expr):.10g}"
    return style.number(text), ATOM if expr >= 0 else SUM


def _product(expr: Any, style: Style, place: dict[str, int]) -> tuple[str, int]:
    if expr.could_extract_minus_sign():
        return style.sum([(True, _held(-expr, style, place, PRODUCT))]), SUM
    above, below = [], []
    for factor in expr.as_ordered_factors():
        if factor.is_Pow and factor.exp.is_number and factor.exp < 0:
            below.append(factor.base ** (-factor.exp))
        elif factor.is_Rational and factor.q > 1 and 10**6 % factor.q:
            below.append(type(factor)(factor.q))
            above += [type(factor)(factor.p)] if factor.p != 1 else []
        else:
            above.append(factor)
    top = _side(above, style, place, alone=not below or isinstance(style, Latex | MathML))
    if not below:
        return top, PRODUCT
    bottom = _side(below, style, place, alone=isinstance(style, Latex | MathML))
    if not isinstance(style, Latex | MathML) and len(below) > 1:
        bottom = style.group(bottom)
    return style.fraction(top, bottom), PRODUCT


def _side(factors: list[Any], style: Style, place: dict[str, int], *, alone: bool) -> str:
    """Format a product; a single factor needs no parentheses."""
    if not factors:
        return style.number("1")
    if len(factors) == 1:
        return _held(factors[0], style, place, SUM if alone else POWER)
    ordered = sorted(factors, key=lambda factor: _rank(factor, place))
    held = [_held(factor, style, place, POWER) for factor in ordered]
    return style.product(held, signs=any(has_word(factor) for factor in factors))


def has_word(expr: Any) -> bool:
    """Whether an expression has a name that is written as an upright word."""
    return any(split_name(symbol.name) is None for symbol in expr.free_symbols)


def _rank(factor: Any, place: dict[str, int]) -> tuple[int, int]:
    """Sort key: numbers, then powers of variables in their order, then everything else."""
    if factor.is_number:
        return 0, 0
    base = factor.base if factor.is_Pow else factor
    return (1, place.get(base.name, len(place))) if base.is_Symbol else (2, 0)


def _signed_number(text: str) -> str:
    sign = '<mo form="prefix">−</mo>' if text.startswith("-") else ""
    return f"{sign}<mn>{escape(text.lstrip('-'))}</mn>"


def _primed(text: str, primes: str) -> str:
    """Primes are not set as superscripts: the character is raised already."""
    if not primes:
        return text
    sign = {1: "′", 2: "″", 3: "‴"}.get(len(primes), "′" * len(primes))
    return f'<mrow>{text}<mo lspace="0" rspace="0">{sign}</mo></mrow>'


def _latex_text(text: str) -> str:
    special = {"\\": r"\backslash{}", "^": r"\hat{}", "~": r"\sim{}", " ": r"\ "}
    return "".join(special.get(c, "\\" + c if c in "{}$&#_%" else c) for c in text)
