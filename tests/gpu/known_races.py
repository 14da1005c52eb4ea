"""Kernels that depend on the order of programs or warps, and their like that do not.

A script: prints what `races.py` finds in each. Run with the interpreter on.
"""

from __future__ import annotations

import json

import torch
from races import watched

from smnn._backends._gpu_emit import Source
from smnn._backends._gpu_launch import Kernel, Launch, Slot

FLAT = ["lane = tl.arange(0, LANES)", "place = tl.program_id(0) * LANES + lane"]
TILE = [
    "ROWS: tl.constexpr = 8", "COLUMNS: tl.constexpr = 32",
    "row = tl.arange(0, ROWS)", "lane = tl.arange(0, COLUMNS)",
    "tile = row[:, None].to(tl.float64) + lane[None, :].to(tl.float64)",
]  # fmt: skip
BARRIER = "tl.debug_barrier()"
MINE, OTHERS = "tl.store(x_ptr + place, place.to(tl.float64))", "LANES - 1 - lane"
BACK = f"x = tl.load(x_ptr + tl.program_id(0) * LANES + {OTHERS})"
ANSWER = "tl.store(y_ptr + place, x)"
READ = "x = tl.load(x_ptr + lane)"
REPLACE = "tl.store(x_ptr + lane, x + 1.0)"
KERNELS = {  # lines, threads, programs
    "other warps read": ([*FLAT, MINE, BACK, ANSWER], 64, 2),
    "other warps read behind a barrier": ([*FLAT, MINE, BARRIER, BACK, ANSWER], 64, 2),
    "other warps read behind a sum": (
        [*FLAT, MINE, "total = tl.sum(lane, axis=0)", BACK, ANSWER], 64, 2,
    ),
    "other lanes of a warp read": ([*FLAT, MINE, BACK, ANSWER], 32, 2),
    "other programs read": (
        [*FLAT, MINE, BARRIER, "x = tl.load(x_ptr + lane)", ANSWER], 32, 2,
    ),
    "a single program reads": (
        [*FLAT, MINE, BARRIER, "x = tl.load(x_ptr + lane)", ANSWER], 32, 1,
    ),
    "programs write the same": ([*FLAT, "tl.store(x_ptr + lane, 1.0)"], 32, 2),
    "all warps read, one writes": ([*TILE, READ, REPLACE], 128, 1),
    "all warps read, then one writes": ([*TILE, READ, BARRIER, REPLACE], 128, 1),
    "all warps read and add, then one writes": (
        [*TILE, READ, "x = x + tl.sum(tile, axis=0)", REPLACE], 128, 1,
    ),
    "all warps read and add along rows, one writes": (
        [*TILE, READ, "each = tl.sum(tile, axis=1)", REPLACE], 128, 1,
    ),
    "a warp reads and writes": ([*TILE, READ, REPLACE], 32, 1),
    "columns write, rows read": (
        [*TILE, "tl.store(x_ptr + lane, lane.to(tl.float64))", "x = tl.load(x_ptr + row)",
         "tl.store(y_ptr + row, x)"], 128, 1,
    ),
    "rows write and read again": (
        [*TILE, "tl.store(x_ptr + row, row.to(tl.float64))", "x = tl.load(x_ptr + row)",
         "tl.store(y_ptr + row, x)"], 128, 1,
    ),
}  # fmt: skip


def main() -> None:
    """What is found in each, less the lines."""
    found = {}
    for name, (lines, threads, programs) in KERNELS.items():
        out = Source()
        for line in lines:
            out(line)
        kernel = Kernel("known", out, ["x_ptr", "y_ptr"])
        places = {"x_ptr": Slot("x"), "y_ptr": Slot("y")}
        with watched() as races:
            Launch(kernel, threads * programs, threads, places).interpret(
                {key: torch.zeros(256, dtype=torch.float64) for key in "xy"}
            )
        found[name] = sorted({key.split(":")[1].strip() for key in races.found})
    print(json.dumps(found))


if __name__ == "__main__":
    main()
