"""`smnn info`: what is installed, what it runs on, which backends can be used."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from smnn.cli._guard import Debug, guarded


def info(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Show versions, devices and backends."""
    with guarded(debug):
        found = collect()
        if as_json:
            typer.echo(json.dumps(found, indent=2))
        else:
            _show(found)


def collect() -> dict[str, Any]:
    """Everything that is shown, as plain data."""
    import torch

    from smnn import available_backends
    from smnn._machine import PACKAGES, describe_machine, package_versions

    machine = describe_machine()
    machine["versions"] = package_versions((*PACKAGES, "triton", "matplotlib", "torchdiffeq"))
    cuda = torch.cuda.is_available()
    devices = (
        [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if cuda else []
    )
    backends = {
        name: {"usable": reason is None, "reason": reason}
        for name, reason in available_backends().items()
    }
    return {"machine": machine, "cuda_devices": devices, "backends": backends}


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
    for name, version in machine["versions"].items():
        facts.add_row(name, version or "[dim]not installed[/]")
    console.print(facts)

    backends = Table(title="Backends", title_justify="left", title_style="bold", box=None)
    backends.add_column("name")
    backends.add_column("usable")
    backends.add_column("why not")
    for name, state in found["backends"].items():
        usable = "[green]yes[/]" if state["usable"] else "[red]no[/]"
        backends.add_row(name, usable, state["reason"] or "")
    console.print()
    console.print(backends)
