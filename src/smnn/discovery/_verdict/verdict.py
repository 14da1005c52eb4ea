"""The verdict: its levels, its rule, and the sentences that explain it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from smnn.discovery._arrays import Array
from smnn.discovery._fit.corrections import NUMERICAL_ERROR, missed
from smnn.discovery._fit.data import FitResult
from smnn.discovery._fit.model import target_names
from smnn.discovery._fit.refine import JointFit, Refiner
from smnn.discovery._verdict.evidence import (
    against_curves,
    deviation_from_trajectory,
    relative_errors,
    structure,
)
from smnn.discovery._verdict.rivals import Comparison, Rival, compare
from smnn.discovery.libraries import TIME
from smnn.report.numbers import percent, significant

ESTABLISHED, TENTATIVE = "established", "tentative"
NOT_DETERMINED, NOT_SUPPORTED, NOTHING = "not determined", "not supported", "nothing found"
LEVELS = (ESTABLISHED, TENTATIVE, NOT_DETERMINED, NOT_SUPPORTED, NOTHING)

# Thresholds, chosen on simulated data that are not used for the published figures.
SUPPORTED = 1.0  # Evidence against a plain curve, in nats, above which an equation is supported
FIRM, FIRM_SHARE = 5.0, 0.1
"""Evidence above which it is established: in nats, or per value if there are fewer than 50."""
REJECTED = -6.0  # Evidence below which the curve is the better description
EXACT, NUMERICAL = 1e-7, 4e-5
"""Errors of a trajectory, relative to the spread, that a good and a simple integrator explain."""
VISIBLE = 1e-3  # Error above which patterns refute an equation
STABLE = 0.8  # Smallest fraction of the resamples that selected every term
RARE = 0.05  # Inclusion frequency of a term below which an unsupported equation is not shown
SIGNIFICANT = 4.0  # Smallest ratio of a coefficient to its standard deviation
EQUAL = 1.0  # Evidence by which a rival may exceed an established equation, in nats
EXPLAINED = 0.3
"""The same per value, if errors may be numerical: other terms do not explain most of those."""
BEATEN = 10.0  # Evidence of a rival with other terms that refutes an equation
FEW = 30  # Number of values up to which the correlation of errors cannot be judged
CORRELATED = 0.4  # Correlation of successive prediction errors that shows a pattern
DRIFT = 8.0  # Mean squared z-score of the differences between coefficients of two halves
PER_TERM = 8  # Values per term below which they are few
JAGGED = 0.6  # Change between neighbours, relative to that of unrelated values, of sparse samples
DISTINCT = 5.0  # Distance of series, in standard deviations of the noise, that counts as different
REACH = 0.5  # Part of the range of a variable beyond the data in which rivals are compared
APART = 0.25  # Difference of two right-hand sides, relative to their size, that counts as diverging


@dataclass(frozen=True)
class EquationVerdict:
    """Whether the data support the equation of one variable.

    Attributes:
        level: `"established"`, `"tentative"`, `"not determined"`, `"not supported"` or
            `"nothing found"`.
        reason: Why, in one sentence.
        evidence: Score of the equation minus that of the best plain curve, in nats; `None` if it
            has no terms.
        terms: Number of terms.
        values: Number of measured values of the variable.
        chosen: Smallest inclusion frequency of its terms; `None` without resamples.
        rival: Evidence of the best equation with other terms relative to it, in nats.
        correlation: Correlation of successive prediction errors.
        drift: Mean squared z-score of the change of its coefficients between the two halves of the
            data.
        unexplained: Fraction of the change from row to row that it does not explain.
    """

    level: str
    reason: str
    evidence: float | None = None
    terms: int = 0
    values: int = 0
    chosen: float | None = None
    rival: float | None = None
    correlation: float | None = None
    drift: float | None = None
    unexplained: float | None = None

    @property
    def withheld(self) -> bool:
        """Whether the equation is not shown: resamples hardly ever select one of its terms."""
        return LEVELS.index(self.level) > 1 and self.chosen is not None and self.chosen < RARE


@dataclass(frozen=True)
class Verdict:
    """Whether the data support the equations that were fitted to them.

    Attributes:
        level: The lowest level of the equations that have terms: `"established"` (on the range of
            these data and within the library), `"tentative"`, `"not determined"` (by these data),
            `"not supported"` or `"nothing found"`.
        reason: Why, in one sentence.
        equations: The verdict of each equation, by variable.
    """

    level: str
    reason: str
    equations: dict[str, EquationVerdict]

    def __str__(self) -> str:
        return f"{self.level}: {self.reason}"

    @property
    def doubtful(self) -> bool:
        """Whether the level is below `"tentative"`."""
        return LEVELS.index(self.level) > LEVELS.index(TENTATIVE)

    def to_dict(self) -> dict[str, Any]:
        """The verdict as plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Verdict:
        """The verdict from the result of `to_dict`.

        Raises:
            ValueError: It is not one.
        """
        try:
            equations = {
                str(name): EquationVerdict(**_checked(entry, EquationVerdict))
                for name, entry in record["equations"].items()
            }
            return cls(_level(record["level"]), _text(record["reason"]), equations)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"the verdict is incomplete ({error}).") from None


