"""Tables, figure and report of the KdV experiment."""

from __future__ import annotations

from typing import Any

import numpy as np

from smnn.experiments import views
from smnn.experiments.kdv.run import PAPER, Result
from smnn.experiments.kdv.train import PRESETS, training_seconds
from smnn.report import page
from smnn.report.tables import Cell, Row, Table, best_of

TITLES = {
    "modes": "modes", "operator": "operator", "paper": "S-MNN, paper's network",
    "mnn": "MNN, paper's network", "resnet": "ResNet", "fno": "FNO",
}  # fmt: skip
ASSUMED = {
    "modes": "assumes a local, constant, at most quadratic law",
    "operator": "assumes a law that is the same at all places and times",
}
"""Assumptions by model; the others make none about the law."""
PAPER_SECONDS = {"S-MNN": "36360", "MNN dense": "136800", "MNN sparse": "> 296640"}
"""10.1, 38.0 and 82.4 hours, on an unspecified GPU."""


def title(name: str) -> str:
    """Display name of a model."""
    base, *variants = name.split("-")
    labels = {"ar": "unrolled", "lpsda": "LPSDA"}
    return ", ".join([TITLES[base], *(labels.get(v, v) for v in variants)])


def tables(result: Result) -> list[Table]:
    """Errors of all models with both normalizations, and those printed in the paper."""
    lengths = list(next(iter(result.models.values()))["scores"]["nmse"])
    assumptions = "; ".join(f"{name} {text}" for name, text in ASSUMED.items())
    view = Table(
        "Normalised mean squared error",
        [f"{lengths[0]} frames", *lengths[1:], "train s"],
        "Mean over trajectories and over the frames after the ten given ones, divided by the "
        "energy of the prediction (as in the paper) or of the truth; 'worst': the trajectory with "
        f"the largest error by prediction. {assumptions}; the other models assume no law. The "
        "paper calls frames seconds; its rows for ResNet and FNO come from other publications.",
    )
    kinds = (("nmse", "prediction"), ("nmse_by_truth", "truth"), ("worst", "worst"))
    for kind, group in kinds:
        found = {name: model["scores"][kind] for name, model in result.models.items()}
        best = {n: best_of([scores[n] for scores in found.values()]) for n in lengths}
        for name, scores in found.items():
            cells = [Cell(_number(scores[n]), best=scores[n] == best[n]) for n in lengths]
            cells.append(Cell(f"{training_seconds(result.models[name]):.0f}"))
            view.rows.append(Row(group, title(name), cells))
    for name, values in PAPER.items():
        cells = [Cell(_number(values.get(n)) if values else "no conv.") for n in lengths]
        view.rows.append(Row("paper", name, [*cells, Cell(PAPER_SECONDS.get(name, "–"))], True))
    return [view]


def _number(x: float | None) -> str:
    return "–" if x is None else f"{x:.1e}"


def summary(result: Result) -> list[tuple[str, str]]:
    """Key figures and their meaning."""
    out = []
    for name, model in result.models.items():
        what = title(name) + (f", which {ASSUMED[name]}" if name in ASSUMED else "")
        seconds = f"trained for {training_seconds(model):.0f} s"
        found = model["scores"]["nmse"]["20"]
        out.append((_number(found), f"NMSE over 20 frames, {what}; {seconds}"))
    out.append(
        (_number(PAPER["S-MNN"]["20"]), "the same for the paper's network, as printed; 10.1 h")
    )
    return out


def failures(result: Result) -> list[str]:
    """Models with roll-outs that diverge, whose mean errors are not valid."""
    out = []
    for name, model in result.models.items():
        scores = model["scores"]
        failed = scores.get("failed", {})
        if failed:
            first = ", ".join(f"{i} at frame {frame}" for i, frame in [*failed.items()][:5])
            out.append(
                f"{title(name)}: {len(failed)} of {scores['trajectories']} roll-outs diverge "
                f"(trajectory {first}{', ...' if len(failed) > 5 else ''}); its mean errors over "
                "these frames are not valid."
            )
    return out


