r"""A candidate equation as a least-squares problem, solved by `smnn.solve`.

The unknowns at each time are the $z_j$ of `spec`. The problem has no derivatives ($R = 0$), because
the $h_j(t)$ already contain the dynamics: variation of constants is exact for any step, while a
Taylor expansion needs many steps per period. There are three kinds of rows:

* an observation, $\sum_j h_j(t) z_j(t) = y(t)$, is a governing row, with weight zero if missing;
* $z_j(t + s) = z_j(t)$ is a smoothness row, weighted by the inverse variance of the increments;
* $z_j(t) = 0$ is an initial row; together with the smoothness row it is the damped equation.

The last point is exact, not a discretization. With $\varphi = e^{-ks}$ and stationary variance $v$,

$$ \frac{(z_1 - \varphi z_0)^2}{v(1-\varphi^2)} = \frac{\varphi\,(z_1 - z_0)^2}{v(1-\varphi^2)}
   + \frac{z_1^2}{v(1+\varphi)} - \frac{\varphi\, z_0^2}{v(1+\varphi)}, $$

and summed over the steps, the squares of each $z$ have a positive weight on any grid. Hence the
solution is the conditional mean of $z' = -kz + $ noise given the data, at uneven times too.

Constant terms, such as a slope or a fixed season, are eliminated before the solve. Let $S$ be the
smoother matrix of the dynamic terms, $W$ the squared weights of the observations and $X$ the
columns of the constants. Then $W(1 - S)$ is the inverse covariance of the observations, and the
constants follow from the small system

$$ X^T W (1 - S) X\, b = X^T W (1 - S)\, y, $$

so the blocks passed to the solver contain only the dynamic terms: one to three instead of a dozen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from smnn._solver.api import solve
from smnn.forecasting._model.seasons import Season
from smnn.forecasting._model.spec import Spec
from smnn.forecasting._time import Clock

STIFF = 1e4
"""Weight that fixes the first value of the anomaly at zero: the level term represents it."""
FREE = 1e-3
"""Weight that regularizes the level where there are few observations."""
REGULAR = 0.03
"""Weight that regularizes seasonal amplitudes and coefficients of inputs."""
SHARED_GAPS = 24
"""Smallest number of series with identical gaps for which one linear map is computed."""
BATCH_SIZE = 2_000_000
"""Numbers in one batch of solutions; bounds the memory."""


@dataclass(frozen=True)
class Term:
    """One $z_j$."""

    kind: str
    """`level`, `slope`, `season`, `input`, `anomaly` or `cycle`."""
    label: str = ""
    decay: float = 1.0
    """Factor by which it decays in one step."""
    variance: float = 0.0
    """Variance of its increments, or its stationary variance if damped; 0 for a constant."""
    pull: float = REGULAR
    """Weight that pulls the first value towards zero."""

    @property
    def part(self) -> str:
        """Name of the component of the forecast that contains it."""
        if self.kind == "season":
            return f"season {self.label}"
        return {"level": "trend", "slope": "trend", "input": "inputs"}.get(self.kind, self.kind)


@dataclass(frozen=True)
class System:
    """Least-squares rows of one candidate on one history."""

    spec: Spec
    terms: tuple[Term, ...]
    h: np.ndarray
    """`(n, V)` factor of each term in the observation row, on the history."""
    ahead: np.ndarray
    """`(H, V)` the same in the future, including the decay since the last time of the history."""
    w_obs: np.ndarray
    """`(n,)` weights of observations."""
    w_zero: np.ndarray
    """`(n, V)` weights of the rows `z = 0`."""
    w_step: np.ndarray
    """`(n-1, V)` weights of the rows `z(t+s) = z(t)` of the dynamic terms."""

    def index(self, *kinds: str) -> list[int]:
        """Indices of the terms of these kinds."""
        return [j for j, term in enumerate(self.terms) if term.kind in kinds]

    @property
    def constant(self) -> list[int]:
        """Indices of the constant terms."""
        return [j for j, term in enumerate(self.terms) if term.variance == 0]

    @property
    def dynamic(self) -> list[int]:
        """Indices of the other terms."""
        return [j for j, term in enumerate(self.terms) if term.variance > 0]


def make_system(
    spec: Spec, clock: Clock, future: Clock, seasons: Sequence[Season],
    inputs: np.ndarray | None = None, inputs_ahead: np.ndarray | None = None, fade: float = 1.0,
    span: float | None = None, waves: tuple[list[np.ndarray], list[np.ndarray]] | None = None,
) -> System:  # fmt: skip
    """Build the rows of a candidate.

    Args:
        spec: The candidate.
        clock: Times of the history, `n` of them.
        future: Times to forecast, `H` of them.
        seasons: Seasons of the series.
        inputs: `(n, I)` standardized exogenous inputs.
        inputs_ahead: `(H, I)` their future values; zero if `None`.
        fade: Steps over which a damped slope decays.
        span: Length in steps that defines the unit of the slope; that of this history if `None`.
            With a fixed span, `pull` has the same effect on a part of the history as on all of it.
        waves: Columns of the seasons at both times, if already computed.
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
    if waves is None:
        waves = [s.waves(clock) for s in seasons], [s.waves(future) for s in seasons]
    for season, now, then in zip(seasons, *waves):
        for j in range(now.shape[1]):
            terms.append(Term("season", season.name, variance=spec.evolve))
            h.append(now[:, j])
            ahead.append(then[:, j])
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
    """Weights of the rows `z = 0` and `z(t+s) = z(t)` of one term."""
    zero = np.zeros(len(step) + 1)
    # Each smoothness row occurs twice, forward and backward; without derivatives these are equal.
    half = np.sqrt(0.5)
    if term.variance == 0:  # eliminated, so the smoothness weights are not used
        zero[0] = term.pull
        return zero, np.zeros(len(step))
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
    """Fit all terms `(S, n, V)` over the whole history of observations `y (S, n)`."""
    n, V = system.h.shape
    out = np.empty((len(y), n, V))
    for part in _parts(len(y), n * V * max(len(system.dynamic), 1)):
        b, z = _eliminate([system], y[part])
        out[part][:, :, system.constant] = b[0][:, None, :]
        out[part][:, :, system.dynamic] = z[0]
    return out


