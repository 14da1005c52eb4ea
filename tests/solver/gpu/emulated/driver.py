"""The driver of an emulated device, for kernels that C++ launches."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from solver.gpu.emulated.device import emulated, run
from solver.gpu.emulated.memory import Memory
from solver.internals import GpuBackend, Kernel, launcher, plan

FAILED, NO_CONTEXT = 700, 201
CURRENT = 7
"""The current stream."""
LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p,
)  # fmt: skip
STREAM = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
CONTEXT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))
CONTEXT_OF = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int)
SET_CONTEXT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class Anywhere(Memory):
    """All memory of the process: memory that C++ requests from PyTorch is not known here."""

    _whole = np.ctypeslib.as_array((ctypes.c_uint64 * (2**44 - 1)).from_address(8))

    def lend(self, *tensors: Tensor) -> None:
        """Nothing to remember."""

    def words(self, addresses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Every word has a place."""
        return self._whole, (addresses >> np.uint64(3)).astype(np.int64) - 1


class Driver:
    """Driver functions, which identify kernels by number."""

    def __init__(self) -> None:
        self.memory, self.launched = Anywhere(), list[str]()
        self.error: Exception | None = None
        self.refused = ""
        """Name of a kernel that fails to launch."""
        self.contexts: dict[int, int] = {}
        """The context of each thread that has one."""
        self._kernels: list[tuple[Kernel, int, int]] = []
        self._functions: dict[str, Any] = {
            "launch": LAUNCH(self._launch),
            "stream": STREAM(lambda index, out: self._give(out, CURRENT)),
            "context": CONTEXT(
                lambda out: self._give(out, self.contexts.get(threading.get_ident(), 0))
            ),
            "context_of": CONTEXT_OF(lambda out, device: self._give(out, 4321)),
            "set_context": SET_CONTEXT(self._set_context),
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

    def _set_context(self, context: int) -> int:
        self.contexts[threading.get_ident()] = context
        return 0

    def _launch(self, number: int, grid: int, *rest: Any) -> int:
        if threading.get_ident() not in self.contexts:
            return NO_CONTEXT  # a real driver may end the process
        kernel, width, shared = self._kernels[number - 1]
        if kernel.name == self.refused:
            return FAILED
        *others, parameters, extra = rest
        try:
            assert others == [1, 1, width, 1, 1, shared, CURRENT]
            assert extra is None
            words = ctypes.POINTER(ctypes.c_int64)
            values = [ctypes.cast(x, words)[0] for x in parameters[: len(kernel.arguments)]]
            run(kernel, width, grid, values, self.memory)
        except Exception as error:  # a callback cannot raise
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
        torch.cuda: {"device": lambda index: nullcontext()},
    }
    with ExitStack() as stack:
        stack.enter_context(emulated(driver.memory))
        for what, how in replaced.items():
            stack.enter_context(mock.patch.multiple(what, **how))
        plan._plans.clear()  # plans hold addresses of the driver's functions
        stack.callback(plan._plans.clear)
        yield driver
