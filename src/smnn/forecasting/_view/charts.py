"""Charts and maps of a forecast."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from smnn._util.optional import require
from smnn.report import charts

if TYPE_CHECKING:
    from smnn.forecasting._backtest import Backtest
    from smnn.forecasting._forecast import Forecast
    from smnn.forecasting._history import History

MAX_REFERENCES = 4
"""Number of references that are drawn with the forecast, the best ones."""
MAX_PAST = 3
"""Number of past forecasts that are drawn."""


def curves(
    history: History | None, forecast: Forecast, shown: Sequence[int], unit: str = ""
) -> list[charts.Chart]:
    """The last part of each history, the forecast and its interval."""
    t = forecast.t
    label = "time" if history is None else _label(history)
    interval = f"{100 * forecast.level:.4g} % interval"
    out = []
    for i in shown:
        f = forecast.series(i)
        lines = [charts.Line(t, f["mean"], "forecast", 1)]
        if history is not None:
            tail = slice(max(0, len(history.clock) - max(4 * len(t), 60)), None)
            observed = history.array.reshape(len(history.array), -1)[tail, i]
            lines.insert(0, charts.Line(history.clock.stamps[tail], observed, "observed", 6))
        bands = [charts.Band(t, f["lower"], f["upper"], interval, 1)]
        out.append(charts.Chart(forecast.names[i], lines, label, unit, bands))
    return out


def fitted_curves(history: History, fitted: np.ndarray, shown: Sequence[int]) -> list[charts.Chart]:
    """Each history with its fitted trajectory."""
    t, rows = history.clock.stamps, history.rows
    smooth = fitted.reshape(len(t), -1)
    return [
        charts.Chart(
            history.names[i],
            [charts.Line(t, rows[i], "observed", 6, "dots"),
             charts.Line(t, smooth[:, i], "fitted", 1)],
            _label(history),
        )
        for i in shown
    ]  # fmt: skip


def components(history: History, forecast: Forecast, i: int) -> list[str]:
    """The components of the forecast of series `i`."""
    t = forecast.t
    return [
        charts.chart(
            name, [charts.Line(t, part.reshape(len(t), -1)[:, i], name, k, keyed=False)],
            x_label=_label(history), height="8rem",
        )
        for k, (name, part) in enumerate(forecast.components.items())
    ]  # fmt: skip


def by_lead(backtest: Backtest) -> list[charts.Chart]:
    """Error and coverage of the back-test by lead."""
    ahead = f"{backtest.step}s ahead"
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
        charts.Chart("Error by lead", errors, ahead, "relative error"),
        charts.Chart("Coverage by lead", coverage, ahead, "%"),
    ]


def past_forecasts(history: History, backtest: Backtest, unit: str) -> str:
    """Forecasts from a few past origins and the observations, for the first series."""
    name = backtest.names[0]
    row = history.rows[history.names.index(name)]
    H = backtest.inside.shape[2]
    chosen: list[int] = []
    for i, origin in enumerate(backtest.origins):
        separate = all(abs(origin - backtest.origins[j]) >= H for j in chosen)
        if separate and len(chosen) < MAX_PAST:
            chosen.append(i)
    first = max(0, min(backtest.origins[i] for i in chosen) - H)
    t = history.clock.stamps
    lines = [charts.Line(t[first:], row[first:], "observed", 6)]
    errors = backtest.errors[backtest.methods[0]]
    for n, i in enumerate(chosen):
        ahead = slice(backtest.origins[i], backtest.origins[i] + H)
        mean = row[ahead] + errors[i, 0] * backtest.scale[0]
        lines.append(charts.Line(t[ahead], mean, "past forecast", 1, "dashed", keyed=n == 0))
    return charts.chart(f"Past forecasts: {name}", lines, x_label=_label(history), y_label=unit)


def _label(history: History) -> str:
    return "date" if history.clock.dated else "time"


def maps(
    history: History, forecast: Forecast, latitudes: np.ndarray, longitudes: np.ndarray, unit: str
) -> bytes:
    """PNG with maps of the predicted change and the uncertainty of a grid; missing data is grey."""
    before = _mean(history.array[-max(len(history.clock) // 2, 1) :])
    fields = {
        "Mean of the forecast minus mean of the second half of the history": (
            _mean(forecast.mean) - before
        ),
        f"Half-width of the {100 * forecast.level:.0f} % interval, mean over the horizon": (
            _mean((forecast.upper - forecast.lower) / 2)
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


def _mean(values: np.ndarray) -> np.ndarray:
    """Mean over time without missing values; NaN where all are."""
    out: np.ndarray = np.ma.masked_invalid(values).mean(0).filled(np.nan)
    return out
