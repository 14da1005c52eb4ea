"""The six problems: closed forms, first-order systems and explicit forms agree."""

import numpy as np
import pytest

from smnn.datasets import STANDALONE, LinearOde

T = np.arange(1000) * np.longdouble(0.01)
problems = pytest.mark.parametrize("problem", STANDALONE, ids=lambda p: p.name)


@problems
def test_closed_form_satisfies_the_equation(problem: LinearOde) -> None:
    y = problem.exact(T, order=problem.order)
    size = np.abs(y * np.array(problem.c)).sum(-1).max()
    assert np.abs(y @ np.array(problem.c) - problem.d).max() < 1e-15 * size


@problems
def test_closed_form_starts_at_the_initial_values(problem: LinearOde) -> None:
    start = problem.exact(T[:1], order=problem.order)[0, : problem.order]
    np.testing.assert_allclose(start.astype(float), problem.u, rtol=1e-15, atol=1e-16)


@problems
def test_derivatives_are_derivatives(problem: LinearOde) -> None:
    h = np.longdouble(1e-4)
    y = problem.exact(T, order=3)
    slope = (problem.exact(T + h, order=2) - problem.exact(T - h, order=2)) / (2 * h)
    np.testing.assert_allclose(slope.astype(float), y[:, 1:].astype(float), atol=1e-6)


@problems
def test_system_is_solved_by_the_states(problem: LinearOde) -> None:
    y = problem.exact(T, order=problem.order)
    x, dx = y[:, :-1], y[:, 1:]
    c, d = problem.as_system()
    rows = x @ c[:, :, 0].T + dx @ c[:, :, 1].T
    np.testing.assert_allclose(rows.astype(float), np.broadcast_to(d, rows.shape), atol=1e-14)
    A, b = problem.as_explicit()
    np.testing.assert_allclose((x @ A.T + b).astype(float), dx.astype(float), atol=1e-14)


def test_closed_forms_are_those_of_the_paper() -> None:
    """Comparison with the formulas and constants of the paper."""
    t = T.astype(float)
    rc, _, _, _, damped, third = (p.exact(T)[:, 0].astype(float) for p in STANDALONE)
    c0, c1, c2, u0 = 0.7, 1.2, 2.31, 10.0
    np.testing.assert_allclose(rc, c0 * c1 + (u0 - c0 * c1) * np.exp(-t / (c1 * c2)), rtol=1e-14)
    c0, c1, u0, u1 = 4.5, 0.43, 0.12, 0.043
    root = np.sqrt(4 * c0 - c1**2)
    wave = u0 * np.cos(t / 2 * root) + (c1 * u0 + 2 * u1) / root * np.sin(t / 2 * root)
    np.testing.assert_allclose(damped, np.exp(-c1 / 2 * t) * wave, atol=1e-15)
    u0, u1, u2 = 0.0, -1.0, 1.0
    angle = np.sqrt(3) / 2 * t
    wave = -(u1 + u2) * np.cos(angle) + np.sqrt(3) / 3 * (u1 - u2) * np.sin(angle)
    np.testing.assert_allclose(third, u0 + u1 + u2 + np.exp(-t / 2) * wave, atol=1e-15)


def test_keys_are_those_of_the_table() -> None:
    assert [p.key for p in STANDALONE] == list("RPLHDT")
    assert [p.order for p in STANDALONE] == [1, 1, 1, 2, 2, 3]
