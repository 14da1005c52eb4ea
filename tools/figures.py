"""Draw the figures of the documentation from benchmark records.

    python tools/figures.py --gpu benchmarks/results/gpu_h200.json
    python tools/figures.py --schemes benchmarks/results/schemes_epyc.json

Writes docs/assets/gpu_time.svg (time against length), docs/assets/gpu_roofline.svg (bandwidth
relative to a measured copy), and docs/assets/schemes.svg (error and cost of the schemes).
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

from smnn._util.files import write_atomically  # noqa: E402

BLUE, ORANGE, GREY = "#3b5bdb", "#d9480f", "#868e96"


def save(figure: Any, name: str) -> None:
    """Save as SVG without a date, so that the file is reproducible."""
    out = io.BytesIO()
    figure.savefig(out, format="svg", metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)
    write_atomically(ROOT / "docs" / "assets" / name, out.getvalue())


def gpu_time(record: dict[str, Any]) -> None:
    """Time of one sequence against its length."""
    rows = record["lengths"]
    T = [row["T"] for row in rows]
    figure, axes = plt.subplots(figsize=(6.4, 3.8))
    axes.loglog(T, [row["ms"] for row in rows], "o-", color=BLUE, label="eager")
    axes.loglog(T, [row["device_ms"] for row in rows], "s-", color=ORANGE, label="device alone")
    last = rows[-1]
    linear = [last["device_ms"] * t / last["T"] for t in T]
    axes.loglog(T[-5:], linear[-5:], "--", color=GREY, label="linear in T")
    axes.set(xlabel="times T", ylabel="forward + backward, ms")
    axes.set_title(f"One sequence of order 2, {record['device']}", fontsize=11)
    axes.grid(True, which="major", alpha=0.3)
    axes.legend(frameon=False)
    save(figure, "gpu_time.svg")


def gpu_roofline(record: dict[str, Any]) -> None:
    """Achieved bandwidth of each case, relative to the bandwidth of a copy."""
    copy = record["copy_bytes_per_s"] / 1e12
    points = sorted(  # MB, TB/s, name
        (1e-9 * rate * case["ours"]["device_ms"], rate / 1e12, case["name"])
        for case in record["cases"]
        if (rate := case["bytes_per_s"])
    )
    figure, axes = plt.subplots(figsize=(8.2, 4.4))
    left = points[0][0]
    for level, colour, line, text, up in (
        (copy, ORANGE, "-", f"copy, {copy:.2f} TB/s", 4),
        (copy / 2, GREY, "--", "half of it", -10),
    ):
        axes.axhline(level, color=colour, linestyle=line)
        axes.annotate(text, (left, level), fontsize=8, color=colour, xytext=(0, up),
                      textcoords="offset points")  # fmt: skip
    for number, (megabytes, rate, name) in enumerate(points, 1):
        axes.loglog(megabytes, rate, "o", color=BLUE, markersize=11, markeredgecolor="white")
        axes.text(megabytes, rate, str(number), color="white", fontsize=6.5, ha="center",
                  va="center_baseline")  # fmt: skip
        place = 1.03, 1 - (number - 0.5) / len(points)
        axes.text(*place, f"{number:2d}  {name}", transform=axes.transAxes, fontsize=8, va="center")
    axes.set_ylim(top=2 * copy)
    axes.set(xlabel="bytes that must move, MB", ylabel="achieved, TB/s")
    axes.set_title(f"Forward + backward on the device alone, {record['device']}", fontsize=11)
    axes.grid(True, which="major", alpha=0.3)
    save(figure, "gpu_roofline.svg")


def schemes(record: dict[str, Any]) -> None:
    """Error against step and time, for both equations."""
    colours = {"smnn": GREY, "iwp": BLUE, "hermite-l": "#2b8a3e", "hermite": ORANGE}
    titles = {"constant": "$y'' + y = 0$", "varying": "$y'' + (1 + t/10)\\,y = 0$"}
    figure, grid = plt.subplots(2, 2, figsize=(8.2, 6.4), sharey=True)
    for row, (equation, title) in zip(grid, titles.items()):
        for scheme, colour in colours.items():
            for order, style in ((2, ":"), (3, "--"), (4, "-")):
                wanted = equation, scheme, order
                own = [
                    x
                    for x in record["results"]
                    if (x["equation"], x["scheme"], x["order"]) == wanted
                ]
                label = scheme if order == 4 else None
                for axes, key in zip(row, ("step", "ms")):
                    points = [x[key] for x in own], [x["error"] for x in own]
                    axes.loglog(*points, style, marker=".", color=colour, label=label, lw=1.2)
        row[0].set(ylabel="largest error of y", title=title, xlabel="step")
        row[1].set(xlabel="time of a solve, ms", title=title)
        for axes in row:
            axes.grid(True, which="major", alpha=0.3)
            axes.set_ylim(1e-13, 3)
    lines = [plt.Line2D([], [], color=GREY, ls=x) for x in (":", "--", "-")]
    grid[0, 0].legend(frameon=False, fontsize=8, loc="lower right", title="order = 4")
    names = [f"order = {R}" for R in (2, 3, 4)]
    grid[1, 0].legend(lines, names, frameon=False, fontsize=8, loc="lower right")
    figure.tight_layout()
    save(figure, "schemes.svg")


def main() -> None:
    """Draw the figures of the records that are given."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--gpu", type=Path, help="JSON of benchmarks/bench_gpu.py")
    parser.add_argument("--schemes", type=Path, help="JSON of benchmarks/bench_schemes.py")
    options = parser.parse_args()
    plt.rcParams["svg.hashsalt"] = "smnn"  # reproducible element ids
    for path, drawn in ((options.gpu, (gpu_time, gpu_roofline)), (options.schemes, (schemes,))):
        for figure in drawn if path else ():
            figure(json.loads(path.read_text()))


if __name__ == "__main__":
    main()
