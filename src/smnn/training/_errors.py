"""What can go wrong in training."""

from __future__ import annotations


class ConfigError(ValueError):
    """A setting cannot be used."""


class TrainingError(RuntimeError):
    """Training cannot go on."""


class NonFiniteError(TrainingError):
    """A loss or a gradient is NaN or infinite."""


class CheckpointError(TrainingError):
    """A checkpoint is damaged, foreign, or belongs to another run."""


class Interrupted(SystemExit):
    """A signal ended the training after a checkpoint was written.

    Ends the program as the signal would have, with its usual exit code and without a traceback;
    catch it to go on.
    """

    def __init__(self, signal_number: int, checkpoint: str, code: int) -> None:
        super().__init__(code)
        self.signal_number = signal_number
        self.checkpoint = checkpoint
