"""Vector instructions of the CPU kernels on different processors."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba")

INVERSE_ROOT = """
import sys
import numba as nb
import numpy as np
from numba.extending import intrinsic
from smnn._solver.cpu.lanes import W, instruction

@intrinsic
def inverse_root(typingctx, out, x):
    def body(e, out, x):
        e.store(e.inverse_root(e.load(e.data(1))), e.data(0))
    return instruction([out, x], body)

@nb.njit
def apply(out, x):
    inverse_root(out, x)

draw = np.random.default_rng(0)
worst = 0.0
for _ in range(2000):
    x, out = 10.0 ** draw.uniform(-300, 300, W), np.empty(W)
    apply(out, x)
    exact = 1 / np.sqrt(x.astype(np.longdouble))
    worst = max(worst, float(np.max(np.abs(out - exact) / exact)))
for special in (np.inf, np.nan):
    apply(out, np.full(W, special))
    assert not np.isfinite(out).any() or (out == 0).all()
print(worst)
"""


@pytest.mark.parametrize("processor", [{}, {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}])
def test_inverse_root_is_exact_to_rounding(processor: dict[str, str]) -> None:
    """With the features of this processor, and with those of a generic one."""
    done = subprocess.run(
        [sys.executable, "-c", INVERSE_ROOT],
        env={**os.environ, **processor}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 4e-16


def test_kernel_cache_depends_on_every_source_file() -> None:
    """Otherwise a new version of the package would use kernels compiled from an old one."""
    from smnn._solver.cpu import kernels, pieces

    folder = Path(pieces.__file__).parent
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "backend"}
    assert set(pieces.FILES) == files
    before = pieces.sources()
    assert before == pieces.sources()
    assert kernels.forward.py_func.__closure__[0].cell_contents == before
    assert kernels.backward.py_func.__closure__[0].cell_contents == before
