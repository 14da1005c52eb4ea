"""The Lorenz experiment of the paper: its table of coefficients and its loss figure.

The equations are discovered by this library and by PySINDy from exactly the paper's data, and
compared with the rows printed in the paper. The paper's network is then trained for its first steps
with each of the three solvers that the paper compares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from smnn._util.machine import describe_machine, package_versions
from smnn._util.optional import MissingPackageError, require
from smnn.datasets.dynamics import LORENZ, Array, System, paper_lorenz, simulate
from smnn.discovery import Neural
from smnn.experiments.discovery_bench.methods import Equation, Method, Smnn, score
from smnn.experiments.discovery_bench.sindy import VARIANTS
from smnn.experiments.experiment import Tick, no_progress, option
from smnn.experiments.lorenz import model
from smnn.experiments.timing import threads

COEFFICIENTS = (
    ("x'", "x"), ("x'", "y"), ("y'", "x"), ("y'", "y"), ("y'", "x z"), ("z'", "z"), ("z'", "x y"),
)  # fmt: skip
"""Target and term of the coefficients that the paper calls a1 to a7."""

PRINTED: dict[str, tuple[str, ...]] = {
    "SINDy": ("-10.000", "10.000", "27.998", "-1.000", "-1.000", "-2.667", "1.000"),
    "MNN dense": ("-10.0003", "10.0003", "27.9760", "-0.9934", "-0.9996", "-2.6660", "0.9995"),
    "MNN sparse": ("-10.0055", "10.0061", "27.7165", "-0.9304", "-0.9937", "-2.6641", "0.9990"),
    "S-MNN": ("-10.0003", "10.0004", "27.9915", "-0.9968", "-0.9997", "-2.6664", "1.0000"),
}
"""The rows of the paper's table of discovered Lorenz coefficients, as printed (Chen et al., ICLR
2025, appendix on Lorenz discovery). The MNN rows use the same network and data; the SINDy row is
reproduced, to all digits, with samples 0.001 apart, but not with the data of the paper."""

WIDTH = 1024
"""Width of the paper's network."""
NAMES = {"smnn": "refined", "smnn-regression": "regression", "smnn-neural": "networks"}
PAPER, OURS, PYSINDY = "paper", "smnn", "PySINDy"


@dataclass(frozen=True)
class Config:
    """Settings; those of the paper where it gives them."""

    samples: int = 10_050
    methods: tuple[str, ...] = (
        "smnn-regression", "smnn", "pysindy-default", "pysindy-fd4", "pysindy-smoothed",
        "pysindy-ensemble", "pysindy-weak", "pysindy-weak-ensemble",
    )  # fmt: skip
    steps: int = option(1000, "Training steps with each solver; 0 to skip.", minimum=0)
    batch: int | None = option(
        None, "Windows per step (default 512, as in the paper, on a GPU; 32 on a CPU).", minimum=1
    )
    window: int = 50
    width: int | None = option(
        None,
        "Width of the networks (default: 1024, as in the paper; 256 with --neural).",
        minimum=1,
    )
    device: str | None = option(None, "Device of the training.")
    seed: int = option(0, "Random seed of networks and windows.")
    neural: bool = option(False, "Also discover the equations by Discovery(method='neural').")
    neural_cycles: int = option(Neural.cycles, "Cycles of that training (paper: 10).", minimum=1)
    neural_steps: int = option(
        Neural.steps, "Steps per cycle (paper: 7600, 400 epochs of 19 batches).", minimum=1
    )

    def resolved(self) -> Config:
        """The same with device and batch size filled in."""
        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        batch = self.batch or (512 if device.startswith("cuda") else 32)
        return replace(self, device=device, batch=batch)


@dataclass(frozen=True)
class Answer:
    """One row of the table."""

    group: str
    name: str
    values: tuple[float | str, ...]
    """a1 to a7; strings as printed in the paper."""
    max_abs: float
    """Largest error of a coefficient, including those that should be zero."""
    wrong: int | None = None
    """Number of missing and superfluous terms; unknown for the paper."""
    seconds: float | None = None
    coefficients: dict[str, Equation] | None = None
    note: str = ""

    def equations(self) -> dict[str, Equation]:
        """Coefficients by target and term; for rows of the paper the seven printed ones."""
        if self.coefficients is not None:
            return self.coefficients
        out: dict[str, Equation] = {target: {} for target in LORENZ.targets}
        for (target, term), value in zip(COEFFICIENTS, self.values, strict=True):
            out[target][term] = float(value)
        return out