def _checked(entry: Mapping[str, Any], kind: Any) -> dict[str, Any]:
    out = {field.name: entry[field.name] for field in fields(kind)}
    _level(out["level"])
    _text(out["reason"])
    numbers = [x for name, x in out.items() if name not in ("level", "reason") and x is not None]
    if not all(isinstance(x, int | float) for x in numbers):
        raise TypeError("entries that are not numbers")
    return out


def _level(text: Any) -> str:
    if text not in LEVELS:
        raise ValueError(f"level {text!r}; expected one of {', '.join(LEVELS)}.")
    return str(text)


def _text(text: Any) -> str:
    if not isinstance(text, str):
        raise TypeError("a reason that is not a text")
    return text


@dataclass(frozen=True)
class RivalEquation:
    """An equation that explains the data about as well as the selected one.

    Attributes:
        variable: The variable that it is for.
        equation: The equation as text. Terms outside the library have fixed constants of the size
            of the data: they stand for their kind.
        evidence: Its evidence relative to the selected equation, in nats; positive if it is better.
        in_library: Whether the library contains its terms.
        diverges: Where its right-hand side differs visibly from that of the selected equation.
    """

    variable: str
    equation: str
    evidence: float
    in_library: bool
    diverges: str

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> RivalEquation:
        """A rival from its attributes as plain data.

        Raises:
            ValueError: They are not those of a rival.
        """
        try:
            texts = (_text(record[name]) for name in ("variable", "equation", "diverges"))
            variable, equation, diverges = texts
            evidence = float(record["evidence"])
            return cls(variable, equation, evidence, bool(record["in_library"]), diverges)
        except (KeyError, TypeError) as error:
            raise ValueError(f"a rival is incomplete ({error}).") from None


