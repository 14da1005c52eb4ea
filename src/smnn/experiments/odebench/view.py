"""Tables, figure and report of ODEBench."""

from __future__ import annotations

from typing import Any

import numpy as np

from smnn.experiments import views
from smnn.experiments.odebench.run import GOOD, GROUPS, OdeBench
from smnn.report import page
from smnn.report.tables import Cell, Row, Table

COLUMNS = ("reconstruction", "generalization", "law", "established", "established and wrong")


def name_of(setting: tuple[float, float]) -> str:
    """A setting in words."""
    return f"{100 * setting[0]:g} % noise, {100 * setting[1]:g} % deleted"


def tables(result: OdeBench) -> list[Table]:
    """Shares by setting and group, and every system."""
    shares = Table(
        "Share of the systems", ["fit", "other start", "law", "established", "and wrong", "s"],
        f"Per cent, by noise and share of deleted rows. R² above {GOOD} from "
        "the fitted and from the other initial state; right-hand side within 1 % on both "
        "trajectories; verdict; established, but not general; median time.",
    )  # fmt: skip
    for setting in result.settings():
        for group in GROUPS:
            found = result.shares(setting, group)
            if found:
                cells = [Cell(f"{100 * found[x]:.0f}") for x in COLUMNS]
                cells.append(Cell(f"{found['seconds']:.1f}"))
                shares.rows.append(Row(name_of(setting).replace(" noise", ""), group, cells))
    return [shares, _systems(result)]


def terminal_tables(result: OdeBench) -> list[Table]:
    """The table that fits a terminal."""
    return tables(result)[:1]


def _systems(result: OdeBench) -> Table:
    table = Table("Systems", ["R²", "other start", "verdict"], "First realization.")
    for case in result.cases:
        if case.seed == 0:
            cells = [_score(case.reconstruction), _score(case.generalization), Cell(case.verdict)]
            name = f"{case.system}: {name_of((case.noise, case.deleted))}"
            table.rows.append(Row(name, "; ".join(case.equations) or "–", cells))
    return table


def _score(x: float) -> Cell:
    return Cell(f"{x:.3f}" if np.isfinite(x) and x > -10 else "–")


def summary(result: OdeBench) -> list[tuple[str, str]]:
    """Key figures and their meaning."""
    found = []
    for setting in result.settings():
        shares = result.shares(setting)
        if shares:
            share = f"{100 * shares['generalization']:.0f} %"
            found.append((share, f"generalize to the other initial state; {name_of(setting)}"))
    return found


def figures(result: OdeBench) -> dict[str, bytes]:
    """Shares of the systems by setting."""
    settings = result.settings()

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        for i, (what, colour) in enumerate(zip(COLUMNS, (views.BLUE, views.SKY, views.AMBER))):
            heights = [100 * result.shares(s).get(what, 0.0) for s in settings]
            places = np.arange(len(settings)) + 0.27 * (i - 1)
            axes.bar(places, heights, 0.25, color=colour, label=what)
        axes.set(ylim=(0, 105), ylabel="% of the systems")
        axes.set_xticks(range(len(settings)), [name_of(s).replace(", ", "\n") for s in settings])
        canvas.legend(loc="outside upper center", ncols=3, fontsize=9)

    return {"odebench.png": views.png((7.2, 3.2), draw)}


def report(result: OdeBench, figures: dict[str, bytes], command: str) -> str:
    """The HTML report."""
    picture = page.picture(
        figures["odebench.png"], "Shares of the systems by setting",
        "Shares of the systems whose trajectories and laws are right.",
    )  # fmt: skip
    first, *others = tables(result)
    return views.report(
        "Discovery on ODEBench",
        "The 63 systems of a public benchmark, fitted with default settings from one initial state "
        "and judged from another one.",
        summary(result),
        [views.table_section(first, picture), *(views.table_section(t) for t in others)],
        command=command,
        setup={
            "Data": "512 points of 10 time units from the first initial state, integrated with a "
            "relative tolerance of 1e-9",
            "Method": "smnn.discovery.Discovery with default settings",
            "Development": "with odd-numbered systems in view; even numbers are separate",
        },
        machine=result.machine,
    )
