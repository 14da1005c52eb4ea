r"""Six linear ODEs with closed forms: five of ODEBench, and one of third order.

These are the problems of the standalone validation of Chen et al. (ICLR 2025), with its constants
and first initial condition. Each is one equation
$\sum_r c_r\, y^{(r)} = d$ with constant coefficients, given in its native order, and can be
rewritten as a first-order system.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Exact = np.longdouble
"""Closed forms are evaluated with more precision than float64 where the platform supports it, so
that their rounding does not limit the measured errors."""


@dataclass(frozen=True)
class ClosedForm:
    r"""The curve $y(t) = a + e^{\alpha t}(p\cos\omega t + q\sin\omega t)$."""

    a: Exact
    alpha: Exact
    omega: Exact
    p: Exact
    q: Exact

    def __call__(self, t: NDArray[np.floating], order: int = 2) -> NDArray[np.longdouble]:
        """Values and derivatives up to `order` at the times `t (T,)`, as `(T, order+1)`."""
        t = np.asarray(t, dtype=Exact)
        decay = np.exp(self.alpha * t)
        cos, sin = np.cos(self.omega * t), np.sin(self.omega * t)
        p, q = self.p, self.q
        curves = []
        for _ in range(order + 1):
            curves.append(decay * (p * cos + q * sin))
            p, q = self.alpha * p + self.omega * q, self.alpha * q - self.omega * p
        curves[0] = self.a + curves[0]
        return np.stack(curves, axis=-1)


@dataclass(frozen=True)
class LinearOde:
    r"""One equation $\sum_{r=0}^m c_r\, y^{(r)} = d$ with initial values and its solution."""

    key: str
    """One letter, as in the tables of the paper."""
    name: str
    equation: str
    """The equation with its numbers, in TeX."""
    c: tuple[float, ...]
    """Coefficients of the orders `0..m`."""
    d: float
    """Right-hand side."""
    u: tuple[float, ...]
    """Initial values of the orders `0..m-1`."""
    exact: ClosedForm

    @property
    def order(self) -> int:
        """Order `m` of the equation."""
        return len(self.u)

    def as_system(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        r"""The first-order system of the states $x_k = y^{(k)}$, unscaled.

        Returns:
            `c (m, m, 2)` and `d (m,)`: the rows $x_k' - x_{k+1} = 0$ and, last,
            $\sum_{r<m} c_r x_r + c_m x_{m-1}' = d$.
        """
        m = self.order
        c, d = np.zeros((m, m, 2)), np.zeros(m)
        for k in range(m - 1):
            c[k, k, 1], c[k, k + 1, 0] = 1.0, -1.0
        c[-1, :, 0] = self.c[:-1]
        c[-1, -1, 1] = self.c[-1]
        d[-1] = self.d
        return c, d

    def as_explicit(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """`A (m, m)` and `b (m,)` of the same system solved for the derivative: x' = A x + b."""
        c, d = self.as_system()
        lead = c[:, :, 1].diagonal()
        return -c[:, :, 0] / lead[:, None], d / lead


def _rc_circuit() -> LinearOde:
    source, capacity, resistance, u = 0.7, 1.2, 2.31, 10.0
    a = Exact(source) * Exact(capacity)
    alpha = -1 / (Exact(capacity) * Exact(resistance))
    return LinearOde(
        "R", "RC circuit", r"y/1.2 + 2.31\,y' = 0.7", (1.0 / capacity, resistance), source, (u,),
        ClosedForm(a, alpha, Exact(0), Exact(u) - a, Exact(0)),
    )  # fmt: skip


def _population() -> LinearOde:
    rate, u = 0.23, 4.78
    return LinearOde(
        "P", "Population growth", r"0.23\,y - y' = 0", (rate, -1.0), 0.0, (u,),
        ClosedForm(Exact(0), Exact(rate), Exact(0), Exact(u), Exact(0)),
    )  # fmt: skip


def _language() -> LinearOde:
    gain, loss, u = 0.32, 0.28, 0.14
    total = Exact(gain) + Exact(loss)
    a = Exact(gain) / total
    return LinearOde(
        "L", "Language death", r"0.6\,y + y' = 0.32", (gain + loss, 1.0), gain, (u,),
        ClosedForm(a, -total, Exact(0), Exact(u) - a, Exact(0)),
    )  # fmt: skip


def _harmonic() -> LinearOde:
    stiffness, u, v = 2.1, 0.4, -0.03
    omega = np.sqrt(Exact(stiffness))
    return LinearOde(
        "H", "Harmonic oscillator", r"2.1\,y + y'' = 0", (stiffness, 0.0, 1.0), 0.0, (u, v),
        ClosedForm(Exact(0), Exact(0), omega, Exact(u), Exact(v) / omega),
    )  # fmt: skip


def _damped() -> LinearOde:
    stiffness, damping, u, v = 4.5, 0.43, 0.12, 0.043
    alpha = -Exact(damping) / 2
    omega = np.sqrt(Exact(stiffness) - alpha * alpha)
    return LinearOde(
        "D", "Damped oscillator", r"4.5\,y + 0.43\,y' + y'' = 0",
        (stiffness, damping, 1.0), 0.0, (u, v),
        ClosedForm(Exact(0), alpha, omega, Exact(u), (Exact(v) - alpha * Exact(u)) / omega),
    )  # fmt: skip


def _third_order() -> LinearOde:
    alpha, omega = -Exact(1) / 2, np.sqrt(Exact(3)) / 2
    return LinearOde(
        "T", "Third order", r"y' + y'' + y''' = 0", (0.0, 1.0, 1.0, 1.0), 0.0, (0.0, -1.0, 1.0),
        ClosedForm(Exact(0), alpha, omega, Exact(0), -1 / omega),
    )  # fmt: skip


STANDALONE: tuple[LinearOde, ...] = (
    _rc_circuit(), _population(), _language(), _harmonic(), _damped(), _third_order(),
)  # fmt: skip
"""The six problems, in the order of the paper's table."""
