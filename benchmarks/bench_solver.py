"""Time, gradient time, peak memory and error of the solver over length, batch and block size.

    python benchmarks/bench_solver.py --out bench.json [--published CHECKOUT] [--quick]

Every answer is checked before it is timed: values and gradients against another backend, and the
error against the closed form. Candidates of one case are timed in turns in this process.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from _cases import INPUTS, Case, Data, cases, make_data
from _memory import measure
from _solvers import (
    Candidate,
    load_published,
    published_candidate,
    scale,
    scipy_candidate,
    smnn_candidate,
    torchdiffeq_candidate,
)
from smnn._files import OutputError, write_json
from smnn._machine import describe_machine, package_versions

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


def main() -> int:
    """Run the benchmark and write its JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("bench-output/bench.json"))
    parser.add_argument("--published", type=Path, help="root of a ScalableMNN checkout")
    parser.add_argument("--quick", action="store_true", help="fewer sizes, fewer repeats")
    parser.add_argument("--repeats", type=int, help="timed calls (default 30, quick 5)")
    parser.add_argument("--threads", type=int, default=1, help="for every solver (default 1)")
    options = parser.parse_args()
    options.repeats = options.repeats or (5 if options.quick else 30)
    options.budget = 1.0 if options.quick else 4.0
    torch.set_num_threads(options.threads)
    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        module = load_published(options.published) if options.published else None
        record = run(options, module)
        write_json(options.out, record)
    except (OutputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted; nothing was written.", file=sys.stderr)
        return 130
    print(f"Results: {options.out}")
    results = [r for c in record["cases"] for r in c["results"]]
    wrong = [r for r in results if r["agrees"] is False and r["solver"] != "published"]
    for result in wrong:
        print(f"DISAGREES with {result['against']}: {result['solver']}", file=sys.stderr)
    return 1 if wrong else 0


def run(options: argparse.Namespace, module: ModuleType | None) -> dict[str, Any]:
    """Measure every case."""
    machine = describe_machine()
    machine["versions"] |= package_versions(("torchdiffeq",))
    record: dict[str, Any] = {
        "benchmark": "solver",
        "command": " ".join(["python", "benchmarks/bench_solver.py", *_public(options)]),
        "settings": {"repeats": options.repeats, "quick": options.quick},
        "machine": machine,
        "published": module is not None,
        "cases": [],
    }
    todo = cases(options.quick)
    for i, case in enumerate(todo, 1):
        print(f"[{i}/{len(todo)}] {case.label}", file=sys.stderr, flush=True)
        record["cases"].append(run_case(case, options, module))
    return record


def _public(options: argparse.Namespace) -> list[str]:
    """The options without the paths of this machine."""
    published = ["--published", "ScalableMNN"] if options.published else []
    threads = ["--threads", str(options.threads)] if options.threads != 1 else []
    quick = ["--quick"] if options.quick else []
    return ["--out", options.out.name, *published, *quick, *threads]


def run_case(case: Case, options: argparse.Namespace, module: ModuleType | None) -> dict[str, Any]:
    """Check, time and weigh everybody on one case."""
    data = make_data(case)
    checks: dict[str, dict[str, Any]] = {}
    candidates = [smnn_candidate(data, backend) for backend in case.backends]
    for candidate in candidates[:1]:
        checks[candidate.name] = _check(case, data, candidate)
    if case.published and module is not None:
        candidates.append(published_candidate(data, module))
    if case.peers:
        target = candidates[0].error
        candidates += [scipy_candidate(case, data, m, target) for m in ("RK45", "LSODA")]
        candidates.append(torchdiffeq_candidate(case, data, target))
    ours = candidates[0].forward(False)
    for candidate in candidates[1:]:
        y = candidate.forward(False)
        if y.shape == ours.shape:
            checks[candidate.name] = _compare(y, ours, candidates[0].name)
    results = []
    for candidate, times in zip(candidates, _time(candidates, options)):
        results.append(
            {
                "solver": candidate.name,
                "note": candidate.note,
                "relative_mse": candidate.error,
                **checks.get(candidate.name, {"against": None, "difference": None, "agrees": None}),
                **times,
            }
        )
    if case.memory:
        for result in results:
            if result["solver"] in ("smnn", "published"):
                for key, grad in (("memory_forward", False), ("memory_both", True)):
                    result[key] = measure(
                        case, result["solver"], grad, options.threads, options.published
                    )
    return {
        "group": case.group, "B": case.B, "T": case.T, "V": case.V, "R": case.R, "n": case.n,
        "results": results,
    }  # fmt: skip


def _check(case: Case, data: Data, candidate: Candidate) -> dict[str, Any]:
    """Values and gradients against another backend, before anything is timed."""
    against = "reference" if case.B * (case.T * case.n) ** 3 <= DENSE else "torch"
    part = min(case.B, max(1, JUDGED // case.T))
    judge = smnn_candidate(data.first(part), against, whole=case.B)
    y, other = candidate.forward(True), judge.forward(True)
    found = _compare(y[:part], other, f"{against} backend")
    assert candidate.backward is not None
    assert judge.backward is not None
    ours = (g[:part] for g in candidate.backward(y))
    gradients = dict(zip(INPUTS, zip(ours, judge.backward(other))))
    gradients["c"] = tuple(x * scale(x) for x in gradients["c"])
    found["gradient_difference"] = {k: _difference(a, b) for k, (a, b) in gradients.items()}
    found["agrees"] &= max(found["gradient_difference"].values()) <= AGREE
    return found


def _compare(y: torch.Tensor, other: torch.Tensor, against: str) -> dict[str, Any]:
    difference = _difference(y * scale(y), other * scale(y))
    return {"against": against, "difference": difference, "agrees": difference <= AGREE}


def _difference(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a - b).abs().max() / b.abs().max()).item()


def _time(candidates: list[Candidate], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Median milliseconds of forward alone, and of forward and backward with gradients kept."""
    phases = ("forward_ms", "forward_kept_ms", "backward_ms")
    spent: list[dict[str, list[float]]] = [{p: [] for p in phases} for _ in candidates]
    rounds = [min(options.repeats, _affordable(x, options.budget)) for x in candidates]
    gc.collect()
    gc.disable()
    try:
        for i in range(max(rounds)):
            for candidate, times, own in zip(candidates, spent, rounds):
                if i < own:
                    _one_round(candidate, times)
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


if __name__ == "__main__":
    sys.exit(main())
