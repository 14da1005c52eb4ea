"""Discovery with networks, as in the paper: predicted states and coefficients, and the solver.

One network maps a window of the data to its states; another one with a learned input returns the
coefficients. The terms at the predicted states are the right-hand side of a linear ODE that the
solver integrates. Its trajectory and the predicted states are both fitted to the data. After every
training cycle, small coefficients are set to zero permanently.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from smnn._solver.api import solve
from smnn.discovery._arrays import Array, Flags, root_mean_square
from smnn.discovery._equations import TORCH_LINKS
from smnn.discovery._fit.data import DataError, FitInput, FitResult, Nodes, left_out
from smnn.discovery._fit.refine import LOOSE, JointFit, Refiner
from smnn.discovery._fit.regression import regression_deviation, regression_of
from smnn.discovery._fit.smoothing import smooth
from smnn.discovery._terms import CompiledTerms


@dataclass(frozen=True)
class Neural:
    """Training options of `Discovery(method="neural")`.

    Args:
        cycles: Training cycles; small coefficients are set to zero between cycles.
        steps: Optimizer steps per cycle.
        batch: Windows per step.
        window: Times per window.
        width: Units of the two hidden layers of each network.
        rate: Initial learning rate; decays to one per cent of it in every cycle (cosine schedule).
        cut: Threshold of a term, as a fraction of its right-hand side.
        accuracy: Number of derivatives of the solver beyond the order of the equations.
        device: Device for training; by default a GPU if one is available.
    """

    cycles: int = 6
    steps: int = 1500
    batch: int = 256
    window: int = 50
    width: int = 256
    rate: float = 2e-3
    cut: float = 0.02
    accuracy: int = 4
    device: str | None = None


class Networks(nn.Module):
    """Networks for the states of windows and the coefficients of terms."""

    def __init__(
        self, terms: CompiledTerms, order: int, scale: Array, unit: Array, settings: Neural,
        link: str | None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.terms, self.order, self.link = terms, order, link
        self.D, (self.V, self.P) = len(scale), unit.shape
        self.accuracy = settings.accuracy
        size, width = settings.window, settings.width
        self.scale = nn.Buffer(torch.as_tensor(scale))
        self.unit = nn.Buffer(torch.as_tensor(unit))
        self.mask = nn.Buffer(torch.ones(self.V, self.P, dtype=torch.float64))
        self.fixed = nn.Buffer(torch.zeros(self.V, self.P, dtype=torch.float64))
        self.base = nn.Buffer(torch.zeros(self.V, self.P, dtype=torch.float64))
        self.mix = nn.Buffer(torch.eye(self.P, dtype=torch.float64).repeat(self.V, 1, 1))
        self.seed = nn.Parameter(torch.randn(1, 64))
        self.coefficients = _perceptron(64, width, self.V * self.P)
        self.states = _perceptron(size * self.D, width, size * self.D)
        self.double()

    def Xi(self) -> Tensor:
        """(V, P) coefficients: those at the start of the cycle plus the output of the network."""
        free = self.coefficients(self.seed).view(self.V, self.P, 1)
        return self.fixed + (self.base + (self.mix @ free).squeeze(-1) * self.unit) * self.mask

    def begin_cycle(self, gram: Tensor) -> None:
        """Continue from the present coefficients, in coordinates that decorrelate the terms.

        Terms such as x and x^3 are strongly correlated on most data, which makes the problem badly
        conditioned for gradient descent.
        """
        with torch.no_grad():
            self.base.copy_(self.Xi() - self.fixed)
            for v in range(self.V):
                on = self.mask[v].nonzero()
                among = gram[on, on.T]
                L = torch.linalg.cholesky(among + 1e-9 * torch.eye(len(on)).to(gram))
                self.mix[v] = 0.0
                self.mix[v, on, on.T] = torch.linalg.inv(L).T
            last: Any = self.coefficients[-1]
            last.weight.mul_(0.0)
            last.bias.mul_(0.0)

    def forward(self, window: Tensor, inputs: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        """Predicted states and the solver's trajectory, both (B, T, D).

        Args:
            window: (B, T, D) smoothed states.
            inputs: (B, T, inputs).
            s: (B, T - 1) steps.
        """
        B, T, D = window.shape
        x = window / self.scale
        Z = (x + self.states(x.reshape(B, -1)).view(B, T, D)) * self.scale
        a = self.terms.evaluate_torch(torch.cat([Z, inputs], -1)) @ self.Xi().T
        top = a if self.link is None else TORCH_LINKS[self.link](a)
        c = top.new_zeros(1, 1, 1, 1, 1, self.order + 1)
        c[..., self.order] = 1.0
        start = Z[:, :1].view(B, 1, self.order, self.V).permute(0, 3, 1, 2)
        y = solve(
            c.expand(B, self.V, 1, 1, 1, -1), top.transpose(1, 2).unsqueeze(-1),
            start.unsqueeze(-2), s.unsqueeze(1).expand(B, self.V, T - 1),
            order=self.order + self.accuracy, check=False,
        )  # fmt: skip
        y = y[..., 0, : self.order].permute(0, 2, 3, 1).reshape(B, T, D)
        return Z, y


def _perceptron(inside: int, width: int, outside: int) -> nn.Sequential:
    layers = [nn.Linear(inside, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    last = nn.Linear(width, outside)
    with torch.no_grad():  # small initial output
        last.weight.mul_(0.1)
        last.bias.mul_(0.1)
    return nn.Sequential(*layers, last)


class _Windows:
    """Random windows of the data on a device."""

    def __init__(self, nodes: Nodes, Z: Array, settings: Neural, device: torch.device) -> None:
        T = settings.window
        first = _first_nodes(nodes.follows, T)
        if len(first) == 0:
            raise DataError(
                f"no series has {T} times without a gap; choose a smaller window: "
                "Discovery(method='neural', neural=Neural(window=...))."
            )

        def put(values: Any) -> Tensor:
            return torch.as_tensor(np.ascontiguousarray(values), device=device)

        seen = np.zeros_like(Z)
        seen[:, : nodes.Y.shape[1]] = nodes.seen
        data = Z.copy()
        data[:, : nodes.Y.shape[1]] = np.where(nodes.seen, nodes.Y, Z[:, : nodes.Y.shape[1]])
        self.first, self.offset = put(first), torch.arange(T, device=device)
        self.Z, self.data, self.seen = put(Z), put(data), put(seen)
        self.U, self.h = put(nodes.U), put(nodes.h)

    def batch(self, count: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Smoothed states, data, weights, inputs and steps of random windows."""
        pick = torch.randint(len(self.first), (count,), generator=generator, device=self.h.device)
        at = self.first[pick, None] + self.offset
        return self.Z[at], self.data[at], self.seen[at], self.U[at], self.h[at[:, :-1]]


