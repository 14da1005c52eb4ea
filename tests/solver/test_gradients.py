"""First, second and third derivatives with respect to every input."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from helpers import NAMES, SCHEMES, Case, option, random_problem, relative

TIGHT = {"eps": 1e-6, "atol": 1e-6, "rtol": 1e-5}

SMALL = {"T": 4, "V": 1, "Q": 2, "R": 2, "T_init": 2, "R_init": 1, "weights": "tensor"}
BROADCAST = {
    "batch": {"T": 4, "V": 2, "Q": 2, "R": 1, "batch": (2,), "shared": "cs", "per_variable": True},
    "time": {"T": 4, "V": 1, "Q": 2, "R": 2, "constant": "cds", "R_init": 1},
    "both": {"T": 4, "V": 1, "Q": 2, "R": 2, "batch": (2,), "shared": "cdus", "constant": "cds"},
    "weights": {"T": 4, "V": 1, "Q": 2, "R": 1, "batch": (2,), "weights": "broadcast"},
    "scalar weights": {"T": 4, "V": 1, "Q": 2, "R": 1, "weights": "scalar"},
    "steps": {"T": 4, "V": 2, "Q": 2, "R": 1, "constant": "s", "per_variable": True},
}


def small(scheme: str, device: str, **extra: object) -> Case:
    """Small enough for finite differences, and well conditioned enough to trust them."""
    return random_problem(2, scheme=scheme, device=device, limit=300.0, **(SMALL | extra))


def function_of(
    case: Case, names: list[str], backend: str
) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    """The solution as a function of some of its inputs, with these."""
    inputs = tuple(case.tensors()[name].detach().requires_grad_() for name in names)
    return lambda *x: case.replace(**dict(zip(names, x))).solve(backend), inputs


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", NAMES)
def test_first_and_second_derivative(name: str, scheme: str, backend: str, device: str) -> None:
    f, inputs = function_of(small(scheme, device), [name], backend)
    assert gradcheck(f, inputs, **TIGHT)
    assert gradgradcheck(f, inputs, **TIGHT)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_mixed_second_derivatives(scheme: str, backend: str, device: str) -> None:
    case = small(scheme, device, T=3, Q=1, R=1, R_init=0)
    f, inputs = function_of(case, list(case.tensors()), backend)
    assert gradgradcheck(f, inputs, **TIGHT)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", BROADCAST)
def test_broadcast_inputs(name: str, scheme: str, fast_backend: str, device: str) -> None:
    case = random_problem(4, scheme=scheme, device=device, limit=300.0, **BROADCAST[name])
    f, inputs = function_of(case, list(case.tensors()), fast_backend)
    assert gradcheck(f, inputs, check_batched_grad=True, **TIGHT)
    assert gradgradcheck(f, inputs, fast_mode=True, **(TIGHT | {"rtol": 1e-3}))
    grads = torch.autograd.grad(f(*inputs).sum(), inputs)
    assert [g.shape for g in grads] == [x.shape for x in inputs]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_order_raised(scheme: str, backend: str, device: str) -> None:
    case = small(scheme, device, R=1, order=3, R_init=3)
    f, inputs = function_of(case, list(case.tensors()), backend)
    assert gradcheck(f, inputs, **TIGHT)
    assert gradgradcheck(f, inputs, fast_mode=True, **(TIGHT | {"rtol": 1e-3}))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["w_gov", "w_init", "w_smooth"])
def test_weight_of_zero(name: str, scheme: str, backend: str, device: str) -> None:
    """At zero the first derivative by the weight is zero and the second is not."""
    case = small(scheme, device, T=5, Q=3, T_init=3)
    w = case.tensors()[name].clone()
    w.view(-1)[1] = 0.0
    f, (w,) = function_of(case.replace(**{name: w}), [name], backend)
    assert gradcheck(f, (w,), **TIGHT)
    assert gradgradcheck(f, (w,), **TIGHT)
    (first,) = torch.autograd.grad(f(w).square().sum(), w, create_graph=True)
    assert first.view(-1)[1].item() == 0.0
    (second,) = torch.autograd.grad(first.view(-1)[1], w)
    assert abs(second.view(-1)[1].item()) > 1e-6


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_few_times(times: int, scheme: str, backend: str, device: str) -> None:
    case = small(scheme, device, T=times, Q=3, R=1, T_init=1)
    names = [k for k, x in case.tensors().items() if x.numel()]
    f, inputs = function_of(case, names, backend)
    assert gradcheck(f, inputs, **TIGHT)
    assert gradgradcheck(f, inputs, fast_mode=True, **(TIGHT | {"rtol": 1e-3}))


def test_third_derivative(backend: str, device: str) -> None:
    case = small("smnn", device, T=3, Q=1, R=1, R_init=1)
    f, inputs = function_of(case, ["c", "s", "w_smooth"], backend)

    def curvature(*x: Tensor) -> tuple[Tensor, ...]:
        first = torch.autograd.grad(f(*x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), x, create_graph=True)

    assert gradcheck(curvature, inputs, eps=1e-6, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("wanted", [["d"], ["u"], ["c"], ["s"], ["w_smooth"], ["d", "w_gov"]])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_only_some_inputs_require_grad(
    wanted: list[str], scheme: str, backend: str, device: str
) -> None:
    case = small(scheme, device, V=2, batch=(2,))
    f, inputs = function_of(case, list(NAMES), backend)
    every = dict(zip(NAMES, torch.autograd.grad(f(*inputs).square().sum(), inputs)))
    f, inputs = function_of(case, wanted, backend)
    some = torch.autograd.grad(f(*inputs).square().sum(), inputs)
    assert all(relative(g, every[name]) < 1e-12 for name, g in zip(wanted, some))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["many times", "more lanes than one group", "weights zeros"])
def test_backends_agree(name: str, scheme: str, fast_backend: str, device: str) -> None:
    """Sizes that finite differences cannot reach."""
    grads = {}
    for backend in ("reference", fast_backend):
        case = option(name, scheme=scheme, device=device)
        f, inputs = function_of(case, list(case.tensors()), backend)
        grads[backend] = torch.autograd.grad(f(*inputs).square().sum(), inputs)
    pairs = zip(grads["reference"], grads[fast_backend])
    assert all(relative(b, a) < 1e-9 for a, b in pairs)


def test_float32_gradients(fast_backend: str, device: str) -> None:
    """Gradients come back in float32, as accurate as float32 can say them."""
    case = small("smnn", device, V=2, Q=2, batch=(3,)).to(torch.float32)
    results = []
    for this in (case, case.to(torch.float64)):
        f, inputs = function_of(this, list(NAMES), fast_backend)
        results.append(torch.autograd.grad(f(*inputs).square().sum(), inputs))
    for low, high in zip(*results):
        assert low.dtype == torch.float32
        assert relative(low, high) < 1e-5


def test_no_gradient_is_recorded_without_need(backend: str, device: str) -> None:
    case = small("smnn", device)
    assert not case.solve(backend).requires_grad
    f, inputs = function_of(case, ["d"], backend)
    with torch.no_grad():
        assert not f(*inputs).requires_grad
