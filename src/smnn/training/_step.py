"""One optimizer step: learning rate, losses, gradients, clipping, update, averages.

Nothing in a step synchronizes with the device, so that it can be recorded as a CUDA graph.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_, get_total_norm
from torch.optim.swa_utils import get_ema_multi_avg_fn

from smnn.training._config import TrainConfig, autocast
from smnn.training._errors import TrainingError
from smnn.training._graphed import GraphedStep
from smnn.training._processes import Processes
from smnn.training._task import Task

# ---------------------------------------------------------------- learning rate

ONE_CYCLE_RISE, ONE_CYCLE_START, ONE_CYCLE_END = 0.3, 1 / 25, 1 / 25e4
"""Fraction of the steps with rising rate; first and last rate as fractions of `lr`."""


def rate_factor(config: TrainConfig, step: int, total: int) -> float:
    """Return the learning rate after `step` finished steps, as a fraction of `lr`.

    A function of the step only, so that resuming needs no state. The factor of the plateau
    schedule is not included.
    """
    if config.schedule == "one-cycle":
        return _one_cycle(step, total)
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    if config.schedule != "cosine":
        return 1.0
    done = (step - config.warmup_steps) / max(1, total - config.warmup_steps)
    return config.final_lr + (1 - config.final_lr) * (1 + math.cos(math.pi * min(done, 1.0))) / 2


def _one_cycle(step: int, total: int) -> float:
    """Two half cosines, up and down (Smith and Topin 2019), as in `OneCycleLR`."""
    peak = ONE_CYCLE_RISE * total - 1
    if step <= peak:
        return _half_cosine(ONE_CYCLE_START, 1.0, step / peak)
    return _half_cosine(1.0, ONE_CYCLE_END, (step - peak) / (total - 1 - peak))


def _half_cosine(start: float, end: float, part: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * part)) / 2


@dataclass
class Minimum:
    """Lowest value of a scalar over the evaluations, and how long ago it was reached."""

    min_delta: float = 0.0
    best: float | None = None
    best_step: int = 0
    stale: int = 0
    """Evaluations since the last improvement."""

    def improved(self, value: float, step: int) -> bool:
        """Add a value; return whether it is below the minimum by more than `min_delta`."""
        better = self.best is None or value < self.best - self.min_delta
        if better:
            self.best, self.best_step, self.stale = value, step, 0
        else:
            self.stale += 1
        return better

    def state(self) -> dict[str, Any]:
        return {"best": self.best, "best_step": self.best_step, "stale": self.stale}

    def restore(self, state: dict[str, Any]) -> None:
        self.best = None if state["best"] is None else float(state["best"])
        self.best_step, self.stale = int(state["best_step"]), int(state["stale"])


class Plateau(Minimum):
    """Factor of the learning rate that decreases when a scalar stops improving."""

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config.min_delta)
        self.patience, self.factor = config.plateau_patience, config.plateau_factor
        self.scale = 1.0

    def add(self, value: float, step: int) -> None:
        if not self.improved(value, step) and self.stale > self.patience:
            self.scale *= self.factor
            self.stale = 0

    def state(self) -> dict[str, Any]:
        return {"scale": self.scale, **super().state()}

    def restore(self, state: dict[str, Any]) -> None:
        self.scale = float(state["scale"])
        super().restore(state)


# ---------------------------------------------------------------- averages


class WeightAverage:
    """Exponential moving average: `average = decay * average + (1 - decay) * weights`.

    It starts at the initial weights. Buffers are not averaged; their latest values are used.
    """

    def __init__(self, task: Task, decay: float) -> None:
        self._weights = list(task.parameters())
        self._values = [p.detach().clone() for p in self._weights]
        place = {id(p): i for i, p in enumerate(self._weights)}
        # Shared parameters have several names, and a state dict contains all of them.
        named = task.named_parameters(remove_duplicate=False)
        self._names = {name: place[id(p)] for name, p in named}
        self._mix = get_ema_multi_avg_fn(decay)

    @torch.no_grad()
    def update(self) -> None:
        self._mix(self._values, self._weights, 1)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Use the averaged weights in the task inside the block."""
        own = [p.detach().clone() for p in self._weights]
        self.apply()
        try:
            yield
        finally:
            self._copy(own)

    def apply(self) -> None:
        self._copy(self._values)

    @torch.no_grad()
    def _copy(self, values: list[Tensor]) -> None:
        for weight, value in zip(self._weights, values):
            weight.copy_(value)

    def state(self) -> dict[str, Tensor]:
        return {name: self._values[i] for name, i in self._names.items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        for name, i in self._names.items():
            self._values[i].copy_(state[name])


class Totals:
    """Sums over the steps of an epoch, and the first step that was not finite, on the device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._sums: Tensor | None = None  # values times samples, then samples
        self._step = torch.zeros((), dtype=torch.int64, device=device)
        self._bad = torch.full((), -1, dtype=torch.int64, device=device)

    def add(self, values: Tensor, samples: int) -> None:
        """Add the values of a step, of which the first and the last must be finite."""
        weighted = torch.cat([values, values.new_ones(1)]) * samples
        if self._sums is None:
            self._sums = torch.zeros_like(weighted)
        self._sums += weighted
        self._step += 1
        bad = ~torch.isfinite(values[0] + values[-1]) & (self._bad < 0)
        self._bad.copy_(torch.where(bad, self._step, self._bad))

    def bad_step(self) -> int | None:
        """Return the first step that was not finite. Synchronizes with the device."""
        step = int(self._bad)
        return None if step < 0 else step

    def means(self) -> list[float]:
        """Return means over the samples of the epoch so far."""
        assert self._sums is not None
        *sums, samples = self._sums.tolist()
        return [x / samples for x in sums]

    def reset(self) -> None:
        if self._sums is not None:
            self._sums.zero_()

    def state(self) -> Tensor:
        return torch.zeros(0) if self._sums is None else self._sums

    def restore(self, step: int, sums: Tensor) -> None:
        self._sums = sums.to(self._device) if len(sums) else None
        self._step.fill_(step)


# ---------------------------------------------------------------- the step


class _Losses(torch.nn.Module):
    """The losses of a task as a forward pass, which `DistributedDataParallel` requires."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task

    def forward(self, batch: Any) -> dict[str, Tensor]:
        found = self.task.losses(batch)
        name = type(self.task).__name__
        if not isinstance(found, dict) or "loss" not in found:
            raise TrainingError(f"{name}.losses must return a dict with the key 'loss'.")
        for key, x in found.items():
            if not isinstance(x, Tensor) or x.numel() != 1:
                got = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
                raise TrainingError(f"{name}.losses: {key!r} is {got}; expected a scalar tensor.")
        return found


class Step:
    """Optimizer steps of a run, with the optimizer, the weight average and the epoch totals."""

    def __init__(self, task: Task, config: TrainConfig, processes: Processes) -> None:
        self._task, self._config, self._processes = task, config, processes
        self._parameters = [p for p in task.parameters() if p.requires_grad]
        if not self._parameters:
            raise TrainingError(f"{type(task).__name__} has no parameters to train.")
        self.optimizer = self._make_optimizer()
        self.names: list[str] = []
        """Names of the values that a call returns: the losses, then `grad_norm`."""
        self.totals = Totals(processes.device)
        self.average = None if config.ema is None else WeightAverage(task, config.ema)
        self._model: torch.nn.Module = _Losses(task)
        if processes.world > 1:
            on_gpu = processes.device.type == "cuda"
            self._model = DistributedDataParallel(
                self._model,
                device_ids=[processes.device.index] if on_gpu else None,
                find_unused_parameters=config.find_unused_parameters,
            )
        self.why_eager = _why_eager(task, config, processes)
        """Reason why steps are not recorded as a CUDA graph, if they are not."""
        self.graphed: GraphedStep | None = None
        if self.why_eager is None:
            self.graphed = GraphedStep(
                lambda args: self._advance([(args[0], 1.0)], args[1]), self._clear_gradients
            )

    def _make_optimizer(self) -> torch.optim.Optimizer:
        """Create the optimizer. On a GPU all of its state, also the rate, is on the device."""
        config, device = self._config, self._processes.device
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[config.optimizer]
        on_gpu = device.type == "cuda"
        lr = torch.tensor(config.lr, device=device) if on_gpu else config.lr
        return kind(
            self._task.parameters(), lr=lr, weight_decay=config.weight_decay, capturable=on_gpu
        )

    def __call__(
        self, parts: list[tuple[Any, float]], count: int, rate: float, flag: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Make a step.

        Args:
            parts: Batches, each with its fraction of the whole batch over all processes.
            count: Number of samples in the whole batch.
            rate: Learning rate.
            flag: A number that is summed over all processes along with the values.

        Returns:
            Values in the order of `names`, means over the whole batch, and the sum of the flags.
        """
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        if self.graphed is not None:
            values, flags = self.graphed((parts[0][0], count))
            return values, flags
        return self._advance(parts, count, flag)

    def _advance(
        self, parts: list[tuple[Any, float]], count: int, flag: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Do everything that a step does on the device."""
        self._clear_gradients()
        total: Tensor | None = None
        for i, (batch, weight) in enumerate(parts):
            with self._without_sync(i < len(parts) - 1):
                values = self._backward(batch, weight)
            total = values if total is None else total + values
        assert total is not None
        if self._processes.world > 1:
            total = self._processes.sum(torch.cat([total, total.new_full((1,), flag)]))
            total, flags = total[:-1], total[-1]
        else:
            flags = total.new_full((), flag)
        values = torch.cat([total, self._clipped_norm().to(total).reshape(1)])
        # On a CPU the check is free, and keeps the weights finite.
        if values.is_cuda or bool(torch.isfinite(values[[0, -1]]).all()):
            self.optimizer.step()
        if self.average is not None:
            self.average.update()
        self.totals.add(values, count)
        return values, flags

    def _clear_gradients(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def _without_sync(self, wanted: bool) -> contextlib.AbstractContextManager[Any]:
        """Synchronize gradients over the processes in the last part only."""
        if wanted and isinstance(self._model, DistributedDataParallel):
            return self._model.no_sync()
        return contextlib.nullcontext()

    def _backward(self, batch: Any, weight: float) -> Tensor:
        with autocast(self._config.precision, self._processes.device):
            found = self._model(batch)
        names = ["loss", *(name for name in found if name != "loss"), "grad_norm"]
        if not self.names:
            self.names = names
        elif names != self.names:
            raise TrainingError(
                f"losses returned {', '.join(names[:-1])} after {', '.join(self.names[:-1])} "
                "before; return the same scalars in every call."
            )
        # DDP averages gradients over the processes, whose shares may differ in size.
        factor = weight * self._processes.world
        loss = found["loss"].reshape(())
        # Autograd has a thread for each GPU; switching threads is slow for a small model.
        with torch.autograd.set_multithreading_enabled(False):
            (loss if factor == 1 else loss * factor).backward()
        values = torch.stack([found[n].detach().double().reshape(()) for n in names[:-1]])
        return values if weight == 1 else values * weight

    def _clipped_norm(self) -> Tensor:
        """Clip the gradient; return its norm before clipping."""
        if self._config.clip is not None:
            return clip_grad_norm_(self._parameters, self._config.clip)
        return get_total_norm([p.grad for p in self._parameters if p.grad is not None])

    # ------------------------------------------------------------ state

    def state(self) -> dict[str, dict[str, Tensor]]:
        """Return all tensors that resuming needs, except those of the task."""
        entries = self.optimizer.state_dict()["state"]
        tensors = {
            "optimizer": {f"{i}.{n}": x for i, entry in entries.items() for n, x in entry.items()},
            "progress": {"sums": self.totals.state()},
        }
        if self.average is not None:
            tensors["average"] = self.average.state()
        return tensors

    def restore(self, step: int, names: list[str], tensors: dict[str, dict[str, Tensor]]) -> None:
        """Restore a state that `state` returned after a number of steps."""
        if step < 1 or [names[0], names[-1]] != ["loss", "grad_norm"]:
            raise ValueError(f"step {step} of {', '.join(names)}")
        self.names = names
        self._restore_optimizer(tensors["optimizer"])
        self.totals.restore(step, tensors["progress"]["sums"])
        if self.average is not None:
            self.average.restore(tensors["average"])

    def _restore_optimizer(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state of the optimizer; its settings stay those of this run."""
        state: dict[int, dict[str, Tensor]] = {}
        shapes = [p.shape for group in self.optimizer.param_groups for p in group["params"]]
        for key, x in tensors.items():
            i, name = key.split(".", 1)
            if x.shape not in (torch.Size(), shapes[int(i)]):
                raise ValueError(f"{name} of weight {i} has shape {tuple(x.shape)}")
            state.setdefault(int(i), {})[name] = x
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})

    # ------------------------------------------------------------ CUDA graphs

    def graph_wanted(self) -> bool:
        """Whether the settings or the task ask for steps recorded as a CUDA graph."""
        available = self._task.capturable and torch.cuda.is_available()
        return self._config.graphed is True or (self._config.graphed == "auto" and available)

    def graph_report(self) -> str:
        """Return how many steps were replayed from a CUDA graph, or why there were none."""
        if self.graphed is None:
            return f"no: {self.why_eager}"
        if self.graphed.reason is not None:
            return f"no: {self.graphed.reason}"
        return f"{self.graphed.replayed} steps"


def _why_eager(task: Task, config: TrainConfig, processes: Processes) -> str | None:
    """Return why the steps of a run cannot be recorded as a CUDA graph, or `None`."""
    if config.graphed is False:
        return "graphed is off"
    if processes.device.type != "cuda":
        return "there is no CUDA device"
    if processes.world > 1:
        return f"there are {processes.world} processes"
    if config.accumulate > 1:
        return f"accumulate is {config.accumulate}"
    if config.graphed == "auto" and not task.capturable:
        return f"{type(task).__name__} is not declared capturable"
    return None
