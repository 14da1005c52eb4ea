"""Errors about insufficient GPU memory."""

from types import SimpleNamespace

import pytest
import torch

import smnn
from helpers import random_problem
from solver.internals import gpu, make_problem


@pytest.mark.parametrize(
    ("pieces", "free", "advice"),
    [
        (1, 40_000, r"About \d fit: solve the batch in parts"),
        (1, 100, "Not even one fits"),
        (gpu.REDUCED, 300_000, r"About \d fit: solve the batch in parts"),
        (gpu.REDUCED, 40_000, "Not even one fits"),
    ],
)
def test_out_of_gpu_memory_error(
    monkeypatch: pytest.MonkeyPatch, pieces: int, free: int, advice: str
) -> None:
    def full(*args: object, **kw: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 2**30))
    problem, _ = make_problem(*random_problem(0, T=50, V=1, Q=1, R=2, batch=(8,)).args)
    message = rf"not enough GPU memory for 8 samples of 50 times: .* of 1\.0 free\. {advice}"
    plan = gpu.GpuBackend().plan(problem, pieces)
    monkeypatch.setattr(plan, "_inputs", full)
    with pytest.raises(smnn.BackendError, match=message):
        plan.solve()


class Loaded:
    """A compiled kernel that can be loaded only on the second attempt."""

    def __init__(self, said: str) -> None:
        self.said = said
        self.function: int | None = None

    def __getitem__(self, grid: tuple[int, int, int]) -> None:
        if self.said:
            said, self.said = self.said, ""
            raise RuntimeError(said)
        self.function = 1


@pytest.mark.parametrize(
    ("said", "kind", "message"),
    [
        ("Triton Error [CUDA]: out of memory", torch.OutOfMemoryError, "no room for nothing"),
        ("Triton Error [CUDA]: device kernel image is invalid", RuntimeError, "image is invalid"),
    ],
)
def test_kernel_that_could_not_be_loaded_is_loaded_later(
    said: str, kind: type[Exception], message: str
) -> None:
    pytest.importorskip("triton")
    from solver.internals import launch

    source = launch.Source()
    source("pass")
    kernel = launch.Kernel("nothing", source, ["B"])
    loaded = Loaded(said)
    kernel.jit = SimpleNamespace(warmup=lambda *args, **kw: loaded)
    with pytest.raises(kind, match=message):
        kernel.on(0, 32)
    assert kernel.on(0, 32) is loaded
    assert loaded.function == 1
