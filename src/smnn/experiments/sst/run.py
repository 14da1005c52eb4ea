"""Sea surface temperature: forecasts over four years, two protocols, and simple references.

One protocol uses only the history. That of the paper is also given the first ten steps of the
target, and scores them too. Both are reported for the networks of the paper, together with
forecasts that need no network.
"""

from __future__ import annotations

import time as clock
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch

from smnn._util.machine import describe_machine
from smnn.data import DataFormatError
from smnn.datasets.sst import Grid, Neighbours, Standard, monthly, neighbours, read_grid, standard
from smnn.experiments.experiment import Tick, no_progress, option
from smnn.experiments.sst.networks import Window
from smnn.experiments.sst.references import (
    CLIMATOLOGY,
    FORECASTER,
    REFERENCES,
    by_forecaster,
    coupled,
    references,
)
from smnn.experiments.sst.scores import Scorer
from smnn.experiments.sst.train import (
    FULL,
    GVAE,
    IDENTIFIER,
    PUBLISHED,
    SMALL,
    Pairs,
    predict,
    train,
)

HISTORY, PEEK = "history only", "first steps given"
"""The two protocols."""
NAME_WIDTH = 32
"""Width of the names in the progress bar."""


@dataclass(frozen=True)
class Network:
    """A network under one of the protocols."""

    kind: str
    """Name in `NETWORKS`."""
    how: str
    """Standardization: `"global"` as in the paper, or `"anomaly"`."""
    peek: bool

    @property
    def name(self) -> str:
        """Name in tables."""
        return f"{self.kind}, {'anomalies' if self.how == 'anomaly' else 'temperatures'}"

    @property
    def protocol(self) -> str:
        """Name of the protocol."""
        return PEEK if self.peek else HISTORY


MONTHS, WEEKS = 12.0, 365.2425 / 7
"""Steps in a year."""
RUNS = (
    Network(IDENTIFIER, "anomaly", False), Network(GVAE, "anomaly", False),
    Network(IDENTIFIER, "global", True), Network(PUBLISHED, "global", True),
    Network(GVAE, "global", True),
)  # fmt: skip
"""All networks."""
DRAWN = Network(IDENTIFIER, "global", True)
"""The network of the paper under its protocol, whose forecast is drawn."""


@dataclass(frozen=True)
class Config:
    """Settings that determine the results."""

    horizon: int | None = option(
        None, "Steps of a chunk and of the forecast (default: 48 months or 208 weeks).", minimum=12
    )
    given: int = 10
    data: str | None = option(
        None, "Monthly or weekly grid in NetCDF (default: the packaged monthly one).", file=True
    )
    mask: str | None = option(None, "Land mask of the grid, such as NOAA's lsmask.nc.", file=True)
    scale: str = option("small", "Size of the networks: small (CPU, minutes) or full (GPU).")
    holdouts: int = option(4, "Consecutive hold-out periods.", minimum=1)
    seeds: int = option(3, "Trainings of each network, with different seeds.", minimum=1)
    steps: int | None = option(
        None, "Training steps (default: 600 at small scale, 10,000 at full).", minimum=1
    )
    seed: int = option(0, "First random seed.")
    device: str | None = option(None, "Device of the networks.")
    forecaster: bool = option(True, "Leave out the Forecaster.")

    def __post_init__(self) -> None:
        if self.scale not in ("small", "full"):
            raise ValueError(f"scale: got {self.scale!r}; expected 'small' or 'full'.")
        ahead = 1 if self.horizon is None else self.horizon - self.given
        if min(self.seeds, self.holdouts, ahead) < 1:
            raise ValueError(
                f"got {self.seeds} seeds, {self.holdouts} hold-outs, horizon {self.horizon} with "
                f"{self.given} given; expected at least one of each, and a longer horizon."
            )

    @classmethod
    def quick(cls, **changes: Any) -> Config:
        """One hold-out, one seed, 120 training steps, and no Forecaster: a minute or two."""
        quick = {"holdouts": 1, "seeds": 1, "steps": 120, "forecaster": False}
        return cls(**{**quick, **changes})

    def resolved(self) -> Config:
        """The same with device and number of steps filled in."""
        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        return replace(
            self, device=device, steps=self.steps or (600 if self.scale == "small" else 10_000)
        )


