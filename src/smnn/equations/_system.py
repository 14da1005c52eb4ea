"""A system of linear ODEs with parameters, prescribed values and a time grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from torch import Tensor

from smnn.equations._tape import Tape
from smnn.errors import SmnnError

SAME_TIME = 1e-6
"""Distance, in steps, below which the time of a prescribed value is a point of the grid."""


class EquationError(SmnnError, ValueError):
    """A system of equations is malformed, nonlinear, or has no unique solution on its grid."""


class Statement(NamedTuple):
    """A statement and where it was found."""

    text: str
    line: int
    file: str = ""

    def fail(self, reason: str) -> NoReturn:
        """Raise an `EquationError` that names the line."""
        where = f"{self.file}, line" if self.file else "line"
        raise EquationError(f"{where} {self.line}: {reason}")


class LinearEquation(NamedTuple):
    """A linear equation, `sum(c[v, r] * y_v^(r)) = d`."""

    statement: Statement
    c: dict[tuple[int, int], Any]
    """Coefficients by variable and derivative order, as sympy expressions in time."""
    d: Any
    """Right-hand side, as a sympy expression in time."""
    sides: tuple[Any, Any]
    """Left and right side as written."""


class PrescribedValue(NamedTuple):
    """A prescribed value, `y_v^(r)(time) = value`."""

    statement: Statement
    variable: int
    order: int
    time: float
    value: float


class SystemTensors(NamedTuple):
    """The arguments of `smnn.solve` for one system, in float64.

    Solve with `smnn.solve(p.c, p.d, p.u, p.s, w_init=p.w_init, n_steps=len(p.t), order=...)`.
    """

    t: np.ndarray
    """`(T,)` times."""
    c: Tensor
    """`(T or 1, Q, V, R+1)` coefficients."""
    d: Tensor
    """`(T or 1, Q)` right-hand side."""
    u: Tensor
    """`(T_init, V, R+1)` prescribed values; 0 where there is none."""
    s: Tensor
    """`(T-1,)` steps."""
    w_init: Tensor
    """`(T_init, V, R+1)` weights: 1 where a value is prescribed, else 0."""


@dataclass(frozen=True)
class EquationSystem:
    """Linear ODEs with parameters, prescribed values and a time grid.

    Made by `smnn.equations.parse` or `smnn.equations.read`; `str()` returns its statements.
    """

    time: str
    """Name of the time variable."""
    variables: list[str]
    """Names of the `V` dependent variables."""
    orders: list[int]
    """Highest derivative of each variable in the equations."""
    equations: list[LinearEquation]
    values: list[PrescribedValue]
    start: float
    end: float
    step: float
    parameters: dict[str, Any]
    """Sympy expressions in time, with the parameters they depend on inserted."""
    statements: Sequence[Statement]
    """The text: parameters, equations, prescribed values, grid."""

    def __str__(self) -> str:
        return "\n".join(s.text for s in self.statements)

    @property
    def states(self) -> list[str]:
        """`y`, `y'`, ... of every variable, up to its highest derivative in the equations."""
        pairs = zip(self.variables, self.orders)
        return [name + "'" * r for name, top in pairs for r in range(top + 1)]

    def grid(self) -> np.ndarray:
        """Return the `(T,)` times: the grid, and the times of all prescribed values."""
        count = (self.end - self.start) / self.step
        if abs(count - round(count)) < 1e-6:
            t = np.linspace(self.start, self.end, round(count) + 1)
        else:  # the last step is shorter
            t = np.append(self.start + self.step * np.arange(int(count) + 1), self.end)
        times = {v.time for v in self.values}
        between = [x for x in times if np.abs(t - x).min() > SAME_TIME * self.step]
        return np.union1d(t, between) if between else t

    def tensors(self, device: torch.device | str | None = None) -> SystemTensors:
        """Evaluate coefficients, right-hand sides and prescribed values on the grid.

        Args:
            device: Of the tensors; by default PyTorch's default device.

        Raises:
            EquationError: A coefficient is not finite somewhere, or two values contradict.
        """
        t = self.grid()
        V, R = len(self.variables), max(self.orders)
        varying = any(e.free_symbols for q in self.equations for e in q.c.values())
        driven = any(q.d.free_symbols for q in self.equations)
        c = np.zeros((len(t) if varying else 1, len(self.equations), V, R + 1))
        d = np.zeros((len(t) if driven else 1, len(self.equations)))
        for q, equation in enumerate(self.equations):
            for (v, r), expr in equation.c.items():
                name = f"the factor of {self.variables[v]}" + "'" * r
                c[:, q, v, r] = self.evaluate(expr, t[: len(c)], equation.statement, name)
            d[:, q] = self.evaluate(
                equation.d, t[: len(d)], equation.statement, "the right-hand side"
            )
        rows = [int(np.abs(t - value.time).argmin()) for value in self.values]
        u = np.zeros((max(rows, default=-1) + 1, V, R + 1))
        w = np.zeros_like(u)
        for row, value in zip(rows, self.values):
            at = row, value.variable, value.order
            if w[at] and u[at] != value.value:
                value.statement.fail(
                    f"{value.statement.text!r} contradicts a value given before. Remove one of "
                    "them."
                )
            u[at], w[at] = value.value, 1.0
        device = torch.get_default_device() if device is None else device
        return SystemTensors(t, *(torch.from_numpy(x).to(device) for x in (c, d, u, np.diff(t), w)))

    def evaluate(self, expr: Any, t: np.ndarray, where: Statement, name: str) -> np.ndarray:
        """Evaluate an expression in time at the times `(T,)`.

        Raises:
            EquationError: It is not finite somewhere; the message calls it `name`.
        """
        tape = Tape([self.time])
        slot = tape.add(expr)
        with np.errstate(all="ignore"):
            values = np.broadcast_to(np.asarray(tape.run([t])[slot], np.float64), t.shape)
        if not np.isfinite(values).all():
            bad = t[~np.isfinite(values)][0]
            where.fail(
                f"{name} in {where.text!r} is not a finite number at {self.time} = {bad:g}. "
                "Start or end the grid elsewhere."
            )
        return values
