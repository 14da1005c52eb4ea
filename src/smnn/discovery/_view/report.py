"""Results of a discovery: files, an HTML page, and a summary."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from smnn._util.files import check_replaceable, csv_text, write_atomically
from smnn._util.machine import describe_machine, package_versions
from smnn._util.optional import require
from smnn.data import Table
from smnn.discovery._equations import format_equations, half_width, python_source
from smnn.discovery._fit.data import DataError
from smnn.discovery._terms import HALF_WIDTH
from smnn.discovery._view.charts import (
    by_series,
    coefficient_rows,
    data_charts,
    held_out_charts,
    phase_charts,
    residual_charts,
    series_options,
)
from smnn.report import charts, intervals, maths
from smnn.report import page as html
from smnn.report.display import Overview
from smnn.report.numbers import percent, plus_minus, significant
from smnn.report.tables import Cell, Row
from smnn.report.tables import Table as TextTable

if TYPE_CHECKING:
    from smnn.discovery._estimator import Discovery
    from smnn.discovery._evaluate import HeldOutSeries, HoldOutResult

LARGEST_DOWNLOAD = 1_000_000  # characters that are embedded in the page
WEAK = 0.8
"""Terms selected in a smaller fraction of the resamples are grey."""
STYLE = """
.equation .weak { opacity: .45; }
.equations { margin: 1.4rem 0 .4rem; padding: 1.1rem 1.3rem; border: 1px solid var(--line);
  border-radius: 8px; background: var(--tint); font-size: 1.22rem; line-height: 1.9;
  overflow-x: auto; display: grid; grid-template-columns: max-content max-content 1fr;
  gap: 0 .5rem; align-items: baseline; }
.equation { display: contents; } .equation > :first-child { justify-self: end; }
.equation > span { min-width: 0; }
.equation .term { white-space: nowrap; display: inline-block; padding-right: .42rem; }
.equations + details { margin: .6rem 0 0; } details { font-size: .93rem; }
summary { cursor: pointer; color: var(--soft); }
math { font-size: 1.04em; } th math { font-size: 1.1rem; }
h3 { font-size: 1rem; margin: 1.6rem 0 .2rem; }
.verdict { margin: 1.4rem 0 0; padding: .7rem 1.1rem; border: 1px solid var(--line);
  border-left: 4px solid var(--bad); border-radius: 6px; }
.verdict.established { border-left-color: var(--good); }
.verdict ul { margin: .4rem 0 0; padding-left: 1.2rem; font-size: .93rem; }
@media (max-width: 40rem) { .equations { display: block; font-size: .94rem; padding: .8rem; }
  .equation { display: block; } .equation > span { padding-left: 1rem; } }
