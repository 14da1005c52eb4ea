"""The KdV experiment of the paper: data, training, roll-outs and scores; resumable at every stage.

Every model continues ten given frames; errors are averaged over the next 20, 40 and 100 frames.
"Seconds" in the paper are frames: 20 frames are about 4 time units of the equation.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from smnn._util.files import OutputError, prepare_output, write_json
from smnn._util.machine import describe_machine
from smnn.data import DataFormatError
from smnn.datasets.kdv import Split, Trajectories, easy, read_file, write_easy
from smnn.experiments.experiment import Tick, no_progress, option
from smnn.experiments.kdv.spectral import ModesModel
from smnn.experiments.kdv.task import HISTORY, KdVTask
from smnn.experiments.kdv.train import PLAN, PRESETS, score, train
from smnn.experiments.kdv.waves import new_waves
from smnn.training import load_task

PAPER: dict[str, dict[str, float]] = {
    "S-MNN": {"20": 5e-5, "40": 3.7e-4},
    "MNN dense": {"20": 6e-5, "40": 3.2e-4},
    "MNN sparse": {},
    **{name: {"20": value} for name, value in (
        ("ResNet", 2.23e-2), ("ResNet-LPSDA-1", 2.00e-2), ("ResNet-LPSDA-2", 1.11e-2),
        ("ResNet-LPSDA-3", 1.55e-2), ("ResNet-LPSDA-4", 1.13e-2), ("FNO", 2.76e-2),
        ("FNO-LPSDA", 5.5e-3), ("FNO-AR", 3.0e-3), ("FNO-AR-LPSDA", 1.0e-3),
    )},
}  # fmt: skip
"""Errors printed in the paper, which divides by the energy of the prediction; MNN sparse did not
converge."""
SETTINGS = "settings.json"
PRETRAINED = ("modes", "operator")
"""Models whose weights are part of the package."""


@dataclass(frozen=True)
class Config:
    """Settings that determine the results."""

    models: tuple[str, ...] = option(
        ("modes", "operator", "fno-ar-lpsda", "resnet-ar-lpsda"),
        f"Models to train, comma-separated: {', '.join(PRESETS)}.",
    )
    scale: str = option("small", "Size of the networks: small (CPU, minutes) or full (GPU).")
    train: int = option(512, "Training trajectories.", minimum=8)
    valid: int = option(64, "Validation trajectories.", minimum=1)
    test: int = option(512, "Test trajectories.", minimum=1)
    seconds: float = option(
        60.0, "Training time of each network; the model 'modes' always takes 600 steps.", minimum=1
    )
    seed: int = option(0, "Random seed of data and weights.")
    pretrained: bool = option(
        False, f"Score the weights of the package ({' and '.join(PRETRAINED)}); train nothing."
    )
    waves: str = option(
        "easy", "Test waves: easy, as in training, or new: bumps, non-zero means, high modes."
    )
    data: str | None = option(
        None, "HDF5 file in the published layout to use as test data (default: generated).",
        file=True,
    )  # fmt: skip

    def __post_init__(self) -> None:
        unknown = [name for name in self.models if name not in PRESETS]
        if unknown or not self.models:
            raise ValueError(
                f"models: got {', '.join(self.models) or 'none'}; expected some of "
                f"{', '.join(PRESETS)}."
            )
        if self.pretrained and not self.scored:
            raise ValueError(
                f"models: got {', '.join(self.models)} with pretrained; expected some of "
                f"{', '.join(PRETRAINED)}."
            )
        if self.scale not in ("small", "full"):
            raise ValueError(f"scale: got {self.scale!r}; expected 'small' or 'full'.")
        if self.waves not in ("easy", "new"):
            raise ValueError(f"waves: got {self.waves!r}; expected 'easy' or 'new'.")

    @property
    def scored(self) -> tuple[str, ...]:
        """The models that are scored."""
        packaged = (name for name in self.models if name in PRETRAINED)
        return tuple(packaged) if self.pretrained else self.models


@dataclass(frozen=True)
class Result:
    """Results of the experiment."""

    config: Config
    machine: dict[str, Any]
    models: dict[str, dict[str, Any]]
    """Scores and training records by model."""
    truth: np.ndarray
    """`(n, frames, X)` of a few trajectories, for the figure."""
    pictures: dict[str, np.ndarray] = field(default_factory=dict)
    """Predictions of these frames by model."""
    law: str | None = None
    """The learned equation."""

    def record(self) -> dict[str, Any]:
        """JSON-serializable record."""
        return {
            "experiment": "kdv", "settings": asdict(self.config), "machine": self.machine,
            "known_frames": HISTORY, "law": self.law, "paper": PAPER, "models": self.models,
        }  # fmt: skip


def _weights(model: str) -> Traversable:
    return resources.files("smnn.experiments.kdv") / "weights" / model


def pretrained(model: str = "modes") -> KdVTask:
    """A packaged model, one of `PRETRAINED`, on the CPU."""
    with resources.as_file(_weights(model) / "weights.safetensors") as path:
        task = load_task(path)
    assert isinstance(task, KdVTask)
    return task


def ticks(config: Config) -> None:
    """Progress is reported by stage, not in total."""


def run(config: Config, tick: Tick = no_progress, out: Path | None = None) -> Result:
    """Run or resume the experiment; finished parts in the folder are not computed again.

    `tick(stage, count, total)` is called when `count` more trajectories are done, of `total`.

    Raises:
        OutputError: The folder belongs to other settings, or cannot be written.
        DataFormatError: The file `config.data` cannot be used.
    """
    out = prepare_output(Path("smnn-results") / "kdv" if out is None else out)
    _check_settings(out, config)
    test = _test_set(config, out, tick)
    if test.u.shape[1] < HISTORY + 20:
        raise DataFormatError(
            f"data: got {test.u.shape[1]} frames; expected at least {HISTORY + 20}: ten are given "
            "and twenty or more are scored."
        )
    frames = min(100, test.u.shape[1] - HISTORY)
    models: dict[str, dict[str, Any]] = {}
    pictures: dict[str, np.ndarray] = {}
    law = None
    for name in config.scored:
        task, record = _trained(name, config, out, tick)
        if isinstance(task.model, ModesModel):
            law = str(task.model.law())
        done = out / name / "scores.json"
        if done.exists():
            models[name] = json.loads(done.read_text())
            few = test.take(slice(0, 4))
            pictures[name] = score(task, few, frames=frames)[1].numpy()
            continue
        stage = _stage(tick, f"score {name}", len(test))
        found, prediction = score(task, test, frames=frames, tick=stage)
        pictures[name] = prediction[:4].numpy()
        models[name] = {**record, "scores": found}
        prepare_output(out / name)
        write_json(done, models[name])
    truth = test.u[:4, HISTORY : HISTORY + frames]
    return Result(config, describe_machine(), models, truth, pictures, law)


def _stage(tick: Tick, name: str, total: int) -> Callable[[int], None]:
    return lambda count: tick(name, count, total)


def _check_settings(out: Path, config: Config) -> None:
    """Refuse a folder with results of other settings, whose parts must not be reused."""
    path, own = out / SETTINGS, json.loads(json.dumps(asdict(config)))
    if path.exists():
        found = json.loads(path.read_text())
        if found != own:
            differ = [key for key in own if found.get(key) != own[key]]
            raise OutputError(
                f"{out} holds results of other settings ({', '.join(differ)} differ); use another "
                "folder, or the same settings to resume."
            )
    else:
        write_json(path, own)


def _generated(split: Split, count: int, config: Config, out: Path, tick: Tick) -> Trajectories:
    """A split from its file, which is generated if it does not exist."""
    stage = _stage(tick, f"generate {split}", count)
    if torch.cuda.is_available():  # faster than reading the file
        return easy(split, count, seed=config.seed, device="cuda", tick=stage)
    prepare_output(out / "data")
    path = out / "data" / f"KdV_{split}_{count}_easy.h5"
    if not path.exists():
        write_easy(path, split, count, seed=config.seed, tick=stage)
    return read_file(path, split)


def _test_set(config: Config, out: Path, tick: Tick) -> Trajectories:
    if config.data is not None:
        return read_file(config.data)
    if config.waves == "new":
        return new_waves(config.test, config.seed, _stage(tick, "generate new", config.test))
    return _generated("test", config.test, config, out, tick)


def _trained(name: str, config: Config, out: Path, tick: Tick) -> tuple[KdVTask, dict[str, Any]]:
    """The packaged model, one trained earlier, or a new one."""
    if config.pretrained:
        return pretrained(name), json.loads((_weights(name) / "log.json").read_text())
    folder, finished = out / name, out / name / "trained.json"
    if finished.exists():
        task = load_task(folder / "run")
        assert isinstance(task, KdVTask)
        return task, json.loads(finished.read_text())
    task, record = train(
        name, _generated("train", config.train, config, out, tick),
        _generated("valid", config.valid, config, out, tick), folder, scale=config.scale,
        seconds=None if name == "modes" else config.seconds, seed=config.seed,
        resume=(folder / PLAN).exists(),
    )  # fmt: skip
    write_json(finished, record)
    return task, record
