"""Recovery of the chaotic systems of dysts whose equations are polynomials.

Data, methods and scores are those of the experiment `discovery-bench`. Nothing was tuned on these
systems.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from smnn.datasets.dynamics import DYSTS, System
from smnn.experiments.discovery_bench import run as bench
from smnn.experiments.experiment import option

run, ticks = bench.run, bench.ticks


@dataclass(frozen=True)
class Config(bench.Config):
    """Systems, noise levels and methods to compare."""

    systems: tuple[str, ...] = option(
        tuple(s.name for s in DYSTS), "Systems, comma-separated.", shown="all"
    )
    noise: tuple[float, ...] = option(
        (0.0, 0.01, 0.1), "Noise levels: fractions of the standard deviation of each variable."
    )
    seeds: int = option(1, "Noise realizations of each system and positive level.", minimum=1)
    methods: tuple[str, ...] = option(
        ("smnn", "pysindy-weak"), "Methods to compare, comma-separated."
    )
    record: bool = False
    among: ClassVar[tuple[System, ...]] = DYSTS
    experiment: ClassVar[str] = "dysts"
    title: ClassVar[str] = "Polynomial systems of dysts"

    @classmethod
    def quick(cls, **changes: Any) -> Config:
        """Every tenth system, by smnn alone."""
        quick = {"systems": tuple(s.name for s in DYSTS[::10]), "methods": ("smnn",)}
        return cls(**{**quick, **changes})
