"""Checkpoints, the folder of a run, and loading of trained tasks.

A checkpoint is one `.safetensors` file, whose metadata hold all other state as JSON, and a digest.
It is written atomically, so that it is complete whenever it exists. Reading verifies the digest
and executes no code.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from copy import deepcopy
from os import PathLike
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from smnn._util.files import (
    InputError,
    OutputError,
    check_file,
    prepare_output,
    remove_unfinished,
    write_atomically,
    write_json,
    writing,
)
from smnn._util.machine import PACKAGES, describe_machine, package_versions
from smnn._util.optional import require
from smnn.training._config import Precision, TrainConfig, convert, digest_of
from smnn.training._errors import CheckpointError, ConfigError
from smnn.training._task import Task, describe_task, task_entry

FORMAT = "smnn checkpoint"
VERSION = 2
SUFFIX = ".safetensors"
CONFIG = "config.json"
Which = Literal["best", "latest"]


class Checkpoint(NamedTuple):
    """Content of a checkpoint."""

    record: dict[str, Any]
    """JSON-compatible values."""
    tensors: dict[str, dict[str, Tensor]]
    """By group (weights, average, optimizer, progress), then by name; on the CPU."""


def write_checkpoint(path: Path, content: Checkpoint) -> Path:
    """Write a checkpoint atomically.

    Raises:
        OutputError: It cannot be written; no files are left behind.
    """
    tensors = {
        f"{group}/{name}": x.detach().to("cpu", copy=True).contiguous()
        for group, part in content.tensors.items()
        for name, x in part.items()
    }
    record = {**content.record, "format": FORMAT, "version": VERSION}
    record["digest"] = _digest(record, tensors)
    metadata = {"smnn": json.dumps(record, allow_nan=False)}
    return write_atomically(path, _safetensors().save(tensors, metadata))


def read_checkpoint(path: Path) -> Checkpoint:
    """Read and verify a checkpoint.

    Raises:
        CheckpointError: It does not exist, has another format, or is damaged.
    """
    data = _read_bytes(path)
    try:
        size = int.from_bytes(data[:8], "little")
        record = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["smnn"])
        tensors = _safetensors().load(data)
    except Exception as error:  # safetensors has its own class of errors
        raise _damaged(path, f"it does not hold a record and tensors ({error})") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a checkpoint of smnn: its format is not {FORMAT!r}.")
    if record.get("version") != VERSION:
        raise CheckpointError(
            f"{path} has version {record.get('version')!r} of the format; this smnn reads version "
            f"{VERSION}. Use the version of smnn that wrote it."
        )
    digest = record.pop("digest", None)
    try:
        own = _digest(record, tensors)
    except (ValueError, RecursionError):
        own = None
    if digest is None or digest != own:
        raise _damaged(path, "its digest does not match its contents")
    groups: dict[str, dict[str, Tensor]] = {}
    for key, x in tensors.items():
        group, _, name = key.partition("/")
        groups.setdefault(group, {})[name] = x
    return Checkpoint(record, groups)


def _digest(record: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    found = hashlib.sha256(digest_of(record).encode())
    for name, x in sorted(tensors.items()):
        found.update(f"{name} {x.dtype} {tuple(x.shape)}".encode())
        found.update(x.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def _read_bytes(path: Path) -> bytes:
    try:
        check_file(path)
        return path.read_bytes()
    except InputError as error:
        raise CheckpointError(str(error)) from None
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError(f"there is no {path}; expected a checkpoint.") from None
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}.") from None


def _damaged(path: Path, how: str) -> CheckpointError:
    return CheckpointError(f"{path} is damaged: {how}. Use another checkpoint.")


def _safetensors() -> Any:
    return require("safetensors.torch", "write and read checkpoints")


# ---------------------------------------------------------------- the folder of a run


class RunFolder:
    """Folder of a run; one run at a time writes into it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self._lock: IO[str] | None = None

    def find(self, kind: str) -> Path | None:
        """The last checkpoint whose name begins with `step` or `best`."""
        return max(self.checkpoints.glob(f"{kind}-*{SUFFIX}"), default=None)

    def open(self, resume: bool) -> None:
        """Prepare the folder for writing and lock it.

        Raises:
            OutputError: It is not writable, contains another run, or is in use.
        """
        prepare_output(self.path)
        self._acquire_lock()
        if not resume and self.find("step") is not None:
            raise OutputError(
                f"{self.path} holds a run already; resume that run or use another folder."
            )
        with writing(self.checkpoints):
            self.checkpoints.mkdir(exist_ok=True)
        remove_unfinished(self.checkpoints)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _acquire_lock(self) -> None:
        try:
            import fcntl
        except ImportError:  # pragma: no cover - not on this system
            return
        with writing(self.path / ".lock"):
            self._lock = (self.path / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise OutputError(f"another process is training into {self.path}.") from None
        except OSError:  # a file system without locks
            self.close()

    def describe(self, record: Mapping[str, Any], start: Mapping[str, Any]) -> None:
        """Write config.json: the settings, and a list of all starts of the run."""
        path = self.path / CONFIG
        before: list[Any] = []
        if start["step"]:
            with contextlib.suppress(OSError, ValueError, KeyError):
                before = list(json.loads(path.read_text(encoding="utf-8"))["starts"])
        machine = describe_machine()
        machine["versions"] = package_versions((*PACKAGES, "pytorch-lightning", "safetensors"))
        write_json(path, {**record, "starts": [*before, {**start, "machine": machine}]})

    def save(self, step: int, content: Checkpoint, best: tuple[int, Checkpoint] | None) -> Path:
        """Write a checkpoint, and before it the best weights and their step if they are new."""
        if best is not None:
            write_checkpoint(self.checkpoints / name_of_step("best", best[0]), best[1])
        return write_checkpoint(self.checkpoints / name_of_step("step", step), content)

    def clean(self, record: Mapping[str, Any], keep_last: int) -> None:
        """Remove the checkpoints that are not needed after one with this record."""
        with writing(self.checkpoints):
            steps = sorted(path.name for path in self.checkpoints.glob(f"step-*{SUFFIX}"))
            keep = {*steps[-keep_last:], record["best"]}
            for path in self.checkpoints.glob(f"*-*{SUFFIX}"):
                if path.name not in keep:
                    path.unlink()


def name_of_step(kind: str, step: int) -> str:
    """Return the file name of a checkpoint; names sort by step."""
    return f"{kind}-{step:010d}{SUFFIX}"


# ---------------------------------------------------------------- tasks


def load_task(path: str | PathLike[str], which: Which | None = None) -> Task:
    """Load a trained task, on the CPU and in evaluation mode.

    The class is looked up by name among the registered tasks. If the run kept an average of the
    weights, the average is loaded.

    Args:
        path: Folder of a run, or file of a checkpoint.
        which: `"best"` or `"latest"` checkpoint of a run; by default the best if there is one.

    Raises:
        CheckpointError: There is no checkpoint, it is damaged, or does not fit the class.
        ConfigError: The task is not registered.
    """
    found = _read_weights(Path(path), which)
    record = found.record
    if record.get("task") is None:
        raise CheckpointError(
            f"{path} was written by {record.get('class')}, which is not registered; create the "
            "task and use load_weights(task, path)."
        )
    task = _build(record, str(path))
    load_state(task, found.tensors["weights"], record, str(path))
    return task.eval()


def load_weights(task: Task, path: str | PathLike[str], which: Which | None = None) -> None:
    """Load the weights of a checkpoint into an existing task.

    Args:
        task: The task; it is changed in place.
        path: Folder of a run, or file of a checkpoint.
        which: As in `load_task`.

    Raises:
        CheckpointError: There is no checkpoint, it is damaged, or does not fit the task.
    """
    found = _read_weights(Path(path), which)
    load_state(task, found.tensors["weights"], found.record, str(path))


def _read_weights(path: Path, which: str | None) -> Checkpoint:
    """Read the weights that evaluation uses."""
    found = read_checkpoint(_find_checkpoint(path, which))
    weights = {**found.tensors.get("weights", {}), **found.tensors.get("average", {})}
    return Checkpoint(found.record, {"weights": weights})


def _find_checkpoint(path: Path, which: str | None) -> Path:
    if path.exists() and not path.is_dir():
        return path
    for kind in {None: ("best", "step"), "best": ("best",)}.get(which, ("step",)):
        if (found := RunFolder(path).find(kind)) is not None:
            return found
    kind = "checkpoint" if which is None else f"{which} checkpoint"
    raise CheckpointError(
        f"there is no {kind} in {path}; expected the folder of a run, or the file of a checkpoint."
    )


def _build(record: dict[str, Any], origin: str) -> Task:
    """Create the untrained task that an untrusted record describes."""
    name, config = record["task"], record.get("task_config")
    if not isinstance(name, str) or not isinstance(config, dict):
        raise CheckpointError(f"{origin} does not name its task.")
    try:
        return task_entry(name).build(config)
    except (ConfigError, CheckpointError):
        raise
    except Exception as error:  # constructors may raise anything for invalid arguments
        what = " ".join(str(error).split())
        raise CheckpointError(
            f"{origin}: the task {name!r} cannot be created from {str(config)[:200]}: "
            f"{type(error).__name__}: {what}"
        ) from None


def load_state(task: Task, weights: dict[str, Any], record: dict[str, Any], origin: str) -> None:
    """Load tensors and extra state into a task, in the precision of the record."""
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


def weights_of(task: Task, config: TrainConfig, *, copy: bool = False) -> Checkpoint:
    """Return the state of a task and its description.

    Raises:
        CheckpointError: The state contains values that are neither tensors nor JSON-compatible.
    """
    state = task.state_dict()
    tensors = {key: x for key, x in state.items() if isinstance(x, Tensor)}
    extra = {key: x for key, x in state.items() if key not in tensors}
    for key, value in extra.items():
        try:
            same = json.loads(json.dumps(value, allow_nan=False)) == value
        except (TypeError, ValueError):
            same = False
        if not same:
            raise CheckpointError(
                f"the state {key!r} of the task is a {type(value).__name__} that JSON cannot "
                "represent; return tensors, numbers, strings, lists and dicts from get_extra_state."
            )
    if copy:
        tensors = {key: x.clone() for key, x in tensors.items()}
        extra = deepcopy(extra)
    record = {**describe_task(task), "task_state": extra, "precision": config.precision}
    return Checkpoint(record, {"weights": tensors})


def check_identity(found: Mapping[str, Any], own: Mapping[str, Any], origin: str) -> None:
    """Check that a checkpoint was written with the same settings, task and data.

    Raises:
        CheckpointError: Names the differences.
    """
    if found == own:
        return
    differ = [key for key in {**found, **own} if found.get(key) != own.get(key)]
    listed = "; ".join(
        f"{k}: {found.get(k)!r} in the checkpoint, {own.get(k)!r} now" for k in differ[:4]
    )
    raise CheckpointError(
        f"{origin} belongs to another run ({listed}). Use the same settings, task and data, or "
        "another folder."
    )
