"""The sea surface temperature experiment: four years ahead, two protocols, simple references.

The honest protocol knows the history only. The paper's is also given the first ten steps of the
target, and scores them. Both are reported, for the networks of the paper, beside forecasts that
need no network.
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch

from smnn._util.machine import describe_machine
from smnn._util.optional import MissingPackageError
from smnn.datasets._sst_tools import Neighbours, Standard, neighbours, standard
from smnn.datasets.sst import Grid, monthly
from smnn.experiments.sst import parameters
from smnn.experiments.sst.identifier import Window
from smnn.experiments.sst.references import (
    CLIMATOLOGY,
    COUPLED,
    DAMPED,
    FORECASTER,
    REFERENCES,
    by_forecaster,
    coupled,
    references,
)
from smnn.experiments.sst.scores import Judge
from smnn.experiments.sst.train import (
    FULL,
    GVAE,
    IDENTIFIER,
    INVARIANT,
    SMALL,
    Pairs,
    SSTTask,
    predict,
    train,
)

HISTORY, PEEK = "history only", "first steps given"
"""The two protocols."""


@dataclass(frozen=True)
class Network:
    """One network under one protocol."""

    kind: str
    """Name in `NETWORKS`."""
    how: str
    """Standardisation: `"global"` as in the paper, or `"anomaly"`."""
    peek: bool

    @property
    def name(self) -> str:
        """For tables."""
        return f"{self.kind}, {'anomalies' if self.how == 'anomaly' else 'temperatures'}"

    @property
    def protocol(self) -> str:
        """Which of the two."""
        return PEEK if self.peek else HISTORY


RUNS = (
    Network(INVARIANT, "global", False),
    Network(IDENTIFIER, "anomaly", False),
    Network(GVAE, "anomaly", False),
    Network(IDENTIFIER, "global", True),
    Network(GVAE, "global", True),
)
"""The first gives the maps of parameters."""


@dataclass(frozen=True)
class Config:
    """What is run. Everything that changes numbers is here."""

    horizon: int = 48
    given: int = 10
    holdouts: int = 4
    """How many stretches at the end, one horizon apart, are forecast from what is before them."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Of the networks."""
    steps: int | None = None
    """Of training: 600 in small scale, 10,000 in full."""
    scale: str = "small"
    """`"full"`: sizes and batch of the paper, or `"small"` for a CPU and minutes."""
    forecaster: bool = True
    """Whether `Forecaster` forecasts, too."""
    device: str | None = None

    def __post_init__(self) -> None:
        if self.scale not in ("small", "full"):
            raise ValueError(f"scale: got {self.scale!r}; expected 'small' or 'full'.")
        if not self.seeds or min(self.holdouts, self.horizon - self.given) < 1:
            raise ValueError(
                f"got {len(self.seeds)} seeds, {self.holdouts} hold-outs, horizon {self.horizon} "
                f"with {self.given} given; expected at least one of each, and a longer horizon."
            )

    def resolved(self) -> Config:
        """With a device and a number of steps."""
        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        return replace(
            self, device=device, steps=self.steps or (600 if self.scale == "small" else 10_000)
        )


@dataclass
class Result:
    """Everything the experiment found."""

    config: Config
    machine: dict[str, Any]
    grid: Grid
    judge: Judge
    forecasts: dict[str, np.ndarray] = field(default_factory=dict)
    """By name, `(H, N)` degrees: those of the last hold-out that need no network."""
    holdouts: list[dict[str, Any]] = field(default_factory=list)
    """Scores of these, the latest hold-out first."""
    networks: list[dict[str, Any]] = field(default_factory=list)
    """Scores of the networks by seed, and how they were trained."""
    parameters: parameters.Parameters | None = None
    """Of the time-invariant network, first seed."""
    probes: dict[str, Any] = field(default_factory=dict)
    no_probes: str | None = None
    """Why there are none, if so."""
    seconds: float = 0.0

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "experiment": "sst",
            "settings": asdict(self.config),
            "machine": self.machine,
            "data": {
                "source": self.grid.source,
                "cells": int(self.grid.ocean.sum()),
                "times": len(self.grid.time),
                "first": str(self.grid.time[0])[:10],
                "last": str(self.grid.time[-1])[:10],
                "spread": self.judge.spread,
            },
            "holdouts": self.holdouts,
            "networks": self.networks,
            "parameters": None if self.parameters is None else self.parameters.summary(),
            "probes": self.probes,
            "no_probes": self.no_probes,
            "seconds": self.seconds,
        }

    def scores(self, name: str) -> dict[str, Any]:
        """Of a forecast that needs no network, on the last hold-out."""
        found: dict[str, Any] = self.holdouts[0]["scores"][name]
        return found

    def best_reference(self, what: str = "relative_mse") -> str:
        """The simple forecast with the least error on the last hold-out."""
        return min(REFERENCES, key=lambda name: self.scores(name)[what])

    def of_networks(self, protocol: str) -> dict[str, list[dict[str, Any]]]:
        """Their entries by name, one for each seed."""
        out: dict[str, list[dict[str, Any]]] = {}
        for entry in self.networks:
            if entry["protocol"] == protocol:
                out.setdefault(entry["name"], []).append(entry)
        return out


Tick = Callable[[str], None]


