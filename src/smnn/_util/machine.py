"""Devices that can be used, and a description of the machine, stored with every result."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

PACKAGES = ("smnn", "torch", "numpy", "llvmlite", "scipy")


def describe_machine() -> dict[str, Any]:
    """Return processor, system and package versions; nothing that identifies a person or a host."""
    import torch

    return {
        "processor": _processor(), "cores": os.cpu_count(), "threads": torch.get_num_threads(),
        "memory_gib": _memory_gib(), "system": f"{platform.system()} {platform.machine()}",
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(), "versions": package_versions(PACKAGES),
        "utc": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }  # fmt: skip


def package_versions(names: tuple[str, ...]) -> dict[str, str | None]:
    """Return the installed versions; `None` for packages that are not installed."""
    versions: dict[str, str | None] = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, OSError, ValueError):
        return None


def usable_device(name: str | None = None) -> torch.device:
    """Return the device of that name; by default CUDA if it is available.

    Raises:
        ValueError: It is neither a CPU nor a CUDA device, or not available.
    """
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name is None:
        return torch.device("cuda" if count else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"got {name!r}; expected cpu or cuda.")
    if device.type == "cuda" and not count:
        raise ValueError("there is no CUDA device here; use cpu. `smnn info` says why.")
    if device.type == "cuda" and (device.index or 0) >= count:
        raise ValueError(f"got {name!r}; there are {count} CUDA devices, from 0 on.")
    return device
