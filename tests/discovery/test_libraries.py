"""Libraries: which terms they make, how they combine, what their values and derivatives are."""

import inspect
import json
import math
from typing import Any

import numpy as np
import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from smnn.discovery import _tape
from smnn.discovery._expressions import ExpressionError
from smnn.discovery._library import MAX_TERMS, Library, LibraryError
from smnn.discovery._terms import compile_terms, find_term
from smnn.discovery.libraries import (
    Custom,
    Expressions,
    Polynomial,
    Rational,
    Trigonometric,
    parse_library,
)

XYZ = ["x", "y", "z'"]
EVERYTHING = ["sin(x)*y", "cos(2*y)", "tan(x/3)", "exp(-x)", "log(x)", "sqrt(y)", "abs(x - y)",
              "tanh(x)", "sinh(z')", "cosh(x)", "sign(x)*y", "x/(1 + y^2)", "x^2.5", "x^y",
              "1/x", "(x + y)^3", "x^(1/3)", "2^x"]  # fmt: skip


def names(library: Library, variables: list[str] = XYZ) -> list[str]:
    return [term.name for term in library.terms(variables)]


def points(seed: int, *shape: int) -> np.ndarray:
    """Positive, so that every function is defined."""
    return np.random.default_rng(seed).uniform(0.3, 2.0, (*shape, 3))


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


def test_expressions_lose_the_factor_in_front() -> None:
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
    assert product.latex == r"\alpha \, \mathrm{rate\ (1/h)}"
    assert square.latex == r"\mathrm{rate\ (1/h)}^{2}"
    assert "<msup>" in square.mathml


