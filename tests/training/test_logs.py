"""Logs and progress display."""

import csv
import io
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from training_cases import Line, line_data

from smnn.errors import OutputError
from smnn.training import Damping, TrainConfig, TrainingError, fit, oscillations
from smnn.training import _logs as progress
from smnn.training._logs import Log, Table, Throughput


def test_rows_are_restored_exactly(tmp_path: Path) -> None:
    table = Table(tmp_path / "t.csv")
    rows = [{"step": i, "x": (0.1 + 0.2) ** i, "y": float("inf")} for i in range(1, 5)]
    for row in rows[:2]:
        table.add(row)
    place = table.position()
    for row in rows[2:]:
        table.add({**row, "x": 99.0})  # of a run that will be killed
    again = Table(tmp_path / "t.csv")
    again.resume(place)
    assert again.rows == rows[:2]
    for row in rows[2:]:
        again.add(row)
    assert again.rows == rows
    whole = Table(tmp_path / "whole.csv")
    for row in rows:
        whole.add(row)
    assert (tmp_path / "t.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_columns_must_not_change(tmp_path: Path) -> None:
    table = Table(None)
    table.add({"step": 1, "a": 1.0})
    with pytest.raises(TrainingError, match="the scalars step, b after step, a before"):
        table.add({"step": 2, "b": 1.0})


def test_an_unwritable_file(tmp_path: Path) -> None:
    (tmp_path / "t.csv").mkdir()
    with pytest.raises(OutputError, match=r"cannot write .*t\.csv"):
        Table(tmp_path / "t.csv").add({"step": 1})


def test_csv_files(tmp_path: Path) -> None:
    config = TrainConfig(epochs=2, batch_size=10, log_every=2, tensorboard=False)
    result = fit(Damping(), oscillations(40, times=5), config, tmp_path, progress=False)
    with (tmp_path / "steps.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["step", "epoch", "lr", "loss", "grad_norm"]
    steps = [(r["step"], r["epoch"]) for r in rows]
    assert steps == [("1", "1"), ("2", "1"), ("4", "2"), ("6", "2")]
    assert [float(r["loss"]) for r in rows] == [r["loss"] for r in result.history]
    with (tmp_path / "epochs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["step", "epoch", "train_loss", "val_loss"]
    assert [r["step"] for r in rows] == ["3", "6"]


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = TrainConfig(max_steps=4, log_every=1, batch_size=8)
    fit(Line(), line_data(), config, tmp_path, progress=False)
    fit(Line(), line_data(), config.replace(max_steps=6), tmp_path, resume=True, progress=False)
    found = EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    assert set(found.Tags()["scalars"]) == {
        "train/loss", "train/lr", "train/grad_norm", "train/samples_per_second", "epoch/train_loss",
    }  # fmt: skip
    assert [e.step for e in found.Scalars("train/loss")] == [1, 2, 3, 4, 5, 6]


def test_without_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    log = Log(tmp_path, tensorboard=True)
    log.start(0, None)
    log.step({"step": 1, "loss": 0.5}, 10.0)
    assert log.notice == "no TensorBoard log: pip install tensorboard"


# ---------------------------------------------------------------- on the screen


def train(capsys: pytest.CaptureFixture[str], **options: Any) -> str:
    config = TrainConfig(max_steps=4, log_every=2, batch_size=8, graphed=True)
    fit(Line(), line_data(), config, **options)
    said = capsys.readouterr()
    assert said.out == ""
    return said.err


def test_in_a_pipe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A few lines without control characters."""
    text = train(capsys)
    assert "\x1b" not in text
    assert "\r" not in text
    assert len(text.splitlines()) == 2
    assert text.startswith("Steps are not recorded as a CUDA graph: there is no CUDA device.\n")
    assert "step 4 of 4, epoch 4, loss " in text
    assert text.endswith(" samples/s\n")
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    assert len(train(capsys).splitlines()) == 4


def test_without_progress(capsys: pytest.CaptureFixture[str]) -> None:
    text = train(capsys, progress=False)
    assert text == "Steps are not recorded as a CUDA graph: there is no CUDA device.\n"


def test_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Console(force_terminal=True, width=100, record=True, file=io.StringIO())
    monkeypatch.setattr("rich.console.Console", lambda **_: shown)
    with progress.Display(True, True, total=10, start=4) as screen:
        screen.update(5, 2, 0.0123456, 4567.8)
        screen.message("a message")
    text = shown.export_text()
    assert "epoch 2" in text
    assert "5/10" in text
    assert "loss 0.01235" in text
    assert "4,568 samples/s" in text
    assert "a message" in text


def test_throughput(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    meter = Throughput()
    assert meter.overall is None
    meter.add(10)
    now = 2.0
    meter.read()
    assert meter.recent == 5.0
    meter.add(30)
    now = 5.0
    meter.read()
    assert meter.recent == 10.0
    assert meter.overall == 8.0
