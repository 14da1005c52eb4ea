r"""Maps that make solutions of $u_t + u\,u_x + u_{xxx} = 0$ out of solutions.

The four Lie point symmetries (Brandstetter, Welling and Worrall 2022) and the mirror image, which
is not continuous. A shift in time is a choice of the first frame, so it is a draw, not a map.
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
    r"""Move along the circle: $u(x + \epsilon L, t)$.

    Args:
        frames: Solutions.
        part: `(B,)` of the period, any real number: between points the waves are interpolated by
            their Fourier modes.
    """
    return frames._replace(u=_turned(frames.u, part[:, None]))


def boost(frames: Frames, speed: Tensor) -> Frames:
    """Watch from a moving frame: $u(x + v t, t) - v$, with $t = 0$ at the first frame.

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


def mirror(frames: Frames, which: Tensor) -> Frames:
    """Run backwards on the mirrored circle: $u(-x, -t)$.

    Args:
        frames: Solutions.
        which: `(B,)` true where it is to be done.
    """
    u = frames.u
    return frames._replace(u=torch.where(which[:, None, None], u.flip(1, 2), u))


def _turned(u: Tensor, part: Tensor) -> Tensor:
    """Each frame `(B, frames, X)` moved by a part `(B, frames or 1)` of the period."""
    X = u.shape[-1]
    m = torch.arange(X // 2 + 1, device=u.device, dtype=u.dtype)
    angle = 2 * math.pi * part[..., None] * m
    factor = torch.complex(torch.cos(angle), torch.sin(angle))
    return torch.fft.irfft(torch.fft.rfft(u) * factor, n=X)


@dataclass(frozen=True)
class Symmetries:
    """How far training data are varied. The defaults are those of the published experiments."""

    shift: float = 1.0
    """Largest shift, as a part of the period: uniform in plus or minus half of it."""
    boost: float = 0.4
    """Largest speed: uniform in plus or minus this."""
    scale: float = 0.1
    """Largest exponent: uniform in plus or minus half of it."""
    mirror: bool = False
    """Whether half of the samples are mirrored; the published experiments do not."""

    def __call__(self, frames: Frames) -> Frames:
        """Apply to each sample what is drawn for it, in the published order."""
        u = frames.u

        def uniform(largest: float) -> Tensor:
            return (torch.rand(len(u), device=u.device, dtype=u.dtype) - 0.5) * largest

        if self.shift:
            frames = shift(frames, uniform(self.shift))
        if self.boost:
            frames = boost(frames, uniform(2 * self.boost))
        if self.scale:
            frames = rescale(frames, uniform(self.scale))
        if self.mirror:
            frames = mirror(frames, uniform(1.0) > 0)
        return frames