def test_terms_are_found_by_name_and_by_meaning() -> None:
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
        (lambda: Custom({"f": np.sin}), "the parameters of 'f' have no names of variables"),
        (lambda: Custom({"f": lambda *x: 1}), "the parameters of 'f' have no names"),
        (lambda: Custom({"f": (np.sin, "x")}), "'f': got the names 'x'; expected a list"),
        (lambda: Custom({"f": lambda q: q}).terms(XYZ), "the function 'f' takes 'q'; expected a"),
        (lambda: Polynomial(20).terms([f"x{i}" for i in range(20)]), "has 137,846,528,820 terms"),
        (lambda: Library.from_json({"kind": "other"}), "expected what to_json returned"),
        (lambda: Library.from_json("not json"), "expected what to_json returned"),
        (lambda: Library.from_json({"kind": "polynomial", "size": 3}), "got .*size"),
        (lambda: Library.from_json({"kind": "polynomial", "degree": 99}), "degree: got 99"),
    ],
)
def test_libraries_that_are_refused(make: Any, message: str) -> None:
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
def test_variables_that_are_refused(variables: list[Any], message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        Polynomial(1).terms(variables)


def test_an_unreadable_expression_names_the_term() -> None:
    with pytest.raises(ExpressionError, match=r"cannot read the term 'x\*sn\(y\)': unknown func"):
        Expressions(["x", "x*sn(y)"]).terms(XYZ)


def test_a_term_for_other_variables() -> None:
    with pytest.raises(ExpressionError, match="the term 'y' needs 'y'; expected only x"):
        compile_terms(Polynomial(1).terms(["x", "y"]), ["x"])


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
        ("", "with an empty piece"),
        ("poly:2,,trig", "with an empty piece"),
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
def test_texts_that_are_no_library(text: str, message: str) -> None:
    with pytest.raises(LibraryError) as error:
        parse_library(text)
    assert message in str(error.value)


SIMPLE = st.sampled_from([
    Polynomial(1), Polynomial(2, bias=False), Polynomial(3, interaction=False), Trigonometric(),
    Trigonometric((0.5, 2), sin=False), Rational((2,), (1, 3)), Expressions(["exp(-x)", "x*y"]),
])  # fmt: skip
COMBINED = st.recursive(
    SIMPLE,
    lambda inner: (
        st.tuples(inner, inner).map(lambda p: p[0] + p[1])
        | st.tuples(SIMPLE, SIMPLE).map(lambda p: p[0] * p[1])
    ),
    max_leaves=3,
)


@settings(max_examples=12, deadline=None)
@given(COMBINED)
def test_json_keeps_a_library(library: Library) -> None:
    text = json.dumps(library.to_json())
    assert Library.from_json(json.loads(text)) == library
    assert names(Library.from_json(text)) == names(library)


def test_functions_cannot_be_written() -> None:
    library = Polynomial(1) + Custom({"hill": lambda x: x})
    with pytest.raises(
        LibraryError, match=r"functions of Python \(hill\) cannot be written .*Expr"
    ):
        library.to_json()


# ---------------------------------------------------------------- values


@settings(max_examples=25, deadline=None)
@given(SIMPLE, SIMPLE, st.integers(0, 9))
def test_algebra(a: Library, b: Library, seed: int) -> None:
    """Values of a sum are those of its parts, of a product all products, without duplicates."""
    X = points(seed, 7)

    def values(library: Library) -> dict[str, np.ndarray]:
        terms = library.terms(XYZ)
        return dict(zip([t.name for t in terms], compile_terms(terms, XYZ).evaluate(X).T))

    left, right, both = values(a), values(b), values(a + b)
    assert list(both) == list(dict.fromkeys([*left, *right]))
    for name, column in both.items():
        np.testing.assert_allclose(column, left.get(name, right.get(name)), rtol=1e-13)
    products = np.array([p * q for p in left.values() for q in right.values()])
    found = np.array(list(values(a * b).values()))
    assert len(found) <= len(products)
    for row in products:
        assert np.isclose(found, row, rtol=1e-12).all(1).any()
    for row in found:
        assert np.isclose(products, row, rtol=1e-12).all(1).any()


@pytest.mark.parametrize("shape", [(), (5,), (2, 4), (0,)])
def test_shapes(shape: tuple[int, ...]) -> None:
    compiled = compile_terms(Polynomial(2).terms(XYZ), XYZ)
    X = points(0, *shape)
    assert compiled.evaluate(X).shape == (*shape, 10)
    assert compiled.jacobian(X).shape == (*shape, 10, 3)
    assert compiled.evaluate_torch(torch.from_numpy(X)).shape == (*shape, 10)
    x, y, z = np.moveaxis(X, -1, 0)
    expected = [x**0, x, y, z, x * x, x * y, x * z, y * y, y * z, z * z]
    np.testing.assert_allclose(compiled.evaluate(X), np.stack(expected, -1), rtol=1e-15)


def test_no_terms() -> None:
    compiled = compile_terms([], ["x"])
    assert compiled.evaluate(np.ones((4, 1))).shape == (4, 0)
    assert compiled.jacobian(np.ones((4, 1))).shape == (4, 0, 1)
    assert compiled.evaluate_torch(torch.ones(4, 1)).shape == (4, 0)


@pytest.mark.parametrize("X", [np.ones((4, 2)), np.ones(()), torch.ones(4, 2)])
def test_wrong_width(X: Any) -> None:
    compiled = compile_terms(Polynomial(1).terms(XYZ), XYZ)
    evaluate = compiled.evaluate_torch if isinstance(X, torch.Tensor) else compiled.evaluate
    with pytest.raises(
        ValueError, match=r"X: got shape .* expected \(\.\.\., 3\), a column for each"
    ):
        evaluate(X)


@pytest.mark.parametrize("text", EVERYTHING)
def test_every_function_against_sympy(text: str) -> None:
    """Values and derivatives of the tape against sympy's own arithmetic with 30 digits."""
    terms = Expressions([text]).terms(XYZ)
    compiled = compile_terms(terms, XYZ)
    X = points(3, 4)
    value, slope = compiled.evaluate(X), compiled.jacobian(X)
    symbols = [sympy.Symbol(v) for v in XYZ]
    real = [sympy.Symbol(v, positive=True) for v in XYZ]
    expr = terms[0].expr.xreplace(dict(zip(symbols, real)))
    for i, row in enumerate(X):
        at = dict(zip(real, map(sympy.Float, row)))
        np.testing.assert_allclose(value[i, 0], float(expr.subs(at).evalf(30)), rtol=1e-12)
        for v in range(3):
            expected = float(expr.diff(real[v]).doit().subs(at).evalf(30))
            np.testing.assert_allclose(slope[i, 0, v], expected, rtol=1e-11, atol=1e-13)


@settings(max_examples=10, deadline=None)
@given(COMBINED, st.integers(0, 99))
def test_jacobian_against_differences_and_autograd(library: Library, seed: int) -> None:
    compiled = compile_terms(library.terms(XYZ), XYZ)
    X = points(seed, 5)
    slope = compiled.jacobian(X)
    h = 1e-5
    for v in range(3):
        step = h * np.eye(3)[v]
        difference = (compiled.evaluate(X + step) - compiled.evaluate(X - step)) / (2 * h)
        np.testing.assert_allclose(slope[..., v], difference, rtol=1e-6, atol=1e-6)
    tensor = torch.from_numpy(X)
    total = torch.autograd.functional.jacobian(lambda q: compiled.evaluate_torch(q).sum(0), tensor)
    np.testing.assert_allclose(slope, total.permute(1, 0, 2).numpy(), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(compiled.evaluate(X), compiled.evaluate_torch(tensor), rtol=1e-13)


def test_torch_derivatives_of_second_order_and_other_types() -> None:
    compiled = compile_terms((Polynomial(3) + Trigonometric() + Rational()).terms(XYZ), XYZ)
    X = torch.from_numpy(points(1, 3)).requires_grad_()
    assert torch.autograd.gradcheck(compiled.evaluate_torch, X)
    assert torch.autograd.gradgradcheck(compiled.evaluate_torch, X)
    single = compiled.evaluate_torch(X.detach().float())
    assert single.dtype == torch.float32
    np.testing.assert_allclose(single, compiled.evaluate(X.detach().numpy()), rtol=1e-5)


def test_powers_are_shared() -> None:
    """A monomial costs one multiplication more than the one below it."""
    compiled = compile_terms(Polynomial(5, interaction=False).terms(["x"]), ["x"])
    products = [s for s in compiled._tape.steps if isinstance(s, _tape.Instruction)]
    assert len(products) == 4
    assert {step.name for step in products} == {"mul"}


def test_nothing_is_executed_as_source() -> None:
    assert all(word not in inspect.getsource(_tape) for word in ("lambdify", "eval(", "exec("))


def test_degrees() -> None:
    compiled = compile_terms((Polynomial(2) + Expressions(["x/y", "sqrt(x)*y"])).terms(XYZ), XYZ)
    assert compiled.degrees is not None
    assert compiled.degrees.tolist()[:5] == [[0] * 3, [1, 0, 0], [0, 1, 0], [0, 0, 1], [2, 0, 0]]
    assert compiled.degrees.tolist()[-2:] == [[1, -1, 0], [0.5, 1, 0]]
    factors = np.array([2.0, 3.0, 5.0])
    X = points(2, 6)
    scaled = compiled.evaluate(X) * np.prod(factors**compiled.degrees, axis=1)
    np.testing.assert_allclose(compiled.evaluate(X * factors), scaled, rtol=1e-13)
    for other in (Trigonometric(), Rational(), Expressions(["x + 1"]), Expressions(["2^x"]),
                  Custom({"f": lambda x: x})):  # fmt: skip
        assert compile_terms((Polynomial(1) + other).terms(XYZ), XYZ).degrees is None


def test_bad_terms() -> None:
    library = Polynomial(1) + Expressions(["log(x)", "1/y", "sqrt(x)", "exp(1000*y)"])
    compiled = compile_terms(library.terms(["x", "y"]), ["x", "y"])
    assert compiled.bad_terms(np.array([[1.0, 0.5]])) == []
    assert compiled.bad_terms(np.array([[-1.0, 0.5], [1.0, 0.5]])) == ["log(x)", "sqrt(x)"]
    assert compiled.bad_terms(np.array([[1.0, 0.0]])) == ["1/y"]
    assert compiled.bad_terms(np.array([[1.0, 1.0]])) == ["exp(1000 y)"]
    assert compiled.bad_terms(np.array([[np.nan, 0.0]])) == []  # a missing value is nobody's fault
    with np.errstate(all="raise"):
        compiled.evaluate(np.array([[-1.0, 0.0]]))


# ---------------------------------------------------------------- functions of Python


def hill(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.exp(-x) * y**2


CUSTOM = Custom({"hill": hill, "velocity": (np.tanh, ["z'"]), "one": lambda x: 1.0})


def test_custom_functions() -> None:
    compiled = compile_terms((CUSTOM + Polynomial(1) * CUSTOM).terms(XYZ), XYZ)
    assert [t.name for t in compiled.terms][:5] == [
        "hill",
        "velocity",
        "one",
        "x hill",
        "x velocity",
    ]
    assert compiled.terms[0].expr is None
    X = points(4, 6)
    x, y, z = X.T
    expected = {
        "hill": hill(x, y), "velocity": np.tanh(z), "one": 1 + 0 * x, "x hill": x * hill(x, y)
    }  # fmt: skip
    found = dict(zip([t.name for t in compiled.terms], compiled.evaluate(X).T))
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-14)
    slope = compiled.jacobian(X)
    np.testing.assert_allclose(slope[:, 0, 0], -hill(x, y), rtol=1e-9)
    np.testing.assert_allclose(slope[:, 0, 1], 2 * hill(x, y) / y, rtol=1e-9)
    np.testing.assert_allclose(slope[:, 1, 2], 1 - np.tanh(z) ** 2, rtol=1e-9)
    np.testing.assert_allclose(slope[:, 3, 0], (1 - x) * hill(x, y), rtol=1e-8)
    np.testing.assert_allclose(slope[:, 2], 0.0, atol=1e-12)


def test_products_of_custom_functions() -> None:
    compiled = compile_terms((CUSTOM * CUSTOM).terms(XYZ), XYZ)
    place = [t.name for t in compiled.terms].index("hill velocity")
    X = points(5, 3)
    x, y, z = X.T
    np.testing.assert_allclose(compiled.evaluate(X)[:, place], hill(x, y) * np.tanh(z), rtol=1e-14)
    slope = compiled.jacobian(X)[:, place, 2]
    np.testing.assert_allclose(slope, hill(x, y) * (1 - np.tanh(z) ** 2), rtol=1e-8)


def test_derivatives_of_custom_functions_fit_the_size_of_the_variable() -> None:
    compiled = compile_terms(Custom({"f": lambda x: np.sin(1e9 * x)}).terms(["x"]), ["x"])
    X = np.array([[2e-10], [5e-10]])
    expected = 1e9 * np.cos(1e9 * X)
    np.testing.assert_allclose(compiled.jacobian(X)[:, 0], expected, rtol=1e-8)


def test_custom_functions_in_autograd() -> None:
    compiled = compile_terms((CUSTOM + Polynomial(1) * CUSTOM).terms(XYZ), XYZ)
    X = torch.from_numpy(points(6, 4)).requires_grad_()
    assert torch.autograd.gradcheck(compiled.evaluate_torch, X, atol=1e-5)
    np.testing.assert_allclose(
        compiled.evaluate_torch(X).detach(), compiled.evaluate(X.detach().numpy()), rtol=1e-14
    )


@pytest.mark.parametrize("wrong", [lambda x: x[:1], lambda x: x * 1j, lambda x: "no"])
def test_custom_functions_that_return_something_else(wrong: Any) -> None:
    compiled = compile_terms(Custom({"odd": wrong}).terms(["x"]), ["x"])
    with pytest.raises(ExpressionError, match=r"the function 'odd' returned .* expected real numb"):
        compiled.evaluate(np.ones((4, 1)))


def test_the_largest_library_is_made() -> None:
    assert Polynomial(2).count(98) <= MAX_TERMS < Polynomial(2).count(99)
