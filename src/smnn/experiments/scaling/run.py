"""Error, time and memory against the length of the series, for S-MNN, MNN and Ada-GVAE.

All solvers get the same network, data and batch, in the protocol of the paper: a chunk is encoded,
its first ten values are given. If a method fails at a length, the reason is recorded and longer
series are skipped.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
import warnings
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from smnn._util.files import write_json
from smnn._util.machine import describe_machine
from smnn.data import DataFormatError
from smnn.datasets.sst import Grid, Neighbours, monthly, neighbours, read_grid, standard
from smnn.errors import SmnnError
from smnn.experiments.experiment import Tick, no_progress, option
from smnn.experiments.solvers import DENSE, SMNN, SOLVERS, SPARSE
from smnn.experiments.sst.networks import Size, Window
from smnn.experiments.sst.train import GVAE, IDENTIFIER, Pairs, SSTTask, predict

LENGTHS = (26, 52, 104, 208, 416, 832, 1727)
METHODS = (SMNN, "Ada-GVAE", DENSE, SPARSE)
WEEKS = 1727
"""Length of the paper's data."""
YEAR = 365.2425 / 7
WARM_UP = 3
RATE = 3e-4
CPU_BYTES = 1e9
"""Memory limit of the dense solver on a CPU, where exhausting memory would kill the process."""


@dataclass(frozen=True)
class Config:
    """Settings that determine the results."""

    data: str | None = option(
        None, "Weekly grid in NetCDF (default: the packaged monthly grid, interpolated).", file=True
    )
    mask: str | None = option(None, "Land mask of the grid, such as NOAA's lsmask.nc.", file=True)
    lengths: tuple[int, ...] = option(LENGTHS, "Increasing lengths in weeks, comma-separated.")
    methods: tuple[str, ...] = METHODS
    pairs: int | None = option(
        None, "Pairs of series per batch (default: 6480, as in the paper, on a GPU; 16 on a CPU).",
        minimum=1,
    )  # fmt: skip
    hidden: int | None = option(
        None, "Width of the networks (default: 1024, as in the paper, on a GPU; 64 on a CPU).",
        minimum=1,
    )  # fmt: skip
    steps: int = option(300, "Training steps of each point.", minimum=3)
    seconds: float | None = option(
        None, "Maximum training time of each point, which gives slow methods fewer steps "
        "(default: no limit, equal steps).", minimum=0.1,
    )  # fmt: skip
    limit: float = option(20.0, "Maximum seconds of a training step.", minimum=0.1)
    cells: int | None = None
    """Maximum number of test cells: all on a GPU, 256 on a CPU."""
    seed: int = option(0, "Random seed of networks and batches.")
    device: str | None = option(None, "Device of the networks.")

    def __post_init__(self) -> None:
        unknown = [m for m in self.methods if m not in METHODS]
        if unknown or not self.methods:
            raise ValueError(
                f"methods: got {', '.join(self.methods) or 'none'}; expected some of "
                f"{', '.join(METHODS)}."
            )
        wrong = [n for n in self.lengths if not 12 <= n <= WEEKS]
        if wrong or not self.lengths or list(self.lengths) != sorted(set(self.lengths)):
            raise ValueError(
                f"lengths: got {self.lengths}; expected increasing numbers from 12 to {WEEKS}."
            )

    def resolved(self) -> Config:
        """The same with device and sizes filled in."""
        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        large = device.startswith("cuda")
        return replace(
            self, device=device, pairs=self.pairs or (6480 if large else 16),
            hidden=self.hidden or (1024 if large else 64),
            cells=self.cells or (10**9 if large else 256),
        )  # fmt: skip


@dataclass
class Scaling:
    """Results of the experiment."""

    config: Config
    machine: dict[str, Any]
    data: str
    cells: int
    references: list[dict[str, Any]] = field(default_factory=list)
    """Errors of simple forecasts at each length that leaves test data."""
    points: list[dict[str, Any]] = field(default_factory=list)
    """Measurements by method and length."""

    def record(self) -> dict[str, Any]:
        """JSON-serializable record."""
        return {
            "experiment": "scaling", "settings": asdict(self.config), "machine": self.machine,
            "data": self.data, "cells": self.cells, "references": self.references,
            "points": self.points,
        }  # fmt: skip


