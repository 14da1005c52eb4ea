"""Random numbers that follow from one seed and the place where they are drawn.

Generators are seeded anew for every step. So nothing between two steps (a progress bar that draws a
number, an evaluation) changes training, and a checkpoint needs no states of generators.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Iterator

import numpy as np
import torch


def derived_seed(seed: int, *parts: object) -> int:
    """A seed below 2**63 that depends on everything given, and looks like no other."""
    text = "/".join(str(part) for part in (seed, *parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def seed_all(seed: int, device: torch.device) -> None:
    """Seed Python, NumPy, and PyTorch on the CPU and on the device."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.default_generators[torch.cuda.current_device()].manual_seed(seed)


@contextlib.contextmanager
def preserved() -> Iterator[None]:
    """Put the states of the CPU generators back at the end."""
    state, py, np_state = torch.get_rng_state(), random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)
        random.setstate(py)
        np.random.set_state(np_state)
