import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Processes that share one core get into each other's way with more threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")

sys.path.insert(0, str(Path(__file__).parent))  # `from training_cases import ...`


@pytest.fixture(scope="module", autouse=True)
def on_the_cpu() -> Iterator[None]:
    """The tests compare bits, so they stay on the CPU; those for a GPU ask for it."""
    from smnn.training import _processes

    chosen = _processes._accelerator
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            _processes,
            "_accelerator",
            lambda config: "cpu" if config.accelerator == "auto" else chosen(config),
        )
        yield
