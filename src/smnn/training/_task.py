"""Tasks, their registry, and runs described by plain data.

A checkpoint contains the name of its task, never code. The name is looked up among the registered
classes: those registered by the program, and those of installed packages (entry points in the group
`smnn.tasks`, whose values are modules that register tasks when imported).
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from smnn.training._config import TrainConfig
from smnn.training._data import Data
from smnn.training._errors import ConfigError

GROUP = "smnn.tasks"


class Task(torch.nn.Module):
    """A model together with its loss. Subclass it and define `losses` and `config`.

    Everything that changes during training must be a parameter, a buffer, or a JSON-compatible
    value in `get_extra_state`: only these are saved in checkpoints.
    """

    capturable: ClassVar[bool] = False
    """Whether `losses` can be recorded as a CUDA graph: it performs the same operations in every
    call, never synchronizes with the device (`smnn.solve(..., check=False)` or `smnn.solve_ex`, no
    `.item()`), and has no Python state that changes from step to step. `after_epoch` may change
    anything."""

    def losses(self, batch: Any) -> dict[str, Tensor]:
        """Return scalars of one batch, each a mean over its samples.

        `"loss"` is required and minimized; the others are logged.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define losses(batch).")

    def evaluate(self, batch: Any) -> dict[str, Tensor]:
        """Return the metrics and outputs of a batch of validation or test data.

        By default these are the losses. Called without gradients and in evaluation mode. Scalars
        are averaged over the samples; tensors with a leading sample dimension are outputs, which
        `smnn.training.evaluate` collects.
        """
        return self.losses(batch)

    def after_epoch(self, epoch: int) -> None:
        """Change the task after an epoch (counted from 1), before its evaluation.

        For example, to set small coefficients to zero. Every process calls it with the same
        weights.
        """

    def config(self) -> dict[str, Any]:
        """Return JSON-compatible constructor arguments.

        `type(task)(**task.config())` creates the untrained task.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not define config(); return its constructor arguments."
        )


T = TypeVar("T", bound=type[Task])


@dataclass(frozen=True)
class TaskEntry:
    """A registered task."""

    name: str
    make: type[Task]
    data: Callable[..., Data] | None
    """Function that creates its data; `data.*` settings are its keyword arguments."""
    train: TrainConfig
    """Default settings."""

    @property
    def summary(self) -> str:
        """First line of the docstring."""
        return (inspect.getdoc(self.make) or "").split("\n")[0]

    def build(self, config: dict[str, Any]) -> Task:
        """Create the task from constructor arguments.

        Raises:
            ConfigError: It does not accept these arguments.
        """
        _check_arguments(self.make, config, f"task {self.name!r}")
        return self.make(**config)


_entries: dict[str, TaskEntry] = {}


def register_task(
    name: str, *, data: Callable[..., Data] | None = None, train: TrainConfig | None = None
) -> Callable[[T], T]:
    """Register a task class under a name. A decorator.

    Args:
        name: Name on the command line and in checkpoints.
        data: Function that creates its `Data`; required for `smnn train NAME`.
        train: Default settings.
    """

    def register(make: T) -> T:
        existing = _entries.get(name)
        # A module that is imported again defines its classes again.
        if existing is not None and _qualified(existing.make) != _qualified(make):
            raise ConfigError(
                f"the name {name!r} is already used by {_qualified(existing.make)}; register the "
                "task under another name."
            )
        _entries[name] = TaskEntry(name, make, data, train or TrainConfig(epochs=10))
        return make

    return register


def _qualified(make: type[Task]) -> str:
    return f"{make.__module__}.{make.__qualname__}"


def registered_tasks() -> dict[str, TaskEntry]:
    """Return all tasks by name, including those of installed packages."""
    for name in metadata.entry_points(group=GROUP).names:
        _load_entry_points(name)
    return dict(sorted(_entries.items()))


def _load_entry_points(name: str) -> None:
    if name not in _entries:
        for point in metadata.entry_points(group=GROUP, name=name):
            point.load()


def import_tasks(origin: str) -> None:
    """Import a module, or a `.py` file, that registers tasks.

    Raises:
        ConfigError: It does not exist.
    """
    path = Path(origin)
    if path.suffix != ".py":
        try:
            importlib.import_module(origin)
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"cannot import tasks from {origin!r}: {error}. Give a module or a .py file."
            ) from None
        return
    if not path.is_file():
        raise ConfigError(f"cannot import tasks from {path}: there is no such file.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)


def task_entry(name: str) -> TaskEntry:
    """Return a registered task by name.

    Raises:
        ConfigError: There is no task of that name.
    """
    _load_entry_points(name)
    if name not in _entries:
        raise ConfigError(
            f"there is no task {name!r}; registered are: {', '.join(registered_tasks())}. Import "
            "the module that registers it first."
        )
    return _entries[name]


def name_of(task: Task) -> str | None:
    """Return the name under which the class of a task is registered."""
    return next((n for n, entry in _entries.items() if entry.make is type(task)), None)


def describe_task(task: Task) -> dict[str, Any]:
    """Return the name, class and arguments of a task, as stored in checkpoints.

    Raises:
        ConfigError: `config()` does not return JSON-compatible values.
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
            f"{type(task).__name__}.config() must return JSON-compatible values: {error}."
        ) from None
    return {"task": name, "class": type(task).__qualname__, "task_config": plain}


