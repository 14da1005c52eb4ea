"""A run that was killed and resumed equals an uninterrupted one."""

import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from training_cases import (
    Line,
    encoder,
    ended,
    files,
    forked,
    latest_step,
    line_data,
    small_config,
    small_data,
    train,
)

from smnn.errors import OutputError
from smnn.training import CheckpointError, Damping, TrainConfig, fit, oscillations
from smnn.training import _checkpoint as checkpoint

KILLED = -signal.SIGKILL
SYSTEM_CALLS = ("fsync", "rename", "replace", "rmdir", "unlink", "mkdir")


def uninterrupted(out: Path, **options: Any) -> dict[str, Any]:
    task, result = train(out, **options)
    return {"files": files(out), "weights": task.state_dict(), "result": result}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The uninterrupted run."""
    return uninterrupted(tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def brief(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A shorter run: three checkpoints, and two evaluations that both improve."""
    return uninterrupted(tmp_path_factory.mktemp("brief"), max_steps=10)


def check_complete(out: Path) -> None:
    """Check that every file with the name of a checkpoint is complete."""
    for path in (out / "checkpoints").glob("[sb]*-*"):
        checkpoint.read_checkpoint(path)


def check_same(out: Path, resumed: Any, whole: dict[str, Any]) -> None:
    task, result = resumed
    assert files(out) == whole["files"]
    assert list(task.state_dict()) == list(whole["weights"])
    for name, x in whole["weights"].items():
        same = torch.equal(x, task.state_dict()[name]) if isinstance(x, torch.Tensor) else None
        assert same or x == task.state_dict()[name], name
    assert result.metrics == whole["result"].metrics
    assert result.best == whole["result"].best
    assert result.history == whole["result"].history
    assert result.evaluations == whole["result"].evaluations


@pytest.mark.parametrize("step", random.Random(1).sample(range(1, 24), 6))
def test_killed_at_a_random_step(tmp_path: Path, whole: dict[str, Any], step: int) -> None:
    assert ended(forked(lambda: train(tmp_path, die_at=step))) == KILLED
    check_complete(tmp_path)
    check_same(tmp_path, train(tmp_path, resume=True), whole)


def dying(nth: int) -> None:
    """Kill this process just before its n-th system call that changes the disk."""
    count = 0

    def counted(call: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == nth:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return wrapper

    for name in SYSTEM_CALLS:
        setattr(os, name, counted(getattr(os, name)))


def killed_while_writing(out: Path, nth: int) -> int:
    def work() -> None:
        dying(nth)
        train(out, max_steps=10)

    return ended(forked(work))


@pytest.mark.parametrize("nth", random.Random(2).sample(range(1, 20), 6))
def test_killed_while_writing(tmp_path: Path, brief: dict[str, Any], nth: int) -> None:
    assert killed_while_writing(tmp_path, nth) == KILLED
    check_complete(tmp_path)
    check_same(tmp_path, train(tmp_path, max_steps=10, resume=True), brief)


@pytest.mark.slow
def test_killed_before_every_change_on_disk(tmp_path: Path, brief: dict[str, Any]) -> None:
    nth = 0
    code = KILLED
    while code == KILLED:
        nth += 1
        out = tmp_path / str(nth)
        code = killed_while_writing(out, nth)
        check_complete(out)
        check_same(out, train(out, max_steps=10, resume=True), brief)
        shutil.rmtree(out)
    assert code == 0
    assert nth > 20


@pytest.mark.slow
def test_killed_again_and_again_at_random_moments(tmp_path: Path, whole: dict[str, Any]) -> None:
    moments = random.Random(3)
    killed = 0
    for _ in range(200):
        process = forked(lambda: train(tmp_path, resume=True))
        time.sleep(moments.uniform(0.0, 0.08))
        process.kill()
        killed += ended(process) == KILLED
        if (tmp_path / "checkpoints").exists():
            check_complete(tmp_path)
            if list((tmp_path / "checkpoints").glob("step-0000000023*")):
                break
    check_same(tmp_path, train(tmp_path, resume=True), whole)
    assert killed > 3


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_cleanly_and_explain_how_to_resume(
    tmp_path: Path, whole: dict[str, Any], number: int, code: int
) -> None:
    stderr = tmp_path / "stderr"
    out = tmp_path / "out"

    def work() -> None:
        task = encoder()
        losses = task.losses

        def slow(batch: Any) -> Any:
            time.sleep(0.02)
            return losses(batch)

        task.losses = slow
        fit(task, small_data(), small_config(checkpoint_every=1000), out)

    process = forked(work, stderr=stderr)
    while not (out / "steps.csv").exists():
        assert process.is_alive(), stderr.read_text()
        time.sleep(0.01)
    os.kill(process.pid, number)
    assert ended(process) == code
    text = stderr.read_text()
    step = latest_step(out)
    assert f"Stopped by {signal.Signals(number).name} after step {step};" in text
    assert "To continue: run the same again with resume=True" in text
    assert "Traceback" not in text
    assert step < 23
    check_same(out, train(out, resume=True), whole)


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path, whole: dict[str, Any]) -> None:
    train(tmp_path)
    before = files(tmp_path)
    task, result = train(tmp_path, resume=True)
    assert files(tmp_path) == before
    assert result.samples_per_second is None
    check_same(tmp_path, (task, result), whole)


