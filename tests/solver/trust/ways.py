"""How the GPU backend spreads a problem over a device: which way it took, and ways to force one."""

from typing import Any

from helpers import Case
from solver.internals import CpuBackend, backend_named, gpu, interpreted, make_problem
from solver.internals import strategy as plans

WORDS = {
    "lane": "a lane for each sequence",
    "lane, pieces": "a lane for each piece of time",
    "twin": "two lanes for each sequence, from both ends",
    "team of 8": "eight lanes for each sequence",
    "team of 16": "sixteen lanes for each sequence",
    "team of 32": "a warp for each sequence",
    "twin, team of 32": "two warps for each sequence, from both ends",
    "large": "tiles of a warp or several",
    "large, panels": "panels of rows that lie in memory",
    "reduced": "odd-even reduction",
}
"""Ways in the words of a table; one that is not here is called by its own name."""
INTERPRETED, EMULATED = ", interpreted", ", emulated"
"""Added to the way of a problem whose kernels ran without a GPU, as source or compiled."""


def way_of(case: Case) -> str:
    """The kernels that solve this problem, in the words of the plan's first level."""
    problem, _ = make_problem(*case.args, **case.kw)
    pieces = backend_named("gpu").pieces_of(problem)
    B, T, V, m = problem.y_shape
    way = "reduced"
    if pieces != gpu.REDUCED:
        way = named(plans.plan(B, T, pieces, V, m, problem.reach)[0])
    return way + (INTERPRETED if interpreted() else EMULATED if _emulated else "")


def named(level: plans.Level) -> str:
    """Whatever a level says of itself with yes or no; and the lanes that share a sequence."""
    told = sorted(name for name in dir(level) if getattr(level, name) is True)
    if level.team and not level.large:
        told.append(f"team of {level.team}")
    who = ", ".join(told) or "lane"
    return f"{who}, pieces" if level.P > 1 else who


def in_words(ways: Any) -> dict[str, str]:
    """Texts for the names of these ways, the known ones first."""
    words = dict(WORDS)
    for how in (INTERPRETED, EMULATED):
        words |= {key + how: text + how for key, text in WORDS.items()}
    return {key: text for key, text in words.items() if key in ways} | {
        key: key for key in sorted(ways) if key not in words
    }


_emulated: list[Any] = []


def emulate() -> dict[str, int]:
    """The GPU backend's compiled kernels run on an emulated device from here on.

    Returns:
        Where they depend on an order that a device need not keep, which is to stay empty.
    """
    from solver.gpu.emulated.driver import driven

    device = driven(None)
    _emulated.append(device)  # else it would end
    races: dict[str, int] = device.__enter__().memory.races
    return races


def widen(lanes: int) -> None:
    """So many samples in a program of the GPU kernels, where an interpreter runs them.

    What is computed is the same; vectors are longer, and the interpreter is paid by the vector.
    """
    if not interpreted():
        raise SystemExit("--lanes is for Triton's interpreter: set TRITON_INTERPRET=1")
    plans.Level.width = lanes  # type: ignore[assignment, method-assign]


def cut_everything() -> None:
    """Every call of a backend that can cut time cuts it into the shortest pieces there can be."""

    def shortest(self: Any, B: int, T: int, n: int, reach: int) -> int:
        return max(1, T // (reach + 1))

    plans.SHORTEST_PIECE = 2  # a chain of five separators is cut again
    for backend in (CpuBackend, gpu.GpuBackend):
        backend.pieces = shortest  # type: ignore[method-assign]


def never_cut() -> None:
    """Every call of the GPU backend leaves a sequence whole, and to as few lanes as can hold it."""
    gpu.GpuBackend.pieces = (  # type: ignore[method-assign]
        lambda self, B, T, n, reach: int(n <= gpu.LARGEST_IN_A_LANE)
    )


def always_reduce() -> None:
    """Every call of the GPU backend goes by odd-even reduction, however small the problem."""
    gpu.GpuBackend.pieces = lambda *_: gpu.REDUCED  # type: ignore[method-assign]


def always_teams(*, share: bool) -> None:
    """Every call of the GPU backend gives several lanes to each sequence, however few its unknowns.

    Those of a warp, or with `share` as few as there can be, so that several share one.
    """
    gpu.GpuBackend.pieces = lambda *_: 0  # type: ignore[method-assign]
    plans.WARPS_FOR_TEAMS = 1 if share else 2**62
