"""Results are bitwise reproducible, and threads change only the last digits."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import smnn

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).with_name("repeated.py")
SOFT = ("discovery", "forecast", "training")
"""Results of iterations, which may amplify differences in the last digits."""


def run(threads: int, out: Path, *only: str) -> dict[str, np.ndarray]:
    count = str(threads)
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(names, count)}
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(SCRIPT.parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(SCRIPT), count, str(out), *only],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    with np.load(out) as found:
        return dict(found)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, np.ndarray]]:
    """Three processes: one thread, one thread again, two threads."""
    folder = tmp_path_factory.mktemp("runs")
    return [run(threads, folder / f"{i}.npz") for i, threads in enumerate((1, 1, 2))]


def test_same_bits_in_another_process(runs: list[dict[str, np.ndarray]]) -> None:
    first, second, _ = runs
    assert set(first) == set(second)
    assert len(first) > 40
    assert [k for k in first if first[k].tobytes() != second[k].tobytes()] == []


def test_same_numbers_with_two_threads(runs: list[dict[str, np.ndarray]]) -> None:
    """To 1e-12 of the largest entry, 1e-9 after iterations, and 0.5 for estimates."""
    first, _, other = runs
    differences = {
        k: float(np.abs(other[k] - x).max() / max(np.abs(x).max(), 1e-300))
        for k, x in first.items()
    }

    def limit(name: str) -> float:
        return 0.5 if "condition" in name else 1e-9 if name.startswith(SOFT) else 1e-12

    assert {k: e for k, e in differences.items() if e > limit(k)} == {}


def test_same_numbers_with_more_threads_than_cores(
    runs: list[dict[str, np.ndarray]], tmp_path: Path
) -> None:
    """Three and seven threads divide the batch, and long sequences, differently."""
    first = runs[0]
    for threads in (3, 7):
        other = run(threads, tmp_path / "x.npz", "cpu")
        assert len(other) > 20
        for k, x in other.items():
            error = float(np.abs(first[k] - x).max() / np.abs(x).max())
            assert error < (0.5 if "condition" in k else 1e-12), k


def test_threads_share_the_pieces_of_a_long_sequence() -> None:
    """Solution and gradients have the same bits, though the sequence is cut into pieces.

    Sequences of a full batch are not cut: one of sixteen copies differs in its last bits.
    """
    T = 20_000
    t = torch.linspace(0, 200, T, dtype=torch.float64)
    c = torch.stack([2 + t.sin(), 0.1 + 0 * t, 1 + 0 * t], -1).view(T, 1, 1, 3)
    u, s = t.new_tensor([[[1.0, 0.0]]]), t[1:] - t[:-1]
    results = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 3, 7):
            torch.set_num_threads(threads)
            leaves = [c.clone().requires_grad_(), t.cos()[:, None].requires_grad_(), u, s]
            y = smnn.solve(*leaves, order=3)
            results.append([y.detach(), *torch.autograd.grad((y * y.detach().cos()).sum(), leaves[:2])])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(x, y) for x, y in zip(results[0], other, strict=True))
    copies = [x.expand(16, *x.shape).contiguous() for x in (c, t.cos()[:, None], u, s)]
    whole, pieces = smnn.solve(*copies, order=3)[0], results[0][0]
    assert not torch.equal(whole, pieces), "the sequence is not cut into pieces"
    assert (whole - pieces).abs().max() < 1e-11 * whole.abs().max()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_same_bits_on_the_gpu(tmp_path: Path) -> None:
    """In another process: whole sequences, pieces, gradients, a factorization."""
    first, second = (run(1, tmp_path / f"{i}.npz", "gpu") for i in range(2))
    assert len(first) > 20
    assert [k for k in first if first[k].tobytes() != second[k].tobytes()] == []


def test_no_kernel_uses_atomic_additions() -> None:
    """The order of atomic additions is not deterministic."""
    sources = sorted((Path(smnn.__file__).parent / "_solver" / "gpu").rglob("*.py"))
    assert len(sources) > 5
    assert [x.name for x in sources if "atomic" in x.read_text(encoding="utf-8")] == []
