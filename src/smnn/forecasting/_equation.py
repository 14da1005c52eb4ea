"""Description of a fitted equation as text and numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from smnn.forecasting._model.modes import eigenmodes
from smnn.forecasting._model.panel import Panel
from smnn.forecasting._model.regression import Fit
from smnn.forecasting._model.seasons import YEAR, Season
from smnn.forecasting._model.spec import Spec
from smnn.forecasting._time import Clock


@dataclass(frozen=True)
class Equation:
    """Leading equation of one series."""

    name: str
    lines: tuple[str, ...]
    """One line per term."""
    numbers: dict[str, Any] = field(default_factory=dict)
    """Parameters by name: `slope`, `damping_time`, `seasons`, ... in steps of the series."""

    def __str__(self) -> str:
        return "\n".join([f"{self.name}:", *(f"  {line}" for line in self.lines)])

    def record(self) -> dict[str, Any]:
        """Return the equation as a dictionary that can be written as JSON."""
        return {"words": list(self.lines), "numbers": self.numbers}


def damping_time(decay: float) -> float:
    """Number of steps in which a term decays to 1/e; infinite without damping."""
    return float("inf") if decay >= 1 else float(-1 / np.log(decay))


def describe(
    name: str, panel: Panel, fit: Fit, share: float, matrix: np.ndarray | None
) -> Equation:
    """Describe the equation of one series, fitted at the end, with weight `share` in the forecast.

    `matrix` is the one-step propagator of the shared modes, if there are any.
    """
    spec, unit = fit.spec, panel.clock.unit()
    terms = [panel.terms[j] for j in fit.used]
    values = fit.coefficients[0, 0]
    lines = [f"{'log y' if spec.log else 'y'} = trend + seasons + anomaly + noise"]
    numbers: dict[str, Any] = {"log": spec.log, "unit": unit, "share": share}
    slope = float(values[1]) / panel.unit if spec.trend != "none" else 0.0
    numbers["level"] = float(fit.centre[0, 0] + values[0])
    lines.append(_trend(spec, slope, panel.clock, numbers))
    numbers["seasons"] = []
    for season in panel.seasons if spec.seasonal else ():
        own = np.array([x for x, term in zip(values, terms) if term.label == season.name])
        line, found = _season(season, own, unit)
        lines.append(line)
        numbers["seasons"].append(found)
    lines.append(_anomaly(spec, float(fit.anomaly[0, 0]), unit, numbers))
    if matrix is not None:
        found_modes = eigenmodes(matrix)
        numbers["modes"] = [{"period": _finite(p), "damping_time": d} for p, d in found_modes]
        shown = "; ".join(
            f"{d:.3g} {unit}s" + ("" if np.isinf(p) else f" (period {p:.3g})")
            for p, d in found_modes[:3]
        )
        lines.append(f"shared modes: x' = A x with {len(matrix)} modes; damping times {shown}")
    return Equation(name, tuple(lines), numbers)


def _finite(x: float) -> float | None:
    """Replace infinity by `None`, because JSON has no infinity."""
    return float(x) if np.isfinite(x) else None


def _trend(spec: Spec, slope: float, clock: Clock, numbers: dict[str, Any]) -> str:
    level, unit = numbers["level"], clock.unit()
    if spec.trend == "none":
        return f"trend: constant at {level:.5g} (m' = 0)"
    numbers["slope"] = slope
    text = f"trend: {level:.5g} now, {slope:+.3g} per {unit}"
    if clock.dated and unit != "year":
        text += f" ({slope * YEAR / clock.days:+.3g} per year)"
    if spec.trend == "damped":
        return text + "; the slope decays over half of the horizon (m'' + m'/τ = 0)"
    return text + " (m'' = 0)"


def _anomaly(spec: Spec, now: float, unit: str, numbers: dict[str, Any]) -> str:
    if spec.ratio == 0:
        numbers["damping_time"] = 0.0
        return "anomaly: none; the residual is white noise"
    time = damping_time(spec.decay)
    numbers["damping_time"], numbers["anomaly"] = _finite(time), now
    if np.isinf(time):
        return f"anomaly: {now:+.3g} now, a random walk (x' = noise)"
    return (
        f"anomaly: {now:+.3g} now, damping time {time:.3g} {unit}s (x' + {1 / time:.3g} x = noise)"
    )


def _season(season: Season, values: np.ndarray, unit: str) -> tuple[str, dict[str, Any]]:
    """Describe one season by the amplitudes of its harmonics."""
    pairs = np.pad(values, (0, -len(values) % 2)).reshape(-1, 2)  # one may have no sine
    amplitudes = [float(x) for x in np.sqrt(2) * np.linalg.norm(pairs, axis=1)]
    strongest = int(np.argmax(amplitudes)) + 1
    text = (
        f"season '{season.name}': {season.length:.5g} {unit}s, {season.harmonics} harmonics, "
        f"the strongest with period {season.length / strongest:.4g} and amplitude "
        f"{max(amplitudes):.3g} (x'' + {(2 * np.pi * strongest / season.length) ** 2:.3g} x = 0)"
    )
    return text, {"name": season.name, "period": season.length, "amplitudes": amplitudes}
