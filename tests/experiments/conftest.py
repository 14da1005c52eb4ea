"""One small run of every experiment, shared by the tests."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.sst_grids import small_grid, weekly_grid
from smnn.datasets.kdv import write_easy
from smnn.experiments.experiment import load
from smnn.experiments.m4.data import GROUPS

SMALL: dict[str, dict[str, Any]] = {
    "standalone": {"repeats": 1},
    "sine": {
        "recordings": 3, "times": 60, "duration": 12.0, "noise": 0.1, "steps": 12, "order": 4,
    },
    "lorenz": {
        "samples": 1500, "methods": ("smnn-regression",), "steps": 3, "batch": 2, "window": 12,
        "width": 16, "device": "cpu",
    },
    "sst": {
        "horizon": 24, "given": 6, "holdouts": 2, "seeds": 2, "steps": 3, "forecaster": False,
        "device": "cpu",
    },
    "scaling": {
        "lengths": (12, 24, 900), "pairs": 2, "hidden": 8, "steps": 3, "seconds": 0.5, "cells": 6,
        "device": "cpu",
    },
    "discovery-bench": {
        "systems": ("Lotka", "SIR"), "noise": (0.0, 0.1), "seeds": 1,
        "methods": ("smnn-regression",), "samples": 60,
    },
    "odebench": {"systems": (2, 24), "noise": (0.0,), "deleted": (0.0, 0.5)},
    "pde-bench": {"laws": ("heat",), "noise": (0.1,), "methods": ("smnn", "pde-find")},
    "honesty": {"unrelated": 3, "known": 4, "missing": 2},
    "kdv": {"pretrained": True},
    "m4": {"groups": ("Quarterly", "Yearly")},
}  # fmt: skip


def write_m4(folder: Path) -> Path:
    """Six series of two sampling frequencies, in the layout of the official files."""
    rng = np.random.default_rng(0)
    for name in SMALL["m4"]["groups"]:
        group = GROUPS[name]
        for part, start in (("Train", 0), ("Test", -group.horizon)):
            lines = ["V1,V2"]
            for i in range(6):
                t = np.arange(40 + 4 * i + group.horizon)
                y = 100 + t + 9 * np.sin(2 * np.pi * t / 4) + rng.standard_normal(len(t))
                y = y[start:] if start else y[: -group.horizon]
                values = [*(f"{x:.6g}" for x in y), *[""] * (20 - 4 * i)]
                lines.append(",".join([f"{name[0]}{i + 1}", *values]))
            path = folder / part / f"{name}-{part.lower()}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(lines) + "\n")
    return folder


GRIDS = {"sst": small_grid, "scaling": weekly_grid}


class Runs(dict[str, Any]):
    """Results of the experiments by name, computed when needed."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.ticks: dict[str, int] = {}

    def __missing__(self, name: str) -> Any:
        run, _ = load(name)
        options = SMALL[name]
        if name == "kdv":
            file = write_easy(self.folder / "waves.h5", "test", 3, seed=11)
            options = {**options, "data": str(file)}
        if name == "m4":
            options = {**options, "data": str(write_m4(self.folder / "m4"))}
        arguments: dict[str, Any] = {"grid": GRIDS[name]()} if name in GRIDS else {}
        if name == "kdv":
            arguments["out"] = self.folder / "kdv"
        seen: list[object] = []
        self[name] = run.run(run.Config(**options), lambda *tick: seen.append(tick), **arguments)
        self.ticks[name] = len(seen)
        return self[name]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    for package in ("scipy", "sklearn", "h5py"):
        pytest.importorskip(package)
    return Runs(tmp_path_factory.mktemp("experiments"))
