"""Failures that come from outside the loop, in words: memory, processes that died."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch

from smnn.training._config import TrainConfig
from smnn.training._errors import TrainingError
from smnn.training._processes import Processes

_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")
_LOST = ("connection closed by peer", "connection reset", "connection refused", "gloo", "nccl",
         "timed out", "socket")  # fmt: skip


@contextlib.contextmanager
def explained(
    config: TrainConfig, processes: Processes, step: int, resume: Callable[[], str]
) -> Iterator[None]:
    """Turn what PyTorch raises for lack of memory or a lost process into a `TrainingError`.

    Args:
        config: Settings, for the advice.
        processes: Of the run.
        step: The step that is being made.
        resume: Says how to go on.
    """
    try:
        yield
    except TrainingError:
        raise
    except (RuntimeError, MemoryError) as error:
        text = str(error).lower()
        if isinstance(error, torch.OutOfMemoryError | MemoryError) or _any(_NO_MEMORY, text):
            raise _out_of_memory(config, processes, step, error, resume()) from error
        if "dataloader worker (pid" in text:  # not "caught ... in dataloader worker process"
            raise TrainingError(
                f"a process that loads data died before step {step} ({_first(error)}). It may have "
                f"run out of memory: use fewer workers (now {config.workers}; 0 loads in the "
                f"training process). {resume()}"
            ) from error
        if processes.world > 1 and _any(_LOST, text):
            raise TrainingError(
                f"process {processes.rank} lost another of the {processes.world} processes of this "
                f"run at step {step} ({_first(error)}). The one that ended first says why. "
                f"{resume()}"
            ) from error
        raise


def _out_of_memory(
    config: TrainConfig, processes: Processes, step: int, error: BaseException, resume: str
) -> TrainingError:
    share = -(-config.batch_size // (processes.world * config.accumulate))
    advice = (
        f"accumulate={min(2 * config.accumulate, config.batch_size)} takes about half of it and "
        "changes no result"
        if share > 1
        else "one sample at a time is the least: use a smaller model or shorter windows"
    )
    return TrainingError(
        f"out of memory on {processes.device} at step {step}, with {share} samples going through "
        f"the model together: {advice}. {resume} ({_first(error)})"
    )


def _any(words: tuple[str, ...], text: str) -> bool:
    return any(word in text for word in words)


def _first(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
