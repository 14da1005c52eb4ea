"""Base class of results: plots, a summary, and display in notebooks."""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from smnn._util.names import explained
from smnn.report import figures
from smnn.report.charts import Chart

MOST_SHOWN = 4
"""Charts in a notebook."""
STYLE = (
    ".smnn .term { white-space: nowrap; padding-right: .4rem; } .smnn math { font-size: 1.15em; }"
    " .smnn p { margin: .25rem 0; } .smnn ul { margin: .25rem 0; padding-left: 1.2rem; }"
)


@dataclass(frozen=True)
class Overview:
    """What a summary and a notebook show of a result."""

    title: str
    verdict: str = ""
    """One sentence on whether to trust the result."""
    formulas: Sequence[tuple[str, str]] = ()
    """Equations, as text and as HTML."""
    findings: Sequence[tuple[str, str]] = ()
    """Key figures, each with its meaning."""
    warnings: Sequence[str] = ()
    tables: Sequence[str] = ()
    """HTML of tables, for notebooks."""


class Displayable(ABC):
    """A result with `plot`, `summary` and a representation for notebooks."""

    @abstractmethod
    def _overview(self) -> Overview:
        """What to show as text."""

    @abstractmethod
    def _charts(self, names: Sequence[str] | None) -> Sequence[Chart]:
        """Charts of what is named, or of everything up to a limit."""

    @explained
    def plot(self, ax: Any = None, *, names: str | Sequence[str] | None = None) -> Any:
        """Draw the result with matplotlib.

        Args:
            ax: An `Axes`, or one for each chart; by default a new figure.
            names: What to draw: names of variables or series; by default all, up to a limit.

        Returns:
            The `Axes`; an array of these if there are several charts.

        Raises:
            ValueError: The number of axes is wrong, or nothing has the name.
        """
        return figures.draw(self._charts([names] if isinstance(names, str) else names), ax)

    def summary(self) -> str:
        """The result as a few lines of text."""
        view = self._overview()
        lines = [view.title, *([view.verdict] if view.verdict else [])]
        lines += [f"  {text}" for text, _ in view.formulas]
        lines += [f"{value}: {meaning}" for value, meaning in view.findings]
        return "\n".join([*lines, *(f"Warning: {text}" for text in view.warnings)])

    def _repr_html_(self) -> str:
        view = self._overview()
        parts = [f"<p><b>{escape(view.title)}</b></p>"]
        if view.verdict:
            parts.append(f"<p>{escape(view.verdict)}</p>")
        parts += [f"<p>{formula}</p>" for _, formula in view.formulas]
        items = [f"<li><b>{escape(v)}</b> {escape(meaning)}</li>" for v, meaning in view.findings]
        items += [f"<li><b>Warning:</b> {escape(text)}</li>" for text in view.warnings]
        parts.append(f"<ul>{''.join(items)}</ul>" if items else "")
        parts += view.tables
        if charts := self._charts(None)[:MOST_SHOWN]:
            data = base64.b64encode(figures.png(charts)).decode()
            title = escape(view.title, quote=True)
            parts.append(
                f'<img alt="{title}" style="max-width:100%" src="data:image/png;base64,{data}">'
            )
        return f'<div class="smnn"><style>{STYLE}</style>{"".join(parts)}</div>'


def chosen(names: Sequence[str] | None, known: Sequence[str], most: int, what: str) -> list[int]:
    """Indices of names among the known ones; the first `most` without names.

    Raises:
        ValueError: A name is not known.
    """
    if names is None:
        return list(range(min(most, len(known))))
    for name in names:
        if name not in known:
            shown = ", ".join(known[:12]) + (", …" if len(known) > 12 else "")
            raise ValueError(f"names: got {name!r}; expected names of {what}: {shown}.")
    return [list(known).index(name) for name in names]
