"""The C++ launcher: what it launches with which addresses, and how autograd sees it."""

import shutil
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import Tensor

from solver.gpu.pretended_driver import (
    ADJOINT,
    BACKWARD,
    PLACES,
    ROWS,
    SOLVE,
    TOGETHER,
    WAYS,
    Machine,
    N,
    expected,
    tensors,
)
from solver.internals import launcher as gpu_native


@pytest.fixture(scope="module")
def module(launcher: ModuleType) -> ModuleType:
    return launcher


def test_values_and_verdicts(module: ModuleType) -> None:
    machine = Machine(module)
    y, factor, status, rcond, _ = machine.plan(*tensors(""))
    torch.testing.assert_close(y, expected(*tensors("")))
    assert not y.requires_grad
    assert factor.tolist() == [2.0] * N
    assert rcond.tolist() == [0.5] * N
    assert status.tolist() == [0] * N
    with torch.no_grad():
        assert not machine.plan(*tensors())[0].requires_grad
    assert machine.calls == [SOLVE] * 2


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("wanted", ["cdus", "c", "s", "du"])
def test_gradients(module: ModuleType, wanted: str, way: str) -> None:
    machine, g = Machine(module, scratch=N, way=way), torch.randn(N, dtype=torch.float64)
    for _ in range(2):
        x = tensors(wanted)
        leaves = [t for t in x if t.requires_grad]
        ours = torch.autograd.grad(machine.plan(*x)[0], leaves, g)
        theirs = torch.autograd.grad(expected(*x), leaves, g)
        torch.testing.assert_close(ours, theirs)  # that by s is summed over what it was spread to
    backward = [BACKWARD] if way == TOGETHER else [ADJOINT, ROWS]
    assert machine.calls == [SOLVE, *backward] * 2
    assert len(machine.asked) == 1  # the launch of the row gradients is made once


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scratch", [N, 600_000])
def test_memory_is_shared_by_what_does_not_overlap(
    module: ModuleType, scratch: int, way: str
) -> None:
    """Where little is needed it is asked for once, for several things."""
    machine, x = Machine(module, scratch=scratch, way=way), tensors()
    y, factor, *_ = machine.plan(*x)
    torch.testing.assert_close(y, expected(*x))
    assert factor.tolist() == [2.0] * N
    grads = torch.autograd.grad(y.sum(), x)
    want_grads = torch.autograd.grad(expected(*x).sum(), x)
    torch.testing.assert_close(grads, want_grads)
    assert all(g.storage_offset() % 64 == 0 and g.is_contiguous() for g in grads)
    for i, g in enumerate(grads):
        g.fill_(torch.nan)
        torch.testing.assert_close(grads[i + 1 :], want_grads[i + 1 :])


def test_a_gradient_without_memory_is_zero(module: ModuleType) -> None:
    machine, x = Machine(module), tensors()
    zero = torch._efficientzerotensor((N,), dtype=torch.float64)
    for g in torch.autograd.grad(machine.plan(*x)[0], x, zero):
        assert not g.any()
    assert machine.calls == [SOLVE, ADJOINT, ROWS]


def test_two_forwards_before_one_backward(module: ModuleType) -> None:
    machine = Machine(module)
    x, z = tensors(), [2 * t.detach() for t in tensors()]
    first = machine.plan(*x)[0]
    machine.plan(*z)
    torch.testing.assert_close(
        torch.autograd.grad(first.sum(), x), torch.autograd.grad(expected(*x).sum(), x)
    )


def test_second_derivatives_go_through_python(module: ModuleType) -> None:
    machine, x = Machine(module), tensors()
    grads = torch.autograd.grad(machine.plan(*x)[0].square().sum(), x, create_graph=True)
    assert machine.twice == [15]
    assert all(g.requires_grad for g in grads)


def test_a_tensor_changed_in_place_is_noticed(module: ModuleType) -> None:
    machine, x = Machine(module), tensors()
    y = machine.plan(*x)[0]
    with torch.no_grad():
        x[0].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_retained_and_released_graphs(module: ModuleType) -> None:
    machine, x = Machine(module), tensors()
    y = machine.plan(*x)[0].sum()
    first = torch.autograd.grad(y, x, retain_graph=True)
    torch.testing.assert_close(first, torch.autograd.grad(y, x))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(y, x)


