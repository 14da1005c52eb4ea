"""Tables, figures and report of the Lorenz experiment."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from smnn.datasets.dynamics import LORENZ
from smnn.experiments import views
from smnn.experiments.lorenz import model
from smnn.experiments.lorenz.run import (
    COEFFICIENTS,
    OURS,
    PAPER,
    PYSINDY,
    WIDTH,
    Answer,
    Lorenz,
    trajectory,
)
from smnn.experiments.solvers import DENSE, ITERATIONS, SMNN, SPARSE
from smnn.report import page
from smnn.report.tables import Cell, Row, Table

COLOURS = {DENSE: views.AMBER, SPARSE: views.GREEN, SMNN: views.BLUE}
"""As in the figure of the paper."""


def tables(result: Lorenz) -> list[Table]:
    """Coefficients with their errors, and the losses of the training, if there was any."""
    found = [_coefficients(result)]
    return [*found, _training(result)] if result.training else found


def terminal_tables(result: Lorenz) -> list[Table]:
    """The same for a terminal of 80 columns: the first table in two halves."""
    whole, *others = tables(result)
    cut = 5
    halves = [
        replace(whole, columns=whole.columns[part], caption=caption,
                rows=[replace(row, cells=row.cells[part]) for row in whole.rows])
        for part, caption in ((slice(cut), ""), (slice(cut, None), whole.caption))
    ]  # fmt: skip
    return [halves[0], replace(halves[1], title=""), *others]


def _coefficients(result: Lorenz) -> Table:
    table = Table(
        title="Discovered coefficients of the Lorenz system",
        columns=[*(f"a{i}" for i in range(1, 8)), "error", "wrong", "s"],
        caption="x' = a1 x + a2 y,  y' = a3 x + a4 y + a5 xz,  z' = a6 z + a7 xy. Rows of the "
        "paper as printed; all others computed here from the paper's data. Error: the largest of "
        "all 30 coefficients; for the paper, of the seven that it prints. Wrong: number of missing "
        "and superfluous terms. s: processor time including tuning. 'regression' and 'refined' use "
        "no network; 'networks' are those of Discovery(method='neural'), not the paper's.",
    )
    truth = [LORENZ.truth[target][term] for target, term in COEFFICIENTS]
    exact = [Cell(f"{a:.4f}") for a in truth]
    table.rows.append(Row("truth", "", [*exact, Cell("–"), Cell("–"), Cell("–")], quiet=True))
    least = min(a.max_abs for a in result.answers)
    for a in result.answers:
        cells = [Cell(v if isinstance(v, str) else f"{v:.4f}") for v in a.values]
        cells += [
            Cell(f"{a.max_abs:.1e}", a.max_abs == least),
            Cell("–" if a.wrong is None else str(a.wrong)),
            Cell("–" if a.seconds is None else f"{a.seconds:.2g}"),
        ]
        table.rows.append(Row(a.group, a.name, cells, quiet=a.group == PAPER))
    return table


def _training(result: Lorenz) -> Table:
    steps = result.config.steps
    marks = sorted({k for k in (1, 100, steps // 2, steps) if 0 < k <= steps})
    table = Table(
        title=f"Training the paper's network, first {steps} steps",
        columns=[*(f"step {k}" for k in marks), "ms", "solved"],
        caption=f"Loss, exponential moving average with factor {model.SMOOTHING}; median time of a "
        f"step with batch {result.config.batch} on {result.config.device}; share of the samples "
        "for which the solver reached its tolerance.",
    )
    for t in result.training:
        average = t.average()
        cells = [Cell(f"{average[k - 1]:.3g}") for k in marks]
        cells += [Cell(f"{t.ms:.3g}"), Cell(f"{100 * t.converged:.0f} %")]
        table.rows.append(Row("loss", t.solver, cells))
    return table


def summary(result: Lorenz) -> list[tuple[str, str]]:
    """Key figures and their meaning."""
    found = [(f"{result.find(PAPER, 'S-MNN').max_abs:.1e}", "largest error of S-MNN in the paper")]
    for group, whose in ((OURS, "smnn"), (PYSINDY, "PySINDy")):
        here = [a for a in result.answers if a.group == group]
        if here:
            best = min(here, key=lambda a: a.max_abs)
            kind = "" if group == PYSINDY or best.name == "networks" else ", no network"
            found.append((f"{best.max_abs:.1e}", f"largest error of {whose} ({best.name}{kind})"))
    if result.training:
        curves = {t.solver: t.average() for t in result.training}
        # The mean over all steps, because losses of small batches fluctuate.
        logs = [math.log(a / b) for a, b in zip(curves[SMNN], curves[DENSE])]
        ratio = math.exp(sum(logs) / len(logs))
        found.append((f"{ratio:.3f}", "loss of S-MNN over that of MNN dense, mean over the steps"))
    return found


def notes(result: Lorenz) -> list[str]:
    """Methods that were skipped or not run."""
    found = [f"Skipped: {name}; {reason}" for name, reason in result.skipped.items()]
    if all(a.name != "networks" or a.group != OURS for a in result.answers):
        found.append("Not run: networks (Discovery(method='neural')).")
    steps = result.config.steps
    return [*found, f"Not run to the end: the paper's network ({steps:,} of 76,000 steps)."]


def figures(result: Lorenz) -> dict[str, bytes]:
    """Attractors of the discovered equations, and losses of the training."""
    found = {"lorenz.png": _attractors(result)}
    return {**found, "lorenz-loss.png": _losses(result)} if result.training else found


def _attractors(result: Lorenz) -> bytes:
    """The data and simulations of the discovered equations in the x-z plane."""
    shown = [result.data[:4000]]
    titles = ["Data of the paper"]
    for answer in _selected(result):
        curve = trajectory(answer.equations())
        shown.append(curve if curve is not None else result.data[:0])
        name = f"{answer.group}, {answer.name}"
        titles.append(name + ("" if curve is not None else " (diverges)"))

    def draw(canvas: Any) -> None:
        axes = canvas.subplots(1, len(shown), sharex=True, sharey=True, squeeze=False)[0]
        for k, (one, curve, title) in enumerate(zip(axes, shown, titles)):
            colour = "0.25" if k == 0 else views.BLUE
            one.plot(curve[:, 0], curve[:, 2], lw=0.45, color=colour)
            one.set_title(title, loc="left", fontweight="bold", fontsize=10)
            one.set_xlabel("$x$")
        axes[0].set_ylabel("$z$")

    return views.png((2.75 * len(shown), 3.1), draw, dpi=200)


def _selected(result: Lorenz) -> list[Answer]:
    """The printed S-MNN, our best, untuned PySINDy, and networks if they were trained."""
    wanted = ((PAPER, "S-MNN"), (OURS, "refined"), (PYSINDY, "default"), (OURS, "networks"))
    rows = {(a.group, a.name): a for a in result.answers}
    return [rows[key] for key in wanted if key in rows]


def _losses(result: Lorenz) -> bytes:
    """The loss against the steps of the training with each solver."""

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        widths = {DENSE: 4.0, SPARSE: 2.4, SMNN: 1.1}  # the curves coincide
        for t in result.training:
            axes.plot(range(1, len(t.losses) + 1), t.average(), color=COLOURS[t.solver],
                      lw=widths[t.solver], alpha=0.9, label=t.solver)  # fmt: skip
        axes.set_yscale("log")
        axes.set_xlabel("optimization step")
        axes.set_ylabel(f"loss (moving average, factor {model.SMOOTHING})")
        axes.grid(axis="y", lw=0.4, color="0.85")
        axes.margins(x=0.01)
        axes.legend()

    return views.png((8.0, 3.4), draw, dpi=200)


def report(result: Lorenz, figures: dict[str, bytes], command: str) -> str:
    """The HTML report."""
    config = result.config
    first, *others = tables(result)
    attractors = page.picture(
        figures["lorenz.png"],
        "x-z projections of the data and of simulations of discovered equations",
        "The data, and simulations of the equations from (1, 1, 1) over 40 time units.",
    )
    sections = [views.table_section(first), page.section("Attractors", attractors)]
    if others:
        loss = page.picture(
            figures["lorenz-loss.png"],
            "Loss over optimization steps for three solvers",
            "All three start from the same networks and see the same windows.",
        )
        sections.append(views.table_section(others[0], loss))
    if result.cycle_losses:
        cycles = {f"Cycle {k}": f"{x:.3e}" for k, x in enumerate(result.cycle_losses, 1)}
        sections.append(page.section("Loss at the end of every cycle", page.facts(cycles)))
    setup = {
        "Not run": " ".join(notes(result)),
        "Data": f"{config.samples} samples by scipy.integrate.odeint with its defaults from "
        f"(1, 1, 1), {0.01 * config.samples / (config.samples - 1):.7f} apart; no noise",
        "Candidate terms": ", ".join(LORENZ.terms),
        "smnn": "smnn.discovery.Discovery with default settings, given the library",
        "PySINDy": "threshold, smoothing and test functions tuned without the truth; 'default' is "
        "untuned with threshold 0.1",
        "Network": f"as in the paper, {config.width or WIDTH} hidden units twice, windows of "
        f"{config.window}, Adam {model.LEARNING_RATE:g}, batch {config.batch} (paper: 512), "
        f"{config.device}" if result.training else None,
        "MNN": f"gamma {model.GAMMA}, alpha {model.ALPHA:g}; {ITERATIONS} iterations of "
        "conjugate gradients for the sparse one" if result.training else None,
    }  # fmt: skip
    return views.report(
        "Lorenz discovery",
        "The equations of the Lorenz system from its trajectory: the paper's table of "
        "coefficients, and the loss of its network under three solvers.",
        summary(result),
        sections,
        command=command,
        setup=setup,
        machine=result.machine,
    )