def weekly(grid: Grid) -> tuple[np.ndarray, np.ndarray, str]:
    """The last 1,727 weeks of a grid, interpolated in time unless it is weekly.

    Returns:
        `(1727, N)` degrees, `(1727,)` dates, and a description.
    """
    series, day = grid.series, np.timedelta64(1, "D")
    spacing = float(np.median(np.diff(grid.time) / day))
    if abs(spacing - 7) < 0.5 and len(series) >= WEEKS:
        return series[-WEEKS:], grid.time[-WEEKS:], "weekly means"
    end = grid.time[-1]
    dates = end - 7 * np.arange(WEEKS)[::-1] * day.astype("timedelta64[ns]")
    if dates[0] < grid.time[0]:
        raise DataFormatError(
            f"grid: got {len(grid.time)} times from {grid.time[0]:.10} to {end:.10}; expected at "
            f"least {WEEKS} weeks."
        )
    at, known = (x.astype("datetime64[s]").astype(float) for x in (dates, grid.time))
    place = np.clip(np.searchsorted(known, at, "right") - 1, 0, len(known) - 2)
    part = ((at - known[place]) / (known[place + 1] - known[place]))[:, None]
    values = (1 - part) * series[place] + part * series[place + 1]
    return values, dates, f"weekly values interpolated between means {spacing:.0f} days apart"


def run(
    config: Config, tick: Tick = no_progress, out: Path | None = None, *, grid: Grid | None = None
) -> Scaling:
    """Measure every method at every length.

    With a folder `out`, `scaling.json` is written after every point. `grid` replaces `config.data`.

    Raises:
        DataFormatError: The grid cannot be used.
    """
    config = config.resolved()
    if grid is None:
        grid = monthly() if config.data is None else read_grid(config.data, config.mask)
    series, dates, description = weekly(grid)
    result = Scaling(config, describe_machine(), description, series.shape[1])
    near = neighbours(grid.ocean)
    samples = {}
    for L in config.lengths:
        until = len(series) - L if len(series) >= 2 * L else len(series)
        known = standard(series, dates, until)
        samples[L] = known.apply(series)
        if until < len(series):
            some = _some(series.shape[1], config.cells)
            result.references.append(_references(samples[L], series, dates, until, some))
    for method in config.methods:
        failed: str | None = None
        for L in config.lengths:
            head = {"method": method, "length": L}
            if failed is not None:
                result.points.append({**head, "not_run": failed})
            else:
                found = _point(config, method, L, samples[L], near)
                result.points.append({**head, **found})
                if "not_run" in found:
                    failed = f"stopped at {L}: {found['not_run']}"
            if out is not None:
                write_json(out / "scaling.json", result.record())
            tick(f"{method}, {L}")
    return result


def ticks(config: Config) -> int:
    """Number of progress reports of `run`."""
    return len(config.methods) * len(config.lengths)


def _some(count: int, most: int | None) -> np.ndarray:
    """Test cells, spread over the grid."""
    return np.unique(np.linspace(0, count - 1, min(count, most or count)).astype(int))


def _references(
    x: np.ndarray, series: np.ndarray, dates: np.ndarray, until: int, some: np.ndarray
) -> dict[str, Any]:
    L = len(x) - until
    cycle = standard(series, dates, until, "anomaly")
    climatology = standard(series, dates, until).apply(cycle.offset)
    return {
        "length": L,
        "previous chunk": float(np.square(x[until - L : until, some] - x[until:, some]).mean()),
        "climatology": float(np.square(climatology[until:, some] - x[until:, some]).mean()),
    }


def _point(config: Config, method: str, L: int, x: np.ndarray, near: Neighbours) -> dict[str, Any]:
    """Measurements of a method at a length, or the reason why it was not run."""
    assert config.pairs is not None
    device = torch.device(config.device or "cpu")
    too_large = _too_large(method, 2 * config.pairs, L) if device.type == "cpu" else None
    if too_large:
        return {"not_run": too_large}
    try:
        return _measure(config, method, L, x, near, device)
    except torch.OutOfMemoryError:
        total = _memory(device)
        return {"not_run": f"out of memory ({total})"}
    except RuntimeError as error:  # too slow, or too large for a library
        return {"not_run": str(error).splitlines()[0]}
    finally:
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()


def _memory(device: torch.device) -> str:
    """Description of the device's memory."""
    if device.type != "cuda":
        return "no GPU"
    return f"{torch.cuda.get_device_properties(device).total_memory / 2**30:.0f} GiB"


class TooSlow(SmnnError, RuntimeError):
    """One step takes longer than the limit."""


def _too_large(method: str, samples: int, T: int) -> str | None:
    """Reason why the dense solver is not run on a CPU, or `None`."""
    size = 8.0 * samples * (7 * T * 3 * T + 2 * (3 * T) ** 2)  # rows, normal matrix and factor
    return f"would need {size / 2**30:.3g} GiB" if method == DENSE and size > CPU_BYTES else None


