"""Corrections of a joint fit: integration errors in the data, outliers, conservation laws."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
from scipy.ndimage import uniform_filter1d

from smnn.discovery._arrays import Array, Flags
from smnn.discovery._constraints import Rules
from smnn.discovery._fit.data import Nodes
from smnn.discovery._fit.refine import JointFit, Refiner

NEARER = 0.2  # Factor between two successive noise levels
ROUNDS = 12  # Maximum number of rounds of each kind
AROUND = 11  # Window, in steps, over which model errors are averaged
FAINTEST = 1e-6  # Lower bound of the weight of a step, relative to the typical model error
HARM = 2.0
"""Maximum factor by which reweighting may raise the mean model error. A larger increase means that
the model is wrong in places, which must not be hidden by small weights there."""
SEGMENTS = 40  # Maximum number of time segments used to detect correlated errors
FEWEST = 8  # Minimum number of time segments
SHORTEST = 10  # Minimum number of nodes per segment
NUMERICAL_ERROR = 0.02
"""Unexplained fraction of the change in a step that numerical errors can account for."""
RUNS = 2.0  # Inflation of the score variance above which errors count as correlated in time

FAR = 8.0  # Multiple of the robust standard deviation beyond which a residual is an outlier
MOST = 0.05  # Maximum fraction of outliers among the values of a variable
TOGETHER = 2  # Maximum number of consecutive outliers; longer runs are treated as signal
SMALLEST = 1e-4
"""Smallest residual of an outlier, relative to the standard deviation of its variable."""

IDENTITY = 1e-4  # Largest root mean square of a vanishing combination of normalized terms
NOISE = 3.0  # Multiple of its standard deviation below which a combination of terms counts as zero
ABOVE = 10.0  # Factor by which an independent term must exceed the residual of the identity


def allow_integration_errors(refiner: Refiner, fit: JointFit) -> JointFit:
    """Account for data that were computed with visible integration errors.

    Errors of an integrator are not measurement noise: they are correlated in time, accumulate along
    the trajectory, and grow in a chaotic system. A single smooth trajectory through such data loses
    accuracy, and correlated errors make absent terms significant. The noise is therefore reduced,
    steps are weighted by the local model error, and terms are selected with a penalty inflated by
    the correlation, as long as the likelihood increases.

    A fit that holds with the strongest constraints, or whose errors look like noise, is returned
    unchanged.
    """
    levels = [level["rho"] for level in fit.history]
    if not levels or fit.rho <= 1.01 * min(levels):
        return fit
    if inflation(refiner, fit) < RUNS:
        return fit
    near, rules = _nearer(refiner, fit), refiner.rules
    share = float(missed(refiner, near).max())
    if share > NUMERICAL_ERROR:
        return fit
    refiner.rules = replace(rules, threshold=max(rules.threshold, share))
    best = _weighed(refiner, near)
    for _ in range(ROUNDS):
        runs = max(inflation(refiner, best), 1.0)
        refiner.rules = replace(refiner.rules, strength=rules.strength * runs)
        chosen = refiner.choose(best)
        if chosen is None or ((chosen[0].Xi != 0) == (best.Xi != 0)).all():
            break
        refiner.looseness = np.ones_like(refiner.looseness)
        best = _weighed(refiner, refiner.improve(chosen[0]))
    return best


def _nearer(refiner: Refiner, fit: JointFit) -> JointFit:
    """Reduce the noise as long as the evidence increases."""
    for _ in range(ROUNDS):
        nearer = refiner.improve(replace(fit, sigma=NEARER * fit.sigma))
        gain = nearer.evidence - fit.evidence
        if not gain > 0.0:
            break
        fit = nearer
        if gain < 1.0:
            break
    return fit


def inflation(refiner: Refiner, fit: JointFit) -> float:
    """Variance of the scores of time segments relative to independent errors.

    The trace of Takeuchi (1976), averaged over the coefficients of all candidates: variance of the
    scores divided by their expected curvature. It is one for uncorrelated errors.
    """
    N = len(fit.Z)
    count = min(SEGMENTS, N // SHORTEST)
    found = refiner.triangle(fit, refiner.rules.allowed) if count >= FEWEST else None
    if found is None:
        return 1.0
    left = found[2][1].left
    m = left.shape[2] - 1
    edges = np.linspace(0, N, count + 1).astype(int)
    scores = np.stack(
        [(left[a:b, :, :m] * left[a:b, :, m:]).sum((0, 1)) for a, b in itertools.pairwise(edges)]
    )
    U, values, Vt = np.linalg.svd(found[0])
    good = values > 1e-10 * values[0]
    white = (scores @ Vt[good].T) / values[good]
    each = (left[..., m] ** 2).sum() / refiner.freedom(int((fit.Xi != 0).sum()))
    return float((white**2).sum() / good.sum() / max(each, 1e-300))


def missed(refiner: Refiner, fit: JointFit) -> Array:
    """(V,) unexplained change per step, relative to the root mean square of the change."""
    relative = refiner.defects(fit) / (refiner.rates * refiner.h[:, None])
    share = np.sqrt((relative[refiner.follows] ** 2).mean(0))
    return share.reshape(refiner.order, refiner.V).max(0)


def _weighed(refiner: Refiner, fit: JointFit) -> JointFit:
    """Weight steps by the local model error, if the gain pays for one parameter per window."""
    best, kept = fit, refiner.looseness
    limit = HARM * _errors(refiner, fit).mean()
    freedom = 0.5 * len(fit.Z) / AROUND * np.log(max(refiner.seen.sum(), 2))
    for i in range(ROUNDS):
        refiner.looseness = _looseness(refiner, best)
        found = refiner.improve(best)
        worth = found.evidence > best.evidence + (freedom if i == 0 else 1.0)
        if not worth or _errors(refiner, found).mean() > limit:
            break
        best, kept = found, refiner.looseness
    refiner.looseness = kept
    return best


def _errors(refiner: Refiner, fit: JointFit) -> Array:
    """(N,) mean squared model error of every step, in the units of its weights."""
    relative = refiner.defects(fit) / (refiner.rates * np.sqrt(refiner.h * refiner.unit)[:, None])
    return (relative**2).mean(1)


def _looseness(refiner: Refiner, fit: JointFit) -> Array:
    """(N,) local model error, normalized to a mean square of one."""
    square = _errors(refiner, fit)
    square /= max(square[refiner.follows].mean(), 1e-300)
    out = np.empty_like(square)
    for a, b in itertools.pairwise(refiner.nodes.starts):
        out[a:b] = uniform_filter1d(square[a:b], AROUND, mode="nearest")
    return np.sqrt(out + FAINTEST**2)


def outliers_of(refiner: Refiner, fit: JointFit, measured: Array, strict: float) -> Flags:
    """(N, V) mask of the measured values that are outliers.

    Outliers are detected by the residuals of the joint fit and not from the data alone, which may
    be steep. The first and last values of a series have a neighbour on one side only and are never
    outliers.

    Args:
        refiner: The data that were fitted, without earlier outliers.
        fit: The best fit; it is repeated with a stronger constraint where outliers kept it weak.
        measured: (N, V) all values, including earlier outliers.
        strict: `rho` below which states do not follow every data point.
    """
    if fit.rho > strict:
        fit = refiner.improve(replace(fit, rho=0.2 * strict))
    seen = np.isfinite(measured)
    residual = np.abs(np.where(seen, measured - fit.Z[:, : refiner.V], 0.0))
    if refiner.nodes.weights is not None:
        residual *= np.sqrt(refiner.nodes.weights)
    out = np.zeros_like(seen)
    for v in np.flatnonzero(~refiner.nodes.hidden):
        fitted = residual[refiner.seen[:, v], v]
        limit = max(FAR * 1.4826 * float(np.median(fitted)), SMALLEST * refiner.nodes.scale[v])
        outliers = residual[:, v] > limit
        for a, b in refiner.nodes.bounds:
            outliers[a + np.flatnonzero(seen[a:b, v])[[0, -1] if seen[a:b, v].any() else []]] = 0
        mine = outliers[seen[:, v]]
        if mine.sum() <= MOST * len(mine) and _longest(mine) <= TOGETHER:
            out[:, v] = outliers
    return out


def _longest(flags: Flags) -> int:
    """Length of the longest run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(int)))
    return int((edges[1::2] - edges[::2]).max(initial=0))