def judge(result: FitResult) -> tuple[Verdict, list[RivalEquation]]:
    """The verdict on a fit, and rival equations of similar evidence."""
    assert result.joint is not None
    refiner, fit = result.joint
    V = refiner.V
    with np.errstate(all="ignore"):
        try:
            evidence, correlation = against_curves(refiner, fit), structure(refiner, fit)
            few = refiner.seen[:, :V].sum() <= 2 * (fit.Xi != 0).sum()
            comparisons = None if few else compare(refiner, fit)  # no rival can be told apart
        except np.linalg.LinAlgError:  # the model is not finite near the data
            evidence, correlation, comparisons = np.full(V, np.nan), np.full(V, np.nan), None
        shares = missed(refiner, fit)
        errors, defects = relative_errors(refiner, fit), deviation_from_trajectory(refiner, fit)
    against = comparisons or [Comparison(np.nan, np.nan, [], np.nan, [])] * V
    equations, rivals = {}, []
    counts = refiner.seen[:, :V].sum(0)
    counts[refiner.nodes.hidden] = counts.sum()
    for v, name in enumerate(refiner.nodes.names):
        facts = _Facts(
            terms=int(np.count_nonzero(result.Xi[v])),
            values=int(counts[v]),
            evidence=float(evidence[v]),
            chosen=_least(result.inclusion, result.Xi, v),
            ratio=_least_ratio(result, fit, v, int(counts[v])),
            against=against[v],
            correlation=float(correlation[v]),
            error=float(errors[v]),
            deviation=float(max(errors[v], defects[v])),
            unexplained=float(shares[v]),
            jagged=_jaggedness(refiner, v),
            curve=_is_curve(refiner, fit, v),
        )
        equations[name] = facts.verdict()
        rivals += [_described(refiner, fit, v, rival) for rival in against[v].rivals]
    targets = target_names(list(equations), refiner.order, refiner.nodes.discrete)
    return _overall(equations, targets), rivals


def _least(inclusion: Array | None, Xi: Array, v: int) -> float | None:
    if inclusion is None:
        return None
    return float(inclusion[v][Xi[v] != 0].min(initial=1.0))


def _least_ratio(result: FitResult, fit: JointFit, v: int, values: int) -> float:
    """Smallest ratio of a coefficient to its standard deviation.

    Few values make too few segments for the standard deviations of the resamples.
    """
    few = values <= FEW and fit.deviation is not None
    found, all_deviations = (fit.Xi, fit.deviation) if few else (result.Xi, result.deviation)
    assert all_deviations is not None
    return least_ratio(found[v], all_deviations[v])


def least_ratio(xi: Array, deviation: Array) -> float:
    """Smallest ratio of a coefficient (P,) to its standard deviation."""
    free = (xi != 0) & (deviation > 0)
    return float((np.abs(xi[free]) / deviation[free]).min(initial=np.inf))


def _jaggedness(refiner: Refiner, v: int) -> float:
    """Change between neighbouring values, relative to that of unrelated values."""
    if refiner.nodes.hidden[v]:
        return 0.0
    y, follows = refiner.nodes.Y[:, v], refiner.follows[:-1]
    steps = np.diff(y)[follows]
    steps = steps[np.isfinite(steps)]
    if not len(steps):
        return 1.0
    return float(np.sqrt((steps**2).mean() / 2.0) / refiner.nodes.scale[v])


def _is_curve(refiner: Refiner, fit: JointFit, v: int) -> bool:
    """Whether an equation has the time as its only variable, and the data cannot confirm that.

    Any curve solves `x' = f(t)` for some `f`. Only series that differ at the same times show that
    the rate does not depend on the state.
    """
    names = {s.name for p in np.flatnonzero(fit.Xi[v])
             for s in refiner.terms.terms[p].symbolic.free_symbols}  # fmt: skip
    if {name for name in names if not name.startswith(("?", "["))} != {TIME}:
        return False
    if TIME in refiner.nodes.names:
        return False
    nodes = refiner.nodes
    apart = max(DISTINCT * refiner.noise_of(fit)[v], VISIBLE * nodes.scale[v])
    for (a, b), (c, d) in itertools.combinations(nodes.bounds, 2):
        both = (nodes.t[c:d] >= nodes.t[a]) & (nodes.t[c:d] <= nodes.t[b - 1])
        other = np.interp(nodes.t[c:d], nodes.t[a:b], fit.Z[a:b, v])
        if both.sum() > 1 and np.median(np.abs(other - fit.Z[c:d, v])[both]) > apart:
            return False
    return True


