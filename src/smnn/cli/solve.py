"""`smnn solve`: linear ODEs from a small text file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from smnn.cli import _guard as shared
from smnn.cli._guard import WrongUseError, guarded, notices, plain, remark

if TYPE_CHECKING:
    from smnn.equations import Solution


def solve(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(
        metavar="FILE", help="Equations, values and a time grid.")],
    order: Annotated[
        int | None,
        typer.Option(
            min=1, max=16, help="Highest derivative to carry (default: raised until it converges)."
        ),
    ] = None,
    scheme: Annotated[str, typer.Option(
        help="auto, hermite, hermite-l, iwp, smnn or central.")] = "auto",
    settings: Annotated[list[str] | None, typer.Option(
        "--set", metavar="NAME=VALUE", help="Change a parameter; may be repeated.")] = None,
    backend: Annotated[str, typer.Option(help="auto, or a name listed by `smnn info`.")] = "auto",
    device: shared.Device = None,
    out: Annotated[Path | None, typer.Option(
        help="Output folder (default: smnn-results/solve-FILE).")] = None,
    as_json: shared.AsJson = False,
    debug: shared.Debug = False,
) -> None:  # fmt: skip
    r"""Solve linear differential equations given in a text file.

    Lines such as  y'' + k*y = sin(t)  and  y(0) = 1, y'(0) = 0  and  t = 0 .. 10 step 0.01
    with parameters  k = 2.1  and comments after #.

    Writes report.html, solution.csv, solution.png and solution.json.
    """
    with guarded(debug):
        from smnn import BackendError
        from smnn._util.files import prepare_output
        from smnn.equations import EquationError, read, report
        from smnn.equations import solve as solve_equations

        try:
            system = read(file, _settings(settings or []))
            where = shared.chosen_device(device)
            folder = prepare_output(out or shared.results_folder("solve", file), report.FILES)
            with notices().status("Solving"):
                solution = solve_equations(
                    system, order=order, scheme=scheme, device=where, backend=backend
                )
        except (EquationError, BackendError) as error:
            raise WrongUseError(str(error)) from error
        record = report.write(
            solution, folder, source=file.name, command=shared.repeated(context, folder)
        )
        for text in solution.warnings:
            remark(text)
        if as_json:
            typer.echo(json.dumps(record, indent=2, allow_nan=False))
        else:
            _show(solution, folder)


def _settings(texts: list[str]) -> dict[str, str]:
    """Parse NAME=VALUE options."""
    found = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.strip() or not value.strip():
            raise WrongUseError(f"--set: got {text!r}; expected NAME=VALUE, as in k=2.1.")
        found[name.strip()] = value.strip()
    return found


def _show(solution: Solution, folder: Path) -> None:
    from smnn.equations import report
    from smnn.report.tables import rich_table

    console = Console(highlight=False)
    console.print()
    for equation in solution.system.equations:
        console.print(f"  [bold]{plain(equation.statement.text)}[/]", soft_wrap=True)
    console.print(rich_table(report.state_table(solution)))
    shared.facts(console, report.summary(solution))
    console.print(f"Values: {plain(str(folder / 'solution.csv'))}", soft_wrap=True)
    console.print(f"Report: {plain(str(folder / 'report.html'))}", soft_wrap=True)
