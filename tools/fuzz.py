"""Feed damaged and malicious input to every reader and count the outcomes.

    python tools/fuzz.py --examples 100000 --out benchmarks/results/fuzz.json
    python tools/fuzz.py --minutes 30 --only "csv table" "model json"
    python tools/fuzz.py --merge one.json two.json --out benchmarks/results/fuzz.json
    python tools/fuzz.py --merge --replace first.json again.json --out ...

Readers and inputs are defined in tests/faults/fuzz_targets.py. The exit status is 1 if a reader
raised an undocumented exception, hung, used too much memory, or executed anything.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "faults"))
LONGEST = 20.0
"""Approximate duration of a batch in seconds."""


def merge(paths: list[Path], out: Path, *, replace: bool) -> int:
    """Merge several records into one.

    Counts of a reader in several records are added. With `replace`, the last record counts instead
    and earlier findings are listed separately; use it after a reader was fixed and tested again.
    """
    from smnn._util.files import write_json

    records = [json.loads(path.read_text()) for path in paths]
    readers: dict[str, Any] = {}
    replaced = []
    for record in records:
        for name, x in record["readers"].items():
            if replace and name in readers:
                before = readers.pop(name)
                found = {key: before[key] for key in ("inputs", "bugs", "acts")}
                replaced.append({"reader": name, **found})
            into = readers.setdefault(name, dict.fromkeys(x, 0) | {"bugs": [], "acts": []})
            for key in ("inputs", "accepted", "spent", "bugs", "acts"):
                into[key] += x[key]
            for key in ("slowest", "growth_mib"):
                into[key] = max(into[key], x[key])
    total = {key: sum(x[key] for x in readers.values()) for key in ("inputs", "accepted")}
    total |= {key: sum(len(x[key]) for x in readers.values()) for key in ("bugs", "acts")}
    each = (r["commands"] if "commands" in r else [r["command"]] for r in records)
    commands = {"commands": list(itertools.chain.from_iterable(each))}
    seconds = {"seconds": max(r["seconds"] for r in records)}
    write_json(out, {**commands, **total, "readers": readers, "replaced": replaced, **seconds,
                     "machine": records[0]["machine"]})  # fmt: skip
    return 1 if total["bugs"] or total["acts"] else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=100_000, help="total number of inputs")
    parser.add_argument("--minutes", type=float, help="time limit")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", metavar="TARGET", help="only these readers")
    parser.add_argument("--merge", nargs="+", type=Path, help="merge the records of several runs")
    parser.add_argument(
        "--replace", action="store_true", help="merge: keep the last run of a reader"
    )
    parser.add_argument("--out", type=Path, help="JSON file")
    options = parser.parse_args()
    if options.merge:
        return merge(options.merge, options.out, replace=options.replace)

    import torch

    torch.set_num_threads(1)
    from fuzz_targets import targets
    from fuzzing import fuzz

    from smnn._util.files import write_json
    from smnn._util.machine import describe_machine

    every = {k: v for k, v in targets().items() if options.only is None or k in options.only}
    if not every:
        parser.error(f"unknown reader; expected some of: {', '.join(targets())}")
    empty: dict[str, Any] = {"inputs": 0, "accepted": 0, "slowest": 0.0, "growth_mib": 0.0,
                             "bugs": [], "acts": [], "spent": 0.0}  # fmt: skip
    total = {name: {**empty, "bugs": [], "acts": []} for name in every}
    for target in every.values():
        target.strategy()  # creates its valid files once, before forking
    began, batch = time.monotonic(), 0
    given = sys.argv[1:]
    if "--out" in given:
        del given[given.index("--out") : given.index("--out") + 2]
    command = shlex.join(["python", "tools/fuzz.py", *given])

    def record() -> dict[str, Any]:
        return {
            "command": command,
            "inputs": sum(x["inputs"] for x in total.values()),
            "accepted": sum(x["accepted"] for x in total.values()),
            "bugs": sum(len(x["bugs"]) for x in total.values()),
            "acts": sum(len(x["acts"]) for x in total.values()),
            "readers": {
                k: {**x, **{n: round(x[n], 3) for n in ("slowest", "growth_mib", "spent")}}
                for k, x in total.items()
            },
            "seconds": round(time.monotonic() - began, 1),
            "machine": describe_machine(),
        }

    while sum(x["inputs"] for x in total.values()) < options.examples:
        # Two of three batches balance time between readers, the third balances inputs.
        fewest = min(total, key=lambda k: total[k]["inputs"])
        quickest = min(total, key=lambda k: total[k]["spent"])
        name = fewest if batch % 3 == 0 else quickest
        x = total[name]
        size = 100 if not x["inputs"] else int(LONGEST * x["inputs"] / x["spent"])
        before = time.monotonic()
        found = fuzz(every[name], min(max(size, 50), 2000), options.seed * 10**9 + batch)
        batch += 1
        x["spent"] += time.monotonic() - before
        for key in ("inputs", "accepted"):
            x[key] += found[key]
        for key in ("slowest", "growth_mib"):
            x[key] = max(x[key], found[key])
        x["bugs"] += found["bugs"]
        x["acts"] += found["acts"]
        done = sum(x["inputs"] for x in total.values())
        print(f"\r{done:,} inputs, {sum(len(x['bugs']) for x in total.values())} bugs", end="",
              file=sys.stderr, flush=True)  # fmt: skip
        if options.out is not None:
            write_json(options.out, record())
        if options.minutes is not None and time.monotonic() - began > 60 * options.minutes:
            break
    print(file=sys.stderr)
    for name, x in total.items():
        print(
            f"{name:20} {x['inputs']:7,} inputs  {x['accepted']:6,} accepted  slowest "
            f"{x['slowest']:5.2f} s  {x['growth_mib']:5.0f} MiB  {len(x['bugs'])} bugs"
        )
        for what, where, value in x["bugs"][:5]:
            print(f"    {what} at {where}\n        {value[:300]}")
        for act in x["acts"][:5]:
            print(f"    acted: {act}")
    return 1 if any(x["bugs"] or x["acts"] for x in total.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
