r"""The Mechanistic Identifier: every place has an ODE of its own, written down by a network.

A chunk of the history is transformed (DCT), cut to its low frequencies and encoded; from the code,
heads write down a forced oscillator

$$ y'' + c_1(t)\, y' + c_0(t)\, y = d(t) $$

in the unit of time in which a year is $2\pi$. The solver continues the given values by it. Part of
the code is shared between neighbours on a circle of latitude, the rest belongs to the place. The
leading coefficient is one: otherwise $(c, d)$ could be multiplied by anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from smnn.baselines import mnn_dense, mnn_sparse
from smnn.nn import (
    MLP,
    Coefficients,
    Free,
    LinearODE,
    MechanisticLayer,
    Positive,
    RightHandSide,
    SpectralInput,
)

SMNN, DENSE, SPARSE = "S-MNN", "MNN dense", "MNN sparse"
SOLVERS = (SMNN, DENSE, SPARSE)
SPARSE_ITERATIONS = 200
LeakyReLU = partial(nn.LeakyReLU, 0.01)


@dataclass(frozen=True)
class LatentSplit:
    """Which features of a code neighbours share: the one owner of these indices."""

    shared: int
    specific: int

    def __post_init__(self) -> None:
        if self.shared < 0 or self.specific < 0 or self.size < 1:
            raise ValueError(f"{self!r}: expected no negative part, and one feature or more.")

    @property
    def size(self) -> int:
        """All features."""
        return self.shared + self.specific

    def average(self, z: Tensor) -> Tensor:
        """`(..., views, size)` with the shared part replaced by its mean over the views."""
        mine, own = z.split((self.shared, self.specific), -1)
        return torch.cat([mine.mean(-2, keepdim=True).expand_as(mine), own], -1)

    def misalignment(self, z: Tensor) -> Tensor:
        """Mean square distance of the shared part from its mean over the views; a scalar."""
        mine = z[..., : self.shared]
        if not self.shared:
            return z.new_zeros(())
        return (mine - mine.mean(-2, keepdim=True)).square().mean()


HALVES = LatentSplit(10, 10)
"""As published."""


@dataclass(frozen=True)
class Window:
    """What is known and what is wanted, in steps."""

    length: int
    """Of the chunk that is encoded, and of the one that is predicted."""
    given: int = 10
    """Values that the solution starts from."""
    period: float = 12.0
    """Steps in a year."""
    peek: bool = False
    """Whether the given values are the first of the target, as in the paper; else they are the last
    of the history."""

    def __post_init__(self) -> None:
        if not 2 <= self.given <= self.length:
            raise ValueError(
                f"given: got {self.given} for chunks of {self.length}; expected 2 to that length."
            )

    @property
    def times(self) -> int:
        """Steps of the trajectory that is solved for: the given ones, and the target."""
        return self.length if self.peek else self.length + self.given

    @property
    def ahead(self) -> slice:
        """Where the target lies in that trajectory."""
        return slice(0 if self.peek else self.given, None)

    def start(self, history: Tensor, target: Tensor) -> Tensor:
        """`(..., given)` the values to start from."""
        return target[..., : self.given] if self.peek else history[..., -self.given :]


class Output(NamedTuple):
    """What the identifier says about a batch."""

    target: Tensor
    """`(..., length)` the prediction."""
    code: Tensor
    """`(..., F)` as encoded, before sharing."""
    ode: LinearODE
    """Of all samples in one batch axis."""


class SeasonalForcing(nn.Module):
    r"""$d(t) = b + \sum_j a_j \cos(jt) + b_j \sin(jt)$: constant amplitudes from the code.

    Args:
        in_features: Size of the code.
        window: Sizes.
        harmonics: Of the year.
        hidden: Sizes of hidden layers.
    """

    waves: Tensor

    def __init__(
        self, in_features: int, window: Window, harmonics: int = 3, hidden: Sequence[int] = ()
    ) -> None:
        super().__init__()
        t = 2 * math.pi / window.period * torch.arange(window.times, dtype=torch.float64)
        waves = [f(j * t) for j in range(1, harmonics + 1) for f in (torch.cos, torch.sin)]
        self.register_buffer("waves", torch.stack([torch.ones_like(t), *waves]), persistent=False)
        self.amplitudes = MLP(in_features, hidden, 1 + 2 * harmonics, LeakyReLU)

    def forward(self, features: Tensor) -> Tensor:
        """`d (*B, T, 1)`."""
        amplitudes = self.amplitudes(features)
        return (amplitudes @ self.waves.to(amplitudes)).unsqueeze(-1)


class MechanisticIdentifier(nn.Module):
    """Encoder, shared and own code, heads, solver.

    Args:
        window: What is known and what is wanted.
        split: How the code is shared.
        keep: Low frequencies that are encoded; half of them if `None`.
        hidden: Width of all hidden layers.
        depth: Hidden layers of the encoder.
        head_depth: Hidden layers of each head.
        invariant: The time-invariant variant: no code in between, coefficients constant in time,
            and forcing by a constant and harmonics of the year. Nothing is shared then.
        order: Of the derivatives that the solver carries; 2 at least.
        solver: Name in `SOLVERS`.
    """

    step: Tensor

    def __init__(
        self,
        window: Window,
        split: LatentSplit = HALVES,
        *,
        keep: int | None = None,
        hidden: int = 1024,
        depth: int = 5,
        head_depth: int = 3,
        invariant: bool = False,
        order: int = 2,
        solver: str = SMNN,
    ) -> None:
        super().__init__()
        if solver not in SOLVERS:
            raise ValueError(f"solver: got {solver!r}; expected one of {', '.join(SOLVERS)}.")
        if solver != SMNN and order != 2:
            raise ValueError(f"order: got {order} with {solver}; expected 2, as it was published.")
        self.window, self.invariant, self.solver = window, invariant, solver
        self.spectrum = SpectralInput(window.length, keep or max(2, window.length // 2))
        kept = len(self.spectrum.matrix)
        self.split = LatentSplit(0, kept) if invariant else split
        self.encoder: nn.Module = (
            nn.Identity() if invariant else MLP(kept, [hidden] * depth, split.size, LeakyReLU)
        )
        layers, F = [hidden] * head_depth, self.split.size
        # Positive: an oscillator that neither grows nor runs away, at first with the year's period.
        pattern = [[[Positive(1.0), Positive(0.5), 1.0]]]
        self.coefficients = Coefficients(
            F, pattern, times=None if invariant else window.times, hidden=layers,
            activation=LeakyReLU, gain=0.1,
        )  # fmt: skip
        self.forcing: nn.Module = (
            SeasonalForcing(F, window, hidden=layers)
            if invariant
            else RightHandSide(F, [Free()], times=window.times, hidden=layers, activation=LeakyReLU)
        )
        step = torch.full((1, 1), 2 * math.pi / window.period, dtype=torch.float64)
        self.register_buffer("step", step, persistent=False)
        self.layer = MechanisticLayer(None if order == 2 else order, check=False)

    def encode(self, history: Tensor) -> Tensor:
        """`(..., F)` code of chunks `(..., length)`."""
        code: Tensor = self.encoder(self.spectrum(history))
        return code

    def ode(self, code: Tensor, start: Tensor) -> LinearODE:
        """The equations of codes `(N, F)` that start from values `(N, given)`."""
        c, d = self.coefficients(code), self.forcing(code)
        return LinearODE(c, d, start[..., None, None], self.step)

    def forward(self, history: Tensor, start: Tensor, *, pairs: bool = False) -> Output:
        """Predict.

        Args:
            history: `(..., length)`.
            start: `(..., given)`, see `Window.start`.
            pairs: Whether the last batch axis holds neighbours that share a part of the code.
        """
        # A place is described by how it differs from its own mean, which is known.
        centre = history.mean(-1, keepdim=True)
        code = self.encode(history)
        used = self.split.average(code) if pairs else code
        ode = self.ode(used.flatten(0, -2), (start - centre).flatten(0, -2))
        y = self._solve(ode).to(history.dtype).reshape(*history.shape[:-1], self.window.times)
        return Output(y[..., self.window.ahead] + centre, code, ode)

    def _solve(self, ode: LinearODE) -> Tensor:
        """`(N, T)`."""
        if self.solver == SMNN:
            y: Tensor = self.layer(ode, n_steps=self.window.times)
        else:
            c, d, u, s = ode.apply(torch.Tensor.double)
            if self.solver == DENSE:
                y = mnn_dense(c, d, u, s, n_steps=self.window.times, check=False).y
            else:
                y = mnn_sparse(
                    c, d, u, s, n_steps=self.window.times, max_iter=SPARSE_ITERATIONS, check=False
                ).y
        return y[..., 0, 0]