def notes(result: Result) -> list[str]:
    """The learned equation, if a model has one, and models that were not run."""
    found = [] if result.law is None else [f"Learned law (modes): {result.law}"]
    missing = [name for name in PRESETS if name not in result.models]
    if missing:
        found.append(f"Not run: {', '.join(missing)}. The paper's network is 'paper'.")
    return found


def figures(result: Result) -> dict[str, bytes]:
    """Roll-outs side by side, the error against lead time, and the loss during training."""
    names = list(result.pictures)
    errors = [f"{name} - truth" for name in names] if len(names) <= 2 else []
    columns = ["truth", *names, *errors]
    shown = min(len(result.truth), 3)

    def draw(canvas: Any) -> None:
        grid = canvas.add_gridspec(shown + 1, len(columns), height_ratios=[1] * shown + [1.4])
        for i in range(shown):
            truth = result.truth[i]
            fields = [truth, *(result.pictures[n][i] for n in names)]
            fields += [values - truth for values in fields[1:]][: len(errors)]
            for j, (name, values) in enumerate(zip(columns, fields)):
                limit = float(np.abs(values if name in errors else truth).max())
                axes = canvas.add_subplot(grid[i, j])
                image = axes.imshow(
                    values.T, aspect="auto", origin="lower", cmap="RdBu_r", vmin=-limit, vmax=limit,
                    interpolation="nearest",
                )  # fmt: skip
                axes.set_xticks([0, 50, 100] if i == shown - 1 else [])
                axes.set_yticks([0, 128, 256] if j == 0 else [])
                if i == 0:
                    axes.set_title(name, fontsize=9, fontweight="bold")
                if i == shown - 1:
                    axes.set_xlabel("frame")
                if j == 0:
                    axes.set_ylabel("point")
                if j >= len(names):
                    canvas.colorbar(image, ax=axes, shrink=0.9)
        _draw_curves(canvas.add_subplot(grid[shown, :]), result)

    size = max(7.5, 2.3 * len(columns) + 1), 1.9 * shown + 3
    found = {"kdv.png": views.png(size, draw)}
    if any("history" in model for model in result.models.values()):
        found["kdv-training.png"] = _training(result)
    return found


def _training(result: Result) -> bytes:
    """The loss of each model during training."""

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        for name, model in result.models.items():
            rows = [row for row in model.get("history", []) if "loss" in row]
            if rows:
                axes.loglog([r["step"] for r in rows], [r["loss"] for r in rows], lw=1,
                            label=title(name))  # fmt: skip
        axes.set_xlabel("optimization step")
        axes.set_ylabel("training loss")
        axes.grid(lw=0.4, color="0.9")
        axes.legend()

    return views.png((7.5, 3.2), draw)


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
    views.title(axes, "Error against lead time")
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3)


def report(result: Result, figures: dict[str, bytes], command: str) -> str:
    """The HTML report."""
    config = result.config
    rollouts = page.picture(
        figures["kdv.png"],
        "Truth and predictions over 100 frames, and error against lead time",
        "From ten known frames; each call continues the output of the previous one.",
    )
    sections = [views.table_section(tables(result)[0]), page.section("Roll-outs", rollouts)]
    if "kdv-training.png" in figures:
        losses = page.picture(
            figures["kdv-training.png"], "Training loss against steps",
            "Root of the squared error of a window relative to its energy, or for modes and "
            "operator relative to its change.",
        )  # fmt: skip
        sections.append(page.section("Training", losses))
    if result.law is not None:
        text = (
            "<p>Law learned by the model with an ODE for every Fourier mode; the data satisfy "
            "u_t = -u u_x - u_xxx.</p>"
        )
        sections.insert(0, page.section("Learned law", text, page.code_block(result.law)))
    source = config.data or (
        f"generated ({config.waves} waves), seed {config.seed}, {config.test} trajectories"
    )
    problems = failures(result) + notes(result)[result.law is not None :]
    return views.report(
        "Korteweg-de Vries equation",
        "Waves on a circle, continued from ten frames: errors of all models on the same frames.",
        summary(result), sections, command=command,
        setup={"Test data": source, "Limitations": " ".join(problems) or None},
        machine=result.machine,
    )  # fmt: skip
