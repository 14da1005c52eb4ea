"""Standalone validation: six linear ODEs against their closed forms, RK45 and LSODA.

Three settings are compared. In that of the paper every problem is a first-order system with
derivatives up to order 2. In the second each equation is solved in its native order, with `order=`
large enough for errors below 1e-15. The third compares the schemes of the solver on a grid ten
times coarser, with RK45 and LSODA at a tolerance of 1e-8.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smnn import solve
from smnn._util.machine import describe_machine
from smnn._util.optional import require
from smnn.datasets.odebench import STANDALONE, Exact, LinearOde
from smnn.experiments.experiment import Tick, no_progress, option
from smnn.experiments.timing import Timing, threads, time_in_turns

SMNN, RK45, LSODA = "S-MNN", "RK45", "LSODA"
SOLVERS = (SMNN, RK45, LSODA)
SCHEMES = ("smnn", "iwp", "hermite-l", "hermite")

PAPER_ORDER = 2
NATIVE_ORDER = {"R": 4, "P": 4, "L": 5, "H": 4, "D": 5, "T": 5}
"""The lowest order at which y, y' and y'' all have a relative MSE below 1e-15."""

COARSE_ORDERS = 3
"""Derivatives carried on the coarse grid beyond those in the equation."""

PRINTED: dict[str, dict[str, tuple[str, ...]]] = {
    SMNN: {
        "R": ("4.8e-12", "4.8e-12", "2.2e-07"),
        "P": ("9.4e-12", "9.4e-12", "9.6e-08"),
        "L": ("2.6e-11", "2.6e-11", "7.1e-07"),
        "H": ("9.5e-08", "7.7e-08", "5.1e-07"),
        "D": ("2.1e-07", "2.3e-07", "4.0e-07"),
        "T": ("1.0e-09", "6.8e-10", "4.3e-09"),
    },
    RK45: {
        "R": ("9.3e-12",),
        "P": ("2.9e-11",),
        "L": ("2.2e-11",),
        "H": ("1.7e-10", "1.5e-10"),
        "D": ("1.2e-10", "1.4e-10"),
        "T": ("6.7e-12", "4.4e-12", "2.7e-12"),
    },
    LSODA: {
        "R": ("4.5e-11",),
        "P": ("3.5e-10",),
        "L": ("9.2e-11",),
        "H": ("1.1e-09", "7.6e-10"),
        "D": ("1.5e-09", "1.8e-09"),
        "T": ("7.4e-11", "5.9e-11", "6.0e-11"),
    },
}
"""Relative MSE of y, y' and y'' as printed in the paper, where it gives them."""


@dataclass(frozen=True)
class Config:
    """Settings of the paper; the tolerances are those of the reference solutions of ODEBench."""

    n_steps: int = 1000
    step: float = 0.01
    rtol: float = 1e-5
    atol: float = 1e-7
    first_step: float = 1e-6
    min_step: float = 1e-10
    """For LSODA only."""
    coarse: int = 10
    """Factor by which the steps of the coarse grid are longer."""
    tight: float = 1e-8
    """Relative tolerance of RK45 and LSODA on it; the absolute one is a hundredth of it."""
    repeats: int = option(50, "Timed calls of each solver.", minimum=1)


def ticks(config: Config) -> int:
    """Number of progress reports of `run`."""
    return 2 * len(STANDALONE) * config.repeats


@dataclass(frozen=True)
class Entry:
    """One solver on one problem."""

    problem: str
    solver: str
    order: int | None
    """Highest derivative carried; `None` for the initial value solvers."""
    errors: tuple[float | None, ...]
    """Relative MSE of y, y', y''; `None` where the solver does not return it."""
    timing: Timing
    printed: tuple[str | None, ...] = (None, None, None)

    @property
    def agrees(self) -> tuple[bool | None, ...]:
        """Whether each error equals the printed one at its printed digits."""
        return tuple(
            None if p is None or e is None else shown(e) == p
            for e, p in zip(self.errors, self.printed, strict=True)
        )

    def record(self) -> dict[str, Any]:
        """JSON-serializable record."""
        return {
            "problem": self.problem,
            "solver": self.solver,
            "order": self.order,
            "relative_mse": list(self.errors),
            "paper": list(self.printed),
            "agrees": list(self.agrees),
            "ms": self.timing.median,
            "ms_fastest": self.timing.fastest,
        }


