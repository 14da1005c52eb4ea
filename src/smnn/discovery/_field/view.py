"""Figures, summary and report of a law of evolution."""

from __future__ import annotations

import base64
import functools
import io
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from smnn._util.files import check_replaceable, csv_text, write_atomically
from smnn._util.machine import describe_machine
from smnn._util.optional import require
from smnn.datasets.fields import march
from smnn.discovery._equations import format_equations
from smnn.discovery._field.data import FieldSet
from smnn.discovery._field.refine import Found
from smnn.discovery._view.charts import coefficient_rows
from smnn.discovery._view.report import COLUMNS, STYLE, term_rows
from smnn.report import intervals, maths
from smnn.report import page as html
from smnn.report.display import Overview, chosen
from smnn.report.figures import plain
from smnn.report.numbers import plus_minus, significant
from smnn.report.tables import Cell, Row, Table

if TYPE_CHECKING:
    from smnn.discovery._field.estimator import FieldDiscovery

Field = np.ndarray[Any, np.dtype[Any]]
LOST = 0.4
"""Error of a simulation, relative to the spread, at which it no longer follows."""


def solutions(data: FieldSet, found: Found) -> list[Field]:
    """The fitted solutions of the law, one array `(T, X, F)` for each run."""
    assert found.likely is not None
    assert found.shooting is not None
    law = found.shooting.law(found.likely.pairs, found.likely.xi)
    per_run = len(found.likely.segments) // len(data.runs)
    out: list[Field] = []
    for r in range(len(data.runs)):
        parts = found.likely.segments[r * per_run : (r + 1) * per_run]
        paths = [march(law, s.start, s.t, found.likely.substeps) for s in parts]
        joined = np.concatenate([found.shooting.values_on_data(p) for p in paths], 1)
        out.append(np.moveaxis(joined, 0, -1))
    return out


def conjugates(text: str) -> str:
    """LaTeX with a bar over conjugates."""
    text = re.sub(r"\\mathrm\{(\w+?)bar\}", r"\\bar{\1}", text)
    return re.sub(r"\\mathrm\{(\w+?)bar\\_(\w+)\}", r"\\bar{\1}_{\\mathrm{\2}}", text)


def overview(model: FieldDiscovery) -> Overview:
    """What a summary and a notebook show."""
    mathml = [_mathml(model, f) for f in range(len(model.fields_))]
    formulas = list(zip(model.equations(), mathml))
    found = findings(model)
    warnings = [text for text in model.warnings_ if text != str(model.verdict_)]
    title = f"Law of {', '.join(model.fields_)}"
    pictures = []
    if model.data_:
        data = base64.b64encode(picture(model)).decode()
        pictures = [
            f'<img alt="{title}" style="max-width:100%" src="data:image/png;base64,{data}">'
        ]
    return Overview(title, f"Verdict: {model.verdict_}", formulas, found, warnings, pictures)


def _mathml(model: FieldDiscovery, f: int) -> str:
    row = model.coefficients_[f]
    parts = []
    for p in map(int, np.flatnonzero(row)):
        number = maths.MATHML.number(significant(abs(float(row[p])), 4))
        term = model.terms_[p].mathml
        whole = number if model.terms_[p].name == "1" else maths.MATHML.product([number, term])
        parts.append((bool(row[p] < 0), whole))
    right = maths.MATHML.sum(parts) if parts else maths.MATHML.number("0")
    return f"<math>{maths.MATHML.symbol(model.targets_[f])}<mo>=</mo>{right}</math>"


def findings(model: FieldDiscovery) -> list[tuple[str, str]]:
    """Key figures, each with its meaning."""
    count = int(np.count_nonzero(model.coefficients_))
    F = len(model.fields_)
    among = f"in {F} equation{'s' * (F != 1)}, out of {F * len(model.terms_)} candidates"
    found = [(f"{count} term{'s' * (count != 1)}", among)]
    if model.data_:
        spread = np.sqrt(np.mean([_variance(u) for u in model.denoised_], 0))
        noise = float(np.max(model.noise_ / np.maximum(spread, 1e-300)))
        found.append(
            (f"{significant(100 * noise, 2)} %", "noise relative to the spread of the field")
        )
        for axis, wraps in zip(model._columns.axes, model.periodic_):
            found.append(("periodic" if wraps else "not periodic", f"domain in {axis}"))
    why = model.report_.get("why_not_likelihood")
    found.append((model.report_.get("method", ""), f"for the coefficients; {why}" if why else
                  "of the whole field, for the coefficients"))  # fmt: skip
    return found


