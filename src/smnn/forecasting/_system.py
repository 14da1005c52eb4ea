r"""A candidate equation as a least-squares problem, solved by `smnn.solve`.

The unknowns at each time are the $z_j$ of `_spec`; the problem has no derivatives ($R = 0$),
because the $h_j(t)$ already carry the motion: varying the constants of the solution is exact for
any step, where a Taylor expansion needs many steps to a period. Three kinds of rows:

* an observation, $\sum_j h_j(t) z_j(t) = y(t)$, is a governing row; weight zero if it is missing;
* $z_j(t + s) = z_j(t)$ is a smoothness row; its weight says how freely $z_j$ wanders;
* $z_j(t) = 0$ is an initial row; together with the smoothness row it is the damped equation.

The last point is exact, not a discretisation. With $\varphi = e^{-ks}$ and stationary variance $v$,

$$ \frac{(z_1 - \varphi z_0)^2}{v(1-\varphi^2)} = \frac{\varphi\,(z_1 - z_0)^2}{v(1-\varphi^2)}
   + \frac{z_1^2}{v(1+\varphi)} - \frac{\varphi\, z_0^2}{v(1+\varphi)}, $$

and summed over the steps the squares of each $z$ have a positive weight on any grid. So the
solution is the conditional mean of $z' = -kz + $ noise given the data, at uneven times too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from smnn._solve import solve
from smnn.forecasting._seasons import Season
from smnn.forecasting._spec import Spec
from smnn.forecasting._time import Clock

STIFF = 1e4
"""Weight of the smoothness rows of a constant, relative to an observation."""
FREE = 1e-3
"""Weight that keeps the level regular where there are few observations."""
REGULAR = 0.03
"""The same for seasonal amplitudes and inputs."""
WORTH_IT = 24
"""Series with the same gaps from which they are treated together."""
BLOCK = 2_000_000
"""Numbers in one batch of solutions: bounds the memory."""


@dataclass(frozen=True)
class Term:
    """One $z_j$."""

    kind: str
    """`level`, `slope`, `season`, `input`, `anomaly` or `cycle`."""
    label: str = ""
    decay: float = 1.0
    """In one step."""
    variance: float = 0.0
    """Of its steps, or its own if it is damped; 0 is a constant."""
    pull: float = REGULAR
    """Weight that pulls the first value to zero."""

    @property
    def part(self) -> str:
        """Name of the part of the forecast that it belongs to."""
        if self.kind == "season":
            return f"season {self.label}"
        return {"level": "trend", "slope": "trend", "input": "inputs"}.get(self.kind, self.kind)


@dataclass(frozen=True)
class System:
    """Rows of one candidate on one history."""

    spec: Spec
    terms: tuple[Term, ...]
    h: np.ndarray
    """`(n, V)` what each term contributes to the series, on the history."""
    ahead: np.ndarray
    """`(H, V)` the same in the future, with the damping since the last time of the history."""
    w_obs: np.ndarray
    """`(n,)` weights of observations."""
    w_zero: np.ndarray
    """`(n, V)` weights of the rows `z = 0`."""
    w_step: np.ndarray
    """`(n-1, V)` weights of the rows `z(t+s) = z(t)`."""

    def index(self, *kinds: str) -> list[int]:
        """Places of the terms of these kinds."""
        return [j for j, term in enumerate(self.terms) if term.kind in kinds]


def make_system(
    spec: Spec, clock: Clock, future: Clock, seasons: Sequence[Season],
    inputs: np.ndarray | None = None, inputs_ahead: np.ndarray | None = None, fade: float = 1.0,
    span: float | None = None,
) -> System:  # fmt: skip
    """Write out the rows.

    Args:
        spec: The candidate.
        clock: Times of the history, `n` of them.
        future: Times to forecast, `H` of them.
        seasons: Their cycles.
        inputs: `(n, I)` known influences, standardised.
        inputs_ahead: `(H, I)` the same in the future.
        fade: Steps over which a damped slope dies out.
        span: Steps that the unit of the slope goes by; those of this history if `None`. A pull on
            the slope then means the same on a part of a history and on the whole.
    """
    n, t, later = len(clock), clock.steps, future.steps
    end = t[-1]
    terms = [Term("level", pull=FREE)]
    h = [np.ones(n)]
    ahead = [np.ones(len(future))]
    if spec.trend != "none" and n > 1:
        unit = (end - t[0] if span is None else span) / np.sqrt(12.0)  # unit variance over the span
        run = later - end
        if spec.trend == "damped":
            run = -np.expm1(-run / fade) * fade
        terms.append(Term("slope", pull=spec.pull))
        h.append((t - end) / unit)
        ahead.append(run / unit)
    for season in seasons:
        waves, waves_ahead = season.waves(clock), season.waves(future)
        for j in range(waves.shape[1]):
            terms.append(Term("season", season.name, variance=spec.evolve))
            h.append(waves[:, j])
            ahead.append(waves_ahead[:, j])
    if inputs is not None:
        later_inputs = np.zeros((len(future), inputs.shape[1]))
        if inputs_ahead is not None:
            later_inputs = inputs_ahead
        for j in range(inputs.shape[1]):
            terms.append(Term("input", str(j)))
            h.append(inputs[:, j])
            ahead.append(later_inputs[:, j])
    if spec.cycle:
        angle, angle_ahead = (2 * np.pi * (x - end) / spec.cycle for x in (t, later))
        fading = spec.cycle_decay ** (later - end)
        for wave in (np.cos, np.sin):
            terms.append(Term("cycle", decay=spec.cycle_decay, variance=4.0, pull=FREE))
            h.append(np.sqrt(2) * wave(angle))
            ahead.append(np.sqrt(2) * wave(angle_ahead) * fading)
    if spec.ratio > 0:
        terms.append(Term("anomaly", decay=spec.decay, variance=spec.ratio, pull=STIFF))
        h.append(np.ones(n))
        ahead.append(spec.decay ** (later - end))
    w_zero, w_step = np.zeros((n, len(terms))), np.zeros((max(n - 1, 0), len(terms)))
    for j, term in enumerate(terms):
        w_zero[:, j], w_step[:, j] = _weights(term, np.diff(t))
    w_obs = 0.5 ** ((end - t) / (2 * spec.half_life))  # weights enter squared
    return System(
        spec, tuple(terms), np.stack(h, 1), np.stack(ahead, 1), w_obs, w_zero, w_step
    )  # fmt: skip


def _weights(term: Term, step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the rows `z = 0` and `z(t+s) = z(t)` of one term."""
    zero = np.zeros(len(step) + 1)
    # Every smoothness row comes twice, forward and backward; without derivatives they are the same.
    half = np.sqrt(0.5)
    if term.variance == 0:
        zero[0] = term.pull
        return zero, np.full(len(step), STIFF * half)
    if term.decay >= 1:
        zero[0] = term.pull
        return zero, half / np.sqrt(term.variance * step)
    decay = term.decay**step
    square = np.zeros(len(step) + 1)
    square[0] = 1.0
    square[1:] += 1 / (1 + decay)
    square[:-1] -= decay / (1 + decay)
    zero = np.sqrt(np.maximum(square, 0) / term.variance)
    return zero, half * np.sqrt(decay / (term.variance * -np.expm1(2 * np.log(decay))))


