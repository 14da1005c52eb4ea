"""Positions and labels of axis ticks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from smnn.report.numbers import significant


def ticks(low: float, high: float, count: int = 6) -> list[float]:
    """Return round numbers in an interval."""
    raw = (high - low) / max(1, count)
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(s * size for s in (1, 2, 5, 10) if s * size >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return log10 of powers of ten in an interval; if there are few, also of 2 and 5 times."""
    first, last = math.floor(low), math.ceil(high)
    every = max(1, round((last - first) / 5))
    found = [float(k) for k in range(first, last + 1) if low <= k <= high and k % every == 0]
    if len(found) >= 3:
        return found
    if high - low < 0.7:
        return [math.log10(x) for x in ticks(10.0**low, 10.0**high, 4)]
    digits = [math.log10(d) for d in (1, 2, 5)]
    return [k + d for k in range(first, last + 1) for d in digits if low <= k + d <= high]


def tick_text(values: Sequence[float]) -> list[str]:
    """Return labels with a common number of decimals."""
    if not values:
        return []
    top = max(abs(v) for v in values)
    step = min((b - a for a, b in itertools.pairwise(values)), default=top or 1.0)
    if top >= 1e6 or 0 < step < 1e-4:
        digits = 3 if not step else max(3, 1 + math.ceil(math.log10(top / step) - 1e-9))
        return [f"{v:.{digits}g}".replace("-", "−") if v else "0" for v in values]
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) if step else 0
    return [f"{v + 0.0:.{decimals}f}".replace("-", "−") for v in values]


def log_tick_text(values: Sequence[float]) -> list[str]:
    """Return labels of a logarithmic axis: `0.5`, `1`, `20` near one, otherwise powers of ten."""
    if all(-3 <= v < 4 for v in values):
        return [f"{10.0**v:.10g}" for v in values]
    return [
        f"10<sup>{v:.0f}</sup>".replace("-", "−") if v == round(v) else significant(10.0**v, 1)
        for v in values
    ]


_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_STEPS = [
    *(("s", k) for k in (1, 2, 5, 10, 15, 30)), *(("m", k) for k in (1, 2, 5, 10, 15, 30)),
    *(("h", k) for k in (1, 2, 3, 6, 12)), *(("D", k) for k in (1, 2, 7, 14)),
    *(("M", k) for k in (1, 2, 3, 6)), *(("Y", k * 10**e) for e in range(6) for k in (1, 2, 5)),
]  # fmt: skip
_ANCHORS = {"D": 4, "Y": -1970}  # 1970-01-05 was a Monday; years divisible by the step


def calendar_ticks(low: float, high: float, count: int = 6) -> tuple[list[float], list[str]]:
    """Return round times in an interval, in seconds since 1970, and their labels as HTML.

    The second line of a label, the year or the day, is given where it changes.
    """
    ends = [np.datetime64(round(1e6 * x), "us") for x in (low, high)]
    times: list[np.datetime64] = []
    for unit, every in _STEPS:
        first, last = (int(x.astype(f"M8[{unit}]").astype(np.int64)) for x in ends)
        if (last - first) / every > 2 * count:
            continue
        start = first + (_ANCHORS.get(unit, 0) - first) % every
        found = np.arange(start, last + 1, every).astype(f"M8[{unit}]").astype("M8[us]")
        times = list(found[found >= ends[0]])
        if len(times) <= count:
            break
    labels, before = [], ""
    for t in times:
        upper, lower = _calendar_label(t, unit)
        labels.append(f"{upper}<br>{lower}" if lower != before else upper)
        before = lower
    return [float(t.astype(np.int64)) / 1e6 for t in times], labels


def _calendar_label(t: np.datetime64, unit: str) -> tuple[str, str]:
    """Return the label of a time, and what it belongs to."""
    day, clock = str(t.astype("M8[s]")).split("T")
    year, month, number = day.rsplit("-", 2)
    name = _MONTHS[int(month) - 1]
    if unit == "Y":
        return year, ""
    if unit == "M":
        return name, year
    if unit == "D":
        return f"{name} {int(number)}", year
    return clock if unit == "s" else clock[:5], f"{name} {int(number)}, {year}"
