"""Install the test dependencies: by hash if the lock supports this platform, else by version.

    .venv/bin/python tools/install.py            used by `make test`
    .venv/bin/python tools/install.py --strict   used by `make locked`: by hash, or fail

Runs in a new environment, so it imports only the standard library. A wrong hash aborts the
installation. If the lock cannot be used for another reason (another platform, a file that is not
available), a message is printed and packages are installed by version. torch is always installed by
version; see the header of the lock file.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = "discovery,experiments,peers,test"
PINNED = ("-c", str(ROOT / "constraints.txt"))
LOCKED = (
    ("install", "--no-deps", "--require-hashes", "-r", str(ROOT / "requirements-ci.lock")),
    ("install", *PINNED, "torch"),
    ("install", "--no-deps", "--no-build-isolation", "-e", str(ROOT)),
    ("check",),
)
BY_VERSION = (
    ("install", *PINNED, "hatchling", "editables"),
    ("install", *PINNED, "--no-build-isolation", "-e", f"{ROOT}[{EXTRAS}]"),
)
COMES_WITH_PYTHON = {"pip", "setuptools", "wheel"}
Pip = Callable[[Sequence[str]], tuple[int, str]]


def pip(arguments: Sequence[str]) -> tuple[int, str]:
    """Run pip in this environment and return its exit status and output."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(
        [*command, "--quiet"], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    print(done.stdout, end="", file=sys.stderr, flush=True)
    return done.returncode, done.stdout


def no_hashes(system: str, machine: str, libc: str, python: tuple[int, int]) -> str | None:
    """Reason why the lock cannot be used on a platform, or `None`."""
    if (system, libc) != ("Linux", "glibc") or machine not in ("x86_64", "aarch64"):
        return f"it has hashes for Linux with glibc, and this is {system} {machine} {libc}"
    if python not in ((3, 11), (3, 12)):
        return f"it has hashes for Python 3.11 and 3.12, and this is {python[0]}.{python[1]}"
    return None


def here() -> str | None:
    """Reason why the lock cannot be used on this machine, or `None`."""
    libc = platform.libc_ver()[0]
    return no_hashes(platform.system(), platform.machine(), libc, sys.version_info[:2])


def differs(complaint: str) -> bool:
    """Whether pip reported a wrong hash."""
    return "DO NOT MATCH THE HASHES" in complaint


def install(run: Pip, why_not: str | None, *, strict: bool = False) -> int:
    """Install all packages and return the exit status."""
    if why_not is None:
        for step in LOCKED:
            status, complaint = run(step)
            if differs(complaint):
                print(
                    "The hash of a file differs from requirements-ci.lock; the file was not "
                    "installed. Check where it comes from (pip config debug). To install by "
                    "version instead: make test LOCK=no",
                    file=sys.stderr,
                )
                return 1
            if status:
                why_not = f"pip {step[0]} failed (see above)"
                break
        else:
            print("Installed by hash (requirements-ci.lock); torch by version.")
            return 0
    print(f"Not by hash: requirements-ci.lock cannot be used, {why_not}.", file=sys.stderr)
    if strict:
        return 1
    for step in BY_VERSION:
        status, _ = run(step)
        if status:
            return status
    print("Installed by version (constraints.txt).")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strict", action="store_true", help="install by hash, or fail")
    parser.add_argument("--lock", choices=("yes", "no"), default="yes", help="no: by version")
    options = parser.parse_args()
    if sys.prefix == sys.base_prefix:
        print("not a virtual environment; run make test, which creates one", file=sys.stderr)
        return 2
    why_not = "because LOCK=no was given" if options.lock == "no" else here()
    names = {d.metadata["Name"].lower() for d in metadata.distributions()} - COMES_WITH_PYTHON
    if names and why_not is None:
        print(f"{len(names)} packages are already installed; their files are not verified.")
    return install(pip, why_not, strict=options.strict)


if __name__ == "__main__":
    sys.exit(main())
