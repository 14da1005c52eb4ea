"""Who solves it: each candidate is a forward call, and a backward call on what it returned."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import smnn
from smnn._util.optional import require
from smnn.experiments.bench.cases import INPUTS, STEP, Case, Data, relative_mse


@dataclass
class Candidate:
    """One way to solve a case."""

    name: str
    forward: Callable[[bool], Tensor]
    """Solve; the argument says whether gradients will be asked for. Result `(B, T, V)` or more."""
    backward: Callable[[Tensor], Any] | None
    """Gradients of a fixed functional of the result, for every input."""
    error: float
    """Relative MSE against the closed form."""
    note: str = ""


def scale(y: Tensor) -> Tensor:
    """Powers of the step for the orders `0..R`: `s^r y_r` are the variables of comparable size."""
    return STEP ** torch.arange(y.shape[-1], dtype=y.dtype)


def with_gradients(
    name: str,
    data: Data,
    solve: Callable[[dict[str, Tensor]], Tensor],
    note: str = "",
    whole: int | None = None,
) -> Candidate:
    """A solver that maps c, d, u, s to `(B, T, V, R+1)` and can be differentiated.

    Args:
        name: For the table.
        data: What is solved.
        solve: The solver.
        note: For the table.
        whole: Number of samples of which `data` is a part, for the same gradients as of the whole.
    """
    plain, leaves = data.inputs(grad=False), data.inputs(grad=True)
    y = solve(plain)
    count = y[0].numel() * (whole or len(y))
    g = torch.cos(torch.arange(y.numel(), dtype=y.dtype)).view(y.shape) / count * scale(y)
    return Candidate(
        name,
        lambda grad: solve(leaves if grad else plain),
        lambda result: torch.autograd.grad(result, [leaves[k] for k in INPUTS], g),
        relative_mse(y[..., 0], data.exact),
        note,
    )


def smnn_candidate(data: Data, backend: str, whole: int | None = None) -> Candidate:
    """This library."""
    name = "smnn" if backend == "auto" else f"smnn, {backend} backend"
    return with_gradients(
        name,
        data,
        lambda x: smnn.solve(x["c"], x["d"], x["u"], x["s"], backend=backend),
        whole=whole,
    )


def scipy_candidate(case: Case, data: Data, method: str, target: float) -> Candidate:
    """`solve_ivp` on the whole batch as one system, at the loosest tolerance that is as exact."""
    solve_ivp = require("scipy.integrate", "compare with SciPy").solve_ivp

    t = STEP * np.arange(case.T)
    a, x0 = data.A.numpy().reshape(case.B), data.u.numpy().reshape(case.B)

    def f(now: float, x: Any) -> Any:
        return a * (math.cos(now) - x) - math.sin(now)

    def forward(rtol: float) -> Tensor:
        out = solve_ivp(f, (0, t[-1]), x0, method, t_eval=t, rtol=rtol, atol=rtol / 100)
        return torch.from_numpy(out.y).T[..., None].transpose(0, 1)

    rtol, error = _loosest(forward, data.exact, target, case)
    return Candidate(f"scipy {method}", lambda _: forward(rtol), None, error, f"rtol {rtol:.0e}")


def torchdiffeq_candidate(case: Case, data: Data, target: float) -> Candidate:
    """`odeint` with dopri5, differentiated through its steps, by A and x(0)."""
    odeint = require("torchdiffeq", "compare with torchdiffeq").odeint

    t = STEP * torch.arange(case.T, dtype=torch.float64)
    plain = [data.A.reshape(case.B), data.u.reshape(case.B)]
    leaves = [x.clone().requires_grad_() for x in plain]

    def forward(rtol: float, grad: bool) -> Tensor:
        a, x0 = leaves if grad else plain

        def f(now: Tensor, x: Tensor) -> Tensor:
            angle = now.item()
            return a * (math.cos(angle) - x) - math.sin(angle)

        x = odeint(f, x0, t, rtol=rtol, atol=rtol / 100, method="dopri5")
        return x.T[..., None]

    rtol, error = _loosest(lambda r: forward(r, False), data.exact, target, case)
    g = torch.cos(torch.arange(data.exact.numel(), dtype=torch.float64)).view(data.exact.shape)
    return Candidate(
        "torchdiffeq dopri5",
        lambda grad: forward(rtol, grad),
        lambda x: torch.autograd.grad(x, leaves, g / g.numel()),
        error,
        f"rtol {rtol:.0e}",
    )


def _loosest(
    forward: Callable[[float], Tensor], exact: Tensor, target: float, case: Case
) -> tuple[float, float]:
    """The largest tolerance whose error is at most `target`, and that error."""
    if case.V != 1:
        raise ValueError("the peers are written for one variable per sample")
    for digits in range(3, 13):
        error = relative_mse(forward(10.0**-digits), exact)
        if error <= target:
            break
    return 10.0**-digits, error