@dataclass
class Result:
    """Results of the experiment."""

    config: Config
    machine: dict[str, Any]
    grid: Grid
    scorer: Scorer
    forecasts: dict[str, np.ndarray] = field(default_factory=dict)
    """Forecasts of the last hold-out by name, `(H, N)` degrees; of the networks only `DRAWN`."""
    holdouts: list[dict[str, Any]] = field(default_factory=list)
    """Scores of the forecasts without networks, the latest hold-out first."""
    networks: list[dict[str, Any]] = field(default_factory=list)
    """Scores and training records of the networks by seed."""
    year: float = 12.0
    """Steps in a year."""
    seconds: float = 0.0

    @property
    def unit(self) -> str:
        """Name of a step of the data."""
        return "month" if self.year == MONTHS else "week"

    @property
    def horizon(self) -> int:
        """Steps of the forecast."""
        return len(self.scorer.truth)

    def record(self) -> dict[str, Any]:
        """JSON-serializable record."""
        return {
            "experiment": "sst",
            "settings": asdict(self.config),
            "machine": self.machine,
            "data": {
                "source": self.grid.source,
                "cells": int(self.grid.ocean.sum()),
                "times": len(self.grid.time),
                "steps_in_a_year": self.year,
                "first": str(self.grid.time[0])[:10],
                "last": str(self.grid.time[-1])[:10],
                "spread": self.scorer.spread,
            },
            "holdouts": self.holdouts,
            "networks": self.networks,
            "seconds": self.seconds,
        }

    def scores(self, name: str) -> dict[str, Any]:
        """Scores of a forecast without network, on the last hold-out."""
        found: dict[str, Any] = self.holdouts[0]["scores"][name]
        return found

    def best_reference(self, what: str = "relative_mse") -> str:
        """The reference with the smallest error on the last hold-out."""
        return min(REFERENCES, key=lambda name: self.scores(name)[what])

    def of_networks(self, protocol: str) -> dict[str, list[dict[str, Any]]]:
        """Entries of the networks under a protocol by name, one for each seed."""
        out: dict[str, list[dict[str, Any]]] = {}
        for entry in self.networks:
            if entry["protocol"] == protocol:
                out.setdefault(entry["name"], []).append(entry)
        return out


def run(config: Config, tick: Tick = no_progress, *, grid: Grid | None = None) -> Result:
    """Run the experiment; `grid` replaces `config.data`, and `tick(name)` follows each stage.

    Raises:
        DataFormatError: The grid cannot be used.
    """
    began = clock.perf_counter()
    config = config.resolved()
    if grid is None:
        grid = monthly() if config.data is None else read_grid(config.data, config.mask)
    year = _steps_in_a_year(grid)
    H = config.horizon or (48 if year == MONTHS else 208)
    series = grid.series
    until = len(series) - H
    least = max((config.holdouts + 3) * H, config.holdouts * H + round(year))
    if len(series) < least:
        raise DataFormatError(
            f"grid: got {len(series)} times; expected at least {least} for {config.holdouts} "
            f"hold-outs of {H}. Use fewer hold-outs or a shorter horizon."
        )
    scorer = _scorer(grid, until, H, year)
    result = Result(config, describe_machine(), grid, scorer, year=year)
    for k in range(config.holdouts):
        _hold_out(result, len(series) - (k + 1) * H, keep=k == 0)
        tick(f"hold-out {k + 1}")
    near = neighbours(grid.ocean, min(5, grid.ocean.shape[1] - 1))
    seeds = range(config.seed, config.seed + config.seeds)
    for network in RUNS:
        for seed in seeds:
            forecast = _network(result, network, seed, near, until)
            if network == DRAWN:
                result.forecasts.setdefault(DRAWN.name, forecast)
            tick(f"{network.name}, seed {seed}")
    result.seconds = clock.perf_counter() - began
    return result


