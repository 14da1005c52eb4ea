r"""Fits of candidate equations to the times before many origins at once.

With the variance of the anomaly $z$ given, a Kalman filter turns the series and every column $x_j$
into independent errors $\tilde y$, $\tilde x_j$ of unit variance. The coefficients minimize

$$ \sum_t \Bigl(\tilde y(t) - \sum_j \tilde x_j(t)\, b_j\Bigr)^2 + \text{small penalty}, $$

and the anomaly is the filter's estimate for $y - \sum_j x_j b_j$. A
filter sees only the past, so one pass gives the errors before every origin, for all variances and
all series. The result is the end of the least-squares trajectory that `trajectory` finds with
`smnn.solve`, as a problem without derivatives ($R = 0$):

* an observation, $z(t) = y(t) - \sum_j x_j(t)\, b_j$, is a governing row;
* $z(t + s) = z(t)$ is a smoothness row, weighted by the inverse variance of the increments;
* $z(t) = 0$ is an initial row; together with the smoothness row it is the damped equation.

The last point is exact, not a discretization. With $\varphi = e^{-ks}$ and stationary variance $v$,

$$ \frac{(z_1 - \varphi z_0)^2}{v(1-\varphi^2)} = \frac{\varphi\,(z_1 - z_0)^2}{v(1-\varphi^2)}
   + \frac{z_1^2}{v(1+\varphi)} - \frac{\varphi\, z_0^2}{v(1+\varphi)}, $$

and summed over the steps, the squares of each $z$ have a positive weight on any grid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from smnn._solver.api import solve
from smnn.forecasting._model.spec import Spec

STIFF = 1e4
"""Weight that fixes the first value of a random walk at zero: the level represents it."""
PULL = {"level": 1e-3, "slope": 0.01}
"""Weights that pull coefficients towards zero where there are few observations."""
REGULAR = 0.03
"""The same for seasonal amplitudes and coefficients of inputs."""
SHARED_GAPS = 24
"""Smallest number of series with identical gaps that share their filtered columns."""
BATCH_SIZE = 10_000_000
"""Numbers in one batch of series; bounds the memory."""


class Term(NamedTuple):
    """A column of the regression."""

    kind: str
    """`level`, `slope`, `season` or `input`."""
    label: str = ""

    @property
    def part(self) -> str:
        """Name of the component of the forecast that contains it."""
        if self.kind == "season":
            return f"season {self.label}"
        return "inputs" if self.kind == "input" else "trend"


@dataclass(frozen=True)
class Fit:
    """A candidate fitted to the times before each of several origins."""

    spec: Spec
    used: np.ndarray
    """`(P,)` indices of its columns."""
    coefficients: np.ndarray
    """`(O, S, P)`."""
    anomaly: np.ndarray
    """`(O, S)` at the last time before the origin."""
    centre: np.ndarray
    """`(S, 1)` subtracted from the series."""

    def part(self, rows: np.ndarray | slice, spec: Spec) -> Fit:
        """Select some of the series."""
        b, z = self.coefficients[:, rows], self.anomaly[:, rows]
        return Fit(spec, self.used, b, z, self.centre[rows])


def fit_all(
    y: np.ndarray, steps: np.ndarray, terms: Sequence[Term], X: np.ndarray,
    specs: Sequence[Spec], origins: Sequence[int], window: int,
) -> list[Fit]:  # fmt: skip
    """Fit candidates to the last `window` times before each origin.

    Args:
        y: `(S, n)` series, NaN where missing; logarithms if the candidates model these.
        steps: `(n,)` times.
        terms: What the columns are.
        X: `(n, P)` columns.
        specs: The candidates.
        origins: Numbers of times before the origins.
        window: Largest number of times to use.
    """
    S = len(y)
    noises = list(dict.fromkeys((spec.decay, spec.ratio) for spec in specs))
    used = [_columns(spec, terms) for spec in specs]
    seen = np.isfinite(y)
    centre = np.where(seen, y, 0.0).sum(1, keepdims=True) / np.maximum(seen.sum(1), 1)[:, None]
    z = np.where(seen, y - centre, 0.0)
    fits = [
        Fit(spec, own, np.empty((len(origins), S, len(own))), np.empty((len(origins), S)), centre)
        for spec, own in zip(specs, used)
    ]
    pull = np.array([PULL.get(term.kind, REGULAR) for term in terms]) ** 2
    each = BATCH_SIZE // (len(noises) * (y.shape[1] + len(origins) * len(terms)))
    for rows, alone in _batches(seen, max(1, each), len(terms)):
        columns = np.repeat(X[None], len(rows), 0) if alone else X[None]  # (G, n, P)
        lanes = z[rows][..., None] if alone else z[rows].T[None]
        lanes = np.concatenate([columns, lanes], axis=2)  # (G, n, L)
        known = seen[rows] if alone else seen[rows[:1]]
        errors, states = _filtered(lanes, known, np.diff(steps), noises, origins)
        products = _products(errors, len(terms), origins, window)
        for made in fits:
            j = noises.index((made.spec.decay, made.spec.ratio))
            b, anomaly = _solved(products[:, j], states[:, j], made.used, pull)
            made.coefficients[:, rows] = b
            made.anomaly[:, rows] = anomaly
    return fits


def _columns(spec: Spec, terms: Sequence[Term]) -> np.ndarray:
    """Indices of the columns of a candidate."""
    left_out = {"slope"} if spec.trend == "none" else set()
    left_out |= set() if spec.seasonal else {"season"}
    return np.array([j for j, term in enumerate(terms) if term.kind not in left_out])


def _batches(seen: np.ndarray, each: int, columns: int) -> Iterator[tuple[np.ndarray, bool]]:
    """Indices of series, and whether they need filtered columns of their own."""
    groups: dict[bytes, list[int]] = {}
    if seen.all():
        groups[b""] = list(range(len(seen)))
    else:
        for i, row in enumerate(np.packbits(seen, axis=1)):
            groups.setdefault(row.tobytes(), []).append(i)
    others = []
    for rows in groups.values():
        if len(rows) < SHARED_GAPS and len(groups) > 1:
            others += rows
            continue
        yield from ((np.array(rows[i : i + each]), False) for i in range(0, len(rows), each))
    each = max(1, each // (columns + 1))
    yield from ((np.array(others[i : i + each]), True) for i in range(0, len(others), each))


def _filtered(
    x: np.ndarray, seen: np.ndarray, step: np.ndarray, noises: Sequence[tuple[float, float]],
    origins: Sequence[int],
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Errors `(n, K, G, L)` of unit variance, and states `(O, K, G, L)` before each origin.

    Args:
        x: `(G, n, L)` series and columns.
        seen: `(G, n)` which times were observed.
        step: `(n - 1,)` distances of the times.
        noises: Decay and variance of `K` anomalies.
        origins: Numbers of times before the origins.
    """
    decay, ratio = (np.array(column)[:, None] for column in zip(*noises))
    n, K = len(step) + 1, len(noises)
    (G, _, L), x = x.shape, np.ascontiguousarray(x.transpose(1, 0, 2))
    errors, states = np.empty((n, K, G, L)), np.zeros((len(origins), K, G, L))
    observed = np.ascontiguousarray(seen.T)
    if not ratio.any():
        errors[:] = (x * observed[..., None])[:, None]
        return errors, states
    at = {origin: i for i, origin in enumerate(origins)}
    walk = decay >= 1
    fading = np.where(walk, 1.0, decay ** np.append(0.0, step))[..., None, None]  # (K, n, 1, 1)
    added = ratio * np.where(walk, np.append(0.0, step), 1 - fading[..., 0, 0] ** 2)
    variance = np.repeat(np.where(walk & (ratio > 0), STIFF**-2, ratio), G, axis=1)
    state = np.zeros((K, G, L))
    for t in range(n):
        if t:
            variance = fading[:, t, 0] ** 2 * variance + added[:, t, None]
            state *= fading[:, t]
        gain = variance / (variance + 1.0) * observed[t]
        error = x[t] - state
        state += gain[..., None] * error
        errors[t] = error * (observed[t] / np.sqrt(variance + 1.0))[..., None]
        variance = variance * (1.0 - gain)
        if t + 1 in at:
            states[at[t + 1]] = state
    return errors, states


