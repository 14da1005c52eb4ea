"""Charts of a discovery report: data and fit, hold-out, phase portraits, residuals."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from smnn.discovery._arrays import Array
from smnn.discovery._equations import half_width
from smnn.report import charts
from smnn.report.charts import Band, Line, Mark, chart, histogram
from smnn.report.display import chosen
from smnn.report.intervals import Estimate
from smnn.report.numbers import plus_minus, significant

if TYPE_CHECKING:
    from smnn.data import Table
    from smnn.discovery._estimator import Discovery
    from smnn.discovery._evaluate import HeldOutSeries
    from smnn.discovery._view.report import Report

MOST_CHARTS = 12  # Maximum number of variables with charts
MOST_SERIES = 3  # Maximum number of series per chart
MOST_SELECTABLE = 12  # Maximum number of series with charts of their own
BAND_ROWS = 500  # Maximum number of held-out rows with prediction intervals
RARE = 0.05
"""Terms selected in fewer resamples than this are not shown unless they are in the equation."""


def coefficient_rows(model: Discovery, v: int) -> list[Estimate]:
    """Terms of one equation, and those selected in some of the resamples."""
    rows = []
    for p, term in enumerate(model.terms_):
        value = float(model.coefficients_[v, p])
        share = None if model.inclusion_ is None else float(model.inclusion_[v, p])
        label = f"<math>{term.mathml}</math>"
        if value:
            interval: Any = None if model.intervals_ is None else model.intervals_[v, p]
            half = half_width(value, interval)
            if half is None:
                rows.append(Estimate(label, f"{significant(value)} (given)", value, share=share))
            else:
                low, high = float(interval[0]), float(interval[1])
                rows.append(
                    Estimate(label, plus_minus(value, half), value, low, high, share)
                )  # fmt: skip
        elif share is not None and share > RARE:
            rows.append(Estimate(label, "–", None, share=share))
    return sorted(rows, key=lambda row: row.value is None)


def by_series(report: Report, draw: Callable[[Report, Sequence[int]], list[str]]) -> str:
    """Charts of the first series together, and hidden ones of each series for the selector."""
    parts = []
    for option in series_options(report.table) or ["all"]:
        first = range(min(MOST_SERIES, len(report.table.times)))
        shown = first if option == "all" else [int(option)]
        hidden = "" if option == "all" else " hidden"
        parts.append(f'<div data-series="{option}"{hidden}>{"".join(draw(report, shown))}</div>')
    return "".join(parts)


def series_options(table: Table) -> dict[str, str]:
    """Options of the selector of series; empty for a single one."""
    n = len(table.times)
    if n == 1:
        return {}
    first = {"all": "all" if n <= MOST_SERIES else f"the first {MOST_SERIES} of {n}"}
    return first | {str(i): name for i, name in enumerate(table.series[:MOST_SELECTABLE])}


def fit_charts(
    model: Discovery, table: Table, shown: Sequence[int] | None = None, names: Any = None
) -> list[charts.Chart]:
    """Data with fitted states, one chart per variable; rows after the fitted ones are shaded."""
    shown = range(min(MOST_SERIES, len(table.times))) if shown is None else shown
    x, label = time_axis(table)
    several = len(shown) > 1
    end, last = model.times_[shown[0]][-1], table.times[shown[0]][-1]
    parts = []
    for v in chosen(names, table.names, MOST_CHARTS, "variables"):
        lines = []
        for i in shown:
            title = table.series[i] if several else "fit"
            lines += [
                Line(x(table.times[i]), table.values[i][:, v],
                     f"{title}: data" if several else "data",
                     i if several else 0, "dots", keyed=not several),
                Line(x(model.times_[i]), model.states_[i][:, v], title, i if several else 1),
            ]  # fmt: skip
        shade = None if several or end >= last else (x(end), x(last))
        name = table.names[v]
        parts.append(charts.Chart(name, lines, label, table.units.get(name, ""), shade=shade))
    return parts


def data_charts(report: Report, shown: Sequence[int]) -> list[str]:
    """The charts of the fit, with a note on what they leave out."""
    table = report.table
    notes = []
    if report.held_out and len(shown) == 1:
        notes.append("The shaded part was held out.")
    if len(table.names) > MOST_CHARTS:
        notes.append(f"{MOST_CHARTS} of {len(table.names)} variables are shown.")
    if any(len(t) > charts.MOST_POINTS for t in table.times):
        notes.append(
            f"Each line is reduced to {charts.MOST_POINTS:,} points, keeping its extremes."
        )
    parts = [chart.html() for chart in fit_charts(report.model, table, shown)]
    return [*parts, f'<p class="caption">{" ".join(notes)}</p>' if notes else ""]


def held_out_charts(report: Report, shown: Sequence[int]) -> list[str]:
    """Simulations and held-out data, and the error over time."""
    table, result = report.table, report.evaluation
    assert result is not None
    found = [part for part in result.series if part.index in shown]
    if not found:
        return ["<p>Nothing of this series was held out.</p>"]
    x, label = time_axis(table)
    several = len(found) > 1
    bounds = [] if several else [prediction_band(report.model, found[0])]
    marks = []
    if not several and found[0].until is not None:
        at = x(found[0].start + found[0].until)
        marks = [Mark(at, f"error above {100 * result.tolerance:.0f} %")]
    ends = x(min(part.start for part in found)), x(max(part.t[-1] for part in found))
    parts = []
    for v, name in enumerate(table.names[:MOST_CHARTS]):
        lines, bands = [], []
        for k, part in enumerate(found):
            path = _within(part.simulated[:, v], part.data[:, v])
            title = part.series if several else "simulation"
            data = Line(x(part.t), part.data[:, v], f"{title}: data" if several else "data",
                        k if several else 0, "dots", keyed=not several)  # fmt: skip
            lines += [data, Line(x(part.t), path, title, k if several else 1)]
            for t, low, high in bounds:
                low, high = (np.clip(x[:, v], *_reach(part.data[:, v])) for x in (low, high))
                bands.append(Band(x(t), low, high, "90 % prediction interval", 1))
        parts.append(
            chart(
                name, lines, x_label=label, y_label=table.units.get(name, ""), bands=bands,
                marks=marks, x_range=ends,
            )
        )  # fmt: skip
    errors = [
        Line(x(part.t), 100 * np.minimum(part.error, 10.0), part.series or "error", k)
        for k, part in enumerate(found)
    ]
    limit = np.full(2, 100 * result.tolerance)
    parts.append(
        chart(
            "Error in % of the standard deviation, all variables",
            [*errors, Line(np.array(ends), limit, "limit", 6, "dashed")],
            x_label=label, marks=marks, x_range=ends, log_y=True,
        )
    )  # fmt: skip
    return parts


def prediction_band(model: Discovery, part: HeldOutSeries) -> tuple[Array, Array, Array]:
    """Held-out times, up to a number, and bounds of 90 % prediction intervals there."""
    t = np.append(part.start, part.t)[: BAND_ROWS + 1]
    U = None if part.inputs is None else part.inputs[: len(t)]
    draws = model._draws(part.index, t, U)
    cut = round(0.05 * (len(draws) - 1))
    return t[1:], draws[cut], draws[-1 - cut]


def phase_charts(model: Discovery, table: Table) -> list[str]:
    """Pairs of states against each other, three at most."""
    names = model.state_names_
    labels = ["fit"] if len(table.times) == 1 else table.series
    parts = []
    for a, b in list(itertools.combinations(range(len(names)), 2))[:3]:
        lines = [
            Line(states[:, a], states[:, b], label, i)
            for i, (states, label) in enumerate(zip(model.states_[:MOST_SERIES], labels))
        ]
        title = f"{names[b]} over {names[a]}"
        parts.append(chart(title, lines, x_label=names[a], y_label=names[b], square=True))
    return parts


def residual_charts(report: Report, shown: Sequence[int]) -> list[str]:
    """Residuals over time and as a histogram, for each variable."""
    table, model = report.model.table_, report.model
    assert table is not None
    x, label = time_axis(table)
    parts = []
    for v, name in enumerate(table.names[:MOST_CHARTS]):
        residuals = [table.values[i][:, v] - model.states_[i][:, v] for i in shown]
        lines = [
            Line(x(model.times_[i]), r, table.series[i] or "data − fit", i, "dots")
            for i, r in zip(shown, residuals)
        ]
        unit = table.units.get(name, "")
        over_time = chart(name, lines, x_label=label, y_label=unit, height="9rem")
        distribution = histogram(
            f"{name}: distribution", np.concatenate(residuals),
            x_label=f"data − fit{f' ({unit})' * bool(unit)}",
            colour=v, deviation=float(model.noise_[v]), height="9rem",
        )  # fmt: skip
        parts.append(charts.grid([over_time, distribution]))
    return parts


def time_axis(table: Table) -> tuple[Callable[[Any], Any], str]:
    """Conversion of times for charts, to dates if there are any, and the label of the axis."""
    name = table.time_name or "row"
    dated = [i for i, dates in enumerate(table.dates or []) if len(dates) > 1]
    if table.dates is None or not dated:
        return lambda t: t, table.time_label
    t, dates = table.times[dated[0]], table.dates[dated[0]].astype("M8[us]")
    local = table.local_dates()
    shift = np.timedelta64(0, "us") if local is None else local[dated[0]][0] - dates[0]
    last = len(dates) - 1  # the times may continue with those that were held out
    unit = (dates[last] - dates[0]) / np.timedelta64(1, "us") / (t[last] - t[0])
    start = dates[0] + shift
    hours = shift / np.timedelta64(1, "h")
    zone = "" if table.zone is None else f" (UTC{f'{hours:+g} h' * bool(hours)})"
    return lambda at: start + np.rint((at - t[0]) * unit).astype("m8[us]"), name + zone


def _reach(data: np.ndarray) -> tuple[float, float]:
    """The range of the data, extended by its length on both sides."""
    known = data[np.isfinite(data)]
    if len(known) == 0:
        return -np.inf, np.inf
    reach = np.ptp(known) or 1.0
    return known.min() - reach, known.max() + reach


def _within(path: np.ndarray, data: np.ndarray) -> np.ndarray:
    """A simulation, truncated where it is far outside the range of the data."""
    low, high = _reach(data)
    inside = np.logical_and.accumulate((path > low) & (path < high))
    return np.where(inside, path, np.nan)
