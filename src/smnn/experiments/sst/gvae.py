r"""Ada-GVAE (Locatello et al., ICML 2020) for series: the comparison without an equation.

Two neighbours are encoded as normal distributions. Features whose two distributions are closer
(KL) than the middle between the closest and the farthest are taken to be shared and replaced by the
average of both, means and variances. The loss is the negative evidence: the squared error, in units
of a noise variance that is learned too, summed over time, plus the KL to the standard normal summed
over features, both per sample.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from smnn.experiments.sst.identifier import LeakyReLU, Window
from smnn.nn import MLP, SpectralInput


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
        apart = (self.mean - other.mean).square() * (-other.log_variance).exp()
        return 0.5 * (ratio + apart - 1 - (self.log_variance - other.log_variance))


def share(pair: Posterior) -> tuple[Posterior, Tensor]:
    """Average the features that two views have in common; which these are is found per pair.

    Args:
        pair: `(..., 2, F)`.

    Returns:
        The same with shared features averaged, and which they are, `(..., 1, F)` bool.
    """
    first, second = (Posterior(*(x[..., i, :] for x in pair)) for i in (0, 1))
    apart = first.to(second).detach()
    limit = 0.5 * (apart.amax(-1, keepdim=True) + apart.amin(-1, keepdim=True))
    common = (apart < limit).unsqueeze(-2)
    mean = pair.mean.mean(-2, keepdim=True)
    log_variance = pair.log_variance.exp().mean(-2, keepdim=True).log()
    shared = Posterior(
        torch.where(common, mean, pair.mean),
        torch.where(common, log_variance, pair.log_variance),
    )
    return shared, common


class AdaGVAE(nn.Module):
    """Encoder to distributions, adaptive sharing, decoder from code and given values.

    Args:
        window: What is known and what is wanted, as for the identifier.
        features: Size of the code.
        keep: Low frequencies that are encoded; half of them if `None`.
        hidden: Width of all hidden layers.
        depth: Hidden layers of encoder and decoder.
        beta: Weight of the KL; 1 is the evidence.
    """

    def __init__(
        self,
        window: Window,
        features: int = 20,
        *,
        keep: int | None = None,
        hidden: int = 1024,
        depth: int = 5,
        beta: float = 1.0,
    ) -> None:
        super().__init__()
        self.window, self.beta = window, beta
        self.spectrum = SpectralInput(window.length, keep or max(2, window.length // 2))
        kept = len(self.spectrum.matrix)
        self.encoder = MLP(kept, [hidden] * depth, 2 * features, LeakyReLU)
        self.decoder = MLP(features + window.given, [hidden] * depth, window.length, LeakyReLU)
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
        """Of pairs: all tensors are `(B, 2, ...)`."""
        posterior, common = share(self.encode(history))
        prediction = self.decode(posterior.sample(), history, start)
        square = (prediction - target).square()
        # The evidence of noise of this variance; its optimum is the mean square error itself.
        data = 0.5 * (square / self.log_noise.exp() + self.log_noise).sum(-1).mean()
        kl = posterior.to_standard().sum(-1).mean()
        return {
            "loss": (data + self.beta * kl) / self.window.length,
            "mse": square.mean().detach(),
            "kl": kl.detach(),
            "shared": common.double().mean(),
        }
