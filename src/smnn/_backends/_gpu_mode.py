"""In which way the GPU kernels run at the moment."""

from __future__ import annotations

import os

import torch

from smnn._tracing import constant


@constant
def interpreted() -> bool:
    """Whether Triton's interpreter runs the kernels, on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def capturing(device: torch.device) -> bool:
    """Whether a graph records what is launched now, to compute it when that is replayed."""
    if device.type != "cuda":
        return False
    with torch.cuda.device(device):
        return torch.cuda.is_current_stream_capturing()


def settled(device: torch.device) -> bool:
    """Wait until constants that were made on the current stream can be read on any other.

    Returns:
        Whether they can be kept. What a graph captures has no values yet.
    """
    if capturing(device):
        return False
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
    return True
