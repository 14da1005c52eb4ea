"""Training steps recorded as a CUDA graph: one launch instead of hundreds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from smnn.training._data import map_tensors, tensors_in


class GraphedStep:
    """Run a training step eagerly a few times, then record it as a CUDA graph and replay it.

    The first calls are ordinary steps on a side stream: they compile kernels, load libraries and
    create the state of the optimizer, none of which is possible during recording. Every call makes
    exactly one step, so a run gives the same numbers with and without recording.

    Args:
        step: Makes one whole step for a batch (gradients, update) and returns tensors. It must not
            synchronize with the device, and its optimizer must be `capturable`.
        forget_gradients: Sets all gradients to `None`, so that they are allocated by the graph.
        warmup: Number of eager calls before recording.
    """

    def __init__(
        self, step: Callable[[Any], Any], forget_gradients: Callable[[], None], *, warmup: int = 3,
    ) -> None:  # fmt: skip
        self.reason: str | None = None
        """Why all further steps run eagerly; `None` if they are recorded or may still be."""
        self.replayed = 0
        """Number of steps replayed from the graph."""
        self.other_shapes = 0
        """Number of eager steps whose batch had other shapes than the recorded one."""
        self._step, self._forget_gradients = step, forget_gradients
        self._warmup_left = max(1, warmup)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._stream: torch.cuda.Stream | None = None
        self._layout: Any = None
        self._inputs: Any = None
        self._output: Any = None

    def __call__(self, batch: Any) -> Any:
        """Make a step. The returned tensors may be overwritten by the next call."""
        if self.reason is None:
            self.reason = _why_not(batch)
        if self.reason is not None:
            return self._step(batch)
        layout = _layout(batch)
        if self._layout is None:
            self._layout = layout
        if layout != self._layout:
            self.other_shapes += 1
            return self._on_side_stream(batch)
        if self._warmup_left:
            self._warmup_left -= 1
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
        """Discard the graph; the next step records a new one. Required if the model has changed."""
        self._graph = self._inputs = self._output = None

    def _warm_up(self, batch: Any) -> Any:
        if self._warmup_left:
            return self._on_side_stream(batch)
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")  # raises on operations that cannot be recorded
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
        """Run on the stream of the graph: gradients must always accumulate on the same stream."""
        if self._stream is None:
            self._stream = torch.cuda.Stream()
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            out = self._step(batch)
        current.wait_stream(self._stream)
        return out

    def _record(self, batch: Any) -> bool:
        self._inputs = map_tensors(Tensor.clone, batch)
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
            torch.cuda.set_stream(current)  # a failed recording may leave its own stream current
            self._forget_gradients()
            torch.cuda.synchronize()
            return False
        self._graph = graph
        return True


def _why_not(batch: Any) -> str | None:
    if not torch.cuda.is_available():
        return "there is no CUDA device"
    found = list(tensors_in(batch))
    if not found:
        return "the batch contains no tensors"
    if not all(x.is_cuda for _, x in found):
        return "the batch is not on a CUDA device"
    return None


def _layout(batch: Any) -> Any:
    """Return what a graph depends on: shapes, and all values that are not tensors."""
    if isinstance(batch, Tensor):
        return batch.shape, batch.dtype, batch.device
    if isinstance(batch, dict):
        return {key: _layout(value) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return [_layout(value) for value in batch]
    return batch
