"""Mapping of a problem to the GPU: whole sequences, or pieces and chains of their separators."""

from __future__ import annotations

import functools
from typing import NamedTuple

from smnn._solver.gpu.lane.time_index import WARP

LARGEST_IN_A_WARP = 15
"""Largest block (unknowns per time) whose triangles fit into the registers of a warp.

For 9 to 15 unknowns and up to 512 sequences, a warp takes 0.3 to 0.6 of the time of tiles (H200).
"""
LARGEST_IN_REGISTERS = 64  # Largest block whose active rows fit into the registers of a few warps
SHORTEST_PIECE = 24  # Minimum number of times per piece; below, the overhead exceeds the gain
LONG_PIECE = 40  # Minimum number of times per piece if a sequence is cut into hundreds
LARGEST_ROW_IN_A_LANE = 16  # Largest block for which one lane computes all gradients of a time
MIN_LEVELS = 4
"""Minimum number of levels passed to chain kernels, so that all chains share one kernel."""
WARPS_FOR_TEAMS = 2048
"""Number of warps (one per sequence or half) from which several sequences share a warp."""


INPUTS = (
    ("c", "bt"), ("d", "bt"), ("u", "bt"), ("s", "btv"), ("wg", "btq"), ("wi", "btvr"),
    ("scale", "btv"), ("wt", "btv"), ("ws", "btvr"), ("K", "btv"), ("KF", "btv"),
)  # fmt: skip
"""Input tensors of the kernels, and their axes whose strides are arguments."""
GRADIENTS = ("gc", "gd", "gu", "gs", "gwg", "gwi", "gws")
"""Gradient tensors, in the order of the tensors of a problem."""


def strides_of(name: str, axes: str) -> list[str]:
    return [f"{name}_s{axis}" for axis in axes]


SIZE_ARGUMENTS = ["B", "T", "P", "L"]
INPUT_ARGUMENTS = [
    "c_ptr", *strides_of("c", "bt"), "d_ptr", *strides_of("d", "bt"), "u_ptr", *strides_of("u", "bt"),
    "s_ptr", *strides_of("s", "btv"), "wg_ptr", *strides_of("wg", "btq"),
    "wi_ptr", *strides_of("wi", "btvr"), "scale_ptr", *strides_of("scale", "btv"),
    "wt_ptr", *strides_of("wt", "btv"), "T_init",
]  # fmt: skip
VARYING_ARGUMENTS = ["K_ptr", "KF_ptr", *strides_of("k", "btv")]
"""Kernel arguments: sizes, inputs, and additional inputs if `K` varies between steps."""


class Level(NamedTuple):
    """The sequences (level 0) or the chain of separators of the level below, and its partition."""

    B: int
    N: int  # Times, or nodes of the chain
    P: int
    n: int  # Unknowns per time or node
    reach: int
    team: int = 0  # Lanes per sequence (`team/columns.py`); 0: one lane per piece
    orders: int = 0  # Orders per variable if a sequence is processed from both ends, else 0

    @property
    def bidirectional(self) -> bool:
        """Whether each sequence is processed from both ends, by two lanes or two teams."""
        return self.orders > 0

    @property
    def large(self) -> bool:
        """Whether one or a few warps process a sequence in tiles (`tile/tiles.py`)."""
        return self.team > 0 and self.n > LARGEST_IN_A_WARP

    @property
    def panels(self) -> bool:
        """Whether the tiled rows lie in memory instead of registers (`tile/panels.py`)."""
        return self.large and self.n > LARGEST_IN_REGISTERS

    @property
    def k(self) -> int:
        """Unknowns of a separator."""
        return self.reach * self.n if self.P > 1 else 0

    @property
    def L(self) -> int:
        """Maximum number of steps of a lane."""
        return self.N // 2 + 1 if self.bidirectional else -(-self.N // self.P)

    @property
    def lanes(self) -> int:
        """Number of lanes: one or a team per piece, or two per sequence."""
        return self.B * (self.team or self.P) * (2 if self.bidirectional else 1)

    @property
    def width(self) -> int:
        return WARP

    @property
    def program(self) -> int:
        """Lanes per program: one warp, or two that exchange data where the halves meet."""
        return 2 * self.width if self.team and self.bidirectional else self.width

    @property
    def padded(self) -> int:
        """Number of factors stored side by side, rounded up to whole warps."""
        if self.team:
            return self.B
        return -(-self.lanes // self.width) * self.width

    @property
    def factor_size(self) -> int:
        n, times = self.n, self.N if self.team else self.L
        return times * (n * (n + 1) // 2 + n * (self.reach * n + self.k)) * self.padded

    @property
    def z_size(self) -> int:
        """Scratch memory for right-hand sides between elimination and substitution."""
        if self.team:  # stored in the output instead
            return 0
        return self.L * self.n * self.padded

    @property
    def coupling_size(self) -> int:
        """Scratch memory for the rows that the pieces pass to the chain."""
        return (self.k * (self.k + 1) + self.k**2 + 4 * self.k) * self.padded

    def sizes(self) -> dict[str, int]:
        return {"B": self.B, "T": self.N, "P": self.P, "L": self.L}


def ratio_count(levels: tuple[Level, ...]) -> int:
    """Pivot ratios per sequence: one per piece and level; the last one is the overall ratio."""
    return sum(level.P for level in levels)


def team_size(B: int, n: int, ends: int) -> int:
    """Lanes per sequence: a warp for each sequence or half, or a part of one in large batches."""
    smallest = 8 if n < 8 else 16 if n < 16 else 32
    return smallest if ends * B >= WARPS_FOR_TEAMS else 32


@functools.lru_cache(maxsize=1024)
def plan(B: int, T: int, pieces: int, V: int, m: int, reach: int) -> tuple[Level, ...]:
    """All levels: the sequences, then chains of separators until one lane can process the rest.

    With `pieces=0`, a team of lanes processes each sequence.
    """
    n = V * m
    both = reach == 1 and T > 2  # both halves need a time
    if not pieces:
        team = team_size(B, n, 2 if both else 1)
        both = both and team == 32 and n <= LARGEST_IN_A_WARP
        return (Level(B, T, 1, n, reach, team, m if both else 0),)
    if pieces == 1 and both:
        return (Level(B, T, 1, n, reach, orders=m),)
    levels = [Level(B, T, pieces, n, reach)]
    while levels[-1].P > 1:
        below = levels[-1]
        cut = 1 if below.P <= 2 * SHORTEST_PIECE else max(2, -(-below.P // SHORTEST_PIECE))
        levels.append(Level(B, below.P, cut, below.k, 1))
    return tuple(levels)


class Scratch:
    """Allocates parts of one buffer."""

    def __init__(self, start: int = 0) -> None:
        self.size = start

    def take(self, words: int) -> int:
        start, self.size = self.size, self.size + words
        return start


def stride_arguments(strides):  # type: ignore[no-untyped-def]
    T_init, *each = strides
    values = {"T_init": T_init}
    for (name, axes), numbers in zip(INPUTS, each, strict=True):
        short = "k" if name == "K" else name
        values |= {f"{short}_s{a}": x for a, x in zip(axes, numbers, strict=True)}
    return values


def adjoint_lanes(levels: tuple[Level, ...]) -> int:
    """Lanes per sequence that leave its adjoint solution in scratch memory, in the layout of `z`.

    The row gradients read it from there, which saves strided stores into the layout of a solution.
    Zero: the adjoint solution has the layout of a solution.
    """
    if len(levels) != 1 or levels[0].team:
        return 0
    return 2 if levels[0].bidirectional else 1
