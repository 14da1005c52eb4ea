"""Evidence for an equation: its prediction of the data against that of a plain curve.

Both are scored by the same criterion, `-n/2 ln(mean square + FLOOR^2)` minus a price per parameter,
in nats. The equation has its coefficients and one initial state per window; the curve is the best
of a Legendre series and two cosine series of any length. The score of an equation is that of
trajectories which satisfy it, so a variable with a wrong equation does not affect the others.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
from scipy.fft import dct

from smnn.discovery._arrays import Array
from smnn.discovery._fit.data import Nodes
from smnn.discovery._fit.refine import JointFit, Refiner

FLOOR = 1e-3  # Error, relative to the spread of the data, below which smaller errors do not count
WINDOWS = (1, 2, 4, 8, 16)  # Numbers of windows of a series with an initial state each
SHORTEST = 6  # Minimum number of nodes per window
FOLLOWS = 0.3  # Accumulated defects, relative to the residuals, below which states are trajectories
MOST_LEGENDRE = 40  # Maximum number of terms of a Legendre series
LEVELS = 4  # Steps from weak to strong constraints for the trajectories of the windows


def deviation_from_trajectory(refiner: Refiner, fit: JointFit) -> Array:
    """(V,) largest accumulated defect of the fitted states, relative to the spread of the data."""
    defects = refiner.defects(fit)[:, : refiner.V] / refiner.nodes.scale
    sums = [np.abs(np.cumsum(defects[a:b], 0)).max(0) for a, b in refiner.nodes.bounds]
    return np.asarray(np.max(sums, 0))


def against_curves(refiner: Refiner, fit: JointFit) -> Array:
    """(V,) score of the equations minus that of the best plain curve, in nats.

    That of a hidden variable is the sum for all measured ones, less the price of its own equation.
    """
    best = np.full(refiner.V, -np.inf)
    for windows, errors in _trajectories(refiner, fit):
        best = np.maximum(best, score(refiner, fit, errors, windows))
    return best - curves(refiner.nodes)


def curves(nodes: Nodes) -> Array:
    """(V,) score of the best plain curve through each variable; their sum for a hidden one."""
    found = np.array([0.0 if h else _curve(nodes, v) for v, h in enumerate(nodes.hidden)])
    return np.where(nodes.hidden, found.sum(), found)


def score(refiner: Refiner, fit: JointFit, errors: Array, windows: int) -> Array:
    """(V,) score of the equations; for a hidden variable the sum of those of the others.

    Args:
        refiner: Data and rules.
        fit: Terms that are not fixed by the rules count as parameters.
        errors: (V,) mean square errors, relative to the spread of the data.
        windows: Number of windows of every series, each with an initial state.
    """
    hidden = refiner.nodes.hidden
    n = refiner.seen[:, : refiner.V].sum(0).astype(float)
    n[hidden] = n.sum()
    terms = refiner.parameters_of((fit.Xi != 0) & refiner.rules.allowed)
    candidates = np.maximum(refiner.rules.allowed.sum(1), max(refiner.candidates // refiner.V, 1))
    starts = refiner.order * windows * (len(refiner.nodes.starts) - 1)
    price = terms * (0.5 * np.log(n) + np.log(candidates)) + 0.5 * starts * np.log(n)
    small_sample = n / np.maximum(n - terms - starts - 2.0, 0.5)
    found = -small_sample * price
    found[~hidden] -= (0.5 * n * np.log(errors + FLOOR**2))[~hidden]
    found[hidden] += found[~hidden].sum()
    return np.asarray(found)


def _trajectories(refiner: Refiner, fit: JointFit) -> list[tuple[int, Array]]:
    """Numbers of windows, and the (V,) relative mean square errors of their trajectories."""
    errors = relative_errors(refiner, fit) ** 2
    total = float(deviation_from_trajectory(refiner, fit).max())
    if total < max(FOLLOWS * float(np.sqrt(errors.min())), FLOOR):
        return [(1, errors)]
    shortest = min(b - a for a, b in refiner.nodes.bounds)
    counts = [w for w in WINDOWS if w == 1 or shortest >= w * SHORTEST]
    edges = {w: [np.linspace(a, b, w + 1).astype(int).tolist() for a, b in refiner.nodes.bounds]
             for w in counts}  # fmt: skip
    return [
        (w, shooting_errors(refiner, fit, [p for e in edges[w] for p in itertools.pairwise(e)]))
        for w in counts
    ]


def relative_errors(refiner: Refiner, fit: JointFit) -> Array:
    """(V,) root mean square of data minus states, relative to the spread of the data.

    For a hidden variable, the largest of the others.
    """
    V, seen = refiner.V, refiner.seen[:, : refiner.V]
    residual = np.where(seen, (refiner.data - fit.Z)[:, :V], 0.0) / refiner.nodes.scale
    errors = np.sqrt((residual**2).sum(0) / np.maximum(seen.sum(0), 1))
    return np.where(refiner.nodes.hidden, errors.max(), errors)


def shooting_errors(refiner: Refiner, fit: JointFit, bounds: list[tuple[int, int]]) -> Array:
    """(V,) mean square errors of trajectories along ranges of nodes with free initial states."""
    nodes, at = refiner.nodes.take(bounds)
    fixed = replace(refiner.rules, allowed=np.zeros_like(refiner.rules.allowed))
    part = refiner.on(nodes, at, rules=fixed)
    sigma = np.maximum(refiner.noise_of(fit), 0.1 * FLOOR * refiner.nodes.scale)
    span = part.unit * np.diff(part.nodes.starts).max()
    last = float(1e-2 * (sigma / part.rates[: part.V]).min() / np.sqrt(part.unit * span))
    last = min(max(last, 1e-10), fit.rho)
    found = replace(fit, Z=fit.Z[at], sigma=sigma)
    for rho in np.geomspace(fit.rho, last, LEVELS):
        found = part.improve(replace(found, rho=float(rho)), 2)
    errors = relative_errors(part, found) ** 2
    return np.where(np.isfinite(errors), errors, np.inf)


def _curve(nodes: Nodes, v: int) -> float:
    """Score of the best plain curve through the values of a variable."""
    series = []
    for a, b in nodes.bounds:
        seen = np.isfinite(nodes.Y[a:b, v])
        if seen.any():
            series.append((nodes.t[a:b][seen], nodes.Y[a:b, v][seen] / nodes.scale[v]))
    n = sum(len(y) for _, y in series)
    best = -np.inf
    for explain in (_legendre, _cosines, _line_and_cosines):
        parts = [explain(t, y) for t, y in series]
        size = max(len(rest) for rest, _ in parts)
        rest, used = (
            np.sum([np.pad(p[i], (0, size - len(p[i])), mode="edge") for p in parts], 0)
            for i in (0, 1)
        )
        good = (used <= n / 2) & (n - used > 2)
        if good.any():
            rest, used = np.maximum(rest[good], 0.0), used[good]
            price = 0.5 * used * np.log(n) * n / (n - used - 2.0)
            best = max(best, float((-0.5 * n * np.log(rest / n + FLOOR**2) - price).max()))
    return best if np.isfinite(best) else 0.0


def _legendre(t: Array, y: Array) -> tuple[Array, Array]:
    """Sums of squares that are left by 1, 2, ... terms, and the numbers of parameters."""
    x = 2.0 * (t - t[0]) / max(t[-1] - t[0], 1e-300) - 1.0
    basis = np.polynomial.legendre.legvander(x, min(MOST_LEGENDRE, len(y)) - 1)
    return _left(y, np.linalg.qr(basis)[0].T @ y, 0)


def _cosines(t: Array, y: Array) -> tuple[Array, Array]:
    return _left(y, dct(y, norm="ortho"), 0)


def _line_and_cosines(t: Array, y: Array) -> tuple[Array, Array]:
    y = y - np.linspace(y[0], y[-1], len(y))
    return _left(y, dct(y, norm="ortho"), 2)


def _left(y: Array, coefficients: Array, used: int) -> tuple[Array, Array]:
    left = y @ y - np.cumsum(coefficients**2)
    return left, np.arange(1.0, len(coefficients) + 1.0) + used


def structure(refiner: Refiner, fit: JointFit) -> Array:
    """(V,) correlation of successive prediction errors of the equations.

    The prediction errors are those of a Kalman filter; they are independent if the equations and
    the noise are as assumed.
    """
    found = refiner.triangle(fit, np.zeros_like(refiner.rules.allowed))
    if found is None:
        return np.full(refiner.V, np.nan)
    errors = found[2][1].left[:, : refiner.V, 0]
    follow = refiner.follows[:-1, None]
    products = (errors[1:] * errors[:-1] * follow).sum(0)
    return np.asarray(products / np.maximum((errors**2).sum(0), 1e-300))
