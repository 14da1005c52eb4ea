"""Batched solver of the Korteweg-de Vries equation on a circle.

Fourier modes in space and ETDRK4 in time: the stiff linear part is exact and does not limit the
step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor

Form = Literal["advective", "conservative"]
FORMS = get_args(Form)


def evolve(
    u: Tensor, length: Tensor, dt: Tensor, *, frames: int, skip: int = 0, form: Form = "advective",
    substeps: int = 32,
) -> Tensor:  # fmt: skip
    r"""Solve $u_t + u\,u_x + u_{xxx} = 0$ with periodic boundaries.

    `"advective"` computes the product $u\,u_x$ on the grid, like the published generator. Aliasing
    causes a median error of $2 \times 10^{-5}$; the last mode, which has no odd derivatives, is
    kept. `"conservative"` computes $\tfrac12 (u^2)_x$, whose error is two orders of magnitude
    smaller. Neither form removes modes.

    Args:
        u: `(B, X)` initial values, float64, `X` even.
        length: `(B,)` periods.
        dt: `(B,)` time between frames.
        frames: Number of frames, including the initial values.
        skip: Number of initial frames that are not returned.
        form: Form of the nonlinear term.
        substeps: Integration steps per frame.

    Returns:
        `(B, frames - skip, X)`.
    """
    if form not in FORMS:
        raise ValueError(f"form: got {form!r}; expected one of {', '.join(map(repr, FORMS))}.")
    if u.dtype != torch.float64 or u.ndim != 2 or u.shape[1] % 2:
        raise ValueError(
            f"u: got shape {tuple(u.shape)} of {u.dtype}; expected (B, X) of float64 with X even."
        )
    if not 0 <= skip < frames or substeps < 1:
        raise ValueError(
            f"frames, skip, substeps: got {frames}, {skip}, {substeps}; expected "
            "0 <= skip < frames and substeps >= 1."
        )
    from smnn.datasets.fields import Etdrk4

    X = u.shape[1]
    k, h = wavenumbers(X, length), (dt / substeps)[:, None]
    advance = Etdrk4((1j * k**3 * h).cpu().numpy(), 1.0)  # time in steps
    for name, x in vars(advance).items():
        setattr(advance, name, torch.from_numpy(x).to(u.device))
    rate: Any = _nonlinear(k, X, form, h)
    out = u.new_empty(len(u), frames - skip, X)
    v: Any = torch.fft.rfft(u)
    for frame in range(frames):
        for _ in range(substeps if frame else 0):
            v = advance(v, rate)
        if frame >= skip:
            out[:, frame - skip] = torch.fft.irfft(v, n=X)
    return out


def wavenumbers(points: int, length: Tensor) -> Tensor:
    """`(B, points/2 + 1)`; zero for the last mode, whose odd derivatives are undefined."""
    m = torch.arange(points // 2 + 1, dtype=torch.float64, device=length.device)
    m[-1] = 0
    return 2 * math.pi * m / length[:, None]


def derivative(u: Tensor, length: Tensor, order: int) -> Tensor:
    """Spectral derivative of odd order of `u (B, ..., X)` in space, for periods `(B,)`."""
    X = u.shape[-1]
    k = wavenumbers(X, length.double())
    k = k.reshape(len(k), *(1,) * (u.ndim - 2), -1)
    return torch.fft.irfft((1j * k) ** order * torch.fft.rfft(u.double()), n=X)


def _nonlinear(k: Tensor, X: int, form: Form, h: Tensor) -> Callable[[Tensor], Tensor]:
    ik = 1j * k
    if form == "conservative":
        half = -0.5 * h * ik

        def conservative(v: Tensor) -> Tensor:
            return half * torch.fft.rfft(torch.fft.irfft(v, n=X).square())

        return conservative

    def advective(v: Tensor) -> Tensor:
        both = torch.fft.irfft(torch.stack([v, ik * v]), n=X)
        return torch.fft.rfft(both[0] * both[1]).mul_(-h)

    return advective
