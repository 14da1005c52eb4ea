"""Calls in a forked copy of this process, with limits set by the system."""

import os
import resource
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

from killing import ended


def limited(
    call: Callable[[], object], *, memory: int | None = None, file_size: int | None = None
) -> tuple[int, str]:
    """Exit code (0 if the call returned) and output of a call that may not take more than this.

    Args:
        call: What to do.
        memory: Bytes of address space beyond what the process has.
        file_size: Bytes of any file; writing more fails as it does on a full disk.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            code, free = 1, resource.RLIM_INFINITY
            try:
                handle = os.open(log, os.O_WRONLY | os.O_CREAT)
                os.dup2(handle, 1)
                os.dup2(handle, 2)
                sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
                if memory is not None:
                    pages = int(Path("/proc/self/statm").read_text().split()[0])
                    most = pages * resource.getpagesize() + memory
                    resource.setrlimit(resource.RLIMIT_AS, (most, most))
                if file_size is not None:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, free))
                call()
                code = 0
            except BaseException as error:
                resource.setrlimit(resource.RLIMIT_FSIZE, (free, free))
                print(f"{type(error).__name__}: {error}", flush=True)
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(code)
        code = ended(child, 60.0)
        return code, log.read_text() if log.exists() else ""
