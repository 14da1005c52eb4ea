"""The Lorenz model of the paper: a network that discovers equations from windows of a trajectory.

Two networks of two hidden layers of 1024: one maps a window `(T, 3)` to states of the same size,
the other maps a learned vector to the coefficients `xi (10, 3)` of all monomials up to degree 2.
The right-hand sides `basis(states) @ xi` of three equations `y' = d` are integrated by the solver
from the first state, and both the states and the solution are fitted to the window. For `T = 50`
it has 2,504,948 parameters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from smnn.nn import MLP, Coefficients, LinearODE, Steps

STEP = 0.01
MONOMIALS = ("1", "x", "y", "z", "xx", "xy", "xz", "yy", "yz", "zz")
SECOND = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]

Solver = Callable[[LinearODE], Tensor]
"""Maps a batch `(B, 3)` of equations to solutions `(B, 3, T, 1, R+1)`."""


class LorenzOutput(NamedTuple):
    """Output of the model for windows `(B, T, 3)`."""

    solution: Tensor
    """`(B, T, 3)` solutions of the equations."""
    states: Tensor
    """`(B, T, 3)` states at which the right-hand sides are evaluated."""
    xi: Tensor
    """`(10, 3)` coefficients, one column per equation, one row per entry of `MONOMIALS`."""


class LorenzModel(nn.Module):
    """Windows `(B, T, 3)` to trajectories, through three equations `y' = d`.

    Args:
        T: Times in a window.
        solver: Solves the equations.
        hidden: Width of the hidden layers.
    """

    mask: Tensor

    def __init__(self, T: int, solver: Solver, hidden: int = 1024) -> None:
        super().__init__()
        self.T, self.solver = T, solver
        self.source = nn.Parameter(torch.randn(64))
        self.to_coefficients = MLP(64, (hidden, hidden), len(MONOMIALS) * 3)
        self.to_states = MLP(3 * T, (hidden, hidden), 3 * T)
        self.register_buffer("mask", torch.ones(len(MONOMIALS), 3))
        self.c = Coefficients(None, [[[0.0, 1.0, 0.0]]])  # y', carried to order 2
        self.s = Steps(None, STEP)

    def forward(self, window: Tensor) -> LorenzOutput:
        """Predict states and equations, and solve them."""
        xi = self.mask * self.to_coefficients(self.source).view(-1, 3)
        states = self.to_states(window.flatten(-2)).view(window.shape)
        d = basis(states) @ xi
        batch = states[:, 0, :, None]  # (B, 3, 1): the axes that the heads broadcast against
        ode = LinearODE(
            c=self.c(batch), d=d.mT[..., None], u=batch[..., None, None], s=self.s(batch)
        )
        return LorenzOutput(self.solver(ode)[..., 0, 0].mT, states, xi)

    def loss(self, window: Tensor) -> Tensor:
        """Mean squared errors of solution and states."""
        solution, states, _ = self(window)
        return (solution - window).square().mean() + (states - window).square().mean()


def basis(x: Tensor) -> Tensor:
    """All monomials up to degree 2 of `x (..., 3)`, `(..., 10)`."""
    one = torch.ones_like(x[..., :1])
    products = torch.stack([x[..., i] * x[..., j] for i, j in SECOND], -1)
    return torch.cat([one, x, products], -1)


@functools.cache
def trajectory(n: int) -> Tensor:
    """The Lorenz system (10, 28, 8/3) from (1, 1, 1), `(n, 3)`, `STEP` apart; Runge-Kutta 4."""

    def f(p: np.ndarray) -> np.ndarray:
        x, y, z = p
        return np.array([10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z])

    points = np.empty((n, 3))
    p = np.ones(3)
    for i in range(n):
        points[i] = p
        k1 = f(p)
        k2 = f(p + 0.5 * STEP * k1)
        k3 = f(p + 0.5 * STEP * k2)
        p = p + STEP / 6 * (k1 + 2 * k2 + 2 * k3 + f(p + STEP * k3))
    return torch.from_numpy(points)


def windows(B: int, T: int, n: int = 10_000) -> Tensor:
    """`(B, T, 3)`: windows that start at random among the first `n` points of the trajectory."""
    start = torch.randint(n, (B, 1), generator=torch.Generator().manual_seed(0))
    return trajectory(n + T)[start + torch.arange(T)]
