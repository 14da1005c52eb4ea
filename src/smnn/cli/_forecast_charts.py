"""Pictures of a forecast: curves with their intervals, tests on the past, maps of a grid."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np

from smnn._util.optional import require
from smnn.cli._forecast_run import Outcome
from smnn.forecasting._backtest import OURS
from smnn.forecasting._time import years
from smnn.report import charts

COMPARED = 4
"""References that are drawn beside the forecast, the best of them."""
DAY = np.timedelta64(1, "D")
LONG = 700
"""Days from which an axis is in years."""
DRAWN_PAST = 3
"""Forecasts of the past that are drawn over what came."""


def curves(outcome: Outcome) -> list[str]:
    """The end of each history, the forecast and its interval."""
    f = outcome.forecast
    H = len(f.t)
    rows = outcome.values.rows
    tail = slice(max(0, len(outcome.clock) - max(4 * H, 60)), None)
    x, label = _axis(outcome)
    out = []
    for i in outcome.shown:
        mean, low, high = (a.reshape(H, -1)[:, i] for a in (f.mean, f.lower, f.upper))
        out.append(
            charts.chart(
                f.names[i],
                [
                    charts.Line(x(outcome.clock.stamps[tail]), rows[i, tail], "observed", 6),
                    charts.Line(x(f.t), mean, "forecast", 1),
                ],
                x_label=label,
                y_label=outcome.unit,
                bands=[charts.Band(x(f.t), low, high, f"{100 * f.level:.0f} % interval", 1)],
            )
        )
    return out


def parts(outcome: Outcome, place: int) -> list[str]:
    """What the forecast of one series is made of."""
    f = outcome.forecast
    x, label = _axis(outcome)
    return [
        charts.chart(
            name, [charts.Line(x(f.t), part.reshape(len(f.t), -1)[:, place], name, k, keyed=False)],
            x_label=label, height="8rem",
        )
        for k, (name, part) in enumerate(f.components.items())
    ]  # fmt: skip


def tested(outcome: Outcome) -> list[str]:
    """Errors and coverage by lead, and some forecasts of the past."""
    found = outcome.tested
    assert found is not None
    ahead = f"{outcome.clock.unit()}s ahead"
    leads = np.arange(1, found.inside.shape[2] + 1)
    lines = [
        charts.Line(
            leads, found.by_lead(m), "this forecast" if m == OURS else m, k,
            "line" if m == OURS else "dashed",
        )
        for k, m in enumerate(found.methods[: 1 + COMPARED])
    ]  # fmt: skip
    seen = np.isfinite(found.inside)
    count = seen.sum((0, 1))
    inside = np.where(seen, found.inside, 0.0).sum((0, 1)) / np.maximum(count, 1)
    inside = np.where(count > 0, inside, np.nan)
    meant = np.full(len(leads), 100 * found.level)
    drawn = [
        charts.chart("Error by lead", lines, x_label=ahead, y_label="relative error"),
        charts.chart(
            "Coverage by lead",
            [
                charts.Line(leads, 100 * inside, "inside the interval", 0),
                charts.Line(leads, meant, "meant", 1, "dashed"),
            ],
            x_label=ahead,
            y_label="%",
        ),
    ]
    return drawn


def past(outcome: Outcome) -> str:
    """What forecasts from a few origins said, over what came, for the first series."""
    found = outcome.tested
    assert found is not None
    x, label = _axis(outcome)
    name = found.names[0]
    place = outcome.forecast.names.index(name)
    row = outcome.values.rows[place]
    H = found.inside.shape[2]
    chosen: list[int] = []
    for i, origin in enumerate(found.origins):
        apart = all(abs(origin - found.origins[j]) >= H for j in chosen)
        if apart and len(chosen) < DRAWN_PAST:
            chosen.append(i)
    first = max(0, min(found.origins[i] for i in chosen) - H)
    stamps = x(outcome.clock.stamps)
    lines = [charts.Line(stamps[first:], row[first:], "observed", 6)]
    for n, i in enumerate(chosen):
        ahead = slice(found.origins[i], found.origins[i] + H)
        said = row[ahead] + found.errors[OURS][i, 0] * found.scale[0]
        lines.append(
            charts.Line(stamps[ahead], said, "forecast of the past", 1, "dashed", keyed=n == 0)
        )
    return charts.chart(
        f"What it would have said: {name}", lines, x_label=label, y_label=outcome.unit
    )


def _axis(outcome: Outcome) -> tuple[Callable[[np.ndarray], np.ndarray], str]:
    """How times become numbers for a chart, and what they are: years, days, or as given."""
    stamps, ahead = outcome.clock.stamps, outcome.forecast.t
    if not outcome.clock.dated:
        return lambda t: np.asarray(t, float), "time"
    if (ahead[-1] - stamps[0]) / DAY > LONG:
        return years, "year"
    last = stamps[-1]
    day = str(last.astype("datetime64[m]")).replace("T", " ").removesuffix(" 00:00")
    return lambda t: np.asarray((t - last) / DAY, float), f"days from {day}"


def maps(outcome: Outcome) -> bytes:
    """The change and the uncertainty of a grid as a PNG; where there is no data it is grey."""
    assert outcome.grid is not None
    lat, lon = outcome.grid
    f = outcome.forecast
    before = _mean(outcome.values.array[-max(len(outcome.clock) // 2, 1) :])
    fields = {
        "Mean of the forecast minus mean of the second half of the history": _mean(f.mean) - before,
        f"Half width of the {100 * f.level:.0f} % interval, mean over the horizon": _mean(
            (f.upper - f.lower) / 2
        ),
    }
    plt = require("matplotlib.pyplot", "draw maps")
    fig, axes = plt.subplots(len(fields), 1, figsize=(9, 8.4), layout="constrained")
    try:
        for ax, (title, field) in zip(axes, fields.items()):
            known = field[np.isfinite(field)]
            signed = bool(len(known)) and known.min() < 0 < known.max()
            top = float(np.quantile(np.abs(known), 0.99)) if len(known) else 1.0
            top = top if top > 0 else 1.0
            ax.set_facecolor("#d5d9e0")
            image = ax.pcolormesh(
                lon, lat, field, cmap="RdBu_r" if signed else "viridis",
                vmin=-top if signed else 0.0, vmax=top, shading="nearest",
            )  # fmt: skip
            if np.isnan(field).any() and len(known):
                ax.contour(lon, lat, np.isnan(field), [0.5], colors="#1d2330", linewidths=0.6)
            ax.set_title(title, loc="left", fontsize=11)
            ax.set_xlabel("longitude, degrees east")
            ax.set_ylabel("latitude, degrees north")
            fig.colorbar(image, ax=ax, label=outcome.unit, shrink=0.85)
        buffer = io.BytesIO()
        fig.savefig(buffer, format="png", dpi=120)
        return buffer.getvalue()
    finally:
        plt.close(fig)


def _mean(values: np.ndarray) -> np.ndarray:
    """Over time, NaN where nothing is known."""
    seen = np.isfinite(values)
    count = seen.sum(0)
    total = np.where(seen, values, 0.0).sum(0)
    out: np.ndarray = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return out
