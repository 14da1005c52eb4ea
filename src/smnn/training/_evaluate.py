"""Evaluation: metrics and outputs of a task over a data set, without gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from smnn.training._config import Precision, autocast, dtype_of
from smnn.training._data import Fetcher, Share, load, moved, split
from smnn.training._errors import ConfigError, TrainingError
from smnn.training._processes import Processes
from smnn.training._task import Task


class Evaluation(NamedTuple):
    """Result of evaluating a task on a data set."""

    metrics: dict[str, float]
    """Scalars, averaged over the samples."""
    outputs: dict[str, Tensor]
    """Tensors with a leading sample dimension, in the order of the data set, on the CPU."""


def evaluate(
    task: Task, dataset: Dataset[Any], *, batch_size: int = 256, precision: Precision | None = None,
    workers: int = 0,
) -> Evaluation:  # fmt: skip
    """Evaluate a task on a data set, on the device of the task.

    Args:
        task: The task.
        dataset: A data set as in `Data`.
        batch_size: Number of samples that go through the model together.
        precision: As in `TrainConfig`; by default the precision of the weights.
        workers: Number of data loading processes.
    """
    if batch_size < 1:
        raise ConfigError(f"batch_size: got {batch_size}; expected at least 1.")
    first = next((x for x in [*task.parameters(), *task.buffers()] if x.is_floating_point()), None)
    device = torch.device("cpu") if first is None else first.device
    if precision is None:
        precision = "float64" if first is not None and first.dtype == torch.float64 else "float32"
    fetcher = Fetcher(dataset, 0, "evaluation")
    alone = Processes(0, 1, device)
    return evaluate_all(task, fetcher, batch_size, precision, alone, workers, collect=True)


@torch.no_grad()
def evaluate_all(
    task: Task, fetcher: Fetcher, batch_size: int, precision: Precision, processes: Processes,
    workers: int, *, collect: bool,
) -> Evaluation:  # fmt: skip
    """Evaluate over all processes; outputs can be collected in a single process only."""
    names: list[str] = []
    total: Tensor | None = None
    outputs: dict[str, list[Tensor]] = {}
    with _evaluation_mode(task):
        for batch, share in load(fetcher, _shares(fetcher.size, batch_size, processes), workers):
            with autocast(precision, processes.device):
                found = task.evaluate(moved(batch, processes.device, dtype_of(precision)))
            scalars = {name: x for name, x in found.items() if x.ndim == 0}
            _check_names(task, list(scalars), names)
            names = list(scalars)
            values = torch.stack([x.double() for x in scalars.values()])
            # A share that does not count must not contribute its NaN.
            values = values * share.counted if share.counted else torch.zeros_like(values)
            total = values if total is None else total + values
            if collect:
                for name, x in found.items():
                    if x.ndim:
                        outputs.setdefault(name, []).append(x.cpu())
    assert total is not None
    means = (processes.sum(total) / fetcher.size).tolist()
    return Evaluation(dict(zip(names, means)), {k: torch.cat(x) for k, x in outputs.items()})


@contextlib.contextmanager
def _evaluation_mode(task: Task) -> Iterator[None]:
    training = {name: module.training for name, module in task.named_modules()}
    task.eval()
    try:
        yield
    finally:
        for name, module in task.named_modules():
            module.training = training[name]


def _check_names(task: Task, found: list[str], before: list[str]) -> None:
    if not found:
        raise TrainingError(f"{type(task).__name__}.evaluate returned no scalars.")
    if before and found != before:
        raise TrainingError(
            f"{type(task).__name__}.evaluate returned {', '.join(found)} after "
            f"{', '.join(before)} before; return the same scalars in every call."
        )


def _shares(size: int, batch_size: int, processes: Processes) -> Iterator[Share]:
    indices = torch.arange(size)
    for start in range(0, size, batch_size):
        batch = indices[start : start + batch_size]
        yield from split(batch, processes.world, processes.rank, 1, 0)
