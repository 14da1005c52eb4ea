"""Failures around a run (devices, memory, processes, data) give helpful errors."""

import gc
import itertools
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset
from typer.testing import CliRunner

import smnn
from smnn.training import (
    Damping,
    Task,
    TrainConfig,
    TrainingError,
    fit,
    oscillations,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
from training_cases import ended, forked, ranks

without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")


def command(*words: str) -> tuple[int, str]:
    from internals import app

    result = CliRunner().invoke(app, words)
    return result.exit_code, " ".join(result.output.split())


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run on the CPU unless a test requests a GPU."""
    from internals import processes

    chosen = processes._accelerator
    monkeypatch.setattr(
        processes, "_accelerator",
        lambda config: "cpu" if config.accelerator == "auto" else chosen(config),
    )  # fmt: skip


# ---------------------------------------------------------------- devices


@without_gpu
def test_solver_without_a_gpu() -> None:
    c, d = torch.ones(1, 1, 1, 2), torch.zeros(1, 1)
    u, s = torch.zeros(1, 1, 1), torch.ones(1)
    with pytest.raises(smnn.BackendError, match=r"gpu.*CUDA"):
        smnn.solve(c, d, u, s, n_steps=4, backend="gpu")


@without_gpu
@pytest.mark.parametrize("name", ["cuda", "cuda:1"])
def test_commands_on_an_absent_gpu(name: str) -> None:
    from internals import usable_device

    with pytest.raises(ValueError, match=r"there is no CUDA device here; use cpu"):
        usable_device(name)


class Scripted(Task):
    """A task with one weight that calls a function at a given step."""

    def __init__(self, step: int, happen: Any) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
        self.step, self.happen, self.calls = step, happen, 0

    def losses(self, batch: Any) -> dict[str, Tensor]:
        self.calls += 1
        loss = (self.weight - batch.mean()).square().sum()
        return {"loss": self.happen(loss) if self.calls == self.step else loss}


class Numbers(Dataset[Tensor]):
    def __init__(self, count: int = 16, die_at: int | None = None) -> None:
        self.values = torch.arange(count, dtype=torch.float64)
        self.die_at = die_at

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, i: int) -> Tensor:
        if i == self.die_at and torch.utils.data.get_worker_info() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.values[i]


CONFIG = TrainConfig(max_steps=4, batch_size=8, checkpoint_every=1, tensorboard=False)


def raises(error: Exception) -> Any:
    def happen(loss: Tensor) -> Tensor:
        raise error

    return happen


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 80.00 GiB."),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
        MemoryError(),
    ],
)
def test_out_of_memory(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(TrainingError, match=r"out of memory on cpu at step 3, with 8 samples going "
                       r"through the model together: accumulate=2 .*step-0+2.safetensors: run "
                       r"the same again with resume=True"):  # fmt: skip
        fit(Scripted(3, raises(error)), Numbers(), CONFIG, tmp_path, progress=False)


def test_advice_after_out_of_memory_works(tmp_path: Path) -> None:
    """`accumulate` may be changed when resuming, and the result is the same."""
    whole = Damping()
    config = CONFIG.replace(max_steps=6)
    fit(whole, oscillations(16), config, progress=False)
    fit(Damping(), oscillations(16), config.replace(max_steps=3), tmp_path, progress=False)
    task = Damping()
    fit(task, oscillations(16), config.replace(accumulate=4), tmp_path, resume=True, progress=False)
    for name, x in whole.state_dict().items():
        torch.testing.assert_close(task.state_dict()[name], x, rtol=1e-12, atol=1e-14)


def test_out_of_memory_with_single_samples() -> None:
    task = Scripted(1, raises(torch.OutOfMemoryError("CUDA out of memory.")))
    config = CONFIG.replace(batch_size=1)
    with pytest.raises(TrainingError, match=r"one sample at a time is the least.*no checkpoint"):
        fit(task, Numbers(), config, progress=False)


def test_other_errors_of_a_task_pass_unchanged() -> None:
    with pytest.raises(RuntimeError, match=r"^mine$") as caught:
        fit(Scripted(2, raises(RuntimeError("mine"))), Numbers(), CONFIG, progress=False)
    assert not isinstance(caught.value, TrainingError)


# ---------------------------------------------------------------- processes


def test_data_loader_dies(tmp_path: Path) -> None:
    """Runs in a separate process: PyTorch may raise its exception at any point."""
    said = tmp_path / "said"

    def work() -> None:
        gc.disable()  # an exception would be lost in what others do at a collection
        config = CONFIG.replace(workers=1)
        try:
            fit(Scripted(0, None), Numbers(die_at=11), config, tmp_path / "run", progress=False)
        except TrainingError as error:
            said.write_text(str(error))

    ended(forked(work))
    assert re.search(
        r"a process that loads data died before step \d.*use fewer workers "
        r"\(now 1; 0 loads in the training process\)",
        said.read_text(),
    )
    fit(Scripted(0, None), Numbers(), CONFIG, tmp_path / "run", resume=True, progress=False)


def test_data_loader_dies_while_sending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipe closes before the signal arrives."""
    from internals import sampling

    class Cut(sampling.DataLoader):  # type: ignore[misc]
        def __iter__(self) -> Any:
            yield from itertools.islice(super().__iter__(), 2)
            raise EOFError

    monkeypatch.setattr(sampling, "DataLoader", Cut)
    config = CONFIG.replace(workers=1)
    with pytest.raises(TrainingError, match=r"a process that loads data died before step 3 \(Data"):
        fit(Scripted(0, None), Numbers(), config, tmp_path / "run", progress=False)


def test_error_in_a_data_loader_is_passed_on(tmp_path: Path) -> None:
    class Wrong(Numbers):
        def __getitem__(self, i: int) -> Tensor:
            raise RuntimeError("the file of sample 7 is empty")

    config = CONFIG.replace(workers=1)
    with pytest.raises(RuntimeError, match="the file of sample 7 is empty") as error:
        fit(Scripted(0, None), Wrong(), config, tmp_path / "run", progress=False)
    assert not isinstance(error.value, TrainingError)


def test_one_of_two_training_processes_dies(tmp_path: Path) -> None:
    """The other process ends with an error, and the run can be resumed."""
    said = tmp_path / "said"

    def die(loss: Tensor) -> Tensor:
        os.kill(os.getpid(), signal.SIGKILL)
        return loss

    def work(rank: int) -> None:
        task = Scripted(3, die if rank == 1 else lambda loss: loss)
        try:
            fit(task, Numbers(), CONFIG, tmp_path / "run", progress=False)
        except TrainingError as error:
            said.write_text(str(error))
            raise SystemExit(3) from None

    first, second = ranks(2, work)
    assert ended(second) == -signal.SIGKILL
    assert ended(first) == 3
    text = said.read_text()
    assert "process 0 lost another of the 2 processes of this run at step 3" in text
    assert "To continue from " in text
    result = fit(
        Scripted(0, None), Numbers(), CONFIG, tmp_path / "run", resume=True, progress=False
    )
    assert result.steps == 4


# ---------------------------------------------------------------- numbers


def test_nan_in_a_table_is_a_missing_value_and_infinity_an_error(tmp_path: Path) -> None:
    from smnn.data import TableError, read_table

    path = tmp_path / "x.csv"
    path.write_text("t,x\n0,1\n1,nan\n2,3\n3,5\n")
    assert read_table(path).missing == 0  # a row without any value is left out
    path.write_text("t,x\n0,1\n1,inf\n2,3\n3,5\n")
    with pytest.raises(TableError, match="line 3: got 'inf'; expected a number"):
        read_table(path)


def test_nan_in_the_data_of_a_fit() -> None:
    import numpy as np

    from smnn.discovery import Discovery

    X = np.full((20, 1), np.inf)
    with pytest.raises(ValueError, match="infinite values; mark missing values as NaN"):
        Discovery().fit(X, t=0.1)
    with pytest.raises(ValueError, match="x has no values"):
        Discovery().fit(X * np.nan, t=0.1)
