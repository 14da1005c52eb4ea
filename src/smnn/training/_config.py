"""Settings of a training run: checked once, written as JSON."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from smnn.training._errors import ConfigError

Optimizer = Literal["adam", "adamw"]
Schedule = Literal["constant", "cosine", "one-cycle", "plateau"]
Precision = Literal["float64", "float32", "bf16", "tf32"]
Accelerator = Literal["auto", "cpu", "cuda"]

# Where and how often, not what: a run may be resumed with other values of these.
_FREE = frozenset({
    "accumulate", "devices", "nodes", "accelerator", "workers", "graphed",
    "find_unused_parameters", "log_every", "tensorboard", "checkpoint_every", "keep_last",
})  # fmt: skip
_LENGTH = frozenset({"epochs", "max_steps"})


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Everything that decides how a task is trained.

    The curve of the loss depends on what is set here, but not on `devices`, `nodes`, `workers` and
    `accumulate` (up to rounding): `batch_size` counts the samples of one optimiser step over all
    processes and passes.
    """

    epochs: int | None = None
    """Passes over the training data. Give this, `max_steps`, or both (the first to be reached)."""
    max_steps: int | None = None
    """Optimiser steps."""
    batch_size: int = 64
    """Samples of one optimiser step, over all processes and all passes of `accumulate`."""
    accumulate: int = 1
    """Passes in which the batch of a step goes through the model, to save memory."""
    drop_last: bool = False
    """Leave out the last batch of an epoch where it is not full."""
    optimizer: Optimizer = "adam"
    """`"adam"` or `"adamw"` (decoupled weight decay)."""
    lr: float = 1e-3
    """Learning rate; the highest that the schedule reaches."""
    weight_decay: float = 0.0
    """As the optimiser understands it."""
    schedule: Schedule = "constant"
    """`"constant"`, `"cosine"`, `"one-cycle"`, or `"plateau"`: lowered when `monitor` stalls."""
    warmup_steps: int = 0
    """Steps over which the rate rises linearly from `lr / warmup_steps`; not for one-cycle."""
    final_lr: float = 0.0
    """Where the cosine ends, as a fraction of `lr`."""
    plateau_patience: int = 10
    """Evaluations without improvement after which the plateau schedule lowers the rate."""
    plateau_factor: float = 0.5
    """What it multiplies the rate by."""
    clip: float | None = None
    """Largest norm of the whole gradient."""
    ema: float | None = None
    """Decay of an exponential moving average of the weights, which is then what is evaluated."""
    monitor: str = "loss"
    """Scalar that decides on the best weights, early stopping and plateaus; smaller is better."""
    evaluate_every: int = 1
    """Epochs from one evaluation to the next."""
    patience: int | None = None
    """Stop after this many evaluations without improvement."""
    min_delta: float = 0.0
    """What counts as an improvement, for `patience` and plateaus."""
    seed: int = 0
    """Decides the order of the data and every random number."""
    precision: Precision = "float64"
    """Of the network. The solver works in float64 inside whatever this is."""
    devices: int = 1
    """Processes on each node; each has one device."""
    nodes: int = 1
    """Machines."""
    accelerator: Accelerator = "auto"
    """`"auto"` is CUDA where there is a device."""
    workers: int = 0
    """Processes that load data, for each training process."""
    graphed: Literal["auto"] | bool = "auto"
    """Record the step as a CUDA graph: `"auto"` for tasks that are `capturable`, `True` for any."""
    find_unused_parameters: bool = False
    """For several processes, when some parameters do not take part in every loss."""
    log_every: int = 10
    """Steps from one row of the log to the next."""
    tensorboard: bool = True
    """Also log for TensorBoard."""
    checkpoint_every: int = 1000
    """Steps from one checkpoint to the next. One is written at the end in any case."""
    keep_last: int = 2
    """Checkpoints that are kept, besides the best weights."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check_type(field.name, getattr(self, field.name))
        for name, options in _CHOICES.items():
            _check(name, getattr(self, name), getattr(self, name) in options, _one_of(options))
        for name, (low, high, words) in _RANGES.items():
            value = getattr(self, name)
            _check(name, value, value is None or low <= value < high, words)
        if self.epochs is None and self.max_steps is None:
            raise ConfigError("neither epochs nor max_steps is given; say how long to train.")
        if self.accumulate > self.batch_size:
            raise ConfigError(
                f"accumulate: got {self.accumulate}; expected at most batch_size, which is "
                f"{self.batch_size}."
            )
        if self.schedule == "one-cycle" and self.warmup_steps:
            raise ConfigError(
                "warmup_steps: one-cycle has a warm-up of its own; set warmup_steps to 0."
            )

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainConfig:
        """The other way round.

        Raises:
            ConfigError: A name does not exist, or a value cannot be used.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        for name in values:
            if name not in names:
                near = difflib.get_close_matches(name, names, n=1)
                hint = f"did you mean {near[0]}?" if near else f"There are: {', '.join(names)}."
                raise ConfigError(f"there is no setting {name!r}; {hint}")
        return cls(**values)

    def replace(self, **changes: Any) -> TrainConfig:
        """A copy with other values."""
        return self.from_dict({**self.to_dict(), **changes})

    def identity(self) -> dict[str, Any]:
        """The settings that a resumed run must share with the run it continues.

        How long to train is among them only where the schedule depends on it.
        """
        free = _FREE if self.schedule in ("cosine", "one-cycle") else _FREE | _LENGTH
        return {name: value for name, value in self.to_dict().items() if name not in free}


