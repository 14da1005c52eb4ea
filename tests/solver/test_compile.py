"""`torch.compile`, `torch.export`, and PyTorch's checks of custom operators."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import smnn
from helpers import (
    SCHEMES,
    differentiable,
    gradients,
    leaves,
    loss_of,
    random_problem,
    relative,
    same,
)
from solver.internals import backend_named, make_problem


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_compile_without_graph_breaks(scheme: str, backend: str, device: str) -> None:
    case = differentiable(device=device, scheme=scheme, batch=(2,))
    f = torch.compile(loss_of(case, backend), fullgraph=True, backend="aot_eager")
    inputs = leaves(case)
    value = f(*inputs)
    assert relative(value, loss_of(case, backend)(*inputs)) < 1e-12
    assert same(torch.autograd.grad(value, inputs), gradients(case, backend))


@pytest.mark.usefixtures("fresh_compiler")
def test_compile_with_inductor(fast_backend: str, device: str) -> None:
    case = differentiable(device=device)

    def loss(c: Tensor, d: Tensor) -> Tensor:
        return case.replace(c=torch.sin(c) + c, d=d * d).solve(fast_backend).square().sum()

    inputs = [case.args[i].detach().requires_grad_() for i in (0, 1)]
    value = torch.compile(loss, fullgraph=True)(*inputs)
    assert relative(value, loss(*inputs)) < 1e-12
    expected = torch.autograd.grad(loss(*inputs), inputs)
    assert same(torch.autograd.grad(value, inputs), expected)


@pytest.mark.usefixtures("fresh_compiler")
def test_compile_once_for_several_batch_sizes(fast_backend: str, device: str) -> None:
    """Shapes may become symbols after the first recompilation."""

    def solve(*args: Tensor) -> Tensor:
        return smnn.solve(*args, backend=fast_backend)

    f = torch.compile(solve, fullgraph=True, backend="aot_eager", dynamic=None)
    for size in (2, 5, 9):
        args = random_problem(size, batch=(size,), device=device).args
        inputs = [x.detach().requires_grad_() for x in args]
        got = torch.autograd.grad(f(*inputs).square().sum(), inputs)
        assert same(got, torch.autograd.grad(solve(*inputs).square().sum(), inputs))


# ---------------------------------------------------------------- the operators themselves


def operator_arguments(scheme: str, backend: str, device: str) -> dict[str, tuple[Any, ...]]:
    # A factor for the GPU has a place for every thread of a warp: with fewer samples, some are
    # never written, and an operator's outputs are compared as a whole.
    batch = (32,) if backend == "gpu" else (2,)
    case = differentiable(device=device, T=4, V=1, scheme=scheme, batch=batch)
    whole, batch = make_problem(*case.args, **case.kw)
    tensors = [x.detach().clone() for x in whole[:7]]
    size = backend_named(backend).factor_size(whole, 1)
    y, factor, *_ = torch.ops.smnn.solve(*tensors, scheme, backend, 1, size, False, batch)
    tensors = [x.requires_grad_() for x in tensors]
    c, _, _, s, w_gov, w_init, w_smooth = tensors
    g = torch.randn_like(y).requires_grad_()
    y = y.detach().requires_grad_()
    left = c, s, w_gov, w_init, w_smooth, scheme, backend
    return {
        "solve": (*tensors, scheme, backend, 1, size, False, list(batch)),
        "adjoint": (g, factor.detach(), *left, 1),
        "row_gradients": (g, y, *tensors, scheme, backend, [True] * 7),
    }


@pytest.mark.parametrize("operator", ["solve", "adjoint", "row_gradients"])
def test_opcheck(operator: str, backend: str, device: str) -> None:
    arguments = operator_arguments("central", backend, device)[operator]
    torch.library.opcheck(getattr(torch.ops.smnn, operator).default, arguments)


@pytest.mark.parametrize("pieces", [1, 2, 4])
def test_fake_factor_has_the_true_size(pieces: int, backend: str, device: str) -> None:
    case = differentiable(device=device, T=30)
    whole, _ = make_problem(*case.args, **case.kw)
    engine = backend_named(backend)
    assert engine.plan(whole, pieces).solve().factor.numel() == engine.factor_size(whole, pieces)


@pytest.mark.usefixtures("fresh_compiler")
def test_export(fast_backend: str, device: str) -> None:
    class Solver(torch.nn.Module):
        def forward(self, c: Tensor, d: Tensor, u: Tensor, s: Tensor) -> Tensor:
            return smnn.solve(c, d, u, s, backend=fast_backend, order=3)

    case = random_problem(1, R_init=1, device=device)
    program = torch.export.export(Solver(), case.args)
    assert relative(program.module()(*case.args), Solver()(*case.args)) < 1e-12


def test_compiled_autograd() -> None:
    """The backward pass of an eager solve, traced later: kernels see the memory of real tensors."""
    x = [t.clone().requires_grad_() for t in random_problem(1, batch=(3,)).args]
    expected = torch.autograd.grad(smnn.solve(*x).square().sum(), x)
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        for _ in range(2):
            found = torch.autograd.grad(smnn.solve(*x).square().sum(), x)
            assert max(relative(a, b) for a, b in zip(found, expected, strict=True)) < 1e-12
