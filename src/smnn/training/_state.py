"""The whole state of a run as tensors and JSON, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from smnn.training._checkpoint import Checkpoint, state_to_tensors
from smnn.training._config import TrainConfig
from smnn.training._errors import CheckpointError, ConfigError
from smnn.training._registry import name_of
from smnn.training._task import Task


def describe_task(task: Task) -> dict[str, Any]:
    """Name and arguments of a task, as a checkpoint holds them.

    Raises:
        ConfigError: `config()` does not return JSON-able values.
    """
    name = name_of(task)
    try:
        config = task.config()
    except NotImplementedError:
        if name is not None:
            raise
        config = {}
    try:
        plain = json.loads(json.dumps(config, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{type(task).__name__}.config() must return what JSON can hold: {error}."
        ) from None
    return {"task": name, "class": type(task).__qualname__, "task_config": plain}


def weights_of(task: Task, config: TrainConfig, *, copy: bool = False) -> Checkpoint:
    """The weights of a task with what is needed to make it again; as they are now if copied."""
    tensors, rest = state_to_tensors(task.state_dict())
    if copy:
        tensors = {key: x.clone() for key, x in tensors.items()}
        rest = deepcopy(rest)
    record = {**describe_task(task), "task_state": rest, "precision": config.precision}
    return Checkpoint(record, {"weights": tensors})


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """State of the optimiser by number of the parameter and name."""
    state = optimizer.state_dict()["state"]
    return {f"{i}.{name}": x for i, entry in state.items() for name, x in entry.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """The other way round; settings such as the learning rate are those of the optimiser."""
    state: dict[int, dict[str, Tensor]] = {}
    sizes = [p.shape for group in optimizer.param_groups for p in group["params"]]
    for key, x in tensors.items():
        i, name = key.split(".", 1)
        if x.shape not in (torch.Size(), sizes[int(i)]):
            raise ValueError(f"{name} of weight {i} has shape {tuple(x.shape)}")
        state.setdefault(int(i), {})[name] = x
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def check_identity(found: Mapping[str, Any], own: Mapping[str, Any], origin: str) -> None:
    """Refuse to continue a run with other settings, another task or other data.

    Raises:
        CheckpointError: Names what differs.
    """
    if found == own:
        return
    differ = [key for key in {**found, **own} if found.get(key) != own.get(key)]
    listed = "; ".join(f"{k}: {found.get(k)!r} there, {own.get(k)!r} here" for k in differ[:4])
    raise CheckpointError(
        f"{origin} belongs to another run ({listed}). Use the same settings, task and data, or "
        "another folder."
    )
