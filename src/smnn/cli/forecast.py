"""`smnn forecast`: the future of the series in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from smnn.cli._guard import (
    RESULTS,
    AsJson,
    DateFormat,
    Dayfirst,
    Debug,
    Decimal,
    Na,
    Series,
    SkipRows,
    Time,
    WrongUseError,
    guarded,
    notices,
    plain,
    reading,
    remark,
    repeated,
)

if TYPE_CHECKING:
    from smnn.cli._forecast_run import Outcome

NAMED = ("year", "week", "day")


def forecast(
    context: typer.Context,
    data: Annotated[Path, typer.Argument(metavar="DATA", help="CSV, TSV, or NetCDF (.nc).")],
    column: Annotated[
        list[str] | None,
        typer.Option(help="Column to forecast, or variable of a grid. Repeatable (default all)."),
    ] = None,
    time: Time = None,
    series: Series = None,
    skip_rows: SkipRows = None,
    na: Na = None,
    dayfirst: Dayfirst = None,
    date_format: DateFormat = None,
    decimal: Decimal = None,
    horizon: Annotated[
        int | None, typer.Option(min=1, help="Steps ahead (default two seasons).")
    ] = None,
    season: Annotated[
        str,
        typer.Option(help="auto, none, year, week, day, or a length in steps; several as a,b."),
    ] = "auto",
    harmonics: Annotated[int | None, typer.Option(min=1, help="Of each season.")] = None,
    trend: Annotated[str, typer.Option(help="auto, none, linear, damped.")] = "auto",
    log: Annotated[
        bool | None,
        typer.Option("--log/--no-log", help="Model logarithms (default what forecasts better)."),
    ] = None,
    level: Annotated[
        float, typer.Option(min=0.01, max=0.999, help="Of the prediction intervals.")
    ] = 0.9,
    origins: Annotated[
        int | None,
        typer.Option(min=0, help="Of the back-test; 0 for none (default 8, of many series 4)."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results (default smnn-results/DATA).")
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Forecast the series in a table or the cells of a grid, with intervals and a back-test.

    Writes report.html, forecast.json and forecast.csv (forecast.nc for a grid).
    """
    with guarded(debug, ValueError):
        from smnn._util.files import prepare_output
        from smnn.cli import _forecast_files as files
        from smnn.cli._forecast_run import run
        from smnn.forecasting import Forecaster, read_series

        _check_packages()
        forecaster = Forecaster(
            season=_season(season), harmonics=harmonics, trend=trend, log=log, level=level
        )
        options = reading(series, skip_rows, na, dayfirst, date_format, decimal)
        table = read_series(data, column or None, time, **options)
        if "summary" in table.attrs:
            notices().print(plain(table.attrs["summary"]), soft_wrap=True)
        for note in table.attrs["notes"]:
            remark(note)
        folder = prepare_output(out or RESULTS / data.name.split(".")[0])
        with notices().status("Fitting") as status:
            outcome = run(
                data.name, table, forecaster, horizon, origins, repeated(context, folder),
                lambda text: status.update(plain(text)),
            )  # fmt: skip
        report = files.write(outcome, folder)
        if as_json:
            typer.echo(json.dumps(files.record(outcome), indent=2, allow_nan=False))
        else:
            _show(outcome, report)


def _check_packages() -> None:
    from smnn._util.optional import MissingPackageError, require

    for module in ("pandas", "xarray"):
        try:
            require(module, "forecast files")
        except MissingPackageError:
            raise MissingPackageError(
                f"{module} is needed to forecast files; pip install 'smnn[forecasting]'."
            ) from None


def _season(text: str) -> Any:
    if text.strip() == "auto":
        return "auto"
    if text.strip() == "none":
        return None
    found: list[str | float] = []
    for item in (part.strip() for part in text.split(",")):
        if item in NAMED:
            found.append(item)
            continue
        try:
            found.append(float(item))
        except ValueError:
            raise WrongUseError(
                f"--season: got {item!r}; expected auto, none, {', '.join(NAMED)} or a number."
            ) from None
    return found


def _show(outcome: Outcome, report: Path) -> None:
    from smnn.cli import _forecast_view as view
    from smnn.report.tables import rich_table

    console = Console(highlight=False)
    console.print()
    console.print(rich_table(view.forecast_table(outcome)))
    if outcome.tested is not None:
        console.print(rich_table(view.backtest_table(outcome)))
    for place in outcome.shown[:3]:
        console.print(plain(str(outcome.forecaster.equation(place))), soft_wrap=True)
        console.print()
    for value, meaning in view.summary(outcome):
        console.print(f"[bold]{plain(value)}[/]  {plain(meaning)}", soft_wrap=True)
    for text in outcome.doubts():
        remark(text)
    console.print()
    console.print(f"Report: {plain(str(report))}", soft_wrap=True)
