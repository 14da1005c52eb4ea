"""A GPU with little free memory: the advice of the error message works."""

import re

import pytest
import torch
from torch import Tensor

import smnn

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
SAMPLES, TIMES = 20_000, 400
MOST = 900 * 2**20
"""Bytes left free: less than the factor of all samples, more than their solution."""


@pytest.fixture(scope="module")
def tensors() -> list[Tensor]:
    """Forced decays."""
    g = torch.Generator(device="cuda").manual_seed(0)
    like = {"dtype": torch.float64, "device": "cuda"}
    c = torch.tensor([1.0, 1.0, 0.0], **like).expand(SAMPLES, TIMES, 1, 1, 3)
    d = torch.randn(SAMPLES, TIMES, 1, generator=g, **like)
    u = torch.randn(SAMPLES, 1, 1, 1, generator=g, **like)
    return [c, d, u, torch.full((SAMPLES, TIMES - 1), 0.1, **like)]


@pytest.fixture(scope="module")
def expected(tensors: list[Tensor]) -> Tensor:
    """Solved before the memory is taken, and moved to the CPU."""
    return smnn.solve_ex(*tensors, backend="gpu")[0].cpu()


@pytest.fixture
def taken(expected: Tensor) -> Tensor:
    """Allocate nearly all memory of the device."""
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    return torch.empty(free - MOST, dtype=torch.uint8, device="cuda")


def test_out_of_memory_advice_works(tensors: list[Tensor], expected: Tensor, taken: Tensor) -> None:
    with pytest.raises(
        smnn.BackendError, match=r"not enough GPU memory for 20,000 samples"
    ) as said:
        smnn.solve_ex(*tensors, backend="gpu")
    message = str(said.value)
    del said  # its traceback holds tensors
    found = re.search(
        r"About ([\d,]+) fit: solve the batch in parts, or with keep_factor=F", message
    )
    assert found, message
    fits = int(found[1].replace(",", ""))
    assert SAMPLES // 8 < fits < SAMPLES
    for start in range(0, SAMPLES, fits):
        part = slice(start, start + fits)
        y = smnn.solve_ex(*(x[part] for x in tensors), backend="gpu")[0]
        # Fewer samples are cut into more pieces.
        torch.testing.assert_close(y.cpu(), expected[part], rtol=1e-12, atol=1e-12)
        del y
        torch.cuda.empty_cache()
    y = smnn.solve_ex(*tensors, backend="gpu", keep_factor=False)[0]
    torch.testing.assert_close(y.cpu(), expected, rtol=1e-12, atol=1e-12)