def trajectories(system: System, y: np.ndarray) -> np.ndarray:
    """The fitted terms of every series over the history.

    Args:
        system: The rows.
        y: `(S, n)` observations, NaN where missing.

    Returns:
        `z (S, n, V)`.
    """
    n, V = system.h.shape
    out = np.empty((len(y), n, V))
    for part in _parts(len(y), n * V * V):
        out[part] = _solve(system, y[part]).numpy()
    return out


def end_states(systems: Sequence[System], y: np.ndarray) -> list[np.ndarray]:
    """The terms at the end of the history, from which every forecast follows.

    They are linear in the observations. Where many series are missing at the same times, the linear
    map is found once, as a derivative of the solution, and applied to all of them.

    Args:
        systems: The rows of several candidates on one history.
        y: `(S, n)` observations, NaN where missing.

    Returns:
        `(S, V)` for each candidate.
    """
    out = [np.empty((len(y), len(system.terms))) for system in systems]
    if not systems:
        return out
    seen = np.isfinite(y)
    alike, others = same_gaps(seen)
    most = max(len(system.terms) for system in systems)
    for rows in alike:
        if len(rows) <= 3 * most:  # the map costs about as much as 3 V solutions
            others = np.concatenate([others, rows])
            continue
        known = y if len(rows) == len(y) else y[rows]
        known = known if seen[rows[0]].all() else np.where(seen[rows], known, 0.0)
        maps = [_influence(system, seen[rows[0]]) for system in systems]
        states = known @ np.concatenate(maps).T
        ends = np.cumsum([len(m) for m in maps])
        for i, part in enumerate(np.split(states, ends[:-1], axis=1)):
            out[i][rows] = part
    sizes: dict[int, list[int]] = {}
    for i, system in enumerate(systems):
        sizes.setdefault(len(system.terms), []).append(i)
    n = y.shape[1]
    for V, members in sizes.items():
        for rows in (others[part] for part in _parts(len(others), n * V * V)):
            for some in (members[part] for part in _parts(len(members), len(rows) * n * V * V)):
                z = _solve_all([systems[i] for i in some], y[rows])[:, :, -1].numpy()
                for i, states in zip(some, z):
                    out[i][rows] = states
    return out