class Box:
    """Notes how many launches there had been when nobody kept it any more."""

    def __init__(self, x: Tensor, machine: Machine, found: list[int]) -> None:
        self.x, self._machine, self._found = x, machine, found

    def __del__(self) -> None:
        self._found.append(len(self._machine.calls))


@pytest.mark.parametrize(("scratch", "launches"), [(1, 3), (600_000, 2)])
def test_what_is_kept_is_given_back_before_much_is_asked_for(
    module: ModuleType, scratch: int, launches: int
) -> None:
    """Unless the graph is retained."""
    found: list[int] = []
    machine, x = Machine(module, scratch=scratch), tensors()
    want = torch.autograd.grad(expected(*x).sum(), x)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: Box(t, machine, found), lambda box: box.x
    ):
        y = machine.plan(*x)[0].sum()
    for _ in range(2):
        torch.testing.assert_close(torch.autograd.grad(y, x, retain_graph=True), want)
    torch.testing.assert_close(y.grad_fn.next_functions[0][0](torch.ones(N).double()), want)
    assert found == []
    machine.calls[1:] = []
    torch.testing.assert_close(torch.autograd.grad(y, x), want)
    assert found[:6] == [launches] * 6
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(y, x)


def test_a_failed_backward_may_have_given_all_back(module: ModuleType) -> None:
    machine, x = Machine(module, scratch=600_000), tensors()
    y = machine.plan(*x)[0].sum()
    machine.fails = ROWS
    with pytest.raises(RuntimeError, match="could not be launched: CUDA driver error 700"):
        torch.autograd.grad(y, x)
    machine.fails = 0
    with pytest.raises(RuntimeError, match=r"given back when it failed before.*retain_graph=True"):
        torch.autograd.grad(y, x)


def test_saved_tensor_hooks_see_what_is_kept(module: ModuleType) -> None:
    machine, x, seen = Machine(module), tensors(), []

    def pack(t: Tensor) -> Tensor:
        seen.append(t.shape)
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = machine.plan(*x)[0]
    torch.autograd.grad(y.sum(), x)
    assert len(seen) == 6


def test_hooks_may_repack_what_is_kept(module: ModuleType) -> None:
    machine = Machine(module, strides=(2, 1, 0, 1))
    wide, row, one, s = (torch.randn(n, dtype=torch.float64) for n in (2 * N, N, 1, 1))
    for t in (wide, row, one, s):
        t.requires_grad_()
    x = [wide[::2], row, one.expand(N), s]
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.contiguous() + 0, lambda t: t):
        y = machine.plan(*x)[0]
    c, d, u = (t.detach() for t in x[:3])
    want = [d, c, s.detach().expand(N), u.sum().view(1)]
    found = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(list(found), want)


def test_results_are_ordinary_tensors(module: ModuleType) -> None:
    for wanted in ("", "cdus"):
        machine, x = Machine(module), tensors(wanted)
        y, _, *info = machine.plan(*x)
        torch.testing.assert_close(y, expected(*x))
        assert y.requires_grad == bool(wanted)
        for t, kind in zip(info, (torch.int64, torch.float64, torch.int64), strict=True):
            assert (t.shape, t.dtype, t.stride()) == ((N,), kind, (1,))
            assert not t.requires_grad
            assert t.clone().mul_(2).equal(t + t)


def test_a_tensor_without_memory_is_refused(module: ModuleType) -> None:
    machine, (c, _, u, s) = Machine(module), tensors("")
    zero = torch._efficientzerotensor((N,), dtype=torch.float64)
    with pytest.raises(RuntimeError, match=r"d is a ZeroTensor.*torch\.zeros"):
        machine.plan(c, zero, u, s)
    assert machine.calls == []


def test_wrong_arguments(module: ModuleType) -> None:
    with pytest.raises(TypeError, match="expected c, d, u, s"):
        Machine(module).plan(*tensors("")[:3])


