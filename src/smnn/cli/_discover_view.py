"""What `smnn discover` shows: a few figures, a table for the terminal, and the page."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from smnn.cli._discover_charts import (
    coefficient_rows,
    data_charts,
    held_out_charts,
    phase_charts,
    residual_charts,
)
from smnn.cli._discover_run import TOLERATED, Found
from smnn.discovery._equations import half_width
from smnn.report import charts, intervals, maths
from smnn.report import page as _page
from smnn.report.numbers import percent, plus_minus, significant
from smnn.report.tables import Cell, Row, Table

STYLE = """
.equations { margin: 1.4rem 0 .4rem; padding: 1.1rem 1.3rem; border: 1px solid var(--line);
  border-radius: 8px; background: var(--tint); font-size: 1.22rem; line-height: 1.9;
  overflow-x: auto; display: grid; grid-template-columns: max-content max-content 1fr;
  gap: 0 .5rem; align-items: baseline; }
.equation { display: contents; } .equation > :first-child { justify-self: end; }
.equation > div { min-width: 0; }
.equation .term { white-space: nowrap; display: inline-block; padding-right: .42rem; }
.equations + details { margin: .6rem 0 0; } details { font-size: .93rem; }
summary { cursor: pointer; color: var(--soft); }
math { font-size: 1.04em; } th math { font-size: 1.1rem; }
h3 { font-size: 1rem; margin: 1.6rem 0 .2rem; }
@media (max-width: 40rem) { .equations { font-size: 1.08rem; padding: .8rem .9rem; } }
"""


def summary(found: Found) -> list[tuple[str, str]]:
    """What was found, each as a figure and its meaning."""
    model, table = found.model, found.table
    V = len(model.targets_)
    items = [
        (
            f"{found.terms} term{'s' * (found.terms != 1)}",
            f"in {V} equation{'s' * (V != 1)}, out of {V * len(model.terms_)} candidates",
        )
    ]
    if (error := found.error) is not None and found.followed is not None:
        if np.isfinite(error):
            items.append((_share(error), "error on the data held out, relative to their spread"))
        total = sum(t.length for t in found.trials)
        items.append(
            (
                percent(found.followed),
                f"of the time held out ({significant(total, 3)}{_unit(found)}) is followed: error "
                f"below {100 * TOLERATED:.0f} % of the spread",
            )
        )
    noise = np.asarray(model.noise_) / np.maximum(found.spread, 1e-300)
    words = [f"{name} {significant(float(s), 2)}" for name, s in zip(table.names, model.noise_)]
    told = ", ".join(words[:4]) + (", …" if len(words) > 4 else "")
    items.append((_share(float(np.max(noise))), f"noise relative to the spread, at most ({told})"))
    return items


def coefficient_table(found: Found) -> Table:
    """Coefficients with their intervals, for the terminal."""
    model = found.model
    resampled = model.inclusion_ is not None
    caption = "± half of a 90 % interval." + (
        " Chosen: share of the resampled data sets in which the term was kept." * resampled
    )
    columns = ["coefficient", *(["chosen"] if resampled else [])]
    table = Table("Coefficients", columns, caption)
    for v, target in enumerate(model.targets_):
        for p in map(int, np.flatnonzero(model.coefficients_[v])):
            cells = [Cell(estimate_text(model, v, p))]
            if resampled:
                cells.append(Cell(percent(float(model.inclusion_[v, p]))))
            table.rows.append(Row(target, model.terms_[p].name, cells))
        if not np.any(model.coefficients_[v]):
            table.rows.append(Row(target, "0", [Cell("–") for _ in columns], quiet=True))
    return table


def estimate_text(model: Any, v: int, p: int) -> str:
    """`-9.998 ± 0.004`; a coefficient that was given has no interval."""
    value = float(model.coefficients_[v, p])
    interval = None if model.intervals_ is None else model.intervals_[v, p]
    half = half_width(value, interval)
    return significant(value) if half is None else plus_minus(value, half)


def report(found: Found) -> str:
    """The whole result as one HTML page."""
    table = found.table
    names = ", ".join(table.names)
    sections = [
        _equations(found),
        _page.findings(summary(found)),
        _warnings(found),
        _coefficients(found),
        _page.section(
            "Data and fit",
            "<p>Dots are the data, lines the states of the equations that fit them: the same "
            "states without the noise.</p>",
            *data_charts(found),
        ),
        _held_out(found),
    ]
    if phases := phase_charts(found):
        sections.append(_page.section("Phase portrait", charts.grid(phases, "16rem")))
    sections += [
        _page.section(
            "What is left over",
            "<p>Data less fitted states. If the equations hold, this is noise: no pattern in time, "
            "and a bell curve.</p>",
            *residual_charts(found),
        ),
        _page.section(
            "How it was made", _page.command_block(found.command), _page.facts(_facts(found))
        ),
        _page.section("Machine", _page.facts(_page.machine_facts(found.machine))),
    ]
    series = "" if len(table.times) == 1 else f", {len(table.times)} series"
    return _page.page(
        f"Equations for {names}" if len(names) < 60 else f"{len(table.names)} equations",
        f"Found in {found.source}: {table.rows:,} rows{series}, "
        f"{sum(len(x) for x in found.fitted):,} fitted"
        + (", the others held out." if found.trials else "."),
        [part for part in sections if part],
        style=charts.STYLE + intervals.STYLE + STYLE,
        script=charts.SCRIPT,
    )


def _equations(found: Found) -> str:
    model = found.model
    rows = "".join(_equation(model, v) for v in range(len(model.targets_)))
    plain = "\n".join(model.equations())
    latex = "\n".join(model.equations(format="latex"))
    return (
        f'<div class="equations">{rows}</div>'
        "<details><summary>As text and LaTeX</summary>"
        f"{_page.command_block(plain)}{_page.command_block(latex)}</details>"
    )


def _equation(model: Any, v: int) -> str:
    """One equation, each term an element of its own so that lines can break between them."""
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
        hint = escape(f"{term.name}: {estimate_text(model, v, p)}", quote=True)
        parts.append(
            f'<span class="term" title="{hint}"><math><mrow>{lead}{number}{space}{factor}'
            "</mrow></math></span>"
        )
    right = "".join(parts) or "<math><mn>0</mn></math>"
    if model.link is not None:
        name = escape(str(getattr(model.link, "name", model.link)))
        before = f'<span class="term"><math><mi mathvariant="normal">{name}</mi><mo>(</mo></math>'
        right = f"{before}</span>{right}<math><mo>)</mo></math>"
    left = maths.MATHML.symbol(model.targets_[v])
    return (
        f'<div class="equation"><math>{left}</math><math><mo>=</mo></math><div>{right}</div></div>'
    )


def _warnings(found: Found) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in found.warnings)
    return f'<ul class="warnings">{items}</ul>' if items else ""


def _coefficients(found: Found) -> str:
    model = found.model
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
                    share_title="chosen" if resampled else "",
                )
            )
    note = (
        '<p class="caption">“Chosen” is the share of resampled data sets in which the term was '
        "kept. Grey terms are not in the equation but were chosen now and then.</p>"
    )
    return _page.section("Coefficients", *parts, note if resampled else "")


def _held_out(found: Found) -> str:
    if not found.trials:
        return ""
    unit = _unit(found)
    lines = []
    for trial in found.trials[:3]:
        name = f"Series {trial.series}: the" if trial.series else "The"
        length = significant(trial.length, 3)
        lasted = (
            f"to the end, {length}{unit}"
            if trial.until is None
            else f"for {significant(trial.until, 3)} of {length}{unit}"
        )
        lines.append(f"<p>{escape(name)} simulation follows the data {escape(lasted)}.</p>")
    return _page.section(
        "Held out",
        "<p>The equations are started at the last fitted state and run on without looking at the "
        f"data. They follow as long as the error stays below {100 * TOLERATED:.0f} % of the "
        "standard deviation of the data. For chaotic systems even the true equations lose the "
        "track after some time.</p>",
        *lines,
        *held_out_charts(found),
    )


def _facts(found: Found) -> dict[str, Any]:
    table, model = found.table, found.model
    time = table.time_name or "rows, one unit apart"
    stages = (model.report_ or {}).get("seconds") or {}
    spent = ", ".join(f"{name} {value:.2f}" for name, value in stages.items())
    return {
        "Time": f"{time} ({table.time_unit})" if table.time_unit else time,
        "Variables": ", ".join(
            f"{n} [{table.units[n]}]" if n in table.units else n for n in table.names
        ),
        "Inputs": ", ".join(table.input_names) or None,
        "Series": len(table.times),
        "Rows": f"{table.rows:,}, of them fitted {sum(len(x) for x in found.fitted):,}",
        "Missing values": f"{table.missing:,}",
        "Order": getattr(model, "order", None),
        "Candidate terms": ", ".join(term.name for term in model.terms_[:40])
        + (", …" if len(model.terms_) > 40 else ""),
        "Decided": " ".join(table.notes) or None,
        "Seconds": f"{found.seconds:.2f}" + (f" ({spent})" if spent else ""),
    }


def _unit(found: Found) -> str:
    unit = (found.table.time_unit or "").split(" since ")[0]
    return f" {unit}" if unit else f" in {found.table.time_name or 'rows'}"


def _share(x: float) -> str:
    """A share of the spread: two digits, in per cent."""
    return f"{significant(100 * x, 2)} %" if x < 10 else f"{significant(x, 2)} times"
