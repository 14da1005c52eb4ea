"""How a problem is spread over the device: levels of pieces, and the launches that work them off."""

from __future__ import annotations

import functools
import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

from smnn._solver.gpu.lane.clock import WARP
from smnn._solver.gpu.row_gradients import TILE

if TYPE_CHECKING:
    from smnn._solver.gpu.launch import Slot

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


def slots_of(*names: str) -> dict[str, Slot]:
    """Arguments for the addresses of tensors."""
    from smnn._solver.gpu.launch import Slot

    return {f"{name}_ptr": Slot(name) for name in names}


def _offsets(sizes: list[int]) -> list[int]:
    return list(itertools.accumulate(sizes, initial=0))


@functools.lru_cache(maxsize=256)
def solve_program(levels, spec, strides):  # type: ignore[no-untyped-def]
    """Launches of a solve, and the scratch they need."""
    from smnn._solver.gpu import kernels
    from smnn._solver.gpu.launch import Launch, Program, Slot
    from smnn._solver.gpu.tile import panels as gpu_panel
    from smnn._solver.gpu.tile import tiles as gpu_large

    first, scratch = levels[0], Scratch()
    factor_at = _offsets([level.factor_size for level in levels])
    ratio_at = _offsets([level.P for level in levels])
    inputs = slots_of(*(name for name, _ in INPUTS)) | numbers(strides)
    z = [scratch.take(level.z_size) for level in levels]

    def common(depth: int) -> dict[str, int | Slot]:
        return levels[depth].sizes() | {
            "factor_ptr": Slot("factor", factor_at[depth]),
            "z_ptr": Slot("scratch", z[depth]),
            "rcond_ptr": Slot("rcond", first.B * ratio_at[depth]),
            "weakest_ptr": Slot("weakest", first.B * ratio_at[depth]),
        }

    if first.P == 1:
        values = common(0) | inputs | {"y_ptr": Slot("y"), "status_ptr": Slot("status")}
        if first.large:
            if first.panels:
                made, form = kernels.panel_solve_kernel(spec), gpu_panel.form(first.n)
                scratch.take(first.B * gpu_panel.area(first.n, spec.V, first.reach).words)
            else:
                made, form = kernels.large_solve_kernel(spec), gpu_large.shape(first.n)
            width = first.width * form.warps
            return Program([Launch(made, first.B * width, width, values)]), scratch.size
        kernel = (
            kernels.wide_solve_kernel(spec, first.team)
            if first.team
            else kernels.solve_kernel(spec)
        )
        return Program([Launch(kernel, first.lanes, first.program, values)]), scratch.size
    coupling = scratch.take(first.coupling_size)
    values = common(0) | inputs | {"coupling_ptr": Slot("scratch", coupling)}
    launches = [Launch(kernels.solve_kernel(spec), first.lanes, first.width, values)]
    known = max(len(levels) - 1, FEWEST_LEVELS)
    # A level that is not there has one node for each of the level above.
    cuts = {"n0": first.n} | {f"{letter}{i}": 1 for i in range(known) for letter in "NP"}
    for depth, level in enumerate(levels[1:], 1):
        below = levels[depth - 1]
        cuts |= {f"N{depth - 1}": below.N, f"P{depth - 1}": below.P}
        values = common(depth) | cuts
        values["in_ptr"] = Slot("scratch", coupling)
        for name in ("rcond", "weakest"):
            values[f"{name}_below_ptr"] = Slot(name, first.B * ratio_at[depth - 1])
        if level.P > 1:
            coupling = scratch.take(level.coupling_size)
            values["coupling_ptr"] = Slot("scratch", coupling)
        else:
            answer = scratch.take(level.B * level.N * level.n)
            values["y_ptr"] = Slot("scratch", answer)
        kernel = kernels.chain_kernel(level.n, level.P > 1, known)
        launches.append(Launch(kernel, level.lanes, level.width, values))
    verdict = Slot("rcond", first.B * ratio_at[-2])
    for depth in range(len(levels) - 2, -1, -1):
        level = levels[depth]
        target = Slot("y")
        if depth:
            target = Slot("scratch", scratch.take(level.B * level.N * level.n))
        values = common(depth) | {"sep_ptr": Slot("scratch", answer), "y_ptr": target}
        values |= {"rcond_ptr": verdict, "status_ptr": Slot("status")}
        kernel = kernels.back_kernel(level.n, level.reach, level.k, depth == 0)
        launches.append(Launch(kernel, level.lanes, level.width, values))
        answer = target.offset
    return Program(launches), scratch.size


