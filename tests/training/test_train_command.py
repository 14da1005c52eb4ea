"""The command `smnn train`."""

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from smnn.cli.train import train
from smnn.training import load_task

app = typer.Typer()
app.command()(train)
runner = CliRunner()
QUICK = ["--set", "epochs=2", "--set", "tensorboard=false", "--set", "data.samples=40"]

TASKS = '''
import torch
from torch.utils.data import TensorDataset
from smnn.training import Data, Task, TrainConfig, register_task


def numbers(n=8):
    x = torch.linspace(-1, 1, n, dtype=torch.float64)
    return Data(TensorDataset(x, 3 * x))


@register_task("slope", data=numbers, train=TrainConfig(epochs=3, lr=0.1, tensorboard=False))
class Slope(Task):
    """Learns a slope."""

    def __init__(self, start=0.0):
        super().__init__()
        self.start = start
        self.weight = torch.nn.Parameter(torch.tensor(start, dtype=torch.float64))

    def losses(self, batch):
        x, y = batch
        return {"loss": (self.weight * x - y).square().mean()}

    def config(self):
        return {"start": self.start}


@register_task("no-data")
class NoData(Slope):
    """Learns from nothing."""
'''


def call(*arguments: str) -> Any:
    return runner.invoke(app, list(arguments))


@pytest.fixture
def tasks(tmp_path: Path) -> str:
    path = tmp_path / "my_tasks.py"
    path.write_text(TASKS)
    return str(path)


