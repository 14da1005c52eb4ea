"""Libraries: terms, sums and products, text form and JSON."""

import json
import math
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given, settings

from discovery.some_libraries import COMBINED, XYZ, names
from smnn.discovery._terms import compile_terms, find_term
from smnn.discovery.libraries import (
    MAX_TERMS,
    Custom,
    Expressions,
    Library,
    LibraryError,
    Polynomial,
    Rational,
    Trigonometric,
    parse_library,
)
from smnn.equations import ExpressionError

# ---------------------------------------------------------------- terms


def test_polynomials() -> None:
    quadratic = ["1", "x", "y", "z'", "x^2", "x y", "x z'", "y^2", "y z'", "z'^2"]
    assert names(Polynomial()) == quadratic
    assert names(Polynomial(2, bias=False)) == quadratic[1:]
    assert names(Polynomial(3, interaction=False), ["x"]) == ["1", "x", "x^2", "x^3"]
    assert names(Polynomial(2, interaction=False), ["x", "y"]) == ["1", "x", "y", "x^2", "y^2"]
    assert names(Polynomial(3), ["b", "a"])[-4:] == ["b^3", "b^2 a", "b a^2", "a^3"]


@pytest.mark.parametrize("degree", [1, 2, 4])
@pytest.mark.parametrize("variables", [1, 3])
def test_count_of_monomials(degree: int, variables: int) -> None:
    found = Polynomial(degree).terms([f"x{i}" for i in range(variables)])
    assert len(found) == math.comb(variables + degree, degree)
    assert len(set(found)) == len(found)


def test_trigonometric() -> None:
    assert names(Trigonometric(), ["x"]) == ["sin(x)", "cos(x)"]
    assert names(Trigonometric((1, 0.5), cos=False), ["x"]) == ["sin(x)", "sin(0.5 x)"]
    assert names(Trigonometric(2), ["x"]) == ["sin(2 x)", "cos(2 x)"]


def test_rational() -> None:
    assert names(Rational(), ["x"]) == ["x/(x + 1)"]
    assert names(Rational((2,), (1, 4)), ["x"]) == ["x^2/(x^2 + 1)", "x^2/(x^2 + 4)"]
    assert names(Rational(), ["x", "y"])[2:] == ["x y/(x + 1)", "x y/(y + 1)"]
    assert names(Rational(interaction=False), ["x", "y"]) == ["x/(x + 1)", "y/(y + 1)"]


def test_expressions_drop_numerical_factors() -> None:
    assert names(Expressions(["-2*x", "x/3", "x*sin(y)", "7"])) == ["x", "x sin(y)", "1"]


def test_union_and_product() -> None:
    assert names(Polynomial(1) + Expressions(["x", "exp(-x)"]), ["x"]) == ["1", "x", "exp(-x)"]
    product = Polynomial(1) * Trigonometric(cos=False)
    assert names(product, ["x"]) == ["sin(x)", "x sin(x)"]
    assert names(Polynomial(1) * Polynomial(1), ["x", "y"]) == names(Polynomial(2), ["x", "y"])
    a, b, c = Polynomial(1), Trigonometric(), Rational()
    assert (a + b) + c == a + (b + c)
    assert (a * b) * c == a * (b * c)
    with pytest.raises(TypeError):
        a + 1  # type: ignore[operator]
    with pytest.raises(TypeError):
        a * "x"  # type: ignore[operator]


def test_expr_and_latex_of_terms() -> None:
    constant, first, *_ = Polynomial(2).terms(["x_1", "rate (1/h)"])
    assert constant.expr == 1
    assert first.expr == sympy.Symbol("x_1")
    assert first.latex == "{x_{1}}"
    *_, product, square = Polynomial(2).terms(["alpha", "rate (1/h)"])
    assert product.name == "alpha `rate (1/h)`"
    assert product.latex == r"\alpha \cdot \mathrm{rate\ (1/h)}"
    assert square.latex == r"\mathrm{rate\ (1/h)}^{2}"
    assert "<msup>" in square.mathml


