"""What is trained: a model together with its loss."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor


class Task(torch.nn.Module):
    """A model together with its loss. Subclass it and write `losses` and `config`.

    Everything that changes during training belongs into parameters and buffers (or into
    `get_extra_state`, as JSON-able values): that is what a checkpoint holds.
    """

    capturable: ClassVar[bool] = False
    """Whether `losses` may be recorded as a CUDA graph: the same operations on every call, nothing
    that waits for the device (`smnn.solve(..., check=False)` or `smnn.solve_ex`, no `.item()`), and
    no Python state that changes from step to step. `after_epoch` may change anything."""

    def losses(self, batch: Any) -> dict[str, Tensor]:
        """Scalars of one batch, each a mean over its samples.

        Must hold `"loss"`, which is minimised; the others are logged.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define losses(batch).")

    def evaluate(self, batch: Any) -> dict[str, Tensor]:
        """What is reported for data that are not trained on: `losses` unless overridden.

        Called without gradients and in evaluation mode. Scalars are averaged over the samples;
        tensors with a leading sample dimension are outputs, which `evaluate` collects.
        """
        return self.losses(batch)

    def after_epoch(self, epoch: int) -> None:
        """Called after the steps of an epoch and before its evaluation; `epoch` counts from 1.

        The place for threshold cycles. Every process calls it, with the same weights.
        """

    def config(self) -> dict[str, Any]:
        """Constructor arguments, JSON-able: `type(task)(**task.config())` is the untrained task."""
        raise NotImplementedError(
            f"{type(self).__name__} does not define config(); return its constructor arguments."
        )
