"""Peak memory of a call, measured in a separate process.

A first call allocates what is permanent (kernels, threads and their stacks). Two measures:

- `peak`: the high-water mark of the resident memory of the whole process, interpreter included.
- `extra`: the additional memory of the call at its peak. The kernel counts resident pages in
  batches, too coarse for short sequences, but counts mapped pages exactly. Therefore the allocator
  maps every block of at least a page separately, holes in its heap are filled, and the process is
  padded to its largest size so far: everything mapped beyond that belongs to the call.
"""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from _cases import Case

HERE = Path(__file__).resolve().parent
EXACT_MALLOC = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "4096",
    "MALLOC_MMAP_MAX_": "1000000",
    "MALLOC_TRIM_THRESHOLD_": "0",
    "MALLOC_TOP_PAD_": "0",
}


def measure(case: Case, solver: str, grad: bool, threads: int, published: Path | None) -> Any:
    """Bytes as `{"peak": ..., "extra": ...}`; `None` if the system does not report them."""
    if not Path("/proc/self/clear_refs").exists() or not hasattr(ctypes.CDLL(None), "mallinfo2"):
        return None  # needs Linux with glibc 2.33 or newer
    job = {"case": asdict(case), "solver": solver, "grad": grad, "threads": threads}
    job["published"] = None if published is None else str(published.resolve())
    done = subprocess.run(
        [sys.executable, str(HERE / "_memory.py"), json.dumps(job)],
        env={**os.environ, **EXACT_MALLOC}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"memory of {case.label}: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout.splitlines()[-1])


class _Mallinfo(ctypes.Structure):
    """`struct mallinfo2` of glibc."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd",
            "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    )  # fmt: skip


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"{name} is not in /proc/self/status")


def _fill_holes(block: int = 2048) -> None:
    """Fill the free memory of the heap, so that the call maps its own."""
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _Mallinfo
    libc.malloc.restype = ctypes.c_void_p
    before = libc.mallinfo2().arena
    while libc.mallinfo2().arena <= before:
        libc.malloc(ctypes.c_size_t(block))


def _pad_to_peak() -> mmap.mmap | None:
    """Reserve address space up to the largest size that the process has had."""
    missing = _status("VmPeak") - _status("VmSize")
    return mmap.mmap(-1, missing) if missing > 0 else None


def _child(job: dict[str, Any]) -> None:
    import torch

    import smnn
    from _cases import make_data
    from _solvers import load_published

    torch.set_num_threads(job["threads"])
    case = Case(**job["case"])
    if job["solver"] == "published":
        solve = load_published(Path(job["published"])).ode_forward
    else:
        solve = smnn.solve

    def call(c: Tensor, d: Tensor, u: Tensor, s: Tensor) -> None:
        inputs = [x.clone().requires_grad_(job["grad"]) for x in (c, d, u, s)]
        y = solve(*inputs)
        if job["grad"]:
            y.sum().backward()

    data = make_data(case)
    inputs = data.c, data.d, data.u, data.s
    del data
    call(*inputs)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    _fill_holes()
    padding = _pad_to_peak()
    before = _status("VmPeak")
    call(*inputs)
    extra = _status("VmPeak") - before
    del padding
    print(json.dumps({"peak": _status("VmHWM"), "extra": extra}))


if __name__ == "__main__":
    _child(json.loads(sys.argv[1]))