def test_find_term_by_name_or_expression() -> None:
    terms = (Polynomial(2) + Expressions(["exp(-x)"])).terms(XYZ)
    assert terms[find_term("x y", terms, XYZ)].name == "x y"
    assert terms[find_term("y*x", terms, XYZ)].name == "x y"
    assert terms[find_term(" z'^2 ", terms, XYZ)].name == "z'^2"
    assert terms[find_term("1", terms, XYZ)].name == "1"
    assert terms[find_term("1/exp(x)", terms, XYZ)].name == "exp(-x)"
    with pytest.raises(ExpressionError, match=r"'x\^3' is not a term .* Its terms: 1, x, y"):
        find_term("x^3", terms, XYZ)
    with pytest.raises(ExpressionError, match="unknown name 'q'"):
        find_term("q", terms, XYZ)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Polynomial(0), "degree: got 0; expected a whole number from 1 to 20"),
        (lambda: Polynomial(2.5), "degree: got 2.5"),  # type: ignore[arg-type]
        (lambda: Polynomial(True), "degree: got True"),
        (lambda: Trigonometric(()), r"frequencies: got \(\); expected numbers above 0"),
        (lambda: Trigonometric((-1,)), r"frequencies: got \(-1,\)"),
        (lambda: Trigonometric(sin=False, cos=False), "got sin=False and cos=False"),
        (lambda: Rational((0,)), r"powers: got \(0,\)"),
        (lambda: Rational(constants=("K",)), r"constants: got \('K',\)"),  # type: ignore[arg-type]
        (lambda: Expressions("x"), "expressions: got 'x'; expected a list of texts"),  # type: ignore[arg-type]
        (lambda: Expressions([]), r"expressions: got \[\]"),  # type: ignore[arg-type]
        (lambda: Expressions(["x - x"]).terms(["x"]), "the term 'x - x' is zero"),
        (lambda: Custom({}), r"functions: got \{\}; expected a dictionary"),
        (lambda: Custom({"f": 3}), "got 'f': 3; expected a name and a function"),  # type: ignore[dict-item]
        (lambda: Custom({"f": np.sin}), "the parameters of 'f' are not named"),
        (lambda: Custom({"f": lambda *x: 1}), "the parameters of 'f' are not named"),
        (lambda: Custom({"f": (np.sin, "x")}), "'f': got the names 'x'; expected a list"),
        (lambda: Custom({"f": lambda q: q}).terms(XYZ), "the function 'f' takes 'q'; expected a"),
        (lambda: Polynomial(20).terms([f"x{i}" for i in range(20)]), "has 137,846,528,820 terms"),
        (lambda: Library.from_json({"kind": "other"}), "expected a result of to_json"),
        (lambda: Library.from_json("not json"), "expected a result of to_json"),
        (lambda: Library.from_json({"kind": "polynomial", "size": 3}), "got .*size"),
        (lambda: Library.from_json({"kind": "polynomial", "degree": 99}), "degree: got 99"),
    ],
)
def test_invalid_libraries(make: Any, message: str) -> None:
    with pytest.raises(LibraryError, match=message):
        make()


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (["x", "x"], "variables that occur twice: x"),
        (["a b", "a b"], "variables that occur twice: `a b`"),
        (["`x`"], "expected a name without backticks"),
        ([" "], "expected a name without backticks"),
        ([3], "got the variable 3"),
    ],
)
def test_invalid_variables(variables: list[Any], message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        Polynomial(1).terms(variables)


def test_invalid_expressions_are_quoted() -> None:
    with pytest.raises(ExpressionError, match=r"cannot read the term 'x\*sn\(y\)': unknown func"):
        Expressions(["x", "x*sn(y)"]).terms(XYZ)


def test_a_term_for_other_variables() -> None:
    with pytest.raises(ExpressionError, match="the term 'y' needs 'y'; expected only x"):
        compile_terms(Polynomial(1).terms(["x", "y"]), ["x"])


def test_largest_library() -> None:
    assert Polynomial(2).count(98) <= MAX_TERMS < Polynomial(2).count(99)


# ---------------------------------------------------------------- text and JSON


@pytest.mark.parametrize(
    ("text", "library"),
    [
        ("poly", Polynomial(2)),
        ("poly:3", Polynomial(3)),
        ("trig", Trigonometric()),
        ("trig:1:2", Trigonometric((1, 2))),
        ("rational:2", Rational((2,))),
        (" poly:3 , trig:1 ", Polynomial(3) + Trigonometric()),
        ("exp(-x)", Expressions(["exp(-x)"])),
        ("poly:1,x*sin(y),x^2", Polynomial(1) + Expressions(["x*sin(y)", "x^2"])),
        ("poly:1*trig:2", Polynomial(1) * Trigonometric((2,))),
        ("polyx", Expressions(["polyx"])),
    ],
)
def test_libraries_from_text(text: str, library: Library) -> None:
    assert parse_library(text) == library


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "with an empty item"),
        ("poly:2,,trig", "with an empty item"),
        ("ploy:2", "unknown library 'ploy' in 'ploy:2'; did you mean 'poly'?"),
        ("poly:x", "got 'poly:x'; expected one whole number, as in poly:3"),
        ("poly:1.5", "got 'poly:1.5'; expected one whole number"),
        ("poly:1:2", "got 'poly:1:2'; expected one whole number"),
        ("poly:inf", "got 'poly:inf'; expected one whole number"),
        ("poly:99", "poly:99: degree: got 99"),
        ("trig:a", "got 'trig:a'; expected numbers, as in trig:1:2"),
        ("trig:-1", "trig:-1: frequencies: got"),
    ],
)
def test_invalid_text(text: str, message: str) -> None:
    with pytest.raises(LibraryError) as error:
        parse_library(text)
    assert message in str(error.value)


@settings(max_examples=12, deadline=None)
@given(COMBINED)
def test_json_round_trip(library: Library) -> None:
    text = json.dumps(library.to_json())
    assert Library.from_json(json.loads(text)) == library
    assert names(Library.from_json(text)) == names(library)


def test_functions_cannot_be_saved() -> None:
    library = Polynomial(1) + Custom({"hill": lambda x: x})
    with pytest.raises(LibraryError, match=r"Python functions \(hill\) cannot be saved; .*Expr"):
        library.to_json()
