"""Nonlinear problems with reference solutions: initial values, boundary values, and data.

A problem is either solved to the accuracy given here, or has no solution that can be computed; then
the status must say so.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

import smnn
from smnn.nonlinear import Solution

f64 = torch.float64
Right = Callable[[Any, Any, Any], list[Any]]
"""`(t, y, functions)`, where `functions` has `exp`, `sin`, ...: numpy or torch."""


def vector(*x: float) -> Tensor:
    return torch.tensor(x, dtype=f64)


class Initial(NamedTuple):
    """An initial value problem."""

    f: Right
    y0: list[float]
    t: np.ndarray
    exact: Callable[[np.ndarray], list[np.ndarray]] | None = None
    atol: float = 1e-9
    stiff: bool = False
    solvable: bool = True

    def right(self, t: Tensor, y: Tensor) -> Tensor:
        return torch.stack([torch.as_tensor(x, dtype=y.dtype) for x in self.f(t, y, torch)])

    def solve(self, rtol: float = 1e-9) -> Solution:
        y0, t = vector(*self.y0), torch.from_numpy(self.t)
        return smnn.odeint(self.right, y0, t, rtol=rtol, atol=min(self.atol, rtol / 10))

    def reference(self) -> np.ndarray:
        """The closed form, or SciPy with a small tolerance."""
        if self.exact is not None:
            return np.stack(self.exact(self.t), -1)
        found = solve_ivp(
            lambda t, y: self.f(t, y, np), self.t[[0, -1]], self.y0,
            "Radau" if self.stiff else "DOP853", t_eval=self.t,
            rtol=1e-11 if self.stiff else 1e-13, atol=1e-4 * self.atol,
        )  # fmt: skip
        return found.y.T


def lorenz(t: Any, y: Any, _: Any) -> list[Any]:
    return [10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]]


def robertson(t: Any, y: Any, _: Any) -> list[Any]:
    a, b, c = 0.04 * y[0], 1e4 * y[1] * y[2], 3e7 * y[1] * y[1]
    return [b - a, a - b - c, c]


def hires(t: Any, y: Any, _: Any) -> list[Any]:
    a, b, c, d, e, f, g, h = (y[i] for i in range(8))
    r = 280 * f * h
    return [
        -1.71 * a + 0.43 * b + 8.32 * c + 0.0007, 1.71 * a - 8.75 * b,
        -10.03 * c + 0.43 * d + 0.035 * e, 8.32 * b + 1.71 * c - 1.12 * d,
        -1.745 * e + 0.43 * f + 0.43 * g, -r + 0.69 * d + 1.71 * e - 0.43 * f + 0.69 * g,
        r - 1.81 * g, -r + 1.81 * g,
    ]  # fmt: skip


def van_der_pol(mu: float) -> Right:
    return lambda t, y, _: [y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]]


def oregonator(t: Any, y: Any, _: Any) -> list[Any]:
    a, b, c = y[0], y[1], y[2]
    return [77.27 * (b + a * (1 - 8.375e-6 * a - b)), (c - (1 + a) * b) / 77.27, 0.161 * (a - c)]


def kepler(t: Any, y: Any, f: Any) -> list[Any]:
    cube = (y[0] ** 2 + y[1] ** 2) ** 1.5
    return [y[2], y[3], -y[0] / cube, -y[1] / cube]


def span(end: float, count: int = 21) -> np.ndarray:
    return np.linspace(0, end, count)


LV = 1.5, 1.0, 3.0, 1.0
INITIAL: dict[str, Initial] = {
    "decay": Initial(lambda t, y, f: [-y[0]], [1.0], span(5), lambda t: [np.exp(-t)]),
    "logistic": Initial(
        lambda t, y, f: [y[0] * (1 - y[0])], [0.01], span(12),
        lambda t: [1 / (1 + 99 * np.exp(-t))],
    ),
    "Lotka-Volterra": Initial(
        lambda t, y, f: [y[0] * (LV[0] - LV[1] * y[1]), y[1] * (LV[3] * y[0] - LV[2])],
        [1.0, 1.0], span(10),
    ),
    "Lorenz": Initial(lorenz, [1.0, 1.0, 1.0], span(5)),
    "Roessler": Initial(
        lambda t, y, f: [-y[1] - y[2], y[0] + 0.2 * y[1], 0.2 + y[2] * (y[0] - 5.7)],
        [1.0, 1.0, 0.0], span(20),
    ),
    "Robertson": Initial(
        robertson, [1.0, 0.0, 0.0], np.concatenate([[0], np.geomspace(1e-4, 1e5, 30)]), atol=1e-12,
        stiff=True,
    ),
    "HIRES": Initial(
        hires, [1.0, 0, 0, 0, 0, 0, 0, 0.0057], span(321.8122), atol=1e-10, stiff=True
    ),
    "van der Pol, mu = 1": Initial(van_der_pol(1), [2.0, 0.0], span(10)),
    "van der Pol, mu = 1000": Initial(
        van_der_pol(1000), [2.0, 0.0], span(2000, 11), atol=1e-6, stiff=True
    ),
    "Oregonator": Initial(oregonator, [1.0, 2.0, 3.0], span(30, 11), atol=1e-7, stiff=True),
    "Brusselator": Initial(
        lambda t, y, f: [1 + y[0] ** 2 * y[1] - 4 * y[0], 3 * y[0] - y[0] ** 2 * y[1]],
        [1.5, 3.0], span(20),
    ),
    "FitzHugh-Nagumo": Initial(
        lambda t, y, f: [y[0] - y[0] ** 3 / 3 - y[1] + 0.5, 0.08 * (y[0] + 0.7 - 0.8 * y[1])],
        [-1.0, 1.0], span(50),
    ),
    "pendulum": Initial(lambda t, y, f: [y[1], -f.sin(y[0])], [2.0, 0.0], span(20)),
    "forced Duffing": Initial(
        lambda t, y, f: [y[1], y[0] - y[0] ** 3 - 0.3 * y[1] + 0.5 * f.cos(1.2 * t)],
        [1.0, 0.0], span(20),
    ),
    "Kepler, eccentricity 0.6": Initial(kepler, [0.4, 0.0, 0.0, 2.0], span(4 * math.pi)),
    "rigid body": Initial(
        lambda t, y, f: [y[1] * y[2], -y[0] * y[2], -0.51 * y[0] * y[1]], [0.0, 1.0, 1.0], span(12)
    ),
    "SIR": Initial(
        lambda t, y, f: [-2 * y[0] * y[1], 2 * y[0] * y[1] - 0.5 * y[1], 0.5 * y[1]],
        [0.999, 0.001, 0.0], span(30),
    ),
    "stiff, cosine": Initial(
        lambda t, y, f: [-1e6 * (y[0] - f.cos(t)) - f.sin(t)], [1.0], span(10),
        lambda t: [np.cos(t)],
    ),
    "backwards": Initial(
        lambda t, y, f: [-y[0] ** 2], [0.25], np.linspace(3, 0, 13), lambda t: [1 / (1 + t)]
    ),
    "explosion": Initial(lambda t, y, f: [y[0] ** 2], [1.0], span(2), solvable=False),
    "square root of a negative number": Initial(
        lambda t, y, f: [-f.sqrt(y[0])], [0.25], span(4), solvable=False
    ),
}  # fmt: skip


class Boundary(NamedTuple):
    """A boundary value problem for `y'' = f(t, y, y')`."""

    f: Callable[..., Any]
    left: float
    right: float
    end: float
    guess: Callable[[Tensor], Tensor]
    exact: Callable[[np.ndarray], np.ndarray] | None = None
    solvable: bool = True

    def solve(self, rtol: float = 1e-9) -> Solution:
        t = torch.linspace(0, self.end, 41, dtype=f64)
        y = self.guess(t)
        guess = torch.stack([y, torch.gradient(y, spacing=(t,))[0]], -1)

        def right(t: Tensor, y: Tensor) -> Tensor:
            return torch.stack([y[1], self.f(t, y[0], y[1], torch)])

        def ends(a: Tensor, b: Tensor) -> Tensor:
            return torch.stack([a[0] - self.left, b[0] - self.right])

        return smnn.solve_bvp(right, ends, t, guess, rtol=rtol, atol=rtol / 10)

    def reference(self) -> np.ndarray:
        """The closed form, or SciPy's collocation."""
        from scipy.integrate import solve_bvp

        t = np.linspace(0, self.end, 41)
        if self.exact is not None:
            return self.exact(t)[:, None]
        y = self.guess(torch.from_numpy(t)).numpy()
        fine = np.linspace(0, self.end, 401)
        start = np.interp(fine, t, y)
        found = solve_bvp(
            lambda t, y: np.stack([y[1], self.f(t, y[0], y[1], np)]),
            lambda a, b: np.array([a[0] - self.left, b[0] - self.right]),
            fine, np.stack([start, np.gradient(start, fine)]), tol=1e-11, max_nodes=200_000,
        )  # fmt: skip
        assert found.success
        return found.sol(t)[:1].T


