"""The `gpu` backend: Triton kernels, parallel over the batch and over pieces of time."""

from __future__ import annotations

import functools
import importlib.util
import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from smnn._solver.base import Backend, Solved, in_memory, refuse_zeros
from smnn._solver.gpu import strategy as plans
from smnn._solver.gpu import work
from smnn._solver.gpu.mode import interpreted
from smnn._solver.gpu.reduction import solve as reduction
from smnn._solver.gpu.reduction.levels import words
from smnn._solver.problem import Problem
from smnn._solver.taylor import link_rows, unit_link
from smnn._solver.tracing import constant
from smnn.errors import BackendError

if TYPE_CHECKING:
    from smnn._solver.gpu.prepared import Prepared

LANES_WANTED = 32768
"""Lanes that keep a large GPU busy; fewer sequences than that are cut into pieces."""
LARGEST_BLOCK = 256
"""Unknowns per time up to which eight warps have room for the rows of 32 columns in registers."""
SMALL_BLOCK = 6
"""Unknowns per time up to which pieces of a sequence are worth their overhead at once."""
LARGEST_IN_A_LANE = 12
"""Unknowns per time that fit into the registers of one of its lanes."""
LARGEST_SEPARATOR = 6
"""Unknowns between two pieces up to which their unrolled kernels compile in seconds.

With 9 it takes a minute, with 12 several, and registers have no room for them.
"""
OLDEST = 7, 5
"""Compute capability from which on the assembler knows all that the kernels ask of the memory."""
REDUCED = -1
"""In place of a number of pieces: odd-even reduction (`reduction/solve.py`)."""


