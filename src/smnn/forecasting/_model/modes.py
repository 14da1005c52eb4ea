r"""Series coupled through shared modes: $x' = A x$ for the leading patterns of their anomalies.

In related series (a grid, regions of one ocean, plants of one company), an anomaly of one series
propagates to others. The leading patterns of the anomalies are their singular vectors; the
amplitudes obey a linear ODE whose matrix is estimated by ridge regression. In climate science this
is called a linear inverse model. Every eigenvalue of $A$ is an oscillation with a period and a
damping time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from smnn._util.optional import require
from smnn.forecasting._model.panel import Panel
from smnn.forecasting._model.periods import interpolated
from smnn.forecasting._model.regression import Fit
from smnn.forecasting._time import Clock

COUNTS = (2, 6, 15, 25)
"""Numbers of modes; the forecasts with each are averaged, because the best number varies."""
RIDGE = 0.1
"""Ridge penalty relative to the variance of each mode."""
MAX_MODULUS = 0.995
"""Largest modulus of an eigenvalue in one step: all modes decay."""


class ModeChoice(NamedTuple):
    """Number of modes and their weight in the forecast."""

    number: int | None
    """As set by the user; `None` averages over all numbers that the history supports."""
    share: float

    def counts(self, series: int, times: int) -> tuple[int, ...]:
        """Numbers of modes to average over, limited by the length of the history."""
        if self.number is not None:
            return (max(1, min(self.number, series, times - 1)),)
        most = min(series, times // 8)
        counts = {k for k in COUNTS if k <= most}
        if 2 <= series <= min(most, COUNTS[1]):
            counts.add(series)
        return tuple(sorted(counts))


@dataclass(frozen=True)
class Anomalies:
    """Residuals of every series from trend and seasons."""

    past: np.ndarray
    """`(S, n)` relative to the scale, gaps interpolated."""
    alone: np.ndarray
    """`(S, H)` forecast of each anomaly by the series' own equation."""
    scale: np.ndarray
    """`(S, 1)`."""
    pairs: np.ndarray
    """`(n-1,)` which consecutive times are one typical step apart."""


def anomalies_of(
    panel: Panel, fit: Fit, place: int, count: int, future: Clock, window: int
) -> Anomalies:
    """Subtract trend and seasons, fitted as constants over the history before an origin.

    Args:
        panel: Series on one time axis.
        fit: A fit of the leading equation.
        place: Index of the origin among those of the fit.
        count: Number of times before the origin.
        future: Times to forecast.
        window: Largest number of times to use.
    """
    past = panel.history(count, window)
    residual = panel.without_constants(fit, past, place)
    pairs = np.abs(np.diff(panel.clock.steps[past]) - 1.0) < 0.25
    scale = panel.scale
    if fit.spec.log:
        square = np.where(np.isfinite(residual), residual, 0.0) ** 2
        known = np.isfinite(residual).sum(1, keepdims=True)
        spread = np.sqrt(square.sum(1, keepdims=True) / np.maximum(known, 1))
        scale = np.where(spread > 0, spread, 1.0)
    lead = future.steps - panel.clock.steps[count - 1]
    alone = fit.anomaly[place][:, None] * fit.spec.decay**lead
    return Anomalies(interpolated(residual) / scale, alone / scale, scale, pairs)


