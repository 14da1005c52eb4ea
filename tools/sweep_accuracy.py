"""Compare the rounding errors of the covariance sweep with those of orthogonal elimination.

    python tools/sweep_accuracy.py --problems 100000 --out benchmarks/results/sweep_accuracy.json

A file that exists is continued with further random problems; delete it after changing a kernel.
Both solve the same random problems (`smnn.solve` on a CPU sweeps only larger batches, here it is
made to sweep all). Errors are in units of the unavoidable rounding error, as in
`docs/guarantees.md`; the exact solutions are least squares refined in extended precision. The exit
status is 1 if the sweep exceeds 4 units, or is ten times worse than elimination and above one unit.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from smnn._solver.cpu import swept  # noqa: E402
from smnn._solver.cpu.kernels import sweep  # noqa: E402
from smnn._solver.cpu.plan import CpuPlan  # noqa: E402
from smnn._solver.cpu.swept import SweptPlan  # noqa: E402
from smnn._solver.plan import backend_named  # noqa: E402
from smnn._solver.problem import Problem, make_problem  # noqa: E402
from smnn._util.files import write_json  # noqa: E402
from smnn._util.machine import describe_machine  # noqa: E402
from solver.trust import oracle  # noqa: E402

BATCH, T = 32, 24
KINDS = ("random", "growth", "stiff", "gaps", "weights", "steps")
LIMIT, WORSE = 4.0, 10.0


def problem(kind: str, rng: np.random.Generator) -> list[np.ndarray]:
    """The seven arrays of `BATCH` problems: `c, d, u, s`, and the weights of rows."""
    V = int(rng.choice([1, 1, 2]))
    R = int(rng.choice([1, 2, 3, 4] if V == 1 else [1, 2]))
    p = int(rng.integers(1, R + 1))
    c = np.zeros((BATCH, T, V, V, R + 1))
    constant = 1 if rng.random() < 0.5 else T
    c[..., : p + 1] = rng.standard_normal((BATCH, constant, V, V, p + 1))
    c[..., p] += 2 * np.eye(V)
    s = np.full((BATCH, T - 1, V), 10 ** rng.uniform(-2.5, 0))
    weights = [np.ones((BATCH, T, V)), np.ones((BATCH, 1, V, p)), np.ones((BATCH, T - 1, V, R + 1))]
    if kind == "growth":  # up to e^20 over the interval
        c[..., 0] = -np.eye(V) * (rng.uniform(0, 20, (BATCH, 1, 1, 1)) / (T * s[0, 0, 0])) ** p
    elif kind == "stiff":
        c[..., 0] += np.eye(V) * 10 ** rng.uniform(2, 8)
    elif kind == "gaps":
        weights[0] *= rng.random((BATCH, T, 1)) < rng.uniform(0.2, 1.0)
    elif kind == "weights":
        for w in weights:
            w *= 10 ** rng.uniform(-6, 6, (*w.shape[:-1], 1))
        weights[2][:] = weights[2][..., :1]
    elif kind == "steps":
        s *= 10 ** rng.uniform(-1.5, 1.5, (BATCH, T - 1, 1))
    d = rng.standard_normal((BATCH, T, V)) * rng.choice([0.0, 1.0])
    return [c, d, rng.standard_normal((BATCH, 1, V, p)), s, *weights]


def measure(kind: str, seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Errors of the sweep and of elimination, and how many samples the sweep gave up."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    arrays = problem(kind, rng)
    exact = oracle.least_squares(*_rows(arrays))
    c, d, u, s, *weights = (torch.from_numpy(x) for x in arrays)
    weights[2] = weights[2][..., :1].expand(-1, -1, -1, c.shape[-1])
    names = ("w_gov", "w_init", "w_smooth")
    posed, _ = make_problem(c, d, u, s, **dict(zip(names, weights)), scheme="smnn")
    posed = Problem.of([*posed.tensors[:6], weights[2]], "smnn")
    engine, given_up = backend_named("cpu"), [0]
    plan = SweptPlan(engine, posed, 1)  # type: ignore[arg-type]
    some, every = plan._eliminated, plan._solve

    def counted(which: Any, tensors: Any) -> Any:
        given_up[0] += int(which.sum())
        return some(which, tensors)

    def counted_all(tensors: Any, keep: bool) -> Any:
        given_up[0] += BATCH
        return every(tensors, keep)

    plan._eliminated, plan._solve = counted, counted_all  # type: ignore[method-assign]
    found = [plan.forward(posed.tensors), CpuPlan(engine, posed, 1).solve()]
    errors = []
    for solved in found:
        y = solved.y.numpy().reshape(BATCH, -1)
        error = np.linalg.norm(exact.norms * (y - exact.y[..., 0]), axis=1)
        errors.append(error / np.maximum(exact.limit[:, 0], 1e-300))
    good = exact.converged & (exact.condition < 1e10)
    return errors[0][good], errors[1][good], given_up[0]


def _rows(arrays: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    wide: list[Any] = [x.astype(oracle.WIDE) for x in arrays]
    A, b = oracle.rows(*wide, "smnn")
    return A, b[..., None]


def main() -> int:
    """Measure, print, and write the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--problems", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    swept.LEAST_SWEPT = 0
    fields = ("problems", "worst", "worst_eliminated", "worst_ratio", "given_up")
    record: dict[str, Any] = {kind: dict.fromkeys(fields, 0) for kind in KINDS}
    start, seed, total = time.monotonic(), 0, 0
    if options.out.exists():
        before = json.loads(options.out.read_text(encoding="utf-8"))
        record, seed, total = before["kinds"], before["next_seed"], before["problems"]
    while total < options.problems and time.monotonic() - start < 60 * options.minutes:
        for kind in KINDS:
            ours, other, given_up = measure(kind, seed)
            entry = record[kind]
            entry["problems"] += len(ours)
            entry["given_up"] += given_up
            entry["worst"] = max(entry["worst"], float(ours.max(initial=0)))
            entry["worst_eliminated"] = max(entry["worst_eliminated"], float(other.max(initial=0)))
            ratio = ours / np.maximum(other, 0.1)  # below a tenth of a unit, nothing matters
            entry["worst_ratio"] = max(entry["worst_ratio"], float(ratio.max(initial=0)))
            total += len(ours)
        seed += 1
    write_json(
        options.out,
        {"benchmark": "sweep_accuracy", "problems": total, "next_seed": seed,
         "largest_errors": sweep.LARGEST_ERRORS, "kinds": record,
         "machine": describe_machine()},
    )  # fmt: skip
    print(json.dumps(record, indent=1))
    bad = [k for k, x in record.items() if x["worst"] > LIMIT or x["worst_ratio"] > WORSE]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
