"""The `gpu` backend: Triton kernels, parallel over the batch and over pieces of time."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass

import torch
from torch import Tensor

from smnn._backends.base import Backend, Solved
from smnn._problem import Problem
from smnn._taylor import link_rows

LANES_WANTED = 32768
"""Lanes that keep a large GPU busy; fewer sequences than that are cut into pieces."""
SHORTEST_PIECE = 24
LARGEST_BLOCK = 12
"""Unknowns per time that fit into registers."""


def interpreted() -> bool:
    """Whether Triton's interpreter runs the kernels, on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


@dataclass(frozen=True)
class Level:
    """A sequence (level 0), or the chain of separators of the level below, and how it is cut."""

    B: int
    N: int
    """Times, or nodes."""
    P: int
    n: int
    """Unknowns per time or node."""
    reach: int

    @property
    def k(self) -> int:
        """Unknowns of a separator."""
        return self.reach * self.n if self.P > 1 else 0

    @property
    def L(self) -> int:
        """Times of the longest piece."""
        return -(-self.N // self.P)

    @property
    def width(self) -> int:
        """Lanes per program."""
        lanes = self.B * self.P
        return 32 if lanes <= 32 * 132 * 4 else 128

    @property
    def padded(self) -> int:
        """Lanes, rounded up to whole programs."""
        return -(-self.B * self.P // self.width) * self.width

    @property
    def factor_size(self) -> int:
        """Numbers kept."""
        n = self.n
        return self.L * (n * (n + 1) // 2 + n * (self.reach * n + self.k)) * self.padded

    def sizes(self) -> dict[str, int]:
        """Arguments that every kernel takes."""
        return {"B": self.B, "T": self.N, "P": self.P, "L": self.L, "NL": self.padded}


def plan(problem: Problem, pieces: int) -> list[Level]:
    """All levels: the sequences, then chains of separators until one lane can take the rest."""
    B, T, V, m = problem.y_shape
    levels = [Level(B, T, pieces, V * m, 2 if problem.scheme == "central" else 1)]
    while levels[-1].P > 1:
        below = levels[-1]
        nodes = below.P
        cut = 1 if nodes <= 2 * SHORTEST_PIECE else max(2, -(-nodes // SHORTEST_PIECE))
        levels.append(Level(B, nodes, cut, below.k, 1))
    return levels


class GpuBackend(Backend):
    """Givens elimination with every triangle in registers."""

    name = "gpu"

    def unusable(self) -> str | None:
        """Triton, and a GPU or the interpreter."""
        if importlib.util.find_spec("triton") is None:
            return "triton is not installed; it comes with PyTorch for CUDA on Linux"
        if not torch.cuda.is_available() and not interpreted():
            return "PyTorch sees no CUDA device"
        return None

    def unsupported(self, device: torch.device) -> str | None:
        """CUDA tensors, or CPU tensors in the interpreter."""
        if device.type == "cuda" or (device.type == "cpu" and interpreted()):
            return None
        return f"the tensors are on {device}, not on a CUDA device"

    def too_large(self, n: int) -> str | None:
        """Blocks that do not fit into registers."""
        if n <= LARGEST_BLOCK:
            return None
        return f"V (R+1) = {n} unknowns per time; the kernels keep at most {LARGEST_BLOCK}"

    def pieces(self, B: int, T: int, n: int, reach: int) -> int:
        """Enough lanes to fill the device, as long as pieces stay worth their overhead."""
        shortest = max(SHORTEST_PIECE, 2 * n, 4 * reach)
        if B >= LANES_WANTED // 2 or 3 * shortest > T:
            return 1
        return max(1, min(-(-LANES_WANTED // max(B, 1)), T // shortest))

    def factor_size(self, problem: Problem, pieces: int) -> int:
        """Every level's factor, one behind the other."""
        return sum(level.factor_size for level in plan(problem, pieces))

    def solve(self, problem: Problem, pieces: int) -> Solved:
        """Eliminate every level up to the last, then substitute back down."""
        from smnn._backends._gpu_launch import back_kernel, chain_kernel, solve_kernel

        levels = plan(problem, pieces)
        first = levels[0]
        new = problem.c.new_empty
        factor = new(sum(level.factor_size for level in levels))
        factors = factor.split([level.factor_size for level in levels])
        y = new(problem.y_shape)
        spec, inputs = _inputs(problem, left=first.P > 1)
        z = new(first.L * first.n * first.padded)
        rcond = new(first.B * first.P)
        weakest = new(first.B * first.P, dtype=torch.int64)
        status = new(first.B, dtype=torch.int64)
        if first.B == 0:
            return Solved(y, factor, rcond, weakest, status)
        common = {**first.sizes(), **inputs, "factor_ptr": factors[0], "z_ptr": z,
                  "rcond_ptr": rcond, "weakest_ptr": weakest}  # fmt: skip
        kernel = solve_kernel(spec)
        with _on(problem.c.device):
            if first.P == 1:
                kernel(first.B, first.width, **common, y_ptr=y, status_ptr=status)
                return Solved(y, factor, rcond, weakest, status)
            coupling = new(_coupling_size(first))
            kernel(first.B * first.P, first.width, **common, coupling_ptr=coupling)
            ratios, wheres, rights, answer = [rcond], [weakest], [z], y
            cuts: dict[str, int] = {"n0": first.n}
            for depth, level in enumerate(levels[1:], 1):
                below = levels[depth - 1]
                cuts |= {f"N{depth - 1}": below.N, f"P{depth - 1}": below.P}
                z = new(level.L * level.n * level.padded)
                ratios.append(new(level.B * level.P))
                wheres.append(new(level.B * level.P, dtype=torch.int64))
                rights.append(z)
                common = {**level.sizes(), **cuts, "in_ptr": coupling, "IN_NL": below.padded,
                          "factor_ptr": factors[depth], "z_ptr": z, "rcond_ptr": ratios[-1],
                          "weakest_ptr": wheres[-1]}  # fmt: skip
                kernel = chain_kernel(level.n, level.P > 1, depth)
                if level.P > 1:
                    coupling = new(_coupling_size(level))
                    kernel(level.B * level.P, level.width, **common, coupling_ptr=coupling)
                else:
                    answer = new(level.B, level.N, level.n)
                    kernel(level.B, level.width, **common, y_ptr=answer)
            every = torch.cat([r.view(first.B, -1) for r in ratios], 1)
            ratio, worst = every.min(1)
            where = torch.cat([w.view(first.B, -1) for w in wheres], 1).gather(1, worst[:, None])[:, 0]
            for depth in range(len(levels) - 2, -1, -1):
                level = levels[depth]
                out = y if depth == 0 else new(level.B, level.N, level.n)
                values = {**level.sizes(), "factor_ptr": factors[depth], "z_ptr": rights[depth],
                          "sep_ptr": answer, "y_ptr": out}  # fmt: skip
                if depth == 0:
                    values |= {"ratio_ptr": ratio, "status_ptr": status}
                back_kernel(level.n, level.reach, level.k, depth == 0)(
                    level.B * level.P, level.width, **values
                )
                answer = out
        return Solved(y, factor, ratio, where, status)

    def adjoint(self, problem: Problem, factor: Tensor, g: Tensor, pieces: int) -> Tensor:
        """Forward substitution up the levels, back substitution down."""
        from smnn._backends._gpu_launch import adjoint_kernel, back_kernel

        levels = plan(problem, pieces)
        factors = factor.split([level.factor_size for level in levels])
        new = factor.new_empty
        load, rights, answer = g.contiguous(), [], new(0)
        if problem.c.shape[0] == 0:
            return torch.empty_like(load)
        with _on(factor.device):
            for depth, level in enumerate(levels):
                z = new(level.L * level.n * level.padded)
                rights.append(z)
                values = {**level.sizes(), "factor_ptr": factors[depth], "z_ptr": z, "g_ptr": load}
                kernel = adjoint_kernel(level.n, level.reach, level.k, depth > 0)
                if level.P > 1:
                    load = new(level.B, level.P, 2, level.k)
                    kernel(level.B * level.P, level.width, **values, sep_ptr=load)
                else:
                    answer = new(level.B, level.N, level.n)
                    kernel(level.B, level.width, **values, y_ptr=answer)
            for depth in range(len(levels) - 2, -1, -1):
                level = levels[depth]
                out = new(level.B, level.N, level.n)
                back_kernel(level.n, level.reach, level.k, False)(
                    level.B * level.P, level.width, **level.sizes(), factor_ptr=factors[depth],
                    z_ptr=rights[depth], sep_ptr=answer, y_ptr=out,
                )  # fmt: skip
                answer = out
        return answer.view(problem.y_shape)

    def row_gradients(
        self, problem: Problem, lam: Tensor, y: Tensor, wanted: list[bool]
    ) -> list[Tensor]:
        """One pass over the rows."""
        from smnn._backends._gpu_launch import rows_kernel
        from smnn._backends._gpu_rows import TENSORS

        B, T, V, m = y.shape
        Q, m_init = problem.c.shape[2], problem.u.shape[3]
        _, inputs = _inputs(problem, left=False)
        out = [
            y.new_empty(x.shape if w else (0,) * x.ndim)
            for x, w in zip(problem[:7], wanted, strict=True)
        ]
        if B == 0:
            return out
        weights = problem.w_smooth
        values = {**inputs, "B": B, "T": T, "y_ptr": y.contiguous(), "lam_ptr": lam.contiguous(),
                  "ws_ptr": weights, **_strides("ws", weights, "btvr")}  # fmt: skip
        values |= {f"g{name}_ptr": x for name, x in zip(TENSORS, out, strict=True)}
        with _on(y.device):
            kernel = rows_kernel(V, m, Q, m_init, problem.scheme, tuple(wanted))
            kernel(B * T, 128, **values)
        return out


def _coupling_size(level: Level) -> int:
    k = level.k
    return (k * (k + 1) + k * k + 4 * k) * level.padded


def _on(device: torch.device) -> torch.cuda.device:
    """Launch on the device of the tensors, whatever the current one is."""
    return torch.cuda.device(device if device.type == "cuda" else -1)


def _strides(name: str, x: Tensor, axes: str) -> dict[str, int]:
    return {f"{name}_s{axis}": x.stride(i) for i, axis in enumerate(axes)}


def _packed(x: Tensor, axes: int) -> Tensor:
    """The same tensor with the axes behind the first two contiguous."""
    size = 1
    for i in range(x.ndim - 1, axes - 1, -1):
        if x.shape[i] > 1 and x.stride(i) != size:
            return x.contiguous()
        size *= x.shape[i]
    return x


def _inputs(problem: Problem, *, left: bool) -> tuple[object, dict[str, Tensor | int]]:
    """What the source is written for, and the arguments that describe the problem."""
    from smnn._backends._gpu_source import Spec

    _, _, Q, V, m = problem.c.shape
    c, d, u = _packed(problem.c, 2), _packed(problem.d, 2), _packed(problem.u, 2)
    scale, K, KF = link_rows(problem.w_smooth, problem.scheme)
    varying = K.stride(0) != 0 or K.stride(1) != 0 or K.stride(2) != 0
    m_init = u.shape[3] if u.shape[1] else 0
    spec = Spec(V, m, Q, m_init, problem.scheme, left, varying)
    top = problem.w_smooth[..., -1]
    values: dict[str, Tensor | int] = {"T_init": u.shape[1]}
    for name, x, axes in (
        ("c", c, "bt"), ("d", d, "bt"), ("u", u, "bt"), ("s", problem.s, "btv"),
        ("wg", problem.w_gov, "btq"), ("wi", problem.w_init, "btvr"),
        ("scale", scale, "btv"), ("wt", top, "btv"),
    ):  # fmt: skip
        values |= {f"{name}_ptr": x, **_strides(name, x, axes)}
    if varying:
        K, KF = _packed(K, 3), _packed(KF, 3)
        if K.stride() != KF.stride():
            K, KF = K.contiguous(), KF.contiguous()
        values |= {"K_ptr": K, "KF_ptr": KF, **_strides("k", K, "btv")}
    return spec, values
