"""Description of a fitted equation as text and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from smnn.forecasting._model.modes import eigenmodes
from smnn.forecasting._model.seasons import YEAR, Season
from smnn.forecasting._model.spec import Spec
from smnn.forecasting._model.system import System
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
    name: str, spec: Spec, system: System, centre: float, states: np.ndarray, clock: Clock,
    seasons: Sequence[Season], share: float, matrix: np.ndarray | None,
) -> Equation:  # fmt: skip
    """Describe an equation with final terms `states (V,)` and weight `share` in the forecast.

    `matrix` is the one-step propagator of the shared modes, if there are any.
    """
    unit = clock.unit()
    symbol = "log y" if spec.log else "y"
    lines = [f"{symbol} = trend + seasons + anomaly{' + cycle' if spec.cycle else ''} + noise"]
    numbers: dict[str, Any] = {"log": spec.log, "unit": unit, "share": share}
    lines.append(_trend(spec, system, centre, states, clock, numbers))
    if np.isfinite(spec.half_life):
        numbers["half_life"] = float(spec.half_life)
        lines.append(f"half-life of the observations: {spec.half_life:.3g} {unit}s")
    numbers["seasons"] = []
    for season in seasons:
        line, found = _season(season, spec, system, states, unit)
        lines.append(line)
        numbers["seasons"].append(found)
    lines.append(_anomaly(spec, system, states, unit, numbers))
    if spec.cycle:
        lines.append(_cycle(spec, system, states, unit, numbers))
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


def _trend(
    spec: Spec, system: System, centre: float, states: np.ndarray, clock: Clock,
    numbers: dict[str, Any],
) -> str:  # fmt: skip
    level = centre + float(states[system.index("level")][0])
    numbers["level"] = level
    slope = system.index("slope")
    if not slope:
        return f"trend: constant at {level:.5g} (m' = 0)"
    rise = float(states[slope[0]] * (system.h[-1, slope[0]] - system.h[0, slope[0]]))
    per_step = rise / float(clock.steps[-1] - clock.steps[0])
    numbers["slope"] = per_step
    unit = clock.unit()
    text = f"trend: {level:.5g} now, {per_step:+.3g} per {unit}"
    if clock.dated and unit != "year":
        text += f" ({per_step * YEAR / clock.days:+.3g} per year)"
    if spec.trend == "damped":
        return text + "; the slope decays over half of the horizon (m'' + m'/τ = 0)"
    return text + " (m'' = 0)"


def _cycle(
    spec: Spec, system: System, states: np.ndarray, unit: str, numbers: dict[str, Any]
) -> str:  # fmt: skip
    size = float(np.hypot(*states[system.index("cycle")]) * np.sqrt(2))
    time = damping_time(spec.cycle_decay)
    numbers["cycle"] = {"period": spec.cycle, "damping_time": _finite(time), "amplitude": size}
    damping = "undamped" if np.isinf(time) else f"damping time {time:.3g} {unit}s"
    omega, k = 2 * np.pi / spec.cycle, 1 / time
    return (
        f"cycle: period {spec.cycle:.4g} {unit}s, {damping}, amplitude {size:.3g} now "
        f"(x'' + {2 * k:.3g} x' + {omega**2 + k**2:.3g} x = noise)"
    )


def _anomaly(
    spec: Spec, system: System, states: np.ndarray, unit: str, numbers: dict[str, Any]
) -> str:  # fmt: skip
    if spec.ratio == 0:
        numbers["damping_time"] = 0.0
        return "anomaly: none; the residual is white noise"
    now = float(states[system.index("anomaly")[0]])
    time = damping_time(spec.decay)
    numbers["damping_time"], numbers["anomaly"] = _finite(time), now
    if np.isinf(time):
        return f"anomaly: {now:+.3g} now, a random walk (x' = noise)"
    return (
        f"anomaly: {now:+.3g} now, damping time {time:.3g} {unit}s (x' + {1 / time:.3g} x = noise)"
    )


def _season(
    season: Season, spec: Spec, system: System, states: np.ndarray, unit: str
) -> tuple[str, dict[str, Any]]:
    """Describe one season by the amplitudes of its harmonics."""
    places = [j for j in system.index("season") if system.terms[j].label == season.name]
    amplitudes = []
    start = 0
    for j in range(1, season.harmonics + 1):
        width = 1 if abs(2 * j - season.length) <= 1e-6 else 2
        part = states[places[start : start + width]] * np.sqrt(2)
        amplitudes.append(float(np.linalg.norm(part)))
        start += width
    strongest = int(np.argmax(amplitudes)) + 1
    text = (
        f"season '{season.name}': {season.length:.5g} {unit}s, {season.harmonics} harmonics, "
        f"the strongest with period {season.length / strongest:.4g} and amplitude "
        f"{max(amplitudes):.3g} (x'' + {(2 * np.pi * strongest / season.length) ** 2:.3g} x = "
        f"{'noise' if spec.evolve else '0'})"
    )
    return text, {
        "name": season.name, "period": season.length, "amplitudes": amplitudes,
        "evolves": spec.evolve > 0,
    }  # fmt: skip
