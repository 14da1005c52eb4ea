"""The `gpu` backend: Triton kernels, parallel over the batch and over pieces of time."""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from smnn._solver.diagnostics import Diagnostics
from smnn._solver.gpu import launcher, strategy
from smnn._solver.gpu.emit import interpreted
from smnn._solver.gpu.reduction.levels import shape_of, sizes_of, words
from smnn._solver.plan import Backend, Plan, in_memory, refuse_zeros
from smnn._solver.problem import Problem, Solved
from smnn._solver.rows import link_rows, on_device, unit_link
from smnn._solver.tracing import constant
from smnn.errors import BackendError

LANES_WANTED = 32768
"""Number of lanes that keep a large GPU busy; below, sequences are cut into pieces."""
LARGEST_BLOCK = 256
"""Largest block (unknowns per time) whose active rows fit into the registers of eight warps."""
SMALL_BLOCK = 6  # Largest block for which cutting a sequence pays off even for a single sequence
LARGEST_IN_A_LANE = 12  # Largest block that fits into the registers of one lane
LARGEST_SEPARATOR = 6
"""Largest separator whose unrolled kernels compile in seconds.

A separator of 9 unknowns takes a minute, 12 take several, and the registers spill.
"""
OLDEST = 7, 5  # Minimum compute capability that supports the inline PTX of the kernels
REDUCED = -1  # Value of `pieces` that selects odd-even reduction (`reduction/solve.py`)


