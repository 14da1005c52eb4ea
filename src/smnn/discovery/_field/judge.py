"""The verdict on a law of evolution."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from smnn.discovery._field.refine import MARGIN, Found, correlations
from smnn.discovery._field.weak import Pair
from smnn.discovery._verdict.verdict import EquationVerdict, RivalEquation, Verdict
from smnn.report.numbers import percent, significant

Field = np.ndarray[Any, np.dtype[Any]]
WEAKEST = 0.03
"""Fraction of the power that must be signal; the filter leaves about 1 % of white noise."""
FLOOR = 1e-4
"""Errors below this fraction of the spread are numerical."""
VISIBLE = 2e-3
"""Errors above this fraction of the spread show patterns that refute a law."""
EXPLAINED, PARTLY, BARELY = 0.8, 0.4, 0.1
"""Fraction of the rates of change that a law explains where it was not fitted: established,
tentative, not determined."""
STABLE, SIGNIFICANT, CORRELATED = 0.8, 4.0, 0.4


def judge(found: Found, names: list[str]) -> Verdict:
    """The verdict on every equation, and on the law."""
    equations = {name: _one(found, f) for f, name in enumerate(names)}
    return _overall(equations)


def _overall(equations: dict[str, EquationVerdict]) -> Verdict:
    order = ["established", "tentative", "not determined", "not supported"]
    levels = [e.level for e in equations.values() if e.level != "nothing found"]
    if not levels:
        first = next(iter(equations.values()))
        return Verdict("nothing found", first.reason, equations)
    worst = max(levels, key=order.index)
    name = next(n for n, e in equations.items() if e.level == worst)
    reason = equations[name].reason if len(equations) == 1 else f"{name}: {equations[name].reason}"
    if worst == "established":
        reason = "the law describes the data within their range and the library."
    return Verdict(worst, reason, equations)


def _one(found: Found, f: int) -> EquationVerdict:
    values = int(sum(np.isfinite(u[f]).sum() for u in found.denoised))
    if found.signal[f] < WEAKEST:
        reason = "the field has no structure that stands out from noise."
        return EquationVerdict("nothing found", reason, values=values)
    if found.likely is not None:
        return _by_likelihood(found, f, values)
    return _by_weak_form(found, f, values)


def _by_likelihood(found: Found, f: int, values: int) -> EquationVerdict:
    likely = found.likely
    assert likely is not None
    assert found.residuals is not None
    own = [j for j, (q, _) in enumerate(likely.pairs) if q == f]
    if not own:
        return EquationVerdict(
            "nothing found", "no candidate explains how it changes.", values=values
        )
    spread = np.sqrt(np.mean([np.var(u[f]) for u in found.denoised]))
    error = np.sqrt(np.mean([np.nanmean(np.abs(r[f]) ** 2) for r in found.residuals]))
    rho = np.mean([correlations(r[f : f + 1]) for r in found.residuals], 0)
    pattern = float(np.max(rho))
    evidence = _against_filter(found, f, float(error), float(spread))
    ratio = min(abs(likely.xi[j]) / max(likely.deviation[j], 1e-300) for j in own)
    rival = max(
        (gain for law, gain in likely.rivals if _differs(law, likely.pairs, f)), default=None
    )
    structured = pattern > CORRELATED and error > VISIBLE * spread
    unexplained = float(min(error**2 / spread**2, 1.0))
    if evidence < -6:
        level, reason = "not supported", "a smooth surface describes the field better."
    elif evidence < 1:
        level, reason = "not determined", "a smooth surface describes the field about as well."
    elif structured:
        level = "tentative"
        reason = (f"its errors are correlated ({significant(pattern, 2)} between neighbours): a "
                  "term is missing, or the errors of the data are correlated.")  # fmt: skip
    elif ratio < SIGNIFICANT:
        level, reason = "tentative", "the data do not determine all coefficients."
    elif ratio**2 < likely.price + 2 * MARGIN:
        level, reason = "tentative", "a law with one term less describes the data about as well."
    elif rival is not None:
        level, reason = "tentative", "other terms describe the data as well."
    elif len(likely.segments) > len(found.denoised):
        level = "established"
        reason = (
            f"its solutions follow the data, restarted in {len(likely.segments)} parts of the "
            f"time, better than a smooth surface (by {significant(evidence, 2)} nats)."
        )
    else:
        level = "established"
        reason = ("its solution follows the data over the whole time better than a smooth surface "
                  f"(by {significant(evidence, 2)} nats).")  # fmt: skip
    return EquationVerdict(
        level,
        reason,
        evidence=evidence,
        terms=len(own),
        values=values,
        correlation=pattern,
        unexplained=unexplained,
        rival=rival,
    )


def _differs(law: Iterable[Pair], pairs: Iterable[Pair], f: int) -> bool:
    """Whether two laws have different terms in one equation."""
    return {p for p in law if p[0] == f} != {p for p in pairs if p[0] == f}


def rivals_of(
    found: Found, names: Sequence[str], equation: Callable[[dict[int, float], int], str]
) -> list[RivalEquation]:
    """Equations with other terms that describe the data as well, with their text."""
    likely = found.likely
    if likely is None:
        return []
    return [
        RivalEquation(name, equation({p: a for (q, p), a in law.items() if q == f}, f), gain,
                      True, "where it was not measured")
        for law, gain in likely.rivals for f, name in enumerate(names)
        if _differs(law, likely.pairs, f)
    ]  # fmt: skip


def _against_filter(found: Found, f: int, error: float, spread: float) -> float:
    """Evidence of the law against the filtered field with its many coefficients, in nats."""
    assert found.likely is not None
    assert found.shooting is not None
    assert found.residuals is not None
    rest = [r[f] for r in found.residuals]
    known = sum(int(np.isfinite(r).sum()) for r in rest)
    floor = (FLOOR * spread) ** 2
    noise = float(found.noise[f]) ** 2
    free = 2 * found.shooting.free * len(found.likely.segments) + len(found.likely.pairs)
    smooth = noise * max(1 - float(found.kept[f]) / max(known, 1), 0.05)
    gain = -known / 2 * np.log((error**2 + floor) / (smooth + floor))
    gain += (float(found.kept[f]) - free) / 2 * np.log(max(known, 2))
    return float(gain)


def _by_weak_form(found: Found, f: int, values: int) -> EquationVerdict:
    weak = found.weak
    own = [pair for pair in weak.xi if pair[0] == f]
    explained = float(weak.explained[f])
    if not own:
        return EquationVerdict(
            "nothing found", "no candidate explains how it changes.", values=values
        )
    chosen = min(weak.inclusion[pair] for pair in own)
    ratio = min(abs(weak.xi[p]) / max(weak.deviation[p], 1e-300) for p in own)
    share = percent(max(explained, 0.0))
    text = f"it explains {share} of the rate of change where it was not fitted"
    if explained < BARELY:
        level = "not supported"
    elif explained < PARTLY or chosen < 0.3:
        level = "not determined"
    elif explained < EXPLAINED or chosen < STABLE or ratio < SIGNIFICANT:
        level = "tentative"
    else:
        level = "established"
    if chosen < STABLE:
        text += f"; one of its terms is selected in {percent(chosen)} of the resamples"
    elif ratio < SIGNIFICANT:
        text += "; the data do not determine all coefficients"
    failed = found.diagnostics.get("why_not_likelihood", "")
    if level == "established" and "does not follow" in failed:
        level, text = "tentative", text + "; its solution does not follow the data"
    return EquationVerdict(
        level,
        text + ".",
        terms=len(own),
        values=values,
        chosen=chosen,
        unexplained=float(np.clip(1 - explained, 0, 1)),
    )
