"""The weak form and the choice of its terms.

Terms are integrated against smooth test functions of several widths.
The time derivative moves to the test function, so that noisy data are never differentiated in
time. Test functions are `(1 - s^2)^7` in each direction on boxes that cover the domain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np

Field = np.ndarray[Any, np.dtype[Any]]
Pair = tuple[int, int]
POWER = 7
STARTS = 6
"""Laws of the weak form from which the likelihood may start."""
PARTS = 8
"""Stretches of time that are resampled."""
ENOUGH = 0.9
"""Fraction of measured values in a box, relative to that in most boxes."""
FEWEST = 4
"""Smallest half width of a test function, in points."""


@dataclass(frozen=True)
class Windows:
    """Test functions of one width along one direction, as matrices `(centres, points)`."""

    values: Field
    slopes: Field

    def __len__(self) -> int:
        return len(self.values)


def windows(x: Field, half: int, wraps: bool) -> Windows:
    """Test functions with a half width in points; the centres are a third of it apart."""
    n = len(x)
    half = min(half, (n - 1) // 2)
    stride = max(1, half // 3)
    centres = np.arange(0, n, stride) if wraps else np.arange(half, n - half, stride)
    if not wraps and n - 1 - half > centres[-1]:
        centres = np.append(centres, n - 1 - half)
    step = float(np.median(np.diff(x)))
    radius = half * step
    apart = x[None] - x[centres][:, None]
    if wraps:
        period = n * step
        apart = (apart + period / 2) % period - period / 2
        weight = np.full(n, step)
    else:
        weight = np.gradient(x)
    s = apart / radius
    inside = np.abs(s) < 1
    base = np.where(inside, 1 - s**2, 0.0)
    values = base**POWER * weight / radius
    slopes = -2 * POWER * s / radius * base ** (POWER - 1) * weight / radius
    return Windows(values, np.where(inside, slopes, 0.0))


class WeakForm:
    """Averages of fields `(T, *grid)` against test functions of one size."""

    def __init__(
        self, coordinates: Sequence[Field], periodic: Sequence[bool], halves: Sequence[int]
    ) -> None:
        self.windows = [windows(x, h, p) for x, h, p in zip(coordinates, halves, periodic)]

    @property
    def rows(self) -> int:
        """Number of test functions."""
        return int(np.prod([len(w) for w in self.windows]))

    @property
    def boxes(self) -> float:
        """Number of independent averages: about one test function in two per direction."""
        return float(np.prod([max(len(w) / 2, 1.0) for w in self.windows]))

    def parts(self) -> Field:
        """`(rows,)` a number for each test function: in which eighth of the time it lies."""
        first = len(self.windows[0])
        eighth = (np.arange(first) * PARTS) // first
        return np.repeat(eighth, self.rows // first)

    def measured(self, seen: Field) -> Field:
        """`(rows,)` whether enough values `(T, *grid)` of a box were measured, not filled in."""
        if seen.all():
            return np.ones(self.rows, bool)
        share = self.average(seen.astype(float)) / self.average(np.ones(seen.shape))
        return np.asarray(share >= ENOUGH * np.median(share[share > 1e-6]))

    def average(self, u: Field) -> Field:
        """`(rows,)` integrals of a field."""
        return self._apply(u, [w.values for w in self.windows])

    def rate(self, u: Field) -> Field:
        """`(rows,)` integrals of the time derivative of a field."""
        first, *others = self.windows
        return -self._apply(u, [first.slopes, *(w.values for w in others)])

    def _apply(self, u: Field, matrices: Sequence[Field]) -> Field:
        for matrix in reversed(matrices):
            u = np.tensordot(u, matrix, (u.ndim - 1, 1))
            u = np.moveaxis(u, -1, 0)
        return u.ravel()


def half_widths(u: Field, coordinates: Sequence[Field], factor: float) -> list[int]:
    """Half widths in points, a multiple of the length over which fields `(F, T, *grid)` change."""
    found = []
    for a, x in enumerate(coordinates):
        slope = np.diff(u, axis=a + 1)
        size = np.sqrt((np.abs(u - u.mean(a + 1, keepdims=True)) ** 2).mean())
        change = np.sqrt((np.abs(slope) ** 2).mean())
        points = factor * size / max(change, 1e-300) if change > 0 else len(x)
        found.append(int(np.clip(round(points), FEWEST, max(FEWEST, (len(x) - 1) // 4))))
    return found


# ---------------------------------------------------------------- choice of terms

MOST = 12
"""Most terms of an equation."""
RIDGE = 1e-13


@dataclass(frozen=True)
class Quadratic:
    """A sum of squares `yy - 2 b x + x A x` in the coefficients of all candidates."""

    A: Field
    b: Field
    yy: float

    @classmethod
    def of(cls, rows: Field, right: Field) -> Quadratic:
        """The sum of squares of `right - rows x`."""
        return cls(rows.T @ rows, rows.T @ right, float(right @ right))

    @classmethod
    def total(cls, parts: Sequence[Quadratic], weights: Iterable[float] = repeat(1.0)) -> Quadratic:
        """The weighted sum of several sums of squares."""
        A, b, yy = np.zeros_like(parts[0].A), np.zeros_like(parts[0].b), 0.0
        for q, w in zip(parts, weights):
            A, b, yy = A + w * q.A, b + w * q.b, yy + w * q.yy
        return cls(A, b, float(yy))

    def solve(self, chosen: Sequence[int]) -> tuple[Field, float]:
        """Coefficients of a subset, and the sum of squares that is left."""
        index = list(chosen)
        if not index:
            return np.zeros(0), self.yy
        A, b = self.A[np.ix_(index, index)], self.b[index]
        scale = 1 / np.sqrt(np.maximum(np.diag(A), 1e-300))
        M = A * scale * scale[:, None] + RIDGE * np.eye(len(index))
        x = scale * np.linalg.solve(M, scale * b)
        return x, max(self.yy - 2 * float(b @ x) + float(x @ A @ x), 1e-14 * self.yy)

    def left(self, chosen: Sequence[int]) -> float:
        """The sum of squares that is left with a subset."""
        return self.solve(chosen)[1]


def best_subsets(
    q: Quadratic, most: int = MOST, allowed: Sequence[int] | None = None
) -> list[list[int]]:
    """The best subset found of each size from 0, by forward steps with exchanges."""
    pool = list(range(len(q.b))) if allowed is None else list(allowed)
    found: list[list[int]] = [[]]
    for _ in range(1, min(most, len(pool)) + 1):
        chosen = [*found[-1], _next(q, found[-1], pool)]
        chosen = _exchanged(q, chosen, pool)
        found.append(sorted(chosen))
    for size in range(len(found) - 2, 0, -1):  # a larger subset may contain a better smaller one
        larger = found[size + 1]
        less = min(([p for p in larger if p != out] for out in larger), key=q.left)
        if q.left(less) < q.left(found[size]) * (1 - 1e-9):
            found[size] = sorted(_exchanged(q, less, pool))
    return found


def choose(
    q: Quadratic, pool: Sequence[int], share: Field, threshold: float, price: float, count: float,
    floor: float,
) -> tuple[list[int], list[list[int]]]:  # fmt: skip
    """The subset that an information criterion prefers, and the best one of every size.

    Args:
        q: The sum of squares.
        pool: Candidates.
        share: Contribution of a coefficient of one, for each candidate.
        threshold: Smallest contribution; candidates below it leave the pool.
        price: What a term costs in the criterion.
        count: Number of independent values.
        floor: Sum of squares that does not count as evidence.
    """
    while True:
        subsets = best_subsets(q, allowed=pool)
        scores = [
            count * np.log(max(q.left(s), 0.0) + floor + 1e-300) + price * len(s) for s in subsets
        ]
        best = subsets[int(np.argmin(scores))]
        weak = [j for j, a in zip(best, q.solve(best)[0]) if abs(a) * share[j] < threshold]
        if not weak:
            return best, subsets
        pool = [j for j in pool if j not in weak]


def _gains(q: Quadratic, chosen: list[int], pool: list[int]) -> Field:
    """Reduction of the sum of squares by each further candidate."""
    if not chosen:
        return q.b[pool] ** 2 / np.maximum(np.diag(q.A)[pool], 1e-300)
    x, _ = q.solve(chosen)
    A = q.A[np.ix_(chosen, chosen)]
    scale = 1 / np.sqrt(np.maximum(np.diag(A), 1e-300))
    M = A * scale * scale[:, None] + RIDGE * np.eye(len(chosen))
    C = q.A[np.ix_(chosen, pool)] * scale[:, None]
    rest = np.diag(q.A)[pool] - (C * np.linalg.solve(M, C)).sum(0)
    r = q.b[pool] - q.A[np.ix_(pool, chosen)] @ x
    gains = r**2 / np.maximum(rest, 1e-10 * np.diag(q.A)[pool] + 1e-300)
    gains[[i for i, p in enumerate(pool) if p in chosen]] = -1.0
    return np.asarray(gains)


def _next(q: Quadratic, chosen: list[int], pool: list[int]) -> int:
    return pool[int(np.argmax(_gains(q, chosen, pool)))]


def swaps(q: Quadratic, chosen: Sequence[int], pool: Sequence[int]) -> list[list[int]]:
    """The subset with each of its members replaced by the best candidate outside."""
    outside = [p for p in pool if p not in chosen]
    rests = [[p for p in chosen if p != out] for out in chosen]
    return [[*rest, _next(q, rest, outside)] for rest in rests if outside]


def _exchanged(q: Quadratic, chosen: list[int], pool: list[int]) -> list[int]:
    """Replace members one by one as long as that helps."""
    best = q.left(chosen)
    for _ in range(10):
        improved = False
        for out in list(chosen):
            rest = [p for p in chosen if p != out]
            trial = [*rest, _next(q, rest, pool)]
            left = q.left(trial)
            if left < best * (1 - 1e-9):
                chosen, best, improved = trial, left, True
        if not improved:
            break
    return chosen


@dataclass
class Weak:
    """Result of the weak form: coefficients by pair of equation and term.

    Attributes:
        xi: Coefficients of the selected terms.
        deviation: Their standard deviations, from resampled boxes.
        inclusion: Fraction of the resamples in which a term was selected.
        explained: `(F,)` fraction of the rate of change on boxes that were not used for the fit.
        shares: `(F, P)` contribution of a coefficient of one to an equation.
        ranking: Further pairs, the most useful first.
        path: Coefficients of the best subset of each size, for each equation.
    """

    xi: dict[Pair, float]
    deviation: dict[Pair, float]
    inclusion: dict[Pair, float]
    explained: Field
    shares: Field
    ranking: list[Pair]
    path: list[list[dict[Pair, float]]] = field(default_factory=list)

    def starts(self) -> list[dict[Pair, float]]:
        """The selected law, and those with fewer terms in each equation."""
        most = max((len(p) for p in self.path), default=0)
        shorter = [
            {pair: a for sizes in self.path for pair, a in sizes[min(k, len(sizes)) - 1].items()}
            for k in range(1, min(most, STARTS)) if all(self.path)
        ]  # fmt: skip
        return [self.xi, *shorter]
