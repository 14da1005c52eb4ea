"""Simple forecasts that any other has to face.

| name | what it says |
|---|---|
| climatology | the mean and the seasons of the history, for ever |
| trend + season | the same with a straight line |
| damped persistence | trend and season, and the last anomaly fading as it usually does |
| last season | the last season again |
| previous chunk | the last values again, as many as are asked for |
| last value | nothing changes |
"""

from __future__ import annotations

import numpy as np

from smnn.forecasting._model.panel import Panel, Repeat, filled
from smnn.forecasting._model.spec import CLIMATOLOGY, TREND
from smnn.forecasting._time import Clock

LONGEST = 0.999
"""Largest part of an anomaly that is left after one step."""


def references(panel: Panel, count: int, future: Clock) -> dict[str, np.ndarray]:
    """Forecasts `(S, H)` from the first `count` times.

    Those that the history is too short for are left out.
    """
    past = slice(0, count)
    horizon = len(future)
    y = filled(panel.values[:, past])
    known = None if panel.inputs is None else panel.inputs[count : count + horizon]
    climatology, trend = panel.ahead([CLIMATOLOGY, TREND], past, future, known)
    out = {"climatology": climatology, "trend + season": trend}
    out["damped persistence"] = trend + _fading(panel, past, future)
    if 0 < panel.longest <= count:
        (out["last season"],) = panel.ahead([Repeat(panel.longest)], past, future)
    if horizon <= count:
        out["previous chunk"] = y[:, -horizon:]
    out["last value"] = np.repeat(y[:, -1:], horizon, axis=1)
    return out


def _fading(panel: Panel, past: slice, future: Clock) -> np.ndarray:
    """`(S, H)` the last anomaly from trend and season, damped as fast as anomalies usually are."""
    ((system, centre, states),) = panel.states([TREND], past, future)
    rest = panel.values[:, past] - centre - states @ system.h.T
    steps = panel.clock.steps[past]
    pairs = np.abs(np.diff(steps) - 1.0) < 0.25
    before, after = rest[:, :-1][:, pairs], rest[:, 1:][:, pairs]
    both = np.isfinite(before) & np.isfinite(after)
    before, after = np.where(both, before, 0.0), np.where(both, after, 0.0)
    square = (before**2).sum(1)
    decay = np.clip((before * after).sum(1) / np.maximum(square, 1e-300), 0.0, LONGEST)
    # The last value that was seen, and how long ago.
    seen = np.isfinite(rest)
    place = rest.shape[1] - 1 - seen[:, ::-1].argmax(1)
    series = np.arange(len(rest))
    last = np.where(seen.any(1), np.nan_to_num(rest[series, place]), 0.0)
    age = future.steps[None, :] - steps[place][:, None]
    out: np.ndarray = last[:, None] * decay[:, None] ** age
    return out
