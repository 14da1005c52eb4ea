"""Tables, figures and report of the SST experiment."""

from __future__ import annotations

from typing import Any

import numpy as np

from smnn.experiments import views
from smnn.experiments.sst import maps as draw
from smnn.experiments.sst.references import (
    CLIMATOLOGY,
    COUPLED,
    DAMPED,
    MODES,
    OURS,
    REFERENCES,
    TREND,
)
from smnn.experiments.sst.run import DRAWN, HISTORY, PEEK, Result
from smnn.report import page
from smnn.report.tables import Cell, Row, Table, best_of

COLUMNS = ("MSE", "year 1", "/clim.", "year 1", "RMSE", "corr.")
KEYS = (
    "relative_mse", "relative_mse_first_year", "of_climatology", "of_climatology_first_year",
    "rmse", "anomaly_correlation",
)  # fmt: skip
COLOURS = {
    CLIMATOLOGY: "0.6", TREND: views.AMBER, DAMPED: views.RED, COUPLED: views.BLUE,
    MODES: views.SKY,
}  # fmt: skip


def _cells(scores: list[dict[str, Any]], best: dict[str, float]) -> list[Cell]:
    """Means over seeds."""
    cells = []
    for key in KEYS:
        values = [s[key] for s in scores]
        mean = float(np.mean(values))
        text = f"{1000 * mean:.3f}" if key.startswith("relative") else f"{mean:.3f}"
        cells.append(Cell(text, len(values) == 1 and values[0] == best.get(key)))
    return cells


def _best(result: Result, names: tuple[str, ...]) -> dict[str, float]:
    out: dict[str, float] = {}
    for key in KEYS:
        values = [result.scores(name)[key] for name in names]
        found = max(values) if key == "anomaly_correlation" else best_of(values)
        assert found is not None
        out[key] = found
    return out


def tables(result: Result) -> list[Table]:
    """The last hold-out by both protocols, and all hold-outs."""
    return [_main(result), _peeking(result), _holdouts(result)]


def _main(result: Result) -> Table:
    last = result.holdouts[0]
    seeds = result.config.seeds
    table = Table(
        title=f"{result.horizon} {result.unit}s to {last['target_ends']}, from the history only",
        columns=COLUMNS,
        caption="MSE: thousandths of the variance of the history, most of which is spatial. "
        "/clim.: squared error over that of climatology; values below 1 indicate skill. RMSE (°C) "
        "and anomaly correlation are weighted by area. year 1: the first 12 months. Rows 'smnn' "
        "use no network; 'coupled' assumes linear trends, fixed seasons and linear dynamics of "
        f"anomalies. Networks: mean over {seeds} seed{'s' if seeds > 1 else ''}.",
    )
    present = tuple(n for n in (*REFERENCES, *OURS) if n in last["scores"])
    best = _best(result, present)
    for name in present:
        group = "simple" if name in REFERENCES else "smnn"
        table.rows.append(Row(group, name, _cells([result.scores(name)], best)))
    for name, entries in result.of_networks(HISTORY).items():
        table.rows.append(Row("network", name, _cells([e["scores"] for e in entries], {})))
    return table


def _peeking(result: Result) -> Table:
    given = result.config.given
    table = Table(
        title=f"The same, first {given} {result.unit}s of the target given (the paper's protocol)",
        columns=COLUMNS,
        caption="Temperatures as in the paper, not anomalies. 'all': the given steps are scored "
        f"too, as in the paper; 'after': only those from {given + 1} on. 'as published': a quarter "
        "of the cosine transform, alignment weight 10, order 2, free coefficients and steps; "
        "trained as the others. Mean over seeds.",
    )
    found = result.of_networks(PEEK)
    for group, key in (("all", "scores"), ("after", "scores_after_given")):
        for name, entries in found.items():
            cells = _cells([e[key] for e in entries], {})
            table.rows.append(Row(group, name.removesuffix(", temperatures"), cells))
    return table


def _holdouts(result: Result) -> Table:
    names = [n for n in (CLIMATOLOGY, TREND, DAMPED, *OURS) if n in result.holdouts[0]["scores"]]
    table = Table(
        title="Other hold-outs, history only",
        columns=["MSE", "year 1", "/best", "year 1"],
        caption="MSE in thousandths. Every hold-out is forecast from its past. /best: error over "
        "that of the best reference. The constants of 'coupled' were chosen on origins whose "
        "targets end before the latest hold-out, so they depend on the earlier ones.",
    )
    for hold_out in result.holdouts:
        scores = hold_out["scores"]
        least = {k: min(scores[n][k] for n in REFERENCES) for k in KEYS[:2]}
        for name in names:
            own = scores[name]
            table.rows.append(
                Row(
                    hold_out["target_ends"],
                    name,
                    [Cell(f"{1000 * own[k]:.3f}") for k in KEYS[:2]]
                    + [Cell(f"{own[k] / least[k]:.3f}") for k in KEYS[:2]],
                    quiet=name in REFERENCES,
                )
            )
    return table


