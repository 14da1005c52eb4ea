"""The Test procedure of the paper: losses and outputs over a data set, without gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from smnn.training._config import Precision
from smnn.training._errors import ConfigError, TrainingError
from smnn.training._precision import computing, dtype_of, moved
from smnn.training._processes import Processes
from smnn.training._sampling import Fetch, Share, load, shares
from smnn.training._task import Task


class Evaluation(NamedTuple):
    """What a task makes of a data set."""

    metrics: dict[str, float]
    """Scalars, averaged over the samples."""
    outputs: dict[str, Tensor]
    """Tensors with a leading sample dimension, in the order of the data set, on the CPU."""


def evaluate(
    task: Task,
    dataset: Dataset[Any],
    *,
    batch_size: int = 256,
    precision: Precision | None = None,
    workers: int = 0,
) -> Evaluation:
    """Evaluate a task on a data set, where the task is and in its number format.

    Args:
        task: What to evaluate.
        dataset: As in `Data`.
        batch_size: Samples that go through the model together.
        precision: As in `TrainConfig`; that of the weights by default.
        workers: Processes that load data.
    """
    if batch_size < 1:
        raise ConfigError(f"batch_size: got {batch_size}; expected at least 1.")
    first = next((x for x in [*task.parameters(), *task.buffers()] if x.is_floating_point()), None)
    device = torch.device("cpu") if first is None else first.device
    if precision is None:
        precision = "float64" if first is not None and first.dtype == torch.float64 else "float32"
    fetch = Fetch(dataset, 0, "evaluation")
    return run(task, fetch, batch_size, precision, Processes(0, 1, device), workers, collect=True)


@torch.no_grad()
def run(
    task: Task,
    fetch: Fetch,
    batch_size: int,
    precision: Precision,
    processes: Processes,
    workers: int,
    *,
    collect: bool,
) -> Evaluation:
    """Evaluate over all processes; outputs are collected in one process only."""
    training = {name: module.training for name, module in task.named_modules()}
    task.eval()
    try:
        return _run(task, fetch, batch_size, precision, processes, workers, collect)
    finally:
        for name, module in task.named_modules():
            module.training = training[name]


def _run(
    task: Task,
    fetch: Fetch,
    batch_size: int,
    precision: Precision,
    processes: Processes,
    workers: int,
    collect: bool,
) -> Evaluation:
    names: list[str] = []
    total: Tensor | None = None
    outputs: dict[str, list[Tensor]] = {}
    for batch, share in load(fetch, _shares(fetch.size, batch_size, processes), workers):
        with computing(precision, processes.device):
            found = task.evaluate(moved(batch, processes.device, dtype_of(precision)))
        scalars = {name: x for name, x in found.items() if x.ndim == 0}
        if not scalars:
            raise TrainingError(f"{type(task).__name__}.evaluate returned no scalars.")
        if names and list(scalars) != names:
            raise TrainingError(
                f"{type(task).__name__}.evaluate returned {', '.join(scalars)} after "
                f"{', '.join(names)} before; return the same scalars in every call."
            )
        names = list(scalars)
        values = torch.stack([x.double() for x in scalars.values()])
        # A share of nothing must not bring in its NaN.
        values = values * share.counted if share.counted else torch.zeros_like(values)
        total = values if total is None else total + values
        if collect:
            for name, x in found.items():
                if x.ndim:
                    outputs.setdefault(name, []).append(x.cpu())
    assert total is not None
    means = (processes.sum(total) / fetch.size).tolist()
    return Evaluation(dict(zip(names, means)), {k: torch.cat(x) for k, x in outputs.items()})


def _shares(size: int, batch_size: int, processes: Processes) -> Iterator[Share]:
    every = torch.arange(size)
    for start in range(0, size, batch_size):
        whole = every[start : start + batch_size]
        yield from shares(whole, processes.world, processes.rank, 1, 0)