def end_states(systems: Sequence[System], y: np.ndarray) -> list[np.ndarray]:
    """Fit all terms and return their values at the end of the history.

    They are linear in the observations. For series with identical gaps the linear map is computed
    once and applied to all of them.

    Args:
        systems: Rows of several candidates on one history.
        y: `(S, n)` observations, NaN where missing.
    """
    n = y.shape[1]
    out = [np.empty((len(y), len(system.terms))) for system in systems]
    seen = np.isfinite(y)
    alike, others = same_gaps(seen)
    if len(y) < SHARED_GAPS:
        alike, others = [], np.arange(len(y))
    sizes: dict[tuple[int, ...], list[int]] = {}
    for i, system in enumerate(systems):
        sizes.setdefault((len(system.terms), *system.dynamic), []).append(i)
    for members in sizes.values():
        first = systems[members[0]]
        constant, dynamic, V = first.constant, first.dynamic, len(first.terms)
        size = n * (len(constant) + 1) * max(len(dynamic), 1) ** 2
        for some in (members[part] for part in _parts(len(members), size)):
            chosen = [systems[i] for i in some]
            for rows in alike:
                maps = _maps(chosen, seen[rows[0]])
                known = y if len(rows) == len(y) else y[rows]
                known = known if seen[rows[0]].all() else np.where(seen[rows], known, 0.0)
                states = (known @ maps.reshape(-1, n).T).reshape(len(rows), len(some), V)
                for i, place in enumerate(some):
                    out[place][rows] = states[:, i]
            for rows in (others[part] for part in _parts(len(others), size * len(some))):
                b, z = _eliminate(chosen, y[rows])
                for i, place in enumerate(some):
                    out[place][rows[:, None], constant] = b[i]
                    out[place][rows[:, None], dynamic] = z[i][:, -1]
    return out


