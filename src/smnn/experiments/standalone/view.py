"""Tables, figure and report of the standalone experiment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from smnn.datasets.odebench import STANDALONE, Exact
from smnn.experiments import views
from smnn.experiments.standalone.run import (
    COARSE_ORDERS,
    LSODA,
    RK45,
    SCHEMES,
    SMNN,
    SOLVERS,
    Entry,
    Standalone,
    shown,
)
from smnn.report import page
from smnn.report.tables import Cell, Row, Table, best_of, html_table

QUANTITIES = ("y", "y′", "y″")
COLOURS = (views.BLUE, views.RED, views.GREEN)


def tables(result: Standalone) -> list[Table]:
    """The table of the paper, the same with a higher order, and the schemes on a coarse grid."""
    return [_paper_table(result), _native_table(result), _coarse_table(result)]


def _entries(result: Standalone, table: str, solver: str) -> list[Entry]:
    return [result.find(table, problem.key, solver) for problem in STANDALONE]


def _paper_table(result: Standalone) -> Table:
    table = Table(
        title="Setting of the paper: first-order systems, derivatives up to order 2",
        columns=[problem.key for problem in STANDALONE],
        caption="Relative MSE of y, y′ and y″ against the closed form, and median time on one "
        "thread. ✓: equal to the paper at its printed digits; the row 'paper' is its S-MNN row. "
        "–: not in the state of the solver.",
    )
    for i, quantity in enumerate(QUANTITIES):
        _add_errors(table, result, "paper", i, quantity)
        printed = [Cell(e.printed[i] or "–") for e in _entries(result, "paper", SMNN)]
        table.rows.append(Row(quantity, "paper", printed, quiet=True))
    _add_times(table, result, "paper")
    return table


def _native_table(result: Standalone) -> Table:
    orders = [Cell(str(entry.order)) for entry in _entries(result, "native", SMNN)]
    caption = (
        "Equations in their native order, with derivatives carried up to the order given. RK45 and "
        "LSODA solve the first-order system; derivatives beyond its state come from its right-hand "
        "side."
    )
    return _table(result, "native", "Native order, with order= raised", caption, orders=orders)


def _coarse_table(result: Standalone) -> Table:
    config = result.config
    caption = (
        f"Native order on a grid {config.coarse} times coarser; the schemes carry "
        f"{COARSE_ORDERS} derivatives beyond those of the equation, RK45 and LSODA have a relative "
        f"tolerance of {config.tight:g}."
    )
    title = f"Steps of {config.step * config.coarse:g}, all schemes"
    return _table(result, "coarse", title, caption, (*reversed(SCHEMES), LSODA, RK45))


def _table(
    result: Standalone, which: str, title: str, caption: str,
    solvers: tuple[str, ...] = SOLVERS, orders: Sequence[Cell] = (),
) -> Table:  # fmt: skip
    """Orders, if given, then errors and times."""
    table = Table(title, [problem.key for problem in STANDALONE], caption)
    if orders:
        table.rows.append(Row("order", SMNN, list(orders)))
    for i, quantity in enumerate(QUANTITIES):
        _add_errors(table, result, which, i, quantity, solvers)
    _add_times(table, result, which, solvers)
    return table


def _add_errors(
    table: Table, result: Standalone, which: str, i: int, group: str,
    solvers: tuple[str, ...] = SOLVERS,
) -> None:  # fmt: skip
    columns = {solver: _entries(result, which, solver) for solver in solvers}
    best = [best_of([columns[s][j].errors[i] for s in solvers]) for j in range(len(STANDALONE))]
    for solver in reversed(solvers):
        cells = []
        for entry, least in zip(columns[solver], best, strict=True):
            error = entry.errors[i]
            text = "–" if error is None else shown(error)
            cells.append(Cell(text, error is not None and error == least, entry.agrees[i]))
        table.rows.append(Row(group, solver, cells))


def _add_times(
    table: Table, result: Standalone, which: str, solvers: tuple[str, ...] = SOLVERS
) -> None:
    columns = {s: [e.timing.median for e in _entries(result, which, s)] for s in solvers}
    best = [min(columns[s][j] for s in solvers) for j in range(len(STANDALONE))]
    for solver in reversed(solvers):
        cells = [Cell(f"{ms:.2f}", ms == least) for ms, least in zip(columns[solver], best)]
        table.rows.append(Row("ms", solver, cells))


def summary(result: Standalone) -> list[tuple[str, str]]:
    """Key figures and their meaning."""
    agree = [v for e in result.paper if e.solver == SMNN for v in e.agrees if v is not None]
    worst = max(max(x for x in e.errors if x is not None) for e in _entries(result, "native", SMNN))
    ratios = []
    for problem in STANDALONE:
        times = {s: result.find("native", problem.key, s).timing.median for s in SOLVERS}
        ratios.append(min(times[RK45], times[LSODA]) / times[SMNN])
    return [
        (
            f"{sum(agree)} of {len(agree)}",
            "S-MNN errors equal those of the paper at its printed digits",
        ),
        (shown(worst), "largest relative MSE of y, y′ and y″ in native order"),
        (
            f"{min(ratios):.1f}× to {max(ratios):.1f}×",
            "the speed of the faster of RK45 and LSODA, native order, one thread",
        ),
        (_coarse_speed(result), _coarse_meaning(result)),
    ]


def _coarse_speed(result: Standalone) -> str:
    ratios = {
        solver: [
            theirs.timing.median / ours.timing.median
            for ours, theirs in zip(
                _entries(result, "coarse", "hermite"), _entries(result, "coarse", solver)
            )
        ]
        for solver in (RK45, LSODA)
    }
    return ", ".join(f"{min(x):.0f}× to {max(x):.0f}×" for x in ratios.values())


def _coarse_meaning(result: Standalone) -> str:
    ours, *theirs = (_entries(result, "coarse", s) for s in ("hermite", RK45, LSODA))
    better = sum(
        all(max(x for x in e.errors if x is not None) > max(x for x in o.errors if x is not None)
            for e in others)
        for o, *others in zip(ours, *theirs)
    )  # fmt: skip
    return (
        f"the speed of {RK45} and of {LSODA} at rtol {result.config.tight:g} on a grid "
        f"{result.config.coarse} times coarser, scheme hermite, with smaller errors in {better} of "
        f"{len(STANDALONE)} problems"
    )


def figures(result: Standalone) -> dict[str, bytes]:
    """Solutions with their derivatives on the closed forms, and their errors."""

    def draw(canvas: Any) -> None:
        from matplotlib.lines import Line2D

        for k, (panel, problem) in enumerate(zip(canvas.subfigures(2, 3).flat, STANDALONE)):
            top, low = panel.subplots(2, 1, height_ratios=(3.2, 1), sharex=True)
            _draw_panel(top, low, problem, result, k)
        handles = [
            Line2D([], [], color=colour, lw=2.6, alpha=0.55, label=f"{label}, S-MNN")
            for colour, label in zip(COLOURS, ("$y$", "$y'$", "$y''$"))
        ]
        handles.append(Line2D([], [], color="black", lw=0.9, ls=(0, (4, 3)), label="closed form"))
        canvas.legend(handles=handles, loc="outside lower center", ncols=4, columnspacing=2.5)

    return {"standalone.png": views.png((10, 6.9), draw, dpi=200)}


def _draw_panel(top: Any, low: Any, problem: Any, result: Standalone, k: int) -> None:
    config = result.config
    t = np.arange(config.n_steps) * Exact(config.step)
    truth, curves = problem.exact(t), result.curves[problem.key]
    order = result.find("native", problem.key, SMNN).order
    for i, colour in enumerate(COLOURS):
        top.plot(t, curves[:, i], color=colour, lw=2.6, alpha=0.55, solid_capstyle="butt")
        top.plot(t, truth[:, i], color="black", lw=0.9, ls=(0, (4, 3)))
        error = np.abs(curves[:, i] - truth[:, i]).astype(float)
        low.plot(t[error > 0], error[error > 0], color=colour, lw=0.8)
    top.set_title(f"{problem.name}  (order {order})", loc="left", fontweight="bold", pad=18)
    top.text(0, 1.045, f"${problem.equation}$", transform=top.transAxes, fontsize=9, color="0.3")
    top.margins(x=0)
    top.tick_params(labelbottom=False)
    low.set_yscale("log")
    low.set_ylim(1e-18, 1e-6)
    low.set_yticks([1e-16, 1e-12, 1e-8])
    low.minorticks_off()
    low.grid(axis="y", lw=0.4, color="0.85")
    low.set_xlim(0, config.n_steps * config.step)
    if k >= 3:
        low.set_xlabel("time $t$")
    if k % 3 == 0:
        top.set_ylabel("solution")
        low.set_ylabel("|error|")


def report(result: Standalone, figures: dict[str, bytes], command: str) -> str:
    """The HTML report."""
    config = result.config
    first, second, third = tables(result)
    letters = ", ".join(f"{p.key}: {p.name}" for p in STANDALONE)
    return views.report(
        "Standalone validation",
        "Six linear ODEs with known solutions, solved as least-squares problems by smnn "
        f"and by the {RK45} and LSODA methods of SciPy.",
        summary(result),
        [
            page.section(first.title, html_table(first), f'<p class="caption">{letters}.</p>'),
            views.table_section(second),
            views.table_section(third),
            page.section(
                "Trajectories",
                page.picture(
                    figures["standalone.png"],
                    "Six panels with y, y' and y'' of each problem on the closed form",
                    "Solutions in native order with their first two derivatives (colour) on the "
                    "closed form (dashed), and the absolute errors below.",
                ),
            ),
        ],
        command=command,
        setup={
            "Grid": f"{config.n_steps} times, step {config.step}",
            "Arithmetic": "float64; closed forms in the widest float of the platform",
            "RK45, LSODA": f"scipy.integrate.solve_ivp, rtol {config.rtol:g}, atol "
            f"{config.atol:g}, first step {config.first_step:g}",
            "Relative MSE": "mean squared error over the variance of the closed form",
            "Timing": f"median of {config.repeats} calls, taken in turns after warming up",
        },
        machine=result.machine,
    )
