"""The driver of an emulated device, for what C++ launches."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from torch import Tensor

from solver.gpu.emulated.device import emulated, run
from solver.gpu.emulated.memory import Memory
from solver.gpu.pretended_driver import CONTEXT, CONTEXT_OF, LAUNCH, SET_CONTEXT, STREAM
from solver.internals import GpuBackend, Kernel, launcher

FAILED = 700
CURRENT = 7
"""The current stream."""


class Anywhere(Memory):
    """All memory of the process: who asks PyTorch for some does not say so here."""

    _whole = np.ctypeslib.as_array((ctypes.c_uint64 * (2**44 - 1)).from_address(8))

    def lend(self, *tensors: Tensor) -> None:
        """Nothing to remember."""

    def words(self, addresses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Every word has a place."""
        return self._whole, (addresses >> np.uint64(3)).astype(np.int64) - 1


class Driver:
    """Functions of the driver, which know kernels by number."""

    def __init__(self) -> None:
        self.memory, self.launched = Anywhere(), list[str]()
        self.error: Exception | None = None
        self._kernels: list[tuple[Kernel, int, int]] = []
        self._functions: dict[str, Any] = {
            "launch": LAUNCH(self._launch),
            "stream": STREAM(lambda index, out: self._give(out, CURRENT)),
            "context": CONTEXT(lambda out: self._give(out, 1)),
            "context_of": CONTEXT_OF(lambda out, device: FAILED),
            "set_context": SET_CONTEXT(lambda context: FAILED),
        }

    def functions(self) -> dict[str, int | None]:
        """Their addresses."""
        return {name: ctypes.cast(f, ctypes.c_void_p).value for name, f in self._functions.items()}

    def load(self, kernel: Kernel, width: int) -> Any:
        """As `Kernel.on`."""
        metadata = kernel.compiled_for(90, width).metadata
        self._kernels.append((kernel, width, metadata.shared))
        return SimpleNamespace(function=len(self._kernels), metadata=metadata)

    @staticmethod
    def _give(out: Any, value: int) -> int:
        out[0] = value
        return 0

    def _launch(self, number: int, grid: int, *rest: Any) -> int:
        kernel, width, shared = self._kernels[number - 1]
        *others, parameters, extra = rest
        try:
            assert others == [1, 1, width, 1, 1, shared, CURRENT]
            assert extra is None
            words = ctypes.POINTER(ctypes.c_int64)
            values = [ctypes.cast(x, words)[0] for x in parameters[: len(kernel.arguments)]]
            run(kernel, width, grid, values, self.memory)
        except Exception as error:  # from a callback, none would come through
            self.error = error
            return FAILED
        self.launched.append(kernel.name)
        return 0


@contextmanager
def driven(module: ModuleType | None) -> Iterator[Driver]:
    """Solves of the `gpu` backend on tensors of the CPU, launched from C++ if that is compiled."""
    driver = Driver()
    replaced: dict[Any, dict[str, Any]] = {
        GpuBackend: {"unavailable": lambda self, device=None, n=1: None},
        Kernel: {"on": lambda self, device, width: driver.load(self, width)},
        launcher: {"native": lambda: module, "cuda_functions": driver.functions},
    }
    with emulated(driver.memory):
        patches = [mock.patch.multiple(what, **how) for what, how in replaced.items()]
        for patch in patches:
            patch.start()
        try:
            yield driver
        finally:
            for patch in patches:
                patch.stop()
