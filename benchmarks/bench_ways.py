"""Compare the strategies of the `gpu` backend for shapes near the thresholds between them.

    python benchmarks/bench_ways.py --out bench_ways.json [--only TEXT] [--seconds S]

`GpuBackend.pieces` chooses by shape alone. For each shape, every applicable strategy is checked
against the chosen one and timed: forward and backward pass in eager mode, device time (replays of a
captured graph), and the first call, which compiles the kernels.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from bench_gpu import device_time, gradients, measure, ours, problem, relative, trainer
from smnn._solver import plan
from smnn._solver.gpu import launcher
from smnn._solver.gpu import strategy as plans
from smnn._solver.gpu.backend import (
    LANES_WANTED,
    LARGEST_BLOCK,
    LARGEST_IN_A_LANE,
    LARGEST_SEPARATOR,
    REDUCED,
    GpuBackend,
)
from smnn._solver.gpu.reduction.levels import words
from smnn._util.files import OutputError, write_json
from smnn._util.machine import describe_machine

SHAPES = [  # B, T, V, R
    *((1, T, 2, 2) for T in (300, 1000, 10_000, 100_000)),
    *((1, T, 3, 2) for T in (50, 100, 200, 300, 1000, 10_000, 100_000)),
    *((1, T, 4, 2) for T in (50, 100, 300, 1000, 10_000)),
    *((1, T, 8, 2) for T in (25, 50, 100, 300, 1000, 10_000)),
    *((B, 1000, 3, 2) for B in (16, 48, 128, 480)),
    *((B, 10_000, 3, 2) for B in (16, 64, 256)),
    *((B, 500, 8, 2) for B in (16, 48, 128)),
]
AGREE = 1e-9


def ways(B: int, T: int, n: int) -> dict[str, int]:
    """Strategies that apply to a shape, with the value of `pieces` that selects them."""
    out = {}
    if n <= LARGEST_BLOCK:
        out["several lanes"] = 0
    if n <= LARGEST_IN_A_LANE:
        out["whole"] = 1
    shortest = max(plans.SHORTEST_PIECE, 2 * n, min(T // 256, plans.LONG_PIECE))
    cut = min(-(-LANES_WANTED // B), T // shortest)
    if n <= LARGEST_SEPARATOR and cut > 2:
        out["pieces"] = cut
    if 8 * words(B, T, n, 1) < 40e9:
        out["reduction"] = REDUCED
    return out


def measured(B: int, T: int, V: int, R: int) -> Iterator[dict[str, Any]]:
    """Measurements of every strategy for one shape."""
    n, tensors = V * (R + 1), problem(B, T, V, R, 1)
    g = torch.randn(B, T, V, R + 1, dtype=torch.float64, device=tensors[0].device)
    expected, chosen = gradients(ours, tensors, g), GpuBackend().pieces(B, T, n, 1)
    for name, pieces in ways(B, T, n).items():
        row: dict[str, Any] = {"B": B, "T": T, "V": V, "R": R, "way": name, "pieces": pieces}
        plan._plans.clear()  # plans of the previous strategy
        with mock.patch.object(GpuBackend, "pieces", return_value=pieces):
            start = time.perf_counter()
            found = gradients(ours, tensors, g)
            torch.cuda.synchronize()
            row["first_call_s"] = time.perf_counter() - start
            row["error"] = max(map(relative, found, expected))
            if row["error"] < AGREE:
                step = trainer(ours, tensors, g)
                times = measure(step, 5 if row["first_call_s"] > 60 else 20)
                row |= {"ms": times["ms"], "in_a_row_ms": times["in_a_row_ms"]}
                row |= {"peak_mb": times["peak_mb"], "device_ms": device_time(step)}
        yield row | {"chosen": pieces == chosen or (name == "pieces" and chosen > 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--only", default="", help='only shapes that contain this text, such as "T10000 V3"'
    )
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="time after which no shape is started"
    )
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("PyTorch sees no CUDA device")
    launcher.wait()
    end, rows = time.monotonic() + options.seconds, []
    for B, T, V, R in SHAPES:
        shape = f"B{B} T{T} V{V} R{R}"
        if options.only not in shape or time.monotonic() > end:
            continue
        for row in measured(B, T, V, R):
            rows.append(row)
            print(
                f"{shape:20s} {row['way']:14s} eager {row.get('ms', math.nan):8.3f} in a row "
                f"{row.get('in_a_row_ms', math.nan):8.3f} device "
                f"{row.get('device_ms', math.nan):8.3f} ms, first call "
                f"{row['first_call_s']:5.1f} s, {row.get('peak_mb', 0):6.0f} MB, error "
                f"{row['error']:.0e}{' *' if row['chosen'] else ''}",
                flush=True,
            )
        torch.cuda.empty_cache()
    try:
        write_json(options.out, {"machine": describe_machine(), "rows": rows})
    except OutputError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
