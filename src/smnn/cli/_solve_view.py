"""What `smnn solve` shows and leaves behind: columns, a picture, a record and a page."""

from __future__ import annotations

import csv
import io
from html import escape
from pathlib import Path
from typing import Any

from smnn._util.files import write_atomically, write_json
from smnn._util.optional import require
from smnn.cli._solve_run import Solved
from smnn.cli._solve_text import System
from smnn.report import charts, maths
from smnn.report import page as _page
from smnn.report.numbers import significant
from smnn.report.tables import Cell, Row, Table

MOST_CHARTS = 12
"""Variables that are drawn on the page; all are in the CSV."""
# Colours that stay apart for colour-blind readers and in print (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MEANINGS = {
    "governing": "how far the equations are from holding",
    "initial": "how far the given values are from holding",
    "smoothness": "how far derivatives are from those of a smooth curve",
}
STYLE = """
.equations { margin: 1.4rem 0 .4rem; padding: 1rem 1.3rem; border: 1px solid var(--line);
  border-radius: 8px; background: var(--tint); font-size: 1.2rem; line-height: 2;
  overflow-x: auto; }
"""


def write(found: Solved, source: str, folder: Path) -> Path:
    """All files, the page last; returns its path."""
    write_atomically(folder / "solution.csv", _columns(found))
    write_json(folder / "solution.json", record(found, source))
    write_atomically(folder / "solution.png", figure(found))
    return write_atomically(folder / "report.html", report(found, source))


def record(found: Solved, source: str) -> dict[str, Any]:
    """The result as plain data; the curves are in the CSV."""
    system = found.system
    return {
        "command": found.command,
        "file": source,
        "variables": system.names,
        "time": system.time,
        "equations": [e.where.text for e in system.equations],
        "values": [v.where.text for v in system.values],
        "parameters": {
            n: maths.write(e, maths.TEXT, [system.time]) for n, e in system.parameters.items()
        },
        "times": len(found.t),
        "start": float(found.t[0]),
        "end": float(found.t[-1]),
        "end_state": {name: float(x[-1]) for name, x in found.columns.items()},
        "order": found.order,
        "change_with_one_order_less": found.change,
        "residuals": found.residuals,
        "warnings": found.warnings,
        "backend": found.backend,
        "device": found.device,
        "seconds": round(found.seconds, 4),
        "machine": found.machine,
    }


def _columns(found: Solved) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = found.columns
    writer.writerow([found.system.time, *columns])
    writer.writerows(zip(found.t.tolist(), *(x.tolist() for x in columns.values())))
    return text.getvalue()


def state_table(found: Solved) -> Table:
    """Where every state begins, ends, and lies in between."""
    t = found.system.time
    ends = [f"{t} = {significant(float(x))}" for x in (found.t[0], found.t[-1])]
    table = Table("", [ends[0], "smallest", "largest", ends[1]], "")
    for name, x in found.columns.items():
        size = 1e-13 * max(1e-300, float(abs(x).max()))
        shown = (float(v) for v in (x[0], x.min(), x.max(), x[-1]))
        cells = [Cell(significant(0.0 if abs(v) < size else v, 6)) for v in shown]  # not rounding
        table.rows.append(Row("", name, cells))
    return table


def summary(found: Solved) -> list[tuple[str, str]]:
    """How it was solved and how far to trust it, each as a figure and its meaning."""
    items = [
        (
            f"order {found.order}",
            f"derivatives carried, on {len(found.t):,} times, in {found.seconds:.3g} s "
            f"({found.backend} backend on {found.device})",
        ),
        (
            f"{found.change:.1e}",
            "largest change of the solution with one order less, relative to its largest value",
        ),
    ]
    return items + [(f"{x:.1e}", MEANINGS[name]) for name, x in found.residuals.items()]


