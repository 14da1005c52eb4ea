"""Run the GPU tests in parallel processes and record the outcome of each test.

    python tools/gpu_tests.py --out gpu_tests.json [--processes 8] [--seconds 600] [-- PYTEST ...]

Most of the time is spent compiling kernels, which uses one core per process. Each process runs a
few tests of one file. Tests that have not finished at the time limit are recorded as not run.
Arguments after `--` are passed to pytest; the default is `-m gpu`.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any

from smnn._util.files import OutputError, write_json
from smnn._util.machine import describe_machine

TOGETHER = 10
"""Tests per process; starting a process takes seconds."""
FILLS_THE_DEVICE = "test_full_device.py"  # Runs last and alone
WRONG = ("failed", "error", "crashed")
VERDICT = re.compile(r"^(\S+?\.py::.+?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b")


def pytest_command(*words: str) -> list[str]:
    """A pytest command without cache files."""
    return [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words]


def collected(words: list[str]) -> list[str]:
    """The tests selected by pytest arguments.

    Raises:
        SystemExit: pytest failed or selected no tests.
    """
    done = subprocess.run(
        pytest_command("--collect-only", "-q", *words), capture_output=True, text=True, check=False
    )
    found = [line for line in done.stdout.splitlines() if re.match(r"\S+\.py::", line)]
    if done.returncode or not found:
        sys.exit(f"gpu_tests: pytest selects no test with {words}:\n{done.stdout[-1000:]}")
    return found


def shared_out(tests: list[str]) -> list[list[str]]:
    """Split tests into groups of one file each."""
    parts = []
    for _, own in groupby(tests, key=lambda name: name.split("::")[0]):
        together = [*own]
        parts += [together[i : i + TOGETHER] for i in range(0, len(together), TOGETHER)]
    return parts


class Runs:
    """Runs groups of tests in processes until a time limit.

    Args:
        end: Time limit on the clock of `time.monotonic`.
        options: Pytest arguments for all processes.
    """

    def __init__(self, end: float, options: list[str]) -> None:
        self._end, self._options, self._lock = end, options, threading.Lock()
        self.verdicts: dict[str, str] = {}
        self.outputs: list[str] = []
        """Output of the processes with failed tests."""

    def run(self, tests: list[str]) -> None:
        """Run some tests in a separate process."""
        left = self._end - time.monotonic()
        if left <= 0:
            return
        with tempfile.TemporaryFile("w+") as out:
            process = subprocess.Popen(
                pytest_command("-v", "-rN", "--tb=short", *self._options, *tests), stdout=out,
                stderr=subprocess.STDOUT, env=os.environ | {"PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )  # fmt: skip
            try:
                process.wait(left)
                ended = True
            except subprocess.TimeoutExpired:
                ended = False
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            out.seek(0)
            self._read(tests, out.read(), ended=ended)

    def _read(self, tests: list[str], output: str, *, ended: bool) -> None:
        matches = [VERDICT.match(line) for line in output.splitlines()]
        found = {m[1]: m[2].lower() for m in matches if m and m[1] in tests}
        unfinished = [name for name in tests if name not in found]
        if ended and unfinished:  # the process crashed in this test
            found[unfinished[0]] = "crashed"
        with self._lock:
            self.verdicts |= found
            if {*WRONG} & {*found.values()}:
                self.outputs.append(output[-4000:])
            counts = Counter(self.verdicts.values())
        print(", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="JSON file for the outcomes")
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("pytest", nargs="*", help="after --: pytest arguments")
    options = parser.parse_args()
    words = options.pytest or ["-m", "gpu"]
    start = time.monotonic()
    tests = collected(words)
    where = [word for word in words if Path(word.split("::")[0]).exists()]
    runs = Runs(start + options.seconds, [word for word in words if word not in where])
    alone = [name for name in tests if Path(name.split("::")[0]).name == FILLS_THE_DEVICE]
    with ThreadPoolExecutor(options.processes) as pool:
        list(pool.map(runs.run, shared_out([name for name in tests if name not in alone])))
    for part in shared_out(alone):
        runs.run(part)
    counts = Counter(runs.verdicts.get(name, "not run") for name in tests)
    record: dict[str, Any] = {
        "machine": describe_machine(), "command": f"pytest {' '.join(words)}",
        "seconds": time.monotonic() - start, "counts": dict(counts),
        "tests": {name: runs.verdicts.get(name, "not run") for name in tests},
    }  # fmt: skip
    for output in runs.outputs:
        print(output)
    try:
        write_json(options.out, record)
    except OutputError as error:
        print(error, file=sys.stderr)
        return 1
    passed, failed = counts["passed"], sum(counts[kind] for kind in WRONG)
    print(f"{passed} passed, {failed} failed, {counts['not run']} not run of {len(tests)}")
    return int(failed > 0 or not passed)


if __name__ == "__main__":
    sys.exit(main())
