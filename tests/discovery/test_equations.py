"""Equations as text, LaTeX and SymPy: rounding, signs, intervals."""

from typing import Any

import numpy as np
import pytest
import sympy

from smnn.discovery._equations import format_equations, half_width
from smnn.discovery._terms import Term
from smnn.discovery.libraries import Custom, Expressions, Polynomial

TARGETS = ["x'", "y'"]
TERMS = (Polynomial(2) + Expressions(["sin(x)", "x + 1"])).terms(["x", "y"])


def coefficients(**given: dict[str, float]) -> np.ndarray:
    """`(2, P)` from names of terms."""
    names = [term.name for term in TERMS]
    found = np.zeros((2, len(TERMS)))
    for row, values in enumerate(given.values()):
        for name, value in values.items():
            found[row, names.index(name)] = value
    return found


LORENZ = coefficients(x={"x": -9.998, "y": 9.9982}, y={"1": -3.2, "x y": -1.00005, "x + 1": 2.0})


def test_text() -> None:
    assert format_equations(TARGETS, TERMS, LORENZ) == [
        "x' = -9.998 x + 9.998 y",
        "y' = -3.200 - 1.000 x y + 2.000 (x + 1)",
    ]


def test_an_empty_right_hand_side() -> None:
    zero = np.zeros_like(LORENZ)
    assert format_equations(TARGETS, TERMS, zero) == ["x' = 0", "y' = 0"]
    assert format_equations(TARGETS, TERMS, zero, format="latex") == ["{x'} = 0", "{y'} = 0"]
    first = format_equations(TARGETS, TERMS, zero, format="sympy")[0]
    assert first.rhs == 0


def test_coefficients_of_one() -> None:
    found = format_equations(TARGETS, TERMS, coefficients(x={"x": -1, "y": 1}, y={"1": 1}))
    assert found == ["x' = -x + y", "y' = 1.000"]


@pytest.mark.parametrize(
    ("precision", "text"), [(1, "x' = -10 x"), (2, "x' = -10 x"), (7, "x' = -9.998000 x")]
)
def test_precision(precision: int, text: str) -> None:
    values = coefficients(x={"x": -9.998})
    assert format_equations(TARGETS, TERMS, values, precision=precision)[0] == text


def test_intervals_determine_the_digits() -> None:
    half = np.where(LORENZ != 0, 0.0041, 0.0)
    half[1, 0] = 0.3
    intervals = np.stack([LORENZ - half, LORENZ + 0.5 * half], -1)
    assert format_equations(TARGETS, TERMS, LORENZ, intervals=intervals) == [
        "x' = (-9.998 ± 0.004) x + (9.998 ± 0.004) y",
        "y' = (-3.2 ± 0.3) + (-1.000 ± 0.004) x y + (2.000 ± 0.004) (x + 1)",
    ]
    latex = format_equations(TARGETS, TERMS, LORENZ, intervals=intervals, format="latex")
    assert latex[0].startswith(r"{x'} = \left(-9.998 \pm 0.004\right) \, x + \left(9.998")


def test_coefficients_without_a_usable_interval() -> None:
    values = coefficients(x={"x": -1.0, "y": 2.0})
    intervals = np.stack([values, values], -1)
    intervals[0, 2] = (-np.inf, np.inf)
    assert format_equations(TARGETS, TERMS, values, intervals=intervals)[0] == "x' = -x + 2.000 y"


def test_very_large_and_small() -> None:
    values = coefficients(x={"x": -1.23456e-7, "y": 9.87654e9})
    assert format_equations(TARGETS, TERMS, values)[0] == "x' = -1.235e-7 x + 9.877e9 y"
    latex = format_equations(TARGETS, TERMS, values, format="latex")[0]
    assert latex == r"{x'} = -1.235 \cdot 10^{-7} \, x + 9.877 \cdot 10^{9} \, y"
    intervals = np.stack([values * 1.02, values * 0.98], -1)
    intervals.sort(-1)
    with_intervals = format_equations(TARGETS, TERMS, values, intervals=intervals)[0]
    assert with_intervals == "x' = (-1.23 ± 0.02)e-7 x + (9.9 ± 0.2)e9 y"


