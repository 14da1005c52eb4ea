"""Kill processes at random moments while they write, and count what they leave behind.

    python tools/kills.py --kills 200 --out benchmarks/results/kills.json

Each trial kills a process with SIGKILL after a random time, reads every file that has its final
name, finishes the work and compares with a run that nobody interrupted. The scenarios are those of
tests/faults/killing.py. Ends with code 1 if anything was lost, half-written or different.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "faults"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200, help="how many, over all scenarios")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="JSON file")
    options = parser.parse_args()

    import torch

    torch.set_num_threads(1)
    from killing import Trials, scenarios

    from smnn._files import write_json
    from smnn._machine import describe_machine

    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="smnn-kills-") as folder:
        every = [Trials(s, Path(folder) / str(i), options.seed) for i, s in enumerate(scenarios())]
        while (kills := sum(t.tally.kills for t in every)) < options.kills:
            # The one that was killed least often is next.
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
        print(f"{t.scenario.name:28} {facts.kills:5} kills  {facts.files_checked:6} files read  "
              f"{facts.resumed_exactly}/{t.count} finished exactly")  # fmt: skip
        for problem in facts.problems:
            print(f"  {problem}")
    if options.out is not None:
        write_json(options.out, record)
    return 1 if record["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
