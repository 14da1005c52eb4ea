"""`fit`: the Train procedure of the paper for any task."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from smnn.training._config import TrainConfig
from smnn.training._data import Data
from smnn.training._errors import ConfigError
from smnn.training._folder import RunFolder
from smnn.training._logs import Row
from smnn.training._precision import matmul_mode
from smnn.training._processes import join, on_main
from smnn.training._progress import display
from smnn.training._run import Run
from smnn.training._signals import stop_signals
from smnn.training._task import Task


@dataclass(frozen=True)
class FitResult:
    """How a training run went. The task itself holds the weights that were evaluated last."""

    steps: int
    """Optimiser steps, those before a resumption included."""
    metrics: dict[str, float | int]
    """The last evaluation: `train_*` are means over its epoch, `val_*` of the validation data."""
    best: dict[str, float | int]
    """`step` and `value` of the lowest monitored scalar."""
    stopped_early: bool
    """Whether patience ended it."""
    history: list[Row]
    """The logged steps, as in steps.csv."""
    evaluations: list[Row]
    """The evaluations, as in epochs.csv."""
    samples_per_second: float | None
    """Throughput of this call over all processes; `None` if nothing was left to do."""
    graphed: str
    """How many steps of this call ran from a CUDA graph, or why none did."""
    checkpoint: Path | None
    """The last checkpoint."""
    is_main: bool
    """Whether this is the process that should print."""


def fit(
    task: Task,
    data: Data | Dataset[Any],
    config: TrainConfig,
    out: str | PathLike[str] | None = None,
    *,
    resume: bool = False,
    progress: bool = True,
    record: Mapping[str, Any] | None = None,
) -> FitResult:
    """Train a task.

    Args:
        task: What to train; it is changed in place and moved to its device.
        data: Training data, with validation data if there are any.
        config: How to train.
        out: Folder for logs and checkpoints; without it nothing is written.
        resume: Continue from the newest checkpoint in `out`, bit for bit on a CPU. Starts from the
            beginning where there is none.
        progress: Show progress on standard error.
        record: JSON-able facts to be written into config.json beside the settings.

    Raises:
        ConfigError: Settings and data do not fit together.
        NonFiniteError: A loss or gradient is not finite; names the step and the guilty samples.
        CheckpointError: The checkpoint is damaged or belongs to another run.
        OutputError: `out` cannot be written, or holds a run that is not to be resumed.
        Interrupted: SIGINT or SIGTERM came, and `out` holds a checkpoint of that very step.
    """
    if isinstance(data, Dataset):
        data = Data(data)
    if not isinstance(data, Data):
        raise ConfigError(f"data: got {type(data).__name__}; expected a data set or Data.")
    if resume and out is None:
        raise ConfigError("resume needs the folder of the run: give out.")
    processes = join(config)
    folder = RunFolder(Path(out)) if out is not None else None
    with contextlib.ExitStack() as stack:
        if folder is not None:
            stack.callback(folder.close)
            on_main(processes, lambda: folder.open(resume))
        run = Run(task, data, config, processes, folder, dict(record or {}))
        stack.callback(run.log.close)
        run.begin(resume)
        stack.enter_context(matmul_mode(config.precision))
        wish = stack.enter_context(stop_signals(folder is not None))
        screen = stack.enter_context(display(progress, processes.is_main, run.total, run.step))
        run.train(wish, screen)
    return FitResult(
        steps=run.step,
        metrics={k: v for k, v in run.last.items() if k not in ("step", "epoch")},
        best={} if run.watch.best is None else {
            "step": run.watch.best_step, "value": run.watch.best
        },
        stopped_early=run.stopped,
        history=run.log.steps.rows,
        evaluations=run.log.epochs.rows,
        samples_per_second=run.meter.overall,
        graphed=run.graph_story(),
        checkpoint=run.checkpoint,
        is_main=processes.is_main,
    )  # fmt: skip
