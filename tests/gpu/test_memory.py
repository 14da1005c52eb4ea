"""A GPU that is too small: what is said about it."""

import pytest
import torch

import smnn
from helpers import random_problem
from smnn._backends import gpu
from smnn._problem import make_problem


@pytest.mark.parametrize(
    ("pieces", "free", "advice"),
    [
        (1, 40_000, r"About \d fit: solve the batch in parts"),
        (1, 100, "Not even one fits"),
        (gpu.REDUCED, 300_000, r"About \d fit: solve the batch in parts"),
        (gpu.REDUCED, 40_000, "Not even one fits"),
    ],
)
def test_lack_of_memory_is_explained(
    monkeypatch: pytest.MonkeyPatch, pieces: int, free: int, advice: str
) -> None:
    def full(*args: object, **kw: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(gpu, "_inputs", full)
    monkeypatch.setattr(gpu.Reduction, "solve", full)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 2**30))
    problem, _ = make_problem(*random_problem(0, T=50, V=1, Q=1, R=2, batch=(8,)).args)
    message = rf"not enough GPU memory for 8 samples of 50 times: .* of 1\.0 free\. {advice}"
    with pytest.raises(smnn.BackendError, match=message):
        gpu.GpuBackend().solve(problem, pieces)
