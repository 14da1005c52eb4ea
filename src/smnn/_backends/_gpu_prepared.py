"""The `gpu` backend for tensors of one layout: everything but the addresses worked out before."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from smnn._backends import _gpu_plan as plans
from smnn._backends._gpu_launch import Program
from smnn._backends.base import Solved
from smnn._problem import Problem

GRADIENTS = ("gc", "gd", "gu", "gs")


class Prepared:
    """Forward and first derivative by `c, d, u, s`, with the weights of one problem.

    Args:
        levels: How sequences are cut.
        problem: Whose weights are used, and the shapes of whose tensors.
        spec: What the source is written for.
        tensors: All that the kernels read; those of the caller only lend their layout.
        strides: Of these tensors.
    """

    def __init__(self, levels, problem: Problem, spec, tensors, strides) -> None:  # type: ignore[no-untyped-def]
        self._keep = problem  # the programs hold addresses of its weights
        self._fixed = {
            name: x.data_ptr() for name, x in tensors.items() if name not in ("c", "d", "u", "s")
        }
        self._levels, self._spec, self._strides = levels, spec, strides
        self._shape, self._shapes = problem.y_shape, [x.shape for x in problem.tensors[:4]]
        up, down, self._scratch = plans.solve_programs(levels, spec, strides)
        self._up, self._down = up.bound(self._fixed), down.bound(self._fixed)
        adjoint, self._adjoint_scratch = plans.adjoint_program(levels)
        self._adjoint = adjoint.bound({})
        self._rows: dict[tuple[bool, ...], Program] = {}
        self._factor = sum(level.factor_size for level in levels)
        self._verdicts = sum(level.P for level in levels) if levels[0].P > 1 else 1

    def solve(self, c: Tensor, d: Tensor, u: Tensor, s: Tensor) -> Solved:
        """As `GpuBackend.solve`."""
        kind: dict[str, Any] = {"dtype": torch.float64, "device": c.device}
        y, factor = torch.empty(self._shape, **kind), torch.empty(self._factor, **kind)
        scratch = torch.empty(self._scratch, **kind)
        B, count = self._shape[0], self._verdicts
        told = torch.empty((2 * count + 1, B), dtype=torch.int64, device=c.device)
        start = told.data_ptr()
        bases = {
            "c": c.data_ptr(), "d": d.data_ptr(), "u": u.data_ptr(), "s": s.data_ptr(),
            "y": y.data_ptr(), "factor": factor.data_ptr(), "scratch": scratch.data_ptr(),
            "rcond": start, "weakest": start + 8 * B * count, "status": start + 16 * B * count,
        }  # fmt: skip
        index = c.device.index
        self._up.launch(bases, index)
        if count == 1:
            rcond, weakest, status = told.unbind(0)
            return Solved(y, factor, rcond.view(torch.float64), weakest, status)
        ratios = told[:count].view(B, count).view(torch.float64)
        ratio, worst = ratios.min(1)
        bases["ratio"] = ratio.data_ptr()
        self._down.launch(bases, index)
        weakest = told[count:-1].view(B, count).gather(1, worst[:, None])[:, 0]
        return Solved(y, factor, ratio, weakest, told[-1])

    def gradients(
        self, tensors: list[Tensor], y: Tensor, factor: Tensor, gy: Tensor, wanted: tuple[bool, ...]
    ) -> list[Tensor | None]:
        """Gradients by the four tensors, in the broadcast form."""
        kind: dict[str, Any] = {"dtype": torch.float64, "device": y.device}
        lam, scratch = torch.empty_like(y), torch.empty(self._adjoint_scratch, **kind)
        if not gy.is_contiguous():
            gy = gy.contiguous()
        index = y.device.index
        bases = {
            "g": gy.data_ptr(), "factor": factor.data_ptr(), "y": lam.data_ptr(),
            "scratch": scratch.data_ptr(),
        }  # fmt: skip
        self._adjoint.launch(bases, index)
        if wanted not in self._rows:
            full = (*wanted, False, False, False)
            rows = plans.rows_program(self._shape, self._spec, self._strides, full)
            self._rows[wanted] = rows.bound(self._fixed | {"gwg": 0, "gwi": 0, "gws": 0})
        out = [
            torch.empty(shape, **kind) if w else None
            for shape, w in zip(self._shapes, wanted, strict=True)
        ]
        bases = {
            name: 0 if x is None else x.data_ptr() for name, x in zip(GRADIENTS, out, strict=True)
        }
        bases |= {name: x.data_ptr() for name, x in zip("cdus", tensors, strict=True)}
        bases |= {"y": y.data_ptr(), "lam": lam.data_ptr()}
        self._rows[wanted].launch(bases, index)
        return out
