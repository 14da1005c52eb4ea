"""Checks of a system: values needed, growth of its solutions, contradictions in a solution."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from smnn._solver.api import Residuals
from smnn._util.optional import require
from smnn.equations._system import EquationError, EquationSystem, SystemTensors

MAX_SAMPLES = 200
"""Times at which coefficients that depend on time are examined."""
CONTRADICTION = 1e-6
"""Residual, relative to the terms of the equations or values, beyond rounding."""


def required_values(c: np.ndarray) -> int | None:
    """Number of values that determine a solution of `V` equations for `V` variables.

    This is the degree in `x` of `det(sum_r c_r x^r)`: the sum of the orders, less what algebraic
    equations take away. The median over time ignores singular points.

    Args:
        c: `(T or 1, V, V, R+1)` coefficients.

    Returns:
        The number, or `None` if the equations are linearly dependent.
    """
    c = c[_samples(c), None]
    x = np.array([[1e4], [2e4]]) ** np.arange(c.shape[-1])
    with np.errstate(all="ignore"):
        c = c / np.abs(c).max((-2, -1), keepdims=True)
        size = np.linalg.slogdet((c * x[:, None, None]).sum(-1)).logabsdet  # (samples, 2)
    regular = size[(size > -600).all(1)]
    return round(float(np.median(np.diff(regular) / np.log(2)))) if len(regular) else None


def _samples(c: np.ndarray) -> np.ndarray:
    """Indices of at most `MAX_SAMPLES` times."""
    count = min(len(c), MAX_SAMPLES)
    return np.unique(np.linspace(0, len(c) - 1, count).round().astype(int))


def check_values(system: EquationSystem, c: np.ndarray) -> bool:
    """Whether the prescribed values are exactly as many as the equations need.

    Too many are allowed, as in a fit. With too few, the solver would return the smoothest solution.

    Raises:
        EquationError: There are too few values, or the equations are linearly dependent.
    """
    if len(system.equations) != len(system.variables):
        return False
    needed = required_values(c)
    if needed is None:
        raise EquationError(
            "the equations depend on each other, so that no values make the solution unique. Are "
            "two of them equivalent?"
        )
    given = len({(v.variable, v.order, v.time) for v in system.values})
    if given >= needed:
        return given == needed
    missing = [
        f"{name}{chr(39) * r}({system.start:g})"
        for v, (name, top) in enumerate(zip(system.variables, system.orders))
        for r in range(top)
        if not any(x.variable == v and x.order == r for x in system.values)
    ]
    hint = f" Perhaps {' or '.join(missing)} is missing." if missing else ""
    raise EquationError(
        f"got {given} value{'s' * (given != 1)}, and the equations need {needed} to have one "
        f"solution.{hint}"
    )


def log_growth(c: np.ndarray, t: np.ndarray, start: float) -> np.ndarray:
    """Estimate how far solutions may grow since `start`: natural logarithm of the factor, `(T,)`.

    Integrates the largest real part of the eigenvalues of the equations with coefficients frozen
    in time. Residuals are minimized together, so where solutions grow by many powers of ten, the
    rows at the large end outweigh those at the start and the prescribed values are lost. Weights
    `exp(-log_growth)` on the rows restore the balance.

    Args:
        c: `(T or 1, V, V, R+1)` coefficients.
        t: `(T,)` times.
        start: Time of all prescribed values.
    """
    samples = _samples(c)
    rates = np.array([_growth_rates(c[i]) for i in samples])  # (samples, 2)
    at = t[samples] if len(c) > 1 else t[:1]
    origin = int(np.abs(t - start).argmin())
    forward, backward = (
        np.concatenate([[0.0], np.cumsum(np.diff(t) * (rate[1:] + rate[:-1]) / 2)])
        for rate in (np.maximum(np.interp(t, at, rates[:, k]), 0.0) for k in (0, 1))
    )
    later = np.arange(len(t)) >= origin
    return np.where(later, forward - forward[origin], backward[origin] - backward)


def _growth_rates(c: np.ndarray) -> tuple[float, float]:
    """Fastest growth forward and backward in time, for constant coefficients `(V, V, R+1)`."""
    eigvals = require("scipy.linalg", "estimate the growth of solutions").eigvals
    V, R = c.shape[0], c.shape[-1] - 1
    A, B = np.eye(V * R, k=V), np.eye(V * R)
    A[-V:] = -np.concatenate(list(np.moveaxis(c[..., :R], -1, 0)), axis=1)
    B[-V:, -V:] = c[..., R]
    with np.errstate(all="ignore"):
        eigenvalues = eigvals(A, B)
    # Algebraic equations have eigenvalues at infinity, which belong to no solution.
    real = eigenvalues.real[np.isfinite(eigenvalues) & (np.abs(eigenvalues) < 1e8)]
    return (float(real.max()), float(-real.min())) if len(real) else (0.0, 0.0)


def contradictions(p: SystemTensors, y: Tensor, residuals: Residuals) -> list[str]:
    """Describe equations or prescribed values that a least-squares solution does not fulfil.

    Args:
        p: The system.
        y: `(T, V, R+1)` or more orders: its solution.
        residuals: Of the solution, from `smnn.residuals`.
    """
    terms = float((p.c * y[..., : p.c.shape[-1]].unsqueeze(1)).abs().max())
    values = float(p.u.abs().max()) if p.u.numel() else 0.0
    parts = (
        ("equations", residuals.governing, max(terms, float(p.d.abs().max()))),
        ("prescribed values", residuals.initial, max(values, float(y[..., 0].abs().max()))),
    )
    return [
        f"the {what} do not hold: their residual is {float(residual):.1e} (root mean square). Are "
        "there more values or equations than can hold at once, or is the step too long?"
        for what, residual, scale in parts
        if float(residual) > CONTRADICTION * max(scale, 1e-300)
    ]
