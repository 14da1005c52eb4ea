"""The C++ launcher where autograd itself is compiled, which has to carry all that a graph keeps.

Most tests need no GPU, but a pretended driver.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo import compiled_autograd

from solver.gpu import test_device as device
from solver.gpu.pretended_driver import ADJOINT, ROWS, SOLVE, Machine, N, expected, tensors
from solver.internals import launcher as gpu_native

Solve = Callable[..., Tensor]


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Nothing that was compiled for another test."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(kind: str = "eager") -> Any:
    return compiled_autograd._enable(torch.compile(backend=kind))


def of(machine: Machine) -> Solve:
    return lambda *x: machine.plan(*x)[0]


def loss(solve: Solve, x: list[Tensor]) -> Tensor:
    return solve(*(2 * t for t in x)).square().sum()


def want(x: list[Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss(expected, x), [t for t in x if t.requires_grad])


def found(solve: Solve, x: list[Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss(solve, x), [t for t in x if t.requires_grad])


class TestWithoutADevice:
    @pytest.mark.parametrize("kind", ["eager", "aot_eager"])
    def test_gradients(self, launcher: ModuleType, kind: str) -> None:
        machine, x = Machine(launcher), tensors()
        for _ in range(3):
            with compiled(kind):
                torch.testing.assert_close(found(of(machine), x), want(x))
        assert machine.calls == [SOLVE, ADJOINT, ROWS] * 3
        assert machine.twice == []  # no graph of the gradients was asked for

    def test_autograd_was_compiled(self, launcher: ModuleType) -> None:
        """Else all others here show nothing."""
        graphs, x = [], tensors()

        def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
            graphs.append(graph)
            return graph

        with compiled_autograd._enable(torch.compile(backend=backend)):
            found(of(Machine(launcher)), x)
        assert graphs

    def test_other_gradients_of_the_same_solve(self, launcher: ModuleType) -> None:
        machine = Machine(launcher)
        with compiled():
            for wanted in ("cdus", "c", "s", "du", "cdus"):
                x = tensors(wanted)
                torch.testing.assert_close(found(of(machine), x), want(x))
            x = tensors()
            for i, g in enumerate(want(x)):
                (ours,) = torch.autograd.grad(loss(of(machine), x), x[i])
                torch.testing.assert_close(ours, g)
        assert machine.asked == [15, 1, 8, 6, 2, 4]

    def test_plans_in_turns(self, launcher: ModuleType) -> None:
        """What is compiled for one must not remember it."""
        machines, x = [Machine(launcher) for _ in range(2)], tensors()
        with compiled():
            for machine in machines * 2:
                torch.testing.assert_close(found(of(machine), x), want(x))
        assert [m.calls for m in machines] == [[SOLVE, ADJOINT, ROWS] * 2] * 2

    def test_layouts_in_turns(self, launcher: ModuleType) -> None:
        plain, odd = Machine(launcher), Machine(launcher, strides=(2, 1, 0, 1))
        x, g = tensors(), torch.Generator().manual_seed(1)
        z = [torch.randn(n, dtype=torch.float64, generator=g) for n in (2 * N, N, 1, 1)]
        wide, row, one, s = (t.requires_grad_() for t in z)
        with compiled():
            for _ in range(2):
                torch.testing.assert_close(found(of(plain), x), want(x))
                views = wide[::2], row, one.expand(N), s
                ours = torch.autograd.grad(odd.plan(*views)[0].square().sum(), z)
                theirs = torch.autograd.grad(expected(*views).square().sum(), z)
                torch.testing.assert_close(ours, theirs)

    @pytest.mark.parametrize("same", [True, False])
    def test_two_solves_in_one_graph(self, launcher: ModuleType, same: bool) -> None:
        first = Machine(launcher)
        second, x = first if same else Machine(launcher), tensors()

        def chain(a: Solve, b: Solve) -> Solve:
            return lambda c, d, u, s: b(a(c, d, u, s), d, u, s)

        theirs = torch.autograd.grad(loss(chain(expected, expected), x), x)
        with compiled():
            for _ in range(2):
                torch.testing.assert_close(found(chain(of(first), of(second)), x), theirs)

    def test_a_graph_outlives_who_made_it(self, launcher: ModuleType) -> None:
        machine, x = Machine(launcher), tensors()
        total = loss(of(machine), x)
        machine.plan = None
        gc.collect()
        with compiled():
            torch.testing.assert_close(torch.autograd.grad(total, x), want(x))

    def test_retained_and_released_graphs(self, launcher: ModuleType) -> None:
        x = tensors()
        total = loss(of(Machine(launcher)), x)
        with compiled():
            for keep in (True, False):
                ours = torch.autograd.grad(total, x, retain_graph=keep)
                torch.testing.assert_close(ours, want(x))

    def test_hooks_of_what_is_kept(self, launcher: ModuleType) -> None:
        x = tensors()
        with compiled():
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t + 0, lambda t: t):
                total = loss(of(Machine(launcher)), x)
            torch.testing.assert_close(torch.autograd.grad(total, x), want(x))

    def test_as_a_setting_of_the_compiler(self, launcher: ModuleType) -> None:
        machine, x = Machine(launcher), tensors()
        solve = torch.compiler.disable(of(machine))
        with torch._dynamo.config.patch(compiled_autograd=True):
            step = torch.compile(lambda: loss(solve, x).backward(), backend="eager")
            for _ in range(2):
                for t in x:
                    t.grad = None
                step()
                torch.testing.assert_close([t.grad for t in x], list(want(x)))
        assert machine.calls == [SOLVE, ADJOINT, ROWS] * 2


def test_what_a_graph_keeps_is_given_back(launcher: ModuleType) -> None:
    """With the last of the graphs and the plan itself, not before."""
    machine, x = Machine(launcher), tensors()
    seen, total = weakref.ref(machine), loss(of(machine), x)
    machine.plan = None
    del machine
    gc.collect()
    assert seen() is not None
    torch.testing.assert_close(torch.autograd.grad(total, x), want(x))
    del total
    gc.collect()
    assert seen() is None


def test_the_function_has_a_name_of_its_own(launcher: ModuleType) -> None:
    """Compiled autograd tells functions of C++ apart by their names, in all modules together."""
    y = Machine(launcher).plan(*tensors())[0]
    assert "SolveOnGpu" in y.grad_fn.name()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
class TestOnADevice:
    @pytest.fixture(autouse=True)
    def ready(self) -> None:
        reason = gpu_native.wait()
        if reason is not None and reason.startswith(("no C++", "SMNN_NATIVE=0")):
            pytest.skip(reason)
        assert reason is None

    @staticmethod
    def case(T: int, V: int) -> tuple[list[Tensor], Tensor, list[Tensor]]:
        """Leaves, a gradient by the solution, those by the leaves; a plan is remembered."""
        x = device.tensors(T=T, V=V)
        g = torch.randn(40, T, V, 3, dtype=torch.float64, device="cuda")
        for _ in range(3):
            y = device.solve(*x)
        assert "SolveOnGpu" in y.grad_fn.name()
        return x, g, device.expected(x, g)

    @pytest.mark.parametrize(("T", "V"), [(30, 1), (400, 1), (20, 5), (10, 9)])
    def test_gradients(self, T: int, V: int) -> None:
        x, g, theirs = self.case(T, V)
        for _ in range(2):
            with compiled():
                ours = torch.autograd.grad(device.solve(*x), x, g)
            device.close(list(ours), theirs)

    def test_shapes_in_turns(self) -> None:
        cases = [self.case(30, 1), self.case(10, 9), self.case(400, 1)]
        with compiled():
            for x, g, theirs in cases * 2:
                device.close(list(torch.autograd.grad(device.solve(*x), x, g)), theirs)

    def test_a_thread_that_the_driver_does_not_know(self) -> None:
        """As that of autograd where its kernels are loaded already, by code that was compiled."""
        x, found = device.tensors(), []
        for _ in range(3):
            y = device.solve(*x)
        plain = [t.detach() for t in x]
        thread = threading.Thread(target=lambda: found.append(device.solve(*plain)))
        thread.start()
        thread.join()
        (other,) = found
        assert torch.equal(other, y.detach())

    @pytest.mark.parametrize("apart", [True, False])
    def test_as_a_setting_of_the_compiler(self, apart: bool) -> None:
        """Between compiled code, by the C++ launcher; inside it, by the operator."""
        x, g, _ = self.case(30, 1)
        solve = torch.compiler.disable(device.solve) if apart else device.solve
        theirs = device.expected([2 * t.detach() for t in x], g)
        with torch._dynamo.config.patch(compiled_autograd=True):
            # Not `2 * t`: on a GPU, torch 2.11 cannot compile the derivative of that by itself.
            step = torch.compile(lambda: (solve(*(t + t for t in x)) * g).sum().backward())
            for _ in range(2):
                for t in x:
                    t.grad = None
                step()
                device.close([t.grad for t in x], [2 * t for t in theirs])
