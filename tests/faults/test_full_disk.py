"""No space or no permission: clear errors, and no incomplete file has its final name."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from internals import OutputError, checkpoint, files, prepare_output, write_atomically, writing
from limits import limited

from smnn.training import Damping, TrainConfig, fit, load_task, oscillations

CALLS = ("fsync", "replace", "rename", "mkdir", "unlink", "chmod")


@pytest.mark.parametrize(
    ("words", "size"),
    [(["train", "damping", "--resume", "--set", "max_steps=9", "--set", "tensorboard=false"], 1500),
     (["data", "make", "lorenz", "--force"], 20_000)],
)  # fmt: skip
def test_files_that_cannot_grow(words: list[str], size: int, tmp_path: Path) -> None:
    """Writes beyond `size` bytes fail; afterwards the command succeeds."""
    from internals import app

    def work() -> None:
        if code := app([*words, "--out", str(tmp_path / "out")], standalone_mode=False):
            raise SystemExit(code)

    code, said = limited(work, file_size=size)
    assert code == 1, said
    assert "cannot write" in said
    assert "Traceback" not in said.split("cannot write")[0], said
    code, said = limited(work)
    assert code == 0, said


def failing(monkeypatch: pytest.MonkeyPatch, nth: int) -> list[str]:
    """Make the n-th system call that changes files fail as on a full disk."""
    seen: list[str] = []

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            seen.append(name)
            if len(seen) == nth:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return call(*args, **kwargs)

        return wrapper

    for name in CALLS:
        monkeypatch.setattr(os, name, counted(name, getattr(os, name)))
    return seen


def test_failure_of_each_system_call_of_a_run(tmp_path: Path) -> None:
    """Whichever call finds the disk full, the error is clear and resuming is exact."""
    config = TrainConfig(max_steps=2, checkpoint_every=1, tensorboard=False, ema=0.5, log_every=1)
    data = oscillations(4)

    def run(out: Path) -> Damping:
        task = Damping()
        fit(task, data, config, out, resume=True, progress=False)
        return task

    whole = run(tmp_path / "whole").state_dict()
    nth, failed = 1, 0
    while True:
        out = tmp_path / str(nth)
        with pytest.MonkeyPatch.context() as patch:
            seen = failing(patch, nth)
            try:
                run(out)
            except OutputError as error:
                failed += 1
                _check_message(error)
        if len(seen) < nth:
            break
        if (out / "checkpoints").exists():
            for path in (out / "checkpoints").glob("[sb]*-*"):
                checkpoint.read_checkpoint(path)
        task = run(out)
        assert all(torch.equal(x, whole[name]) for name, x in task.state_dict().items())
        nth += 1
    assert nth > 20
    assert failed > 15  # failures of the others are harmless


def _check_message(error: OutputError) -> None:
    assert "cannot write" in str(error)
    assert "No space left on device. Free some space or write elsewhere" in str(error)


def test_failure_of_each_system_call_of_an_atomic_write(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    for nth in (1, 2, 3):
        with pytest.MonkeyPatch.context() as patch:
            failing(patch, nth)
            with pytest.raises(OutputError, match="No space left on device") as caught:
                write_atomically(path, "new")
        _check_message(caught.value)
        assert path.read_text() == "old"
        assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_folder_that_is_not_writable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files.tempfile, "TemporaryFile", refuse)
    wanted = f"cannot write into .*out: {os.strerror(number)}. Give a folder that you may write to"
    with pytest.raises(OutputError, match=wanted):
        prepare_output(tmp_path / "out")
    with pytest.raises(OutputError, match=wanted):
        fit(Damping(), oscillations(4), TrainConfig(max_steps=1), tmp_path / "out", progress=False)


def test_full_disk_is_detected_before_computing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = limited(lambda: prepare_output(tmp_path), file_size=0)
    assert code == 1
    assert said.startswith(f"OutputError: cannot write into {tmp_path}: File too large. Free some")


def test_full_disk_ends_a_run_with_tensorboard_in_a_clear_error(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    config = TrainConfig(max_steps=200, log_every=1, tensorboard=True, checkpoint_every=500)

    def work() -> None:
        fit(Damping(), oscillations(4), config, tmp_path, progress=False)

    code, said = limited(work, file_size=6000)
    assert code == 1, said
    assert said.startswith("OutputError: cannot write "), said[-800:]


def test_other_errors_are_passed_on(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="other"), writing(tmp_path):
        raise ValueError("other")


def test_checkpoint_of_a_failed_run_can_be_loaded(tmp_path: Path) -> None:
    config = TrainConfig(max_steps=2, checkpoint_every=2, tensorboard=False)
    fit(Damping(), oscillations(8), config, tmp_path, progress=False)
    with pytest.MonkeyPatch.context() as patch:
        failing(patch, 4)
        with pytest.raises(OutputError):
            fit(Damping(), oscillations(8), config.replace(max_steps=4), tmp_path, resume=True,
                progress=False)  # fmt: skip
    assert np.isfinite(float(load_task(tmp_path).damping.detach()))
