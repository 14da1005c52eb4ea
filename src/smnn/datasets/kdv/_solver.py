"""Batched solver of the Korteweg-de Vries equation on a circle.

Fourier modes in space and ETDRK4 in time (Cox and Matthews 2002, with the contour integrals of
Kassam and Trefethen 2005): the stiff linear part is exact and does not limit the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

Form = Literal["advective", "conservative"]
FORMS = get_args(Form)
CONTOUR = 32
"""Points of the contour, enough for coefficients exact to rounding."""


def evolve(
    u: Tensor,
    length: Tensor,
    dt: Tensor,
    *,
    frames: int,
    skip: int = 0,
    form: Form = "advective",
    substeps: int = 32,
) -> Tensor:
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
    X = u.shape[1]
    k = wavenumbers(X, length)
    advance = _frame(_Scheme(k, dt / substeps, _nonlinear(k, X, form)), substeps)
    out = u.new_empty(len(u), frames - skip, X)
    v = torch.fft.rfft(u)
    for frame in range(frames):
        if frame:
            v = advance(v)
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


def _nonlinear(k: Tensor, X: int, form: Form) -> Callable[[Tensor], Tensor]:
    ik = 1j * k
    if form == "conservative":
        half = -0.5 * ik

        def conservative(v: Tensor) -> Tensor:
            return half * torch.fft.rfft(torch.fft.irfft(v, n=X).square())

        return conservative

    def advective(v: Tensor) -> Tensor:
        both = torch.fft.irfft(torch.stack([v, ik * v]), n=X)
        return torch.fft.rfft(both[0] * both[1]).neg_()

    return advective


def _frame(scheme: _Scheme, substeps: int) -> Callable[[Tensor], Tensor]:
    """Advance modes by one frame; on a GPU by a recorded CUDA graph."""

    def advance(v: Tensor) -> Tensor:
        for _ in range(substeps):
            v = scheme.step(v)
        return v

    if not scheme.whole.is_cuda:
        return advance
    held = torch.zeros_like(scheme.whole)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # allocates plans and work spaces before the recording
        scheme.step(held)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        held.copy_(advance(held))

    def replay(v: Tensor, reads: _Scheme = scheme) -> Tensor:
        del reads  # keeps the coefficients alive that the graph reads
        held.copy_(v)
        graph.replay()
        return held.clone()

    return replay


class _Scheme:
    """Coefficients for the step size of each trajectory."""

    def __init__(self, k: Tensor, h: Tensor, nonlinear: Callable[[Tensor], Tensor]) -> None:
        linear = 1j * k**3 * h[:, None]
        self.nonlinear = nonlinear
        self.whole, self.half = torch.exp(linear), torch.exp(linear / 2)
        # Means over a circle around each point avoid cancellation near zero.
        angle = math.pi * (torch.arange(CONTOUR, dtype=torch.float64, device=h.device) + 0.5)
        z = linear[..., None] + torch.exp(2j * angle / CONTOUR)
        e, h_ = torch.exp(z), h[:, None]
        self.q = h_ * ((torch.exp(z / 2) - 1) / z).mean(-1)
        self.f1 = h_ * ((-4 - z + e * (4 - 3 * z + z**2)) / z**3).mean(-1)
        self.f2 = 2 * h_ * ((2 + z + e * (z - 2)) / z**3).mean(-1)
        self.f3 = h_ * ((-4 - 3 * z - z**2 + e * (4 - z)) / z**3).mean(-1)

    def step(self, v: Tensor) -> Tensor:
        """Modes `(B, X/2 + 1)` one step later."""
        n0 = self.nonlinear(v)
        halfway = self.half * v
        a = halfway + self.q * n0
        n1 = self.nonlinear(a)
        b = halfway + self.q * n1
        n2 = self.nonlinear(b)
        c = self.half * a + self.q * (2 * n2 - n0)
        n3 = self.nonlinear(c)
        return self.whole * v + self.f1 * n0 + self.f2 * (n1 + n2) + self.f3 * n3
