"""Table of estimates with drawn confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from smnn.report.numbers import percent

STYLE = """
.intervals { width: 100%; margin-top: .4rem; table-layout: auto; }
.intervals th, .intervals td { vertical-align: middle; }
.intervals th:first-child, .intervals thead td:first-child { text-align: left; width: 1%;
  color: var(--ink); }
.intervals thead > tr > * { border-bottom: 1px solid var(--line); font-size: .8rem;
  color: var(--soft); font-weight: 400; }
.intervals tbody tr:last-child > * { border-bottom: 0; }
.intervals .value { width: 1%; } .intervals .share { width: 9rem; }
.intervals .drawing { width: 40%; padding: 0 1.2rem; position: relative; }
.intervals tbody .drawing { height: 1.9rem; }
.intervals .drawing svg { display: block; width: 100%; height: 1.9rem; overflow: visible; }
.intervals .drawing span { position: absolute; bottom: .1rem; transform: translateX(-50%); }
.intervals .drawing div { position: relative; height: 1.1rem; }
.intervals path { fill: none; vector-effect: non-scaling-stroke; }
.intervals .zero { stroke: var(--soft); stroke-width: 1; stroke-opacity: .6; }
.intervals .whisker { stroke: var(--accent); stroke-width: 2; }
.intervals .dot { stroke: var(--accent); stroke-width: 8; stroke-linecap: round; }
.intervals tr.quiet * { color: var(--soft); }
.bar { display: inline-block; vertical-align: middle; width: 4rem; height: .5rem;
  margin-right: .5rem;
  border-radius: 3px; background: var(--grid, var(--line)); overflow: hidden; }
.percent { display: inline-block; min-width: 3.2rem; }
.bar i { display: block; height: 100%; background: var(--accent); }
.quiet .bar i { background: var(--soft); }
@media (max-width: 40rem) { .intervals .drawing, .intervals thead { display: none; }
  .intervals tr { display: flex; flex-wrap: wrap; justify-content: space-between; }
  .intervals th:first-child { flex: 1 0 100%; }
  .intervals th, .intervals td { padding: .2rem .35rem; } .intervals .value { width: auto; } }
"""


@dataclass(frozen=True)
class Estimate:
    """One row of the table."""

    label: str
    """Name of the estimate, as HTML."""
    text: str
    """Value and interval as plain text."""
    value: float | None
    """`None` if the term was not selected."""
    low: float | None = None
    high: float | None = None
    share: float | None = None
    """Selection frequency, between 0 and 1."""


def interval_table(rows: Sequence[Estimate], *, value_title: str, share_title: str = "") -> str:
    """Return a table of estimates with intervals on a common axis, as HTML.

    Estimates without a value stand back; without `share_title`, shares are left out.
    """
    ends = [x for r in rows for x in (r.value, r.low, r.high) if x is not None]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    reach = (high - low) or 1.0
    low, reach = low - 0.03 * reach, 1.06 * reach

    def at(x: float) -> str:
        return f"{1000 * (x - low) / reach:.1f}"

    lines = []
    for row in rows:
        drawing = f'<path class="zero" d="M{at(0.0)} 0V100"/>'
        if row.value is not None:
            if row.low is not None and row.high is not None:
                drawing += f'<path class="whisker" d="M{at(row.low)} 50H{at(row.high)}"/>'
            drawing += f'<path class="dot" d="M{at(row.value)} 50h0"/>'
        text = escape(row.text.replace("-", "−"))
        cells = (
            f'<th scope="row">{row.label}</th><td class="value">{text}</td>'
            f'<td class="drawing"><svg viewBox="0 0 1000 100" preserveAspectRatio="none" '
            f'aria-hidden="true">{drawing}</svg></td>'
        )
        if share_title:
            cells += f'<td class="share">{_bar(row.share)}</td>'
        quiet = ' class="quiet"' if row.value is None else ""
        lines.append(f"<tr{quiet}>{cells}</tr>")
    origin = float(at(0.0)) / 10
    last = f'<th scope="col">{escape(share_title)}</th>' if share_title else ""
    return (
        '<div class="scroll"><table class="intervals"><thead><tr><td></td>'
        f'<th scope="col">{escape(value_title)}</th>'
        f'<td class="drawing"><div><span style="left:{origin:.2f}%">0</span></div></td>'
        f"{last}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _bar(share: float | None) -> str:
    if share is None:
        return ""
    width = f'<span class="bar"><i style="width:{100 * share:.1f}%"></i></span>'
    return f'{width}<span class="percent">{escape(percent(share))}</span>'
