r"""Solve many random problems and record the largest errors.

    python tools/long_run.py --problems 100000            solve problems and write a JSON record
    python tools/long_run.py --merge A.json B.json        merge records of several seeds
    python tools/long_run.py --table                      write the tables of docs/guarantees.md

Problems and properties are those of `tests/solver/trust`. A problem is one sample; samples of the
same shape are solved in one call. Every backend solves every problem; the solution is compared
with exact least squares and classified as regular or singular, and one property is checked, in
rotation. The exit status is 1 if anything exceeded its limit.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # must be set before importing NumPy

import argparse
import itertools
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from smnn._solver.gpu.backend import LARGEST_IN_A_LANE  # noqa: E402
from smnn._util.files import write_atomically, write_json  # noqa: E402
from smnn._util.machine import describe_machine  # noqa: E402
from solver.trust import sizes, ways  # noqa: E402
from solver.trust.problems import Problems, Shape, draw, on_device, random_problems  # noqa: E402
from solver.trust.properties import (  # noqa: E402
    FIXED,
    LIMITS,
    PROPERTIES,
    wrongly_judged,
)

RESULT = ROOT / "benchmarks" / "results" / "trust_long_run.json"
RESULT_GPU = RESULT.with_name("trust_gpu_h200.json")
TABLE = ROOT / "docs" / "generated" / "trust.md"


def _finite(x: float) -> float:
    """Replace infinity and NaN by a large number; JSON supports neither."""
    return float(x) if np.isfinite(x) else 1e300


SEEN = ("n", "T", "V", "Q", "R", "m", "T_init", "m_init", "scheme", "weights", "per_variable",
        "constant", "shared", "step", "spread")  # fmt: skip
"""Attributes of shapes whose values are recorded."""


class Tally:
    """Counts and largest errors of one backend."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(
            ("problems", "well_posed", "singular", "between", "singular_by_pivots",
             "regular_called_singular", "singular_passed"), 0
        )  # fmt: skip
        self.error, self.ratio = 0.0, 0.0
        self.seconds = 0.0
        self.ways: Counter[str] = Counter()
        self.properties: dict[str, dict[str, float]] = {}
        self.failures: list[dict[str, Any]] = []

    def add(self, p: Problems, backend: str, name: str) -> None:
        """Solve and classify some problems, and check one property."""
        started = time.perf_counter()
        y, info = p.solve_ex(backend)
        if backend == "gpu":
            self.ways[ways.way_of(on_device(p.case, backend))] += p.count
        true, status = p.exact.condition, info.status.flatten().numpy()
        alarmed, passed = wrongly_judged(p, backend)
        for key, number in {
            "problems": p.count,
            "well_posed": int(p.well_posed.sum()),
            "singular": int((true > 1e16).sum()),
            "between": int(((true >= 1e12) & (true <= 1e16)).sum()),
            "singular_by_pivots": int(((true > 1e16) & (status != 0)).sum()),
            "regular_called_singular": alarmed,
            "singular_passed": passed,
        }.items():
            self.counts[key] += number
        ratio = _finite(p.ratio(y).max(initial=0.0))
        self.ratio = max(self.ratio, ratio)
        self.error = max(self.error, _finite(p.error(y).max(initial=0.0)))
        errors = PROPERTIES[name](p, backend)
        if errors is not None:
            mine = self.properties.setdefault(
                name, {"problems": 0, "largest": 0.0, "limit": LIMITS[name]}
            )
            mine["problems"] += len(errors)
            mine["largest"] = max(mine["largest"], _finite(errors.max(initial=0.0)))
        worst = 0.0 if errors is None else _finite(errors.max(initial=0.0))
        if alarmed or passed or ratio >= LIMITS["exact_least_squares"] or worst >= LIMITS[name]:
            self.failures.append(
                {"property": name, "largest": worst, "ratio": ratio, "shape": repr(p.shape),
                 "judged": [alarmed, passed]}
            )  # fmt: skip
            print(backend, self.failures[-1], file=sys.stderr, flush=True)
        self.seconds += time.perf_counter() - started

    def record(self) -> dict[str, Any]:
        return {
            **self.counts,
            "largest_error_of_moderate_condition": self.error,
            "largest_error_in_units_of_rounding": self.ratio,
            "seconds": round(self.seconds, 1),
            "ways": dict(self.ways),
            "properties": self.properties,
            "failures": self.failures,
        }


def adapted(shape: Shape, fixed: dict[str, Any]) -> Shape:
    """A shape with the attributes that a property requires."""
    x = vars(shape).copy()
    for name, value in fixed.items():
        x[name] = value(x) if callable(value) else value
    return Shape(**x)


