"""Number formats: those of the weights and the data, and what multiplications use inside."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from smnn.training._config import Precision


def dtype_of(precision: Precision) -> torch.dtype:
    """Of weights and data. With bf16 these stay float32, and multiplications are in bf16."""
    return torch.float64 if precision == "float64" else torch.float32


def convert(module: torch.nn.Module, precision: Precision) -> None:
    """Give real weights and buffers their format; whole and complex numbers keep theirs."""
    if dtype_of(precision) == torch.float64:
        module.double()
    else:
        module.float()


def computing(precision: Precision, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Surroundings of a forward pass."""
    if precision == "bf16":
        return torch.autocast(device.type, torch.bfloat16)
    return contextlib.nullcontext()


@contextlib.contextmanager
def matmul_mode(precision: Precision) -> Iterator[None]:
    """TF32 in float32 multiplications where it was asked for, and only there."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def moved(batch: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """A batch on the device, its floating-point tensors in `dtype`."""
    if isinstance(batch, Tensor):
        if device.type == "cuda" and batch.device.type == "cpu":
            batch = batch.pin_memory().to(device, non_blocking=True)
        return batch.to(device, dtype if batch.is_floating_point() else None)
    if isinstance(batch, dict):
        return {key: moved(value, device, dtype) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(moved(value, device, dtype) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(moved(value, device, dtype) for value in batch)
    return batch
