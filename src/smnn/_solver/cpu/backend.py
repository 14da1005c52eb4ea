"""The `cpu` backend: Numba kernels, threaded over the batch or over pieces of time."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smnn._solver.cpu import layout
from smnn._solver.cpu.layout import Sizes, W, record
from smnn._solver.diagnostics import DOUBTFUL_PIVOT, Diagnostics, diagnosed
from smnn._solver.plan import Backend, Plan, Solved, in_memory, is_zero_tensor, refuse_zeros
from smnn._solver.problem import Problem
from smnn._solver.rows import link_rows, smoothness_top, taylor
from smnn._solver.tracing import constant

SHORTEST_PIECE = 24  # Minimum number of times per piece; below, the overhead exceeds the gain
HUGE = 2**22  # Bytes from which NumPy requests huge pages and PyTorch does not
LEAST_WORK = 4e4  # Operations below which threading does not pay off

_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}


@constant
def _threads() -> int:
    return torch.get_num_threads()


def _in_threads(kernel: Callable[..., Any], which: int, count: int, work: float) -> None:
    """Run `kernel(which, first, last)` over `0..count`, threaded if there is enough work."""
    threads = 1 if work < LEAST_WORK else min(_threads(), count, int(2 * work / LEAST_WORK))
    if threads <= 1:
        kernel(which, 0, count)
        return
    key = os.getpid(), threads  # a forked process has no threads of its parent
    if key not in _pools:
        _pools[key] = ThreadPoolExecutor(threads, thread_name_prefix="smnn")
    bounds = [count * i // threads for i in range(threads + 1)]
    jobs = [_pools[key].submit(kernel, which, a, b) for a, b in itertools.pairwise(bounds[1:])]
    kernel(which, bounds[0], bounds[1])
    for job in jobs:
        job.result()


def _allocate(shape: Any) -> Tensor:
    return torch.from_numpy(np.empty(shape))


class CpuPlan(Plan):
    """Kernels with the sizes, strides and constant weights of one layout."""

    status_is_final = True

    def __init__(self, backend: CpuBackend, problem: Problem, pieces: int) -> None:
        super().__init__(backend, problem, pieces)
        sizes = self._sizes = Sizes(problem.y_shape, problem.reach, pieces)
        self._shape = problem.y_shape
        self._small = sizes.work < LEAST_WORK
        self._own: list[torch.Size | None] | None = None
        self._shapes = [x.shape for x in problem.tensors]
        self._weights = [x.detach() for x in problem.tensors[4:]]
        layouts = [(x.shape, x.stride()) for x in problem.tensors[:4]]
        known = [(x.shape, x.stride(), x.data_ptr()) for x in self._weights]
        records: list[Any] = [*layouts, *known, (self._shape, (0,) * 4)]
        numbers = sizes.notes() + [i for x in records for i in record(*x)]
        self._notes: np.ndarray = np.array(numbers, np.int64)

    @functools.cached_property
    def _forward(self) -> functools.partial[int]:
        from smnn._solver.cpu.kernels import forward

        w_smooth = self._weights[2]
        # Passed to the kernels by address, so they must live as long as the plan.
        self._links = [*link_rows(w_smooth, self.problem.scheme), w_smooth[..., -1]]
        links = [i for x in self._links for i in record(x.shape, x.stride(), x.data_ptr())]
        self._all_notes = np.array([*self._notes, *links], np.int64)
        return functools.partial(forward, self._all_notes.ctypes.data)

    @functools.cached_property
    def _backward(self) -> functools.partial[None]:
        from smnn._solver.cpu.kernels import backward

        return functools.partial(backward, self._notes.ctypes.data)

    @functools.cached_property
    def _taylor(self) -> tuple[int, int]:
        """Address of the negative Taylor matrix and its inverse; number of Taylor orders."""
        R = self._shape[3] - 1
        self._both = -np.concatenate([taylor(R, sign).numpy().ravel() for sign in (1, -1)])
        return self._both.ctypes.data, smoothness_top(R, self.problem.scheme)

    def solve(self, tensors: Sequence[Tensor] = ()) -> Solved:
        c, d, u, s, *_ = tensors or self.problem.tensors
        sizes, B = self._sizes, self._shape[0]
        y, factor, scratch = (
            _allocate(self._shape),
            _allocate(sizes.factor),
            _allocate(sizes.scratch),
        )
        both = np.empty((2, B))
        rcond, weakest = both[0], both[1].view(np.int64)
        found_at = torch.from_numpy(both).data_ptr()
        call = (
            c.data_ptr(), d.data_ptr(), u.data_ptr(), s.data_ptr(), y.data_ptr(),
            factor.data_ptr(), scratch.data_ptr(), found_at, found_at + 8 * B, DOUBTFUL_PIVOT,
        )  # fmt: skip
        refuse_zeros((c, d, u, s))
        if self._small or _threads() == 1:
            found = self._forward(*call, layout.SOLVE, 0, 0)
        else:
            kernel = functools.partial(self._forward, *call)
            _in_threads(kernel, layout.ELIMINATE, sizes.groups, sizes.work)
            _in_threads(kernel, layout.CHAIN, B, B * sizes.P * sizes.k**3)
            _in_threads(kernel, layout.SUBSTITUTE, sizes.groups, sizes.work / sizes.n)
            found = kernel(layout.CHECK | layout.CHECK_INITIAL, 0, 0)
        started = bool(found & layout.STARTED)
        if found & layout.FINE:
            return Solved(y, factor, Diagnostics(None, rcond, weakest, True, started))
        problem = self.fit([x.detach() for x in (c, d, u, s)])
        problem = Problem.of([*problem.tensors[:4], *self._weights], problem.scheme)
        pivots = torch.from_numpy(rcond), torch.from_numpy(weakest)
        solved = diagnosed(self, problem, y, factor, *pivots)
        return solved._replace(diagnostics=solved.diagnostics._replace(started=started))

    def adjoint(self, factor: Tensor, g: Tensor) -> Tensor:
        _check_memory(factor)
        x = _allocate(self._shape)
        half = layout.LOAD | layout.SEPARATE
        self._derive(half | layout.ADJOINT, (0,) * 5, factor, g, x, (0,) * 7)
        return x

    def gradients(
        self, tensors: Sequence[Tensor], y: Tensor, factor: Tensor, gy: Tensor,
        wanted: Sequence[bool], into: Sequence[Tensor | None] = (),
    ) -> list[Tensor | None]:  # fmt: skip
        """Back substitution of the adjoint solve, fused with the row gradients."""
        phases, lam = layout.LOAD | layout.SEPARATE | layout.ROWS, None
        if self._has_central(wanted):
            phases, lam = phases | layout.CENTRAL, _allocate(self._shape)
        return self._rows(phases, tensors, y, factor, gy, lam, wanted, into)

    def row_gradients(
        self, tensors: Sequence[Tensor], y: Tensor, lam: Tensor, wanted: Sequence[bool]
    ) -> list[Tensor | None]:
        central = self._has_central(wanted)
        phases = layout.ROWS | layout.CENTRAL if central else layout.ROWS
        return self._rows(phases, tensors, y, None, y, lam, wanted)

    def _has_central(self, wanted: Sequence[bool]) -> bool:
        """Whether central rows contribute to the requested gradients."""
        return self.problem.scheme == "central" and (wanted[3] or any(wanted[6:]))

    def _rows(
        self, phases: int, tensors: Sequence[Tensor], y: Tensor, factor: Tensor | None, gy: Tensor,
        lam: Tensor | None, wanted: Sequence[bool], into: Sequence[Tensor | None] = (),
    ) -> list[Tensor | None]:  # fmt: skip
        """Gradients; without a factor, `lam` is the adjoint solution."""
        c, d, u, s, *_ = tensors
        if self._own is None:
            found = [_own_shape(x, like) for x, like in zip((c, d, u, s), self._shapes)]
            self._own = [*found, *self._shapes[4:]]
        grads = [*into] if into else [
            None if not w else _allocate(own) if own else torch.empty_like(x)
            for w, own, x in zip(wanted, self._own, (c, d, u, s, *self._weights))
        ]  # fmt: skip
        inputs = c.data_ptr(), d.data_ptr(), u.data_ptr(), s.data_ptr(), y.data_ptr()
        refuse_zeros((c, d, u, s))
        places = [0 if g is None else g.data_ptr() for g in grads]
        places += (0,) * (7 - len(places))
        self._derive(phases, inputs, factor, gy, lam, places)
        del c, d, u, s, tensors, y  # see `_derive`
        return grads

    def _derive(
        self, phases: int, inputs: Sequence[int], factor: Tensor | None, g: Tensor,
        lam: Tensor | None, grads: Sequence[int],
    ) -> None:  # fmt: skip
        if g.is_neg() or is_zero_tensor(g):
            g = in_memory(g)
        if type(g) is not Tensor or g.dtype is not torch.float64:
            _check_memory(g)
            g = torch.from_numpy(g.numpy(force=True))
        sizes = self._sizes
        scratch = _allocate(sizes.scratch)
        call = (
            *inputs, 0 if factor is None else factor.data_ptr(), g.data_ptr(), *g.stride(),
            scratch.data_ptr(), *self._taylor, 0 if lam is None else lam.data_ptr(), *grads,
        )  # fmt: skip
        if self._small or _threads() == 1:
            self._backward(*call, phases, 0, 0)
        else:
            kernel = functools.partial(self._backward, *call)
            light = sizes.work / sizes.n
            for which, count, work in (
                (layout.LOAD, sizes.groups, light),
                (layout.SEPARATE, sizes.B, sizes.B * sizes.P * sizes.k**2),
                (layout.ADJOINT, sizes.groups, light),
                (layout.ROWS, sizes.groups, sizes.work),
                (layout.CENTRAL, sizes.B, light),
            ):
                if phases & which:
                    _in_threads(kernel, which, count, work)
        del factor, g, scratch, lam  # alive until here: compiled autograd drops unused names


def _own_shape(x: Tensor, shape: torch.Size) -> torch.Size | None:
    """Shape of the gradient of `x`, unless that is broadcast; `None` for `empty_like(x)`."""
    if x.numel() != shape.numel():
        return shape
    return None if x.is_contiguous() and 8 * x.numel() < HUGE else x.shape


def _check_memory(*tensors: Tensor) -> None:
    """Raise an error for tensors whose memory the kernels cannot read."""
    for x in tensors:
        if x.dtype is not torch.float64 or x.device.type not in ("cpu", "meta"):
            raise RuntimeError(
                f"cpu backend: got {x.dtype} on {x.device}; expected torch.float64 on the CPU. "
                "If a hook unpacks saved tensors, it has to give them back as they were."
            )


class CpuBackend(Backend):
    """Givens elimination in SIMD lanes (`eliminate.py`)."""

    name = "cpu"

    def unavailable(self, device: torch.device | None = None, n: int = 1) -> str | None:
        """Requires Numba, and tensors on the CPU."""
        del n
        if device is not None:
            on_cpu = device.type == "cpu"
            return None if on_cpu else f"the tensors are on {device}, not on the CPU"
        if importlib.util.find_spec("numba") is None:
            return "numba is not installed; pip install numba"
        return None

    def pieces(self, B: int, T: int, n: int, reach: int) -> int:
        """Fill the lanes of all threads, as long as the pieces are long enough."""
        lanes = W * _threads()
        shortest = max(SHORTEST_PIECE, 4 * reach)
        if B >= W or 2 * shortest > T:
            return 1
        return max(1, min(lanes // max(B, 1), T // shortest))

    def full_load(self, n: int) -> int:
        del n
        return W * _threads()

    def factor_size(self, problem: Problem, pieces: int) -> int:
        """Factors of the lanes, then of the chain of separators."""
        return Sizes(problem.y_shape, problem.reach, pieces).factor

    def plan(self, problem: Problem, pieces: int | None = None) -> CpuPlan:
        _check_memory(*problem.tensors)
        return CpuPlan(self, problem, self.pieces_of(problem) if pieces is None else pieces)

    def row_gradients(
        self, problem: Problem, lam: Tensor, y: Tensor, wanted: Sequence[bool]
    ) -> list[Tensor | None]:
        """Row gradients, in as many pieces as fill the lanes."""
        _check_memory(y, lam)
        B, T = problem.y_shape[:2]
        plan = self.plan(problem, max(1, min(W * _threads() // max(B, 1), T)))
        return plan.row_gradients(problem.tensors, y.contiguous(), lam.contiguous(), wanted)
