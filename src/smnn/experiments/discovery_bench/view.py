"""Tables, figure and report of the discovery benchmark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from smnn.datasets.dynamics import HARE_LYNX
from smnn.experiments import views
from smnn.experiments.discovery_bench.run import Bench, Case
from smnn.report import page
from smnn.report.tables import Cell, Row, Table

COLOURS = (views.BLUE, views.SKY, views.GREY, views.PINK, views.AMBER, views.YELLOW, views.RED,
           views.GREEN, views.BLACK)  # fmt: skip
TUNED, HINDSIGHT = "as tuned", "in hindsight"
ORACLE = "threshold, smoothing and test functions chosen with knowledge of the true equations"


def tables(bench: Bench) -> list[Table]:
    """Rates of exact recovery, coefficient errors and times; then every system."""
    return [_shares(bench), _errors(bench), _systems(bench)]


def terminal_tables(bench: Bench) -> list[Table]:
    """The tables that fit a terminal."""
    return tables(bench)[:2]


def _percent(noise: float) -> str:
    return f"{100 * noise:g} %"


def _columns(bench: Bench) -> list[str]:
    return [_percent(x) for x in bench.config.noise]


def _shares(bench: Bench) -> Table:
    config = bench.config
    table = Table(
        title="Equations with exactly the right terms, share of cases by noise",
        columns=_columns(bench),
        caption=f"{len(config.systems)} systems, {config.seeds} noise realizations. Noise: "
        "standard deviation relative to that of each variable. As tuned: without knowledge of the "
        f"true equations. In hindsight: {ORACLE}.",
    )
    _add_rows(table, bench, bench.share, lambda x: f"{100 * x:.0f} %", max)
    return table


def _add_rows(
    table: Table, bench: Bench, figure: Callable[..., float | None], text: Callable[[float], str],
    best: Callable[..., float], last: Callable[[str], str] | None = None,
) -> None:  # fmt: skip
    """Figures by method and noise, the best of each noise marked, and a last cell by method."""
    chosen = [m for m in bench.config.methods if _had_a_choice(bench, m)]
    for hindsight, methods in ((False, list(bench.config.methods)), (True, chosen)):
        values = {m: [figure(m, x, hindsight) for x in bench.config.noise] for m in methods}
        known = [[x for x in column if x is not None] for column in zip(*values.values())]
        for m in methods:
            cells = [
                Cell(
                    "–" if x is None else text(x), not hindsight and x is not None and x == best(k)
                )
                for x, k in zip(values[m], known)
            ]
            cells += [] if last is None else [Cell("" if hindsight else last(m))]
            table.rows.append(Row(HINDSIGHT if hindsight else TUNED, m, cells, quiet=hindsight))


def _had_a_choice(bench: Bench, method: str) -> bool:
    return any(c.hindsight is not None for c in bench.select(method))


def _errors(bench: Bench) -> Table:
    table = Table(
        title="Largest relative error of a true coefficient, median by noise, and time",
        columns=[*_columns(bench), "s"],
        caption="A missing term counts as 1. s: median processor time of a fit including tuning, "
        "on one thread.",
    )

    def seconds(method: str) -> str:
        found = bench.seconds(method)
        return "" if found is None else f"{found:.2g}"

    _add_rows(table, bench, bench.error, lambda x: f"{x:.1e}", min, seconds)
    return table


def _systems(bench: Bench) -> Table:
    table = Table(
        title="Every system: cases with exactly the right terms, over all noise levels",
        columns=[m.removeprefix("pysindy-") for m in bench.config.methods],
        caption="Out of all cases of the system. Columns without smnn are variants of PySINDy. "
        "Systems named '(positions)' or '(angles)' are observed without their derivatives.",
    )
    for name in bench.config.systems:
        counts = {}
        for m in bench.config.methods:
            cases = [c for c in bench.select(m) if c.system == name]
            counts[m] = sum(_exact(c) for c in cases), len(cases)
        most = max(n for n, _ in counts.values())
        cells = [Cell(f"{n}/{all_}", n == most and n > 0) for n, all_ in counts.values()]
        system = bench.config.find(name)
        table.rows.append(Row(name, f"{len(system.terms)} terms", cells))
    return table


def _exact(case: Case) -> bool:
    return bool(case.score and case.score["exact"])


def hare_lynx(bench: Bench) -> list[tuple[str, list[str], bool]]:
    """Each method's equations for the hare and lynx data, and whether they are Lotka-Volterra's."""
    lines = []
    for case in bench.cases:
        if case.system != HARE_LYNX.name:
            continue
        if case.error is not None:
            lines.append((case.method, [case.error], False))
            continue
        same = all(
            set(case.coefficients.get(t, {})) == set(HARE_LYNX.expected[t])
            for t in HARE_LYNX.targets
        )
        texts = [f"{t} = {_equation(case.coefficients.get(t, {}))}" for t in HARE_LYNX.targets]
        lines.append((case.method, texts, same))
    return lines


def _equation(terms: dict[str, float]) -> str:
    if not terms:
        return "0"
    parts = [f"{a:+.3g}" + ("" if name == "1" else f" {name}") for name, a in terms.items()]
    return " ".join(parts).removeprefix("+")


def notes(bench: Bench) -> list[str]:
    """Equations for the hare and lynx data."""
    return [
        f"Hare and lynx, {method}{' (Lotka-Volterra)' if same else ''}: {'; '.join(texts)}"
        for method, texts, same in hare_lynx(bench)
    ]


def summary(bench: Bench) -> list[tuple[str, str]]:
    """Key figures and their meaning."""
    config = bench.config
    found = []
    others = [m for m in config.methods if not m.startswith("smnn")]
    if "smnn" in config.methods:
        for x in config.noise:
            ours = bench.share("smnn", x)
            peers = [s for m in others if (s := bench.share(m, x)) is not None]
            if ours is None:
                continue
            meaning = f"of the systems recovered exactly at {_percent(x)} noise"
            if peers:
                meaning += f"; PySINDy at best {100 * max(peers):.0f} %"
            found.append((f"{100 * ours:.0f} %", meaning))
    return found


def figures(bench: Bench) -> dict[str, bytes]:
    """Rates of exact recovery against noise, and by system."""

    def draw(canvas: Any) -> None:
        from matplotlib import colormaps

        left, right = canvas.subplots(1, 2, width_ratios=(1, 1.15))
        _draw_shares(left, bench)
        _draw_systems(right, bench, colormaps["Blues"])

    size = 11, 2.2 + 0.22 * max(len(bench.config.systems), 10)
    return {f"{bench.config.experiment}.png": views.png(size, draw, dpi=200)}


def _draw_shares(axes: Any, bench: Bench) -> None:
    ticks = list(range(len(bench.config.noise)))
    for k, m in enumerate(bench.config.methods):
        colour, ours = COLOURS[k % len(COLOURS)], m.startswith("smnn")
        # Shifted horizontally, so that coinciding curves remain visible.
        noise = [x + 0.03 * (k - (len(bench.config.methods) - 1) / 2) for x in ticks]
        shares = [100 * (bench.share(m, x) or 0.0) for x in bench.config.noise]
        axes.plot(noise, shares, "-o", color=colour, lw=2.6 if ours else 1.4, ms=5 if ours else 3.5,
                  label=m, zorder=3 if ours else 2)  # fmt: skip
        if _had_a_choice(bench, m):
            best = [100 * (bench.share(m, x, True) or 0.0) for x in bench.config.noise]
            axes.plot(noise, best, ":", color=colour, lw=1.1)
    axes.set_xticks(ticks, _columns(bench))
    axes.set_ylim(-2, 103)
    axes.set_xlabel("noise (dotted: best choice in hindsight)")
    axes.set_ylabel("cases with exactly the right terms, %")
    axes.grid(axis="y", lw=0.4, color="0.85")
    views.title(axes, "Equations found")
    axes.legend(loc="lower left", fontsize=9)


def _draw_systems(axes: Any, bench: Bench, colours: Any) -> None:
    methods, systems = bench.config.methods, bench.config.systems
    for i, name in enumerate(systems):
        for j, m in enumerate(methods):
            cases = [c for c in bench.select(m) if c.system == name]
            share = sum(_exact(c) for c in cases) / len(cases) if cases else 0.0
            axes.add_patch(_box(j, i, colours(0.06 + 0.74 * share)))
            axes.text(j + 0.5, i + 0.5, f"{100 * share:.0f}", ha="center", va="center",
                      fontsize=8, color="white" if share > 0.6 else "0.25")  # fmt: skip
    axes.set_xlim(0, len(methods))
    axes.set_ylim(len(systems), 0)
    axes.set_xticks([j + 0.5 for j in range(len(methods))], methods, rotation=45, ha="right")
    axes.set_yticks([i + 0.5 for i in range(len(systems))], systems, fontsize=9)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    views.title(axes, "Share of the cases of each system, %")


def _box(x: float, y: float, colour: Any) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x + 0.03, y + 0.04), 0.94, 0.92, facecolor=colour, lw=0)


def report(
    bench: Bench, figures: dict[str, bytes], command: str, more: Sequence[Table] = ()
) -> str:
    """The HTML report, with more tables at the beginning."""
    config = bench.config
    failures = [c for c in bench.cases if c.error is not None]
    systems = {
        s.name: f"{', '.join(s.targets)}; {len(s.terms)} candidate terms; "
        f"{len(s.starts)} × {config.samples or s.n} samples, {s.dt:g} apart; {s.reference}"
        for s in map(config.find, config.systems)
    }
    first, second, third = (views.table_section(table) for table in tables(bench))
    picture = page.picture(
        figures[f"{config.experiment}.png"],
        "Shares of exactly found equations against noise, and by system and method",
        "Left: share of cases with exactly the right terms; dotted lines are the best choice in "
        "hindsight. Right: the same by system, over all noise levels.",
    )
    sections = [
        *map(views.table_section, more), first, second,
        page.section("By noise and system", picture), third,
    ]  # fmt: skip
    rows = "".join(
        f"<dt>{escape(method)}{' ✓' if same else ''}</dt><dd>{'<br>'.join(map(escape, texts))}</dd>"
        for method, texts, same in hare_lynx(bench)
    )
    if rows:
        note = (
            f"<p>{escape(HARE_LYNX.reference)}. The true equations are unknown; ✓ marks the form "
            "of Lotka and Volterra. Not included above.</p>"
        )
        sections.append(
            page.section("Measured data: hares and lynxes, 1900 to 1920", note, f"<dl>{rows}</dl>")
        )
    sections.append(page.section("Systems", page.facts(systems)))
    return views.report(
        config.title,
        "Dynamical systems with known equations, measured with noise: which methods return exactly "
        "their terms.",
        summary(bench),
        sections,
        command=command,
        setup={
            "Data": "integrated to 1e-12 between samples; normal noise, its standard deviation a "
            "fraction of that of each variable",
            "smnn": "smnn.discovery.Discovery with default settings, given the library and the "
            "order",
            "PySINDy": "same series and same candidate terms. Threshold per equation by an "
            "information criterion, smoothing window or width of the test functions by short "
            "simulations: of the criteria tried, the ones most favourable to PySINDy. "
            "pysindy-default is untuned.",
            "Higher order": "only positions are given; for PySINDy the lower derivatives come from "
            "its own differentiation",
            "In hindsight": ORACLE,
            "Failures": f"{len(failures)} of {len(bench.cases)} cases" if failures else None,
        },
        machine=bench.machine,
    )
