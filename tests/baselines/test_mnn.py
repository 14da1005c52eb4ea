"""Three solvers of the original MNN against loops in NumPy, closed forms and each other."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import smnn
from baselines.mnn_oracle import Problem, random_mnn
from helpers import relative
from smnn.baselines import MNNSolution, mnn_dense, mnn_exact, mnn_sparse

f64 = torch.float64


def converging(*args: Any, **kw: Any) -> MNNSolution:
    """Conjugate gradients with all the iterations they need."""
    return mnn_sparse(*args, **kw, max_iter=20_000, tol=1e-13, check=False)


SOLVERS: dict[str, Callable[..., MNNSolution]] = {
    "exact": mnn_exact,
    "dense": mnn_dense,
    "sparse": converging,
}
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


def on(device: str, problem: Problem) -> Problem:
    moved = [x.to(device) for x in problem[:4]]
    p = None if problem.periodic is None else problem.periodic.to(device)
    return problem._replace(**dict(zip("cdus", moved)), periodic=p)


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


# ---------------------------------------------------------------- what is known of the method


def test_only_the_product_of_gamma_and_alpha_matters() -> None:
    args = random_mnn(1)[:4]
    a, b = (mnn_exact(*args, gamma=g, alpha=x) for g, x in ((0.5, 0.1), (0.1, 0.5)))
    assert relative(a.y, b.y) < 1e-13
    assert relative(a.eps, b.eps) < 1e-13
    a, b = (mnn_exact(*args, gamma=g, alpha=0.0) for g in (0.05, 5.0))
    assert relative(a.y, b.y) == 0


def oscillator(T: int = 500, h: float = 0.05) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`u'' + u = 0`, `u(0) = 0`, `u'(0) = 1`: the test of the published notebook."""
    c = torch.tensor([1.0, 0.0, 1.0], dtype=f64).expand(T, 1, 1, 3)
    d, u = c.new_zeros(T, 1), c.new_tensor([[[0.0, 1.0]]])
    return c, d, u, c.new_full((T - 1,), h)


def relative_mse(y: Tensor, h: float = 0.05) -> float:
    exact = torch.sin(h * torch.arange(len(y), dtype=f64))
    return ((y[:, 0, 0] - exact).square().mean() / exact.var(unbiased=False)).item()


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


# ---------------------------------------------------------------- what does not fit


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
