"""`smnn reproduce lorenz`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smnn.cli._guard import Debug, chosen_device, guarded
from smnn.cli.reproduce._parts import progress, show

if TYPE_CHECKING:
    from smnn.experiments.lorenz.run import Config, Lorenz

DEFAULT_OUT = Path("smnn-results") / "lorenz"


def lorenz(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = DEFAULT_OUT,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not tables.")] = False,
    steps: Annotated[
        int, typer.Option(min=0, help="Training steps with each solver; 0 for none.")
    ] = 1000,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Windows in a step; 512 on a GPU, 32 on a CPU.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the networks and the windows.")] = 0,
    neural: Annotated[
        bool, typer.Option("--neural", help="Also find the equations by training in cycles.")
    ] = False,
    neural_cycles: Annotated[int, typer.Option(min=1, help="Cycles of that training.")] = 10,
    neural_steps: Annotated[int, typer.Option(min=1, help="Steps of each cycle.")] = 7600,
    trained: Annotated[
        Path | None,
        typer.Option(help="Train nothing: take the training from this lorenz.json of another run."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Find the Lorenz equations on the paper's data, and train its network with three solvers.

    Writes lorenz.json, lorenz.png, lorenz-loss.png and report.html into the folder.
    """
    with guarded(debug):
        from smnn._util.files import prepare_output
        from smnn.experiments.lorenz.run import Config, run, ticks

        prepare_output(out)
        config = Config(
            steps=steps, batch=batch, seed=seed, neural=neural,
            device=None if device is None else str(chosen_device(device)),
            neural_cycles=neural_cycles, neural_steps=neural_steps,
            trained=None if trained is None else str(trained),
        )  # fmt: skip
        with progress(ticks(config), "steps", "Making the data") as tick:
            result = run(config, tick)
        report = _write(result, out, _command(out, result.config))
        if as_json:
            typer.echo(json.dumps(result.record(), indent=2))
        else:
            _show(result, report)


def _command(out: Path, config: Config) -> str:
    if config.trained is not None:
        return shlex.join(
            ["smnn", "reproduce", "lorenz", "--out", str(out), "--trained", config.trained]
        )
    options = ["--out", str(out), "--steps", str(config.steps), "--batch", str(config.batch)]
    options += ["--device", str(config.device), "--seed", str(config.seed)]
    if config.neural:
        options += ["--neural", "--neural-cycles", str(config.neural_cycles)]
        options += ["--neural-steps", str(config.neural_steps)]
    return shlex.join(["smnn", "reproduce", "lorenz", *options])


def _write(result: Lorenz, out: Path, command: str) -> Path:
    """All files, the report last; returns its path."""
    from smnn._util.files import write_atomically, write_json
    from smnn.experiments.lorenz import view

    write_json(out / "lorenz.json", {"command": command, **result.record()})
    pictures = {"lorenz": view.attractors(result)}
    if result.training:
        pictures["lorenz-loss"] = view.losses(result)
    for name, png in pictures.items():
        write_atomically(out / f"{name}.png", png)
    return write_atomically(out / "report.html", view.report(result, pictures, command))


def _show(result: Lorenz, report: Path) -> None:
    from smnn.experiments.lorenz import view

    skipped = [f"Not tried: {name}; {reason}" for name, reason in result.skipped.items()]
    show(view.narrow_tables(result), view.summary(result), report, after=skipped)
