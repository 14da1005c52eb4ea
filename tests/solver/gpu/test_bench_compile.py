"""The benchmark of compile times: which kernels a problem launches, and that they are compiled."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)


@pytest.fixture(scope="module")
def bench() -> Any:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield importlib.import_module("bench_compile")
    sys.path.remove(str(ROOT / "benchmarks"))


@pytest.mark.parametrize(
    ("shape", "names"),
    [
        (("smnn", 512, 50, 1, 2), {"solve_whole", "backward_whole"}),
        (("smnn", 12960, 208, 1, 2), {"solve_whole", "adjoint_held", "row_gradients"}),
        (
            ("smnn", 1, 1_000_000, 3, 2),
            {"block_rows", "link_rows", "reduction_level", "small_back", "small_forward",
             "reduction_residual", "reduction_ratios", "reduction_judge", "reduction_final",
             "row_gradients"},
        ),
    ],
)  # fmt: skip
def test_kernels_of_a_step(
    bench: Any, shape: tuple[Any, ...], names: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that a solve and its gradients launch, without any memory."""
    monkeypatch.setattr(bench.gpu, "_memory", lambda: bench.MEMORY)
    assert {kernel.name for kernel, _ in bench.kernels_of(*shape)} == names


def test_no_shape_has_a_kernel_of_many_lines(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unrolled one of 9,000 lines compiles for some ten seconds, and pieces had more."""
    monkeypatch.setattr(bench.gpu, "_memory", lambda: bench.MEMORY)
    for scheme in ("smnn", "central"):
        for V in (1, 2, 3, 4):
            for B in (1, 49, 500, 3000, 9000):
                for T in (10, 600, 5000, 1_000_000):
                    kernels = bench.kernels_of(scheme, B, T, V, 2)
                    longest = max(kernel.text.count("\n") for kernel, _ in kernels)
                    assert longest < 9_000, (scheme, V, B, T)


def test_what_is_measured(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton.experimental.gluon._runtime")
    monkeypatch.setattr(bench, "CASES", [("some", "smnn", 3, 5, 1, 1)])
    monkeypatch.setattr(sys, "argv", ["bench", "--out", str(tmp_path / "x.json")])
    monkeypatch.setenv("TRITON_CACHE_DIR", "")  # as it was, afterwards
    assert bench.main() == 0
    (case,) = json.loads((tmp_path / "x.json").read_text())["cases"]
    assert case["kernels"] == 2
    assert 0 < case["longest_seconds"] <= case["seconds"]


def test_no_such_case(
    bench: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "--out", "x.json", "--only", "nothing like it"])
    with pytest.raises(SystemExit, match="2"):
        bench.main()
    assert "no case has 'nothing like it' in its name" in capsys.readouterr().err
