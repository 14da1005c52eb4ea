"""Random libraries in three variables, and points at which all functions are defined."""

import numpy as np
from hypothesis import strategies as st

from smnn.discovery.libraries import Expressions, Library, Polynomial, Rational, Trigonometric

XYZ = ["x", "y", "z'"]


def names(library: Library, variables: list[str] = XYZ) -> list[str]:
    return [term.name for term in library.terms(variables)]


def points(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.3, 2.0, (*shape, 3))


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
