"""`smnn info`: versions, devices and backends."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from smnn.cli._guard import AsJson, Debug, guarded, plain

EXTRAS = {
    "discovery": ("pandas", "scikit-learn", "sympy"), "forecasting": ("h5netcdf", "h5py", "xarray"),
    "training": ("pytorch-lightning", "safetensors"), "peers": ("pysindy", "torchdiffeq"),
}  # fmt: skip
"""Optional packages by the extra that installs them."""


def info(as_json: AsJson = False, debug: Debug = False) -> None:
    """Show versions, devices and which backends are usable, and why."""
    with guarded(debug):
        found = collect()
        if as_json:
            typer.echo(json.dumps(found, indent=2))
        else:
            _show(found)


def collect() -> dict[str, Any]:
    """Return all information as JSON-compatible values."""
    import torch

    from smnn import available_backends
    from smnn._solver.plan import choose_backend
    from smnn._util.machine import PACKAGES, describe_machine, package_versions

    machine = describe_machine()
    others = tuple(name for names in EXTRAS.values() for name in names)
    machine["versions"] = package_versions((*PACKAGES, "triton", "matplotlib", *others))
    cuda = torch.cuda.is_available()
    devices = (
        [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if cuda else []
    )
    backends = {
        name: {
            "usable": reason is None,
            "reason": reason,
            "because": _requirements(name, machine, devices) if reason is None else None,
        }
        for name, reason in available_backends().items()
    }
    kinds = ["cpu", *(["cuda"] if cuda else [])]
    # The backend that `auto` selects for typical block sizes.
    auto = {kind: choose_backend("auto", torch.device(kind), 3).name for kind in kinds}
    return {"machine": machine, "cuda_devices": devices, "backends": backends, "auto": auto}


def _requirements(name: str, machine: dict[str, Any], devices: list[str]) -> str:
    """Describe what a usable backend runs on."""
    from smnn._solver.gpu.launcher import described

    versions, threads = machine["versions"], machine["threads"]
    texts = {
        "cpu": f"llvmlite {versions['llvmlite']} compiles its kernels for this processor; "
        f"{threads} thread{'s' * (threads != 1)}",
        "gpu": f"Triton {versions['triton']} on {', '.join(devices) or 'its interpreter'}"
        + (f"; kernels {described()}" if devices else ""),
        "torch": "tensor operations only; any device with float64",
        "reference": "dense matrices in PyTorch; for small problems and as a reference",
    }
    return texts.get(name, "its requirements are met")


def _show(found: dict[str, Any]) -> None:
    machine = found["machine"]
    console = Console(highlight=False)
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column()
    memory = "" if machine["memory_gib"] is None else f", {machine['memory_gib']} GiB"
    for name, value in (
        ("processor", f"{machine['processor']}, {machine['cores']} cores{memory}"),
        ("threads", str(machine["threads"])),
        ("CUDA devices", ", ".join(found["cuda_devices"]) or "none"),
        ("system", machine["system"]),
        ("Python", machine["python"]),
    ):
        facts.add_row(name, value)
    needed = {package: extra for extra, names in EXTRAS.items() for package in names}
    for name, version in machine["versions"].items():
        hint = f"; pip install 'smnn{plain('[' + needed[name] + ']')}'" if name in needed else ""
        facts.add_row(name, version or f"[dim]not installed{hint}[/]")
    console.print(facts)

    backends = Table(title="Backends", title_justify="left", title_style="bold", box=None)
    backends.add_column("name")
    backends.add_column("usable")
    backends.add_column("reason")
    for name, state in found["backends"].items():
        usable = "[green]yes[/]" if state["usable"] else "[red]no[/]"
        auto = [kind for kind, chosen in found["auto"].items() if chosen == name]
        chosen = f" (auto on {' and '.join(auto)})" if auto else ""
        backends.add_row(name, usable, plain(state["reason"] or state["because"]) + chosen)
    console.print()
    console.print(backends)
