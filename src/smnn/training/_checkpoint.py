"""Checkpoints, the folder of a run, and loading of trained tasks.

A checkpoint is a folder of `.safetensors` files and a `checkpoint.json` with the digest of each. It
is written under a temporary name, flushed to disk, and renamed, so that it is complete whenever it
exists; then the file `latest` is replaced by one that contains its name. Reading verifies every
digest and executes no code.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from copy import deepcopy
from os import PathLike
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, get_args

from torch import Tensor

from smnn._util.files import (
    InputError,
    OutputError,
    check_file,
    prepare_output,
    read_bounded,
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
VERSION = 1
RECORD = "checkpoint.json"
HIDDEN = ".unfinished-"
LARGEST_RECORD = 64 * 2**20
"""Maximum number of bytes of a `checkpoint.json`."""
CONFIG = "config.json"
LATEST, BEST = "latest", "best"
Which = Literal["best", "latest"]


class Checkpoint(NamedTuple):
    """Content of a checkpoint."""

    record: dict[str, Any]
    """JSON-compatible values."""
    tensors: dict[str, dict[str, Tensor]]
    """By file (without suffix), then by name; on the CPU."""


def write_checkpoint(folder: Path, content: Checkpoint) -> Path:
    """Write a checkpoint atomically.

    Raises:
        OutputError: It cannot be written; no files are left behind.
    """
    with writing(folder):
        return _write_checkpoint(folder, content)


def _write_checkpoint(folder: Path, content: Checkpoint) -> Path:
    temporary = folder.with_name(f"{HIDDEN}{os.getpid()}-{folder.name}")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        digests = {}
        for name, tensors in content.tensors.items():
            data: bytes = _safetensors().save({key: _plain(x) for key, x in tensors.items()})
            digests[name] = hashlib.sha256(data).hexdigest()
            _write_through(temporary / f"{name}.safetensors", data)
        record = {**content.record, "format": FORMAT, "version": VERSION, "files": digests}
        record["digest"] = digest_of(record)
        text = json.dumps(record, indent=1, allow_nan=False) + "\n"
        _write_through(temporary / RECORD, text.encode())
        _sync_folder(temporary)
        if folder.exists():  # left over from a run that was killed before it updated `latest`
            _remove(folder)
        temporary.rename(folder)
        _sync_folder(folder.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return folder


def read_checkpoint(folder: Path, files: Iterable[str] | None = None) -> Checkpoint:
    """Read and verify a checkpoint.

    Args:
        folder: Folder of the checkpoint.
        files: Names of the files to read, without suffix; by default all.

    Raises:
        CheckpointError: It does not exist, has another format, or is damaged.
    """
    record = _read_record(folder)
    wanted = record["files"] if files is None else [f for f in files if f in record["files"]]
    tensors = {}
    for name in wanted:
        path = folder / f"{name}.safetensors"
        data = _read_bytes(path)
        if hashlib.sha256(data).hexdigest() != record["files"][name]:
            raise _damaged(path, "its digest does not match its contents")
        try:
            tensors[name] = _safetensors().load(data)
        except Exception as error:  # safetensors has its own class of errors
            raise _damaged(path, f"it does not hold tensors ({error})") from None
    return Checkpoint(record, tensors)


def _read_record(folder: Path) -> dict[str, Any]:
    path = folder / RECORD
    try:
        record = json.loads(_read_bytes(path, LARGEST_RECORD))
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"it is not JSON ({error})") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a checkpoint of smnn: its format is not {FORMAT!r}.")
    if record.get("version") != VERSION:
        raise CheckpointError(
            f"{path} has version {record.get('version')!r} of the format; this smnn reads version "
            f"{VERSION}. Use the version of smnn that wrote it."
        )
    digest = record.pop("digest", None)
    try:
        own = digest_of(record)
    except (ValueError, RecursionError):
        own = None
    if digest is None or digest != own:
        raise _damaged(path, "its digest does not match its contents")
    files = record.get("files")
    if not isinstance(files, dict) or any(Path(name).name != name for name in files):
        raise _damaged(path, "its list of files is invalid")
    return record


def _read_bytes(path: Path, most: int | None = None) -> bytes:
    try:
        if most is not None:
            return read_bounded(path, most)
        check_file(path)
        return path.read_bytes()
    except InputError as error:
        raise CheckpointError(str(error)) from None
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError(f"there is no {path}; expected the folder of a checkpoint.") from None
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}.") from None


def _damaged(path: Path, how: str) -> CheckpointError:
    return CheckpointError(f"{path} is damaged: {how}. Use another checkpoint.")


def point_to(pointer: Path, folder: Path) -> None:
    """Write the name of a folder into a file next to it."""
    write_atomically(pointer, folder.name + "\n")
    _sync_folder(pointer.parent)


def pointed_to(pointer: Path) -> Path | None:
    """Return the folder whose name a file contains; `None` if there is no such file.

    Raises:
        CheckpointError: It does not contain the name of a folder next to it.
    """
    try:
        name = pointer.read_text(encoding="utf-8").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"cannot read {pointer}: {error}.") from None
    folder = pointer.parent / name
    if name in ("", ".", "..") or Path(name).name != name or not folder.is_dir():
        raise CheckpointError(
            f"{pointer} names {name!r}, which does not exist; write the name of a folder next to "
            "it into the file."
        )
    return folder


def remove_others(parent: Path, keep: Iterable[Path]) -> None:
    """Remove all checkpoints except those to keep, and left-over temporary folders."""
    names = {folder.name for folder in keep}
    for folder in parent.iterdir():
        ours = folder.name.startswith((HIDDEN, "step-", "best-"))
        if ours and folder.is_dir() and folder.name not in names:
            _remove(folder)


def _remove(folder: Path) -> None:
    # Renamed first, so that a folder with the name of a checkpoint is always complete.
    hidden = folder
    if not folder.name.startswith(HIDDEN):
        hidden = folder.with_name(HIDDEN + folder.name)
        shutil.rmtree(hidden, ignore_errors=True)
        folder.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def _safetensors() -> Any:
    return require("safetensors.torch", "write and read checkpoints")


def _plain(x: Tensor) -> Tensor:
    """Return a contiguous copy on the CPU, as safetensors requires."""
    return x.detach().to("cpu", copy=True).contiguous()


def _write_through(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to disk, if the file system supports it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# ---------------------------------------------------------------- the folder of a run


class RunFolder:
    """Folder of a run; one run at a time writes into it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self._lock: IO[str] | None = None

    def latest(self) -> Path | None:
        return pointed_to(self.checkpoints / LATEST)

    def open(self, resume: bool) -> None:
        """Prepare the folder for writing and lock it.

        Raises:
            OutputError: It is not writable, contains another run, or is in use.
        """
        prepare_output(self.path)
        self._acquire_lock()
        if not resume and (self.checkpoints / LATEST).exists():
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
        """Write a checkpoint, and the best weights if they are new.

        Args:
            step: Step of the checkpoint.
            content: The checkpoint; `record["best"]` names the best weights at this step.
            best: New best weights and their step.
        """
        if best is not None:
            write_checkpoint(self.checkpoints / best_name(best[0]), best[1])
        folder = write_checkpoint(self.checkpoints / step_name(step), content)
        point_to(self.checkpoints / LATEST, folder)
        return folder

    def clean(self, record: Mapping[str, Any], keep_last: int) -> None:
        """Update `best` and remove the checkpoints that are no longer needed.

        Checkpoints later than the latest belong to a run that was killed before it updated
        `latest`; they will be written again.
        """
        newest = step_name(record["step"])
        best = record["best"]
        with writing(self.checkpoints):
            steps = sorted(p for p in self.checkpoints.glob("step-*") if p.name <= newest)
            keep = steps[-keep_last:]
            if best is None or not (self.checkpoints / best).is_dir():
                (self.checkpoints / BEST).unlink(missing_ok=True)
            else:
                keep.append(self.checkpoints / best)
                point_to(self.checkpoints / BEST, keep[-1])
            remove_others(self.checkpoints, keep)