def figure(found: Solved) -> bytes:
    """Every variable over time, as PNG."""
    require("matplotlib", "draw the figure")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names, time = found.system.names, found.system.time
    view = Figure(figsize=(7.5, 4.2), dpi=150, layout="constrained")
    FigureCanvasAgg(view)
    axes = view.add_subplot()
    for v, name in enumerate(names[:MOST_CHARTS]):
        x, y = charts.thin(found.t, found.y[:, v, 0], 4 * charts.MOST_POINTS)
        axes.plot(x, y, color=COLOURS[v % len(COLOURS)], lw=1.4, label=_plain(name))
    given = [v for v in found.system.values if v.order == 0 and v.variable < MOST_CHARTS]
    axes.plot([v.at for v in given], [v.value for v in given], "o", ms=4.5, color="#333333",
              label="given" if given else None)  # fmt: skip
    axes.set_xlabel(_plain(time))
    axes.grid(alpha=0.25, lw=0.6)
    axes.margins(x=0.01)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    out = io.BytesIO()
    view.savefig(out, format="png")
    return out.getvalue()


def _plain(name: str) -> str:
    """Names in which neither `_` nor `$` means anything to matplotlib."""
    return name.lstrip("_").replace("$", r"\$") or "variable"


def report(found: Solved, source: str) -> str:
    """The whole result as one HTML page."""
    system = found.system
    warned = "".join(f"<li>{escape(text)}</li>" for text in found.warnings)
    sections = [
        _equations(found),
        _page.findings(summary(found)[:2]),
        _page.section("How well it holds", _page.facts(_residuals(found))),
        f'<ul class="warnings">{warned}</ul>' if warned else "",
        _page.section("Solution", *_charts(found)),
        _page.section(
            "How it was made",
            _page.command_block(found.command),
            _page.command_block(_source(found)),
        ),
        _page.section("Machine", _page.facts(_page.machine_facts(found.machine))),
    ]
    names = ", ".join(system.names)
    return _page.page(
        f"Solution for {names}" if len(names) < 60 else f"{len(system.names)} solutions",
        f"{source}: {len(system.equations)} linear equation{'s' * (len(system.equations) != 1)} "
        f"on {len(found.t):,} times from "
        f"{system.time} = {significant(float(found.t[0]))} to {significant(float(found.t[-1]))}.",
        [part for part in sections if part],
        style=charts.STYLE + STYLE,
        script=charts.SCRIPT,
    )


def _residuals(found: Solved) -> dict[str, str]:
    """Root mean squares, with what they are about."""
    names = {"governing": "Equations", "initial": "Given values", "smoothness": "Smoothness"}
    return {
        names[key]: f"{x:.1e}: {MEANINGS[key]} (root mean square)"
        for key, x in found.residuals.items()
    }


def _equations(found: Solved) -> str:
    lines = []
    for equation in found.system.equations:
        left, right = (_side(found.system, side) for side in equation.expr)
        lines.append(f"<div><math><mrow>{left}<mo>=</mo>{right}</mrow></math></div>")
    return f'<div class="equations">{"".join(lines)}</div>'


def _side(system: System, expr: Any) -> str:
    """One side of an equation, the highest derivative first, factors before variables."""
    order = [*system.parameters, system.time, *system.states]

    def rank(term: Any) -> int:
        return -max((x.name.count("'") for x in term.free_symbols if x.name in system.states),
                    default=-1)  # fmt: skip

    parts = []
    for term in sorted(expr.as_ordered_terms(), key=rank):
        negative = bool(term.could_extract_minus_sign())
        parts.append((negative, maths.write(-term if negative else term, maths.MATHML, order)))
    return maths.MATHML.sum(parts)


def _charts(found: Solved) -> list[str]:
    system, parts = found.system, []
    for v, (name, top) in enumerate(zip(system.names[:MOST_CHARTS], system.orders)):
        shown = [
            charts.Line(
                found.t, found.y[:, v, r], name + "'" * r, r, "line" if r == 0 else "dashed"
            )
            for r in range(min(top, 2) + 1)
        ]
        parts.append(charts.chart(name, shown, x_label=system.time))
    if len(system.names) > MOST_CHARTS:
        parts.append(f'<p class="caption">{MOST_CHARTS} of {len(system.names)} are drawn.</p>')
    return parts


def _source(found: Solved) -> str:
    system = found.system
    lines = [
        *(
            f"{n} = {maths.write(e, maths.TEXT, [system.time])}"
            for n, e in system.parameters.items()
        ),
        *(e.where.text for e in system.equations),
        *(v.where.text for v in system.values),
        f"{system.time} = {system.ends[0]:.10g} .. {system.ends[1]:.10g} step {system.step:.10g}",
    ]
    return "\n".join(lines)
