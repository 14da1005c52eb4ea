"""From a call to the kernels of its launches, with nothing on a device: which, for what, in order.

Where there is no C++ compiler this is the only way to them, and no GPU is at hand in most tests.
"""

import contextlib
import ctypes
import importlib.util
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import smnn
from smnn._solver import eager
from smnn._solver.gpu.native import launcher as gpu_native

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)


ROWS = {"cdus": "row_gradients"}


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels in the order of their launches, which end here."""
    from smnn._solver.gpu.backend import GpuBackend
    from smnn._solver.gpu.launch import Program

    names: list[str] = []

    def launch(self: Program, bases: dict[str, int], device: int) -> None:
        for one in self.launches:
            missing = {tensor for _, tensor, _ in one.slots} - set(bases)
            assert not missing, f"{one.kernel.jit.__name__} without {missing}"
            names.append(one.kernel.jit.__name__)

    monkeypatch.setenv("SMNN_NATIVE", "0")
    monkeypatch.setattr(Program, "launch", launch)
    monkeypatch.setattr(GpuBackend, "unusable", lambda self: None)
    monkeypatch.setattr(GpuBackend, "unsupported", lambda self, device, n: None)
    monkeypatch.setattr(eager, "_signatures", type(eager._signatures)())
    return names


def test_many_sequences_have_kernels_of_their_own_for_the_rows() -> None:
    """Which fill the bandwidth of the memory; a launch more costs little there."""
    from smnn._solver.gpu import strategy as plans

    def one_launch(B: int, T: int, V: int, m: int, reach: int = 1, pieces: int = 1) -> bool:
        return plans.together(plans.plan(B, T, pieces, V, m, reach))

    assert one_launch(512, 50, 1, 3)
    assert one_launch(64, 1, 1, 2)
    assert one_launch(8192, 10, 1, 5)
    assert not one_launch(12960, 208, 1, 3)
    assert not one_launch(512, 50, 2, 3)
    assert not one_launch(512, 50, 1, 3, reach=2)
    assert not one_launch(512, 500, 1, 3, pieces=8)
    assert not one_launch(512, 50, 1, 3, pieces=0)


@pytest.mark.parametrize("wanted", ["cdus", "c", "du", "s"])
@pytest.mark.parametrize(
    ("V", "T", "solve", "adjoint", "rows"),
    [
        (1, 20, ["solve_whole"], [], {"cdus": "backward_whole"}),
        (2, 20, ["solve_whole"], ["adjoint_held"], ROWS),
        (1, 400, ["eliminate_pieces", "chain_whole", "back_pieces"],
         ["forward_pieces", "adjoint_whole", "back_pieces"], ROWS),
        (5, 20, ["solve_wide"], ["adjoint_wide"], ROWS),
        (9, 20, ["solve_large"], ["adjoint_large"],
         {"cd": "equation_gradients", "us": "variable_gradients"}),
        (22, 5, ["solve_panels"], ["adjoint_large"],
         {"cd": "equation_gradients", "us": "variable_gradients"}),
    ],
    ids=["whole", "larger blocks", "pieces", "a team for each", "tiles", "panels"],
)  # fmt: skip
def test_launches_of_a_step(
    launched: list[str], V: int, T: int, solve: list[str], adjoint: list[str],
    rows: dict[str, str], wanted: str,
) -> None:  # fmt: skip
    f64 = {"dtype": torch.float64}
    c, d = torch.randn(3, T, V, V, 3, **f64), torch.randn(3, T, V, **f64)
    tensors = dict(c=c, d=d, u=torch.randn(3, 1, V, 1, **f64), s=torch.rand(3, T - 1, **f64) + 0.1)
    leaves = [tensors[name].requires_grad_() for name in wanted]
    for _ in range(3):  # the first is like no other before; later ones find it prepared
        launched.clear()
        y, _ = smnn.solve_ex(*tensors.values(), backend="gpu")
        assert launched == solve
        launched.clear()
        grads = torch.autograd.grad(y, leaves, torch.ones_like(y))
        needed = [kernel for names, kernel in rows.items() if set(names) & set(wanted)]
        assert launched == [*adjoint, *needed]
        assert [g.shape for g in grads] == [x.shape for x in leaves]


NOTHING = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0)
"""Stands in for every function of the driver."""


@pytest.fixture
def from_cpp(
    launched: list[str], launcher: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """The same by the C++ launcher, whose kernels do nothing; what was launched from Python."""
    address = ctypes.cast(NOTHING, ctypes.c_void_p).value
    names = ("launch", "context", "context_of", "set_context", "stream")
    loaded = SimpleNamespace(function=1, metadata=SimpleNamespace(num_warps=1, shared=0))
    monkeypatch.setattr("smnn._solver.gpu.launch.Kernel.on", lambda *_: loaded)
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(gpu_native, "native", lambda: launcher)
    monkeypatch.setattr(gpu_native, "cuda_functions", lambda: dict.fromkeys(names, address))
    monkeypatch.setattr(eager, "_latest", {})
    return launched


@pytest.mark.parametrize("batch", [(), (3,), (2, 2)])
def test_a_step_without_python(from_cpp: list[str], batch: tuple[int, ...]) -> None:
    """What C++ gives has the shapes and types of what Python gives, and autograd takes it."""
    f64: dict[str, Any] = {"dtype": torch.float64, "requires_grad": True}
    T = 20
    c, d = torch.randn(*batch, T, 1, 1, 3, **f64), torch.randn(*batch, T, 1, **f64)
    u, s = torch.randn(*batch, 1, 1, 1, **f64), torch.rand(*(1 for _ in batch), T - 1, **f64)
    x = c, d, u, s
    shape = (*batch, T, 1, 3)

    def step(y: Tensor) -> None:
        assert (y.shape, y.dtype) == (shape, torch.float64)
        grads = torch.autograd.grad(y, x, torch.randn(shape, dtype=torch.float64))
        assert [g.shape for g in grads] == [t.shape for t in x]

    for _ in range(3):
        y, info = smnn.solve_ex(*x, backend="gpu")
        assert [t.shape for t in info[:3]] == [batch] * 3
        assert [t.dtype for t in info[:3]] == [torch.int64, torch.float64, torch.int64]
        step(y)
        step(smnn.solve(*x, backend="gpu", check=False))
    assert len(batch) != 1 or "SolveOnGpu" in y.grad_fn.name()
    assert from_cpp == []


def test_launches_are_one_call_where_that_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """And are made from Python until then."""
    from smnn._solver.gpu.launch import Launch, Program, Slot

    made: list[Any] = []
    calls: list[Any] = []
    kernel = SimpleNamespace(
        arguments=["n", "y_ptr", "a_ptr"],
        on=lambda device, width: SimpleNamespace(
            run=lambda *args: calls.append(args[9:]), function=1, packed_metadata=None
        ),
    )
    values = {"n": 7, "y_ptr": Slot("y", 2), "a_ptr": Slot("a")}
    program = Program([Launch(kernel, 64, 32, values)])  # type: ignore[arg-type]
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 5, raising=False)
    monkeypatch.setattr(gpu_native, "launcher", lambda *args: None)
    y = torch.zeros(4)
    program.launch({"y": y, "a": 1000}, 0)
    assert calls == [(7, y.data_ptr() + 16, 1000, 32)]

    def launcher(launches: list[Launch], device: int, places: list[str]) -> Any:
        made.append((launches, device, places))
        return lambda *args: calls.append(args)

    monkeypatch.setattr(gpu_native, "launcher", launcher)
    calls.clear()
    for _ in range(2):
        program.launch({"y": 3, "a": y}, 0)
    assert made == [(program.launches, 0, ["a", "y"])]
    assert calls == [(y, 3)] * 2
