"""Report of a solution: HTML page, figure, CSV and JSON, and the tables that they share."""

from __future__ import annotations

import io
from html import escape
from pathlib import Path
from typing import Any

from smnn._util.files import check_replaceable, csv_text, write_atomically, write_json
from smnn._util.machine import describe_machine, package_versions
from smnn._util.optional import require
from smnn.equations._solve import Solution
from smnn.equations._system import EquationSystem
from smnn.report import charts, maths
from smnn.report import page as _page
from smnn.report.numbers import significant
from smnn.report.tables import Cell, Row, Table

MAX_CHARTS = 12
"""Variables drawn on the page; the CSV has all."""
# Okabe and Ito: distinguishable without colour vision and in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
RESIDUALS = {
    "governing": "residual of the equations",
    "initial": "residual of the prescribed values",
    "smoothness": "residual of the smoothness conditions",
}
STYLE = """
.equations { margin: 1.4rem 0 .4rem; padding: 1rem 1.3rem; border: 1px solid var(--line);
  border-radius: 8px; background: var(--tint); font-size: 1.2rem; line-height: 2;
  overflow-x: auto; }
"""

FILES = ("report.html", "solution.csv", "solution.png", "solution.json")
"""What `write` writes."""


def write(
    solution: Solution, folder: str | Path, *, source: str = "", command: str = ""
) -> dict[str, Any]:
    """Write `report.html`, `solution.csv`, `solution.png` and `solution.json`.

    Args:
        solution: What to report.
        folder: An existing folder.
        source: Name of the file that the equations were read from.
        command: Command that produced the solution.

    Returns:
        The contents of `solution.json`.

    Raises:
        OutputError: The files cannot be written, or would replace files that smnn did not write.
    """
    folder = Path(folder)
    machine = describe_machine()
    machine["versions"] |= package_versions(("sympy",))
    record = {"command": command, "file": source, **solution.to_dict(), "machine": machine}
    check_replaceable(folder, FILES)
    write_atomically(folder / "report.html", page(solution, record))
    columns = solution.columns
    rows = zip(solution.t.tolist(), *(x.tolist() for x in columns.values()))
    table = csv_text([[solution.system.time, *columns], *rows])
    write_atomically(folder / "solution.csv", table)
    write_json(folder / "solution.json", record)
    write_atomically(folder / "solution.png", figure(solution))
    return record


def summary(solution: Solution) -> list[tuple[str, str]]:
    """Return order, error estimate and residuals, each as a figure with its meaning."""
    return [
        (
            f"order {solution.order}",
            f"derivatives carried, at {len(solution.t):,} times, in {solution.seconds:.3g} s "
            f"({solution.backend} backend on {solution.device})",
        ),
        (
            f"{solution.change:.1e}",
            "largest change of the solution with one order less, relative to its largest value",
        ),
        *((f"{x:.1e}", RESIDUALS[name]) for name, x in solution.residuals.items()),
    ]


def state_table(solution: Solution) -> Table:
    """Return first, smallest, largest and last value of every column."""
    t = solution.system.time
    first, last = (f"{t} = {significant(float(x))}" for x in (solution.t[0], solution.t[-1]))
    table = Table("", [first, "smallest", "largest", last], "")
    for name, x in solution.columns.items():
        rounding = 1e-13 * max(1e-300, float(abs(x).max()))
        shown = (float(v) for v in (x[0], x.min(), x.max(), x[-1]))
        cells = [Cell(significant(0.0 if abs(v) < rounding else v, 6)) for v in shown]
        table.rows.append(Row("", name, cells))
    return table


