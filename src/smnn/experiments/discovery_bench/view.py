"""The discovery benchmark shown: tables, figure and report."""

from __future__ import annotations

import io
from typing import Any

from smnn._util.optional import require
from smnn.datasets.dynamics import HARE_LYNX, find_system
from smnn.experiments.discovery_bench.run import Bench, Case
from smnn.report import page as _page
from smnn.report.tables import Cell, Row, Table, best_of, html_table

# Colours that stay apart for colour-blind readers and in print (Okabe and Ito).
COLOURS = ("#0072B2", "#56B4E9", "#999999", "#CC79A7", "#E69F00", "#F0E442", "#D55E00",
           "#009E73", "#000000")  # fmt: skip
TUNED, HINDSIGHT = "as tuned", "in hindsight"
SUMMED_UP = "threshold, smoothing and test functions chosen with the right answer known"


def tables(bench: Bench) -> list[Table]:
    """Shares of right answers, coefficient errors and times; then every system."""
    return [_shares(bench), _errors(bench), _systems(bench)]


def _percent(noise: float) -> str:
    return f"{100 * noise:g} %"


def _columns(bench: Bench) -> list[str]:
    return [_percent(x) for x in bench.config.noise]


def _shares(bench: Bench) -> Table:
    config = bench.config
    table = Table(
        title="Equations with exactly the right terms, share of cases by noise",
        columns=_columns(bench),
        caption=f"{len(config.systems)} systems, draws of the noise: {config.seeds}. Noise is the "
        "standard deviation that is added, over that of each variable. As tuned: without knowing "
        f"the answer. In hindsight: {SUMMED_UP}.",
    )
    for hindsight, group in ((False, TUNED), (True, HINDSIGHT)):
        methods = [m for m in config.methods if not hindsight or _had_a_choice(bench, m)]
        values = {m: [bench.share(m, x, hindsight) for x in config.noise] for m in methods}
        for m in methods:
            cells = []
            for k, share in enumerate(values[m]):
                most = max((v[k] or 0.0) for v in values.values())
                text = "–" if share is None else f"{100 * share:.0f} %"
                cells.append(Cell(text, not hindsight and share == most))
            table.rows.append(Row(group, m, cells, quiet=hindsight))
    return table


def _had_a_choice(bench: Bench, method: str) -> bool:
    return any(c.hindsight is not None for c in bench.select(method))


def _errors(bench: Bench) -> Table:
    config = bench.config
    table = Table(
        title="Largest relative error of a true coefficient, median by noise, and time",
        columns=[*_columns(bench), "s"],
        caption="A missing term counts as 1. Time is the median processor time of a fit with "
        "all of its tuning, on one thread.",
    )
    for hindsight, group in ((False, TUNED), (True, HINDSIGHT)):
        methods = [m for m in config.methods if not hindsight or _had_a_choice(bench, m)]
        values = {m: [bench.error(m, x, hindsight) for x in config.noise] for m in methods}
        for m in methods:
            cells = []
            for k, error in enumerate(values[m]):
                least = best_of([v[k] for v in values.values()])
                text = "–" if error is None else f"{error:.1e}"
                cells.append(Cell(text, not hindsight and error is not None and error == least))
            seconds = bench.seconds(m)
            cells.append(Cell("" if hindsight or seconds is None else f"{seconds:.2g}"))
            table.rows.append(Row(group, m, cells, quiet=hindsight))
    return table


def _systems(bench: Bench) -> Table:
    table = Table(
        title="Every system: cases with exactly the right terms, over all noise levels",
        columns=[m.removeprefix("pysindy-") for m in bench.config.methods],
        caption="Of all cases of the system; columns without smnn are variants of PySINDy. Only "
        "positions are measured where the name says so.",
    )
    for name in bench.config.systems:
        counts = {}
        for m in bench.config.methods:
            cases = [c for c in bench.select(m) if c.system == name]
            counts[m] = sum(_exact(c) for c in cases), len(cases)
        most = max(n for n, _ in counts.values())
        cells = [Cell(f"{n}/{all_}", n == most and n > 0) for n, all_ in counts.values()]
        system = find_system(name)
        table.rows.append(Row(name, f"{len(system.terms)} terms", cells))
    return table


def _exact(case: Case) -> bool:
    return bool(case.score and case.score["exact"])


def record_lines(bench: Bench) -> list[tuple[str, list[str], bool]]:
    """What each method made of the hare and lynx record, and whether it is the textbook's form."""
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


