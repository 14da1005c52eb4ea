"""Trajectories of a model that was found."""

from __future__ import annotations

from typing import Any

import numpy as np

from smnn.discovery._fit.arrays import Array
from smnn.discovery._fit.flow import Model
from smnn.discovery._fit.series import DataError

TOLERANCE = 1e-8
ESCAPE = 1e4
"""A state this many times as large as the data has left them for good."""


def simulate(
    model: Model, z0: Array, t: Array, U: Array | None, scale: Array, tolerance: float = TOLERANCE
) -> Array:
    """Integrate from an initial state.

    Args:
        model: The right-hand side.
        z0: (D,) initial state.
        t: (T,) increasing times; the first is that of the initial state.
        U: (T, inputs) inputs at these times, or `None`.
        scale: (D,) typical size of the states.
        tolerance: Relative error of a step.

    Returns:
        (T, D) states; NaN from where the trajectory runs away or cannot be followed.
    """
    from scipy.integrate import solve_ivp
    from scipy.interpolate import PchipInterpolator

    driven: Any = None
    if U is not None and U.shape[1]:
        if len(U) != len(t):
            raise DataError(f"inputs has {len(U)} rows for {len(t)} times.")
        driven = PchipInterpolator(t, U, axis=0)
    nothing = np.empty(0)

    def rate(time: float, z: Array) -> Array:
        u = nothing if driven is None else driven(min(max(time, t[0]), t[-1]))
        with np.errstate(all="ignore"):
            return model.rate(z, u)

    def escaped(time: float, z: Array) -> float:
        return float(ESCAPE - np.abs(z / scale).max())

    escaped.terminal = True  # type: ignore[attr-defined]
    out = np.full((len(t), len(z0)), np.nan)
    out[0] = z0
    if len(t) == 1:
        return out
    try:
        done = solve_ivp(
            rate,
            (t[0], t[-1]),
            z0,
            method="LSODA",
            t_eval=t,
            rtol=tolerance,
            atol=tolerance * scale.min(),
            events=escaped,
        )
    except (ValueError, FloatingPointError, OverflowError):
        return out
    out[: done.y.shape[1]] = done.y.T
    return out
