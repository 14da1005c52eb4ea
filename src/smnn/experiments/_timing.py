"""Timing that compares: every candidate warmed up, then measured in turns in the same process."""

from __future__ import annotations

import contextlib
import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple


class Timing(NamedTuple):
    """Milliseconds of repeated calls."""

    median: float
    fastest: float
    repeats: int


def time_in_turns(
    calls: Mapping[str, Callable[[], object]],
    repeats: int,
    warm_up: int = 3,
    tick: Callable[[], None] = lambda: None,
) -> dict[str, Timing]:
    """Time each call `repeats` times, one after the other, round by round.

    Taking turns spreads whatever else the machine does over all candidates alike. Before each timed
    call the same is called once without the clock, to find its own data in the caches. `tick` is
    called after each round.
    """
    for call in calls.values():
        for _ in range(warm_up):
            call()
    spent: dict[str, list[float]] = {name: [] for name in calls}
    with _without_collection():
        for _ in range(repeats):
            for name, call in calls.items():
                call()
                start = time.perf_counter()
                call()
                spent[name].append(1e3 * (time.perf_counter() - start))
            tick()
    return {
        name: Timing(statistics.median(times), min(times), repeats) for name, times in spent.items()
    }


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """A garbage collection in the middle would be charged to whoever was running."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Let PyTorch and the solver use `count` threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
