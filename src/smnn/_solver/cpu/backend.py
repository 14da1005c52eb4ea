"""The `cpu` backend: Numba kernels, threaded over the batch, or over pieces of time."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smnn._solver.base import Backend, Solved, in_memory, refuse_zeros
from smnn._solver.cpu import layout as phase
from smnn._solver.cpu import native as cpu_native
from smnn._solver.cpu.layout import Plan, W, record
from smnn._solver.diagnostics import DOUBTFUL_PIVOT, Verdict
from smnn._solver.problem import Problem
from smnn._solver.taylor import link_rows, smoothness_top, taylor
from smnn._solver.tracing import constant

SHORTEST_PIECE = 24
"""Times per piece below which cutting costs more than it gains."""
HUGE = 2**22
"""Bytes from which NumPy asks for huge pages, where PyTorch does not."""
LEAST_WORK = 4e4
"""Operations below which threads cost more than they gain."""

_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}


@constant
def _threads() -> int:
    """Threads to use, as PyTorch has it."""
    return torch.get_num_threads()


def _in_threads(kernel: Callable[..., Any], which: int, count: int, work: float) -> None:
    """Run `kernel(which, first, last)` over `0..count`, in threads if there is enough work."""
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


def _made(shape: Any) -> Tensor:
    """Memory from NumPy, for huge pages."""
    return torch.from_numpy(np.empty(shape))


class Prepared:
    """A problem's sizes and weights, with all that repeats from call to call worked out.

    Args:
        problem: Whose weights are used; `c, d, u, s` only lend their layout.
        pieces: Into how many pieces of time each sequence is cut.
    """

    def __init__(self, problem: Problem, pieces: int) -> None:
        plan = self._plan = Plan(problem.y_shape, problem.scheme, pieces)
        self._scheme, self._shape = problem.scheme, problem.y_shape
        self._small = plan.work < LEAST_WORK
        self._factor, self._scratch = plan.factor, plan.scratch
        self._own: list[torch.Size | None] | None = None
        self._layouts = [(x.shape, x.stride()) for x in problem[:4]]
        self._shapes = [x.shape for x in problem[:7]]
        self._weights = [x.detach() for x in problem[4:7]]
        known = [(x.shape, x.stride(), x.data_ptr()) for x in self._weights]
        records: list[Any] = [*self._layouts, *known, (self._shape, (0,) * 4)]
        numbers = plan.notes() + [i for x in records for i in record(*x)]
        self._notes: np.ndarray = np.array(numbers, np.int64)

    @functools.cached_property
    def _forward(self) -> functools.partial[int]:
        from smnn._solver.cpu.forward import forward

        w_smooth = self._weights[2]
        self._links = [*link_rows(w_smooth, self._scheme), w_smooth[..., -1]]  # to stay in place
        links = [i for x in self._links for i in record(x.shape, x.stride(), x.data_ptr())]
        self._all_notes = np.array([*self._notes, *links], np.int64)
        return functools.partial(forward, self._all_notes.ctypes.data)

    @functools.cached_property
    def _backward(self) -> functools.partial[None]:
        from smnn._solver.cpu.backward import backward

        return functools.partial(backward, self._notes.ctypes.data)

    @functools.cached_property
    def _taylor(self) -> tuple[int, int]:
        """The negative Taylor matrix and its inverse; how many orders have Taylor rows."""
        R = self._shape[3] - 1
        self._both = -np.concatenate([taylor(R, sign).numpy().ravel() for sign in (1, -1)])
        return self._both.ctypes.data, smoothness_top(R, self._scheme)

    def brief(self, c: Tensor, d: Tensor, u: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Verdict]:
        """`y`, the factor and a word on both, from tensors that lie in memory as noted.

        Eliminate, solve the chain of separators, substitute back, and judge.
        """
        B = self._shape[0]
        y, factor, scratch = _made(self._shape), _made(self._factor), _made(self._scratch)
        both = np.empty((2, B))
        rcond, weakest = both[0], both[1].view(np.int64)
        told = torch.from_numpy(both).data_ptr()
        call = (
            c.data_ptr(), d.data_ptr(), u.data_ptr(), s.data_ptr(), y.data_ptr(),
            factor.data_ptr(), scratch.data_ptr(), told, told + 8 * B, DOUBTFUL_PIVOT,
        )  # fmt: skip
        refuse_zeros((c, d, u, s))
        if self._small or _threads() == 1:
            found = self._forward(*call, phase.SOLVE, 0, 0)
        else:
            plan, kernel = self._plan, functools.partial(self._forward, *call)
            _in_threads(kernel, phase.ELIMINATE, plan.groups, plan.work)
            _in_threads(kernel, phase.CHAIN, B, B * plan.P * plan.k**3)
            _in_threads(kernel, phase.SUBSTITUTE, plan.groups, plan.work / plan.n)
            found = kernel(phase.JUDGE | phase.LOOK, 0, 0)
        if found & phase.FINE:
            return y, factor, Verdict(True, found == phase.FINE | phase.STARTED, rcond, weakest)
        return self._judged((c, d, u, s), y, factor, found, rcond, weakest)

    def _judged(
        self, tensors: Sequence[Tensor], y: Tensor, factor: Tensor, found: int, rcond: np.ndarray,
        weakest: np.ndarray,
    ) -> tuple[Tensor, Tensor, Verdict]:  # fmt: skip
        """What `brief` gives where not all is fine beyond doubt."""
        problem = Problem.of([*self._fit(tensors), *self._weights], self._scheme)
        told = torch.from_numpy(rcond), torch.from_numpy(weakest)
        y, factor, *judged = CpuBackend().settle(problem, self._plan.P, y, factor, *told)
        started = bool(found & phase.STARTED)
        return y, factor, Verdict(False, started, *(x.numpy() for x in judged))

    def native_ready(self) -> bool:
        """Whether `native` gives something, now.

        What is shared out to threads, and what is so large that Python does not matter, stays here.
        """
        if 8 * self._factor >= HUGE or not (self._small or _threads() == 1):
            return False
        return cpu_native.ready()

    def native(
        self, tensors: Sequence[Tensor], signature: Any, derivative: Callable[..., Any]
    ) -> Any:
        """`brief`, followed by autograd, from C++.

        What is given is called with `c, d, u, s` like the ones here, for `ALL` of
        `gpu/native/extension.py`; or with any and how much is wanted, for `None` if they have
        another layout.

        Args:
            tensors: The caller's, for their layout.
            signature: Its `batch` has the axes to sum gradients over where they were broadcast.
            derivative: Gradients in every case, from the signature, `c, d, u, s, y`, factor, the
                gradient by `y`, and which are wanted.
        """
        shapes = zip(tensors, self._shapes, strict=False)
        return cpu_native.make(
            self._forward, self._backward, tensors,
            taylor=self._taylor[0], top=self._taylor[1], central=self._scheme == "central",
            y_shape=list(self._shape), batch=list(signature.batch),
            shapes=[list(x.shape if x.numel() == n.numel() else n) for x, n in shapes],
            factor_size=self._factor, scratch_size=self._scratch, threads=_threads(),
            kept=self, judged=self._judged,
            derivative=functools.partial(derivative, signature),
        )  # fmt: skip

    def solve(self, *tensors: Tensor) -> Solved:
        """The same in tensors."""
        y, factor, verdict = self.brief(*tensors)
        status, rcond, weakest = verdict.tensors()
        return Solved(y, factor, rcond, weakest, status)

    def _fit(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The caller's tensors in their broadcast form."""
        return [
            (x if x.shape == shape else x.as_strided(shape, stride)).detach()
            for x, (shape, stride) in zip(tensors, self._layouts, strict=True)
        ]

    def adjoint(self, factor: Tensor, g: Tensor) -> Tensor:
        """Two substitutions."""
        x = _made(self._shape)
        half = phase.LOAD | phase.SEPARATE
        self._derive(half | phase.ADJOINT, (0,) * 5, factor, g, x, (0,) * 7)
        return x

    def gradients(
        self, tensors: Sequence[Tensor], y: Tensor, factor: Tensor, gy: Tensor,
        wanted: Sequence[bool], into: Sequence[Tensor | None] | None = None,
    ) -> list[Tensor | None]:  # fmt: skip
        """By `c, d, u, s` and, if `wanted` goes on, the weights; `None` where not wanted.

        The second substitution of the adjoint solve and the gradients of the rows are one pass.

        Args:
            tensors: As in `brief`.
            y: The solution, contiguous.
            factor: As `brief` gave it.
            gy: Gradient by the solution.
            wanted: Which gradients to compute.
            into: Contiguous memory for them, of the shapes of `tensors`; else it is made.
        """
        phases, lam = phase.LOAD | phase.SEPARATE | phase.ROWS, None
        if self._central(wanted):
            phases, lam = phases | phase.CENTRAL, _made(self._shape)
        return self._rows(phases, tensors, y, factor, gy, lam, wanted, into)

    def row_gradients(
        self, tensors: Sequence[Tensor], y: Tensor, lam: Tensor, wanted: Sequence[bool]
    ) -> list[Tensor | None]:
        """As `gradients`, with `lam` known, contiguous."""
        phases = phase.ROWS | phase.CENTRAL if self._central(wanted) else phase.ROWS
        return self._rows(phases, tensors, y, None, y, lam, wanted)

    def _central(self, wanted: Sequence[bool]) -> bool:
        """Whether central rows have gradients that are wanted."""
        return self._scheme == "central" and (wanted[3] or any(wanted[6:]))

    def _rows(
        self, phases: int, tensors: Sequence[Tensor], y: Tensor, factor: Tensor | None, gy: Tensor,
        lam: Tensor | None, wanted: Sequence[bool], into: Sequence[Tensor | None] | None = None,
    ) -> list[Tensor | None]:  # fmt: skip
        """Without a factor, `lam` is known."""
        if self._own is None:
            found = [_own(x, shape) for x, shape in zip(tensors, self._shapes, strict=False)]
            self._own = [*found, *self._shapes[4:]]
        grads = [*into] if into is not None else [
            None if not w else _made(own) if own else torch.empty_like(x)
            for w, own, x in zip(wanted, self._own, (*tensors, *self._weights), strict=False)
        ]  # fmt: skip
        c, d, u, s = tensors
        inputs = c.data_ptr(), d.data_ptr(), u.data_ptr(), s.data_ptr(), y.data_ptr()
        refuse_zeros(tensors)
        places = [0 if g is None else g.data_ptr() for g in grads]
        places += (0,) * (7 - len(places))
        self._derive(phases, inputs, factor, gy, lam, places)
        del tensors, y  # see there
        return grads

    def _derive(
        self, phases: int, inputs: Sequence[int], factor: Tensor | None, g: Tensor,
        lam: Tensor | None, grads: Sequence[int],
    ) -> None:  # fmt: skip
        """Inputs and gradients are addresses."""
        if g.is_neg() or g._is_zerotensor():
            g = in_memory(g)
        if type(g) is not Tensor or g.dtype is not torch.float64:
            _refuse_others(g)
            g = torch.from_numpy(g.numpy(force=True))
        scratch = _made(self._scratch)
        call = (
            *inputs, 0 if factor is None else factor.data_ptr(), g.data_ptr(), *g.stride(),
            scratch.data_ptr(), *self._taylor, 0 if lam is None else lam.data_ptr(), *grads,
        )  # fmt: skip
        if self._small or _threads() == 1:
            self._backward(*call, phases, 0, 0)
        else:
            plan, kernel = self._plan, functools.partial(self._backward, *call)
            light = plan.work / plan.n
            for which, count, work in (
                (phase.LOAD, plan.groups, light),
                (phase.SEPARATE, plan.B, plan.B * plan.P * plan.k**2),
                (phase.ADJOINT, plan.groups, light),
                (phase.ROWS, plan.groups, plan.work),
                (phase.CENTRAL, plan.B, light),
            ):
                if phases & which:
                    _in_threads(kernel, which, count, work)
        del factor, g, scratch, lam  # not before: compiled autograd drops what is not named again


