"""Several processes give the same result as one."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import lightning_fabric  # noqa: F401 - loaded here once, not in every forked process
import pytest
import torch
from torch import Tensor
from torch.utils.data import TensorDataset
from training_cases import Line, ended, latest_step, line_data, ranks

from smnn.training import ConfigError, Damping, Data, TrainConfig, fit, load_task, oscillations

STEPS = 50


def settings(**options: Any) -> TrainConfig:
    """97 samples in batches of 32: one process of two has no sample in the last batch."""
    fixed = {
        "max_steps": STEPS, "batch_size": 32, "lr": 0.02, "log_every": 1, "tensorboard": False,
        "accelerator": "cpu", "clip": 0.5, "ema": 0.9,
    }  # fmt: skip
    return TrainConfig(**{**fixed, **options})


def data() -> Data:
    every = oscillations(130, times=20)
    u, y = every.train.tensors
    return Data(TensorDataset(u[:97], y[:97]), every.validation)


def rows(path: Path) -> list[dict[str, float]]:
    with path.open() as file:
        return [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]


def same_curves(a: Path, b: Path, rel: float) -> None:
    for name, count in (("steps.csv", STEPS), ("epochs.csv", 13)):
        first, second = rows(a / name), rows(b / name)
        assert len(first) == len(second) == count
        for one, two in zip(first, second):
            assert one == pytest.approx(two, rel=rel)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("alone")
    fit(Damping(), data(), settings(), out, progress=False)
    return out


def in_two(out: Path, config: TrainConfig, resume: bool = False) -> None:
    def work(_: int) -> None:
        fit(Damping(), data(), config, out, resume=resume, progress=False)

    assert [ended(p) for p in ranks(2, work)] == [0, 0]


@pytest.mark.parametrize("accumulate", [1, 3])
def test_two_processes_equal_one(tmp_path: Path, alone: Path, accumulate: int) -> None:
    in_two(tmp_path, settings(accumulate=accumulate))
    same_curves(tmp_path, alone, rel=1e-9)
    ours, theirs = load_task(tmp_path, "latest"), load_task(alone, "latest")
    for p, q in zip(ours.parameters(), theirs.parameters()):
        assert p.item() == pytest.approx(q.item(), rel=1e-9)
    starts = json.loads((tmp_path / "config.json").read_text())["starts"]
    assert [s["processes"] for s in starts] == [2]


def test_the_number_of_processes_may_change_on_resume(tmp_path: Path, alone: Path) -> None:
    in_two(tmp_path, settings(max_steps=12))  # three epochs
    fit(Damping(), data(), settings(max_steps=24), tmp_path, resume=True, progress=False)
    in_two(tmp_path, settings(), resume=True)
    same_curves(tmp_path, alone, rel=1e-9)


class Slow(Line):
    def losses(self, batch: Any) -> dict[str, Tensor]:
        time.sleep(0.01)
        return super().losses(batch)


def test_a_signal_to_one_process_stops_all_at_the_same_step(tmp_path: Path) -> None:
    config = settings(max_steps=1000, batch_size=4)

    def work(_: int) -> None:
        fit(Slow(), line_data(), config, tmp_path, progress=False)

    processes = ranks(2, work)
    while not (tmp_path / "steps.csv").exists():
        assert all(p.is_alive() for p in processes)
        time.sleep(0.02)
    os.kill(processes[1].pid, signal.SIGTERM)
    assert [ended(p) for p in processes] == [143, 0]
    last = latest_step(tmp_path)
    assert len(rows(tmp_path / "steps.csv")) == last < 1000


class Partial(Line):
    """Has a weight that does not contribute to the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = torch.nn.Parameter(torch.ones(1))


def test_a_failure_in_one_process_stops_all(tmp_path: Path) -> None:
    """NaN in the share of one process stops both, and unused weights can be allowed."""
    bad = line_data()
    bad.tensors[1][3] = torch.nan

    def work(rank: int) -> None:
        fit(Partial(), line_data(), settings(max_steps=3, find_unused_parameters=True))
        try:
            fit(Line(), bad, settings(epochs=1, batch_size=4, log_every=1), progress=False)
        except Exception as error:
            (tmp_path / f"{rank}").write_text(f"{type(error).__name__}: {error}")

    assert [ended(p) for p in ranks(2, work)] == [0, 0]
    texts = {(tmp_path / str(rank)).read_text() for rank in range(2)}
    assert len(texts) == 1
    assert "NonFiniteError" in (text := texts.pop())
    assert "sample 3 in [1]" in text


def test_a_failure_of_the_main_process_reaches_the_others(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")

    def work(rank: int) -> None:
        try:
            fit(Line(), line_data(), settings(), taken, progress=False)
        except Exception as error:
            (tmp_path / f"{rank}").write_text(str(error))

    assert [ended(p) for p in ranks(2, work)] == [0, 0]
    assert "is, or lies below, a file" in (tmp_path / "0").read_text()
    assert "the main process failed" in (tmp_path / "1").read_text()


def test_processes_with_different_data_do_not_start(tmp_path: Path) -> None:
    def work(rank: int) -> None:
        try:
            fit(Line(), line_data(seed=rank), settings(), tmp_path / "out", progress=False)
        except ConfigError as error:
            (tmp_path / f"{rank}").write_text(str(error))

    assert [ended(p) for p in ranks(2, work)] == [0, 0]
    for rank in range(2):
        text = (tmp_path / str(rank)).read_text()
        assert "the processes do not have the same settings, task and data" in text


def test_settings_that_contradict_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("TORCHELASTIC_RUN_ID", "x"),
        ("WORLD_SIZE", "4"),
        ("LOCAL_WORLD_SIZE", "2"),
    ):
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="got 3 on 1 nodes; torchrun started 4 processes"):
        fit(Line(), line_data(), settings(devices=3))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_device() -> None:
    with pytest.raises(ConfigError, match="accelerator: got 'cuda'; this machine has no CUDA dev"):
        fit(Line(), line_data(), settings(accelerator="cuda"))


@pytest.mark.slow
def test_the_command_starts_the_other_processes(tmp_path: Path) -> None:
    """Lightning runs the script again, so it must exist."""
    script = tmp_path / "smnn"
    script.write_text("import typer\nfrom smnn.cli.train import train\ntyper.run(train)\n")
    options = ["--set", "epochs=2", "--set", "tensorboard=false", "--set", "accelerator=cpu"]
    run = subprocess.run(
        [sys.executable, str(script), "damping", "--devices", "2", "--out", "out", *options],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("Training finished after 12 steps.") == 1
    assert "GLOBAL_RANK" not in run.stderr
    assert "terminate called" not in run.stderr
    starts = json.loads((tmp_path / "out" / "config.json").read_text())["starts"]
    assert [s["processes"] for s in starts] == [2]


def test_one_process_does_not_load_lightning() -> None:
    """Nor does importing the package: it takes seconds."""
    code = (
        "import sys, smnn.training as t;"
        "t.fit(t.Damping(), t.oscillations(8), t.TrainConfig(max_steps=1), progress=False);"
        "print([m for m in ('lightning_fabric', 'pytorch_lightning') if m in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert run.stdout.strip() == "[]"
