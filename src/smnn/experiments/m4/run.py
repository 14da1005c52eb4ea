"""Forecasts of series of the M4 competition, as a panel and one by one, beside other packages.

The scores are the official ones: sMAPE, MASE, their mean relative to the benchmark Naive2 (OWA),
and the interval score MSIS with the coverage of 95 % intervals. Constants of the forecaster were
chosen with two thirds of the series in view, so the others are reported separately.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from smnn._util.files import InputError, write_json
from smnn._util.machine import describe_machine
from smnn._util.optional import require
from smnn.experiments.experiment import Tick, no_progress, option, read_record
from smnn.experiments.m4.data import (
    GROUPS,
    LEVEL,
    SOURCE,
    Group,
    Series,
    naive2,
    read_group,
    scores,
)
from smnn.experiments.timing import threads
from smnn.forecasting import Forecaster

NAIVE = "Naive2"
OURS = ("panel", "single")
"""All series in one fit, and every series in a fit of its own."""
PEERS = ("AutoARIMA", "AutoETS", "AutoTheta", "MSTL")
"""Models of statsforecast."""
HELD_OUT = 3
"""Every third series was not looked at when constants were chosen."""
PARTS: dict[str, Callable[[int], bool]] = {
    "all": lambda place: True,
    "tuned": lambda place: place % HELD_OUT != 0,
    "held out": lambda place: place % HELD_OUT == 0,
}
"""Parts of the series by their row in the official file."""
MEASURES = ("smape", "mase", "covered", "msis")
Forecasts = Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Config:
    """Data and methods."""

    data: str | None = option(
        None, f"Folder with the official files, Dataset of {SOURCE}.", file=True
    )
    groups: tuple[str, ...] = option(("Hourly", "Weekly"), "Sampling frequencies.")
    methods: tuple[str, ...] = option(OURS, f"Methods: {', '.join((*OURS, *PEERS))}.")
    every: int = option(1, "Use every n-th series only.", minimum=1)

    def __post_init__(self) -> None:
        for name, known in (("groups", GROUPS), ("methods", (*OURS, *PEERS))):
            given = getattr(self, name)
            wrong = [x for x in given if x not in known]
            if wrong or not given:
                raise ValueError(f"{name}: got {', '.join(wrong)}; expected {', '.join(known)}.")

    @classmethod
    def quick(cls, **changes: Any) -> Config:
        """Every 20th series."""
        return cls(**{"every": 20, **changes})


@dataclass
class Case:
    """Scores of one method on one series."""

    group: str
    method: str
    series: str
    place: int
    smape: float
    mase: float
    covered: float | None
    msis: float | None
    seconds: float


@dataclass
class M4:
    """Results of the experiment."""

    config: Config
    machine: dict[str, Any]
    cases: list[Case] = field(default_factory=list)

    def summary(self, group: str, method: str, part: str = "all") -> dict[str, float]:
        """Number of series, mean scores, OWA and processor seconds; empty without cases."""
        chosen = {
            m: {c.series: c for c in self.cases
                if (c.group, c.method) == (group, m) and PARTS[part](c.place)}
            for m in {method, NAIVE}
        }  # fmt: skip
        own = list(chosen[method].values())
        if not own:
            return {}
        base = [chosen[NAIVE][c.series] for c in own]
        out: dict[str, float] = {"series": len(own)}
        for name in MEASURES:
            values = [x for c in own if (x := getattr(c, name)) is not None]
            if values:
                out[name] = float(np.mean(values))
        out["owa"] = float(
            np.mean([out[m] / np.mean([getattr(c, m) for c in base]) for m in MEASURES[:2]])
        )
        out["seconds"] = sum(c.seconds for c in own)
        return out

    def record(self) -> dict[str, Any]:
        """JSON-serializable record."""
        return {
            "experiment": "m4",
            "settings": asdict(self.config),
            "machine": self.machine,
            "summary": [
                {"group": g, "method": m, "part": p, **found}
                for g in self.config.groups for m in (NAIVE, *self.config.methods) for p in PARTS
                if (found := self.summary(g, m, p))
            ],
            "cases": [asdict(case) for case in self.cases],
        }  # fmt: skip


def ticks(config: Config) -> None:
    """The number of series is known when the files have been read."""
    return None


def run(config: Config, tick: Tick = no_progress, out: Path | None = None) -> M4:
    """Forecast all series with all methods, on one thread.

    Args:
        config: Settings.
        tick: Called after every series.
        out: Folder of `m4.json`, which holds the cases of an interrupted run and gets new ones.

    Raises:
        InputError: A file is missing or damaged, or a method is not installed.
    """
    if config.data is None:
        raise InputError(f"data: expected the folder Dataset of {SOURCE}, for example --data M4.")
    if set(config.methods) & set(PEERS):
        require("statsforecast", "run its models")
    store = None if out is None else out / "m4.json"
    stored = _load(store)
    result = M4(config, describe_machine())
    pools = require("threadpoolctl", "keep the linear algebra to one thread")
    with threads(1), pools.threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in config.groups:
            series = read_group(Path(config.data), name)[:: config.every]
            for method in (NAIVE, *config.methods):
                for case in _cases(name, method, series, stored):
                    result.cases.append(case)
                    tick(f"{name}, {method}", 1, len(series))
                    if store is not None and case.seconds > 0.5 and method != "panel":
                        write_json(store, result.record())
    return result


def _load(store: Path | None) -> dict[tuple[str, str, str], Case]:
    if store is None or not store.exists():
        return {}
    try:
        cases = [Case(**entry) for entry in read_record(store, "m4")["cases"]]
    except (KeyError, TypeError) as error:
        raise InputError(f"{store} has entries that are not cases ({error}).") from error
    return {(c.group, c.method, c.series): c for c in cases if c.method != "panel"}


def _cases(
    name: str, method: str, series: Sequence[Series], stored: dict[tuple[str, str, str], Case]
) -> Iterator[Case]:
    group = GROUPS[name]
    if method == "panel":
        began = time.process_time()
        found = list(_panel(series, group))
        seconds = (time.process_time() - began) / len(series)
        for each, bands in zip(series, found):
            yield _case(name, method, each, bands, seconds)
        return
    for each in series:
        if (name, method, each.name) in stored:
            yield stored[name, method, each.name]
            continue
        began = time.process_time()
        forecast = ALONE[method](each, group) if method in ALONE else _peer(method, each, group)
        yield _case(name, method, each, forecast, time.process_time() - began)


def _case(
    name: str, method: str, series: Series, forecast: tuple[np.ndarray, ...], seconds: float
) -> Case:
    found: dict[str, Any] = scores(series, GROUPS[name], *forecast)
    if method == NAIVE:  # it has no intervals
        found |= {"covered": None, "msis": None}
    rounded: dict[str, Any] = {
        k: None if x is None else float(f"{x:.6g}") for k, x in found.items()
    }
    return Case(name, method, series.name, series.place, seconds=round(seconds, 4), **rounded)


def _panel(series: Sequence[Series], group: Group) -> Forecasts:
    """All series in one fit, aligned at their ends, because they have no common dates."""
    count = max(len(s.past) for s in series)
    y = np.full((count, len(series)), np.nan)
    for i, s in enumerate(series):
        y[count - len(s.past) :, i] = s.past
    forecast = _forecaster(group, count).fit(y, horizon=group.horizon).predict()
    for i in range(len(series)):
        found = forecast.series(i)
        yield found["mean"], found["lower"], found["upper"]


def _single(series: Series, group: Group) -> tuple[np.ndarray, ...]:
    found = _forecaster(group, len(series.past)).fit(series.past, horizon=group.horizon).predict()
    return found.mean, found.lower, found.upper


def _forecaster(group: Group, count: int) -> Forecaster:
    seasons = [cycle for cycle in group.cycles if cycle <= count / 2]
    return Forecaster(season=seasons or None, level=LEVEL)


def _naive(series: Series, group: Group) -> tuple[np.ndarray, ...]:
    forecast = naive2(series.past, group.season, group.horizon)
    return forecast, forecast, forecast


ALONE: dict[str, Callable[[Series, Group], tuple[np.ndarray, ...]]] = {
    NAIVE: _naive, "single": _single,
}  # fmt: skip


def _peer(method: str, series: Series, group: Group) -> tuple[np.ndarray, ...]:
    """A model of statsforecast with its default settings and the official season."""
    models = require("statsforecast.models", "run its models")
    if method == "MSTL":
        cycles = [round(c) for c in group.cycles if 2 * c <= len(series.past)]
        model = models.MSTL(season_length=cycles or [1])
    else:
        model = getattr(models, method)(season_length=group.season)
    percent = round(100 * LEVEL)
    found = model.forecast(y=series.past, h=group.horizon, level=[percent])
    return found["mean"], found[f"lo-{percent}"], found[f"hi-{percent}"]
