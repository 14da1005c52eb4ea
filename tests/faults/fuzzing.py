"""Many inputs for one reader in a process that must not grow, hang, or execute input.

A batch of inputs runs in a forked copy of this process. There, the system limits memory, a timer
interrupts inputs that take too long, and an audit hook (which cannot be removed) records every
event by which data could be executed: compiled text, started programs, resolved pickles, opened
sockets, files written outside the folder of the input. The parent kills a copy that hangs.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch
from fuzz_targets import Target
from hypothesis import HealthCheck, Phase, given, seed, settings
from internals import hdf5_probe, netcdf
from limits import ended, forked

SECONDS = 20.0
"""Time that one input may take."""
GROWTH = 1 << 30
"""Bytes of address space that a batch may take beyond what the process has."""
_FORBIDDEN = {
    "os.system", "os.exec", "os.forkpty", "subprocess.Popen",
    "socket.connect", "socket.bind", "pickle.find_class", "ctypes.dlopen", "code.__new__",
    "os.startfile", "pty.spawn", "urllib.Request",
}  # fmt: skip


def _of_pytorch(event: str, args: tuple[Any, ...]) -> bool:
    """Whether PyTorch itself causes an event: looking for GPUs, or wrapping by `no_grad`."""
    if event == "ctypes.dlopen":
        return args == ("libnvidia-ml.so.1",)
    acting = sys._getframe(2).f_code.co_filename  # the name in `args` may be anything
    return event == "code.__new__" and acting == torch.utils._contextlib.__file__


def _tried(path: Path) -> str | None:
    """Probe an HDF5 file in a forked copy, which is much faster than starting Python."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            sys.argv = ["", str(path)]
            exec(compile(hdf5_probe.SCRIPT, "trial", "exec"), {})
            code = 0
        finally:
            os._exit(code)
    code = ended(child, SECONDS / 2)  # before the clock strikes
    return None if code in (0, 1) else f"the HDF5 library {'hangs' if code is None else 'dies'}"


class Watch:
    """Record forbidden events with an audit hook."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.active = False
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.active:
            return
        if event in _FORBIDDEN and not _of_pytorch(event, args):
            self.seen.append(f"{event} {args!r}"[:200])
        elif event == "exec":
            # Modules that are imported late come from files; text that is executed does not.
            origin = getattr(args[0], "co_filename", "")
            if origin.startswith("<") and not origin.startswith("<frozen"):
                self.seen.append(f"exec {origin} {getattr(args[0], 'co_name', '')}")
        elif event == "open" and isinstance(args[0], str) and isinstance(args[1], str):
            writes = any(letter in args[1] for letter in "wax+")
            places = ("/dev/", tempfile.gettempdir())
            if writes and not args[0].startswith(places) and not args[0].endswith((".pyc", ".nbi")):
                self.seen.append(f"open {args[0]} {args[1]}")


def _alarm(*_: object) -> None:
    raise TimeoutError(f"an input took more than {SECONDS} s")


def _batch(target: Target, count: int, start: int, report: Path) -> None:
    """Feed inputs and write a report; runs in the forked copy."""
    warnings.simplefilter("ignore")
    netcdf.deadly = _tried
    found: dict[str, Any] = {"inputs": 0, "accepted": 0, "slowest": 0.0, "bugs": [], "acts": []}
    watch = Watch()
    strategy = target.strategy()  # its valid files are made before memory is limited
    for line in Path("/proc/self/statm").read_text().split()[:1]:
        limit = int(line) * resource.getpagesize() + GROWTH
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.signal(signal.SIGALRM, _alarm)

    def one(value: Any) -> None:
        found["inputs"] += 1
        began = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        watch.active = True
        try:
            found["accepted"] += target.feed(value)
        except BaseException as error:
            where = [f for f in traceback.extract_tb(error.__traceback__) if "smnn" in f.filename]
            place = f"{Path(where[-1].filename).name}:{where[-1].lineno}" if where else "?"
            if len(found["bugs"]) < 20:
                what = f"{type(error).__name__}: {str(error)[:200]}"
                found["bugs"].append([what, place, repr(value)[:2000]])
        finally:
            watch.active = False
            signal.setitimer(signal.ITIMER_REAL, 0)
        found["slowest"] = max(found["slowest"], time.monotonic() - began)
        if watch.seen:
            found["acts"] += [[act, repr(value)[:500]] for act in watch.seen]
            watch.seen.clear()

    run = given(strategy)(one)
    run = settings(
        max_examples=count, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck), derandomize=False,
    )(run)  # fmt: skip
    seed(start)(run)()
    found["growth_mib"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    report.write_text(json.dumps(found))


def fuzz(target: Target, count: int, start: int) -> dict[str, Any]:
    """Feed a reader with `count` inputs that follow from `start`.

    Returns:
        `inputs`, `accepted`, `slowest` (seconds), `growth_mib`, `bugs` and `acts`, both empty if
        all is well.
    """
    with tempfile.TemporaryDirectory(prefix="smnn-fuzz-") as folder:
        report, log = Path(folder) / "report", Path(folder) / "log"

        def work() -> None:
            tempfile.tempdir = folder
            _batch(target, count, start, report)

        code = ended(forked(work, log), 60.0 + 2.0 * SECONDS + 0.5 * count)
        if report.exists():
            return dict(json.loads(report.read_text()))
        how = "hung" if code is None else f"ended with {code}"
        bug = [f"the process {how}", "?", log.read_text()[-1500:] if log.exists() else ""]
        return {"inputs": 0, "accepted": 0, "slowest": 0.0, "growth_mib": 0.0, "bugs": [bug],
                "acts": []}  # fmt: skip
