"""Run a program written for mech-nn, unchanged, on the solvers of `smnn`."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from smnn.compat import SolverType, install

USAGE = f"""\
usage: python -m smnn.compat [--solver NAME] SCRIPT [ARGUMENTS...]
       python -m smnn.compat [--solver NAME] -m MODULE [ARGUMENTS...]

Run a program written for mech-nn, unchanged, on the solvers of smnn. The folder of the script and
the current folder are searched for its other modules.

NAME is one of {", ".join(member.name.lower() for member in SolverType)} (default: exact).
"""


def main(arguments: list[str]) -> int:
    """Run a script or module with `sys.argv` and `sys.path` as set by Python."""
    rest, solver = list(arguments), None
    if rest[:1] in (["-h"], ["--help"]):
        print(USAGE, end="")
        return 0
    if rest[:1] == ["--solver"]:
        solver, rest = " ".join(rest[1:2]), rest[2:]
    try:
        install(solver)
    except ValueError as error:
        return _refuse(str(error))
    is_module = rest[:1] == ["-m"]
    rest = rest[is_module:]
    if not rest:
        return _refuse(f"no {'module' if is_module else 'script'} given.")
    here = os.getcwd()
    if here not in map(os.path.abspath, sys.path):
        sys.path.insert(0, here)
    target, *sys.argv[1:] = rest
    if is_module:
        runpy.run_module(target, run_name="__main__", alter_sys=True)
        return 0
    script = Path(target)
    if not script.is_file():
        return _refuse(f"{target}: there is no such script.")
    sys.path.insert(0, str(script.resolve().parent))
    sys.argv[0] = target
    runpy.run_path(target, run_name="__main__")
    return 0


def _refuse(reason: str) -> int:
    print(f"error: {reason}\n\n{USAGE}", end="", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
