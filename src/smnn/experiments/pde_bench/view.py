"""Tables, figure and report of the benchmark of partial differential equations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from smnn.discovery._terms import HALF_WIDTH
from smnn.experiments import views
from smnn.experiments.pde_bench.run import Case, PdeBench, median_error
from smnn.report import page
from smnn.report.tables import Cell, Row, Table

COLOURS = (views.BLUE, views.AMBER, views.GREEN)


def tables(result: PdeBench) -> list[Table]:
    """Median error, exact laws and time, by law, data, noise and method."""
    levels = sorted({c.noise for c in result.cases})
    table = Table(
        "Error of the worst coefficient", [f"{100 * x:g} %" for x in levels],
        "Median over realizations in per cent, where at least half of the laws are exact. In "
        "brackets: exact laws, median processor time, and the error of PySINDy's best threshold in "
        "hindsight.",
    )  # fmt: skip
    for law, kind, method in dict.fromkeys((c.law, c.data, c.method) for c in result.cases):
        cells = [Cell(_entry(result.of(law, kind, x, method))) for x in levels]
        table.rows.append(Row(f"{law}, {kind}", method, cells))
    return [table]


def _entry(cases: list[Case]) -> str:
    if not cases:
        return ""
    error, best = median_error(cases), median_error(cases, hindsight=True)
    seconds = float(np.median([c.seconds for c in cases]))
    notes = [f"{sum(c.exact for c in cases)} of {len(cases)}", f"{seconds:.2g} s"]
    if cases[0].method != "smnn":
        notes.append("–" if best is None else _percent(best))
    return f"{'–' if error is None else _percent(error)} ({', '.join(notes)})"


def coverage(cases: Iterable[Case]) -> tuple[int, int]:
    """Coefficients of exact laws from noisy data inside their 90 % intervals, and all of them."""
    found = [abs(z) < HALF_WIDTH for c in cases if c.noise for z in c.deviations]
    return sum(found), len(found)


def _percent(error: float) -> str:
    return f"{100 * error:.2g}" if error > 1e-5 else f"{100 * error:.0e}"


def summary(result: PdeBench) -> list[tuple[str, str]]:
    """Exact laws of each method."""
    found = []
    for method in result.config.methods:
        cases = [c for c in result.cases if c.method == method]
        seconds = float(np.median([c.seconds for c in cases]))
        found.append((f"{sum(c.exact for c in cases)} of {len(cases)}",
                      f"laws with exact terms by {method}; median {seconds:.1f} s"))  # fmt: skip
    inside, known = coverage(result.cases)
    if known:
        found.append((f"{inside} of {known}", "coefficients inside their 90 % interval"))
    return found


def figures(result: PdeBench) -> dict[str, bytes]:
    """Share of exact laws by noise."""

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        for i, (method, colour) in enumerate(zip(result.config.methods, COLOURS)):
            shares = [
                100 * np.mean([c.exact for c in result.cases if (c.noise, c.method) == (x, method)])
                for x in result.config.noise
            ]
            places = np.arange(len(shares)) + 0.27 * (i - 1)
            axes.bar(places, shares, 0.25, color=colour, label=method)
        axes.set(ylim=(0, 105), ylabel="% of the laws exact", xlabel="noise")
        axes.set_xticks(
            range(len(result.config.noise)), [f"{100 * x:g} %" for x in result.config.noise]
        )
        canvas.legend(loc="outside upper center", ncols=3, fontsize=9)

    return {"pde-bench.png": views.png((7.2, 3.2), draw)}


def report(result: PdeBench, figures: dict[str, bytes], command: str) -> str:
    """The HTML report."""
    picture = page.picture(
        figures["pde-bench.png"], "Exact laws by noise", "Laws with the right terms and no others."
    )
    (table,) = tables(result)
    return views.report(
        "Partial differential equations from noisy fields",
        "Known laws, recovered from simulated fields by smnn and by PySINDy.",
        summary(result),
        [views.table_section(table, picture)],
        command=command,
        setup={
            "Data": "random initial values, normal noise relative to the spread of the field",
            "smnn": "FieldDiscovery with default settings",
            "PySINDy": "degree 3, derivatives to order 4; threshold by an information criterion",
        },
        machine=result.machine,
    )