@functools.lru_cache(maxsize=256)
def adjoint_program(levels, held=False):  # type: ignore[no-untyped-def]
    """Launches of an adjoint solve, and the scratch they need; whose first words it is `held` in."""
    from smnn._solver.gpu import kernels
    from smnn._solver.gpu.launch import Launch, Program, Slot

    scratch = Scratch()
    factor_at = _offsets([level.factor_size for level in levels])
    z = [scratch.take(level.z_size) for level in levels]
    launches, load = [], Slot("g")

    def common(depth: int) -> dict[str, int | Slot]:
        return levels[depth].sizes() | {
            "factor_ptr": Slot("factor", factor_at[depth]),
            "z_ptr": Slot("scratch", z[depth]),
        }

    answer = Slot("y")
    for depth, level in enumerate(levels):
        values = common(depth) | {"g_ptr": load}
        if level.P > 1:
            load = Slot("scratch", scratch.take(level.lanes * 2 * level.k))
            values["sep_ptr"] = load
        else:
            if depth:
                answer = Slot("scratch", scratch.take(level.B * level.N * level.n))
            values["y_ptr"] = answer
        if level.large:
            kernel = kernels.large_adjoint_kernel(level.n, level.reach)
        elif level.team:
            kernel = kernels.wide_adjoint_kernel(level.n, level.reach, level.team, level.orders)
        else:
            kernel = kernels.adjoint_kernel(
                level.n, level.reach, level.k, depth > 0, level.orders, held
            )
        launches.append(Launch(kernel, level.lanes, level.program, values))
    for depth in range(len(levels) - 2, -1, -1):
        level = levels[depth]
        target = Slot("y")
        if depth:
            target = Slot("scratch", scratch.take(level.B * level.N * level.n))
        values = common(depth) | {"sep_ptr": answer, "y_ptr": target}
        kernel = kernels.back_kernel(level.n, level.reach, level.k, False)
        launches.append(Launch(kernel, level.lanes, level.width, values))
        answer = target
    return Program(launches), scratch.size


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


def backward_scratch(levels: tuple[Level, ...]) -> int:
    """What a backward needs besides the adjoint solution, in one launch or in several."""
    scratch: int = levels[0].z_size if together(levels) else adjoint_program(levels)[1]
    return scratch


@functools.lru_cache(maxsize=256)
def backward_program(levels, spec, strides, wanted):  # type: ignore[no-untyped-def]
    """The launch of an adjoint solve with its row gradients, and the scratch it needs."""
    from smnn._solver.gpu import kernels
    from smnn._solver.gpu.launch import Launch, Program, Slot

    level = levels[0]
    values = _of_rows(strides) | level.sizes() | {"g_ptr": Slot("g")}
    values |= {"factor_ptr": Slot("factor"), "z_ptr": Slot("scratch")}
    V, m, Q, m_init, scheme = spec[:5]
    kernel = kernels.backward_kernel(V, m, Q, m_init, scheme, level.orders, wanted)
    return Program([Launch(kernel, level.lanes, level.width, values)]), backward_scratch(levels)


def _of_rows(strides):  # type: ignore[no-untyped-def]
    """Arguments of row gradients besides the adjoint solution and the sizes."""
    return numbers(strides) | slots_of(*(name for name, _ in INPUTS), "y", *GRADIENTS)


@functools.lru_cache(maxsize=256)
def rows_program(shape, spec, strides, wanted, held=0):  # type: ignore[no-untyped-def]
    """The launches of the row gradients; the adjoint solution is `held` by so many lanes."""
    from smnn._solver.gpu import kernels
    from smnn._solver.gpu.launch import Launch, Program, Slot

    B, T, V, m = shape
    values = _of_rows(strides) | {"B": B, "T": T, "lam_ptr": Slot("lam")}
    if V * m <= LARGEST_ROW_IN_A_LANE:
        kernel = kernels.rows_kernel(V, m, spec.Q, spec.m_init, spec.scheme, wanted, held)
        lanes = -(-B // TILE[0]) * -(-T // TILE[1]) * math.prod(TILE) if held else B * T
        return Program([Launch(kernel, lanes, 128, values)])
    c, d, u, s, wg, wi, ws = wanted
    launches = []
    if c or d or wg:
        kernel = kernels.equations_kernel(V, m, spec.Q, wanted)
        launches.append(Launch(kernel, 32 * B * T, 32, values))
    if u or s or wi or ws:
        kernel = kernels.variables_kernel(V, m, spec.m_init, spec.scheme, wanted)
        launches.append(Launch(kernel, B * T * V, 128, values))
    return Program(launches)