@dataclass
class Lorenz:
    """Results of the experiment."""

    config: Config
    machine: dict[str, Any]
    answers: list[Answer] = field(default_factory=list)
    training: list[model.Training] = field(default_factory=list)
    cycle_losses: list[float] = field(default_factory=list)
    """Losses at the end of each cycle of the networks trained in cycles."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Methods that were skipped, and why."""
    data: Array = field(default_factory=lambda: np.empty((0, 3)))

    def find(self, group: str, name: str) -> Answer:
        """The row of a group with a name."""
        return next(a for a in self.answers if (a.group, a.name) == (group, name))

    def record(self) -> dict[str, Any]:
        """JSON-serializable record."""
        return {
            "experiment": "lorenz", "settings": asdict(self.config), "machine": self.machine,
            "coefficients": [f"{target}: {term}" for target, term in COEFFICIENTS],
            "answers": [asdict(a) for a in self.answers],
            "training": [{**asdict(t), "average": t.average()} for t in self.training],
            "cycle_losses": self.cycle_losses, "skipped": self.skipped,
        }  # fmt: skip


def run(config: Config, tick: Tick = no_progress) -> Lorenz:
    """Run the experiment; on a CPU, on one thread. `tick(name)` follows each method and step."""
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
            except MissingPackageError as error:  # the other methods do not need PySINDy
                result.skipped[method.name] = str(error)
            tick(method.name)
        if config.neural:
            _add_neural(result, series, config)
            tick("smnn-neural")
        _add_training(result, config, tick)
    return result


def ticks(config: Config) -> int:
    """Number of progress reports of `run`."""
    return len(config.methods) + int(config.neural) + config.steps * len(model.SOLVERS)


def _methods(config: Config) -> list[Method]:
    known: dict[str, Method] = {"smnn": Smnn(), "smnn-regression": Smnn("regression")}
    known |= {variant.name: variant for variant in VARIANTS}
    for name in config.methods:
        if name not in known:
            raise ValueError(f"methods: got {name!r}; expected some of {', '.join(known)}.")
    return [known[name] for name in config.methods]


def _printed(name: str) -> Answer:
    printed = PRINTED[name]
    errors = (abs(float(p) - LORENZ.truth[t][term]) for p, (t, term) in zip(printed, COEFFICIENTS))
    return Answer(PAPER, name, printed, max(errors))


def _answer(method: Method, series: Sequence[Any]) -> Answer:
    found = method.fit(series, LORENZ)
    ours = method.name.startswith("smnn")
    name = NAMES[method.name] if ours else method.name.removeprefix("pysindy-")
    return _scored(OURS if ours else PYSINDY, name, found.coefficients, found.seconds, found.note)


def _scored(
    group: str, name: str, coefficients: dict[str, Equation], seconds: float, note: str
) -> Answer:
    marks = score(coefficients, LORENZ)
    values = tuple(coefficients[target].get(term, 0.0) for target, term in COEFFICIENTS)
    wrong = marks.missing + marks.extra
    return Answer(group, name, values, marks.max_abs, wrong, seconds, coefficients, note)


def _add_neural(result: Lorenz, series: Any, config: Config) -> None:
    """Networks trained in cycles that remove small coefficients."""
    method = Smnn(
        "neural",
        neural={
            "cycles": config.neural_cycles, "steps": config.neural_steps, "batch": config.batch,
            "window": config.window, "width": config.width or Neural.width,
            "device": config.device,
        },
    )  # fmt: skip
    found = method.fit([series], LORENZ)
    result.cycle_losses = [float(x) for x in found.report.get("losses", [])]
    note = (
        f"{config.neural_cycles} cycles of {config.neural_steps} steps, batch {config.batch}, "
        f"width {config.width or Neural.width}"
    )
    name = NAMES[method.name]
    result.answers.append(_scored(OURS, name, found.coefficients, found.seconds, note))


def _add_training(result: Lorenz, config: Config, tick: Tick) -> None:
    if config.steps == 0:
        return
    x = torch.as_tensor(result.data, device=config.device)
    for name in model.SOLVERS:
        found = model.train(
            name, x, steps=config.steps, batch=config.batch or 32, window=config.window,
            hidden=config.width or WIDTH, seed=config.seed, tick=partial(tick, name),
        )  # fmt: skip
        result.training.append(found)


def trajectory(equations: dict[str, Equation], n: int = 4000) -> Array | None:
    """A simulation `(n, 3)` of equations from (1, 1, 1); `None` if it diverges."""
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