def summary(result: Result) -> list[tuple[str, str]]:
    """Key figures and their meaning."""
    ours, best = result.scores(COUPLED), result.best_reference()
    found = [
        (
            f"{ours['relative_mse']:.5f}",
            "relative MSE of the coupled forecast (no network), history only",
        ),
        (f"{result.scores(best)['relative_mse']:.5f}", f"the best reference ({best})"),
        (
            f"{ours['of_climatology_first_year']:.2f}",
            "of climatology's squared error in the first 12 months (damped persistence: "
            f"{result.scores(DAMPED)['of_climatology_first_year']:.2f})",
        ),
    ]
    for name, entries in result.of_networks(HISTORY).items():
        values = [e["scores"]["relative_mse"] for e in entries]
        found.append((f"{np.mean(values):.5f}", f"network: {name}, mean over the seeds"))
    return found


def figures(result: Result) -> dict[str, bytes]:
    """Maps of forecasts and their skill; scores by lead time."""
    return {
        "sst.png": _forecast(result), "sst-skill.png": _skill(result),
        "sst-leads.png": _leads(result),
    }  # fmt: skip


def _forecast(result: Result) -> bytes:
    """Forecast, error and error over all times of `coupled` and of the network of the paper."""
    truth, month = result.scorer.truth[-1], str(result.grid.time[-1])[:7]
    H, unit, given = result.horizon, result.unit, result.config.given
    found = []
    for name, title in (
        (COUPLED, "coupled (no network)"), (DRAWN.name, f"identifier, {given} {unit}s given"),
    ):  # fmt: skip
        ours = result.forecasts[name]
        rmse = result.scorer.rmse_map(ours)
        found.append(
            (
                draw.Map(ours[-1], f"{title}, {month}", "°C", "turbo", -2, 32),
                draw.Map(ours[-1] - truth, "Minus observed, that month", "°C", "RdBu_r", -3, 3),
                draw.Map(rmse, f"Root mean square error, all {H} {unit}s", "°C", "magma_r", 0, 1.5),
            )
        )
    return draw.maps(result.grid, [one for row in zip(*found) for one in row])


def _skill(result: Result) -> bytes:
    found = [
        draw.Map(result.scorer.skill_map(result.forecasts[name]), title,
                 "1 − MSE / MSE of climatology", "RdBu", -1, 1)
        for name, title in ((COUPLED, "Skill of the coupled forecast"),
                            (DAMPED, "Skill of trend + season with damped anomaly"))
    ]  # fmt: skip
    return draw.maps(result.grid, found)


def _leads(result: Result) -> bytes:
    lines = []
    for key, title, label in (
        ("rmse_by_lead", "Error", "RMSE, °C (weighted by area)"),
        ("of_climatology_by_lead", "Against climatology", "squared error / that of climatology"),
        ("anomaly_correlation_by_lead", "Pattern", "anomaly correlation"),
    ):
        own = [
            draw.Curve(n, result.scores(n)[key], COLOURS[n], width=2.2 if n == COUPLED else 1.2)
            for n in (CLIMATOLOGY, TREND, DAMPED, MODES, COUPLED)
        ]
        for name, entries in result.of_networks(HISTORY).items():
            if "gvae" in name or name.startswith("identifier"):
                mean = np.mean([e["scores"][key] for e in entries], axis=0).tolist()
                colour = views.PINK if "gvae" in name else views.GREEN
                own.append(draw.Curve(name, mean, colour, "--", 1.2))
        lines.append((title, label, own))
    return draw.curves(lines, result.unit, result.scorer.year)


def report(result: Result, figures: dict[str, bytes], command: str) -> str:
    """The HTML report."""
    main, peeking, holdouts = (views.table_section(table) for table in tables(result))
    forecast = page.section(
        "The forecast",
        page.picture(
            figures["sst.png"], "Maps of forecast, observation and error",
            "coupled uses the history only; the identifier, as in the paper, is given the first "
            "steps of the target. Grey is land, ice or cells with missing values.",
        ),
        page.picture(
            figures["sst-skill.png"], "Maps of skill against climatology",
            "Blue: better than climatology over all steps; red: worse.",
        ),
        page.picture(
            figures["sst-leads.png"], "Error, skill and correlation by lead time",
            "From the history only. Networks: mean over the seeds.",
        ),
    )  # fmt: skip
    config, grid = result.config, result.grid
    seeds = range(config.seed, config.seed + config.seeds)
    return views.report(
        "Sea surface temperature",
        f"Forecasts of {result.horizon} {result.unit}s from past data, compared with simple "
        "reference forecasts and with the networks of the paper under both protocols.",
        summary(result),
        [main, forecast, holdouts, peeking],
        command=command,
        setup={
            "Data": f"{grid.source or 'custom grid'}; {int(grid.ocean.sum())} cells without "
            f"missing values, {str(grid.time[0])[:7]} to {str(grid.time[-1])[:7]}",
            "Mask": config.mask or "none: cells with a value at every time, which may include land",
            "Standardization": "by the history before each hold-out",
            "Networks": f"{config.scale} scale, {config.steps} steps, seeds "
            f"{', '.join(map(str, seeds))}, {config.device}",
            "Time": f"{result.seconds:.0f} s",
        },
        machine=result.machine,
    )
