"""The `cpu` backend: kernels compiled in the process."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

import torch
from torch import Tensor

from smnn._solver.cpu.kernels.layout import Sizes, W
from smnn._solver.cpu.plan import CpuPlan, check_memory
from smnn._solver.cpu.swept import SweptPlan, is_swept
from smnn._solver.plan import Backend
from smnn._solver.problem import Problem

SHORTEST_PIECE = 24  # Minimum number of times per piece; below, the overhead exceeds the gain
TIMES_PER_GROUP = 2048  # Times of all sequences for which another group of pieces is worth it
MOST_GROUPS = 16


def _lanes_for(B: int, T: int) -> int:
    return W * min(MOST_GROUPS, max(1, B * T // TIMES_PER_GROUP))


class CpuBackend(Backend):
    """Givens elimination in SIMD lanes (`eliminate.py`)."""

    name = "cpu"

    def unavailable(self, device: torch.device | None = None, n: int = 1) -> str | None:
        """Requires llvmlite, and tensors on the CPU."""
        del n
        if device is not None:
            on_cpu = device.type == "cpu"
            return None if on_cpu else f"the tensors are on {device}, not on the CPU"
        if importlib.util.find_spec("llvmlite") is None:
            return "llvmlite is not installed; pip install llvmlite"
        return None

    def pieces(self, B: int, T: int, n: int, reach: int) -> int:
        """Fill the lanes, of more groups for longer sequences; regardless of the threads.

        The result must not depend on the number of threads.
        """
        del n
        shortest = max(SHORTEST_PIECE, 4 * reach)
        if B >= W or 2 * shortest > T:
            return 1
        return max(1, min(_lanes_for(B, T) // max(B, 1), T // shortest))

    def full_load(self, n: int) -> int:
        del n
        return 4 * W

    def factor_size(self, problem: Problem, pieces: int) -> int:
        """Factors of the lanes, then of the chain of separators."""
        B, T, V, m = problem.y_shape
        return Sizes((B, T, 0, V, m), problem.reach, pieces).factor

    def plan(self, problem: Problem, pieces: int | None = None) -> CpuPlan:
        check_memory(*problem.tensors)
        pieces = self.pieces_of(problem) if pieces is None else pieces
        return (SweptPlan if is_swept(problem, pieces) else CpuPlan)(self, problem, pieces)

    def row_gradients(
        self, problem: Problem, lam: Tensor, y: Tensor, wanted: Sequence[bool]
    ) -> list[Tensor | None]:
        """Row gradients, in as many pieces as fill the lanes."""
        check_memory(y, lam)
        B, T = problem.y_shape[:2]
        pieces = max(1, min(_lanes_for(B, T) // max(B, 1), T))
        plan = CpuPlan(self, problem, pieces, rows_only=True)
        return plan.row_gradients(problem.tensors, y.contiguous(), lam.contiguous(), wanted)
