r"""The networks of the SST experiment: the Mechanistic Identifier and Ada-GVAE.

`MechanisticIdentifier` predicts an ODE for every place. The low frequencies (DCT) of a chunk of the
history are encoded; heads map the code to a forced oscillator

$$ y'' + c_1(t)\, y' + c_0(t)\, y = d(t) $$

in the unit of time in which a year is $2\pi$, by which the solver continues the given values. Part
of the code is shared between neighbours on a circle of latitude, the rest is specific to the place.
The leading coefficient is one, because $(c, d)$ is determined only up to a factor. The variant as
published has free coefficients $c_0(t), c_1(t), c_2(t)$ and free steps, and encodes a quarter of
the frequencies.

`AdaGVAE` (Locatello et al., ICML 2020), adapted to series, is the comparison without an equation.
Two neighbours are encoded as normal distributions. Features whose two distributions are closer (KL)
than the midpoint between the closest and the farthest are considered shared and replaced by the
average of both, means and variances. The loss is the negative evidence lower bound: the squared
error, in units of a learned noise variance, summed over time, plus the KL divergence to the
standard normal summed over features, both per sample.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from smnn.experiments.solvers import SMNN, Solver
from smnn.nn import (
    MLP,
    Between,
    Coefficients,
    Free,
    LinearODE,
    Positive,
    RightHandSide,
    SpectralInput,
    Steps,
)

LeakyReLU = partial(nn.LeakyReLU, 0.01)


@dataclass(frozen=True)
class Size:
    """Sizes of the networks, by default as published."""

    hidden: int = 1024
    """Width of all hidden layers."""
    depth: int = 5
    """Hidden layers of encoder and decoder."""
    head_depth: int = 3
    """Hidden layers of each head."""
    shared: int = 10
    """Features of a code that neighbours share."""
    specific: int = 10
    """Features that are specific to a place."""
    order: int = 2
    """Highest derivative that the solver carries, at least 2."""

    @property
    def features(self) -> int:
        """Size of a code."""
        return self.shared + self.specific


def average(z: Tensor, shared: int) -> Tensor:
    """`(..., views, F)` with the shared part replaced by its mean over the views."""
    mean = z[..., :shared].mean(-2, keepdim=True)
    return torch.cat([mean.expand_as(z[..., :shared]), z[..., shared:]], -1)


def misalignment(z: Tensor, shared: int) -> Tensor:
    """Mean square distance of the shared part from its mean over the views; a scalar."""
    return (z - average(z, shared))[..., :shared].square().mean()


@dataclass(frozen=True)
class Window:
    """Known and predicted times, in steps."""

    length: int
    """Length of the encoded chunk, and of the predicted one."""
    given: int = 10
    """Number of values that the solution starts from."""
    period: float = 12.0
    """Steps in a year."""
    peek: bool = False
    """Whether the given values are the first of the target, as in the paper; otherwise they are the
    last of the history."""

    def __post_init__(self) -> None:
        if not 2 <= self.given <= self.length:
            raise ValueError(
                f"given: got {self.given} for chunks of {self.length}; expected 2 to that length."
            )

    @property
    def times(self) -> int:
        """Number of times of the trajectory: given values and target."""
        return self.length if self.peek else self.length + self.given

    @property
    def ahead(self) -> slice:
        """The target within that trajectory."""
        return slice(0 if self.peek else self.given, None)

    def start(self, history: Tensor, target: Tensor) -> Tensor:
        """`(..., given)` values to start from."""
        return target[..., : self.given] if self.peek else history[..., -self.given :]


class Output(NamedTuple):
    """Output of the identifier for a batch."""

    target: Tensor
    """`(..., length)` the prediction."""
    code: Tensor
    """`(..., F)` as encoded, before sharing."""
    ode: LinearODE
    """The equations, with all samples in one batch axis."""


class MechanisticIdentifier(nn.Module):
    """Encoder, heads for the coefficients of an ODE, and solver.

    Args:
        window: Known and predicted times.
        size: Sizes of the networks.
        solver: Name in `SOLVERS`; only S-MNN can carry an order above 2.
        published: Use the published form: all coefficients free, learned steps between 0.001 and
            0.999 that start at 0.1, a quarter of the frequencies, order 2, and no removal of the
            mean.
    """

    step: Tensor

    def __init__(
        self, window: Window, size: Size, *, solver: str = SMNN, published: bool = False
    ) -> None:
        super().__init__()
        order = 2 if published else size.order
        if solver != SMNN and order != 2:
            raise ValueError(f"order: got {order} with {solver}; expected 2, as published.")
        self.window, self.shared, F = window, size.shared, size.features
        keep = max(2, window.length // (4 if published else 2))
        self.spectrum = SpectralInput(window.length, keep)
        self.encoder = MLP(keep, [size.hidden] * size.depth, F, LeakyReLU)
        layers = [size.hidden] * size.head_depth
        # Positive coefficients: a stable oscillator, initially with a period of one year.
        pattern = [[[Free()] * 3 if published else [Positive(1.0), Positive(0.5), 1.0]]]
        self.coefficients = Coefficients(
            F, pattern, times=window.times, hidden=layers, activation=LeakyReLU,
            gain=1.0 if published else 0.1,
        )  # fmt: skip
        self.forcing = RightHandSide(
            F, [Free()], times=window.times, hidden=layers, activation=LeakyReLU
        )
        step = torch.full((1, 1), 2 * math.pi / window.period, dtype=torch.float64)
        self.register_buffer("step", step, persistent=False)
        self.steps = (
            Steps(F, Between(0.001, 0.999, 0.1), times=window.times - 1, hidden=[size.hidden] * 2,
                  activation=LeakyReLU)
            if published else None
        )  # fmt: skip
        self.solver = Solver(solver, None if order == 2 else order)

    def encode(self, history: Tensor) -> Tensor:
        """Codes `(..., F)` of chunks `(..., length)`."""
        code: Tensor = self.encoder(self.spectrum(history))
        return code

    def ode(self, code: Tensor, start: Tensor) -> LinearODE:
        """Equations for codes `(N, F)`, with initial values `(N, given)`."""
        c, d = self.coefficients(code), self.forcing(code)
        s = self.step if self.steps is None else self.steps(code)
        return LinearODE(c, d, start[..., None, None], s)

    def forward(self, history: Tensor, start: Tensor, *, pairs: bool = False) -> Output:
        """Predict.

        Args:
            history: `(..., length)`.
            start: `(..., given)`, see `Window.start`.
            pairs: Whether the last batch axis holds neighbours that share part of the code.
        """
        # The network sees deviations from the mean of the history, which is known.
        centre = history.mean(-1, keepdim=True) if self.steps is None else history.new_zeros(())
        code = self.encode(history)
        used = average(code, self.shared) if pairs else code
        ode = self.ode(used.flatten(0, -2), (start - centre).flatten(0, -2))
        y = self.solver(ode, self.window.times)[0][..., 0, 0].to(history.dtype)
        y = y.reshape(*history.shape[:-1], self.window.times)
        return Output(y[..., self.window.ahead] + centre, code, ode)


class Posterior(NamedTuple):
    """Independent normal distributions."""

    mean: Tensor
    """`(..., F)`."""
    log_variance: Tensor
    """`(..., F)`."""

    def sample(self) -> Tensor:
        """One draw, differentiable in both."""
        return self.mean + torch.randn_like(self.mean) * (0.5 * self.log_variance).exp()

    def to_standard(self) -> Tensor:
        """`(..., F)` KL to the standard normal."""
        variance = self.log_variance.exp()
        return 0.5 * (variance + self.mean.square() - 1 - self.log_variance)

    def to(self, other: Posterior) -> Tensor:
        """`(..., F)` KL to another."""
        ratio = (self.log_variance - other.log_variance).exp()
        shift = (self.mean - other.mean).square() * (-other.log_variance).exp()
        return 0.5 * (ratio + shift - 1 - (self.log_variance - other.log_variance))


def share(pair: Posterior) -> tuple[Posterior, Tensor]:
    """Average the features that two views `(..., 2, F)` share, which are determined for each pair.

    Returns the pair with shared features averaged, and a mask of these, `(..., 1, F)`.
    """
    first, second = (Posterior(*(x[..., i, :] for x in pair)) for i in (0, 1))
    divergence = first.to(second).detach()
    limit = 0.5 * (divergence.amax(-1, keepdim=True) + divergence.amin(-1, keepdim=True))
    common = (divergence < limit).unsqueeze(-2)
    mean = pair.mean.mean(-2, keepdim=True)
    log_variance = pair.log_variance.exp().mean(-2, keepdim=True).log()
    shared = Posterior(
        torch.where(common, mean, pair.mean), torch.where(common, log_variance, pair.log_variance)
    )
    return shared, common


class AdaGVAE(nn.Module):
    """Variational autoencoder whose decoder also gets the given values."""

    def __init__(self, window: Window, size: Size) -> None:
        super().__init__()
        self.window = window
        keep, features = max(2, window.length // 2), size.features
        layers = [size.hidden] * size.depth
        self.spectrum = SpectralInput(window.length, keep)
        self.encoder = MLP(keep, layers, 2 * features, LeakyReLU)
        self.decoder = MLP(features + window.given, layers, window.length, LeakyReLU)
        self.log_noise = nn.Parameter(torch.zeros(()))

    def encode(self, history: Tensor) -> Posterior:
        """Distributions of the codes of chunks `(..., length)`."""
        mean, log_variance = self.encoder(self.spectrum(history)).chunk(2, -1)
        return Posterior(mean, log_variance.clamp(-12.0, 4.0))

    def decode(self, code: Tensor, history: Tensor, start: Tensor) -> Tensor:
        """`(..., length)` from codes, around the mean of the history."""
        centre = history.mean(-1, keepdim=True)
        out: Tensor = self.decoder(torch.cat([code, start - centre], -1))
        return out + centre

    def forward(self, history: Tensor, start: Tensor) -> Tensor:
        """Predict from the mean of the code."""
        return self.decode(self.encode(history).mean, history, start)

    def losses(self, history: Tensor, start: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Losses of pairs; all tensors are `(B, 2, ...)`."""
        posterior, common = share(self.encode(history))
        prediction = self.decode(posterior.sample(), history, start)
        square = (prediction - target).square()
        # Normal likelihood; the optimal noise variance is the mean squared error.
        data = 0.5 * (square / self.log_noise.exp() + self.log_noise).sum(-1).mean()
        kl = posterior.to_standard().sum(-1).mean()
        return {
            "loss": (data + kl) / self.window.length, "mse": square.mean().detach(),
            "kl": kl.detach(), "shared": common.double().mean(),
        }  # fmt: skip
