"""Charts of a discovery report: data and fit, hold-out, phase portraits, residuals."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from smnn.discovery._equations import half_width
from smnn.report import charts
from smnn.report.charts import Line, Mark, chart, histogram
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


def fit_charts(
    model: Discovery, table: Table, names: Sequence[str] | None = None
) -> list[charts.Chart]:
    """Data with fitted states, one chart per variable; rows after the fitted ones are shaded."""
    parts = []
    shown = range(min(MOST_SERIES, len(table.times)))
    several = len(shown) > 1
    end = float(model.times_[0][-1])
    shade = None if several or end >= table.times[0][-1] else (end, float(table.times[0][-1]))
    for v in chosen(names, table.names, MOST_CHARTS, "variables"):
        lines = []
        for i in shown:
            label = f"series {table.series[i]}" if several else "fit"
            lines.append(
                Line(table.times[i], table.values[i][:, v], f"{label}: data" if several else "data",
                     i if several else 0, "dots", keyed=not several)
            )  # fmt: skip
            colour = i if several else 1
            lines.append(Line(model.times_[i], model.states_[i][:, v], label, colour))
        title = _named(table, table.names[v])
        parts.append(charts.Chart(title, lines, time_label(table), shade=shade))
    return parts


def data_charts(report: Report) -> list[str]:
    """The charts of the fit, with a note on what they leave out."""
    table = report.table
    notes = []
    if report.held_out and len(table.times) == 1:
        notes.append("The shaded part was held out.")
    if len(table.times) > MOST_SERIES:
        notes.append(f"{MOST_SERIES} of {len(table.times)} series are shown.")
    if len(table.names) > MOST_CHARTS:
        notes.append(f"{MOST_CHARTS} of {len(table.names)} variables are shown.")
    if any(len(t) > charts.MOST_POINTS for t in table.times):
        notes.append(
            f"Each line is reduced to {charts.MOST_POINTS:,} points, keeping its extremes."
        )
    parts = [chart.html() for chart in fit_charts(report.model, table)]
    return [*parts, f'<p class="caption">{" ".join(notes)}</p>' if notes else ""]


def held_out_charts(table: Table, first: HeldOutSeries, tolerance: float) -> list[str]:
    """Simulation and held-out data of one series, and the error over time."""
    marks = []
    if first.until is not None:
        marks = [Mark(first.start + first.until, f"error above {100 * tolerance:.0f} %")]
    ends = (first.start, float(first.t[-1]))
    parts = []
    for v, name in enumerate(table.names[:MOST_CHARTS]):
        path = _within(first.simulated[:, v], first.data[:, v])
        lines = [
            Line(first.t, first.data[:, v], "data", 0, "dots"),
            Line(first.t, path, "simulation", 1),
        ]
        title = _named(table, name) + (f", series {first.series}" if first.series else "")
        parts.append(chart(title, lines, x_label=time_label(table), marks=marks, x_range=ends))
    error = 100 * np.minimum(first.error, 10.0)
    limit = np.full(2, 100 * tolerance)
    parts.append(
        chart(
            "Error in % of the standard deviation, all variables",
            [
                Line(first.t, error, "error", 5),
                Line(np.array(ends), limit, "limit", 6, "dashed"),
            ],
            x_label=time_label(table), marks=marks, x_range=ends, log_y=True,
        )
    )  # fmt: skip
    return parts


def phase_charts(model: Discovery, table: Table) -> list[str]:
    """Pairs of states against each other, three at most."""
    names = model.state_names_
    labels = ["fit"] if len(table.times) == 1 else [f"series {label}" for label in table.series]
    parts = []
    for a, b in list(itertools.combinations(range(len(names)), 2))[:3]:
        lines = [
            Line(states[:, a], states[:, b], label, i)
            for i, (states, label) in enumerate(zip(model.states_[:MOST_SERIES], labels))
        ]
        title = f"{names[b]} over {names[a]}"
        parts.append(chart(title, lines, x_label=names[a], y_label=names[b], square=True))
    return parts


def residual_charts(model: Discovery) -> list[str]:
    """Residuals over time and as a histogram, for each variable."""
    table = model.table_
    assert table is not None
    parts = []
    for v, name in enumerate(table.names[:MOST_CHARTS]):
        residuals = [x[:, v] - z[:, v] for x, z in zip(table.values, model.states_)]
        lines = [Line(model.times_[0], residuals[0], "data − fit", v, "dots")]
        over_time = chart(_named(table, name), lines, x_label=time_label(table), height="9rem")
        distribution = histogram(
            f"{name}: all residuals", np.concatenate(residuals), x_label="data − fit",
            colour=v, deviation=float(model.noise_[v]), height="9rem",
        )  # fmt: skip
        parts.append(charts.grid([over_time, distribution]))
    return parts


def time_label(table: Table) -> str:
    """Label of the time axis with its unit."""
    name = table.time_name or "row"
    return f"{name} ({table.time_unit})" if table.time_unit else name


def _named(table: Table, name: str) -> str:
    unit = table.units.get(name)
    return f"{name} [{unit}]" if unit else name


def _within(path: np.ndarray, data: np.ndarray) -> np.ndarray:
    """A simulation, truncated where it is far outside the range of the data."""
    known = data[np.isfinite(data)]
    if len(known) == 0:
        return path
    reach = np.ptp(known) or 1.0
    inside = (path > known.min() - reach) & (path < known.max() + reach)
    out = np.flatnonzero(~inside)
    cut = path.copy()
    if len(out):
        cut[out[0] :] = np.nan
    return cut