def run(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Solve random problems until the limits; yield the record after each shape."""
    rng = np.random.default_rng(options.seed)

    def choose(choices: Any) -> Any:
        return choices[int(rng.integers(len(choices)))]

    names = options.properties.split(",")
    first = options.seed % len(names)  # so that short runs with several seeds cover all properties
    always = sizes.few(options.samples, cut=options.cut) if options.small else {}
    if options.large:
        always = sizes.many(options.samples, *options.large)
    tallies = {backend: Tally() for backend in options.backends.split(",")}
    machine, started, done = describe_machine(), time.perf_counter(), 0
    seen: dict[str, set[Any]] = {key: set() for key in SEEN}
    for shapes, name in enumerate(itertools.cycle(names[first:] + names[:first]), 1):
        fixed = dict(FIXED.get(name, {}))
        if "T" in fixed and options.small and not options.cut:
            fixed["T"] = lambda x: 8 + x["seed"] % 5
        elif always:
            fixed.pop("T", None)
        shape = adapted(draw(choose, options.samples, **always), fixed)
        for key, values in seen.items():
            values.add(getattr(shape, key))
        p = random_problems(shape)
        for backend, tally in tallies.items():
            tally.add(p, backend, name)
        before, done = done, done + p.count
        seconds = time.perf_counter() - started
        over = done >= options.problems or seconds > options.seconds
        if over or done // 5000 > before // 5000:
            print(f"{done} problems, {seconds:.0f} s", file=sys.stderr, flush=True)
        yield {
            "machine": machine,
            "commands": [options.command],
            "seed": options.seed,
            "shapes": shapes,
            "seen": {key: sorted(values) for key, values in seen.items()},
            "seconds": round(seconds, 1),
            "backends": {backend: tally.record() for backend, tally in tallies.items()},
        }
        if over:
            return


def merged(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Merge records: add counts and take the maximum of errors."""
    out = {**records[0], "seed": sorted({s for r in records for s in _seeds(r)}), "backends": {}}
    out["commands"] = [c for r in records for c in r["commands"]]
    out["seen"] = {
        key: sorted({x for r in records for x in r["seen"].get(key, ())}) for key in SEEN
    }
    for key in ("shapes", "seconds"):
        out[key] = round(sum(r[key] for r in records), 1)
    for backend in dict.fromkeys(name for r in records for name in r["backends"]):
        parts = [r["backends"][backend] for r in records if backend in r["backends"]]
        one: dict[str, Any] = {
            k: max(p[k] for p in parts) if k.startswith("largest") else sum(p[k] for p in parts)
            for k, x in parts[0].items()
            if isinstance(x, int | float)
        }
        one["properties"] = {}
        for name in PROPERTIES:  # short runs may not cover all properties
            tried = [p["properties"][name] for p in parts if name in p["properties"]]
            if tried:
                one["properties"][name] = {
                    "problems": sum(x["problems"] for x in tried),
                    "largest": max(x["largest"] for x in tried),
                    "limit": LIMITS[name],
                }
        one["ways"] = dict(sum((Counter(p.get("ways", {})) for p in parts), Counter()))
        one["failures"] = [f for p in parts for f in p["failures"]]
        out["backends"][backend] = one
    return out


def _seeds(record: dict[str, Any]) -> list[int]:
    seed = record["seed"]
    return seed if isinstance(seed, list) else [seed]


WORDS = {
    "exact_least_squares": "exact least squares (extended precision)",
    "float32": "float32 = rounded float64",
    "linear": "linear in `(d, u)`",
    "order_of_samples": "permuted samples",
    "names_of_variables_and_equations": "permuted variables and equations",
    "unit_of_time": "other unit of time",
    "direction_of_time": "reversed time",
    "broadcasting_is_repetition": "broadcast = repeated",
    "weight_zero_is_absent": "weight zero = row absent",
    "pieces_are_the_whole": "split in time = whole",
    "many_right_hand_sides": "stored factor, several right-hand sides",
    "gradients": "gradients with respect to all arguments",
    "forward_mode": "forward mode = reverse mode",
    "condition_is_estimated": "condition estimate (ratio)",
}


def table(records: list[dict[str, Any]]) -> str:
    """Table of docs/guarantees.md, with a column for each backend."""
    backends = {name: x for record in records for name, x in record["backends"].items()}
    rows = [["", *(f"`{b}`" for b in backends)], ["---", *("---:" for _ in backends)]]

    def line(text: str, values: list[str]) -> None:
        rows.append([text, *values])

    for key, text in {
        "problems": "problems",
        "well_posed": "with condition number below $10^{10}$",
        "between": "with condition number from $10^{12}$ to $10^{16}$",
        "singular": "singular",
        "singular_by_pivots": "of these, detected by the pivots alone",
        "regular_called_singular": "regular, classified as singular",
        "singular_passed": "singular, classified as regular",
    }.items():
        line(text, [f"{r[key]:,}" for r in backends.values()])
    taken = [Counter(r.get("ways", {})) for r in backends.values()]
    for way, text in ways.in_words(sum(taken, Counter())).items():
        line(f"solved by {text}", [f"{t[way]:,}" if t else "" for t in taken])
    key = "largest_error_of_moderate_condition"
    line(
        "largest relative error, condition number below $10^6$",
        [f"{r[key]:.1e}" for r in backends.values()],
    )
    for name, text in WORDS.items():
        found = [r["properties"].get(name, {}).get("largest") for r in backends.values()]
        if name == "exact_least_squares":  # checked on every problem
            found = [r["largest_error_in_units_of_rounding"] for r in backends.values()]
        line(text, ["" if f is None else f"{f:.2g}" for f in found])
    line("seconds", [f"{r['seconds']:.0f}" for r in backends.values()])
    captions = []
    for record in records:
        made, n = record["machine"], record["seen"].get("n")
        names = ", ".join(f"`{b}`" for b in record["backends"])
        unknowns = f" of {n[0]} to {n[-1]} unknowns per time" if n else ""
        captions.append(
            f"{names}: {record['shapes']:,} shapes{unknowns}, "
            f"seeds {', '.join(map(str, _seeds(record)))}; {made['gpu'] or made['processor']}, "
            f"PyTorch {made['versions']['torch']}, {made['utc'][:10]}."
        )
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*lines, "", *captions, "Written by `tools/long_run.py`.", ""])


