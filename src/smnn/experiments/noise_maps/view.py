"""Tables and report: shares of exact equations by noise and length."""

from __future__ import annotations

from smnn.experiments.discovery_bench import view
from smnn.experiments.discovery_bench.run import Bench
from smnn.experiments.discovery_bench.view import figures as figures
from smnn.experiments.discovery_bench.view import summary as summary
from smnn.experiments.noise_maps.run import Config
from smnn.report.tables import Cell, Row, Table


def terminal_tables(bench: Bench) -> list[Table]:
    """A map for every method."""
    config = bench.config
    assert isinstance(config, Config)
    return [_map(bench, config, method) for method in config.methods]


def _map(bench: Bench, config: Config, method: str) -> Table:
    table = Table(
        f"Exact equations by noise and length: {method}",
        [f"{100 * x:g} %" for x in config.noise],
        f"Per cent of {config.seeds} noise realizations with exactly the right terms.",
    )
    for name in config.systems:
        for n in config.samples_of(name):
            cells = []
            for x in config.noise:
                mine = [c for c in bench.select(method, x) if (c.system, c.samples) == (name, n)]
                exact = sum(bool((c.score or {}).get("exact")) for c in mine)
                cells.append(Cell(f"{100 * exact / len(mine):.0f}" if mine else "–"))
            table.rows.append(Row(name, f"{n * config.find(name).dt:g} time units", cells))
    return table


def tables(bench: Bench) -> list[Table]:
    """The maps, then shares, errors and systems."""
    return [*terminal_tables(bench), *view.tables(bench)]


def report(bench: Bench, figures: dict[str, bytes], command: str) -> str:
    """The HTML report."""
    return view.report(bench, figures, command, terminal_tables(bench))
