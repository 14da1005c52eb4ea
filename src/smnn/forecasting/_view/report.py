"""A forecast with its back-test as tables, JSON, data files and an HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from smnn._util.files import check_replaceable, inert, write_atomically, write_json
from smnn.forecasting._view import charts
from smnn.report import page
from smnn.report.charts import SCRIPT, Chart, grid
from smnn.report.charts import STYLE as CHART_STYLE
from smnn.report.display import Overview
from smnn.report.numbers import significant
from smnn.report.tables import Cell, Row, Table, html_table

if TYPE_CHECKING:
    from smnn.forecasting._backtest import Backtest
    from smnn.forecasting._equation import Equation
    from smnn.forecasting._forecast import Forecast
    from smnn.forecasting._forecaster import Forecaster
    from smnn.forecasting._history import History

MAX_SHOWN, SOME_SHOWN = 12, 6
"""Up to `MAX_SHOWN` series are all shown, otherwise `SOME_SHOWN` of them."""
MAX_ROWS = 12
"""Rows of a table per series."""
MAX_TABLED = 4
"""Series in the table of the next steps."""
MAX_DOWNLOAD = 10_000
"""Number of values up to which the page contains the forecast as CSV."""
MAX_RECORDED = 64
"""Largest number of series whose values are written to the JSON file."""
LATITUDES, LONGITUDES = ("lat", "latitude", "y"), ("lon", "longitude", "x")
STYLE = """
h3 { font-size: 1rem; margin: 1.4rem 0 .2rem; }
.terms { margin: .2rem 0 0; padding-left: 1.2rem; } .terms li { margin: .15rem 0; }
"""


@dataclass(frozen=True)
class ForecastReport:
    """A forecast, its back-test, and their presentation; made by `make_report`."""

    FILES: ClassVar = ("report.html", "forecast.json", "forecast.csv", "forecast.nc")
    """What `write` may write."""
    name: str
    """Name of the data."""
    series: Any
    """The data as given."""
    history: History
    forecaster: Forecaster
    forecast: Forecast
    backtest: Backtest | None
    skipped: str
    """Why there is no back-test; empty if there is one."""
    fit_warnings: tuple[str, ...]
    command: str
    """Command that repeats the forecast; may be empty."""
    seconds: float
    machine: dict[str, Any]

    @property
    def shown(self) -> list[int]:
        """Indices of the series that are drawn, without those that have no values."""
        alive = np.flatnonzero(np.isfinite(self.history.rows).any(1))
        if len(alive) > MAX_SHOWN:
            alive = alive[np.linspace(0, len(alive) - 1, SOME_SHOWN).astype(int)]
        return [int(i) for i in alive]

    @property
    def unit(self) -> str:
        """Unit of the values, if the data has one."""
        return str(getattr(self.series, "attrs", {}).get("units", ""))

    @property
    def notes(self) -> list[str]:
        """Decisions made by `read_series`."""
        return list(getattr(self.series, "attrs", {}).get("notes", []))

    @property
    def is_grid(self) -> bool:
        """Whether the data is an xarray grid, so that the forecast is written as NetCDF."""
        return hasattr(self.series, "dims")

    @property
    def map_axes(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Latitudes and longitudes of a grid; `None` if it cannot be drawn as a map."""
        dims: tuple[str, ...] = getattr(self.series, "dims", ())
        if len(dims) != 3 or dims[1] not in LATITUDES or dims[2] not in LONGITUDES:
            return None
        if any(d not in self.series.coords or self.series.sizes[d] < 2 for d in dims[1:]):
            return None
        return self.series[dims[1]].values, self.series[dims[2]].values

    def equations(self) -> list[Equation]:
        """Leading equations of the series in `shown`."""
        return [self.forecaster.equation(i) for i in self.shown]

    def warnings(self) -> list[str]:
        """Reasons to distrust the forecast."""
        if self.backtest is None:
            return [*self.fit_warnings, f"not back-tested: {self.skipped}"]
        return [*self.fit_warnings, *self.backtest.warnings()]

    def summary(self) -> list[tuple[str, str]]:
        """The main results, as pairs of a value and its meaning."""
        f, test = self.forecast, self.backtest
        items = [(_count(len(f.t), self.history.clock.unit()), f"ahead, to {_time(f.t[-1])}")]
        if test is None:
            return [*items, ("not back-tested", self.skipped)]
        return [*items, *backtest_findings(test)]

    def tables(self) -> list[Table]:
        """The next steps, the back-test, and its results by series where there are several."""
        out = [self._forecast_table()]
        if self.backtest is not None:
            out += backtest_tables(self.backtest, self.unit)
        return out

    def record(self) -> dict[str, Any]:
        """Return all results as a dictionary that can be written as JSON."""
        f, clock = self.forecast, self.history.clock
        listed = range(len(f.names)) if len(f.names) <= MAX_RECORDED else self.shown
        test = None if self.backtest is None else self.backtest.record(MAX_RECORDED)
        return {
            "command": self.command,
            "data": {
                "file": self.name, "series": len(f.names), "times": len(clock),
                "first": _time(clock.stamps[0]), "last": _time(clock.stamps[-1]),
                "step": clock.unit(), "missing": int(np.isnan(self.history.array).sum()),
                "notes": self.notes,
            },
            "seasons": [
                {"name": s.name, "steps": float(s.length), "harmonics": s.harmonics}
                for s in self.forecaster.seasons_
            ],
            "level": f.level,
            "times": [_time(t) for t in f.t],
            "forecast": f.record(listed),
            "equations": {e.name: _json(e.record()) for e in self.equations()},
            "backtest": _json(test),
            "warnings": self.warnings(),
            "seconds": round(self.seconds, 2),
            "machine": self.machine,
        }  # fmt: skip

    def write(self, folder: str | Path) -> Path:
        """Write the forecast (CSV or NetCDF), the record (JSON) and the report (HTML).

        Returns:
            Path of the report.

        Raises:
            OutputError: They cannot be written, or would replace files that smnn did not write.
        """
        folder = Path(folder)
        check_replaceable(folder, self.FILES)
        path = write_atomically(folder / "report.html", self.html())
        if self.is_grid:
            dataset = self.forecast.dataset(self.series)
            dataset.attrs = {"title": f"Forecast of {self.name}", **dataset.attrs}
            write_atomically(folder / "forecast.nc", bytes(dataset.to_netcdf(engine="scipy")))
        else:
            write_atomically(folder / "forecast.csv", self._csv())
        write_json(folder / "forecast.json", self.record())
        return path

    def html(self) -> str:
        """Return the report as a self-contained HTML page."""
        f, clock = self.forecast, self.history.clock
        lead = (
            f"{_count(len(f.names), 'series')}, {len(clock):,} times from {_time(clock.stamps[0])} "
            f"to {_time(clock.stamps[-1])}; forecast of {_count(len(f.t), clock.unit())}."
        )
        sections = [page.findings(self.summary()), _warnings(self.warnings()), self._curves_html()]
        if self.map_axes is not None:
            caption = f"In {self.unit}." if self.unit else "In the unit of the data."
            png = charts.maps(self.history, f, *self.map_axes, self.unit)
            sections.append(page.section("Maps", page.picture(png, "two maps", caption)))
        steps, *tests = map(html_table, self.tables())
        sections.append(page.section("The next steps", steps, self._download()))
        if self.backtest is not None:
            by_lead = _grid(charts.by_lead(self.backtest), "22rem")
            past = charts.past_forecasts(self.history, self.backtest, self.unit)
            sections.append(page.section("Back-test", tests[0], by_lead, past, *tests[1:]))
        sections += [self._equations_html(), self._method_html()]
        return page.page(
            f"Forecast of {self.name}",
            lead,
            [part for part in sections if part],
            style=CHART_STYLE + STYLE,
            script=SCRIPT,
        )

    def _csv(self) -> str:
        frame = self.forecast.frame().rename(columns=inert)
        for name in frame.select_dtypes(("object", "str")):
            frame[name] = frame[name].map(inert)
        text: str = frame.to_csv(index=False)
        return text

    def _download(self) -> str:
        """A link to the forecast, unless it is a grid or large."""
        if self.is_grid or len(self.forecast.names) * len(self.forecast.t) > MAX_DOWNLOAD:
            return ""
        return page.download("Download all steps as CSV", "forecast.csv", self._csv())

    def _forecast_table(self) -> Table:
        f = self.forecast
        rows = []
        for i in self.shown[:MAX_TABLED]:
            values = f.series(i)
            for k in _some_leads(len(f.t)):
                cells = [Cell(significant(float(values[x][k]))) for x in ("lower", "mean", "upper")]
                rows.append(Row(f.names[i], _time(f.t[k]), cells))
        where = "forecast.nc" if self.is_grid else "forecast.csv"
        caption = f"All {len(f.t)} steps of {_count(len(f.names), 'series')} are in {where}."
        columns = [f"{_percent(f.level)} from", "forecast", "to"]
        return Table("Forecast", columns, caption, rows)

    def _curves_html(self) -> str:
        f, shown = self.forecast, self.shown
        curves = charts.curves(self.history, f, shown, self.unit)
        parts = [_grid(curves, "26rem")]
        if len(f.names) > len(shown):
            parts.insert(0, f"<p>{len(shown)} of {len(f.names):,} series.</p>")
        if shown:
            name = f"<b>{escape(f.names[shown[0]])}</b>"
            what = f"the logarithm of {name}" if f.log.ravel()[shown[0]] else name
            parts.append(f"<p>The forecast of {what} is the sum of these components.</p>")
            parts.append(grid(charts.components(self.history, f, shown[0]), "15rem"))
        return page.section("Forecast", *parts)

    def _equations_html(self) -> str:
        blocks = []
        for equation in self.equations():
            lines = "".join(f"<li>{escape(line)}</li>" for line in equation.lines)
            blocks.append(f'<h3>{escape(equation.name)}</h3><ul class="terms">{lines}</ul>')
        note = (
            "<p>The leading equation of each series. The forecast blends the best equations of "
            "each kind, weighted by their cross-validation errors.</p>"
        )
        return page.section("Equations", note, *blocks)

    def _method_html(self) -> str:
        seasons = ", ".join(
            f"{s.name} ({s.length:.5g} steps, {_count(s.harmonics, 'harmonic')})"
            for s in self.forecaster.seasons_
        )
        facts = {
            "Missing values": f"{int(np.isnan(self.history.array).sum()):,}",
            "Seasons": seasons or "none",
            "Notes": "; ".join(self.notes) or None,
            "Seconds": f"{self.seconds:.1f}",
        }
        command = [page.code_block(self.command)] if self.command else []
        return page.section(
            "Reproduction",
            *command,
            page.facts({**facts, **page.machine_facts(self.machine)}),
        )