def bratu(lam: float) -> Callable[..., Any]:
    return lambda t, y, dy, f: -lam * f.exp(y)


def flat(t: Tensor) -> Tensor:
    return torch.zeros_like(t)


def bratu_exact(t: np.ndarray) -> np.ndarray:
    theta = 1.5171645990507543  # of sqrt(2) cosh(theta / 4) = theta, for lambda = 1
    return -2 * np.log(np.cosh((t - 0.5) * theta / 2) / np.cosh(theta / 4))


BOUNDARY: dict[str, Boundary] = {
    "pendulum between two angles": Boundary(
        lambda t, y, dy, f: -f.sin(y), 0.0, 1.0, 1.0, lambda t: t
    ),
    "Bratu": Boundary(bratu(1.0), 0.0, 0.0, 1.0, flat, bratu_exact),
    "Bratu near the turning point": Boundary(bratu(3.5), 0.0, 0.0, 1.0, flat),
    "Bratu without solution": Boundary(bratu(4.0), 0.0, 0.0, 1.0, flat, solvable=False),
    "Troesch": Boundary(lambda t, y, dy, f: 5 * f.sinh(5 * y), 0.0, 1.0, 1.0, lambda t: t),
    "boundary layer": Boundary(
        lambda t, y, dy, f: -dy / 1e-3, 0.0, 1.0, 1.0, lambda t: t,
        lambda t: np.expm1(-t / 1e-3) / np.expm1(-1e3),
    ),
    "inner layer": Boundary(
        lambda t, y, dy, f: y * dy / 0.05, math.tanh(4.0), -math.tanh(6.0), 1.0,
        lambda t: 1 - 2 * t, lambda t: -np.tanh(10 * (t - 0.4)),
    ),
}  # fmt: skip


