"""The part of `smnn discover` for fields on a grid."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from smnn.cli import _guard as shared
from smnn.cli._guard import WrongUseError, notices, plain, remark, results_folder

WORKING = "Looking for equations"
USED = ("data", "order", "library", "forbid", "threshold", "penalty", "periodic", "seed", "out",
        "as_json", "debug", "columns", "time")  # fmt: skip
"""Options with an effect for fields."""


def discover_field(
    context: typer.Context, data: Path, reading: dict[str, Any], out: Path | None, as_json: bool
) -> None:
    """Find the partial differential equations behind fields."""
    from smnn._util.files import prepare_output
    from smnn.discovery import DiscoveryWarning, FieldDiscovery, FieldReport, read_field

    options = _options(context, data)
    field = read_field(data, periodic=options["periodic"], **reading)
    notices().print(plain(field.summary()), soft_wrap=True)
    for text in field.notes:
        notices().print(f"[dim]{plain(text)}[/]", soft_wrap=True)
    model = FieldDiscovery(
        order=options["order"], library=options["library"], threshold=options["threshold"] or 1e-3,
        forbidden=by_target("--forbid", options["forbid"]) or None, penalty=options["penalty"],
        random_state=options["seed"],
    )  # fmt: skip
    folder = prepare_output(out or results_folder("discover", data), FieldReport.FILES)
    with notices().status(WORKING) as status, warnings.catch_warnings():
        warnings.simplefilter("ignore", DiscoveryWarning)  # shown below
        model.set_params(verbose=lambda text: status.update(f"{WORKING}: {plain(text)}"))
        model.fit(field)
    for text in model.warnings_:
        if text not in field.notes and (as_json or text != str(model.verdict_)):
            remark(text)
    report = FieldReport(model, data.name, shared.repeated(context, folder))
    page = report.write(folder)
    if as_json:
        typer.echo(json.dumps(report.record(), indent=2, allow_nan=False))
    else:
        show(report, page, [f"Verdict: {model.verdict_}", *model.equations()])


def _options(context: typer.Context, data: Path) -> dict[str, Any]:
    """The options of the command; raises an error for those without effect."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT" and name not in USED:
            raise WrongUseError(
                f"--{name.replace('_', '-')} has no effect for {data.name}, which holds fields on "
                f"a grid; expected {', '.join(f'--{n}' for n in USED[1:9])}, --columns or --time."
            )
    return context.params


def by_target(option: str, texts: list[str] | None) -> dict[str, list[str]]:
    """`["x' : z, x^2"]` as `{"x'": ["z", "x^2"]}`."""
    found: dict[str, list[str]] = {}
    for text in texts or ():
        target, colon, right = (part.strip() for part in text.partition(":"))
        if not colon or not target or not right:
            raise ValueError(f'{option}: got {text!r}; expected "x\' : terms", as in "x\' : -1*x".')
        found.setdefault(target, []).extend(term.strip() for term in right.split(","))
    return found


def show(report: Any, page: Path, lines: list[str]) -> None:
    """Print a report, of tables or of fields."""
    from smnn.report.tables import rich_table

    console = Console(highlight=False)
    console.print()
    console.print(f"[bold]{plain(lines[0])}[/]")
    console.print()
    for equation in lines[1:]:
        console.print(f"  [bold]{plain(equation)}[/]", soft_wrap=True)
    console.print()
    console.print(rich_table(report.coefficients()))
    shared.facts(console, report.summary())
    console.print(f"Report: {plain(str(page))}", soft_wrap=True)
