"""Charts and maps of a forecast."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from smnn._util.optional import require
from smnn.forecasting._forecast import Forecast
from smnn.forecasting._history import History, nanmean
from smnn.forecasting._time import years
from smnn.report import charts

if TYPE_CHECKING:
    from smnn.forecasting._backtest import Backtest

MAX_REFERENCES = 4
"""Number of references that are drawn with the forecast, the best ones."""
DAY = np.timedelta64(1, "D")
LONG = 700
"""Length in days from which the time axis is in years."""
MAX_PAST = 3
"""Number of past forecasts that are drawn."""


def curves(history: History, forecast: Forecast, shown: Sequence[int], unit: str) -> list[str]:
    """The last part of each history, the forecast and its interval."""
    t = forecast.t
    rows = history.rows
    tail = slice(max(0, len(history.clock) - max(4 * len(t), 60)), None)
    x, label = _axis(history, forecast)
    interval = f"{100 * forecast.level:.0f} % interval"
    out = []
    for i in shown:
        f = forecast.series(i)
        observed = charts.Line(x(history.clock.stamps[tail]), rows[i, tail], "observed", 6)
        lines = [observed, charts.Line(x(t), f["mean"], "forecast", 1)]
        bands = [charts.Band(x(t), f["lower"], f["upper"], interval, 1)]
        name = forecast.names[i]
        out.append(charts.chart(name, lines, x_label=label, y_label=unit, bands=bands))
    return out


def components(history: History, forecast: Forecast, i: int) -> list[str]:
    """The components of the forecast of series `i`."""
    x, label = _axis(history, forecast)
    t = x(forecast.t)
    return [
        charts.chart(
            name, [charts.Line(t, part.reshape(len(t), -1)[:, i], name, k, keyed=False)],
            x_label=label, height="8rem",
        )
        for k, (name, part) in enumerate(forecast.components.items())
    ]  # fmt: skip


def by_lead(backtest: Backtest, step: str) -> list[str]:
    """Error and coverage of the back-test by lead."""
    ahead = f"{step}s ahead"
    leads = np.arange(1, backtest.inside.shape[2] + 1)
    ours, *others = backtest.methods[: 1 + MAX_REFERENCES]
    errors = [charts.Line(leads, backtest.by_lead(ours), "this forecast", 0)]
    errors += [
        charts.Line(leads, backtest.by_lead(m), m, k, "dashed") for k, m in enumerate(others, 1)
    ]
    nominal = np.full(len(leads), 100 * backtest.level)
    coverage = [
        charts.Line(leads, 100 * backtest.coverage_by_lead(), "inside the interval", 0),
        charts.Line(leads, nominal, "nominal", 1, "dashed"),
    ]
    return [
        charts.chart("Error by lead", errors, x_label=ahead, y_label="relative error"),
        charts.chart("Coverage by lead", coverage, x_label=ahead, y_label="%"),
    ]


def past_forecasts(history: History, forecast: Forecast, backtest: Backtest, unit: str) -> str:
    """Forecasts from a few past origins and the observations, for the first series."""
    x, label = _axis(history, forecast)
    name = backtest.names[0]
    row = history.rows[history.names.index(name)]
    H = backtest.inside.shape[2]
    chosen: list[int] = []
    for i, origin in enumerate(backtest.origins):
        separate = all(abs(origin - backtest.origins[j]) >= H for j in chosen)
        if separate and len(chosen) < MAX_PAST:
            chosen.append(i)
    first = max(0, min(backtest.origins[i] for i in chosen) - H)
    t = x(history.clock.stamps)
    lines = [charts.Line(t[first:], row[first:], "observed", 6)]
    errors = backtest.errors[backtest.methods[0]]
    for n, i in enumerate(chosen):
        ahead = slice(backtest.origins[i], backtest.origins[i] + H)
        mean = row[ahead] + errors[i, 0] * backtest.scale[0]
        lines.append(charts.Line(t[ahead], mean, "past forecast", 1, "dashed", keyed=n == 0))
    return charts.chart(f"Past forecasts: {name}", lines, x_label=label, y_label=unit)


def _axis(history: History, forecast: Forecast) -> tuple[Callable[[np.ndarray], np.ndarray], str]:
    """Conversion of times to numbers, and the label of the axis: years, days, or as given."""
    stamps, ahead = history.clock.stamps, forecast.t
    if not history.clock.dated:
        return lambda t: np.asarray(t, float), "time"
    if (ahead[-1] - stamps[0]) / DAY > LONG:
        return years, "year"
    last = stamps[-1]
    day = str(last.astype("datetime64[m]")).replace("T", " ").removesuffix(" 00:00")
    return lambda t: np.asarray((t - last) / DAY, float), f"days from {day}"


def maps(
    history: History, forecast: Forecast, latitudes: np.ndarray, longitudes: np.ndarray, unit: str
) -> bytes:
    """PNG with maps of the predicted change and the uncertainty of a grid; missing data is grey."""
    before = nanmean(history.array[-max(len(history.clock) // 2, 1) :], (0,))
    fields = {
        "Mean of the forecast minus mean of the second half of the history": (
            nanmean(forecast.mean, (0,)) - before
        ),
        f"Half-width of the {100 * forecast.level:.0f} % interval, mean over the horizon": (
            nanmean((forecast.upper - forecast.lower) / 2, (0,))
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
                longitudes, latitudes, field, cmap="RdBu_r" if signed else "viridis",
                vmin=-top if signed else 0.0, vmax=top, shading="nearest",
            )  # fmt: skip
            if np.isnan(field).any() and len(known):
                missing = np.isnan(field)
                ax.contour(longitudes, latitudes, missing, [0.5], colors="#1d2330", linewidths=0.6)
            ax.set_title(title, loc="left", fontsize=11)
            ax.set_xlabel("longitude, degrees east")
            ax.set_ylabel("latitude, degrees north")
            fig.colorbar(image, ax=ax, label=unit, shrink=0.85)
        buffer = io.BytesIO()
        fig.savefig(buffer, format="png", dpi=120)
        return buffer.getvalue()
    finally:
        plt.close(fig)
