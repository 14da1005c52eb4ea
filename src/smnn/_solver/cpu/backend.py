"""The `cpu` backend: kernels compiled in the process, threaded over the batch or pieces of time."""

from __future__ import annotations

import importlib.util
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smnn._solver.cpu import layout
from smnn._solver.cpu.chain import eliminate_chain, solve_chain
from smnn._solver.cpu.covariances import covariances
from smnn._solver.cpu.eliminate import eliminate
from smnn._solver.cpu.emit import Code, compiled, moving_functions
from smnn._solver.cpu.frame import rotating_functions
from smnn._solver.cpu.layout import PLACES, Sizes, W
from smnn._solver.cpu.row_gradients import row_gradients
from smnn._solver.cpu.substitute import substitute_back, substitute_forward
from smnn._solver.diagnostics import DOUBTFUL_PIVOT, Diagnostics, diagnosed
from smnn._solver.plan import (
    Backend,
    Plan,
    Solved,
    in_memory,
    is_zero_tensor,
    refuse_zeros,
    safe_threads,
)
from smnn._solver.problem import HERMITE, Problem, number_of
from smnn._solver.rows import (
    central_gradients,
    link_rows,
    smoothness_gradients,
    smoothness_top,
    taylor,
)
from smnn._solver.tracing import constant

SHORTEST_PIECE = 24  # Minimum number of times per piece; below, the overhead exceeds the gain
TIMES_PER_GROUP = 2048  # Times of all sequences for which another group of pieces is worth it
MOST_GROUPS = 16
LEAST_WORK = 4e4  # Operations below which threading does not pay off
LARGEST_STRAIGHT = 6
"""Block size up to which the kernels are written for one size, without loops over its unknowns."""
LEAST_STRAIGHT = 1e5
"""Operations from which that pays off, as it has to be compiled for every size."""
NAMES = ("c", "d", "u", "s", "w_gov", "w_init", "w_smooth")

_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}


@constant
def _threads() -> int:
    return torch.get_num_threads()


def _in_threads(kernel: Callable[[int, int], Any], count: int, work: float) -> None:
    """Run `kernel(first, last)` over `0..count`, threaded if there is enough work."""
    threads = 1 if work < LEAST_WORK else min(_threads(), count, int(2 * work / LEAST_WORK))
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


