"""Data for the experiment: unrelated tables, known systems, systems outside the library.

Every trial is drawn from its group and a seed alone, so that fresh seeds give fresh data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp
from scipy.interpolate import CubicSpline
from scipy.ndimage import gaussian_filter1d
from scipy.signal import lfilter

from smnn.datasets.dynamics import HARE_LYNX, SYSTEMS, Array, Record, System, simulate

UNRELATED, TRUE, MISSING = "unrelated", "true", "missing"
GROUPS = (UNRELATED, TRUE, MISSING)
LENGTHS = (20, 30, 40, 60, 100, 200, 400)
"""Numbers of rows of unrelated tables."""
DEFAULT = 5  # Of so many unrelated tables of a kind, one is fitted with the default library

Truth = Mapping[str, Mapping[str, float]]
"""True coefficients of the equations of some variables."""


@dataclass(frozen=True)
class Trial:
    """Series to fit, and what is known about their equations."""

    group: str
    kind: str
    seed: int
    series: list[Array]
    times: list[Array]
    names: tuple[str, ...]
    truth: Truth
    """Variables without an entry have no equation in the library."""
    library: str | None = None
    order: int = 1
    inputs: list[Array] | None = None
    noise: float | None = None
    """Standard deviation of the noise relative to that of the data, if it is known."""


def draw(group: str, seed: int) -> Trial:
    """The trial of a group with a seed; kinds alternate with the seed."""
    kinds = {UNRELATED: KINDS, TRUE: [*KNOWN, *BENCH], MISSING: list(OUTSIDE)}[group]
    kind = kinds[seed % len(kinds)]
    rng = np.random.default_rng([GROUPS.index(group), seed])
    if group == UNRELATED:
        return _unrelated(kind, seed, rng)
    if kind in BENCH:
        return _bench(BENCH[kind], seed, rng)
    return (KNOWN if group == TRUE else OUTSIDE)[kind].trial(group, kind, seed, rng)


# -- unrelated columns ----------------------------------------------------------------------------


def _white(n: int, rng: np.random.Generator) -> Array:
    return rng.standard_normal(n)


def _walk(n: int, rng: np.random.Generator) -> Array:
    return np.cumsum(rng.standard_normal(n))


def _autoregressive(n: int, rng: np.random.Generator) -> Array:
    return np.asarray(lfilter([1.0], [1.0, -rng.uniform(0.5, 0.99)], _white(n + 100, rng))[100:])


def _noisy_cycle(n: int, rng: np.random.Generator) -> Array:
    r, w = rng.uniform(0.8, 0.98), 2 * np.pi / rng.uniform(6, 40)
    x = lfilter([1.0], [1.0, -2 * r * np.cos(w), r * r], _white(n + 200, rng))[200:]
    return np.asarray(x)


def _smooth(n: int, rng: np.random.Generator) -> Array:
    width = rng.uniform(3, 25)
    pad = math.ceil(5 * width)
    x = gaussian_filter1d(_white(n + 2 * pad, rng), width)[pad : pad + n]
    return x / x.std() + rng.choice([0.0, 0.01, 0.05]) * _white(n, rng)


def _sines(n: int, rng: np.random.Generator) -> Array:
    k = int(rng.integers(2, 5))
    cycles, phase = rng.uniform(0.7, min(n / 6, 12.0), (k, 1)), rng.uniform(0, 2 * np.pi, (k, 1))
    t = np.arange(n) / n
    x = (rng.uniform(0.3, 1, (k, 1)) * np.sin(2 * np.pi * cycles * t + phase)).sum(0)
    return x / x.std() + rng.choice([0.0, 0.01, 0.05]) * _white(n, rng)


def _counts(n: int, rng: np.random.Generator) -> Array:
    rate = np.exp(rng.uniform(1, 4) + 0.5 * _smooth(n, rng))
    return rng.poisson(rate).astype(float)


def _levels(n: int, rng: np.random.Generator) -> Array:
    jumps = rng.random(n) < rng.uniform(0.03, 0.2)
    return _white(n, rng)[np.maximum.accumulate(np.where(jumps, np.arange(n), 0))] + (
        rng.choice([0.01, 0.1]) * _white(n, rng)
    )


def _trend_and_season(n: int, rng: np.random.Generator) -> Array:
    t = np.arange(n) / n
    season = np.sin(2 * np.pi * rng.uniform(2, n / 6) * t + rng.uniform(0, 6))
    trend = rng.standard_normal(3) @ np.stack([t, t**2, t**3]) * 4
    return trend + season + rng.choice([0.02, 0.1, 0.3]) * _autoregressive(n, rng)


def _spline(n: int, rng: np.random.Generator) -> Array:
    knots = int(rng.integers(5, max(n // 5, 6)))
    curve = CubicSpline(np.linspace(0, 1, knots), _white(knots, rng))
    return np.asarray(curve(np.linspace(0, 1, n))) + rng.choice([0, 0.01, 0.05]) * _white(n, rng)


CURVES: dict[str, Callable[[int, np.random.Generator], Array]] = {
    "white noise": _white,
    "random walk": _walk,
    "autoregressive": _autoregressive,
    "noisy cycle": _noisy_cycle,
    "smooth curve": _smooth,
    "sum of sines": _sines,
    "counts": _counts,
    "levels": _levels,
    "trend and season": _trend_and_season,
    "spline": _spline,
}
"""Kinds of columns."""
KINDS = [*CURVES, "mixed"]
"""Kinds of tables."""


def _unrelated(kind: str, seed: int, rng: np.random.Generator) -> Trial:
    """Independent columns: one table of every kind in `DEFAULT` with the default library.

    That takes ten times longer than polynomials, because it tries other functions in addition.
    """
    n, V = int(rng.choice(LENGTHS)), int(rng.choice([1, 2, 2, 3]))
    kinds = list(rng.choice(list(CURVES), V)) if kind == "mixed" else [kind] * V
    columns = [CURVES[k](n, rng) for k in kinds]
    library = None if seed // len(KINDS) % DEFAULT == DEFAULT - 1 else _polynomials(V)
    series, times = [np.stack(columns, 1)], [np.arange(float(n))]
    return Trial(UNRELATED, kind, seed, series, times, ("x", "y", "z")[:V], {}, library)


def _polynomials(V: int) -> str:
    """The first of the default libraries."""
    return "poly:3" if V == 1 else "poly:2"


# -- known equations ------------------------------------------------------------------------------

Rate = Callable[[float, Array], Sequence[float]]


@dataclass(frozen=True)
class Family:
    """Systems with random parameters, observed with noise."""

    make: Callable[[np.random.Generator], tuple[Rate, Sequence[float], float, Truth]]
    """Draws right-hand side, initial values, duration, and true coefficients."""
    names: tuple[str, ...]
    rows: tuple[int, ...]
    noise: tuple[float, ...]
    library: str | None = None
    observed: int | None = None
    """Number of observed variables, if not all."""

    def trial(self, group: str, kind: str, seed: int, rng: np.random.Generator) -> Trial:
        """Simulate and add noise."""
        rate, start, duration, truth = self.make(rng)
        t = np.linspace(0.0, duration, int(rng.choice(self.rows)))
        path = solve_ivp(rate, (0.0, duration), start, "LSODA", t, rtol=1e-10, atol=1e-12).y.T
        X = path[:, : self.observed]
        noise = float(rng.choice(self.noise))
        X = X + noise * X.std(0) * rng.standard_normal(X.shape)
        return Trial(group, kind, seed, [X], [t], self.names, truth, self.library, noise=noise)


def _lotka_volterra(rng: np.random.Generator) -> tuple[Rate, Sequence[float], float, Truth]:
    a, b, c, d = rng.uniform([0.8, 0.3, 0.3, 0.08], [1.4, 0.5, 0.5, 0.15])
    truth = {"x": {"x": a, "x y": -b}, "y": {"y": -c, "x y": d}}
    return lambda t, s: (a * s[0] - b * s[0] * s[1], d * s[0] * s[1] - c * s[1]), (10, 5), 20, truth


def _logistic(rng: np.random.Generator) -> tuple[Rate, Sequence[float], float, Truth]:
    r, k = rng.uniform(0.6, 1.4), rng.uniform(0.5, 5)
    start = [k * rng.uniform(0.03, 0.1)]
    return lambda t, s: (r * s[0] * (1 - s[0] / k),), start, 7 / r, {"x": {"x": r, "x^2": -r / k}}


def _compartments(rng: np.random.Generator) -> tuple[Rate, Sequence[float], float, Truth]:
    a, b, c = rng.uniform([0.6, 0.2, 0.1], [1.2, 0.5, 0.4])
    truth = {"x": {"x": -a, "y": b}, "y": {"x": c, "y": -b - 0.1}}
    return lambda t, s: (-a * s[0] + b * s[1], c * s[0] - (b + 0.1) * s[1]), (10, 0), 12, truth


def _oscillator(rng: np.random.Generator) -> tuple[Rate, Sequence[float], float, Truth]:
    w, d = rng.uniform(0.7, 2), rng.uniform(0.02, 0.3)
    truth = {"x": {"y": 1.0}, "y": {"x": -w * w, "y": -d}}
    return lambda t, s: (s[1], -w * w * s[0] - d * s[1]), (2, 0), 15 / w, truth


def _epidemic(rng: np.random.Generator) -> tuple[Rate, Sequence[float], float, Truth]:
    b, g = rng.uniform(0.4, 0.8), rng.uniform(0.08, 0.2)
    truth = {"x": {"x y": -b}, "y": {"y": -g, "x y": b}}
    return lambda t, s: (-b * s[0] * s[1], b * s[0] * s[1] - g * s[1]), (0.99, 0.01), 60, truth


def _decay(rng: np.random.Generator) -> tuple[Rate, Sequence[float], float, Truth]:
    k, c = rng.uniform(0.3, 1.5), rng.uniform(0.2, 2)
    start = [c / k * rng.uniform(2, 6)]
    return lambda t, s: (c - k * s[0],), start, 6 / k, {"x": {"1": c, "x": -k}}


KNOWN = {
    "Lotka-Volterra, 30 rows": Family(_lotka_volterra, ("x", "y"), (30,), (0.01, 0.03, 0.05)),
    "logistic, 12 rows": Family(_logistic, ("x",), (12,), (0.0, 0.003, 0.01)),
    "two compartments": Family(_compartments, ("x", "y"), (60, 100), (0.0, 0.01, 0.03)),
    "oscillator": Family(_oscillator, ("x", "y"), (60, 150), (0.0, 0.01, 0.05)),
    "epidemic": Family(_epidemic, ("x", "y"), (60, 120), (0.0, 0.01, 0.03)),
    "linear decay": Family(_decay, ("x",), (25, 60), (0.0, 0.01, 0.03)),
}
"""Systems with few rows and random parameters, all with default libraries."""

BENCH: dict[str, System | Record] = {
    **{system.name: system for system in SYSTEMS}, HARE_LYNX.name: HARE_LYNX
}  # fmt: skip


def _bench(system: System | Record, seed: int, rng: np.random.Generator) -> Trial:
    """A system of the discovery benchmark at full length, or the hare and lynx data."""
    if isinstance(system, Record):
        (pelts,) = system.series
        terms = {"hare": ("hare", "hare lynx"), "lynx": ("lynx", "hare lynx")}
        unknown = {v: dict.fromkeys(names, math.nan) for v, names in terms.items()}
        return Trial(TRUE, system.name, seed, [pelts.x], [pelts.t], system.variables, unknown)
    noise = float(rng.choice([0.0, 0.01, 0.05, 0.1]))
    runs = simulate(system, noise=noise, seed=seed)
    truth = {v: dict(system.truth[target]) for v, target in zip(system.variables, system.targets)}
    library = f"poly:{system.basis.degree}" + "".join(
        f",trig:{':'.join(f'{k:g}' for k in system.basis.frequencies)}"
        for _ in system.basis.frequencies[:1]
    )
    return Trial(
        TRUE, system.name, seed, [s.x for s in runs], [s.t for s in runs], system.variables, truth,
        library, system.order, [s.u for s in runs if s.u is not None] or None, noise,
    )  # fmt: skip


# -- equations outside the library ----------------------------------------------------------------

Draw = tuple[Rate, Sequence[float], float, Truth]


def _holling(rng: np.random.Generator) -> Draw:
    r, k, a, h = rng.uniform([0.8, 8, 0.8, 0.3], [1.2, 14, 1.2, 0.8])

    def rate(t: float, s: Array) -> Sequence[float]:
        eaten = a * s[0] * s[1] / (1 + a * h * s[0])
        return r * s[0] * (1 - s[0] / k) - eaten, 0.5 * eaten - 0.4 * s[1]

    return rate, (5, 2), 40, {}


def _michaelis(rng: np.random.Generator) -> Draw:
    v, k = rng.uniform(0.8, 1.5), rng.uniform(0.5, 2)
    return lambda t, s: (-v * s[0] / (k + s[0]),), [rng.uniform(4, 8)], 10, {}


def _chemostat(rng: np.random.Generator) -> Draw:
    m, k, d = rng.uniform([0.8, 0.3, 0.2], [1.2, 0.8, 0.4])

    def rate(t: float, s: Array) -> Sequence[float]:
        growth = m * s[1] / (k + s[1]) * s[0]
        return growth - d * s[0], d * (3 - s[1]) - growth / 0.5

    return rate, (0.1, 3), 25, {}


def _gompertz(rng: np.random.Generator) -> Draw:
    r, k = rng.uniform(0.5, 1), rng.uniform(2, 5)
    return lambda t, s: (r * s[0] * np.log(k / s[0]),), [0.02 * k], 6 / r, {}


def _pendulum(rng: np.random.Generator) -> Draw:
    w, d = rng.uniform(2, 6), rng.uniform(0.1, 0.3)
    start = (rng.uniform(1.5, 2.8), 0)
    return lambda t, s: (s[1], -w * np.sin(s[0]) - d * s[1]), start, 15, {"x": {"y": 1.0}}


def _gene(rng: np.random.Generator) -> Draw:
    a, n = rng.uniform(2, 4), rng.choice([2, 3, 4])
    rate = lambda t, s: (a / (1 + s[1] ** n) - s[0], a / (1 + s[0] ** n) - s[1])  # noqa: E731
    return rate, (rng.uniform(0.1, 0.5), rng.uniform(0.6, 1)), 10, {}


def _forced(rng: np.random.Generator) -> Draw:
    w = rng.uniform(0.8, 2)
    rate = lambda t, s: (s[1], -s[0] - 0.2 * s[1] - s[0] ** 3 + 0.6 * np.cos(w * t))  # noqa: E731
    return rate, (1, 0), 25, {"x": {"y": 1.0}}


def _hidden(rng: np.random.Generator) -> Draw:
    rate = lambda t, s: (  # noqa: E731
        10 * (s[1] - s[0]), s[0] * (28 - s[2]) - s[1], s[0] * s[1] - 8 / 3 * s[2]
    )  # fmt: skip
    start = (np.array([-8.0, 8.0, 27.0]) + rng.standard_normal(3)).tolist()
    return rate, start, 8, {"x": {"x": -10.0, "y": 10.0}}


def _seasonal(rng: np.random.Generator) -> Draw:
    a, b, c, d = rng.uniform([0.8, 0.3, 0.3, 0.08], [1.4, 0.5, 0.5, 0.15])
    w = rng.uniform(0.5, 3)

    def rate(t: float, s: Array) -> Sequence[float]:
        grown = a * (1 + 0.5 * np.sin(w * t))
        return grown * s[0] - b * s[0] * s[1], d * s[0] * s[1] - c * s[1]

    return rate, (10, 5), 25, {"y": {"y": -c, "x y": d}}


def _drag(rng: np.random.Generator) -> Draw:
    w, d = rng.uniform(1, 3), rng.uniform(0.2, 0.6)
    rate = lambda t, s: (s[1], -w * s[0] - d * abs(s[1]) * s[1])  # noqa: E731
    return rate, (2, 0), 15, {"x": {"y": 1.0}}


def _tank(rng: np.random.Generator) -> Draw:
    a, b = rng.uniform(0.3, 0.6), rng.uniform(0.5, 1)
    return lambda t, s: (a - b * np.sqrt(abs(s[0])),), [rng.uniform(4, 8)], 15, {}


def _budworm(rng: np.random.Generator) -> Draw:
    r, k = rng.uniform(0.5, 0.6), rng.uniform(9, 12)
    rate = lambda t, s: (r * s[0] * (1 - s[0] / k) - s[0] ** 2 / (1 + s[0] ** 2),)  # noqa: E731
    return rate, [rng.uniform(2.5, 4)], 25, {}


def _reactor(rng: np.random.Generator) -> Draw:
    q = rng.uniform(0.05, 0.09)

    def rate(t: float, s: Array) -> Sequence[float]:
        burnt = q * (1 - s[0]) * np.exp(s[1] / (1 + s[1] / 20))
        return -s[0] + burnt, -s[1] + 8 * burnt - 0.3 * s[1]

    return rate, (0.1, 0.5), 15, {}


def _saturated_epidemic(rng: np.random.Generator) -> Draw:
    b, g, h = rng.uniform([0.6, 0.1, 2], [1, 0.2, 6])

    def rate(t: float, s: Array) -> Sequence[float]:
        caught = b * s[0] * s[1] / (1 + h * s[1])
        return -caught, caught - g * s[1]

    return rate, (0.99, 0.01), 60, {}


def _outside(make: Callable[[np.random.Generator], Draw], names: str, **options: Any) -> Family:
    """A system, fitted with polynomials; the default library would also try other functions."""
    library = options.pop("library", _polynomials(len(names)))
    return Family(make, tuple(names), (60, 120, 250), (0.0, 0.01, 0.03, 0.05), library, **options)


OUTSIDE = {
    "Holling predation": _outside(_holling, "xy"),
    "Michaelis-Menten": _outside(_michaelis, "x"),
    "chemostat": _outside(_chemostat, "xy"),
    "Gompertz growth": _outside(_gompertz, "x"),
    "pendulum without sines": _outside(_pendulum, "xy"),
    "gene switch": _outside(_gene, "xy"),
    "forced oscillator": _outside(_forced, "xy", library="poly:3"),
    "Lorenz without z": _outside(_hidden, "xy", observed=2),
    "seasonal predation": _outside(_seasonal, "xy"),
    "quadratic drag": _outside(_drag, "xy", library="poly:3"),
    "draining tank": _outside(_tank, "x"),
    "budworm": _outside(_budworm, "x"),
    "reactor": _outside(_reactor, "xy"),
    "saturated epidemic": _outside(_saturated_epidemic, "xy"),
}
"""Systems with terms, inputs or variables that the library or the data lack."""
