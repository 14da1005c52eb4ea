"""Libraries of functions of Python: their values, derivatives and mistakes."""

from typing import Any

import numpy as np
import pytest
import torch

from discovery.some_libraries import XYZ, points
from smnn.discovery._terms.terms import compile_terms
from smnn.discovery.libraries import Custom, Polynomial
from smnn.equations import ExpressionError


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
