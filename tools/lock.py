"""Write requirements-ci.lock: the pins of constraints.txt with the SHA-256 hashes of their files.

    python -m pip download --no-deps -d FOLDER -r constraints.txt
    python tools/lock.py FOLDER [FOLDER ...]

Existing hashes are kept while their pin is unchanged, so files for several Python versions can be
added one folder at a time. torch is excluded; see the header of the lock file.
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename

ROOT = Path(__file__).resolve().parents[1]
LOCK, PINS = ROOT / "requirements-ci.lock", ROOT / "constraints.txt"
UNLOCKED = {"torch"}
"""Packages with several builds of the same version."""


def pins(text: str) -> dict[str, str]:
    """Lines `name==version` by canonical name."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s\\]+)", text, re.MULTILINE)
    return {canonicalize_name(name): f"{name}=={version}" for name, version in found}


def locked(text: str) -> dict[str, set[str]]:
    """Hashes by pin."""
    found: dict[str, set[str]] = {}
    current = ""
    for line in text.splitlines():
        if match := re.match(r"([A-Za-z0-9._-]+==[^\s\\]+)", line):
            current = match[1]
            found[current] = set()
        if match := re.search(r"--hash=sha256:([0-9a-f]{64})", line):
            found[current].add(match[1])
    return found


def files(folder: Path) -> dict[tuple[str, str], set[str]]:
    """Hashes of the files in a folder, by canonical name and version."""
    found: dict[tuple[str, str], set[str]] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix == ".whl":
            name, version, *_ = parse_wheel_filename(path.name)
        elif path.name.endswith((".tar.gz", ".zip")):
            name, version = parse_sdist_filename(path.name)
        else:
            continue
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        found.setdefault((name, str(version)), set()).add(digest)
    return found


def write(hashes: dict[str, set[str]], head: str) -> str:
    """Text of the lock file."""
    parts = [
        " \\\n".join([pin, *(f"    --hash=sha256:{x}" for x in sorted(hashes[pin]))])
        for pin in sorted(hashes, key=str.lower)
    ]
    return head + "\n".join(parts) + "\n"


def main(folders: list[str]) -> int:
    old = LOCK.read_text(encoding="utf-8")
    head = "".join(line + "\n" for line in old.splitlines() if line.startswith("#"))
    before = locked(old)
    hashes: dict[str, set[str]] = {}
    for name, pin in pins(PINS.read_text(encoding="utf-8")).items():
        if name not in UNLOCKED:
            hashes[pin] = set(before.get(pin, set()))
    for folder in folders:
        for (name, version), found in files(Path(folder)).items():
            pin = pins(PINS.read_text(encoding="utf-8")).get(name, "")
            if pin in hashes and pin.split("==")[1] == version:
                hashes[pin] |= found
    if missing := [pin for pin, found in hashes.items() if not found]:
        print(f"no file found for {', '.join(missing)}; run pip download first", file=sys.stderr)
        return 1
    LOCK.write_text(write(hashes, head), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
