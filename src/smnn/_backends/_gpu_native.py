"""Compile and load `_gpu_native.cpp`, in the background, where there is a C++ compiler.

Python takes longer to follow a solve and its derivative than a GPU takes for many of them. The same
kernels, launched from C++, need no Python in the backward. Triton needs a C compiler anyway; where
there is one for C++ too, the file is compiled once per version of torch (some 30 s) while Python
does the work. `SMNN_NATIVE=0` leaves Python to it; `SMNN_NATIVE=wait` waits for the compiler.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.machinery
import importlib.util
import os
import shutil
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
SOURCE = Path(__file__).with_name("_gpu_native.cpp")
PLACES = (
    "c", "d", "u", "s", "y", "factor", "scratch", "rcond", "weakest", "status",
    "g", "lam", "gc", "gd", "gu", "gs",
)  # fmt: skip
"""As `enum Place` numbers them."""
ADJOINT = 16
"""Which program of the backward; those below are the row gradients by which are wanted."""


class _State:
    """The module, or why there is none."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.thread: threading.Thread | None = None
        self.module: ModuleType | None = None
        self.reason: str | None = "not asked for yet"


_state = _State()


def cache_folder() -> Path:
    """Where compiled files are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("SMNN_CACHE") or Path(base) / "smnn")


def compile_command(target: Path) -> list[str] | None:
    """What makes `target`, or `None` without a compiler or without the headers it needs."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    torch_folder = Path(torch.__file__).parent
    headers = [torch_folder / "include", torch_folder / "include/torch/csrc/api/include"]
    python = Path(sysconfig.get_paths()["include"])
    if compiler is None or not headers[0].is_dir() or not (python / "Python.h").is_file():
        return None
    lib = torch_folder / "lib"
    return [
        compiler, "-O1", "-std=c++20", "-shared", "-fPIC", f"-DTORCH_EXTENSION_NAME={NAME}",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        *(f"-I{folder}" for folder in (*headers, python)), str(SOURCE), f"-L{lib}",
        "-lc10", "-ltorch_cpu", "-ltorch_python", f"-Wl,-rpath,{lib}", "-o", str(target),
    ]  # fmt: skip


def compiled_file() -> Path:
    """The file for this source, this Python, this torch."""
    facts = [SOURCE.read_bytes(), sys.version.encode(), torch.__version__.encode()]
    facts.append(str(Path(torch.__file__).parent).encode())
    digest = hashlib.sha256(b"\0".join(facts)).hexdigest()[:16]
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    return cache_folder() / f"native-{digest}" / f"{NAME}{suffix}"


def build() -> ModuleType | str:
    """The module, compiled first where that has not been done; or why there is none."""
    try:
        file = compiled_file()
        if not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=file.parent) as folder:
                fresh = Path(folder) / file.name
                command = compile_command(fresh)
                if command is None:
                    return "no C++ compiler, or no headers of Python or torch"
                done = subprocess.run(command, capture_output=True, text=True, timeout=600)
                if done.returncode:
                    last = (done.stderr.strip() or "no message").splitlines()
                    errors = [line for line in last if "error" in line] or last
                    return f"the C++ compiler failed: {errors[0][:300]}"
                os.replace(fresh, file)
        spec = importlib.util.spec_from_file_location(NAME, file)
        if spec is None or spec.loader is None:
            return f"{file} is no module"
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    except (OSError, subprocess.SubprocessError, ImportError) as error:
        return f"{type(error).__name__}: {error}"


def _work() -> None:
    found = build()
    if isinstance(found, str):
        _state.reason = found
    else:
        _state.module, _state.reason = found, None


def native() -> ModuleType | None:
    """The module if it is ready. The first call starts the compiler."""
    if _state.module is not None or _state.reason != "not asked for yet":
        return _state.module
    with _state.lock:
        wish = os.environ.get("SMNN_NATIVE", "1")
        if wish == "0":
            _state.reason = "SMNN_NATIVE=0"
        elif _state.thread is None:
            _state.reason = "being compiled"
            _state.thread = threading.Thread(target=_work, daemon=True, name="smnn-native")
            _state.thread.start()
            if wish == "wait" or compiled_file().is_file():
                _state.thread.join()
    return _state.module


def absent_because() -> str | None:
    """Why the kernels are launched from Python, or `None` if they are not."""
    return _state.reason


def wait() -> str | None:
    """Wait for a compiler at work; gives what `absent_because` then gives."""
    native()
    if _state.thread is not None:
        _state.thread.join()
    return _state.reason


def described() -> str:
    """Who launches the kernels, in words; starts nothing."""
    if os.environ.get("SMNN_NATIVE") == "0":
        return "launched from Python (SMNN_NATIVE=0)"
    if compiled_file().is_file():
        return "launched from C++"
    if compile_command(Path(NAME)) is None:
        return "launched from Python (no C++ compiler, or no headers of Python or torch)"
    return "launched from Python until the launcher in C++ is compiled, on first use"


def cuda_functions() -> tuple[int, int]:
    """Addresses of `cuLaunchKernel` and of torch's way to the current stream."""
    driver = ctypes.CDLL("libcuda.so.1")
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cuda.so"))
    found = driver.cuLaunchKernel, library.aoti_torch_get_current_cuda_stream
    launch, stream = (ctypes.cast(function, ctypes.c_void_p).value for function in found)
    if launch is None or stream is None:
        raise OSError("no address of cuLaunchKernel or of the current stream")
    return launch, stream


def describe(launches: list[Any], device: int, own: dict[str, str]) -> list[Any]:
    """Launches in numbers: function, grid, threads, shared memory, arguments, slots.

    `own` are the places of tensors that these launches call by another name.
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
