"""A small example task: two unknown coefficients of an oscillator."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

import smnn
from smnn.training._config import TrainConfig
from smnn.training._data import Data
from smnn.training._errors import ConfigError
from smnn.training._task import Task, register_task

STEP = 0.1
DAMPING, STIFFNESS = 0.43, 4.5
"""True coefficients of the data."""


def oscillations(samples: int = 256, times: int = 50, noise: float = 0.0, seed: int = 0) -> Data:
    """Return trajectories of `y'' + 0.43 y' + 4.5 y = 0`, a quarter of them for validation.

    A sample is `(u, y)`: random initial value and slope `(2)`, and the trajectory `(times)` with
    additive normal noise.
    """
    if samples < 4 or times < 2 or noise < 0:
        raise ConfigError(
            f"oscillations: got samples={samples}, times={times}, noise={noise}; expected "
            "samples >= 4, times >= 2 and noise >= 0."
        )
    generator = torch.Generator().manual_seed(seed)
    u = torch.randn(samples, 2, dtype=torch.float64, generator=generator)
    t = STEP * torch.arange(times, dtype=torch.float64)
    rate, omega = DAMPING / 2, (STIFFNESS - DAMPING**2 / 4) ** 0.5
    turn = torch.stack([torch.cos(omega * t), torch.sin(omega * t) / omega])
    y = torch.exp(-rate * t) * (torch.stack([u[:, 0], u[:, 1] + rate * u[:, 0]], 1) @ turn)
    y = y + noise * torch.randn(y.shape, dtype=y.dtype, generator=generator)
    n = samples // 4
    return Data(TensorDataset(u[n:], y[n:]), TensorDataset(u[:n], y[:n]))


@register_task("damping", data=oscillations, train=TrainConfig(epochs=20, batch_size=32, lr=0.05))
class Damping(Task):
    """Learn the damping and stiffness of an oscillator from its trajectories.

    Args:
        damping: Initial value of the damping.
        stiffness: Initial value of the stiffness.
        order: Highest derivative order of the solver.
    """

    capturable = True

    def __init__(self, damping: float = 0.0, stiffness: float = 3.0, order: int = 4) -> None:
        super().__init__()
        self._config = {"damping": damping, "stiffness": stiffness, "order": order}
        self._order = order
        self.damping = torch.nn.Parameter(torch.tensor(damping, dtype=torch.float64))
        self.stiffness = torch.nn.Parameter(torch.tensor(stiffness, dtype=torch.float64))

    def forward(self, u: Tensor, times: int) -> Tensor:
        """Return trajectories `(B, times)` for initial values and slopes `u (B, 2)`."""
        one = torch.ones_like(self.damping)
        c = torch.stack([self.stiffness, self.damping, one]).reshape(1, 1, 1, 1, 3)
        d, s = u.new_zeros(1, 1, 1), u.new_full((1, 1), STEP)
        start = u[:, None, None, :]
        y = smnn.solve(c, d, start, s, order=self._order, n_steps=times, check=False)
        return y[:, :, 0, 0]

    def losses(self, batch: Any) -> dict[str, Tensor]:
        u, y = batch
        return {"loss": (self(u, y.shape[1]) - y).square().mean()}

    def evaluate(self, batch: Any) -> dict[str, Tensor]:
        u, y = batch
        z = self(u, y.shape[1])
        return {"loss": (z - y).square().mean(), "z": z}

    def config(self) -> dict[str, Any]:
        return dict(self._config)
