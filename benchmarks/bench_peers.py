"""Damped oscillators by this library and by others: error beside time, first call, two cores.

    python benchmarks/bench_peers.py --out peers.json [--published CHECKOUT] [--baseline SRC]

`CHECKOUT` is that of the solver published with the paper, and `SRC` a `src` folder of an earlier
version of this library. Packages that are not installed are left out, and named. Adaptive solvers
have a relative tolerance of 1e-5, gradients are those by coefficients and initial values. All
candidates of a case are called in turns in one process on one core. Times on one core are those of
the processor, which do not count other programs; those on two cores are by the clock. Medians and
minima.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

import _oscillators
import smnn
from _oscillators import Data, Peer, make_data
from smnn._util.files import OutputError, write_json
from smnn._util.machine import describe_machine, package_versions
from smnn.experiments.bench.cases import Case
from smnn.experiments.bench.cases import make_data as make_case
from smnn.experiments.timing import threads

SIZES = [(512, 500), (512, 50), (1, 1000)]
BLOCKS = [(1, 2), (1, 4), (1, 5), (3, 2), (4, 2)]
"""Variables and order of the problems whose first call and speed are measured by block size."""
FIRST = ("smnn", "diffrax", "torchode", "torchdiffeq")
PACKAGES = ("diffrax", "jax", "torchode", "torchdiffeq", "scipy")


def peers(data: Data, checkout: Path | None) -> dict[str, Callable[[], Peer]]:
    """All candidates by name."""
    makers: dict[str, Callable[[], Peer]] = {
        "smnn": partial(_oscillators.ours, data),
        "smnn, torch backend": partial(
            _oscillators.ours, data, backend="torch", name="smnn, torch backend"
        ),
        "diffrax": partial(_oscillators.diffrax, data, True),
        "diffrax, one system": partial(_oscillators.diffrax, data, False),
        "torchode": partial(_oscillators.torchode, data),
        "torchdiffeq": partial(_oscillators.torchdiffeq, data),
        "SciPy": partial(_oscillators.scipy, data),
    }
    if checkout:
        for package in (False, True):
            makers[f"published, {package}"] = partial(
                _oscillators.published, data, checkout, package
            )
    return makers


def in_turns(
    calls: Mapping[str, Callable[[], object]], repeats: int, budget: float,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, dict[str, float]]:  # fmt: skip
    """Milliseconds of each call; slow ones have fewer repeats, or only the first."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    counts = {}
    for name, call in calls.items():
        start = clock()
        call()
        once = clock() - start
        if once < budget:
            start = clock()
            call()
            counts[name] = max(3, min(repeats, int(budget / (clock() - start) / 2)))
        else:
            times[name], counts[name] = [1e3 * once], 0
    for i in range(repeats):
        for name, call in calls.items():
            if i < counts[name]:
                call()  # fills the caches of the processor
                start = clock()
                call()
                times[name].append(1e3 * (clock() - start))
    return {k: {"median": statistics.median(x), "fastest": min(x)} for k, x in times.items()}


def run_case(B: int, T: int, options: argparse.Namespace) -> dict[str, Any]:
    """Errors and times of all candidates on one core."""
    data, found, missing = make_data(B, T), [], {}
    for name, make in peers(data, options.published).items():
        if not any(x in name for x in options.only.split(",")):
            continue
        print(f"  {name}", file=sys.stderr, flush=True)
        try:
            found.append(make())
            found[-1].forward()  # compilation is not part of a repeated call
        except ImportError as error:
            missing[name] = str(error)
    results: list[dict[str, Any]] = [
        dict(zip(("solver", "note", "error", "gradient_error"), (p.name, p.note, *p.errors(data))))
        for p in found
    ]
    for phase in ("forward", "both"):
        calls = {str(i): getattr(p, phase) for i, p in enumerate(found)}
        for i, times in in_turns(calls, options.repeats, options.budget).items():
            results[int(i)][f"{phase}_ms"] = times
    return {"B": B, "T": T, "missing": missing, "results": results}


def block_problem(V: int, R: int) -> Callable[..., Any]:
    """A solve of 512 systems at 200 times, with all inputs as full tensors; `solve` comes later."""
    data = make_case(Case("block", 512, 200, V, R))
    leaves = [x.requires_grad_() for x in (data.c, data.d, data.u, data.s)]

    def call(solve: Callable[..., Any], gradients: bool) -> Any:
        with torch.set_grad_enabled(gradients):
            y = solve(*leaves)
            return torch.autograd.grad(y.sum(), leaves) if gradients else y

    return call