def followed(model: FieldDiscovery) -> list[tuple[str, str]]:
    """How long a simulation from the first fitted field follows the fit, and its error."""
    if not model.data_ or not all(model.periodic_) or not model.coefficients_.any():
        return []
    fit, t = model.denoised_[0], model.times_[0]
    path = model.simulate(fit[0], t, rtol=1e-4)
    places = tuple(range(1, fit.ndim))
    rest = np.mean(np.abs(path.u - fit[: len(path.u)]) ** 2, places)
    error = np.sqrt(rest / max(float(np.var(fit)), 1e-300))
    lost = np.append(np.flatnonzero(error > LOST), len(error))[0]
    whole = lost == len(t)
    until = f"until t = {t[max(lost - 1, 0)]:.4g}" if not whole else "over the whole time"
    size = significant(100 * float(np.sqrt(np.mean(error[: max(lost, 1)] ** 2))), 2)
    return [(f"{size} %", f"error of a simulation from the first fitted field, {until}, relative "
             f"to the spread ({path.status})")]  # fmt: skip


def _variance(u: Field) -> Field:
    return np.asarray(np.nanvar(u.reshape(-1, u.shape[-1]), 0))


def _used(model: Any) -> list[Any]:
    """The selected terms with their intervals."""
    return [row for row in term_rows(model) if row[2]]


def coefficient_table(model: FieldDiscovery) -> Table:
    """Coefficients with half of their 90 % intervals."""
    table = Table("Coefficients", ["coefficient"], "± half a 90 % interval.")
    for target, term, a, low, high, _ in _used(model):
        table.rows.append(Row(target, term, [Cell(plus_minus(a, (high - low) / 2))]))
    return table


# ---------------------------------------------------------------- pictures


def panels(model: FieldDiscovery, f: int, run: int = 0) -> list[tuple[str, Field]]:
    """Data, fit and residual of a field, as surfaces; the last time of fields in two directions."""
    data, fit = model.data_[run][..., f], model.denoised_[run][..., f]
    if data.ndim == 3:
        data, fit = data[-1], fit[-1]
    law = model.report_.get("method") == "likelihood"
    residual = data - fit
    if np.iscomplexobj(data):
        data, fit, residual = np.abs(data), np.abs(fit), np.abs(residual)
    name = plain(model.fields_[f])
    return [
        (f"{name}: data", data),
        (f"{name}: solution of the law" if law else f"{name}: without noise", fit),
        (f"{name}: data − {'solution' if law else 'filtered'}", residual),
    ]


def draw(model: FieldDiscovery, axes: Field, fields: Sequence[int]) -> None:
    """Draw the panels of fields into rows of axes."""
    plane = len(model.axes_) == 2
    x, up = (model.axes_[1], model.axes_[0]) if plane else (model.times_[0], model.axes_[0])
    for f, row in zip(fields, axes):
        for k, (title, values) in enumerate(panels(model, f)):
            shown = values if plane else values.T
            if k < 2:
                reference = panels(model, f)[1][1]
                low, high = float(np.nanmin(reference)), float(np.nanmax(reference))
            else:
                high = 3 * float(np.nanstd(values)) or 1.0
                low = 0.0 if np.iscomplexobj(model.data_[0]) else -high
            colours = "viridis" if k < 2 else "RdBu_r"
            image = row[k].pcolormesh(x, up, shown, vmin=low, vmax=high, cmap=colours,
                                      shading="nearest", rasterized=True)  # fmt: skip
            row[k].figure.colorbar(image, ax=row[k])
            row[k].set_title(title, loc="left", fontsize=10)
            row[k].set_xlabel("y" if plane else "t")
        row[0].set_ylabel("x")


def plot(model: FieldDiscovery, ax: Any, names: Sequence[str] | None) -> Any:
    """Draw data, fit and residual."""
    if not model.data_:
        raise ValueError("there is nothing to draw: the law was loaded from a file, without data.")
    fields = chosen(names, model.fields_, 3, "fields")
    if ax is None:
        plt = require("matplotlib.pyplot", "draw a plot")
        figure = plt.figure(figsize=(11, 2.8 * len(fields)), layout="constrained")
        ax = figure.subplots(len(fields), 3, squeeze=False)
    axes = np.asarray(ax, object)
    if axes.size != 3 * len(fields):
        raise ValueError(
            f"ax: got {axes.size} Axes; expected {3 * len(fields)}, three for each field."
        )
    draw(model, axes.reshape(-1, 3), fields)
    return axes


