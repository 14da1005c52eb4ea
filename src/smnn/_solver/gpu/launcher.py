"""Launch the kernels of a solve and its derivative from C++ (`launcher.cpp`).

The Python overhead of a solve and its derivative exceeds the GPU time of many problems. The C++
code launches the same kernels, and its backward pass needs no Python. It is compiled in the
background on first use (about 30 s, once for each version of torch, cached on disk); until then,
and without a C++ compiler, the kernels are launched from Python.

`SMNN_NATIVE=0` disables it, `SMNN_NATIVE=wait` waits for the compiler, and `SMNN_CACHE` sets the
directory of the cache.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import hashlib
import importlib.machinery
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

NAME = "_smnn_native"
SOURCE = Path(__file__).with_name("launcher.cpp")
PLACES = (
    "c", "d", "u", "s", "y", "factor", "scratch", "rcond", "weakest", "status",
    "g", "lam", "gc", "gd", "gu", "gs",
)  # fmt: skip
"""Tensors in the order of `enum Place` in `launcher.cpp`."""
ADJOINT = 16  # Index of the adjoint solve; smaller ones are bit masks of row gradients
NO_COMPILER = "no C++ compiler, or no headers of Python or torch"


# ---------------------------------------------------------------- compilation


def compile_command(target: Path) -> list[str] | None:
    """Command that compiles `target`; `None` without a compiler or headers."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    folder = Path(torch.__file__).parent
    headers = [folder / "include", folder / "include/torch/csrc/api/include"]
    python = Path(sysconfig.get_paths()["include"])
    if compiler is None or not headers[0].is_dir() or not (python / "Python.h").is_file():
        return None
    lib = folder / "lib"
    return [
        compiler, "-O1", "-std=c++20", "-shared", "-fPIC", f"-DTORCH_EXTENSION_NAME={NAME}",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *(f"-I{include}" for include in (*headers, python)), str(SOURCE), f"-L{lib}",
        "-lc10", "-ltorch_cpu", "-ltorch_python", f"-Wl,-rpath,{lib}", "-o", str(target),
    ]  # fmt: skip


def compiled_file() -> Path:
    """Cached file for this source, this Python and this torch."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(os.environ.get("SMNN_CACHE") or Path(base) / "smnn")
    facts = f"{sys.version}\0{torch.__version__}\0{Path(torch.__file__).parent}"
    digest = hashlib.sha256(SOURCE.read_bytes() + facts.encode()).hexdigest()[:16]
    return cache / f"native-{digest}" / f"{NAME}{importlib.machinery.EXTENSION_SUFFIXES[0]}"


def build() -> ModuleType | str:
    """The module, compiled if necessary; or the reason why it is not available."""
    try:
        file = compiled_file()
        if not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=file.parent) as folder:
                fresh = Path(folder) / file.name
                if (failure := _compile(fresh)) is not None:
                    return failure
                os.replace(fresh, file)
        spec = importlib.util.spec_from_file_location(NAME, file)
        if spec is None or spec.loader is None:
            return f"{file} is no module"
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    except (OSError, subprocess.SubprocessError, ImportError) as error:
        return f"{type(error).__name__}: {error}"


def _compile(target: Path) -> str | None:
    """Run the compiler; returns the reason of a failure. It is killed when this process exits."""
    command = compile_command(target)
    if command is None:
        return NO_COMPILER
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip
    parent = os.getpid()

    def stop() -> None:
        if os.getpid() == parent:  # not in a forked process
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)

    atexit.register(stop)
    try:
        _, text = process.communicate(timeout=600)
    finally:
        atexit.unregister(stop)
        if process.poll() is None:
            stop()
    if process.returncode == 0:
        return None
    lines = (text.strip() or "no message").splitlines()
    first = next((line for line in lines if "error" in line), lines[0])
    return f"the C++ compiler failed: {first[:300]}"


class _Build:
    """The compiled module, or the reason why it is not available."""

    module: ModuleType | None = None
    reason: str | None = "not requested yet"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def _work(self) -> None:
        found = build()
        if isinstance(found, str):
            self.reason = found
        else:
            self.module, self.reason = found, None

    def native(self) -> ModuleType | None:
        """The module if it is ready. The first call starts the compiler."""
        if self.module is None and self._thread is None:
            setting = os.environ.get("SMNN_NATIVE", "1")
            with self._lock:
                if setting == "0":
                    self.reason = "SMNN_NATIVE=0"
                elif self._thread is None:
                    self.reason = "being compiled"
                    self._thread = threading.Thread(target=self._work, daemon=True)
                    self._thread.start()
                    if setting == "wait" or compiled_file().is_file():
                        self._thread.join()
        return self.module

    def wait(self) -> str | None:
        """Wait for the compiler; returns the reason why there is no module, or `None`."""
        self.native()
        if self._thread is not None:
            self._thread.join()
        return self.reason


_build = _Build()
native, wait = _build.native, _build.wait


def described() -> str:
    """How the kernels are launched, as text; does not start the compiler."""
    if os.environ.get("SMNN_NATIVE") == "0":
        return "launched from Python (SMNN_NATIVE=0)"
    if compiled_file().is_file():
        return "launched from C++"
    if compile_command(Path(NAME)) is None:
        return f"launched from Python ({NO_COMPILER})"
    return "launched from Python until the launcher in C++ is compiled, on first use"


# ---------------------------------------------------------------- launches


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


def describe(launches: list[Any], device: int, own: dict[str, str]) -> list[Any]:
    """Launches as tuples: function, grid, threads, shared memory, arguments, slots.

    `own` maps tensor names of these launches to names in `PLACES`.
    """
    out = []
    for launch in launches:
        kernel = launch.kernel.on(device, launch.width)
        slots = [
            (i, PLACES.index(own.get(tensor, tensor)), offset) for i, tensor, offset in launch.slots
        ]
        threads = 32 * kernel.metadata.num_warps
        arguments = launch.template[:-1]  # the width is part of the compiled kernel
        out.append(
            (kernel.function, launch.grid, threads, kernel.metadata.shared, arguments, slots)
        )
    return out