def _measure(
    config: Config, method: str, L: int, x: np.ndarray, near: Neighbours, device: torch.device
) -> dict[str, Any]:
    assert config.pairs is not None
    assert config.hidden is not None
    window = Window(L, min(10, L // 2), YEAR, peek=True)
    tested = len(x) >= 2 * L
    pairs = Pairs(x[:-L] if tested else x, near, window, config.seed).to(device)
    torch.manual_seed(config.seed)
    kind, solver = (IDENTIFIER, method) if method in SOLVERS else (GVAE, SMNN)
    task = SSTTask(kind, asdict(window), asdict(Size(hidden=config.hidden)), solver).to(device)
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
    times, losses = _train(config, task, pairs, cuda)
    out: dict[str, Any] = {
        "ms": 1e3 * statistics.median(times), "steps": len(times) + WARM_UP,
        "gib": torch.cuda.max_memory_allocated(device) / 2**30 if cuda else None,
        "parameters": sum(p.numel() for p in task.parameters()),
        "train_mse": float(np.mean(losses[-10:])), "test_mse": None, "test_mse_after_given": None,
    }  # fmt: skip
    if tested:
        some = _some(x.shape[1], config.cells)
        before, after = x[-2 * L : -L, some], x[-L:, some]
        square = np.square(predict(task, before, after, batch=2 * config.pairs) - after)
        out["test_mse"] = float(square.mean())
        out["test_mse_after_given"] = float(square[window.given :].mean())
        if not math.isfinite(out["test_mse"]):
            raise FloatingPointError(f"{method} at length {L}: its forecast is not finite.")
    return out


def _train(
    config: Config, task: SSTTask, pairs: Pairs, cuda: bool
) -> tuple[list[float], list[float]]:
    """Seconds and losses of the training steps after warm-up.

    Raises:
        TooSlow: A step takes longer than the limit.
    """
    optimizer = torch.optim.Adam(task.parameters(), RATE, capturable=cuda)
    order = np.random.default_rng(config.seed)

    def step(batch: list[Tensor]) -> Tensor:
        optimizer.zero_grad()
        found = task.losses((batch[0], batch[1], batch[2]))
        found["loss"].backward()
        torch.nn.utils.clip_grad_norm_(task.parameters(), 1.0)
        optimizer.step()
        return found["mse"]

    times: list[float] = []
    losses: list[float] = []
    began = time.perf_counter()
    with warnings.catch_warnings():
        # Non-convergence of conjugate gradients is part of what is measured.
        warnings.filterwarnings("ignore", message="mnn_sparse")
        for k in range(WARM_UP + config.steps):
            if k == WARM_UP:
                began = time.perf_counter()
            part = max(k / (WARM_UP + config.steps), _spent(began, config, k))
            for group in optimizer.param_groups:
                group["lr"] = RATE * 0.5 * (1 + math.cos(math.pi * min(part, 1.0)))
            batch = list(pairs.batch(torch.from_numpy(order.integers(0, len(pairs), config.pairs))))
            _synchronize(cuda)
            start = time.perf_counter()
            mse = step(batch)
            _synchronize(cuda)
            one = time.perf_counter() - start
            if k >= WARM_UP:  # the first steps compile
                times.append(one)
                losses.append(float(mse))
                if one > config.limit:
                    raise TooSlow(f"a step takes {one:.0f} s, limit {config.limit:g} s")
            if len(times) >= 3 and _spent(began, config, k) > 1:
                break
    return times, losses


def _spent(began: float, config: Config, k: int) -> float:
    """Elapsed share of the training time."""
    if k <= WARM_UP or config.seconds is None:
        return 0.0
    return (time.perf_counter() - began) / config.seconds


def _synchronize(cuda: bool) -> None:
    if cuda:
        torch.cuda.synchronize()


class Line(NamedTuple):
    """Linear fit of time or memory against the length."""

    fixed: float
    """Part that does not depend on the length, mostly of the networks."""
    per_step: float
    deviation: float
    """Largest relative deviation of a point from the line."""


def line(result: Scaling, method: str, key: str) -> Line | None:
    """Linear fit of a measurement against the length; `None` with fewer than three points."""
    known = [
        (p["length"], p[key])
        for p in result.points
        if p["method"] == method and p.get(key) is not None
    ]
    if len(known) < 3:
        return None
    x, y = np.array(known, dtype=float).T
    per_step, fixed = np.polyfit(x, y, 1, w=1 / y)
    return Line(float(fixed), float(per_step), float(np.abs((fixed + per_step * x) / y - 1).max()))
