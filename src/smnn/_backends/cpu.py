"""The `cpu` backend: Numba kernels, threaded over the batch, or over pieces of time."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from smnn._backends._layout import Plan, W
from smnn._backends.base import Backend, Solved
from smnn._problem import Problem
from smnn._status import DOUBTFUL_PIVOT
from smnn._taylor import link_rows, smoothness_top, taylor
from smnn._tracing import constant

SHORTEST_PIECE = 24
"""Times per piece below which cutting costs more than it gains."""

_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}


@constant
def _threads() -> int:
    """Threads to use, as PyTorch has it."""
    return torch.get_num_threads()


def _in_threads(kernel: Callable[[int, int], None], count: int, work: float) -> None:
    """Run `kernel(first, last)` over `0..count`, split between threads if there is enough work."""
    threads = 1 if work < 4e4 else min(_threads(), count, int(work / 2e4))
    if threads <= 1:
        kernel(0, count)
        return
    key = os.getpid(), threads  # a forked process has no threads of its parent
    if key not in _pools:
        _pools[key] = ThreadPoolExecutor(threads, thread_name_prefix="smnn")
    bounds = [count * i // threads for i in range(threads + 1)]
    jobs = [_pools[key].submit(kernel, a, b) for a, b in itertools.pairwise(bounds[1:])]
    kernel(bounds[0], bounds[1])
    for job in jobs:
        job.result()


class Prepared:
    """A problem's sizes and weights, with all that repeats from call to call worked out.

    Memory comes from NumPy, which asks for huge pages where PyTorch does not.

    Args:
        problem: Whose weights are used; `c, d, u, s` only lend their layout.
        pieces: Into how many pieces of time each sequence is cut.
    """

    def __init__(self, problem: Problem, pieces: int) -> None:
        self._plan = Plan(problem.y_shape, problem.scheme, pieces)
        self._scheme, self._shape = problem.scheme, problem.y_shape
        self._layouts = [(x.shape, x.stride()) for x in problem[:4]]
        self._shapes = [tuple(x.shape) for x in problem[:7]]
        self._nothing = [np.empty((0,) * x.ndim) for x in problem[:7]]
        self._weights = [x.detach() for x in problem[4:7]]
        self._weight_arrays = [x.numpy() for x in self._weights]
        self._free_steps = tuple(slice(None if i else 1) for i in problem.s.stride())

    @functools.cached_property
    def _links(self) -> list[np.ndarray]:
        w_smooth = self._weights[2]
        return [x.numpy() for x in (*link_rows(w_smooth, self._scheme), w_smooth[..., -1])]

    @functools.cached_property
    def _taylor(self) -> np.ndarray:
        R = self._shape[3] - 1
        return -np.concatenate([taylor(R, sign).numpy().ravel() for sign in (1, -1)])

    def _fit(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The caller's tensors in their broadcast form."""
        return [
            (x if x.shape == shape else x.as_strided(shape, stride)).detach()
            for x, (shape, stride) in zip(tensors, self._layouts, strict=True)
        ]

    def _split(self, factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The factor of the lanes, and of the chain of separators."""
        return factor[: self._plan.lane_factor], factor[self._plan.lane_factor :]

    def solve(self, *tensors: Tensor) -> Solved:
        """Eliminate, solve the chain of separators, substitute back."""
        from smnn._backends import _eliminate, _separators, _substitute

        plan = self._plan
        P, k, B = plan.P, plan.k, plan.B
        views = self._fit(tensors)
        c, d, u, s = (x.numpy() for x in views)
        factor, y = np.empty(plan.lane_factor + plan.chain_factor), np.empty(self._shape)
        lanes, chain = self._split(factor)
        z, coupling = np.empty(plan.z_size), np.empty(plan.coupling)
        ratio, where = np.empty(B * P), np.empty(B * P)
        rcond, weakest = np.empty(B), np.empty(B, np.int64)
        separators = np.empty((B, P, k))
        _in_threads(
            lambda a, b: _eliminate.eliminate(
                c, d, u, s, *self._weight_arrays[:2], *self._links, plan.reach, P, a, b,
                lanes, z, coupling, ratio, where,
            ),
            plan.groups,
            plan.work,
        )  # fmt: skip
        if P > 1:
            _in_threads(
                lambda a, b: _separators.eliminate_chain(
                    coupling, k, plan.n, plan.T, P, a, b, chain, separators, ratio, where,
                    np.empty(k + P * k),
                ),
                B,
                B * P * k**3,
            )  # fmt: skip
        _in_threads(
            lambda a, b: _substitute.substitute_back(lanes, z, separators, y, plan.reach, P, a, b),
            plan.groups,
            plan.work / plan.n,
        )
        fine = _separators.judge(
            ratio, where, P, s[self._free_steps], y, DOUBTFUL_PIVOT, rcond, weakest
        )
        told = torch.from_numpy(rcond), torch.from_numpy(weakest)
        out = torch.from_numpy(y), torch.from_numpy(factor), *told
        if fine:
            return Solved(*out, torch.zeros(B, dtype=torch.int64))
        problem = Problem.of([*views, *self._weights], self._scheme)
        return CpuBackend().settle(problem, P, *out)

    def _forward(self, factor: Tensor, g: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The first half of an adjoint solve: factor, right-hand side, separators of the second."""
        from smnn._backends import _separators, _substitute

        plan = self._plan
        P, k, B = plan.P, plan.k, plan.B
        lanes, chain = self._split(factor.numpy())
        z, loads, separators = np.empty(plan.z_size), np.empty((B, P, 2, k)), np.empty((B, P, k))
        g_array = g.detach().numpy()
        _in_threads(
            lambda a, b: _substitute.substitute_forward(
                lanes, g_array, z, loads, plan.reach, P, a, b
            ),
            plan.groups,
            plan.work / plan.n,
        )
        if P > 1:
            _in_threads(
                lambda a, b: _separators.solve_chain(chain, loads, separators, a, b),
                B,
                B * P * k**2,
            )
        return lanes, z, separators

    def adjoint(self, factor: Tensor, g: Tensor) -> Tensor:
        """Two substitutions."""
        from smnn._backends import _substitute

        plan, x = self._plan, np.empty(self._shape)
        half = self._forward(factor, g)
        _in_threads(
            lambda a, b: _substitute.substitute_back(*half, x, plan.reach, plan.P, a, b),
            plan.groups,
            plan.work / plan.n,
        )
        return torch.from_numpy(x)

    def gradients(
        self, tensors: Sequence[Tensor], y: Tensor, factor: Tensor, gy: Tensor,
        wanted: Sequence[bool],
    ) -> list[Tensor]:  # fmt: skip
        """By `c, d, u, s` and, if `wanted` goes on, the weights; anything where not wanted.

        The second substitution of the adjoint solve and the gradients of the rows are one pass.
        """
        half = self._forward(factor, gy)
        keeps = self._scheme == "central" and (wanted[3] or any(wanted[6:]))
        lam = np.empty(self._shape if keeps else (0, 0, 0, 0))
        return self._rows(tensors, y, lam, half, wanted)

    def row_gradients(
        self, tensors: Sequence[Tensor], y: Tensor, lam: Tensor, wanted: Sequence[bool]
    ) -> list[Tensor]:
        """As `gradients`, with `lam` known."""
        nothing = np.empty(0), np.empty(0), np.empty((0, 0, 0))
        return self._rows(tensors, y, lam.detach().numpy(), nothing, wanted)

    def _rows(
        self, tensors: Sequence[Tensor], y: Tensor, lam: np.ndarray,
        half: tuple[np.ndarray, np.ndarray, np.ndarray], wanted: Sequence[bool],
    ) -> list[Tensor]:  # fmt: skip
        """`half` is what `_forward` left, or nothing if `lam` is known."""
        from smnn._backends import _row_gradients

        plan, y_array, count = self._plan, y.detach().numpy(), len(wanted)
        wanted = [*wanted, *(False,) * (7 - count)]
        grads = [
            np.empty(shape) if w else none
            for shape, none, w in zip(self._shapes, self._nothing, wanted, strict=True)
        ]
        arrays = [*(x.numpy() for x in self._fit(tensors)), *self._weight_arrays]
        top = smoothness_top(self._shape[3] - 1, self._scheme)
        _in_threads(
            lambda a, b: _row_gradients.row_gradients(
                *half, lam, y_array, *arrays, self._taylor, top, plan.reach, plan.P, a, b, *grads
            ),
            plan.groups,
            plan.work,
        )
        if self._scheme == "central" and (wanted[3] or wanted[6]):
            _in_threads(
                lambda a, b: _row_gradients.central_gradients(
                    lam, y_array, arrays[3], arrays[6], a, b, grads[3], grads[6]
                ),
                plan.B,
                plan.work / plan.n,
            )
        return [torch.from_numpy(x) for x in grads[:count]]


class CpuBackend(Backend):
    """Givens elimination in SIMD lanes; see `_eliminate.py`."""

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

    def factor_size(self, problem: Problem, pieces: int) -> int:
        """Lanes first, then the chain of separators."""
        plan = Plan(problem.y_shape, problem.scheme, pieces)
        return plan.lane_factor + plan.chain_factor

    def prepare(self, problem: Problem, pieces: int) -> Prepared:
        """Sizes, and rows that follow from the weights."""
        return Prepared(problem, pieces)

    def solve(self, problem: Problem, pieces: int) -> Solved:
        """Eliminate, solve the chain of separators, substitute back."""
        return Prepared(problem, pieces).solve(*problem[:4])

    def adjoint(self, problem: Problem, factor: Tensor, g: Tensor, pieces: int) -> Tensor:
        """Two substitutions."""
        return Prepared(problem, pieces).adjoint(factor, g)

    def gradients(
        self, problem: Problem, factor: Tensor, y: Tensor, gy: Tensor, pieces: int,
        wanted: list[bool],
    ) -> list[Tensor]:  # fmt: skip
        """Adjoint solve and row gradients with one pass less."""
        return Prepared(problem, pieces).gradients(problem[:4], y, factor, gy, wanted)

    def row_gradients(
        self, problem: Problem, lam: Tensor, y: Tensor, wanted: list[bool]
    ) -> list[Tensor]:
        """One pass over the rows, in as many pieces as fill the lanes."""
        B, T = problem.y_shape[:2]
        pieces = max(1, min(W * _threads() // max(B, 1), T))
        return Prepared(problem, pieces).row_gradients(problem[:4], y, lam, wanted)
