"""Near-singular samples are reported with an estimate of their condition number."""

import numpy as np
import pytest
import torch
from torch import Tensor

import smnn
from helpers import SCHEMES, option, random_problem, relative, rows_of
from solver.trust.oracle import EPS

F64 = {"dtype": torch.float64}


def missing_start(
    T: int, s: float, order: int, rate: float = 1.0, device: str = "cpu"
) -> tuple[tuple[Tensor, ...], dict[str, object]]:
    """`y' + a y = a sin t + cos t` without an initial value: `sin t + C exp(-a t)` for any `C`.

    The undetermined part decays, so the last times are determined and no pivot is small.
    """
    t = s * torch.arange(T, **F64)
    c = torch.tensor([rate, 1.0], **F64).view(1, 1, 1, 2)
    d = (rate * torch.sin(t) + torch.cos(t)).view(T, 1)
    args = c, d, torch.zeros(0, 1, 1, **F64), torch.full((T - 1,), s, **F64)
    return tuple(x.to(device) for x in args), {"order": order}


def test_missing_initial_value_is_detected(fast_backend: str, device: str) -> None:
    """Every pivot is above 1e-5 of its column, and yet backends differed by a factor of 300."""
    args, kw = missing_start(8000, 0.01, 7, 0.5, device)
    _, info = smnn.solve_ex(*args, **kw, backend=fast_backend)
    assert float(info.rcond) > 1e-5
    with pytest.raises(smnn.SolveError, match=r"condition number at least [1-9]e\+1[5-9]") as error:
        smnn.solve(*args, **kw, backend=fast_backend)
    assert "float64 ends at 1e+15" in str(error.value)
    assert "of variable 0" in str(error.value)
    y, info = smnn.solve_ex(*args, **kw, backend=fast_backend, condition=True)
    assert int(info.status) == 3
    assert float(info.condition) > 1e15
    assert y.isnan().all()


def test_missing_initial_value_is_detected_on_every_call(fast_backend: str, device: str) -> None:
    """Also with a cached plan."""
    (c, d, u, s), _ = missing_start(4000, 0.01, 7, 0.5, device)
    c = torch.nn.functional.pad(c, (0, 6))
    for _ in range(3):
        with pytest.raises(smnn.SolveError, match="condition number at least"):
            smnn.solve(c, d, u, s, backend=fast_backend)
    start = c.new_zeros(1, 1, 1)
    for _ in range(2):
        y = smnn.solve(c, d, start, s, backend=fast_backend)
        t = 0.01 * torch.arange(4000, **F64, device=device)
        assert float((y[:, 0, 0] - torch.sin(t)).abs().max()) < 1e-9


@pytest.mark.parametrize("how", ["weight zero", "weights of zeros", "in a batch", "factorize"])
def test_every_kind_of_missing_initial_value(how: str, fast_backend: str, device: str) -> None:
    (c, d, _, s), kw = missing_start(4000, 0.01, 7, 0.5, device)
    u = c.new_zeros(1, 1, 1)
    if how == "weight zero":
        with pytest.raises(smnn.SolveError, match="condition number at least"):
            smnn.solve(c, d, u, s, w_init=0.0, **kw, backend=fast_backend)
    elif how == "weights of zeros":
        with pytest.raises(smnn.SolveError, match="condition number at least"):
            smnn.solve(c, d, u, s, w_init=torch.zeros_like(u), **kw, backend=fast_backend)
    elif how == "in a batch":
        w_init = c.new_ones(3, 1, 1, 1)
        w_init[1] = 0.0
        many = [x.expand(3, *x.shape) for x in (c, d, u, s)]
        with pytest.raises(smnn.SolveError, match=r"1 of 3(?s:.*)sample \(1,\): singular \(cond"):
            smnn.solve(*many, w_init=w_init, **kw, backend=fast_backend)
        y, info = smnn.solve_ex(*many, w_init=w_init, **kw, backend=fast_backend, condition=True)
        assert info.status.tolist() == [0, 3, 0]
        assert y[[0, 2]].isfinite().all()
    else:
        with pytest.raises(smnn.SolveError, match="condition number at least"):
            smnn.factorize(c, s, init_shape=(0, 1), n_steps=4000, **kw, backend=fast_backend)


