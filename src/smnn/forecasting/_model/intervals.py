"""Prediction intervals from the errors that the same method made in the past."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smnn._util.optional import require

ENOUGH = 20.0
"""Independent errors from which their own distribution counts as much as Student's."""
SMOOTHING = 8
"""The spread is averaged over this part of the horizon."""
OPTIMISM = 1.05
"""Errors that had a say in the candidates are a little smaller than those to come."""


@dataclass(frozen=True)
class Calibration:
    """Spread of the error by series and lead, and how its tails compare with a normal's."""

    spread: np.ndarray
    """`(S, H)` standard deviation, on the scale that was modelled."""
    sizes: np.ndarray
    """Sorted sizes of past errors relative to the spread; empty if there were none."""
    origins: float
    """How many independent errors they are worth."""

    def extend(self, known: np.ndarray, changes: np.ndarray) -> Calibration:
        """To series that were not tested, by how much they change from step to step.

        Args:
            known: Places of the series that were tested.
            changes: `(S,)` spread of the changes of all series.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = self.spread / changes[known, None]
        usable = np.isfinite(ratio).all(1) & (ratio > 0).all(1)
        typical = np.median(ratio[usable], axis=0) if usable.any() else np.ones(ratio.shape[1])
        spread = changes[:, None] * typical
        spread[known] = self.spread
        return Calibration(spread, self.sizes, self.origins)

    def width(self, level: float, horizon: int) -> np.ndarray:
        """`(S, horizon)` half width of the interval at this level."""
        return self.factor(level) * self.at(horizon)

    def at(self, horizon: int) -> np.ndarray:
        """`(S, horizon)` spread; beyond the leads that were tried it goes on growing as before."""
        H = self.spread.shape[1]
        if horizon <= H:
            return self.spread[:, :horizon]
        middle = max(H // 2, 1) - 1
        with np.errstate(divide="ignore", invalid="ignore"):
            growth = np.log(self.spread[:, -1] / self.spread[:, middle]) / np.log(H / (middle + 1))
        growth = np.clip(np.nan_to_num(growth), 0.0, 1.0)[:, None]
        more = self.spread[:, -1:] * (np.arange(H + 1, horizon + 1) / H) ** growth
        return np.concatenate([self.spread, more], axis=1)

    def factor(self, level: float) -> float:
        """Half widths per standard deviation."""
        stats = require("scipy.stats", "compute prediction intervals")
        student = float(stats.t.ppf(0.5 + level / 2, max(self.origins - 1, 2.0)))
        if not len(self.sizes):
            return student
        seen = float(np.quantile(self.sizes, level))
        trust = self.origins / (self.origins + ENOUGH)
        return trust * seen + (1 - trust) * student


def calibrate(errors: np.ndarray, inner: np.ndarray) -> Calibration:
    """Learn the spread from past errors.

    Args:
        errors: `(S, O, H)` of forecasts from the origins, NaN where nothing was observed.
        inner: `(S,)` spread of what the equation leaves unexplained: for series without errors.
    """
    S, O, H = errors.shape
    seen = np.isfinite(errors)
    square = np.where(seen, errors, 0.0) ** 2
    per_series = _ratio(square.sum((1, 2)), seen.sum((1, 2)))
    known = np.isfinite(per_series) & (per_series > 0)
    # The course over the leads is shared, the size is each series' own.
    unit = np.where(known, np.sqrt(np.where(known, per_series, 1.0)), 1.0)
    shape = _smooth(
        _ratio((square / unit[:, None, None] ** 2)[known].sum((0, 1)), seen[known].sum((0, 1)))
    )
    own = _ratio(square.sum(1), seen.sum(1))
    own = np.where(np.isfinite(own), own, (unit**2)[:, None] * shape)
    # A single series has its own course; of many series, each borrows that of all.
    borrowed = (unit**2)[:, None] * shape
    course = np.apply_along_axis(_smooth, 1, own) if S <= 16 else borrowed
    spread = np.sqrt(0.5 * course + 0.5 * borrowed) if S <= 16 else np.sqrt(borrowed)
    spread = OPTIMISM * np.where(known[:, None], spread, inner[:, None])
    spread = np.maximum.accumulate(spread, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = np.abs(errors) / spread[:, None, :]
    sizes = np.sort(sizes[np.isfinite(sizes)])
    together = 1.0 + np.log2(max(S, 1))  # series of one panel err together
    return Calibration(spread, sizes, O * together)


def _ratio(total: np.ndarray, count: np.ndarray) -> np.ndarray:
    out: np.ndarray = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return out


def _smooth(square: np.ndarray) -> np.ndarray:
    """Average over neighbouring leads; gaps take the value before them."""
    H = len(square)
    side = max(1, H // SMOOTHING)
    seen = np.isfinite(square)
    if not seen.any():
        return np.ones(H)
    filled = np.interp(np.arange(H), np.flatnonzero(seen), square[seen])
    total = np.concatenate([[0.0], np.cumsum(filled)])
    lead = np.arange(H)
    # The first leads are the sharpest and few: their window shrinks with them.
    reach = np.minimum(np.minimum(lead, side), H - 1 - lead)
    first, last = lead - reach, lead + reach + 1
    out: np.ndarray = (total[last] - total[first]) / (last - first)
    return out
