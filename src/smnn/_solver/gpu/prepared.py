"""The `gpu` backend for tensors of one layout: everything but the addresses worked out before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from smnn._solver.base import Solved, in_memory, refuse_zeros
from smnn._solver.gpu import strategy as plans
from smnn._solver.gpu.launch import Program
from smnn._solver.gpu.native import launcher
from smnn._solver.gpu.work import Work
from smnn._solver.problem import Problem

GRADIENTS = plans.GRADIENTS[:4]
Differentiable = Callable[[Any, list[Tensor], Tensor, tuple[bool, ...]], list[Tensor | None]]


class Prepared:
    """Forward and first derivative by `c, d, u, s`, with the weights of one problem.

    Args:
        problem: Whose weights are used, and the shapes of whose tensors.
        work: What is launched.
        tensors: All that the kernels read; those of the caller only lend their layout.
    """

    def __init__(self, problem: Problem, work: Work, tensors: dict[str, Tensor]) -> None:
        self._keep = problem  # the programs hold addresses of its weights
        self._fixed = {
            name: x.data_ptr() for name, x in tensors.items() if name not in ("c", "d", "u", "s")
        }
        self._work = work
        self._shape, self._shapes = problem.y_shape, [x.shape for x in problem.tensors[:4]]
        self._solve, self._adjoint = work.solve.bound(self._fixed), work.adjoint.bound({})
        self._rows: dict[tuple[bool, ...], Program] = {}

    def solve(self, c: Tensor, d: Tensor, u: Tensor, s: Tensor) -> Solved:
        """As `GpuBackend.solve`."""
        refuse_zeros((c, d, u, s))
        kind: dict[str, Any] = {"dtype": torch.float64, "device": c.device}
        y, factor = torch.empty(self._shape, **kind), torch.empty(self._work.factor, **kind)
        scratch = torch.empty(self._work.scratch, **kind)
        B, count = self._shape[0], self._work.verdicts
        told = torch.empty((2 * count + 1, B), dtype=torch.int64, device=c.device)
        start = told.data_ptr()
        bases = {
            "c": c.data_ptr(), "d": d.data_ptr(), "u": u.data_ptr(), "s": s.data_ptr(),
            "y": y.data_ptr(), "factor": factor.data_ptr(), "scratch": scratch.data_ptr(),
            "rcond": start, "weakest": start + 8 * B * count, "status": start + 16 * B * count,
        }  # fmt: skip
        self._solve.launch(bases, c.device.index)
        rcond = told[count - 1].view(torch.float64)
        return Solved(y, factor, rcond, told[2 * count - 1], told[-1])

    def gradients(
        self, tensors: list[Tensor], y: Tensor, factor: Tensor, gy: Tensor, wanted: Sequence[bool],
        into: Sequence[Tensor | None] | None = None,
    ) -> list[Tensor | None]:  # fmt: skip
        """Gradients by the four tensors, in the broadcast form; `into` those, where given."""
        kind: dict[str, Any] = {"dtype": torch.float64, "device": y.device}
        scratch = torch.empty(self._work.adjoint_scratch, **kind)
        gy, index = in_memory(gy), y.device.index
        bases = {
            "g": gy.data_ptr(), "factor": factor.data_ptr(), "scratch": scratch.data_ptr(),
        }  # fmt: skip
        if not self._work.together:
            lam = scratch if self._work.held else torch.empty_like(y)
            self._adjoint.launch(bases | {"y": lam.data_ptr()}, index)
            bases = {"lam": lam.data_ptr()}
            del scratch  # its memory can serve the gradients: one stream, so they come after
        if into is None:
            shapes = zip(self._shapes, wanted, strict=True)
            into = [torch.empty(shape, **kind) if w else None for shape, w in shapes]
        out = [*into]
        bases |= {
            name: 0 if x is None else x.data_ptr() for name, x in zip(GRADIENTS, out, strict=True)
        }
        bases |= {name: x.data_ptr() for name, x in zip("cdus", tensors, strict=True)}
        self._row_program(tuple(wanted)).launch(bases | {"y": y.data_ptr()}, index)
        return out

    def _row_program(self, wanted: tuple[bool, ...]) -> Program:
        """The launch of the row gradients that are wanted, alone or with the adjoint solve."""
        if wanted not in self._rows:
            rows = self._work.rows((*wanted, False, False, False))
            self._rows[wanted] = rows.bound(self._fixed | dict.fromkeys(plans.GRADIENTS[4:], 0))
        return self._rows[wanted]

    def native(
        self, tensors: tuple[Tensor, ...], signature: Any, differentiable: Differentiable
    ) -> Any:
        """`solve` with its derivative from C++, or `None` while or where that is not compiled.

        What is given is called with `c, d, u, s` like the ones here, for `ALL` of `native/extension.py`; or
        with any and how much is wanted, for `None` if they have another layout.

        Args:
            tensors: The caller's, for their layout.
            signature: Its `batch` has the axes to sum gradients over where they were broadcast.
            differentiable: Gradients with a graph of their own, from the signature, `c, d, u, s`,
                the gradient by `y`, and which are wanted.
        """
        module = launcher.native()
        if module is None:
            return None
        described = self._described(tensors[0].device.index, signature, differentiable)
        described["layouts"] = [(list(x.shape), list(x.stride())) for x in tensors]
        shapes = zip(tensors, self._shapes, strict=True)
        described["shapes"] = [list(x.shape if x.numel() == n.numel() else n) for x, n in shapes]
        described["device"] = str(tensors[0].device)
        described["functions"] = launcher.cuda_functions()
        return module.make(described)

    def _described(
        self, device: int, signature: Any, differentiable: Differentiable
    ) -> dict[str, Any]:
        def numbers(program: Program, own: dict[str, str] | None = None) -> list[Any]:
            with torch.cuda.device(device):
                return launcher.describe(program.launches, device, own or {})

        def flags(mask: int) -> tuple[bool, ...]:
            return tuple(bool(mask >> i & 1) for i in range(4))

        def program_for(which: int) -> list[Any]:
            """Row gradients by which of them are wanted, or the adjoint."""
            if which == launcher.ADJOINT:
                return numbers(self._adjoint, {"y": "lam"})
            mask = which
            unwanted = {g: 0 for g, w in zip(GRADIENTS, flags(mask), strict=True) if not w}
            return numbers(self._row_program(flags(mask)).bound(unwanted))

        def twice(tensors: list[Tensor], gy: Tensor, mask: int) -> list[Tensor | None]:
            return differentiable(signature, tensors, gy, flags(mask))

        return {
            "solve": numbers(self._solve),
            "y_shape": list(self._shape),
            "batch": list(signature.batch),
            "factor_size": self._work.factor,
            "scratch_size": self._work.scratch,
            "adjoint_scratch": self._work.adjoint_scratch,
            "together": self._work.together,
            "held": self._work.held > 0,
            "verdicts": self._work.verdicts,
            "program_for": program_for,
            "differentiable": twice,
        }