def test_missing_slopes_of_two_variables(fast_backend: str, device: str) -> None:
    """(D + 1/2)^2 y = 0 for both, with as many initial values in all as each has derivatives."""
    f64 = F64 | {"device": device}
    c = torch.eye(2, **f64).view(1, 2, 2, 1) * torch.tensor([0.25, 1.0, 1.0], **f64)
    d, u, s = c.new_zeros(1, 2), c.new_zeros(1, 2, 1), c.new_full((3999,), 0.01)
    with pytest.raises(smnn.SolveError, match="condition number at least"):
        smnn.solve(c, d, u, s, order=7, backend=fast_backend)


def test_without_a_start_but_well_conditioned(fast_backend: str, device: str) -> None:
    """At low order the smoothness rows choose one solution, and `solve` returns it."""
    args, _ = missing_start(200, 0.1, 2, 0.5, device)
    y = smnn.solve(*args, order=2, backend=fast_backend)
    expected = smnn.solve(*(x.cpu() for x in args), order=2, backend="torch")
    assert relative(y, expected) < 1e-8


@pytest.mark.parametrize("scale", 10.0 ** -np.arange(0, 15, 2))
def test_estimate_and_error_grow_together(scale: float, fast_backend: str, device: str) -> None:
    """For an equation of decreasing size, the estimate follows the condition number."""
    case = random_problem(3, T=6, V=2, Q=2, R=1, T_init=1, R_init=0, batch=(2,), device=device)
    c, w = case.args[0], torch.ones(1, 1, 2, **F64, device=device)
    c = c.clone()
    c[:, :, 1] = c[:, :, 0] + scale * c[:, :, 1]  # the second equation says little new
    w_smooth = 1e-4 * scale
    args = (c, *case.args[1:])
    y, info = smnn.solve_ex(*args, w_smooth=w_smooth, w_gov=w, backend=fast_backend, condition=True)
    for i, A in enumerate(rows_of(*args, w_gov=w, w_smooth=w_smooth)[2]):
        values = np.linalg.svd(A / np.linalg.norm(A, axis=0), compute_uv=False)
        true = values[0] / values[-1]
        if true < 1e13:
            assert 0.25 * true < float(info.condition[i]) < 1.1 * true
            assert int(info.status[i]) == 0
        if true > 1e16:
            assert int(info.status[i]) == 3


@pytest.mark.parametrize("step", [0.01, 1.0])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_estimate_is_that_of_the_rows(
    scheme: str, step: float, fast_backend: str, device: str
) -> None:
    case = random_problem(
        3, T=8, V=1, Q=1, R=2, R_init=1, batch=(2,), scheme=scheme, device=device, limit=None
    )
    case = case.replace(s=torch.full_like(case.args[3], step))
    _, info = smnn.solve_ex(*case.args, **case.kw, backend=fast_backend, condition=True)
    for found, A in zip(info.condition.tolist(), rows_of(*case.args, **case.kw)[2]):
        values = np.linalg.svd(A / np.linalg.norm(A, axis=0), compute_uv=False)
        assert 0.6 < found * values[-1] / values[0] < 1.01


@pytest.mark.parametrize("scheme", SCHEMES)
def test_condition_is_optional(scheme: str, backend: str, device: str) -> None:
    case = random_problem(1, batch=(2, 3), scheme=scheme, device=device)
    assert smnn.solve_ex(*case.args, **case.kw, backend=backend)[1].condition is None
    _, info = smnn.solve_ex(*case.args, **case.kw, backend=backend, condition=True)
    assert info.condition.shape == (2, 3)
    again = {"backend": backend, "condition": True, "keep_factor": False}
    _, other = smnn.solve_ex(*case.args, **case.kw, **again)
    assert relative(other.condition, info.condition) < 1e-9
    c, _, u, s = case.args
    kept = smnn.factorize(c, s, init_shape=(1, 1), **case.kw, backend=backend)
    assert relative(kept.condition(), info.condition) < 1e-9


def test_samples_that_are_not_finite_or_empty(backend: str, device: str) -> None:
    case = random_problem(1, T=4, V=1, Q=1, R=1, batch=(3,), device=device)
    c = case.args[0].clone()
    c[1] = torch.nan
    y, info = smnn.solve_ex(*case.replace(c=c).args, backend=backend, condition=True)
    assert info.condition.isnan().tolist() == [False, True, False]
    assert info.status.tolist() == [0, 2, 0]
    empty = (x[:0] for x in case.args)
    _, info = smnn.solve_ex(*empty, backend=backend, condition=True)
    assert info.condition.shape == (0,)


