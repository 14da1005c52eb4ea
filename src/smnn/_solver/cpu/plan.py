"""Plans that eliminate: threaded over the batch or pieces of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smnn._solver.cpu.kernels import layout
from smnn._solver.cpu.kernels.layout import Sizes, W
from smnn._solver.cpu.program import Program, strides_of
from smnn._solver.diagnostics import DOUBTFUL_PIVOT, Diagnostics, diagnosed
from smnn._solver.plan import (
    Backend,
    Plan,
    in_memory,
    is_zero_tensor,
    refuse_zeros,
)
from smnn._solver.problem import HERMITE, Problem, Solved, number_of
from smnn._solver.rows import (
    central_gradients,
    link_rows,
    smoothness_gradients,
    smoothness_top,
    taylor,
)
from smnn._solver.tracing import safe_threads

LARGEST_STRAIGHT = 6
"""Block size up to which the kernels are written for one size, without loops over its unknowns."""
LEAST_STRAIGHT = 1e5
"""Operations from which that pays off, as it has to be compiled for every size."""
NAMES = ("c", "d", "u", "s", "w_gov", "w_init", "w_smooth")


def allocate(shape: Any) -> Tensor:
    return torch.from_numpy(np.empty(shape))


class CpuPlan(Plan):
    """Kernels with the sizes, strides and constant weights of one layout.

    Args:
        backend: The backend that made it.
        problem: Its weights are constants of the plan.
        pieces: Number of pieces of time into which each sequence is cut.
        rows_only: Whether it is for `row_gradients`, with gradients of the shapes of the tensors.
    """

    status_is_final = True

    def __init__(
        self, backend: Backend, problem: Problem, pieces: int, rows_only: bool = False
    ) -> None:
        super().__init__(backend, problem, pieces)
        B, T, Q, V, m = problem.c.shape
        sizes = self._sizes = Sizes((B, T, Q, V, m), problem.reach, pieces)
        # Passed to the kernels by address, so these must live as long as the plan.
        self._weights = [x.detach() for x in problem.tensors[4:]]
        w_smooth = self._weights[2]
        self._in_tensors = {"smnn": None, "central": central_gradients}.get(
            problem.scheme, smoothness_gradients
        )  # gradients by steps and smoothness weights that the kernels leave out
        self._links = [*link_rows(w_smooth, problem.scheme), w_smooth[..., -1]]
        self._taylor = np.concatenate([taylor(m - 1, sign)[0].numpy() for sign in (1, -1)])
        T_init, m_init = problem.u.shape[1], problem.u.shape[3]
        top, high = smoothness_top(m - 1, problem.scheme), T_init * m_init + 1
        if problem.scheme.startswith(HERMITE):  # c contains derivatives of the equations
            high = m if high > top else 0
        counts = {
            "T": T, "P": pieces, "L": sizes.L, "V": V, "m": m, "Q": Q, "reach": problem.reach,
            "k": 0 if rows_only else sizes.k, "T_init": T_init, "m_init": m_init,
            "top": top if problem.scheme in ("smnn", "central") else 0, "high": min(high, m),
            "unit": number_of(problem.scheme) if w_smooth.stride(-1) == 0 or m == 1 else 0,
            "given": int(rows_only or pieces > 1), "parts_of_sums": pieces,
        }  # fmt: skip
        tensors = dict(zip(NAMES, [*problem.tensors[:4], *self._weights]))
        tensors |= dict(zip(("scale", "K", "KF", "w_top"), self._links))
        tensors["y"] = torch.empty(problem.y_shape, device="meta")
        straight = sizes.n <= LARGEST_STRAIGHT and sizes.work >= LEAST_STRAIGHT
        fixed = {f"@{x}": tensors[x].data_ptr() for x in tensors if x not in "cdusy"}
        counts |= strides_of(tensors) | fixed | {"@taylor": self._taylor.ctypes.data}
        self._program = Program(sizes, counts, straight)
        self._run = self._program.run
        self.recomputes = pieces == 1 and straight

    def _inputs(self, tensors: Sequence[Tensor]) -> dict[str, int]:
        refuse_zeros(tensors)
        return {f"@{name}": x.data_ptr() for name, x in zip("cdus", tensors)}

    def _phases(
        self, first: int, chain: int, last: int, call: dict[str, int], factor: Tensor, work: float,
        own: int = 0,
    ) -> list[np.ndarray]:  # fmt: skip
        """Run kernels over the times, for pieces with the chain between them.

        Returns what couples the pieces: a right-hand side, rows of the chain, and separators.
        """
        sizes = self._sizes
        if sizes.P == 1:
            self._run(first | last, sizes.groups, work, call, own)
            return []
        call["@chain"] = factor.data_ptr() + 8 * sizes.groups * sizes.group_factor
        separators = sizes.B * sizes.P * sizes.k
        kept = [np.empty(sizes.groups * sizes.z), np.zeros(sizes.coupling), np.empty(separators)]
        for name, x in zip(("@z", "@coupling", "@separators"), kept):
            call.setdefault(name, x.ctypes.data)
        self._run(first, sizes.groups, work, call)
        self._run(chain, sizes.B, separators * sizes.k**2, call)
        if last:
            self._run(last, sizes.groups, work, call)
        return kept

    # ------------------------------------------------------------ solving

    def solve(self, tensors: Sequence[Tensor] = ()) -> Solved:
        return self._solve(tensors or self.problem.tensors[:4], True)

    def forward(self, tensors: Sequence[Tensor]) -> Solved:
        return self._solve(tensors, not self.recomputes)

    def _solve(self, tensors: Sequence[Tensor], keep: bool) -> Solved:
        sizes = self._sizes
        y, factor = allocate(self.problem.y_shape), allocate(sizes.factor if keep else 0)
        found: np.ndarray = np.empty((sizes.groups, 4, W))
        call = self._inputs(tensors[:4]) | {"@y": y.data_ptr(), "@found": found.ctypes.data}
        call["@factor"] = factor.data_ptr() if keep else 0
        own = sizes.z + (0 if keep else sizes.group_factor)
        phases = layout.ELIMINATE, layout.CHAIN, layout.SUBSTITUTE
        self._phases(*phases, call, factor, sizes.work, own)
        return self._checked(tensors[:4], y, factor, found, keep)

    def _checked(
        self, tensors: Sequence[Tensor], y: Tensor, factor: Tensor, found: np.ndarray, keep: bool
    ) -> Solved:
        """Weakest pivots of the sequences, and what follows if one is doubtful."""
        sizes = self._sizes
        B, P, n = sizes.B, sizes.P, sizes.n
        ratio, where, bad_step, high = found.transpose(1, 0, 2).reshape(4, -1)[:, : B * P]
        if P > 1:
            first, end = self._program.lanes.transpose(1, 0, 2).reshape(4, -1)[2:, : B * P]
            where = np.maximum(where + (end - sizes.L) * n, first * n)
            worst = ratio.reshape(B, P).argmin(1) + np.arange(0, B * P, P)
            ratio, where = ratio[worst], where[worst]
        rcond, weakest = np.sqrt(ratio), where.astype(np.int64)
        fine = bool((rcond > DOUBTFUL_PIVOT).all()) and not bad_step.any()
        fine = fine and bool(np.isfinite(y.numpy()[:, 0]).all())
        started = not high.any()
        if fine:
            return Solved(y, factor, Diagnostics(None, rcond, weakest, True, started))
        if not keep:
            solved = self.solve(tensors)
            return solved._replace(factor=factor)
        problem = self.fit([x.detach() for x in tensors])
        problem = Problem.of([*problem.tensors[:4], *self._weights], problem.scheme)
        pivots = torch.from_numpy(rcond), torch.from_numpy(weakest)
        solved = diagnosed(self, problem, y, factor, *pivots)
        return solved._replace(diagnostics=solved.diagnostics._replace(started=started))

    # ------------------------------------------------------------ derivatives

    def adjoint(self, factor: Tensor, g: Tensor) -> Tensor:
        check_memory(factor)
        sizes, g, lam = self._sizes, readable(g), allocate(self.problem.y_shape)
        call = {"@factor": factor.data_ptr(), "@lam": lam.data_ptr(), **load_notes(g)}
        phases = layout.LOAD, layout.CHAIN_AGAIN, layout.SUBSTITUTE
        self._phases(*phases, call, factor, sizes.work / sizes.n, sizes.z)
        del g, factor  # alive until here: compiled autograd drops unused names
        return lam

    def covariances(self, tensors: Sequence[Tensor] = ()) -> tuple[Tensor, Tensor, Tensor]:
        sizes, n = self._sizes, self._sizes.n
        B, T = sizes.B, sizes.T
        cov, lag = allocate((B, T, n, n)), allocate((B, T, n, n))
        factor = allocate(sizes.factor if sizes.P > 1 else 0)
        pivots, found = allocate((sizes.groups, sizes.L, n, W)), np.empty((sizes.groups, 4, W))
        call = self._inputs(tensors or self.problem.tensors[:4])
        call |= {"@factor": factor.data_ptr() if sizes.P > 1 else 0, "@z": pivots.data_ptr()}
        call |= {"@cov": cov.data_ptr(), "@lag": lag.data_ptr(), "@found": found.ctypes.data}
        last = layout.COVARIANCES if sizes.P == 1 else 0
        own = sizes.z + sizes.group_factor
        kept = self._phases(
            layout.ELIMINATE, layout.CHAIN, last, call, factor, 2 * sizes.work, own
        )  # fmt: skip
        chain = factor.new_empty(B, 1, 0)
        if sizes.P > 1:
            chain = factor[sizes.groups * sizes.group_factor :].view(B, sizes.P, -1)
            between, chain = _separator_covariances(chain, sizes.k)
            call["@separators"] = between.data_ptr()
            self._run(layout.COVARIANCES, sizes.groups, sizes.work, call)
        del kept
        logs = pivots[:, : sizes.L - (sizes.P > 1)].abs().log_().sum((1, 2))
        logs = logs.reshape(-1)[: B * sizes.P].view(B, -1).sum(1)
        return cov, lag[:, :-1], -2 * (logs + chain.abs().log().flatten(1).sum(1))

    def gradients(
        self, tensors: Sequence[Tensor], y: Tensor, factor: Tensor, gy: Tensor,
        wanted: Sequence[bool], into: Sequence[Tensor | None] = (),
    ) -> list[Tensor | None]:  # fmt: skip
        """The adjoint solve fused with the row gradients; without a factor, eliminate again."""
        del into
        if self.pieces > 1:
            return self.row_gradients(tensors, y, self.adjoint(factor, gy), wanted)
        sizes, gy, found = self._sizes, readable(gy), np.empty((self._sizes.groups, 4, W))
        parts, own, work = layout.LOAD | layout.ROWS, sizes.z, sizes.work / sizes.n
        call = {"@factor": factor.data_ptr() if factor.numel() else 0, **load_notes(gy)}
        call["@found"] = found.ctypes.data
        if not factor.numel():
            parts, own, work = parts | layout.ELIMINATE, own + sizes.group_factor, sizes.work
        in_part = self._in_tensors and (wanted[3] or any(wanted[6:]))
        lam = allocate(self.problem.y_shape) if in_part else None
        grads = self._rows(parts, own, work, call, tensors, y, lam, wanted)
        del gy, factor  # see `adjoint`
        return grads

    def row_gradients(
        self, tensors: Sequence[Tensor], y: Tensor, lam: Tensor, wanted: Sequence[bool]
    ) -> list[Tensor | None]:
        return self._rows(layout.ROWS, 0, self._sizes.work, {}, tensors, y, lam, wanted)

    def _rows(
        self, parts: int, own: int, work: float, call: dict[str, int], tensors: Sequence[Tensor],
        y: Tensor, lam: Tensor | None, wanted: Sequence[bool],
    ) -> list[Tensor | None]:  # fmt: skip
        call["@lam"] = 0 if lam is None else lam.data_ptr()
        grads = self._gradients_into(self._program, self.pieces, call, tensors, y, wanted)
        if len(grads) > 6 and grads[6] is not None:  # not all orders of central rows have weights
            grads[6].zero_()
        self._run(parts, self._sizes.groups, work, call, own)
        if lam is not None and self._in_tensors and self._sizes.T > 1:
            if wanted[3] or any(wanted[6:]):
                self._add_in_tensors(grads, tensors, y, lam)
        del tensors, y, lam  # see `adjoint`
        return grads

    def _gradients_into(
        self, program: Program, parts: int, call: dict[str, int], tensors: Sequence[Tensor],
        y: Tensor, wanted: Sequence[bool],
    ) -> list[Tensor | None]:  # fmt: skip
        """Memory for gradients; those of tensors constant in time are summed over each part."""
        if not program.grad_shapes:
            time, shapes = len(self.batch), [tuple(x.shape) for x in self.problem.tensors]
            for i, x in enumerate(tensors[:4]):
                shape, steady = shapes[i], x.ndim > time and x.shape[time] == 1
                if NAMES[i] != "u" and shape[1] > 1 and steady and x.shape != shape:
                    shapes[i] = (shape[0], parts, *shape[2:])
            for name, shape, like in zip(NAMES, shapes, self.problem.tensors):
                program.note(strides_of({f"g{name}": torch.empty(shape, device="meta")}))
                if shape != like.shape:
                    program.note({f"g{name}.1": 0})
            program.grad_shapes = shapes
        grads = [allocate(shape) if w else None for w, shape in zip(wanted, program.grad_shapes)]
        call |= self._inputs(tensors[:4]) | {"@y": y.data_ptr()}
        call |= {f"@g{x}": g.data_ptr() for x, g in zip(NAMES, grads) if g is not None}
        return grads

    def _add_in_tensors(
        self, grads: list[Tensor | None], tensors: Sequence[Tensor], y: Tensor, lam: Tensor
    ) -> None:
        """Add gradients by steps and smoothness weights that are not part of the kernels."""
        assert self._in_tensors is not None
        with torch.no_grad(), safe_threads():
            problem = self.fit([*tensors[:4], *self._weights])
            for i, change in zip((3, 6), self._in_tensors(problem, lam, y)):
                g = grads[i] if i < len(grads) else None
                if g is not None and g.shape == change.shape:
                    g += change
                elif g is not None:  # summed over time
                    g[:, 0] += change.sum(1)


def _separator_covariances(chain: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Of separators and with those before, `(B, P, 2, k, k)`; and the inverse pivots."""
    B, P, _ = chain.shape
    R, S = chain.new_zeros(B, P, k, k), chain.new_zeros(B, P, k, k)
    for j in range(k):
        row = chain[:, :, j * 2 * k - (j * (j - 1)) // 2 :][:, :, : 2 * k - j]
        R[:, :, j, j], R[:, :, j, j + 1 :] = 1 / row[:, :, 0], row[:, :, 1 : k - j]
        S[:, : P - 1, j] = row[:, : P - 1, k - j :]
    both = torch.cat([torch.eye(k, dtype=R.dtype).expand_as(R), S], -1)
    inverse, gain = torch.linalg.solve_triangular(R, both, upper=True).split(k, -1)
    out = chain.new_zeros(B, P, 2, k, k)
    out[:, :, 0] = inverse @ inverse.mT
    for p in range(P - 2, -1, -1):
        product = gain[:, p] @ out[:, p + 1, 0]
        out[:, p, 0] += product @ gain[:, p].mT
        out[:, p + 1, 1] = -product.mT
    return out, 1 / R.diagonal(dim1=2, dim2=3)


def load_notes(g: Tensor) -> dict[str, int]:
    return {"@g": g.data_ptr(), **{f"g.{i}": 8 * x for i, x in enumerate(g.stride())}}


def readable(g: Tensor) -> Tensor:
    """A gradient in memory that the kernels can read."""
    if g.is_neg() or is_zero_tensor(g):
        g = in_memory(g)
    if type(g) is not Tensor or g.dtype is not torch.float64:
        check_memory(g)
        g = torch.from_numpy(g.numpy(force=True))
    return g


def check_memory(*tensors: Tensor) -> None:
    """Raise an error for tensors whose memory the kernels cannot read."""
    for x in tensors:
        if x.dtype is not torch.float64 or x.device.type not in ("cpu", "meta"):
            raise RuntimeError(
                f"cpu backend: got {x.dtype} on {x.device}; expected torch.float64 on the CPU. "
                "If a hook unpacks saved tensors, it has to give them back as they were."
            )
