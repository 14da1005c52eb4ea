"""Compile and load a C++ extension module in the background, if there is a C++ compiler.

A file is compiled once per version of torch (about 30 s) and cached. `SMNN_NATIVE=0` disables the
extension; `SMNN_NATIVE=wait` waits for the compiler; `SMNN_CACHE` sets the cache directory.
"""

from __future__ import annotations

import atexit
import contextlib
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
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import torch

NOT_YET = "not requested yet"


def cache_folder() -> Path:
    """Directory of compiled files."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("SMNN_CACHE") or Path(base) / "smnn")


class Extension:
    """A module compiled from one C++ file, or the reason why it is not available.

    Args:
        name: Name of the module.
        source: Path of the C++ file.
    """

    def __init__(self, name: str, source: Path) -> None:
        self.name, self.source = name, source
        self.module: ModuleType | None = None
        self.reason: str | None = NOT_YET
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def compile_command(self, target: Path) -> list[str] | None:
        """Command that compiles `target`; `None` without a compiler or headers."""
        compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
        torch_folder = Path(torch.__file__).parent
        headers = [torch_folder / "include", torch_folder / "include/torch/csrc/api/include"]
        python = Path(sysconfig.get_paths()["include"])
        if compiler is None or not headers[0].is_dir() or not (python / "Python.h").is_file():
            return None
        lib = torch_folder / "lib"
        return [
            compiler, "-O1", "-std=c++20", "-shared", "-fPIC",
            f"-DTORCH_EXTENSION_NAME={self.name}",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
            *(f"-I{folder}" for folder in (*headers, python)), str(self.source), f"-L{lib}",
            "-lc10", "-ltorch_cpu", "-ltorch_python", f"-Wl,-rpath,{lib}", "-o", str(target),
        ]  # fmt: skip

    def compiled_file(self) -> Path:
        """Cached file for this source, its headers, this Python and this torch."""
        read = [self.source, *sorted(self.source.parent.glob("*.h"))]
        facts = [file.read_bytes() for file in read]
        facts += [sys.version.encode(), torch.__version__.encode()]
        facts.append(str(Path(torch.__file__).parent).encode())
        digest = hashlib.sha256(b"\0".join(facts)).hexdigest()[:16]
        suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
        return cache_folder() / f"native-{digest}" / f"{self.name}{suffix}"

    def build(self) -> ModuleType | str:
        """The module, compiled if necessary; or the reason why it is not available."""
        try:
            file = self.compiled_file()
            if not file.is_file() and (failure := self._compile(file)) is not None:
                return failure
            spec = importlib.util.spec_from_file_location(self.name, file)
            if spec is None or spec.loader is None:
                return f"{file} is no module"
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
        except (OSError, subprocess.SubprocessError, ImportError) as error:
            return f"{type(error).__name__}: {error}"

    def _compile(self, file: Path) -> str | None:
        """Compile `file`; returns the reason of a failure."""
        if self.compile_command(file) is None:
            return "no C++ compiler, or no headers of Python or torch"
        file.parent.mkdir(parents=True, exist_ok=True)
        with _alone(file.parent), tempfile.TemporaryDirectory(dir=file.parent) as folder:
            if file.is_file():  # another process was first
                return None
            fresh = Path(folder) / file.name
            code, words = _run(self.compile_command(fresh) or [])
            if code:
                last = (words.strip() or "no message").splitlines()
                errors = [line for line in last if "error" in line] or last
                return f"the C++ compiler failed: {errors[0][:300]}"
            os.replace(fresh, file)
        return None

    def _work(self) -> None:
        found = self.build()
        if isinstance(found, str):
            self.reason = found
        else:
            self.module, self.reason = found, None

    def native(self) -> ModuleType | None:
        """The module if it is ready. The first call starts the compiler."""
        if self.module is not None or self.reason != NOT_YET:
            return self.module
        with self._lock:
            wish = os.environ.get("SMNN_NATIVE", "1")
            if wish == "0":
                self.reason = "SMNN_NATIVE=0"
            elif self._thread is None:
                self.reason = "being compiled"
                name = self.name.strip("_").replace("_", "-")
                self._thread = threading.Thread(target=self._work, daemon=True, name=name)
                self._thread.start()
                if wish == "wait" or self.compiled_file().is_file():
                    self._thread.join()
        return self.module

    def wait(self) -> str | None:
        """Wait for the compiler; returns the reason why there is no module, or `None`."""
        self.native()
        if self._thread is not None:
            self._thread.join()
        return self.reason


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock a directory, so that only one process compiles."""
    try:
        import fcntl
    except ImportError:  # no file locks on this system: each process compiles
        yield
        return
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # even if a forked process has the file open


def _run(command: list[str]) -> tuple[int, str]:
    """Run the compiler; returns exit status and standard error. Killed when this process exits."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip
    parent = os.getpid()

    def stop() -> None:
        if os.getpid() != parent:  # inherited by a forked process
            return
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)

    atexit.register(stop)
    try:
        _, words = process.communicate(timeout=600)
    finally:
        atexit.unregister(stop)
        if process.poll() is None:
            stop()
    return process.returncode, words
