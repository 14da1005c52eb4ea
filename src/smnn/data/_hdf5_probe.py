"""Check in a separate process that the HDF5 library can read a file.

The library assumes well-formed files. Some damaged ones (about one in several thousand in fuzzing)
send it into an endless loop that Python's signals cannot interrupt. The process imports h5py only,
visits every object and attribute, and reads the small ones.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SECONDS = 60.0
"""Time for the trial; it takes a fraction of one."""
SCRIPT = """
import sys, h5py
def tried(call):
    try:
        return call()
    except Exception:
        return None
def values(item):
    if item.external or item.is_virtual:
        return
    if item.size is not None and item.size <= 100000:
        item[()]
    elif item.shape:
        item[(0,) * len(item.shape)]
def look(item, depth):
    for key in tried(lambda: list(item.attrs)) or ():
        tried(lambda: item.attrs[key])
    if isinstance(item, h5py.Dataset):
        tried(lambda: values(item))
    elif isinstance(item, h5py.Group) and depth < 8:
        for name in (tried(lambda: list(item)) or ())[:10000]:
            if isinstance(tried(lambda: item.get(name, getlink=True)), h5py.HardLink):
                look(tried(lambda: item[name]), depth + 1)
with h5py.File(sys.argv[1], "r") as file:
    look(file, 0)
"""
_FINE = (0, 1)
"""Exit codes of Python: no exception, or one that our own reading will tell."""


def deadly(path: Path) -> str | None:
    """What the library does with a file that it should not, in words; `None` if it is fine."""
    command = [sys.executable, "-I", "-c", SCRIPT, str(path)]
    try:
        done = subprocess.run(
            command, timeout=SECONDS, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"the HDF5 library does not come to an end with it within {SECONDS:.0f} s"
    except OSError:  # no other process can be started here
        return None
    return "the HDF5 library crashes on it" if done.returncode not in _FINE else None
