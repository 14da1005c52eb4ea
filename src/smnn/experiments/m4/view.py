"""Tables, figure and report of the M4 series."""

from __future__ import annotations

from typing import Any

import numpy as np

from smnn.experiments import views
from smnn.experiments.m4.data import LEVEL, SOURCE
from smnn.experiments.m4.run import M4, NAIVE, PARTS
from smnn.report import page
from smnn.report.tables import Cell, Row, Table

LABELS = {"panel": "smnn, panel", "single": "smnn, one by one"}
COLUMNS = ("series", "sMAPE", "MASE", "OWA", "inside", "MSIS", "s")


def tables(result: M4) -> list[Table]:
    """Mean scores by sampling frequency, part and method."""
    return [_table(result, part) for part in PARTS]


def terminal_tables(result: M4) -> list[Table]:
    """The scores of all series and of those that were not used for tuning."""
    return [_table(result, part) for part in ("all", "held out")]


def _table(result: M4, part: str) -> Table:
    found = Table(
        f"M4, {part}", COLUMNS,
        "OWA: mean of sMAPE and MASE relative to Naive2. Inside: per cent of the values in "
        f"their {100 * LEVEL:.0f} % intervals; MSIS: score of these. Processor seconds per series.",
    )  # fmt: skip
    for group in result.config.groups:
        rows = {m: result.summary(group, m, part) for m in (NAIVE, *result.config.methods)}
        rows = {m: row for m, row in rows.items() if row}
        best = min((row["owa"] for row in rows.values()), default=np.inf)
        for method, row in rows.items():
            cells = [
                Cell(f"{row['series']:.0f}"), Cell(f"{row['smape']:.2f}"),
                Cell(f"{row['mase']:.3f}"), Cell(f"{row['owa']:.3f}", best=row["owa"] == best),
                Cell(f"{100 * row['covered']:.1f}" if "covered" in row else "–"),
                Cell(f"{row['msis']:.2f}" if "msis" in row else "–"),
                Cell(f"{row['seconds'] / row['series']:.3f}"),
            ]  # fmt: skip
            found.rows.append(Row(group, LABELS.get(method, method), cells))
    return found


def summary(result: M4) -> list[tuple[str, str]]:
    """Key figures and their meaning."""
    found = []
    for group in result.config.groups:
        for method in LABELS:
            row = result.summary(group, method)
            if row:
                label = f"OWA of the {row['series']:.0f} {group} series; {LABELS[method]}"
                found.append((f"{row['owa']:.3f}", label))
    return found


def figures(result: M4) -> dict[str, bytes]:
    """OWA by method."""
    groups = result.config.groups

    def draw(canvas: Any) -> None:
        for axes, group in zip(np.atleast_1d(canvas.subplots(1, len(groups))), groups):
            rows = {m: result.summary(group, m) for m in (NAIVE, *result.config.methods)}
            owa = {LABELS.get(m, m): row["owa"] for m, row in rows.items() if row}
            axes.barh(list(owa), list(owa.values()), color=views.BLUE)
            axes.invert_yaxis()
            axes.set(xlabel="OWA")
            views.title(axes, group)

    return {"m4.png": views.png((7.2, 3.0), draw)}


def report(result: M4, figures: dict[str, bytes], command: str) -> str:
    """The HTML report."""
    picture = page.picture(figures["m4.png"], "OWA by method", "OWA; Naive2 is 1.")
    first, *others = tables(result)
    return views.report(
        "Forecasts of the M4 competition",
        "Point forecasts and prediction intervals by the official definitions.",
        summary(result),
        [views.table_section(first, picture), *(views.table_section(t) for t in others)],
        command=command,
        setup={
            "Data": SOURCE.removeprefix("https://"),
            "Tuning": "constants of the forecaster were chosen on the series of the part 'tuned'",
            "Other methods": "statsforecast with default settings and the official season",
        },
        machine=result.machine,
    )
