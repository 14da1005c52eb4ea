"""Tables, figure and report of the benchmark of partial differential equations."""

from __future__ import annotations

from typing import Any

import numpy as np

from smnn.experiments import views
from smnn.experiments.pde_bench.run import PdeBench, median_error
from smnn.report import page
from smnn.report.tables import Cell, Row, Table

COLOURS = (views.BLUE, views.AMBER, views.GREEN)


def tables(result: PdeBench) -> list[Table]:
    """Share of exact laws and median error, by law, data, noise and method."""
    columns = [f"{100 * x:g} %" for x in result.config.noise]
    table = Table(
        "Error of the worst coefficient", columns,
        "Median over realizations in per cent, where at least half of the laws are exact; else the "
        "number of exact laws. In brackets: PySINDy's best threshold in hindsight.",
    )  # fmt: skip
    for law in result.config.laws:
        for kind in result.config.data:
            for method in result.config.methods:
                cells = [Cell(_entry(result, law, kind, x, method)) for x in result.config.noise]
                table.rows.append(Row(f"{law}, {kind}", method, cells))
    return [table]


def _entry(result: PdeBench, law: str, kind: str, noise: float, method: str) -> str:
    cases = result.of(law, kind, noise, method)
    error, best = median_error(cases), median_error(cases, hindsight=True)
    exact = sum(c.exact for c in cases)
    text = f"{exact} of {len(cases)}" if error is None else _percent(error)
    if method == "smnn":
        return text
    return f"{text} ({'–' if best is None else _percent(best)})"


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