def backtest_findings(test: Backtest) -> list[tuple[str, str]]:
    """The main results of a back-test, as pairs of a value and its meaning."""
    items = [(_percent(test.ratio), f"of the error of '{test.best_reference}', the best "
                  "simple reference")]  # fmt: skip
    worst = test.worst_series(1)
    if len(test.names) > 1 and worst:
        share = _percent(test.ratio_by_series()[worst[0]])
        items.append((share, f"of that error for the worst series, '{test.names[worst[0]]}'"))
    items.append((significant(test.skill(), 2), "skill against climatology (1 is perfect)"))
    inside = f"of the observations inside the {_percent(test.level)} intervals"
    items.append((_percent(test.coverage), inside))
    return items


def backtest_tables(test: Backtest, unit: str = "") -> list[Table]:
    """Results by method, and by series where there are several."""
    tables = [_method_table(test, unit)]
    return [*tables, _series_table(test)] if len(test.names) > 1 else tables


def backtest_page(test: Backtest) -> str:
    """A back-test as a self-contained HTML page."""
    first, *others = map(html_table, backtest_tables(test))
    return page.page(
        "Back-test",
        f"{_count(len(test.names), 'series')}, {_count(len(test.origins), 'forecast')} of "
        f"{_count(test.inside.shape[2], test.step)}.",
        [
            page.findings(backtest_findings(test)),
            _warnings(test.warnings()),
            page.section("Results", first, _grid(charts.by_lead(test), "22rem"), *others),
        ],
        style=CHART_STYLE + STYLE,
        script=SCRIPT,
    )


