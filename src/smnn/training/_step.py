"""One optimiser step: losses, gradients, clipping, update. Nothing in it waits for the device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_, get_total_norm

from smnn.training._config import TrainConfig
from smnn.training._errors import TrainingError
from smnn.training._precision import computing
from smnn.training._processes import Processes
from smnn.training._task import Task


def make_optimizer(
    config: TrainConfig, parameters: Iterable[torch.nn.Parameter], device: torch.device
) -> torch.optim.Optimizer:
    """The optimiser. On a GPU all its numbers, the learning rate too, live on the device."""
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    on_device = device.type == "cuda"
    lr: float | Tensor = config.lr
    if on_device:
        lr = torch.tensor(config.lr, device=device)  # in the format of its other scalars
    return kinds[config.optimizer](
        parameters, lr=lr, weight_decay=config.weight_decay, capturable=on_device
    )


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


class Losses(torch.nn.Module):
    """The losses of a task as a forward pass, which is what data parallelism wraps."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task

    def forward(self, batch: Any) -> dict[str, Tensor]:
        """Checked losses."""
        found = self.task.losses(batch)
        name = type(self.task).__name__
        if not isinstance(found, dict) or "loss" not in found:
            raise TrainingError(f"{name}.losses must return a dict that holds 'loss'.")
        for key, x in found.items():
            if not isinstance(x, Tensor) or x.numel() != 1:
                got = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
                raise TrainingError(f"{name}.losses: {key!r} is {got}; expected a scalar tensor.")
        return found


class Step:
    """One optimiser step on the parts of a batch."""

    def __init__(
        self,
        task: Task,
        optimizer: torch.optim.Optimizer,
        config: TrainConfig,
        processes: Processes,
    ) -> None:
        self.names: list[str] = []
        """Of the values that a call returns: the losses, then `grad_norm`."""
        self._optimizer, self._config, self._processes = optimizer, config, processes
        self._parameters = [p for p in task.parameters() if p.requires_grad]
        if not self._parameters:
            raise TrainingError(f"{type(task).__name__} has no parameters to train.")
        self._model: torch.nn.Module = Losses(task)
        if processes.world > 1:
            on_gpu = processes.device.type == "cuda"
            self._model = DistributedDataParallel(
                self._model,
                device_ids=[processes.device.index] if on_gpu else None,
                find_unused_parameters=config.find_unused_parameters,
            )

    def forget_gradients(self) -> None:
        """Leave no gradient behind."""
        self._optimizer.zero_grad(set_to_none=True)

    def __call__(self, parts: list[tuple[Any, float]], flag: float = 0.0) -> tuple[Tensor, Tensor]:
        """Make the step.

        Args:
            parts: Batches with the fraction that each is of the whole batch over all processes.
            flag: A number that is summed over all processes along the way.

        Returns:
            Values in the order of `names`, means over the whole batch, and the sum of the flags.
        """
        self.forget_gradients()
        total: Tensor | None = None
        for i, (batch, weight) in enumerate(parts):
            with self._unsynchronised(i < len(parts) - 1):
                values = self._backward(batch, weight)
            total = values if total is None else total + values
        assert total is not None
        if self._processes.world > 1:
            total = self._processes.sum(torch.cat([total, total.new_full((1,), flag)]))
            total, flags = total[:-1], total[-1]
        else:
            flags = total.new_full((), flag)
        values = torch.cat([total, self._clipped_norm().to(total).reshape(1)])
        # On a CPU looking costs nothing, and the weights stay good.
        if values.is_cuda or bool(torch.isfinite(values[[0, -1]]).all()):
            self._optimizer.step()
        return values, flags

    def _unsynchronised(self, wanted: bool) -> contextlib.AbstractContextManager[Any]:
        """Gradients of all parts but the last stay in their process."""
        if wanted and isinstance(self._model, DistributedDataParallel):
            return self._model.no_sync()
        return contextlib.nullcontext()

    def _backward(self, batch: Any, weight: float) -> Tensor:
        with computing(self._config.precision, self._processes.device):
            found = self._model(batch)
        names = ["loss", *(name for name in found if name != "loss"), "grad_norm"]
        if not self.names:
            self.names = names
        elif names != self.names:
            raise TrainingError(
                f"losses returned {', '.join(names[:-1])} after {', '.join(self.names[:-1])} "
                "before; return the same scalars in every call."
            )
        # Gradients are averaged over the processes, and shares need not be of equal size.
        factor = weight * self._processes.world
        loss = found["loss"].reshape(())
        # Autograd has a thread for each GPU; the way there and back is long for a small model.
        with torch.autograd.set_multithreading_enabled(False):
            (loss if factor == 1 else loss * factor).backward()
        values = torch.stack([found[n].detach().double().reshape(()) for n in names[:-1]])
        return values if weight == 1 else values * weight

    def _clipped_norm(self) -> Tensor:
        """Norm of the gradient before it is clipped."""
        if self._config.clip is not None:
            return clip_grad_norm_(self._parameters, self._config.clip)
        return get_total_norm([p.grad for p in self._parameters if p.grad is not None])
