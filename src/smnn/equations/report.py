"""Report of a solution: HTML page, figure, CSV and JSON, and the tables that they share."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from smnn._util.files import check_replaceable, csv_text, write_atomically, write_json
from smnn._util.machine import describe_machine, package_versions
from smnn.equations._system import EquationSystem
from smnn.report import charts, figures, maths
from smnn.report import page as _page
from smnn.report.display import chosen
from smnn.report.numbers import significant
from smnn.report.tables import Cell, Row, Table

if TYPE_CHECKING:
    from smnn.equations._solve import Solution

MAX_CHARTS = 12
"""Variables drawn on the page; the CSV has all."""
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
    folder, columns = Path(folder), solution.columns
    record = record_of(solution, source, command)
    check_replaceable(folder, FILES)
    write_atomically(folder / "report.html", page(solution, record))
    rows = zip(solution.t.tolist(), *(x.tolist() for x in columns.values()))
    table = csv_text([[solution.system.time, *columns], *rows])
    write_atomically(folder / "solution.csv", table)
    write_json(folder / "solution.json", record)
    write_atomically(folder / "solution.png", figure(solution))
    return record


def record_of(solution: Solution, source: str = "", command: str = "") -> dict[str, Any]:
    """Return the solution, its origin and the machine as JSON-compatible data."""
    machine = describe_machine()
    machine["versions"] |= package_versions(("sympy",))
    return {"command": command, "file": source, **solution.to_dict(), "machine": machine}


def summary(solution: Solution) -> list[tuple[str, str]]:
    """Return order, error estimate and residuals, each as a figure with its meaning."""
    return [
        (
            f"order {solution.order}",
            f"derivatives carried by the scheme {solution.scheme}, at {len(solution.t):,} times, "
            f"in {solution.seconds:.3g} s ({solution.backend} backend on {solution.device})",
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
    return figures.png(charts_of(solution), 150)


def charts_of(solution: Solution, names: Sequence[str] | None = None) -> list[charts.Chart]:
    """Variables with their derivatives and prescribed values over time.

    Args:
        solution: What to draw.
        names: Names of the variables; by default the first ones.
    """
    system, parts = solution.system, []
    for v in chosen(names, system.variables, MAX_CHARTS, "variables"):
        name, given = system.variables[v], [x for x in system.values if x.variable == v]
        lines = [
            charts.Line(
                solution.t, solution.y[:, v, r], name + "'" * r, r, "dashed" if r else "line"
            )
            for r in range(min(system.orders[v], 2) + 1)
        ]
        points = [(x.time, x.value) for x in given if x.order == 0]
        if points:
            at, values = np.array(points, float).T
            lines.append(charts.Line(at, values, "prescribed", 6, "dots"))
        parts.append(charts.Chart(name, lines, system.time))
    return parts


def page(solution: Solution, record: dict[str, Any]) -> str:
    """Return the HTML page of a solution and the record that `write` makes of it."""
    system, times = solution.system, solution.t
    items = summary(solution)
    warnings = "".join(f"<li>{escape(text)}</li>" for text in solution.warnings)
    residuals = {
        name: f"{value}: {meaning} (root mean square)"
        for name, (value, meaning) in zip(("Equations", "Values", "Smoothness"), items[2:])
    }
    V, omitted = len(system.variables), ""
    if V > MAX_CHARTS:
        omitted = f'<p class="caption">The first {MAX_CHARTS} of {V} variables.</p>'
    sections = [
        _equations(system),
        _page.findings(items[:2]),
        _page.section("Residuals", _page.facts(residuals)),
        f'<ul class="warnings">{warnings}</ul>' if warnings else "",
        _page.section("Solution", *(chart.html() for chart in charts_of(solution)), omitted),
        _page.section(
            "How to reproduce it",
            *(_page.code_block(text) for text in (record["command"], str(system)) if text),
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


def formulas(system: EquationSystem) -> list[tuple[str, str]]:
    """Every equation as text and as MathML."""
    found = []
    for equation in system.equations:
        left, right = (_side(system, side) for side in equation.sides)
        mathml = f"<math><mrow>{left}<mo>=</mo>{right}</mrow></math>"
        found.append((equation.statement.text, mathml))
    return found


def _equations(system: EquationSystem) -> str:
    lines = "".join(f"<div>{mathml}</div>" for _, mathml in formulas(system))
    return f'<div class="equations">{lines}</div>'


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