def _own(x: Tensor, shape: torch.Size) -> torch.Size | None:
    """Shape of a gradient by `x`: its own, unless that is broadcast; `None` if it is as `x` is."""
    if x.numel() != shape.numel():
        return shape
    return None if x.is_contiguous() and 8 * x.numel() < HUGE else x.shape


class CpuBackend(Backend):
    """Givens elimination in SIMD lanes; see `eliminate.py`."""

    name = "cpu"
    settled = True

    def unusable(self) -> str | None:
        """Numba is all it needs."""
        try:
            import numba  # noqa: F401
        except ImportError:
            return "numba is not installed; pip install numba"
        return None

    def unsupported(self, device: torch.device, n: int) -> str | None:
        """CPU tensors only."""
        del n
        return None if device.type == "cpu" else f"the tensors are on {device}, not on the CPU"

    def pieces(self, B: int, T: int, n: int, reach: int) -> int:
        """Fill the lanes of every thread, as long as the pieces stay worth their overhead."""
        lanes = W * _threads()
        shortest = max(SHORTEST_PIECE, 4 * reach)
        if B >= W or 2 * shortest > T:
            return 1
        return max(1, min(lanes // max(B, 1), T // shortest))

    def busy(self, n: int) -> int:
        """All lanes of all threads."""
        del n
        return W * _threads()

    def factor_size(self, problem: Problem, pieces: int) -> int:
        """Lanes first, then the chain of separators."""
        return Plan(problem.y_shape, problem.scheme, pieces).factor

    def prepare(self, problem: Problem, pieces: int) -> Prepared:
        """Sizes, and rows that follow from the weights."""
        return Prepared(problem, pieces)

    def solve(self, problem: Problem, pieces: int) -> Solved:
        """Eliminate, solve the chain of separators, substitute back."""
        _refuse_others(*problem.tensors)
        return Prepared(problem, pieces).solve(*problem[:4])

    def adjoint(self, problem: Problem, factor: Tensor, g: Tensor, pieces: int) -> Tensor:
        """Two substitutions."""
        _refuse_others(factor)
        return Prepared(problem, pieces).adjoint(factor.contiguous(), g)

    def gradients(
        self, problem: Problem, factor: Tensor, y: Tensor, gy: Tensor, pieces: int,
        wanted: list[bool],
    ) -> list[Tensor]:  # fmt: skip
        """Adjoint solve and row gradients with one pass less."""
        _refuse_others(*problem.tensors, y, factor)
        prepared, y, factor = Prepared(problem, pieces), y.contiguous(), factor.contiguous()
        return _filled(problem, prepared.gradients(problem[:4], y, factor, gy, wanted))

    def row_gradients(
        self, problem: Problem, lam: Tensor, y: Tensor, wanted: list[bool]
    ) -> list[Tensor]:
        """One pass over the rows, in as many pieces as fill the lanes."""
        _refuse_others(*problem.tensors, y, lam)
        B, T = problem.y_shape[:2]
        pieces = max(1, min(W * _threads() // max(B, 1), T))
        prepared, y, lam = Prepared(problem, pieces), y.contiguous(), lam.contiguous()
        return _filled(problem, prepared.row_gradients(problem[:4], y, lam, wanted))


def _refuse_others(*tensors: Tensor) -> None:
    """The kernels read memory as it is."""
    for x in tensors:
        if x.dtype is not torch.float64 or x.device.type != "cpu":
            raise RuntimeError(
                f"cpu backend: got {x.dtype} on {x.device}; expected torch.float64 on the CPU. "
                "If a hook unpacks saved tensors, it has to give them back as they were."
            )


def _filled(problem: Problem, grads: list[Tensor | None]) -> list[Tensor]:
    """With an empty tensor where there is none."""
    return [
        g if g is not None else x.new_empty((0,) * x.ndim)
        for x, g in zip(problem.tensors, grads, strict=True)
    ]