def figure(solution: Solution) -> bytes:
    """Draw every variable over time; returns a PNG."""
    require("matplotlib", "draw the figure")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    system = solution.system
    view = Figure(figsize=(7.5, 4.2), dpi=150, layout="constrained")
    FigureCanvasAgg(view)
    axes = view.add_subplot()
    for v, name in enumerate(system.variables[:MAX_CHARTS]):
        x, y = charts.thin(solution.t, solution.y[:, v, 0], 4 * charts.MOST_POINTS)
        axes.plot(x, y, color=COLOURS[v % len(COLOURS)], lw=1.4, label=_label(name))
    given = [v for v in system.values if v.order == 0 and v.variable < MAX_CHARTS]
    axes.plot([v.time for v in given], [v.value for v in given], "o", ms=4.5, color="#333333",
              label="prescribed" if given else None)  # fmt: skip
    axes.set_xlabel(_label(system.time))
    axes.grid(alpha=0.25, lw=0.6)
    axes.margins(x=0.01)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    out = io.BytesIO()
    view.savefig(out, format="png")
    return out.getvalue()


def _label(name: str) -> str:
    """A name without the characters that are special to matplotlib."""
    return name.lstrip("_").replace("$", r"\$") or "variable"


def page(solution: Solution, record: dict[str, Any]) -> str:
    """Return the HTML page of a solution and the record that `write` makes of it."""
    system, times = solution.system, solution.t
    items = summary(solution)
    warnings = "".join(f"<li>{escape(text)}</li>" for text in solution.warnings)
    residuals = {
        name: f"{value}: {meaning} (root mean square)"
        for name, (value, meaning) in zip(("Equations", "Values", "Smoothness"), items[2:])
    }
    sections = [
        _equations(system),
        _page.findings(items[:2]),
        _page.section("Residuals", _page.facts(residuals)),
        f'<ul class="warnings">{warnings}</ul>' if warnings else "",
        _page.section("Solution", *_charts(solution)),
        _page.section(
            "How to reproduce it",
            *(_page.command_block(text) for text in (record["command"], str(system)) if text),
        ),
        _page.section("Machine", _page.facts(_page.machine_facts(record["machine"]))),
    ]
    names = ", ".join(system.variables)
    source = f"{record['file']}: " if record["file"] else ""
    return _page.page(
        f"Solution for {names}" if len(names) < 60 else f"{len(system.variables)} solutions",
        f"{source}{len(system.equations)} linear equation{'s' * (len(system.equations) != 1)} "
        f"at {len(times):,} times from "
        f"{system.time} = {significant(float(times[0]))} to {significant(float(times[-1]))}.",
        [part for part in sections if part],
        style=charts.STYLE + STYLE,
        script=charts.SCRIPT,
    )


def _equations(system: EquationSystem) -> str:
    lines = []
    for equation in system.equations:
        left, right = (_side(system, side) for side in equation.sides)
        lines.append(f"<div><math><mrow>{left}<mo>=</mo>{right}</mrow></math></div>")
    return f'<div class="equations">{"".join(lines)}</div>'


def _side(system: EquationSystem, expr: Any) -> str:
    """MathML of one side: highest derivative first, factors before variables."""
    states = system.states
    order = [*system.parameters, system.time, *states]

    def derivative(term: Any) -> int:
        return max((x.name.count("'") for x in term.free_symbols if x.name in states), default=-1)

    parts = []
    for term in sorted(expr.as_ordered_terms(), key=derivative, reverse=True):
        negative = bool(term.could_extract_minus_sign())
        parts.append((negative, maths.write(-term if negative else term, maths.MATHML, order)))
    return maths.MATHML.sum(parts)


def _charts(solution: Solution) -> list[str]:
    system, parts = solution.system, []
    for v, (name, top) in enumerate(zip(system.variables[:MAX_CHARTS], system.orders)):
        lines = [
            charts.Line(
                solution.t, solution.y[:, v, r], name + "'" * r, r, "dashed" if r else "line"
            )
            for r in range(min(top, 2) + 1)
        ]
        parts.append(charts.chart(name, lines, x_label=system.time))
    if len(system.variables) > MAX_CHARTS:
        parts.append(
            f'<p class="caption">The first {MAX_CHARTS} of {len(system.variables)} variables.</p>'
        )
    return parts