def limits(text: str) -> tuple[int, int]:
    """Parse a range such as `25-64`."""
    fewest, _, most = text.partition("-")
    numbers = int(fewest), int(most or fewest)
    if not 1 <= numbers[0] <= numbers[1]:
        raise argparse.ArgumentTypeError(f"got {text}; expected a range like 25-64")
    return numbers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--problems", type=int, default=2000, help="number of problems per backend")
    parser.add_argument("--seconds", type=float, default=math.inf, help="time limit")
    parser.add_argument("--backends", default="reference,torch,cpu", help="separated by commas")
    parser.add_argument("--samples", type=int, default=64, help="problems per shape")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--properties", default=",".join(PROPERTIES), help="separated by commas")
    parser.add_argument("--small", action="store_true", help="few unknowns and time steps")
    parser.add_argument(
        "--large", type=limits, nargs="?", const=(13, 64), metavar="FEWEST-MOST",
        help="unknowns per time step, by default 13-64; larger problems use fewer samples",
    )  # fmt: skip
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--cut", action="store_true", help="split time into the shortest pieces")
    way.add_argument("--whole", action="store_true", help="GPU: one or two threads per sequence")
    way.add_argument("--warps", action="store_true", help="GPU: one warp per sequence")
    way.add_argument("--teams", action="store_true", help="GPU: a part of a warp per sequence")
    way.add_argument("--reduced", action="store_true", help="GPU: odd-even reduction")
    parser.add_argument("--emulated", action="store_true", help="emulate the GPU")
    parser.add_argument("--lanes", type=int, help="samples per program in Triton's interpreter")
    parser.add_argument("--table", action="store_true", help="only write the table")
    parser.add_argument("--merge", type=Path, nargs="+", help="only merge these records into --out")
    options = parser.parse_args()
    if options.large and options.small:
        parser.error("--large and --small exclude each other")
    if options.large and options.cut and options.large[1] > LARGEST_IN_A_LANE:
        parser.error(f"--cut is for at most {LARGEST_IN_A_LANE} unknowns per time")
    if options.merge:
        parts = [json.loads(path.read_text(encoding="utf-8")) for path in options.merge]
        write_json(options.out, merged(parts))
        return 0
    if options.table:
        records = [json.loads(path.read_text(encoding="utf-8")) for path in (RESULT, RESULT_GPU)]
        write_atomically(TABLE, table(records))
        return 0
    given = sys.argv[1:]
    if "--out" in given:  # do not record the output path
        del given[given.index("--out") : given.index("--out") + 2]
    options.command = " ".join(["python", "tools/long_run.py", *given])
    torch.set_num_threads(1)
    races = ways.emulate() if options.emulated else {}
    if options.lanes:
        ways.widen(options.lanes)
    if options.cut:
        ways.cut_everything()
    if options.whole:
        ways.never_cut()
    if options.reduced:
        ways.always_reduce()
    if options.warps or options.teams:
        ways.always_teams(share=options.teams)
    for record in run(options):
        write_json(options.out, record)
    failures = len(races) + sum(len(r["failures"]) for r in record["backends"].values())
    for race in races:
        print(race, file=sys.stderr)
    print(f"{options.out}: {failures} failures in {record['seconds']} s")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
