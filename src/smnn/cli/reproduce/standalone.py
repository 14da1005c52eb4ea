"""`smnn reproduce standalone`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smnn.cli._guard import Debug, guarded
from smnn.cli.reproduce._parts import progress, show

if TYPE_CHECKING:
    from smnn.experiments.standalone.run import Standalone

DEFAULT_OUT = Path("smnn-results") / "standalone"


def standalone(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = DEFAULT_OUT,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not tables.")] = False,
    repeats: Annotated[int, typer.Option(min=1, help="Timed calls of each solver.")] = 50,
    debug: Debug = False,
) -> None:
    """Solve six linear ODEs and compare with closed forms, RK45 and LSODA.

    Writes standalone.json, standalone.png and report.html into the folder.
    """
    with guarded(debug):
        from smnn._util.files import prepare_output
        from smnn.datasets.odebench import STANDALONE
        from smnn.experiments.standalone.run import Config, run

        prepare_output(out)
        with progress(
            len(STANDALONE) * repeats, "rounds", "Preparing the solver", "Solved"
        ) as tick:
            result = run(Config(repeats=repeats), tick)
        options = ["--out", str(out), "--repeats", str(repeats)]
        report = _write(result, out, shlex.join(["smnn", "reproduce", "standalone", *options]))
        if as_json:
            typer.echo(json.dumps(result.record(), indent=2))
        else:
            _show(result, report)


def _write(result: Standalone, out: Path, command: str) -> Path:
    """All files, the report last; returns its path."""
    from smnn._util.files import write_atomically, write_json
    from smnn.experiments.standalone import view

    write_json(out / "standalone.json", {"command": command, **result.record()})
    png = view.figure(result)
    write_atomically(out / "standalone.png", png)
    return write_atomically(out / "report.html", view.report(result, png, command))


def _show(result: Standalone, report: Path) -> None:
    from smnn.experiments.standalone import view

    show(view.tables(result), view.summary(result), report)