@dataclass
class Standalone:
    """Results of the experiment."""

    config: Config
    machine: dict[str, Any]
    paper: list[Entry] = field(default_factory=list)
    native: list[Entry] = field(default_factory=list)
    coarse: list[Entry] = field(default_factory=list)
    """By scheme instead of S-MNN."""
    curves: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    """Solutions in native order by problem, `(T, 3)`; for the figure."""

    def find(self, table: str, problem: str, solver: str) -> Entry:
        """The entry of one cell; `table` is "paper", "native" or "coarse"."""
        entries: list[Entry] = getattr(self, table)
        return next(e for e in entries if (e.problem, e.solver) == (problem, solver))

    def record(self) -> dict[str, Any]:
        """JSON-serializable record."""
        problems = [
            {"key": p.key, "name": p.name, "equation": p.equation, "order": p.order}
            for p in STANDALONE
        ]
        return {
            "experiment": "standalone",
            "settings": asdict(self.config),
            "machine": self.machine,
            "problems": problems,
            "paper_setting": [e.record() for e in self.paper],
            "native_order": [e.record() for e in self.native],
            "coarse_grid": [e.record() for e in self.coarse],
        }


def shown(error: float) -> str:
    """An error in the format of the paper."""
    return f"{error:.1e}"


def run(config: Config, tick: Tick = no_progress) -> Standalone:
    """Run the experiment on one thread.

    Args:
        config: Settings.
        tick: Called with the name of the problem after each round of timings.
    """
    integrate = require("scipy.integrate", "compare with RK45 and LSODA")
    with threads(1):
        result = Standalone(config, describe_machine())
        for problem in STANDALONE:
            _run_problem(problem, config, integrate.solve_ivp, result, tick)
    return result


def _run_problem(
    problem: LinearOde, config: Config, solve_ivp: Callable[..., Any], result: Standalone,
    tick: Tick,
) -> None:  # fmt: skip
    order = NATIVE_ORDER[problem.key]
    calls = {
        "system": system_solver(problem, config), "native": native_solver(problem, config, order),
    }  # fmt: skip
    states, times, truth = _solved(problem, config, calls, solve_ivp, tick)
    result.curves[problem.key] = states["native"]
    for name, carried in (("system", PAPER_ORDER), (RK45, None), (LSODA, None)):
        solver = SMNN if name == "system" else name
        printed = PRINTED[solver][problem.key]
        errors = relative_mse(states[name][:, : len(printed)], truth)
        unknown: tuple[str | None, ...] = (None,) * (3 - len(printed))
        entry = Entry(problem.key, solver, carried, errors, times[name], printed + unknown)
        result.paper.append(entry)
    for name in ("native", RK45, LSODA):
        solver, carried = (SMNN, order) if name == "native" else (name, None)
        errors = relative_mse(states[name], truth)
        result.native.append(Entry(problem.key, solver, carried, errors, times[name]))
    coarse = replace(
        config, n_steps=config.n_steps // config.coarse, step=config.step * config.coarse,
        rtol=config.tight, atol=config.tight / 100,
    )  # fmt: skip
    order = problem.order + COARSE_ORDERS
    calls = {name: native_solver(problem, coarse, order, name) for name in SCHEMES}
    states, times, truth = _solved(problem, coarse, calls, solve_ivp, tick)
    for name, y in states.items():
        carried, errors = order if name in SCHEMES else None, relative_mse(y, truth)
        result.coarse.append(Entry(problem.key, name, carried, errors, times[name]))


