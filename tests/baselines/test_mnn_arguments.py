"""Arguments of the original MNN's solvers: what fits, what does not, and what is said."""

import inspect
import math
from collections.abc import Callable

import pytest
import torch

import smnn
from baselines.mnn_oracle import random_mnn
from baselines.mnn_problems import f64, on, oscillator
from helpers import relative
from smnn.baselines import MNNSolution, mnn_dense, mnn_exact, mnn_sparse


def test_signatures() -> None:
    """One surface for three methods."""
    shared = ["c", "d", "u", "s", "gamma", "alpha", "periodic", "n_steps"]
    extra = {mnn_exact: ["backend"], mnn_dense: [], mnn_sparse: ["max_iter", "tol"]}
    for function, own in extra.items():
        found = inspect.signature(function).parameters
        assert list(found) == [*shared, *own, "check"]
        assert [p.kind is p.KEYWORD_ONLY for p in found.values()].index(True) == 4
        assert (found["gamma"].default, found["alpha"].default) == (0.5, 0.1)
    assert MNNSolution._fields == ("y", "eps", "converged", "iterations", "residual")


@pytest.mark.parametrize("solver", [mnn_exact, mnn_dense])
def test_singular_samples_are_named(solver: Callable[..., MNNSolution]) -> None:
    problem = random_mnn(1, batch=(2, 3), V=1, Q=1, R_init=1, T_init=1)
    c, d, u, s = problem[:4]
    c = c.clone()
    c[1, 2] = 0
    with pytest.raises(smnn.SolveError, match=r"1 of 6 samples have no unique .*: \(1, 2\)\. Lik"):
        solver(c, d, u, s)
    found = solver(c, d, u, s, check=False)
    assert found.converged.tolist() == [[True] * 3, [True, True, False]]
    good = found.converged
    assert relative(found.y[good], solver(*problem[:4]).y[good]) < 1e-9


def test_failed_samples_are_nan() -> None:
    c, d, u, s = random_mnn(1, batch=(2,), per_variable=False)[:4]
    for s[1, 2] in (-1.0, 0.0, math.nan):
        found = mnn_exact(c, d, u, s, check=False)
        assert found.converged.tolist() == [True, False]
        assert found.y[1].isnan().all()
        assert found.eps[1].isnan()
        assert found.y[0].isfinite().all()


def test_too_few_rows_for_the_slack() -> None:
    """Two times of order 1 and one variable: five rows with the slack in two that it could fill."""
    c = torch.tensor([[[[1.0, 2.0]]], [[[3.0, 1.0]]]], dtype=f64)
    d, u, s = c.new_ones(2, 1), c.new_zeros(0, 1, 1), c.new_ones(1)
    with pytest.raises(smnn.SolveError, match="no unique finite solution"):
        mnn_exact(c, d, u, s)


@pytest.mark.parametrize("solver", [mnn_exact, mnn_dense, mnn_sparse])
def test_messages(solver: Callable[..., MNNSolution]) -> None:
    c, d, u, s = random_mnn(1, batch=(2,))[:4]
    with pytest.raises(smnn.ShapeError, match="c: got 1 orders; expected at least 2"):
        solver(c[..., :1], d, u, s)
    with pytest.raises(smnn.ShapeError, match="T: got 1 time; expected at least 2"):
        solver(c[:, :1], d[:, :1], u[:, :1], s[:, :1], n_steps=1)
    with pytest.raises(
        smnn.ShapeError, match=r"periodic: got shape \(2, 2\); expected \(2, 2, 2\)"
    ):
        solver(c, d, u, s, periodic=c.new_zeros(2, 2))
    with pytest.raises(smnn.ShapeError, match=r"periodic: got torch\.float32 on cpu; expected"):
        solver(c, d, u, s, periodic=torch.zeros(2, 2, 2))
    with pytest.raises(smnn.ShapeError, match="periodic: got bool; expected a tensor"):
        solver(c, d, u, s, periodic=True)
    with pytest.raises(smnn.ShapeError, match=r"gamma \* alpha: got shape \(3,\); expected"):
        solver(c, d, u, s, gamma=torch.ones(3))
    with pytest.raises(smnn.ShapeError, match=r"d: got dtype torch\.float32"):
        solver(c, d.float(), u, s)


def test_iterations_must_be_some() -> None:
    with pytest.raises(ValueError, match="max_iter: got 0; expected at least 1"):
        mnn_sparse(*oscillator(5), max_iter=0)


def test_backend_is_chosen_by_name(backend: str, device: str) -> None:
    problem = on(device, random_mnn(1, batch=(2,), periodic=True))
    found = mnn_exact(*problem[:4], **problem.kw(), backend=backend)
    assert relative(found.y, mnn_dense(*problem[:4], **problem.kw()).y) < 1e-9
    with pytest.raises(smnn.BackendError, match="got 'fast'"):
        mnn_exact(*problem[:4], backend="fast")


@pytest.mark.parametrize("solver", [mnn_exact, mnn_dense])
def test_float32_is_solved_in_float64(solver: Callable[..., MNNSolution], device: str) -> None:
    args = [x.float().to(device) for x in oscillator(200)]
    found = solver(*args)
    assert found.y.dtype == found.eps.dtype == torch.float32
    assert relative(found.y, solver(*(x.double() for x in args)).y) < 1e-6


def test_constant_in_time_and_shared_by_the_batch() -> None:
    c, d, u, s = oscillator(30)
    starts = torch.stack([u, 2 * u])
    short = mnn_exact(c[None, :1], d[None, :1], starts, s[None, :1], n_steps=30)
    for k in (0, 1):
        assert relative(short.y[k], mnn_exact(c, d, starts[k], s).y) < 1e-12
