"""The structure that all experiments share.

An experiment is a package with two modules:

- `run` has a dataclass `Config`, a function `run(config, tick)` whose result has a method
  `record()`, and `ticks(config)`, the number of times that `run` calls `tick`. An experiment that
  can be resumed takes its output folder as the third argument `out`.
- `view` has `tables(result)`, `summary(result)`, `figures(result)` (contents by file name) and
  `report(result, figures, command)`, and may have `notes(result)`, lines printed below the tables,
  and `failures(result)`, reasons why results are not valid, with which the command fails.

Fields of a `Config` that are made by `option` are the command-line options of the experiment.
"""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Callable
from dataclasses import field, fields
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from smnn._util.files import InputError, write_atomically, write_json

EXPERIMENTS = {
    "standalone": "Six linear ODEs against closed forms, RK45 and LSODA.",
    "sine": "Noisy damped sines, fitted by a second-order ODE.",
    "kdv": "Waves on a circle (Korteweg-de Vries), continued from ten frames.",
    "lorenz": "The Lorenz equations from data; training the paper's network with three solvers.",
    "sst": "Four-year forecasts of sea surface temperature, with simple references.",
    "m4": "Series of the M4 competition, beside statsforecast, by the official scores.",
    "scaling": "Error, time and memory against series length, for four methods.",
    "discovery-bench": "Known equations recovered from noisy data by smnn and PySINDy.",
    "dysts": "Equations of chaotic systems with polynomials, from the collection dysts.",
    "noise-maps": "Equations of three systems over noise and length of the data.",
    "odebench": "Equations of the 63 systems of ODEBench, judged from another initial state.",
    "pde-bench": "Partial differential equations recovered from noisy fields, with PySINDy.",
    "honesty": "Verdicts on data without equations and on equations outside the library.",
}
"""Names and one-line descriptions."""

Tick = Callable[..., None]
"""Progress callback: `tick(name)` after each unit of work, or `tick(name, count, total)`."""


def no_progress(*_: object) -> None:
    """Ignore progress."""


def option(
    default: Any, help: str, *, minimum: float | None = None, file: bool = False,
    shown: str | bool = True,
) -> Any:  # fmt: skip
    """Declare a field of a `Config` that is also a command-line option, of the type of the field.

    `minimum` is the smallest value, `file` whether it is the path of a file, and `shown` the text
    shown for the default.
    """
    metadata = {"help": help, "minimum": minimum, "file": file, "shown": shown}
    return field(default=default, metadata=metadata)


def load(name: str) -> tuple[ModuleType, ModuleType]:
    """Import the `run` and `view` modules of an experiment."""
    package = f"smnn.experiments.{name.replace('-', '_')}"
    return import_module(f"{package}.run"), import_module(f"{package}.view")


def read_record(path: Path, name: str) -> dict[str, Any]:
    """Read the JSON that an experiment has written.

    Raises:
        InputError: The file cannot be read, or holds something else.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["experiment"] != name:
            raise ValueError(f"its experiment is {record['experiment']!r}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} holds no results of the experiment {name!r} ({error}); expected the "
            f"{name}.json that it writes."
        ) from error
    found: dict[str, Any] = record
    return found


def repeated(name: str, config: Any, out: Path) -> str:
    """The command that repeats an experiment with the same settings."""
    if hasattr(config, "resolved"):
        config = config.resolved()
    words = ["smnn", "reproduce", name, "--out", str(out)]
    for option in fields(config):
        value = getattr(config, option.name)
        if "help" not in option.metadata or value == option.default:
            continue
        flag = option.name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
            continue
        items = value if isinstance(value, tuple) else (value,)
        text = ",".join(f"{x:g}" if isinstance(x, float) else str(x) for x in items)
        words += [f"--{flag}", text]
    return shlex.join(words)


def execute(name: str, config: Any, out: Path, tick: Tick = no_progress) -> tuple[Any, Path]:
    """Run an experiment and write its record, figures and report to a folder.

    Returns:
        The result, and the path of the report.
    """
    run, view = load(name)
    resumable = "out" in inspect.signature(run.run).parameters
    result = run.run(config, tick, out) if resumable else run.run(config, tick)
    command = repeated(name, config, out)
    write_json(out / f"{name}.json", {"command": command, **result.record()})
    figures: dict[str, bytes] = view.figures(result)
    for file, content in figures.items():
        write_atomically(out / file, content)
    return result, write_atomically(out / "report.html", view.report(result, figures, command))