class GpuBackend(Backend):
    """Orthogonal elimination in registers: of one lane, of a team, or of a few warps.

    Few long sequences of larger blocks, and the largest blocks, by odd-even reduction.
    """

    name = "gpu"

    def unusable(self) -> str | None:
        """Triton, and a GPU or the interpreter."""
        if importlib.util.find_spec("triton") is None:
            return "triton is not installed; it comes with PyTorch for CUDA on Linux"
        if not torch.cuda.is_available() and not interpreted():
            return "PyTorch sees no CUDA device"
        return None

    def unsupported(self, device: torch.device, n: int) -> str | None:
        """CUDA tensors on a device that is not too old, or CPU tensors in the interpreter."""
        del n
        if not (device.type == "cuda" or (device.type == "cpu" and interpreted())):
            return f"the tensors are on {device}, not on a CUDA device"
        return _too_old(device) if device.type == "cuda" else None

    def pieces(self, B: int, T: int, n: int, reach: int) -> int:
        """Enough lanes to fill the device, as long as pieces stay worth their overhead.

        Zero asks for a team of lanes per sequence (`team/columns.py`), or for one or a few warps
        (`tile/tiles.py`): blocks that are too large for one lane, and those of medium size as long
        as the sequences alone do not fill the device. Long ones are better cut, unless there are
        many. One is a whole sequence, from both its ends at once if the scheme allows that.
        `REDUCED` asks for odd-even reduction: few long sequences of all but small blocks, and
        blocks too large for the registers of a few warps.
        """
        small = reach * n <= LARGEST_SEPARATOR
        if n > LARGEST_BLOCK or (not small and _few(B, T, n, reach)):
            return REDUCED
        cuttable = n <= LARGEST_IN_A_LANE and (small or interpreted())
        # Where the ways cross on a large GPU; a pair of lanes moves the crossing up.
        few = n >= 6 and 10 * n**3 >= B if reach > 1 else n >= 7 and 7 * n**3 >= 5 * B
        short = T <= 500 + 8 * B and not interpreted()
        if n > LARGEST_IN_A_LANE or (few and (short or not cuttable)):
            return 0
        # Thousands of short pieces cost a digit.
        shortest = max(plans.SHORTEST_PIECE, 2 * n, 4 * reach, min(T // 256, plans.LONG_PIECE))
        cut = min(-(-LANES_WANTED // max(B, 1)), T // shortest)
        # Columns of a separator that ride along cost little with few unknowns only.
        worth = 3 if n <= 3 or reach > 1 else 12
        return cut if cut >= worth and cuttable and B < LANES_WANTED // 4 else 1

    def busy(self, n: int) -> int:
        """Small blocks fill a device with pieces of a few sequences; others need one for a warp."""
        if n <= SMALL_BLOCK:
            return 1
        return 2048 if n <= plans.LARGEST_IN_A_WARP else 512

    def factor_size(self, problem: Problem, pieces: int) -> int:
        """Every level's factor, one behind the other."""
        if pieces == REDUCED:
            return reduction.shape_of(problem).factor_size
        return sum(level.factor_size for level in _levels(problem, pieces))

    def solve(self, problem: Problem, pieces: int) -> Solved:
        """Eliminate every level up to the last, then substitute back down.

        Raises:
            BackendError: The device has not enough memory; says how many samples would fit.
        """
        try:
            return self._solve(problem, pieces)
        except torch.OutOfMemoryError as error:
            raise self.out_of_memory(problem, pieces, problem.c.device) from error

    def out_of_memory(self, problem: Problem, pieces: int, device: torch.device) -> BackendError:
        """What to do about it."""
        B, T, V, m = problem.y_shape
        size = self.factor_size(problem, pieces)
        if pieces == REDUCED:
            size = words(B, T, V * m, 2 if problem.scheme == "central" else 1)
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

    def _solve(self, problem: Problem, pieces: int) -> Solved:
        if pieces == REDUCED:
            _, tensors, strides = _inputs(problem)
            return reduction.solve(problem, tensors, strides)
        levels = _levels(problem, pieces)
        first = levels[0]
        new, B = problem.c.new_empty, first.B
        factor, y = new(sum(level.factor_size for level in levels)), new(problem.y_shape)
        count = plans.verdicts(levels)
        ratios, wheres = new((count, B)), new((count, B), dtype=torch.int64)
        status = new(B, dtype=torch.int64)
        if B:
            spec, tensors, strides = _inputs(problem, first)
            program, scratch = plans.solve_program(levels, spec, strides)
            tensors |= {"factor": factor, "y": y, "scratch": new(scratch), "rcond": ratios}
            program.run(tensors | {"weakest": wheres, "status": status})
        return Solved(y, factor, ratios[-1], wheres[-1], status)

    def prepare(self, problem: Problem, pieces: int) -> Prepared | None:
        """What `solve` and its derivative need, for tensors that lie in memory like these."""
        whole = all(_packed(x, 2) is x for x in problem.tensors[:3])
        if interpreted() or not whole or not problem.c.shape[0] or problem.w_smooth.stride(-1):
            return None
        if pieces == REDUCED and not reduction.sizes_of(problem).at_once:
            return None
        return prepared(problem, pieces)

    def adjoint(self, problem: Problem, factor: Tensor, g: Tensor, pieces: int) -> Tensor:
        """Forward substitution up the levels, back substitution down."""
        if pieces == REDUCED:
            return reduction.adjoint(problem, factor, g)
        levels = _levels(problem, pieces)
        out = factor.new_empty(problem.y_shape)
        if levels[0].B:
            program, scratch = plans.adjoint_program(levels)
            tensors = {"g": in_memory(g), "factor": factor, "y": out}
            tensors["scratch"] = factor.new_empty(scratch)
            program.run(tensors)
        return out

    def row_gradients(
        self, problem: Problem, lam: Tensor, y: Tensor, wanted: list[bool]
    ) -> list[Tensor]:
        """One pass over the rows."""
        out = _room(problem, y, wanted)
        if y.shape[0]:
            spec, tensors, strides = _inputs(problem)
            program = plans.rows_program(y.shape, spec, strides, tuple(wanted))
            program.run(tensors | out | {"y": y.contiguous(), "lam": lam.contiguous()})
        return [*out.values()]

    def gradients(
        self, problem: Problem, factor: Tensor, y: Tensor, gy: Tensor, pieces: int,
        wanted: list[bool],
    ) -> list[Tensor]:  # fmt: skip
        """As the two, in one launch where that is quicker."""
        levels = () if pieces == REDUCED else _levels(problem, pieces)
        held = plans.held(levels) if levels else 0
        if not held and not (levels and plans.together(levels)):
            return super().gradients(problem, factor, y, gy, pieces, wanted)
        scratch = factor.new_empty(plans.backward_scratch(levels))
        adjoint = {"g": in_memory(gy), "factor": factor, "scratch": scratch}
        if held and y.shape[0]:
            plans.adjoint_program(levels, True)[0].run(adjoint)
            adjoint = {"lam": scratch}
        out = _room(problem, y, wanted)
        if y.shape[0]:
            spec, tensors, strides = _inputs(problem)
            program = (
                plans.rows_program(y.shape, spec, strides, tuple(wanted), held)
                if held
                else plans.backward_program(levels, spec, strides, tuple(wanted))[0]
            )
            program.run(tensors | adjoint | out | {"y": y.contiguous()})
        return [*out.values()]


def prepared(problem: Problem, pieces: int) -> Prepared:
    """Everything but the addresses worked out, for tensors of this layout."""
    from smnn._solver.gpu.prepared import Prepared

    shape = problem.y_shape
    if pieces == REDUCED:
        spec, tensors, strides = _inputs(problem)
        launched = work.by_reduction(reduction.sizes_of(problem), shape, spec, strides)
    else:
        levels = _levels(problem, pieces)
        spec, tensors, strides = _inputs(problem, levels[0])
        launched = work.in_pieces(levels, shape, spec, strides)
    return Prepared(problem, launched, tensors)


def _room(problem: Problem, y: Tensor, wanted: list[bool]) -> dict[str, Tensor]:
    """Memory for gradients, by the names that kernels know; none for those that nobody wants."""
    none = y.new_empty(0)
    return {
        name: y.new_empty(x.shape) if w else none.view((0,) * x.ndim)
        for name, x, w in zip(plans.GRADIENTS, problem[:7], wanted, strict=True)
    }


def _levels(problem: Problem, pieces: int) -> tuple[plans.Level, ...]:
    B, T, V, m = problem.y_shape
    return plans.plan(B, T, pieces, V, m, 2 if problem.scheme == "central" else 1)


def _packed(x: Tensor, axis: int) -> Tensor:
    """The same tensor with the axes from `axis` on contiguous."""
    size = 1
    for i in range(x.ndim - 1, axis - 1, -1):
        if x.shape[i] > 1 and x.stride(i) != size:
            return x.contiguous()
        size *= x.shape[i]
    return x


@functools.cache
def _unit_link(R: int, scheme: str, device: torch.device) -> tuple[Tensor, Tensor]:
    """`K` and `K F` for weights of one, kept: prepared launches hold their addresses."""
    K, KF = unit_link(R, scheme)
    return torch.from_numpy(K).to(device), torch.from_numpy(KF).to(device)


@functools.cache
def _capability(index: int) -> tuple[int, int]:
    return torch.cuda.get_device_capability(index)


@constant
def _too_old(device: torch.device) -> str | None:
    """Why kernels would not compile for a device; `None` if they would."""
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
    """Bytes of the smallest device."""
    return _least_memory()


def _few(B: int, T: int, n: int, reach: int) -> bool:
    """Whether sequences are so few and long that odd-even reduction is sooner done.

    It needs some ten times the memory of one time after the other. More sequences than fifty keep a
    device busy that way, unless each is long. Where the ways cross is estimated from what steps and
    rounds take on an H200; `benchmarks/bench_ways.py` measures it.
    """
    if n <= LARGEST_IN_A_LANE:
        wanted = (B <= 48 and T >= 300) or (B <= 480 and T > 500 + 8 * B)
    else:
        wanted = B <= 48 and (T >= 300 if n <= plans.LARGEST_IN_A_WARP else T * n * n >= 65_000)
    return wanted and not interpreted() and 8 * words(B, T, n, reach) <= _memory() // 2


def _inputs(
    problem: Problem, level: plans.Level | None = None
) -> tuple[object, dict[str, Tensor], object]:
    """What the source is written for, the tensors it reads, and their strides."""
    from smnn._solver.gpu.lane.eliminate import Spec

    refuse_zeros(problem.tensors[:4])
    _, _, Q, V, m = problem.c.shape
    scale = K = KF = problem.w_smooth[..., 0]
    varying = m > 1 and problem.w_smooth.stride(-1) != 0
    if varying:
        scale, K, KF = link_rows(problem.w_smooth, problem.scheme)
        K, KF = _packed(K, 3), _packed(KF, 3)
        if K.stride() != KF.stride():
            K, KF = K.contiguous(), KF.contiguous()
    elif V * m > plans.LARGEST_IN_A_WARP:
        unit = _unit_link(m - 1, problem.scheme, scale.device)
        K, KF = (x.expand(*scale.shape, m, m) for x in unit)
    u = _packed(problem.u, 2)
    tensors = {
        "c": _packed(problem.c, 2), "d": _packed(problem.d, 2), "u": u, "s": problem.s,
        "wg": problem.w_gov, "wi": problem.w_init, "scale": scale,
        "wt": problem.w_smooth[..., -1], "ws": problem.w_smooth, "K": K, "KF": KF,
    }  # fmt: skip
    left, pairs = (level.P > 1, level.twin) if level else (False, False)
    m_init = u.shape[3] if u.shape[1] else 0
    spec = Spec(V, m, Q, m_init, problem.scheme, left, varying, pairs)
    strides = tuple(tensors[name].stride()[: len(axes)] for name, axes in plans.INPUTS)
    return spec, tensors, (u.shape[1], *strides)
