r"""Back-test of forecasts of the weekly Nino temperatures against simple references.

    python benchmarks/bench_forecast.py --out benchmarks/results/nino_backtest.json \
        --table docs/generated/nino.md

Takes a few minutes on one core. Each forecast is based only on the data before its origin; the
intervals have a nominal coverage of 90 %. Results of horizons that are not run are kept.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from smnn._util.files import write_atomically, write_json
from smnn._util.machine import describe_machine
from smnn.datasets.sst import nino
from smnn.forecasting import Backtest, Forecaster, backtest

OURS = "forecaster"

CASES = {26: 10, 208: 8}
"""Horizon in weeks: number of origins."""


def main() -> None:
    """Run the back-tests and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--table", type=Path, help="also write a Markdown table")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--horizons", type=int, nargs="+", default=list(CASES), choices=CASES)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    data = nino()
    found = json.loads(options.out.read_text())["nino"] if options.out.exists() else {}
    for horizon in options.horizons:
        start, busy = time.perf_counter(), time.process_time()
        tested = backtest(
            data.sst, data.time, horizon=horizon, origins=CASES[horizon],
            forecaster=Forecaster(same_units=False),
        )  # fmt: skip
        found[str(horizon)] = {
            **_results(tested, data.regions, data.time),
            "seconds": round(time.perf_counter() - start, 1),
            "cpu_seconds": round(time.process_time() - busy, 1),
        }
        print(horizon, {m: round(tested.rmse(m), 4) for m in tested.methods}, tested.coverage)
    record = {"nino": found, "machine": describe_machine()}
    write_json(options.out, record)
    if options.table is not None:
        write_atomically(options.table, table(record))


def table(record: dict[str, Any]) -> str:
    """Markdown table with one row per method and one column per horizon."""
    cases = {h: record["nino"][h] for h in sorted(record["nino"], key=int)}
    first = next(iter(cases.values()))
    head = ["RMSE in °C, mean of four regions", *(f"{h} weeks ahead" for h in cases)]
    rows = [head, ["---", *("---:" for _ in cases)]]
    for method in sorted(first["rmse_celsius"], key=lambda m: (m != OURS, m)):
        errors = [case["rmse_celsius"] for case in cases.values()]
        name = "**smnn**" if method == OURS else method
        cells = [f"{e[method]:.3f}" if e[method] > min(e.values()) else f"**{e[method]:.3f}**"
                 for e in errors]  # fmt: skip
        rows.append([name, *cells])
    rows.append(["origins", *(str(len(c["origins"])) for c in cases.values())])
    coverage = [f"{100 * c['coverage']:.1f} %" for c in cases.values()]
    rows.append([f"inside the {100 * first['level']:.0f} % intervals", *coverage])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def _results(tested: Backtest, regions: tuple[str, ...], times: np.ndarray) -> dict[str, object]:
    degrees = tested.scale[None, :, None]
    rmse = {
        m: float(np.sqrt(np.nanmean((tested.errors[m] * degrees) ** 2))) for m in tested.methods
    }
    return {
        "origins": [str(times[o - 1])[:10] for o in tested.origins],
        "rmse_celsius": rmse,
        "rmse_relative": {m: tested.rmse(m) for m in tested.methods},
        "rmse_celsius_by_region": {
            m: dict(zip(regions, (tested.by_series(m) * tested.scale).tolist()))
            for m in tested.methods
        },
        "coverage": tested.coverage,
        "coverage_by_region": dict(zip(regions, tested.coverage_by_series().tolist())),
        "level": tested.level,
    }


if __name__ == "__main__":
    main()
