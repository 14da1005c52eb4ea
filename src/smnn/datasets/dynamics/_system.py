"""Problems of equation discovery and the simulation of their data."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from smnn._util.optional import require
from smnn.datasets.dynamics._terms import Array, Basis

RTOL = ATOL = 1e-13
"""Tolerances of the integrator."""

RightHandSide = Callable[[float, Sequence[float]], Sequence[float]]
Coefficients = Mapping[str, Mapping[str, float]]
"""Nonzero coefficients by target and term."""


class Series(NamedTuple):
    """One run of measurements."""

    t: Array
    """`(T,)` times."""
    x: Array
    """`(T, V)` values of the variables."""
    u: Array | None = None
    """`(T, U)` known inputs."""


@dataclass(frozen=True)
class Problem:
    """Measured variables and candidate terms."""

    name: str
    variables: tuple[str, ...]
    basis: Basis
    reference: str
    """Source of the equations or the data."""
    order: int = field(default=1, kw_only=True)
    """Order of the equations. Only the variables themselves are measured, not their derivatives."""
    inputs: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def states(self) -> tuple[str, ...]:
        """The variables and their derivatives below the order: `x, y, x', y'`."""
        return tuple(v + "'" * k for k in range(self.order) for v in self.variables)

    @property
    def targets(self) -> tuple[str, ...]:
        """The derivatives that the equations give: `x''`, `y''`."""
        return tuple(v + "'" * self.order for v in self.variables)

    @property
    def terms(self) -> list[str]:
        """Names of the candidate terms, in states and inputs."""
        return self.basis.terms((*self.states, *self.inputs))


@dataclass(frozen=True)
class Record(Problem):
    """Measured data without known equations."""

    series: tuple[Series, ...]
    expected: Mapping[str, frozenset[str]]
    """Terms of the textbook model for every target, for comparison only."""


@dataclass(frozen=True)
class System(Problem):
    """A problem with known equations."""

    rhs: RightHandSide
    """The highest derivatives `(V,)` from the time and the states (with inputs after them)."""
    truth: Coefficients
    """Coefficients of the terms of the right-hand side."""
    starts: tuple[tuple[float, ...], ...]
    """Initial states, one for every series."""
    dt: float
    n: int
    """Samples of every series."""
    drive: Callable[[float], Sequence[float]] | None = field(default=None, kw_only=True)
    """The inputs as functions of time."""


def simulate(
    system: System, *, noise: float = 0.0, seed: int = 0, n: int | None = None,
    dt: float | None = None,
) -> list[Series]:  # fmt: skip
    """Simulate measurements of a system, one series for each of its initial states.

    Without noise every sample follows from the previous one to about 1e-12 of the size of the
    variables (Dormand-Prince method of order 8, stopped at every sample).

    Args:
        system: One of `SYSTEMS`, or your own.
        noise: Standard deviation of the normal noise that is added, as a fraction of the standard
            deviation of each variable over all clean series. Inputs stay as they are.
        seed: Random seed of the noise.
        n: Samples of every series; by default that of the system.
        dt: Step between samples; by default that of the system.

    Raises:
        RuntimeError: The integration failed, for example because the solution diverges.
    """
    system = replace(system, n=n or system.n, dt=dt or system.dt)
    return add_noise([_solve(system, start) for start in system.starts], noise, seed)


def add_noise(clean: Sequence[Series], noise: float, seed: int) -> list[Series]:
    """Add normal noise to series, as in `simulate`."""
    if noise == 0:
        return list(clean)
    generator = np.random.default_rng(seed)
    size = noise * np.concatenate([s.x for s in clean]).std(axis=0)
    return [s._replace(x=s.x + size * generator.standard_normal(s.x.shape)) for s in clean]


def _solve(system: System, start: Sequence[float]) -> Series:
    """Integrate all states and return the variables."""
    integrate = require("scipy.integrate", "simulate a system")
    f, drive, V = system.rhs, system.drive, len(system.variables)

    def derivative(t: float, state: Array) -> list[float]:
        s = state.tolist()
        top = f(t, s if drive is None else [*s, *drive(t)])
        return [*s[V:], *top]

    t: Array = np.arange(system.n, dtype=np.float64) * system.dt
    solver = integrate.ode(derivative)
    solver.set_integrator("dop853", rtol=RTOL, atol=ATOL, nsteps=100_000)
    solver.set_initial_value(list(start), 0.0)
    states = [np.array(start, dtype=np.float64)]
    for time in t[1:]:
        with warnings.catch_warnings(action="ignore"):  # failures are raised below
            states.append(solver.integrate(time))
        if not solver.successful() or not np.isfinite(states[-1]).all():
            raise RuntimeError(
                f"{system.name} from {tuple(start)} could not be integrated beyond t = {time:g}; "
                "expected a bounded solution. Use another initial state or a shorter time."
            )
    x = np.stack(states)[:, :V]
    u = None if drive is None else np.array([drive(time) for time in t], dtype=np.float64)
    return Series(t, x, u)
