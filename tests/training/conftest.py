import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# More threads would only slow down processes that share a core.
os.environ.setdefault("OMP_NUM_THREADS", "1")

sys.path.insert(0, str(Path(__file__).parent))  # `from training_cases import ...`


@pytest.fixture(scope="module", autouse=True)
def on_the_cpu() -> Iterator[None]:
    """Run on the CPU unless a test requests a GPU, because results are compared bit for bit."""
    from smnn.training import _processes

    chosen = _processes._accelerator
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            _processes,
            "_accelerator",
            lambda config: "cpu" if config.accelerator == "auto" else chosen(config),
        )
        yield
