r"""Series coupled through shared modes: $x' = A x$ for the leading patterns of their anomalies.

Where series belong together (a grid, regions of one ocean, plants of one company), an anomaly here
becomes an anomaly there. The leading patterns of the anomalies are found by singular values; their
amplitudes obey a linear ODE whose matrix is learned by regression with shrinkage. In climate
science this is the linear inverse model. Every eigenvalue of $A$ is an oscillation with a period
and a damping time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from smnn._util.optional import require
from smnn.forecasting._model.panel import Panel, filled
from smnn.forecasting._model.spec import Spec
from smnn.forecasting._time import Clock

COUNTS = (2, 6, 15, 25)
"""Numbers of modes; the forecasts with each are averaged, because no number is best for long."""
RIDGE = 0.1
"""Shrinkage of the matrix, relative to the variance of each mode."""
SHARES = (0.5, 1.0)
SLOWEST = 0.995
"""Largest modulus of an eigenvalue in one step: no mode grows or lasts for ever."""
GAIN = 0.999
"""Modes are used if they bring the error below this part of what it was."""
STATIC = ("level", "slope", "season", "input")


class ModeChoice(NamedTuple):
    """How many modes, and how much they count."""

    number: int | None
    """As many as the user wants; `None` averages over as many as the history can tell."""
    share: float

    def counts(self, series: int, times: int) -> tuple[int, ...]:
        """Numbers of modes to average over: the matrix must be known from the history."""
        if self.number is not None:
            return (max(1, min(self.number, series, times - 1)),)
        most = min(series, times // 8)
        counts = {k for k in COUNTS if k <= most}
        if 2 <= series <= min(most, COUNTS[1]):
            counts.add(series)
        return tuple(sorted(counts))


@dataclass(frozen=True)
class Anomalies:
    """What trend and seasons leave of every series."""

    past: np.ndarray
    """`(S, n)` relative to the scale, gaps closed."""
    alone: np.ndarray
    """`(S, H)` how each anomaly would fade by itself."""
    scale: np.ndarray
    """`(S, 1)`."""
    pairs: np.ndarray
    """`(n-1,)` which neighbouring times are one typical step apart."""


def anomalies_of(
    panel: Panel, lead: Spec, past: slice, future: Clock, inputs: np.ndarray | None
) -> Anomalies:
    """Take trend and seasons off, as constants over the history."""
    still = replace(lead, evolve=0.0, cycle=0.0)
    ((system, centre, states),) = panel.states([still], past, future, inputs)
    static = system.index(*STATIC)
    rest = panel.worked(past, lead.log) - centre - states[:, static] @ system.h[:, static].T
    pairs = np.abs(np.diff(panel.clock.steps[past]) - 1.0) < 0.25
    scale = panel.scale
    if lead.log:
        spread = np.sqrt(np.nanmean(rest**2, axis=1, keepdims=True))
        scale = np.where(spread > 0, spread, 1.0)
    moving = [j for j in range(len(system.terms)) if j not in static]
    alone = states[:, moving] @ system.ahead[:, moving].T
    return Anomalies(filled(rest) / scale, alone / scale, scale, pairs)


def together(parts: Sequence[Anomalies]) -> Anomalies:
    """Groups of series as one."""
    past, alone, scale = (
        np.concatenate(x) for x in zip(*((p.past, p.alone, p.scale) for p in parts))
    )
    return Anomalies(past, alone, scale, parts[0].pairs)


@dataclass(frozen=True)
class Modes:
    """Leading patterns of anomalies."""

    patterns: np.ndarray
    """`(S, K)` orthonormal columns."""
    amplitudes: np.ndarray
    """`(n, K)`."""
    anomalies: Anomalies

    @property
    def shares(self) -> np.ndarray:
        """`(K,)` part of the variance in each."""
        total = (self.anomalies.past**2).sum()
        return (self.amplitudes**2).sum(0) / max(float(total), 1e-300)

    def matrix(self, count: int) -> np.ndarray:
        """`(count, count)`: one typical step of the leading amplitudes."""
        x = self.amplitudes[:, :count]
        before, after = x[:-1][self.anomalies.pairs], x[1:][self.anomalies.pairs]
        G = before.T @ before
        # A mode without variance has nothing to move; it must not make the system singular.
        shrink = RIDGE * np.maximum(np.diag(G), 1e-12 * max(float(np.trace(G)), 1e-300))
        M = np.linalg.solve(G + np.diag(shrink), before.T @ after).T
        fastest = np.abs(np.linalg.eigvals(M)).max()
        out: np.ndarray = M * min(1.0, SLOWEST / max(fastest, 1e-12))
        return out

    def change(self, counts: Sequence[int]) -> np.ndarray:
        """`(S, H)` what coupling adds to the forecast of every series.

        The modes move together; what they do not hold fades. How the anomaly would have faded alone
        is taken off, because the series' own equation holds it already.
        """
        if not counts:
            return np.zeros_like(self.anomalies.alone)
        moved = np.mean([self._moved(count) for count in counts], axis=0)
        out: np.ndarray = self.anomalies.scale * (moved - self.anomalies.alone)
        return out

    def _moved(self, count: int) -> np.ndarray:
        """`(S, H)` anomalies in the future, relative to the scale."""
        E, x = self.patterns[:, :count], self.amplitudes[-1, :count]
        M = self.matrix(count)
        rest = self.anomalies.past - E @ self.amplitudes[:, :count].T
        decay, last = _persistence(rest, self.anomalies.pairs), rest[:, -1]
        steps = []
        fading = 1.0
        for _ in range(self.anomalies.alone.shape[1]):
            x, fading = M @ x, fading * decay
            steps.append(E @ x + fading * last)
        return np.stack(steps, 1)


def _persistence(rest: np.ndarray, pairs: np.ndarray) -> float:
    """What is left after one step, over all series."""
    before, after = rest[:, :-1][:, pairs], rest[:, 1:][:, pairs]
    total = float((before**2).sum())
    return float(np.clip((before * after).sum() / total, 0.0, 0.99)) if total > 0 else 0.0


def steady(clock: Clock) -> bool:
    """Whether most times are one typical step apart, so that one step has a meaning."""
    return bool((np.abs(np.diff(clock.steps) - 1.0) < 0.25).mean() >= 0.7)


def find_modes(anomalies: Anomalies, counts: Sequence[int]) -> Modes:
    """The leading patterns, as many as the largest of the counts."""
    most = max(counts, default=1)
    D = anomalies.past
    S, n = D.shape
    G = D.T @ D if n < S else D @ D.T
    most = min(most, len(G))
    eigh = require("scipy.linalg", "find modes").eigh
    values, U = eigh(G, subset_by_index=[len(G) - most, len(G) - 1])
    values, U = values[::-1], U[:, ::-1]
    if n < S:
        size = np.sqrt(np.maximum(values, 1e-300))
        amplitudes, patterns = U * size, D @ (U / size)
    else:
        amplitudes, patterns = D.T @ U, U
    return Modes(patterns, amplitudes, anomalies)


def eigenmodes(matrix: np.ndarray) -> list[tuple[float, float]]:
    """Period and damping time in steps of each mode, the longest-lived first.

    The period is infinite for a mode that only decays.
    """
    found = []
    for value in np.linalg.eigvals(matrix):
        modulus = abs(value)
        if value.imag < -1e-9 or modulus < 1e-6:
            continue  # the other half of a pair, or gone at once
        angle = np.angle(value)
        period = 2 * np.pi / angle if angle > 1e-6 else float("inf")
        found.append((float(period), float(-1 / np.log(min(modulus, 1 - 1e-12)))))
    return sorted(found, key=lambda mode: -mode[1])
