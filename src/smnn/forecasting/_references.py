"""Simple reference forecasts, such as climatology and the last value."""

from __future__ import annotations

import numpy as np

from smnn.forecasting._model.panel import Panel
from smnn.forecasting._model.periods import interpolated
from smnn.forecasting._model.spec import CLIMATOLOGY, TREND
from smnn.forecasting._time import Clock

MAX_DECAY = 0.999
"""Largest decay factor of an anomaly per step."""


def references(panel: Panel, count: int, future: Clock) -> dict[str, np.ndarray]:
    """Reference forecasts `(S, H)` from the first `count` times.

    References that need a longer history are left out.
    """
    past = slice(0, count)
    horizon = len(future)
    y = interpolated(panel.values[:, past])
    fits = panel.fit([CLIMATOLOGY, TREND], [count], count)
    climatology, trend = (panel.ahead(fit, [count])[0] for fit in fits)
    out = {"climatology": climatology, "trend + season": trend}
    out["damped persistence"] = trend + _damped_anomaly(panel, past, future)
    if 0 < panel.longest <= count:
        steps = panel.clock.steps[past]
        back = np.ceil((future.steps - steps[-1] - 1e-9) / panel.longest) * panel.longest
        out["last season"] = y[:, np.abs((future.steps - back)[:, None] - steps).argmin(1)]
    if horizon <= count:
        out["previous chunk"] = y[:, -horizon:]
    out["last value"] = np.repeat(y[:, -1:], horizon, axis=1)
    return out


def _damped_anomaly(panel: Panel, past: slice, future: Clock) -> np.ndarray:
    """`(S, H)` last anomaly from trend and season, decaying with its lag-1 autocorrelation."""
    residual = panel.residual(TREND, past)
    steps = panel.clock.steps[past]
    before, after = panel.lagged(residual, past)
    square = (before**2).sum(1)
    decay = np.clip((before * after).sum(1) / np.maximum(square, 1e-300), 0.0, MAX_DECAY)
    # The last observed value and its age.
    seen = np.isfinite(residual)
    place = residual.shape[1] - 1 - seen[:, ::-1].argmax(1)
    series = np.arange(len(residual))
    last = np.where(seen.any(1), np.nan_to_num(residual[series, place]), 0.0)
    age = future.steps[None, :] - steps[place][:, None]
    out: np.ndarray = last[:, None] * decay[:, None] ** age
    return out
