"""Term selection on problems with known answers."""

import itertools

import numpy as np
import pytest

from smnn.discovery._arrays import triangle_of
from smnn.discovery._fit.selection import TriangularSystem, penalty_for, select


def problem(seed: int, n: int = 400, m: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Correlated columns, five true terms, noise of size one."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, m)) @ (np.eye(m) + 0.4 * rng.normal(size=(m, m)))
    p = np.zeros(m)
    p[rng.permutation(m)[:5]] = rng.choice([-1, 1], 5) * rng.uniform(1.0, 3.0, 5)
    R = triangle_of(np.column_stack([A, A @ p + rng.normal(size=n)]))
    return R[:, :m], R[:, m], p


@pytest.mark.parametrize("seed", range(20))
def test_finds_the_terms(seed: int) -> None:
    R, b, p = problem(seed)
    found = select(R, b, penalty_for(400, 12))
    np.testing.assert_array_equal(found.support, p != 0)
    assert (np.abs(found.p - p)[p != 0] < 5 * found.deviation[p != 0]).all()


@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_exhaustive_search(seed: int) -> None:
    R, b, _ = problem(seed, n=60, m=7)
    penalty = penalty_for(60, 7)
    triangle = TriangularSystem(R, b)

    def price(support: np.ndarray) -> float:
        return triangle.selected(support).cost + penalty * support.sum()

    every = [np.array(x, bool) for x in itertools.product([0, 1], repeat=7)]
    assert price(select(R, b, penalty).support) == pytest.approx(min(map(price, every)))


@pytest.mark.parametrize("seed", range(20))
def test_nearly_dependent_terms(seed: int) -> None:
    """1, T, T^2, T^3 of a decay: any three of them fit, two are enough."""
    rng = np.random.default_rng(seed)
    T = 21 + 10 * np.exp(-0.3 * np.linspace(0, 10, 80))
    A = np.cumsum(np.column_stack([T**0, T, T**2, T**3]), 0)
    R = triangle_of(np.column_stack([A, A @ [6.3, -0.3, 0, 0] + rng.normal(size=80)]))
    R, b, penalty = R[:, :4], R[:, 4], penalty_for(80, 4)
    triangle = TriangularSystem(R, b)

    def price(support: np.ndarray) -> float:
        return triangle.selected(support).cost + penalty * support.sum()

    every = [np.array(x, bool) for x in itertools.product([0, 1], repeat=4)]
    assert price(select(R, b, penalty).support) == pytest.approx(min(map(price, every)))


def test_subset_search_in_every_equation() -> None:
    """Two equations of the same nearly dependent terms, side by side in one triangle."""
    rng = np.random.default_rng(1)
    T = 21 + 10 * np.exp(-0.3 * np.linspace(0, 10, 80))
    A = np.cumsum(np.column_stack([T**0, T, T**2, T**3]), 0)
    both = np.kron(np.eye(2), A)
    truth = np.array([6.3, -0.3, 0, 0, 0, 0.2, -0.01, 0])
    R = triangle_of(np.column_stack([both, both @ truth + 0.1 * rng.normal(size=160)]))
    equation = np.repeat([0, 1], 4)
    found = select(R[:, :8], R[:, 8], 0.01 * penalty_for(160, 8), equation=equation)
    np.testing.assert_array_equal(found.support, truth != 0)


def test_units_do_not_matter() -> None:
    R, b, _ = problem(3)
    units = 10.0 ** np.linspace(-8, 8, R.shape[1])
    plain, scaled = select(R, b, 20.0), select(R * units, b, 20.0)
    np.testing.assert_array_equal(plain.support, scaled.support)
    np.testing.assert_allclose(plain.p, scaled.p * units, rtol=1e-8)


def test_required_and_signs() -> None:
    R, b, p = problem(5)
    absent = int(np.flatnonzero(p == 0)[0])
    required = np.zeros(12, bool)
    required[absent] = True
    assert select(R, b, 20.0, required=required).support[absent]
    positive = p < 0
    found = select(R, b, 20.0, positive=positive)
    assert (found.p[positive] >= 0).all()
    assert (select(R, b, 20.0, negative=p > 0).p[p > 0] <= 0).all()


def test_duplicate_columns() -> None:
    R, b, p = problem(1)
    j = int(np.flatnonzero(p)[0])
    doubled = np.column_stack([R, R[:, j]])
    found = select(doubled, b, penalty_for(400, 13))
    assert found.support[[j, 12]].sum() == 1
    assert found.support.sum() == 5


def test_nothing_to_find() -> None:
    """The penalty grows with the number of candidates: 2 % of the searches find a term in noise."""
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(200):
        A = triangle_of(rng.normal(size=(100, 31)))
        found += int(select(A[:, :30], A[:, 30], penalty_for(100, 30)).support.any())
    assert found <= 10
    assert not select(A[:, :30], np.zeros(31), 1.0).support.any()


def test_one_term_replaces_several_that_span_it() -> None:
    """The truth is d = a + b + c: the three terms fit equally well, but d is shorter."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(300, 4))
    A[:, 3] = A[:, :3].sum(1) + 1e-4 * rng.normal(size=300)
    R = triangle_of(np.column_stack([A, 2.0 * A[:, 3] + 0.1 * rng.normal(size=300)]))
    found = select(
        R[:, :4], R[:, 4], 0.01 * penalty_for(300, 4), start=np.array([1, 1, 1, 0], bool)
    )
    np.testing.assert_array_equal(found.support, [False, False, False, True])
