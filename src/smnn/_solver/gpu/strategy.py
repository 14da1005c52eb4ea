"""How a problem is spread over the device: whole sequences, pieces and the chains between them."""

from __future__ import annotations

import functools
from typing import NamedTuple

from smnn._solver.gpu.lane.clock import WARP

LARGEST_IN_A_WARP = 15
"""Unknowns per time of which the registers of a warp hold all triangles."""
LARGEST_IN_REGISTERS = 64
"""Unknowns per time whose rows in flight fit into the registers of a few warps."""
SHORTEST_PIECE = 24
"""Times per piece below which cutting costs more than it gains."""
LONG_PIECE = 40
"""Times per piece of a sequence that is cut into hundreds."""
LARGEST_ROW_IN_A_LANE = 16
"""Unknowns per time up to which a lane computes all gradients by what is given for a time."""
LARGEST_TOGETHER = 5
"""Unknowns per time up to which a lane has registers for an adjoint solve and row gradients."""
MOST_TOGETHER = 2**20
"""Unknowns in all up to which to launch a kernel takes longer than what it could do apart."""
FEWEST_LEVELS = 4
"""Levels below a chain that its kernel knows of, so that chains of all levels have the same one."""
WARPS_FOR_TEAMS = 2048
"""Warps for sequences, or for both ends of each, from which on several sequences share one."""


INPUTS = (
    ("c", "bt"), ("d", "bt"), ("u", "bt"), ("s", "btv"), ("wg", "btq"), ("wi", "btvr"),
    ("scale", "btv"), ("wt", "btv"), ("ws", "btvr"), ("K", "btv"), ("KF", "btv"),
)  # fmt: skip
"""Tensors that the kernels read, and their axes whose strides they take."""
GRADIENTS = ("gc", "gd", "gu", "gs", "gwg", "gwi", "gws")
"""Those that they write, in the order of a problem's tensors."""


def strides_of(name: str, axes: str) -> list[str]:
    """Names of the arguments for the strides of a tensor."""
    return [f"{name}_s{axis}" for axis in axes]


SIZE_ARGUMENTS = ["B", "T", "P", "L"]
INPUT_ARGUMENTS = [
    "c_ptr", *strides_of("c", "bt"), "d_ptr", *strides_of("d", "bt"), "u_ptr", *strides_of("u", "bt"),
    "s_ptr", *strides_of("s", "btv"), "wg_ptr", *strides_of("wg", "btq"),
    "wi_ptr", *strides_of("wi", "btvr"), "scale_ptr", *strides_of("scale", "btv"),
    "wt_ptr", *strides_of("wt", "btv"), "T_init",
]  # fmt: skip
VARYING_ARGUMENTS = ["K_ptr", "KF_ptr", *strides_of("k", "btv")]
"""Names of the arguments that kernels take for sizes, inputs, and weights that depend on the order."""