def test_sympy_equations_hold_for_their_solution() -> None:
    """x'' = -4 x is solved by cos(2 t), as SymPy confirms."""
    terms = Polynomial(1).terms(["x", "x'"])
    (equation,) = format_equations(["x''"], terms, np.array([[0.0, -4.0, 0.0]]), format="sympy")
    t, x = sympy.Symbol("t"), sympy.Function("x")
    assert equation.lhs == x(t).diff(t, 2)
    assert sympy.checkodesol(equation, sympy.Eq(x(t), sympy.cos(2 * t)))[0]
    assert not sympy.checkodesol(equation, sympy.Eq(x(t), sympy.cos(3 * t)))[0]


def test_sympy_keeps_every_digit_and_knows_derivatives() -> None:
    terms = Polynomial(2).terms(["x", "x'"])
    values = np.zeros((1, len(terms)))
    values[0, 2] = 1 / 3
    (equation,) = format_equations(["x''"], terms, values, format="sympy")
    t = sympy.Symbol("t")
    slope = sympy.Function("x")(t).diff(t)
    assert equation.rhs.coeff(slope) == sympy.Float(1 / 3)


def test_sympy_with_a_variable_called_t() -> None:
    (equation,) = format_equations(
        ["t'"], Polynomial(1).terms(["t"]), np.array([[0.0, 2.0]]), format="sympy"
    )
    assert equation.free_symbols == {sympy.Symbol("time")}


@pytest.mark.parametrize(
    ("link", "a_half"),
    [("tanh", np.tanh(0.5)), ("exp", np.exp(0.5)), ("sin", np.sin(0.5)),
     ("sigmoid", 1 / (1 + np.exp(-0.5))), ("softplus", np.log1p(np.exp(0.5)))],
)  # fmt: skip
def test_link(link: str, a_half: float) -> None:
    values = coefficients(x={"x": 0.5})
    assert format_equations(TARGETS, TERMS, values, link=link)[0] == f"x' = {link}(0.5000 x)"
    named = type("Link", (), {"name": link})()
    assert format_equations(TARGETS, TERMS, values, link=named)[0] == f"x' = {link}(0.5000 x)"
    latex = format_equations(TARGETS, TERMS, values, link=link, format="latex")[0]
    assert r"\left(0.5000 \, x\right)" in latex
    right = format_equations(TARGETS, TERMS, values, link=link, format="sympy")[0].rhs
    x = sympy.Function("x")(sympy.Symbol("t"))
    np.testing.assert_allclose(float(right.subs(x, 1.0)), a_half, rtol=1e-14)


def test_opaque_terms() -> None:
    terms = (Polynomial(1) * Custom({"hill": lambda x: x})).terms(["x", "y"])
    values = np.array([[1.5, 0.0, -2.0]])
    assert format_equations(["x'"], terms, values) == ["x' = 1.500 hill - 2.000 y hill"]
    (equation,) = format_equations(["x'"], terms, values, format="sympy")
    t = sympy.Symbol("t")
    x, y = sympy.Function("x")(t), sympy.Function("y")(t)
    hill = sympy.Function("hill")(x)
    assert equation.rhs == sympy.Float(1.5) * hill - sympy.Float(2.0) * y * hill


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"coefficients": np.zeros((2, 3))},
            r"coefficients: got shape \(2, 3\); expected \(2, 8\)",
        ),
        ({"intervals": np.zeros((2, 8))}, r"intervals: got shape \(2, 8\); expected \(2, 8, 2\)"),
        ({"format": "html"}, "format: got 'html'; expected one of text, latex, sympy"),
        ({"precision": 0}, "precision: got 0; expected a whole number from 1 to 17"),
        ({"link": "relu"}, "link: got 'relu'; expected None or one of tanh"),
    ],
)
def test_invalid_arguments(changes: dict[str, Any], message: str) -> None:
    values = changes.pop("coefficients", LORENZ)
    with pytest.raises(ValueError, match=message):
        format_equations(TARGETS, TERMS, values, **changes)


def test_half_width_is_the_larger_distance() -> None:
    assert half_width(1.0, (0.5, 1.2)) == 0.5
    assert half_width(1.0, (0.9, 1.5)) == 0.5
    assert half_width(1.0, None) is None
    assert half_width(1.0, (1.0, 1.0)) is None
    assert half_width(1.0, (np.nan, 2.0)) is None


def test_terms_are_written_in_the_order_of_the_library() -> None:
    rows: list[Term] = Polynomial(1).terms(["b", "a"])
    assert (
        format_equations(["b'"], rows, np.ones((1, 3)) * 2)[0] == "b' = 2.000 + 2.000 b + 2.000 a"
    )
