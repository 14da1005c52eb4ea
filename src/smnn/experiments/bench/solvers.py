"""Solvers to compare: how they are called, checked and timed."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

import smnn
from smnn._util.optional import require
from smnn.experiments.bench.cases import INPUTS, STEP, Case, Data, relative_mse
from smnn.experiments.timing import clock, in_turns

AGREE = 1e-8
"""Largest accepted difference between two backends: of the scaled variables `s^r y_r`, relative to
the largest."""
DENSE = 5e9
"""Cost B (T n)^3 up to which the dense reference backend checks a solution."""
CHECKED = 1_000_000
"""Number of times, over all samples, that are checked; of a larger batch only the first samples.
The check needs ten times the memory of a solve."""
FEWEST = 3
"""Minimum number of timed rounds of a slow solver."""


@dataclass
class Candidate:
    """One way to solve a case."""

    name: str
    forward: Callable[[bool], Tensor]
    """Solve; the argument says whether gradients are needed. Result `(B, T, V)` or more."""
    backward: Callable[[Tensor], Any] | None
    """Gradients of a fixed functional of the result with respect to every input."""
    error: float
    """Relative MSE against the closed form."""
    note: str = ""


def scale(y: Tensor) -> Tensor:
    """Powers of the step for the orders `0..R`: the variables `s^r y_r` have comparable sizes."""
    return STEP ** torch.arange(y.shape[-1], dtype=y.dtype)


def with_gradients(
    name: str, data: Data, solve: Callable[[dict[str, Tensor]], Tensor], note: str = "",
    whole: int | None = None,
) -> Candidate:  # fmt: skip
    """A differentiable solver that maps c, d, u, s to `(B, T, V, R+1)`.

    Gradients are scaled as for a batch of size `whole`, of which `data` may be a part.
    """
    plain, leaves = data.inputs(grad=False), data.inputs(grad=True)
    y = solve(plain)
    count = y[0].numel() * (whole or len(y))
    g = torch.cos(torch.arange(y.numel(), dtype=y.dtype)).view(y.shape) / count * scale(y)
    return Candidate(
        name, lambda grad: solve(leaves if grad else plain),
        lambda result: torch.autograd.grad(result, [leaves[k] for k in INPUTS], g),
        relative_mse(y[..., 0], data.exact), note,
    )  # fmt: skip


def smnn_candidate(data: Data, backend: str, whole: int | None = None) -> Candidate:
    """This library."""
    name = "smnn" if backend == "auto" else f"smnn, {backend} backend"
    return with_gradients(
        name, data, lambda x: smnn.solve(x["c"], x["d"], x["u"], x["s"], backend=backend),
        whole=whole,
    )  # fmt: skip


def scipy_candidate(case: Case, data: Data, method: str, target: float) -> Candidate:
    """`solve_ivp` on the batch as one system, at the loosest tolerance that reaches `target`."""
    solve_ivp = require("scipy.integrate", "compare with SciPy").solve_ivp

    t = STEP * np.arange(case.T)
    a, x0 = data.A.numpy().reshape(case.B), data.u.numpy().reshape(case.B)

    def f(now: float, x: Any) -> Any:
        return a * (math.cos(now) - x) - math.sin(now)

    def forward(rtol: float) -> Tensor:
        out = solve_ivp(f, (0, t[-1]), x0, method, t_eval=t, rtol=rtol, atol=rtol / 100)
        return torch.from_numpy(out.y).T[..., None].transpose(0, 1)

    rtol, error = _loosest(forward, data.exact, target, case)
    return Candidate(f"scipy {method}", lambda _: forward(rtol), None, error, f"rtol {rtol:.0e}")


def torchdiffeq_candidate(case: Case, data: Data, target: float) -> Candidate:
    """`odeint` with dopri5, differentiated through its steps with respect to A and x(0)."""
    odeint = require("torchdiffeq", "compare with torchdiffeq").odeint

    t = STEP * torch.arange(case.T, dtype=torch.float64)
    plain = [data.A.reshape(case.B), data.u.reshape(case.B)]
    leaves = [x.clone().requires_grad_() for x in plain]

    def forward(rtol: float, grad: bool) -> Tensor:
        a, x0 = leaves if grad else plain

        def f(now: Tensor, x: Tensor) -> Tensor:
            angle = now.item()
            return a * (math.cos(angle) - x) - math.sin(angle)

        x = odeint(f, x0, t, rtol=rtol, atol=rtol / 100, method="dopri5")
        return x.T[..., None]

    rtol, error = _loosest(lambda r: forward(r, False), data.exact, target, case)
    g = torch.cos(torch.arange(data.exact.numel(), dtype=torch.float64)).view(data.exact.shape)
    return Candidate(
        "torchdiffeq dopri5", lambda grad: forward(rtol, grad),
        lambda x: torch.autograd.grad(x, leaves, g / g.numel()), error, f"rtol {rtol:.0e}",
    )  # fmt: skip


def _loosest(
    forward: Callable[[float], Tensor], exact: Tensor, target: float, case: Case
) -> tuple[float, float]:
    """The largest tolerance whose error is at most `target`, and that error."""
    if case.V != 1:
        raise ValueError(f"V: got {case.V}; expected 1: the peers solve one variable per sample.")
    for digits in range(3, 13):
        error = relative_mse(forward(10.0**-digits), exact)
        if error <= target:
            break
    return 10.0**-digits, error


def check(case: Case, data: Data, candidate: Candidate) -> dict[str, Any]:
    """Compare values and gradients with those of another backend."""
    against = "reference" if case.B * (case.T * case.n) ** 3 <= DENSE else "torch"
    part = min(case.B, max(1, CHECKED // case.T))
    other = smnn_candidate(data.first(part), against, whole=case.B)
    y, expected = candidate.forward(True), other.forward(True)
    found = compare(y[:part], expected, f"{against} backend")
    assert candidate.backward is not None
    assert other.backward is not None
    ours = (g[:part] for g in candidate.backward(y))
    gradients = dict(zip(INPUTS, zip(ours, other.backward(expected))))
    gradients["c"] = tuple(x * scale(x) for x in gradients["c"])
    found["gradient_difference"] = {k: _difference(a, b) for k, (a, b) in gradients.items()}
    found["agrees"] &= max(found["gradient_difference"].values()) <= AGREE
    return found


def compare(y: Tensor, other: Tensor, against: str) -> dict[str, Any]:
    """Difference of two solutions in the variables `s^r y_r`."""
    difference = _difference(y * scale(y), other * scale(y))
    return {"against": against, "difference": difference, "agrees": difference <= AGREE}


def _difference(a: Tensor, b: Tensor) -> float:
    return ((a - b).abs().max() / b.abs().max()).item()


def time_all(
    candidates: list[Candidate], repeats: int, budget: float,
    tick: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Median milliseconds of a solve alone, and of a solve and its gradients.

    Each solver gets `repeats` rounds, or as many (at least `FEWEST`) as fit into `budget` seconds.
    """
    rounds = [partial(_one_round, candidate) for candidate in candidates]
    repeated = [min(repeats, _affordable(call, budget)) for call in rounds]
    summary = []
    for times, count in zip(in_turns(rounds, repeated, tick), repeated):
        medians = {
            phase: statistics.median(values) if (values := [t[phase] for t in times if phase in t])
            else None
            for phase in ("forward_ms", "forward_kept_ms", "backward_ms", "both_ms")
        }  # fmt: skip
        summary.append({**medians, "repeats": count})
    return summary


def _affordable(call: Callable[[], object], budget: float) -> int:
    """Warm up, and estimate how many rounds fit into the budget."""
    for _ in range(2):
        start = time.perf_counter()
        call()
        seconds = time.perf_counter() - start
        if seconds > budget:
            break
    return max(FEWEST, int(budget / seconds))


def _one_round(candidate: Candidate) -> dict[str, float]:
    """Milliseconds by phase; each phase runs once untimed before, to fill the caches."""
    times = {}
    with torch.no_grad():
        candidate.forward(False)
        times["forward_ms"], _ = clock(lambda: candidate.forward(False))
    backward = candidate.backward
    if backward is not None:
        backward(candidate.forward(True))
        times["forward_kept_ms"], y = clock(lambda: candidate.forward(True))
        times["backward_ms"], _ = clock(lambda: backward(y))
        times["both_ms"] = times["forward_kept_ms"] + times["backward_ms"]
    return times
