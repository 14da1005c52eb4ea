"""The folder of a run: what lies where, and that one run at a time writes into it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from smnn._util.files import OutputError, prepare_output, remove_unfinished, write_json, writing
from smnn._util.machine import PACKAGES, describe_machine, package_versions
from smnn.training._checkpoint import (
    Checkpoint,
    point_to,
    pointed_to,
    read_checkpoint,
    tidy,
    write_checkpoint,
)
from smnn.training._errors import CheckpointError

CONFIG = "config.json"
LATEST, BEST = "latest", "best"


class RunFolder:
    """Where a run writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self._lock: IO[str] | None = None

    def latest(self) -> Path | None:
        """The newest checkpoint, if there is one."""
        return pointed_to(self.checkpoints / LATEST)

    def open(self, resume: bool) -> None:
        """Prepare for writing and keep other runs out.

        Raises:
            OutputError: It cannot be written to, holds another run, or one that is going on.
        """
        prepare_output(self.path)
        self._take_lock()
        if not resume and (self.checkpoints / LATEST).exists():
            raise OutputError(
                f"{self.path} holds a run already; resume it (resume=True, --resume) or give "
                "another folder."
            )
        with writing(self.checkpoints):
            self.checkpoints.mkdir(exist_ok=True)
        remove_unfinished(self.checkpoints)

    def close(self) -> None:
        """Let other runs in."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _take_lock(self) -> None:
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
        """Write config.json: the settings, and each time the run was started or resumed."""
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
            step: Of the checkpoint.
            content: What it holds; `record["best"]` names the best weights at this step.
            best: New best weights and their step.
        """
        if best is not None:
            write_checkpoint(self.checkpoints / best_name(best[0]), best[1])
        folder = write_checkpoint(self.checkpoints / step_name(step), content)
        point_to(self.checkpoints / LATEST, folder)
        return folder

    def tidy(self, record: Mapping[str, Any], keep_last: int) -> None:
        """Set the pointer to the best weights, and remove what the newest checkpoint needs not.

        Checkpoints later than the newest are of a run that was interrupted before it pointed to
        them; they will be written again.
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
            tidy(self.checkpoints, keep)


def step_name(step: int) -> str:
    """Name of a checkpoint; sorts by step."""
    return f"step-{step:010d}"


def best_name(step: int) -> str:
    """Name of the best weights."""
    return f"best-{step:010d}"


def find_checkpoint(path: Path, which: str | None) -> Path:
    """A checkpoint from its own folder or from that of its run.

    Raises:
        CheckpointError: There is none.
    """
    if (path / "checkpoint.json").exists():
        return path
    for name in (BEST, LATEST) if which is None else (which,):
        found = pointed_to(path / "checkpoints" / name)
        if found is not None:
            return found
    kind = "checkpoint" if which is None else f"{which} checkpoint"
    raise CheckpointError(
        f"there is no {kind} in {path}; give the folder of a run or of a checkpoint."
    )


def read_weights(path: Path, which: str | None) -> Checkpoint:
    """What is needed to use a trained model; `tensors["weights"]` are the evaluated ones."""
    folder = find_checkpoint(path, which)
    found = read_checkpoint(folder, ("weights", "average"))
    if "weights" not in found.tensors:
        raise CheckpointError(f"{folder} holds no weights.")
    weights = {**found.tensors["weights"], **found.tensors.get("average", {})}
    return Checkpoint(found.record, {"weights": weights})
