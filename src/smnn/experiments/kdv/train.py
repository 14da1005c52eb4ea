"""Training and scoring of the KdV models."""

from __future__ import annotations

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
from smnn.datasets.kdv import Trajectories
from smnn.experiments.kdv.paper import Convolution
from smnn.experiments.kdv.spectral import ModesModel, SpectralModel
from smnn.experiments.kdv.task import HISTORY, SCORED, KdVTask, Windows, errors, rollout
from smnn.experiments.solvers import DENSE, SMNN, SPARSE
from smnn.training import Data, TrainConfig, fit

PLAN = "plan.json"
DIVERGED = 100.0
"""Squared error over the energy of the truth at which a roll-out counts as failed."""
PUBLISHED = {"shift": 1.0, "boost": 0.4, "scale": 0.1}
"""Data augmentation of the published experiments."""
NONE = dict.fromkeys(PUBLISHED, 0.0)


@dataclass(frozen=True)
class Preset:
    """A model and its training settings."""

    task: dict[str, Any]
    """Arguments of `KdVTask`."""
    train: TrainConfig
    small: dict[str, Any] = field(default_factory=dict)
    """Options that replace those of the model at small scale."""

    def make(self, scale: str, seed: int) -> KdVTask:
        """The untrained task, with weights initialized from the seed."""
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


def _paper(solver: str) -> Preset:
    settings = _deep(32, 1e-4, optimizer="adam", warmup_steps=0)
    return Preset({"model": "paper", "options": {"solver": solver}}, settings,
                  {"blocks": [16, 16, 32, 32]})  # fmt: skip


PRESETS: dict[str, Preset] = {
    "modes": Preset(
        {"model": "modes", "options": {"sweeps": 3}, "relative_to": "change"},
        TrainConfig(
            max_steps=600, batch_size=16, lr=0.05, schedule="one-cycle", clip=1.0, drop_last=True,
            log_every=20, monitor="nmse_20", checkpoint_every=100, tensorboard=False,
        ),
    ),
    "operator": Preset(
        {
            "model": "operator", "options": {"sweeps": 3, "tolerance": 1e-5},
            "relative_to": "change",
        },
        _deep(8, 4e-3, optimizer="adam", ema=None, checkpoint_every=500),
    ),
    **{name: _paper(solver) for name, solver in (
        ("paper", SMNN), ("mnn-dense", DENSE), ("mnn-sparse", SPARSE),
    )},
    **{
        f"{model}{'-ar' * (passes > 1)}{'-lpsda' * (symmetries is not None)}": _direct(
            model, passes=passes, symmetries=symmetries
        )
        for model in ("resnet", "fno")
        for passes in (1, 2)
        for symmetries in (None, PUBLISHED)
    },
    **{
        f"resnet-lpsda-{k}": _direct("resnet", passes=1, symmetries={**NONE, name: PUBLISHED[name]})
        for k, name in enumerate(PUBLISHED, 2)
    },
}  # fmt: skip
"""Models by name. `mnn-dense` and `mnn-sparse` are `paper` with other solvers. `-lpsda`: with the
published data augmentation, `-2` to `-4` with one symmetry: shifts, boosts, scaling. `-ar`: trained
on unrolled predictions too. The rows ResNet-LPSDA-1 to -4 of the paper are not defined there; they
are taken for one symmetry each, of which the first, shifts in time, is part of all models, because
they are trained on windows from every frame."""


def train(
    name: str, train_set: Trajectories, valid_set: Trajectories, out: Path, *, scale: str = "full",
    seconds: float | None = None, steps: int | None = None, seed: int = 0, resume: bool = False,
    progress: bool = True, settings: dict[str, Any] | None = None,
) -> tuple[KdVTask, dict[str, Any]]:  # fmt: skip
    """Train one of `PRESETS` in the folder `out`.

    Args:
        name: Name of the preset.
        train_set: Training trajectories.
        valid_set: Validation trajectories, which select the best weights.
        out: Folder of the run.
        scale: `"full"`, or `"small"` for networks that a CPU can train.
        seconds: Training time, an alternative to `steps`; a trial run determines the steps.
        steps: Number of steps.
        seed: Random seed of the weights and the order of the data.
        resume: Resume the run.
        progress: Show progress on standard error.
        settings: Changes to the training settings of the preset.

    Returns:
        The task, and a record of its training.
    """
    if name not in PRESETS:
        raise ValueError(f"model: got {name!r}; expected one of {', '.join(PRESETS)}.")
    preset = PRESETS[name]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = _config(preset, scale, seed, device, settings or {})
    task = preset.make(scale, seed)
    data = _prepare(task, train_set, valid_set, device, config)
    plan = prepare_output(out) / PLAN
    known = json.loads(plan.read_text()) if resume and plan.exists() else {}
    total = known.get("steps") or steps
    if total is None and seconds is not None:
        total = _steps_in(seconds, task, data, config)
    config = _of_length(config.replace(max_steps=total or config.max_steps), data)
    before = {"steps": config.max_steps, "cpu_seconds": known.get("cpu_seconds", 0.0)}
    write_json(plan, before)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    start, cpu = time.perf_counter(), time.process_time()
    try:
        result = fit(task, data, config, out / "run", resume=resume, progress=progress)
    finally:
        spent = before["cpu_seconds"] + time.process_time() - cpu
        write_json(plan, {**before, "cpu_seconds": spent})
    record = {
        "model": name,
        "scale": scale,
        "task": task.config(),
        "train": config.to_dict(),
        "parameters": sum(p.numel() for p in task.parameters()),
        "trajectories": len(train_set),
        "steps": result.steps,
        "seconds": time.perf_counter() - start,
        "cpu_seconds": spent,
        "memory_gib": torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else None,
        "best": result.best,
        "history": [
            {k: float(f"{row[k]:.4g}") for k in ("step", "loss", "nmse_20") if k in row}
            for row in result.history
        ],
        "machine": describe_machine(),
    }
    if isinstance(task.model, ModesModel):
        record["law"] = str(task.model.law())
    return task, record