def _overall(equations: dict[str, EquationVerdict], targets: list[str]) -> Verdict:
    found = {n: e for n, e in equations.items() if e.level != NOTHING}
    if not found:
        few = min((e.values for e in equations.values()), default=0)
        note = f", and {few} values are few" if few < PER_TERM else ""
        return Verdict(NOTHING, f"no candidate term explains how the data change{note}.", equations)
    name, worst = max(
        found.items(), key=lambda pair: (LEVELS.index(pair[1].level), -(pair[1].evidence or 0.0))
    )
    if worst.level == ESTABLISHED:
        reason = "the data support the equations, within their range and the library."
        return Verdict(ESTABLISHED, reason, equations)
    target = targets[list(equations).index(name)]
    return Verdict(worst.level, f"{target}: {worst.reason}", equations)


@dataclass(frozen=True)
class _Facts:
    """What is known about one equation."""

    terms: int
    values: int
    evidence: float
    chosen: float | None
    ratio: float
    against: Comparison
    correlation: float
    error: float
    deviation: float
    unexplained: float
    jagged: float
    curve: bool

    def verdict(self) -> EquationVerdict:
        """Apply the rule."""
        if self.terms == 0:
            few = f", and {self.values} values are few" if self.values < PER_TERM else ""
            reason = f"no candidate term explains how it changes{few}."
            return EquationVerdict(NOTHING, reason, values=self.values)
        level = self._level()
        rival = max(self.against.inside, self.against.outside)
        return EquationVerdict(
            level, self._reason(level), _finite(self.evidence), self.terms, self.values,
            self.chosen, _finite(rival), _finite(self.correlation), _finite(self.against.drift),
            _finite(self.unexplained),
        )  # fmt: skip

    def _level(self) -> str:
        beaten = self.against.outside > BEATEN and self.deviation > VISIBLE
        if self.evidence <= REJECTED or beaten:
            return NOT_SUPPORTED
        never = self.chosen is not None and self.chosen < RARE
        if never or not self.evidence > SUPPORTED:
            return NOT_DETERMINED
        firm = self._firm and self._stable and self._unrivalled and not self._patterned
        return ESTABLISHED if firm and not self.curve else TENTATIVE

    @property
    def _firm(self) -> bool:
        return self.evidence > max(min(FIRM, FIRM_SHARE * self.values), SUPPORTED)

    @property
    def _stable(self) -> bool:
        return (self.chosen is None or self.chosen >= STABLE) and self.ratio >= SIGNIFICANT

    @property
    def _unrivalled(self) -> bool:
        if self.deviation < EXACT:
            return True
        limit = max(EXPLAINED * self.values, EQUAL) if self._numerical else EQUAL
        return self._lead <= limit

    @property
    def _lead(self) -> float:
        """Evidence of the best rival, for the effective number of values if these are few.

        The correlation of the errors of many values is a pattern that rules an equation out.
        """
        best = max(self.against.inside, self.against.outside)
        if self.values > FEW or not self.correlation > 0.0:
            return best
        return best * (1.0 - self.correlation) / (1.0 + self.correlation)

    @property
    def _numerical(self) -> bool:
        return self.deviation < NUMERICAL

    @property
    def _patterned(self) -> bool:
        """Whether errors that matter are correlated, or coefficients change with time."""
        visible = self.error > VISIBLE and self.values > FEW
        drifts = self.against.drift > DRIFT and not self._numerical
        return (visible and self.correlation > CORRELATED) or drifts

    def _reason(self, level: str) -> str:
        if level == ESTABLISHED:
            gain = significant(self.evidence, 2)
            return f"it describes the data better than a plain curve (by {gain} nats) and rivals."
        if np.isnan(self.evidence):
            return "the evidence could not be computed: the model is not finite near the data."
        causes = []
        if self.curve and level == TENTATIVE:
            causes.append(
                "it depends on time alone, so it may only describe this curve; series with other "
                "values at the same times could confirm it"
            )
        if self.values < PER_TERM * self.terms:
            causes.append(f"{self.values} values are too few for {self.terms} terms")
        elif level != TENTATIVE and self.jagged > JAGGED:
            causes.append("neighbouring rows differ almost as much as distant ones; the sampling "
                          "is too sparse or the noise too large")  # fmt: skip
        if not self._firm:
            better = "better" if self.evidence <= REJECTED else "about as well"
            causes.append(f"a plain curve describes the data {better}{self._share}")
        foreign = self.against.outside > max(EQUAL, self.against.inside)
        if (foreign and not self._unrivalled) or self._patterned:
            causes.append(self._misfit(foreign))
        if not self._stable:
            causes.append(self._unstable())
        if np.isnan(self.against.inside):
            causes.append("other terms could not be tried: the model is not finite near the data")
        elif not foreign and not self._unrivalled:
            causes.append("other terms of the library explain the data better")
        return "; ".join(causes[:2]) + "."

    @property
    def _share(self) -> str:
        if self.unexplained <= NUMERICAL_ERROR:
            return ""
        share = "most" if self.unexplained > 0.6 else f"{100 * self.unexplained:.2g} %"
        return f", and {share} of the change from row to row is not explained"

    def _misfit(self, foreign: bool) -> str:
        what = "a term, a variable or a higher order is missing"
        if foreign and not self._unrivalled:
            terms = ", ".join(self.against.missing[:3])
            return f"{what}: terms outside the library such as {terms} explain the data better"
        if self.correlation > CORRELATED:
            return f"its errors are correlated in time: {what}, or the errors of the data are"
        return f"its coefficients differ between the halves of the data: {what}"

    def _unstable(self) -> str:
        if self.chosen is not None and self.chosen < STABLE:
            share = percent(self.chosen)
            return f"the data do not determine its terms (one was selected in {share} of resamples)"
        return "the data do not determine its coefficients"


