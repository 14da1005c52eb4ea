"""Recovery of three systems over noise and length of the data.

Systems, initial states, steps and noise levels are those for which ODR-BINDy was published (Fung,
Fasel and Juniper 2025). Their noise is a fraction of the standard deviation of all variables
together, here of that of each variable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from smnn.datasets.dynamics import NOISE_MAPS, System
from smnn.experiments.discovery_bench import run as bench
from smnn.experiments.experiment import option

run, ticks = bench.run, bench.ticks


@dataclass(frozen=True)
class Config(bench.Config):
    """Systems, noise levels and lengths."""

    systems: tuple[str, ...] = option(
        tuple(s.name for s in NOISE_MAPS), "Systems, comma-separated.", shown="all"
    )
    noise: tuple[float, ...] = option(
        (0.025, 0.1, 0.2, 0.3, 0.4),
        "Noise levels: fractions of the standard deviation of each variable.",
    )
    lengths: tuple[float, ...] = option(
        (0.4, 0.6, 0.8, 1.0), "Lengths, as fractions of 10, 12 and 30 time units."
    )
    seeds: int = option(3, "Noise realizations.", minimum=1)
    methods: tuple[str, ...] = option(("smnn",), "Methods to compare, comma-separated.")
    samples: int | None = None
    """Unused; `lengths` takes its place."""
    record: bool = False
    among: ClassVar[tuple[System, ...]] = NOISE_MAPS
    experiment: ClassVar[str] = "noise-maps"
    title: ClassVar[str] = "Noise and length of the data"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(0.1 <= x <= 1 for x in self.lengths):
            raise ValueError(f"lengths: got {self.lengths}; expected fractions from 0.1 to 1.")

    @classmethod
    def quick(cls, **changes: Any) -> Config:
        """The full length and one realization."""
        return cls(**{"lengths": (1.0,), "seeds": 1, **changes})

    def samples_of(self, system: str) -> list[int]:
        """Numbers of samples of a system."""
        return [round(x * self.find(system).n) for x in self.lengths]

    def cases(self) -> list[bench.Key]:
        """All cases, in the order in which they are computed."""
        return [
            (s, x, k, m, n) for k in range(self.seeds) for s in self.systems
            for n in self.samples_of(s) for x in self.noise for m in self.methods
            if x or k == 0
        ]  # fmt: skip