def _on(count: int, call: Callable[..., Any], gradients: bool) -> None:
    with threads(count):
        call(smnn.solve, gradients)


def run_blocks(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Times by block size: by the clock on one and two cores; of an earlier version in turns."""
    out: list[dict[str, Any]] = []
    for V, R in BLOCKS:
        call, calls = block_problem(V, R), {}
        for gradients in (False, True):
            for count in (1, 2):
                name = f"{('forward', 'both')[gradients]}_{count}"
                calls[name] = partial(_on, count, call, gradients)
        times = in_turns(calls, 10 * options.repeats, 4 * options.budget, time.perf_counter)
        out.append({"V": V, "R": R, "clock_ms": times})
    for _ in range(3 if options.baseline else 1):
        for key, source in (("now", None), ("baseline", options.baseline)):
            if key == "now" or source:
                for block, found in zip(out, child(options, "--blocks", source=source)):
                    block[key] = [min(x, y) for x, y in zip(block.get(key, found), found)]
    return out


def child(options: argparse.Namespace, *arguments: str, source: Path | None = None) -> Any:
    """Run this file in a new process on one core."""
    paths = [str(source)] if source else []
    paths += [os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, __file__, *arguments, "--repeats", str(options.repeats)]
    if options.published:
        command += ["--published", str(options.published)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    return json.loads(done.stdout.splitlines()[-1])


def first_call(name: str, options: argparse.Namespace) -> dict[str, float]:
    """Processor seconds to the first result and first gradients; `name` is a solver or `V R`."""
    if name[0].isdigit():
        V, R = map(int, name.split())
        call = block_problem(V, R)
        jobs = [partial(call, smnn.solve, False), partial(call, smnn.solve, True)]
        start = time.process_time()
    else:
        data = make_data(512, 500)
        maker = peers(data, options.published)[name]
        if name.startswith("diffrax"):
            __import__("diffrax")
        start = time.process_time()
        peer = maker()
        jobs = [peer.forward, peer.both]
    seconds = []
    for job in jobs:
        job()
        seconds.append(time.process_time() - start)
    return dict(zip(("forward", "both"), seconds))


def block_times(options: argparse.Namespace) -> list[list[float]]:
    """Fastest forward and forward with gradients of each block, for `--only blocks`."""
    out = []
    for V, R in BLOCKS:
        call = block_problem(V, R)
        calls = {str(x): partial(call, smnn.solve, x) for x in (False, True)}
        times = in_turns(calls, options.repeats, options.budget)
        out.append([times["False"]["fastest"], times["True"]["fastest"]])
    return out


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure everything."""
    machine = describe_machine()
    machine["versions"] |= package_versions(PACKAGES)
    command = f"python benchmarks/bench_peers.py --parts {' '.join(options.parts)}"
    command += f" --only {options.only}" if options.only else ""
    record: dict[str, Any] = {"benchmark": "peers", "command": command, "machine": machine}
    if "first" in options.parts:
        sizes = (f"{V} {R}" for V, R in BLOCKS)
        names = [*sizes, *FIRST]
        record["first_call_s"] = {name: child(options, "--first", name) for name in names}
    if "blocks" in options.parts:
        record["blocks"] = run_blocks(options)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if "cases" in options.parts:
        record["cases"] = []
        for B, T in reversed(SIZES):  # the short ones first
            record["cases"].append(run_case(B, T, options))
            write_json(options.out, record)
    return record


def main() -> int:
    """Run the benchmark and write its JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("bench-output/peers.json"))
    parser.add_argument("--published", type=Path, help="root of a ScalableMNN checkout")
    parser.add_argument("--baseline", type=Path, help="`src` folder of an earlier version")
    parser.add_argument("--repeats", type=int, default=20, help="timed calls (default 20)")
    parser.add_argument("--budget", type=float, default=2.0, help="seconds for a solver and case")
    parser.add_argument(
        "--parts",
        nargs="+",
        default=["first", "blocks", "cases"],
        help="default: all three",
    )
    parser.add_argument("--only", default="", help="candidates whose names contain one of these")
    parser.add_argument("--first", help=argparse.SUPPRESS)
    parser.add_argument("--blocks", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.first or options.blocks:
        os.sched_setaffinity(0, {0})
        found = first_call(options.first, options) if options.first else block_times(options)
        print(json.dumps(found))
        return 0
    try:
        write_json(options.out, run(options))
    except OutputError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"Results: {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
