"""The public functions: check the arguments, choose a backend, call the operators."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from smnn._backends.base import Backend
from smnn._backends.registry import choose_backend
from smnn._eager import (
    Signature,
    may_be_quick,
    remember,
    remembered,
    solve_like,
    solve_problem,
)
from smnn._errors import mismatch
from smnn._ops import adjoint
from smnn._problem import Problem, Weight, make_problem
from smnn._rows import central_rows, governing, initial, normal_residual, taylor_rows


class SolveInfo(NamedTuple):
    """How the solution of each sample came out, `(*B)` each."""

    status: Tensor
    """0 solved, 1 a step is not positive and finite, 2 not finite, 3 singular (int64)."""
    rcond: Tensor
    """Smallest pivot relative to its column; on the CPU, where that is doubtful, the smallest
    singular value relative to the columns."""
    weakest: Tensor
    """Where that pivot is: flattened index into `(T, V, R+1)` (int64)."""


class Residuals(NamedTuple):
    """Root mean square of the unweighted rows of each kind, `(*B)` each."""

    governing: Tensor
    """How well the equations hold."""
    initial: Tensor
    """How well the initial values hold."""
    smoothness: Tensor
    """How well each derivative is the derivative of the order below (rows scaled by `s^r`)."""


def solve(
    c: Tensor,
    d: Tensor,
    u: Tensor,
    s: Tensor,
    *,
    w_gov: Weight = 1.0,
    w_init: Weight = 1.0,
    w_smooth: Weight = 1.0,
    order: int | None = None,
    scheme: str = "smnn",
    n_steps: int | None = None,
    backend: str = "auto",
    check: bool = True,
) -> Tensor:
    r"""Solve a batch of linear ODEs in time and memory linear in `T`.

    Returns the exact minimiser of the weighted squares of the governing rows
    $\sum_{vr} c_{tqvr}\, y_{tvr} = d_{tq}$, the initial rows $y_{tvr} = u_{tvr}$, and the
    smoothness rows, which tie the derivatives at neighbouring times by their Taylor expansions.
    Differentiable in every tensor, any number of times.

    Args:
        c: `(*B, T, Q, V, R+1)` coefficients. Time size 1 means constant in time.
        d: `(*B, T, Q)` right-hand side.
        u: `(*B, T_init, V, R_init+1)` initial values on the first `T_init` times, for the orders
            `0..R_init`. May be empty.
        s: `(*B, T-1)` steps, or `(*B, T-1, V)` for a grid per variable. Positive.
        w_gov: Weight of the governing rows: a number, or a tensor that broadcasts against
            `(*B, T, Q)`. Zero removes a row. Weights enter squared.
        w_init: Weight of the initial rows, `(*B, T_init, V, R_init+1)`.
        w_smooth: Weight of the smoothness rows, `(*B, T-1, V, R+1)`; with `scheme="central"` the
            entry `[t, v, R]` belongs to the central row around time `t + 1`.
        order: Carry derivatives up to this order, beyond what `c` has. The error falls steeply
            with it.
        scheme: `"smnn"`, or `"central"` for central differences at the top order.
        n_steps: Number of times `T`, needed when `c`, `d` and `s` are all constant in time.
        backend: `"auto"` or a name in `available_backends()`.
        check: Raise if a sample has no unique finite solution. On a GPU this waits for the
            device; use `solve_ex` to avoid it.

    Returns:
        `y (*B, T, V, R+1)`: the trajectories with their derivatives.

    Raises:
        ShapeError: An argument does not fit; says what was got and what was expected.
        SolveError: A sample is singular or not finite; names it and the likely cause.
        BackendError: The backend cannot be used.

    Examples:
        $y' + y = 0,\ y(0) = 1$ on $[0, 1]$, carrying four derivatives:

        >>> import smnn, torch
        >>> c = torch.tensor([1.0, 1.0], dtype=torch.float64).view(1, 1, 1, 2)
        >>> d, u = c.new_zeros(1, 1), c.new_ones(1, 1, 1)
        >>> y = smnn.solve(c, d, u, c.new_full((100,), 0.01), order=4)
        >>> f"{y[-1, 0, 0]:.12f}"
        '0.367879441106'
    """
    weights = w_gov, w_init, w_smooth
    return _solve(c, d, u, s, weights, order, scheme, n_steps, backend, check=check)[0]


def solve_ex(
    c: Tensor,
    d: Tensor,
    u: Tensor,
    s: Tensor,
    *,
    w_gov: Weight = 1.0,
    w_init: Weight = 1.0,
    w_smooth: Weight = 1.0,
    order: int | None = None,
    scheme: str = "smnn",
    n_steps: int | None = None,
    backend: str = "auto",
) -> tuple[Tensor, SolveInfo]:
    """As `solve`, without raising and without waiting for the device.

    Failed samples are NaN in `y` and have a non-zero `info.status`; the others are not disturbed.
    """
    weights = w_gov, w_init, w_smooth
    return _solve(c, d, u, s, weights, order, scheme, n_steps, backend, check=False)


def _solve(
    c: Tensor,
    d: Tensor,
    u: Tensor,
    s: Tensor,
    weights: tuple[Weight, Weight, Weight],
    order: int | None,
    scheme: str,
    n_steps: int | None,
    backend: str,
    *,
    check: bool,
) -> tuple[Tensor, SolveInfo]:
    """Solve with what is remembered of an earlier call with the same shapes, or from the start."""
    tensors = c, d, u, s
    key = None
    if order is None and all(isinstance(w, float) for w in weights) and all(
        isinstance(x, Tensor) and x.dtype is torch.float64 for x in tensors
    ) and may_be_quick(tensors):  # fmt: skip
        layout = tuple((x.shape, x.stride(), x.device) for x in tensors)
        key = layout, weights, scheme, n_steps, backend, torch.get_num_threads()
        if (signature := remembered(key)) is not None:
            y, _, *info = solve_like(signature, tensors, check=check)
            return _shaped(y, info, signature.batch)
    w_gov, w_init, w_smooth = weights
    problem, batch = make_problem(
        c, d, u, s, w_gov=w_gov, w_init=w_init, w_smooth=w_smooth,
        order=order, scheme=scheme, n_steps=n_steps,
    )  # fmt: skip
    engine, pieces = _engine(problem, backend)
    y, _, *info = solve_problem(problem, batch, engine, pieces, check=check)
    if key is not None:
        remember(key, tensors, Signature(problem, batch, engine, pieces))
    y, told = _shaped(y, info, batch)
    return y.to(c.dtype), told


def _shaped(y: Tensor, info: list[Tensor], batch: tuple[int, ...]) -> tuple[Tensor, SolveInfo]:
    """Give the batch axes back."""
    if len(batch) == 1:
        return y, SolveInfo(*info)
    return y.view(batch + y.shape[1:]), SolveInfo(*(x.view(batch) for x in info))


def _engine(problem: Problem, backend: str) -> tuple[Backend, int]:
    B, T, V, m = problem.y_shape
    engine = choose_backend(backend, problem.c.device, V * m)
    reach = 2 if problem.scheme == "central" else 1
    return engine, engine.pieces(B, T, V * m, reach)


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
        engine, pieces = _engine(problem, backend)
        _, self._factor, *info = solve_problem(problem, batch, engine, pieces, check=check)
        self._problem, self._batch, self._dtype = problem, batch, dtype
        self._name, self._pieces = engine.name, pieces
        self.info = SolveInfo(*(x.view(batch) for x in info))

    def solve(self, d: Tensor, u: Tensor) -> Tensor:
        """Solve for `d (*B, T, Q)` and `u (*B, T_init, V, R_init+1)`.

        Differentiable in `d`, `u` and everything that was factorized. One step of refinement with
        the row residuals makes up for the rotations that are not kept.
        """
        problem, batch = self._problem, self._batch
        tail_d, tail_u = problem.w_gov.shape[1:], problem.w_init.shape[1:]
        d = self._fit("d", d, tail_d, time=1)
        u = self._fit("u", u, tail_u, time=0)
        whole = problem._replace(d=d, u=u)
        y = self._adjoint(normal_residual(whole, d.new_zeros(problem.y_shape)))
        y = y + self._adjoint(normal_residual(whole, y))
        return y.view(batch + y.shape[1:]).to(self._dtype)

    def _adjoint(self, g: Tensor) -> Tensor:
        c, _, _, s, w_gov, w_init, w_smooth, scheme = self._problem
        return adjoint(
            g, self._factor, c, s, w_gov, w_init, w_smooth, scheme, self._name, self._pieces
        )

    def _fit(self, name: str, x: Tensor, tail: tuple[int, ...], time: int) -> Tensor:
        from smnn._problem import fit

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
    c, s = c.clone(), s.clone()  # what is factored must not change with the caller's tensors
    w_gov, w_init, w_smooth = (
        w.clone() if isinstance(w, Tensor) else w for w in (w_gov, w_init, w_smooth)
    )
    nb, (Q, V) = c.ndim - 4, c.shape[-3:-1]
    d = c.new_zeros((1,) * (nb + 1) + (Q,))
    u = c.new_zeros((1,) * nb + (init_shape[0], V, init_shape[1]))
    problem, batch = make_problem(
        c, d, u, s, w_gov=w_gov, w_init=w_init, w_smooth=w_smooth,
        order=order, scheme=scheme, n_steps=n_steps,
    )  # fmt: skip
    return Factorization(problem, batch, backend, check=check, dtype=c.dtype)


def residuals(
    y: Tensor,
    c: Tensor,
    d: Tensor,
    u: Tensor,
    s: Tensor,
    *,
    w_gov: Weight = 1.0,
    w_init: Weight = 1.0,
    w_smooth: Weight = 1.0,
    order: int | None = None,
    scheme: str = "smnn",
) -> Residuals:
    """How well each kind of row holds for a solution `y`, per sample: the measure of trust.

    Rows of weight zero are left out. A governing residual far above rounding means that the
    equations contradict each other or the initial values; a large smoothness residual that the step
    is too long for the order carried.
    """
    problem, batch = make_problem(
        c, d, u, s, w_gov=w_gov, w_init=w_init, w_smooth=w_smooth,
        order=order, scheme=scheme, n_steps=y.shape[-3],
    )  # fmt: skip
    expected = batch + problem.y_shape[1:]
    if y.shape != expected:
        raise mismatch("y", f"shape {tuple(y.shape)}", f"{expected}", "It is what solve returns.")
    x = y.to(problem.c.dtype).reshape(problem.y_shape)
    top = x.shape[-1] - (scheme == "central")
    w = problem.w_smooth[..., :top]
    smooth = [(row, w) for row in taylor_rows(x, problem.s, scheme)]
    if scheme == "central" and x.shape[1] > 2:
        smooth.append((central_rows(x, problem.s), problem.w_smooth[:, :-1, :, -1]))
    parts = (
        [(governing(problem.c, x) - problem.d, problem.w_gov)],
        [(initial(x, problem.u) - problem.u, problem.w_init)],
        smooth,
    )
    return Residuals(*(_rms(part).view(batch).to(y.dtype) for part in parts))


def _rms(rows: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Root mean square over all rows of non-zero weight."""
    total = torch.stack([(r.square() * (w != 0)).flatten(1).sum(1) for r, w in rows]).sum(0)
    count = torch.stack([(w != 0).flatten(1).sum(1) for _, w in rows]).sum(0)
    return (total / count.clamp(min=1)).sqrt()
