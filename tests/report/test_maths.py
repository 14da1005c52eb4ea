"""Formulas in three styles: where parentheses stand, what names become, that nothing leaks."""

import xml.etree.ElementTree as tree

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from smnn.report import maths

x, y = sympy.symbols("x y")


@pytest.mark.parametrize(
    ("expr", "text", "latex"),
    [
        (x * y, "y x", r"y \, x"),
        (-x * y**2, "-y^2 x", r"-y^{2} \, x"),
        (x / (1 + y), "x/(y + 1)", r"\frac{x}{y + 1}"),
        (1 / (x * y), "1/(y x)", r"\frac{1}{y \, x}"),
        ((x + 1) / y**2, "(x + 1)/y^2", r"\frac{x + 1}{y^{2}}"),
        ((x + y) ** 3, "(x + y)^3", r"\left(x + y\right)^{3}"),
        (x ** sympy.Rational(1, 3), "x^(1/3)", r"x^{\frac{1}{3}}"),
        (sympy.sqrt(x), "sqrt(x)", r"\sqrt{x}"),
        (1 / sympy.sqrt(x), "1/sqrt(x)", r"\frac{1}{\sqrt{x}}"),
        (sympy.Rational(1, 4) * x, "0.25 x", r"0.25 \, x"),
        (sympy.Rational(2, 3) * x, "2 x/3", r"\frac{2 \, x}{3}"),
        (sympy.Rational(-1, 3), "-1/3", r"-\frac{1}{3}"),
        (sympy.exp(-(x**2)), "exp(-x^2)", r"\exp\left(-x^{2}\right)"),
        (sympy.Abs(x), "abs(x)", r"\left|x\right|"),
        (sympy.sign(x), "sign(x)", r"\operatorname{sign}\left(x\right)"),
        (sympy.pi * x + sympy.E, "pi x + e", r"\pi \, x + e"),
        (2**x, "2^x", "2^{x}"),
        (x ** (-y), "x^(-y)", "x^{-y}"),
        ((-x) ** y, "(-x)^y", r"\left(-x\right)^{y}"),
        (x * (1 - y), "x (1 - y)", r"x \, \left(1 - y\right)"),
        (sympy.Float(1e40) * x, "1e+40 x", r"1 \cdot 10^{40} \, x"),
    ],
)
def test_styles(expr: sympy.Expr, text: str, latex: str) -> None:
    assert maths.write(expr, maths.TEXT, ["y", "x"]) == text
    assert maths.write(expr, maths.LATEX, ["y", "x"]) == latex
    tree.fromstring(f"<math>{maths.write(expr, maths.MATHML, ['y', 'x'])}</math>")


@pytest.mark.parametrize(
    ("name", "text", "latex"),
    [
        ("x", "x", "x"),
        ("x'", "x'", "{x'}"),
        ("x_1", "x_1", "{x_{1}}"),
        ("x12''", "x12''", "{x_{12}''}"),
        ("T_out", "T_out", r"{T_{\mathrm{out}}}"),
        ("alpha", "alpha", r"\alpha"),
        ("speed", "speed", r"\mathrm{speed}"),
        ("speed'", "speed'", r"{\mathrm{speed}'}"),
        ("a b", "`a b`", r"\mathrm{a\ b}"),
        (r"50% {\x} $y_z$ ^~#&", r"`50% {\x} $y_z$ ^~#&`",
         r"\mathrm{50\%\ \{\backslash{}x\}\ \$y\_z\$\ \hat{}\sim{}\#\&}"),
    ],
)  # fmt: skip
def test_names(name: str, text: str, latex: str) -> None:
    assert maths.TEXT.symbol(name) == text
    assert maths.LATEX.symbol(name) == latex


def test_names_in_mathml() -> None:
    assert maths.MATHML.symbol("alpha") == "<mi>α</mi>"
    assert maths.MATHML.symbol("x_1") == "<msub><mi>x</mi><mn>1</mn></msub>"
    assert "′</mo>" in maths.MATHML.symbol("x'")
    assert "‴</mo>" in maths.MATHML.symbol("x'''")
    assert "′′′′</mo>" in maths.MATHML.symbol("x''''")
    assert maths.MATHML.symbol("speed") == '<mi mathvariant="normal">speed</mi>'


def test_numbers_in_mathml() -> None:
    assert maths.MATHML.number("-2.5") == '<mo form="prefix">−</mo><mn>2.5</mn>'
    assert "<msup><mn>10</mn>" in maths.MATHML.number("1.5e-7")
    assert maths.MATHML.number("pi") == "<mi>π</mi>"


def test_parentheses_grow_around_fractions_only() -> None:
    assert "stretchy" in maths.write(sympy.sin(x), maths.MATHML)
    assert "stretchy" not in maths.write(sympy.sin(x / y), maths.MATHML)


@given(st.text(min_size=1))
def test_names_never_become_markup(name: str) -> None:
    printable = "".join(c for c in name if c.isprintable()) or "x"  # XML has no control characters
    element = tree.fromstring(f"<math>{maths.MATHML.symbol(printable)}</math>")
    assert {e.tag for e in element.iter()} <= {"math", "mi", "mo", "mn", "msub", "mrow"}
