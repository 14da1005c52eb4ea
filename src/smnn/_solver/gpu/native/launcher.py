"""Load `launcher.cpp`, where it can be compiled: see `extension.py`.

Python takes longer to follow a solve and its derivative than a GPU takes for many of them. The same
kernels, launched from C++, need no Python in the backward. Triton needs a C compiler anyway; where
there is one for C++ too, the file is compiled on first use while Python does the work.
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
"""As `enum Place` numbers them."""
ADJOINT = 16
"""Which program of the backward; those below are the row gradients by which are wanted, alone or
with the adjoint solve."""

_extension = Extension(NAME, SOURCE)
compiled_file, compile_command = _extension.compiled_file, _extension.compile_command
build, native, wait = _extension.build, _extension.native, _extension.wait


def absent_because() -> str | None:
    """Why the kernels are launched from Python, or `None` if they are not."""
    return _extension.reason


def described() -> str:
    """Who launches the kernels, in words; starts nothing."""
    if os.environ.get("SMNN_NATIVE") == "0":
        return "launched from Python (SMNN_NATIVE=0)"
    if compiled_file().is_file():
        return "launched from C++"
    if compile_command(Path(NAME)) is None:
        return "launched from Python (no C++ compiler, or no headers of Python or torch)"
    return "launched from Python until the launcher in C++ is compiled, on first use"


@functools.cache
def cuda_functions() -> dict[str, int | None]:
    """Addresses of functions of the driver, and of torch's way to the current stream."""
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
    """Launches in numbers: function, grid, threads, shared memory, arguments, slots.

    `own` are the places of tensors that these launches call by another name.
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
    """All launches as one call with the tensors, or addresses, of these places.

    `None` while or where that is not compiled.
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
