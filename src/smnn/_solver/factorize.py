"""One left-hand side, many right-hand sides."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from smnn._solver.condition import SolveInfo, condition_number, engine_for, refuse_noise
from smnn._solver.eager import solve_problem
from smnn._solver.ops import adjoint
from smnn._solver.problem import Problem, Weight, fit, make_problem, with_orders
from smnn._solver.rows import normal_residual
from smnn.errors import mismatch


class Factorization:
    """A left-hand side that is solved for many right-hand sides. Made by `factorize`."""

    def __init__(
        self,
        problem: Problem,
        batch: tuple[int, ...],
        backend: str,
        *,
        check: bool,
        dtype: torch.dtype,
    ) -> None:
        engine, pieces = engine_for(problem, backend)
        _, factor, *info = solve_problem(problem, batch, engine, pieces, check=check)
        if check:
            refuse_noise(problem, batch, engine, pieces, factor, info)
        self._problem, self._batch, self._dtype = problem, batch, dtype
        self._engine, self._pieces, self._factor = engine, pieces, factor
        self.info = SolveInfo(*(x.view(batch) for x in info))

    def condition(self) -> Tensor:
        """Estimated condition number of each sample, `(*B)`.

        Of the weighted rows with columns of norm one: the factor by which rounding, and any other
        relative error of the inputs, may be larger in the solution. A lower bound by iteration, in
        practice within a factor of three. Above 1e15 there is no answer in float64.
        """
        estimate, _ = condition_number(
            self._problem,
            self._engine,
            self._pieces,
            self._factor,
            self.info.weakest.flatten(),
            closely=True,
        )
        return estimate.view(self._batch)

    def solve(self, d: Tensor, u: Tensor) -> Tensor:
        """Solve for `d (*E, *B, T, Q)` and `u (*E, *B, T_init, V, R_init+1)`.

        Further axes `*E` in front of the batch of the factor hold further right-hand sides. They
        may be in both or in one; a size of 1 broadcasts.

        Differentiable in `d`, `u` and everything that was factorized. One step of refinement with
        the row residuals makes up for the rotations that are not kept.

        Returns:
            `y (*E, *B, T, V, R+1)`.
        """
        extra, d, u = self._many(d, u)
        if extra is None:
            return self._solve(d, u)
        results = [self._solve(*one) for one in zip(d, u, strict=True)]
        shape = extra + self._batch + tuple(self._problem.y_shape[1:])
        return torch.stack(results).view(shape) if results else d.new_empty(shape)

    def _many(self, d: Tensor, u: Tensor) -> tuple[tuple[int, ...] | None, Tensor, Tensor]:
        """The axes in front of the batch, merged into one in both; `None` if there are none."""
        if not (isinstance(d, Tensor) and isinstance(u, Tensor)):
            return None, d, u  # `fit` says what is wrong
        nb = len(self._batch)
        front_d = tuple(d.shape[: max(d.ndim - nb - 2, 0)])
        front_u = tuple(u.shape[: max(u.ndim - nb - 3, 0)])
        if not front_d and not front_u:
            return None, d, u
        if not front_d:
            d, front_d = d.view((1,) * len(front_u) + d.shape), (1,) * len(front_u)
        if not front_u:
            u, front_u = u.view((1,) * len(front_d) + u.shape), (1,) * len(front_d)
        if len(front_d) != len(front_u) or any(
            a != b and 1 not in (a, b) for a, b in zip(front_d, front_u, strict=True)
        ):
            raise mismatch(
                "u",
                f"{front_u} in front of the batch",
                f"{front_d} as d has, with 1 where it broadcasts",
                "Axes in front of the batch of the factor number right-hand sides.",
            )
        extra = tuple(torch.broadcast_shapes(front_d, front_u))
        k, count = len(extra), math.prod(extra)
        d, u = (x.expand(extra + x.shape[k:]).reshape((count, *x.shape[k:])) for x in (d, u))
        return extra, d, u

    def _solve(self, d: Tensor, u: Tensor) -> Tensor:
        problem = self._problem
        d = self._fit("d", d, problem.w_gov.shape[1:], time=1)
        u = self._fit("u", u, problem.w_init.shape[1:], time=0)
        whole = problem._replace(d=d, u=u)
        y = self._adjoint(normal_residual(whole, d.new_zeros(problem.y_shape)))
        y = y + self._adjoint(normal_residual(whole, y))
        return y.view(self._batch + y.shape[1:]).to(self._dtype)

    def _adjoint(self, g: Tensor) -> Tensor:
        c, _, _, s, w_gov, w_init, w_smooth, scheme = self._problem
        left = c, s, w_gov, w_init, w_smooth, scheme
        return adjoint(g, self._factor, *left, self._engine.name, self._pieces)

    def _fit(self, name: str, x: Tensor, tail: tuple[int, ...], time: int) -> Tensor:
        return fit(name, x, self._batch, tail, self._dtype, self._problem.c.device, time=time)


def factorize(
    c: Tensor,
    s: Tensor,
    *,
    init_shape: tuple[int, int] = (1, 1),
    w_gov: Weight = 1.0,
    w_init: Weight = 1.0,
    w_smooth: Weight = 1.0,
    order: int | None = None,
    scheme: str = "smnn",
    n_steps: int | None = None,
    backend: str = "auto",
    check: bool = True,
) -> Factorization:
    """Factor a left-hand side once, to solve it for many right-hand sides.

    The factor belongs to the returned object: nothing is cached elsewhere, and changing `c`
    afterwards changes nothing.

    Args:
        c: As in `solve`.
        s: As in `solve`.
        init_shape: `(T_init, R_init+1)` of the initial values that `solve(d, u)` will be given.
        w_gov: As in `solve`.
        w_init: As in `solve`.
        w_smooth: As in `solve`.
        order: As in `solve`.
        scheme: As in `solve`.
        n_steps: As in `solve`.
        backend: As in `solve`.
        check: As in `solve`.
    """
    c, s = (
        with_orders(c, order).clone(),
        s.clone(),
    )  # what is factored must not change with the caller's tensors
    w_gov, w_init, w_smooth = (
        w.clone() if isinstance(w, Tensor) else w for w in (w_gov, w_init, w_smooth)
    )
    nb, (Q, V) = c.ndim - 4, c.shape[-3:-1]
    d = c.new_zeros((1,) * (nb + 1) + (Q,))
    u = c.new_zeros((1,) * nb + (init_shape[0], V, init_shape[1]))
    problem, batch = make_problem(
        c, d, u, s, w_gov=w_gov, w_init=w_init, w_smooth=w_smooth, scheme=scheme, n_steps=n_steps
    )
    return Factorization(problem, batch, backend, check=check, dtype=c.dtype)
