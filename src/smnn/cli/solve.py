"""`smnn solve`: linear ODEs from a small text file."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from smnn.cli._guard import (
    RESULTS,
    AsJson,
    Debug,
    Device,
    WrongUseError,
    chosen_device,
    guarded,
    notices,
    plain,
    remark,
)

if TYPE_CHECKING:
    from smnn.cli._solve_run import Solved


def solve(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Equations, values and a grid.")],
    order: Annotated[
        int | None,
        typer.Option(min=1, max=16, help="Derivatives to carry (default: as many as it takes)."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Another value for a parameter."),
    ] = None,
    backend: Annotated[str, typer.Option(help="auto, or a name that `smnn info` lists.")] = "auto",
    device: Device = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results (default smnn-results/FILE).")
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    r"""Solve linear differential equations that stand in a small text file.

    Lines such as  y'' + 2.1*y = sin(t)  and  y(0) = 1, y'(0) = 0  and  t = 0 .. 10 step 0.01
    with parameters  k = 2.1  and comments after #.

    Writes report.html, solution.csv, solution.png and solution.json.
    """
    with guarded(debug):
        from smnn._util.files import prepare_output
        from smnn.cli import _solve_view as view
        from smnn.cli._solve_run import run
        from smnn.cli._solve_text import read_system

        system = read_system(file, _settings(settings or []))
        where = chosen_device(device)
        folder = prepare_output(out or RESULTS / file.name.split(".")[0])
        words = ["smnn", "solve", str(file), *(f"--set={text}" for text in settings or [])]
        words += [f"--order={order}"] * (order is not None)
        words += [f"--backend={backend}"] * (backend != "auto")
        words += [f"--device={device}"] * (device is not None)
        with notices().status("Solving") as status:
            found = run(
                system, order=order, device=where, backend=backend,
                command=shlex.join([*words, f"--out={folder}"]),
                tick=lambda p: status.update(f"Solving with derivatives up to order {p}"),
            )  # fmt: skip
        report = view.write(found, file.name, folder)
        for text in found.warnings:
            remark(text)
        if as_json:
            typer.echo(json.dumps(view.record(found, file.name), indent=2, allow_nan=False))
        else:
            _show(found, report)


def _settings(texts: list[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.strip() or not value.strip():
            raise WrongUseError(f"--set: got {text!r}; expected NAME=VALUE, as in k=2.1.")
        found[name.strip()] = value.strip()
    return found


def _show(found: Solved, report: Path) -> None:
    from smnn.cli import _solve_view as view
    from smnn.report.tables import rich_table

    console = Console(highlight=False)
    console.print()
    for equation in found.system.equations:
        console.print(f"  [bold]{plain(equation.where.text)}[/]", soft_wrap=True)
    console.print(rich_table(view.state_table(found)))
    for value, meaning in view.summary(found):
        console.print(f"[bold]{value}[/]  {meaning}")
    console.print()
    console.print(f"Values: {plain(str(report.parent / 'solution.csv'))}", soft_wrap=True)
    console.print(f"Report: {plain(str(report))}", soft_wrap=True)
