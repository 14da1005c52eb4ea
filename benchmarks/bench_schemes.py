"""Error and cost of the schemes by step and order, for `docs/choosing.md`.

    python benchmarks/bench_schemes.py --out benchmarks/results/schemes_epyc.json

The oscillator `y'' + y = 0` over ten periods, and `y'' + (1 + t/10) y = 0`, whose coefficients vary
in time, over the same interval (the solution is a combination of Airy functions). Errors are the
largest of `y`; times are those of the processor for one solve, on one thread, the fastest of some.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import smnn
from smnn._util.files import OutputError, write_json
from smnn._util.machine import describe_machine

SCHEMES = ("smnn", "iwp", "hermite", "hermite-l")
ORDERS = (2, 3, 4)
END = 20 * math.pi
COUNTS = (80, 160, 320, 640, 1280, 2560, 5120)


def exact(name: str, t: Tensor) -> Tensor:
    """The solution with `y(0) = 1, y'(0) = 0`."""
    if name == "constant":
        return t.cos()
    from scipy.special import airy

    scale = 10 ** (-1 / 3)  # y'' = -(1 + t/10) y becomes w'' = x w with x = -(1 + t/10) / scale^2
    x0, x = -(scale**-2), -(1 + t.numpy() / 10) * scale**-2
    a0, da0, b0, db0 = airy(x0)
    a, _, b, _ = airy(x)
    return torch.from_numpy(np.pi * (db0 * a - da0 * b))


def measure(name: str, scheme: str, R: int, count: int, repeats: int) -> dict[str, Any]:
    """Error and milliseconds of one solve."""
    t = torch.linspace(0, END, count + 1, dtype=torch.float64)
    c = torch.zeros(1 if name == "constant" else count + 1, 1, 1, 3, dtype=torch.float64)
    c[:, 0, 0, 2] = 1.0
    c[:, 0, 0, 0] = 1.0 if name == "constant" else 1 + t / 10
    d, s = torch.zeros(1, 1, dtype=torch.float64), t[1:2]
    u = torch.tensor([1.0, 0.0], dtype=torch.float64).view(1, 1, 2)
    options: dict[str, Any] = {"order": R, "scheme": scheme, "n_steps": count + 1}
    times = []
    for _ in range(repeats):
        start = time.process_time()
        y = smnn.solve(c, d, u, s, **options)
        times.append(1e3 * (time.process_time() - start))
    error = (y[:, 0, 0] - exact(name, t)).abs().max().item()
    return {
        "equation": name, "scheme": scheme, "order": R, "step": s.item(), "error": error,
        "ms": min(times),
    }  # fmt: skip


def main() -> int:
    """Measure all schemes and write the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("bench-output/schemes.json"))
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = [
        measure(name, scheme, R, count, options.repeats)
        for name in ("constant", "varying")
        for scheme in SCHEMES
        for R in ORDERS
        for count in COUNTS
    ]
    record = {
        "benchmark": "schemes", "command": "python benchmarks/bench_schemes.py",
        "machine": describe_machine(), "results": found,
    }  # fmt: skip
    try:
        write_json(options.out, record)
    except OutputError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"Results: {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