def _allocate(shape: Any) -> Tensor:
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
        self, backend: CpuBackend, problem: Problem, pieces: int, rows_only: bool = False
    ) -> None:
        super().__init__(backend, problem, pieces)
        self._kernels = backend.kernels
        B, T, Q, V, m = problem.c.shape
        sizes = self._sizes = Sizes((B, T, Q, V, m), problem.reach, pieces)
        self._weights = [x.detach() for x in problem.tensors[4:]]
        # Passed to the kernels by address, so they must live as long as the plan.
        w_smooth = self._weights[2]
        # Gradients by steps and smoothness weights, computed by tensor operations.
        self._in_tensors = {"smnn": None, "central": central_gradients}.get(
            problem.scheme, smoothness_gradients
        )
        self._links = [*link_rows(w_smooth, problem.scheme), w_smooth[..., -1]]
        self._taylor = np.concatenate([taylor(m - 1, sign)[0].numpy() for sign in (1, -1)])
        self._lanes = _lanes(sizes)
        T_init, m_init = problem.u.shape[1], problem.u.shape[3]
        top, high = smoothness_top(m - 1, problem.scheme), T_init * m_init + 1
        if problem.scheme.startswith(HERMITE):  # c contains derivatives of the equations
            high = m if high > top else 0
        counts = {
            "T": T, "P": pieces, "L": sizes.L, "V": V, "m": m, "Q": Q, "reach": problem.reach,
            "k": 0 if rows_only else sizes.k, "T_init": T_init, "m_init": m_init,
            "top": top if problem.scheme in ("smnn", "central") else 0, "high": min(high, m),
            "unit": number_of(problem.scheme) if w_smooth.stride(-1) == 0 or m == 1 else 0,
            "given": int(rows_only or pieces > 1),
        }  # fmt: skip
        self._notes: np.ndarray = np.zeros(len(PLACES), np.int64)
        tensors = dict(zip(NAMES, problem.tensors))
        tensors |= dict(zip(("scale", "K", "KF", "w_top"), self._links))
        tensors["y"] = torch.empty(problem.y_shape, device="meta")
        self._note(counts | _strides(tensors) | self._addresses())
        self._straight = sizes.n <= LARGEST_STRAIGHT and sizes.work >= LEAST_STRAIGHT
        self.recomputes = pieces == 1 and self._straight
        self._grad_shapes: list[tuple[int, ...]] = []

    def _note(self, numbers: Mapping[str, int]) -> None:
        for name, number in numbers.items():
            self._notes[PLACES[name]] = number

    def _known(self) -> dict[str, int]:
        """What the kernels of this plan are written for; nothing if they are those for all."""
        if not self._straight:
            return {}
        names = ["V", "m", "Q", "reach", "k", "m_init", "top", "high", "unit", "given"]
        names += [x for x in PLACES if x.endswith(".1") and x not in ("g.1", "u.1", "w_init.1")]
        given = self._notes[PLACES["given"]]
        return {x: int(self._notes[PLACES[x]]) for x in (names if given else [*names, "P"])}

    def _prepare_gradients(self, tensors: Sequence[Tensor]) -> None:
        """Determine the shapes of gradients; those constant in time are summed over each piece."""
        time, shapes = len(self.batch), []
        every = [*tensors[:4], *self._weights]
        for name, x, like in zip(NAMES, every, self.problem.tensors):
            shape = tuple(like.shape)
            steady = name != "u" and name != "w_init" and shape[1] > 1
            if steady and x.ndim > time and x.shape[time] == 1 and x.shape != like.shape:
                shape = (shape[0], self.pieces, *shape[2:])
            shapes.append(shape)
            self._note(_strides({f"g{name}": torch.empty(shape, device="meta")}))
            if shape != tuple(like.shape):
                self._note({f"g{name}.1": 0})
        self._grad_shapes = shapes

    def _addresses(self) -> dict[str, int]:
        known = zip(layout.FIXED, [*self._weights, *self._links])
        out = {f"@{name}": x.data_ptr() for name, x in known}
        return out | {"@taylor": self._taylor.ctypes.data, "@lanes": self._lanes.ctypes.data}

    def _run(
        self, parts: int, count: int, work: float, addresses: Mapping[str, int], own: int = 0
    ) -> None:
        """Execute some parts of the program; `own` is how much each thread needs of its own."""
        run, table = self._kernels(self._known(), parts)
        notes = self._notes.copy()
        for name, address in addresses.items():
            notes[PLACES[name]] = address
        at = notes.ctypes.data
        size = self._sizes.room + own

        def work_on(first: int, last: int) -> None:
            room = torch.empty(size, dtype=torch.float64)
            run(at, room.data_ptr(), table.ctypes.data, len(table), first, last)

        _in_threads(work_on, count, work)

    def _inputs(self, tensors: Sequence[Tensor]) -> dict[str, int]:
        refuse_zeros(tensors)
        return {f"@{name}": x.data_ptr() for name, x in zip("cdus", tensors)}

    # ------------------------------------------------------------ solving

    def solve(self, tensors: Sequence[Tensor] = ()) -> Solved:
        return self._solve(tensors or self.problem.tensors[:4], True)

    def forward(self, tensors: Sequence[Tensor]) -> Solved:
        return self._solve(tensors, not self.recomputes)

    def _solve(self, tensors: Sequence[Tensor], keep: bool) -> Solved:
        c, d, u, s = tensors[:4]
        sizes = self._sizes
        y = _allocate(self.problem.y_shape)
        factor = _allocate(sizes.factor if keep else 0)
        found: np.ndarray = np.empty((sizes.groups, 4, W))
        call = self._inputs((c, d, u, s))
        call |= {"@y": y.data_ptr(), "@found": found.ctypes.data}
        call["@factor"] = factor.data_ptr() if keep else 0
        own = sizes.z + (0 if keep else sizes.group_factor)
        if sizes.P == 1:
            both = layout.ELIMINATE | layout.SUBSTITUTE
            self._run(both, sizes.groups, sizes.work, call, own)
        else:
            kept = self._between(call, factor, np.zeros(sizes.coupling))
            self._run(layout.ELIMINATE, sizes.groups, sizes.work, call)
            self._run(layout.CHAIN, sizes.B, sizes.B * sizes.P * sizes.k**3, call)
            self._run(layout.SUBSTITUTE, sizes.groups, sizes.work / sizes.n, call)
            del kept
        return self._checked((c, d, u, s), y, factor, found, keep)

    def _between(self, call: dict[str, int], factor: Tensor, coupling: np.ndarray) -> list[Any]:
        """Memory that couples the pieces; the result keeps it alive."""
        sizes = self._sizes
        z: np.ndarray = np.empty(sizes.groups * sizes.z)
        separators: np.ndarray = np.empty(sizes.B * sizes.P * sizes.k)
        call["@z"], call["@coupling"] = z.ctypes.data, coupling.ctypes.data
        call["@separators"] = separators.ctypes.data
        call["@chain"] = factor.data_ptr() + 8 * sizes.groups * sizes.group_factor
        return [z, coupling, separators]

    def _checked(
        self, tensors: Sequence[Tensor], y: Tensor, factor: Tensor, found: np.ndarray, keep: bool
    ) -> Solved:
        """Weakest pivots of the sequences, and what follows if one is doubtful."""
        sizes = self._sizes
        B, P, n = sizes.B, sizes.P, sizes.n
        ratio, where, bad_step, high = found.transpose(1, 0, 2).reshape(4, -1)[:, : B * P]
        if P > 1:
            first, end = self._lanes.transpose(1, 0, 2).reshape(4, -1)[2:, : B * P]
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
        _check_memory(factor)
        lam = _allocate(self.problem.y_shape)
        g = _readable(g)
        call = {"@factor": factor.data_ptr(), "@lam": lam.data_ptr(), **_load(g)}
        sizes = self._sizes
        if sizes.P == 1:
            parts = layout.LOAD | layout.SUBSTITUTE
            self._run(parts, sizes.groups, sizes.work / sizes.n, call, sizes.z)
        else:
            self._adjoint_in_pieces(factor, call)
        del g, factor  # alive until here: compiled autograd drops unused names
        return lam

    def _adjoint_in_pieces(self, factor: Tensor, call: dict[str, int]) -> None:
        sizes = self._sizes
        kept = self._between(call, factor, np.empty(2 * sizes.B * sizes.P * sizes.k))
        self._run(layout.LOAD, sizes.groups, sizes.work / sizes.n, call)
        self._run(layout.CHAIN_AGAIN, sizes.B, sizes.B * sizes.P * sizes.k**2, call)
        self._run(layout.SUBSTITUTE, sizes.groups, sizes.work / sizes.n, call)
        del kept

    def covariances(self, tensors: Sequence[Tensor] = ()) -> tuple[Tensor, Tensor, Tensor]:
        sizes, n = self._sizes, self._sizes.n
        B, T = sizes.B, sizes.T
        cov, lag = _allocate((B, T, n, n)), _allocate((B, T, n, n))
        factor, found = _allocate(sizes.factor), np.empty((sizes.groups, 4, W))
        call = self._inputs(tensors or self.problem.tensors[:4])
        call |= {"@factor": factor.data_ptr(), "@found": found.ctypes.data}
        call |= {"@cov": cov.data_ptr(), "@lag": lag.data_ptr()}
        if sizes.P == 1:
            both = layout.ELIMINATE | layout.COVARIANCES
            self._run(both, sizes.groups, 2 * sizes.work, call, sizes.z)
            chain = factor.new_empty(B, 1, 0)
        else:
            kept = self._between(call, factor, np.zeros(sizes.coupling))
            self._run(layout.ELIMINATE, sizes.groups, sizes.work, call)
            self._run(layout.CHAIN, B, B * sizes.P * sizes.k**3, call)
            chain = factor[sizes.groups * sizes.group_factor :].view(B, sizes.P, -1)
            between, chain = _separator_covariances(chain, sizes.k)
            call["@separators"] = between.data_ptr()
            self._run(layout.COVARIANCES, sizes.groups, sizes.work, call)
            del kept, between
        inverses = factor[: sizes.groups * sizes.group_factor].view(sizes.groups, sizes.L, -1, W)
        inverses = inverses[:, : sizes.L - (sizes.P > 1)]
        places = [j * (2 * n + sizes.k) - (j * (j - 1)) // 2 for j in range(n)]
        logs = torch.stack([inverses[:, :, i].abs().log().sum(1) for i in places]).sum(0)
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
        sizes, gy = self._sizes, _readable(gy)
        parts, own, work = layout.LOAD | layout.ROWS, sizes.z, sizes.work / sizes.n
        call = {"@factor": 0, **_load(gy)}
        if factor.numel():
            call["@factor"] = factor.data_ptr()
        else:
            found: np.ndarray = np.empty((sizes.groups, 4, W))
            call["@found"] = found.ctypes.data
            parts, own, work = parts | layout.ELIMINATE, own + sizes.group_factor, sizes.work
        lam = _allocate(self.problem.y_shape) if self._in_part(wanted) else None
        call["@lam"] = 0 if lam is None else lam.data_ptr()
        grads = self._rows(parts, own, work, call, tensors, y, lam, wanted)
        del gy, factor  # see `adjoint`
        return grads

    def row_gradients(
        self, tensors: Sequence[Tensor], y: Tensor, lam: Tensor, wanted: Sequence[bool]
    ) -> list[Tensor | None]:
        call = {"@lam": lam.data_ptr()}
        return self._rows(layout.ROWS, 0, self._sizes.work, call, tensors, y, lam, wanted)

    def _in_part(self, wanted: Sequence[bool]) -> bool:
        """Whether tensor operations contribute to the requested gradients."""
        return self._in_tensors is not None and bool(wanted[3] or any(wanted[6:]))

    def _rows(
        self, parts: int, own: int, work: float, call: dict[str, int], tensors: Sequence[Tensor],
        y: Tensor, lam: Tensor | None, wanted: Sequence[bool],
    ) -> list[Tensor | None]:  # fmt: skip
        if not self._grad_shapes:
            self._prepare_gradients(tensors)
        grads = [_allocate(shape) if w else None for w, shape in zip(wanted, self._grad_shapes)]
        if len(grads) > 6 and grads[6] is not None:  # not all orders of central rows have weights
            grads[6].zero_()
        call |= self._inputs(tensors[:4])
        call["@y"] = y.data_ptr()
        call |= {f"@g{x}": g.data_ptr() for x, g in zip(NAMES, grads) if g is not None}
        self._run(parts, self._sizes.groups, work, call, own)
        if lam is not None and self._in_tensors and self._in_part(wanted) and self._sizes.T > 1:
            with torch.no_grad(), safe_threads():
                problem = Problem.of([*tensors[:4], *self._weights], self.problem.scheme)
                problem = self.fit(problem.tensors)
                for i, change in zip((3, 6), self._in_tensors(problem, lam, y)):
                    g = grads[i] if i < len(grads) else None
                    if g is not None and g.shape == change.shape:
                        g += change
                    elif g is not None:  # summed over time
                        g[:, 0] += change.sum(1)
        del tensors, y, lam  # see `adjoint`
        return grads


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


def _lanes_for(B: int, T: int) -> int:
    return W * min(MOST_GROUPS, max(1, B * T // TIMES_PER_GROUP))


def _lanes(sizes: Sizes) -> np.ndarray:
    """For every group and lane: sequence, number of the piece, its first time, and its end."""
    B, T, P = sizes.B, sizes.T, sizes.P
    b, p = np.divmod(np.minimum(np.arange(sizes.groups * W), max(B * P - 1, 0)), P)
    first, end = (x * (T // P) + np.minimum(x, T % P) for x in (p, p + 1))
    table = np.stack([b, p, first, end]).reshape(4, sizes.groups, W).transpose(1, 0, 2)
    return np.ascontiguousarray(table, np.int64)


def _strides(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Strides of tensors in bytes."""
    pairs = [(name, axis, x.stride(axis)) for name, x in tensors.items() for axis in range(x.ndim)]
    return {f"{name}.{axis}": 8 * stride for name, axis, stride in pairs}


def _load(g: Tensor) -> dict[str, int]:
    return {"@g": g.data_ptr(), **{f"g.{i}": 8 * x for i, x in enumerate(g.stride())}}


def _readable(g: Tensor) -> Tensor:
    """A gradient in memory that the kernels can read."""
    if g.is_neg() or is_zero_tensor(g):
        g = in_memory(g)
    if type(g) is not Tensor or g.dtype is not torch.float64:
        _check_memory(g)
        g = torch.from_numpy(g.numpy(force=True))
    return g


_KERNELS = {
    layout.ELIMINATE: eliminate, layout.CHAIN: eliminate_chain, layout.LOAD: substitute_forward,
    layout.CHAIN_AGAIN: solve_chain, layout.SUBSTITUTE: substitute_back, layout.ROWS: row_gradients,
    layout.COVARIANCES: covariances,
}  # fmt: skip


def _loop() -> Code:
    """`run(notes, room, table, count, first, last)`: kernels one after the other for each group."""
    e = Code("run", 1, 6, False)
    notes, room, table, count, first, last = e.arguments
    for group in e.range(first, last):
        for i in e.range(0, count):
            kernel = e.memory(e.memory(table, "i64")[i]).pointer
            e.line(f"call void {kernel}(i64 {notes.name}, i64 {room.name}, i64 {group.name})")
    return e


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

    def __init__(self) -> None:
        self._compiled: dict[Any, tuple[Any, Any, int]] = {}

    def kernels(self, known: Mapping[str, int], parts: int) -> tuple[Any, np.ndarray]:
        """The function that runs kernels, and the addresses of those of some parts."""
        if not self._compiled:
            self._compiled[()] = compiled([_loop()])
        key, table = tuple(known.items()), []
        for which, write in _KERNELS.items():
            if parts & which:
                if (key, which) not in self._compiled:
                    helpers = [*moving_functions(W), *rotating_functions()]
                    self._compiled[key, which] = compiled([*helpers, write(known)])
                table.append(self._compiled[key, which][2])
        return self._compiled[()][1], np.array(table, np.int64)

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
        _check_memory(*problem.tensors)
        return CpuPlan(self, problem, self.pieces_of(problem) if pieces is None else pieces)

    def row_gradients(
        self, problem: Problem, lam: Tensor, y: Tensor, wanted: Sequence[bool]
    ) -> list[Tensor | None]:
        """Row gradients, in as many pieces as fill the lanes."""
        _check_memory(y, lam)
        B, T = problem.y_shape[:2]
        pieces = max(1, min(_lanes_for(B, T) // max(B, 1), T))
        plan = CpuPlan(self, problem, pieces, rows_only=True)
        return plan.row_gradients(problem.tensors, y.contiguous(), lam.contiguous(), wanted)