class Fit(NamedTuple):
    """Parameters from noisy data of some variables."""

    f: Callable[[Any, Any, Any], list[Any]]
    y0: list[float]
    t: np.ndarray
    true: dict[str, float]
    start: dict[str, float]
    seen: tuple[int, ...]
    sigma: float
    solvable: bool = True

    def data(self, seed: int = 0) -> Tensor:
        found = solve_ivp(
            lambda t, y: self.f(t, y, self.true), self.t[[0, -1]], self.y0, "LSODA", t_eval=self.t,
            rtol=1e-10, atol=1e-10,
        )  # fmt: skip
        noise = np.random.default_rng(seed).normal(size=found.y.shape)
        data = torch.from_numpy((found.y + self.sigma * noise).T.copy())
        hidden = [v for v in range(data.shape[1]) if v not in self.seen]
        data[:, hidden] = torch.nan
        return data

    def solve(self, seed: int = 0) -> Solution:
        def right(t: Tensor, y: Tensor, p: dict[str, Tensor]) -> Tensor:
            return torch.stack(self.f(t, y, p))

        return smnn.smooth(
            right, torch.from_numpy(self.t), self.data(seed), self.sigma, dict(self.start)
        )


def lorenz_rho(t: Any, y: Any, p: Any) -> list[Any]:
    return [10 * (y[1] - y[0]), y[0] * (p["rho"] - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]]


def lotka_volterra(t: Any, y: Any, p: Any) -> list[Any]:
    return [
        y[0] * (p["a"] - p["b"] * y[1]),
        y[1] * (p["d"] * y[0] - p["c"]),
    ]


FITS: dict[str, Fit] = {
    "Lorenz, all observed": Fit(
        lorenz_rho, [1.0, 1.0, 20.0], span(20, 401), {"rho": 28.0}, {"rho": 20.0}, (0, 1, 2), 1.0
    ),
    "Lorenz, x observed": Fit(
        lorenz_rho, [1.0, 1.0, 20.0], span(20, 401), {"rho": 28.0}, {"rho": 20.0}, (0,), 1.0
    ),
    "Lotka-Volterra, four parameters": Fit(
        lotka_volterra, [1.0, 1.0], span(10, 51), dict(a=1.5, b=1.0, c=3.0, d=1.0),
        dict(a=1.0, b=0.5, c=2.0, d=0.5), (0, 1), 0.1,
    ),
    "logistic growth": Fit(
        lambda t, y, p: [p["r"] * y[0] * (1 - y[0] / p["K"])], [0.1], span(10, 21),
        dict(r=1.0, K=5.0), dict(r=0.3, K=2.0), (0,), 0.1,
    ),
    "damped pendulum, angles": Fit(
        lambda t, y, p: [y[1], -p["k"] * (y[0].sin() if hasattr(y[0], "sin") else np.sin(y[0]))
                         - p["b"] * y[1]],
        [2.0, 0.0], span(15, 61), dict(k=2.0, b=0.2), dict(k=1.0, b=0.0), (0,), 0.05,
    ),
    "FitzHugh-Nagumo, voltage": Fit(
        lambda t, y, p: [y[0] - y[0] ** 3 / 3 - y[1] + 0.5, p["e"] * (y[0] + p["a"] - 0.8 * y[1])],
        [-1.0, 1.0], span(60, 121), dict(e=0.08, a=0.7), dict(e=0.05, a=0.5), (0,), 0.1,
    ),
    "parameter without effect": Fit(
        lambda t, y, p: [-y[0] + 0.0 * p["q"]], [1.0], span(3, 11), {"q": 1.0}, {"q": 1.0}, (0,),
        0.01, solvable=False,
    ),
    "wrong equation": Fit(
        lambda t, y, p: [y[1], -y[0] if "true" in p else -p["k"] * y[1]],
        [1.0, 0.0], span(20, 81), {"true": 1.0}, {"k": 1.0}, (0,), 0.01, solvable=False,
    ),
}  # fmt: skip
