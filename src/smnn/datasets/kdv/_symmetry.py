r"""Symmetries of $u_t + u\,u_x + u_{xxx} = 0$: maps from solutions to solutions.

These are three of the four Lie point symmetries (Brandstetter, Welling and Worrall 2022). The
fourth, a shift in time, corresponds to the choice of the first frame.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Frames(NamedTuple):
    """Successive frames of solutions, and their grids."""

    u: Tensor
    """`(B, frames, X)`."""
    dx: Tensor
    """`(B,)`."""
    dt: Tensor
    """`(B,)`."""


def shift(frames: Frames, part: Tensor) -> Frames:
    r"""Translate along the circle: $u(x + \epsilon L, t)$.

    Args:
        frames: Solutions.
        part: `(B,)` fraction of the period; between points, frames are interpolated by their
            Fourier modes.
    """
    return frames._replace(u=_turned(frames.u, part[:, None]))


def boost(frames: Frames, speed: Tensor) -> Frames:
    """Change to a moving frame: $u(x + v t, t) - v$, with $t = 0$ at the first frame.

    Args:
        frames: Solutions.
        speed: `(B,)` the velocity `v`.
    """
    u, dx, dt = frames
    count = torch.arange(u.shape[1], device=u.device, dtype=u.dtype)
    length = dx * u.shape[2]
    part = (speed * dt / length)[:, None] * count
    return frames._replace(u=_turned(u, part) - speed[:, None, None])


def rescale(frames: Frames, epsilon: Tensor) -> Frames:
    r"""Scale height, space and time: $e^{2\epsilon}\,u$, $e^{-\epsilon} x$, $e^{-3\epsilon} t$.

    Args:
        frames: Solutions.
        epsilon: `(B,)`.
    """
    u, dx, dt = frames
    return Frames(
        u * torch.exp(2 * epsilon)[:, None, None],
        dx * torch.exp(-epsilon),
        dt * torch.exp(-3 * epsilon),
    )


def _turned(u: Tensor, part: Tensor) -> Tensor:
    """Frames `(B, frames, X)` translated by fractions `(B, frames or 1)` of the period."""
    X = u.shape[-1]
    m = torch.arange(X // 2 + 1, device=u.device, dtype=u.dtype)
    angle = 2 * math.pi * part[..., None] * m
    factor = torch.complex(torch.cos(angle), torch.sin(angle))
    return torch.fft.irfft(torch.fft.rfft(u) * factor, n=X)


@dataclass(frozen=True)
class Symmetries:
    """Random symmetries for data augmentation, by default those of the published experiments."""

    shift: float = 1.0
    """Width of the uniform distribution of shifts, as a fraction of the period."""
    boost: float = 0.4
    """Half-width of the uniform distribution of speeds."""
    scale: float = 0.1
    """Width of the uniform distribution of exponents."""

    def __call__(self, frames: Frames) -> Frames:
        """Apply random symmetries to each sample, in the published order."""
        u = frames.u

        def uniform(largest: float) -> Tensor:
            return (torch.rand(len(u), device=u.device, dtype=u.dtype) - 0.5) * largest

        if self.shift:
            frames = shift(frames, uniform(self.shift))
        if self.boost:
            frames = boost(frames, uniform(2 * self.boost))
        if self.scale:
            frames = rescale(frames, uniform(self.scale))
        return frames
