"""Error, time and memory against the length of the series: S-MNN, MNN dense and sparse, Ada-GVAE.

    python benchmarks/bench_scaling.py --out bench_scaling.json [--data sst.wkmean.1990-present.nc
        --mask lsmask.nc] [--quick]

On a GPU with the sizes of the paper (batch of 6,480 pairs, width 1,024), on a CPU with small ones.
The file is written again after every point, so that what there is outlives an interruption.
`smnn reproduce scaling` runs the same and draws the figure.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from smnn._util.files import OutputError, write_json
from smnn.datasets.sst import read_grid
from smnn.experiments.scaling.run import LENGTHS, Config, Scaling, run


def main() -> int:
    """Run the benchmark and write its JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("bench-output/bench_scaling.json"))
    parser.add_argument(
        "--data", type=Path, help="weekly grid; else the packaged one, interpolated"
    )
    parser.add_argument("--mask", type=Path, help="its land mask")
    parser.add_argument("--seconds", type=float, default=6.0, help="training of each point")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds that one step may take")
    parser.add_argument("--device", help="cpu or cuda")
    parser.add_argument("--quick", action="store_true", help="three short lengths, few steps")
    options = parser.parse_args()
    config = Config(
        lengths=(26, 52, 104) if options.quick else LENGTHS,
        steps=10 if options.quick else 300,
        seconds=1.0 if options.quick else options.seconds,
        limit=options.limit,
        device=options.device,
    )

    def tick(name: str, so_far: Scaling) -> None:
        point = so_far.points[-1]
        if "not_run" in point:
            told = point["not_run"]
        else:
            memory = "" if point["gib"] is None else f", {point['gib']:.2f} GiB"
            test = "" if point["test_mse"] is None else f", test {point['test_mse']:.5f}"
            told = f"{point['ms']:.1f} ms{memory}{test} ({point['steps']} steps)"
        print(f"{name}: {told}", flush=True)
        write_json(options.out, so_far.record())

    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        grid = None if options.data is None else read_grid(options.data, options.mask)
        run(config, grid, tick)
    except (OutputError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
