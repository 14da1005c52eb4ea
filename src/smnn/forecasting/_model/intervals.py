"""Prediction intervals, calibrated by cross-validation errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from smnn._util.optional import require
from smnn.forecasting._model.spec import MAX_LOG

ENOUGH = 20.0
"""Effective number of errors at which empirical and Student quantiles have equal weights."""
SMOOTHING = 8
"""Leads up to this fraction (1/8) of the horizon apart are averaged."""
OPTIMISM = 0.25
"""Inflation of the spread for errors in a single window, because the candidates were selected by
the same errors; it decreases with the square root of the number of windows and series."""
FREEDOM = 4.0
"""Least degrees of freedom of the Student quantile: a forecast has errors at several leads."""
FEW = 16
"""Up to this many series, one half of the growth of the spread with lead time is that of each
series; with more of them, the common growth is better known and the half becomes less."""
MIN_OWN = 0.02
"""Share below which the growth is common."""


@dataclass(frozen=True)
class Calibration:
    """Spread of the errors by series and lead, and their standardized quantiles."""

    spread: np.ndarray
    """`(S, H)` standard deviation on the modelled scale."""
    sizes: np.ndarray
    """Sorted absolute errors relative to the spread; may be empty."""
    origins: float
    """Effective number of independent errors."""
    age: np.ndarray | None = None
    """`(S,)` steps since the last observation of each series, which add to the lead time."""

    def width(self, level: float, horizon: int) -> np.ndarray:
        """`(S, horizon)` half-width of the interval at this level."""
        return self.factor(level) * self.at(horizon)

    def at(self, horizon: int) -> np.ndarray:
        """`(S, horizon)` spread; extrapolated by a power law beyond the calibrated leads."""
        H = self.spread.shape[1]
        age = np.zeros(len(self.spread), dtype=int) if self.age is None else self.age
        lead = np.arange(1, horizon + 1) + age[:, None]
        known = np.take_along_axis(self.spread, np.minimum(lead, H) - 1, axis=1)
        middle = max(H // 2, 1) - 1
        with np.errstate(divide="ignore", invalid="ignore"):
            growth = np.log(self.spread[:, -1] / self.spread[:, middle]) / np.log(H / (middle + 1))
        growth = np.clip(np.nan_to_num(growth), 0.0, 1.0)[:, None]
        out: np.ndarray = known * np.maximum(lead / H, 1.0) ** growth
        return out

    def factor(self, level: float) -> float:
        """Half-width in standard deviations."""
        stats = require("scipy.stats", "compute prediction intervals")
        student = float(stats.t.ppf(0.5 + level / 2, max(self.origins - 1, FREEDOM)))
        if not len(self.sizes):
            return student
        empirical = float(np.quantile(self.sizes, level))
        weight = self.origins / (self.origins + ENOUGH)
        return weight * empirical + (1 - weight) * student


def calibrate(
    errors: np.ndarray, changes: np.ndarray, complete: np.ndarray, windows: float
) -> Calibration:
    """Estimate the spread from cross-validation errors.

    Args:
        errors: `(S, O, H)` errors of the forecasts from the origins, NaN where not scored.
        changes: `(S,)` root mean square one-step change, for series with few errors.
        complete: The same errors including outliers, for the quantiles.
        windows: Number of non-overlapping horizons that the origins cover.
    """
    S, O, H = errors.shape
    seen = np.isfinite(errors)
    square = np.where(seen, errors, 0.0) ** 2
    per_series = _ratio(square.sum((1, 2)), seen.sum((1, 2)))
    known = np.isfinite(per_series) & (per_series > 0)
    # The growth with lead time is shared, the size is estimated per series.
    unit = np.where(known, np.sqrt(np.where(known, per_series, 1.0)), 1.0)
    shape = _smooth(
        _ratio((square / unit[:, None, None] ** 2)[known].sum((0, 1)), seen[known].sum((0, 1)))
    )
    # Origins at which a series was not scored count as typical for its one-step changes.
    scored = seen.any(2).sum(1)
    fraction = scored / max(int(scored.max(initial=0)), 1)
    typical = changes * _typical_ratio(unit[known, None], changes[known])
    blend = np.sqrt(fraction * unit**2 + (1 - fraction) * typical**2)
    scored_fully = known & (fraction == 1)
    unit = np.where(scored_fully, unit, np.where(known, blend, typical))
    pooled = (unit**2)[:, None] * shape
    own = _ratio(square.sum(1), seen.sum(1))
    own = np.where(np.isfinite(own) & scored_fully[:, None], own, pooled)
    share = 0.5 * min(1.0, FEW / S)
    square = pooled
    if share > MIN_OWN:
        square = share * np.apply_along_axis(_smooth, 1, own) + (1 - share) * pooled
    series = 1.0 + np.log2(max(S, 1))  # errors are correlated between series
    inflation = 1.0 + OPTIMISM / np.sqrt(windows * series)
    spread = inflation * np.maximum.accumulate(np.sqrt(square), axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = np.abs(complete) / spread[:, None, :]
    sizes = np.sort(sizes[np.isfinite(sizes)])
    return Calibration(spread, sizes, O * series)


def _typical_ratio(spread: np.ndarray, changes: np.ndarray) -> np.ndarray:
    """`(H,)` median ratio of the spread to the one-step change; 1 if there is none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = spread / changes[:, None]
    usable = np.isfinite(ratio).all(1) & (ratio > 0).all(1)
    return np.median(ratio[usable], axis=0) if usable.any() else np.ones(spread.shape[1])