class Level(NamedTuple):
    """A sequence (level 0), or the chain of separators of the level below, and how it is cut."""

    B: int
    N: int
    """Times, or nodes."""
    P: int
    n: int
    """Unknowns per time or node."""
    reach: int
    team: int = 0
    """Lanes that work on a sequence (`team/columns.py`); zero: a lane on a piece."""
    orders: int = 0
    """Orders per variable, if a sequence is worked on from both ends (`lane/clock.py`)."""

    @property
    def twin(self) -> bool:
        """Whether two lanes or two teams work on a sequence, from both ends."""
        return self.orders > 0

    @property
    def large(self) -> bool:
        """Whether one or a few warps do so by tiles (`tile/tiles.py`)."""
        return self.team > 0 and self.n > LARGEST_IN_A_WARP

    @property
    def panels(self) -> bool:
        """Whether their rows lie in memory (`tile/panels.py`)."""
        return self.large and self.n > LARGEST_IN_REGISTERS

    @property
    def k(self) -> int:
        """Unknowns of a separator."""
        return self.reach * self.n if self.P > 1 else 0

    @property
    def L(self) -> int:
        """Times that a lane goes through, at most."""
        return self.N // 2 + 1 if self.twin else -(-self.N // self.P)

    @property
    def lanes(self) -> int:
        """One or a team per piece, or two per sequence."""
        return self.B * (self.team or self.P) * (2 if self.twin else 1)

    @property
    def width(self) -> int:
        """Lanes per warp, the unit that a multiprocessor can place anywhere."""
        return WARP

    @property
    def program(self) -> int:
        """Lanes per program: one warp, or two of them that meet."""
        return 2 * self.width if self.team and self.twin else self.width

    @property
    def padded(self) -> int:
        """Lanes that keep a factor of their own, rounded up to whole programs."""
        if self.team:
            return self.B
        return -(-self.lanes // self.width) * self.width

    @property
    def factor_size(self) -> int:
        """Numbers kept."""
        n, times = self.n, self.N if self.team else self.L
        return times * (n * (n + 1) // 2 + n * (self.reach * n + self.k)) * self.padded

    @property
    def z_size(self) -> int:
        """Right-hand sides between elimination and substitution."""
        if self.team:  # they lie where the answer will be
            return 0
        return self.L * self.n * self.padded

    @property
    def coupling_size(self) -> int:
        """What the pieces hand to the chain."""
        return (self.k * (self.k + 1) + self.k**2 + 4 * self.k) * self.padded

    def sizes(self) -> dict[str, int]:
        """Arguments that every kernel takes."""
        return {"B": self.B, "T": self.N, "P": self.P, "L": self.L}


def verdicts(levels: tuple[Level, ...]) -> int:
    """Verdicts per sequence: one of each piece of each level; the last is that on the whole."""
    return sum(level.P for level in levels)


def team_size(B: int, n: int, ends: int) -> int:
    """A warp for each (end of a) sequence while there are few, so that each is done soon.

    Then a part of one, for a whole sequence.
    """
    smallest = 8 if n < 8 else 16 if n < 16 else 32
    return smallest if ends * B >= WARPS_FOR_TEAMS else 32


@functools.lru_cache(maxsize=1024)
def plan(B: int, T: int, pieces: int, V: int, m: int, reach: int) -> tuple[Level, ...]:
    """All levels: the sequences, then chains of separators until one lane can take the rest.

    Without pieces (0), a team of lanes works on each sequence.
    """
    n = V * m
    both = reach == 1 and T > 2  # from two ends there must be something to say
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
    """Hands out parts of one buffer, from a word on."""

    def __init__(self, start: int = 0) -> None:
        self.size = start

    def take(self, words: int) -> int:
        start, self.size = self.size, self.size + words
        return start


def numbers(strides):  # type: ignore[no-untyped-def]
    """Arguments for the strides of all inputs."""
    T_init, *each = strides
    values = {"T_init": T_init}
    for (name, axes), numbers in zip(INPUTS, each, strict=True):
        short = "k" if name == "K" else name
        values |= {f"{short}_s{a}": x for a, x in zip(axes, numbers, strict=True)}
    return values


def together(levels: tuple[Level, ...]) -> bool:
    """Whether a backward is one launch: small blocks that one or two lanes take from end to end.

    Many sequences fill the memory's bandwidth sooner with a lane for each time.
    """
    first = levels[0]
    alone = len(levels) == 1 and not first.team and first.reach == 1
    return alone and first.n <= LARGEST_TOGETHER and first.B * first.N * first.n <= MOST_TOGETHER


def held(levels: tuple[Level, ...]) -> int:
    """Lanes per sequence that hold its adjoint solution until the launch of the row gradients.

    It then needs no memory besides that of the right-hand sides, and its lanes, far apart in the
    layout of a solution, need not write it there. Zero: it does lie like a solution.
    """
    first = levels[0]
    if len(levels) > 1 or first.team or together(levels):
        return 0
    return 2 if first.twin else 1
