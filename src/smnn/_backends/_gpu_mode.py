"""Whether the GPU kernels run on a GPU."""

from __future__ import annotations

import os

from smnn._tracing import constant


@constant
def interpreted() -> bool:
    """Whether Triton's interpreter runs the kernels, on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"
