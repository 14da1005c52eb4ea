"""The smallest task that has everything: two unknown coefficients of an oscillator."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from smnn._solver.api import solve
from smnn.training._config import TrainConfig
from smnn.training._data import Data
from smnn.training._errors import ConfigError
from smnn.training._registry import register_task
from smnn.training._task import Task

STEP = 0.1
DAMPING, STIFFNESS = 0.43, 4.5
"""What made the data."""


def oscillations(samples: int = 256, times: int = 50, noise: float = 0.0, seed: int = 0) -> Data:
    """Trajectories of `y'' + 0.43 y' + 4.5 y = 0` from random states, a quarter for validation.

    A sample is `(u, y)`: the initial value and slope `(2)`, and the trajectory `(times)`, with
    normal noise added to it.
    """
    if samples < 4 or times < 2 or noise < 0:
        raise ConfigError(
            f"oscillations: got samples={samples}, times={times}, noise={noise}; expected at "
            "least 4, at least 2, and not negative."
        )
    generator = torch.Generator().manual_seed(seed)
    u = torch.randn(samples, 2, dtype=torch.float64, generator=generator)
    t = STEP * torch.arange(times, dtype=torch.float64)
    rate, omega = DAMPING / 2, (STIFFNESS - DAMPING**2 / 4) ** 0.5
    turn = torch.stack([torch.cos(omega * t), torch.sin(omega * t) / omega])
    y = torch.exp(-rate * t) * (torch.stack([u[:, 0], u[:, 1] + rate * u[:, 0]], 1) @ turn)
    y = y + noise * torch.randn(y.shape, dtype=y.dtype, generator=generator)
    held = samples // 4
    return Data(TensorDataset(u[held:], y[held:]), TensorDataset(u[:held], y[:held]))


@register_task("damping", data=oscillations, train=TrainConfig(epochs=20, batch_size=32, lr=0.05))
class Damping(Task):
    """Learns damping and stiffness of an oscillator from its trajectories.

    Args:
        damping: Where to begin.
        stiffness: Likewise.
        order: Highest derivative that the solver carries.
    """

    capturable = True

    def __init__(self, damping: float = 0.0, stiffness: float = 3.0, order: int = 4) -> None:
        super().__init__()
        self._config = {"damping": damping, "stiffness": stiffness, "order": order}
        self._order = order
        self.damping = torch.nn.Parameter(torch.tensor(damping, dtype=torch.float64))
        self.stiffness = torch.nn.Parameter(torch.tensor(stiffness, dtype=torch.float64))

    def forward(self, u: Tensor, times: int) -> Tensor:
        """Trajectories `(B, times)` from initial values and slopes `u (B, 2)`."""
        one = torch.ones_like(self.damping)
        c = torch.stack([self.stiffness, self.damping, one]).reshape(1, 1, 1, 1, 3)
        d, s = u.new_zeros(1, 1, 1), u.new_full((1, 1), STEP)
        start = u[:, None, None, :]
        y = solve(c, d, start, s, order=self._order, n_steps=times, check=False)
        return y[:, :, 0, 0]

    def losses(self, batch: Any) -> dict[str, Tensor]:
        """Mean squared error of the trajectories."""
        u, y = batch
        return {"loss": (self(u, y.shape[1]) - y).square().mean()}

    def evaluate(self, batch: Any) -> dict[str, Tensor]:
        """The loss, and the trajectories as output."""
        u, y = batch
        z = self(u, y.shape[1])
        return {"loss": (z - y).square().mean(), "z": z}

    def config(self) -> dict[str, Any]:
        """Constructor arguments."""
        return dict(self._config)
