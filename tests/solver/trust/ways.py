"""Which GPU kernels solve a problem, and how to force the choice."""

from typing import Any

from helpers import Case, problem_of
from solver.internals import CpuBackend, backend_named, gpu, interpreted
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
"""Descriptions for tables; other kinds are listed by name."""
RECORDED = {"bidirectional": "twin"}
"""Names of attributes in the records of benchmarks/results, where they differ."""
INTERPRETED, EMULATED = ", interpreted", ", emulated"
"""Suffixes for kernels that ran without a GPU, as source or compiled."""


def way_of(case: Case) -> str:
    """Kind of the kernels that solve this problem, from the first level of the plan."""
    problem = problem_of(case)
    pieces = backend_named("gpu").pieces_of(problem)
    B, T, V, m = problem.y_shape
    way = "reduced"
    if pieces != gpu.REDUCED:
        way = named(plans.plan(B, T, pieces, V, m, problem.reach)[0])
    return way + (INTERPRETED if interpreted() else EMULATED if _emulated else "")


def named(level: plans.Level) -> str:
    """True attributes of a level, and the number of lanes per sequence."""
    names = (RECORDED.get(name, name) for name in dir(level) if getattr(level, name) is True)
    kinds = sorted(names)
    if level.team and not level.large:
        kinds.append(f"team of {level.team}")
    who = ", ".join(kinds) or "lane"
    return f"{who}, pieces" if level.P > 1 else who


def in_words(ways: Any) -> dict[str, str]:
    """Descriptions by name, the known ones first."""
    words = dict(WORDS)
    for how in (INTERPRETED, EMULATED):
        words |= {key + how: text + how for key, text in WORDS.items()}
    return {key: text for key, text in words.items() if key in ways} | {
        key: key for key in sorted(ways) if key not in words
    }


_emulated: list[Any] = []


def emulate() -> dict[str, int]:
    """Run the GPU backend's compiled kernels on an emulated device from now on.

    Returns:
        Race conditions by description, which should remain empty.
    """
    from solver.gpu.emulated.driver import driven

    device = driven(None)
    _emulated.append(device)  # else it would end
    races: dict[str, int] = device.__enter__().memory.races
    return races


def widen(lanes: int) -> None:
    """Set the number of lanes per program of the GPU kernels in the interpreter.

    Results are the same; the time of the interpreter is proportional to the number of vectors.
    """
    if not interpreted():
        raise SystemExit("--lanes is for Triton's interpreter: set TRITON_INTERPRET=1")
    plans.Level.width = lanes  # type: ignore[assignment, method-assign]


def cut_everything() -> None:
    """Cut time into the shortest possible pieces in every call."""

    def shortest(self: Any, B: int, T: int, n: int, reach: int) -> int:
        return max(1, T // (reach + 1))

    plans.SHORTEST_PIECE = 2  # a chain of five separators is cut again
    for backend in (CpuBackend, gpu.GpuBackend):
        backend.pieces = shortest  # type: ignore[method-assign]


def never_cut() -> None:
    """Never cut sequences, and use as few lanes as possible for each."""
    gpu.GpuBackend.pieces = (  # type: ignore[method-assign]
        lambda self, B, T, n, reach: int(n <= gpu.LARGEST_IN_A_LANE)
    )


def always_reduce() -> None:
    """Use odd-even reduction in every call of the GPU backend."""
    gpu.GpuBackend.pieces = lambda *_: gpu.REDUCED  # type: ignore[method-assign]


def always_teams(*, share: bool) -> None:
    """Use several lanes for each sequence in every call of the GPU backend.

    A whole warp, or with `share` as few lanes as possible, so that sequences share a warp.
    """
    gpu.GpuBackend.pieces = lambda *_: 0  # type: ignore[method-assign]
    plans.WARPS_FOR_TEAMS = 1 if share else 2**62
