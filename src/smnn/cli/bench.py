"""`smnn bench`: time the solver on this machine, beside SciPy and torchdiffeq."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from smnn.cli._guard import FAILED, RESULTS, AsJson, Debug, complain, guarded, plain, remark
from smnn.cli.reproduce.progress import progress


def bench(
    repeats: Annotated[int, typer.Option(min=1, help="Timed calls of each solver.")] = 10,
    threads: Annotated[int, typer.Option(min=1, help="Threads of every solver.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = RESULTS / "bench",
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:  # fmt: skip
    """Time the solver, SciPy and torchdiffeq in less than a minute.

    Writes bench.json. Every result is checked before it is timed.
    """
    with guarded(debug):
        from smnn._util.files import prepare_output, write_json
        from smnn.experiments.bench.run import Config, run, table, ticks
        from smnn.report.tables import rich_table

        prepare_output(out)
        config = Config(repeats=repeats, threads=threads)
        with progress(ticks(config)) as tick:
            result = run(config, tick)
        options = [f"--repeats={repeats}", f"--threads={threads}", f"--out={out}"]
        record = {"command": shlex.join(["smnn", "bench", *options]), **result.record()}
        path = write_json(out / "bench.json", record)
        if as_json:
            typer.echo(json.dumps(record, indent=2))
        else:
            console = Console(highlight=False)
            console.print(rich_table(table(result)))
            machine = result.machine
            console.print(f"{machine['processor']}, {machine['cores']} cores", soft_wrap=True)
            console.print(f"Results: {plain(str(path))}", soft_wrap=True)
        for name, reason in result.skipped.items():
            remark(f"{name} was skipped: {reason}")
        for name in result.wrong:
            complain(f"the result of {name} differs from that of the reference")
        if result.wrong:
            raise typer.Exit(FAILED)
