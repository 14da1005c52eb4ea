"""Settings of a training run, and what `precision` means."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import hashlib
import json
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch

from smnn.training._errors import ConfigError

Optimizer = Literal["adam", "adamw"]
Schedule = Literal["constant", "cosine", "one-cycle", "plateau"]
Precision = Literal["float64", "float32", "bf16", "tf32"]
Accelerator = Literal["auto", "cpu", "cuda"]


def _setting(
    default: Any, *, at_least: float | None = None, above: float | None = None,
    below: float | None = None, may_change: bool = False,
) -> Any:  # fmt: skip
    """Declare a setting: default, range, and whether a resumed run may use another value."""
    limits = {"at_least": at_least, "above": above, "below": below}
    return dataclasses.field(default=default, metadata={**limits, "may_change": may_change})


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Settings of a training run.

    `devices`, `nodes`, `workers` and `accumulate` do not change the loss curve (up to rounding):
    `batch_size` is the number of samples per optimizer step over all processes and passes.
    """

    epochs: int | None = _setting(None, at_least=1)
    """Passes over the training data. Set this, `max_steps`, or both (the smaller limit applies)."""
    max_steps: int | None = _setting(None, at_least=1)
    """Number of optimizer steps."""
    batch_size: int = _setting(64, at_least=1)
    """Samples per optimizer step, over all processes and all passes of `accumulate`."""
    accumulate: int = _setting(1, at_least=1, may_change=True)
    """Number of passes into which a batch is split, to save memory."""
    drop_last: bool = False
    """Skip the last batch of an epoch if it is smaller than `batch_size`."""
    optimizer: Optimizer = "adam"
    """`"adam"` or `"adamw"` (decoupled weight decay)."""
    lr: float = _setting(1e-3, above=0)
    """Peak learning rate."""
    weight_decay: float = _setting(0.0, at_least=0)
    """Weight decay of the optimizer."""
    schedule: Schedule = "constant"
    """Learning rate schedule: `"constant"`, `"cosine"`, `"one-cycle"`, or `"plateau"` (reduced when
    `monitor` stops improving)."""
    warmup_steps: int = _setting(0, at_least=0)
    """Steps of linear warm-up from `lr / warmup_steps`; not with `"one-cycle"`."""
    final_lr: float = _setting(0.0, at_least=0, below=1)
    """Final learning rate of the cosine schedule, as a fraction of `lr`."""
    plateau_patience: int = _setting(10, at_least=0)
    """Evaluations without improvement before the plateau schedule reduces the learning rate."""
    plateau_factor: float = _setting(0.5, above=0, below=1)
    """Factor by which the plateau schedule multiplies the learning rate."""
    clip: float | None = _setting(None, above=0)
    """Maximum norm of the gradient."""
    ema: float | None = _setting(None, at_least=0, below=1)
    """Decay of an exponential moving average of the weights, which is used for evaluation."""
    monitor: str = "loss"
    """Scalar that selects the best weights and drives early stopping and `"plateau"`; lower is
    better."""
    evaluate_every: int = _setting(1, at_least=1)
    """Epochs between evaluations."""
    patience: int | None = _setting(None, at_least=1)
    """Stop after this number of evaluations without improvement."""
    min_delta: float = _setting(0.0, at_least=0)
    """Smallest decrease of `monitor` that counts as an improvement."""
    seed: int = _setting(0, at_least=0, below=2**63)
    """Seed of the data order and of all random numbers."""
    precision: Precision = "float64"
    """Precision of the network. The solver uses float64 internally in any case."""
    devices: int = _setting(1, at_least=1, may_change=True)
    """Processes per node, each with one device."""
    nodes: int = _setting(1, at_least=1, may_change=True)
    """Number of nodes (machines)."""
    accelerator: Accelerator = dataclasses.field(default="auto", metadata={"may_change": True})
    """`"cpu"`, `"cuda"`, or `"auto"`: CUDA if a device is available."""
    workers: int = _setting(0, at_least=0, may_change=True)
    """Data loading processes per training process; 0 loads in the training process."""
    graphed: Literal["auto"] | bool = _setting("auto", may_change=True)
    """Record the step as a CUDA graph: `"auto"` for tasks that are `capturable`, `True` for all."""
    find_unused_parameters: bool = _setting(False, may_change=True)
    """With several processes: allow parameters that do not contribute to every loss."""
    log_every: int = _setting(10, at_least=1, may_change=True)
    """Steps between rows of the log."""
    tensorboard: bool = _setting(True, may_change=True)
    """Write TensorBoard logs as well."""
    checkpoint_every: int = _setting(1000, at_least=1, may_change=True)
    """Steps between checkpoints. The last step is always saved."""
    keep_last: int = _setting(2, at_least=1, may_change=True)
    """Number of recent checkpoints to keep, in addition to the best weights."""

    def __post_init__(self) -> None:
        hints = get_type_hints(TrainConfig)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            expected = _violation(field, hints[field.name], value)
            if expected is not None:
                raise ConfigError(f"{field.name}: got {value!r}; expected {expected}.")
        if self.epochs is None and self.max_steps is None:
            raise ConfigError("the length of training is missing; set epochs, max_steps, or both.")
        if self.accumulate > self.batch_size:
            raise ConfigError(
                f"accumulate: got {self.accumulate}; expected at most batch_size, which is "
                f"{self.batch_size}."
            )
        if self.schedule == "one-cycle" and self.warmup_steps:
            raise ConfigError(
                f"warmup_steps: got {self.warmup_steps}; expected 0 with schedule 'one-cycle', "
                "which includes a warm-up."
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON-compatible values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainConfig:
        """Create settings from a dictionary, the inverse of `to_dict`.

        Raises:
            ConfigError: A name is unknown, or a value is invalid.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        for name in values:
            if name not in names:
                near = difflib.get_close_matches(name, names, n=1)
                hint = f"did you mean {near[0]}?" if near else f"There are: {', '.join(names)}."
                raise ConfigError(f"there is no setting {name!r}; {hint}")
        return cls(**values)

    def replace(self, **changes: Any) -> TrainConfig:
        """Return a copy with some settings changed."""
        return self.from_dict({**self.to_dict(), **changes})

    def changed(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        return {name: x for name, x in self.to_dict().items() if x != defaults[name]}

    def identity(self) -> dict[str, Any]:
        """Return the settings that a resumed run must share with the original run.

        The length of training is included only if the schedule depends on it.
        """
        free = {x.name for x in dataclasses.fields(self) if x.metadata.get("may_change")}
        if self.schedule not in ("cosine", "one-cycle"):
            free |= {"epochs", "max_steps"}
        return {name: value for name, value in self.to_dict().items() if name not in free}


def _violation(field: dataclasses.Field[Any], hint: Any, value: Any) -> str | None:
    """Return a description of the values that a setting accepts, or `None` if this is one."""
    kinds = (hint,) if get_origin(hint) is Literal else get_args(hint) or (hint,)
    optional = " or None (null in JSON)" if NoneType in kinds else ""
    if optional and value is None:
        return None
    choices = [x for kind in kinds if get_origin(kind) is Literal for x in get_args(kind)]
    if bool in kinds:
        choices += [True, False]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if choices:
        valid = any(type(x) is type(value) and x == value for x in choices)
        expected = f"one of {', '.join(map(repr, choices))}"
    elif str in kinds:
        valid, expected = isinstance(value, str) and value != "", "a non-empty string"
    elif int in kinds:
        valid, expected = is_number and isinstance(value, int), "a whole number"
    else:
        # Compared, because a large integer cannot be converted to a float.
        valid = is_number and -sys.float_info.max <= value <= sys.float_info.max
        expected = "a finite number"
    if valid:
        valid, expected = _in_range(field, value)
    return None if valid else expected + optional


def _in_range(field: dataclasses.Field[Any], value: Any) -> tuple[bool, str]:
    at_least, above, below = (field.metadata.get(x) for x in ("at_least", "above", "below"))
    low, strict = (at_least, False) if above is None else (above, True)
    if low is None:
        return True, ""
    valid = (value > low if strict else value >= low) and value < (below or math.inf)
    if below is not None:
        return valid, f"{low} {'<' if strict else '<='} {field.name} < {below}"
    return valid, f"more than {low}" if strict else f"at least {low}"


def digest_of(record: Mapping[str, Any]) -> str:
    """Return the SHA-256 digest of a JSON-compatible record; the order of keys does not matter."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


# ---------------------------------------------------------------- precision


def dtype_of(precision: Precision) -> torch.dtype:
    """Return the dtype of weights and data, which is float32 also for `"bf16"`."""
    return torch.float64 if precision == "float64" else torch.float32


def convert(module: torch.nn.Module, precision: Precision) -> None:
    """Convert real parameters and buffers; integer and complex tensors are not changed."""
    if dtype_of(precision) == torch.float64:
        module.double()
    else:
        module.float()


def autocast(precision: Precision, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    if precision == "bf16":
        return torch.autocast(device.type, torch.bfloat16)
    return contextlib.nullcontext()


@contextlib.contextmanager
def matmul_precision(precision: Precision) -> Iterator[None]:
    """Enable TF32 for float32 matrix products with `"tf32"`, disable it otherwise."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
