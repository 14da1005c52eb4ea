"""Coefficients and deviations that noise in the fitted beginnings does not affect.

The modes of a beginning are fitted to noisy data, and so are partly noise. Where waves disperse,
the phases of such modes depend steeply on the coefficients, although the true solution has none of
them: the likelihood then has many narrow maxima, and its curvature promises a precision that the
data do not give. Here the coefficients solve an estimating equation instead: the residuals must be
orthogonal to the derivatives of the solution, as far as these lie where the field stands out from
the noise. What noise in the beginnings contributes to the information that is left is measured by
moving the beginnings at random within their uncertainty, and subtracted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from smnn.discovery._field.denoise import Filter, mean_of_neighbours
from smnn.discovery._field.refine import Likely, independent_share
from smnn.discovery._field.shooting import Segment, Shooting, Step

Field = np.ndarray[Any, np.dtype[Any]]
Project = Callable[[Field], Field]
NEGLIGIBLE = 0.1
"""Share of noise in the information up to which the likelihood is used as it is."""
MOST_NOISE = 0.8
"""Largest share of noise that is subtracted from the information."""
DRAWS, ROUNDS, REFITS = 2, 4, 2
LONGEST = 2.0
"""Most standard deviations of a step."""
NEAR = 0.3
"""Standard deviations of a step that ends the iteration."""
BLOCK = 400
"""Most times that are projected together."""


@dataclass(frozen=True)
class Slopes:
    """Derivatives of the solution in the coefficients, with the beginnings following.

    Attributes:
        step: Normal equations of the segments.
        J: `(k, F, T, X)` derivatives for each run.
        rest: `(F, T, X)` residuals for each run; zero where missing.
        known: Where values were measured, for each run.
    """

    step: Step
    J: list[Field]
    rest: list[Field]
    known: list[Field]


def visible(u: Field, noise: Field, t: Field, x: Field) -> Project:
    """Projection of fields `(..., F, T, X)` on where a filtered field stands out from the noise."""
    parts = []
    for block in np.array_split(np.arange(len(t)), -(-len(t) // BLOCK)):
        basis = Filter([t[block], x], [False, True])
        masks = []
        for one, sigma in zip(u[:, block], noise):
            power = np.abs(basis.transform(one)) ** 2
            for axis, wraps in enumerate((False, True)):
                power = mean_of_neighbours(power, axis, wraps)
            masks.append(power > sigma**2)
        parts.append((block, basis, masks))

    def project(v: Field) -> Field:
        out = np.zeros_like(v)
        for block, basis, masks in parts:
            for place in np.ndindex(v.shape[:-2]):
                one = basis.inverse(masks[place[-1]] * basis.transform(v[(*place, block)]))
                out[(*place, block)] = one if np.iscomplexobj(v) else one.real
        return out

    return project


class Settling:
    """The estimating equation of a law.

    Args:
        shooting: The likelihood.
        projects: Projection of each run.
        seed: Seed of the random moves.
    """

    def __init__(self, shooting: Shooting, projects: Sequence[Project], seed: int) -> None:
        self.shooting, self.projects = shooting, projects
        self.rng = np.random.default_rng(seed)

    def __call__(self, likely: Likely) -> Likely:
        """The law with settled coefficients and deviations."""
        whole = self._slopes(likely, likely.segments)
        if whole is None:
            return likely
        changes = self._moved(likely, whole)
        spurious = self._information(changes, whole)
        noise, _ = _shares(self._information([whole.J], whole), spurious)
        if noise.max() < NEGLIGIBLE:
            return likely
        best, step = likely, np.full(len(likely.xi), np.inf)
        slopes: Slopes | None = whole
        spurious = self._information([self._seen(J) for J in changes], whole)
        for turn in range(ROUNDS):
            if slopes is None:
                break
            seen = self._seen(slopes.J)
            S = self._products(seen, seen, slopes)
            covariance, inverse = _covariance(S, spurious)
            deviation = np.sqrt(np.diag(covariance))
            step = inverse @ self._products(seen, [r[None] for r in slopes.rest], slopes)[:, 0]
            best = replace(best, deviation=deviation)
            ratio = np.abs(best.xi) / np.hypot(deviation, step)
            if turn == 0 and len(ratio) > 1 and ratio.min() ** 2 < best.price:
                return replace(best, deviation=np.hypot(deviation, step))  # a term will be left out
            size = float(np.max(np.abs(step) / deviation))
            if size < NEAR or turn == ROUNDS - 1:
                break
            xi = best.xi + step * min(1.0, LONGEST / size)
            segments, cost = self._refitted(best, xi)
            best = replace(best, xi=xi, segments=segments, cost=cost)
            slopes = self._slopes(best, segments)
        return self._finished(best, slopes, step)

    def _finished(self, likely: Likely, slopes: Slopes | None, step: Field) -> Likely:
        """Deviations at the end; an iteration that did not converge adds its last step."""
        if slopes is None:
            return replace(likely, deviation=np.abs(likely.xi), converged=False)
        seen = self._seen(slopes.J)
        changes = self._moved(likely, slopes)
        spurious = self._information([self._seen(J) for J in changes], slopes)
        covariance, _ = _covariance(self._products(seen, seen, slopes), spurious)
        law = self.shooting.law(likely.pairs, likely.xi)
        r = independent_share(self.shooting, law, likely.segments, likely.substeps)
        variance = np.diag(covariance) * likely.excess / max(r, 1e-6) + step**2
        return replace(likely, deviation=np.sqrt(variance))

    def _slopes(self, likely: Likely, segments: list[Segment]) -> Slopes | None:
        pairs, steps = likely.pairs, likely.coarse
        law = self.shooting.law(pairs, likely.xi)
        step = self.shooting.linearise(law, segments, pairs, likely.xi, (likely.substeps, steps))
        if step is None:
            return None
        out = Slopes(step, [], [], [])
        each = len(segments) // len(self.projects)
        for first in range(0, len(segments), each):
            parts = list(zip(segments, step.normals))[first : first + each]
            J, rest = zip(*(self.shooting.slopes(law, s, n, pairs, steps) for s, n in parts))
            r = np.concatenate(rest, -2)
            out.J.append(np.concatenate(J, -2))
            out.known.append(np.isfinite(r))
            out.rest.append(np.where(np.isfinite(r), r, 0.0))
        return out if all(np.isfinite(J).all() for J in out.J) else None

    def _seen(self, J: list[Field]) -> list[Field]:
        return [project(one) for one, project in zip(J, self.projects)]

    def _products(self, a: list[Field], b: list[Field], slopes: Slopes) -> Field:
        """Sums of the products of fields over the measured values, in units of the noise."""
        weight = 1 / self.shooting.noise[:, None, None]
        total: Any = 0.0
        for one, other, known in zip(a, b, slopes.known):
            left = (one * (weight * known)).reshape(len(one), -1)
            right = (other * (weight * known)).reshape(len(other), -1)
            total = total + (left.conj() @ right.T).real
        return np.asarray(total)

    def _information(self, several: list[list[Field]], slopes: Slopes) -> Field:
        """Mean information of derivatives."""
        found = [self._products(J, J, slopes) for J in several]
        return np.asarray(np.mean(found, 0))

    def _moved(self, likely: Likely, slopes: Slopes) -> list[list[Field]]:
        """Changes of the derivatives by random moves of the beginnings within their uncertainty."""
        basis, out = self.shooting.basis(), []
        for _ in range(DRAWS):
            moved = []
            for s, n in zip(likely.segments, slopes.step.normals):
                root = np.linalg.cholesky(n.modes + 1e-10 * np.diag(np.diag(n.modes)))
                z = np.linalg.solve(root.T, self.rng.standard_normal(len(root)))
                moved.append(replace(s, start=s.start + np.tensordot(z, basis, 1)))
            other = self._slopes(likely, moved)
            if other is not None:
                out.append([a - b for a, b in zip(other.J, slopes.J)])
        return out or [slopes.J]

    def _refitted(self, likely: Likely, xi: Field) -> tuple[list[Segment], float]:
        """Beginnings that fit the data best with given coefficients."""
        shooting, substeps = self.shooting, likely.substeps
        law, segments = shooting.law(likely.pairs, xi), likely.segments
        cost = shooting.cost(law, segments, substeps)
        for _ in range(REFITS):
            step = shooting.linearise(law, segments, likely.pairs, xi, (substeps, likely.coarse))
            if step is None:
                break
            for damping in (0.0, 0.01, 0.1, 1.0):
                moved = shooting.moved(segments, step.normals, np.zeros(len(xi)), damping)
                new = shooting.cost(law, moved, substeps)
                if new < cost:
                    break
            gain = cost - new
            if gain > 0:
                segments, cost = moved, new
            if gain < 1:  # in units of the noise
                break
        return segments, cost


def _shares(S: Field, spurious: Field) -> tuple[Field, Field]:
    """Shares of `spurious` in `S` along independent directions, and these directions."""
    values, vectors = np.linalg.eigh(S)
    scaled = vectors / np.sqrt(np.maximum(values, 1e-14 * values.max()))
    shares, turn = np.linalg.eigh(scaled.T @ spurious @ scaled)
    return shares, scaled @ turn


def _covariance(S: Field, spurious: Field) -> tuple[Field, Field]:
    """Covariance of the coefficients, and the inverse of the information without noise."""
    shares, directions = _shares(S, spurious)
    left = 1 - np.clip(shares, 0.0, MOST_NOISE)
    return (directions / left**2) @ directions.T, (directions / left) @ directions.T
