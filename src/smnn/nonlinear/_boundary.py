"""Boundary value problems."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from smnn.nonlinear._collocation import Collocation, named, with_jacobian
from smnn.nonlinear._initial import Tolerances, check_times
from smnn.nonlinear._newton import correction, differentiable, global_errors, newton
from smnn.nonlinear._solution import Solution, not_a_number


class _Boundary:
    """Conditions on both ends. The first node is carried along, as further states `a`."""

    def __init__(self, bc: Callable[..., Tensor], V: int, names: tuple[str, ...]) -> None:
        self.bc, self.V, self.names = bc, V, names

    def _ends(self, last: Tensor) -> Tensor:
        """`bc` from the last node `(y, p, a)` of one sample."""
        V, P = self.V, len(self.names)
        args = [last[V + P :], last[:V]]
        if self.names:
            args.append({x: last[V + i] for i, x in enumerate(self.names)})  # type: ignore[arg-type]
        return self.bc(*args)

    def rows(self, x: Tensor) -> Tensor:
        B, N, M = x.shape
        V = self.V
        value, jacobian = with_jacobian(self._ends, x[:, -1])
        out = x.new_zeros(B, N, max(V, value.shape[1]), M + 1)
        eye = torch.eye(V, dtype=x.dtype, device=x.device)
        out[:, 0, :V, :V], out[:, 0, :V, M - V : M] = -eye, eye
        out[:, 0, :V, M] = x[:, 0, :V] - x[:, 0, M - V :]
        out[:, -1, : value.shape[1], :M] = jacobian
        out[:, -1, : value.shape[1], M] = -value
        return out

    def residual(self, x: Tensor) -> Tensor:
        same = x[:, 0, x.shape[2] - self.V :] - x[:, 0, : self.V]
        return torch.cat([same, torch.func.vmap(self._ends)(x[:, -1])], 1)


def solve_bvp(
    f: Callable[..., Tensor],
    bc: Callable[..., Tensor],
    t: Tensor,
    guess: Tensor,
    params: dict[str, Tensor | float] | None = None,
    *,
    rtol: float = 1e-6,
    atol: float = 1e-9,
    stages: int = 5,
    max_iterations: int = 40,
    max_steps: int = 20_000,
) -> Solution:
    """Solve a boundary value problem, with implicit gradients.

    Args:
        f: `f(t, y)`, or `f(t, y, p)`; see `odeint`.
        bc: `bc(ya, yb)`, or `bc(ya, yb, p)`: what has to be zero, `(V + P,)`, from the values
            `(V,)` at both ends and the `P` unknown parameters.
        t: `(N,)` times in order; the first mesh.
        guess: `(*B, N, V)` where the iteration starts. Problems with several solutions converge to
            one near the guess.
        params: Guesses of unknown parameters: numbers, or `(*B)`.
        rtol: Tolerance relative to the solution; steps are cut until their estimated errors are
            below the tolerances.
        atol: Absolute tolerance.
        stages: Collocation points per step; the order is `2 stages - 1`.
        max_iterations: Limit for the damped Newton iterations on one mesh.
        max_steps: Limit for the number of steps.

    Returns:
        A `Solution`; its gradients are those by all tensors in `f` and `bc`.
    """
    batch, t = check_times(guess.shape[:-2], t, guess)
    V, names = guess.shape[-1], tuple(params or ())
    if guess.shape[-2] != len(t):
        raise ValueError(
            f"guess: got {guess.shape[-2]} times; expected {len(t)} as t has: (*B, N, V)."
        )
    y = guess.detach().reshape(-1, len(t), V).double()
    B, rows = len(y), _Boundary(bc, V, names)
    constants = torch.cat([named(params, batch, t).detach(), y[:, 0]], 1)
    x = torch.cat([y, constants[:, None].expand(-1, len(t), -1)], -1)
    count = rows.residual(x[:, [0, -1]]).shape[1] - V
    if count != V + len(names):
        raise ValueError(
            f"bc: got {count} conditions; expected {V + len(names)}, as many as variables and "
            "unknown parameters."
        )
    system = Collocation(f, V, names, t.expand(B, -1), stages)
    weight, tolerances = torch.ones_like(x[:, 0]), Tolerances(rtol, atol)
    Z, iterations = system.flat(x), 0
    with torch.no_grad():
        for _ in range(12):
            for monotone in ("corrections", "residuals"):
                found = newton(
                    system, rows, x, Z, weight, floor=atol, max_iterations=max_iterations,
                    monotone=monotone,
                )  # fmt: skip
                iterations += found.iterations
                if bool(found.converged.all()):
                    break
            if not bool(found.converged.any()):
                break
            error = tolerances.measure(system.local_errors(found.x, found.Z), found.x[:, 1:, :V])
            parts = tolerances.parts(torch.where(found.converged[:, None], error, 0.0), stages)
            if int(parts.max()) == 1 or int(parts.sum()) > max_steps:
                break
            system, x, Z = system.resampled(found.x, found.Z, parts)
        step = correction(system, rows, found.x, found.Z, weight)
        error = tolerances.measure(
            global_errors(system, rows, found.x, found.Z, weight)[..., :V], found.x[..., :V]
        ).amax(1)
    reasons = []
    for good, size, left in zip(found.converged.tolist(), error.tolist(), found.size.tolist()):
        reason = "" if good else f"Newton's method did not converge (last correction {left:.1e})"
        if good and size > 1000:
            reason = f"the estimated error is {size:.1e} times the tolerance"
        reasons.append(reason)
    x = differentiable(system, rows, found.x, found.Z, weight, step)
    x = not_a_number(x, found.converged)
    places = torch.isin(system.t[0], t).nonzero().flatten()
    return Solution(
        t=t, y=x[:, places, :V].reshape(*batch, len(t), V).to(guess.dtype),
        params={name: x[:, 0, V + i].reshape(batch) for i, name in enumerate(names)},
        ok=torch.tensor([not r for r in reasons], device=t.device).reshape(batch),
        reasons=tuple(reasons), error=error.reshape(batch), iterations=iterations,
        mesh=system.t[0], _dense=(system, found.x, found.Z),
    )  # fmt: skip
