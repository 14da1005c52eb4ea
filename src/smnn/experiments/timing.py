"""Fair timing: candidates are warmed up, then measured in turns in one process."""

from __future__ import annotations

import contextlib
import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import torch

T = TypeVar("T")


class Timing(NamedTuple):
    """Milliseconds of repeated calls."""

    median: float
    fastest: float
    repeats: int


def clock(call: Callable[[], T]) -> tuple[float, T]:
    """Milliseconds and result of a call."""
    start = time.perf_counter()
    result = call()
    return 1e3 * (time.perf_counter() - start), result


def in_turns(
    rounds: Sequence[Callable[[], T]],
    repeats: Sequence[int],
    tick: Callable[[], None] = lambda: None,
) -> list[list[T]]:
    """Call each function as often as requested, taking turns, and collect the results.

    Turns spread the other load of the machine evenly. The garbage collector is off meanwhile,
    because a collection would count towards whichever function happens to run. `tick` is called
    after each turn.
    """
    results: list[list[T]] = [[] for _ in rounds]
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for i in range(max(repeats)):
            for function, found, count in zip(rounds, results, repeats):
                if i < count:
                    found.append(function())
            tick()
    finally:
        if enabled:
            gc.enable()
    return results


def time_in_turns(
    calls: Mapping[str, Callable[[], object]], repeats: int, warm_up: int = 3,
    tick: Callable[[], None] = lambda: None,
) -> dict[str, Timing]:  # fmt: skip
    """Time each call `repeats` times, in turns.

    Each timed call follows an untimed one of the same function, which fills the caches of the
    processor. `tick` is called after each turn.
    """
    for call in calls.values():
        for _ in range(warm_up):
            call()

    def timed(call: Callable[[], object]) -> float:
        call()
        return clock(call)[0]

    rounds = [lambda call=call: timed(call) for call in calls.values()]
    found = in_turns(rounds, [repeats] * len(rounds), tick)
    return {
        name: Timing(statistics.median(times), min(times), repeats)
        for name, times in zip(calls, found)
    }


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Let PyTorch and the solver use `count` threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
