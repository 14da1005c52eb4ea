"""A Python function in the place of `cuLaunchKernel`, for the C++ launcher without a GPU.

The "kernels" are a few lines of NumPy on the addresses they are given. The system they pretend to
solve is `y = c d + u s` (elementwise), so that every gradient is known.
"""

from __future__ import annotations

import ctypes
import threading
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from solver.internals import launcher as gpu_native

PLACES = {name: i for i, name in enumerate(gpu_native.PLACES)}
SOLVE, ADJOINT, ROWS, BACKWARD = 1, 2, 3, 4
APART, HELD, TOGETHER = WAYS = "apart", "held", "together"
"""Of a backward: the adjoint solution in memory of its own, in the scratch, or in no memory."""
N = 6
LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p,
)  # fmt: skip
STREAM = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
CONTEXT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))
CONTEXT_OF = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int)
SET_CONTEXT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
NO_CONTEXT = 201


class Machine:
    """Stands in for the driver."""

    def __init__(
        self,
        module: ModuleType,
        code: int = 0,
        strides: tuple[int, ...] = (1, 1, 1, 1),
        scratch: int = 5,
        *,
        way: str = APART,
    ) -> None:
        self.calls: list[Any] = []
        self.asked: list[int] = []
        self.twice: list[Any] = []
        self.contexts: dict[int, int] = {}  # of each thread that CUDA knows
        self.code, self.strides, self.scratch = code, (*strides[:3], 0), scratch
        self.together = way == TOGETHER
        self.fails = 0
        """Which launch the driver refuses."""
        self._functions: dict[str, Any] = {
            "launch": LAUNCH(self._run),
            "stream": STREAM(self._current),
            "context": CONTEXT(self._context),
            "context_of": CONTEXT_OF(self._context_of),
            "set_context": SET_CONTEXT(self._set_context),
        }
        inputs, outputs = ["c", "d", "u", "s"], ["y", "factor", "rcond", "status", "scratch"]
        self.functions = {
            name: ctypes.cast(f, ctypes.c_void_p).value for name, f in self._functions.items()
        }
        self.plan = module.make(
            {
                "functions": self.functions,
                "solve": [self._describe(SOLVE, [*inputs, *outputs])],
                "y_shape": [N],
                "batch": [N],
                "shapes": [[N]] * 4,
                "strides": [[step] for step in strides],
                "device": "cpu",
                "factor_size": N,
                "scratch_size": scratch,
                "adjoint_scratch": scratch,
                "verdicts": 1,
                "together": way == TOGETHER,
                "held": way == HELD,
                "program_for": self._program_for,
                "differentiable": self._differentiable,
            },
        )

    @staticmethod
    def _describe(which: int, names: list[str]) -> Any:
        slots = [(i + 1, PLACES[name], 0) for i, name in enumerate(names)]
        return which, 7, 32, 0, [which, *[0] * len(names)], slots

    def _program_for(self, mask: int) -> list[Any]:
        if mask == gpu_native.ADJOINT:
            return [self._describe(ADJOINT, ["g", "lam", "scratch"])]
        self.asked.append(mask)
        names = ["c", "d", "u", "s", "gc", "gd", "gu", "gs"]
        if self.together:
            return [self._describe(BACKWARD, ["g", *names, "scratch"])]
        return [self._describe(ROWS, ["lam", *names])]

    def _differentiable(self, tensors: list[Tensor], gy: Tensor, mask: int) -> list[Any]:
        self.twice.append(mask)
        c, d, u, s = tensors
        found = [gy * d, gy * c, gy * s, (gy * u).sum().view(1)]
        return [g if mask >> i & 1 else None for i, g in enumerate(found)]

    @staticmethod
    def _current(index: int, out: Any) -> int:
        out[0] = 1234
        return 0

    def _context(self, out: Any) -> int:
        out[0] = self.contexts.get(threading.get_ident(), 0)
        return 0

    @staticmethod
    def _context_of(out: Any, device: int) -> int:
        out[0] = 4321 + device
        return 0

    def _set_context(self, context: int) -> int:
        assert threading.get_ident() not in self.contexts
        self.contexts[threading.get_ident()] = context
        return 0

    def _run(self, which, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra):  # type: ignore[no-untyped-def]
        count = {SOLVE: 10, ADJOINT: 4, ROWS: 10, BACKWARD: 11}[which]
        values = [
            ctypes.cast(parameters[i], ctypes.POINTER(ctypes.c_int64))[0] for i in range(count + 8)
        ]
        assert values[0] == which
        if threading.get_ident() not in self.contexts:
            return NO_CONTEXT  # a driver may also end the process
        assert (gx, gy, gz, bx, by, bz, shared, stream, extra) == (7, 1, 1, 32, 1, 1, 0, 1234, None)
        assert values[count:] == [0] * 8  # room for what Triton appends
        self.calls.append(which)
        if self.code or which == self.fails:
            return self.code or 700

        def array(i: int, size: int = N, kind: Any = ctypes.c_double) -> np.ndarray:
            return np.ctypeslib.as_array((kind * size).from_address(values[i]))

        def strided(i: int) -> np.ndarray:
            step = self.strides[i - (1 if which == SOLVE else 2)]
            return array(i, N * step)[::step] if step else np.full(N, array(i, 1)[0])

        if which == SOLVE:
            c, d, u, s = (strided(i) for i in range(1, 5))
            y, factor = array(5), array(6)
            y[:], factor[:] = c * d + u * s, 2.0
            array(7)[:] = 0.5
            array(8, kind=ctypes.c_int64)[:] = 0
            array(9, self.scratch)[:] = np.nan
        elif which == ADJOINT:
            if not values[1]:
                return 700  # what a device says of memory that is not there
            array(3, self.scratch)[:] = np.nan
            array(2)[:] = array(1)
        else:
            if which == BACKWARD:
                array(10, self.scratch)[:] = np.nan
            lam, (c, d, u, s) = array(1), (strided(i) for i in range(2, 6))
            for i, g in enumerate((lam * d, lam * c, lam * s, lam * u)):
                if values[6 + i]:
                    array(6 + i)[:] = g
        return 0


def tensors(wanted: str = "cdus") -> list[Tensor]:
    g = torch.Generator().manual_seed(0)
    made = [torch.randn(n, dtype=torch.float64, generator=g) for n in (N, N, N, 1)]
    return [x.requires_grad_(name in wanted) for x, name in zip(made, "cdus", strict=True)]


def expected(c: Tensor, d: Tensor, u: Tensor, s: Tensor) -> Tensor:
    return c * d + u * s
