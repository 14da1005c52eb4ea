"""The weak form: integrals of the terms against smooth test functions of several widths.

The time derivative moves to the test function, so that noisy data are never differentiated in
time. Test functions are `(1 - s^2)^7` in each direction on boxes that cover the domain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Field = np.ndarray[Any, np.dtype[Any]]
POWER = 7
PARTS = 8
"""Stretches of time that are resampled."""
ENOUGH = 0.7
"""Fraction of measured values in a box, relative to that in most boxes."""
FEWEST = 4
"""Smallest half width of a test function, in points."""


@dataclass(frozen=True)
class Windows:
    """Test functions of one width along one direction, as matrices `(centres, points)`."""

    values: Field
    slopes: Field

    def __len__(self) -> int:
        return len(self.values)


def windows(x: Field, half: int, wraps: bool) -> Windows:
    """Test functions with a half width in points; the centres are a third of it apart."""
    n = len(x)
    half = min(half, (n - 1) // 2)
    stride = max(1, half // 3)
    centres = np.arange(0, n, stride) if wraps else np.arange(half, n - half, stride)
    if not wraps and n - 1 - half > centres[-1]:
        centres = np.append(centres, n - 1 - half)
    step = float(np.median(np.diff(x)))
    radius = half * step
    apart = x[None] - x[centres][:, None]
    if wraps:
        period = n * step
        apart = (apart + period / 2) % period - period / 2
        weight = np.full(n, step)
    else:
        weight = np.gradient(x)
    s = apart / radius
    inside = np.abs(s) < 1
    base = np.where(inside, 1 - s**2, 0.0)
    values = base**POWER * weight / radius
    slopes = -2 * POWER * s / radius * base ** (POWER - 1) * weight / radius
    return Windows(values, np.where(inside, slopes, 0.0))


class WeakForm:
    """Averages of fields `(T, *grid)` against test functions of one size."""

    def __init__(
        self, coordinates: Sequence[Field], periodic: Sequence[bool], halves: Sequence[int]
    ) -> None:
        self.windows = [windows(x, h, p) for x, h, p in zip(coordinates, halves, periodic)]

    @property
    def rows(self) -> int:
        """Number of test functions."""
        return int(np.prod([len(w) for w in self.windows]))

    @property
    def boxes(self) -> float:
        """Number of independent averages: about one test function in two per direction."""
        return float(np.prod([max(len(w) / 2, 1.0) for w in self.windows]))

    def parts(self) -> Field:
        """`(rows,)` a number for each test function: in which eighth of the time it lies."""
        first = len(self.windows[0])
        eighth = (np.arange(first) * PARTS) // first
        return np.repeat(eighth, self.rows // first)

    def measured(self, seen: Field) -> Field:
        """`(rows,)` whether enough values `(T, *grid)` of a box were measured, not filled in."""
        if seen.all():
            return np.ones(self.rows, bool)
        share = self.average(seen.astype(float)) / self.average(np.ones(seen.shape))
        return np.asarray(share >= ENOUGH * np.median(share[share > 1e-6]))

    def average(self, u: Field) -> Field:
        """`(rows,)` integrals of a field."""
        return self._apply(u, [w.values for w in self.windows])

    def rate(self, u: Field) -> Field:
        """`(rows,)` integrals of the time derivative of a field."""
        first, *others = self.windows
        return -self._apply(u, [first.slopes, *(w.values for w in others)])

    def _apply(self, u: Field, matrices: Sequence[Field]) -> Field:
        for matrix in reversed(matrices):
            u = np.tensordot(u, matrix, (u.ndim - 1, 1))
            u = np.moveaxis(u, -1, 0)
        return u.ravel()


def half_widths(u: Field, coordinates: Sequence[Field], factor: float) -> list[int]:
    """Half widths in points, a multiple of the length over which fields `(F, T, *grid)` change."""
    found = []
    for a, x in enumerate(coordinates):
        slope = np.diff(u, axis=a + 1)
        size = np.sqrt((np.abs(u - u.mean(a + 1, keepdims=True)) ** 2).mean())
        change = np.sqrt((np.abs(slope) ** 2).mean())
        points = factor * size / max(change, 1e-300) if change > 0 else len(x)
        found.append(int(np.clip(round(points), FEWEST, max(FEWEST, (len(x) - 1) // 4))))
    return found