def _first_nodes(follows: Flags, T: int) -> Array:
    """Nodes that are followed by T - 1 steps without a gap."""
    run = np.concatenate([[0], np.cumsum(follows)])
    last = len(follows) - T + 1
    if last <= 0:
        return np.empty(0, dtype=np.int64)
    start = np.arange(last)
    return start[run[start + T - 1] - run[start] == T - 1]


def discover_neurally(
    data: FitInput, *, settings: Neural, rng: np.random.Generator,
    progress: Callable[[str], None],
) -> FitResult:  # fmt: skip
    """Train the networks and return their coefficients.

    Raises:
        DataError: If every series is shorter than a window.
    """
    device = torch.device(settings.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    nodes, order, link = data.nodes, data.order, data.link
    curves, sigma = smooth(nodes, order, rng)
    Z, top = np.concatenate([curves[..., r] for r in range(order)], -1), curves[..., order]
    with np.errstate(all="ignore"):
        phi = data.terms.evaluate(np.concatenate([Z, nodes.U], -1))
    data, keep, bad = data.usable(phi)
    terms, rules, fixed, phi = data.terms, data.rules, data.fixed, phi[:, keep]
    unit = root_mean_square(top)[:, None] / root_mean_square(phi)[None]
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(int(rng.integers(2**31)))
        networks = Networks(
            terms, order, root_mean_square(Z), unit, settings, None if link is None else link.name
        ).to(device)
        networks.mask.copy_(torch.as_tensor(rules.allowed.astype(float)))
        windows = _Windows(nodes, Z, settings, device)
        generator = torch.Generator(device).manual_seed(int(rng.integers(2**31)))
        networks.fixed.copy_(torch.as_tensor(np.where(rules.allowed, 0.0, fixed)))
        even = phi / root_mean_square(phi)
        gram = torch.as_tensor(even.T @ even / len(even), device=device)
        losses = _train(networks, windows, gram, settings, generator, progress)
    Xi = networks.Xi().detach().cpu().numpy()
    deviation = regression_deviation(regression_of(data, phi, top), Xi, rules)
    report = {"losses": losses, "device": str(device)}
    refiner = Refiner(nodes, terms, order, rules, link)
    refiner.prepare(Z, np.concatenate([Z[:, nodes.Y.shape[1] :], top], -1), Xi, sigma)
    joint = refiner, JointFit(Z, Xi, LOOSE, sigma)
    return FitResult(Xi, deviation, None, Z, sigma, report, left_out(bad), joint).among(keep)


def _train(
    networks: Networks, windows: _Windows, gram: Tensor, settings: Neural,
    generator: torch.Generator, progress: Callable[[str], None],
) -> list[float]:  # fmt: skip
    """Run all cycles; returns the mean loss over the last tenth of each."""
    device = windows.h.device
    on_gpu = device.type == "cuda"
    optimiser = torch.optim.Adam(
        networks.parameters(),
        lr=torch.tensor(settings.rate, device=device) if on_gpu else settings.rate,
        capturable=on_gpu,
    )

    def step(batch: tuple[Tensor, ...]) -> Tensor:
        smoothed, target, seen, inputs, s = batch
        optimiser.zero_grad(set_to_none=True)
        Z, y = networks(smoothed, inputs, s)
        weight = seen / networks.scale
        loss = ((weight * (y - target)) ** 2).mean() + ((weight * (Z - target)) ** 2).mean()
        loss.backward()
        optimiser.step()
        return loss.detach()

    recorded = _recorded(step, optimiser) if on_gpu else step
    found = []
    for cycle in range(settings.cycles):
        if cycle:
            _prune(networks, settings.cut)
        networks.begin_cycle(gram)
        late: list[Tensor] = []
        for i in range(settings.steps):
            decay = 0.01 + 0.99 * 0.5 * (1.0 + np.cos(np.pi * i / settings.steps))
            for group in optimiser.param_groups:
                if on_gpu:
                    group["lr"].fill_(settings.rate * decay)
                else:
                    group["lr"] = settings.rate * decay
            loss = recorded(windows.batch(settings.batch, generator))
            if i >= 0.9 * (settings.steps - 1):
                late.append(loss.clone())
        found.append(float(torch.stack(late).mean()))
        terms = int(networks.mask.sum())
        progress(f"cycle {cycle + 1} of {settings.cycles}: {terms} terms, loss {found[-1]:.3e}")
    return found


def _recorded(step: Callable[[Any], Tensor], optimiser: torch.optim.Optimizer) -> Any:
    """The step as a CUDA graph, if the training extra is installed."""
    with contextlib.suppress(ImportError):
        from smnn.training import GraphedStep

        return GraphedStep(step, lambda: optimiser.zero_grad(set_to_none=True))
    return step


def _prune(networks: Networks, cut: float) -> None:
    with torch.no_grad():
        share = (networks.Xi() / networks.unit).abs()
        networks.mask.mul_((share > cut).double())