def picture(model: FieldDiscovery) -> bytes:
    """The panels as a PNG."""
    require("matplotlib", "draw a figure")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    fields = list(range(min(len(model.fields_), 3)))
    figure = Figure(figsize=(11, 2.8 * len(fields)), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    draw(model, figure.subplots(len(fields), 3, squeeze=False), fields)
    out = io.BytesIO()
    figure.savefig(out, format="png")
    return out.getvalue()


# ---------------------------------------------------------------- report


class FieldReport:
    """Result files of a fitted law.

    Args:
        model: A fitted `FieldDiscovery`.
        source: Name of the data.
        command: Command line that produced the result.
    """

    FILES: ClassVar = ("report.html", "model.json", "equations.txt", "equations.tex",
                       "coefficients.csv")  # fmt: skip
    """What `write` writes."""

    def __init__(self, model: FieldDiscovery, source: str = "", command: str = "") -> None:
        self.model, self.source, self.command = model, source, command

    def summary(self) -> list[tuple[str, str]]:
        """Key figures, each with its meaning."""
        return [*findings(self.model), *self.followed]

    @functools.cached_property
    def followed(self) -> list[tuple[str, str]]:
        """How long a simulation from the first fitted field follows the fit, and its error."""
        return followed(self.model)

    def coefficients(self) -> Table:
        """Coefficients with half of their 90 % intervals."""
        return coefficient_table(self.model)

    def write(self, folder: str | Path) -> Path:
        """Write all result files to a folder; returns the path of the HTML page."""
        folder = Path(folder)
        check_replaceable(folder, self.FILES)
        page = write_report(self, folder / "report.html")
        self.model.save(folder / "model.json")
        verdict = f"Verdict: {self.model.verdict_}\n"
        write_atomically(
            folder / "equations.txt", verdict + "\n".join(self.model.equations()) + "\n"
        )
        write_atomically(folder / "equations.tex", "\n".join(self.model.equations("latex")) + "\n")
        write_atomically(folder / "coefficients.csv", csv_text([COLUMNS, *_used(self.model)]))
        return page

    def record(self) -> dict[str, Any]:
        """The results as plain data for JSON."""
        model = self.model
        keys = ("target", "term", "coefficient", "low", "high", "chosen")
        return {
            "command": self.command, "data": {"file": self.source, "fields": model.fields_,
            "shape": [list(u.shape) for u in model.data_], "periodic": model.periodic_},
            "verdict": model.verdict_.to_dict(), "equations": model.equations(),
            "latex": model.equations("latex"),
            "coefficients": [dict(zip(keys, row)) for row in _used(model)],
            "noise": [float(s) for s in model.noise_], "warnings": model.warnings_,
            "summary": self.summary(),
            "report": model.report_,
        }  # fmt: skip


def write_report(report: FieldReport, path: Path) -> Path:
    """Write the HTML report."""
    model, source, command = report.model, report.source, report.command
    verdict = model.verdict_
    kind = "verdict established" if verdict.level == "established" else "verdict"
    formulas = "".join(f"<div>{_mathml(model, f)}</div>" for f in range(len(model.fields_)))
    text = format_equations(
        model.targets_, model.terms_, model.coefficients_, intervals=model.intervals_
    ) if model.deviation_.any() else model.equations()  # fmt: skip
    tables = [
        intervals.interval_table(
            rows, value_title="coefficient, 90 % interval", share_title="stability"
        )
        for f in range(len(model.fields_)) if (rows := coefficient_rows(model, f))
    ]  # fmt: skip
    shape = " × ".join(map(str, model.data_[0].shape)) if model.data_ else ""
    level, reason = escape(verdict.level.capitalize()), escape(verdict.reason)
    sections = [
        f'<div class="{kind}"><b>{level}</b>: {reason}</div>',
        f'<div class="equations">{formulas}</div>',
        html.findings(report.summary()),
        html.section("Coefficients", *tables, html.code_block("\n".join(text))),
    ]  # fmt: skip
    if model.data_:
        caption = ("Left: the data. Middle: the field without noise; if the coefficients were "
                   "fitted by likelihood, the solution of the law. Right: the difference, which is "
                   "noise without a pattern if the law is right.")  # fmt: skip
        sections.append(
            html.section("Data and fit", html.picture(picture(model), "Data and fit", caption))
        )
    notes = [*model.report_.get("notes", []), *model.warnings_]
    if notes:
        items = "".join(f"<li>{escape(n)}</li>" for n in dict.fromkeys(notes))
        sections.append(html.section("Notes", f"<ul>{items}</ul>"))
    facts = {
        k: v for k, v in model.report_.items() if k in ("method", "misfit", "parts", "seconds")
    }
    sections.append(html.section("How it was made", html.code_block(command) if command else "",
                                 html.facts(facts)))  # fmt: skip
    sections.append(html.section("Machine", html.facts(html.machine_facts(describe_machine()))))
    lead = (f"Found in {source}: " if source else "") + shape
    page = html.page(f"Law of {', '.join(model.fields_)}", lead, sections, style=STYLE)
    return write_atomically(path, page)
