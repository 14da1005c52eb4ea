"""Laws of evolution with known terms, solved from random initial values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from smnn.datasets.fields._columns import Columns
from smnn.datasets.fields._spectral import Field, PeriodicGrid, SpectralLaw, integrate
from smnn.equations import parse_expression
from smnn.errors import DataError


@dataclass(frozen=True)
class FieldData:
    """A solution on its grid.

    Attributes:
        u: `(T, X[, Y], F)` values; real or complex.
        t: `(T,)` times.
        x: Coordinates of the points in each direction.
        law: Right-hand side of each field, as text.
    """

    u: Field
    t: Field
    x: tuple[Field, ...]
    law: dict[str, str]

    def noisy(self, noise: float, *, missing: float = 0.0, seed: int = 0) -> Field:
        """The values with normal noise, and with entries removed.

        Args:
            noise: Standard deviation relative to that of each field.
            missing: Fraction of the entries that become NaN.
            seed: Random seed.
        """
        rng = np.random.default_rng([seed, 1])
        axes = tuple(range(self.u.ndim - 1))
        e = rng.standard_normal(self.u.shape)
        if np.iscomplexobj(self.u):
            e = (e + 1j * rng.standard_normal(self.u.shape)) / np.sqrt(2)
        out = self.u + noise * self.u.std(axes) * e
        out[rng.random(self.u.shape[:-1]) < missing] = np.nan
        return np.asarray(out)


@dataclass(frozen=True)
class FieldLaw:
    """A law of evolution with a grid and random initial values.

    Attributes:
        name: Its name.
        law: Right-hand side of each field.
        points: Points in each direction.
        lengths: Period in each direction.
        times: Number of times and the last of them, from 0.
        initial: Makes `(F, *grid)` initial values from a random generator and the coordinates.
        is_complex: Whether the field is complex.
        start: Time that is integrated before the first one.
    """

    name: str
    law: Mapping[str, str]
    points: tuple[int, ...]
    lengths: tuple[float, ...]
    times: tuple[int, float]
    initial: Callable[[np.random.Generator, tuple[Field, ...]], Field]
    is_complex: bool = False
    start: float = 0.0

    def simulate(self, seed: int = 0) -> FieldData:
        """Solve it from initial values with a random seed."""
        axes = ("x", "y")[: len(self.points)]
        columns = Columns(tuple(self.law), axes, self.is_complex)
        x = tuple(np.arange(n) * length / n for n, length in zip(self.points, self.lengths))
        names = [*columns.upto(4), *axes, "i"]
        expressions = [parse_expression(text, names) for text in self.law.values()]
        grid = PeriodicGrid(self.points, self.lengths, self.is_complex)
        law = SpectralLaw(columns, expressions, grid)
        mesh = tuple(np.meshgrid(*x, indexing="ij"))
        u0 = self.initial(np.random.default_rng(seed), mesh)
        number, end = self.times
        t = np.linspace(0.0, end, number)
        before = np.linspace(-self.start, 0.0, 1 + round(self.start * (number - 1) / end))
        found = integrate(law, u0, np.append(before, t[1:]), rtol=1e-7)
        if found.status != "ok":
            raise ArithmeticError(f"{self.name}: the solution is {found.status} (seed {seed}).")
        u = np.moveaxis(grid.inverse(found.modes[len(before) - 1 :]), 1, -1)
        return FieldData(u, t, x, dict(self.law))


def _waves(most: int, size: float, mean: float = 0.0) -> Callable[..., Field]:
    """Sums of random waves with up to `most` periods."""

    def make(rng: np.random.Generator, x: tuple[Field, ...]) -> Field:
        out = np.zeros(x[0].shape)
        for _ in range(2 * most):
            angle = rng.uniform(0, 2 * np.pi)
            for a, points in enumerate(x):
                length = points.max() * points.shape[a] / (points.shape[a] - 1)
                m = rng.integers(1, most + 1) * rng.choice([-1, 1])
                angle = angle + 2 * np.pi * m * points / length
            out = out + rng.uniform(0.3, 1.0) * np.cos(angle)
        return (mean + size * out / out.std())[None]

    return make


def _solitons(rng: np.random.Generator, x: tuple[Field, ...]) -> Field:
    """Two solitons of KdV, the higher one behind."""
    length = x[0][-1] + x[0][1]
    c, at = np.array([rng.uniform(4, 6), rng.uniform(1, 2)]), length * rng.uniform(0.15, 0.2)
    places = [at, at + length * rng.uniform(0.22, 0.28)]
    bumps = [k / 2 / np.cosh(np.sqrt(k) / 2 * (x[0] - p)) ** 2 for k, p in zip(c, places)]
    return np.asarray(sum(bumps))[None]


def _packet(rng: np.random.Generator, x: tuple[Field, ...]) -> Field:
    """Two bumps with random phases."""
    length = x[0][-1] + x[0][1]
    u = 0j
    for share in (0.38, 0.62):
        centre, speed = length * (share + rng.uniform(-0.03, 0.03)), rng.uniform(-2, 2)
        phase = speed * (x[0] - centre) + rng.uniform(0, 2 * np.pi)
        u = u + rng.uniform(1.2, 2.0) / np.cosh(1.5 * (x[0] - centre)) * np.exp(1j * phase)
    return np.asarray(u)[None]


def _front(rng: np.random.Generator, x: tuple[Field, ...]) -> Field:
    """Bumps between 0 and 1."""
    length = x[0][-1] + x[0][1]
    u = np.full_like(x[0], 0.02)
    for _ in range(3):
        apart = (x[0] - rng.uniform(0, length) + length / 2) % length - length / 2
        u = u + rng.uniform(0.1, 0.4) * np.exp(-(apart**2) / rng.uniform(1, 6))
    return u[None]


def _spirals(rng: np.random.Generator, x: tuple[Field, ...]) -> Field:
    """Two smooth fields with vortices."""
    return np.concatenate([_waves(2, 0.7)(rng, x), _waves(2, 0.7)(rng, x)])


_TURN = 2 * np.pi
LAWS: dict[str, FieldLaw] = {
    law.name: law
    for law in (
        FieldLaw("advection", {"u": "-u_x"}, (128,), (_TURN,), (101, 4.0), _waves(4, 1.0)),
        FieldLaw("heat", {"u": "0.1*u_xx"}, (128,), (_TURN,), (101, 4.0), _waves(4, 1.0)),
        FieldLaw("burgers", {"u": "-u*u_x + 0.1*u_xx"}, (256,), (16.0,), (101, 10.0),
                 _waves(3, 0.8)),
        FieldLaw("kdv", {"u": "-6*u*u_x - u_xxx"}, (256,), (40.0,), (101, 3.0), _solitons),
        FieldLaw("mkdv", {"u": "-6*u^2*u_x - u_xxx"}, (128,), (30.0,), (101, 3.0),
                 _waves(2, 0.5, 0.3)),
        FieldLaw("ks", {"u": "-u*u_x - u_xx - u_xxxx"}, (128,), (10 * _TURN,), (151, 60.0),
                 _waves(5, 1.0), start=20.0),
        FieldLaw("fisher-kpp", {"u": "0.5*u_xx + u - u^2"}, (256,), (30.0,), (101, 4.0), _front),
        FieldLaw("nls", {"u": "0.5*i*u_xx + i*u^2*ubar"}, (256,), (20.0,), (201, 3.0), _packet,
                 is_complex=True),
        FieldLaw("lambda-omega", {
            "u": "0.1*u_xx + 0.1*u_yy + u - u^3 - u*v^2 + u^2*v + v^3",
            "v": "0.1*v_xx + 0.1*v_yy + v - v^3 - u^2*v - u*v^2 - u^3",
        }, (64, 64), (12.0, 12.0), (81, 8.0), _spirals),
        FieldLaw("swift-hohenberg", {"u": "-0.8*u + u^2 - u^3 - 2*u_xx - u_xxxx"}, (256,),
                 (20 * _TURN,), (101, 8.0), _waves(16, 1.0)),
    )
}  # fmt: skip
"""Laws by name."""


def simulate_law(name: str, seed: int = 0) -> FieldData:
    """Solve a known law from random initial values.

    Args:
        name: One of `LAWS`.
        seed: Seed of the initial values.

    Raises:
        DataError: There is no such law.

    Examples:
        >>> from smnn.datasets.fields import simulate_law
        >>> data = simulate_law("burgers")
        >>> data.u.shape, data.law
        ((101, 256, 1), {'u': '-u*u_x + 0.1*u_xx'})
    """
    if name not in LAWS:
        raise DataError(f"there is no law {name!r}; expected one of {', '.join(LAWS)}.")
    return LAWS[name].simulate(seed)
