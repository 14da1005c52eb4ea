"""Sums over an epoch and the first step that was not finite, kept on the device.

All changes are made in place and without waiting, so that they can be part of a recorded step.
"""

from __future__ import annotations

import torch
from torch import Tensor


class Tally:
    """What the steps of an epoch add up to."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._sums: Tensor | None = None  # values times samples, then samples
        self._step = torch.zeros((), dtype=torch.int64, device=device)
        self._bad = torch.full((), -1, dtype=torch.int64, device=device)

    def add(self, values: Tensor, samples: int) -> None:
        """Take in the values of a step, of which the first and the last must be finite."""
        weighted = torch.cat([values, values.new_ones(1)]) * samples
        if self._sums is None:
            self._sums = torch.zeros_like(weighted)
        self._sums += weighted
        self._step += 1
        bad = ~torch.isfinite(values[0] + values[-1]) & (self._bad < 0)
        self._bad.copy_(torch.where(bad, self._step, self._bad))

    def bad_step(self) -> int | None:
        """The first step that was not finite. Waits for the device."""
        step = int(self._bad)
        return None if step < 0 else step

    def means(self) -> list[float]:
        """Means over the samples of the epoch so far."""
        assert self._sums is not None
        *sums, samples = self._sums.tolist()
        return [x / samples for x in sums]

    def reset(self) -> None:
        """Begin an epoch."""
        if self._sums is not None:
            self._sums.zero_()

    def state(self) -> Tensor:
        """The sums, to be kept in a checkpoint."""
        return torch.zeros(0) if self._sums is None else self._sums

    def restore(self, step: int, sums: Tensor) -> None:
        """The other way round."""
        self._sums = sums.to(self._device) if len(sums) else None
        self._step.fill_(step)
