"""Exceptions of training."""

from __future__ import annotations

from smnn.errors import SmnnError


class ConfigError(SmnnError, ValueError):
    """A setting is invalid, or does not fit the task or the data."""


class TrainingError(SmnnError, RuntimeError):
    """Training cannot continue."""


class NonFiniteError(TrainingError):
    """A loss or a gradient is NaN or infinite."""


class CheckpointError(TrainingError):
    """A checkpoint is damaged, has another format, or belongs to another run."""


class Interrupted(SystemExit):
    """A signal stopped training after a checkpoint was written.

    If it is not caught, the program ends with the usual exit code of the signal and without a
    traceback.
    """

    def __init__(self, signal_number: int, checkpoint: str, code: int) -> None:
        super().__init__(code)
        self.signal_number = signal_number
        self.checkpoint = checkpoint
