"""Selection of terms and estimation of coefficients by maximum likelihood."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from smnn.discovery._field.shooting import COARSE, Segment, Shooting, Step
from smnn.discovery._field.weak import Pair, Quadratic, Weak, choose, swaps

Field = np.ndarray[Any, np.dtype[Any]]
MOST_ROUNDS, MOST_TRIES = 20, 6
NEARLY = 0.005
"""Relative change of the cost from which on terms are selected."""
SETTLED = 1e-4
"""Relative change of the cost at which the iteration has converged; that of clean data is finer."""
MARGIN = 6.0
"""Difference of the likelihood, in nats, up to which laws describe the data equally well."""
FLOOR = 1e-4
"""Errors below this fraction of the spread do not count as evidence."""


@dataclass
class Likely:
    """A law with the largest likelihood that was found.

    Attributes:
        pairs: Equation and term of each coefficient.
        xi: Coefficients.
        deviation: Standard deviations.
        segments: The data with the modes of their beginnings.
        cost: Sum of squares in units of the noise.
        values: Number of measured real values.
        converged: Whether the iteration converged.
        substeps: Steps of the integrator between times.
        coarse: The same for derivatives in the coefficients.
        price: What each term costs in the criterion, in units of twice a nat.
        rivals: Laws with other terms and about the same likelihood, which is relative, in nats.
    """

    pairs: list[Pair]
    xi: Field
    deviation: Field
    segments: list[Segment]
    cost: float
    values: int
    converged: bool
    substeps: int
    coarse: int
    price: float
    rivals: list[tuple[dict[Pair, float], float]] = field(default_factory=list)

    @property
    def excess(self) -> float:
        """Mean square of the residuals in units of the noise; about one if the law is right."""
        return self.cost / max(self.values, 1)

    @property
    def score(self) -> float:
        """The criterion that selects terms; smaller is better."""
        return self.values * float(np.log(max(self.cost, 1e-300))) + self.price * len(self.pairs)


@dataclass
class Found:
    """Everything that a fit has found."""

    denoised: list[Field]
    noise: Field
    signal: Field
    kept: Field
    weak: Weak
    likely: Likely | None
    shooting: Shooting | None
    residuals: list[Field] | None
    diagnostics: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Rules:
    """What decides on the terms.

    Attributes:
        candidates: Number of candidates over all equations.
        size: `(F,)` spread of each field, in units of its noise.
        share: Contribution to the equation of a coefficient of one, for each pair.
        threshold: Smallest contribution of a term.
        penalty: Sparsity penalty relative to the criterion.
    """

    candidates: int
    size: Field
    share: Callable[[Pair], float]
    threshold: float
    penalty: float

    def price(self, values: float) -> float:
        """Reduction of the criterion that a term must bring, for independent values."""
        both = np.log(max(values, 2.0)) + 2 * np.log(max(self.candidates, 2))
        return float(self.penalty * both)


def select(
    q: Quadratic, pairs: Sequence[Pair], values: float, rules: Rules, independent: float
) -> list[int]:
    """Indices of the pairs that the criterion chooses."""
    floor = values * float(np.mean((FLOOR * rules.size) ** 2))
    share = np.array([rules.share(pair) for pair in pairs])
    price = rules.price(independent)
    return choose(q, range(len(pairs)), share, rules.threshold, price, independent, floor)[0]


def maximise(
    shooting: Shooting,
    segments: list[Segment],
    pairs: list[Pair],
    xi: Field,
    extra: Sequence[Pair],
    rules: Rules,
    progress: Callable[[str], None],
) -> Likely | None:
    """Climb to the largest likelihood, selecting terms when the iteration has nearly converged.

    Args:
        shooting: The likelihood.
        segments: The data, with guesses of their beginnings.
        pairs: Terms to start with.
        xi: Their coefficients.
        extra: Further terms that may be selected.
        rules: What decides on the terms.
        progress: Told about each round.

    Returns:
        `None` if no solution follows the data.
    """
    values = sum(len(data) for s in segments for _, data in shooting.observed(s.u))
    clean = float(np.max(rules.size)) > 1e4
    accuracy = float(np.clip(0.01 / np.max(rules.size), 1e-9, 1e-4))
    steps = _steps(shooting, segments, pairs, xi, accuracy)
    if steps is None:
        return None
    law = shooting.law(pairs, xi)
    cost, damping, selected = shooting.cost(law, segments, steps[0]), 0.0, False
    final = False  # whether terms were selected again after the iteration had converged
    converged, step, change = False, None, np.inf
    rivals: list[tuple[dict[Pair, float], float]] = []
    for turn in range(MOST_ROUNDS):
        everything = [*pairs, *([] if selected else [p for p in extra if p not in pairs])]
        padded = np.concatenate([xi, np.zeros(len(everything) - len(xi))])
        step = shooting.linearise(law, segments, everything, padded, steps)
        while step is not None and not np.isfinite(step.quadratic.A).all() and steps[1] < steps[0]:
            steps = steps[0], 2 * steps[1]  # the derivative is less stable than the solution
            step = shooting.linearise(law, segments, everything, padded, steps)
        if step is None or not np.isfinite(step.quadratic.A).all():
            return None
        own = list(range(len(pairs)))
        chosen = own
        if not selected and (abs(change) < NEARLY or turn >= 4):  # earlier, all terms seem to help
            r = independent_share(shooting, law, segments, steps[0])
            chosen = select(step.quadratic, everything, values, rules, values * r)
            if sorted(chosen) == own:
                selected, rivals = True, _rivals(step.quadratic, everything, own, r)
        most = cost * (1 + 1e-12) if chosen == own else 1.05 * cost + 50
        trial, damping = _damped_step(shooting, segments, step, everything, padded, chosen, most,
                                      steps[0], damping)  # fmt: skip
        if trial is None and steps[1] < steps[0]:  # the derivative may be too coarse
            steps, damping = (steps[0], 2 * steps[1]), 0.0
            continue
        if trial is None and (not final or (not selected and change != 0)):  # select, then end
            final, selected, change, damping = final or selected or change == 0, False, 0.0, 0.0
            continue
        if trial is None:
            converged = converged or turn > 1
            break
        new_cost = trial[-1]
        change = (cost - new_cost) / max(cost, 1e-300)
        promised = cost - step.quadratic.left(chosen)
        if damping == 0 and cost - new_cost < promised / 2 and steps[1] < steps[0]:
            steps = steps[0], 2 * steps[1]
        pairs, xi, segments, law, cost = [everything[j] for j in chosen], *trial
        damping = damping / 8 if damping > 1e-6 else 0.0
        progress(f"round {turn + 1}: {len(pairs)} terms, misfit {np.sqrt(cost / values):.3g}")
        if abs(change) < (1e-3 if clean else SETTLED) and selected and chosen == own:
            if final:
                converged = True
                break
            selected, final = False, True
    deviation = _deviation(shooting, step, len(pairs), cost, values, law, segments, steps[0])
    price = rules.price(values)
    return Likely(pairs, xi, deviation, segments, cost, values, converged, *steps, price, rivals)


def _damped_step(
    shooting: Shooting, segments: list[Segment], step: Step, pairs: list[Pair], xi: Field,
    chosen: list[int], most: float, substeps: int, damping: float,
) -> tuple[tuple[Field, list[Segment], Any, float] | None, float]:  # fmt: skip
    """Coefficients, segments, law and cost after a step with a cost below `most`; the damping."""
    q = step.quadratic
    for _ in range(MOST_TRIES):
        damped = replace(q, A=_damped(q.A, damping), b=q.b + damping * np.diag(q.A) * xi)
        new_xi = damped.solve(chosen)[0]
        full = np.zeros(len(pairs))
        full[chosen] = new_xi
        moved = shooting.moved(segments, step.normals, full - xi, damping)
        law = shooting.law([pairs[j] for j in chosen], new_xi)
        cost = shooting.cost(law, moved, substeps)
        if cost < most:
            return (new_xi, moved, law, cost), damping
        damping = max(4 * damping, 1e-3)
    return None, damping


def _rivals(
    q: Quadratic, pairs: Sequence[Pair], chosen: Sequence[int], share: float
) -> list[tuple[dict[Pair, float], float]]:
    """Laws with one term replaced that have about the same likelihood."""
    own = q.left(chosen)
    found: dict[tuple[int, ...], float] = {}
    for other in swaps(q, chosen, range(len(pairs))):
        gain = share * (own - q.left(other)) / 2
        if gain > -MARGIN:
            found[tuple(sorted(other))] = gain
    return [
        ({pairs[j]: float(a) for j, a in zip(s, q.solve(s)[0])}, gain) for s, gain in found.items()
    ]


def _steps(
    shooting: Shooting, segments: list[Segment], pairs: list[Pair], xi: Field, accuracy: float
) -> tuple[int, int] | None:
    """Steps of the solution and of its derivative, from the first segment."""
    law = shooting.law(pairs, xi)
    fine = shooting.substeps(law, segments[:1], accuracy)
    coarse = shooting.substeps(law, segments[:1], max(accuracy, COARSE))
    while fine <= 512 and not np.isfinite(shooting.cost(law, segments, fine)):
        fine *= 2
        if fine > 512:
            return None
    while coarse < fine and not np.isfinite(shooting.cost(law, segments, coarse)):
        coarse *= 2
    return fine, coarse


def _damped(A: Field, damping: float) -> Field:
    return A + damping * np.diag(np.diag(A))


def residual_field(shooting: Shooting, law: Any, segment: Segment, substeps: int) -> Field | None:
    """`(F, T, X)` data minus solution."""
    from smnn.datasets.fields import march

    path = march(law, segment.start, segment.t, substeps)
    if len(path) < len(segment.t):
        return None
    return np.asarray(segment.u - shooting.values_on_data(path))


def independent_share(
    shooting: Shooting, law: Any, segments: list[Segment], substeps: int
) -> float:
    """Fraction of the residuals that are independent, from the correlation of neighbours."""
    found = []
    for segment in segments:
        r = residual_field(shooting, law, segment, substeps)
        if r is None:
            return 1.0
        found.append(correlations(r))
    rho = np.clip(np.mean(found, 0), 0.0, 0.98)
    return float(np.prod((1 - rho) / (1 + rho)))


def correlations(r: Field) -> Field:
    """Correlation of residuals `(F, T, ...)` with their neighbours along each direction."""
    out = []
    for axis in range(1, r.ndim):
        a = np.moveaxis(r, axis, 0)
        both = a[1:].conj() * a[:-1]
        top = np.nanmean(both.real)
        out.append(float(top / max(float(np.nanmean(np.abs(a) ** 2)), 1e-300)))
    return np.array(out)


def _deviation(
    shooting: Shooting, step: Any, k: int, cost: float, values: int, law: Any,
    segments: list[Segment], substeps: int,
) -> Field:  # fmt: skip
    """Standard deviations, larger where residuals are correlated or larger than the noise."""
    if step is None or k == 0:
        return np.zeros(k)
    A = step.quadratic.A[:k, :k]
    covariance = np.linalg.pinv(A, hermitian=True)
    r = independent_share(shooting, law, segments, substeps)
    inflation = max(cost / values, 1e-12) / max(r, 1e-6)
    return np.sqrt(np.maximum(np.diag(covariance), 0.0) * inflation)