def digest_of(record: Mapping[str, Any]) -> str:
    """SHA-256 of a record, independent of the order of its keys."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


_CHOICES: dict[str, tuple[object, ...]] = {
    "optimizer": get_args(Optimizer),
    "schedule": get_args(Schedule),
    "precision": get_args(Precision),
    "accelerator": get_args(Accelerator),
    "graphed": ("auto", True, False),
}
_INF = math.inf
_TINY = 5e-324  # the smallest number above zero: "low <= x" then means "positive"
_RANGES: dict[str, tuple[float, float, str]] = {
    "epochs": (1, _INF, "at least 1"),
    "max_steps": (1, _INF, "at least 1"),
    "batch_size": (1, _INF, "at least 1"),
    "accumulate": (1, _INF, "at least 1"),
    "lr": (_TINY, _INF, "a positive number"),
    "weight_decay": (0, _INF, "a number that is not negative"),
    "warmup_steps": (0, _INF, "a number that is not negative"),
    "final_lr": (0, 1, "a fraction of lr, 0 <= final_lr < 1"),
    "plateau_patience": (0, _INF, "a number that is not negative"),
    "plateau_factor": (_TINY, 1, "a factor, 0 < plateau_factor < 1"),
    "clip": (_TINY, _INF, "a positive number, or null for none"),
    "ema": (0, 1, "a decay, 0 <= ema < 1, or null for none"),
    "evaluate_every": (1, _INF, "at least 1"),
    "patience": (1, _INF, "at least 1, or null for none"),
    "min_delta": (0, _INF, "a number that is not negative"),
    "seed": (0, 2**63, "0 <= seed < 2**63"),
    "devices": (1, _INF, "at least 1"),
    "nodes": (1, _INF, "at least 1"),
    "workers": (0, _INF, "a number that is not negative"),
    "log_every": (1, _INF, "at least 1"),
    "checkpoint_every": (1, _INF, "at least 1"),
    "keep_last": (1, _INF, "at least 1"),
}
_WHOLE = frozenset({
    "epochs", "max_steps", "batch_size", "accumulate", "warmup_steps", "plateau_patience",
    "evaluate_every", "patience", "seed", "devices", "nodes", "workers", "log_every",
    "checkpoint_every", "keep_last",
})  # fmt: skip
_FLAGS = frozenset({"drop_last", "tensorboard", "find_unused_parameters"})
_MAY_BE_NONE = frozenset({"epochs", "max_steps", "clip", "ema", "patience"})


def _check_type(name: str, value: object) -> None:
    """JSON and the command line know no types, so every value is looked at."""
    if value is None and name in _MAY_BE_NONE:
        return
    if name in _FLAGS:
        _check(name, value, isinstance(value, bool), "true or false")
    elif name in _WHOLE:
        whole = isinstance(value, int) and not isinstance(value, bool)
        _check(name, value, whole, "a whole number")
    elif name in _RANGES:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        # Compared, since a whole number may be too large to be a float.
        finite = number and -sys.float_info.max <= value <= sys.float_info.max  # type: ignore[operator]
        _check(name, value, finite, "a finite number")
    elif name == "monitor":
        _check(name, value, isinstance(value, str) and bool(value), "the name of a scalar")


def _check(name: str, value: object, holds: bool, expected: str) -> None:
    if not holds:
        raise ConfigError(f"{name}: got {value!r}; expected {expected}.")


def _one_of(options: tuple[object, ...]) -> str:
    return "one of " + ", ".join(repr(option) for option in options)
