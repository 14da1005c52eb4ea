"""Table, figure and report of error, time and memory against length."""

from __future__ import annotations

from typing import Any

import numpy as np

from smnn.experiments import views
from smnn.experiments.scaling.run import Scaling, line
from smnn.experiments.solvers import DENSE, SMNN, SPARSE
from smnn.report import page
from smnn.report.tables import Cell, Row, Table, html_table

COLOURS = {SMNN: views.BLUE, DENSE: views.AMBER, SPARSE: views.GREEN, "Ada-GVAE": views.PINK}
"""As in the figure of the paper."""
MARKERS = {SMNN: "o", DENSE: "s", SPARSE: "^", "Ada-GVAE": "D"}


def tables(result: Scaling) -> list[Table]:
    """A row for each method and measure, a column for each length."""
    config = result.config
    budget = f"{config.steps} steps"
    if config.seconds is not None:
        budget = f"at most {budget} or {config.seconds:g} s, so slow methods take fewer steps"
    view = Table(
        title="Error, time and memory against the length of the series",
        columns=[str(n) for n in config.lengths],
        caption=f"{2 * (config.pairs or 0):,} series in a batch, width {config.hidden}. ms: median "
        "time of a training step after warm-up, synchronized. GiB: peak memory of the device. "
        f"test: relative MSE after training for {budget}, first steps given. "
        "–: not run, see below; the full length leaves no test data.",
    )
    for method in config.methods:
        points = {p["length"]: p for p in result.points if p["method"] == method}
        for label, key, style in (
            ("ms", "ms", ".3g"),
            ("GiB", "gib", ".3g"),
            ("test", "test_mse", ".4f"),
            ("steps", "steps", "d"),
        ):
            values = [points.get(n, {}).get(key) for n in config.lengths]
            if any(v is not None for v in values):
                cells = [Cell("–" if v is None else _number(v, style)) for v in values]
                view.rows.append(Row(method, label, cells))
    return [view]


def _number(value: float, style: str) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:{style}}"


def stops(result: Scaling) -> dict[str, str]:
    """The first length at which each method failed, and the reason."""
    out: dict[str, str] = {}
    for point in result.points:
        if "not_run" in point and point["method"] not in out:
            reason = point["not_run"].split(" when calling")[0]
            out[point["method"]] = f"{point['length']}: {reason}"
    return out


def summary(result: Scaling) -> list[tuple[str, str]]:
    """Key figures and their meaning."""
    found = []
    for key, unit, name in (("ms", "ms", "time"), ("gib", "GiB", "memory")):
        fit = line(result, SMNN, key)
        if fit is not None:
            text = f"{fit.fixed:.3g} + {1000 * fit.per_step:.3g} T/1000 {unit}"
            found.append(
                (text, f"S-MNN's {name}, within {100 * fit.deviation:.2g} % at every length")
            )
    for method, stop in stops(result).items():
        length, reason = stop.split(": ", 1)
        found.append((length, f"weeks, where {method} stops: {reason}"))
    return found


def figures(result: Scaling) -> dict[str, bytes]:
    """Test error, time and, if known, memory against the length."""
    panels = [
        ("test_mse", "Test error", "relative MSE (first 10 steps given)"),
        ("ms", "Time of a training step", "ms"),
    ]
    if any(p.get("gib") is not None for p in result.points):
        panels.append(("gib", "Peak memory", "GiB"))

    def draw(canvas: Any) -> None:
        axes = canvas.subplots(1, len(panels), squeeze=False)[0]
        for one, (key, title, label) in zip(axes, panels):
            _draw_panel(one, result, key)
            one.set_title(title, loc="left")
            one.set_ylabel(label)
        handles: dict[str, Any] = {}
        for one in axes:
            for handle, name in zip(*one.get_legend_handles_labels()):
                handles.setdefault(name, handle)
        canvas.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=7,
                      fontsize=9)  # fmt: skip

    return {"scaling.png": views.png((4.6 * len(panels), 3.9), draw)}


def _draw_panel(axes: Any, result: Scaling, key: str) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator

    for method in result.config.methods:
        points = [
            (p["length"], p[key])
            for p in result.points
            if p["method"] == method and p.get(key) is not None
        ]
        if points:
            axes.plot(*zip(*points), marker=MARKERS[method], ms=4.5, lw=1.5,
                      color=COLOURS[method], label=method)  # fmt: skip
            if key != "test_mse" and method in stops(result):
                axes.plot(*points[-1], marker="x", ms=11, mew=2, color=COLOURS[method])
    if key == "test_mse":
        for name, style in (("climatology", ":"), ("previous chunk", "--")):
            known = [(r["length"], r[name]) for r in result.references]
            if known:
                axes.plot(*zip(*known), style, color="0.5", lw=1.1, label=name)
    else:
        _draw_line(axes, result, key)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("length of the series, weeks")
    axes.set_xticks(result.config.lengths, [str(n) for n in result.config.lengths])
    axes.xaxis.minorticks_off()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
    axes.yaxis.minorticks_off()
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(lw=0.4, color="0.9")


def _draw_line(axes: Any, result: Scaling, key: str) -> None:
    """The linear fit to the points of S-MNN."""
    fit = line(result, SMNN, key)
    if fit is not None:
        first, last = result.config.lengths[0], result.config.lengths[-1]
        T = np.geomspace(first, last, 50)
        axes.plot(T, fit.fixed + fit.per_step * T, color=COLOURS[SMNN], lw=7,
                  alpha=0.2, label="a + b T", zorder=1)  # fmt: skip


def report(result: Scaling, figures: dict[str, bytes], command: str) -> str:
    """The HTML report."""
    config, table = result.config, tables(result)[0]
    picture = page.picture(
        figures["scaling.png"], "Error, time and memory against the length of the series",
        "Crosses: the longest series that a method could handle. The error after little "
        "training shows which method learns fastest, not how well temperatures can be forecast. At "
        "26 weeks the previous chunk is the other half of the year.",
    )  # fmt: skip
    return views.report(
        "Scaling",
        "The networks of the sea surface temperature experiment on series from 26 to 1,727 weeks, "
        "with the solver of this library, the two of the original MNN, and without an equation.",
        summary(result),
        [page.section(table.title, picture, html_table(table))],
        command=command,
        setup={
            "Data": f"{result.data}, {result.cells} cells",
            "Batch": f"{config.pairs} pairs of neighbours, {2 * (config.pairs or 0)} series",
            "Limits": f"{config.limit:g} s per step; the memory of the device",
            **{f"{method} stops at": reason for method, reason in stops(result).items()},
        },
        machine=result.machine,
    )