def same_gaps(seen: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Groups of at least `WORTH_IT` rows of `seen (S, n)` missing at the same times; the others."""
    if seen.all():
        return [np.arange(len(seen))], np.arange(0)
    found: dict[bytes, list[int]] = {}
    for i, row in enumerate(np.packbits(seen, axis=1)):
        found.setdefault(row.tobytes(), []).append(i)
    alike = [np.array(rows) for rows in found.values() if len(rows) >= WORTH_IT]
    others = [i for rows in found.values() if len(rows) < WORTH_IT for i in rows]
    return alike, np.array(others, dtype=int)


def _parts(count: int, size: int) -> list[slice]:
    """Cut `count` samples so that one batch stays within `BLOCK` numbers."""
    each = max(8, BLOCK // max(size, 1))  # the solver takes eight samples at a time
    return [slice(i, min(i + each, count)) for i in range(0, count, each)]


def _solve(system: System, y: np.ndarray) -> torch.Tensor:
    """`(S, n, V)`."""
    return _solve_all([system], y)[0]


def _solve_all(systems: Sequence[System], y: np.ndarray) -> torch.Tensor:
    """`(M, S, n, V)`."""
    seen = np.isfinite(y)
    d = torch.from_numpy(np.where(seen, y, 0.0))
    w = np.stack([seen * system.w_obs for system in systems])
    return _rows(systems, d[None], torch.from_numpy(w))


def _influence(system: System, seen: np.ndarray) -> np.ndarray:
    """`(V, n)`: the derivative of the terms at the end by the observations."""
    n, V = system.h.shape
    d = torch.zeros(1, V, n, dtype=torch.float64, requires_grad=True)
    z = _rows([system], d, torch.from_numpy(seen * system.w_obs)[None, None])
    # Sample j is differentiated for term j: one backward pass gives all V rows.
    torch.diagonal(z[0, :, -1]).sum().backward()
    assert d.grad is not None
    return d.grad[0].numpy()


def _rows(systems: Sequence[System], d: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Solve `M` candidates for `S` series, `(M, S, n, V)`."""
    n, V = systems[0].h.shape
    h, w_zero, w_step = (
        torch.from_numpy(np.stack([getattr(system, name) for system in systems]))[:, None]
        for name in ("h", "w_zero", "w_step")
    )
    z = solve(
        h[:, :, :, None, :, None],
        d[..., None],
        h.new_zeros(1, 1, n, V, 1),
        h.new_ones(1, 1, n - 1),
        w_gov=w[..., None],
        w_init=w_zero[..., None],
        w_smooth=w_step[..., None],
        n_steps=n,
    )
    return z[..., 0]
