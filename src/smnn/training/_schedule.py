"""The learning rate at each step, and what watching a scalar leads to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from smnn.training._config import TrainConfig

RISE, START, END = 0.3, 1 / 25, 1 / 25e4
"""One-cycle: the part of the steps that rises; the rate at the start and at the end."""


def rate_factor(config: TrainConfig, step: int, total: int) -> float:
    """Learning rate of the step that follows `step` finished ones, as a fraction of `lr`.

    A function of the step alone, so that resuming needs no state of it. What a plateau does comes
    on top.
    """
    if config.schedule == "one-cycle":
        return _one_cycle(step, total)
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    if config.schedule != "cosine":
        return 1.0
    done = (step - config.warmup_steps) / max(1, total - config.warmup_steps)
    return config.final_lr + (1 - config.final_lr) * (1 + math.cos(math.pi * min(done, 1.0))) / 2


def _one_cycle(step: int, total: int) -> float:
    """Two half cosines, up and down (Smith and Topin 2019), as in `OneCycleLR`."""
    peak = RISE * total - 1
    if step <= peak:
        return _half_cosine(START, 1.0, step / peak)
    return _half_cosine(1.0, END, (step - peak) / (total - 1 - peak))


def _half_cosine(start: float, end: float, part: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * part)) / 2


@dataclass
class Watch:
    """Follows one scalar from evaluation to evaluation."""

    min_delta: float = 0.0
    best: float | None = None
    best_step: int = 0
    stale: int = 0
    """Evaluations since it last improved."""

    def improved(self, value: float, step: int) -> bool:
        """Take the next value; whether it is lower than all before by more than `min_delta`."""
        better = self.best is None or value < self.best - self.min_delta
        if better:
            self.best, self.best_step, self.stale = value, step, 0
        else:
            self.stale += 1
        return better

    def state(self) -> dict[str, Any]:
        """JSON-able."""
        return {"best": self.best, "best_step": self.best_step, "stale": self.stale}

    def restore(self, state: dict[str, Any]) -> None:
        """The other way round."""
        self.best = None if state["best"] is None else float(state["best"])
        self.best_step, self.stale = int(state["best_step"]), int(state["stale"])


@dataclass
class Plateau:
    """Lowers the learning rate when a scalar stalls."""

    patience: int
    factor: float
    watch: Watch
    scale: float = 1.0

    def take(self, value: float, step: int) -> None:
        """Take the next value of the scalar."""
        if not self.watch.improved(value, step) and self.watch.stale > self.patience:
            self.scale *= self.factor
            self.watch.stale = 0

    def state(self) -> dict[str, Any]:
        """JSON-able."""
        return {"scale": self.scale, **self.watch.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """The other way round."""
        self.scale = float(state["scale"])
        self.watch.restore(state)
