r"""A noisy damped sine fitted by a second-order ODE with free coefficients and steps.

The model is $y'' + c_1 y' + c_0 y = 0$ with learned $c_0 > 0$ and $c_1$, learned initial values of
each recording, and 499 learned steps that add up to the known duration. It is fitted by gradient
descent through the solver, either with one equation per recording or with one for all. The rates
of the learned equation are compared with the truth: its solutions are
$e^{-\hat\delta t}\cos(\hat\omega t + \varphi)$ with $\hat\delta = c_1/2$,
$\hat\omega = \sqrt{c_0 - c_1^2/4}$.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from smnn import solve
from smnn._util.machine import describe_machine
from smnn.datasets.sine import DampedSine, damped_sine, strongest_frequency
from smnn.experiments.experiment import Tick, no_progress, option
from smnn.experiments.timing import threads
from smnn.nn import (
    Coefficients,
    Free,
    InitialValues,
    MechanisticLayer,
    MechanisticModel,
    MechanisticOutput,
    ODEHeads,
    Positive,
    RightHandSide,
    Share,
    Steps,
    read_out,
)

Array = NDArray[np.float64]
COMPARED = (("smnn", 3), ("smnn", 5), ("iwp", 3), ("iwp", 5), ("hermite", 3), ("hermite", 5))
"""Schemes and orders whose discretization errors are compared. The fits use `smnn`."""
TOLERANCE = 0.02
"""Accepted relative error of frequency and damping."""


@dataclass(frozen=True)
class Config:
    """Data of the original example, and settings of the fit."""

    recordings: int = option(16, "Noisy recordings.", minimum=2)
    times: int = 500
    duration: float = 50.0
    frequency: float = 2.0
    damping: float = 0.1
    noise: float = option(0.5, "Standard deviation of the noise over the amplitude.", minimum=0.01)
    seed: int = option(0, "Random seed.")
    order: int = 5
    """Highest derivative that the solver carries; its discretization error of the damping is then
    0.02 %."""
    jitter: float = 0.02
    """Expected relative deviation of a step from the mean step."""
    steps: int = option(400, "Optimization steps.", minimum=10)
    lr: float = 0.05

    def data(self) -> DampedSine:
        """Generate the recordings."""
        return damped_sine(
            self.recordings, self.times, self.duration, frequency=self.frequency,
            damping=self.damping, noise=self.noise, seed=self.seed,
        )  # fmt: skip


class SineModel(nn.Module):
    r"""Damped oscillations with a normal likelihood of recordings.

    The noise has a learned standard deviation $e^{a + b t}$. Without it the large amplitudes at the
    beginning dominate, and the error of the damping is five times larger.

    Args:
        config: Settings.
        frequencies: Initial frequency of each equation: one, or one for each recording.
        level: Initial standard deviation of the noise.
    """

    def __init__(self, config: Config, frequencies: Array, level: float) -> None:
        super().__init__()
        self.config = config
        equations = (len(frequencies),)
        heads = ODEHeads(
            Coefficients(None, [[[Positive(), Free(), 1.0]]], batch=equations),
            RightHandSide(None, [0.0], batch=equations),
            InitialValues(None, [[[Free(), Free()]]], batch=(config.recordings,)),
            Steps(None, Share(config.duration), times=config.times - 1, batch=equations),
        ).double()
        squares = torch.from_numpy(frequencies**2).view(*equations, 1, 1, 1)
        undamped = torch.stack([squares, torch.zeros_like(squares), torch.ones_like(squares)], -1)
        heads.c.start_at(undamped)  # type: ignore[operator]
        self.model = MechanisticModel(None, heads, MechanisticLayer(order=config.order))
        noise = torch.tensor([math.log(level), 0.0], dtype=torch.float64)
        self.noise = nn.Parameter(noise.repeat(*equations, 1))
        """`a`, and the change of `a + b t` over the whole duration."""

    def forward(self) -> tuple[MechanisticOutput, Tensor]:
        """Output for all recordings, and the log of the noise `(N or 1, T)`."""
        part = torch.linspace(0, 1, self.config.times, dtype=torch.float64)
        return self.model(), self.noise[:, :1] + self.noise[:, 1:] * part

    def loss(self, out: MechanisticOutput, log_noise: Tensor, values: Tensor) -> Tensor:
        """Mean negative log-likelihood of recordings `(N, T)` and steps, up to constants."""
        residual = (out.z[..., 0] - values) * torch.exp(-log_noise)
        s = out.ode.s
        uneven = (s * (s.shape[-1] / self.config.duration)).log() / self.config.jitter
        misfit = (0.5 * residual.square() + log_noise).mean()
        return misfit + 0.5 * uneven.square().sum() / values.numel()


class Frame(NamedTuple):
    """The fit of the first recording after some steps."""

    step: int
    curve: Array
    """`(T,)`."""
    frequency: float
    damping: float


@dataclass(frozen=True)
class Fit:
    """Result of one fit."""

    frequency: Array
    """Angular, `(N,)`, or `(1,)` if one equation holds for all."""
    damping: Array
    equation: str
    latex: str
    curves: Array
    """`(N, T)`."""
    grid: Array
    """`(N, T)` or `(1, T)`: the times defined by the learned steps."""
    noise: Array
    """`(N, T)` or `(1, T)`: the learned standard deviation of the noise."""
    frames: list[Frame]
    seconds: float

    def record(self, config: Config, bound: tuple[float, float]) -> dict[str, Any]:
        """JSON-serializable record."""
        frequency, damping = self.errors(config)
        return {
            "equation": self.equation,
            "frequency": self.frequency.tolist(),
            "damping": self.damping.tolist(),
            "frequency_error": frequency.tolist(),
            "damping_error": damping.tolist(),
            "frequency_error_rms": rms(frequency),
            "damping_error_rms": rms(damping),
            "cramer_rao": {"frequency": bound[0], "damping": bound[1]},
            "largest_step_deviation": self.unevenness(),
            "seconds": self.seconds,
        }

    def errors(self, config: Config) -> tuple[Array, Array]:
        """Relative errors of frequency and damping."""
        return self.frequency / config.frequency - 1, self.damping / config.damping - 1

    def unevenness(self) -> float:
        """Largest relative deviation of a step from the mean step."""
        steps = np.diff(self.grid, axis=-1)
        return float(np.abs(steps / steps.mean(-1, keepdims=True) - 1).max())


@dataclass(frozen=True)
class Sine:
    """Results of the experiment."""

    config: Config
    machine: dict[str, Any]
    data: DampedSine
    own: Fit
    """One equation per recording."""
    shared: Fit
    """One equation for all."""

    def bounds(self) -> dict[str, tuple[float, float]]:
        """Cramér-Rao bounds of the relative errors of frequency and damping, for both fits."""
        n = self.config.recordings
        return {
            "own": self.data.smallest_deviations(),
            "shared": self.data.smallest_deviations(n),
        }

    def recovered(self) -> dict[str, bool]:
        """Whether everything that the data determine within 2 % was found within 2 %.

        These are the frequency of every recording, and frequency and damping of all recordings
        together. One recording with this noise does not determine the damping so well.
        """
        (frequencies, _), together = (fit.errors(self.config) for fit in (self.own, self.shared))
        errors = {
            "frequency of every recording": frequencies,
            "frequency of all together": together[0],
            "damping of all together": together[1],
        }
        return {name: bool(np.abs(e).max() < TOLERANCE) for name, e in errors.items()}

    def discretization(self) -> dict[tuple[str, int], tuple[float, float]]:
        """Relative errors of frequency and damping of the solver, by scheme and order."""
        return {key: discretization(self.config, *key) for key in COMPARED}

    def record(self) -> dict[str, Any]:
        """JSON-serializable record."""
        bounds = self.bounds()
        return {
            "experiment": "sine",
            "settings": asdict(self.config),
            "machine": self.machine,
            "compared": "rates of the learned equation with those of the curve without noise: "
            "damping c1/2, angular frequency sqrt(c0 - c1^2/4)",
            "tolerance": TOLERANCE,
            "recovered": self.recovered(),
            "discretization": [
                {"scheme": scheme, "order": order, "frequency": errors[0], "damping": errors[1]}
                for (scheme, order), errors in self.discretization().items()
            ],
            "own": self.own.record(self.config, bounds["own"]),
            "shared": self.shared.record(self.config, bounds["shared"]),
        }


def discretization(config: Config, scheme: str, order: int) -> tuple[float, float]:
    """Relative errors of frequency and damping in a solution of the true equation.

    They are those of the phasor `y' + (damping + i frequency) y`.
    """
    rate = complex(-config.damping, config.frequency)
    c = torch.tensor([abs(rate) ** 2, -2 * rate.real, 1.0], dtype=torch.float64)
    u = torch.tensor([1.0, rate.real], dtype=torch.float64).view(1, 1, 2)
    s = torch.tensor([config.duration / (config.times - 1)], dtype=torch.float64)
    y = solve(
        c.view(1, 1, 1, 3), c.new_zeros(1, 1), u, s, order=order, scheme=scheme,
        n_steps=config.times,
    )[:, 0].numpy()  # fmt: skip
    phasor = y[:, 1] - rate.conjugate() * y[:, 0]
    found = np.log(np.abs(phasor[-1] / phasor[0])), np.unwrap(np.angle(phasor))
    damping = found[0] / (rate.real * config.duration) - 1
    frequency = (found[1][-1] - found[1][0]) / (rate.imag * config.duration) - 1
    return float(frequency), float(damping)


def rms(x: Array) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(np.square(x))))


def ticks(config: Config) -> int:
    """Number of progress reports of `run`."""
    return 2 * config.steps


def run(config: Config, tick: Tick = no_progress) -> Sine:
    """Fit the recordings in both ways, on one thread of the CPU.

    Args:
        config: Settings.
        tick: Called with the name of the fit after every optimization step.
    """
    data = config.data()
    with threads(1):
        own = _fit(data, config, lambda: tick("An equation each"), shared=False)
        shared = _fit(data, config, lambda: tick("One equation for all"), shared=True)
        return Sine(config, describe_machine(), data, own, shared)


def _fit(data: DampedSine, config: Config, tick: Callable[[], None], *, shared: bool) -> Fit:
    start = time.perf_counter()
    found = strongest_frequency(data.noisy, float(data.t[1] - data.t[0]))
    first = np.median(found, keepdims=True) if shared else found
    model = SineModel(config, first, float(data.noisy.std()))
    values, frames = torch.from_numpy(data.noisy), []
    optimizer = torch.optim.Adam(model.parameters(), config.lr)
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, config.lr, config.steps, cycle_momentum=False
    )
    for step in range(config.steps):
        optimizer.zero_grad()
        out, log_noise = model()
        model.loss(out, log_noise, values).backward()
        optimizer.step()
        cycle.step()
        frequency, damping = rates(out)
        frames.append(Frame(step + 1, out.z[0, :, 0].detach().numpy(), frequency[0], damping[0]))
        tick()
    with torch.no_grad():
        out, log_noise = model()
    frequency, damping = rates(out)
    readout = read_out(out.ode)
    return Fit(
        frequency, damping, readout.equations()[0], readout.latex()[0],
        curves=out.z[..., 0].numpy(), grid=readout.times(config.times),
        noise=log_noise.exp().numpy(), frames=frames, seconds=time.perf_counter() - start,
    )  # fmt: skip


def rates(out: MechanisticOutput) -> tuple[Array, Array]:
    """Angular frequency and damping of each equation, `(N or 1,)`."""
    slowest = read_out(out.ode.detach()).modes()[:, 0, -1]  # the one with positive frequency
    return slowest.imag, -slowest.real