def ticks(config: Config) -> int:
    """Number of progress reports of `run`."""
    return config.holdouts + len(RUNS) * config.seeds


def _steps_in_a_year(grid: Grid) -> float:
    """12 for monthly data, 52.2 for weekly data."""
    days = np.diff(grid.time) / np.timedelta64(1, "D")
    if not grid.ocean.any():
        raise DataFormatError("grid: no cell has a value at every time; nothing to forecast.")
    if len(days) and days.min() >= 27 and days.max() <= 32:
        return MONTHS
    if len(days) and days.min() > 6.5 and days.max() < 7.5:
        return WEEKS
    got = f"{days.min():.3g} to {days.max():.3g} days apart" if len(days) else "one time"
    raise DataFormatError(
        f"grid: got {got}; expected one value for each month or week, without gaps."
    )


def _scorer(grid: Grid, until: int, horizon: int, year: float) -> Scorer:
    series = grid.series
    simple = references(series, grid.time, until, horizon, year)
    return Scorer(
        series[until : until + horizon], simple[CLIMATOLOGY], float(series[:until].std()),
        np.cos(np.deg2rad(grid.cells[:, 0])), round(year),
    )  # fmt: skip


def _hold_out(result: Result, until: int, keep: bool) -> None:
    """Compute and score the forecasts without networks of one hold-out."""
    grid, horizon, year = result.grid, result.horizon, result.year
    series, times = grid.series[: until + horizon], grid.time[: until + horizon]
    past = replace(grid, values=grid.values[: until + horizon], time=times)
    scorer = result.scorer if keep else _scorer(past, until, horizon, year)
    span = (series, times, until, horizon)
    found = {**references(*span, year), **coupled(*span, year)}
    if result.config.forecaster:
        found[FORECASTER] = by_forecaster(*span)
    result.holdouts.append(
        {
            "history_ends": str(times[until - 1])[:7],
            "target_ends": str(times[until + horizon - 1])[:7],
            "spread": scorer.spread,
            "scores": {name: scorer.score(x) for name, x in found.items()},
        }
    )
    if keep:
        result.forecasts = found


def _network(
    result: Result, network: Network, seed: int, near: Neighbours, until: int
) -> np.ndarray:
    """Train a network and score its forecast `(H, N)`."""
    config, grid = result.config, result.grid
    assert config.steps is not None
    series, H = grid.series, result.horizon
    known = standard(series, grid.time, until, network.how)
    x = known.apply(series)
    window = Window(H, config.given, result.year, network.peek)
    large = config.scale == "full"
    task, log = train(
        network.kind, Pairs(x[:until], near, window, seed), FULL if large else SMALL,
        steps=config.steps, batch=6480 if large else 256, seed=seed, device=config.device or "auto",
    )  # fmt: skip
    ahead = slice(until, until + H)
    forecast = in_degrees(known, predict(task, x[until - H : until], x[ahead]), ahead)
    entry = {
        "name": network.name, "kind": network.kind, "protocol": network.protocol, "seed": seed,
        "scores": result.scorer.score(forecast), **log,
    }  # fmt: skip
    if network.peek:
        entry["scores_after_given"] = result.scorer.score(forecast, skip=config.given)
    result.networks.append(entry)
    return forecast


def in_degrees(known: Standard, x: np.ndarray, part: slice) -> np.ndarray:
    """Standardized values `(len, N)` at some times, converted to temperatures."""
    offset = known.offset[part] if known.offset.ndim == 2 else known.offset
    return Standard(offset, known.scale).undo(x)