def backtest_overview(test: Backtest) -> Overview:
    """What a summary and a notebook show of a back-test."""
    tables = [html_table(table) for table in backtest_tables(test)]
    return Overview("Back-test", "", (), backtest_findings(test), test.warnings(), tables[:1])


def forecaster_overview(forecaster: Forecaster) -> Overview:
    """What a summary and a notebook show of a fitted forecaster."""
    history = forecaster._history
    clock, names = history.clock, history.names
    title = f"Forecaster of {_count(len(names), 'series')}"
    seasons = ", ".join(f"{s.name} ({s.length:.5g} steps)" for s in forecaster.seasons_)
    items = [
        (_count(len(clock), clock.unit()), f"from {_time(clock.stamps[0])} to "
         f"{_time(clock.stamps[-1])}; equations chosen to forecast {forecaster.horizon_}"),
        ("seasons", seasons or "none"),
    ]  # fmt: skip
    lines = forecaster.equation(0).lines
    head = [(names[0], escape(names[0]))] if len(names) > 1 else []
    note = forecaster._not_fitted()
    return Overview(
        title, "", [*head, *((x, escape(x)) for x in lines)], items, [note] if note else []
    )


def forecast_overview(forecast: Forecast) -> Overview:
    """What a summary and a notebook show of a forecast."""
    source = forecast._source
    unit = "step" if source is None else source._history.clock.unit()
    title = f"Forecast of {_count(len(forecast.names), 'series')}"
    items = [(_count(len(forecast.t), unit), f"ahead, to {_time(forecast.t[-1])}")]
    for i in range(min(MAX_TABLED, len(forecast.names))):
        low, mean, high = (significant(float(x[-1])) for x in (
            forecast.series(i)[name] for name in ("lower", "mean", "upper")))  # fmt: skip
        meaning = f"at the end, {_percent(forecast.level)} interval {low} to {high}"
        items.append((f"{forecast.names[i]} = {mean}", meaning))
    return Overview(title, "", (), items)


