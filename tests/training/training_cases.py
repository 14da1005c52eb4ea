"""Small tasks, and processes that can be killed."""

import multiprocessing
import os
import random
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

import smnn
from smnn.training import Data, Task, TrainConfig, fit, oscillations, register_task

FORK = multiprocessing.get_context("fork")


@register_task("test-encoder")
class Encoder(Task):
    """Estimate the coefficients of an oscillator from its trajectory.

    Everything that resuming could lose affects the loss: random numbers of each kind, a buffer that
    changes after each epoch, and extra state.
    """

    def __init__(self, width: int = 8, dropout: float = 0.2, die_at: int | None = None) -> None:
        super().__init__()
        self._config = {"width": width, "dropout": dropout}
        self.net = torch.nn.Sequential(
            torch.nn.Linear(12, width), torch.nn.Tanh(), torch.nn.Dropout(dropout),
            torch.nn.Linear(width, 2),
        )  # fmt: skip
        self.register_buffer("seen", torch.zeros(()))
        self.extra = {"epochs": []}
        self.die_at, self.calls, self.jitter = die_at, 0, True

    def losses(self, batch: Any) -> dict[str, Tensor]:
        self.calls += 1
        if self.calls == self.die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        u, y = batch
        found = self.net(y[:, :12])
        jitter = 0.01 * (random.random() + np.random.rand() + float(torch.rand(())))
        jitter *= self.jitter
        damping, stiffness = (found * (1 + jitter) + torch.stack([self.seen * 0, self.seen])).T
        one = torch.ones_like(damping)
        c = torch.stack([4 + stiffness, damping, one], -1)[:, None, None, None]
        d, s = u.new_zeros(1, 1, 1), u.new_full((1, 1), 0.1)
        z = smnn.solve(c, d, u[:, None, None], s, n_steps=y.shape[1])[..., 0, 0]
        return {"loss": (z - y).square().mean(), "damping": damping.mean()}

    def after_epoch(self, epoch: int) -> None:
        self.seen += 0.01
        self.extra["epochs"].append(epoch)

    def get_extra_state(self) -> Any:
        return self.extra

    def set_extra_state(self, state: Any) -> None:
        self.extra = state

    def config(self) -> dict[str, Any]:
        return self._config


def encoder(**options: Any) -> Encoder:
    torch.manual_seed(3)
    return Encoder(**options)


def small_data() -> Data:
    """75 training samples: with batches of 16, the last of an epoch has 11."""
    return oscillations(samples=100, times=12)


def small_config(**options: Any) -> TrainConfig:
    defaults = {
        "max_steps": 23, "batch_size": 16, "lr": 0.01, "ema": 0.9, "clip": 1.0,
        "schedule": "plateau", "plateau_patience": 0, "log_every": 2, "checkpoint_every": 4,
        "tensorboard": False,
    }  # fmt: skip
    return TrainConfig(**{**defaults, **options})


def train(out: Path | None, *, resume: bool = False, die_at: int | None = None, **options: Any):
    task = encoder(die_at=die_at)
    result = fit(task, small_data(), small_config(**options), out, resume=resume, progress=False)
    return task, result


def files(out: Path) -> dict[str, bytes]:
    """Files that must not depend on interruptions: logs, latest checkpoint, best weights."""
    kept = [max((out / "checkpoints").glob(f"{kind}-*")) for kind in ("best", "step")]
    return {p.name: p.read_bytes() for p in (out / "steps.csv", out / "epochs.csv", *kept)}


def latest_step(out: Path) -> int:
    """The step of the latest checkpoint."""
    return max(int(path.stem[5:]) for path in (out / "checkpoints").glob("step-*"))


class Line(Task):
    """A minimal task: one weight, no solver."""

    def __init__(self, start: float = 2.0) -> None:
        super().__init__()
        self._start = start
        self.weight = torch.nn.Parameter(torch.tensor([start], dtype=torch.float64))

    def losses(self, batch: Any) -> dict[str, Tensor]:
        x, y = batch
        return {"loss": (self.weight * x - y).square().mean()}

    def config(self) -> dict[str, Any]:
        return {"start": self._start}


def line_data(n: int = 8, seed: int = 0) -> TensorDataset:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, dtype=torch.float64, generator=g)
    return TensorDataset(x, 3 * x + 0.1 * torch.randn(n, dtype=torch.float64, generator=g))


class RandomSamples(Dataset):
    """Samples that draw random numbers of every kind."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        x = torch.rand(()).double() + random.random() + np.random.rand()
        return x, 3 * x + i


# ---------------------------------------------------------------- processes


def forked(work: Callable[[], Any], stderr: Path | None = None) -> multiprocessing.Process:
    """Fork a process that runs a function and ends."""

    def body() -> None:
        if stderr is not None:
            handle = os.open(stderr, os.O_WRONLY | os.O_CREAT)
            os.dup2(handle, 2)
            sys.stderr = os.fdopen(2, "w", buffering=1)
        try:
            work()
        except SystemExit:
            raise
        except BaseException:
            traceback.print_exc()
            raise SystemExit(1) from None

    process = FORK.Process(target=body)
    process.start()
    return process


def ended(process: multiprocessing.Process, timeout: float = 120) -> int:
    """Wait for a process and return its exit code."""
    process.join(timeout)
    if process.is_alive():
        process.kill()
        process.join()
        raise AssertionError("a process did not end")
    assert process.exitcode is not None
    return process.exitcode


def ranks(world: int, work: Callable[[int], Any]) -> list[multiprocessing.Process]:
    """Processes as torchrun starts them."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]

    def one(rank: int) -> Callable[[], Any]:
        def body() -> Any:
            torch.set_num_threads(1)
            os.environ |= {
                "TORCHELASTIC_RUN_ID": "test", "RANK": str(rank), "LOCAL_RANK": str(rank),
                "GROUP_RANK": "0", "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            }  # fmt: skip
            return work(rank)

        return body

    return [forked(one(rank)) for rank in range(world)]
