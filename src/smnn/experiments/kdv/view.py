"""The KdV experiment shown: a table, pictures of roll-outs, a page."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from smnn._util.optional import require
from smnn.experiments.kdv.run import PAPER, Result
from smnn.report.page import (
    command_block,
    facts,
    findings,
    machine_facts,
    page,
    picture,
    section,
)
from smnn.report.tables import Cell, Row, Table, best_of, html_table

TITLES = {
    "modes": "S-MNN, ODE per mode",
    "window": "S-MNN, ODE per point",
    "paper": "S-MNN of the paper",
    "resnet": "ResNet",
    "fno": "FNO",
}
PAPER_SECONDS = {"S-MNN": "36360", "MNN dense": "136800"}
"""10.1 and 38.0 hours, on a GPU that the paper does not name."""


def title(name: str) -> str:
    """What a model is called."""
    base, *more = name.split("-")
    words = {"ar": "unrolled", "lpsda": "LPSDA"}
    return ", ".join([TITLES[base], *(words[w] for w in more)])


def table(result: Result) -> Table:
    """Errors of all models with both denominators, and those that the paper prints."""
    lengths = _lengths(result)
    view = Table(
        "Normalised mean squared error",
        [f"{lengths[0]} frames", *lengths[1:], "train s"],
        "Mean over trajectories and frames after the ten that are given, divided by the energy of "
        "the prediction (as in the paper) or of the truth. The paper calls frames seconds; its "
        "rows for ResNet and FNO come from other publications.",
    )
    for kind, words in (("nmse", "prediction"), ("nmse_by_truth", "truth")):
        found = {name: model["scores"][kind] for name, model in result.models.items()}
        best = {n: best_of([scores[n] for scores in found.values()]) for n in lengths}
        for name, scores in found.items():
            cells = [Cell(_number(scores[n]), best=scores[n] == best[n]) for n in lengths]
            cells.append(Cell(f"{result.models[name]['seconds']:.0f}"))
            view.rows.append(Row(words, title(name), cells))
    for name, values in PAPER.items():
        cells = [Cell(_number(values.get(n))) for n in lengths]
        view.rows.append(Row("paper", name, [*cells, Cell(PAPER_SECONDS.get(name, "–"))], True))
    return view


def _lengths(result: Result) -> list[str]:
    return list(next(iter(result.models.values()))["scores"]["nmse"])


def _number(x: float | None) -> str:
    return "–" if x is None else f"{x:.1e}"


def summary(result: Result) -> list[tuple[str, str]]:
    """The figures that matter."""
    known = {
        name: model["scores"]["nmse"]
        for name, model in result.models.items()
        if model["scores"]["nmse"]["20"] is not None
    }
    out = []
    if known:
        name = min(known, key=lambda name: known[name]["20"])
        for n in _lengths(result):
            said = PAPER["S-MNN"].get(n)
            beside = f" (paper: {said:.1e})" if said else ""
            out.append((_number(known[name][n]), f"NMSE over {n} frames, {title(name)}{beside}"))
        seconds = result.models[name]["seconds"]
        out.append((f"{seconds:.0f} s", "to train it (paper: 10.1 h)"))
    return out


def figure(result: Result) -> bytes:
    """Roll-outs side by side, and the error over lead time, as a PNG."""
    mpl = require("matplotlib", "draw the figure")
    Figure = require("matplotlib.figure", "draw the figure").Figure
    Canvas = require("matplotlib.backends.backend_agg", "draw the figure").FigureCanvasAgg
    style = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    names = list(result.pictures)
    shown = min(len(result.truth), 3)
    with mpl.rc_context(style):
        canvas = Figure(
            figsize=(max(7.5, 2.3 * (len(names) + 1) + 1), 1.9 * shown + 3), layout="constrained"
        )
        Canvas(canvas)
        grid = canvas.add_gridspec(shown + 1, len(names) + 1, height_ratios=[1] * shown + [1.4])
        for i in range(shown):
            limit = float(np.abs(result.truth[i]).max())
            fields = {"truth": result.truth[i], **{n: result.pictures[n][i] for n in names}}
            for j, (name, values) in enumerate(fields.items()):
                axes = canvas.add_subplot(grid[i, j])
                image = axes.imshow(
                    values.T, aspect="auto", origin="lower", cmap="RdBu_r", vmin=-limit, vmax=limit,
                    interpolation="nearest",
                )  # fmt: skip
                axes.set_xticks([0, 50, 100] if i == shown - 1 else [])
                axes.set_yticks([0, 128, 256] if j == 0 else [])
                if i == 0:
                    axes.set_title(name if j else "truth", fontsize=9, fontweight="bold")
                if i == shown - 1:
                    axes.set_xlabel("frame")
                if j == 0:
                    axes.set_ylabel("point")
            canvas.colorbar(image, ax=axes, shrink=0.9, label="$u$")
        _draw_curves(canvas.add_subplot(grid[shown, :]), result)
        file = io.BytesIO()
        canvas.savefig(file, format="png", dpi=150)
    return file.getvalue()


def _draw_curves(axes: Any, result: Result) -> None:
    for name, model in result.models.items():
        curve = [np.nan if x is None else x for x in model["scores"]["curve"]]
        axes.semilogy(np.arange(1, len(curve) + 1), curve, lw=1.5, label=title(name))
    for length, value in PAPER["S-MNN"].items():
        axes.hlines(
            value, 1, int(length), color="0.5", ls=":",
            label="paper, mean over its frames" if length == "20" else None,
        )  # fmt: skip
    axes.set_xlabel("lead time, frames")
    axes.set_ylabel("NMSE")
    axes.set_title("Error over lead time", loc="left", fontweight="bold")
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3, frameon=False)


def report(result: Result, png: bytes, command: str) -> str:
    """The page."""
    view = table(result)
    sections = [
        findings(summary(result)),
        section(view.title, html_table(view)),
        section(
            "Roll-outs",
            picture(
                png,
                "Truth and predictions over 100 frames, and error over lead time",
                "From ten known frames; every call is fed with what the one before has given.",
            ),
        ),
    ]
    if result.law is not None:
        sections.insert(
            1,
            section(
                "What has been learned",
                "<p>The model with an ODE for every Fourier mode has this law in it; the data were "
                "made with u_t = -u u_x - u_xxx.</p>",
                command_block(result.law),
            ),
        )
    config = result.config
    source = config.data or f"generated, seed {config.seed}, {config.test} trajectories"
    sections.append(
        section(
            "How it was made",
            command_block(command),
            facts({"Test data": source, **machine_facts(result.machine)}),
        )
    )
    lead = "Waves on a circle, continued from ten frames: errors of every model on the same frames."
    return page("Korteweg-de Vries equation", lead, sections)
