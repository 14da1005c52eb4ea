"""The processes of a run: which one this is, on which device, and how they add up numbers.

A single process needs nothing. Several are launched and connected by Lightning Fabric, which knows
torchrun, SLURM and plain scripts; the training loop itself is ours, because a step that can be
resumed bit for bit must own its counters, its data order and its checkpoints.
"""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from smnn._util.optional import require
from smnn.training._config import TrainConfig
from smnn.training._errors import ConfigError, TrainingError


@dataclass(frozen=True)
class Processes:
    """This process among those of the run."""

    rank: int
    world: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    def sum(self, x: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        if self.world > 1:
            dist.all_reduce(x)
        return x

    def barrier(self) -> None:
        """Wait for all processes."""
        self.sum(torch.zeros(1, device=self.device))
        if self.world > 1 and self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def any(self, flag: int) -> int:
        """The largest of the flags of all processes."""
        if self.world == 1:
            return flag
        x = torch.tensor([flag], device=self.device)
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
        return int(x.item())


def on_main(processes: Processes, action: Callable[[], None]) -> None:
    """Do something in the main process and wait for it; all processes fail where it fails."""
    failure: Exception | None = None
    if processes.is_main:
        try:
            action()
        except Exception as error:
            failure = error
    failed = processes.any(int(failure is not None))
    if failure is not None:
        raise failure
    if failed:
        raise TrainingError("the main process failed; its message says why.")


def join(config: TrainConfig) -> Processes:
    """Launch or join the processes that the settings ask for.

    Several devices on one machine: the others are started by running the same command again
    (Lightning's script launcher). Under torchrun or SLURM the processes are there already.

    Raises:
        ConfigError: Too few devices, or numbers that contradict those of torchrun.
    """
    kind = _accelerator(config)
    devices, nodes = config.devices, config.nodes
    if dist.is_torchelastic_launched():
        devices, nodes = _torchrun(devices, nodes)
    if devices * nodes == 1:
        return Processes(0, 1, torch.device(kind, 0) if kind == "cuda" else torch.device("cpu"))
    if kind == "cuda" and devices > torch.cuda.device_count():
        raise ConfigError(
            f"devices: got {devices}; expected at most {torch.cuda.device_count()}, the CUDA "
            "devices of this machine."
        )
    lightning = require("lightning_fabric", "train in several processes")
    with _quiet():
        fabric = lightning.Fabric(
            accelerator=kind, devices=devices, num_nodes=nodes, strategy="ddp"
        )
        fabric.launch()
    if kind == "cuda":
        torch.cuda.set_device(fabric.device)
    return Processes(fabric.global_rank, fabric.world_size, fabric.device)


def _accelerator(config: TrainConfig) -> str:
    there = torch.cuda.is_available()
    if config.accelerator == "auto":
        return "cuda" if there else "cpu"
    if config.accelerator == "cuda" and not there:
        raise ConfigError("accelerator: got 'cuda'; this machine has no CUDA device. Use 'cpu'.")
    return config.accelerator


def _torchrun(devices: int, nodes: int) -> tuple[int, int]:
    """What torchrun started; the settings may leave it at their default of one process."""
    world, local = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    if devices * nodes not in (1, world):
        raise ConfigError(
            f"devices: got {devices} on {nodes} nodes; torchrun started {world} processes. Leave "
            "devices and nodes out, or give the same numbers."
        )
    return local, world // local


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without tips and notes about ports, seeds and hardware."""
    logger = logging.getLogger("lightning_fabric")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
