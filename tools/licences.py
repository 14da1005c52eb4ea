"""Check the licences of the installed packages and list them in docs/dependencies.md.

    python tools/licences.py            check against the allowed licences
    python tools/licences.py --write    also write docs/dependencies.md

Reads constraints.txt and the metadata of the installed packages; needs no network.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "dependencies.md"
BEGIN, END = "<!-- packages: written by tools/licences.py -->", "<!-- end of packages -->"

ALLOWED = {
    "MIT", "MIT-0", "MIT-CMU", "BSD-2-Clause", "BSD-3-Clause", "0BSD", "Apache-2.0", "PSF-2.0",
    "Python-2.0", "ISC", "MPL-2.0", "Unlicense", "HPND", "Zlib", "CNRI-Python", "BSL-1.0",
    "CC0-1.0", "Apache-2.0 WITH LLVM-exception", "OFL-1.1", "LLVM-exception", "Bitstream-Vera",
}  # fmt: skip
"""SPDX identifiers of licences compatible with redistribution alongside MIT code; MPL-2.0 requires
publishing changes to the package's own files, and none are changed."""
SAME = {
    "mit": "MIT", "mit license": "MIT", "the mit license (mit)": "MIT", "mit licence": "MIT",
    "bsd": "BSD-3-Clause", "bsd license": "BSD-3-Clause", "new bsd": "BSD-3-Clause",
    "3-clause bsd license": "BSD-3-Clause", "bsd 3-clause": "BSD-3-Clause",
    "bsd-3-clause license": "BSD-3-Clause", "bsd 3-clause license": "BSD-3-Clause",
    "simplified bsd": "BSD-2-Clause", "apache 2.0": "Apache-2.0", "apache": "Apache-2.0",
    "apache license 2.0": "Apache-2.0", "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0", "apache-2.0 license": "Apache-2.0",
    "apache software license 2.0": "Apache-2.0", "apache license version 2.0": "Apache-2.0",
    "psf": "PSF-2.0", "psfl": "PSF-2.0", "python software foundation license": "PSF-2.0",
    "isc license (iscl)": "ISC", "isc license": "ISC",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0", "the unlicense (unlicense)": "Unlicense",
    "dual license": "", "mpl 2.0": "MPL-2.0",
}  # fmt: skip
"""SPDX identifiers for the names used by packages without an SPDX expression."""
KNOWN = {
    "matplotlib": ("PSF-2.0", "licence based on that of Python"),
    "python-dateutil": ("Apache-2.0 OR BSD-3-Clause", "either"),
    "triton": ("MIT", "licence file"),
    "tensorboard-data-server": ("Apache-2.0", "licence of tensorboard"),
}
"""Packages with unclear metadata; determined from their licence files."""
WHY = {
    "torch": "tensors, automatic differentiation, training",
    "numpy": "arrays", "llvmlite": "compiles the CPU solver", "scipy": "reference integrators",
    "matplotlib": "figures of reports", "rich": "tables and progress on the terminal",
    "typer": "the command line", "pandas": "reading tables",
    "narwhals": "reading polars and Arrow tables", "openpyxl": "reading spreadsheets",
    "pyarrow": "reading Parquet and Feather", "polars": "tests of reading tables",
    "scikit-learn": "the interface of estimators", "sympy": "expressions, their derivatives",
    "pytorch-lightning": "launching several processes", "safetensors": "checkpoints without code",
    "tensorboard": "logs of training", "h5netcdf": "reading NetCDF 4", "h5py": "reading HDF5",
    "xarray": "grids with coordinates", "triton": "the GPU solver",
    "fugue": "many series on Dask, Ray or Spark", "zarr": "reading Zarr stores",
    "pysindy": "benchmark comparison for discovery",
    "torchdiffeq": "benchmark comparison for the solver",
    "mkdocs-material": "the documentation", "mkdocstrings": "the API reference",
    "ruff": "style, format", "hypothesis": "tests of properties, fuzzing", "mypy": "types",
    "pytest": "tests", "pytest-xdist": "tests on several cores",
    "hatchling": "building the package", "editables": "installing in place",
}  # fmt: skip


