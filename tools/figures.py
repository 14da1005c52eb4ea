"""Draw the figures of the docs from the JSON of the benchmarks.

    python tools/figures.py --gpu benchmarks/results/gpu_h200.json

Writes docs/assets/gpu_time.svg (time against length) and docs/assets/gpu_roofline.svg (achieved
bytes per second against a measured copy).
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

from smnn._files import write_atomically  # noqa: E402

BLUE, ORANGE, GREY = "#3b5bdb", "#d9480f", "#868e96"


def save(figure: Any, name: str) -> None:
    """Without a date, so that an unchanged figure is an unchanged file."""
    out = io.BytesIO()
    figure.savefig(out, format="svg", metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)
    write_atomically(ROOT / "docs" / "assets" / name, out.getvalue())


def gpu_time(record: dict[str, Any]) -> None:
    """One sequence: far below linear until the device is full, then linear."""
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


def _label(axes: Any, text: str, point: tuple[float, float], taken: list[Any]) -> None:
    """A name beside its point: the first place where it covers no other name."""
    places = [("left", 4, 4), ("left", 4, -9), ("right", -4, 4), ("right", -4, -9), ("left", 4, 13)]
    for side, right, up in places:
        label = axes.annotate(
            text, point, fontsize=7, xytext=(right, up), textcoords="offset points", ha=side
        )
        box = label.get_window_extent()
        if not any(box.overlaps(other) for other in taken):
            break
        if (side, right, up) != places[-1]:
            label.remove()
    taken.append(box)


def gpu_roofline(record: dict[str, Any]) -> None:
    """The bytes that must move, over the time they took, against the rate of a copy."""
    copy = record["copy_bytes_per_s"]
    cases = [case for case in record["cases"] if case["bytes_per_s"]]
    x = [1e-9 * case["bytes_per_s"] * case["ours"]["device_ms"] for case in cases]  # MB
    figure, axes = plt.subplots(figsize=(7.6, 4.2))
    axes.loglog(x, [case["bytes_per_s"] / 1e12 for case in cases], "o", color=BLUE)
    axes.set_xlim(min(x) / 1.5, max(x) * 8)
    axes.set_ylim(top=2 * copy / 1e12)
    taken: list[Any] = []
    for megabytes, case in sorted(zip(x, cases, strict=True), key=lambda pair: pair[0]):
        _label(axes, case["name"], (megabytes, case["bytes_per_s"] / 1e12), taken)
    axes.axhline(copy / 1e12, color=ORANGE)
    axes.annotate(f"copy, {copy / 1e12:.2f} TB/s", (min(x), copy / 1e12), fontsize=8,
                  color=ORANGE, xytext=(0, 4), textcoords="offset points")  # fmt: skip
    axes.axhline(copy / 2e12, color=GREY, linestyle="--")
    axes.annotate("half of it", (min(x), copy / 2e12), fontsize=8, color=GREY,
                  xytext=(0, -10), textcoords="offset points")  # fmt: skip
    axes.set(xlabel="bytes that must move, MB", ylabel="achieved, TB/s")
    axes.set_title(f"Forward + backward on the device alone, {record['device']}", fontsize=11)
    axes.grid(True, which="major", alpha=0.3)
    save(figure, "gpu_roofline.svg")


def main() -> None:
    """Draw what there is a file for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--gpu", type=Path, required=True, help="JSON of benchmarks/bench_gpu.py")
    record = json.loads(parser.parse_args().gpu.read_text())
    plt.rcParams["svg.hashsalt"] = "smnn"  # the same names of elements every time
    gpu_time(record)
    gpu_roofline(record)


if __name__ == "__main__":
    main()
