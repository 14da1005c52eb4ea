"""The Lorenz experiment of the paper: its table of coefficients and its loss figure.

On the paper's own data, number for number, the equations are found by this library and by PySINDy,
beside the rows as the paper prints them. The paper's network is then trained for the first steps
with each of the three solvers that its figure compares.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from smnn._util.files import OutputError
from smnn._util.machine import describe_machine, package_versions
from smnn._util.optional import MissingPackageError, require
from smnn.datasets.dynamics import LORENZ, System, paper_lorenz, simulate
from smnn.datasets.dynamics._terms import Array
from smnn.experiments.timing import threads
from smnn.experiments.discovery_bench.methods import Equation, Method, Smnn, score
from smnn.experiments.discovery_bench.sindy import VARIANTS
from smnn.experiments.lorenz import model

COEFFICIENTS = (
    ("x'", "x"), ("x'", "y"), ("y'", "x"), ("y'", "y"), ("y'", "x z"), ("z'", "z"), ("z'", "x y"),
)  # fmt: skip
"""What the paper calls a1 to a7: target and term."""

PRINTED: dict[str, tuple[str, ...]] = {
    "SINDy": ("-10.000", "10.000", "27.998", "-1.000", "-1.000", "-2.667", "1.000"),
    "MNN dense": ("-10.0003", "10.0003", "27.9760", "-0.9934", "-0.9996", "-2.6660", "0.9995"),
    "MNN sparse": ("-10.0055", "10.0061", "27.7165", "-0.9304", "-0.9937", "-2.6641", "0.9990"),
    "S-MNN": ("-10.0003", "10.0004", "27.9915", "-0.9968", "-0.9997", "-2.6664", "1.0000"),
}
"""The rows of the paper's table of discovered Lorenz coefficients, as printed (Chen et al., ICLR
2025, appendix on Lorenz discovery). The others took the same network and data; the row of SINDy is
matched digit for digit by samples 0.001 apart, and not by the paper's own."""

NAMES = {"smnn": "refined", "smnn-regression": "regression", "smnn-neural": "networks"}
PAPER, OURS, PYSINDY = "paper", "smnn", "PySINDy"


@dataclass(frozen=True)
class Config:
    """Settings; those of the paper where it has any."""

    samples: int = 10_050
    methods: tuple[str, ...] = (
        "smnn-regression", "smnn", "pysindy-default", "pysindy-fd4", "pysindy-smoothed",
        "pysindy-ensemble", "pysindy-weak", "pysindy-weak-ensemble",
    )  # fmt: skip
    steps: int = 1000
    """Of the training with each solver; none if 0."""
    batch: int | None = None
    """Windows in a step: the paper's 512 on a GPU, 32 on a CPU."""
    window: int = 50
    hidden: int = 1024
    seed: int = 0
    device: str | None = None
    """A GPU if there is one, by default."""
    neural: bool = False
    """Whether the equations are also found by training networks in cycles, as in the paper."""
    neural_cycles: int = 10
    neural_steps: int = 7600
    """Of a cycle: 400 epochs of 19 batches."""
    trained: str | None = None
    """JSON of another run of this experiment, on a GPU say, whose training is taken over."""

    def resolved(self) -> Config:
        """With a device and a batch size."""
        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        batch = self.batch or (512 if device.startswith("cuda") else 32)
        return replace(self, device=device, batch=batch)


@dataclass(frozen=True)
class Answer:
    """One row of the table."""

    group: str
    name: str
    values: tuple[float | str, ...]
    """a1 to a7; texts as the paper prints them."""
    max_abs: float
    """Largest error of a coefficient, of those that should be zero too."""
    wrong: int | None = None
    """Terms missing or too many; the paper does not say."""
    seconds: float | None = None
    coefficients: dict[str, Equation] | None = None
    note: str = ""

    def equations(self) -> dict[str, Equation]:
        """As coefficients of terms; of the printed ones, those seven."""
        if self.coefficients is not None:
            return self.coefficients
        out: dict[str, Equation] = {target: {} for target in LORENZ.targets}
        for (target, term), value in zip(COEFFICIENTS, self.values, strict=True):
            out[target][term] = float(value)
        return out


@dataclass
class Lorenz:
    """Everything the experiment found."""

    config: Config
    machine: dict[str, Any]
    answers: list[Answer] = field(default_factory=list)
    training: list[model.Training] = field(default_factory=list)
    cycle_losses: list[float] = field(default_factory=list)
    """Of the networks trained in cycles, at the end of each."""
    trained_on: dict[str, Any] | None = None
    """The machine of the training, if it was another one."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Methods that could not be tried, and why."""
    data: Array = field(default_factory=lambda: np.empty((0, 3)))

    def find(self, group: str, name: str) -> Answer:
        """One row."""
        return next(a for a in self.answers if (a.group, a.name) == (group, name))

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "experiment": "lorenz",
            "settings": asdict(self.config),
            "machine": self.machine,
            "coefficients": [f"{target}: {term}" for target, term in COEFFICIENTS],
            "answers": [asdict(a) for a in self.answers],
            "training": [{**asdict(t), "average": t.average()} for t in self.training],
            "cycle_losses": self.cycle_losses,
            "trained_on": self.trained_on,
            "skipped": self.skipped,
        }