@dataclass(frozen=True)
class Modes:
    """Leading patterns of the anomalies and their amplitudes."""

    patterns: np.ndarray
    """`(S, K)` orthonormal columns."""
    amplitudes: np.ndarray
    """`(n, K)`."""
    anomalies: Anomalies

    def matrix(self, count: int) -> np.ndarray:
        """`(count, count)` propagator of the leading amplitudes over one typical step."""
        x = self.amplitudes[:, :count]
        before, after = x[:-1][self.anomalies.pairs], x[1:][self.anomalies.pairs]
        G = before.T @ before
        # A mode without variance must not make the system singular.
        shrink = RIDGE * np.maximum(np.diag(G), 1e-12 * max(float(np.trace(G)), 1e-300))
        M = np.linalg.solve(G + np.diag(shrink), before.T @ after).T
        fastest = np.abs(np.linalg.eigvals(M)).max()
        out: np.ndarray = M * min(1.0, MAX_MODULUS / max(fastest, 1e-12))
        return out

    def change(self, counts: Sequence[int]) -> np.ndarray:
        """`(S, H)` change of every forecast due to the coupling.

        The modes are propagated jointly and the remainder of the anomaly decays. The forecast by
        the series' own equation is subtracted, because it is already part of the forecast.
        """
        if not counts:
            return np.zeros_like(self.anomalies.alone)
        coupled = np.mean([self._propagated(count) for count in counts], axis=0)
        out: np.ndarray = self.anomalies.scale * (coupled - self.anomalies.alone)
        return out

    def _propagated(self, count: int) -> np.ndarray:
        """`(S, H)` forecast anomalies relative to the scale."""
        E, x = self.patterns[:, :count], self.amplitudes[-1, :count]
        M = self.matrix(count)
        remainder = self.anomalies.past - E @ self.amplitudes[:, :count].T
        decay, last = _persistence(remainder, self.anomalies.pairs), remainder[:, -1]
        steps = []
        factor = 1.0
        for _ in range(self.anomalies.alone.shape[1]):
            x, factor = M @ x, factor * decay
            steps.append(E @ x + factor * last)
        return np.stack(steps, 1)


def _persistence(x: np.ndarray, pairs: np.ndarray) -> float:
    """Pooled lag-1 autocorrelation."""
    before, after = x[:, :-1][:, pairs], x[:, 1:][:, pairs]
    total = float((before**2).sum())
    return float(np.clip((before * after).sum() / total, 0.0, 0.99)) if total > 0 else 0.0


def evenly_spaced(clock: Clock) -> bool:
    """Whether most consecutive times are one typical step apart."""
    return bool((np.abs(np.diff(clock.steps) - 1.0) < 0.25).mean() >= 0.7)


def find_modes(anomalies: Anomalies, counts: Sequence[int]) -> Modes:
    """Leading patterns, as many as the largest of the counts."""
    most = max(counts, default=1)
    D = anomalies.past
    S, n = D.shape
    G = D.T @ D if n < S else D @ D.T
    most = min(most, len(G))
    eigh = require("scipy.linalg", "compute shared modes").eigh
    values, U = eigh(G, subset_by_index=[len(G) - most, len(G) - 1])
    values, U = values[::-1], U[:, ::-1]
    if n < S:
        size = np.sqrt(np.maximum(values, 1e-300))
        amplitudes, patterns = U * size, D @ (U / size)
    else:
        amplitudes, patterns = D.T @ U, U
    return Modes(patterns, amplitudes, anomalies)


def coupled(
    panel: Panel, fit: Fit, place: int, count: int, future: Clock, choice: ModeChoice, window: int
) -> tuple[Modes, np.ndarray]:
    """The shared modes before an origin, and the change `(S, H)` of the forecasts by them."""
    anomalies = anomalies_of(panel, fit, place, count, future, window)
    counts = choice.counts(len(panel.values), min(count, window))
    modes = find_modes(anomalies, counts)
    return modes, modes.change(counts)


def eigenmodes(matrix: np.ndarray) -> list[tuple[float, float]]:
    """Period and damping time in steps of each mode, by decreasing damping time.

    The period is infinite for a mode that does not oscillate.
    """
    found = []
    for value in np.linalg.eigvals(matrix):
        modulus = abs(value)
        if value.imag < -1e-9 or modulus < 1e-6:
            continue  # the conjugate of another mode, or negligible
        angle = np.angle(value)
        period = 2 * np.pi / angle if angle > 1e-6 else float("inf")
        found.append((float(period), float(-1 / np.log(min(modulus, 1 - 1e-12)))))
    return sorted(found, key=lambda mode: -mode[1])
