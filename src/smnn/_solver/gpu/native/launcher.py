"""Load `launcher.cpp`, which launches the kernels without Python (see `extension.py`).

The Python overhead of a solve and its derivative exceeds the GPU time of many problems. The C++
launcher runs the same kernels, and its backward pass needs no Python. It is compiled on first use;
until then the kernels are launched from Python.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from smnn._solver.gpu.native.extension import Extension

NAME = "_smnn_native"
SOURCE = Path(__file__).with_name("launcher.cpp")
PLACES = (
    "c", "d", "u", "s", "y", "factor", "scratch", "rcond", "weakest", "status",
    "g", "lam", "gc", "gd", "gu", "gs",
)  # fmt: skip
"""Tensors in the order of `enum Place` in `launcher.cpp`."""
ADJOINT = 16  # Index of the adjoint solve; smaller ones are bit masks of row gradients

_extension = Extension(NAME, SOURCE)
compiled_file, compile_command = _extension.compiled_file, _extension.compile_command
build, native, wait = _extension.build, _extension.native, _extension.wait


def absent_because() -> str | None:
    """Reason why the kernels are launched from Python, or `None`."""
    return _extension.reason


def described() -> str:
    """How the kernels are launched, as text; does not start the compiler."""
    if os.environ.get("SMNN_NATIVE") == "0":
        return "launched from Python (SMNN_NATIVE=0)"
    if compiled_file().is_file():
        return "launched from C++"
    if compile_command(Path(NAME)) is None:
        return "launched from Python (no C++ compiler, or no headers of Python or torch)"
    return "launched from Python until the launcher in C++ is compiled, on first use"


@functools.cache
def cuda_functions() -> dict[str, int | None]:
    """Addresses of CUDA driver functions, and of torch's function for the current stream."""
    driver = ctypes.CDLL("libcuda.so.1")
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cuda.so"))
    found = {
        "launch": driver.cuLaunchKernel,
        "context": driver.cuCtxGetCurrent,
        "context_of": driver.cuDevicePrimaryCtxRetain,
        "set_context": driver.cuCtxSetCurrent,
        "stream": library.aoti_torch_get_current_cuda_stream,
    }
    return {name: ctypes.cast(f, ctypes.c_void_p).value for name, f in found.items()}


def describe(
    launches: list[Any], device: int, own: dict[str, str], places: Sequence[str] = PLACES
) -> list[Any]:
    """Launches as tuples: function, grid, threads, shared memory, arguments, slots.

    `own` maps tensor names of these launches to names in `places`.
    """
    out = []
    for launch in launches:
        kernel = launch.kernel.on(device, launch.width)
        slots = [
            (i, places.index(own.get(tensor, tensor)), offset) for i, tensor, offset in launch.slots
        ]
        threads = 32 * kernel.metadata.num_warps
        arguments = launch.template[:-1]  # the width is part of the compiled kernel
        out.append(
            (kernel.function, launch.grid, threads, kernel.metadata.shared, arguments, slots)
        )
    return out


def launcher(launches: list[Any], device: int, places: Sequence[str]) -> Any:
    """All launches as one call with the tensors or addresses of `places`.

    `None` if the extension is not available (yet).
    """
    module = native()
    if module is None:
        return None
    return module.launcher(
        {
            "launches": describe(launches, device, {}, places),
            "places": len(places),
            "device": f"cuda:{device}",
            "functions": cuda_functions(),
        }
    )