def test_a_task_is_trained(tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = call("damping", "--out", str(out), *QUICK, "--set", "task.order=3")
    assert done.exit_code == 0, done.output
    assert "Training finished after 2 steps." in done.stdout
    assert "val_loss" in done.stdout
    assert f'smnn.training.load_task("{out}")' in done.stdout.replace("\n", "")
    assert load_task(out).config() == {"damping": 0.0, "stiffness": 3.0, "order": 3}
    record = json.loads((out / "config.json").read_text())
    assert record["data_config"] == {"samples": 40}
    assert record["train"]["epochs"] == 2


def test_a_config_file_repeats_a_run(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    call("damping", "--out", str(first), *QUICK, "--set", "lr=0.2", "--set", "task.order=2")
    done = call(str(first / "config.json"), "--out", str(second))
    assert done.exit_code == 0, done.output
    for name in ("steps.csv", "epochs.csv"):
        assert (first / name).read_bytes() == (second / name).read_bytes()
    third = call(str(first / "config.json"), "--out", str(tmp_path / "third"), "--set", "lr=0.1")
    assert third.exit_code == 0
    assert (tmp_path / "third" / "epochs.csv").read_bytes() != (first / "epochs.csv").read_bytes()


def test_resuming_needs_only_the_folder(tmp_path: Path) -> None:
    out, whole = str(tmp_path / "run"), str(tmp_path / "whole")
    call("damping", "--out", out, *QUICK)
    done = call("--out", out, "--resume", "--set", "epochs=4")
    assert done.exit_code == 0, done.output
    assert "Training finished after 4 steps." in done.stdout
    call("damping", "--out", whole, *QUICK, "--set", "epochs=4")
    for name in ("steps.csv", "epochs.csv"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_json(tmp_path: Path) -> None:
    done = call("damping", "--out", str(tmp_path), *QUICK, "--json")
    found = json.loads(done.stdout)
    assert found["steps"] == 2
    assert found["metrics"]["val_loss"] > 0
    assert found["out"] == str(tmp_path)


def test_listing(tasks: str) -> None:
    done = call()
    assert done.exit_code == 0
    assert "damping" in done.stdout
    assert "Learn the damping and stiffness" in done.stdout
    own = call("--tasks", tasks, "--json")
    listed = {entry["task"]: entry for entry in json.loads(own.stdout)}
    assert listed["slope"]["summary"] == "Learns a slope."
    assert listed["slope"]["train"] == {"epochs": 3, "lr": 0.1, "tensorboard": False}


def test_tasks_from_files_and_modules(tmp_path: Path, tasks: str) -> None:
    done = call("slope", "--tasks", tasks, "--out", str(tmp_path / "a"), "--set", "task.start=2.0")
    assert done.exit_code == 0, done.output
    assert load_task(tmp_path / "a", "latest").weight.item() > 2
    module = call("damping", "--tasks", "json", "--out", str(tmp_path / "b"), *QUICK)
    assert module.exit_code == 0  # any module can be imported


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["dampin"], 2, "there is no task 'dampin'; registered are: "),
        (["damping", "--set", "lrr=1"], 2, "there is no setting 'lrr'; did you mean lr?"),
        (["damping", "--set", "lr=-1"], 2, "lr: got -1; expected more than 0."),
        (["damping", "--set", "lr"], 2, "setting: got 'lr'; expected KEY=VALUE."),
        (["damping", "--set", "a.b=1"], 2, "got 'a.b'; expected KEY, task.KEY or data.KEY."),
        (["damping", "--set", "task.x=1"], 2, "task 'damping': got an unexpected keyword"),
        (["damping", "--set", "data.x=1"], 2, "data of 'damping': got an unexpected keyword"),
        (["damping", "--set", "data.samples=1"], 2, "oscillations: got samples=1"),
        (["nowhere.json"], 2, "cannot read nowhere.json: No such file or directory."),
        (
            ["damping", "--tasks", "nowhere.py"],
            2,
            "cannot import tasks from nowhere.py: there is no such file.",
        ),
        (["damping", "--tasks", "no_module"], 2, "No module named 'no_module'. Give a module or"),
        (["--resume"], 2, "--resume needs the folder of the run; add --out."),
        (["damping", "--set", "lr=1e300", "--set", "epochs=3"], 1, "is not finite at step 2"),
    ],
)
def test_failures_take_one_line(
    tmp_path: Path, arguments: list[str], code: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call(*arguments, "--set", "tensorboard=false")
    assert done.exit_code == code
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", 'does not name a task; it needs "task": "NAME".'),
        ('{"task": 3}', 'does not name a task; it needs "task": "NAME".'),
        ('{"task": "damping", "train": 3}', "'train' is 3; expected an object."),
    ],
)
def test_wrong_config_files(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(content)
    done = call(str(path), "--out", str(tmp_path / "out"))
    assert done.exit_code == 2
    assert message in done.stderr


def test_a_task_without_data(tmp_path: Path, tasks: str) -> None:
    done = call("no-data", "--tasks", tasks, "--out", str(tmp_path / "out"))
    assert done.exit_code == 2
    assert "task 'no-data' is registered without data; train it with fit()." in done.stderr


def test_a_folder_that_holds_a_run(tmp_path: Path) -> None:
    call("damping", "--out", str(tmp_path), *QUICK)
    done = call("damping", "--out", str(tmp_path), *QUICK)
    assert done.exit_code == 2
    assert "holds a run already" in done.stderr
    other = call("damping", "--out", str(tmp_path), *QUICK, "--resume", "--set", "lr=0.3")
    assert other.exit_code == 2
    assert "belongs to another run (lr: 0.05 in the checkpoint, 0.3 now)" in other.stderr


def test_the_example_finds_its_equation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = Path(__file__).parents[2] / "examples" / "train_distributed.py"
    monkeypatch.setattr(sys, "argv", [str(script), "--out", str(tmp_path)])
    runpy.run_path(str(script), run_name="__main__")
    assert "y'' + 0.1000 y' + 2.0000 y = force" in capsys.readouterr().out


def test_debug_shows_where(tmp_path: Path) -> None:
    done = call("dampin", "--debug")
    assert done.exception is not None
    assert type(done.exception).__name__ == "ConfigError"


def test_interruption_explains_how_to_resume(tmp_path: Path) -> None:
    """In a separate process."""
    script = tmp_path / "smnn"
    script.write_text("import typer\nfrom smnn.cli.train import train\ntyper.run(train)\n")
    options = ["--set", "epochs=100000", "--set", "tensorboard=false"]
    process = subprocess.Popen(
        [sys.executable, str(script), "damping", "--out", "run", *options],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80"},
    )  # fmt: skip
    while not (tmp_path / "run" / "steps.csv").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    text = process.communicate(timeout=120)[1]
    assert process.returncode == 130
    assert "Stopped by SIGINT after step" in text
    line = "To continue: smnn damping --out run " + " ".join(options) + " --resume"
    assert line in text.splitlines()
    assert "Traceback" not in text
