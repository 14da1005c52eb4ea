"""Training of the KdV models: settings that suit each, for a number of steps or of seconds.

python -m smnn.experiments.kdv.train --out FOLDER --models window,fno --seconds 400,60
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from smnn._util.files import prepare_output, write_json
from smnn._util.machine import describe_machine
from smnn.datasets.kdv import SPLITS, Trajectories, easy
from smnn.experiments.kdv.modes import ModesModel
from smnn.experiments.kdv.task import HISTORY, SCORED, KdVTask, Windows, errors, rollout
from smnn.experiments.kdv.window import Convolution
from smnn.training import Data, TrainConfig, fit

PLAN = "plan.json"
MIRROR = {"shift": 0.0, "boost": 0.0, "scale": 0.0, "mirror": True}
PUBLISHED = {"shift": 1.0, "boost": 0.4, "scale": 0.1}
"""Symmetries of the published experiments."""


@dataclass(frozen=True)
class Preset:
    """A model and how it is trained."""

    task: dict[str, Any]
    """Arguments of `KdVTask`."""
    train: TrainConfig
    small: dict[str, Any] = field(default_factory=dict)
    """Options of the model for a small scale, instead of its own."""

    def make(self, scale: str, seed: int) -> KdVTask:
        """The untrained task; its weights follow from the seed."""
        torch.manual_seed(seed)
        arguments = deepcopy(self.task)
        if scale == "small" and self.small:
            arguments["options"] = {**arguments.get("options", {}), **self.small}
        return KdVTask(**arguments)


def _deep(batch_size: int, lr: float, **more: Any) -> TrainConfig:
    settings = {
        "max_steps": 20_000, "batch_size": batch_size, "lr": lr, "optimizer": "adamw",
        "schedule": "cosine", "warmup_steps": 100, "clip": 1.0, "ema": 0.999, "drop_last": True,
        "precision": "tf32", "log_every": 100, "evaluate_every": 1, "monitor": "nmse_20",
        "checkpoint_every": 5000, "keep_last": 1, "tensorboard": False,
    }  # fmt: skip
    return TrainConfig(**{**settings, **more})


def _direct(model: str, *, passes: int, symmetries: dict[str, Any] | None) -> Preset:
    task = {"model": model, "passes": passes, "symmetries": symmetries}
    small = {"width": 32, "layers": 3} if model == "fno" else {"width": 32, "blocks": 4}
    return Preset(task, _deep(64, 1e-3), small)


PRESETS: dict[str, Preset] = {
    "modes": Preset(
        {"model": "modes", "options": {"sweeps": 3}, "relative_to": "change"},
        TrainConfig(
            max_steps=600, batch_size=16, lr=0.05, schedule="one-cycle", clip=1.0, drop_last=True,
            log_every=20, monitor="nmse_20", checkpoint_every=100, tensorboard=False,
        ),
    ),
    "window": Preset(
        {"model": "window", "passes": 2, "symmetries": MIRROR},
        _deep(128, 1e-3, precision="bf16"),
        {"width": 32, "blocks": 4},
    ),
    "paper": Preset(
        {"model": "paper"}, _deep(32, 1e-4, optimizer="adam", warmup_steps=0),
        {"blocks": [16, 16, 32, 32]},
    ),
    **{
        f"{model}{'-ar' * (passes > 1)}{'-lpsda' * (symmetries is not None)}": _direct(
            model, passes=passes, symmetries=symmetries
        )
        for model in ("resnet", "fno")
        for passes in (1, 2)
        for symmetries in (None, PUBLISHED)
    },
}  # fmt: skip
"""`-lpsda`: with the published symmetries; `-ar`: also fed its own frames while training."""


@dataclass(frozen=True)
class Trained:
    """A trained model, and what it took."""

    task: KdVTask
    record: dict[str, Any]


def train(
    name: str,
    train_set: Trajectories,
    valid_set: Trajectories,
    out: Path,
    *,
    scale: str = "full",
    seconds: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    resume: bool = False,
    progress: bool = True,
    settings: dict[str, Any] | None = None,
) -> Trained:
    """Train one of `PRESETS`.

    Args:
        name: Which.
        train_set: Trajectories to train on.
        valid_set: Trajectories that choose the best weights.
        out: Folder of the run.
        scale: `"full"`, or `"small"` for networks that a CPU can train.
        seconds: How long to train: the steps that fit are found by a trial run. Instead of `steps`.
        steps: How many steps.
        seed: Of the weights and the order of the data.
        resume: Go on with a run that is in `out`.
        progress: Show it on standard error.
        settings: Changes to the settings of the preset.
    """
    if name not in PRESETS:
        raise ValueError(f"model: got {name!r}; expected one of {', '.join(PRESETS)}.")
    preset = PRESETS[name]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = preset.train.replace(seed=seed)
    if scale == "small":
        config = config.replace(batch_size=min(config.batch_size, 32))
    config = config.replace(**(settings or {}))
    if device.type == "cpu" and config.precision in ("bf16", "tf32"):
        config = config.replace(precision="float32")
    task = preset.make(scale, seed)
    for module in task.modules():
        if isinstance(module, Convolution):
            module.channels_last = device.type == "cuda"  # a fifth faster
    dtype = torch.float64 if config.precision == "float64" else torch.float32
    data = Data(
        Windows(train_set, task.length, device=device, dtype=dtype),
        Windows(valid_set, HISTORY + SCORED[1], start=0, device=device, dtype=dtype),
    )
    if isinstance(task.model, ModesModel):
        some = Windows(train_set.take(slice(0, 64)), train_set.u.shape[1], start=0)
        task.model.prepare(*some.batch(torch.arange(len(some))))
    prepare_output(out)
    plan = out / PLAN
    if resume and plan.exists():
        config = config.replace(max_steps=json.loads(plan.read_text())["steps"])
    elif steps is not None:
        config = config.replace(max_steps=steps)
    elif seconds is not None:
        config = config.replace(max_steps=_steps_in(seconds, task, data, config))
    assert config.max_steps is not None
    total = config.max_steps
    epochs = total / max(1, len(data.train) // config.batch_size)  # type: ignore[arg-type]
    # About twenty evaluations in all: they cost as much as a hundred steps each.
    config = config.replace(evaluate_every=max(1, round(epochs / 20)))
    if config.ema is not None:  # in a short run the average must forget its beginning sooner
        config = config.replace(ema=min(config.ema, max(0.0, 1 - 20 / total)))
    write_json(plan, {"steps": total})
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    result = fit(task, data, config, out / "run", resume=resume, progress=progress)
    record = {
        "model": name,
        "scale": scale,
        "task": task.config(),
        "train": config.to_dict(),
        "parameters": sum(p.numel() for p in task.parameters()),
        "trajectories": len(train_set),
        "steps": result.steps,
        "samples": result.steps * config.batch_size,
        "seconds": time.perf_counter() - start,
        "samples_per_second": result.samples_per_second,
        "memory_gib": torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else None,
        "graphed": result.graphed,
        "best": result.best,
        "machine": describe_machine(),
    }
    if isinstance(task.model, ModesModel):
        record["law"] = str(task.model.law())
    return Trained(task, record)


def _steps_in(seconds: float, task: KdVTask, data: Data, config: TrainConfig) -> int:
    """How many steps fit, from trials on copies: compilation and recording are not counted."""
    few, many = (40, 240) if torch.cuda.is_available() else (3, 23)
    marks: list[float] = []
    for steps in (few, few, many):  # the first brings kernels and libraries into being
        trial = deepcopy(task)
        start = time.perf_counter()
        fit(trial, Data(data.train), config.replace(max_steps=steps, monitor="loss"),
            progress=False)  # fmt: skip
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        marks.append(time.perf_counter() - start)
    per_step = max((marks[2] - marks[1]) / (many - few), 0.5 * marks[2] / many)
    return max(20, int(0.93 * (seconds - sum(marks)) / per_step))  # the rest is evaluation


@torch.no_grad()
def score(
    task: KdVTask,
    data: Trajectories,
    *,
    frames: int = SCORED[-1],
    chunk: int = 32,
    tick: Callable[[int], None] = lambda count: None,
) -> tuple[dict[str, Any], torch.Tensor]:
    """Roll out from the first ten frames of each trajectory, and hold it against the truth.

    Returns:
        A record of errors with both denominators, and the frames `(N, frames, X)`.
    """
    task.eval()
    first = next(task.parameters())
    windows = Windows(data, HISTORY + frames, start=0, device=first.device, dtype=first.dtype)
    parts = []
    for indices in torch.arange(len(windows)).split(chunk):
        u, dx, dt = windows.batch(indices)
        parts.append(rollout(task.model, u[:, :HISTORY], dx, dt, frames).cpu())
        tick(len(indices))
    prediction = torch.cat(parts)
    truth = torch.from_numpy(data.u[:, HISTORY : HISTORY + frames])
    return summary(prediction, truth), prediction


def summary(prediction: torch.Tensor, truth: torch.Tensor) -> dict[str, Any]:
    """Errors of frames `(N, frames, X)` as plain data; `None` where they are not finite."""
    found = errors(prediction, truth)

    def plain(x: torch.Tensor) -> float | None:
        return x.item() if bool(x.isfinite()) else None

    lengths = [n for n in SCORED if n <= truth.shape[1]]
    return {
        "trajectories": len(truth),
        "nmse": {str(n): plain(found.by_prediction[:, :n].mean()) for n in lengths},
        "nmse_by_truth": {str(n): plain(found.by_truth[:, :n].mean()) for n in lengths},
        "median": {str(n): plain(found.by_prediction[:, :n].mean(1).median()) for n in lengths},
        "worst": {str(n): plain(found.by_prediction[:, :n].mean(1).max()) for n in lengths},
        "curve": [plain(x) for x in found.by_prediction.mean(0)],
        "curve_by_truth": [plain(x) for x in found.by_truth.mean(0)],
    }


def main() -> None:
    """Train and score several models, one after the other; a finished one is not repeated."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", default="modes,window")
    parser.add_argument("--seconds", default="60", help="for each model, or one for all")
    parser.add_argument("--scale", choices=("full", "small"), default="full")
    parser.add_argument("--train", type=int, default=512)
    parser.add_argument("--valid", type=int, default=64)
    parser.add_argument("--test", type=int, default=512)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--settings", type=json.loads, default={}, help="changes of TrainConfig")
    args = parser.parse_args()
    names = args.models.split(",")
    budgets = [float(x) for x in args.seconds.split(",")]
    budgets = budgets * len(names) if len(budgets) == 1 else budgets
    if len(budgets) != len(names):
        parser.error(f"--seconds: got {len(budgets)} numbers for {len(names)} models")
    prepare_output(args.out)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    start = time.perf_counter()
    counts = (args.train, args.valid, args.test)
    sets = {
        split: easy(split, count, seed=args.seed, device=device)
        for split, count in zip(SPLITS, counts)
    }
    generated = time.perf_counter() - start
    print(f"data: {args.train}/{args.valid}/{args.test} in {generated:.1f} s", flush=True)
    for name, seconds in zip(names, budgets):
        folder = args.out / name
        if (folder / "scores.json").exists():
            continue
        # The law is found in a fixed number of steps; networks take what time there is.
        fixed = name == "modes"
        trained = train(
            name, sets["train"], sets["valid"], folder, scale=args.scale, seed=args.seed,
            seconds=None if fixed else seconds, resume=(folder / PLAN).exists(),
            settings=None if fixed else args.settings,
        )  # fmt: skip
        best, _ = score(trained.task, sets["test"], chunk=args.test if device == "cuda" else 32)
        record = {**trained.record, "scores": best, "generation_seconds": generated}
        write_json(folder / "scores.json", record)
        print(name, json.dumps({k: record[k] for k in ("steps", "seconds", "memory_gib")}),
              json.dumps({k: best[k] for k in ("nmse", "nmse_by_truth")}), flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
