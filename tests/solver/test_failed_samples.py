"""Samples without a unique finite solution are reported and do not affect others."""

import math
from typing import Any

import pytest
import torch

import smnn
from helpers import SCHEMES, Case, random_problem, relative

NAN, INF = math.nan, math.inf


def good(device: str = "cpu", **extra: Any) -> Case:
    """T=6, V=2, Q=2, R=2 with values and slopes at the first two times, two samples."""
    sizes = {"T": 6, "V": 2, "Q": 2, "R": 2, "T_init": 2, "R_init": 1, "batch": (2,)}
    return random_problem(1, device=device, **(sizes | extra))


BAD_STEPS = [(0.0, "0"), (-0.5, r"-0\.5"), (NAN, "nan"), (INF, "inf"), (-INF, "-inf")]


@pytest.mark.parametrize(("value", "text"), BAD_STEPS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_bad_step(value: float, text: str, scheme: str, backend: str, device: str) -> None:
    case = good(device, per_variable=True, scheme=scheme)
    s = case.args[3].clone()
    s[1, 3, 1] = value
    message = rf"(?s)1 of 2 samples.*sample \(1,\): step s\[3\] of variable 1 is {text}; steps must"
    with pytest.raises(smnn.SolveError, match=message):
        case.replace(s=s).solve(backend)


@pytest.mark.parametrize(
    ("name", "value"),
    [("c", NAN), ("d", INF), ("u", -INF), ("w_gov", NAN), ("w_init", INF), ("w_smooth", -INF)],
)
def test_not_finite(name: str, value: float, backend: str, device: str) -> None:
    case = good(device, weights="tensor")
    x = case.tensors()[name].clone()
    x[1, 1] = value
    message = rf"(?s)1 of 2 samples.*sample \(1,\): {name} contain NaN or infinity.*weight zero"
    with pytest.raises(smnn.SolveError, match=message):
        case.replace(**{name: x}).solve(backend)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_singular_error_names_variable_and_order(scheme: str, backend: str, device: str) -> None:
    case = good(device, T_init=1, scheme=scheme)
    c = case.args[0].clone()
    c[1, :, :, 1] = 0.0  # sample 1: no equation speaks of variable 1
    message = r"(?s)1 of 2 samples.*sample \(1,\): singular.*order 2 of variable 1, seen at time \d"
    with pytest.raises(smnn.SolveError, match=message) as error:
        case.replace(c=c).solve(backend)
    assert "too few initial values" in str(error.value)
    assert "smnn.solve_ex" in str(error.value)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("T", [10, 1000])
def test_singular_is_found_at_any_length(
    T: int, scheme: str, fast_backend: str, device: str
) -> None:
    """Initial values and slopes without an equation: the second derivative is free."""
    case = good(device, T=T, T_init=1, scheme=scheme, limit=None)
    free = case.replace(c=torch.zeros_like(case.args[0]))
    with pytest.raises(smnn.SolveError, match=r"2 of 2 samples(?s:.*)singular"):
        free.solve(fast_backend)


def test_column_without_rows(backend: str, device: str) -> None:
    """Reported as singular at that order."""
    case = random_problem(1, T=3, V=1, Q=1, R=2, T_init=1, R_init=0, batch=(2,), device=device)
    c = case.args[0].clone()
    c[1, ..., 1:] = 0.0
    _, info = smnn.solve_ex(*case.replace(c=c).args, w_smooth=0.0, backend=backend)
    assert info.status.tolist() == [3, 3]
    assert info.weakest[1] == 1
    assert info.rcond[1] == 0


def test_error_names_an_index_of_two_batch_axes(fast_backend: str, device: str) -> None:
    case = good(device, batch=(2, 3), T_init=1)
    c = case.args[0].clone()
    c[1, 0] = 0.0
    with pytest.raises(smnn.SolveError, match=r"1 of 6 samples(?s:.*)sample \(1, 0\): singular"):
        case.replace(c=c).solve(fast_backend)


def test_error_names_no_index_without_a_batch(backend: str, device: str) -> None:
    case = good(device, batch=(), T_init=1)
    with pytest.raises(smnn.SolveError, match=r"1 of 1 samples") as error:
        case.replace(c=torch.zeros_like(case.args[0])).solve(backend)
    assert "sample (" not in str(error.value)


def test_many_failures_are_counted(fast_backend: str, device: str) -> None:
    case = good(device, batch=(20,))
    with pytest.raises(smnn.SolveError, match=r"20 of 20(?s:.*)and 17 more: \[3, 4, .* \.\.\."):
        case.replace(d=torch.full_like(case.args[1], NAN)).solve(fast_backend)


@pytest.mark.parametrize("scale", [1e200, 1e-200])
def test_extreme_sizes_are_solved_or_reported(scale: float, backend: str, device: str) -> None:
    """Squares overflow or underflow here: NaN or garbage must not be returned silently."""
    case = good(device)
    c, d, _, _ = case.args
    y, info = smnn.solve_ex(scale * c, scale * d, *case.args[2:], backend=backend)
    expected = smnn.solve(*case.args, backend="reference")
    for b in range(2):
        if info.status[b] == 0:
            assert y[b].isfinite().all()
            assert scale < 1 or relative(y[b], expected[b]) < 1e-6


FAILURES = {
    "singular": ("c", 0.0, 3),
    "nan": ("d", NAN, 2),
    "infinite": ("u", INF, 2),
    "step": ("s", -1.0, 1),
}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("T", [6, 130])
def test_failed_samples_do_not_affect_others(
    T: int, failure: str, scheme: str, fast_backend: str, device: str
) -> None:
    """Also in pieces, and if several samples share vector registers."""
    name, value, status = FAILURES[failure]
    case = good(device, T=T, batch=(5,), scheme=scheme, limit=None)
    x, w_init = case.tensors()[name].clone(), torch.ones_like(case.args[2])
    x[2] = value
    if failure == "singular":
        w_init[2] = 0.0
    broken = case.replace(**{name: x}, w_init=w_init)
    y, info = smnn.solve_ex(*broken.args, **broken.kw, backend=fast_backend)
    assert info.status.tolist() == [0, 0, status, 0, 0]
    assert y[2].isnan().all()
    for b in (0, 1, 3, 4):
        alone = Case(tuple(a[b : b + 1] for a in case.args), case.kw).solve(fast_backend)
        assert relative(y[b : b + 1], alone) < 1e-12


def test_failed_samples_do_not_affect_gradients_of_others(fast_backend: str, device: str) -> None:
    case = good(device, batch=(3,))
    c = case.args[0].clone()
    c[1] = 0.0
    case = case.replace(w_init=torch.ones_like(case.args[2]))
    case.kw["w_init"][1] = 0.0
    c.requires_grad_()
    y, _ = smnn.solve_ex(c, *case.args[1:], **case.kw, backend=fast_backend)
    (grad,) = torch.autograd.grad(y[[0, 2]].square().sum(), c)
    fine = case.args[0].clone().requires_grad_()
    y = case.replace(c=fine, w_init=1.0).solve(fast_backend)
    (expected,) = torch.autograd.grad(y[[0, 2]].square().sum(), fine)
    assert relative(grad[[0, 2]], expected[[0, 2]]) < 1e-12


def test_check_can_be_turned_off(backend: str, device: str) -> None:
    case = good(device)
    d = case.args[1].clone()
    d[0, 0] = NAN
    y = smnn.solve(*case.replace(d=d).args, **case.kw, backend=backend, check=False)
    assert y[0].isnan().all()
    assert y[1].isfinite().all()


def test_weakest_is_an_index_of_the_solution(backend: str, device: str) -> None:
    case = good(device)
    c = case.args[0].clone()
    c[1, :, :, 1] = 0.0
    u = case.args[2][:, :1]
    _, info = smnn.solve_ex(*case.replace(c=c, u=u).args, backend=backend)
    t, v, r = (int(i) for i in torch.unravel_index(info.weakest[1].cpu(), (6, 2, 3)))
    assert (v, r) == (1, 2)
    assert 0 <= t < 6
    assert not float(info.rcond[1]) > 1e-13 < float(info.rcond[0])


# ---------------------------------------------------------------- sizes at the edge


@pytest.mark.parametrize("keep_factor", [True, False])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_empty_batch(keep_factor: bool, scheme: str, backend: str, device: str) -> None:
    case = good(device, scheme=scheme)
    inputs = tuple(x[:0].detach().requires_grad_() for x in case.args)
    options = {"scheme": scheme, "backend": backend, "keep_factor": keep_factor}
    y, info = smnn.solve_ex(*inputs, **options)
    assert y.shape == (0, 6, 2, 3)
    assert info.status.shape == (0,)
    y.sum().backward()
    assert all(x.grad.shape == x.shape for x in inputs)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("steps", [0, 1])
def test_one_time(steps: int, scheme: str, backend: str, device: str) -> None:
    """Without steps, or with one unused step."""
    case = random_problem(3, T=1, V=1, Q=2, R=1, R_init=1, scheme=scheme, device=device)
    s = case.args[3].new_ones(steps)
    y = smnn.solve(*case.args[:3], s, scheme=scheme, n_steps=1, backend=backend)
    assert relative(y, case.oracle()) < 1e-12


@pytest.mark.parametrize("keep_factor", [True, False])
@pytest.mark.parametrize("batch", [(4,), (2, 2)])
def test_shared_gradients_leave_failed_samples_out(
    batch: tuple[int, ...], keep_factor: bool, fast_backend: str, device: str
) -> None:
    """As if they were not in the batch: for shared coefficients, and for values of their own."""
    case = random_problem(1, device=device, batch=batch, shared="cs")
    c, d, u, s = (x.detach().clone() for x in case.args)
    d.view(4, *d.shape[len(batch) :])[2, 3] = NAN
    leaves = [x.requires_grad_() for x in (c, d, u, s)]
    y, info = smnn.solve_ex(*leaves, backend=fast_backend, keep_factor=keep_factor)
    found = torch.autograd.grad(y[info.status == 0].square().sum(), leaves)
    k, others = len(batch), [0, 1, 3]
    some = [x.reshape(-1, *x.shape[k:]) for x in leaves]
    some[1], some[2] = some[1][others], some[2][others]
    expected = torch.autograd.grad(
        smnn.solve(*some, backend=fast_backend).square().sum(), leaves, materialize_grads=True
    )
    assert info.status.flatten().tolist() == [0, 0, 2, 0]
    for a, b in zip(found, expected, strict=True):
        assert relative(a, b) < 1e-9


@pytest.mark.parametrize("transform", ["func", "compile"])
def test_shared_gradients_of_transforms_leave_failed_samples_out(transform: str) -> None:
    c, d, u, s = random_problem(1, batch=(3,), shared="c").args
    d = d.clone()
    d[1, 2] = NAN

    def loss(c: torch.Tensor) -> torch.Tensor:
        y = smnn.solve_ex(c, d, u, s)[0]
        return torch.where(y.isnan(), 0.0, y).sum()

    if transform == "func":
        found = torch.func.grad(loss)(c)
    else:
        x = c.clone().requires_grad_()
        (found,) = torch.autograd.grad(torch.compile(loss, backend="aot_eager")(x), x)
    x = c.clone().requires_grad_()
    (expected,) = torch.autograd.grad(smnn.solve(x, d[[0, 2]], u[[0, 2]], s[[0, 2]]).sum(), x)
    assert relative(found, expected) < 1e-9
