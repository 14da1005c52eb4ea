"""How error, time and memory grow with the length of the series: S-MNN, MNN, Ada-GVAE.

The same network, data and batch for every solver, in the protocol of the paper: a chunk is encoded,
its first ten values are given. What a method cannot do is recorded with the reason, and longer
series are then not tried.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from smnn._util.machine import describe_machine
from smnn.datasets._sst_tools import neighbours, standard
from smnn.datasets.sst import Grid, monthly
from smnn.experiments.sst.identifier import DENSE, SMNN, SOLVERS, SPARSE, Window
from smnn.experiments.sst.train import GVAE, IDENTIFIER, Pairs, Size, SSTTask, predict

LENGTHS = (26, 52, 104, 208, 416, 832, 1727)
METHODS = (SMNN, "Ada-GVAE", DENSE, SPARSE)
WEEKS = 1727
"""Of the paper's data."""
YEAR = 365.2425 / 7
WARM_UP = 3
RATE = 3e-4
CPU_BYTES = 1e9
"""What a dense solver may take where running out of memory ends the process."""


@dataclass(frozen=True)
class Config:
    """What is measured."""

    lengths: tuple[int, ...] = LENGTHS
    methods: tuple[str, ...] = METHODS
    pairs: int | None = None
    """In a batch, of two series each: the paper's 6,480 on a GPU, 16 on a CPU."""
    hidden: int | None = None
    """Width of the networks: the paper's 1,024 on a GPU, 64 on a CPU."""
    steps: int = 300
    """Most training steps before the test."""
    seconds: float = 6.0
    """Most time for them."""
    limit: float = 20.0
    """Seconds that one step may take."""
    cells: int | None = None
    """Most cells in the test: all on a GPU, 256 on a CPU."""
    seed: int = 0
    device: str | None = None

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
                f"lengths: got {self.lengths}; expected rising numbers from 12 to {WEEKS}."
            )

    def resolved(self) -> Config:
        """With a device and sizes for it."""
        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        large = device.startswith("cuda")
        return replace(
            self,
            device=device,
            pairs=self.pairs or (6480 if large else 16),
            hidden=self.hidden or (1024 if large else 64),
            cells=self.cells or (10**9 if large else 256),
        )


@dataclass
class Scaling:
    """Everything that was measured."""

    config: Config
    machine: dict[str, Any]
    data: str
    cells: int
    references: list[dict[str, Any]] = field(default_factory=list)
    """Errors of simple forecasts at each length that leaves a test."""
    points: list[dict[str, Any]] = field(default_factory=list)
    """One for each method and length."""

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "experiment": "scaling",
            "settings": asdict(self.config),
            "machine": self.machine,
            "data": self.data,
            "cells": self.cells,
            "references": self.references,
            "points": self.points,
        }


def weekly(grid: Grid) -> tuple[np.ndarray, np.ndarray, str]:
    """The last 1,727 weeks of a grid: its own if it is weekly, else interpolated in time.

    Returns:
        `(1727, N)` degrees, `(1727,)` dates, and what they are in words.
    """
    series, day = grid.series, np.timedelta64(1, "D")
    spacing = float(np.median(np.diff(grid.time) / day))
    if abs(spacing - 7) < 0.5 and len(series) >= WEEKS:
        return series[-WEEKS:], grid.time[-WEEKS:], "weekly means"
    end = grid.time[-1]
    dates = end - 7 * np.arange(WEEKS)[::-1] * day.astype("timedelta64[ns]")
    if dates[0] < grid.time[0]:
        raise ValueError(
            f"grid: got {len(grid.time)} times from {grid.time[0]:.10} to {end:.10}; expected at "
            f"least {WEEKS} weeks."
        )
    at, known = (x.astype("datetime64[s]").astype(float) for x in (dates, grid.time))
    place = np.clip(np.searchsorted(known, at, "right") - 1, 0, len(known) - 2)
    part = ((at - known[place]) / (known[place + 1] - known[place]))[:, None]
    values = (1 - part) * series[place] + part * series[place + 1]
    return values, dates, f"weekly values interpolated between means {spacing:.0f} days apart"


def run(
    config: Config,
    grid: Grid | None = None,
    tick: Callable[[str, Scaling], None] = lambda name, so_far: None,
) -> Scaling:
    """Measure every method at every length.

    Args:
        config: The settings.
        grid: Weekly temperatures; the packaged monthly ones, interpolated, if `None`.
        tick: Called after every method and length, `ticks(config)` times, with its name and with
            what there is so far.
    """
    config = config.resolved()
    grid = monthly() if grid is None else grid
    series, dates, words = weekly(grid)
    result = Scaling(config, describe_machine(), words, series.shape[1])
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
            tick(f"{method}, {L}", result)
    return result


def ticks(config: Config) -> int:
    """How often `run` reports."""
    return len(config.methods) * len(config.lengths)


def _some(count: int, most: int | None) -> np.ndarray:
    """Cells of the test, spread over the grid."""
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


def _point(config: Config, method: str, L: int, x: np.ndarray, near: Any) -> dict[str, Any]:
    """One method at one length: what was measured, or why not."""
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
    except RuntimeError as error:  # too slow, or too large for a library underneath
        return {"not_run": str(error).splitlines()[0]}
    finally:
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()


