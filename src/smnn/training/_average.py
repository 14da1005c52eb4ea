"""An exponential moving average of the weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from smnn.training._task import Task


class Average:
    """`average = decay * average + (1 - decay) * weights` after every step.

    Begins at the initial weights. Buffers are not averaged: the newest count.
    """

    def __init__(self, task: Task, decay: float) -> None:
        self._weights = list(task.parameters())
        self._values = [p.detach().clone() for p in self._weights]
        place = {id(p): i for i, p in enumerate(self._weights)}
        # Weights that are shared have several names, and a state has to hold them all.
        every = task.named_parameters(remove_duplicate=False)
        self._names = {name: place[id(p)] for name, p in every}
        self._mix = get_ema_multi_avg_fn(decay)

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights as they are now."""
        self._mix(self._values, self._weights, 1)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """The task with the averaged weights, in the memory of its own."""
        own = [p.detach().clone() for p in self._weights]
        self.apply()
        try:
            yield
        finally:
            self._copy(own)

    def apply(self) -> None:
        """Give the averaged weights to the task for good."""
        self._copy(self._values)

    @torch.no_grad()
    def _copy(self, values: list[Tensor]) -> None:
        for weight, value in zip(self._weights, values):
            weight.copy_(value)

    def state(self) -> dict[str, Tensor]:
        """By name of the parameter."""
        return {name: self._values[i] for name, i in self._names.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """The other way round."""
        for name, i in self._names.items():
            self._values[i].copy_(state[name])
