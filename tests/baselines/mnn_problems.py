"""The solvers of the original MNN by name, and an oscillator with its exact solution."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from baselines.mnn_oracle import Problem
from smnn.baselines import MNNSolution, mnn_dense, mnn_exact, mnn_sparse

f64 = torch.float64


def converging(*args: Any, **kw: Any) -> MNNSolution:
    """Conjugate gradients with all the iterations they need."""
    return mnn_sparse(*args, **kw, max_iter=20_000, tol=1e-13, check=False)


SOLVERS: dict[str, Callable[..., MNNSolution]] = {
    "exact": mnn_exact,
    "dense": mnn_dense,
    "sparse": converging,
}


def on(device: str, problem: Problem) -> Problem:
    moved = [x.to(device) for x in problem[:4]]
    p = None if problem.periodic is None else problem.periodic.to(device)
    return problem._replace(**dict(zip("cdus", moved)), periodic=p)


def oscillator(T: int = 500, h: float = 0.05) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`u'' + u = 0`, `u(0) = 0`, `u'(0) = 1`: the test of the published notebook."""
    c = torch.tensor([1.0, 0.0, 1.0], dtype=f64).expand(T, 1, 1, 3)
    d, u = c.new_zeros(T, 1), c.new_tensor([[[0.0, 1.0]]])
    return c, d, u, c.new_full((T - 1,), h)


def relative_mse(y: Tensor, h: float = 0.05) -> float:
    exact = torch.sin(h * torch.arange(len(y), dtype=f64))
    return ((y[:, 0, 0] - exact).square().mean() / exact.var(unbiased=False)).item()
