"""Tasks by name: what the command line can train and what a checkpoint can be loaded into.

A checkpoint holds the name of its task, never code. The name is looked up among the classes that
were registered here, by the program or by an installed package (entry points in the group
`smnn.tasks`, whose values are modules that register when imported).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any, TypeVar

from smnn.training._config import TrainConfig
from smnn.training._data import Data
from smnn.training._errors import ConfigError
from smnn.training._task import Task

GROUP = "smnn.tasks"
T = TypeVar("T", bound=type[Task])


@dataclass(frozen=True)
class TaskEntry:
    """A registered task."""

    name: str
    make: type[Task]
    data: Callable[..., Data] | None
    """Makes its data; its keyword arguments are what `data.*` sets on the command line."""
    train: TrainConfig
    """Settings that suit it."""

    @property
    def summary(self) -> str:
        """First line of its documentation."""
        return (inspect.getdoc(self.make) or "").split("\n")[0]


_entries: dict[str, TaskEntry] = {}


def register_task(
    name: str,
    *,
    data: Callable[..., Data] | None = None,
    train: TrainConfig | None = None,
) -> Callable[[T], T]:
    """Make a task class known by name. A decorator.

    Args:
        name: What it is called on the command line and in checkpoints.
        data: Makes its `Data`; needed for `smnn train NAME`.
        train: Settings that suit it; the command line changes single ones.
    """

    def keep(make: T) -> T:
        taken = _entries.get(name)
        # A module that is loaded again defines its classes again.
        if taken is not None and _place(taken.make) != _place(make):
            raise ConfigError(
                f"the name {name!r} is taken by {_place(taken.make)}; register under another."
            )
        _entries[name] = TaskEntry(name, make, data, train or TrainConfig(epochs=10))
        return make

    return keep


def _place(make: type[Task]) -> str:
    return f"{make.__module__}.{make.__qualname__}"


def registered_tasks() -> dict[str, TaskEntry]:
    """Every task known by name: those of the program and those of installed packages."""
    for name in metadata.entry_points(group=GROUP).names:
        _import_registering(name)
    return dict(sorted(_entries.items()))


def _import_registering(name: str) -> None:
    """Import the module that an installed package names for this task."""
    if name not in _entries:
        for point in metadata.entry_points(group=GROUP, name=name):
            point.load()


def task_named(name: str) -> TaskEntry:
    """A registered task.

    Raises:
        ConfigError: There is none of that name.
    """
    _import_registering(name)
    if name not in _entries:
        raise ConfigError(
            f"there is no task {name!r}; registered are: {', '.join(registered_tasks())}. Import "
            "the module that registers it first."
        )
    return _entries[name]


def name_of(task: Task) -> str | None:
    """The name under which the class of a task is registered."""
    return next((n for n, entry in _entries.items() if entry.make is type(task)), None)


def built(name: str, config: dict[str, Any]) -> Task:
    """A task from its name and constructor arguments.

    Raises:
        ConfigError: There is no such task, or it does not take these arguments.
    """
    entry = task_named(name)
    try:
        inspect.signature(entry.make).bind(**config)
    except TypeError as error:
        raise ConfigError(f"task {name!r}: {error}.") from None
    return entry.make(**config)
