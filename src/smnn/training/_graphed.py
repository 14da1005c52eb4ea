"""A training step recorded as a CUDA graph: one launch instead of hundreds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from smnn.training._config import TrainConfig
from smnn.training._processes import Processes
from smnn.training._sampling import tensors_in
from smnn.training._task import Task


def obstacle(task: Task, config: TrainConfig, processes: Processes) -> str | None:
    """Why the steps of a run are not recorded; `None` if they can be tried."""
    if config.graphed is False:
        return "graphed is off"
    if processes.device.type != "cuda":
        return "there is no CUDA device"
    if processes.world > 1:
        return f"there are {processes.world} processes"
    if config.accumulate > 1:
        return f"accumulate is {config.accumulate}"
    if config.graphed == "auto" and not task.capturable:
        return f"{type(task).__name__} does not say that it is capturable"
    return None


class GraphedStep:
    """Runs a training step eagerly a few times, then records it and replays the record.

    The first calls are ordinary steps on a side stream: they bring kernels, libraries and the state
    of the optimiser into being, which must not happen while recording. Every call makes exactly one
    step, so a run gives the same numbers with and without recording.

    Args:
        step: Makes one whole step for a batch (gradients, update) and returns tensors. It must not
            wait for the device, and its optimiser must be `capturable`.
        forget_gradients: Sets all gradients to `None`; they are then made inside the record.
        warmup: Calls before recording.
    """

    def __init__(
        self,
        step: Callable[[Any], Any],
        forget_gradients: Callable[[], None],
        *,
        warmup: int = 3,
    ) -> None:
        self.reason: str | None = None
        """Why steps run eagerly for good; `None` while they are recorded or still may be."""
        self.replayed = 0
        """Steps that ran from the record."""
        self.other_shapes = 0
        """Steps that ran eagerly because their batch had other shapes than the recorded one."""
        self._step, self._forget_gradients = step, forget_gradients
        self._left = max(1, warmup)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._stream: torch.cuda.Stream | None = None
        self._layout: Any = None
        self._inputs: Any = None
        self._output: Any = None

    def __call__(self, batch: Any) -> Any:
        """Make a step. What is returned may be overwritten by the next call."""
        if self.reason is None:
            self.reason = _obstacle(batch)
        if self.reason is not None:
            return self._step(batch)
        layout = _layout(batch)
        if self._layout is None:
            self._layout = layout
        if layout != self._layout:
            self.other_shapes += 1
            return self._on_side_stream(batch)
        if self._left:
            self._left -= 1
            return self._warm_up(batch)
        if self._graph is None and not self._record(batch):
            return self._step(batch)
        assert self._graph is not None
        for (_, static), (_, new) in zip(tensors_in(self._inputs), tensors_in(batch)):
            static.copy_(new, non_blocking=True)
        self._graph.replay()
        self.replayed += 1
        return self._output

    def forget(self) -> None:
        """Drop the record; the next step makes a new one. For when the model itself has changed."""
        self._graph = self._inputs = self._output = None

    def _warm_up(self, batch: Any) -> Any:
        if self._left:
            return self._on_side_stream(batch)
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")  # finds what cannot be recorded, without recording
        try:
            return self._on_side_stream(batch)
        except RuntimeError as error:
            if "synchroniz" not in str(error):
                raise
            self.reason = "the step waits for the device (check=True in smnn.solve, .item(), ...)"
        finally:
            torch.cuda.set_sync_debug_mode(before)
        return self._step(batch)

    def _on_side_stream(self, batch: Any) -> Any:
        """The stream of the record, so that gradients are always accumulated on the same one."""
        if self._stream is None:
            self._stream = torch.cuda.Stream()
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            out = self._step(batch)
        current.wait_stream(self._stream)
        return out

    def _record(self, batch: Any) -> bool:
        self._inputs = _copied(batch)
        self._forget_gradients()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        current = torch.cuda.current_stream()
        try:
            with torch.cuda.graph(graph, stream=self._stream):
                self._output = self._step(self._inputs)
        except RuntimeError as error:
            self.reason = f"the step cannot be recorded: {str(error).splitlines()[0]}"
            self._inputs = self._output = None
            torch.cuda.set_stream(current)  # a recording that ends in an error may not do this
            self._forget_gradients()
            torch.cuda.synchronize()
            return False
        self._graph = graph
        return True


def _obstacle(batch: Any) -> str | None:
    if not torch.cuda.is_available():
        return "there is no CUDA device"
    found = list(tensors_in(batch))
    if not found:
        return "the batch holds no tensors"
    if not all(x.is_cuda for _, x in found):
        return "the batch is not on a CUDA device"
    return None


def _layout(batch: Any) -> Any:
    """What must be the same for a record to fit: shapes, and everything that is not a tensor."""
    if isinstance(batch, Tensor):
        return batch.shape, batch.dtype, batch.device
    if isinstance(batch, dict):
        return {key: _layout(value) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return [_layout(value) for value in batch]
    return batch


def _copied(batch: Any) -> Any:
    """The same structure around tensors of its own."""
    if isinstance(batch, Tensor):
        return batch.clone()
    if isinstance(batch, dict):
        return {key: _copied(value) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_copied(value) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(_copied(value) for value in batch)
    return batch