def test_a_thread_that_the_driver_does_not_know(module: ModuleType) -> None:
    """As that of autograd for a device; a launch without a context may end the process."""
    machine, x = Machine(module), tensors()
    assert machine.contexts == {}
    machine.plan(*x)
    found: list[Tensor] = []
    thread = threading.Thread(
        target=lambda: found.extend(torch.autograd.grad(machine.plan(*x)[0].sum(), x))
    )
    thread.start()
    thread.join()
    torch.testing.assert_close(found, list(torch.autograd.grad(expected(*x).sum(), x)))
    assert machine.contexts == {threading.get_ident(): 4320, thread.ident: 4320}  # of device -1


def test_launches_that_python_asks_for(module: ModuleType) -> None:
    """Tensors or addresses, by their place."""
    machine, x = Machine(module), tensors("")
    out = [torch.empty(N, dtype=torch.float64) for _ in range(3)]
    every = [*x, *out, torch.empty(N, dtype=torch.int64), torch.empty(5, dtype=torch.float64)]
    one = SOLVE, 7, 32, 0, [SOLVE, *[0] * 9], [(i + 1, i, 0) for i in range(9)]
    call = module.launcher(
        {"launches": [one, one], "places": 9, "device": "cpu", "functions": machine.functions}
    )
    for args in (every, [t.data_ptr() for t in every]):
        out[0].fill_(0)
        assert call(*args) is None
        torch.testing.assert_close(out[0], expected(*x))
    assert machine.calls == [SOLVE] * 4
    with pytest.raises(TypeError, match="expected 9 tensors or addresses"):
        call(*every[1:])
    with pytest.raises(TypeError):
        call(*every[1:], "an address")
    assert machine.calls == [SOLVE] * 4
    machine.code = 700
    with pytest.raises(RuntimeError, match="could not be launched: CUDA driver error 700"):
        call(*every)


def test_a_launch_that_fails_is_an_error(module: ModuleType) -> None:
    machine = Machine(module, code=700)
    with pytest.raises(RuntimeError, match="could not be launched: CUDA driver error 700"):
        machine.plan(*tensors())


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SMNN_CACHE", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert gpu_native.build() == "no C++ compiler, or no headers of Python or torch"


def test_a_compiler_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SMNN_CACHE", str(tmp_path))
    monkeypatch.setenv("CXX", "false")
    assert "the C++ compiler failed" in str(gpu_native.build())
    assert not list(tmp_path.rglob("*.so"))


def test_who_launches_in_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SMNN_CACHE", str(tmp_path))
    monkeypatch.setenv("SMNN_NATIVE", "0")
    assert "SMNN_NATIVE=0" in gpu_native.described()
    monkeypatch.delenv("SMNN_NATIVE")
    monkeypatch.delenv("CXX", raising=False)
    file = gpu_native.compiled_file()
    assert "from Python" in gpu_native.described()
    file.parent.mkdir(parents=True)
    file.touch()
    assert gpu_native.described() == "launched from C++"


class Loaded:
    """Stands in for a compiled kernel: no `function` before it is loaded."""

    metadata = SimpleNamespace(num_warps=1, shared=0)
    function: int | None = None

    def __getitem__(self, grid: tuple[int, int, int]) -> None:
        self.function = 77


def test_a_kernel_that_has_not_run_yet_can_be_described() -> None:
    pytest.importorskip("triton")
    from solver.internals import Kernel, Launch, Slot

    kernel = Kernel.__new__(Kernel)
    kernel.arguments, kernel._compiled, kernel._options = ["B", "y_ptr"], {}, {}
    kernel.jit = SimpleNamespace(warmup=lambda *_, **__: Loaded())
    launch = Launch(kernel, 40, 32, {"B": 40, "y_ptr": Slot("y", 3)})
    ((function, grid, threads, shared, arguments, slots),) = gpu_native.describe([launch], 0, {})
    assert (function, grid, threads, shared) == (77, 2, 32, 0)
    assert (arguments, slots) == ([40, 0], [(1, PLACES["y"], 3)])
