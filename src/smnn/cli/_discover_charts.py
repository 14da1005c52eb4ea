"""The drawings of a discovery: data and fit, data held out, phase portraits, residuals."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from smnn.cli._discover_run import TOLERATED, Found
from smnn.discovery._equations import half_width
from smnn.report import charts
from smnn.report.charts import Line, Mark, chart, histogram
from smnn.report.intervals import Estimate
from smnn.report.numbers import plus_minus, significant

MOST_CHARTS = 12
"""Variables that are drawn; the others are in the files."""
MOST_SERIES = 3
"""Series that are drawn beside each other."""
RARE = 0.05
"""Terms chosen less often than this are not shown unless they are in the equation."""


def coefficient_rows(model: Any, v: int) -> list[Estimate]:
    """The terms of one equation, and those that nearly got into it."""
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


def data_charts(found: Found) -> list[str]:
    """Data with fitted states, a chart for each variable; only the first series."""
    table, model = found.table, found.model
    parts = []
    shown = range(min(MOST_SERIES, len(table.times)))
    for v, name in enumerate(table.names[:MOST_CHARTS]):
        lines = []
        for i in shown:
            several = len(shown) > 1
            told = f"series {table.series[i]}" if several else "fit"
            lines.append(
                Line(table.times[i], table.values[i][:, v], f"{told}: data" if several else "data",
                     i if several else 0, "dots", keyed=not several)
            )  # fmt: skip
            colour = i if several else 1
            lines.append(Line(model.times_[i], model.states_[i][:, v], told, colour))
        end = model.times_[0][-1] if len(shown) == 1 and found.trials else None
        parts.append(
            chart(
                _named(found, name), lines, x_label=time_label(found), y_label="",
                shade=None if end is None else (float(end), float(table.times[0][-1])),
            )
        )  # fmt: skip
    notes = []
    if found.trials and len(shown) == 1:
        notes.append("The shaded part was held out.")
    if len(table.times) > MOST_SERIES:
        notes.append(f"{MOST_SERIES} of {len(table.times)} series are drawn.")
    if len(table.names) > MOST_CHARTS:
        notes.append(f"{MOST_CHARTS} of {len(table.names)} variables are drawn.")
    if any(len(t) > charts.MOST_POINTS for t in table.times):
        notes.append(
            f"Each line is thinned to {charts.MOST_POINTS:,} points; its extremes are kept."
        )
    return [*parts, f'<p class="caption">{" ".join(notes)}</p>' if notes else ""]


def held_out_charts(found: Found) -> list[str]:
    """Simulation and data of the first series held out, and the error over time."""
    trial = found.trials[0]
    marks = []
    if trial.until is not None:
        marks = [Mark(trial.start + trial.until, f"error above {100 * TOLERATED:.0f} %")]
    ends = (trial.start, float(trial.t[-1]))
    parts = []
    for v, name in enumerate(found.table.names[:MOST_CHARTS]):
        path = _within(trial.simulated[:, v], trial.data[:, v])
        lines = [
            Line(trial.t, trial.data[:, v], "data", 0, "dots"),
            Line(trial.t, path, "simulation", 1),
        ]
        title = _named(found, name) + (f", series {trial.series}" if trial.series else "")
        parts.append(chart(title, lines, x_label=time_label(found), marks=marks, x_range=ends))
    error = 100 * np.minimum(trial.error, 10.0)
    limit = np.full(2, 100 * TOLERATED)
    parts.append(
        chart(
            "Error in % of the standard deviation, all variables",
            [
                Line(trial.t, error, "error", 5),
                Line(np.array(ends), limit, "limit", 6, "dashed"),
            ],
            x_label=time_label(found), marks=marks, x_range=ends, log_y=True,
        )
    )  # fmt: skip
    return parts


def phase_charts(found: Found) -> list[str]:
    """Pairs of states against each other, three at most."""
    model = found.model
    pairs = list(itertools.combinations(range(len(model.state_names_)), 2))[:3]
    found_parts = []
    for a, b in pairs:
        lines = [
            Line(states[:, a], states[:, b], table_label, i)
            for i, (states, table_label) in enumerate(
                zip(model.states_[:MOST_SERIES], _series_labels(found))
            )
        ]
        names = model.state_names_
        found_parts.append(
            chart(
                f"{names[b]} over {names[a]}", lines, x_label=names[a], y_label=names[b],
                square=True,
            )
        )  # fmt: skip
    return found_parts


def residual_charts(found: Found) -> list[str]:
    """Data less fitted states, over time and as a histogram, for each variable."""
    model = found.model
    parts = []
    for v, name in enumerate(found.table.names[:MOST_CHARTS]):
        rest = [x[:, v] - z[:, v] for x, z in zip(found.fitted, model.states_)]
        lines = [Line(model.times_[0], rest[0], "data − fit", v, "dots")]
        parts.append(
            charts.grid(
                [
                    chart(_named(found, name), lines, x_label=time_label(found), height="9rem"),
                    histogram(
                        f"{name}: all residuals", np.concatenate(rest), x_label="data − fit",
                        colour=v, deviation=float(model.noise_[v]), height="9rem",
                    ),
                ]
            )
        )  # fmt: skip
    return parts


def time_label(found: Found) -> str:
    """The time axis with its unit."""
    name = found.table.time_name or "row"
    return f"{name} ({found.table.time_unit})" if found.table.time_unit else name


def _named(found: Found, name: str) -> str:
    unit = found.table.units.get(name)
    return f"{name} [{unit}]" if unit else name


def _series_labels(found: Found) -> list[str]:
    if len(found.table.times) == 1:
        return ["fit"]
    return [f"series {label}" for label in found.table.series]


def _within(path: np.ndarray, data: np.ndarray) -> np.ndarray:
    """A simulation, cut where it leaves the data by far, so that they stay visible."""
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