def _memory(device: torch.device) -> str:
    """Size of the device's memory in words."""
    if device.type != "cuda":
        return "no GPU"
    return f"{torch.cuda.get_device_properties(device).total_memory / 2**30:.0f} GiB"


class TooSlow(RuntimeError):
    """One step takes longer than the limit."""


def _too_large(method: str, samples: int, T: int) -> str | None:
    """Why the dense solver is not tried on a CPU, or `None`."""
    size = 8.0 * samples * (7 * T * 3 * T + 2 * (3 * T) ** 2)  # rows, normal matrix and factor
    return f"would need {size / 2**30:.3g} GiB" if method == DENSE and size > CPU_BYTES else None


def _measure(
    config: Config, method: str, L: int, x: np.ndarray, near: Any, device: torch.device
) -> dict[str, Any]:
    assert config.pairs is not None
    assert config.hidden is not None
    window = Window(L, min(10, L // 2), YEAR, peek=True)
    tested = len(x) >= 2 * L
    pairs = Pairs(x[:-L] if tested else x, near, window, config.seed).to(device)
    torch.manual_seed(config.seed)
    kind, solver = (IDENTIFIER, method) if method in SOLVERS else (GVAE, SMNN)
    task = SSTTask(kind, asdict(window), asdict(Size(hidden=config.hidden)), solver).to(device)
    optimizer = torch.optim.Adam(task.parameters(), RATE, capturable=device.type == "cuda")
    order = np.random.default_rng(config.seed)
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)

    def draw() -> list[Tensor]:
        indices = torch.from_numpy(order.integers(0, len(pairs), config.pairs))
        return list(pairs.batch(indices))

    def step(batch: list[Tensor]) -> Tensor:
        optimizer.zero_grad()
        losses = task.losses((batch[0], batch[1], batch[2]))
        losses["loss"].backward()
        torch.nn.utils.clip_grad_norm_(task.parameters(), 1.0)
        optimizer.step()
        return losses["mse"]

    times, losses = [], []
    began = time.perf_counter()
    with warnings.catch_warnings():
        # Conjugate gradients that do not converge are what is being measured.
        warnings.filterwarnings("ignore", message="mnn_sparse")
        for k in range(WARM_UP + config.steps):
            if k == WARM_UP:
                began = time.perf_counter()
            part = max(k / (WARM_UP + config.steps), _spent(began, config, k))
            for group in optimizer.param_groups:
                group["lr"] = RATE * 0.5 * (1 + math.cos(math.pi * min(part, 1.0)))
            batch = draw()
            _wait(cuda)
            start = time.perf_counter()
            mse = step(batch)
            _wait(cuda)
            one = time.perf_counter() - start
            if k >= WARM_UP:  # the first ones compile
                times.append(one)
                losses.append(float(mse))
                if one > config.limit:
                    raise TooSlow(f"a step takes {one:.0f} s, limit {config.limit:g} s")
            if len(times) >= 3 and time.perf_counter() - began > config.seconds:
                break
    out: dict[str, Any] = {
        "ms": 1e3 * statistics.median(times),
        "steps": len(times) + WARM_UP,
        "gib": torch.cuda.max_memory_allocated(device) / 2**30 if cuda else None,
        "parameters": sum(p.numel() for p in task.parameters()),
        "train_mse": float(np.mean(losses[-10:])),
        "test_mse": None,
        "test_mse_after_given": None,
    }
    if tested:
        some = _some(x.shape[1], config.cells)
        before, after = x[-2 * L : -L, some], x[-L:, some]
        square = np.square(predict(task, before, after, batch=2 * config.pairs) - after)
        out["test_mse"] = float(square.mean())
        out["test_mse_after_given"] = float(square[window.given :].mean())
        if not math.isfinite(out["test_mse"]):
            raise FloatingPointError(f"{method} at length {L}: its forecast is not finite.")
    return out


def _spent(began: float, config: Config, k: int) -> float:
    """Part of the time that is gone."""
    return 0.0 if k <= WARM_UP else (time.perf_counter() - began) / config.seconds


def _wait(cuda: bool) -> None:
    if cuda:
        torch.cuda.synchronize()


class Line(NamedTuple):
    """A straight line through time or memory over the length."""

    fixed: float
    """What does not depend on the length: mostly the networks."""
    per_step: float
    off: float
    """Largest relative distance of a point from the line."""


def line(result: Scaling, method: str, what: str) -> Line | None:
    """How far a measure is linear in the length; `None` with fewer than three points."""
    known = [
        (p["length"], p[what])
        for p in result.points
        if p["method"] == method and p.get(what) is not None
    ]
    if len(known) < 3:
        return None
    x, y = np.array(known, dtype=float).T
    per_step, fixed = np.polyfit(x, y, 1, w=1 / y)
    return Line(float(fixed), float(per_step), float(np.abs((fixed + per_step * x) / y - 1).max()))


def from_record(record: dict[str, Any]) -> Scaling:
    """What `Scaling.record` gave, back again.

    Raises:
        ValueError: It is the record of something else.
    """
    if record.get("experiment") != "scaling":
        raise ValueError("the file holds no record of `smnn reproduce scaling`.")
    settings = dict(record["settings"])
    for name in ("lengths", "methods"):
        settings[name] = tuple(settings[name])
    return Scaling(
        Config(**settings), record["machine"], record["data"], record["cells"],
        record["references"], record["points"],
    )  # fmt: skip
