"""Standardization and neighbours of gridded series."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Standard:
    """Offset and scale of a series, estimated from its training part."""

    offset: np.ndarray
    """Broadcasts against `(T, N)`."""
    scale: np.ndarray
    """Broadcasts against `(T, N)`, positive."""

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Standardize `(T, N)`."""
        return np.asarray((x - self.offset) / self.scale)

    def undo(self, x: np.ndarray) -> np.ndarray:
        """Convert standardized values back to degrees."""
        return np.asarray(x * self.scale + self.offset)


def standard(
    series: np.ndarray, time: np.ndarray, until: int, how: str = "global", harmonics: int = 3
) -> Standard:
    """Estimate offset and scale from the first `until` times.

    Args:
        series: `(T, N)`.
        time: `(T,)` dates.
        until: Length of the training part.
        how: `"global"`: one mean and one standard deviation over all cells and times, as in the
            paper; most of that deviation is spatial. `"anomaly"`: deviations of every cell from its
            own seasonal cycle, in units of their standard deviation.
        harmonics: Number of harmonics of the seasonal cycle.
    """
    T = len(series)
    if not 2 <= until <= T:
        raise ValueError(f"until: got {until}; expected 2 to {T}, the length of the series.")
    train = series[:until]
    if how == "global":
        return Standard(np.asarray(train.mean()), np.asarray(train.std()))
    if how != "anomaly":
        raise ValueError(f"how: got {how!r}; expected 'global' or 'anomaly'.")
    cycle = seasonal_waves(time, harmonics)
    weights = np.linalg.lstsq(cycle[:until], train, rcond=None)[0]
    offset = cycle @ weights
    spread = (train - offset[:until]).std(axis=0)
    # Under ice the temperature is almost constant; a floor avoids amplifying rounding errors.
    floor = 1e-3 * max(float(spread.max()), 1e-12)
    return Standard(offset, np.maximum(spread, floor))


def seasonal_waves(time: np.ndarray, harmonics: int) -> np.ndarray:
    """`(T, 1 + 2 * harmonics)` design matrix, with the phase given by the calendar."""
    year = time.astype("datetime64[Y]")
    length = (year + 1).astype("datetime64[ns]") - year.astype("datetime64[ns]")
    angle = 2 * np.pi * ((time.astype("datetime64[ns]") - year.astype("datetime64[ns]")) / length)
    waves = [f(j * angle) for j in range(1, harmonics + 1) for f in (np.cos, np.sin)]
    return np.stack([np.ones(len(time)), *waves], axis=1)


@dataclass(frozen=True)
class Neighbours:
    """Neighbours of every ocean cell on its circle of latitude."""

    start: np.ndarray
    """`(N+1,)` offsets into `partner`."""
    partner: np.ndarray
    """`(E,)` indices of cells."""

    @property
    def paired(self) -> np.ndarray:
        """Cells with at least one neighbour."""
        return np.flatnonzero(np.diff(self.start) > 0)


def neighbours(ocean: np.ndarray, reach: int = 5) -> Neighbours:
    """Pairs of ocean cells in the same row of the grid, at most `reach` columns apart.

    Rows are periodic (longitude 357.5 is next to 0), and both directions of a pair are listed.

    Args:
        ocean: `(A, O)` bool.
        reach: Largest distance in columns.
    """
    A, O = ocean.shape
    if not 1 <= reach < O:
        raise ValueError(f"reach: got {reach}; expected 1 to {O - 1}, less than a full circle.")
    index = np.full(ocean.shape, -1)
    index[ocean] = np.arange(int(ocean.sum()))
    offsets = sorted({k % O for k in range(-reach, reach + 1)} - {0})
    near = np.stack([np.roll(index, -k, axis=1) for k in offsets], axis=-1)[ocean]  # (N, K)
    there = near >= 0
    start = np.concatenate([[0], np.cumsum(there.sum(1))])
    return Neighbours(start, near[there])
