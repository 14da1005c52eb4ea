"""Tables, figure and report of the verdicts of equation discovery."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import Any

from smnn.experiments import views
from smnn.experiments.honesty.run import LEVELS, NO_FIT, STABILITY, Honesty
from smnn.experiments.honesty.trials import GROUPS, MISSING, TRUE, UNRELATED
from smnn.report import page
from smnn.report.tables import Cell, Row, Table

NAMES = {
    UNRELATED: "unrelated columns",
    TRUE: "terms in the library",
    MISSING: "terms or variables missing",
}
COLOURS = (views.BLUE, views.SKY, views.YELLOW, views.AMBER, views.GREY)
ALL_LEVELS = (*LEVELS, NO_FIT)
DATA_SETS = "data sets"


def counts(result: Honesty) -> list[tuple[str, str, list[str]]]:
    """Levels of all data sets, and of their equations with right and with wrong terms."""
    found = []
    for group in GROUPS:
        found.append((NAMES[group], DATA_SETS, [c.level for c in result.of(group)]))
        for right, label in ((True, "equations, right terms"), (False, "equations, wrong terms")):
            levels = [e["level"] for e in result.equations(group, right)]
            if levels:
                found.append((NAMES[group], label, levels))
    return found


def tables(result: Honesty) -> list[Table]:
    """Verdicts by group and by kind of data, and the calibration of inclusion frequencies."""
    return [_levels(result), _stability(result), _kinds(result)]


def terminal_tables(result: Honesty) -> list[Table]:
    """The tables that fit a terminal: verdicts on data sets without those on their equations."""
    levels, stability, _ = tables(result)
    short = {NAMES[UNRELATED]: "unrelated", NAMES[TRUE]: "in library", NAMES[MISSING]: "missing"}
    rows = [Row(short[row.group], "", row.cells) for row in levels.rows if row.label == DATA_SETS]
    return [replace(levels, rows=rows), stability]


def _levels(result: Honesty) -> Table:
    table = Table(
        "Verdicts by group", [*ALL_LEVELS, "of"],
        "Per cent of the number in the last column. The verdict on a data set is the "
        "lowest of its equations that have terms.",
    )  # fmt: skip
    for group, label, levels in counts(result):
        by = Counter(levels)
        cells = [Cell(_percent(by[level], len(levels))) for level in ALL_LEVELS]
        table.rows.append(Row(group, label, [*cells, Cell(str(len(levels)))]))
    return table


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if part else "–" if not whole else "0"


def _stability(result: Honesty) -> Table:
    table = Table(
        "True terms by their stability",
        [f"{100 * a:.0f}–{100 * b:.0f} %" for a, b in itertools.pairwise(STABILITY)],
        "True terms of all selected terms whose inclusion frequency is in a range. A frequency is "
        "the stability of a term among the candidates, not the probability that it is right.",
    )
    for group in GROUPS:
        cells = [Cell(f"{true} of {number}") for number, true in result.stability(group)]
        table.rows.append(Row(NAMES[group], "", cells))
    return table


def _kinds(result: Honesty) -> Table:
    table = Table("Data sets by kind", [*LEVELS, "number"], "Numbers of data sets.")
    for group in GROUPS:
        for kind in dict.fromkeys(c.kind for c in result.of(group)):
            by = Counter(c.level for c in result.of(group) if c.kind == kind)
            cells = [Cell(str(by[level] or "")) for level in LEVELS]
            table.rows.append(Row(NAMES[group], kind, [*cells, Cell(str(sum(by.values())))]))
    return table


def summary(result: Honesty) -> list[tuple[str, str]]:
    """Key figures and their meaning."""
    found = []
    for group, label, levels in counts(result):
        if label == "data sets" and levels:
            share = f"{_percent(levels.count(LEVELS[0]), len(levels))} %"
            found.append((share, f"established of {len(levels)} data sets: {group}"))
    number, within = result.coverage()
    if number:
        share = f"{100 * within / number:.0f} %"
        found.append((share, f"of {number} true coefficients are within their 90 % intervals"))
    cost = result.cost()
    if cost is not None:
        found.append((f"{100 * cost:.1f} %", "time of a verdict relative to the fit, median"))
    return found


def figures(result: Honesty) -> dict[str, bytes]:
    """Shares of the levels by group."""

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        rows = [(f"{g}: {label}", levels) for g, label, levels in counts(result) if levels][::-1]
        for i, (_, levels) in enumerate(rows):
            left = 0.0
            for level, colour in zip(LEVELS, COLOURS):
                width = 100 * levels.count(level) / len(levels)
                axes.barh(i, width, left=left, color=colour, label=level if i == 0 else None)
                left += width
        axes.set_yticks(range(len(rows)), [label for label, _ in rows], fontsize=9)
        axes.set_xlabel("%")
        canvas.legend(loc="outside upper center", ncols=5, fontsize=9)

    return {"honesty.png": views.png((9, 3.4), draw)}


def report(result: Honesty, figures: dict[str, bytes], command: str) -> str:
    """The HTML report."""
    picture = page.picture(
        figures["honesty.png"], "Shares of the levels of verdicts by group",
        "Verdicts on data sets, and on single equations with terms.",
    )  # fmt: skip
    first, *others = tables(result)
    last = max(seed for _, seed in result.config.cases())
    return views.report(
        "Verdicts of equation discovery",
        "What discovery claims about unrelated columns, about systems whose terms are in the "
        "library, and about systems with missing terms, inputs or variables.",
        summary(result),
        [views.table_section(first, picture), *(views.table_section(t) for t in others)],
        command=command,
        setup={
            "Data": f"drawn at random with the seeds {result.config.seed} to {last}",
            "Method": "smnn.discovery.Discovery with default settings; four of five unrelated "
            "tables and all systems with missing terms with polynomials; systems of the discovery "
            "benchmark with their libraries and orders",
        },
        machine=result.machine,
    )