def test_a_run_without_a_checkpoint_starts_from_the_beginning(
    tmp_path: Path, whole: dict[str, Any]
) -> None:
    (tmp_path / "steps.csv").write_text("left,over\n1,2\n")
    check_same(tmp_path, train(tmp_path, resume=True), whole)


def test_a_run_can_be_extended(tmp_path: Path) -> None:
    """If the schedule does not depend on the length."""
    short, long = tmp_path / "short", tmp_path / "long"
    options = {"epochs": None, "schedule": "constant"}
    train(short, **options, max_steps=10)  # two whole epochs
    task, _ = train(short, **options, max_steps=20, resume=True)
    other, _ = train(long, **options, max_steps=20)
    assert all(torch.equal(a, b) for a, b in zip(task.parameters(), other.parameters()))
    assert (short / "epochs.csv").read_bytes() == (long / "epochs.csv").read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 0.02}, r"lr: 0\.01 in the checkpoint, 0\.02 now"),
        ({"seed": 1}, "seed: 0 in the checkpoint, 1 now"),
        ({"schedule": "cosine"}, "schedule: 'plateau' in the checkpoint, 'cosine' now"),
    ],
)
def test_other_settings_are_rejected(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    train(tmp_path, max_steps=4)
    with pytest.raises(CheckpointError, match=f"belongs to another run .*{message}"):
        train(tmp_path, resume=True, **options)


def test_another_length_is_rejected_if_the_schedule_depends_on_it(tmp_path: Path) -> None:
    train(tmp_path, max_steps=4, schedule="cosine")
    with pytest.raises(CheckpointError, match="max_steps: 4 in the checkpoint, 8 now"):
        train(tmp_path, resume=True, max_steps=8, schedule="cosine")


def test_other_data_and_another_task_are_rejected(tmp_path: Path) -> None:
    config = TrainConfig(max_steps=2, tensorboard=False)
    fit(Damping(), oscillations(40), config, tmp_path, progress=False)
    with pytest.raises(CheckpointError, match="training data: '"):
        fit(Damping(), oscillations(44), config, tmp_path, resume=True, progress=False)
    with pytest.raises(CheckpointError, match=r"task_config: .*'order': 4.*'order': 3"):
        fit(Damping(order=3), oscillations(40), config, tmp_path, resume=True, progress=False)
    with pytest.raises(CheckpointError, match="task: 'damping' in the checkpoint, None now"):
        fit(Line(), line_data(), config, tmp_path, resume=True, progress=False)


def test_a_folder_with_a_run_is_not_overwritten(tmp_path: Path) -> None:
    train(tmp_path, max_steps=2)
    before = files(tmp_path)
    with pytest.raises(OutputError, match=r"holds a run already; resume that run or"):
        train(tmp_path, max_steps=2)
    assert files(tmp_path) == before


def test_two_runs_cannot_use_one_folder(tmp_path: Path) -> None:
    class Nosy(Line):
        def losses(self, batch: Any) -> Any:
            with pytest.raises(OutputError, match="another process is training into"):
                fit(Line(), line_data(), config, tmp_path, resume=True, progress=False)
            return super().losses(batch)

    config = TrainConfig(max_steps=1, tensorboard=False)
    fit(Nosy(), line_data(), config, tmp_path, progress=False)


def test_truncated_logs_are_reported(tmp_path: Path) -> None:
    train(tmp_path, max_steps=4)
    (tmp_path / "steps.csv").write_text("step\n")
    with pytest.raises(CheckpointError, match=r"steps\.csv has 5 bytes; the checkpoint was writ"):
        train(tmp_path, max_steps=8, resume=True)


def test_older_checkpoints_are_removed_and_the_best_is_kept(tmp_path: Path) -> None:
    _, result = train(tmp_path, keep_last=2, checkpoint_every=3, max_steps=20)
    names = sorted(p.name for p in (tmp_path / "checkpoints").iterdir())
    names = [name.removesuffix(".safetensors") for name in names]
    assert names == [f"best-{result.best['step']:010d}", "step-0000000018", "step-0000000020"]


def test_returning_to_an_older_checkpoint(tmp_path: Path, whole: dict[str, Any]) -> None:
    """After removing later ones, and the result is the same."""
    train(tmp_path)
    max((tmp_path / "checkpoints").glob("step-*")).unlink()
    check_same(tmp_path, train(tmp_path, resume=True), whole)
