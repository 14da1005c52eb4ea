"""Baselines without an equation: a residual network and a Fourier neural operator.

They follow Brandstetter, Welling and Worrall (2022), but with the history of the other models, so
that all are scored on the same frames. `dx` and `dt` are inputs as constant channels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

HISTORY, HORIZON = 10, 10


class _Direct(nn.Module):
    """Common interface: channels in, frames out."""

    horizon = HORIZON

    def forward(self, u: Tensor, dx: Tensor, dt: Tensor) -> Tensor:
        """The last known frame and the 10 next, `(B, 11, X)`, from the known ones `u (B, 10, X)`.

        `dx (B,)` is the spacing of the points, `dt (B,)` that of the frames.
        """
        grid = torch.stack([dx, dt], 1)[..., None].expand(-1, 2, u.shape[2])
        return torch.cat([u[:, -1:], self.frames(torch.cat([u, grid], 1)).to(u.dtype)], 1)

    def frames(self, x: Tensor) -> Tensor:
        """`(B, 12, X)` to `(B, 10, X)`."""
        raise NotImplementedError


class ResNet(_Direct):
    """Residual blocks of two convolutions with batch normalization and zero padding."""

    def __init__(self, width: int = 256, blocks: int = 8) -> None:
        super().__init__()
        self.first = nn.Conv1d(HISTORY + 2, width, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(width, width, 3, padding=1, bias=False),
                nn.BatchNorm1d(width),
                nn.ReLU(),
                nn.Conv1d(width, width, 3, padding=1, bias=False),
                nn.BatchNorm1d(width),
            )
            for _ in range(blocks)
        )
        self.last = nn.Conv1d(width, HORIZON, 1)

    def frames(self, x: Tensor) -> Tensor:
        """`(B, 12, X)` to `(B, 10, X)`."""
        h = nn.functional.gelu(self.first(x))
        for block in self.blocks:
            h = nn.functional.relu(h + block(h))
        out: Tensor = self.last(h)
        return out


class FNO(_Direct):
    """A Fourier neural operator (Li et al. 2021) in one dimension."""

    def __init__(self, width: int = 256, layers: int = 5, modes: int = 32) -> None:
        super().__init__()
        self.modes = modes
        self.first = nn.Conv1d(HISTORY + 2, width, 1)
        # Real and imaginary parts separately, for optimizers, averages and files of real numbers.
        self.mixing = nn.ParameterList(
            nn.Parameter(torch.rand(modes, width, width, 2) / width**2) for _ in range(layers)
        )
        self.past = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(layers))
        self.last = nn.Sequential(
            nn.Conv1d(width, width // 2, 1), nn.GELU(), nn.Conv1d(width // 2, HORIZON, 1)
        )

    def frames(self, x: Tensor) -> Tensor:
        """`(B, 12, X)` to `(B, 10, X)`."""
        h = self.first(x)
        for i, (weight, past) in enumerate(zip(self.mixing, self.past)):
            h = self._mixed(h, weight) + past(h)
            if i < len(self.past) - 1:
                h = nn.functional.gelu(h)
        out: Tensor = self.last(h)
        return out

    def _mixed(self, h: Tensor, weight: Tensor) -> Tensor:
        with torch.autocast(h.device.type, enabled=False):
            v = torch.fft.rfft(h.to(weight.dtype))[..., : self.modes].permute(2, 0, 1)
            w = torch.view_as_complex(weight)
            out = (v @ w).permute(1, 2, 0)
            missing = h.shape[-1] // 2 + 1 - self.modes
            return torch.fft.irfft(nn.functional.pad(out, (0, missing)), n=h.shape[-1])