"""


COLUMNS = ("target", "term", "coefficient", "low_90", "high_90", "chosen")


@dataclass(frozen=True)
class Report:
    """Report of a fitted model: HTML page, result files, summary.

    Args:
        model: A fitted `Discovery`.
        evaluation: Result of `evaluate` on data that were not fitted.
        source: Name of the data.
        command: Command line that produced the result.
        seconds: Wall-clock time.

    Raises:
        DataError: If the model was loaded from a file, without the data.
    """

    FILES: ClassVar = (
        "report.html", "model.json", "equations.txt", "equations.tex", "coefficients.csv",
        "states.csv",
    )  # fmt: skip
    """What `write` writes."""
    model: Discovery
    evaluation: HoldOutResult | None = None
    source: str = ""
    command: str = ""
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.model.table_ is None:
            raise DataError("a report needs the fitted data; the model was loaded from a file.")

    @property
    def held_out(self) -> list[HeldOutSeries]:
        """Series with a held-out part."""
        return self.evaluation.series if self.evaluation else []

    @functools.cached_property
    def table(self) -> Table:
        """The fitted and the held-out data."""
        table = self.model.table_
        assert table is not None
        times, values = list(table.times), list(table.values)
        for part in self.held_out:
            times[part.index] = np.concatenate([times[part.index], part.t])
            values[part.index] = np.concatenate([values[part.index], part.data])
        return replace(table, times=times, values=values)

    @property
    def fitted_rows(self) -> int:
        """Number of rows that were fitted."""
        return sum(len(t) for t in self.model.times_)

    @property
    def warnings(self) -> list[str]:
        """Warnings from reading the data and from the fit."""
        return [*self.table.warnings, *self.model.warnings_]

    @functools.cached_property
    def machine(self) -> dict[str, Any]:
        """Hardware and versions."""
        machine = describe_machine()
        machine["versions"] |= package_versions(("pandas", "scikit-learn", "sympy"))
        return machine

    def summary(self) -> list[tuple[str, str]]:
        """Key figures, each with its meaning."""
        model = self.model
        V, terms = len(model.targets_), int(np.count_nonzero(model.coefficients_))
        items = [
            (
                f"{terms} term{'s' * (terms != 1)}",
                f"in {V} equation{'s' * (V != 1)}, out of {V * len(model.terms_)} candidates",
            )
        ]
        result = self.evaluation
        if result and result.error is not None and result.followed is not None:
            if np.isfinite(result.error):
                items.append((_ratio(result.error), "hold-out error, relative to the spread"))
            items.append(
                (
                    percent(result.followed),
                    f"of the held-out time ({significant(result.length, 3)}{_unit(self.table)}) is "
                    f"followed with an error below {100 * result.tolerance:.0f} % of the spread",
                )
            )
        spread = result.scale if result else np.nanstd(np.concatenate(self.table.values), axis=0)
        noise = np.asarray(model.noise_)[: len(spread)] / np.maximum(spread, 1e-300)
        each = [
            f"{name} {significant(float(s), 2)}" for name, s in zip(self.table.names, model.noise_)
        ]
        listed = ", ".join(each[:4]) + (", …" if len(each) > 4 else "")
        items.append(
            (_ratio(float(np.max(noise))), f"noise relative to the spread, at most ({listed})")
        )
        return items

    def coefficients(self) -> TextTable:
        """Coefficients with their intervals, as a table for the terminal."""
        model = self.model
        inclusion = model.inclusion_
        caption = "± half a 90 % interval." + (
            " Stability: fraction of the resampled data sets in which the term was selected, not "
            "the probability that it is right." * (inclusion is not None)
        )
        columns = ["coefficient", *(["stability"] if inclusion is not None else [])]
        table = TextTable("Coefficients", columns, caption)
        for v, target in enumerate(model.targets_):
            one = model.verdict_.equations.get(model.variables_[v])
            if one is not None and one.withheld:
                cells = [Cell("–") for _ in columns]
                table.rows.append(Row(target, one.level, cells, quiet=True))
                continue
            for p in map(int, np.flatnonzero(model.coefficients_[v])):
                cells = [Cell(_estimate(model, v, p))]
                if inclusion is not None:
                    cells.append(Cell(percent(float(inclusion[v, p]))))
                table.rows.append(Row(target, model.terms_[p].name, cells))
            if not np.any(model.coefficients_[v]):
                table.rows.append(Row(target, "0", [Cell("–") for _ in columns], quiet=True))
        for name in _places_of_constants(model):
            c = model.constants_[name]
            cells = [Cell(plus_minus(c.value, HALF_WIDTH * c.deviation)), Cell("–")]
            table.rows.append(Row("inside", name, cells[: len(columns)]))
        return table

    def record(self) -> dict[str, Any]:
        """The results as plain data for JSON."""
        model, table, result = self.model, self.table, self.evaluation
        return {
            "command": self.command,
            "data": {
                "file": self.source, "variables": table.names, "inputs": table.input_names,
                "time": table.time_name, "time_unit": table.time_unit,
                "series": len(table.times), "rows": table.rows, "missing": table.missing,
                "fitted": self.fitted_rows, "notes": table.notes,
            },
            "verdict": model.verdict_.to_dict(),
            "candidates": [vars(rival) for rival in model.candidates_],
            "equations": model.equations(),
            "latex": model.equations(format="latex"),
            "coefficients": [
                dict(zip(("target", "term", "coefficient", "low", "high", "chosen"), row))
                for row in term_rows(model) if row[2]
            ],
            "hidden": model.hidden_,
            "constants": [
                {"name": name, "value": c.value, "low": c.interval[0], "high": c.interval[1]}
                for name, c in model.constants_.items()
            ],
            "noise": [_finite(x) for x in model.noise_],
            "held_out": None if not result or not result.series else {
                "error": _finite(result.error), "followed": _finite(result.followed),
                "tolerated": result.tolerance,
                "series": [
                    {"series": s.series, "start": s.start, "length": s.length, "followed": s.until}
                    for s in result.series
                ],
            },
            "warnings": self.warnings,
            "seconds": None if self.seconds is None else round(self.seconds, 3),
            "machine": self.machine,
        }  # fmt: skip

    def write(self, folder: str | Path) -> Path:
        """Write all result files to a folder; returns the path of the HTML page.

        The files are those of `FILES`.

        Raises:
            OutputError: They cannot be written, or would replace files that smnn did not write.
        """
        folder = Path(folder)
        check_replaceable(folder, self.FILES)
        page = self.write_page(folder / "report.html")
        self.model.save(folder / "model.json")
        write_atomically(folder / "equations.txt", _equations_text(self))
        write_atomically(folder / "equations.tex", _equations_latex(self.model))
        write_atomically(folder / "coefficients.csv", _coefficients_csv(self.model))
        write_atomically(folder / "states.csv", _states_csv(self.model))
        return page

    def write_page(self, path: str | Path) -> Path:
        """Write the HTML page."""
        return write_atomically(Path(path), self.page())

    def page(self) -> str:
        """The report as an HTML page."""
        table = self.table
        names = ", ".join(table.names)
        sections = [
            _verdict(self.model),
            _equations(self),
            html.findings(self.summary()),
            _warnings(self.warnings),
            _coefficients(self.model),
            _rivals(self.model),
            html.select("Series", options) if (options := series_options(table)) else "",
            html.section(
                "Data and fit",
                "<p>Dots are the data, lines the fitted states: the states of the equations "
                "without the measurement noise.</p>",
                _states_link(self.model),
                by_series(self, data_charts),
            ),
            _held_out(self),
        ]
        if phases := phase_charts(self.model, table):
            sections.append(html.section("Phase portrait", charts.grid(phases, "16rem")))
        sections += [
            html.section(
                "Residuals",
                "<p>Data minus fitted states. If the equations hold, the residuals are noise: no "
                "pattern in time, and a bell curve.</p>",
                by_series(self, residual_charts),
            ),
            html.section(
                "How it was made",
                html.code_block(self.command) if self.command else "",
                html.facts(_facts(self)),
            ),
            html.section("Machine", html.facts(html.machine_facts(self.machine))),
        ]
        series = "" if len(table.times) == 1 else f", {len(table.times)} series"
        return html.page(
            f"Equations for {names}" if len(names) < 60 else f"{len(table.names)} equations",
            (f"Found in {self.source}: " if self.source else "")
            + f"{table.rows:,} rows{series}, {self.fitted_rows:,} fitted"
            + (", the others held out." if self.held_out else "."),
            [part for part in sections if part],
            style=charts.STYLE + intervals.STYLE + STYLE,
            script=charts.SCRIPT,
        )


def summary(model: Discovery, precision: int) -> str:
    """The verdict, and the equations with their own verdicts where these are lower."""
    lines = [f"Verdict: {model.verdict_}"]
    for name, text in zip(model.variables_, model.equations(precision=precision)):
        lines.append(_with_level(name, text, model.verdict_))
    return "\n".join([*lines, *definitions(model), *constants(model)])


def _with_level(name: str, text: str, verdict: Any) -> str:
    """An equation with its level; the level alone if there is no equation to show."""
    one = verdict.equations.get(name)
    if one is None or one.level == "established":
        return text
    if one.terms == 0 or one.withheld:
        return f"{text.split(' = ')[0]}: {one.level} ({one.reason.rstrip('.')})"
    return f"{text}   ({one.level})"


def definitions(model: Discovery) -> list[str]:
    """What defines delayed values and the hidden variable, if there are any."""
    found = [f"{name} is not measured: {text}" for name, text in model.hidden_.items()]
    if model.lag_ is not None:
        lag, delayed = plus_minus(model.lag_[0], HALF_WIDTH * model.lag_[1]), model._delayed[0]
        found.append(f"{delayed}(t) = {model.variables_[0]}(t - lag), lag = {lag}")
    return found


def constants(model: Discovery) -> list[str]:
    """The constants inside the terms, with half a 90 % interval."""
    known = model.constants_
    halves = {name: HALF_WIDTH * c.deviation for name, c in known.items()}
    return [
        f"{name} = {plus_minus(known[name].value, halves[name])} in {where}"
        for name, where in _places_of_constants(model).items()
    ]


def _places_of_constants(model: Discovery) -> dict[str, str]:
    """The terms that contain each constant, of the equations that are shown."""
    hidden = {v for v, e in model.verdict_.equations.items() if e.withheld}
    shown = (model.coefficients_[[v not in hidden for v in model.variables_]] != 0).any(0)
    places = {
        name: [model._source(t, c) for t, u in zip(model.terms_, shown) if u and c in t.constants]
        for name, c in model.constants_.items()
    }
    return {name: ", ".join(where).replace("?", "") for name, where in places.items() if where}


def overview(model: Discovery) -> Overview:
    """What a notebook shows of a fitted model."""
    verdict, formulas = model.verdict_, []
    for v, name in enumerate(model.variables_):
        one, text = verdict.equations.get(name), model.equations()[v]
        typeset = _equation(model, v)
        if one is not None and (one.terms == 0 or one.withheld):
            text = f"{model.targets_[v]}: {one.level}"
            typeset = escape(text)
        elif one is not None and one.level != verdict.level:
            typeset += f" <small>({escape(one.level)})</small>"
        formulas.append((text, typeset))
    title, trust = f"Equations of {', '.join(model.variables_)}", f"Verdict: {verdict}"
    if model.table_ is None:
        return Overview(title, trust, formulas)
    report = Report(model)
    warnings = [text for text in report.warnings if text != str(verdict)]
    return Overview(title, trust, formulas, report.summary(), warnings)


def frame(model: Discovery) -> Any:
    """Terms of the equations with their coefficients, as a pandas `DataFrame`."""
    pandas = require("pandas", "make a data frame")
    rows = [row for row in term_rows(model) if row[2]]
    return pandas.DataFrame(rows, columns=COLUMNS)


def _verdict(model: Discovery) -> str:
    """The verdict, and those of the equations unless all are established."""
    verdict = model.verdict_
    text = f"<b>{escape(verdict.level.capitalize())}</b>: {escape(verdict.reason)}"
    levels = {e.level for e in verdict.equations.values()}
    items = "".join(
        f"<li><math>{maths.MATHML.symbol(target)}</math> {escape(e.level)}: {escape(e.reason)}</li>"
        for target, e in zip(model.targets_, verdict.equations.values())
    )
    each = "" if levels <= {"established"} else f"<ul>{items}</ul>"
    kind = "verdict established" if verdict.level == "established" else "verdict"
    return f'<div class="{kind}">{text}{each}</div>'


def _rivals(model: Discovery) -> str:
    if not model.candidates_:
        return ""
    rows = "".join(
        f"<dt>{escape(rival.equation)}</dt><dd>{rival.evidence:+.1f} nats"
        f"{'' if rival.in_library else ', terms outside the library'}; predictions differ "
        f"{escape(rival.diverges)}</dd>"
        for rival in model.candidates_
    )
    return html.section(
        "Rival equations",
        "<p>Equations that explain the data about as well, with their evidence relative to the "
        "equation above. Constants inside terms are not fitted.</p>",
        f"<dl>{rows}</dl>",
    )


def _equations(report: Report) -> str:
    model = report.model
    rows = "".join(_equation(model, v) for v in range(len(model.targets_)))
    code = python_source(
        model.state_names_, model.inputs_, model.terms_, model.coefficients_, model.link
    )
    plain = "\n".join(model.equations())
    blocks = [plain, _equations_latex(model), *([code] if code else [])]
    weak = model.inclusion_ is not None and any(
        model.inclusion_[v, p] < WEAK for v, p in zip(*np.nonzero(model.coefficients_))
    )
    more = (*definitions(model), *constants(model))
    notes = [_units(report.table), *(f"{text.rstrip('.')}." for text in more)]
    if weak:
        notes.append(f"Grey terms were selected in less than {percent(WEAK)} of the resamples.")
    return (
        f'<div class="equations">{rows}</div><p class="caption">{escape(" ".join(notes))}</p>'
        "<details><summary>Copy as text, LaTeX or Python</summary>"
        f"{''.join(map(html.code_block, blocks))}</details>"
    )


def _units(table: Table) -> str:
    """The units of time and variables, as a sentence."""
    time = table.time_name or "rows"
    parts = [f"{time} in {table.time_unit}" if table.time_unit else f"unit of {time} unknown"]
    parts += [f"{name} in {table.units[name]}" for name in table.names if name in table.units]
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _equation(model: Discovery, v: int) -> str:
    """One equation, with one element per term so that lines can break between terms."""
    parts = []
    for i, p in enumerate(map(int, np.flatnonzero(model.coefficients_[v]))):
        value, term = float(model.coefficients_[v, p]), model.terms_[p]
        sign = "−" if value < 0 else ("+" if i else "")
        exact = abs(value) == 1 and term.expr != 1
        number = "" if exact else maths.MATHML.number(significant(abs(value)))
        factor = "" if term.expr == 1 else term.mathml
        if term.expr is not None and term.expr.is_Add:
            factor = maths.MATHML.group(factor)
        space = '<mspace width="0.25em"></mspace>' if number and factor else ""
        space_after = "0.25em" if i else "0"
        lead = f'<mo lspace="0" rspace="{space_after}">{sign}</mo>' if sign else ""
        weak = model.inclusion_ is not None and model.inclusion_[v, p] < WEAK
        kind = "term weak" if weak else "term"
        hint = escape(f"{term.name}: {_estimate(model, v, p)}", quote=True)
        parts.append(
            f'<span class="{kind}" title="{hint}"><math><mrow>{lead}{number}{space}{factor}'
            "</mrow></math></span>"
        )
    right = "".join(parts) or "<math><mn>0</mn></math>"
    if model.link is not None:
        name = escape(str(getattr(model.link, "name", model.link)))
        before = f'<span class="term"><math><mi mathvariant="normal">{name}</mi><mo>(</mo></math>'
        right = f"{before}</span>{right}<math><mo>)</mo></math>"
    one = model.verdict_.equations.get(model.variables_[v])
    if one is not None and one.withheld:
        right = escape(one.level)
    left = f"<math>{maths.MATHML.symbol(model.targets_[v])}</math><math><mo>=</mo></math>"
    return f'<div class="equation">{left}<span>{right}</span></div>'


def _estimate(model: Discovery, v: int, p: int) -> str:
    """`-9.998 ± 0.004`, or the value alone if it was given."""
    value = float(model.coefficients_[v, p])
    interval = None if model.intervals_ is None else model.intervals_[v, p]
    half = half_width(value, interval)
    return significant(value) if half is None else plus_minus(value, half)


def _warnings(warnings: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in warnings)
    return f'<ul class="warnings">{items}</ul>' if items else ""


def _coefficients(model: Discovery) -> str:
    resampled = model.inclusion_ is not None
    parts = []
    for v, target in enumerate(model.targets_):
        rows = coefficient_rows(model, v)
        if rows:
            parts.append(f"<h3><math>{maths.MATHML.symbol(target)}<mo>=</mo><mo>…</mo></math></h3>")
            parts.append(
                intervals.interval_table(
                    rows,
                    value_title="coefficient, 90 % interval",
                    share_title="stability" if resampled else "",
                )
            )
    note = (
        '<p class="caption">“Stability” is the fraction of the resampled data sets in which the '
        "term was selected among these candidates, not the probability that it is right. Grey "
        "terms are not in the equation but were selected in some of them.</p>"
    )
    saved = html.download("Download as CSV", "coefficients.csv", _coefficients_csv(model))
    return html.section("Coefficients", *parts, note if resampled else "", saved)


def _held_out(report: Report) -> str:
    result, table = report.evaluation, report.table
    if not result or not result.series:
        return ""
    unit = _unit(table)
    lines = []
    for part in result.series[:3]:
        name = f"Series {part.series}: the" if part.series else "The"
        length = significant(part.length, 3)
        lasted = (
            f"to the end, {length}{unit}"
            if part.until is None
            else f"for {significant(part.until, 3)} of {length}{unit}"
        )
        lines.append(f"<p>{escape(name)} simulation follows the data {escape(lasted)}.</p>")
    return html.section(
        "Held out",
        "<p>The equations are simulated from the last fitted state, without using the held-out "
        "data. A simulation follows the data as long as its error stays below "
        f"{100 * result.tolerance:.0f} % of their standard deviation. For chaotic systems, even "
        "the true equations diverge from the data after some time.</p>",
        *lines,
        by_series(report, held_out_charts),
    )


def _facts(report: Report) -> dict[str, Any]:
    table, model = report.table, report.model
    time = table.time_name or "rows, one unit apart"
    stages = (model.report_ or {}).get("seconds") or {}
    spent = ", ".join(f"{name} {value:.2f}" for name, value in stages.items())
    seconds = sum(stages.values()) if report.seconds is None else report.seconds
    return {
        "Time": table.time_label if table.time_name else time,
        "Variables": ", ".join(
            f"{n} [{table.units[n]}]" if n in table.units else n for n in table.names
        ),
        "Inputs": ", ".join(table.input_names) or None,
        "Series": len(table.times),
        "Rows": f"{table.rows:,}, of which {report.fitted_rows:,} fitted",
        "Missing values": f"{table.missing:,}",
        "Order": model.order_,
        "Candidate terms": ", ".join(term.name for term in model.terms_[:40])
        + (", …" if len(model.terms_) > 40 else ""),
        "Detected": " ".join(table.notes) or None,
        "Seconds": f"{seconds:.2f}" + (f" ({spent})" if spent else ""),
    }


def _unit(table: Table) -> str:
    unit = (table.time_unit or "").split(" since ")[0]
    return f" {unit}" if unit else f" in {table.time_name or 'rows'}"


def _ratio(x: float) -> str:
    """Two digits, in per cent."""
    return f"{significant(100 * x, 2)} %" if x < 10 else f"{significant(x, 2)} times"


def _equations_text(report: Report) -> str:
    model, table = report.model, report.table
    precise = format_equations(
        model.targets_, model.terms_, model.coefficients_, intervals=model.intervals_,
        link=model.link,
    )  # fmt: skip
    unit = f" in {table.time_unit}" if table.time_unit else ""
    head = f"# Time: {table.time_name or 'rows'}{unit}. {report.command}".rstrip()
    return "\n".join([head, *model.equations(), "", "# With 90 % intervals:", *precise, ""])


def _equations_latex(model: Discovery) -> str:
    lines = [line.replace(" = ", " &= ", 1) for line in model.equations(format="latex")]
    return "\\begin{align*}\n" + " \\\\\n".join(lines) + "\n\\end{align*}\n"


def term_rows(model: Discovery) -> Iterable[tuple[str, str, float, Any, Any, Any]]:
    """Target, term, coefficient, interval, inclusion."""
    for v, target in enumerate(model.targets_):
        for p, term in enumerate(model.terms_):
            c = float(model.coefficients_[v, p])
            low, high = map(_finite, model.intervals_[v, p]) if c else (None, None)
            share = None if model.inclusion_ is None else _finite(model.inclusion_[v, p])
            yield target, term.name, c, low, high, share


def _coefficients_csv(model: Discovery) -> str:
    rows = (tuple("" if x is None else x for x in row) for row in term_rows(model))
    return csv_text([COLUMNS, *rows])


def _states_csv(model: Discovery) -> str:
    """Fitted states at the fitted times."""
    table = model.table_
    assert table is not None
    several = len(model.times_) > 1
    name = table.time_name or "row"
    rows: list[Sequence[Any]] = [(*(("series",) if several else ()), name, *model.state_names_)]
    for label, t, states in zip(table.series, model.times_, model.states_):
        first = (label,) if several else ()
        rows += [(*first, at, *map(float, state)) for at, state in zip(map(float, t), states)]
    return csv_text(rows)


def _states_link(model: Discovery) -> str:
    text = _states_csv(model)
    if len(text) > LARGEST_DOWNLOAD:
        return ""
    return html.download("Download the fitted states as CSV", "states.csv", text)


def _finite(x: Any) -> float | None:
    return float(x) if x is not None and np.isfinite(x) else None