def _finite(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None


def _described(refiner: Refiner, fit: JointFit, v: int, rival: Rival) -> RivalEquation:
    """A rival with its equation as text, and where it diverges."""
    parts: list[str] = []
    for a, name in zip(rival.coefficients, rival.terms):
        sign = (" - " if a < 0 else " + ") if parts else ("-" if a < 0 else "")
        parts.append(f"{sign}{significant(abs(a))}" + ("" if name == "1" else f" {name}"))
    variable = refiner.nodes.names[v]
    (target,) = target_names([variable], refiner.order, refiner.nodes.discrete)
    text = f"{target} = {''.join(parts) or '0'}"
    where = _divergence(refiner, fit, v, rival)
    return RivalEquation(variable, text, rival.evidence, not rival.outside, where)


def _divergence(refiner: Refiner, fit: JointFit, v: int, rival: Rival) -> str:
    """Where the right-hand sides differ: at the data, or beyond the range of one variable."""
    present = fit.Xi[v] != 0

    def selected(X: Array) -> Array:
        return np.asarray(refiner.terms.evaluate(X)[:, present] @ fit.Xi[v][present])

    def difference(X: Array) -> Array:
        return np.abs(selected(X) - rival.rate(X)) / size

    X = np.concatenate([fit.Z, refiner.nodes.U], -1)
    size = float(np.sqrt((selected(X) ** 2).mean()))
    at = difference(X)
    if (at > APART).any():
        where = X[int(np.argmax(at))]
        texts = [f"{n} = {significant(x, 3)}" for n, x in zip(refiner.terms.variables, where)]
        return f"within the data, most near {', '.join(texts)}"
    found = []
    for j, name in enumerate(refiner.terms.variables):
        low, high = X[:, j].min(), X[:, j].max()
        for end, sign in ((high, 1.0), (low, -1.0)):
            nearest = X[int(np.argmin(np.abs(X[:, j] - end)))]
            line = np.repeat(nearest[None], 50, 0)
            steps = np.linspace(0.0, REACH, 50)
            line[:, j] = end + sign * steps * (high - low)
            apart = np.flatnonzero(~(difference(line) <= APART))
            if len(apart):
                side = ">" if sign > 0 else "<"
                value = significant(float(line[apart[0], j]), 3)
                found.append((steps[apart[0]], f"{name} {side} {value}"))
    if not found:
        return "nowhere near the data"
    return f"beyond the data, at {min(found)[1]}"
