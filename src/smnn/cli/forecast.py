"""`smnn forecast`: forecast the series in a file."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from smnn.cli import _guard as shared
from smnn.cli._guard import WrongUseError, notices, plain, remark, results_folder
from smnn.cli._reading import reads_data

if TYPE_CHECKING:
    from smnn.forecasting import ForecastReport

CYCLES = ("year", "week", "day")
OPTIONS = {"season=None": "--season none"}
"""Arguments of the library in its error messages, and the options that set them."""


@reads_data
def forecast(
    context: typer.Context,
    data: Annotated[Path, typer.Argument(
        metavar="DATA", help="A table (see `smnn data`) or a grid (.nc, .zarr).")],
    reading: dict[str, Any],
    horizon: Annotated[
        int | None,
        typer.Option(
            min=1, help="Steps to forecast (default: two seasons, at most 1/4 of the history)."
        ),
    ] = None,
    season: Annotated[
        str,
        typer.Option(
            help="Seasons: auto, none, year, week, day, or a length in steps (in the unit of the "
            "time column if that has no dates); several separated by commas."
        ),
    ] = "auto",
    harmonics: Annotated[int | None, typer.Option(min=1, help="Harmonics per season.")] = None,
    trend: Annotated[str, typer.Option(help="Trend: auto, none, linear or damped.")] = "auto",
    log: Annotated[bool | None, typer.Option(
        "--log/--no-log", help="Model logarithms (default: by cross-validation).")] = None,
    level: Annotated[float, typer.Option(
        min=0.01, max=0.999, help="Coverage of the prediction intervals.")] = 0.9,
    origins: Annotated[int | None, typer.Option(
        min=0, help="Back-test origins; 0 to skip (default: 8, or 4 above 1,000 series).")] = None,
    out: Annotated[Path | None, typer.Option(
        help="Output folder (default: smnn-results/forecast-DATA).")] = None,
    as_json: shared.AsJson = False,
    debug: shared.Debug = False,
) -> None:  # fmt: skip
    """Forecast the series of a table or grid.

    With prediction intervals and a back-test. Writes report.html, forecast.json and forecast.csv
    (forecast.nc for a grid).
    """
    with shared.guarded(debug, ValueError), _options_named():
        from smnn._util.files import prepare_output
        from smnn.forecasting import Forecaster, ForecastReport, make_report, read_series

        forecaster = Forecaster(
            season=_season(season), harmonics=harmonics, trend=trend, log=log, level=level
        )
        table = read_series(data, **reading)
        if "summary" in table.attrs:
            notices().print(plain(table.attrs["summary"]), soft_wrap=True)
        for note in table.attrs["notes"]:
            remark(note)
        folder = prepare_output(out or results_folder("forecast", data), ForecastReport.FILES)
        with notices().status("Fitting") as status:
            report = make_report(
                table, forecaster=forecaster, horizon=horizon, origins=origins, name=data.name,
                command=shared.repeated(context, folder),
                tick=lambda done: status.update(f"Back-test: {done} origins done"),
            )  # fmt: skip
        path = report.write(folder)
        if as_json:
            typer.echo(json.dumps(report.record(), indent=2, allow_nan=False))
        else:
            _print(report, path)


@contextlib.contextmanager
def _options_named() -> Iterator[None]:
    """Replace arguments of the library by the options of the command in error messages."""
    from smnn.forecasting import SeriesError

    try:
        yield
    except SeriesError as error:
        text = str(error)
        for argument, option in OPTIONS.items():
            text = text.replace(argument, option)
        raise SeriesError(text) from None


def _season(text: str) -> Any:
    if text.strip() in ("auto", "none"):
        return None if text.strip() == "none" else "auto"
    found: list[str | float] = []
    for item in (part.strip() for part in text.split(",")):
        try:
            found.append(item if item in CYCLES else float(item))
        except ValueError:
            raise WrongUseError(
                f"--season: got {item!r}; expected auto, none, {', '.join(CYCLES)} or a number."
            ) from None
    return found


def _print(report: ForecastReport, path: Path) -> None:
    from smnn.report.tables import rich_table

    console = Console(highlight=False)
    console.print()
    for table in report.tables():
        console.print(rich_table(table))
    for equation in report.equations()[:3]:
        console.print(plain(str(equation)), soft_wrap=True)
        console.print()
    shared.facts(console, report.summary())
    for text in report.warnings():
        remark(text)
    console.print(f"Report: {plain(str(path))}", soft_wrap=True)
