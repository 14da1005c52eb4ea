"""Thousands of random problems with all options of the solver, for every backend.

Hypothesis draws shapes and options; all samples of a shape are solved in one call, and each counts
as one problem. Every problem is compared with exact least squares and classified as regular or
singular, and one further property is checked. `tools/long_run.py` runs the same functions on many
more problems.
"""

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.trust.oracle import WIDE, least_squares, rows
from solver.trust.problems import Shape, draw, random_problems
from solver.trust.properties import FIXED, LIMITS, PROPERTIES, exact_least_squares, wrongly_judged

ON_THE_CPU = ("reference", "torch", "cpu")
on_a_gpu = pytest.param(
    ("gpu",),
    id="gpu",
    marks=[
        pytest.mark.gpu,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    ],
)
EXAMPLES, SAMPLES = 20, 16
FEWEST = 2000
"""Minimum number of problems over all properties."""


@st.composite
def shapes(draw_from: Any, name: str) -> Shape:
    def choose(options: Any) -> Any:
        return draw_from(st.sampled_from(options))

    return draw(choose, SAMPLES, **FIXED.get(name, {}))


@pytest.mark.parametrize("backends", [pytest.param(ON_THE_CPU, id="cpu"), on_a_gpu])
@pytest.mark.parametrize("name", PROPERTIES)
def test_property(name: str, backends: tuple[str, ...]) -> None:
    tried: Counter[str] = Counter()

    @settings(max_examples=EXAMPLES)
    @given(shapes(name))
    def holds(shape: Shape) -> None:
        problems = random_problems(shape)
        for backend in backends:
            assert wrongly_judged(problems, backend) == (0, 0), backend
            assert exact_least_squares(problems, backend).max(initial=0) < 4, backend
            errors = PROPERTIES[name](problems, backend)
            if errors is not None:
                assert errors.max(initial=0) < LIMITS[name], backend
        tried[name] += problems.count

    holds()
    assert tried[name] >= FEWEST / len(PROPERTIES)


def test_oracle_against_rational_arithmetic() -> None:
    """Against rational arithmetic, where nothing is rounded."""
    shape = Shape(
        seed=3, batch=(2,), T=3, V=1, Q=1, R=2, order=None, T_init=1, m_init=2, scheme="central",
        weights="tensor", per_variable=False, constant="", shared="", step=0.01, spread=3.0,
    )  # fmt: skip
    problems = random_problems(shape)
    A, b = rows(*(x.astype(WIDE) for x in problems.full), shape.scheme)
    A, b = A.astype(float), b.astype(float)  # rounded once more: the same numbers for both
    found = least_squares(A.astype(WIDE), b.astype(WIDE)[..., None]).y[..., 0]
    for i in range(2):
        rational = [[Fraction(x) for x in row] for row in A[i].tolist()]
        right = [Fraction(x) for x in b[i].tolist()]
        n = A.shape[2]
        normal = [
            [sum(row[j] * row[k] for row in rational) for k in range(n)]
            + [sum(row[j] * x for row, x in zip(rational, right))]
            for j in range(n)
        ]
        for j in range(n):
            for k in range(n):
                if k != j:
                    factor = normal[k][j] / normal[j][j]
                    normal[k] = [x - factor * y for x, y in zip(normal[k], normal[j])]
        exact = np.array([float(normal[j][n] / normal[j][j]) for j in range(n)])
        np.testing.assert_allclose(found[i], exact, rtol=1e-15)
