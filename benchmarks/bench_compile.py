"""Time the compilation of the GPU kernels of a solve with its gradients; needs no GPU.

    python benchmarks/bench_compile.py --out bench_compile.json [--only TEXT]

The first call for a shape waits for the compiler; afterwards Triton's cache is used. Every kernel
that a problem launches on a device with the memory of an H200 is compiled for compute capability
9.0 by Triton and NVIDIA's assembler, sequentially and with an empty cache.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from smnn._solver.gpu import backend as gpu
from smnn._solver.gpu.launch import Kernel, Program
from smnn._solver.problem import make_problem
from smnn._util.files import OutputError, write_json
from smnn._util.machine import describe_machine

MEMORY = 140 * 2**30
CAPABILITY = 90
CASES = [  # name, scheme, B, T, V, R
    ("3 unknowns, a batch", "smnn", 512, 50, 1, 2),
    ("3 unknowns, T = 10⁶", "smnn", 1, 1_000_000, 1, 2),
    ("6 unknowns, T = 10⁶", "smnn", 1, 1_000_000, 2, 2),
    ("9 unknowns, a batch", "smnn", 4096, 50, 3, 2),
    ("9 unknowns, T = 10³", "smnn", 1, 1000, 3, 2),
    ("9 unknowns, T = 10⁶", "smnn", 1, 1_000_000, 3, 2),
    ("12 unknowns, a batch", "smnn", 8192, 50, 4, 2),
    ("12 unknowns, T = 10⁵", "smnn", 1, 100_000, 4, 2),
    ("12 unknowns, 64 sequences, T = 10⁴", "smnn", 64, 10_000, 4, 2),
    ("24 unknowns, a batch", "smnn", 512, 50, 8, 2),
    ("24 unknowns, T = 10⁵", "smnn", 1, 100_000, 8, 2),
    ("96 unknowns, a batch", "smnn", 512, 50, 32, 2),
    ("96 unknowns, T = 10³", "smnn", 1, 1000, 32, 2),
    ("256 unknowns, a batch", "smnn", 64, 50, 64, 3),
    ("300 unknowns, a batch", "smnn", 8, 50, 100, 2),
    ("3 unknowns, central, T = 10⁶", "central", 1, 1_000_000, 1, 2),
    ("9 unknowns, central, T = 10⁵", "central", 1, 100_000, 3, 2),
]


@contextmanager
def launches() -> Iterator[dict[tuple[Kernel, int], None]]:
    """Collect the kernels launched in a block and their widths, without running them."""
    found: dict[tuple[Kernel, int], None] = {}

    def note(program: Program, tensors: Any) -> None:
        found.update(dict.fromkeys((x.kernel, x.width) for x in program.launches))

    with mock.patch.object(Program, "run", note):
        yield found


def kernels_of(scheme: str, B: int, T: int, V: int, R: int) -> dict[tuple[Kernel, int], None]:
    """All kernels of a solve and its gradients by `c, d, u, s`; its tensors have no memory."""
    none: dict[str, Any] = {"dtype": torch.float64, "device": "meta"}
    c, d = torch.empty(B, T, V, V, R + 1, **none), torch.empty(B, T, V, **none)
    u, s = torch.empty(B, 1, V, R, **none), torch.empty(B, T - 1, **none)
    one = {f"w_{name}": torch.ones((), **none) for name in ("gov", "init", "smooth")}
    problem, _ = make_problem(c, d, u, s, scheme=scheme, **one)
    backend = gpu.GpuBackend()
    pieces = backend.pieces(B, T, V * (R + 1), 2 if scheme == "central" else 1)
    with launches() as found:
        plan = backend.plan(problem, pieces)
        y, factor, _ = plan.solve()
        backend.plan(problem, pieces).gradients(
            problem.tensors, y, factor, y, [True] * 4 + [False] * 3
        )
    return found


def measure(kernels: dict[tuple[Kernel, int], None]) -> dict[str, Any]:
    """Total compile time in seconds, and that of the slowest kernel."""
    times = {}
    for kernel, width in kernels:
        start = time.perf_counter()
        kernel.compiled_for(CAPABILITY, width)
        times[kernel, width] = time.perf_counter() - start
    longest = max(times, key=lambda key: times[key])
    return {
        "kernels": len(times), "seconds": sum(times.values()),
        "longest": longest[0].name, "longest_seconds": times[longest],
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="", help="only cases whose name contains this text")
    options = parser.parse_args()
    if os.environ.get("TRITON_INTERPRET") == "1":
        parser.error("TRITON_INTERPRET=1 is set; the interpreter does not compile")
    chosen = [case for case in CASES if options.only in case[0]]
    if not chosen:
        parser.error(f"--only: no case has {options.only!r} in its name")
    import triton

    record = {
        "machine": describe_machine(), "triton": triton.__version__, "capability": CAPABILITY,
        "command": "python benchmarks/bench_compile.py", "cases": [],
    }  # fmt: skip
    large = mock.patch.object(gpu, "_memory", return_value=MEMORY)
    # Load Triton's modules and warm up its compiler.
    warm = kernels_of("smnn", 512, 5, 1, 1)
    with tempfile.TemporaryDirectory() as folder, large:
        os.environ["TRITON_CACHE_DIR"] = folder
        measure(warm)
        for name, *shape in chosen:
            os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp(dir=folder)
            found = measure(kernels_of(*shape))
            record["cases"].append({"name": name} | found)
            print(f"{name:38s} {found['kernels']:3d} kernels {found['seconds']:6.1f} s", flush=True)
    try:
        write_json(options.out, record)
    except OutputError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