def test_no_rows_at_all(backend: str, device: str) -> None:
    """One time without equations and initial values."""
    c = torch.zeros(2, 1, 0, 1, 3, **F64, device=device)
    args = c, c.new_zeros(2, 1, 0), c.new_zeros(2, 0, 1, 1), c.new_zeros(2, 0)
    y, info = smnn.solve_ex(*args, n_steps=1, backend=backend, condition=True)
    assert info.status.tolist() == [3, 3]
    assert info.condition.isinf().all()
    with pytest.raises(smnn.SolveError, match=r"condition number infinite"):
        smnn.solve(*args, n_steps=1, backend=backend)


def test_singular_is_not_called_overflow(backend: str, device: str) -> None:
    """Inverse iteration with pivots of rounding errors once gave NaN and the wrong reason."""
    for seed in range(8):
        case = random_problem(
            seed, T=1, V=2, Q=2, R=4, T_init=1, R_init=1, batch=(3,), weights="tensor",
            scheme="central", device=device, limit=None,
        )  # fmt: skip
        _, info = smnn.solve_ex(*case.args, **case.kw, backend=backend)
        assert info.status.tolist() == [3, 3, 3]
        assert info.rcond.isfinite().all()


def test_estimate_costs_no_accuracy_and_no_gradient(fast_backend: str, device: str) -> None:
    case = random_problem(1, batch=(3,), device=device)
    inputs = [x.clone().requires_grad_() for x in case.args]
    y, info = smnn.solve_ex(*inputs, backend=fast_backend, condition=True)
    assert not info.condition.requires_grad
    got = torch.autograd.grad(y.square().sum(), inputs)
    plain = smnn.solve(*inputs, backend=fast_backend)
    assert torch.equal(y, plain)
    expected = torch.autograd.grad(plain.square().sum(), inputs)
    assert all(relative(a, b) < 1e-13 for a, b in zip(got, expected))


def test_inside_compile_and_vmap(fast_backend: str, device: str) -> None:
    torch.compiler.reset()
    case = random_problem(1, T=4, V=1, batch=(2,), device=device)

    def estimate(*args: Tensor) -> Tensor:
        return smnn.solve_ex(*args, backend=fast_backend, condition=True)[1].condition

    expected = estimate(*case.args)
    compiled = torch.compile(estimate, fullgraph=True, backend="aot_eager")
    assert relative(compiled(*case.args), expected) < 1e-9
    assert relative(torch.vmap(estimate)(*(x[:, None] for x in case.args))[:, 0], expected) < 1e-9


@pytest.mark.parametrize("name", ["broadcast batch", "all constant", "order raised, weights"])
def test_estimate_bounds_what_rounding_does(name: str, fast_backend: str, device: str) -> None:
    case = option(name, 2, device=device)
    y, info = smnn.solve_ex(*case.args, **case.kw, backend=fast_backend, condition=True)
    assert relative(y, case.oracle()) < 100 * EPS * float(info.condition.max()) ** 2


@pytest.mark.parametrize("weight", [0.0, "a tensor without axes", "one row", "every row"])
def test_rows_of_weight_zero_may_hold_anything(weight: object, backend: str, device: str) -> None:
    """Also for a single row, or a float weight."""
    case = random_problem(1, T=3, V=1, Q=2, R=1, T_init=0, batch=(1,), device=device)
    c, d, _, s = case.args
    u = c.new_full((1, 1, 1, 1), torch.nan)
    w_init = {"a tensor without axes": u.new_zeros(()), "one row": u.new_zeros(1, 1, 1, 1)}.get(
        str(weight), 0.0
    )
    if weight == "every row":
        u, w_init = u.expand(1, 3, 1, 1), u.new_zeros(1, 3, 1, 1)
    expected = case.solve(backend)
    y, info = smnn.solve_ex(c, d, u, s, w_init=w_init, backend=backend)
    assert info.status.tolist() == [0]
    assert relative(y, expected) < 1e-12
