"""Error, time and memory against length, shown: a table, a figure, a page."""

from __future__ import annotations

from typing import Any

import numpy as np

from smnn.experiments.scaling.run import Scaling, line
from smnn.experiments.sst.identifier import DENSE, SMNN, SPARSE
from smnn.experiments.sst.maps import png
from smnn.report import page as _page
from smnn.report.tables import Cell, Row, Table, html_table

COLOURS = {SMNN: "#0072B2", DENSE: "#E69F00", SPARSE: "#009E73", "Ada-GVAE": "#CC79A7"}
"""As in the paper's figure."""
MARKERS = {SMNN: "o", DENSE: "s", SPARSE: "^", "Ada-GVAE": "D"}


def table(result: Scaling) -> Table:
    """A row for each method and measure, a column for each length."""
    config = result.config
    view = Table(
        title="Error, time and memory against the length of the series",
        columns=[str(n) for n in config.lengths],
        caption=f"{2 * (config.pairs or 0):,} series in a batch, width {config.hidden}. ms: median "
        "of a training step after warm-up, synchronised. GiB: peak memory of the device. test: "
        f"relative MSE after at most {config.steps} steps or {config.seconds:g} s of training, "
        "first steps given. –: not run, see below; no test is left at the full length.",
    )
    for method in config.methods:
        points = {p["length"]: p for p in result.points if p["method"] == method}
        for label, key, style in (
            ("ms", "ms", ".3g"),
            ("GiB", "gib", ".3g"),
            ("test", "test_mse", ".4f"),
        ):
            values = [points.get(n, {}).get(key) for n in config.lengths]
            if any(v is not None for v in values):
                cells = [Cell("–" if v is None else _number(v, style)) for v in values]
                view.rows.append(Row(method, label, cells))
    return view


def _number(value: float, style: str) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:{style}}"


def stops(result: Scaling) -> dict[str, str]:
    """For each method that stopped: the first length it could not do, and why."""
    out: dict[str, str] = {}
    for point in result.points:
        if "not_run" in point and point["method"] not in out:
            reason = point["not_run"].split(" when calling")[0]
            out[point["method"]] = f"{point['length']}: {reason}"
    return out


def summary(result: Scaling) -> list[tuple[str, str]]:
    """What the table says, each as a figure and its meaning."""
    found = []
    for what, unit, words in (("ms", "ms", "time"), ("gib", "GiB", "memory")):
        fit = line(result, SMNN, what)
        if fit is not None:
            text = f"{fit.fixed:.3g} + {1000 * fit.per_step:.3g} T/1000 {unit}"
            found.append((text, f"S-MNN's {words}, within {100 * fit.off:.2g} % at every length"))
    for method, told in stops(result).items():
        length, reason = told.split(": ", 1)
        found.append((length, f"weeks, where {method} stops: {reason}"))
    return found


def figure(result: Scaling) -> bytes:
    """Three panels over the length, as PNG."""
    memory = any(p.get("gib") is not None for p in result.points)
    panels = [("test_mse", "Test error", "relative MSE (first 10 steps given)")]
    panels.append(("ms", "Time of a training step", "ms"))
    if memory:
        panels.append(("gib", "Peak memory", "GiB"))

    def draw(canvas: Any) -> None:
        from matplotlib.ticker import FuncFormatter, LogLocator

        axes = canvas.subplots(1, len(panels), squeeze=False)[0]
        for one, (key, title, label) in zip(axes, panels):
            for method in result.config.methods:
                points = [
                    (p["length"], p[key])
                    for p in result.points
                    if p["method"] == method and p.get(key) is not None
                ]
                if points:
                    one.plot(*zip(*points), marker=MARKERS[method], ms=4.5, lw=1.5,
                             color=COLOURS[method], label=method)  # fmt: skip
                    if key != "test_mse" and method in stops(result):
                        one.plot(*points[-1], marker="x", ms=11, mew=2, color=COLOURS[method])
            if key == "test_mse":
                for name, style in (("climatology", ":"), ("previous chunk", "--")):
                    known = [(r["length"], r[name]) for r in result.references]
                    if known:
                        one.plot(*zip(*known), style, color="0.5", lw=1.1, label=name)
            else:
                _guide(one, result, key)
            one.set_xscale("log")
            one.set_yscale("log")
            one.set_title(title, loc="left")
            one.set_ylabel(label)
            one.set_xlabel("length of the series, weeks")
            one.set_xticks(result.config.lengths, [str(n) for n in result.config.lengths])
            one.xaxis.minorticks_off()
            one.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            one.yaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
            one.yaxis.minorticks_off()
            one.tick_params(axis="x", labelsize=8)
            one.grid(lw=0.4, color="0.9")
            one.spines[["top", "right"]].set_visible(False)
        handles: dict[str, Any] = {}
        for one in axes:
            for handle, name in zip(*one.get_legend_handles_labels()):
                handles.setdefault(name, handle)
        canvas.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=7,
                      fontsize=9)  # fmt: skip

    return png((4.6 * len(panels), 3.9), draw)


def _guide(axes: Any, result: Scaling, key: str) -> None:
    """The straight line through the points of S-MNN, bent by the logarithmic axes."""
    fit = line(result, SMNN, key)
    if fit is not None:
        first, last = result.config.lengths[0], result.config.lengths[-1]
        T = np.geomspace(first, last, 50)
        axes.plot(T, fit.fixed + fit.per_step * T, color=COLOURS[SMNN], lw=7,
                  alpha=0.2, label="a + b T", zorder=1)  # fmt: skip


def report(result: Scaling, image: bytes, command: str) -> str:
    """The whole experiment as one HTML page."""
    shown = table(result)
    config = result.config
    setting = {
        "Data": f"{result.data}, {result.cells} cells",
        "Batch": f"{config.pairs} pairs of neighbours, {2 * (config.pairs or 0)} series",
        "Limits": f"{config.limit:g} s for a step; the memory of the device",
        **{f"{method} stops at": told for method, told in stops(result).items()},
    }
    parts = [
        _page.findings(summary(result)),
        _page.section(
            shown.title,
            _page.picture(
                image, "Error, time and memory over the length of the series",
                "Crosses: the longest series that a method could do. The error is after seconds "
                "of training, as many for all: it says who learns in the same time, not how well "
                "temperatures can be forecast. At 26 weeks the chunk before is the other half of "
                "the year.",
            ),
            html_table(shown),
        ),
        _page.section("How it was made", _page.command_block(command), _page.facts(setting)),
        _page.section("Machine", _page.facts(_page.machine_facts(result.machine)
                                             | {"GPU": result.machine.get("gpu")})),
    ]  # fmt: skip
    return _page.page(
        "Scaling",
        "The networks of the sea surface temperature experiment on series from 26 to 1,727 weeks, "
        "with the solver of this library, the two of the original MNN, and without an equation.",
        parts,
    )
