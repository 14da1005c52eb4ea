"""Steps of a model and their derivatives."""

import numpy as np
import pytest

from smnn.discovery._flow import LINKS, Model, Steps, flow, flow_with_derivatives
from smnn.discovery._terms import compile_terms
from smnn.discovery.libraries import Expressions, Polynomial


def model(order: int, link: str | None = None) -> Model:
    states = [v + "'" * r for r in range(order) for v in ("x", "y")]
    library = Polynomial(2) + Expressions(["sin(x)"])
    terms = compile_terms(library.terms([*states, "u"]), [*states, "u"])
    Xi = 0.3 * np.random.default_rng(order).normal(size=(2, len(terms.terms)))
    return Model(terms, Xi, order, LINKS[link] if link else None)


def grid(K: int, n: int) -> Steps:
    rng = np.random.default_rng(7)
    at = np.linspace(0, 1, 2 * n + 1)
    return Steps(rng.uniform(0.02, 0.1, K), np.cos(3 * at)[None, :, None].repeat(K, 0))


@pytest.mark.parametrize("link", [None, *LINKS])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_derivatives_are_those_of_the_step(order: int, link: str | None) -> None:
    f, steps = model(order, link), grid(4, 2)
    Z = 0.5 * np.random.default_rng(1).normal(size=(4, 2 * order))
    free = np.random.default_rng(2).random(f.Xi.shape) < 0.4
    end, A, B = flow_with_derivatives(f, Z, steps, free)
    np.testing.assert_allclose(end, flow(f, Z, steps), rtol=1e-14)
    h = 1e-6
    for i in range(2 * order):
        d = np.zeros_like(Z)
        d[:, i] = h
        slope = (flow(f, Z + d, steps) - flow(f, Z - d, steps)) / (2 * h)
        np.testing.assert_allclose(A[:, :, i], slope, atol=1e-8)
    for j, (v, p) in enumerate(zip(*np.nonzero(free))):
        d = np.zeros_like(f.Xi)
        d[v, p] = h
        slope = (
            flow(f._replace(Xi=f.Xi + d), Z, steps) - flow(f._replace(Xi=f.Xi - d), Z, steps)
        ) / (2 * h)
        np.testing.assert_allclose(B[:, :, j], slope, atol=1e-8)


def test_order_of_convergence_is_four() -> None:
    terms = compile_terms(Polynomial(1, bias=False).terms(["x", "v"]), ["x", "v"])
    oscillator = Model(terms, np.array([[0.0, 1.0], [-4.0, 0.0]]))
    Z, errors = np.array([[1.0, 0.0]]), []
    for n in (4, 8, 16, 32):
        end = flow(oscillator, Z, Steps(np.array([1.0]), np.empty((1, 2 * n + 1, 0))))
        errors.append(np.abs(end - [np.cos(2.0), -2 * np.sin(2.0)]).max())
    slopes = np.diff(np.log2(errors))
    np.testing.assert_allclose(slopes, -4.0, atol=0.25)


def test_links_have_their_slopes_and_inverses() -> None:
    a = np.linspace(-1.2, 1.2, 9)
    for link in LINKS.values():
        slope = (link.value(a + 1e-6) - link.value(a - 1e-6)) / 2e-6
        np.testing.assert_allclose(link.slope(a), slope, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(link.inverse(link.value(a)), a, rtol=1e-6, atol=1e-9)
