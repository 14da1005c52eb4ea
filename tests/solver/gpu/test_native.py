"""The C++ launcher on an emulated device: launches, memory, and derivatives by autograd."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo import compiled_autograd

import smnn
from helpers import random_problem, relative
from solver.internals import TRITON, plan

if not TRITON:
    pytest.skip("Triton is not installed", allow_module_level=True)
pytest.importorskip("triton.experimental.gluon._runtime")

from solver.gpu.emulated.driver import Driver, driven

pytestmark = pytest.mark.slow

TWO_LANES = {"T": 5, "V": 1, "Q": 1, "R": 1, "batch": (2,)}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "two lanes": ("smnn", TWO_LANES),
    "one lane": ("central", TWO_LANES),
    "a warp": ("smnn", {"T": 7, "V": 3, "Q": 3, "R": 2, "batch": (2,)}),
    "pieces": ("smnn", {"T": 64, "V": 1, "Q": 1, "R": 1, "batch": (1,)}),
    "reduction": ("smnn", {"T": 12, "V": 4, "Q": 4, "R": 1, "batch": (2,)}),
}
BACKWARDS = ["two lanes", "one lane", "a warp"]  # adjoint solution in scratch memory, or not


@pytest.fixture
def driver(launcher: ModuleType) -> Iterator[Driver]:
    torch._dynamo.reset()
    torch.use_deterministic_algorithms(True)  # new memory holds NaN
    with driven(launcher) as made:
        yield made
    torch.use_deterministic_algorithms(False)
    torch._dynamo.reset()
    assert made.error is None
    assert made.memory.races == {}


def tensors(wanted: str = "cdus", seed: int = 1, **sizes: Any) -> list[Tensor]:
    args = random_problem(seed, limit=None, **(sizes or TWO_LANES)).args
    return [x.clone().requires_grad_(name in wanted) for name, x in zip("cdus", args, strict=True)]


def solve(x: list[Tensor], scheme: str = "smnn", backend: str = "gpu") -> Tensor:
    y = smnn.solve(*x, scheme=scheme, backend=backend)
    launched = backend == "gpu" and y.requires_grad
    assert not launched or "SolveOnGpu" in y.grad_fn.name()
    return y


def loss(x: list[Tensor], backend: str = "gpu", scheme: str = "smnn") -> Tensor:
    return solve([2 * t for t in x], scheme, backend).square().sum()


def gradients(x: list[Tensor], backend: str = "gpu", scheme: str = "smnn") -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss(x, backend, scheme), [t for t in x if t.requires_grad])


def close(found: Any, wanted: Any) -> None:
    assert max(relative(a, b) for a, b in zip(found, wanted, strict=True)) < 1e-10


@pytest.mark.parametrize("name", CASES)
def test_solution_and_gradients(driver: Driver, name: str) -> None:
    scheme, sizes = CASES[name]
    for wanted in ("cdus", "c", "s", "du", "cdus") if name in BACKWARDS else ("cdus", "cdus"):
        x = tensors(wanted, **sizes)
        close([solve(x, scheme)], [solve(x, scheme, "cpu")])
        found = gradients(x, scheme=scheme)
        close(found, gradients(x, "cpu", scheme))
    plain = tensors("", **sizes)
    y, info = smnn.solve_ex(*plain, scheme=scheme, backend="gpu")
    assert not y.requires_grad
    _, expected = smnn.solve_ex(*plain, scheme=scheme, backend="cpu")
    assert info.status.equal(expected.status)
    assert info.rcond.shape == info.weakest.shape == expected.status.shape


class Box:
    """Records how many kernels had been launched when autograd released a tensor."""

    def __init__(self, x: Tensor, driver: Driver, found: list[int]) -> None:
        self.x, self._driver, self._found = x, driver, found

    def __del__(self) -> None:
        self._found.append(len(self._driver.launched))


def test_saved_tensors_are_released_before_gradients_are_allocated(driver: Driver) -> None:
    found: list[int] = []
    x = tensors()
    pack = (lambda t: Box(t, driver, found)), (lambda box: box.x)
    with torch.autograd.graph.saved_tensors_hooks(*pack):
        y = solve(x)
    theirs = solve(x, backend="cpu")
    close([y], [theirs])
    g = torch.randn_like(y)
    wanted = torch.autograd.grad(theirs, x, g)
    close(torch.autograd.grad(y, x, g, retain_graph=True), wanted)
    assert found == []
    before = len(driver.launched)
    close(torch.autograd.grad(y, x, g), wanted)
    assert before <= found[0] < len(driver.launched)
    y = solve(x)
    driver.refused = "row_gradients"
    with pytest.raises(RuntimeError, match="could not be launched: CUDA driver error 700"):
        torch.autograd.grad(y, x, g)
    driver.refused = ""
    with pytest.raises(RuntimeError, match=r"by a backward pass that failed.*retain_graph=True"):
        torch.autograd.grad(y, x, g)


@pytest.mark.parametrize("name", BACKWARDS)
def test_gradient_without_memory_of_its_own(driver: Driver, name: str) -> None:
    scheme, sizes = CASES[name]
    x = tensors(**sizes)
    y = solve(x, scheme)
    g = torch.randn_like(y)
    zero = torch._efficientzerotensor(y.shape, dtype=y.dtype)
    assert not any(t.any() for t in torch.autograd.grad(y, x, zero, retain_graph=True))
    wanted = torch.autograd.grad(y, x, g, retain_graph=True)
    close(torch.autograd.grad(y, x, torch._neg_view(-g)), wanted)


def test_several_graphs(driver: Driver) -> None:
    """Two forward passes before a backward pass, retained graphs, one solve inside another."""
    x, z = tensors(), tensors(seed=2)
    first, second = loss(x), loss(z)
    for keep in (True, False):
        close(torch.autograd.grad(first, x, retain_graph=keep), gradients(x, "cpu"))
    close(torch.autograd.grad(second, z), gradients(z, "cpu"))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(first, x)
    c, d, u, s = x
    chained = [
        torch.autograd.grad(
            solve([c, solve([c, d, u, s], backend=backend)[..., 0], u, s], backend=backend).sum(), x
        )
        for backend in ("gpu", "cpu")
    ]
    close(*chained)


def test_second_derivatives(driver: Driver) -> None:
    found = []
    for backend in ("gpu", "cpu"):
        x = tensors()
        first = torch.autograd.grad(loss(x, backend), x, create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in first), x))
    close(*found)


@pytest.mark.parametrize("name", [*BACKWARDS, "reduction"])
def test_failed_samples_leave_gradients_of_the_others(driver: Driver, name: str) -> None:
    """Also of tensors that the samples share."""
    scheme, sizes = CASES[name]
    c, d, u, s = (x.detach() for x in tensors(**(sizes | {"batch": (3,)})))
    d[1, 2] = torch.nan
    x = [t.requires_grad_() for t in (c[:1].clone(), d, u, s)]
    found = []
    for backend in ("gpu", "cpu"):
        y, info = smnn.solve_ex(*x, scheme=scheme, backend=backend)
        assert info.status.tolist() == [0, 2, 0]
        found.append(torch.autograd.grad(y[[0, 2]].square().sum(), x))
    close(*found)
    assert "clear_failed" in driver.launched
    assert not any(g[1].any() for g in found[0][1:])


def test_vectorized_jacobian(driver: Driver) -> None:
    x = tensors()
    y = solve(x)
    many = torch.randn(3, *y.shape, dtype=y.dtype)
    found = torch.autograd.grad(y, x, many, is_grads_batched=True)
    one = [torch.autograd.grad(solve(x, backend="cpu"), x, g) for g in many]
    close(found, [torch.stack(gs) for gs in zip(*one, strict=True)])


def test_tensor_changed_in_place(driver: Driver) -> None:
    x = tensors()
    y = solve(x)
    with torch.no_grad():
        x[0].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_hooks_that_repack_saved_tensors(driver: Driver) -> None:
    c, d, u, s = (x.detach() for x in tensors(batch=(4,), T=5, V=1, Q=1, R=1))
    x = [t.requires_grad_() for t in (c[::2], d[:1].expand(2, *d.shape[1:]), u[:2], s[:2])]
    seen: list[Tensor] = []
    pack = (lambda t: seen.append(t) or t.contiguous() + 0), (lambda t: t)  # type: ignore[func-returns-value]
    with torch.autograd.graph.saved_tensors_hooks(*pack):
        y = solve(x)
    assert len(seen) == 7
    close(torch.autograd.grad(y.sum(), x), torch.autograd.grad(solve(x, backend="cpu").sum(), x))


def test_hooks_must_not_change_the_dtype(driver: Driver) -> None:
    """The kernels would read past the end of a tensor; the status of the samples is an integer."""
    x = tensors()
    changes: tuple[Callable[[Tensor], Tensor], ...] = (Tensor.float, lambda t: t + 0.0)
    for change, message in zip(changes, ("got Float on cpu; expected Double", "expected Long")):
        with torch.autograd.graph.saved_tensors_hooks(change, lambda t: t):
            y = solve(x)
        with pytest.raises(RuntimeError, match=f"saved tensor: .*{message}"):
            y.sum().backward()


def test_tensor_without_memory_is_refused(driver: Driver) -> None:
    c, d, u, s = tensors("")
    zero = torch._efficientzerotensor(d.shape, dtype=d.dtype)
    solve([c, d, u, s])
    with pytest.raises(RuntimeError, match=r"d is a ZeroTensor.*torch\.zeros"):
        smnn.solve(c, zero, u, s, backend="gpu")


def test_thread_without_a_context(driver: Driver) -> None:
    """Autograd runs in a thread that the CUDA driver does not know."""
    x, found = tensors(), list[Tensor]()
    solve(x)
    thread = threading.Thread(target=lambda: found.extend(gradients(x)))
    thread.start()
    thread.join()
    close(found, gradients(x, "cpu"))
    assert driver.contexts == {threading.get_ident(): 4321, thread.ident: 4321}


def test_launch_that_fails(driver: Driver) -> None:
    x = tensors("")
    solve(x)
    driver.refused = driver.launched[0]
    with pytest.raises(RuntimeError, match="could not be launched: CUDA driver error 700"):
        solve(x)


def test_graph_outlives_its_plan(driver: Driver) -> None:
    x = tensors()
    total = loss(x)
    plan._plans.clear()
    gc.collect()
    close(torch.autograd.grad(total, x), gradients(x, "cpu"))


# ---------------------------------------------------------------- compiled autograd


def compiled(backend: Any = "eager") -> Any:
    return compiled_autograd._enable(torch.compile(backend=backend))


@pytest.mark.parametrize("kind", ["eager", "aot_eager"])
def test_compiled_autograd(driver: Driver, kind: str) -> None:
    """Several plans, layouts and sets of gradients in turns: no compiled graph is mistaken."""
    c, d, u, s = (x.detach() for x in tensors(batch=(4,), T=5, V=1, Q=1, R=1))
    views = [t.requires_grad_() for t in (c[::2], d[:1].expand(2, *d.shape[1:]), u[:2], s[:2])]
    inputs = [tensors(), views, tensors(batch=(3,), T=4, V=1, Q=1, R=1), tensors("c"), tensors("s")]
    for x in inputs * 2:
        with compiled(kind):
            found = gradients(x)
        close(found, gradients(x, "cpu"))


def test_autograd_is_compiled(driver: Driver) -> None:
    """Otherwise the test above would show nothing."""
    graphs = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return graph

    x = tensors()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t + 0, lambda t: t):
        total = loss(x)
    plan._plans.clear()
    gc.collect()
    with compiled(backend):
        for keep in (True, False):
            close(torch.autograd.grad(total, x, retain_graph=keep), gradients(x, "cpu"))
    assert graphs


def test_compiled_autograd_as_a_setting_of_the_compiler(driver: Driver) -> None:
    x = tensors()
    uncompiled = torch.compiler.disable(loss)
    with torch._dynamo.config.patch(compiled_autograd=True):
        step = torch.compile(lambda: uncompiled(x).backward(), backend="eager")
        for _ in range(2):
            for t in x:
                t.grad = None
            step()
            close([t.grad for t in x], gradients(x, "cpu"))