def same_gaps(seen: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Group the rows of `seen (S, n)` by identical gaps.

    Returns:
        Groups of at least `SHARED_GAPS` rows, and the indices of all other rows.
    """
    if seen.all():
        return [np.arange(len(seen))], np.arange(0)
    found: dict[bytes, list[int]] = {}
    for i, row in enumerate(np.packbits(seen, axis=1)):
        found.setdefault(row.tobytes(), []).append(i)
    alike = [np.array(rows) for rows in found.values() if len(rows) >= SHARED_GAPS]
    others = [i for rows in found.values() if len(rows) < SHARED_GAPS for i in rows]
    return alike, np.array(others, dtype=int)


def _parts(count: int, size: int) -> list[slice]:
    """Split `count` samples into batches of at most `BATCH_SIZE` numbers."""
    each = max(1, BATCH_SIZE // max(size, 1))
    return [slice(i, min(i + each, count)) for i in range(0, count, each)]


def _eliminate(systems: Sequence[System], y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Constants `(M, S, P)` and dynamic terms `(M, S, n, D)`, solved series by series."""
    seen = np.isfinite(y)
    X = np.stack([system.h[:, system.constant] for system in systems])  # (M, n, P)
    w = np.stack([seen * system.w_obs for system in systems])  # (M, S, n)
    M, S, n = w.shape
    P = X.shape[2]
    d = np.empty((M, S, P + 1, n))
    d[:, :, :P] = X.transpose(0, 2, 1)[:, None]
    d[:, :, P] = np.where(seen, y, 0.0)
    z = _smooth(systems, d, w[:, :, None])  # (M, S, P + 1, n, D)
    G = w[:, :, None] ** 2 * (d - _contribution(systems, z))
    b = _constants(systems, X, G[:, :, :P], (G[:, :, P, None] @ X[:, None])[:, :, 0])
    own = z[:, :, P] - np.einsum("msp,mspnd->msnd", b, z[:, :, :P])
    return b, own


def _maps(systems: Sequence[System], seen: np.ndarray) -> np.ndarray:
    """`(M, V, n)` linear maps from the observations to the final terms, for one pattern of gaps."""
    X = np.stack([system.h[:, system.constant] for system in systems])
    w = np.stack([seen * system.w_obs for system in systems])
    z = _smooth(systems, X.transpose(0, 2, 1).copy(), w[:, None])
    G = w[:, None] ** 2 * (X.transpose(0, 2, 1) - _contribution(systems, z))
    b = _constants(systems, X, G[:, None], G[:, None])[:, 0]  # (M, P, n)
    first = systems[0]
    out = np.empty((len(systems), len(first.terms), len(seen)))
    out[:, first.constant] = b
    if first.dynamic:
        L = _influence(systems, w)
        out[:, first.dynamic] = L - (L @ X) @ b
    return out


def _constants(
    systems: Sequence[System], X: np.ndarray, G: np.ndarray, right: np.ndarray
) -> np.ndarray:  # fmt: skip
    """Solve for the constants; `right` is `(M, S, P)` or, for several sides, `(M, S, P, n)`."""
    A = G @ X[:, None]
    pull = np.stack([system.w_zero[0, system.constant] for system in systems]) ** 2
    A += (pull[:, :, None] * np.eye(X.shape[2]))[:, None]
    if right.ndim == 3:
        return np.linalg.solve(A, right[..., None])[..., 0]
    return np.linalg.solve(A, right)


def _contribution(systems: Sequence[System], z: np.ndarray) -> np.ndarray:
    """Contribution `(M, ..., n)` of the dynamic terms `(M, ..., n, D)` to the series."""
    h = np.stack([system.h[:, system.dynamic] for system in systems])
    return (z * h.reshape(len(h), *(1,) * (z.ndim - 3), *h.shape[1:])).sum(-1)


def _influence(systems: Sequence[System], w: np.ndarray) -> np.ndarray:
    """`(M, D, n)` derivative of the final dynamic terms with respect to the observations."""
    M, n = w.shape
    D = len(systems[0].dynamic)
    d = torch.zeros(M, D, n, dtype=torch.float64, requires_grad=True)
    z = _solve_dynamic(systems, d, torch.from_numpy(w)[:, None])
    # Sample j is differentiated for term j, so one backward pass gives all rows.
    torch.diagonal(z[:, :, -1], dim1=1, dim2=2).sum().backward()
    assert d.grad is not None
    return d.grad.numpy()


def _smooth(systems: Sequence[System], d: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Fit the dynamic terms `(M, ..., n, D)` to series `d (M, ..., n)`."""
    if not systems[0].dynamic:
        return np.zeros((*d.shape, 0))
    return _solve_dynamic(systems, torch.from_numpy(d), torch.from_numpy(w)).numpy()


def _solve_dynamic(systems: Sequence[System], d: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Solve for the dynamic terms `(M, ..., n, D)` of `M` candidates."""
    dynamic = systems[0].dynamic
    n, D = len(systems[0].h), len(dynamic)
    lead = (1,) * (d.ndim - 2)
    h, w_zero, w_step = (
        torch.from_numpy(np.stack([getattr(system, name)[:, dynamic] for system in systems]))
        for name in ("h", "w_zero", "w_step")
    )
    h, w_zero, w_step = (x.reshape(len(x), *lead, *x.shape[1:]) for x in (h, w_zero, w_step))
    z = solve(
        h[..., None, :, None],
        d[..., None],
        h.new_zeros(1, *lead, n, D, 1),
        h.new_ones(1, *lead, n - 1),
        w_gov=w[..., None],
        w_init=w_zero[..., None],
        w_smooth=w_step[..., None],
        n_steps=n,
    )
    return z[..., 0]
