"""`smnn discover`: from a table of numbers to the equations behind it."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from smnn.cli._guard import RESULTS, AsJson, Debug, Seed, guarded, notices, plain, remark, repeated

if TYPE_CHECKING:
    from smnn.cli._discover_run import Found
    from smnn.data._tables import Table

MOST_VARIABLES = 30
"""More columns than this are surely not all meant."""
METHODS = ("auto", "regression", "refine", "neural")


def discover(
    context: typer.Context,
    data: Annotated[Path, typer.Argument(metavar="DATA", help="CSV, TSV, .npy, .npz, .json, .nc.")],
    time: Annotated[str | None, typer.Option(help="Column of the times.")] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="X,Y", help="Columns of the variables.")
    ] = None,
    inputs: Annotated[
        str | None, typer.Option(metavar="U,V", help="Columns of external inputs.")
    ] = None,
    series: Annotated[str | None, typer.Option(help="Column that tells series apart.")] = None,
    order: Annotated[
        int | None,
        typer.Option(min=1, max=4, help="Order of the equations (default 1, or 2 if 1 fails)."),
    ] = None,
    library: Annotated[
        str | None, typer.Option(metavar="poly:2,trig", help="Candidate terms.")
    ] = None,
    method: Annotated[str, typer.Option(help=f"{', '.join(METHODS)}.")] = "auto",
    fix: Annotated[
        list[str] | None, typer.Option(metavar='"x\' : -1*x"', help="Known terms. Repeatable.")
    ] = None,
    forbid: Annotated[
        list[str] | None,
        typer.Option(metavar='"x\' : z"', help="Terms that may not appear. Repeatable."),
    ] = None,
    link: Annotated[
        str | None, typer.Option(help="Function around each right-hand side, such as tanh.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Smallest share of its equation that a term must have.")
    ] = None,
    penalty: Annotated[float, typer.Option(help="Price of a term; more gives fewer.")] = 1.0,
    ensemble: Annotated[int, typer.Option(min=0, help="Resamples behind the intervals.")] = 20,
    holdout: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Share of the end of each series held out.")
    ] = 0.2,
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results (default smnn-results/DATA).")
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Find the differential equations behind a table of numbers.

    Writes report.html, model.json, equations.txt, equations.tex, coefficients.csv and states.csv.
    """
    with guarded(debug, ValueError):
        from smnn._util.files import prepare_output
        from smnn.cli import _discover_files as files
        from smnn.cli._discover_run import run

        _check_packages()
        table = _read(data, time, columns, series, inputs)
        names = _variables(table, order or 1)
        options: dict[str, Any] = {
            "library": library, "order": order, "method": method, "threshold": threshold,
            "penalty": penalty, "ensemble": ensemble, "link": link, "random_state": seed,
            "fixed": _fixed(fix or [], names), "forbidden": _forbidden(forbid or []),
            "verbose": True,
        }  # fmt: skip
        folder = prepare_output(out or RESULTS / data.name.split(".")[0])
        with _progress():
            found = run(data.name, table, options, holdout, repeated(context, folder))
        for text in found.warnings[len(table.warnings) :]:
            remark(text)
        report = files.write(found, folder)
        if as_json:
            typer.echo(json.dumps(files.record(found), indent=2, allow_nan=False))
        else:
            _show(found, report)


def _check_packages() -> None:
    from smnn._util.optional import MissingPackageError, require

    for module, package in (("pandas",) * 2, ("sympy",) * 2, ("sklearn", "scikit-learn")):
        try:
            require(module, "discover equations")
        except MissingPackageError:
            raise MissingPackageError(
                f"{package} is needed to discover equations; pip install 'smnn[discovery]'."
            ) from None


@contextlib.contextmanager
def _progress() -> Iterator[None]:
    """What the estimator says, as one line that changes; nothing where there is no terminal."""
    with notices().status("Looking for equations") as status:

        class Line(io.StringIO):
            def write(self, text: str) -> int:
                if text.strip():
                    status.update(f"Looking for equations: {plain(text.strip())}")
                return len(text)

        with contextlib.redirect_stderr(Line()):
            yield


def _read(
    data: Path, time: str | None, columns: str | None, series: str | None, inputs: str | None
) -> Table:
    from smnn.cli._discover_run import shortened
    from smnn.data._tables import TableError, read_table

    table = read_table(data, time, _names(columns), series, _names(inputs))
    if len(table.names) > MOST_VARIABLES and columns is None:
        raise TableError(
            f"{data.name} has {len(table.names)} columns of numbers; expected at most "
            f"{MOST_VARIABLES} variables. Choose some with --columns."
        )
    table = shortened(table)
    for text in table.warnings:
        remark(text)
    return table


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _variables(table: Table, order: int) -> list[str]:
    """What expressions may be about: states, then inputs."""
    return [v + "'" * r for r in range(order) for v in table.names] + table.input_names


def _fixed(texts: list[str], names: list[str]) -> dict[str, dict[str, float]] | None:
    """`x' : -10*x + 10*y` as `{"x'": {"x": -10.0, "y": 10.0}}`."""
    from smnn.equations import ExpressionError, parse_expression
    from smnn.report import maths

    found: dict[str, dict[str, float]] = {}
    for text in texts:
        target, right = _sides("--fix", text)
        try:
            expr = parse_expression(right, names)
        except ExpressionError as error:
            raise ExpressionError(f"--fix {text!r}: {error}") from None
        for part in expr.as_ordered_terms():
            factor, term = part.as_coeff_Mul()
            name = maths.write(term, maths.TEXT, names)
            found.setdefault(target, {})[name] = float(factor)
    return found or None


def _forbidden(texts: list[str]) -> dict[str, list[str]] | None:
    """`x' : z, x^2` as `{"x'": ["z", "x^2"]}`."""
    found: dict[str, list[str]] = {}
    for text in texts:
        target, right = _sides("--forbid", text)
        found.setdefault(target, []).extend(term.strip() for term in right.split(","))
    return found or None


def _sides(option: str, text: str) -> tuple[str, str]:
    target, colon, right = text.partition(":")
    if not colon or not target.strip() or not right.strip():
        raise ValueError(f'{option}: got {text!r}; expected "x\' : terms", as in "x\' : -1*x".')
    return target.strip(), right.strip()


def _show(found: Found, report: Path) -> None:
    from smnn.cli import _discover_view as view
    from smnn.report.tables import rich_table

    console = Console(highlight=False)
    console.print()
    for equation in found.model.equations():
        console.print(f"  [bold]{plain(equation)}[/]", soft_wrap=True)
    console.print()
    console.print(rich_table(view.coefficient_table(found)))
    console.print()
    for value, meaning in view.summary(found):
        console.print(f"[bold]{plain(value)}[/]  {plain(meaning)}")
    console.print()
    console.print(f"Report: {plain(str(report))}", soft_wrap=True)
