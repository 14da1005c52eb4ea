"""Bootstrap of the term selection by resampling time segments.

Eliminating the states leaves a few rows in the coefficients for every node. Segments of these rows
are drawn with replacement and the terms are selected again. No trajectory is refitted, so hundreds
of resamples are cheap.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from smnn.discovery._arrays import Array, triangle_of
from smnn.discovery._fit.refine import JointFit, Refiner
from smnn.discovery._fit.selection import penalty_for, select

SEGMENTS = 40  # Maximum number of time segments
SHORTEST = 4  # Minimum number of nodes per segment


def resample(
    refiner: Refiner, fit: JointFit, count: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Resample the data of a fit.

    Returns:
        (V, P) fraction of the resamples that selected a term, and (V, P) standard deviation of the
        coefficients for the terms of the fit.
    """
    rules = refiner.rules
    free = rules.allowed
    inclusion, spread = np.zeros(free.shape), np.zeros(free.shape)
    inclusion[~free & (fit.Xi != 0)] = 1.0
    found = refiner.triangle(fit, free)
    if found is None or not free.any():
        return inclusion, spread
    left = found[2][1].left
    m = left.shape[2] - 1
    pieces = _triangles(left, refiner)
    chosen = (fit.Xi != 0)[free]
    penalty = refiner.spread(fit) * penalty_for(int(refiner.seen.sum()), m, rules.strength)
    size = refiner.sizes(fit)[free]
    bounds: dict[str, Any] = {
        "low": rules.low[free], "high": rules.high[free]
    }  # fmt: skip
    equation = np.nonzero(free)[0]
    times, values = np.zeros(m), []
    for _ in range(count):
        drawn = np.bincount(rng.integers(len(pieces), size=len(pieces)), minlength=len(pieces))
        stack = np.concatenate([np.sqrt(n) * p for n, p in zip(drawn, pieces) if n])
        R = triangle_of(stack)
        b = R[:, m] + R[:, :m] @ fit.Xi[free]
        R, b = refiner.tied(R[:, :m], b, fit.Xi, free)
        one = select(
            R, b, penalty, start=chosen, required=rules.required[free], equation=equation, **bounds
        )
        times += one.support & (np.abs(one.p) * size >= rules.threshold)
        if chosen.any():
            values.append(select(R, b, np.inf, start=chosen, required=chosen).p)
    inclusion[free] = times / count
    if values:
        spread[free] = np.std(values, axis=0, ddof=1) if count > 1 else 0.0
    return inclusion, spread


def _triangles(left: Array, refiner: Refiner) -> list[Array]:
    """Rows of every segment, reduced to a triangle."""
    N, D, width = left.shape
    starts = refiner.nodes.starts
    if len(starts) - 1 >= SEGMENTS:  # many series: resample whole series
        edges = starts[np.linspace(0, len(starts) - 1, SEGMENTS + 1).astype(int)]
    else:
        edges = np.linspace(0, N, max(min(SEGMENTS, N // SHORTEST), 2) + 1).astype(int)
    out = []
    for a, b in itertools.pairwise(edges):
        rows = left[a:b].reshape(-1, width)
        out.append(triangle_of(rows) if len(rows) > width else rows)
    return out
