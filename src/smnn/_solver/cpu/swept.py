"""Plans for small blocks: covariance sweep, or elimination where that would not be accurate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from smnn._solver.cpu.kernels import layout
from smnn._solver.cpu.kernels.layout import Sizes, W, row_cells, swept_cells
from smnn._solver.cpu.plan import (
    LARGEST_STRAIGHT,
    LEAST_STRAIGHT,
    CpuPlan,
    allocate,
    load_notes,
    readable,
)  # fmt: skip
from smnn._solver.cpu.program import Program
from smnn._solver.diagnostics import DOUBTFUL_PIVOT, Diagnostics
from smnn._solver.plan import Backend
from smnn._solver.problem import Problem, Solved

LEAST_SWEPT = 1e5
"""Operations of an elimination from which it pays off to compile code for a block size."""
LARGEST_SWEPT = 12
"""Block size up to which the sweep is used; its code is written for one size."""
LONGEST_SWEPT = 8192
"""Times of all sequences up to which few sequences are swept; longer ones are cut into pieces."""


def first_times(problem: Problem) -> int:
    """How many times to eliminate until the state is determined, unless rows have weight zero."""
    Q, (_, _, V, m) = problem.c.shape[2], problem.y_shape
    T_init, m_init = problem.u.shape[1], problem.u.shape[3]
    rows = max(min(Q, V), V * m_init * (T_init == problem.y_shape[1]))
    return 2 + (V * (m - m_init) - 1) // rows if rows and T_init else 0


def is_swept(problem: Problem, pieces: int) -> bool:
    """Whether to use the sweep for problems of this layout."""
    B, T, V, m = problem.y_shape
    n, first = V * m, first_times(problem)
    return (
        problem.scheme == "smnn"
        and n <= LARGEST_SWEPT
        and B * T * n**3 >= LEAST_SWEPT
        and (pieces == 1 or B * T <= LONGEST_SWEPT)
        and (problem.w_smooth.stride(-1) == 0 or m == 1)
        and 0 < first < T - 1
    )


class SweptPlan(CpuPlan):
    """The covariance sweep; `solve`, which keeps a factor, eliminates.

    Samples whose covariance grows too large are eliminated, too.
    """

    forward_keeps_factor = False

    def __init__(self, backend: Backend, problem: Problem, pieces: int) -> None:
        super().__init__(backend, problem, pieces)
        B, T, Q, V, m = problem.c.shape
        n, L, (T_init, m_init) = V * m, first_times(problem), problem.u.shape[1::2]
        sizes = Sizes((B, L, Q, V, m), 1, 1)
        self._width = min(16 if n <= 3 else 8, 1 << max(B - 1, 0).bit_length())
        straight = n <= LARGEST_STRAIGHT and sizes.work >= LEAST_STRAIGHT
        sweep = self._sweep = Program(sizes, {}, straight)
        mine = sweep.lanes.ctypes.data
        sweep.notes[:] = self._program.notes
        sweep.note({
            "T": L, "L": L, "P": 1, "k": 0, "given": 0, "T_init": min(T_init, L), "open": 1,
            "T_all": T, "T_init_all": T_init, "parts_of_sums": 2, "@lanes": mine,
            "parts": W // self._width if self._width < B else 1,
        })  # fmt: skip
        rows = Q + (V * m_init if T_init > L else 0)
        self._kept = sizes.groups * W * (T - L) * rows + B
        own = L * (n + row_cells(n, 1, 0)) * W
        self._own = own + ((T - L + 1) * swept_cells(n, rows) + n * n) * self._width
        self._work = B * T * n * n * (V + Q)

    def forward(self, tensors: Sequence[Tensor]) -> Solved:
        """Solve; the "factor" has the residuals of the rows, and flags of eliminated samples."""
        c, d, u, s = tensors[:4]
        y, found = allocate(self.problem.y_shape), self._found()
        factor = allocate(self._kept if True in [x.requires_grad for x in tensors] else 0)
        call = self._inputs((c, d, u, s))
        call |= {"@y": y.data_ptr(), "@found": found.ctypes.data}
        call["@multipliers"] = factor.data_ptr() if factor.numel() else 0
        self._run_sweep(layout.ELIMINATE | layout.SWEEP | layout.SUBSTITUTE, call)
        B = y.shape[0]
        ratio, where, bad_step, high = found.transpose(1, 0, 2).reshape(4, -1)[:, :B]
        rcond, weakest = np.sqrt(ratio), np.nan_to_num(where).astype(np.int64)
        doubtful = ~(rcond > DOUBTFUL_PIVOT) | (bad_step != 0)
        doubtful |= ~np.isfinite(y.numpy()[:, 0]).reshape(B, -1).all(1)
        if doubtful.all():
            return super().forward(tensors)
        if factor.numel():
            factor[self._kept - B :] = torch.from_numpy(doubtful)
        started = not high.any()
        diagnostics = Diagnostics(None, rcond, weakest, True, started)
        if doubtful.any():
            index, part = self._eliminated(torch.from_numpy(doubtful), tensors)
            solved = part.forward(part.problem.tensors)
            status = torch.zeros(B, dtype=torch.int64)
            y[index] = solved.y
            status[index], rcond[index], weakest[index] = solved.diagnostics.tensors()
            fine = solved.diagnostics.fine
            diagnostics = Diagnostics(status.numpy(), rcond, weakest, fine, started)
        return Solved(y, factor, diagnostics)

    def _found(self) -> np.ndarray:
        return np.empty((self._sweep.sizes.groups, 4, W))

    def _run_sweep(self, parts: int, call: dict[str, int]) -> None:
        self._sweep.run(parts, self._sweep.sizes.groups, self._work, call, self._own, self._width)

    def _eliminated(self, which: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, CpuPlan]:
        """Some samples, and a plan that eliminates them."""
        index = which.nonzero().flatten()
        every = self.fit([x.detach() for x in tensors]).tensors[:4]
        some = [x[index] for x in [*every, *self._weights]]
        return index, CpuPlan(self.backend, Problem.of(some, self.problem.scheme), self.pieces)

    def gradients(
        self, tensors: Sequence[Tensor], y: Tensor, factor: Tensor, gy: Tensor,
        wanted: Sequence[bool], into: Sequence[Tensor | None] = (),
    ) -> list[Tensor | None]:  # fmt: skip
        """The adjoint sweep, with residuals of the rows from `forward`."""
        if factor.numel() != self._kept:
            factor = factor if factor.numel() or self.recomputes else self.solve(tensors).factor
            return super().gradients(tensors, y, factor, gy, wanted, into)
        gy, found = readable(gy), self._found()
        call = load_notes(gy) | {"@found": found.ctypes.data, "@multipliers": factor.data_ptr()}
        grads = self._gradients_into(self._sweep, 2, call, tensors, y, wanted)
        self._run_sweep(layout.ELIMINATE | layout.LOAD | layout.ADJOINT | layout.ROWS, call)
        B = y.shape[0]
        ratio = found[:, 0].reshape(-1)[:B]
        doubtful = factor[self._kept - B :] != 0
        doubtful |= torch.from_numpy(~(ratio > DOUBTFUL_PIVOT**2))
        if bool(doubtful.any()):
            index, part = self._eliminated(doubtful, tensors)
            problem = part.problem.tensors
            kept = factor[:0] if part.recomputes else part.solve().factor
            by_part = part.gradients(problem, y[index], kept, gy[index], wanted)
            for whole, g in zip(grads, by_part):
                if whole is not None and g is not None and whole.shape[1:] == g.shape[1:]:
                    whole[index] = g
                elif whole is not None and g is not None:  # summed over time
                    whole[index] = 0.0
                    whole[index, 0] = g.sum(1)
        del tensors, y, factor, gy  # alive until here: compiled autograd drops unused names
        return grads