def without(nodes: Nodes, outliers: Flags) -> Nodes:
    """The nodes with outliers (N, V) marked as missing."""
    return replace(nodes, Y=np.where(outliers, np.nan, nodes.Y))


def outlier_warnings(nodes: Nodes, outliers: Flags) -> list[str]:
    """Warning about outliers (N, V) that were treated as missing, if there are any."""
    rows, columns = np.nonzero(outliers)
    if len(rows) == 0:
        return []
    count = f"{len(rows)} outliers were" if len(rows) > 1 else "one outlier was"
    row, column = int(rows[0]), int(columns[0])
    return [
        f"{count} treated as missing; the first is {nodes.names[column]} = "
        f"{nodes.Y[row, column]:.4g} at time {nodes.t[row]:.4g}"
    ]


def without_identities(refiner: Refiner, fit: JointFit) -> Rules | None:
    """Rules without the redundant candidates of conservation laws, or `None` if there are none.

    Under a conservation law such as `S + I + R = N`, some terms add up to zero on the data. An
    equation that contains all of them is not determined: any multiple of the law can be added, and
    rounding decides. Its candidates are restricted to the simplest independent terms.
    """
    X = np.concatenate([fit.Z, refiner.nodes.U], -1)
    phi, slopes = refiner.terms.evaluate(X), refiner.terms.jacobian(X)[..., : refiner.V]
    size = np.maximum(np.sqrt((phi**2).mean(0)), 1e-300)
    phi, slopes = phi / size, slopes / size[:, None]
    noise, rules = refiner.noise_of(fit), refiner.rules
    allowed = rules.allowed.copy()
    for v, present in enumerate((fit.Xi != 0) & rules.allowed):
        if present.sum() < 2 or (rules.required[v] & present).any():
            continue
        combination = np.zeros(len(size))
        combination[present] = np.linalg.svd(phi[:, present], full_matrices=False)[2][-1]
        sum_ = float(np.sqrt(((phi @ combination) ** 2).mean()))
        doubt = np.einsum("npd,p->nd", slopes, combination) * noise
        if sum_ < IDENTITY and sum_ < NOISE * float(np.sqrt((doubt**2).sum(1).mean())):
            order = np.zeros(len(size)) if rules.complexity is None else rules.complexity[v]
            allowed[v] &= _independent(phi, order, ABOVE * sum_)
    return None if (allowed == rules.allowed).all() else replace(rules, allowed=allowed)


def _independent(phi: Array, order: Array, tolerance: float) -> Flags:
    """(P,) mask of the terms that are not linear combinations of simpler ones."""
    kept = np.zeros(phi.shape[1], bool)
    basis = np.empty((len(phi), 0))
    for j in np.argsort(order, kind="stable"):
        residual = phi[:, j]
        for _ in range(2):  # twice, against cancellation
            residual = residual - basis @ (basis.T @ residual)
        length = float(np.linalg.norm(residual))
        if length > max(tolerance, 1e-13) * np.sqrt(len(phi)):
            kept[j] = True
            basis = np.column_stack([basis, residual / length])
    return kept