def _check_arguments(function: Callable[..., Any], arguments: dict[str, Any], what: str) -> None:
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        raise ConfigError(f"{what}: {error}.") from None


@dataclass
class RunSpec:
    """A run described by plain data: a registered task, its arguments, its data, and settings."""

    name: str
    task: dict[str, Any] = field(default_factory=dict)
    """Constructor arguments of the task."""
    data: dict[str, Any] = field(default_factory=dict)
    """Arguments of the function that creates its data."""
    train: dict[str, Any] = field(default_factory=dict)
    """Settings that differ from the defaults of the task."""

    @classmethod
    def read(cls, path: str | PathLike[str]) -> RunSpec:
        """Read the `config.json` of a run.

        Raises:
            ConfigError: The file cannot be read, or does not describe a run.
        """
        try:
            found = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror or error}.") from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path} is not JSON: {error}.") from None
        if not isinstance(found, dict) or not isinstance(found.get("task"), str):
            raise ConfigError(f'{path} does not name a task; it needs "task": "NAME".')
        parts = []
        for key in ("task_config", "data_config", "train"):
            parts.append(found.get(key) or {})
            if not isinstance(parts[-1], dict):
                raise ConfigError(f"{path}: {key!r} is {parts[-1]!r}; expected an object.")
        return cls(found["task"], *parts)

    def set(self, text: str) -> None:
        """Change a setting: `"lr=0.01"`, `"task.order=3"` or `"data.samples=99"`.

        The value is JSON (`0.1`, `true`, `null`, `[1, 2]`) or else a string.

        Raises:
            ConfigError: The text does not have that form.
        """
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise ConfigError(f"setting: got {text!r}; expected KEY=VALUE.")
        group, _, name = key.rpartition(".")
        target = {"": self.train, "task": self.task, "data": self.data}.get(group)
        if target is None:
            raise ConfigError(f"setting: got {key!r}; expected KEY, task.KEY or data.KEY.")
        try:
            target[name] = json.loads(value)
        except ValueError:
            target[name] = value

    def build(self) -> tuple[Task, Data, TrainConfig]:
        """Create the arguments of `fit`. Seeds PyTorch, so that initial weights follow the seed.

        Raises:
            ConfigError: The task is not registered, has no data, or an argument is not accepted.
        """
        entry = task_entry(self.name)
        config = TrainConfig.from_dict({**entry.train.to_dict(), **self.train})
        if entry.data is None:
            raise ConfigError(
                f"task {self.name!r} is registered without data; train it with fit()."
            )
        _check_arguments(entry.data, self.data, f"data of {self.name!r}")
        torch.manual_seed(config.seed)
        return entry.build(self.task), entry.data(**self.data), config
