"""StepGrid of a model and their derivatives."""

import numpy as np
import pytest

from smnn.discovery._fit.model import (
    CLASSICAL,
    COOPER_VERNER,
    LINKS,
    OdeModel,
    StepGrid,
    Tableau,
    flow,
    flow_with_derivatives,
)
from smnn.discovery._terms import compile_terms
from smnn.discovery.libraries import Expressions, Polynomial


def model(order: int, link: str | None = None) -> OdeModel:
    states = [v + "'" * r for r in range(order) for v in ("x", "y")]
    library = Polynomial(2) + Expressions(["sin(x)"])
    terms = compile_terms(library.terms([*states, "u"]), [*states, "u"])
    Xi = 0.3 * np.random.default_rng(order).normal(size=(2, len(terms.terms)))
    return OdeModel(terms, Xi, order, LINKS[link] if link else None)


def grid(K: int, n: int, method: Tableau) -> StepGrid:
    rng = np.random.default_rng(7)
    at = (np.arange(n)[:, None] + method.c) / n
    return StepGrid(rng.uniform(0.02, 0.1, K), np.cos(3 * at)[None, ..., None].repeat(K, 0), method)


@pytest.mark.parametrize("link", [None, *LINKS])
@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("method", [CLASSICAL, COOPER_VERNER], ids=["4", "8"])
def test_derivatives_against_differences(method: Tableau, order: int, link: str | None) -> None:
    f, steps = model(order, link), grid(4, 2, method)
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


@pytest.mark.parametrize(("method", "order"), [(CLASSICAL, 4), (COOPER_VERNER, 8)])
def test_order_of_convergence(method: Tableau, order: int) -> None:
    """Duffing equation x'' = -x - x^3, against a much finer grid."""
    terms = compile_terms(
        Polynomial(3, bias=False, interaction=False).terms(["x", "v"]), ["x", "v"]
    )
    Xi = np.zeros((2, len(terms.terms)))
    names = [term.name for term in terms.terms]
    Xi[0, names.index("v")], Xi[1, names.index("x")], Xi[1, names.index("x^3")] = 1, -1, -1

    def end(n: int) -> np.ndarray:
        steps = StepGrid(np.array([2.0]), np.empty((1, n, len(method.b), 0)), method)
        return flow(OdeModel(terms, Xi), np.array([[1.0, 0.3]]), steps)

    counts = (4, 6, 8, 12)
    errors = [np.abs(end(n) - end(200)).max() for n in counts]
    slope = np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert slope == pytest.approx(-order, abs=0.5)


def test_link_derivatives_and_inverses() -> None:
    a = np.linspace(-1.2, 1.2, 9)
    for link in LINKS.values():
        slope = (link.value(a + 1e-6) - link.value(a - 1e-6)) / 2e-6
        np.testing.assert_allclose(link.slope(a), slope, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(link.inverse(link.value(a)), a, rtol=1e-6, atol=1e-9)
