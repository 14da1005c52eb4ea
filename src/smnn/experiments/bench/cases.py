"""Test problems of any size with a closed form.

x' + A x = A p + p' with p_v(t) = cos(t + phase_v) has the solution
x = p + exp(-A t) (x(0) - p(0)), which neither decays nor grows. All inputs are full tensors, like
the outputs of a network.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

STEP = 0.01
INPUTS = ("c", "d", "u", "s")


@dataclass(frozen=True)
class Case:
    """A problem size and the solvers to compare on it."""

    group: str
    B: int
    T: int
    V: int = 1
    R: int = 2
    peers: bool = False
    """Compare with SciPy and torchdiffeq."""
    published: bool = False
    """Compare with the published solver, if a checkout is given."""
    backends: tuple[str, ...] = ("auto",)
    memory: bool = False

    @property
    def n(self) -> int:
        """Number of unknowns at a time."""
        return self.V * (self.R + 1)

    @property
    def label(self) -> str:
        """Description of the case."""
        return f"{self.group}: B={self.B} T={self.T} V={self.V} R={self.R}"


@dataclass(frozen=True)
class Data:
    """Inputs of the solver, the ODE they encode, and its exact solution."""

    c: Tensor
    d: Tensor
    u: Tensor
    s: Tensor
    A: Tensor
    phase: Tensor
    exact: Tensor
    """`(B, T, V)`."""

    def inputs(self, grad: bool) -> dict[str, Tensor]:
        """Copies of the inputs as leaf tensors."""
        return {k: getattr(self, k).clone().requires_grad_(grad) for k in INPUTS}

    def first(self, count: int) -> Data:
        """The first `count` samples."""
        c, d, u, s, A = (x[:count] for x in (self.c, self.d, self.u, self.s, self.A))
        return Data(c, d, u, s, A, self.phase, self.exact[:count])


def make_data(case: Case, seed: int = 0) -> Data:
    """Generate random problems of the size of a case."""
    B, T, V, R = case.B, case.T, case.V, case.R
    draw = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=draw, dtype=torch.float64)

    coupling = 0.3 * (random(B, V, V) - 0.5)
    A = torch.diag_embed(0.3 + 0.5 * random(B, V)) + coupling - coupling.mT
    phase = torch.linspace(0, math.pi / 2, V, dtype=torch.float64)
    u = random(B, 1, V, 1)
    t = STEP * torch.arange(T, dtype=torch.float64)
    angle = t[:, None] + phase
    p, dp = angle.cos(), -angle.sin()
    c = torch.zeros(B, T, V, V, R + 1, dtype=torch.float64)
    c[..., 0] = A[:, None]
    c[..., 1] = torch.eye(V, dtype=torch.float64)
    d = torch.einsum("bvw,tw->btv", A, p) + dp
    values, vectors = torch.linalg.eig(A)
    start = torch.linalg.solve(vectors, (u[:, 0, :, 0] - p[0]).to(vectors.dtype))
    decay = torch.exp(-values[:, None] * t[:, None]) * start[:, None]
    exact = p + torch.einsum("bvw,btw->btv", vectors, decay).real
    return Data(c, d, u, torch.full((B, T - 1), STEP, dtype=torch.float64), A, phase, exact)


def relative_mse(x: Tensor, exact: Tensor) -> float:
    """Mean squared error over the variance of the exact solution."""
    return ((x - exact).square().mean() / exact.var(unbiased=False)).item()
