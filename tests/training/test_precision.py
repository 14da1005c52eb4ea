"""Precision of weights, network and solver."""

from typing import Any

import pytest
import torch
from short_runs import run
from torch import Tensor
from training_cases import Encoder, Line, line_data, small_data

from smnn._solver.api import solve


class Seen(Encoder):
    """Records the dtypes of its tensors."""

    def losses(self, batch: Any) -> dict[str, Tensor]:
        u, y = batch
        inner = self.net[0](y[:, :12])
        c = self.net[3](torch.tanh(inner)).double()
        c = torch.cat([4 + c, torch.ones_like(c[:, :1])], 1)[:, None, None, None]
        s = u.new_full((1, 1), 0.1, dtype=torch.float64)
        z = solve(c, s.new_zeros(1, 1, 1), u.double()[:, None, None], s, n_steps=y.shape[1])
        mode = torch.get_float32_matmul_precision()
        self.formats = self.net[0].weight.dtype, y.dtype, inner.dtype, z.dtype, mode
        return {"loss": (z[..., 0, 0] - y).square().mean()}


@pytest.mark.parametrize(
    ("precision", "weights", "network", "mode", "tolerance"),
    [
        ("float64", torch.float64, torch.float64, "highest", 1e-12),
        ("float32", torch.float32, torch.float32, "highest", 1e-5),
        ("tf32", torch.float32, torch.float32, "high", 1e-2),
        ("bf16", torch.float32, torch.bfloat16, "highest", 5e-2),
    ],
)
def test_precision(
    precision: str, weights: torch.dtype, network: torch.dtype, mode: str, tolerance: float
) -> None:
    before = torch.get_float32_matmul_precision()
    torch.manual_seed(0)
    task = Seen()
    result = run(task, small_data(), max_steps=10, precision=precision, lr=0.01)
    assert task.formats == (weights, weights, network, torch.float64, mode)
    assert torch.get_float32_matmul_precision() == before
    torch.manual_seed(0)
    exact = run(Seen(), small_data(), max_steps=10, lr=0.01)
    losses, others = ([r["loss"] for r in x.history] for x in (result, exact))
    assert losses == pytest.approx(others, rel=tolerance)


def test_complex_and_integer_tensors_keep_their_dtype() -> None:
    class Complex(Line):
        def __init__(self) -> None:
            super().__init__()
            self.phase = torch.nn.Parameter(torch.tensor([1 + 1j]))
            self.register_buffer("count", torch.tensor(3))

        def losses(self, batch: Any) -> dict[str, Tensor]:
            return {"loss": super().losses(batch)["loss"] + self.phase.abs().square().sum()}

    task = Complex()
    run(task, line_data(), max_steps=5, lr=0.1)
    assert task.phase.dtype == torch.complex64
    assert 0.5 < task.phase.imag.item() < 0.9
    assert task.count.dtype == torch.int64
