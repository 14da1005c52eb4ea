"""Trained models back from disk. No code is taken from a file."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

from smnn.training._config import Precision
from smnn.training._errors import CheckpointError, ConfigError
from smnn.training._folder import read_weights
from smnn.training._precision import convert
from smnn.training._registry import built
from smnn.training._task import Task

Which = Literal["best", "latest"]


def load_task(path: str | PathLike[str], which: Which | None = None) -> Task:
    """A trained task, on the CPU, in evaluation mode.

    The class is looked up by the name in the checkpoint among the registered ones. Where an
    average of the weights was kept, it is what is loaded.

    Args:
        path: Folder of a run or of one checkpoint.
        which: `"best"` or `"latest"` of a run; by default the best if there is one.

    Raises:
        CheckpointError: There is no checkpoint, it is damaged, or it does not fit the class.
        ConfigError: Its task is not registered.
    """
    found = read_weights(Path(path), which)
    record = found.record
    if record.get("task") is None:
        raise CheckpointError(
            f"{path} was written by {record.get('class')}, which is not registered; make the task "
            "and use load_weights(task, path)."
        )
    task = _built(record, str(path))
    fill(task, found.tensors["weights"], record, str(path))
    return task.eval()


def load_weights(task: Task, path: str | PathLike[str], which: Which | None = None) -> None:
    """Put the weights of a checkpoint into a task that is there already. Arguments as `load_task`.

    Raises:
        CheckpointError: There is no checkpoint, it is damaged, or it does not fit the task.
    """
    found = read_weights(Path(path), which)
    fill(task, found.tensors["weights"], found.record, str(path))


def _built(record: dict[str, Any], origin: str) -> Task:
    """The untrained task that a record describes, whoever wrote it."""
    name, config = record["task"], record.get("task_config")
    if not isinstance(name, str) or not isinstance(config, dict):
        raise CheckpointError(f"{origin} does not say which task it holds.")
    try:
        return built(name, config)
    except (ConfigError, CheckpointError):
        raise
    except Exception as error:  # whatever a constructor makes of arguments that it never gave
        what = " ".join(str(error).split())
        raise CheckpointError(
            f"{origin}: the task {name!r} cannot be made from {str(config)[:200]}: "
            f"{type(error).__name__}: {what}"
        ) from None


def fill(task: Task, weights: dict[str, Any], record: dict[str, Any], origin: str) -> None:
    """Give a task its state."""
    precision: Any = record.get("precision")
    state = record.get("task_state")
    if precision not in get_args(Precision) or not isinstance(state, dict):
        raise CheckpointError(f"{origin} does not hold the state of a task.")
    convert(task, precision)
    try:
        task.load_state_dict({**weights, **state})
    except (RuntimeError, TypeError, ValueError, KeyError, AttributeError) as error:
        what = " ".join(str(error).split())
        raise CheckpointError(f"{origin} does not fit {type(task).__name__}: {what}") from None
