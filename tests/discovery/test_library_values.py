"""Libraries: values and derivatives of their terms, against SymPy, differences and autograd."""

from typing import Any

import numpy as np
import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from discovery.some_libraries import COMBINED, SIMPLE, XYZ, points
from smnn.discovery._terms import compile_terms
from smnn.discovery.libraries import (
    Custom,
    Expressions,
    Library,
    Polynomial,
    Rational,
    Trigonometric,
)
from smnn.equations import ExpressionError

EVERYTHING = ["sin(x)*y", "cos(2*y)", "tan(x/3)", "exp(-x)", "log(x)", "sqrt(y)", "abs(x - y)",
              "tanh(x)", "sinh(z')", "cosh(x)", "sign(x)*y", "x/(1 + y^2)", "x^2.5", "x^y",
              "1/x", "(x + y)^3", "x^(1/3)", "2^x"]  # fmt: skip


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


def test_values_outside_the_domain() -> None:
    compiled = compile_terms(Expressions(["log(x)", "1/y"]).terms(["x", "y"]), ["x", "y"])
    with np.errstate(all="raise"):
        assert not np.isfinite(compiled.evaluate(np.array([[-1.0, 0.0]]))).any()


# ---------------------------------------------------------------- Python functions


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


def test_difference_step_scales_with_the_variable() -> None:
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
def test_invalid_return_values_of_custom_functions(wrong: Any) -> None:
    compiled = compile_terms(Custom({"odd": wrong}).terms(["x"]), ["x"])
    with pytest.raises(ExpressionError, match=r"the function 'odd' returned .* expected real numb"):
        compiled.evaluate(np.ones((4, 1)))
