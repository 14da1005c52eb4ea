"""The paper's network for the Lorenz system, trained with each of the solvers.

One network maps a learned vector to the coefficients of all monomials up to degree 2, another maps
a window of the trajectory to states. Together they define the right-hand sides of three equations
`y' = d`, which the solver integrates from the first state; both the states and the solution are
fitted to the window. For windows of 50 samples the model has 2,504,948 parameters.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

import torch
from torch import Tensor, nn

from smnn.experiments.solvers import DENSE, SMNN, SPARSE, Solver
from smnn.nn import LinearODE

SOLVERS = (DENSE, SPARSE, SMNN)
STEP = 0.01
"""Assumed spacing of the samples."""
GAMMA, ALPHA = 0.05, 0.0
"""Parameters of the original MNN in this experiment. With alpha = 0 gamma has no effect."""
LEARNING_RATE = 5e-4
SMOOTHING = 0.9
"""Factor of the exponential moving average in the paper's figure."""
_PAIRS = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))


@dataclass
class Training:
    """Training with one solver."""

    solver: str
    losses: list[float] = field(default_factory=list)
    """Loss at every step."""
    ms: float = math.nan
    """Median time of a step."""
    converged: float = 1.0
    """Share of the samples for which the solver reached its tolerance."""

    def average(self) -> list[float]:
        """Exponential moving average of the losses, starting at the first."""
        out: list[float] = []
        for loss in self.losses:
            out.append(loss if not out else SMOOTHING * out[-1] + (1 - SMOOTHING) * loss)
        return out


class LorenzNet(nn.Module):
    """Windows `(B, T, 3)` to solutions and states of the same shape."""

    def __init__(self, T: int = 50, hidden: int = 1024) -> None:
        super().__init__()
        self.source = nn.Parameter(torch.randn(1, 64))
        self.coefficients = _perceptron(64, hidden, 30)
        self.states = _perceptron(3 * T, hidden, 3 * T)
        self.double()

    def forward(self, window: Tensor, solver: Solver) -> tuple[Tensor, Tensor, Tensor | None]:
        """Solution, states, and which samples converged."""
        states = self.states(window.flatten(1)).view(window.shape)
        d = monomials(states) @ self.coefficients(self.source).view(10, 3)
        B = len(window)
        c = window.new_tensor([0.0, 1.0, 0.0]).expand(B, 3, 1, 1, 1, 3)
        u, s = states[:, 0].view(B, 3, 1, 1, 1), window.new_full((B, 3, 1), STEP)
        y, converged = solver(LinearODE(c, d.mT[..., None], u, s))
        return y[..., 0, 0].mT, states, converged


def _perceptron(inside: int, hidden: int, outside: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inside, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
        nn.Linear(hidden, outside),
    )  # fmt: skip


def monomials(x: Tensor) -> Tensor:
    """`1, x, y, z, xx, xy, xz, yy, yz, zz` of `x (..., 3)`, as `(..., 10)`."""
    products = torch.stack([x[..., i] * x[..., j] for i, j in _PAIRS], -1)
    return torch.cat([torch.ones_like(x[..., :1]), x, products], -1)


def train(
    name: str, x: Tensor, *, steps: int, batch: int, window: int = 50, hidden: int = 1024,
    seed: int = 0, tick: Callable[[], None] = lambda: None,
) -> Training:  # fmt: skip
    """Train on random windows of the trajectory `x (n, 3)`, on its device.

    Initial networks and windows follow from the seed and are the same for all solvers.

    Raises:
        ArithmeticError: The loss became infinite or NaN.
    """
    found, solver = Training(name), Solver(name, gamma=GAMMA, alpha=ALPHA)
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
        torch.manual_seed(seed)
        net = LorenzNet(window, hidden).to(x.device)
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)
    offset, times, converged_shares = torch.arange(window), [], []
    for step in range(steps):
        start = torch.randint(len(x) - window, (batch, 1), generator=generator)
        chunk = x[(start + offset).to(x.device)]
        before = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with warnings.catch_warnings(
            action="ignore"
        ):  # from conjugate gradients that did not converge
            solution, states, converged = net(chunk, solver)
            loss = (solution - chunk).square().mean() + (states - chunk).square().mean()
            loss.backward()
        optimizer.step()
        found.losses.append(float(loss.detach()))
        times.append(1e3 * (time.perf_counter() - before))
        if converged is not None:
            converged_shares.append(float(converged.double().mean()))
        if not math.isfinite(found.losses[-1]):
            raise ArithmeticError(f"{name}: the loss is {found.losses[-1]} after {step} steps")
        tick()
    if times:
        found.ms = median(times)
    if converged_shares:
        found.converged = sum(converged_shares) / len(converged_shares)
    return found