def _grid(parts: Sequence[Chart], least: str) -> str:
    return grid([chart.html() for chart in parts], least)


def _warnings(texts: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f'<ul class="warnings">{items}</ul>' if items else ""


def _method_table(test: Backtest, unit: str) -> Table:
    """Errors of the forecast and of the references."""
    common = bool(np.ptp(test.scale) == 0)
    factor = float(test.scale[0]) if common else 1.0
    errors = {m: test.rmse(m) for m in test.methods}
    ours, least = errors[test.methods[0]], min(errors.values())
    rows = []
    for method, error in errors.items():
        cells = [
            Cell(significant(factor * error), best=error <= least),
            Cell(f"{error / ours:.2f}" if ours > 0 else "–"),
            Cell("" if method == "climatology" else f"{test.skill(method=method):+.2f}"),
        ]
        label = "this forecast" if method == test.methods[0] else method
        rows.append(Row("" if method == test.methods[0] else "reference", label, cells))
    about = f"in {unit}" if unit else "in the unit of the series"
    if not common:
        about = "relative to the standard deviation of each series"
    caption = (
        f"{_count(len(test.origins), 'forecast')} of {_count(test.inside.shape[2], 'step')}, "
        "each based only on the data before its origin. Error: root mean square over all "
        f"series and steps, {about}. Ratio: error divided by that of this forecast. Skill: "
        f"against climatology. {_percent(test.coverage)} of the observations are inside the "
        f"{_percent(test.level)} intervals."
    )
    return Table("Back-test", ["error", "ratio", "skill"], caption, rows)


def _series_table(test: Backtest) -> Table:
    """The worst series of a back-test."""
    error, ratio = test.by_series(), test.ratio_by_series()
    coverage = test.coverage_by_series()
    rows = [
        Row("", test.names[i], [Cell(significant(float(error[i]))), Cell(f"{ratio[i]:.2f}"),
                                Cell(_percent(float(coverage[i])))])
        for i in test.worst_series(MAX_ROWS)
    ]  # fmt: skip
    caption = (
        f"{len(rows)} of {len(test.names):,} series, the worst first. Error: relative to the "
        f"standard deviation. Ratio: error divided by that of '{test.best_reference}', the best "
        "reference over all series."
    )
    return Table("Back-test by series", ["error", "ratio", "coverage"], caption, rows)


def _some_leads(horizon: int) -> Sequence[int]:
    if horizon <= MAX_ROWS:
        return range(horizon)
    return sorted({*range(6), *np.linspace(6, horizon - 1, MAX_ROWS - 6).astype(int).tolist()})


def _time(stamp: Any) -> str:
    """Format a time."""
    if isinstance(stamp, np.datetime64):
        text = str(stamp.astype("datetime64[s]")).replace("T", " ")
        return text.removesuffix(" 00:00:00")
    return f"{float(stamp):.10g}"


def _count(number: int, unit: str) -> str:
    """`1 week`, `26 weeks`, `3 series`."""
    if unit.startswith("step of"):
        unit = unit.replace("step", "steps" if number != 1 else "step", 1)
        return f"{number:,} {unit}"
    return f"{number:,} {unit}{'s' * (number != 1 and not unit.endswith('s'))}"


def _percent(x: float) -> str:
    return f"{100 * x:.0f} %" if np.isfinite(x) else "unknown"


def _json(x: Any) -> Any:
    """Replace numbers that JSON does not have by `None`."""
    if isinstance(x, dict):
        return {k: _json(v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return [_json(v) for v in x]
    return None if isinstance(x, float) and not np.isfinite(x) else x
