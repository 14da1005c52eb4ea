"""Fit an equation to windows of one long recording in several processes.

One process, two processes on this machine, and eight on two machines (torchrun on each):

    python examples/train_distributed.py
    python examples/train_distributed.py --devices 2
    torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint HOST:29500 \
        examples/train_distributed.py --out /shared/folder/run

All three process the same batches in the same order, and their losses agree up to rounding. Ctrl-C
writes a checkpoint; the same command with --resume continues from it.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import smnn
from smnn.training import Data, SeriesWindows, Task, TrainConfig, fit, register_task

STEP = 0.05


def record(path: Path, times: int = 20_000) -> Path:
    """Record value, derivative and force of y'' + 0.1 y' + 2 y = cos(0.7 t) as `(times, 3)`."""
    if not path.exists():
        t = STEP * np.arange(times)
        # The transient of a lightly damped oscillator, and the response to the force.
        omega = np.sqrt(2 - 0.05**2)
        gain = 1 / (2 - 0.7**2 + 0.1 * 0.7j)
        y = np.exp(-0.05 * t) * np.cos(omega * t) + (gain * np.exp(0.7j * t)).real
        dy = np.exp(-0.05 * t) * (-0.05 * np.cos(omega * t) - omega * np.sin(omega * t))
        dy += (0.7j * gain * np.exp(0.7j * t)).real
        partial = path.with_suffix(f".{os.getpid()}.npy")  # several processes may write at once
        np.save(partial, np.stack([y, dy, np.cos(0.7 * t)], 1))
        partial.rename(path)
    return path


@register_task("forced-oscillator")
class ForcedOscillator(Task):
    """Fits stiffness and damping of an oscillator with known forcing."""

    capturable = True

    def __init__(self) -> None:
        super().__init__()
        self.stiffness = torch.nn.Parameter(torch.tensor(1.0))
        self.damping = torch.nn.Parameter(torch.tensor(0.0))

    def losses(self, batch: Any) -> dict[str, Tensor]:
        """Loss of windows `(B, T, 3)` of value, derivative and force."""
        y, force = batch[..., 0], batch[..., 2]
        one = torch.ones_like(self.damping)
        c = torch.stack([self.stiffness, self.damping, one]).view(1, 1, 1, 1, 3)
        s = batch.new_full((1, 1), STEP)
        start = batch[:, :1, None, :2]  # (B, T_init = 1, V = 1, value and derivative)
        z = smnn.solve(c, force[..., None], start, s, order=4, check=False)
        return {"loss": (z[..., 0, 0] - y).square().mean()}

    def config(self) -> dict[str, Any]:
        """No arguments."""
        return {}


def main() -> None:
    """Train."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--devices", type=int, default=1)
    options.add_argument("--nodes", type=int, default=1)
    options.add_argument("--steps", type=int, default=400)
    options.add_argument("--out", type=Path, default=Path("smnn-results/forced-oscillator"))
    options.add_argument("--resume", action="store_true")
    chosen = options.parse_args()

    chosen.out.mkdir(parents=True, exist_ok=True)
    # Memory-mapped: each process reads only its own windows.
    windows = SeriesWindows(record(chosen.out / "recording.npy"), length=60, stride=5)
    task = ForcedOscillator()
    config = TrainConfig(
        max_steps=chosen.steps, batch_size=128, lr=0.05, schedule="one-cycle",
        devices=chosen.devices, nodes=chosen.nodes, tensorboard=False,
    )  # fmt: skip
    result = fit(task, Data(windows), config, chosen.out, resume=chosen.resume)
    if result.is_main:
        print(f"loss {result.metrics['train_loss']:.2e} after {result.steps} steps")
        print(f"y'' + {task.damping.item():.4f} y' + {task.stiffness.item():.4f} y = force")


if __name__ == "__main__":
    main()
