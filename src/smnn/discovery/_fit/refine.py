"""Joint fit of states and coefficients by weak-constraint Gauss-Newton with continuation.

    minimize  sum |(z_k - data_k) / sigma|^2  +  sum |(z_{k+1} - step(z_k; Xi)) / (rho q_k)|^2

over all states `z_k` and the coefficients `Xi`. The linear systems are bordered and
block-bidiagonal (`bordered`), so an iteration costs time linear in the data. `rho` starts at the
defect of the smoothed data and decreases level by level, from weak to strong constraints, until the
model holds exactly or the evidence stops increasing. At every level the terms are selected anew
from the whole library, by their significance in the joint fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.optimize import lsq_linear

from smnn.discovery._arrays import Array, Flags, Indices, root_mean_square, triangle_of
from smnn.discovery._constraints import Rules
from smnn.discovery._fit import bordered
from smnn.discovery._fit.data import Nodes
from smnn.discovery._fit.model import (
    CLASSICAL,
    COOPER_VERNER,
    MAP,
    Link,
    OdeModel,
    StepGrid,
    Tableau,
    flow,
    flow_with_derivatives,
)
from smnn.discovery._fit.selection import Selection, penalty_for, select
from smnn.discovery._terms import CompiledTerms

ITERATIONS = 4  # Maximum number of Gauss-Newton iterations per level
HALVINGS = 6  # Maximum number of step halvings in the line search
METHODS = (
    (CLASSICAL, 1),
    (CLASSICAL, 2),
    (COOPER_VERNER, 1),
    (COOPER_VERNER, 2),
    (COOPER_VERNER, 4),
    (COOPER_VERNER, 8),
)
"""Integration methods with their substeps per step, from coarse to fine."""
ANCHOR = 1e-7  # Relative weight of the rows that keep every first state determined
DIGITS = 1e-9
"""Rounding level relative to the standard deviation of a variable, a floor for the residuals."""
REDUCTION = 0.2  # Ratio of `rho` between two levels
HARDEST = 1e-12  # Smallest `rho`; below it rounding errors dominate
STRICT = 0.02
"""Below this `rho`, residuals estimate the noise: the states no longer follow every data point."""
LOOSE = (
    0.05  # `rho` of coefficients that a joint fit did not produce: states near the smoothed data
)
PASSES = 4
"""Maximum number of passes with finer steps over data that are cleaner than first estimated."""
LONGEST_STEP = 0.3  # Longest relative change of a constant inside a term per iteration
DAMPINGS = 20  # Maximum number of increases of the damping that limits it
PATIENCE = 3  # Number of levels without a gain in evidence after which the continuation ends


@dataclass(frozen=True)
class JointFit:
    """States and coefficients of a joint fit at one level."""

    Z: Array  # (N, D) states
    Xi: Array  # (V, P) coefficients
    rho: float
    sigma: Array  # (V,) noise
    cost: float = np.inf  # Sum of squares of the weighted rows
    evidence: float = -np.inf
    """Marginal log-likelihood (states integrated out) minus the penalty for the terms."""
    deviation: Array | None = None  # (V, P) standard deviations of the coefficients
    theta: Array = field(default_factory=lambda: np.zeros(0))
    """(K,) constants inside the terms."""
    theta_deviation: Array = field(default_factory=lambda: np.zeros(0))
    """(K,) their standard deviations."""
    history: list[dict[str, Any]] = field(default_factory=list)


class Refiner:
    """Joint fit for given data, terms and rules."""

    def __init__(
        self,
        nodes: Nodes,
        terms: CompiledTerms,
        order: int,
        rules: Rules,
        link: Link | None = None,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.nodes, self.terms, self.order, self.rules = nodes, terms, order, rules
        self.link, self.progress = link, progress
        self.constants = terms.constants
        self.V = nodes.Y.shape[1]
        self.D = self.V * order
        self.follows = nodes.follows
        self.h = nodes.h
        self.unit = float(np.median(self.h[self.follows]))
        self.seen = np.zeros((len(nodes.t), self.D), bool)
        self.seen[:, : self.V] = nodes.seen
        self.data = np.zeros((len(nodes.t), self.D))
        self.data[:, : self.V] = np.where(nodes.seen, nodes.Y, 0.0)
        self.groups: list[tuple[Indices, StepGrid]] = []
        self.rates = np.ones(self.D)
        self.zone = np.ones(self.D)
        self.looseness = np.ones(len(nodes.t))
        """(N,) relative standard deviation of the model error in the step from each node."""

    # -- cost ---------------------------------------------------------------------------------

    def prepare(self, Z: Array, dZ: Array, Xi: Array, sigma: Array) -> None:
        """Set scales of states and rates, and substeps with integration errors below the noise."""
        self.zone = root_mean_square(Z)
        changes = dZ - dZ.mean(0) if self.nodes.discrete else dZ
        self.rates = np.maximum(root_mean_square(changes), 1e-12 * self.zone / self.unit)
        if self.nodes.discrete:
            self.groups = self._steps(MAP, 1)
            return
        want = np.full(self.D, np.inf)
        want[: self.V] = np.maximum(0.02 * sigma, 1e-13 * self.zone[: self.V])
        model = OdeModel(self.terms, Xi, self.order, self.link)
        with np.errstate(all="ignore"):
            self.groups = self._steps(*METHODS[3])
            exact = self.ends(model, Z)
            for cheap, finer in zip(METHODS, (*METHODS[3:4] * 3, *METHODS[4:])):
                if finer != METHODS[3]:
                    self.groups = self._steps(*finer)
                    exact = self.ends(model, Z)
                self.groups = self._steps(*cheap)
                gap = np.abs(self.ends(model, Z) - exact)[self.follows]
                if (np.nan_to_num(np.quantile(gap, 0.99, axis=0), nan=np.inf) < want).all():
                    return

    def on(
        self, nodes: Nodes, at: Any = slice(None), terms: Any = None, rules: Rules | None = None
    ) -> Refiner:
        """The joint fit of some of the nodes, with the same scales, substeps and weights."""
        part = Refiner(nodes, terms or self.terms, self.order, rules or self.rules, self.link)
        part.copy_scales(self, at)
        return part

    def copy_scales(self, other: Refiner, at: Any) -> None:
        """Use scales, substeps and weights of a fit to data that contain these nodes."""
        steps = other.groups[0][1]
        factor = int(2 ** np.ceil(np.log2(max(steps.h.max() / (1.5 * other.unit), 1.0))))
        self.unit, self.zone, self.rates = other.unit, other.zone, other.rates
        self.looseness = other.looseness[at]
        self.groups = self._steps(steps.method, max(steps.substeps // factor, 1))

    def _steps(self, method: Tableau, n: int) -> list[tuple[Indices, StepGrid]]:
        """Group nodes by their number of substeps, which grows with the length of the step."""
        factor = 2 ** np.ceil(np.log2(np.maximum(self.h / (1.5 * self.unit), 1.0))).astype(int)
        groups = []
        for f in np.unique(factor[self.follows]):
            where = np.flatnonzero(self.follows & (factor == f))
            U = self._inputs(where, min(n * int(f), 64), method.c)
            groups.append((where, StepGrid(self.h[where], U, method)))
        return groups

    def _inputs(self, where: Indices, n: int, c: Array) -> Array:
        """(nodes, n, stages, inputs) interpolated inputs."""
        U = self.nodes.U
        if U.shape[1] == 0:
            return np.empty((len(where), n, len(c), 0))
        from scipy.interpolate import PchipInterpolator

        inside = (np.arange(n)[:, None] + c) / n
        at = self.nodes.t[where, None, None] + self.h[where, None, None] * inside
        out = np.empty((len(where), n, len(c), U.shape[1]))
        for a, b in zip(self.nodes.starts[:-1], self.nodes.starts[1:]):
            mine = (where >= a) & (where < b)
            if mine.any():
                curve = PchipInterpolator(self.nodes.t[a:b], U[a:b], axis=0)
                out[mine] = curve(np.clip(at[mine], self.nodes.t[a], self.nodes.t[b - 1]))
        return out

    def ends(self, model: OdeModel, Z: Array) -> Array:
        """(N, D) states after one step from every node; zero where no node follows."""
        out = np.zeros_like(Z)
        for where, steps in self.groups:
            out[where] = flow(model, Z[where], steps)
        return out

    def _weights(self, rho: float, sigma: Array) -> tuple[Array, Array]:
        loose = self.looseness * np.sqrt(self.h * self.unit)
        wq = 1.0 / (rho * self.rates * loose[:, None])
        wq[~self.follows] = 0.0
        wd = np.zeros_like(self.data)
        wd[:, : self.V] = self.nodes.roots / sigma
        return wq, wd

    def model(self, fit: JointFit) -> OdeModel:
        """The right-hand side of a fit."""
        terms = self.terms.at(fit.theta) if len(fit.theta) else self.terms
        return OdeModel(terms, fit.Xi, self.order, self.link)

    def cost(self, fit: JointFit) -> float:
        """Sum of squares of all rows; infinite if the model is not finite."""
        wq, wd = self._weights(fit.rho, fit.sigma)
        with np.errstate(all="ignore"):
            ends = self.ends(self.model(fit), fit.Z)
            defect = np.zeros_like(fit.Z)
            defect[:-1] = fit.Z[1:] - ends[:-1]
            total = float(((wq * defect) ** 2).sum() + ((wd * (self.data - fit.Z)) ** 2).sum())
        return total if np.isfinite(total) else np.inf

    def defects(self, fit: JointFit) -> Array:
        """(N, D) error of the model in the next state; zero at the end of a series."""
        ends = self.ends(self.model(fit), fit.Z)
        out = np.zeros_like(fit.Z)
        out[:-1] = np.where(self.follows[:-1, None], fit.Z[1:] - ends[:-1], 0.0)
        return out

    def _linearize(
        self, fit: JointFit, free: Flags, inner: bool
    ) -> tuple[bordered.Chain, bordered.Eliminated] | None:
        N, m = len(fit.Z), int(free.sum()) + inner * len(fit.theta)
        A, B = np.zeros((N, self.D, self.D)), np.zeros((N, self.D, m))
        r = np.zeros((N, self.D))
        model = self.model(fit)
        with np.errstate(all="ignore"):
            for where, steps in self.groups:
                end, A[where], B[where] = flow_with_derivatives(
                    model, fit.Z[where], steps, free, inner and bool(len(fit.theta))
                )
                r[where] = fit.Z[where + 1] - end
        if not (np.isfinite(r).all() and np.isfinite(A).all() and np.isfinite(B).all()):
            return None
        wq, wd = self._weights(fit.rho, fit.sigma)
        chain = bordered.Chain(A, B, r, wq, wd, self.data - fit.Z, self.follows)
        return chain, bordered.eliminate(chain, ANCHOR / self.zone)

    # -- selection and iteration --------------------------------------------------------------

    def triangle(
        self, fit: JointFit, free: Flags, inner: bool = False
    ) -> tuple[Array, Array, tuple[bordered.Chain, bordered.Eliminated]] | None:
        """`|R p - b|^2` in the free coefficients after eliminating the states; the elimination.

        With `inner`, further entries of `p` are the constants inside the terms.
        """
        found = self._linearize(fit, free, inner)
        if found is None:
            return None
        chain, eliminated = found
        known = np.concatenate([fit.Xi[free], fit.theta if inner else []])
        m = len(known)
        left = eliminated.left.reshape(-1, m + 1)
        if not np.isfinite(left).all():
            return None
        R = triangle_of(left)
        return R[:m, :m], R[:m, m] + R[:m, :m] @ known, (chain, eliminated)

    def freedom(self, terms: int) -> float:
        """Residual degrees of freedom; states are determined by the steps between them."""
        return float(max(self.seen.sum() - self.D * self.nodes.pieces - terms, 1))

    def spread(self, fit: JointFit) -> float:
        """Mean square of a row, bounded below by the rounding errors of the data.

        Without this floor, every term would be significant in noise-free data, and the choice
        between collinear terms would be decided by rounding.
        """
        found = fit.cost / self.freedom(int((fit.Xi != 0).sum()))
        loose = (fit.rho * self.rates * self.unit)[: self.V]
        least = float(((DIGITS * self.nodes.scale) ** 2 / (fit.sigma**2 + loose**2)).mean())
        return max(found, least) if np.isfinite(found) else max(1.0, least)

    def choose(self, fit: JointFit) -> tuple[JointFit, Selection] | None:
        """Select terms from all candidates in the linearization around a fit."""
        free = self.rules.allowed
        found = self.triangle(fit, free)
        if found is None:
            return None
        R, b, (chain, eliminated) = found
        chosen = self._select(R, b, fit, self.spread(fit))
        Xi = fit.Xi.copy()
        Xi[free] = chosen.p
        dx = bordered.states_for(eliminated, chain, Xi[free] - fit.Xi[free])
        fit = replace(fit, Z=fit.Z + dx, Xi=Xi)
        return replace(fit, cost=self.cost(fit)), chosen

    def _select(self, R: Array, b: Array, fit: JointFit, spread: float) -> Selection:
        rules, free = self.rules, self.rules.allowed
        penalty = spread * penalty_for(int(self.seen.sum()), int(free.sum()), rules.strength)
        R, b = self.tied(R, b, fit.Xi, free)
        bounds: dict[str, Any] = {"low": rules.low[free], "high": rules.high[free]}
        required = rules.required[free]
        size = self.sizes(fit)[free]
        complexity = None if rules.complexity is None else rules.complexity[free]
        chosen = select(
            R, b, penalty, required=required, complexity=complexity, equation=np.nonzero(free)[0],
            **bounds,
        )  # fmt: skip
        while True:  # remove terms below the threshold, the smallest first
            share = np.abs(chosen.p) * size
            share[~chosen.support | required] = np.inf
            least = int(np.argmin(share))
            if not share[least] < rules.threshold:
                return chosen
            support = chosen.support.copy()
            support[least] = False
            chosen = select(R, b, np.inf, start=support, required=support, **bounds)

    def tied(self, R: Array, b: Array, Xi: Array, free: Flags) -> tuple[Array, Array]:
        """Prepend the equality constraints as heavily weighted rows."""
        if self.rules.ties is None:
            return R, b
        C, e = self.rules.ties
        mine = free.ravel()
        held = e - C[:, ~mine] @ Xi.ravel()[~mine]
        weight = 1e6 * max(np.abs(R).max(initial=0.0), 1e-300)
        rows = np.pad(weight * C[:, mine], ((0, 0), (0, R.shape[1] - int(mine.sum()))))
        return np.vstack([rows, R]), np.concatenate([weight * held, b])

    def sizes(self, fit: JointFit) -> Array:
        """(V, P) contribution of a term with coefficient one, relative to its right-hand side."""
        X = np.concatenate([fit.Z, self.nodes.U], -1)
        with np.errstate(all="ignore"):
            phi = np.sqrt((self.model(fit).terms.evaluate(X) ** 2).mean(0))
        top = self.rates[self.D - self.V :]
        return np.nan_to_num(phi[None, :] / top[:, None], posinf=1e300)

    def improve(
        self, fit: JointFit, iterations: int = ITERATIONS, tolerance: float = 1e-3
    ) -> JointFit:
        """Gauss-Newton iterations for given terms; evidence from the last linearization."""
        free = self.rules.allowed & (fit.Xi != 0)
        Xi = np.where(free, np.clip(fit.Xi, self.rules.low, self.rules.high), fit.Xi)
        fit = replace(fit, Xi=Xi)
        fit = replace(fit, cost=self.cost(fit), evidence=-np.inf)
        for _ in range(iterations):
            found = self.triangle(fit, free, inner=True)
            if found is None:
                return fit
            R, b, (chain, eliminated) = found
            R, b = self.tied(R, b, fit.Xi, free)
            chosen = self._damped(R, b, fit.theta)
            chosen = bounded(R, b, chosen, self.rules.low[free], self.rules.high[free])
            now = np.concatenate([fit.Xi[free], fit.theta])
            dx = bordered.states_for(eliminated, chain, chosen.p - now)
            before = fit.cost
            fit, step = self._line_search(fit, free, chosen.p - now, dx)
            fit = self._with_evidence(fit, free, chosen, eliminated)
            if step == 0.0 or (step == 1.0 and before - fit.cost < tolerance * fit.cost):
                break
        return fit

    def _damped(self, R: Array, b: Array, theta: Array) -> Selection:
        """Least squares; steps of the constants inside the terms are limited."""
        m = R.shape[1] - len(theta)
        every = np.ones(R.shape[1], bool)
        chosen = select(R, b, 0.0, required=every)
        limit = LONGEST_STEP * np.maximum(np.abs(theta), 1e-300)
        damping = np.zeros(len(theta))
        for _ in range(DAMPINGS):
            far = np.abs(chosen.p[m:] - theta) > limit
            if not far.any():
                break
            size = np.sqrt((R[:, m:] ** 2).sum(0))
            damping = np.where(far, np.maximum(4.0 * damping, 1e-3 * size), damping)
            rows = np.pad(np.diag(damping), ((0, 0), (m, 0)))
            stack = np.vstack([R, rows]), np.concatenate([b, damping * theta])
            deviation, chosen = chosen.deviation, select(*stack, 0.0, required=every)
            chosen = replace(chosen, deviation=np.maximum(deviation, chosen.deviation))
        return chosen

    def _line_search(
        self, fit: JointFit, free: Flags, dp: Array, dx: Array
    ) -> tuple[JointFit, float]:
        """Backtracking line search: the new fit and the step length, zero if none is better."""
        step, m = 1.0, int(free.sum())
        constants = self.constants if len(fit.theta) else ()
        low, high = (np.array([getattr(c, x) for c in constants]) for x in ("low", "high"))
        for _ in range(HALVINGS):
            Xi = fit.Xi.copy()
            Xi[free] += step * dp[:m]
            theta = np.clip(fit.theta + step * dp[m:], low, high)
            other = replace(fit, Z=fit.Z + step * dx, Xi=Xi, theta=theta)
            cost = self.cost(other)
            if cost < fit.cost:
                return replace(other, cost=cost), step
            step *= 0.5
        return fit, 0.0

    def freeze(self, fit: JointFit) -> JointFit:
        """Keep the constants inside the terms from here on; the fit without them."""
        self.terms = self.model(fit).terms
        return replace(fit, theta=np.zeros(0))

    def parameters(self, fit: JointFit) -> int:
        """Number of coefficients that are not zero, and of the constants inside these terms."""
        present = fit.Xi != 0
        return int(present.sum() + (present.any(0) @ self.terms.uses > 0).sum())

    def parameters_of(self, present: Flags) -> Indices:
        """(V,) number of coefficients and constants of each equation with some terms (V, P)."""
        return np.asarray(present.sum(1) + (present @ self.terms.uses > 0).sum(1))

    @property
    def candidates(self) -> int:
        """Number of candidates, over all equations, that the terms were chosen from."""
        return max(int(self.rules.allowed.sum()), self.rules.candidates)

    def _with_evidence(
        self, fit: JointFit, free: Flags, chosen: Selection, eliminated: bordered.Eliminated
    ) -> JointFit:
        """Add the evidence and the standard deviations of the coefficients."""
        if not np.isfinite(fit.cost):
            return fit
        k, m = self.parameters(fit) - int((fit.Xi != 0).sum() - free.sum()), int(free.sum())
        freedom = self.freedom(k)
        spread = max(fit.cost / freedom, 1e-300)
        wq, wd = self._weights(fit.rho, fit.sigma)
        logs = np.log(wq[wq > 0]).sum() + np.log(wd[wd > 0]).sum()
        likelihood = logs - eliminated.log_determinant - 0.5 * freedom * np.log(spread)
        n = float(self.seen.sum())
        price = 0.5 * penalty_for(int(n), self.candidates, self.rules.strength)
        # Small-sample correction as in the AICc of Hurvich and Tsai (1989).
        price *= n / max(freedom - self.V - 1.0, 0.1 * n)
        every = chosen.deviation * np.sqrt(spread)
        deviation = np.zeros_like(fit.Xi)
        deviation[free] = every[:m]
        return replace(
            fit, evidence=float(likelihood - price * k), deviation=deviation,
            theta_deviation=every[m:],
        )  # fmt: skip

    def noise_of(self, fit: JointFit) -> Array:
        """(V,) standard deviation of the residuals of a fit with strong constraints."""
        k = (fit.Xi != 0).sum()
        seen = self.seen[:, : self.V]
        misfit = self.nodes.roots * (self.data - fit.Z)[:, : self.V]
        used = (self.D * self.nodes.pieces + k) / self.V
        freedom = np.maximum(seen.sum(0) - used, 0.2 * seen.sum(0) + 1)
        noise = np.maximum(np.sqrt((misfit**2).sum(0) / freedom), 1e-14 * self.nodes.scale)
        hidden, scale = self.nodes.hidden, self.nodes.scale
        if hidden.any():  # nominal: as in the other variables
            noise[hidden] = scale[hidden] * (noise / scale)[~hidden].mean()
        return noise


def bounded(R: Array, b: Array, found: Selection, low: Array, high: Array) -> Selection:
    """Least squares with bounds on the first coefficients, if the solution violates them."""
    first = found.p[: len(low)]
    if ((first >= low) & (first <= high)).all():
        return found
    m = len(found.p)
    ends = np.full((2, m), np.inf) * [[-1.0], [1.0]]
    ends[0, : len(low)], ends[1, : len(low)] = low, high
    size = np.sqrt((R**2).sum(0))
    size[size == 0.0] = 1.0
    with np.errstate(all="ignore"):
        p = lsq_linear(R / size, b, ends * size, method="bvls").x / size
    return replace(found, p=np.clip(p, *ends))


def continuation(
    refiner: Refiner, Z: Array, dZ: Array, Xi: Array, sigma: Array, *, keep: bool = False
) -> JointFit:
    """Continuation from weak to strong constraints; the level with the highest evidence.

    Args:
        refiner: Data, terms and rules.
        Z: (N, D) initial states.
        dZ: (N, D) their time derivatives.
        Xi: (V, P) initial coefficients.
        sigma: (V,) estimate or upper bound of the noise.
        keep: Keep the terms of `Xi` instead of selecting terms at every level.
    """
    refiner.prepare(Z, dZ, Xi, sigma)
    rho = _first_rho(refiner, Z, Xi)
    best = _descend(refiner, JointFit(Z, Xi, rho, sigma, theta=refiner.terms.theta), [], keep)
    for _ in range(PASSES):
        noise = refiner.noise_of(best)
        if best.rho > STRICT:  # divide sigma and rho by the same factor, for a misfit of one
            factor = np.sqrt(best.cost / refiner.freedom(0))
            if best.rho * factor > STRICT:
                break
            noise = factor * sigma
        if not (noise < 0.2 * sigma).all():
            break
        sigma = noise
        # The data are cleaner than estimated: integrate with a matching accuracy.
        groups, zone = refiner.groups, refiner.zone
        refiner.prepare(best.Z, dZ, best.Xi, sigma)
        rho = min(best.rho, _first_rho(refiner, best.Z, best.Xi))
        again = _descend(refiner, replace(best, rho=rho, sigma=sigma), best.history, keep)
        if again.evidence <= best.evidence:
            refiner.groups, refiner.zone = groups, zone
            break
        best = again
    return best


def _descend(refiner: Refiner, fit: JointFit, levels: list[dict[str, Any]], keep: bool) -> JointFit:
    """Continue from the level of a fit to smaller values of `rho`."""
    levels = list(levels)
    span = refiner.unit * np.diff(refiner.nodes.starts).max()
    best, worse = replace(fit, evidence=-np.inf), 0
    first = True
    while True:
        fit = replace(fit, cost=refiner.cost(fit))
        if not keep:
            chosen = refiner.choose(refiner.improve(fit, 1) if first else fit)
            if chosen is None:
                break
            first, fit = False, chosen[0]
        fit = refiner.improve(fit)
        terms, misfit = int((fit.Xi != 0).sum()), fit.cost / refiner.freedom(0)
        levels.append({"rho": fit.rho, "evidence": fit.evidence, "terms": terms, "misfit": misfit})
        refiner.progress(f"rho {fit.rho:.1e}: {terms} terms, misfit {misfit:.4g}")
        if fit.evidence > best.evidence:
            best, worse = fit, 0
        else:
            worse += 1
        noise = (fit.sigma / refiner.rates[: refiner.V]).min()
        last = max(1e-3 * noise / np.sqrt(refiner.unit * span), HARDEST)
        if fit.rho <= last or worse >= PATIENCE:
            break
        sigma = fit.sigma
        if worse == 0 and fit.rho <= STRICT and misfit < 4.0:
            sigma = np.clip(refiner.noise_of(fit), 0.2 * sigma, 2.0 * sigma)
        fit = replace(fit, rho=max(fit.rho * REDUCTION, last), sigma=sigma)
    return replace(best, history=levels)


def _first_rho(refiner: Refiner, Z: Array, Xi: Array) -> float:
    """Typical relative error of the model on the smoothed data."""
    model = OdeModel(refiner.terms, Xi, refiner.order, refiner.link)
    follows = refiner.follows[:-1]
    with np.errstate(all="ignore"):
        defect = (Z[1:] - refiner.ends(model, Z)[:-1])[follows]
        relative = defect / (refiner.rates * np.sqrt(refiner.h * refiner.unit)[:-1][follows, None])
        squares = np.minimum(relative**2, 1e6)[~np.isnan(relative)]
    return float(np.clip(np.sqrt(squares.mean()), 1e-6, 0.5)) if squares.size else 0.5
