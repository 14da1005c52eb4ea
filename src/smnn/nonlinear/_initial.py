"""Initial value problems: windows of steps, each solved by Newton's method."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from smnn.nonlinear._collocation import Collocation, named
from smnn.nonlinear._newton import correction, differentiable, global_errors, newton
from smnn.nonlinear._solution import Solution, not_a_number

FIRST_WINDOW = 2
MOST_PARTS = 8
"""Into how many parts a step is cut at a time."""


class _Start(NamedTuple):
    """The first node is given, `(B, M)`."""

    start: Tensor

    def rows(self, x: Tensor) -> Tensor:
        B, N, M = x.shape
        out = x.new_zeros(B, N, M, M + 1)
        out[:, 0, :, :M] = torch.eye(M, dtype=x.dtype, device=x.device)
        out[:, 0, :, M] = self.start.detach() - x[:, 0]
        return out

    def residual(self, x: Tensor) -> Tensor:
        return x[:, 0] - self.start


class March(NamedTuple):
    """A trajectory on its mesh."""

    system: Collocation
    x: Tensor
    Z: Tensor
    alive: Tensor
    """`(B,)` samples that reached the end."""
    reasons: list[str]
    iterations: int


class Tolerances(NamedTuple):
    """Errors are measured in units of `atol + rtol |y|`."""

    rtol: float
    atol: float

    def measure(self, error: Tensor, y: Tensor) -> Tensor:
        """The largest error over all variables; infinite where it is not finite."""
        size = (error.abs() / (self.atol + self.rtol * y.abs())).amax(-1)
        return torch.nan_to_num(size, nan=torch.inf)

    def parts(self, error: Tensor, stages: int) -> Tensor:
        """Into how many parts to cut each step, from `(B, K)` errors."""
        worst = error.amax(0)
        parts = (1.2 * worst ** (1 / (stages + 1))).ceil().clamp(2, MOST_PARTS)
        return torch.where(worst > 1, parts, 1.0).long()


def march(system: Collocation, start: Tensor, tolerances: Tolerances, max_steps: int) -> March:
    """Solve from the first node on, in windows that grow while the iteration converges.

    Args:
        system: With the first mesh.
        start: `(B, M)` first node.
        tolerances: Cut steps with larger errors.
        max_steps: Limit for the number of steps.
    """
    nodes, weight = [start[:, None]], torch.ones_like(start)
    alive = torch.ones(len(start), dtype=torch.bool, device=start.device)
    todo, meshes, values, reasons = system.t, [system.t[:, :1]], [], [""] * len(start)
    size, iterations, steps = FIRST_WINDOW, 0, 0
    span = (system.t[:, -1] - system.t[:, 0]).abs().max().item()
    while todo.shape[1] > 1:
        window = system.on(todo[:, : size + 1])
        count = window.t.shape[1] - 1
        x = nodes[-1][:, -1:].expand(-1, count + 1, -1)
        Z, rows, refined = window.flat(x), _Start(x[:, 0]), 0
        while True:
            found = newton(window, rows, x, Z, weight, floor=tolerances.atol, max_iterations=15)
            iterations += found.iterations
            failed = ~found.converged & alive
            if bool(failed.any()) or refined > 12:
                break
            error = tolerances.measure(
                window.local_errors(found.x, found.Z), found.x[:, 1:, : system.V]
            )
            parts = tolerances.parts(torch.where(alive[:, None], error, 0.0), system.stages)
            if int(parts.max()) == 1 or steps + int(parts.sum()) > max_steps:
                break
            window, x, Z = window.resampled(found.x, found.Z, parts)
            refined += 1
        if bool(failed.any()):
            if count > 1:
                size = max(1, count // 4)
                continue
            step = (todo[0, 1] - todo[0, 0]).item()
            if abs(step) > 1e-13 * span and steps + todo.shape[1] < max_steps:
                middle = (todo[:, :1] + todo[:, 1:2]) / 2
                todo = torch.cat([todo[:, :1], middle, todo[:, 1:]], 1)
                continue
            for i in failed.nonzero().flatten().tolist():
                reasons[i] = (
                    f"Newton's method failed at t = {todo[i, 0].item():.6g} with a step of "
                    f"{step:.1e}; the solution may not exist beyond"
                )
            alive = alive & ~failed
            if not bool(alive.any()):
                break
        meshes.append(window.t[:, 1:])
        nodes.append(found.x[:, 1:])
        values.append(found.Z)
        steps += window.t.shape[1] - 1
        todo = todo[:, count:]
        size = 2 * count if found.iterations <= 8 else max(1, count // 2)
    if not values:
        values = [start.new_zeros(len(start), 0, system.stages, system.V)]
    x, Z = torch.cat(nodes, 1), torch.cat(values, 1)
    return March(system.on(torch.cat(meshes, 1)), x, Z, alive, reasons, iterations)


def odeint(
    f: Callable[..., Tensor],
    y0: Tensor,
    t: Tensor,
    params: dict[str, Tensor | float] | None = None,
    *,
    rtol: float = 1e-6,
    atol: float = 1e-9,
    stages: int = 5,
    max_steps: int = 20_000,
) -> Solution:
    r"""Solve an initial value problem, stiff or not, with implicit gradients.

    Radau collocation on the whole trajectory: steps are cut until the estimated error of each is
    below the tolerances. The gradient by `y0`, `params` and all tensors in `f` takes one more
    linear solve and does not depend on the number of iterations. For initial value problems alone,
    jitted solvers such as those of diffrax are faster.

    Args:
        f: `f(t, y)`, or `f(t, y, p)` with a dictionary of parameters, for one state `y (V,)`;
            returns its derivative `(V,)`. Plain torch operations, which run under
            `torch.func.vmap`.
        y0: `(*B, V)` initial values.
        t: `(N,)` times, increasing or decreasing; `y0` belongs to the first. They are the first
            mesh.
        params: Numbers, or tensors with one value per sample, `(*B)`.
        rtol: Tolerance relative to the solution.
        atol: Absolute tolerance.
        stages: Collocation points per step; the order is `2 stages - 1`.
        max_steps: Limit for the number of steps.

    Returns:
        A `Solution` with `y (*B, N, V)`, `ok`, and the `reasons` where a sample failed.

    Examples:
        >>> import smnn, torch
        >>> t = torch.linspace(0, 1, 11, dtype=torch.float64)
        >>> found = smnn.odeint(lambda t, y: -y, torch.ones(1, dtype=torch.float64), t, rtol=1e-9)
        >>> f"{found.y[-1, 0]:.9f}"
        '0.367879441'
    """
    batch, t = check_times(y0.shape[:-1], t, y0)
    flat = torch.cat([y0.reshape(-1, y0.shape[-1]).to(t), named(params, batch, t)], -1)
    mesh = t.expand(len(flat), -1)
    system = Collocation(f, y0.shape[-1], tuple(params or ()), mesh, stages)
    tolerances = Tolerances(rtol, atol)
    with torch.no_grad():
        found = march(system, flat.detach(), tolerances, max_steps)
    weight, rows = torch.ones_like(flat), _Start(flat)
    if not bool(found.alive.any()):
        return _failed(found, t, batch, system)
    with torch.no_grad():
        step = correction(found.system, rows, found.x, found.Z, weight)
        error = global_errors(found.system, rows, found.x, found.Z, weight)[..., : system.V]
        places = torch.isin(found.system.t[0], t).nonzero().flatten()
        error = tolerances.measure(error, found.x[..., : system.V])[:, places].amax(1)
    for i, size in enumerate(error.tolist()):
        if found.alive[i] and size > 1000:
            found.reasons[i] = f"the estimated error is {size:.1e} times the tolerance"
    x = differentiable(found.system, rows, found.x, found.Z, weight, step)
    y = not_a_number(x, found.alive)[:, places, : system.V]
    ok = torch.tensor([not r for r in found.reasons], device=t.device)
    return Solution(
        t=t, y=y.reshape(*batch, *y.shape[1:]).to(y0.dtype), ok=ok.reshape(batch),
        params={x: flat[:, system.V + i].reshape(batch) for i, x in enumerate(params or {})},
        reasons=tuple(found.reasons), error=error.reshape(batch), iterations=found.iterations,
        mesh=found.system.t[0], _dense=(found.system, found.x, found.Z),
    )  # fmt: skip


def _failed(found: March, t: Tensor, batch: tuple[int, ...], system: Collocation) -> Solution:
    unknown = t.new_full(batch, torch.nan)
    return Solution(
        t=t, y=t.new_full((*batch, len(t), system.V), torch.nan),
        params={x: unknown for x in system.names},
        ok=torch.zeros(batch, dtype=torch.bool, device=t.device), reasons=tuple(found.reasons),
        error=unknown, iterations=found.iterations, mesh=found.system.t[0],
    )  # fmt: skip


def check_times(batch: tuple[int, ...], t: Tensor, like: Tensor) -> tuple[tuple[int, ...], Tensor]:
    """Batch axes, and the times in double precision, if they are in order."""
    t = torch.as_tensor(t, device=like.device).detach().double()
    steps = t.diff() if t.ndim == 1 else t
    if t.ndim != 1 or len(t) < 2 or not bool((steps > 0).all() or (steps < 0).all()):
        raise ValueError(
            f"t: got shape {tuple(t.shape)}; expected at least two times (N,) in strictly "
            "increasing or decreasing order."
        )
    if not bool(t.isfinite().all()):
        raise ValueError("t: got a time that is not finite; expected finite numbers.")
    return tuple(batch), t
