"""Solvers of the original MNN, values and derivatives: against loops in NumPy and each other."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from baselines.mnn_oracle import random_mnn
from baselines.mnn_problems import SOLVERS, f64, on
from helpers import relative
from smnn.baselines import MNNSolution, mnn_dense, mnn_exact

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "order 1": {"R": 1},
    "order 3": {"R": 3, "T": 6},
    "order 4": {"R": 4, "V": 1, "Q": 1, "R_init": 1},
    "two times": {"T": 2, "R": 1},
    "two times, order 3": {"T": 2, "R": 3, "V": 1, "Q": 2, "R_init": 2},
    "three times": {"T": 3},
    "batch": {"batch": (3,)},
    "two batch axes": {"batch": (2, 2), "T": 5},
    "no initial value": {"T_init": 0},
    "more equations": {"Q": 3},
    "one step for all variables": {"per_variable": False},
    "uneven weights": {"gamma": 0.3, "alpha": 2.0},
    "no pull": {"alpha": 0.0},
    "periodic": {"periodic": True},
    "periodic, order 1": {"periodic": True, "R": 1},
    "periodic, order 3": {"periodic": True, "R": 3, "V": 1, "Q": 1},
    "periodic, no initial value": {"periodic": True, "T_init": 0, "batch": (2,)},
    "periodic, all initial values": {"periodic": True, "R_init": 2},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_against_the_rows_written_out(solver: str, name: str, device: str) -> None:
    problem = random_mnn(1, **OPTIONS[name])
    c, d, u, s = on(device, problem)[:4]
    found = SOLVERS[solver](c, d, u, s, **on(device, problem).kw())
    batch = problem.c.shape[:-4]
    assert found.eps.shape == found.converged.shape == found.residual.shape == batch
    for i in np.ndindex(*batch):
        expected = problem.oracle(*i)
        assert relative(found.y[i], expected.y) < 1e-10
        assert abs(found.eps[i].item() - expected.eps) < 1e-10 * np.abs(expected.y).max()


@pytest.mark.parametrize("R", [2, 3, 4])
@pytest.mark.parametrize("periodic", [False, True])
def test_exact_is_dense_with_its_gradients(R: int, periodic: bool, device: str) -> None:
    """Values, slack and gradients by every input, to 1e-10 of the largest entry."""
    problem = on(device, random_mnn(R, R=R, T=12, batch=(3,), periodic=periodic, limit=1e4))

    def run(solver: Callable[..., MNNSolution]) -> list[Tensor]:
        inputs = [x.clone().requires_grad_() for x in problem[:5] if x is not None]
        p = inputs[4] if periodic else None
        y, eps, *_ = solver(*inputs[:4], periodic=p)
        loss = y.square().sum() + (eps * eps.new_tensor([1.0, -2.0, 3.0])).sum()
        return [y, eps, *torch.autograd.grad(loss, inputs)]

    for got, expected in zip(run(mnn_exact), run(mnn_dense)):
        assert relative(got, expected) < 1e-10


@given(
    seed=st.integers(0, 10**6), T=st.integers(2, 9), V=st.integers(1, 3), R=st.integers(1, 4),
    T_init=st.integers(1, 2), R_init=st.integers(0, 1), periodic=st.booleans(),
)  # fmt: skip
def test_exact_is_optimal(
    seed: int, T: int, V: int, R: int, T_init: int, R_init: int, periodic: bool
) -> None:
    """At the solution the gradient of what is minimised is zero, whatever the problem."""
    problem = random_mnn(
        seed, T=T, V=V, Q=V + 1, R=R, T_init=T_init, R_init=R_init, periodic=periodic
    )
    y, eps, converged, *_ = mnn_exact(*problem[:4], **problem.kw())
    expected = problem.oracle()
    x = np.concatenate([[eps.item()], y.numpy().ravel()])
    left = expected.A.T @ (expected.b - expected.A @ x)
    left[0] += problem.gamma * problem.alpha
    assert bool(converged)
    assert np.abs(left).max() < 1e-12 * (1 + np.abs(expected.A).max() ** 2 * np.abs(x).max())


def test_exact_is_more_accurate_than_dense() -> None:
    """Small steps at order 4: the normal equations lose what the band keeps."""
    problem = random_mnn(3, R=4, V=1, Q=1, T=14, T_init=1, R_init=1, step=0.05, limit=1e9)
    expected = problem.oracle()
    errors = [
        relative(solver(*problem[:4], check=False).y, expected.y)
        for solver in (mnn_exact, mnn_dense)
    ]
    assert errors[0] < 1e-9
    assert errors[0] < 0.01 * errors[1]


# ---------------------------------------------------------------- derivatives


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize(
    ("solver", "R"), [("exact", 1), ("exact", 2), ("exact", 3), ("dense", 2), ("sparse", 2)]
)
def test_gradients(solver: str, R: int, periodic: bool, device: str) -> None:
    problem = on(device, random_mnn(R, T=4, R=R, V=1 + (R < 3), Q=2, periodic=periodic, limit=1e3))
    gamma, alpha = (torch.tensor(x, dtype=f64, device=device) for x in (0.5, 0.3))
    inputs = [x.requires_grad_() for x in (*problem[:4], gamma, alpha)]
    if periodic:
        inputs.append(problem.periodic.requires_grad_())

    def solve(*x: Tensor) -> tuple[Tensor, Tensor]:
        p = x[6] if periodic else None
        return SOLVERS[solver](*x[:4], gamma=x[4], alpha=x[5], periodic=p)[:2]

    assert torch.autograd.gradcheck(solve, inputs, atol=1e-6, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:mnn_sparse")
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("solver", SOLVERS)
def test_second_derivatives(solver: str, periodic: bool) -> None:
    problem = random_mnn(2, T=3, V=1, Q=1, R_init=1, periodic=periodic, limit=1e3)
    inputs = [x.requires_grad_() for x in problem[:5] if x is not None]

    def solve(*x: Tensor) -> tuple[Tensor, Tensor]:
        return SOLVERS[solver](*x[:4], periodic=x[4] if periodic else None)[:2]

    assert torch.autograd.gradgradcheck(solve, inputs, atol=1e-5, rtol=1e-3)


def test_torch_func_grad() -> None:
    problem = random_mnn(2, T=5)
    c, d, u, s = problem[:4]

    def loss(c: Tensor) -> Tensor:
        return mnn_exact(c, d, u, s).y.square().sum()

    (expected,) = torch.autograd.grad(loss(x := c.clone().requires_grad_()), x)
    assert relative(torch.func.grad(loss)(c), expected) < 1e-12


def test_two_forwards_before_a_backward() -> None:
    """State belongs to the call."""
    first, second = (random_mnn(k, batch=(2,)) for k in (1, 2))

    def gradient(y: Tensor, x: Tensor) -> Tensor:
        return torch.autograd.grad(y.square().sum(), x, retain_graph=True)[0]

    a, b = (problem.c.clone().requires_grad_() for problem in (first, second))
    alone = gradient(mnn_exact(a, *first[1:4]).y, a)
    y = mnn_exact(a, *first[1:4]).y
    mnn_exact(b, *second[1:4]).y.sum().backward()
    assert relative(gradient(y, a), alone) == 0
    assert relative(gradient(y, a), alone) == 0
