"""What `smnn solve` computes: the tensors of a system, its solution, and how far to trust it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from smnn.cli._guard import WrongUseError
from smnn.cli._solve_growth import LARGEST, freedom, growth
from smnn.cli._solve_text import EquationError, System

if TYPE_CHECKING:
    import torch

    from smnn import Residuals

MOST_EXTRA = 8
"""Orders beyond those of the equations that are tried when none is asked for."""
LARGEST_BLOCK = 40
"""Unknowns per time up to which a higher order is tried."""
MOST_NUMBERS = 3e8
"""Numbers in the blocks of the solver, times and orders together: 2.4 GB."""
ENOUGH = 1e-10
"""Change from one order to the next, relative to the largest value, at which trying ends."""
RELATIVE = 1e-8
"""Doubt above which rows are weighted by the growth of solutions, to see whether that is better."""
DOUBTFUL = 1e-3
"""Change above which the grid is too coarse to trust."""
HOPELESS = 0.1
"""Change above which what was found is no solution."""
CONTRADICTION = 1e-6
"""Residual of equations or values, relative to their terms, that is no rounding any more."""
SMALLEST_STEP = 1e-6
"""A value nearer than this part of a step to a point of the grid belongs to that point."""


@dataclass(frozen=True)
class Problem:
    """The tensors of a system, without the order."""

    t: np.ndarray
    """`(T,)`."""
    c: torch.Tensor
    """`(T or 1, Q, V, R+1)`."""
    d: torch.Tensor
    """`(T or 1, Q)`."""
    u: torch.Tensor
    """`(T_init, V, R+1)`."""
    w_init: torch.Tensor
    """The same, 1 where a value is given and 0 elsewhere."""
    s: torch.Tensor
    """`(T-1,)`."""
    w: torch.Tensor | None = None
    """`(T,)` weights of the rows at each time, where solutions grow."""


@dataclass(frozen=True)
class Solved:
    """The solution and what is known about it."""

    system: System
    t: np.ndarray
    y: np.ndarray
    """`(T, V, R+1)` for the orders of the equations."""
    order: int
    """Derivatives that were carried."""
    change: float
    """Largest change of the solution with one order less, relative to its largest value."""
    residuals: dict[str, float]
    backend: str
    device: str
    seconds: float
    command: str
    machine: dict[str, Any]
    warnings: list[str] = field(default_factory=list)

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """Every state by its name, each `(T,)`."""
        found: dict[str, np.ndarray] = {}
        for v, (name, top) in enumerate(zip(self.system.names, self.system.orders)):
            found |= {name + "'" * r: self.y[:, v, r] for r in range(top + 1)}
        return found


def make_grid(system: System) -> np.ndarray:
    """`(T,)` the points of the grid, and those at which values are given."""
    low, high = system.ends
    count = (high - low) / system.step
    whole = round(count)
    if abs(count - whole) < 1e-6:
        t = np.linspace(low, high, whole + 1)
    else:  # the last step is shorter
        t = np.append(low + system.step * np.arange(int(count) + 1), high)
    between = []
    for value in system.values:
        near = t[np.abs(t - value.at).argmin()]
        if abs(near - value.at) > SMALLEST_STEP * system.step:
            between.append(value.at)
    return np.unique(np.concatenate([t, between])) if between else t


def assemble(system: System, device: torch.device) -> Problem:
    """Coefficients, values and steps on the grid.

    Raises:
        EquationError: A coefficient is not finite somewhere, or two values contradict each other.
    """
    import torch

    t = make_grid(system)
    V, R = len(system.names), max(system.orders)
    Q = len(system.equations)
    moves = any(e.free_symbols for q in system.equations for e in q.c.values())
    driven = any(q.d.free_symbols for q in system.equations)
    c = np.zeros((len(t) if moves else 1, Q, V, R + 1))
    d = np.zeros((len(t) if driven else 1, Q))
    for q, equation in enumerate(system.equations):
        for (v, r), expr in equation.c.items():
            name = system.names[v] + "'" * r
            c[:, q, v, r] = _values(
                system, expr, t, len(c), equation.where, f"the factor of {name}"
            )
        d[:, q] = _values(system, equation.d, t, len(d), equation.where, "the right-hand side")
    places = [int(np.abs(t - value.at).argmin()) for value in system.values]
    u = np.zeros((max(places, default=-1) + 1, V, R + 1))
    w = np.zeros_like(u)
    for place, value in zip(places, system.values):
        at = place, value.variable, value.order
        if w[at] and u[at] != value.value:
            value.where.fail(f"{value.where.text!r} contradicts a value given before.")
        u[at], w[at] = value.value, 1.0
    tensors = (torch.from_numpy(x).to(device) for x in (c, d, u, w, np.diff(t)))
    return Problem(t, *tensors)


def _values(
    system: System, expr: Any, t: np.ndarray, T: int, where: Any, what: str
) -> np.ndarray | float:
    from smnn.equations._tape import Tape

    tape = Tape([system.time])
    slot = tape.add(expr)
    with np.errstate(all="ignore"):
        found = np.broadcast_to(np.asarray(tape.run([t], {})[slot], np.float64), t.shape)
    if not np.isfinite(found).all():
        at = t[np.flatnonzero(~np.isfinite(found))[0]]
        where.fail(
            f"{what} in {where.text!r} is not a finite number at {system.time} = {at:g}. "
            "Begin or end the grid elsewhere."
        )
    return found if T > 1 else float(found[0])


def run(
    system: System,
    *,
    order: int | None,
    device: torch.device,
    backend: str,
    command: str,
    tick: Callable[[int], None] = lambda order: None,
) -> Solved:
    """Solve, with an order that is high enough if none is given.

    Raises:
        EquationError: The system has no unique solution.
        WrongUseError: The order is below that of the equations.
    """
    from smnn._util.machine import describe_machine, package_versions

    R, V = max(system.orders), len(system.names)
    if order is not None and order < R:
        raise WrongUseError(
            f"--order: got {order}; expected at least {R}, the order of the equations."
        )
    began = time.perf_counter()
    problem = assemble(system, device)
    determined = _check_values(system, problem)
    if order is None:
        affordable = int((MOST_NUMBERS / len(problem.t)) ** 0.5 / V - 1)
        most = max(R + 1, min(R + MOST_EXTRA, LARGEST_BLOCK // V - 1, affordable))
        orders = range(R + 1, most + 1)
    else:
        orders = range(order, order + 1) if order > R else range(order + 1, order + 2)
    numbers = len(problem.t) * (V * (orders[0] + 1)) ** 2
    if numbers > MOST_NUMBERS:
        raise WrongUseError(
            f"{len(problem.t):,} times with {V} variables and {orders[0]} derivatives of each need "
            f"{8e-9 * numbers:.0f} GB; expected at most {8e-9 * MOST_NUMBERS:.1f}. Take a longer "
            "step or a shorter grid."
        )
    best = _attempt(problem, orders, backend, tick)
    if best.doubt > RELATIVE:
        weighted = _weighted(system, problem, must=determined and best.doubt > DOUBTFUL)
        if weighted is not None:
            best = min(best, _attempt(weighted, orders, backend, tick), key=lambda x: x.doubt)
    problem, y, change = best.problem, best.y, best.change
    if order is None:
        order = best.order
        if change > HOPELESS or (determined and best.misfit > HOPELESS):
            raise EquationError(
                f"the step {system.step:g} is too long, or the values do not fit the equations: "
                f"from one order to the next the solution changes by {change:.1e} of its largest "
                f"value, and the values are off by {best.misfit:.1e}. Take a shorter step; --order "
                "solves it at one order all the same."
            )
    elif order == R:
        y, change = best.lower, best.change
    seconds = time.perf_counter() - began
    told = _residuals(problem, y, order)
    machine = describe_machine()
    machine["versions"] |= package_versions(("sympy",))
    from smnn._solver.plan import choose_backend

    name = choose_backend(backend, problem.c.device, V * (order + 1)).name
    return Solved(
        system, problem.t, y[..., : R + 1].cpu().numpy(), order, change,
        {k: float(x) for k, x in told._asdict().items()}, name, str(problem.c.device), seconds,
        command, machine, _doubts(problem, y, change, told),
    )  # fmt: skip


class _Attempt(NamedTuple):
    """A solution at the best of some orders."""

    problem: Problem
    y: torch.Tensor
    lower: torch.Tensor
    """With one order less."""
    order: int
    change: float
    misfit: float
    """How far the values are from holding, relative to the largest."""

    @property
    def doubt(self) -> float:
        return max(self.change, self.misfit)


def _attempt(
    problem: Problem, orders: range, backend: str, tick: Callable[[int], None]
) -> _Attempt:
    """Raise the order until the solution stays, or gets no better any more."""
    tick(orders[0] - 1)
    y = _solve(problem, orders[0] - 1, backend)
    found: list[_Attempt] = []
    for order in orders:
        tick(order)
        last, y = y, _solve(problem, order, backend)
        found.append(_Attempt(problem, y, last, order, _change(y, last), _misfit(problem, y)))
        best = min(found, key=lambda attempt: attempt.doubt)
        # Orders help in pairs. Two that do not: rounding, or equations that are not smooth.
        if best.doubt <= ENOUGH or order - best.order >= 2:
            break
    return best


def _weighted(system: System, problem: Problem, *, must: bool) -> Problem | None:
    """The problem with rows weighted by the growth of its solutions, if all is given at one time.

    Raises:
        EquationError: Solutions grow beyond what numbers can hold, and `must` says that they do.
    """
    places = {value.at for value in system.values}
    if len(places) != 1 or len(system.equations) != len(system.names):
        return None
    c = problem.c.cpu().numpy()
    grown = growth(c, problem.t, next(iter(places)))
    if grown.max() == 0 or (grown.max() > LARGEST and not must):
        return None
    if grown.max() > LARGEST:
        raise EquationError(
            f"solutions grow by a factor of about 1e{grown.max() / np.log(10):.0f} on this grid, "
            "beyond what numbers can hold. End the grid earlier."
        )
    w = problem.s.new_tensor(np.exp(-grown))
    return replace(problem, w=w)


def _misfit(problem: Problem, y: torch.Tensor) -> float:
    if not problem.u.numel():
        return 0.0
    u, w = problem.u, problem.w_init
    off = ((y[: len(u), :, : u.shape[-1]] - u) * w).abs().max()
    return float(off / (u * w).abs().max().clamp(min=1e-300)) if bool((u * w).any()) else float(off)


def _change(y: torch.Tensor, other: torch.Tensor) -> float:
    size = y[..., 0].abs().amax(0).clamp(min=1e-300)
    return float(((y[..., 0] - other[..., 0]).abs().amax(0) / size).max())


def _weights(problem: Problem) -> dict[str, Any]:
    found: dict[str, Any] = {"w_init": problem.w_init}
    if problem.w is not None:
        found |= {"w_gov": problem.w[:, None], "w_smooth": problem.w[:-1, None, None]}
    return found


def _solve(problem: Problem, order: int, backend: str) -> torch.Tensor:
    import smnn

    try:
        y, info = smnn.solve_ex(
            problem.c, problem.d, problem.u, problem.s, **_weights(problem), order=order,
            n_steps=len(problem.t), backend=backend,
        )  # fmt: skip
    except smnn.BackendError as error:
        raise WrongUseError(f"--backend: {error}") from None
    if int(info.status) == 0:
        return y
    if int(info.status) == 3:
        raise EquationError(
            "the equations and values do not determine one solution. Do two equations say the "
            "same, or two values?"
        )
    raise EquationError(
        "the solution overflows: it grows beyond what numbers can hold on this grid. End the grid "
        "earlier."
    )


def _check_values(system: System, problem: Problem) -> bool:
    """Whether there are just as many values as are needed.

    Too few are told beforehand: the solver would take the smoothest of all solutions.
    """
    if len(system.equations) != len(system.names):
        return False
    needed = freedom(problem.c.cpu().numpy())
    if needed is None:
        raise EquationError(
            "the equations depend on each other: there is more than one solution whatever the "
            "values. Do two of them say the same?"
        )
    given = len({(v.variable, v.order, v.at) for v in system.values})
    if given >= needed:
        return given == needed
    wanted = [
        f"{name}{chr(39) * r}({system.ends[0]:g})"
        for v, (name, top) in enumerate(zip(system.names, system.orders))
        for r in range(top)
        if not any(x.variable == v and x.order == r for x in system.values)
    ]
    hint = f" Perhaps {' or '.join(wanted)} is missing." if wanted else ""
    raise EquationError(
        f"got {given} value{'s' * (given != 1)}, and the equations need {needed} to have one "
        f"solution.{hint}"
    )


def _residuals(problem: Problem, y: torch.Tensor, order: int) -> Residuals:
    import smnn

    return smnn.residuals(
        y, problem.c, problem.d, problem.u, problem.s, w_init=problem.w_init, order=order
    )


def _doubts(problem: Problem, y: torch.Tensor, change: float, told: Residuals) -> list[str]:
    """What a reader should not overlook."""
    found = []
    size = float((problem.c * y[..., : problem.c.shape[-1]].unsqueeze(1)).abs().max())
    values = float(problem.u.abs().max()) if problem.u.numel() else 0.0
    parts = (
        ("equations", float(told.governing), max(size, float(problem.d.abs().max()))),
        ("values", float(told.initial), max(values, float(y[..., 0].abs().max()))),
    )
    for what, rest, scale in parts:
        if rest > CONTRADICTION * max(scale, 1e-300):
            found.append(
                f"the {what} do not hold: they are off by {rest:.1e} (root mean square). Are there "
                "more values or equations than can hold at once, or is the step too long?"
            )
    if change > DOUBTFUL:
        found.append(
            f"with one order less the solution changes by {change:.1e} of its largest value: take "
            "a shorter step, or raise --order."
        )
    return found
