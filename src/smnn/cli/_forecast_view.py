"""What `smnn forecast` shows: a few figures, tables, and the page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from smnn.cli import _forecast_charts as drawn
from smnn.cli._forecast_run import Outcome
from smnn.forecasting._backtest import OURS
from smnn.report import charts, page
from smnn.report.numbers import significant
from smnn.report.tables import Cell, Row, Table, html_table

MOST_ROWS = 12
STYLE = """
.warnings { margin: 1.2rem 0 0; padding: .7rem 1rem .7rem 2rem; border: 1px solid var(--line);
  border-left: 4px solid var(--c4); border-radius: 6px; font-size: .95rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 .2rem; }
.terms { margin: .2rem 0 0; padding-left: 1.2rem; } .terms li { margin: .15rem 0; }
@media (max-width: 40rem) { main { padding: 1.6rem 1rem 3rem; } h1 { font-size: 1.5rem;
  overflow-wrap: anywhere; } .findings { gap: .7rem;
  grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); }
  .findings b { font-size: 1.2rem; } dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: .5rem; overflow-wrap: anywhere; } }
"""


def summary(outcome: Outcome) -> list[tuple[str, str]]:
    """What matters, each as a figure and its meaning."""
    f, tested = outcome.forecast, outcome.tested
    items = [(_count(len(f.t), outcome.clock.unit()), f"ahead, to {when(f.t[-1])}")]
    if tested is None:
        return [*items, ("not tested", outcome.untested)]
    best = tested.methods[1]
    ratio = tested.rmse() / tested.rmse(best) if tested.rmse(best) > 0 else float("nan")
    items.append((_share(ratio), f"of the error of the best simple reference ({best})"))
    items.append((significant(tested.skill(), 2), "skill against climatology (1 is perfect)"))
    items.append(
        (_share(tested.coverage), f"of what came lay in the {_share(tested.level)} intervals")
    )
    return items


def forecast_table(outcome: Outcome) -> Table:
    """The first steps of the first series, and some of the later ones."""
    f = outcome.forecast
    H = len(f.t)
    columns = [f"{_share(f.level)} from", "forecast", "to"]
    rows = []
    for i in outcome.shown[:4]:
        mean, low, high = (x.reshape(H, -1)[:, i] for x in (f.mean, f.lower, f.upper))
        for k in _leads(H):
            cells = [Cell(significant(float(x[k]))) for x in (low, mean, high)]
            rows.append(Row(f.names[i], when(f.t[k]), cells))
    where = "forecast.nc" if outcome.is_grid else "forecast.csv"
    caption = f"All {H} steps of {_count(len(f.names), 'series')} are in {where}."
    return Table("Forecast", columns, caption, rows)


def backtest_table(outcome: Outcome) -> Table:
    """The forecaster beside the references."""
    tested = outcome.tested
    assert tested is not None
    one = bool(np.ptp(tested.scale) == 0)
    factor = float(tested.scale[0]) if one else 1.0
    errors = {m: tested.rmse(m) for m in tested.methods}
    least = min(errors.values())
    climatology = errors["climatology"] ** 2
    rows = []
    for method, error in errors.items():
        skill = 1 - error**2 / climatology if climatology > 0 else float("nan")
        cells = [
            Cell(significant(factor * error), best=error <= least),
            Cell(f"{error / errors[OURS]:.2f}" if errors[OURS] > 0 else "–"),
            Cell("" if method == "climatology" else f"{skill:+.2f}"),
        ]
        label = "this forecast" if method == OURS else method
        rows.append(Row("" if method == OURS else "reference", label, cells))
    origins, leads = len(tested.origins), tested.inside.shape[2]
    about = f"in {outcome.unit}" if outcome.unit else "in the unit of the series"
    if not one:
        about = "relative to the spread of each series"
    caption = (
        f"{_count(origins, 'forecast')} of {_count(leads, 'step')}, each made without anything "
        f"after its origin. Error: root mean square over all series and steps, {about}. Ratio: to "
        "the error of this forecast. Skill: against climatology. "
        f"{_share(tested.coverage)} of the observations lay inside the {_share(tested.level)} "
        "intervals."
    )
    return Table("Tested on the past", ["error", "ratio", "skill"], caption, rows)


def report(outcome: Outcome) -> str:
    """The whole page."""
    f, clock = outcome.forecast, outcome.clock
    lead = (
        f"{_count(len(f.names), 'series')}, {len(clock):,} times from {when(clock.stamps[0])} to "
        f"{when(clock.stamps[-1])}; forecast of {_count(len(f.t), clock.unit())}."
    )
    sections = [page.findings(summary(outcome)), _doubts(outcome), _curves(outcome)]
    if outcome.grid is not None:
        caption = f"In {outcome.unit}." if outcome.unit else "In the unit of the data."
        sections.append(
            page.section("Maps", page.picture(drawn.maps(outcome), "two maps", caption))
        )
    sections.append(page.section("The next steps", html_table(forecast_table(outcome))))
    if outcome.tested is not None:
        sections.append(
            page.section(
                "Tested on the past",
                html_table(backtest_table(outcome)),
                charts.grid(drawn.tested(outcome), "22rem"),
                drawn.past(outcome),
            )
        )
    sections += [_equations(outcome), _made(outcome)]
    return page.page(
        f"Forecast of {outcome.source}",
        lead,
        [part for part in sections if part],
        style=charts.STYLE + STYLE,
        script=charts.SCRIPT,
    )


def _doubts(outcome: Outcome) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in outcome.doubts())
    return f'<ul class="warnings">{items}</ul>' if items else ""


def _curves(outcome: Outcome) -> str:
    f = outcome.forecast
    parts = [charts.grid(drawn.curves(outcome), "26rem")]
    if len(f.names) > len(outcome.shown):
        parts.insert(0, f"<p>{len(outcome.shown)} of {len(f.names):,} series.</p>")
    if outcome.shown:
        place = outcome.shown[0]
        name = f"<b>{escape(f.names[place])}</b>"
        what = f"the logarithm of {name}" if f.log.ravel()[place] else name
        parts.append(f"<p>The forecast of {what} is the sum of these parts.</p>")
        parts.append(charts.grid(drawn.parts(outcome, place), "15rem"))
    return page.section("Forecast", *parts)


def _equations(outcome: Outcome) -> str:
    blocks = []
    for i in outcome.shown:
        equation = outcome.forecaster.equation(i)
        lines = "".join(f"<li>{escape(line)}</li>" for line in equation.lines)
        blocks.append(f'<h3>{escape(equation.name)}</h3><ul class="terms">{lines}</ul>')
    note = (
        "<p>The leading equation of each series. The forecast blends the best equation of each "
        "kind by how well they forecast the past.</p>"
    )
    return page.section("The equations", note, *blocks)


def _made(outcome: Outcome) -> str:
    seasons = ", ".join(
        f"{s.name} ({s.length:.5g} steps, {_count(s.harmonics, 'harmonic')})"
        for s in outcome.forecaster.seasons_
    )
    facts = {
        "Missing values": f"{int(np.isnan(outcome.values.array).sum()):,}",
        "Seasons": seasons or "none",
        "Decided": "; ".join(outcome.series.attrs["notes"]) or None,
        "Seconds": f"{outcome.seconds:.1f}",
    }
    return page.section(
        "How it was made",
        page.command_block(outcome.command),
        page.facts({**facts, **page.machine_facts(outcome.machine)}),
    )


def _leads(horizon: int) -> Sequence[int]:
    if horizon <= MOST_ROWS:
        return range(horizon)
    return sorted({*range(6), *np.linspace(6, horizon - 1, MOST_ROWS - 6).astype(int).tolist()})


def when(stamp: Any) -> str:
    """A time as people write it."""
    if isinstance(stamp, np.datetime64):
        text = str(stamp.astype("datetime64[s]")).replace("T", " ")
        return text.removesuffix(" 00:00:00")
    return f"{float(stamp):.10g}"


def _count(number: int, unit: str) -> str:
    """`1 week`, `26 weeks`, `3 series`."""
    if unit.startswith("step of"):
        unit = unit.replace("step", "steps" if number != 1 else "step", 1)
        return f"{number:,} {unit}"
    return f"{number:,} {unit}{'s' * (number != 1 and not unit.endswith('s'))}"


def _share(x: float) -> str:
    return f"{100 * x:.0f} %" if np.isfinite(x) else "unknown"
