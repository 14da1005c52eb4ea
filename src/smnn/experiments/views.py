"""Figures and report pages of the experiments."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from smnn._util.optional import require
from smnn.report import page
from smnn.report.figures import new_figure as new_figure
from smnn.report.tables import Table, html_table

BLUE, SKY, GREEN, YELLOW = "#0072B2", "#56B4E9", "#009E73", "#F0E442"
AMBER, RED, PINK, GREY, BLACK = "#E69F00", "#D55E00", "#CC79A7", "#999999", "#000000"
"""Colours that colour-blind readers can distinguish, also in print (Okabe and Ito)."""

STYLE: dict[str, Any] = {
    "font.family": "serif", "font.serif": ["STIXGeneral", "DejaVu Serif"],
    "mathtext.fontset": "stix", "font.size": 10, "axes.titlesize": 11, "axes.linewidth": 0.7,
    "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
}  # fmt: skip


def style(**changes: Any) -> Any:
    """A context in which figures have the style of the reports."""
    return require("matplotlib", "draw the figures").rc_context({**STYLE, **changes})


def png(size: tuple[float, float], draw: Callable[[Any], None], dpi: float = 160) -> bytes:
    """Draw on a figure and return it as PNG."""
    with style():
        figure = new_figure(size, dpi)
        draw(figure)
        file = io.BytesIO()
        figure.savefig(file, format="png")
    return file.getvalue()


def title(axes: Any, text: str) -> None:
    """A bold title on the left."""
    axes.set_title(text, loc="left", fontweight="bold")


def table_section(table: Table, *parts: str) -> str:
    """A section with a table under its own title, and HTML below it."""
    return page.section(table.title, html_table(table), *parts)


def report(
    title: str, lead: str, summary: Sequence[tuple[str, str]], sections: Sequence[str], *,
    command: str, setup: Mapping[str, Any], machine: Mapping[str, Any],
) -> str:  # fmt: skip
    """A report of an experiment as one HTML page.

    `command` repeats the experiment; `setup` are facts on data, models and methods, of which `None`
    values are left out.
    """
    facts = page.machine_facts(machine) | {"GPU": machine.get("gpu")}
    how = page.section("How it was made", page.code_block(command), page.facts(setup))
    where = page.section("Machine", page.facts(facts))
    return page.page(title, lead, [page.findings(summary), *sections, how, where])