def step_name(step: int) -> str:
    """Return the name of a checkpoint; names sort by step."""
    return f"step-{step:010d}"


def best_name(step: int) -> str:
    return f"best-{step:010d}"


# ---------------------------------------------------------------- tasks


def load_task(path: str | PathLike[str], which: Which | None = None) -> Task:
    """Load a trained task, on the CPU and in evaluation mode.

    The class is looked up by name among the registered tasks. If the run kept an average of the
    weights, the average is loaded.

    Args:
        path: Folder of a run or of a checkpoint.
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
        path: Folder of a run or of a checkpoint.
        which: As in `load_task`.

    Raises:
        CheckpointError: There is no checkpoint, it is damaged, or does not fit the task.
    """
    found = _read_weights(Path(path), which)
    load_state(task, found.tensors["weights"], found.record, str(path))


def _read_weights(path: Path, which: str | None) -> Checkpoint:
    """Read the weights that evaluation uses."""
    folder = _find_checkpoint(path, which)
    found = read_checkpoint(folder, ("weights", "average"))
    if "weights" not in found.tensors:
        raise CheckpointError(f"{folder} holds no weights.")
    weights = {**found.tensors["weights"], **found.tensors.get("average", {})}
    return Checkpoint(found.record, {"weights": weights})


def _find_checkpoint(path: Path, which: str | None) -> Path:
    if (path / RECORD).exists():
        return path
    for name in (BEST, LATEST) if which is None else (which,):
        found = pointed_to(path / "checkpoints" / name)
        if found is not None:
            return found
    kind = "checkpoint" if which is None else f"{which} checkpoint"
    raise CheckpointError(
        f"there is no {kind} in {path}; expected the folder of a run or of a checkpoint."
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
