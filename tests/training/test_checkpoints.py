"""Checkpoints contain no code; damaged or foreign files are rejected with a message."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from training_cases import Encoder, Line, encoder, line_data, small_config, small_data, train

import smnn.training
from smnn.errors import OutputError
from smnn.training import (
    CheckpointError,
    ConfigError,
    Damping,
    Task,
    TrainConfig,
    fit,
    load_task,
    load_weights,
    oscillations,
)
from smnn.training._checkpoint import Checkpoint, read_checkpoint, write_checkpoint


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    tensors = {
        "weights": {"a": torch.randn(3, 2), "b": torch.arange(4)},
        "rest": {"empty": torch.zeros(0), "half": torch.ones(2, dtype=torch.bfloat16)},
    }
    return write_checkpoint(tmp_path / "step-1", Checkpoint({"x": 0.1}, tensors))


def test_roundtrip(tmp_path: Path) -> None:
    shared = torch.randn(4, 4, dtype=torch.float64)
    tensors = {"w": {"whole": shared, "turned": shared.T, "row": shared[1], "n": torch.tensor(3)}}
    path = write_checkpoint(tmp_path / "c", Checkpoint({"step": 3, "lr": 0.1 + 0.2}, tensors))
    record, found = read_checkpoint(path)
    assert record["step"] == 3
    assert record["lr"] == 0.1 + 0.2
    for name, x in tensors["w"].items():
        assert torch.equal(found["w"][name], x)
        assert found["w"][name].dtype == x.dtype
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def test_every_flipped_bit_is_found(kept: Path) -> None:
    data = kept.read_bytes()
    for place in range(0, len(data), 3):
        kept.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        with pytest.raises(CheckpointError, match=r"is damaged: |is not a checkpoint|has version"):
            read_checkpoint(kept)
    kept.write_bytes(data)
    read_checkpoint(kept)


@pytest.mark.parametrize("size", [0, 1, 40, 300])
def test_truncated_files(kept: Path, size: int) -> None:
    os.truncate(kept, size)
    with pytest.raises(CheckpointError, match=r"step-1 is damaged: .*Use another checkpoint"):
        read_checkpoint(kept)


def test_foreign_files(kept: Path) -> None:
    with pytest.raises(CheckpointError, match=r"there is no .*elsewhere; expected a checkpoint"):
        read_checkpoint(kept.parent / "elsewhere")
    for record, message in (
        (
            {"format": "smnn checkpoint", "version": 3},
            r"has version 3 .* version 2\. Use the",
        ),
        ({"format": "other"}, "is not a checkpoint of smnn"),
        ([1], "is not a checkpoint of smnn"),
    ):
        save_file({"a": torch.zeros(1)}, kept, {"smnn": json.dumps(record)})
        with pytest.raises(CheckpointError, match=message):
            read_checkpoint(kept)


def test_a_failed_write_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match=r"cannot write .*: No space left on device"):
        write_checkpoint(tmp_path / "c", Checkpoint({}, {"w": {"a": torch.zeros(2)}}))
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- tasks from checkpoints


def test_load_task(tmp_path: Path) -> None:
    task, _ = train(tmp_path)
    found = load_task(tmp_path, "latest")
    assert isinstance(found, Encoder)
    assert not found.training
    assert found.extra == task.extra == {"epochs": [1, 2, 3, 4]}
    for name, x in task.named_parameters():  # fit leaves the averaged weights, as evaluated
        assert torch.equal(x, dict(found.named_parameters())[name])
    path = tmp_path / "checkpoints" / "step-0000000023.safetensors"
    groups = read_checkpoint(path).tensors
    plain, average = groups["weights"], groups["average"]
    assert not torch.equal(plain["net.0.weight"], average["net.0.weight"])
    assert torch.equal(average["net.0.weight"], found.net[0].weight)


def test_best_weights_belong_to_the_best_evaluation(tmp_path: Path) -> None:
    data = oscillations(40, times=12)
    config = TrainConfig(epochs=3, lr=0.3, batch_size=8, tensorboard=False, checkpoint_every=10**6)
    result = fit(Damping(0.43, 4.5), data, config, tmp_path, progress=False)
    assert result.best["step"] < result.steps  # it began at the answer
    best = smnn.training.evaluate(load_task(tmp_path), data.validation)
    assert best.metrics["loss"] == pytest.approx(result.best["value"], rel=1e-12)
    last = smnn.training.evaluate(load_task(tmp_path, "latest"), data.validation)
    assert last.metrics["loss"] == pytest.approx(result.metrics["val_loss"], rel=1e-12)


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_precision_is_restored(tmp_path: Path, precision: str) -> None:
    train(tmp_path, max_steps=1, precision=precision)
    weight = load_task(tmp_path).net[0].weight
    assert weight.dtype == getattr(torch, precision)


def test_tasks_that_are_not_registered(tmp_path: Path) -> None:
    fit(Line(), line_data(), TrainConfig(max_steps=1, tensorboard=False), tmp_path, progress=False)
    with pytest.raises(CheckpointError, match=r"written by Line, which is not registered; create"):
        load_task(tmp_path)
    task = Line()
    load_weights(task, tmp_path)
    assert task.weight.item() != 2.0
    with pytest.raises(CheckpointError, match=r"does not fit Damping: .*Missing key"):
        load_weights(Damping(), tmp_path)
    with pytest.raises(
        CheckpointError, match=r"there is no checkpoint in .*; expected the folder of"
    ):
        load_task(tmp_path / "checkpoints")
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(CheckpointError, match="there is no best checkpoint in"):
        load_task(tmp_path, "best")


def test_an_unknown_name_is_not_imported(tmp_path: Path) -> None:
    record = {"task": "os.system", "task_config": {}, "task_state": {}, "precision": "float64"}
    write_checkpoint(tmp_path / "c", Checkpoint(record, {"weights": {}}))
    with pytest.raises(ConfigError, match=r"there is no task 'os\.system'; registered are: "):
        load_task(tmp_path / "c")


def test_state_that_is_not_json(tmp_path: Path) -> None:
    class Odd(Line):
        def get_extra_state(self) -> Any:
            return {1, 2}

        def set_extra_state(self, state: Any) -> None:
            pass

    with pytest.raises(CheckpointError, match="'_extra_state' of the task is a set that JSON"):
        fit(Odd(), line_data(), TrainConfig(max_steps=1, tensorboard=False), tmp_path)


def test_arguments_that_are_not_json(tmp_path: Path) -> None:
    class Odd(Line):
        def config(self) -> dict[str, Any]:
            return {"start": torch.zeros(1)}

    with pytest.raises(
        ConfigError, match=r"Odd\.config\(\) must return JSON-compatible values: .*Ten"
    ):
        fit(Odd(), line_data(), TrainConfig(max_steps=1, tensorboard=False), tmp_path)


def test_tied_weights(tmp_path: Path) -> None:
    class Tied(Task):
        def __init__(self) -> None:
            super().__init__()
            self.a = torch.nn.Linear(1, 1)
            self.b = self.a

        def losses(self, batch: Any) -> dict[str, torch.Tensor]:
            x, y = batch
            return {"loss": (self.b(self.a(x[:, None]))[:, 0] - y).square().mean()}

        def config(self) -> dict[str, Any]:
            return {}

    task = Tied()
    config = TrainConfig(max_steps=3, ema=0.5, tensorboard=False)
    fit(task, line_data(), config, tmp_path, progress=False)
    other = Tied()
    load_weights(other, tmp_path, "latest")
    assert torch.equal(other.a.weight, task.a.weight)
    assert other.a.weight is other.b.weight


def test_config_json_describes_the_run(tmp_path: Path) -> None:
    fit(encoder(), small_data(), small_config(max_steps=4), tmp_path, progress=False,
        record={"note": "a test"})  # fmt: skip
    train(tmp_path, max_steps=8, resume=True)
    record = json.loads((tmp_path / "config.json").read_text())
    assert TrainConfig.from_dict(record["train"]) == small_config(max_steps=8)
    assert record["task"] == "test-encoder"
    assert record["task_config"] == {"width": 8, "dropout": 0.2}
    assert [s["step"] for s in record["starts"]] == [0, 4]
    versions = record["starts"][0]["machine"]["versions"]
    assert versions["torch"] == torch.__version__.split("+")[0] or versions["torch"]
    assert versions["safetensors"]
