"""Public functions of the baselines."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from smnn._solver.problem import make_problem
from smnn.baselines._autograd import Solve
from smnn.baselines._exact import Exact
from smnn.baselines._methods import Dense, Method, Sparse
from smnn.errors import ShapeError, SolveError, mismatch

Number = float | Tensor


class MNNSolution(NamedTuple):
    """Solution of the original MNN with diagnostics."""

    y: Tensor
    """`(*B, T, V, R+1)` trajectories with their derivatives."""
    eps: Tensor
    """`(*B)` slack that the smoothness rows of a sample share."""
    converged: Tensor
    """`(*B)` whether the sample was solved (bool)."""
    iterations: Tensor
    """`(*B)` number of iterations; 0 for a direct method (int64)."""
    residual: Tensor
    """`(*B)` residual of the normal equations, relative to the right-hand side."""


def mnn_exact(
    c: Tensor, d: Tensor, u: Tensor, s: Tensor, *, gamma: Number = 0.5, alpha: Number = 0.1,
    periodic: Tensor | None = None, n_steps: int | None = None, backend: str = "auto",
    check: bool = True,
) -> MNNSolution:  # fmt: skip
    r"""Solve the original MNN problem exactly, in time and memory linear in `T`.

    Minimizes, over $y$ and the slack $\epsilon$,

    $$ \tfrac12 \|\text{governing}\|^2 + \tfrac12 \|\text{initial}\|^2
       + \tfrac12 \sum_i (a_i \cdot y + \sigma_i \epsilon)^2 - \gamma \alpha\, \epsilon $$

    where $a_i \cdot y$ are the smoothness rows of `smnn.solve` with `scheme="central"` and
    $\sigma_i = \pm 1$. Only the product of `gamma` and `alpha` matters. Differentiable with
    respect to every tensor, to any order. The arithmetic is float64, also for float32 tensors.

    Args:
        c: `(*B, T, Q, V, R+1)` coefficients, `R >= 1`. Time size 1 means constant in time.
        d: `(*B, T, Q)` right-hand side.
        u: `(*B, T_init, V, R_init+1)` initial values on the first `T_init` times. May be empty.
        s: `(*B, T-1)` steps, or `(*B, T-1, V)` for a grid per variable. Positive.
        gamma: Number, or tensor that broadcasts against `(*B)`.
        alpha: Number, or tensor that broadcasts against `(*B)`.
        periodic: `(*B, V, R)` target of $y(0) - y(T-1)$ for the orders below `R`: zeros for a
            periodic series. `None` for no such rows.
        n_steps: Number of times `T`; required if `c`, `d` and `s` are all constant in time.
        backend: As in `smnn.solve`.
        check: Raise if a sample has no unique finite solution. Otherwise it is NaN and
            `converged` is false.

    Returns:
        `MNNSolution(y, eps, converged, iterations, residual)`.

    Raises:
        ShapeError: An argument does not fit.
        SolveError: A sample has no unique finite solution.
        BackendError: The backend cannot be used.

    Examples:
        $y'' + y = 0$ with $y(0) = 0,\ y'(0) = 1$ over four periods:

        >>> import torch
        >>> from smnn.baselines import mnn_exact
        >>> c = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64).view(1, 1, 1, 3)
        >>> d, u = c.new_zeros(1, 1), c.new_tensor([[[0.0, 1.0]]])
        >>> y, eps, *_ = mnn_exact(c, d, u, c.new_full((499,), 0.05))
        >>> f"y(5) = {y[100, 0, 0]:.3f}, slack {eps:.0e}"
        'y(5) = -0.958, slack 2e-05'
    """
    return _solve(c, d, u, s, gamma, alpha, periodic, n_steps, Exact(backend), check)


def mnn_dense(
    c: Tensor, d: Tensor, u: Tensor, s: Tensor, *, gamma: Number = 0.5, alpha: Number = 0.1,
    periodic: Tensor | None = None, n_steps: int | None = None, check: bool = True,
) -> MNNSolution:  # fmt: skip
    """Solve the original MNN problem by dense Cholesky factorization, as published.

    Memory grows with the square of `T` and time with its cube; rounding errors grow with the
    square of the condition number. Arguments and result are those of `mnn_exact`.
    """
    return _solve(c, d, u, s, gamma, alpha, periodic, n_steps, Dense(), check)


def mnn_sparse(
    c: Tensor, d: Tensor, u: Tensor, s: Tensor, *, gamma: Number = 0.5, alpha: Number = 0.1,
    periodic: Tensor | None = None, n_steps: int | None = None, max_iter: int = 200,
    tol: float = 1e-12, check: bool = True,
) -> MNNSolution:  # fmt: skip
    """Solve the original MNN problem by conjugate gradients, as published.

    No preconditioner, start at zero. The backward pass iterates in the same way, and warns if it
    does not converge.

    A sample has converged when the residual of its normal equations is below `tol`, relative to
    their right-hand side. After `max_iter` iterations (200 in the published code), `check` raises;
    otherwise the sample is what the last iteration left, and `converged` is false. The other
    arguments are those of `mnn_exact`.
    """
    if max_iter < 1:
        raise ValueError(f"max_iter: got {max_iter}; expected at least 1.")
    return _solve(c, d, u, s, gamma, alpha, periodic, n_steps, Sparse(max_iter, tol), check)


def _solve(
    c: Tensor, d: Tensor, u: Tensor, s: Tensor, gamma: Number, alpha: Number,
    periodic: Tensor | None, n_steps: int | None, method: Method, check: bool,
) -> MNNSolution:  # fmt: skip
    if isinstance(c, Tensor) and c.ndim >= 4 and c.shape[-1] < 2:
        raise mismatch("c", f"{c.shape[-1]} orders", "at least 2", "An ODE has a derivative.")
    problem, batch = make_problem(c, d, u, s, scheme="central", n_steps=n_steps)
    B, T, V, m = problem.y_shape
    if T < 2:
        raise ShapeError("T: got 1 time; expected at least 2, because the slack applies to steps.")
    p = _periodic(periodic, c, batch, (V, m - 1))
    load = _load(gamma, alpha, c, batch)
    out = Solve.apply(problem.c, problem.d, problem.u, problem.s, p, load, method)
    y, eps, converged, iterations, left = out[:5]
    if check and not bool(converged.all()):
        raise SolveError(_failure(method, batch, converged, iterations, left))
    return MNNSolution(
        y.view(batch + y.shape[1:]).to(c.dtype), eps.view(batch).to(c.dtype),
        converged.view(batch), iterations.view(batch), left.view(batch),
    )  # fmt: skip


def _periodic(p: Tensor | None, c: Tensor, batch: tuple[int, ...], tail: tuple[int, int]) -> Tensor:
    size = torch.Size(batch).numel()
    if p is None:
        return c.new_zeros(size, tail[0], 0, dtype=torch.float64)
    full = batch + tail
    if not isinstance(p, Tensor) or p.dtype != c.dtype or p.device != c.device:
        got = f"{p.dtype} on {p.device}" if isinstance(p, Tensor) else type(p).__name__
        raise mismatch(
            "periodic", got, f"a tensor of {c.dtype} on {c.device}, as c", "Zeros for a period."
        )
    if p.ndim != len(full) or any(
        a != b and not (a == 1 and i < len(batch)) for i, (a, b) in enumerate(zip(p.shape, full))
    ):
        wanted = f"{full} (its rows: (*B, V, R))"
        advice = "Only batch axes of size 1 broadcast."
        raise mismatch("periodic", f"shape {tuple(p.shape)}", wanted, advice)
    return p.double().expand(full).reshape(size, *tail)


def _load(gamma: Number, alpha: Number, c: Tensor, batch: tuple[int, ...]) -> Tensor:
    load = torch.as_tensor(gamma * alpha, dtype=torch.float64, device=c.device)
    try:
        return load.expand(batch).reshape(-1)
    except RuntimeError:
        got = f"shape {tuple(load.shape)}"
        wanted = f"a number, or a tensor that broadcasts against the batch {batch}"
        raise mismatch("gamma * alpha", got, wanted, "One value for each sample.") from None


def _failure(
    method: Method, batch: tuple[int, ...], converged: Tensor, iterations: Tensor, left: Tensor
) -> str:
    """Return the message about failed samples."""
    failed = (~converged).nonzero().flatten().tolist()
    names = [str(tuple(map(int, np.unravel_index(i, batch)))) for i in failed[:3]]
    where = f": {', '.join(names)}{', ...' if len(failed) > 3 else ''}" if batch else ""
    head = f"{len(failed)} of {len(converged)} samples"
    if isinstance(method, Sparse):
        worst = left[~converged].max().item()
        return (
            f"{head} did not converge within {method.max_iter} iterations (relative residual up to "
            f"{worst:.1e}, tol {method.tol:.1e}){where}. Use mnn_exact, raise max_iter, or pass "
            "check=False to go on with what there is."
        )
    return (
        f"{head} have no unique finite solution{where}. Likely causes: (a) too few initial values, "
        "(b) an equation with zero coefficients, (c) NaN, infinity or a step that is not positive"
        + (", (d) normal equations too ill-conditioned for Cholesky: use mnn_exact"
           if isinstance(method, Dense) else "")
        + ". Pass check=False to get the other samples."
    )  # fmt: skip
