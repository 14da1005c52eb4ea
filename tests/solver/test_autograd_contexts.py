"""`torch.func`, and several calls at once: calls share no state."""

import pytest
import torch
from torch import Tensor

import smnn
from helpers import (
    NAMES,
    SCHEMES,
    differentiable,
    gradients,
    leaves,
    loss_of,
    random_problem,
    relative,
    same,
    solve_of,
)

# ---------------------------------------------------------------- torch.func


@pytest.mark.parametrize("scheme", SCHEMES)
def test_func_grad(scheme: str, backend: str, device: str) -> None:
    case = differentiable(device=device, scheme=scheme)
    got = torch.func.grad(loss_of(case, backend), argnums=tuple(range(7)))(*leaves(case))
    assert same(got, gradients(case, backend))


@pytest.mark.parametrize("name", NAMES)
def test_jacrev(name: str, backend: str, device: str) -> None:
    case = differentiable(device=device, T=3, V=1)
    f, x = solve_of(case, (name,), backend), case.tensors()[name]
    expected = torch.autograd.functional.jacobian(f, x)
    assert relative(torch.func.jacrev(f)(x), expected) < 1e-10


SUBSETS = [(name,) for name in NAMES] + [("c", "u"), ("d", "w_gov"), ("s", "w_smooth"), NAMES]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("names", SUBSETS, ids="+".join)
def test_vmap(names: tuple[str, ...], scheme: str, backend: str, device: str) -> None:
    cases = [differentiable(seed, device, scheme=scheme, batch=(2,)) for seed in (1, 2, 3)]
    f = solve_of(cases[0], names, backend)
    single = [f(*(case.tensors()[name] for name in names)) for case in cases]
    stacked = [torch.stack([case.tensors()[name] for case in cases]) for name in names]
    assert relative(torch.vmap(f)(*stacked), torch.stack(single)) < 1e-9
    last = [x.movedim(0, -1) for x in stacked]
    assert relative(torch.vmap(f, in_dims=-1)(*last), torch.stack(single)) < 1e-9


def test_vmap_of_vmap(backend: str, device: str) -> None:
    case = differentiable(device=device)
    rhs = torch.randn(2, 3, *case.args[1].shape, dtype=torch.float64, device=device)
    f = solve_of(case, ("d",), backend)
    got = torch.vmap(torch.vmap(f))(rhs)
    expected = torch.stack([torch.stack([f(d) for d in row]) for row in rhs])
    assert relative(got, expected) < 1e-10


def test_gradient_per_sample(backend: str, device: str) -> None:
    """vmap over grad: what differential privacy and influence functions need."""
    cases = [differentiable(seed, device) for seed in (1, 2, 3)]
    loss = loss_of(cases[0], backend)
    stacked = [torch.stack([case.tensors()[name] for case in cases]) for name in NAMES]
    got = torch.vmap(torch.func.grad(loss, argnums=tuple(range(7))))(*stacked)
    single = [gradients(case, backend) for case in cases]
    assert same(got, [torch.stack(g) for g in zip(*single)], 1e-9)


def test_grad_of_vmap(backend: str, device: str) -> None:
    case = differentiable(device=device)
    f = solve_of(case, ("c", "d"), backend)
    c, d = (case.tensors()[name] for name in ("c", "d"))
    many = torch.stack([d, 2 * d, d - 1])

    def loss(c: Tensor, d: Tensor) -> Tensor:
        return torch.vmap(f, in_dims=(None, 0))(c, d).square().sum()

    def plain(c: Tensor, d: Tensor) -> Tensor:
        return sum(f(c, x).square().sum() for x in d)

    got = torch.func.grad(loss, argnums=(0, 1))(c, many)
    assert same(got, torch.func.grad(plain, argnums=(0, 1))(c, many))


def test_info_under_vmap(backend: str, device: str) -> None:
    case = differentiable(device=device, batch=(2,))
    d = torch.stack([case.args[1]] * 3)

    def f(d: Tensor) -> tuple[Tensor, Tensor]:
        y, info = smnn.solve_ex(*case.replace(d=d).args, **case.kw, backend=backend)
        return y, info.status

    y, status = torch.vmap(f)(d)
    assert y.shape[:2] == (3, 2)
    assert status.tolist() == [[0, 0]] * 3


# ---------------------------------------------------------------- several calls in flight


def test_solution_of_one_feeds_the_next(backend: str, device: str) -> None:
    case = differentiable(device=device)
    d = case.args[1].clone().requires_grad_()

    def chained(d: Tensor) -> Tensor:
        y = case.replace(d=d).solve(backend)
        return case.replace(d=y[..., 0]).solve(backend)

    assert torch.autograd.gradcheck(chained, (d,))


def test_inference_mode(backend: str, device: str) -> None:
    case = differentiable(device=device)
    with torch.inference_mode():
        y = case.solve(backend)
    assert relative(y.clone(), case.solve(backend)) < 1e-15


def test_changing_a_saved_input_in_place_is_noticed(backend: str, device: str) -> None:
    case = random_problem(1, device=device)
    c = case.args[0].clone()
    d = case.args[1].clone().requires_grad_()
    y = case.replace(c=c, d=d).solve(backend)
    c.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_gradient_without_memory(backend: str, device: str) -> None:
    """The gradient of a sum is one number repeated, with no memory of its own."""
    case = differentiable(device=device, batch=(2,))
    inputs = leaves(case)
    y = solve_of(case, NAMES, backend)(*inputs)
    got = torch.autograd.grad(y.sum(), inputs, retain_graph=True)
    assert same(got, torch.autograd.grad(y, inputs, torch.ones_like(y)), 1e-13)


def test_checkpoint(backend: str, device: str) -> None:
    case = differentiable(device=device)
    inputs = leaves(case)
    loss = torch.utils.checkpoint.checkpoint(loss_of(case, backend), *inputs, use_reentrant=False)
    assert same(torch.autograd.grad(loss, inputs), gradients(case, backend))


@pytest.mark.parametrize("numbers", [True, False])
@pytest.mark.parametrize("keep_factor", [True, False])
def test_gradients_without_memory_of_their_own(
    numbers: bool, keep_factor: bool, backend: str, device: str
) -> None:
    """Views that mean the opposite of what they hold, and zeros that hold nothing."""
    case = random_problem(1, T=5, V=2, Q=2, R=1, batch=(3,), device=device)
    w_gov = 0.7 if numbers else torch.tensor(0.7, dtype=torch.float64, device=device)
    x = [t.detach().clone().requires_grad_() for t in case.args]

    def grads(g: Tensor) -> tuple[Tensor, ...]:
        y = smnn.solve(*x, w_gov=w_gov, backend=backend, keep_factor=keep_factor)
        return torch.autograd.grad(y, x, g)

    y = smnn.solve(*x, w_gov=w_gov, backend=backend)
    g = torch.cos(torch.arange(y.numel(), dtype=y.dtype, device=device)).view_as(y)
    zero = torch._efficientzerotensor((6, *y.shape[1:]), dtype=y.dtype, device=device)
    want = grads(g)
    for _ in range(2):  # remembered from the second call on
        torch.testing.assert_close(grads(torch._neg_view(-g)), want)
        for nothing in (zero[:3], zero[3:]):
            assert not any(t.any() for t in grads(nothing))
