"""States and coefficients fitted together: the data explained by a trajectory of the model.

    minimise  sum |(z_k - data_k) / sigma|^2  +  sum |(z_{k+1} - step(z_k; Xi)) / (rho q_k)|^2

over all states `z_k` and the coefficients `Xi`, by Gauss-Newton steps whose linear systems are a
chain with a border (`bordered`), so a step costs time linear in the data. `rho` begins where the
smoothed data put it and is lowered level by level until the model holds exactly, or until the
likelihood says that it should not: real systems are not their equations. At every level the terms
are chosen anew from the whole library, by their significance in this joint fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from smnn.discovery._fit import bordered
from smnn.discovery._fit.arrays import Array, Flags, Indices, root_mean_square, triangle_of
from smnn.discovery._fit.flow import Link, Model, Steps, Terms, flow, flow_with_derivatives
from smnn.discovery._fit.selection import Selected, penalty_for, select
from smnn.discovery._fit.series import Nodes
from smnn.discovery._fit.tableau import CLASSICAL, COOPER_VERNER, Tableau

ITERATIONS = 4
"""Gauss-Newton steps at a level, at most."""
HALVINGS = 6
METHODS = (
    (CLASSICAL, 1),
    (CLASSICAL, 2),
    (COOPER_VERNER, 1),
    (COOPER_VERNER, 2),
    (COOPER_VERNER, 4),
    (COOPER_VERNER, 8),
)
"""Ways to take a step with their substeps, from cheap to exact."""
ANCHOR = 1e-7
DIGITS = 1e-9
"""Smallest share of the spread of a variable that terms are judged by: below it are roundings."""


@dataclass(frozen=True)
class Rules:
    """What may be chosen; everything is (V, P)."""

    allowed: Flags
    """Candidates; the others keep the coefficient that they have."""
    required: Flags
    positive: Flags
    negative: Flags
    ties: tuple[Array, Array] | None = None
    """Equalities `C p = e` among the coefficients, C (ties, V P)."""
    threshold: float = 1e-3
    """Smallest share that a term must have in its right-hand side."""
    strength: float = 1.0
    """Of the penalty for a term."""
    complexity: Array | None = None
    """(V, P) of the terms, to decide between equals."""


@dataclass(frozen=True)
class Fit:
    """A joint fit at one level."""

    Z: Array
    """(N, D) states."""
    Xi: Array
    """(V, P)."""
    rho: float
    sigma: Array
    """(V,) noise."""
    cost: float = np.inf
    """Sum of the squares of the weighted rows."""
    evidence: float = -np.inf
    """Logarithm of the likelihood, states integrated out, less the penalty for the terms."""
    deviation: Array | None = None
    """(V, P) standard deviations of the coefficients."""
    history: list[dict[str, Any]] = field(default_factory=list)


class Refiner:
    """The joint fit for given data, terms and rules."""

    def __init__(
        self,
        nodes: Nodes,
        terms: Terms,
        order: int,
        rules: Rules,
        link: Link | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.nodes, self.terms, self.order, self.rules = nodes, terms, order, rules
        self.link, self.say = link, say
        self.V = nodes.Y.shape[1]
        self.D = self.V * order
        self.follows = nodes.follows
        self.h = nodes.h
        self.unit = float(np.median(self.h[self.follows]))
        self.seen = np.zeros((len(nodes.t), self.D), bool)
        self.seen[:, : self.V] = nodes.seen
        self.data = np.zeros((len(nodes.t), self.D))
        self.data[:, : self.V] = np.where(nodes.seen, nodes.Y, 0.0)
        self.groups: list[tuple[Indices, Steps]] = []
        self.rates = np.ones(self.D)
        self.zone = np.ones(self.D)
        self.looseness = np.ones(len(nodes.t))
        """(N,) by how much less than elsewhere the model binds the step from a node."""

    # -- the pieces of the cost ---------------------------------------------------------------

    def prepare(self, Z: Array, dZ: Array, Xi: Array, sigma: Array) -> None:
        """Scales of states and rates, and substeps that keep errors of integration out of sight."""
        self.zone = root_mean_square(Z)
        self.rates = np.maximum(root_mean_square(dZ), 1e-12 * self.zone / self.unit)
        want = np.full(self.D, np.inf)
        want[: self.V] = np.maximum(0.02 * sigma, 1e-13 * self.zone[: self.V])
        model = Model(self.terms, Xi, self.order, self.link)
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

    def _steps(self, method: Tableau, n: int) -> list[tuple[Indices, Steps]]:
        """Nodes grouped by the number of their substeps: long steps have more."""
        factor = 2 ** np.ceil(np.log2(np.maximum(self.h / (1.5 * self.unit), 1.0))).astype(int)
        groups = []
        for f in np.unique(factor[self.follows]):
            where = np.flatnonzero(self.follows & (factor == f))
            U = self._inputs(where, min(n * int(f), 64), method.c)
            groups.append((where, Steps(self.h[where], U, method)))
        return groups

    def _inputs(self, where: Indices, n: int, c: Array) -> Array:
        """(nodes, n, stages, inputs) along smooth curves through the inputs."""
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

    def ends(self, model: Model, Z: Array) -> Array:
        out = np.zeros_like(Z)
        for where, steps in self.groups:
            out[where] = flow(model, Z[where], steps)
        return out

    def _weights(self, rho: float, sigma: Array) -> tuple[Array, Array]:
        loose = self.looseness * np.sqrt(self.h * self.unit)
        wq = 1.0 / (rho * self.rates * loose[:, None])
        wq[~self.follows] = 0.0
        wd = np.zeros_like(self.data)
        wd[:, : self.V] = self.seen[:, : self.V] / sigma
        return wq, wd

    def cost(self, Z: Array, Xi: Array, rho: float, sigma: Array) -> float:
        """Sum of the squares of all rows; infinite where the model is not finite."""
        wq, wd = self._weights(rho, sigma)
        with np.errstate(all="ignore"):
            ends = self.ends(Model(self.terms, Xi, self.order, self.link), Z)
            defect = np.zeros_like(Z)
            defect[:-1] = Z[1:] - ends[:-1]
            total = float(((wq * defect) ** 2).sum() + ((wd * (self.data - Z)) ** 2).sum())
        return total if np.isfinite(total) else np.inf

    def defects(self, fit: Fit) -> Array:
        """(N, D) by how much the model misses the next state; zero at the end of a series."""
        ends = self.ends(Model(self.terms, fit.Xi, self.order, self.link), fit.Z)
        out = np.zeros_like(fit.Z)
        out[:-1] = np.where(self.follows[:-1, None], fit.Z[1:] - ends[:-1], 0.0)
        return out

    def _linearise(
        self, fit: Fit, free: Flags
    ) -> tuple[bordered.Chain, bordered.Eliminated] | None:
        N, m = len(fit.Z), int(free.sum())
        A, B = np.zeros((N, self.D, self.D)), np.zeros((N, self.D, m))
        r = np.zeros((N, self.D))
        model = Model(self.terms, fit.Xi, self.order, self.link)
        with np.errstate(all="ignore"):
            for where, steps in self.groups:
                end, A[where], B[where] = flow_with_derivatives(model, fit.Z[where], steps, free)
                r[where] = fit.Z[where + 1] - end
        if not (np.isfinite(r).all() and np.isfinite(A).all() and np.isfinite(B).all()):
            return None
        wq, wd = self._weights(fit.rho, fit.sigma)
        chain = bordered.Chain(A, B, r, wq, wd, self.data - fit.Z, self.follows)
        return chain, bordered.eliminate(chain, ANCHOR / self.zone)

    # -- steps --------------------------------------------------------------------------------

    def triangle(
        self, fit: Fit, free: Flags
    ) -> tuple[Array, Array, tuple[bordered.Chain, bordered.Eliminated]] | None:
        """`|R p - b|^2` over the free coefficients `p`, states eliminated; and the elimination."""
        found = self._linearise(fit, free)
        if found is None:
            return None
        chain, eliminated = found
        m = int(free.sum())
        left = eliminated.left.reshape(-1, m + 1)
        if not np.isfinite(left).all():
            return None
        R = triangle_of(left)
        return R[:m, :m], R[:m, m] + R[:m, :m] @ fit.Xi[free], (chain, eliminated)

    def freedom(self, terms: int) -> float:
        """Data less unknowns, states counted by the steps that bind them."""
        return float(max(self.seen.sum() - self.D * self.nodes.pieces - terms, 1))

    def spread(self, fit: Fit) -> float:
        """What a row is expected to add to the cost: what it does, or what roundings of data do.

        Without a floor everything is significant in data without noise, and where terms say the
        same in several ways the choice between them is left to roundings.
        """
        found = fit.cost / self.freedom(int((fit.Xi != 0).sum()))
        loose = (fit.rho * self.rates * self.unit)[: self.V]
        least = float(((DIGITS * self.nodes.scale) ** 2 / (fit.sigma**2 + loose**2)).mean())
        return max(found, least) if np.isfinite(found) else max(1.0, least)

    def choose(self, fit: Fit) -> tuple[Fit, Selected] | None:
        """Choose terms from all candidates, in the linearisation around a fit."""
        free = self.rules.allowed
        found = self.triangle(fit, free)
        if found is None:
            return None
        R, b, (chain, eliminated) = found
        chosen = self._select(R, b, fit, self.spread(fit))
        Xi = fit.Xi.copy()
        Xi[free] = chosen.p
        dx = bordered.states_for(eliminated, chain, Xi[free] - fit.Xi[free])
        Z = fit.Z + dx
        return replace(fit, Z=Z, Xi=Xi, cost=self.cost(Z, Xi, fit.rho, fit.sigma)), chosen

    def _select(self, R: Array, b: Array, fit: Fit, spread: float) -> Selected:
        rules, free = self.rules, self.rules.allowed
        penalty = spread * penalty_for(int(self.seen.sum()), int(free.sum()), rules.strength)
        R, b = self.tied(R, b, fit.Xi, free)
        signs: dict[str, Any] = {
            "positive": rules.positive[free], "negative": rules.negative[free]
        }  # fmt: skip
        required = rules.required[free]
        size = self.sizes(fit)[free]
        complexity = None if rules.complexity is None else rules.complexity[free]
        chosen = select(
            R, b, penalty, required=required, complexity=complexity, equation=np.nonzero(free)[0],
            **signs,
        )  # fmt: skip
        while True:  # terms too small to matter go, the smallest first
            share = np.abs(chosen.p) * size
            share[~chosen.support | required] = np.inf
            least = int(np.argmin(share))
            if not share[least] < rules.threshold:
                return chosen
            support = chosen.support.copy()
            support[least] = False
            chosen = select(R, b, np.inf, start=support, required=support, **signs)

    def tied(self, R: Array, b: Array, Xi: Array, free: Flags) -> tuple[Array, Array]:
        """Equalities as rows that outweigh all others."""
        if self.rules.ties is None:
            return R, b
        C, e = self.rules.ties
        mine = free.ravel()
        held = e - C[:, ~mine] @ Xi.ravel()[~mine]
        weight = 1e6 * max(np.abs(R).max(initial=0.0), 1e-300)
        return np.vstack([weight * C[:, mine], R]), np.concatenate([weight * held, b])

    def sizes(self, fit: Fit) -> Array:
        """(V, P) share of a term with coefficient one in the rate that it belongs to."""
        X = np.concatenate([fit.Z, self.nodes.U], -1)
        with np.errstate(all="ignore"):
            phi = np.sqrt((self.terms.evaluate(X) ** 2).mean(0))
        top = self.rates[self.D - self.V :]
        return np.nan_to_num(phi[None, :] / top[:, None], posinf=1e300)

    def improve(self, fit: Fit, iterations: int = ITERATIONS, tolerance: float = 1e-3) -> Fit:
        """Gauss-Newton steps with the terms as they are; judged by the last linearisation."""
        free = self.rules.allowed & (fit.Xi != 0)
        fit = replace(fit, cost=self.cost(fit.Z, fit.Xi, fit.rho, fit.sigma), evidence=-np.inf)
        for _ in range(iterations):
            found = self.triangle(fit, free)
            if found is None:
                return fit
            R, b, (chain, eliminated) = found
            chosen = self._all(*self.tied(R, b, fit.Xi, free))
            dp = chosen.p - fit.Xi[free]
            dx = bordered.states_for(eliminated, chain, dp)
            before = fit.cost
            fit, step = self._shortened(fit, free, dp, dx)
            fit = self._judged(fit, free, chosen, eliminated)
            if step == 0.0 or (step == 1.0 and before - fit.cost < tolerance * fit.cost):
                break
        return fit

    @staticmethod
    def _all(R: Array, b: Array) -> Selected:
        return select(R, b, 0.0, required=np.ones(R.shape[1], bool))

    def _shortened(self, fit: Fit, free: Flags, dp: Array, dx: Array) -> tuple[Fit, float]:
        """The longest of a few shorter and shorter steps that lowers the cost, and its length."""
        step = 1.0
        for _ in range(HALVINGS):
            Xi = fit.Xi.copy()
            Xi[free] += step * dp
            Z = fit.Z + step * dx
            cost = self.cost(Z, Xi, fit.rho, fit.sigma)
            if cost < fit.cost:
                return replace(fit, Z=Z, Xi=Xi, cost=cost), step
            step *= 0.5
        return fit, 0.0

    def _judged(
        self, fit: Fit, free: Flags, chosen: Selected, eliminated: bordered.Eliminated
    ) -> Fit:
        """The fit with its evidence and the deviations of its coefficients."""
        if not np.isfinite(fit.cost):
            return fit
        k = int(free.sum())
        freedom = self.freedom(k)
        spread = max(fit.cost / freedom, 1e-300)
        wq, wd = self._weights(fit.rho, fit.sigma)
        logs = np.log(wq[wq > 0]).sum() + np.log(wd[wd > 0]).sum()
        likelihood = logs - eliminated.log_determinant - 0.5 * freedom * np.log(spread)
        n = float(self.seen.sum())
        price = 0.5 * penalty_for(int(n), int(self.rules.allowed.sum()), self.rules.strength)
        # With few data a term costs more, as in the corrected criterion of Hurvich and Tsai (1989).
        price *= n / max(freedom - self.V - 1.0, 0.1 * n)
        deviation = np.zeros_like(fit.Xi)
        deviation[free] = chosen.deviation * np.sqrt(spread)
        return replace(fit, evidence=float(likelihood - price * k), deviation=deviation)

    def noise_of(self, fit: Fit) -> Array:
        """(V,) residuals of a fit whose states are bound by the model."""
        k = (fit.Xi != 0).sum()
        seen = self.seen[:, : self.V]
        misfit = np.where(seen, (self.data - fit.Z)[:, : self.V], 0.0)
        used = (self.D * self.nodes.pieces + k) / self.V
        freedom = np.maximum(seen.sum(0) - used, 0.2 * seen.sum(0) + 1)
        return np.maximum(np.sqrt((misfit**2).sum(0) / freedom), 1e-14 * self.nodes.scale)
