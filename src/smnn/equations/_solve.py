"""Solve a system of linear ODEs: choose the order, weight growing solutions, check the result."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sympy
import torch
from torch import Tensor

from smnn._solver.api import residuals, solve_ex
from smnn._solver.diagnostics import OK, SINGULAR
from smnn._solver.plan import choose_backend
from smnn._solver.problem import HERMITE, SCHEMES
from smnn._util.files import write_atomically
from smnn._util.optional import require
from smnn.equations import report
from smnn.equations._checks import check_values, contradictions, log_growth
from smnn.equations._derivatives import Differentiated
from smnn.equations._system import EquationError, EquationSystem, SystemTensors
from smnn.equations._text import parse
from smnn.report import maths
from smnn.report.charts import Chart
from smnn.report.display import Displayable, Overview

MAX_LOG_GROWTH = 600.0
"""Natural logarithm of the growth that float64 holds, with room for derivatives."""
MAX_EXTRA_ORDERS = 8
"""Orders above those of the equations that are tried if no order is given."""
MAX_BLOCK = 40
"""Unknowns per time up to which a higher order is tried."""
MAX_NUMBERS = 3e8
"""Size of the blocks of the solver over all times: 2.4 GB."""
CONVERGED = 1e-10
"""Change of the solution from one order to the next at which the search for an order ends."""
SUSPECT = 1e-8
"""Uncertainty above which weights for growing solutions are tried."""
COARSE = 1e-3
"""Change above which the step is too long to trust the solution."""
AUTOMATIC = ("hermite", "iwp", "smnn")
"""Schemes that are tried if none is given, until one converges."""
FAILED = 0.1
"""Uncertainty above which the result is rejected."""


@dataclass(frozen=True, repr=False)
class Solution(Displayable):
    """A solution of an `EquationSystem` and its diagnostics; `solution["y'"]` is one column."""

    system: EquationSystem
    t: np.ndarray
    """`(T,)` times."""
    y: np.ndarray
    """`(T, V, R+1)` variables and derivatives, up to the highest order in the equations."""
    order: int
    """Highest derivative that the solver carried."""
    scheme: str
    """Smoothness scheme of the solver."""
    change: float
    """Error estimate: largest change of the solution with one order less, relative to its largest
    value. At the order of the equations: with one order more."""
    residuals: dict[str, float]
    """Root mean square of the residuals: `governing`, `initial` and `smoothness`."""
    growth_weighted: bool
    """Whether rows were weighted by the growth of solutions since the prescribed values."""
    warnings: list[str]
    """Contradictions and signs of a grid that is too coarse; empty for a sound solution."""
    backend: str
    device: str
    seconds: float

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """`y`, `y'`, ... of every variable, `(T,)` each."""
        pairs = enumerate(self.system.orders)
        values = (self.y[:, v, r] for v, top in pairs for r in range(top + 1))
        return dict(zip(self.system.states, values))

    def __repr__(self) -> str:
        states = ", ".join(self.system.states)
        return f"Solution({states}: {len(self.t)} times, order {self.order}, ~{self.change:.0e})"

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def to_frame(self) -> Any:
        """Return the columns as a pandas `DataFrame` indexed by time."""
        pandas = require("pandas", "make a data frame")
        return pandas.DataFrame(self.columns, pandas.Index(self.t, name=self.system.time))

    def report(self, path: str | Path) -> Path:
        """Write an HTML page: equations, residuals, charts."""
        return write_atomically(Path(path), report.page(self, report.record_of(self)))

    def _charts(self, names: Sequence[str] | None) -> list[Chart]:
        return report.charts_of(self, names)

    def _overview(self) -> Overview:
        system = self.system
        title = f"Solution for {', '.join(system.variables)}"
        found = report.summary(self)
        return Overview(title, "", report.formulas(system), found, self.warnings)

    def to_dict(self) -> dict[str, Any]:
        """Return the system, the diagnostics and the final state as JSON-compatible data."""
        system = self.system
        return {
            "variables": system.variables,
            "time": system.time,
            "equations": [e.statement.text for e in system.equations],
            "values": [v.statement.text for v in system.values],
            "parameters": {
                n: maths.write(e, maths.TEXT, [system.time]) for n, e in system.parameters.items()
            },
            "times": len(self.t),
            "start": float(self.t[0]),
            "end": float(self.t[-1]),
            "end_state": {name: float(x[-1]) for name, x in self.columns.items()},
            "order": self.order,
            "scheme": self.scheme,
            "change_with_one_order_less": self.change,
            "residuals": self.residuals,
            "growth_weighted": self.growth_weighted,
            "warnings": self.warnings,
            "backend": self.backend,
            "device": self.device,
            "seconds": round(self.seconds, 4),
        }


def solve(
    equations: EquationSystem | str | Iterable[str | sympy.Eq], *,
    parameters: Mapping[str, float | str] | None = None, order: int | None = None,
    scheme: str = "auto", backend: str = "auto", device: torch.device | str | None = None,
) -> Solution:  # fmt: skip
    r"""Solve linear ODEs written as text.

    By default the equations are differentiated in time for the scheme `"hermite"`. Where this is
    not possible or does not converge, as with coefficients that have jumps, `"iwp"` and `"smnn"`
    are tried, and the result with the smallest error estimate is returned. If all values are
    prescribed at one time and solutions grow by many powers of ten from there, the rows are
    weighted by that growth.

    Args:
        equations: A system, or statements as in `parse`: equations, prescribed values, a grid.
        parameters: Values that replace those of parameters in `equations`.
        order: Highest derivative that the solver carries, at least the order of the equations. By
            default it is raised until the solution no longer changes.
        scheme: `"auto"`, or one scheme of `smnn.solve`.
        backend: As in `smnn.solve`.
        device: Where to compute; by default PyTorch's default device.

    Raises:
        EquationError: The text cannot be parsed, the system has no unique solution, or the step is
            too long.
        BackendError: The backend cannot be used.

    Example:
        >>> solution = solve("y' = -k*y, k = 2, y(0) = 1, t = 0 .. 3 step 0.01")
        >>> y = solution["y"]
        >>> print(f"{y[-1]:.10f}")
        0.0024787522
    """
    if parameters or not isinstance(equations, EquationSystem):
        system = parse(equations, parameters)
    else:
        system = equations
    began = time.perf_counter()
    R, V = max(system.orders), len(system.variables)
    problem = system.tensors(device)
    c = problem.c.cpu().numpy()
    determined = check_values(system, c)
    orders = _candidate_orders(order, R, V, len(problem.t))

    attempt = functools.partial(_best_scheme, system, problem, orders, scheme, backend)
    best = attempt(weights=None)
    if best.uncertainty > SUSPECT:
        weights = _growth_weights(system, problem, determined and best.uncertainty > COARSE)
        if weights is not None:
            best = min(best, attempt(weights=weights), key=lambda x: x.uncertainty)
    y = best.lower if order == R else best.y
    if order is None and (best.change > FAILED or (determined and best.misfit > FAILED)):
        raise EquationError(
            f"the step {system.step:g} is too long, or the values do not fit the equations: from "
            f"one order to the next the solution changes by {best.change:.1e} of its largest value,"
            f" and the values are off by {best.misfit:.1e}. Use a shorter step, or set the order "
            "to get the solution at that order anyway."
        )
    order = order or best.order
    seconds = time.perf_counter() - began
    args, options = _arguments(problem, Differentiated(system, problem), best.scheme, order, None)
    r = residuals(y, *args, **options)
    warnings = contradictions(problem, y, r)
    if best.change > COARSE:
        warnings.append(
            f"with one order less the solution changes by {best.change:.1e} of its largest value: "
            "use a shorter step or a higher order."
        )
    return Solution(
        system, problem.t, y[..., : R + 1].cpu().numpy(), order, best.scheme, best.change,
        {name: float(x) for name, x in r._asdict().items()}, best.weighted, warnings,
        choose_backend(backend, y.device, V * (order + 1), options["scheme"]).name,
        str(y.device), seconds,
    )  # fmt: skip


def _candidate_orders(order: int | None, R: int, V: int, T: int) -> range:
    """Orders to try, each after the one below it."""
    if order is not None and order < R:
        raise EquationError(
            f"order: got {order}; expected at least {R}, the order of the equations."
        )
    lowest = max(order or 0, R + 1)
    numbers = T * (V * (lowest + 1)) ** 2
    if numbers > MAX_NUMBERS:
        raise EquationError(
            f"{T:,} times with {V} variables and {lowest} derivatives of each need "
            f"{8e-9 * numbers:.0f} GB; expected at most {8e-9 * MAX_NUMBERS:.1f}. Use a longer "
            "step or a shorter grid."
        )
    if order is not None:
        return range(lowest, lowest + 1)
    affordable = int((MAX_NUMBERS / T) ** 0.5 / V - 1)
    return range(lowest, max(lowest, min(R + MAX_EXTRA_ORDERS, MAX_BLOCK // V - 1, affordable)) + 1)


class _Attempt(NamedTuple):
    """A solution with its error estimates."""

    y: Tensor
    lower: Tensor
    """With one order less."""
    order: int
    scheme: str
    change: float
    """From `lower` to `y`."""
    misfit: float
    """Residual of the prescribed values, relative to the largest."""
    weighted: bool

    @property
    def uncertainty(self) -> float:
        return max(self.change, self.misfit)


def _best_scheme(
    system: EquationSystem, problem: SystemTensors, orders: range, scheme: str, backend: str,
    weights: Tensor | None,
) -> _Attempt:  # fmt: skip
    """The result of the first scheme that converges, or else the best."""
    rows = Differentiated(system, problem)
    if scheme not in (*SCHEMES, "auto"):
        known = ", ".join(map(repr, ("auto", *SCHEMES)))
        raise EquationError(f"scheme: got {scheme!r}; expected one of {known}.")
    names = AUTOMATIC if scheme == "auto" else (scheme,)
    found, reason = [], None
    for name in names:
        if name == "hermite" and scheme == "auto" and not rows.complete:
            continue
        try:
            found.append(_search_order(problem, rows, name, weights, orders, backend))
        except EquationError as error:
            reason = error
            continue
        latest = found[-1]
        # If `hermite` misses prescribed values by far more than it changes with the order, these
        # contradict the equations; other schemes would hide this in errors of high derivatives.
        contradicted = name == "hermite" and latest.change < 0.01 * latest.misfit
        if latest.uncertainty <= SUSPECT or contradicted:
            return latest
    if not found:
        assert reason is not None
        raise reason
    return min(found, key=lambda x: x.uncertainty)


def _arguments(
    p: SystemTensors, rows: Differentiated, scheme: str, order: int, weights: Tensor | None
) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
    """Arguments of `smnn.solve_ex` and `smnn.residuals`, with differentiated equations."""
    options: dict[str, Any] = {"w_init": p.w_init, "order": order, "scheme": scheme}
    if weights is not None:
        options |= {"w_gov": weights[:, None], "w_smooth": weights[:-1, None, None]}
    if scheme not in HERMITE:
        return (p.c, p.d, p.u, p.s), options
    found = rows.rows(order)
    options["scheme"] = f"{scheme}/{found.links}"
    if not bool(found.w_smooth[..., : found.links].all()):  # variables of different orders
        options["w_smooth"] = found.w_smooth * options.get("w_smooth", 1.0)
    return (found.c, found.d, p.u, p.s), options


def _search_order(
    p: SystemTensors, rows: Differentiated, scheme: str, weights: Tensor | None, orders: range,
    backend: str,
) -> _Attempt:  # fmt: skip
    """Raise the order until the solution converges or stops improving."""

    def solve_at(order: int) -> Tensor:
        args, options = _arguments(p, rows, scheme, order, weights)
        y, info = solve_ex(*args, **options, n_steps=len(p.t), backend=backend)
        if info.status == SINGULAR:
            raise EquationError(
                "the equations and values do not determine one solution. Are two equations, or "
                "two values, equivalent?"
            )
        if info.status != OK:
            raise EquationError(
                "the solution overflows: it grows beyond the range of float64 on this grid. End "
                "the grid earlier."
            )
        return y

    y = solve_at(orders[0] - 1)
    attempts: list[_Attempt] = []
    for order in orders:
        lower, y = y, solve_at(order)
        change, misfit = _change(y, lower), _misfit(p, y)
        attempts.append(_Attempt(y, lower, order, scheme, change, misfit, weights is not None))
        best = min(attempts, key=lambda x: x.uncertainty)
        # Accuracy improves with every second order. No gain over two: rounding, or not smooth.
        if best.uncertainty <= CONVERGED or order - best.order >= 2:
            break
    return best


def _growth_weights(
    system: EquationSystem, problem: SystemTensors, required: bool
) -> Tensor | None:
    """`(T,)` weights of the rows where solutions grow; `None` if they do not apply.

    They apply if all values are prescribed at one time.

    Raises:
        EquationError: Weights are `required`, and solutions grow beyond the range of float64.
    """
    times = {value.time for value in system.values}
    if len(times) != 1 or len(system.equations) != len(system.variables):
        return None
    growth = log_growth(problem.c.cpu().numpy(), problem.t, times.pop())
    largest = growth.max()
    if largest > MAX_LOG_GROWTH and required:
        raise EquationError(
            f"solutions grow by a factor of about 1e{largest / np.log(10):.0f} on this grid, "
            "beyond the range of float64. End the grid earlier."
        )
    return problem.s.new_tensor(np.exp(-growth)) if 0 < largest <= MAX_LOG_GROWTH else None


def _misfit(problem: SystemTensors, y: Tensor) -> float:
    u, w = problem.u, problem.w_init
    if not u.numel():
        return 0.0
    residual = ((y[: len(u), :, : u.shape[-1]] - u) * w).abs().max()
    scale = (u * w).abs().max()
    return float(residual / scale if scale > 0 else residual)


def _change(y: Tensor, other: Tensor) -> float:
    size = y[..., 0].abs().amax(0).clamp(min=1e-300)
    return float(((y[..., 0] - other[..., 0]).abs().amax(0) / size).max())
