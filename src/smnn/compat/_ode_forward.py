"""`ode_forward` of ScalableMNN."""

from __future__ import annotations

from torch import Tensor

from smnn._solver.api import solve
from smnn._solver.problem import Weight
from smnn.errors import ShapeError, mismatch

AXES_BEHIND_TIME = {"coefficients": 3, "rhs_equation": 1, "init_vars": 2, "steps": 0}


def ode_forward(
    coefficients: Tensor, rhs_equation: Tensor, init_vars: Tensor, steps: Tensor,
    n_steps: int | None = None, n_init_var_steps: int | None = None,
    is_step_dim_first: bool = False, weight_equation: Weight = 1.0, weight_init_var: Weight = 1.0,
    weight_smooth: Weight = 1.0, enable_central_smoothness: bool = False,
    prefer_cuda_graph: bool = True, frozen_lhs_cache_version: int = 0,
) -> Tensor:  # fmt: skip
    """Call `smnn.solve` with the name and the arguments of the published package.

    Batch axes broadcast as in PyTorch; tensors may have different numbers of them. Arguments are
    converted to the dtype of `coefficients`, which is also that of the result. The arithmetic is
    float64.

    Args:
        coefficients: `(*B, T, Q, V, R+1)`. Time size 1 means constant in time.
        rhs_equation: `(*B, T, Q)`.
        init_vars: `(*B, T_init, V, R_init+1)`; may be empty.
        steps: `(*B, T-1)`, positive.
        n_steps: `T`; required if every tensor is constant in time and `T` is not 2.
        n_init_var_steps: `T_init`, to repeat `init_vars` of time size 1.
        is_step_dim_first: The time axis is the first of every tensor, including the result.
        weight_equation: Weight of the governing rows, a number or a tensor with one element.
        weight_init_var: Weight of the initial rows.
        weight_smooth: Weight of the smoothness rows.
        enable_central_smoothness: `scheme="central"` of `smnn.solve`.
        prefer_cuda_graph: Ignored: CUDA graphs are not needed.
        frozen_lhs_cache_version: Ignored: no factorization is cached between calls, so changes of
            the left-hand side take effect and are differentiated. To reuse a left-hand side, use
            `smnn.factorize`.

    Returns:
        `(*B, T, V, R+1)`, or `(T, *B, V, R+1)` with `is_step_dim_first`.

    Raises:
        ShapeError: An argument does not fit.
        SolveError: A sample has no unique finite solution.
    """
    del prefer_cuda_graph, frozen_lhs_cache_version
    given = (coefficients, rhs_equation, init_vars, steps)
    tensors = dict(zip(AXES_BEHIND_TIME, given))
    _require(tensors)
    if is_step_dim_first:
        tensors = {k: x.movedim(0, -1 - AXES_BEHIND_TIME[k]) for k, x in tensors.items()}
    batch_axes = max(x.ndim - 1 - AXES_BEHIND_TIME[k] for k, x in tensors.items())
    c, d, u, s = (
        x[(None,) * (batch_axes + 1 + AXES_BEHIND_TIME[k] - x.ndim)].to(coefficients.dtype)
        for k, x in tensors.items()
    )
    if n_steps is None:
        n_steps = max(c.shape[batch_axes], d.shape[batch_axes], s.shape[batch_axes] + 1)
    y = solve(
        c, d, _repeated(u, n_init_var_steps), s,
        w_gov=_weight("weight_equation", weight_equation, c),
        w_init=_weight("weight_init_var", weight_init_var, c),
        w_smooth=_weight("weight_smooth", weight_smooth, c),
        scheme="central" if enable_central_smoothness else "smnn", n_steps=n_steps,
    )  # fmt: skip
    return y.movedim(-3, 0) if is_step_dim_first else y


def _require(tensors: dict[str, Tensor]) -> None:
    for name, x in tensors.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}: got {type(x).__name__}; expected a torch.Tensor.")
        fewest = 1 + AXES_BEHIND_TIME[name]
        if x.ndim < fewest:
            raise mismatch(
                name, f"shape {tuple(x.shape)}", f"at least {fewest} axes", "See ode_forward."
            )


def _repeated(u: Tensor, times: int | None) -> Tensor:
    """Repeat the initial values of one time over several."""
    if times is None or u.shape[-3] == times:
        return u
    if u.shape[-3] != 1:
        raise ShapeError(
            f"init_vars: got {u.shape[-3]} times; expected n_init_var_steps = {times}, or 1 that "
            "is repeated."
        )
    return u.expand(*u.shape[:-3], times, *u.shape[-2:])


def _weight(name: str, w: Weight, like: Tensor) -> Weight:
    if not isinstance(w, Tensor):
        return float(w)
    if w.numel() != 1:
        raise mismatch(
            name, f"shape {tuple(w.shape)}", "one number",
            "Weights of single rows are arguments of smnn.solve.",
        )  # fmt: skip
    return w.reshape(()).to(like.dtype)
