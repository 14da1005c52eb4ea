"""`smnn discover`: find differential equations in a table of numbers or in fields on a grid."""

from __future__ import annotations

import json
import time as clock
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smnn.cli import _guard as shared
from smnn.cli._guard import WrongUseError, notices, plain, remark, results_folder
from smnn.cli._reading import Text, Texts, by_target, lag, names, reads_data
from smnn.cli.discover.fields import WORKING, discover_field, show

if TYPE_CHECKING:
    from smnn.data import Table

MOST_VARIABLES = 30  # Maximum number of columns, unless they are named
MOST_VALUES = 600_000
"""Maximum number of values (rows times variables); of longer tables, the first rows are used."""


@reads_data
def discover(
    context: typer.Context,
    data: Annotated[Path, typer.Argument(metavar="DATA", help="A table, or fields on a grid.")],
    reading: dict[str, Any],
    inputs: Annotated[str | None, typer.Option(metavar="U,V", help="Input columns.")] = None,
    order: Annotated[
        int | None,
        typer.Option(min=1, max=4, help="Order of the equations; fields: of space derivatives."),
    ] = None,
    library: Annotated[Text, typer.Option(metavar="poly:2,trig", help="Candidate terms.")] = None,
    method: Annotated[str, typer.Option(help="auto, regression, refine, neural.")] = "auto",
    fix: Annotated[Texts, typer.Option(metavar='"x\' : -1*x"', help="Known terms.")] = None,
    forbid: Annotated[Texts, typer.Option(metavar='"x\' : z"', help="Excluded terms.")] = None,
    bound: Annotated[
        Texts, typer.Option(metavar='"x\' : 0 <= x y <= 2"', help="Bounds of a coefficient.")
    ] = None,
    weights: Annotated[Text, typer.Option(metavar="W", help="Column of weights.")] = None,
    kind: Annotated[str, typer.Option(help="ode, or map: from each row to the next.")] = "ode",
    delay: Annotated[
        Text, typer.Option(metavar="1:30", help="Lag of delayed values x_lag, its range, or auto.")
    ] = None,
    varies: Annotated[
        Text, typer.Option(metavar="K", help="Constants, or terms, that differ between series.")
    ] = None,
    hidden: Annotated[int, typer.Option(min=0, max=1, help="1 adds a hidden variable.")] = 0,
    link: Annotated[Text, typer.Option(help="Link function, such as tanh.")] = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="Smallest contribution of a term, as a fraction of its equation."),
    ] = None,
    penalty: Annotated[
        float, typer.Option(help="Sparsity penalty; larger values keep fewer terms.")
    ] = 1.0,
    ensemble: Annotated[
        int, typer.Option(min=0, help="Bootstrap resamples for the intervals; 0 to skip.")
    ] = 20,
    periodic: Annotated[
        bool | None,
        typer.Option("--periodic/--no-periodic", help="Fields: whether space is a circle."),
    ] = None,
    holdout: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Fraction of the end of each series held out.")
    ] = 0.2,
    seed: shared.Seed = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder (default: smnn-results/discover-DATA).")
    ] = None,
    as_json: shared.AsJson = False,
    debug: shared.Debug = False,
) -> None:
    """Find the differential equations behind a table of numbers or fields on a grid.

    Files with series are tables. NetCDF and npz files with arrays over time and space, and MATLAB
    and HDF5 files, are fields, for which partial differential equations are found.

    Writes report.html, model.json, equations.txt, equations.tex, coefficients.csv and, for tables,
    states.csv.
    """
    with shared.guarded(debug, ValueError):
        from smnn._util.files import prepare_output
        from smnn._util.optional import require_extra

        require_extra(("pandas", "sympy", "sklearn"), "discover equations", "discovery")
        from smnn.discovery import (
            Bounds,
            Discovery,
            DiscoveryWarning,
            Report,
            evaluate,
            hold_out,
            holds_field,
        )

        if holds_field(data, reading.get("columns")):
            discover_field(context, data, reading, out, as_json)
            return
        if periodic is not None:
            raise WrongUseError(f"--periodic has no effect for {data.name}, which is a table.")
        fixed = {target: " + ".join(terms) for target, terms in by_target("--fix", fix).items()}
        forbidden = by_target("--forbid", forbid)
        driving = [*(names(inputs) or ()), *([weights] if weights else ())]
        table = _read(data, inputs=driving or None, **reading)
        model = Discovery(
            library=library, order=order or "auto", method=method, threshold=threshold,
            penalty=penalty, ensemble=ensemble, link=link, random_state=seed, kind=kind,
            fixed=fixed or None, forbidden=forbidden or None,
            constraints=[Bounds.parse(text) for text in bound or ()] or None,
            varies=names(varies), delay=lag(delay), hidden=hidden,
        )  # fmt: skip
        folder = prepare_output(out or results_folder("discover", data), Report.FILES)
        with notices().status(WORKING) as status, warnings.catch_warnings():
            warnings.simplefilter("ignore", DiscoveryWarning)  # shown below
            model.set_params(verbose=lambda text: status.update(f"{WORKING}: {plain(text)}"))
            began = clock.perf_counter()
            fitted, held_out = hold_out(table, holdout)
            fitted, weight = fitted.without_input(weights)
            model.fit(fitted, sample_weight=weight)
            evaluation = evaluate(model, held_out.without_input(weights)[0])
            seconds = clock.perf_counter() - began
        for text in model.warnings_:
            if not (text == str(model.verdict_) and not as_json):  # shown with the equations
                remark(text)
        report = Report(model, evaluation, data.name, shared.repeated(context, folder), seconds)
        page = report.write(folder)
        if as_json:
            typer.echo(json.dumps(report.record(), indent=2, allow_nan=False))
        else:
            show(report, page, report.model.summary().splitlines())


def _read(data: Path, **options: Any) -> Table:
    from smnn.discovery import TableError, first_rows, read_table

    table = read_table(data, **options)
    if len(table.names) > MOST_VARIABLES and "columns" not in options:
        raise TableError(
            f"{data.name} has {len(table.names)} columns of numbers; expected at most "
            f"{MOST_VARIABLES} variables. Choose some with --columns."
        )
    notices().print(plain(table.summary()), soft_wrap=True)
    table = first_rows(table, MOST_VALUES)
    for text in [*table.notes, *table.warnings]:
        remark(text)
    return table
