"""StepGrid of a model and their derivatives."""

import numpy as np
import pytest

from smnn.discovery._fit.model import (
    LINKS,
    OdeModel,
    StepGrid,
    Tableau,
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
def test_link_derivatives_and_inverses() -> None:
    a = np.linspace(-1.2, 1.2, 9)
    for link in LINKS.values():
        slope = (link.value(a + 1e-6) - link.value(a - 1e-6)) / 2e-6
        np.testing.assert_allclose(link.slope(a), slope, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(link.inverse(link.value(a)), a, rtol=1e-6, atol=1e-9)