def summary(bench: Bench) -> list[tuple[str, str]]:
    """What the tables say, each as a figure and its meaning."""
    config = bench.config
    found = []
    others = [m for m in config.methods if not m.startswith("smnn")]
    if "smnn" in config.methods:
        for x in config.noise:
            ours = bench.share("smnn", x)
            rivals = [s for m in others if (s := bench.share(m, x)) is not None]
            if ours is None:
                continue
            meaning = f"of the systems come back exactly from {_percent(x)} noise"
            if rivals:
                meaning += f"; PySINDy at best {100 * max(rivals):.0f} %"
            found.append((f"{100 * ours:.0f} %", meaning))
    return found


def figure(bench: Bench) -> bytes:
    """Shares of right answers over noise, and which systems they are, as PNG."""
    require("matplotlib", "draw the figure")
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "font.family": "serif", "font.serif": ["STIXGeneral", "DejaVu Serif"],
        "mathtext.fontset": "stix", "font.size": 10, "axes.titlesize": 11, "axes.linewidth": 0.7,
        "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
    }  # fmt: skip
    with mpl.rc_context(style):
        height = 2.2 + 0.22 * max(len(bench.config.systems), 10)
        canvas = Figure(figsize=(11, height), dpi=200)
        FigureCanvasAgg(canvas)
        left, right = canvas.subplots(1, 2, width_ratios=(1, 1.15))
        _draw_shares(left, bench)
        _draw_systems(right, bench, mpl.colormaps["Blues"])
        canvas.tight_layout(w_pad=2.5)
        file = io.BytesIO()
        canvas.savefig(file, format="png")
    return file.getvalue()


def _draw_shares(axes: Any, bench: Bench) -> None:
    ticks = list(range(len(bench.config.noise)))
    for k, m in enumerate(bench.config.methods):
        colour, ours = COLOURS[k % len(COLOURS)], m.startswith("smnn")
        # Side by side, so that curves that coincide can be told apart.
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
    axes.set_title("Equations found", loc="left", fontweight="bold")
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
    axes.set_title("Share of the cases of each system, %", loc="left", fontweight="bold")


def _box(x: float, y: float, colour: Any) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x + 0.03, y + 0.04), 0.94, 0.92, facecolor=colour, lw=0)


def report(bench: Bench, png: bytes, command: str) -> str:
    """The whole benchmark as one HTML page."""
    from html import escape

    config = bench.config
    failures = [c for c in bench.cases if c.error is not None]
    rows = "".join(
        f"<dt>{escape(method)}{' ✓' if same else ''}</dt><dd>{'<br>'.join(map(escape, texts))}</dd>"
        for method, texts, same in record_lines(bench)
    )
    systems = {
        s.name: f"{', '.join(s.targets)}; {len(s.terms)} candidate terms; "
        f"{len(s.starts)} × {config.samples or s.n} samples, {s.dt:g} apart; {s.reference}"
        for s in map(find_system, config.systems)
    }
    how = {
        "Data": "integrated to 1e-12 between samples; normal noise, its standard deviation a "
        "fraction of that of each variable",
        "smnn": "smnn.discovery.Discovery as it comes, with the library and the order only",
        "PySINDy": "same series and same candidate terms. Threshold per equation by an information "
        "criterion, smoothing window or width of the test functions by short simulations: of the "
        "criteria tried those that gave it most right answers. pysindy-default is untuned.",
        "Higher order": "only positions are given; for PySINDy the lower derivatives come from its "
        "own differentiation",
        "In hindsight": SUMMED_UP,
        "Failures": f"{len(failures)} of {len(bench.cases)} cases" if failures else None,
    }
    parts = [_page.findings(summary(bench))]
    for table in tables(bench):
        parts.append(_page.section(table.title, html_table(table)))
    parts.insert(
        3,
        _page.section(
            "Over noise and systems",
            _page.picture(
                png, "Shares of exactly found equations over noise, and by system and method",
                "Left: share of cases with exactly the right terms; dotted lines are the best "
                "choice in hindsight. Right: the same by system, over all noise levels.",
            ),
        ),
    )  # fmt: skip
    if rows:
        parts.append(
            _page.section(
                "A real record: hares and lynxes, 1900 to 1920",
                f"<p>{escape(HARE_LYNX.reference)}. Nobody knows the true equations; ✓ marks the "
                "form of Lotka and Volterra. Not counted above.</p>",
                f"<dl>{rows}</dl>",
            )
        )
    parts += [
        _page.section("How it was made", _page.command_block(command), _page.facts(how)),
        _page.section("Systems", _page.facts(systems)),
        _page.section("Machine", _page.facts(_page.machine_facts(bench.machine))),
    ]
    return _page.page(
        "Finding equations again",
        "Dynamical systems with known equations, measured with noise: which methods return exactly "
        "their terms.",
        parts,
    )
