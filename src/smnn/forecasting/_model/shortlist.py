"""The best exponential smoothings of every series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from smnn.forecasting._model import smoothing
from smnn.forecasting._model.blend import Scores, mean_known, windows
from smnn.forecasting._model.panel import Panel
from smnn.forecasting._model.smoothing import ANOMALY, LAGS, SLOPE, candidates, smooth
from smnn.forecasting._model.spec import MAX_LOG

MEMBERS = 5
"""Number of smoothings per series."""
SAMPLE = 512
"""In a panel of more than twice as many series, those of a sample reduce the candidates."""
KEPT = 32
"""Candidates that are then tested on all series."""


@dataclass(frozen=True)
class Shortlist:
    """The best candidates of every series, and their forecasts from the origins."""

    table: np.ndarray
    """`(S, M, P)` candidates, as in `smoothing`."""
    log: np.ndarray
    """`(S,)` which series are modelled by their logarithms."""
    errors: np.ndarray
    """`(M, S, O)` mean absolute errors over the horizon, relative to the scale."""
    forecasts: np.ndarray
    """`(M, O, S, H)` on the modelled scale."""


def find_shortlist(
    panel: Panel, origins: Sequence[int], trend: str, logs: Sequence[bool]
) -> Shortlist | None:
    """Test all candidates on all series; `None` if the times are spaced unevenly.

    Args:
        panel: Series on one time axis.
        origins: Lengths of history to forecast from.
        trend: `"auto"`, or the only trend to use.
        logs: Whether to model the series, their logarithms, or to try both.
    """
    grid = panel.grid(panel.clock.after(1))
    if grid is None or panel.inputs is not None:
        return None
    table = candidates(len(grid.lengths), trend)
    S = len(panel.values)
    if S > 2 * SAMPLE:
        sample = panel.part(np.linspace(0, S - 1, SAMPLE).astype(int))
        ranked, _ = _ranked(sample, table, origins, logs)
        table = table[np.argsort(-np.bincount(ranked.ravel(), minlength=len(table)))[:KEPT]]
    ranked, log = _ranked(panel, table, origins, logs)
    own = table[ranked]
    tested = np.empty((own.shape[1], S, len(origins)))
    forecasts = np.empty((*tested.shape[:1], len(origins), S, panel.horizon))
    for rows, ahead, part in _tested(panel, own, origins, log):
        tested[:, rows], forecasts[:, :, rows] = part, ahead.transpose(2, 0, 1, 3)
    return Shortlist(own, log, tested, forecasts)


def _ranked(
    panel: Panel, table: np.ndarray, origins: Sequence[int], logs: Sequence[bool]
) -> tuple[np.ndarray, np.ndarray]:
    """Indices `(S, M)` of the best candidates of each series, and whether they use logarithms."""
    S, K, both = len(panel.values), len(table), len(logs)
    twice = panel.part(np.tile(np.arange(S), both))
    found = np.empty((K, both * S, len(origins)))
    for rows, _, part in _tested(twice, table, origins, np.repeat(logs, S)):
        found[:, rows] = part
    errors = found.reshape(K, both, S, -1).swapaxes(0, 1)
    if both > 1:
        errors[1][:, ~panel.positive] = np.nan
    complexity, covered = complexities(table), windows(origins, panel.horizon)
    scores = Scores(errors.reshape(-1, S, len(origins)), np.tile(complexity, both), covered)
    score = scores.values().reshape(both, K, S)
    best = score.min(1).argmin(0)
    ranked = np.argsort(score[best, :, np.arange(S)], axis=1, kind="stable")[:, :MEMBERS]
    return ranked, np.array(logs)[best]


def complexities(table: np.ndarray) -> np.ndarray:
    """Number of modelling choices beyond a level and fixed seasons."""
    adaptive = (table[..., LAGS + 1 :] > 0).any(-1)
    out: np.ndarray = (
        (table[..., SLOPE] > 0)
        + (table[..., ANOMALY] > 0)
        + 2.0 * (table[..., LAGS] > 0)
        + adaptive
    )
    return out


def _tested(
    panel: Panel, table: np.ndarray, origins: Sequence[int], log: np.ndarray
) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Batches of series with forecasts `(O, S, K, H)` and errors `(K, S, O)`."""
    grid = panel.grid(panel.clock.after(1))
    assert grid is not None
    y = panel.on_grid(grid, log)
    at = np.array([grid.places[o - 1] + 1 for o in origins])
    leads = np.stack([grid.places[o : o + panel.horizon] for o in origins]) - at[:, None]
    longest = int(leads.max()) + 1
    each = max(1, smoothing.BATCH_SIZE // (table.shape[-2] * len(origins) * longest))
    truth = np.stack([panel.raw[:, o : o + panel.horizon] for o in origins])  # (O, S, H)
    enough = np.stack([panel.scorable(slice(0, o)) for o in origins])
    truth = np.where(enough[:, :, None], truth, np.nan)
    for i in range(0, len(y), each):
        rows = slice(i, i + each)
        own = table if table.ndim == 2 else table[rows]
        ahead = smooth(y[rows], own, grid, at.tolist(), longest)
        if longest > panel.horizon or (leads != np.arange(longest)).any():
            ahead = np.take_along_axis(ahead, leads[:, None, None], axis=3)
        level = ahead
        if log[rows].any():
            power = np.exp(np.minimum(ahead, MAX_LOG))
            level = power if log[rows].all() else np.where(log[rows, None, None], power, ahead)
        off = np.abs(level - truth[:, rows, None]) / panel.scale[rows, None]
        yield rows, ahead, mean_known(off).transpose(2, 1, 0)
