"""In which way the GPU kernels run at the moment."""

from __future__ import annotations

import os

import torch

from smnn._solver.tracing import constant


@constant
def interpreted() -> bool:
    """Whether Triton's interpreter runs the kernels, on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def settled(device: torch.device) -> bool:
    """Wait until constants that were made on the current stream can be read on any other.

    Returns:
        Whether they can be kept. What a graph captures has no values yet.
    """
    if device.type != "cuda":
        return True
    with torch.cuda.device(device):
        if torch.cuda.is_current_stream_capturing():
            return False
    torch.cuda.current_stream(device).synchronize()
    return True
