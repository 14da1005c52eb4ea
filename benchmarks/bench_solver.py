"""Time, gradient time, peak memory and error of the solver by length, batch and block size.

    python benchmarks/bench_solver.py --out bench.json [--published CHECKOUT] [--quick]

Every result is checked before it is timed: values and gradients against another backend, and the
error against the closed form. Candidates of a case are timed in turns in this process. Compilation
of the C++ part of the CPU backend (`SMNN_NATIVE`) is awaited; the JSON says whether there is one.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from _cases import Case, cases, make_data
from _memory import measure
from _solvers import (
    load_published,
    published_candidate,
    scipy_candidate,
    smnn_candidate,
    torchdiffeq_candidate,
)
from smnn._util.files import OutputError, write_json
from smnn._util.machine import describe_machine, package_versions
from smnn.experiments.bench.solvers import Candidate, check, compare, time_all


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
    """Measure all cases."""
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


def in_a_row(candidate: Candidate, budget: float) -> float:
    """Milliseconds of forward and backward, call after call as in training.

    The median of five calls, at the moment when other programs disturbed them least.
    """
    backward = candidate.backward
    assert backward is not None

    def once() -> float:
        start = time.perf_counter()
        backward(candidate.forward(True))
        return 1e3 * (time.perf_counter() - start)

    rounds = max(3, min(100, int(budget / 5e-3 / once())))
    return min(statistics.median(once() for _ in range(5)) for _ in range(rounds))


def run_case(case: Case, options: argparse.Namespace, module: ModuleType | None) -> dict[str, Any]:
    """Check all candidates of a case, and measure time and memory."""
    data = make_data(case)
    checks: dict[str, dict[str, Any]] = {}
    candidates = [smnn_candidate(data, backend) for backend in case.backends]
    for candidate in candidates[:1]:
        checks[candidate.name] = check(case, data, candidate)
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
            checks[candidate.name] = compare(y, ours, candidates[0].name)
    results = []
    for candidate, times in zip(candidates, time_all(candidates, options.repeats, options.budget)):
        results.append(
            {
                "solver": candidate.name,
                "note": candidate.note,
                "relative_mse": candidate.error,
                **checks.get(candidate.name, {"against": None, "difference": None, "agrees": None}),
                **times,
            }
        )
    if case.group == "length":
        results[0]["in_a_row_ms"] = in_a_row(candidates[0], options.budget)
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


if __name__ == "__main__":
    sys.exit(main())