class GpuPlan(Plan):
    """Launches for one layout: whole sequences, pieces, or odd-even reduction."""

    def __init__(self, backend: GpuBackend, problem: Problem, pieces: int) -> None:
        super().__init__(backend, problem, pieces)
        self._levels: tuple[strategy.Level, ...] = ()
        if pieces != REDUCED:
            self._levels = strategy.plan(
                *problem.y_shape[:2], pieces, *problem.y_shape[2:], problem.reach
            )
        first = self._levels[0] if self._levels else None
        self._spec, inputs, self._strides = _inputs(problem, first)
        self._constants = {
            name: x for name, x in inputs.items() if name not in ("c", "d", "u", "s")
        }
        self._compiled: Any = None

    @property
    def _programs(self) -> ModuleType:
        from smnn._solver.gpu import programs  # imports Triton

        return programs

    @property
    def _reduction(self) -> ModuleType:
        from smnn._solver.gpu.reduction import solve  # imports Triton

        return solve

    def solve(self, tensors: Sequence[Tensor] = ()) -> Solved:
        """Eliminate level by level, then substitute back.

        Raises:
            BackendError: Out of device memory; the message gives the number of samples that fit.
        """
        try:
            return self._solve(self.fit(tensors))
        except torch.OutOfMemoryError as error:
            raise self.out_of_memory() from error

    def _solve(self, problem: Problem) -> Solved:
        inputs = self._inputs(problem)
        if not self._levels:
            return self._reduction.solve(problem, inputs, self._strides)
        levels, new, B = self._levels, problem.c.new_empty, problem.c.shape[0]
        factor, y = new(sum(level.factor_size for level in levels)), new(problem.y_shape)
        count = strategy.ratio_count(levels)
        ratios, wheres = new((count, B)), new((count, B), dtype=torch.int64)
        status = new(B, dtype=torch.int64)
        if B:
            program, scratch = self._programs.solve_program(levels, self._spec, self._strides)
            inputs |= {"factor": factor, "y": y, "scratch": new(scratch), "rcond": ratios}
            program.run(inputs | {"weakest": wheres, "status": status})
        return Solved(y, factor, Diagnostics(status, ratios[-1], wheres[-1]))

    def _inputs(self, problem: Problem) -> dict[str, Tensor]:
        refuse_zeros(problem.tensors[:4])
        own = {name: _packed(x, 2) for name, x in zip("cdu", problem.tensors)}
        return own | {"s": problem.s} | self._constants

    def adjoint(self, factor: Tensor, g: Tensor) -> Tensor:
        if not self._levels:
            return self._reduction.adjoint(self.problem, factor, g)
        out = factor.new_empty(self.problem.y_shape)
        if g.shape[0]:
            program, scratch = self._programs.adjoint_program(self._levels)
            tensors = {"g": in_memory(g), "factor": factor, "y": out}
            program.run(tensors | {"scratch": factor.new_empty(scratch)})
        return out

    def gradients(
        self, tensors: Sequence[Tensor], y: Tensor, factor: Tensor, gy: Tensor,
        wanted: Sequence[bool], into: Sequence[Tensor | None] = (),
    ) -> list[Tensor | None]:  # fmt: skip
        """Adjoint solve and row gradients; the adjoint solution stays in scratch memory if it can."""
        lanes = strategy.adjoint_lanes(self._levels)
        if not lanes or not y.shape[0]:
            lam = self.adjoint(factor, gy)
            return self.row_gradients(tensors, y, lam, wanted, into)
        program, size = self._programs.adjoint_program(self._levels, True)
        lam = factor.new_empty(size)
        program.run({"g": in_memory(gy), "factor": factor, "scratch": lam})
        return self._rows(self.fit(tensors), y, lam, wanted, into, lanes)

    def row_gradients(
        self, tensors: Sequence[Tensor], y: Tensor, lam: Tensor, wanted: Sequence[bool],
        into: Sequence[Tensor | None] = (),
    ) -> list[Tensor | None]:  # fmt: skip
        return self._rows(self.fit(tensors), y, lam.contiguous(), wanted, into)

    def _rows(
        self, problem: Problem, y: Tensor, lam: Tensor, wanted: Sequence[bool],
        into: Sequence[Tensor | None], adjoint_lanes: int = 0,
    ) -> list[Tensor | None]:  # fmt: skip
        every = (*wanted, *(7 - len(wanted)) * (False,))
        shapes = [x.shape for x in problem.tensors]
        room = [*(into or (y.new_empty(x) if w else None for x, w in zip(shapes, wanted)))]
        out = {name: y.new_empty((0,) * len(x)) for name, x in zip(strategy.GRADIENTS, shapes)}
        out |= {name: g for name, g in zip(strategy.GRADIENTS, room) if g is not None}
        if y.shape[0]:
            program = self._row_program(every, adjoint_lanes)
            program.run(self._inputs(problem) | out | {"lam": lam, "y": y.contiguous()})
        return room

    def _row_program(self, wanted: tuple[bool, ...], adjoint_lanes: int) -> Any:
        return self._programs.rows_program(
            self.problem.y_shape, self._spec, self._strides, wanted, adjoint_lanes
        )

    def out_of_memory(self) -> BackendError:
        """Error with the amount of memory required and the number of samples that fit."""
        problem, device = self.problem, self.problem.w_gov.device
        B, T, V, m = problem.y_shape
        size = self.backend.factor_size(problem, self.pieces)
        if self.pieces == REDUCED:
            size = words(B, T, V * m, problem.reach)
        needed = 8 * (size + 3 * math.prod(problem.y_shape))
        free, total = torch.cuda.mem_get_info(device)
        fits = min(B - 1, int(0.9 * B * free / needed))
        advice = "Not even one fits: use shorter series, or the CPU."
        if fits > 0:
            advice = f"About {fits:,} fit: solve the batch in parts, or with keep_factor=False."
        return BackendError(
            f"not enough GPU memory for {B:,} samples of {T:,} times: about "
            f"{needed / 2**30:.1f} GiB needed, {free / 2**30:.1f} of {total / 2**30:.1f} free. "
            f"{advice}"
        )

    # ------------------------------------------------------------ C++ launcher

    def compiled(self, differentiable: Callable[..., Any]) -> Any:
        """Solve and derivative from C++, if the launcher is compiled."""
        if self._compiled is not None or not self._launchable():
            return self._compiled
        module = launcher.native()
        if module is not None:
            self._compiled = module.make(self._description(differentiable))
        return self._compiled

    def _launchable(self) -> bool:
        problem = self.problem
        if interpreted() or len(self.given) != 4 or not problem.c.shape[0]:
            return False
        if problem.w_smooth.stride(-1) or any(_packed(x, 2) is not x for x in problem.tensors[:3]):
            return False
        return bool(self._levels) or sizes_of(problem).at_once

    def _description(self, differentiable: Callable[..., Any]) -> dict[str, Any]:
        device = self.given[0].device if self.given[0].is_cuda else self.problem.w_gov.device
        fixed = {name: x.data_ptr() for name, x in self._constants.items()}
        levels, lanes = self._levels, strategy.adjoint_lanes(self._levels)
        if levels:
            solve, scratch = self._programs.solve_program(levels, self._spec, self._strides)
            adjoint, adjoint_scratch = self._programs.adjoint_program(levels, lanes > 0)
        else:
            sizes = sizes_of(self.problem)
            solve, scratch = self._reduction.solve_program(sizes, self._strides)
            adjoint, adjoint_scratch = self._reduction.adjoint_program(sizes.shape)

        def numbers(program: Any, own: dict[str, str] | None = None) -> list[Any]:
            with torch.cuda.device(device.index):
                return launcher.describe(program.launches, device.index, own or {})

        def program_for(which: int) -> list[Any]:
            """Launches of the row gradients selected by a bit mask, or of the adjoint."""
            if which == launcher.ADJOINT:
                return numbers(adjoint, {"y": "lam"})
            wanted = *(bool(which >> i & 1) for i in range(4)), False, False, False
            program = self._row_program(wanted, lanes)
            names = [g for g, w in zip(strategy.GRADIENTS, wanted) if w]
            unwanted = {g: 0 for g in strategy.GRADIENTS if g not in names}
            B = self.problem.y_shape[0]
            words = {g: math.prod(shapes[g]) // B for g in names}
            clear = self._programs.clear_program(B, words)
            return numbers(program.bound(fixed | unwanted)) + numbers(clear)

        def twice(tensors: list[Tensor], gy: Tensor, mask: int) -> list[Tensor | None]:
            wanted = [bool(mask >> i & 1) for i in range(4)]
            found: list[Tensor | None] = differentiable(self, tensors, gy, wanted, True)
            return found

        pairs = zip(self.given, self.problem.tensors)
        own = (list(x.shape if x.numel() == n.numel() else n.shape) for x, n in pairs)
        shapes = dict(zip(strategy.GRADIENTS, own))
        return {
            "solve": numbers(solve.bound(fixed)),
            "y_shape": list(self.problem.y_shape),
            "batch": list(self.batch),
            "shapes": [*shapes.values()],
            "strides": [list(x.stride()) for x in self.given],
            "device": str(device),
            "functions": launcher.cuda_functions(),
            "factor_size": self.backend.factor_size(self.problem, self.pieces),
            "scratch_size": scratch,
            "adjoint_scratch": adjoint_scratch,
            "adjoint_in_scratch": lanes > 0,
            "ratios": strategy.ratio_count(levels) or 1,
            "program_for": program_for,
            "differentiable": twice,
        }


class GpuBackend(Backend):
    """Orthogonal elimination in the registers of a lane, a team of lanes, or a few warps.

    A few long sequences of larger blocks, and the largest blocks, use odd-even reduction.
    """

    name = "gpu"
    schemes = ("smnn", "central")

    def unavailable(self, device: torch.device | None = None, n: int = 1) -> str | None:
        """Requires Triton and a recent GPU, or Triton's interpreter on the CPU."""
        del n
        if device is None:
            if importlib.util.find_spec("triton") is None:
                return "triton is not installed; it comes with PyTorch for CUDA on Linux"
            if not torch.cuda.is_available() and not interpreted():
                return "PyTorch sees no CUDA device"
            return None
        if not (device.type == "cuda" or (device.type == "cpu" and interpreted())):
            return f"the tensors are on {device}, not on a CUDA device"
        return _too_old(device) if device.type == "cuda" else None

    def pieces(self, B: int, T: int, n: int, reach: int) -> int:
        """Number of pieces per sequence, or the strategy to use instead.

        Sequences are cut until the lanes fill the device, as long as the pieces are long enough. 0
        selects a team of lanes (`team/columns.py`) or a few warps (`tile/tiles.py`) per sequence:
        for blocks too large for a lane, and for medium ones while the batch alone does not fill the
        device. 1 is a whole sequence per lane, or per pair of lanes from both ends if the scheme
        allows it. `REDUCED` selects odd-even reduction: a few long sequences of larger blocks, and
        blocks too large for the registers of a few warps.
        """
        small = reach * n <= LARGEST_SEPARATOR
        if n > LARGEST_BLOCK or (not small and _reduction_is_faster(B, T, n, reach)):
            return REDUCED
        cuttable = n <= LARGEST_IN_A_LANE and (small or interpreted())
        # Break-even point on a large GPU; higher if a pair of lanes shares a sequence.
        few = n >= 6 and 10 * n**3 >= B if reach > 1 else n >= 7 and 7 * n**3 >= 5 * B
        short = T <= 500 + 8 * B and not interpreted()
        if n > LARGEST_IN_A_LANE or (few and (short or not cuttable)):
            return 0
        # Thousands of short pieces cost about one decimal digit of accuracy.
        shortest = max(
            strategy.SHORTEST_PIECE, 2 * n, 4 * reach, min(T // 256, strategy.LONG_PIECE)
        )
        cut = min(-(-LANES_WANTED // max(B, 1)), T // shortest)
        # The extra columns of the separators are cheap for few unknowns only.
        worth = 3 if n <= 3 or reach > 1 else 12
        return cut if cut >= worth and cuttable and B < LANES_WANTED // 4 else 1

    def full_load(self, n: int) -> int:
        """Small blocks fill a device by pieces; others need a sequence per warp."""
        if n <= SMALL_BLOCK:
            return 1
        return 2048 if n <= strategy.LARGEST_IN_A_WARP else 512

    def factor_size(self, problem: Problem, pieces: int) -> int:
        if pieces == REDUCED:
            return shape_of(problem).factor_size
        B, T, V, m = problem.y_shape
        levels = strategy.plan(B, T, pieces, V, m, problem.reach)
        return sum(level.factor_size for level in levels)

    def plan(self, problem: Problem, pieces: int | None = None) -> GpuPlan:
        return GpuPlan(self, problem, self.pieces_of(problem) if pieces is None else pieces)

    def row_gradients(
        self, problem: Problem, lam: Tensor, y: Tensor, wanted: Sequence[bool]
    ) -> list[Tensor | None]:
        return self.plan(problem).row_gradients(problem.tensors, y, lam, wanted)


def _packed(x: Tensor, axis: int) -> Tensor:
    """The tensor with contiguous axes from `axis` on."""
    size = 1
    for i in range(x.ndim - 1, axis - 1, -1):
        if x.shape[i] > 1 and x.stride(i) != size:
            return x.contiguous()
        size *= x.shape[i]
    return x


@functools.cache
def _capability(index: int) -> tuple[int, int]:
    return torch.cuda.get_device_capability(index)


@constant
def _too_old(device: torch.device) -> str | None:
    """Reason why the kernels do not compile for a device, or `None`."""
    index = torch.cuda.current_device() if device.index is None else device.index
    found = _capability(index)
    if found >= OLDEST or torch.version.hip is not None:
        return None
    name = torch.cuda.get_device_name(index)
    needed, has = (".".join(map(str, x)) for x in (OLDEST, found))
    return f"its kernels need compute capability {needed}, {name} has {has}"


@functools.cache
def _least_memory() -> int:
    devices = range(torch.cuda.device_count())
    return min((torch.cuda.get_device_properties(i).total_memory for i in devices), default=2**34)


@constant
def _memory() -> int:
    """Memory of the smallest device, in bytes."""
    return _least_memory()


def _reduction_is_faster(B: int, T: int, n: int, reach: int) -> bool:
    """Whether sequences are so few and long that odd-even reduction is faster.

    It needs about ten times the memory. More than fifty sequences keep a device busy without it,
    unless each is long. The thresholds are estimated from the cost of steps and levels on an H200;
    `benchmarks/bench_ways.py` measures them.
    """
    if n <= LARGEST_IN_A_LANE:
        wanted = (B <= 48 and T >= 300) or (B <= 480 and T > 500 + 8 * B)
    else:
        wanted = B <= 48 and (T >= 300 if n <= strategy.LARGEST_IN_A_WARP else T * n * n >= 65_000)
    return wanted and not interpreted() and 8 * words(B, T, n, reach) <= _memory() // 2


def _inputs(
    problem: Problem, level: strategy.Level | None = None
) -> tuple[object, dict[str, Tensor], object]:
    """Specialization of the source, the input tensors, and their strides."""
    from smnn._solver.gpu.lane.eliminate import Spec

    _, _, Q, V, m = problem.c.shape
    scale = K = KF = problem.w_smooth[..., 0]
    varying = m > 1 and problem.w_smooth.stride(-1) != 0
    if varying:
        scale, K, KF = link_rows(problem.w_smooth, problem.scheme)
        K, KF = _packed(K, 3), _packed(KF, 3)
        if K.stride() != KF.stride():
            K, KF = K.contiguous(), KF.contiguous()
    elif V * m > strategy.LARGEST_IN_A_WARP:
        unit = unit_link(m - 1, problem.scheme)
        K, KF = (on_device(x, scale.device).expand(*scale.shape, m, m) for x in unit)
    u = _packed(problem.u, 2)
    tensors = {
        "c": _packed(problem.c, 2), "d": _packed(problem.d, 2), "u": u, "s": problem.s,
        "wg": problem.w_gov, "wi": problem.w_init, "scale": scale,
        "wt": problem.w_smooth[..., -1], "ws": problem.w_smooth, "K": K, "KF": KF,
    }  # fmt: skip
    left, pairs = (level.P > 1, level.bidirectional) if level else (False, False)
    m_init = u.shape[3] if u.shape[1] else 0
    spec = Spec(V, m, Q, m_init, problem.scheme, left, varying, pairs)
    strides = tuple(tensors[name].stride()[: len(axes)] for name, axes in strategy.INPUTS)
    return spec, tensors, (u.shape[1], *strides)
