"""Kill processes at random moments while they write files, and check the files.

    python tools/kills.py --kills 200 --out benchmarks/results/kills.json
    python tools/kills.py --table      write docs/generated/faults.md from kills.json and fuzz.json

Each trial kills a process with SIGKILL after a random time, reads every file that has its final
name, resumes the work and compares the result with an uninterrupted run. The scenarios are defined
in tests/faults/killing.py. The exit status is 1 if anything was lost, incomplete or different.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
TABLE = ROOT / "docs" / "generated" / "faults.md"
sys.path.insert(0, str(ROOT / "tests" / "faults"))


def table() -> str:
    """Tables of docs/guarantees.md for killed processes and fuzzing."""
    kills, fuzz = (
        json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("kills", "fuzz")
    )
    lines = [
        "| killed during | kills | files checked | resumed exactly | lost or incomplete |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, x in kills["scenarios"].items():
        done = f"{x['finished_exactly_afterwards']} of {x['trials']}"
        files = f"{x['files_checked']:,}"
        lines.append(f"| {name} | {x['kills']} | {files} | {done} | {len(x['problems'])} |")
    done = f"{kills['finished_exactly_afterwards']} of {kills['trials']}"
    lines += [
        f"| all | {kills['kills']} | {kills['files_checked']:,} | {done} | {kills['problems']} |",
        "",
        "| reader | inputs | accepted | slowest, s | growth, MiB | wrong | executed |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, x in fuzz["readers"].items():
        numbers = (
            f"{x['inputs']:,} | {x['accepted']:,} | {x['slowest']:.2f} | {x['growth_mib']:.0f}"
        )
        lines.append(f"| {name} | {numbers} | {len(x['bugs'])} | {len(x['acts'])} |")
    total = f"{fuzz['inputs']:,} | {fuzz['accepted']:,} | | | {fuzz['bugs']} | {fuzz['acts']}"
    made = kills["machine"]
    before = [x for x in fuzz.get("replaced", []) if x["bugs"] or x["acts"]]
    note = "".join(
        f" Before *{x['reader']}* was fixed, {len(x['bugs']) + len(x['acts'])} of "
        f"{x['inputs']:,} inputs failed; they are not included above."
        for x in before
    )
    return "\n".join(
        [
            *lines,
            f"| all | {total} |",
            "",
            f"{made['processor']}, shared with other processes, {made['utc'][:10]} and "
            f"{fuzz['machine']['utc'][:10]}. Written by `tools/kills.py`.{note}",
            "",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200, help="total number of kills")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--table", action="store_true", help="only write docs/generated/faults.md")
    options = parser.parse_args()
    if options.table:
        from smnn._util.files import write_atomically

        write_atomically(TABLE, table())
        return 0

    import torch

    torch.set_num_threads(1)
    from killing import Trials, scenarios

    from smnn._util.files import write_json
    from smnn._util.machine import describe_machine

    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="smnn-kills-") as folder:
        every = [Trials(s, Path(folder) / str(i), options.seed) for i, s in enumerate(scenarios())]
        while (kills := sum(t.tally.kills for t in every)) < options.kills:
            # Choose the scenario with the fewest kills.
            chosen = min(every, key=lambda t: t.tally.kills)
            chosen.trial()
            print(f"\r{kills} kills", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    record = {
        "command": f"python tools/kills.py --kills {options.kills} --seed {options.seed}",
        "kills": kills,
        "trials": sum(t.count for t in every),
        "finished_exactly_afterwards": sum(t.tally.resumed_exactly for t in every),
        "files_checked": sum(t.tally.files_checked for t in every),
        "problems": sum(len(t.tally.problems) for t in every),
        "scenarios": {
            t.scenario.name: {"seconds_uninterrupted": round(t.seconds, 3), "trials": t.count,
                              **t.tally.record()}
            for t in every
        },
        "seconds": round(time.monotonic() - began, 1),
        "machine": describe_machine(),
    }  # fmt: skip
    for t in every:
        facts = t.tally
        print(f"{t.scenario.name:28} {facts.kills:5} kills  {facts.files_checked:6} files checked  "
              f"{facts.resumed_exactly}/{t.count} resumed exactly")  # fmt: skip
        for problem in facts.problems:
            print(f"  {problem}")
    if options.out is not None:
        write_json(options.out, record)
    return 1 if record["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
