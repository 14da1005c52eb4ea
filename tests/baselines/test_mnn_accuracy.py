"""What is known of the original MNN: closed forms, and conjugate gradients that stop too soon."""

import math

import pytest
import torch
from torch import Tensor

import smnn
from baselines.mnn_oracle import random_mnn
from baselines.mnn_problems import f64, oscillator, relative_mse
from helpers import relative
from smnn.baselines import mnn_exact, mnn_sparse

# ---------------------------------------------------------------- what is known of the method


def test_only_the_product_of_gamma_and_alpha_matters() -> None:
    args = random_mnn(1)[:4]
    a, b = (mnn_exact(*args, gamma=g, alpha=x) for g, x in ((0.5, 0.1), (0.1, 0.5)))
    assert relative(a.y, b.y) < 1e-13
    assert relative(a.eps, b.eps) < 1e-13
    a, b = (mnn_exact(*args, gamma=g, alpha=0.0) for g in (0.05, 5.0))
    assert relative(a.y, b.y) == 0


def test_known_accuracy() -> None:
    """The figures of the study: 3.8e-5 with the default pull, 3.5e-5 without; S-MNN 1.5e-2."""
    args = oscillator()
    assert relative_mse(mnn_exact(*args).y) == pytest.approx(3.8e-5, rel=0.02)
    assert relative_mse(mnn_exact(*args, alpha=0.0).y) == pytest.approx(3.5e-5, rel=0.02)
    assert relative_mse(smnn.solve(*args)) == pytest.approx(1.5e-2, rel=0.04)
    y, eps, *_ = mnn_exact(*oscillator(20))
    assert eps.item() == pytest.approx(6.4e-4, rel=0.02)
    shift = (y - mnn_exact(*oscillator(20), alpha=0.0).y)[..., 0].abs().max().item()
    assert shift == pytest.approx(2.1e-3, rel=0.03)


def test_without_slack_it_is_the_central_scheme() -> None:
    """A pull that makes the slack vanish leaves the rows of `scheme="central"`."""
    c, d, u, s = random_mnn(4)[:4]
    load = torch.zeros((), dtype=f64, requires_grad=True)
    at_zero = mnn_exact(c, d, u, s, gamma=load, alpha=1.0)
    (slope,) = torch.autograd.grad(at_zero.eps, load)
    found = mnn_exact(c, d, u, s, gamma=(-at_zero.eps / slope).item(), alpha=1.0)
    assert abs(found.eps.item()) < 1e-14
    assert relative(found.y, smnn.solve(c, d, u, s, scheme="central")) < 1e-11


def test_periodic_solution() -> None:
    """`y'' + 3 y = cos t` over one period and no initial value: `y = cos(t) / 2`."""
    T = 401
    t = torch.linspace(0, 2 * math.pi, T, dtype=f64)
    c = torch.tensor([3.0, 0.0, 1.0, 0.0, 0.0], dtype=f64).expand(T, 1, 1, 5)
    u, s = c.new_zeros(0, 1, 1), t.diff()
    y = mnn_exact(c, t.cos().unsqueeze(1), u, s, periodic=c.new_zeros(1, 4), alpha=0.0).y
    assert (y[:, 0, 0] - t.cos() / 2).abs().max() < 1e-8
    assert (y[0, :, :2] - y[-1, :, :2]).abs().max() < 1e-8


def test_long_series() -> None:
    """Linear memory: the dense matrix of this one would take 1.8 terabytes."""
    T = 100_000
    c = torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0], dtype=f64).expand(T, 1, 1, 5)
    d, u = c.new_zeros(T, 1), c.new_tensor([[[0.0, 1.0]]])
    s = c.new_full((T - 1,), 0.01).requires_grad_()
    found = mnn_exact(c, d, u, s, alpha=0.0)
    assert relative_mse(found.y, 0.01) < 1e-8
    assert found.residual < 1e-10
    found.y[-1, 0, 0].backward()
    # y(t) = sin t: the end of the series moves with every step by cos of the whole time.
    assert s.grad.mean().item() == pytest.approx(math.cos(0.01 * (T - 1)), abs=1e-3)


# ---------------------------------------------------------------- conjugate gradients


def kdv_like(T: int = 10) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Order 4, ten times, four initial values, steps of 0.05: the shape of the PDE experiment."""
    draw = torch.Generator().manual_seed(0)
    c = torch.randn(T, 1, 1, 5, generator=draw, dtype=f64)
    d = torch.randn(T, 1, generator=draw, dtype=f64)
    u = torch.randn(1, 1, 4, generator=draw, dtype=f64)
    return c, d, u, c.new_full((T - 1,), 0.05)


def test_200_iterations_are_not_enough_for_the_notebook() -> None:
    """The study: relative MSE 0.82 after 200 iterations, 3.5e-5 after 2000 (without a pull)."""
    args = oscillator()
    short = mnn_sparse(*args, alpha=0.0, check=False)
    assert not bool(short.converged)
    assert int(short.iterations) == 200
    assert relative_mse(short.y) == pytest.approx(0.82, abs=0.01)
    long = mnn_sparse(*args, alpha=0.0, max_iter=2500)
    assert bool(long.converged)
    assert 500 < int(long.iterations) < 2500
    assert long.residual <= 1e-12
    assert relative_mse(long.y) == pytest.approx(3.5e-5, rel=0.02)


def test_200_iterations_are_not_enough_at_order_4() -> None:
    """A residual of 7e-6 of its start, and a solution that is wrong by 10."""
    args = kdv_like()
    exact = mnn_exact(*args)
    short = mnn_sparse(*args, check=False)
    assert not bool(short.converged)
    assert short.residual < 1e-4
    assert (short.y - exact.y).abs().max() > 1
    with pytest.raises(smnn.SolveError, match="1 of 1 samples did not converge within 200 iter"):
        mnn_sparse(*args)
    long = mnn_sparse(*args, max_iter=2000)
    assert 200 < int(long.iterations) < 2000
    assert relative(long.y, exact.y) < 1e-6


def test_each_sample_converges_on_its_own() -> None:
    hard = oscillator(50)
    easy = hard[0] + 1, *oscillator(50, h=1.0)[1:]
    args = [torch.stack(pair) for pair in zip(easy, hard)]
    found = mnn_sparse(*args, max_iter=150, check=False)
    assert found.converged.tolist() == [True, False]
    assert found.iterations[0] < found.iterations[1] == 150
    assert found.residual[0] <= 1e-12 < found.residual[1]
    assert relative(found.y[0], mnn_exact(*easy).y) < 1e-9
    with pytest.raises(smnn.SolveError, match=r"1 of 2 samples .*: \(1,\)\. Use mnn_exact"):
        mnn_sparse(*args, max_iter=150)


def test_a_gradient_that_is_not_exact_is_a_warning() -> None:
    c, d, u, s = oscillator(50)
    d = d.clone().requires_grad_()
    y = mnn_sparse(c, d, u, s, max_iter=20, check=False).y
    with pytest.warns(RuntimeWarning, match="backward pass, conjugate gradients did not converge"):
        y.sum().backward()


def test_nothing_to_solve_takes_no_iteration() -> None:
    c, d, u, s = oscillator(10)
    found = mnn_sparse(c, d, 0 * u, s, alpha=0.0)
    assert int(found.iterations) == 0
    assert bool(found.converged)
    assert not found.y.any()
    assert mnn_exact(c, d, 0 * u, s, alpha=0.0).residual == 0