def run(config: Config, grid: Grid | None = None, tick: Tick = lambda name: None) -> Result:
    """Run the experiment.

    Args:
        config: The settings.
        grid: Monthly temperatures; the packaged ones if `None`.
        tick: Called with a name after every stage, `ticks(config)` times.
    """
    began = clock.perf_counter()
    config = config.resolved()
    grid = monthly() if grid is None else grid
    _check_months(grid)
    series = grid.series
    until = len(series) - config.horizon
    first = len(series) - config.holdouts * config.horizon
    if first < 3 * config.horizon:
        raise ValueError(
            f"grid: got {len(series)} times; expected at least "
            f"{(config.holdouts + 3) * config.horizon} for {config.holdouts} hold-outs of "
            f"{config.horizon}. Ask for fewer hold-outs or a shorter horizon."
        )
    result = Result(config, describe_machine(), grid, _judge(grid, until, config.horizon))
    for k in range(config.holdouts):
        _hold_out(result, len(series) - (k + 1) * config.horizon, keep=k == 0)
        tick(f"hold-out {k + 1}")
    near = neighbours(grid.ocean, min(5, grid.ocean.shape[1] - 1))
    for network in RUNS:
        for seed in config.seeds:
            task = _network(result, network, seed, near, until)
            if network == RUNS[0] and seed == config.seeds[0]:
                _read(result, task, until, seed)
            tick(f"{network.name}, seed {seed}")
    result.seconds = clock.perf_counter() - began
    return result


def ticks(config: Config) -> int:
    """How often `run` reports."""
    return config.holdouts + len(RUNS) * len(config.seeds)


def _check_months(grid: Grid) -> None:
    days = np.diff(grid.time) / np.timedelta64(1, "D")
    if len(days) == 0 or days.min() < 27 or days.max() > 32:
        got = f"{days.min():.0f} to {days.max():.0f} days apart" if len(days) else "one time"
        raise ValueError(f"grid: got {got}; expected one value for each month, without gaps.")
    if not grid.ocean.any():
        raise ValueError("grid: no cell has a value at every time; there is nothing to forecast.")


def _judge(grid: Grid, until: int, horizon: int) -> Judge:
    series = grid.series
    simple = references(series, grid.time, until, horizon)
    return Judge(
        series[until : until + horizon],
        simple[CLIMATOLOGY],
        float(series[:until].std()),
        np.cos(np.deg2rad(grid.cells[:, 0])),
    )


def _hold_out(result: Result, until: int, keep: bool) -> None:
    """Forecast one stretch by everything that needs no network."""
    grid, horizon = result.grid, result.config.horizon
    series, times = grid.series[: until + horizon], grid.time[: until + horizon]
    judge = result.judge if keep else _judge(replace_times(grid, until + horizon), until, horizon)
    found = {**references(series, times, until, horizon), **coupled(series, times, until, horizon)}
    if result.config.forecaster:
        found[FORECASTER] = by_forecaster(series, times, until, horizon)
    result.holdouts.append(
        {
            "history_ends": str(times[until - 1])[:7],
            "target_ends": str(times[until + horizon - 1])[:7],
            "spread": judge.spread,
            "scores": {name: judge.score(x) for name, x in found.items()},
        }
    )
    if keep:
        result.forecasts = found


def replace_times(grid: Grid, count: int) -> Grid:
    """The first `count` times of a grid, with the same cells."""
    return replace(grid, values=grid.values[:count], time=grid.time[:count])


def _network(result: Result, network: Network, seed: int, near: Neighbours, until: int) -> SSTTask:
    """Train one network, and score its forecast."""
    config, grid = result.config, result.grid
    assert config.steps is not None
    series, H = grid.series, config.horizon
    known = standard(series, grid.time, until, network.how)
    x = known.apply(series)
    window = Window(H, config.given, 12.0, network.peek)
    large = config.scale == "full"
    task, log = train(
        network.kind, Pairs(x[:until], near, window, seed), FULL if large else SMALL,
        steps=config.steps, batch=6480 if large else 256, seed=seed, device=config.device or "auto",
    )  # fmt: skip
    ahead = slice(until, until + H)
    forecast = in_degrees(known, predict(task, x[until - H : until], x[ahead]), ahead)
    entry = {
        "name": network.name, "kind": network.kind, "protocol": network.protocol, "seed": seed,
        "scores": result.judge.score(forecast), **log,
    }  # fmt: skip
    if network.peek:
        entry["scores_after_given"] = result.judge.score(forecast, skip=config.given)
    result.networks.append(entry)
    return task


def in_degrees(known: Standard, x: np.ndarray, part: slice) -> np.ndarray:
    """Standardised `(len, N)` values at some times, as temperatures."""
    offset = known.offset[part] if known.offset.ndim == 2 else known.offset
    return Standard(offset, known.scale).undo(x)


def _read(result: Result, task: SSTTask, until: int, seed: int) -> None:
    """Maps of the parameters, and what they know."""
    series, H = result.grid.series, result.config.horizon
    known = standard(series, result.grid.time, until, "global")
    result.parameters = parameters.read(task, known.apply(series)[:until], H, float(known.scale))
    result.no_probes = parameters.cannot_probe(result.grid, len(result.parameters.values))
    if result.no_probes is None:
        try:
            result.probes = parameters.probe(
                result.parameters, result.grid, series[:until], H, seed
            )
        except MissingPackageError as error:  # the rest is worth having without scikit-learn
            result.no_probes = str(error)


__all__ = [
    "COUPLED", "DAMPED", "HISTORY", "PEEK", "RUNS", "Config", "Network", "Result", "run", "ticks",
]  # fmt: skip
