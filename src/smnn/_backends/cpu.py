"""The `cpu` backend: Numba kernels, threaded over the batch, or over pieces of time."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from smnn._backends._layout import Plan, W
from smnn._backends.base import Backend, Solved
from smnn._problem import Problem
from smnn._taylor import link_rows, smoothness_top, taylor

SHORTEST_PIECE = 24
"""Times per piece below which cutting costs more than it gains."""

_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}


@torch.compiler.assume_constant_result
def _threads() -> int:
    """Threads to use, as PyTorch has it."""
    return torch.get_num_threads()


def _in_threads(kernel: Callable[[int, int], None], count: int, work: float) -> None:
    """Run `kernel(first, last)` over `0..count`, split between threads if there is enough work."""
    threads = min(_threads(), count, max(1, int(work / 2e4)))
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


def _empty(shape: int | tuple[int, ...]) -> Tensor:
    """Unfilled memory; NumPy asks for huge pages, which PyTorch does not."""
    return torch.from_numpy(np.empty(shape))


def _array(x: Tensor) -> np.ndarray:
    return x.detach().numpy()


def _parts(factor: Tensor, plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """The factor of the lanes, and of the chain of separators."""
    array = _array(factor)
    return array[: plan.lane_factor], array[plan.lane_factor :]


class CpuBackend(Backend):
    """Givens elimination in SIMD lanes; see `_eliminate.py`."""

    name = "cpu"

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
        return max(1, min(lanes // B, T // shortest))

    def factor_size(self, problem: Problem, pieces: int) -> int:
        """Lanes first, then the chain of separators."""
        plan = Plan(problem.y_shape, problem.scheme, pieces)
        return plan.lane_factor + plan.chain_factor

    def solve(self, problem: Problem, pieces: int) -> Solved:
        """Eliminate, solve the chain of separators, substitute back."""
        from smnn._backends import _eliminate, _separators, _substitute

        plan = Plan(problem.y_shape, problem.scheme, pieces)
        P, k, B = plan.P, plan.k, plan.B
        scale, K, KF = link_rows(problem.w_smooth, problem.scheme)
        arrays = [_array(x) for x in (*problem[:6], scale, K, KF, problem.w_smooth[..., -1])]
        factor = _empty(plan.lane_factor + plan.chain_factor)
        lanes, chain = _parts(factor, plan)
        z, coupling = np.empty(plan.z_size), np.empty(plan.coupling)
        rcond, weakest = np.empty(B * P), np.empty(B * P)
        y = _empty(problem.y_shape)
        separators = np.empty((B, P, k))

        _in_threads(
            lambda a, b: _eliminate.eliminate(
                *arrays, plan.reach, P, a, b, lanes, z, coupling, rcond, weakest
            ),
            plan.groups,
            plan.work,
        )
        if P > 1:
            _in_threads(
                lambda a, b: _separators.eliminate_chain(
                    coupling, k, plan.n, plan.T, P, a, b, chain, separators, rcond, weakest,
                    np.empty(2 * k + P * k),
                ),
                B,
                B * P * k**3,
            )  # fmt: skip
        y_array = y.numpy()
        _in_threads(
            lambda a, b: _substitute.substitute_back(
                lanes, z, separators, y_array, plan.reach, P, a, b
            ),
            plan.groups,
            plan.work / plan.n,
        )
        ratio, where = rcond, weakest
        if P > 1:
            worst = rcond.reshape(B, P).argmin(1)
            ratio = rcond.reshape(B, P)[np.arange(B), worst]
            where = weakest.reshape(B, P)[np.arange(B), worst]
        smallest = torch.from_numpy(np.sqrt(ratio))
        position = torch.from_numpy(where.astype(np.int64))
        return self.settle(problem, pieces, y, factor, smallest, position)

    def adjoint(self, problem: Problem, factor: Tensor, g: Tensor, pieces: int) -> Tensor:
        """Two substitutions."""
        from smnn._backends import _separators, _substitute

        plan = Plan(problem.y_shape, problem.scheme, pieces)
        P, k, B = plan.P, plan.k, plan.B
        lanes, chain = _parts(factor, plan)
        z, loads, separators = np.empty(plan.z_size), np.empty((B, P, 2, k)), np.empty((B, P, k))
        g_array = _array(g)
        out = _empty(problem.y_shape)
        out_array = out.numpy()
        work = plan.work / plan.n
        _in_threads(
            lambda a, b: _substitute.substitute_forward(
                lanes, g_array, z, loads, plan.reach, P, a, b
            ),
            plan.groups,
            work,
        )
        if P > 1:
            _in_threads(
                lambda a, b: _separators.solve_chain(chain, loads, separators, a, b),
                B,
                B * P * k**2,
            )
        _in_threads(
            lambda a, b: _substitute.substitute_back(
                lanes, z, separators, out_array, plan.reach, P, a, b
            ),
            plan.groups,
            work,
        )
        return out

    def row_gradients(
        self, problem: Problem, lam: Tensor, y: Tensor, wanted: list[bool]
    ) -> list[Tensor]:
        """One pass over the rows."""
        from smnn._backends import _row_gradients as rows

        lam, y = lam.contiguous(), y.contiguous()
        out = [
            _empty(tuple(x.shape) if w else (0,) * x.ndim)
            for x, w in zip(problem[:7], wanted, strict=True)
        ]
        gc, gd, gu, gs, gw_gov, gw_init, gw_smooth = (x.numpy() for x in out)
        c, d, u, s, w_gov, w_init, w_smooth = (_array(x) for x in problem[:7])
        x, mu = _array(y), _array(lam)
        B, T, V, m = y.shape
        work = float(y.numel() * 4)
        if wanted[0] or wanted[1] or wanted[4]:
            _in_threads(
                lambda a, b: rows.governing_gradients(mu, x, c, d, w_gov, a, b, gc, gd, gw_gov),
                B * T,
                work * c.shape[2],
            )
        if (wanted[2] or wanted[5]) and u.size:
            rows.initial_gradients(mu, x, u, w_init, 0, B, gu, gw_init)
        if (wanted[3] or wanted[6]) and T > 1:
            top = smoothness_top(m - 1, problem.scheme)
            steps = [np.repeat(taylor(m - 1, sign).numpy().ravel(), W) for sign in (1, -1)]
            _in_threads(
                lambda a, b: rows.taylor_gradients(
                    mu, x, s, w_smooth, *steps, top, a, b, gs, gw_smooth
                ),
                B * (T - 1),
                work,
            )
            if problem.scheme == "central":
                _in_threads(
                    lambda a, b: rows.central_gradients(mu, x, s, w_smooth, a, b, gs, gw_smooth),
                    B,
                    work,
                )
        return out
