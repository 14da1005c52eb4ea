r"""Forecasts of the weekly Nino temperatures against the simple references, from past origins.

    python benchmarks/bench_forecast.py --out benchmarks/results/nino_backtest.json \
        --table docs/generated/nino.md

Takes some minutes on one core. Every forecast is made from what was known at its origin; the
intervals are meant to hold 90 %. Horizons that are not asked for stay in the file as they are.
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
from smnn.forecasting._backtest import OURS

CASES = {26: 10, 208: 8}
"""Weeks ahead, and origins."""


def main() -> None:
    """Run and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--table", type=Path, help="write the figures as a Markdown table, too")
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
            **_figures(tested, data.regions, data.time),
            "seconds": round(time.perf_counter() - start, 1),
            "cpu_seconds": round(time.process_time() - busy, 1),
        }
        print(horizon, {m: round(tested.rmse(m), 4) for m in tested.methods}, tested.coverage)
    record = {"nino": found, "machine": describe_machine()}
    write_json(options.out, record)
    if options.table is not None:
        write_atomically(options.table, table(record))


def table(record: dict[str, Any]) -> str:
    """The figures in Markdown: a row for each method, a column for each horizon."""
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
    held = [f"{100 * c['coverage']:.1f} %" for c in cases.values()]
    rows.append([f"inside the {100 * first['level']:.0f} % intervals", *held])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def _figures(tested: Backtest, regions: tuple[str, ...], times: np.ndarray) -> dict[str, object]:
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
        "coverage_by_region": dict(zip(regions, np.nanmean(tested.inside, (0, 2)).tolist())),
        "level": tested.level,
    }


if __name__ == "__main__":
    main()
