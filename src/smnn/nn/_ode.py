"""The four tensors that define a batch of linear ODEs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class LinearODE(NamedTuple):
    r"""A batch of linear ODEs $\sum_{vr} c_{tqvr}\, y_{tvr} = d_{tq}$ on a time grid.

    Axes of size 1 broadcast in the batch and in time, as in `smnn.solve`, which takes the fields in
    this order: `smnn.solve(*ode)`.
    """

    c: Tensor
    """`(*B, T, Q, V, R+1)` coefficients."""
    d: Tensor
    """`(*B, T, Q)` right-hand side."""
    u: Tensor
    """`(*B, T_init, V, R_init+1)` initial values."""
    s: Tensor
    """`(*B, T-1)` steps, or `(*B, T-1, V)`."""

    def apply(self, function: Callable[[Tensor], Tensor]) -> LinearODE:
        """Apply a function to all four tensors."""
        return LinearODE(*(function(x) for x in self))

    def detach(self) -> LinearODE:
        """Detach all four tensors from the autograd graph."""
        return self.apply(torch.Tensor.detach)

    @property
    def batch_dims(self) -> int:
        """Number of batch axes."""
        return self.c.ndim - 4

    def n_steps(self) -> int | None:
        """Return the number of times `T`; `None` if `c`, `d` and `s` are all constant in time."""
        nb = self.batch_dims
        sizes = (self.c.shape[nb], self.d.shape[nb], self.s.shape[nb] + 1)
        known = [n for n, constant in zip(sizes, (1, 1, 2), strict=True) if n != constant]
        return known[0] if known else None

    def times(self, n_steps: int | None = None) -> Tensor:
        """Return the time grid, starting at 0: `(*B, T)`, or `(*B, T, V)`.

        Args:
            n_steps: `T`; required if all tensors are constant in time.
        """
        T = n_steps or self.n_steps()
        if T is None:
            raise ValueError(
                "n_steps: got None; expected the number of times, because c, d and s are all "
                "constant in time. Pass n_steps=T."
            )
        nb, s = self.batch_dims, self.s
        s = s.expand(*s.shape[:nb], T - 1, *s.shape[nb + 1 :])
        start = s.new_zeros(*s.shape[:nb], 1, *s.shape[nb + 1 :])
        return torch.cat([start, s.cumsum(nb)], nb)
