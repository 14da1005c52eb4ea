"""A candidate is checked before it is timed; candidates are timed in turns in one process."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from smnn.experiments.bench.cases import INPUTS, Case, Data
from smnn.experiments.bench.solvers import Candidate, scale, smnn_candidate

AGREE = 1e-8
"""Largest difference between two backends that is let through, of the scaled variables `s^r y_r`
and relative to the largest."""
DENSE = 5e9
"""Cost B (T n)^3 up to which the dense reference is the judge."""
JUDGED = 1_000_000
"""Times of all samples together that are judged; of a larger batch, as many samples as that gives.
The judge needs ten times the memory of a solve."""
FEWEST = 3
"""Timed rounds of a candidate that is too slow for more."""


def check(case: Case, data: Data, candidate: Candidate) -> dict[str, Any]:
    """Values and gradients against another backend, before anything is timed."""
    against = "reference" if case.B * (case.T * case.n) ** 3 <= DENSE else "torch"
    part = min(case.B, max(1, JUDGED // case.T))
    judge = smnn_candidate(data.first(part), against, whole=case.B)
    y, other = candidate.forward(True), judge.forward(True)
    found = compare(y[:part], other, f"{against} backend")
    assert candidate.backward is not None
    assert judge.backward is not None
    ours = (g[:part] for g in candidate.backward(y))
    gradients = dict(zip(INPUTS, zip(ours, judge.backward(other))))
    gradients["c"] = tuple(x * scale(x) for x in gradients["c"])
    found["gradient_difference"] = {k: _difference(a, b) for k, (a, b) in gradients.items()}
    found["agrees"] &= max(found["gradient_difference"].values()) <= AGREE
    return found


def compare(y: torch.Tensor, other: torch.Tensor, against: str) -> dict[str, Any]:
    """How far a solution is from another, of the variables `s^r y_r`."""
    difference = _difference(y * scale(y), other * scale(y))
    return {"against": against, "difference": difference, "agrees": difference <= AGREE}


def _difference(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a - b).abs().max() / b.abs().max()).item()


def time_all(
    candidates: list[Candidate],
    repeats: int,
    budget: float,
    tick: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Median milliseconds of forward alone, and of forward and backward with gradients kept.

    Args:
        candidates: Who is timed.
        repeats: Timed rounds.
        budget: Seconds for each; a slow one gets fewer rounds, `FEWEST` at least.
        tick: Called after each round.
    """
    phases = ("forward_ms", "forward_kept_ms", "backward_ms")
    spent: list[dict[str, list[float]]] = [{p: [] for p in phases} for _ in candidates]
    rounds = [min(repeats, _affordable(x, budget)) for x in candidates]
    gc.collect()
    gc.disable()
    try:
        for i in range(max(rounds)):
            for candidate, times, own in zip(candidates, spent, rounds):
                if i < own:
                    _one_round(candidate, times)
            tick()
    finally:
        gc.enable()
    summary = []
    for times, own in zip(spent, rounds):
        medians: dict[str, Any] = {
            phase: statistics.median(values) if values else None for phase, values in times.items()
        }
        both = [a + b for a, b in zip(times["forward_kept_ms"], times["backward_ms"])]
        medians["both_ms"] = statistics.median(both) if both else None
        summary.append({**medians, "repeats": own})
    return summary


def _affordable(candidate: Candidate, budget: float) -> int:
    """Warm up, and see how many rounds fit into so many seconds."""
    for _ in range(2):
        start = time.perf_counter()
        _one_round(candidate, {})
        seconds = time.perf_counter() - start
        if seconds > budget:
            break
    return max(FEWEST, int(budget / seconds))


def _one_round(candidate: Candidate, times: dict[str, list[float]]) -> None:
    """Each call once without the clock, so that it finds its own data in the caches."""

    def clock(phase: str, call: Any, *args: Any) -> Any:
        start = time.perf_counter()
        out = call(*args)
        times.setdefault(phase, []).append(1e3 * (time.perf_counter() - start))
        return out

    with torch.no_grad():
        candidate.forward(False)
        clock("forward_ms", candidate.forward, False)
    if candidate.backward is not None:
        candidate.backward(candidate.forward(True))
        y = clock("forward_kept_ms", candidate.forward, True)
        clock("backward_ms", candidate.backward, y)