def run(config: Config, tick: Callable[[str], None] = lambda name: None) -> Lorenz:
    """Run the experiment; on a CPU, on one thread.

    Args:
        config: The settings.
        tick: Called with a name after every method and every training step, `ticks(config)` times.
    """
    config = config.resolved()
    pools = require("threadpoolctl", "keep the linear algebra of all methods to one thread")
    with threads(1), pools.threadpool_limits(limits=1):
        machine = describe_machine()
        machine["versions"] |= package_versions(("pysindy",))
        series = paper_lorenz(config.samples)
        result = Lorenz(config, machine, data=series.x)
        result.answers += [_printed(name) for name in PRINTED]
        for method in _methods(config):
            try:
                result.answers.append(_answer(method, [series]))
            except MissingPackageError as error:  # the rest is worth having without PySINDy
                result.skipped[method.name] = str(error)
            tick(method.name)
        if config.trained is not None:
            return _with_training(result, Path(config.trained))
        if config.neural:
            _add_neural(result, series, config)
            tick("smnn-neural")
        _add_training(result, config, tick)
    return result


def _with_training(result: Lorenz, file: Path) -> Lorenz:
    """Take over what another run has trained, and the settings that it was trained with."""
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        if record["experiment"] != "lorenz":
            raise KeyError("experiment")
        names = {f for f in model.Training.__dataclass_fields__}
        training = [
            model.Training(**{k: v for k, v in t.items() if k in names}) for t in record["training"]
        ]
        networks = [
            Answer(**{**a, "values": tuple(a["values"])}) for a in record["answers"]
            if (a["group"], a["name"]) == (OURS, NAMES["smnn-neural"])
        ]  # fmt: skip
        theirs = record["settings"]
        taken = ("steps", "batch", "window", "hidden", "seed", "device", "neural", "neural_cycles",
                 "neural_steps")  # fmt: skip
        config = replace(result.config, **{name: theirs[name] for name in taken})
        losses, machine = record["cycle_losses"], record["machine"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OutputError(
            f"{file} holds no results of this experiment ({error}); give the lorenz.json that "
            "another run has written."
        ) from error
    result.answers += networks
    return replace(
        result, config=config, training=training, cycle_losses=losses, trained_on=machine
    )


def ticks(config: Config) -> int:
    """How often `run` reports."""
    if config.trained is not None:
        return len(config.methods)
    return len(config.methods) + int(config.neural) + config.steps * len(model.SOLVERS)


def _methods(config: Config) -> list[Method]:
    known: dict[str, Method] = {"smnn": Smnn(), "smnn-regression": Smnn("regression")}
    known |= {variant.name: variant for variant in VARIANTS}
    for name in config.methods:
        if name not in known:
            raise ValueError(f"no method is called {name!r}; expected some of {', '.join(known)}.")
    return [known[name] for name in config.methods]


def _printed(name: str) -> Answer:
    printed = PRINTED[name]
    errors = (abs(float(p) - LORENZ.truth[t][term]) for p, (t, term) in zip(printed, COEFFICIENTS))
    return Answer(PAPER, name, printed, max(errors))


def _answer(method: Method, series: Sequence[Any]) -> Answer:
    found = method.fit(series, LORENZ)
    ours = method.name.startswith("smnn")
    name = NAMES[method.name] if ours else method.name.removeprefix("pysindy-")
    return _judged(OURS if ours else PYSINDY, name, found.coefficients, found.seconds, found.note)


def _judged(
    group: str, name: str, coefficients: dict[str, Equation], seconds: float, note: str
) -> Answer:
    marks = score(coefficients, LORENZ)
    values = tuple(coefficients[target].get(term, 0.0) for target, term in COEFFICIENTS)
    wrong = marks.missing + marks.extra
    return Answer(group, name, values, marks.max_abs, wrong, seconds, coefficients, note)


def _add_neural(result: Lorenz, series: Any, config: Config) -> None:
    """The paper's way: networks trained in cycles, small coefficients switched off in between."""
    method = Smnn(
        "neural",
        neural={
            "cycles": config.neural_cycles, "steps": config.neural_steps, "batch": config.batch,
            "window": config.window, "width": config.hidden, "device": config.device,
        },
    )  # fmt: skip
    found = method.fit([series], LORENZ)
    result.cycle_losses = [float(x) for x in found.report.get("losses", [])]
    note = f"{config.neural_cycles} cycles of {config.neural_steps} steps, batch {config.batch}"
    name = NAMES[method.name]
    result.answers.append(_judged(OURS, name, found.coefficients, found.seconds, note))


def _add_training(result: Lorenz, config: Config, tick: Callable[[str], None]) -> None:
    if config.steps == 0:
        return
    x = torch.as_tensor(result.data, device=config.device)
    for name in model.SOLVERS:
        found = model.train(
            name, x, steps=config.steps, batch=config.batch or 32, window=config.window,
            hidden=config.hidden, seed=config.seed, tick=partial(tick, name),
        )  # fmt: skip
        result.training.append(found)


def trajectory(equations: dict[str, Equation], n: int = 4000) -> Array | None:
    """A simulation `(n, 3)` of equations from (1, 1, 1); `None` if it runs away."""
    terms = LORENZ.terms
    xi = [[equations[target].get(name, 0.0) for name in terms] for target in LORENZ.targets]

    def rhs(t: float, s: Sequence[float]) -> list[float]:
        x, y, z = s
        values = (1.0, x, y, z, x * x, x * y, x * z, y * y, y * z, z * z)
        return [sum(a * v for a, v in zip(row, values) if a) for row in xi]

    system = System(
        "found", LORENZ.variables, LORENZ.basis, "", rhs, equations, ((1.0, 1.0, 1.0),), 0.01, n
    )
    try:
        return simulate(system)[0].x
    except RuntimeError:
        return None
