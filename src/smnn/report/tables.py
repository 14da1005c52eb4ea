"""Tables of results, for the terminal and for HTML pages."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from smnn._util.optional import require

if TYPE_CHECKING:
    from rich.console import Group


@dataclass(frozen=True)
class Cell:
    """One cell."""

    text: str
    best: bool = False
    """Whether it is the best of the compared values."""
    verdict: bool | None = None
    """Whether it agrees with the expected value; `None` without one."""

    @property
    def mark(self) -> str:
        """The verdict as a symbol."""
        return "" if self.verdict is None else (" ✓" if self.verdict else " ✗")


@dataclass(frozen=True)
class Row:
    """One row: quantity, method and cells."""

    group: str
    """Name of the quantity; consecutive rows of one group are shown together."""
    label: str
    cells: Sequence[Cell]
    quiet: bool = False
    """Whether it is shown for reference only."""


@dataclass
class Table:
    """Grouped rows with a title and a note."""

    title: str
    columns: Sequence[str]
    caption: str
    rows: list[Row] = field(default_factory=list)

    def groups(self) -> list[list[Row]]:
        """Return the rows by group."""
        return [list(rows) for _, rows in itertools.groupby(self.rows, lambda row: row.group)]


def best_of(values: Sequence[float | None]) -> float | None:
    """Return the smallest value."""
    return min((v for v in values if v is not None), default=None)


def rich_table(table: Table) -> Group:
    """Return the table for a terminal."""
    from rich import box
    from rich.console import Group
    from rich.table import Table as Rich
    from rich.text import Text

    view = Rich(
        title=table.title, box=box.SIMPLE_HEAD, title_style="bold", title_justify="left",
        pad_edge=False, padding=(0, 1, 0, 0),
    )  # fmt: skip
    view.add_column("", no_wrap=True)
    view.add_column("", no_wrap=True)
    for name in table.columns:
        lines = re.sub("(?<=[a-z]) (?=[a-z])", "\n", name)
        view.add_column(lines, justify="right", no_wrap=True)
    for rows in table.groups():
        for i, row in enumerate(rows):
            cells = []
            for cell in row.cells:
                style = "dim" if row.quiet else ("bold" if cell.best else "")
                text = Text(_printable(cell.text), style=style)
                text.append(cell.mark, style="green" if cell.verdict else "bold red")
                cells.append(text)
            view.add_row(
                Text(_printable(rows[0].group) if i == 0 else ""),
                Text(_printable(row.label), style="dim" if row.quiet else ""),
                *cells,
                end_section=row is rows[-1],
            )
    return Group(view, Text(f"{_printable(table.caption)}\n", style="dim"))


def _printable(text: str) -> str:
    """Replace control characters, because names may come from files."""
    return "".join(c if c.isprintable() else "�" for c in text)


def html_table(table: Table) -> str:
    """Return the table as HTML, without the title."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.columns)
    marks = any(cell.mark for row in table.rows for cell in row.cells)
    body = []
    for rows in table.groups():
        lines = []
        for i, row in enumerate(rows):
            first = f'<th scope="rowgroup" rowspan="{len(rows)}">{escape(row.group)}</th>'
            cells = "".join(_html_cell(cell, marks) for cell in row.cells)
            kind = ' class="quiet"' if row.quiet else ""
            lines.append(
                f"<tr{kind}>{first if i == 0 else ''}"
                f'<th scope="row">{escape(row.label)}</th>{cells}</tr>'
            )
        body.append("<tbody>" + "\n".join(lines) + "</tbody>")
    return (
        f'<div class="scroll"><table>\n<thead><tr><td></td><td></td>{head}</tr></thead>\n'
        + "\n".join(body)
        + f'\n</table></div>\n<p class="caption">{escape(table.caption)}</p>'
    )


def _html_cell(cell: Cell, marks: bool) -> str:
    """Return a cell; if other cells have marks, space is reserved for one."""
    mark = '<span class="unmarked">✓</span>' if marks else ""
    if cell.verdict is not None:
        word = "agrees" if cell.verdict else "differs"
        mark = f'<span class="{word}" title="{word}">{cell.mark.strip()}</span>'
    kind = ' class="best"' if cell.best else ""
    return f"<td{kind}>{escape(cell.text)}{mark}</td>"


def forecast_frame(
    names: Sequence[str], t: np.ndarray, mean: np.ndarray,
    intervals: Mapping[float, tuple[np.ndarray, np.ndarray]],
) -> Any:  # fmt: skip
    """Return forecasts as a pandas `DataFrame` in the layout of Nixtla's packages.

    Args:
        names: `S` names of series.
        t: `(H,)` times.
        mean: `(H, S)` forecasts.
        intervals: `(H, S)` lower and upper bounds by level, a probability.

    Returns:
        One row per series and time: `unique_id`, `ds`, `smnn`, and for every level columns such as
        `smnn-lo-90` and `smnn-hi-90`.
    """
    pandas = require("pandas", "make a data frame")
    columns = {"unique_id": np.repeat(names, len(t)), "ds": np.tile(t, len(names))}
    columns["smnn"] = mean.T.ravel()
    for level, (low, high) in intervals.items():
        columns[f"smnn-lo-{100 * level:.10g}"] = low.T.ravel()
        columns[f"smnn-hi-{100 * level:.10g}"] = high.T.ravel()
    return pandas.DataFrame(columns)