def pins() -> dict[str, str]:
    """Version by canonical name, from constraints.txt."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    found = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", text, re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


def licence(name: str) -> str:
    """Licence of an installed package, as an SPDX expression where possible."""
    if name in KNOWN:
        return KNOWN[name][0]
    about = metadata.metadata(name)
    if expression := about.get("License-Expression"):
        return str(expression)
    named = [
        c.split(" :: ")[-1] for c in about.get_all("Classifier", []) if c.startswith("License ::")
    ]
    short = (about.get("License") or "").strip().splitlines()
    candidates = [*named, *short[:1]]
    for candidate in candidates:
        if SAME.get(candidate.lower(), candidate) in ALLOWED:
            return SAME.get(candidate.lower(), candidate)
    return " / ".join(candidates) or "unknown"


def allowed(expression: str) -> bool:
    """Whether an SPDX expression is satisfied by allowed licences."""
    text = expression.replace("(", " ").replace(")", " ")
    return all(
        any(choice.strip() in ALLOWED for choice in part.split(" OR "))
        for part in text.split(" AND ")
    )


def direct() -> dict[str, list[str]]:
    """Dependency groups of pyproject.toml that require a package directly."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = {"smnn": project["project"]["dependencies"]}
    groups |= project["project"]["optional-dependencies"]
    groups["build"] = [*project["build-system"]["requires"], "editables"]
    found: dict[str, list[str]] = {}
    for group, lines in groups.items():
        for line in lines:
            name = canonicalize_name(Requirement(line).name)
            if name != "smnn":  # extras may include other extras
                found.setdefault(name, []).append(group)
    return found


def needed_by(installed: list[str]) -> dict[str, set[str]]:
    """Pinned packages that require a package; through an extra only if there are no others."""
    found: dict[str, set[str]] = {}
    extras: dict[str, set[str]] = {}
    for name in installed:
        for line in metadata.requires(name) or []:
            wanted = Requirement(line)
            plain = wanted.marker is None or wanted.marker.evaluate({"extra": ""})
            place = found if plain else extras
            place.setdefault(canonicalize_name(wanted.name), set()).add(name)
    return {**extras, **found}


def is_installed(name: str) -> bool:
    """Whether a package is installed."""
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def rows() -> list[str]:
    """Rows of the Markdown table."""
    every = pins()
    asked, users = direct(), needed_by([name for name in every if is_installed(name)])
    out = ["| package | version | licence | purpose |", "|---|---|---|---|"]
    for name, version in sorted(every.items()):
        why = WHY.get(name, "")
        if name in asked:
            why += f" ({', '.join(asked[name])})"
        elif users.get(name):
            why = "needed by " + ", ".join(sorted(users[name])[:4])
        out.append(f"| {name} | {version} | {licence(name)} | {why.strip()} |")
    return out


def problems() -> list[str]:
    """Installed packages with an unexpected version or a licence that is not allowed."""
    found = []
    for name, version in pins().items():
        if not is_installed(name):
            continue
        if metadata.version(name).split("+")[0] != version:
            found.append(f"{name}: found version {metadata.version(name)}; pinned is {version}")
        if not allowed(licence(name)):
            found.append(f"{name}: got licence {licence(name)!r}, which is not allowed")
    return found


def main(words: list[str]) -> int:
    found = problems()
    for problem in found:
        print(problem, file=sys.stderr)
    if "--write" in words:
        missing = [name for name in pins() if not is_installed(name)]
        if missing:
            print(f"not installed: {', '.join(missing)}", file=sys.stderr)
            return 1
        text = PAGE.read_text(encoding="utf-8")
        head, rest = text.split(BEGIN)
        _, tail = rest.split(END)
        PAGE.write_text(head + "\n".join([BEGIN, *rows(), END]) + tail, encoding="utf-8")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