def _products(errors: np.ndarray, P: int, origins: Sequence[int], window: int) -> np.ndarray:
    """`(O, K, G, P, L)` products of the columns with columns and series before each origin."""
    out = np.empty((len(origins), *errors.shape[1:3], P, errors.shape[3]))
    for i, origin in enumerate(origins):
        own = errors[max(0, origin - window) : origin].transpose(1, 2, 0, 3)
        out[i] = own[..., :P].swapaxes(2, 3) @ own
    return out


def _solved(
    products: np.ndarray, states: np.ndarray, used: np.ndarray, pull: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients `(O, S, P)` and anomalies `(O, S)` of the candidate with the columns `used`."""
    P = len(pull)
    right = products[..., used, P:]  # (O, G, P, S or 1)
    b = np.linalg.solve(products[..., used[:, None], used] + np.diag(pull[used]), right)
    z = states[..., P:] - (states[..., None, used] @ b)[..., 0, :]
    if products.shape[1] == 1:  # shared columns
        return b[:, 0].swapaxes(1, 2), z[:, 0]
    return b[..., 0], z[..., 0]


def trajectory(y: np.ndarray, steps: np.ndarray, spec: Spec) -> np.ndarray:
    """Least-squares trajectory `(S, n)` of the anomaly in `y (S, n)`, NaN where missing."""
    if spec.ratio == 0:
        return np.zeros_like(y)
    seen = np.isfinite(y)
    zero, link = _weights(np.diff(steps), spec)
    n = len(steps)
    z = solve(
        torch.ones(1, 1, 1, 1, 1, dtype=torch.float64).expand(1, n, 1, 1, 1),
        torch.from_numpy(np.where(seen, y, 0.0))[..., None],
        torch.zeros(1, n, 1, 1, dtype=torch.float64),
        torch.ones(1, n - 1, dtype=torch.float64),
        w_gov=torch.from_numpy(seen.astype(float))[..., None],
        w_init=torch.from_numpy(zero)[None, :, None, None],
        w_smooth=torch.from_numpy(link)[None, :, None, None],
        n_steps=n,
    )
    return np.asarray(z[..., 0, 0].numpy())


def _weights(step: np.ndarray, spec: Spec) -> tuple[np.ndarray, np.ndarray]:
    """Weights of the rows `z = 0` and `z(t+s) = z(t)`."""
    square = np.zeros(len(step) + 1)
    # Each smoothness row occurs twice, forward and backward; without derivatives these are equal.
    half = np.sqrt(0.5)
    if spec.random_walk:
        square[0] = STIFF**2
        return np.sqrt(square), half / np.sqrt(spec.ratio * step)
    decay = spec.decay**step
    square[0] = 1.0
    square[1:] += 1 / (1 + decay)
    square[:-1] -= decay / (1 + decay)
    link = half * np.sqrt(decay / (spec.ratio * -np.expm1(2 * np.log(decay))))
    return np.sqrt(np.maximum(square, 0) / spec.ratio), link
