"""Work in a forked copy of this process, with a time limit and with limits set by the system."""

import contextlib
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path


def forked(work: Callable[[], object], log: Path) -> int:
    """Start a copy of this process that does some work and ends; returns its process id."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
        work()
        code = 0
    except BaseException as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        print(f"{type(error).__name__}: {error}", flush=True)
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(code)  # must not close anything of the parent


def ended(child: int, timeout: float) -> int | None:
    """Wait for a process and return its exit code, negative for a signal.

    After `timeout` seconds, kill it and return `None`.
    """
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def limited(
    call: Callable[[], object], *, memory: int | None = None, file_size: int | None = None
) -> tuple[int, str]:
    """Exit code (0 if the call returned) and output of a call with limited resources.

    Args:
        call: What to do.
        memory: Bytes of address space in addition to what the process has.
        file_size: Bytes of any file; writing more fails as it does on a full disk.
    """

    def work() -> None:
        if memory is not None:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            most = pages * resource.getpagesize() + memory
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
        if file_size is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, resource.RLIM_INFINITY))
        call()

    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        code = ended(forked(work, log), 60.0)
        assert code is not None, "the process did not end"
        return code, log.read_text() if log.exists() else ""