def _prepare(
    task: KdVTask, train_set: Trajectories, valid_set: Trajectories, device: torch.device,
    config: TrainConfig,
) -> Data:  # fmt: skip
    """The data on the device, with which spectral models are scaled."""
    for module in task.modules():
        if isinstance(module, Convolution):
            module.channels_last = device.type == "cuda"  # 20 % faster
    dtype = torch.float64 if config.precision == "float64" else torch.float32
    data = Data(
        Windows(train_set, task.length, device=device, dtype=dtype),
        Windows(valid_set, HISTORY + SCORED[1], start=0, device=device, dtype=dtype),
    )
    if isinstance(task.model, SpectralModel):
        whole = Windows(train_set.take(slice(0, 64)), train_set.u.shape[1], start=0)
        task.model.prepare(*whole.batch(torch.arange(len(whole))))
    return data


def training_seconds(record: dict[str, Any]) -> float:
    """Processor time on a CPU, which others may use too, and elapsed time on a GPU."""
    on_cpu = record["machine"]["gpu"] is None and "cpu_seconds" in record
    return float(record["cpu_seconds" if on_cpu else "seconds"])


def _of_length(config: TrainConfig, data: Data) -> TrainConfig:
    """Settings that depend on the number of steps."""
    total = config.max_steps
    assert total is not None
    epochs = total / max(1, len(data.train) // config.batch_size)  # type: ignore[arg-type]
    # About twenty evaluations; each takes as long as a hundred steps.
    config = config.replace(evaluate_every=max(1, round(epochs / 20)))
    if config.ema is None:
        return config
    # Short runs need a shorter averaging time.
    return config.replace(ema=min(config.ema, max(0.0, 1 - 20 / total)))


def _config(
    preset: Preset, scale: str, seed: int, device: torch.device, settings: dict[str, Any]
) -> TrainConfig:
    """Training settings of a preset for a scale and a device."""
    config = preset.train.replace(seed=seed)
    if scale == "small":
        config = config.replace(batch_size=min(config.batch_size, 32))
    config = config.replace(**settings)
    if device.type == "cpu" and config.precision in ("bf16", "tf32"):
        config = config.replace(precision="float32")
    return config


def _steps_in(seconds: float, task: KdVTask, data: Data, config: TrainConfig) -> int:
    """Number of steps that fit, measured with copies; compilation is excluded."""
    few, many = (40, 240) if torch.cuda.is_available() else (3, 23)
    marks: list[float] = []
    for steps in (few, few, many):  # the first compiles kernels and loads libraries
        trial = deepcopy(task)
        start = time.perf_counter()
        fit(trial, Data(data.train), config.replace(max_steps=steps, monitor="loss"),
            progress=False)  # fmt: skip
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        marks.append(time.perf_counter() - start)
    per_step = max((marks[2] - marks[1]) / (many - few), 0.5 * marks[2] / many)
    return max(20, int(0.93 * (seconds - sum(marks)) / per_step))  # leaves time for evaluation


@torch.no_grad()
def score(
    task: KdVTask, data: Trajectories, *, frames: int = SCORED[-1], chunk: int = 32,
    tick: Callable[[int], None] = lambda count: None,
) -> tuple[dict[str, Any], torch.Tensor]:  # fmt: skip
    """Continue the first ten frames of each trajectory, and compare with the truth.

    Returns:
        A record of errors with both normalizations, and the frames `(N, frames, X)`.
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
    """Record of the errors of frames `(N, frames, X)`; `None` where they are not finite.

    `failed` lists the trajectories that diverge, and the frame at which each does.
    """
    found = errors(prediction, truth)
    lost = ~(found.by_truth <= DIVERGED)

    def plain(x: torch.Tensor) -> float | None:
        return x.item() if bool(x.isfinite()) else None

    by_prediction, by_truth = (torch.where(lost, torch.inf, x) for x in found)
    lengths = [n for n in SCORED if n <= truth.shape[1]]

    def means(errors: torch.Tensor, over: Callable[..., torch.Tensor]) -> dict[str, float | None]:
        return {str(n): plain(over(errors[:, :n].mean(1))) for n in lengths}

    return {
        "trajectories": len(truth),
        "failed": {
            str(i): 1 + int(lost[i].int().argmax()) for i in lost.any(1).nonzero()[:, 0].tolist()
        },
        "nmse": means(by_prediction, torch.mean),
        "nmse_by_truth": means(by_truth, torch.mean),
        "median": means(by_prediction, torch.median),
        "worst": means(by_prediction, torch.max),
        "curve": [plain(x) for x in by_prediction.mean(0)],
        "curve_by_truth": [plain(x) for x in by_truth.mean(0)],
    }
