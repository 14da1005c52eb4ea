"""Damped oscillators, solved by this library, its published predecessor and other packages.

$y'' + c_1 y' + c_0 y = 0$ with one pair of constants for each of `B` samples. Every candidate
computes $y$ at `T` times, and the gradient of one functional of $y$ by $c_0, c_1, y(0), y'(0)$.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import smnn
from _solvers import load_published

f64 = torch.float64
STEP, ORDER, RTOL, ATOL = 0.01, 4, 1e-5, 1e-8


class Data(NamedTuple):
    """Coefficients and initial values `(B, 2)`, times, functional, and what is to be found."""

    c: Tensor
    u: Tensor
    t: Tensor
    g: Tensor
    exact: Tensor
    """`(B, T)`"""
    exact_gradients: Tensor
    """`(B, 4)`"""


def make_data(B: int, T: int) -> Data:
    """Frequencies of 1 to 3, dampings of 2 to 20 % of the critical one."""
    draw = torch.Generator().manual_seed(0)
    w, z, *start = torch.rand(4, B, dtype=f64, generator=draw)
    w, z = 1 + 2 * w, 0.02 + 0.18 * z
    t = STEP * torch.arange(T, dtype=f64)
    g = torch.cos(torch.arange(B * T, dtype=f64)).view(B, T) / (B * T)
    leaves = torch.stack([w**2, 2 * z * w, *start], -1).requires_grad_()
    c0, c1, x, v = leaves.unsqueeze(1).unbind(-1)
    a = c1 / 2
    f = (c0 - a * a).sqrt()
    y = (-a * t).exp() * (x * (f * t).cos() + (v + a * x) / f * (f * t).sin())
    (gradients,) = torch.autograd.grad(y, leaves, g)
    c, u = leaves.detach().split(2, -1)
    return Data(c.contiguous(), u.contiguous(), t, g, y.detach(), gradients)


@dataclass
class Peer:
    """A way to solve the problem: `forward()` is `y (B, T)`, `both()` also gradients `(B, 4)`."""

    name: str
    forward: Callable[[], Any]
    both: Callable[[], tuple[Any, Any]]
    note: str = ""

    def errors(self, data: Data) -> tuple[float, float | None]:
        """Relative root mean square errors of the solution and of the gradients, if it has any."""
        y, gradients = (torch.from_numpy(np.array(x)) for x in self.both())
        pairs = (y, data.exact), (gradients, data.exact_gradients)
        first, second = (((a - b).norm() / b.norm()).item() for a, b in pairs)
        return first, None if np.isnan(second) else second


def with_autograd(
    name: str, data: Data, solve: Callable[[Tensor, Tensor], Tensor], note: str = ""
) -> Peer:
    """A solver of torch tensors, from `c (B, 2)` and `u (B, 2)` to `y (B, T)`."""
    leaves = [x.clone().requires_grad_() for x in (data.c, data.u)]

    def forward() -> Tensor:
        with torch.no_grad():
            return solve(data.c, data.u)

    def both() -> tuple[Tensor, Tensor]:
        y = solve(*leaves)
        return y.detach(), torch.cat(torch.autograd.grad(y, leaves, data.g), -1)

    return Peer(name, forward, both, note)


def ours(
    data: Data, solve: Callable[..., Tensor] = smnn.solve, name: str = "smnn", **options: Any
) -> Peer:
    """This library."""
    B, T = data.exact.shape
    d, s, one = torch.zeros(1, 1, 1, dtype=f64), data.t.diff()[:1].view(1, 1), data.c.new_ones(B, 1)

    def call(c: Tensor, u: Tensor) -> Tensor:
        c = torch.cat([c, one], -1).view(B, 1, 1, 1, 3)
        return solve(c, d, u.view(B, 1, 1, 2), s, order=ORDER, n_steps=T, **options)[..., 0, 0]

    return with_autograd(name, data, call)


def published(data: Data, checkout: Path, with_package: bool) -> Peer:
    """The solver published with the paper, which takes full tensors."""
    module = load_published(checkout)
    if not with_package:
        module.mnn = None
    elif module.mnn is None:
        raise ImportError("the C++ package `mnn` of the checkout is not installed")
    B, T = data.exact.shape
    d, s, one = data.c.new_zeros(B, T, 1), data.t.diff().repeat(B, 1), data.c.new_ones(B, 1)

    def call(c: Tensor, u: Tensor) -> Tensor:
        c = torch.cat([c, one, c.new_zeros(B, ORDER - 2)], -1)
        c = c.view(B, 1, 1, 1, ORDER + 1).expand(-1, T, -1, -1, -1)
        y: Tensor = module.ode_forward(c, d, u.view(B, 1, 1, 2), s)
        return y[..., 0, 0]

    note = "C++ package" if with_package else "pure Python"
    return with_autograd("published", data, call, note)


def torchdiffeq(data: Data) -> Peer:
    """`odeint` with dopri5, differentiated through its steps."""
    from torchdiffeq import odeint

    def call(c: Tensor, u: Tensor) -> Tensor:
        def f(_: Tensor, x: Tensor) -> Tensor:
            return torch.stack([x[:, 1], -(c * x).sum(1)], 1)

        y: Tensor = odeint(f, u, data.t, rtol=RTOL, atol=ATOL, method="dopri5")
        return y[..., 0].T

    return with_autograd("torchdiffeq", data, call, "dopri5")


def torchode(data: Data) -> Peer:
    """`Tsit5` with steps for each sample, differentiated through them."""
    import torchode as to

    t_eval = data.t.repeat(len(data.c), 1)

    def call(c: Tensor, u: Tensor) -> Tensor:
        def f(_: Tensor, x: Tensor) -> Tensor:
            return torch.stack([x[:, 1], -(c * x).sum(1)], 1)

        term = to.ODETerm(f)
        method = to.Tsit5(term=term)
        controller = to.IntegralController(atol=ATOL, rtol=RTOL, term=term)
        solver = to.AutoDiffAdjoint(method, controller)
        y: Tensor = solver.solve(to.InitialValueProblem(y0=u, t_eval=t_eval)).ys
        return y[..., 0]

    return with_autograd("torchode", data, call, "Tsit5")


def diffrax(data: Data, vmap: bool) -> Peer:
    """Jitted `diffeqsolve` with Tsit5: steps for each sample, or the same for all."""
    import diffrax as dx
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    t = jnp.asarray(data.t.numpy())
    c, u, g = (jnp.asarray(x.numpy()) for x in (data.c, data.u, data.g))
    controller = dx.PIDController(rtol=RTOL, atol=ATOL)

    def f(_: Any, x: Any, c: Any) -> Any:
        return jnp.stack([x[..., 1], -(c * x).sum(-1)], -1)

    def one(c: Any, u: Any) -> Any:
        found = dx.diffeqsolve(
            dx.ODETerm(f), dx.Tsit5(), t[0], t[-1], 0.05, u, c, saveat=dx.SaveAt(ts=t),
            stepsize_controller=controller, max_steps=4096,
        )  # fmt: skip
        return found.ys[..., 0]

    every = jax.vmap(one) if vmap else lambda c, u: one(c, u).T
    forward = jax.jit(every)

    @jax.jit
    def both(c: Any, u: Any) -> Any:
        y, back = jax.vjp(every, c, u)
        return y, jnp.concatenate(back(g), -1)

    note = "Tsit5, vmap" if vmap else "Tsit5, batch as one system"
    block = jax.block_until_ready
    return Peer("diffrax", lambda: block(forward(c, u)), lambda: block(both(c, u)), note)


def scipy(data: Data) -> Peer:
    """`solve_ivp` with RK45 on the batch as one system; it has no gradients."""
    from scipy.integrate import solve_ivp

    c, u, t = data.c.numpy(), data.u.numpy(), data.t.numpy()
    B = len(c)

    def forward() -> Any:
        def f(_: float, x: Any) -> Any:
            x = x.reshape(2, B)
            return np.concatenate([x[1], -c[:, 0] * x[0] - c[:, 1] * x[1]])

        return solve_ivp(f, t[[0, -1]], u.T.ravel(), t_eval=t, rtol=RTOL, atol=ATOL).y[:B]

    return Peer("SciPy", forward, lambda: (forward(), np.full((B, 4), np.nan)), "RK45")
