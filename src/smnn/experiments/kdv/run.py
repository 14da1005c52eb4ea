"""The KdV experiment of the paper: data, training, roll-out, scores; resumable at every stage.

Every model is given ten frames and continues them; errors are averaged over 20, 40 and 100 frames
after them. "Seconds" in the paper are frames: 20 frames are about 4 units of time of the equation.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch

from smnn._util.files import OutputError, prepare_output, write_json
from smnn._util.machine import describe_machine
from smnn.datasets.kdv import Split, Trajectories, easy, read_file, write_easy
from smnn.experiments.kdv.modes import ModesModel
from smnn.experiments.kdv.task import HISTORY, KdVTask
from smnn.experiments.kdv.train import PLAN, PRESETS, score, train
from smnn.training import load_task

PAPER = {
    "S-MNN": {"20": 5e-5, "40": 3.7e-4},
    "MNN dense": {"20": 6e-5, "40": 3.2e-4},
    "FNO-AR-LPSDA": {"20": 1.0e-3},
    "FNO": {"20": 2.76e-2},
    "ResNet": {"20": 2.23e-2},
}
"""Errors that the paper prints; it divides by the energy of the prediction."""
SETTINGS = "settings.json"
Tick = Callable[[str, int, int], None]
"""Called with what is being done, how much has been done since the last call, and of how much."""


@dataclass(frozen=True)
class Config:
    """What is run. Everything that changes numbers is here."""

    models: tuple[str, ...] = ("modes", "window", "fno-ar-lpsda", "resnet-ar-lpsda")
    """Names of `PRESETS`."""
    scale: str = "small"
    """`"full"`, or `"small"` for networks that a CPU can train in minutes."""
    train: int = 512
    valid: int = 64
    test: int = 512
    """Trajectories of each split."""
    seconds: float = 60.0
    """For each network; the model `"modes"` always takes 600 steps."""
    seed: int = 0
    pretrained: bool = False
    """Score the weights that are part of the package, and train nothing."""
    data: str | None = None
    """Score this file in the published layout, not a generated test set."""

    def __post_init__(self) -> None:
        unknown = [name for name in self.models if name not in PRESETS]
        if unknown or not self.models:
            raise ValueError(
                f"models: got {', '.join(self.models) or 'none'}; expected some of "
                f"{', '.join(PRESETS)}."
            )
        if self.scale not in ("small", "full"):
            raise ValueError(f"scale: got {self.scale!r}; expected 'small' or 'full'.")


@dataclass(frozen=True)
class Result:
    """What came out."""

    config: Config
    machine: dict[str, Any]
    models: dict[str, dict[str, Any]]
    """By name: scores, and how the model was trained."""
    truth: np.ndarray
    """`(n, frames, X)` of a few trajectories, for pictures."""
    pictures: dict[str, np.ndarray] = field(default_factory=dict)
    """By name: the frames that the model gives for them."""
    law: str | None = None
    """The equation that has been learned."""

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "experiment": "kdv",
            "settings": asdict(self.config),
            "machine": self.machine,
            "known_frames": HISTORY,
            "law": self.law,
            "paper": PAPER,
            "models": self.models,
        }


def pretrained() -> KdVTask:
    """The model that is part of the package, on the CPU."""
    folder = resources.files("smnn.experiments.kdv") / "weights"
    with resources.as_file(folder) as path:
        task = load_task(path)
    assert isinstance(task, KdVTask)
    return task


def run(config: Config, out: Path, tick: Tick = lambda what, done, total: None) -> Result:
    """Run the experiment, or what is left of it.

    Args:
        config: The setting.
        out: Folder for data, runs and results. What it holds already, of the same setting, is
            taken up.
        tick: Told about progress.

    Raises:
        OutputError: The folder belongs to another setting, or cannot be written.
    """
    prepare_output(out)
    _claim(out, config)
    frames = 100
    test = _test_set(config, out, tick)
    if test.u.shape[1] < HISTORY + 20:
        raise ValueError(
            f"data: got {test.u.shape[1]} frames; expected at least {HISTORY + 20}: ten are given "
            "and twenty or more are scored."
        )
    frames = min(frames, test.u.shape[1] - HISTORY)
    models: dict[str, dict[str, Any]] = {}
    pictures: dict[str, np.ndarray] = {}
    law = None
    names = ("modes",) if config.pretrained else config.models
    for name in names:
        task, record = _trained(name, config, out, tick)
        if isinstance(task.model, ModesModel):
            law = str(task.model.law())
        done = out / name / "scores.json"
        if done.exists():
            models[name] = json.loads(done.read_text())
            few = test.take(slice(0, 4))
            pictures[name] = score(task, few, frames=frames)[1].numpy()
            continue
        told = functools.partial(_tell, tick, f"score {name}", len(test))
        found, prediction = score(task, test, frames=frames, tick=told)
        pictures[name] = prediction[:4].numpy()
        models[name] = {**record, "scores": found}
        prepare_output(out / name)
        write_json(done, models[name])
    truth = test.u[:4, HISTORY : HISTORY + frames]
    return Result(config, describe_machine(), models, truth, pictures, law)


def _tell(tick: Tick, what: str, total: int, done: int) -> None:
    tick(what, done, total)


def _claim(out: Path, config: Config) -> None:
    """One folder, one setting: else finished parts of another would be taken for ours."""
    path, own = out / SETTINGS, json.loads(json.dumps(asdict(config)))
    if path.exists():
        found = json.loads(path.read_text())
        if found != own:
            differ = [key for key in own if found.get(key) != own[key]]
            raise OutputError(
                f"{out} holds results of other settings ({', '.join(differ)} differ); give another "
                "folder, or the same settings to go on."
            )
    else:
        write_json(path, own)


def _generated(split: Split, count: int, config: Config, out: Path, tick: Tick) -> Trajectories:
    """A split from its file, which is made first where it is not there."""
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def told(n: int) -> None:
        tick(f"generate {split}", n, count)

    if device == "cuda":  # faster than the disk
        return easy(split, count, seed=config.seed, device=device, tick=told)
    prepare_output(out / "data")
    path = out / "data" / f"KdV_{split}_{count}_easy.h5"
    if not path.exists():
        write_easy(path, split, count, seed=config.seed, tick=told)
    return read_file(path, split)


def _test_set(config: Config, out: Path, tick: Tick) -> Trajectories:
    if config.data is not None:
        return read_file(config.data)
    return _generated("test", config.test, config, out, tick)


def _trained(name: str, config: Config, out: Path, tick: Tick) -> tuple[KdVTask, dict[str, Any]]:
    """A trained model: the packaged one, one that is there already, or a new one."""
    if config.pretrained:
        log = resources.files("smnn.experiments.kdv") / "weights" / "log.json"
        return pretrained(), json.loads(log.read_text())
    folder, kept = out / name, out / name / "trained.json"
    if kept.exists():
        task = load_task(folder / "run")
        assert isinstance(task, KdVTask)
        return task, json.loads(kept.read_text())
    found = train(
        name,
        _generated("train", config.train, config, out, tick),
        _generated("valid", config.valid, config, out, tick),
        folder,
        scale=config.scale,
        seconds=None if name == "modes" else config.seconds,
        seed=config.seed,
        resume=(folder / PLAN).exists(),
    )
    write_json(kept, found.record)
    return found.task, found.record
