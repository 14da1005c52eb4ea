"""Install what the tests need: by hash where the lock has hashes for this machine, else by version.

    .venv/bin/python tools/install.py            what `make test` does
    .venv/bin/python tools/install.py --strict   what `make locked` does: by hash, or not at all

Runs in a new environment, so it imports nothing but the standard library. A file whose hash is
another one than in the lock ends the installation. Anything else that keeps the lock from being
used (another system, an index without one of the files) is told, and versions are what counts then.
torch is installed by version in either case: see the head of the lock.
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
    """Run pip in this environment: its exit status, and what it complained of."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(
        [*command, "--quiet"], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    print(done.stdout, end="", file=sys.stderr, flush=True)
    return done.returncode, done.stdout


def no_hashes(system: str, machine: str, libc: str, python: tuple[int, int]) -> str | None:
    """Why the lock cannot be used here, or `None` if it can."""
    if (system, libc) != ("Linux", "glibc") or machine not in ("x86_64", "aarch64"):
        return f"it has the hashes for Linux with glibc, and this is {system} {machine} {libc}"
    if python not in ((3, 11), (3, 12)):
        return f"it has the hashes for Python 3.11 and 3.12, and this is {python[0]}.{python[1]}"
    return None


def here() -> str | None:
    """Why the lock cannot be used on this machine."""
    libc = platform.libc_ver()[0]
    return no_hashes(platform.system(), platform.machine(), libc, sys.version_info[:2])


def differs(complaint: str) -> bool:
    """Whether pip met a file with another hash."""
    return "DO NOT MATCH THE HASHES" in complaint


def install(run: Pip, why_not: str | None, *, strict: bool = False) -> int:
    """Install, and say by what; the exit status."""
    if why_not is None:
        for step in LOCKED:
            status, complaint = run(step)
            if differs(complaint):
                print(
                    "A file is not the one that requirements-ci.lock names; nothing of it was "
                    "installed. Find out where it comes from (pip config debug). To trust it "
                    "all the same, install by version: make test LOCK=no",
                    file=sys.stderr,
                )
                return 1
            if status:
                why_not = f"pip {step[0]} failed, as said above"
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
    parser.add_argument("--strict", action="store_true", help="by hash, or not at all")
    parser.add_argument("--lock", choices=("yes", "no"), default="yes", help="no: by version")
    options = parser.parse_args()
    if sys.prefix == sys.base_prefix:
        print("this is not a virtual environment: make test makes one", file=sys.stderr)
        return 2
    why_not = "because LOCK=no was given" if options.lock == "no" else here()
    names = {d.metadata["Name"].lower() for d in metadata.distributions()} - COMES_WITH_PYTHON
    if names and why_not is None:
        print(f"{len(names)} packages are here already; their files are not looked at again.")
    return install(pip, why_not, strict=options.strict)


if __name__ == "__main__":
    sys.exit(main())
