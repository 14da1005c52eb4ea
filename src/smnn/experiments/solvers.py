"""The three solvers that the paper compares, with the same arguments."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from smnn.baselines import mnn_dense, mnn_sparse
from smnn.nn import LinearODE, MechanisticLayer

SMNN, DENSE, SPARSE = "S-MNN", "MNN dense", "MNN sparse"
SOLVERS = (SMNN, DENSE, SPARSE)
ITERATIONS = 200
"""Published limit of the conjugate gradients of `SPARSE`."""


class Solver:
    """One of `SOLVERS`, without device synchronization where possible.

    `order` is the highest derivative that `SMNN` carries; `options` are `gamma` and `alpha` of the
    original MNN.
    """

    def __init__(self, name: str, order: int | None = None, **options: Any) -> None:
        if name not in SOLVERS:
            raise ValueError(f"solver: got {name!r}; expected one of {', '.join(SOLVERS)}.")
        self.name, self.options = name, options
        self._layer = MechanisticLayer(order, check=False)

    def __call__(self, ode: LinearODE, n_steps: int | None = None) -> tuple[Tensor, Tensor | None]:
        """The solution `(*B, T, V, R+1)`, and which samples of an iterative solver converged."""
        if self.name == SMNN:
            return self._layer(ode, n_steps=n_steps), None
        c, d, u, s = ode.apply(torch.Tensor.double)
        T = n_steps or ode.n_steps()
        if self.name == DENSE:
            found = mnn_dense(c, d, u, s, n_steps=T, check=False, **self.options)
        else:
            found = mnn_sparse(
                c, d, u, s, n_steps=T, max_iter=ITERATIONS, check=False, **self.options
            )
        return found.y, found.converged
