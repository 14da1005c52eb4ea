"""One step of the model from every node at once, and how it changes with states and coefficients.

The model is `x^(order) = g(Xi phi(z))`, with the state `z = (x, x', ..., x^(order-1))`; the terms
`phi` may also use external inputs. A step from `t_k` to `t_{k+1}` is cut into equal substeps of a
Runge-Kutta method; its derivatives go through the same formulas, so they are those of the numbers
that are computed, not of the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from smnn.discovery._fit.arrays import Array, Flags
from smnn.discovery._fit.tableau import Tableau


class Terms(Protocol):
    """What the flow needs of compiled library terms; `L` variables (states, then inputs)."""

    def evaluate(self, X: Array) -> Array:
        """(..., L) -> (..., P)."""

    def jacobian(self, X: Array) -> Array:
        """(..., L) -> (..., P, L)."""


@dataclass(frozen=True)
class Link:
    """The function g around the sum of terms, with its derivative and its inverse."""

    name: str
    value: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    inverse: Callable[[Array], Array]


def _sigmoid(a: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * a))


LINKS = {
    "tanh": Link(
        "tanh",
        np.tanh,
        lambda a: 1.0 - np.tanh(a) ** 2,
        lambda b: np.arctanh(np.clip(b, -0.999, 0.999)),
    ),
    "exp": Link("exp", np.exp, np.exp, lambda b: np.log(np.maximum(b, 1e-6))),
    "sigmoid": Link(
        "sigmoid",
        _sigmoid,
        lambda a: _sigmoid(a) * (1.0 - _sigmoid(a)),
        lambda b: np.log(np.clip(b, 1e-3, 0.999) / (1.0 - np.clip(b, 1e-3, 0.999))),
    ),
    "softplus": Link(
        "softplus",
        lambda a: np.logaddexp(0.0, a),
        _sigmoid,
        lambda b: np.log(np.expm1(np.maximum(b, 1e-6))),
    ),
    "sin": Link("sin", np.sin, np.cos, lambda b: np.arcsin(np.clip(b, -0.999, 0.999))),
}


class Model(NamedTuple):
    """A right-hand side: terms and their coefficients."""

    terms: Terms
    Xi: Array
    """(V, P)."""
    order: int = 1
    link: Link | None = None

    def rate(self, Z: Array, U: Array) -> Array:
        """`dz/dt` for states Z (..., V order) and inputs U (..., inputs)."""
        V = self.Xi.shape[0]
        a = self.terms.evaluate(np.concatenate([Z, U], -1)) @ self.Xi.T
        top = a if self.link is None else self.link.value(a)
        return np.concatenate([Z[..., V:], top], -1)


class Steps(NamedTuple):
    """The grid of the steps; `K` of them."""

    h: Array
    """(K,) lengths."""
    U: Array
    """(K, substeps, stages, inputs) inputs where they are needed."""
    method: Tableau

    @property
    def substeps(self) -> int:
        """How many substeps there are in a step."""
        return self.U.shape[1]


def _times(Xi: Array, slopes: Array) -> Array:
    """`Xi @ slopes` for (V, P) and (K, P, L), as one product: slopes lie (P, L, K) in memory."""
    K, P, L = slopes.shape
    wide = Xi @ np.moveaxis(slopes, 0, -1).reshape(P, L * K)
    return np.moveaxis(wide.reshape(len(Xi), L, K), -1, 0)


def _sum(weights: Sequence[float], slopes: Sequence[Array]) -> Array | float:
    """Weighted, without those of weight zero."""
    total: Array | float = 0.0
    for weight, slope in zip(weights, slopes):
        if weight:
            total = total + weight * slope
    return total


def flow(model: Model, Z: Array, steps: Steps) -> Array:
    """Where a step leads from every state: (K, D) -> (K, D)."""
    n = steps.substeps
    h = (steps.h / n)[:, None]
    for i in range(n):
        k: list[Array] = []
        for j, row in enumerate(steps.method.a):
            k.append(model.rate(Z + h * _sum(row, k), steps.U[:, i, j]))
        Z = Z + h * _sum(steps.method.b, k)
    return Z


def flow_with_derivatives(
    model: Model, Z: Array, steps: Steps, free: Flags
) -> tuple[Array, Array, Array]:
    """The same with its derivatives by the states and by the free coefficients.

    Args:
        model: The right-hand side.
        Z: (K, D) states at the beginnings of the steps.
        steps: The grid.
        free: (V, P) which coefficients to differentiate by, m of them in row order.

    Returns:
        (K, D) ends, (K, D, D) derivatives by Z, (K, D, m) by the coefficients.
    """
    K, D = Z.shape
    V, P = model.Xi.shape
    rows, columns = np.nonzero(free)
    m = len(rows)
    n = steps.substeps
    h = (steps.h / n)[:, None]
    h3 = h[:, :, None]
    G = np.zeros((K, D, D + m))
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
        Z = Z + h * _sum(steps.method.b, k)
        G = G + h3 * _sum(steps.method.b, g)
    return Z, G[:, :, :D], G[:, :, D:]
