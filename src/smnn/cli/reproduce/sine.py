"""`smnn reproduce sine`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smnn.cli._guard import Debug, guarded
from smnn.cli.reproduce._parts import progress, show

if TYPE_CHECKING:
    from smnn.experiments.sine.run import Sine

DEFAULT_OUT = Path("smnn-results") / "sine"


def sine(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = DEFAULT_OUT,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not tables.")] = False,
    recordings: Annotated[int, typer.Option(min=2, help="Noisy recordings.")] = 16,
    noise: Annotated[float, typer.Option(min=0.01, help="Noise over amplitude.")] = 0.5,
    steps: Annotated[int, typer.Option(min=10, help="Steps of the optimiser.")] = 400,
    seed: Annotated[int, typer.Option(min=0, help="Decides the noise.")] = 0,
    debug: Debug = False,
) -> None:
    """Fit noisy damped sines by a second-order ODE with free coefficients and steps.

    Writes sine.json, sine.png, sine.gif and report.html into the folder.
    """
    with guarded(debug):
        from smnn._util.files import prepare_output
        from smnn.experiments.sine.run import Config, run

        prepare_output(out)
        config = Config(recordings=recordings, noise=noise, steps=steps, seed=seed)
        with progress(2 * steps, "steps", "Preparing the solver", "Fitted") as tick:
            result = run(config, tick)
        options = ["--out", str(out), "--recordings", str(recordings), "--noise", str(noise)]
        options += ["--steps", str(steps), "--seed", str(seed)]
        report = _write(result, out, shlex.join(["smnn", "reproduce", "sine", *options]))
        if as_json:
            typer.echo(json.dumps(result.record(), indent=2))
        else:
            _show(result, report)


def _write(result: Sine, out: Path, command: str) -> Path:
    """All files, the report last; returns its path."""
    from smnn._util.files import write_atomically, write_json
    from smnn.experiments.sine import view

    write_json(out / "sine.json", {"command": command, **result.record()})
    png, gif = view.figure(result), view.animation(result)
    write_atomically(out / "sine.png", png)
    write_atomically(out / "sine.gif", gif)
    return write_atomically(out / "report.html", view.report(result, png, gif, command))


def _show(result: Sine, report: Path) -> None:
    from smnn.experiments.sine import view

    fits = (("An equation each", result.own), ("One for all", result.shared))
    before = [f"{name:18s}{fit.equation}" for name, fit in fits]
    show([view.table(result)], view.summary(result), report, before=before)
