"""Charts drawn with matplotlib, from the same `Chart` objects as those of HTML pages."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from smnn._util.optional import require
from smnn.report.charts import COLOURS, MOST_POINTS, PALETTE, Chart, thin

COLUMNS = 2
"""Charts side by side, if there are more than three."""
FEW = 50
"""Number of points up to which dots are large."""


def draw(charts: Sequence[Chart], ax: Any = None) -> Any:
    """Draw charts into an `Axes`, or one for each chart; by default of a new figure.

    Returns:
        The `Axes`; for several charts an array of these.

    Raises:
        ValueError: There is nothing to draw, or the number of axes differs.
    """
    if not charts:
        raise ValueError("there is nothing to draw: the data have no values.")
    if ax is None:
        plt = require("matplotlib.pyplot", "draw a plot")
        ax = _axes(plt.figure(figsize=_size(charts), layout="constrained"), charts)
    axes = np.ravel(np.asarray(ax, object))
    if len(axes) != len(charts):
        names = ", ".join(chart.title for chart in charts)
        raise ValueError(
            f"ax: got {len(axes)} Axes; expected {len(charts)}, one for each of {names}. Choose "
            "what to draw with names=."
        )
    for chart, one in zip(charts, axes):
        _draw(chart, one)
    return axes[0] if len(axes) == 1 else axes


def new_figure(size: tuple[float, float], dpi: float = 100) -> Any:
    """A matplotlib figure that opens no window and needs no display; size in inches."""
    require("matplotlib", "draw a figure")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    found = Figure(figsize=size, dpi=dpi, layout="constrained")
    FigureCanvasAgg(found)
    return found


def figure(charts: Sequence[Chart], dpi: int = 100) -> Any:
    """Draw charts into a new figure."""
    found = new_figure(_size(charts), dpi)
    draw(charts, _axes(found, charts))
    return found


def png(charts: Sequence[Chart], dpi: int = 100) -> bytes:
    """Draw charts as a PNG."""
    out = io.BytesIO()
    figure(charts, dpi).savefig(out, format="png")
    return out.getvalue()


def _grid(charts: Sequence[Chart]) -> tuple[int, int]:
    columns = 1 if len(charts) <= 3 else COLUMNS
    return math.ceil(len(charts) / columns), columns


def _size(charts: Sequence[Chart]) -> tuple[float, float]:
    rows, columns = _grid(charts)
    return 7.0 if columns == 1 else 10.0, max(2.2 * rows, 3.2)


def _axes(figure: Any, charts: Sequence[Chart]) -> np.ndarray:
    axes = figure.subplots(*_grid(charts), squeeze=False).ravel()
    for unused in axes[len(charts) :]:
        unused.remove()
    out: np.ndarray = axes[: len(charts)]
    return out


def _draw(chart: Chart, ax: Any) -> None:
    for band in chart.bands:
        ax.fill_between(band.x, band.low, band.high, color=_colour(band.colour), alpha=0.2,
                        lw=0, label=plain(band.label))  # fmt: skip
    if chart.shade is not None:
        ax.axvspan(*chart.shade, color="#5b6474", alpha=0.09, lw=0)
    for line in chart.lines:
        # A path that turns back, as in a phase portrait, keeps its points.
        dated = line.x.dtype.kind == "M"
        x, y = (line.x, line.y) if dated else thin(line.x, line.y, 4 * MOST_POINTS)
        label = plain(line.label) if line.label and line.keyed else None
        style: dict[str, Any] = {"ls": "--" if line.kind == "dashed" else "-", "lw": 1.4}
        if line.kind == "dots":
            style = {"ls": "", "marker": ".", "ms": 3.5 if len(x) > FEW else 7, "alpha": 0.6}
        ax.plot(x, y, color=_colour(line.colour), label=label, **style)
    for mark in chart.marks:
        ax.axvline(mark.x, color="#b3261e", lw=1, ls=":", label=plain(mark.label))
    if chart.x_range is not None:
        ax.set_xlim(*chart.x_range)
    else:
        ax.margins(x=0.01)
    if chart.log_y:
        ax.set_yscale("log")
    if chart.square:
        ax.set_box_aspect(1)
    ax.set_title(plain(chart.title), loc="left", fontsize=10)
    ax.set_xlabel(plain(chart.x_label))
    ax.set_ylabel(plain(chart.y_label))
    ax.grid(alpha=0.25, lw=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    entries = len(ax.get_legend_handles_labels()[0])
    if entries > 4:
        ax.legend(frameon=False, fontsize=8)
    elif entries > 1:
        ax.legend(frameon=False, fontsize=8, ncols=4, loc="lower right", bbox_to_anchor=(1, 0.98))


def _colour(number: int) -> str:
    return PALETTE[number % COLOURS]


def plain(name: str) -> str:
    """A label without what is special to matplotlib: a leading underscore and dollar signs."""
    return name.lstrip("_").replace("$", r"\$")
