"""Throughput."""

from __future__ import annotations

import time


class Meter:
    """Samples per second: between the last two readings, and over all."""

    def __init__(self) -> None:
        self.recent = 0.0
        """Between the last two readings."""
        self._began = self._then = time.monotonic()
        self._all = self._since = 0

    def add(self, samples: int) -> None:
        """Count samples of a finished step."""
        self._all += samples
        self._since += samples

    def read(self) -> None:
        """Look at the clock."""
        now = time.monotonic()
        self.recent = self._since / max(now - self._then, 1e-9)
        self._then, self._since = now, 0

    @property
    def overall(self) -> float | None:
        """Since the beginning."""
        if not self._all:
            return None
        return self._all / max(time.monotonic() - self._began, 1e-9)