def _solved(
    problem: LinearOde, config: Config, calls: dict[str, Callable[[], Any]],
    solve_ivp: Callable[..., Any], tick: Tick,
) -> tuple[dict[str, NDArray[np.float64]], dict[str, Timing], NDArray[np.longdouble]]:  # fmt: skip
    """Solutions `(T, 3)` and times of some solvers, of RK45 and of LSODA; and the truth."""
    peers = {name: ivp_solver(problem, config, solve_ivp, name) for name in (RK45, LSODA)}
    states = {name: call()[:, 0, :3].numpy() for name, call in calls.items()}
    for name, peer in peers.items():
        states[name] = derivatives_of_state(problem, peer().y.T)
    times = time_in_turns({**calls, **peers}, config.repeats, tick=lambda: tick(problem.name))
    truth = problem.exact(np.arange(config.n_steps) * Exact(config.step), order=2)
    return states, times, truth


def relative_mse(
    y: NDArray[np.floating], truth: NDArray[np.longdouble]
) -> tuple[float | None, ...]:
    """Mean squared error over the variance of the truth, for each column of `y`."""
    k = y.shape[1]
    error = ((y.astype(Exact) - truth[:, :k]) ** 2).mean(0) / truth[:, :k].var(0)
    return (*(float(e) for e in error), *[None] * (truth.shape[1] - k))


def system_solver(problem: LinearOde, config: Config) -> Callable[[], torch.Tensor]:
    """The paper's setting: a first-order system, derivatives up to order 2."""
    c, d = (torch.from_numpy(x)[None] for x in problem.as_system())
    u = torch.tensor(problem.u, dtype=torch.float64).view(1, -1, 1)
    s = torch.tensor([config.step], dtype=torch.float64)
    return lambda: solve(c, d, u, s, order=PAPER_ORDER, n_steps=config.n_steps)


def native_solver(
    problem: LinearOde, config: Config, order: int, scheme: str = "smnn"
) -> Callable[[], torch.Tensor]:
    """The equation in its native order, with derivatives up to `order`."""
    c = torch.tensor(problem.c, dtype=torch.float64).view(1, 1, 1, -1)
    d = torch.tensor([[problem.d]], dtype=torch.float64)
    u = torch.tensor(problem.u, dtype=torch.float64).view(1, 1, -1)
    s = torch.tensor([config.step], dtype=torch.float64)
    return lambda: solve(c, d, u, s, order=order, scheme=scheme, n_steps=config.n_steps)


def ivp_solver(
    problem: LinearOde, config: Config, solve_ivp: Callable[..., Any], method: str
) -> Callable[[], Any]:
    """SciPy on the first-order system, evaluated on the same grid."""
    f = right_hand_side(problem)
    t = np.arange(config.n_steps) * config.step
    options: dict[str, float] = {"min_step": config.min_step} if method == LSODA else {}
    return lambda: solve_ivp(
        f, (0.0, t[-1]), problem.u, method=method, t_eval=t,
        rtol=config.rtol, atol=config.atol, first_step=config.first_step, **options,
    )  # fmt: skip


def right_hand_side(problem: LinearOde) -> Callable[[float, NDArray[np.float64]], Any]:
    """The function A x + b in plain Python numbers, which is fastest for SciPy at these sizes."""
    A, b = problem.as_explicit()
    last, shift = A[-1].tolist(), float(b[-1])

    def f(t: float, x: NDArray[np.float64]) -> tuple[float, ...]:
        state = x.tolist()
        return (*state[1:], sum(map(operator.mul, last, state)) + shift)

    return f


def derivatives_of_state(problem: LinearOde, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """y, y', y'' from the states `x (T, m)`: x' is the right-hand side, x'' its derivative."""
    A, b = problem.as_explicit()
    first = x @ A.T + b
    second = first @ A.T
    return np.stack([x[:, 0], first[:, 0], second[:, 0]], axis=-1)
