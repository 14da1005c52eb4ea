"""Right-hand side `x^(order) = g(Xi phi(z))`, its Runge-Kutta steps, and its simulation.

The state is `z = (x, x', ..., x^(order-1))`; the terms `phi` may also depend on external inputs. A
step from `t_k` to `t_{k+1}` is divided into equal substeps. Derivatives of a step propagate through
the same Runge-Kutta formulas, so they are exact for the discretized step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from smnn.discovery._arrays import Array, Flags
from smnn.discovery._terms import CompiledTerms

TOLERANCE = 1e-8  # Relative tolerance of simulations
ESCAPE = 1e4  # A simulation stops when a state exceeds this multiple of its size in the data


class Tableau(NamedTuple):
    """Explicit Runge-Kutta method: stages `k_i = f(t + c_i h, x + h sum_j a_ij k_j)`."""

    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]

    @property
    def c(self) -> Array:
        """Nodes of the stages, as fractions of a step."""
        return np.array([sum(row) for row in self.a])


CLASSICAL = Tableau(((), (0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)), (1 / 6, 1 / 3, 1 / 3, 1 / 6))
"""Order 4."""

_q = 21.0**0.5
COOPER_VERNER = Tableau(
    (
        (),
        (1 / 2,),
        (1 / 4, 1 / 4),
        (1 / 7, (-7 - 3 * _q) / 98, (21 + 5 * _q) / 49),
        ((11 + _q) / 84, 0, (18 + 4 * _q) / 63, (21 - _q) / 252),
        ((5 + _q) / 48, 0, (9 + _q) / 36, (-231 + 14 * _q) / 360, (63 - 7 * _q) / 80),
        (
            (10 - _q) / 42, 0, (-432 + 92 * _q) / 315, (633 - 145 * _q) / 90,
            (-504 + 115 * _q) / 70, (63 - 13 * _q) / 35,
        ),
        (1 / 14, 0, 0, 0, (14 - 3 * _q) / 126, (13 - 3 * _q) / 63, 1 / 9),
        (
            1 / 32, 0, 0, 0, (91 - 21 * _q) / 576, 11 / 72, (-385 - 75 * _q) / 1152,
            (63 + 13 * _q) / 128,
        ),
        (
            1 / 14, 0, 0, 0, 1 / 9, (-733 - 147 * _q) / 2205, (515 + 111 * _q) / 504,
            (-51 - 11 * _q) / 56, (132 + 28 * _q) / 245,
        ),
        (
            0, 0, 0, 0, (-42 + 7 * _q) / 18, (-18 + 28 * _q) / 45, (-273 - 53 * _q) / 72,
            (301 + 53 * _q) / 72, (28 - 28 * _q) / 45, (49 - 7 * _q) / 18,
        ),
    ),
    (1 / 20, 0, 0, 0, 0, 0, 0, 49 / 180, 16 / 45, 49 / 180, 1 / 20),
)  # fmt: skip
"""Order 8 in eleven stages (Cooper and Verner 1972)."""


MAP = Tableau(((),), (1.0,))
"""One iteration of a map: the right-hand side is the next state."""


@dataclass(frozen=True)
class Link:
    """Link function g with its derivative and inverse."""

    name: str
    value: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    inverse: Callable[[Array], Array]


def _sigmoid(a: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * a))


LINKS = {
    link.name: link
    for link in (
        Link("tanh", np.tanh, lambda a: 1.0 - np.tanh(a) ** 2,
             lambda b: np.arctanh(np.clip(b, -0.999, 0.999))),
        Link("exp", np.exp, np.exp, lambda b: np.log(np.maximum(b, 1e-6))),
        Link("sigmoid", _sigmoid, lambda a: _sigmoid(a) * (1.0 - _sigmoid(a)),
             lambda b: np.log(np.clip(b, 1e-3, 0.999) / (1.0 - np.clip(b, 1e-3, 0.999)))),
        Link("softplus", lambda a: np.logaddexp(0.0, a), _sigmoid,
             lambda b: np.log(np.expm1(np.maximum(b, 1e-6)))),
        Link("sin", np.sin, np.cos, lambda b: np.arcsin(np.clip(b, -0.999, 0.999))),
    )
}  # fmt: skip


def state_names(variables: Sequence[str], order: int) -> list[str]:
    """Names of the states: variables, then their derivatives."""
    return [v + "'" * r for r in range(order) for v in variables]


def target_names(variables: Sequence[str], order: int, discrete: bool) -> list[str]:
    """Left-hand sides of the equations."""
    return [f"{v}_next" if discrete else v + "'" * order for v in variables]


class OdeModel(NamedTuple):
    """A right-hand side: terms and their coefficients."""

    terms: CompiledTerms
    Xi: Array  # (V, P)
    order: int = 1
    link: Link | None = None

    def rate(self, Z: Array, U: Array) -> Array:
        """`dz/dt` for states Z (..., V order) and inputs U (..., inputs)."""
        V = self.Xi.shape[0]
        a = self.terms.evaluate(np.concatenate([Z, U], -1)) @ self.Xi.T
        top = a if self.link is None else self.link.value(a)
        return np.concatenate([Z[..., V:], top], -1)


class StepGrid(NamedTuple):
    """Lengths and inputs of `K` steps, and the method that integrates them."""

    h: Array  # (K,) lengths
    U: Array  # (K, substeps, stages, inputs) inputs at the stages
    method: Tableau

    @property
    def substeps(self) -> int:
        """Number of substeps in a step."""
        return self.U.shape[1]


def _times(Xi: Array, slopes: Array) -> Array:
    """`Xi @ slopes` for (V, P) and (K, P, L) as one product; slopes are stored as (P, L, K)."""
    K, P, L = slopes.shape
    wide = Xi @ np.moveaxis(slopes, 0, -1).reshape(P, L * K)
    return np.moveaxis(wide.reshape(len(Xi), L, K), -1, 0)


def _sum(weights: Sequence[float], slopes: Sequence[Array]) -> Array | float:
    """Weighted sum, skipping zero weights."""
    total: Array | float = 0.0
    for weight, slope in zip(weights, slopes):
        if weight:
            total = total + weight * slope
    return total


def flow(model: OdeModel, Z: Array, steps: StepGrid) -> Array:
    """States after one step from each of K states: (K, D) -> (K, D)."""
    n = steps.substeps
    h = (steps.h / n)[:, None]
    for i in range(n):
        k: list[Array] = []
        for j, row in enumerate(steps.method.a):
            k.append(model.rate(Z + h * _sum(row, k), steps.U[:, i, j]))
        Z = k[0] if steps.method is MAP else Z + h * _sum(steps.method.b, k)
    return Z


def flow_with_derivatives(
    model: OdeModel, Z: Array, steps: StepGrid, free: Flags, inner: bool = False
) -> tuple[Array, Array, Array]:
    """States after one step, with derivatives with respect to states and free coefficients.

    Args:
        model: The right-hand side.
        Z: (K, D) initial states of the steps.
        steps: Lengths, inputs and method.
        free: (V, P) mask of the m free coefficients, in row order.
        inner: Whether the constants inside the terms are free, too.

    Returns:
        (K, D) final states, (K, D, D) derivatives with respect to Z and (K, D, m) with respect to
        the coefficients, followed by the constants inside the terms.
    """
    K, D = Z.shape
    V, P = model.Xi.shape
    rows, columns = np.nonzero(free)
    m = len(rows)
    constants = len(model.terms.theta) if inner else 0
    n = steps.substeps
    h = (steps.h / n)[:, None]
    h3 = h[:, :, None]
    G = np.zeros((K, D, D + m + constants))
    G[:, np.arange(D), np.arange(D)] = 1.0

    def stage(Z: Array, U: Array, G: Array) -> tuple[Array, Array]:
        X = np.concatenate([Z, U], -1)
        phi = model.terms.evaluate(X)
        J = _times(model.Xi, model.terms.jacobian(X))[..., :D]  # (K, V, D)
        a = phi @ model.Xi.T
        dG = np.empty_like(G)
        dG[:, : D - V] = G[:, V:]
        top = J @ G
        top[:, rows, D + np.arange(m)] += phi[:, columns]
        if constants:
            top[:, :, D + m :] += _times(model.Xi, model.terms.tangents(X))
        if model.link is not None:
            top *= model.link.slope(a)[:, :, None]
            a = model.link.value(a)
        dG[:, D - V :] = top
        return np.concatenate([Z[:, V:], a], -1), dG

    for i in range(n):
        k: list[Array] = []
        g: list[Array] = []
        for j, row in enumerate(steps.method.a):
            rate, slope = stage(Z + h * _sum(row, k), steps.U[:, i, j], G + h3 * _sum(row, g))
            k.append(rate)
            g.append(slope)
        if steps.method is MAP:
            Z, G = k[0], g[0]
        else:
            Z = Z + h * _sum(steps.method.b, k)
            G = G + h3 * _sum(steps.method.b, g)
    return Z, G[:, :, :D], G[:, :, D:]


def simulate(
    model: OdeModel, z0: Array, t: Array, U: Array | None, scale: Array,
    tolerance: float = TOLERANCE, discrete: bool = False,
) -> Array:  # fmt: skip
    """Integrate from an initial state.

    Args:
        model: The right-hand side.
        z0: (D,) initial state.
        t: (T,) increasing times; the first is that of the initial state.
        U: (T, inputs) inputs at these times, or `None`.
        scale: (D,) typical size of the states.
        tolerance: Relative tolerance of the integrator.
        discrete: Whether the model is a map, which is iterated.

    Returns:
        (T, D) states; NaN after the trajectory has diverged or the integrator has failed.
    """
    from scipy.integrate import solve_ivp
    from scipy.interpolate import PchipInterpolator

    driven: Any = None
    if U is not None and U.shape[1]:
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
    if discrete:
        with np.errstate(all="ignore"):
            for k in range(len(t) - 1):
                out[k + 1] = model.rate(out[k], nothing if U is None else U[k])
                if not (np.abs(out[k + 1]) < ESCAPE * scale).all():
                    out[k + 1 :] = np.nan
                    break
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
