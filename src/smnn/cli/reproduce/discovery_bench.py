"""`smnn reproduce discovery-bench`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smnn.cli._guard import Debug, guarded
from smnn.cli.reproduce._parts import progress, show

if TYPE_CHECKING:
    from smnn.experiments.discovery_bench.run import Bench, Config

DEFAULT_OUT = Path("smnn-results") / "discovery-bench"
FILE = "discovery-bench.json"


def discovery_bench(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = DEFAULT_OUT,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not tables.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A few systems and methods.")] = False,
    systems: Annotated[
        str | None, typer.Option(help="Names or their beginnings, with commas between.")
    ] = None,
    noise: Annotated[str | None, typer.Option(help="Fractions, with commas between.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Draws of the noise.")] = None,
    methods: Annotated[str | None, typer.Option(help="Names, with commas between.")] = None,
    samples: Annotated[int | None, typer.Option(min=25, help="Samples of every series.")] = None,
    again: Annotated[
        str | None, typer.Option(help="Methods whose earlier results are not used.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Find known equations again from noisy data, with smnn and with PySINDy.

    Writes discovery-bench.json after every case, then discovery-bench.png and report.html. Started
    again with the same folder it continues where it stopped.
    """
    config = _config(quick, systems, noise, seeds, methods, samples)
    with guarded(debug):
        from smnn._util.files import prepare_output
        from smnn.experiments.discovery_bench.run import run

        prepare_output(out)
        with progress(len(config.cases()), "cases", "Preparing", width=46) as tick:
            result = run(config, out / FILE, _listed(again), tick)
        report = _write(result, out, _command(out, config, again))
        if as_json:
            typer.echo(json.dumps(result.record(), indent=2))
        else:
            _show(result, report)


def _config(
    quick: bool,
    systems: str | None,
    noise: str | None,
    seeds: int | None,
    methods: str | None,
    samples: int | None,
) -> Config:
    from dataclasses import replace

    from smnn.experiments.discovery_bench.run import Config

    config = Config.quick() if quick else Config()
    try:
        if systems is not None:
            config = replace(config, systems=_listed(systems))
        if noise is not None:
            config = replace(config, noise=tuple(float(x) for x in _listed(noise)))
        if methods is not None:
            config = replace(config, methods=_listed(methods))
        return replace(config, seeds=seeds or config.seeds, samples=samples)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(x.strip() for x in (text or "").split(",") if x.strip())


def _command(out: Path, config: Config, again: str | None) -> str:
    options = ["--out", str(out), "--systems", ",".join(config.systems)]
    options += ["--noise", ",".join(f"{x:g}" for x in config.noise), "--seeds", str(config.seeds)]
    options += ["--methods", ",".join(config.methods)]
    if config.samples is not None:
        options += ["--samples", str(config.samples)]
    if again is not None:
        options += ["--again", again]
    return shlex.join(["smnn", "reproduce", "discovery-bench", *options])


def _write(result: Bench, out: Path, command: str) -> Path:
    """All files, the report last; returns its path."""
    from smnn._util.files import write_atomically, write_json
    from smnn.experiments.discovery_bench import view

    write_json(out / FILE, {"command": command, **result.record()})
    png = view.figure(result)
    write_atomically(out / "discovery-bench.png", png)
    return write_atomically(out / "report.html", view.report(result, png, command))


def _show(result: Bench, report: Path) -> None:
    from smnn.experiments.discovery_bench import view

    record = [
        f"Hare and lynx, {method}{' (Lotka-Volterra)' if same else ''}: {'; '.join(texts)}"
        for method, texts, same in view.record_lines(result)
    ]
    show(view.tables(result)[:2], view.summary(result), report, after=record)
