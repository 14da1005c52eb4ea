"""Linear ODEs with closed forms, among them the six of the paper."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Ode:
    """`sum_r c_r y^(r) = d` with `y^(r)(0) = u_r` for every order below the highest."""

    name: str
    c: tuple[float, ...]
    d: float
    u: tuple[float, ...]

    def exact(self, t: np.ndarray, r: int = 0) -> np.ndarray:
        """The derivative of order `r` of the closed form, in extended precision.

        `y = d / c_0 + sum_k a_k exp(x_k t)` with the roots `x_k` of the characteristic polynomial,
        which are all simple.
        """
        wide = np.clongdouble
        c = np.array(self.c, wide)
        x = np.polynomial.polynomial.polyroots(self.c).astype(wide)
        slope = c[1:] * np.arange(1, len(c))
        for _ in range(3):  # Newton's method, from 16 digits to 19
            powers = x[:, None] ** np.arange(len(c))
            x = x - (powers @ c) / (powers[:, :-1] @ slope)
        level = wide(self.d) / c[0] if self.d else wide(0)
        right = np.array(self.u, wide)
        right[0] -= level
        matrix = x[None, :] ** np.arange(len(x))[:, None]
        a = np.zeros(len(x), wide)
        for _ in range(3):
            left = (right - matrix @ a).astype(complex)
            a = a + np.linalg.solve(matrix.astype(complex), left)
        wave = np.exp(np.asarray(t, np.longdouble)[:, None] * x) @ (a * x**r)
        return (wave + (level if r == 0 else 0)).real

    def native(
        self, T: int, s: float, *, dtype: torch.dtype = torch.float64, device: str = "cpu"
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Arguments of `solve` for the equation as it stands: one variable, constant in time."""
        like = {"dtype": dtype, "device": device}
        c = torch.tensor(self.c, **like).view(1, 1, 1, -1)
        u = torch.tensor(self.u, **like).view(1, 1, -1)
        return c, torch.full((1, 1), self.d, **like), u, torch.full((T - 1,), s, **like)

    def system(self, T: int, s: float, R: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The same as a system of first-order equations, `y_v' = y_{v+1}`, carried to order `R`."""
        V = len(self.u)
        c = torch.zeros(1, V, V, R + 1, dtype=torch.float64)
        for v in range(V - 1):
            c[0, v, v, 1], c[0, v, v + 1, 0] = 1.0, -1.0
        for v in range(V):
            c[0, V - 1, v, 0] = self.c[v]
        c[0, V - 1, V - 1, 1] = self.c[V]
        d = c.new_zeros(1, V)
        d[0, V - 1] = self.d
        return c, d, c.new_tensor(self.u).view(1, V, 1), c.new_full((T - 1,), s)


ODES = {
    ode.name: ode
    for ode in (
        Ode("RC circuit", (1 / 1.2, 2.31), 0.7, (10.0,)),
        Ode("population", (0.23, -1.0), 0.0, (4.78,)),
        Ode("language death", (0.32 + 0.28, 1.0), 0.32, (0.14,)),
        Ode("harmonic", (2.1, 0.0, 1.0), 0.0, (0.4, -0.03)),
        Ode("damped", (4.5, 0.43, 1.0), 0.0, (0.12, 0.043)),
        Ode("third order", (0.0, 1.0, 1.0, 1.0), 0.0, (0.0, -1.0, 1.0)),
    )
}
"""The six equations of the paper's appendix."""


def relative_mse(got: Tensor | np.ndarray, exact: np.ndarray) -> float:
    """Mean squared error over the variance of the exact values."""
    y = got.detach().cpu().numpy() if isinstance(got, Tensor) else got
    assert y.shape == exact.shape
    return float(np.mean((y.astype(np.longdouble) - exact) ** 2) / np.var(exact))
