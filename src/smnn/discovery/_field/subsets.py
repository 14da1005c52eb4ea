"""Choice of terms: the best subsets of every size, compared by an information criterion."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
MOST = 12
"""Most terms of an equation."""
RIDGE = 1e-13


@dataclass(frozen=True)
class Quadratic:
    """A sum of squares `yy - 2 b x + x A x` in the coefficients of all candidates."""

    A: Array
    b: Array
    yy: float

    @classmethod
    def of(cls, rows: Array, right: Array) -> Quadratic:
        """The sum of squares of `right - rows x`."""
        return cls(rows.T @ rows, rows.T @ right, float(right @ right))

    @classmethod
    def total(cls, parts: Sequence[Quadratic], weights: Iterable[float] = repeat(1.0)) -> Quadratic:
        """The weighted sum of several sums of squares."""
        A, b, yy = np.zeros_like(parts[0].A), np.zeros_like(parts[0].b), 0.0
        for q, w in zip(parts, weights):
            A, b, yy = A + w * q.A, b + w * q.b, yy + w * q.yy
        return cls(A, b, float(yy))

    def solve(self, chosen: Sequence[int]) -> tuple[Array, float]:
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


def _gains(q: Quadratic, chosen: list[int], pool: list[int]) -> Array:
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