def _ratio(total: np.ndarray, count: np.ndarray) -> np.ndarray:
    out: np.ndarray = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return out


def _smooth(square: np.ndarray) -> np.ndarray:
    """Moving average over leads; gaps are interpolated."""
    H = len(square)
    side = max(1, H // SMOOTHING)
    seen = np.isfinite(square)
    if not seen.any():
        return np.ones(H)
    filled = np.interp(np.arange(H), np.flatnonzero(seen), square[seen])
    total = np.concatenate([[0.0], np.cumsum(filled)])
    lead = np.arange(H)
    # The window shrinks towards both ends, so the first leads stay sharp.
    reach = np.minimum(np.minimum(lead, side), H - 1 - lead)
    first, last = lead - reach, lead + reach + 1
    out: np.ndarray = (total[last] - total[first]) / (last - first)
    return out


@dataclass(frozen=True)
class Scale:
    """Conversion from the modelled scale to the units and the shape of the data."""

    log: np.ndarray
    """`(S,)` which series are modelled by their logarithms; with `floored`, only fitted series."""
    floored: np.ndarray
    """`(S,)` which series are clipped at zero."""
    fitted: np.ndarray
    """Which of all series were fitted; the others are NaN."""
    shape: tuple[int, ...]
    """Shape of the data at one time."""

    def units(self, x: np.ndarray) -> np.ndarray:
        """Convert `(S, H)` to the units of the data, `(H, *shape)`."""
        log = self.log[:, None]
        x = np.where(log, np.exp(np.where(log, np.minimum(x, MAX_LOG), 0.0)), x)
        return self.shaped(np.where(self.floored[:, None], np.maximum(x, 0.0), x))

    def shaped(self, x: np.ndarray) -> np.ndarray:
        """Rearrange `(S, H)` to `(H, *shape)`, with NaN for series that were not fitted."""
        out = np.full((len(self.fitted), x.shape[1]), np.nan)
        out[self.fitted] = x
        return out.T.reshape(x.shape[1], *self.shape)


@dataclass(frozen=True)
class Interval:
    """Prediction intervals at any level."""

    mean: np.ndarray
    """`(S, H)` on the modelled scale."""
    calibrations: Sequence[tuple[np.ndarray, Calibration]]
    """Calibrations, and the indices of their series."""
    scale: Scale

    def __call__(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds, `(H, *shape)` each."""
        if not 0 < level < 1:
            raise ValueError(f"level: got {level}; expected a probability between 0 and 1.")
        width = np.empty_like(self.mean)
        for rows, calibration in self.calibrations:
            width[rows] = calibration.width(level, self.mean.shape[1])
        return self.scale.units(self.mean - width), self.scale.units(self.mean + width)
