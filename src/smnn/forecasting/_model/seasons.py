"""Cycles of known length."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smnn.forecasting._time import DAY, Clock, years

YEAR = 365.2425
MONDAY = np.datetime64("2000-01-03", "ns")


@dataclass(frozen=True)
class Season:
    """A cycle of fixed length: an undamped oscillator and its harmonics."""

    name: str
    length: float
    """In typical steps of the series."""
    harmonics: int
    """Number of multiples of the base frequency."""
    period: float = 1.0
    """In the user's unit of time; days for `"day"` and `"week"`."""

    def cycles(self, clock: Clock) -> np.ndarray:
        """`(n,)` time in units of the cycle; the fractional part is the phase."""
        if self.name == "year" and clock.dated:
            return years(clock.stamps)
        if clock.dated:
            return (clock.stamps - MONDAY).astype(float) / DAY / self.period
        return (clock.stamps - clock.origin) / self.period

    def waves(self, clock: Clock) -> np.ndarray:
        """Cosines and sines of unit mean square; the sine at the Nyquist rate is omitted.

        Returns:
            `(n, 2 * harmonics)`, or one column less.
        """
        angle = 2 * np.pi * self.cycles(clock)
        columns = []
        for j in range(1, self.harmonics + 1):
            columns.append(np.cos(j * angle))
            if abs(2 * j - self.length) > 1e-6:
                columns.append(np.sin(j * angle))
        return np.sqrt(2) * np.stack(columns, axis=1)
