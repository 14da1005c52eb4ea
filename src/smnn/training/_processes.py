"""Processes of a run: launching, collective operations, signals, and failures.

A single process needs no setup. Several processes are launched and connected by Lightning Fabric,
which supports torchrun, SLURM and plain scripts. The training loop itself is part of smnn, because
bit-exact resuming requires control over counters, data order and checkpoints.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType

import torch
import torch.distributed as dist
from torch import Tensor

from smnn._util.optional import require
from smnn.training._config import TrainConfig
from smnn.training._errors import ConfigError, TrainingError


@dataclass(frozen=True)
class Processes:
    """Rank and device of this process, and collective operations over all processes."""

    rank: int
    world: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def sum(self, x: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place."""
        if self.world > 1:
            dist.all_reduce(x)
        return x

    def max(self, number: int) -> int:
        """Return the maximum of an integer over all processes."""
        if self.world == 1:
            return number
        x = torch.tensor([number], device=self.device)
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
        return int(x.item())

    def on_main(self, action: Callable[[], None]) -> None:
        """Run an action in the main process and wait for it; if it fails, all processes raise."""
        failure: Exception | None = None
        if self.is_main:
            try:
                action()
            except Exception as error:
                failure = error
        failed = self.max(int(failure is not None))
        if failure is not None:
            raise failure
        if failed:
            raise TrainingError("the main process failed; its message has the reason.")


def is_main_process() -> bool:
    """Return whether this is the main process of a run, also before the processes are connected."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank() == 0
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))) == 0


def join(config: TrainConfig) -> Processes:
    """Launch or join the processes that the settings request.

    For several devices on one machine, the other processes are started by running the same command
    again (Lightning's script launcher). Under torchrun or SLURM they exist already.

    Raises:
        ConfigError: There are too few devices, or the settings contradict torchrun.
    """
    kind = _accelerator(config)
    devices, nodes = config.devices, config.nodes
    if dist.is_torchelastic_launched():
        devices, nodes = _torchrun(devices, nodes)
    if devices * nodes == 1:
        return Processes(0, 1, torch.device(kind, 0) if kind == "cuda" else torch.device("cpu"))
    if kind == "cuda" and devices > torch.cuda.device_count():
        raise ConfigError(
            f"devices: got {devices}; expected at most {torch.cuda.device_count()}, the number of "
            "CUDA devices of this machine."
        )
    lightning = require("lightning_fabric", "train in several processes")
    with _quiet():
        fabric = lightning.Fabric(
            accelerator=kind, devices=devices, num_nodes=nodes, strategy="ddp"
        )
        fabric.launch()
    # The threads of the process group must end before the interpreter does.
    atexit.unregister(_leave)
    atexit.register(_leave)
    if kind == "cuda":
        torch.cuda.set_device(fabric.device)
    return Processes(fabric.global_rank, fabric.world_size, fabric.device)


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def _accelerator(config: TrainConfig) -> str:
    available = torch.cuda.is_available()
    if config.accelerator == "auto":
        return "cuda" if available else "cpu"
    if config.accelerator == "cuda" and not available:
        raise ConfigError("accelerator: got 'cuda'; this machine has no CUDA device. Use 'cpu'.")
    return config.accelerator


def _torchrun(devices: int, nodes: int) -> tuple[int, int]:
    """Return devices and nodes as launched; the settings may be left at one process."""
    world, local = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    if devices * nodes not in (1, world):
        raise ConfigError(
            f"devices: got {devices} on {nodes} nodes; torchrun started {world} processes. Omit "
            "devices and nodes, or give the same numbers."
        )
    return local, world // local


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress notes of Lightning about ports, seeds and hardware."""
    logger = logging.getLogger("lightning_fabric")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


# ---------------------------------------------------------------- signals


class StopRequest:
    """The signal that requested a stop; 0 if there was none."""

    signal = 0


@contextlib.contextmanager
def stop_signals(active: bool) -> Iterator[StopRequest]:
    """Record SIGINT and SIGTERM instead of ending the program; a second one acts immediately.

    Signals can be handled in the main thread only; elsewhere their handlers stay unchanged.
    """
    request = StopRequest()
    previous: dict[int, object] = {}

    def record(number: int, frame: FrameType | None) -> None:
        request.signal = number
        restore()

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        previous.clear()

    if active and threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            previous[number] = signal.signal(number, record)
    try:
        yield request
    finally:
        restore()


# ---------------------------------------------------------------- failures

_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")
_LOST = ("connection closed by peer", "connection reset", "connection refused", "gloo", "nccl",
         "timed out", "socket")  # fmt: skip


@contextlib.contextmanager
def explained_failures(
    config: TrainConfig, processes: Processes, step: int, resume_hint: Callable[[], str]
) -> Iterator[None]:
    """Convert PyTorch's errors about memory and lost processes to a `TrainingError` with advice.

    Args:
        config: Settings of the run.
        processes: Processes of the run.
        step: Number of the current step.
        resume_hint: Returns the sentence that explains how to resume.
    """
    try:
        yield
    except TrainingError:
        raise
    except (RuntimeError, MemoryError) as error:
        text = str(error).lower()
        cause = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        if isinstance(error, torch.OutOfMemoryError | MemoryError) or _any(_NO_MEMORY, text):
            advice = _memory_advice(config, processes, step)
            raise TrainingError(f"{advice} {resume_hint()} ({cause})") from error
        if "dataloader worker (pid" in text:  # not "caught ... in dataloader worker process"
            raise TrainingError(
                f"a process that loads data died before step {step} ({cause}). It may have run out "
                f"of memory: use fewer workers (now {config.workers}; 0 loads in the training "
                f"process). {resume_hint()}"
            ) from error
        if processes.world > 1 and _any(_LOST, text):
            raise TrainingError(
                f"process {processes.rank} lost another of the {processes.world} processes of this "
                f"run at step {step} ({cause}). The message of the first one that ended has the "
                f"reason. {resume_hint()}"
            ) from error
        raise


def _memory_advice(config: TrainConfig, processes: Processes, step: int) -> str:
    share = -(-config.batch_size // (processes.world * config.accumulate))
    advice = (
        f"accumulate={min(2 * config.accumulate, config.batch_size)} takes about half of it and "
        "changes no result"
        if share > 1
        else "one sample at a time is the least: use a smaller model or shorter windows"
    )
    return (
        f"out of memory on {processes.device} at step {step}, with {share} samples going through "
        f"the model together: {advice}."
    )


def _any(words: tuple[str, ...], text: str) -> bool:
    return any(word in text for word in words)
