"""Time derivatives of a system of equations, for the schemes that need them."""

from __future__ import annotations

from typing import Any, NamedTuple

import sympy
import torch
from torch import Tensor

from smnn._solver.derivatives import differentiated, differentiated_right
from smnn.equations._system import EquationError, EquationSystem, SystemTensors

MAX_OPERATIONS = 2000
"""Size of a derivative beyond which it is not computed."""


class Rows(NamedTuple):
    """The equations with their derivatives, as arguments of `smnn.solve`."""

    c: Tensor
    """`(T or 1, rows, V, R+1)` coefficients."""
    d: Tensor
    """`(T or 1, rows)` right-hand side."""
    w_smooth: Tensor
    """`(1, V, R+1)`: 1 for the links that a variable needs, else 0."""
    links: int
    """How many links a variable has at most."""


class Differentiated:
    """The equations of a system with their time derivatives.

    Args:
        system: As many equations as variables.
        problem: Its tensors.
    """

    def __init__(self, system: EquationSystem, problem: SystemTensors) -> None:
        self._system, self._problem = system, problem
        self._orders = [max((r for _, r in e.c), default=0) for e in system.equations]
        self._left = [dict(e.c) for e in system.equations]
        self._right = [e.d for e in system.equations]
        self._step = problem.s.mean(-1, keepdim=True) if len(problem.s) else problem.s.new_ones(1)
        self._c, self._d = [problem.c], [problem.d]

    @property
    def complete(self) -> bool:
        """Whether equations, derivatives and links determine all unknowns."""
        system = self._system
        square = len(system.equations) == len(system.variables)
        return square and sum(self._orders) <= sum(system.orders)

    def rows(self, order: int) -> Rows:
        """All derivatives of the equations up to an order of the unknowns.

        Raises:
            EquationError: A coefficient has no derivative somewhere on the grid.
        """
        problem, system = self._problem, self._system
        count = order - min(self._orders) + 1
        while len(self._c) < count:
            self._differentiate(len(self._c))
        c = differentiated(self._c, self._step, count)[..., : order + 1]
        d = differentiated_right(self._d[:count], count)
        kept = [
            k * len(self._orders) + q
            for k in range(count)
            for q, top in enumerate(self._orders)
            if top + k <= order
        ]
        tops = problem.c.new_tensor(system.orders)[:, None]
        links = (torch.arange(order + 1, device=c.device) < tops).to(c.dtype)
        return Rows(c[:, kept], d[:, kept], links[None], max(system.orders))

    def _differentiate(self, k: int) -> None:
        c, d = torch.zeros_like(self._problem.c), torch.zeros_like(self._problem.d)
        scale = self._step.cpu().numpy() ** k
        for q, equation in enumerate(self._system.equations):
            for (v, r), expr in self._left[q].items():
                self._left[q][v, r] = new = self._derivative(expr)
                values = self._values(new, len(c), equation.statement)
                c[:, q, v, r] = torch.from_numpy(values * scale)
            self._right[q] = new = self._derivative(self._right[q])
            d[:, q] = torch.from_numpy(self._values(new, len(d), equation.statement) * scale)
        self._c.append(c)
        self._d.append(d)

    def _values(self, expr: Any, times: int, statement: Any) -> Any:
        name = "a derivative of a coefficient"
        return self._system.evaluate(expr, self._problem.t[:times], statement, name)

    def _derivative(self, expr: Any) -> Any:
        symbol = sympy.Symbol(self._system.time)
        if symbol not in expr.free_symbols:
            return sympy.S.Zero
        if expr.has(sympy.Abs, sympy.sign):
            raise EquationError(
                f"{expr} has a kink, and the hermite schemes need derivatives of all coefficients. "
                "Use scheme='iwp'."
            )
        found = expr.diff(symbol)
        if found.count_ops() > MAX_OPERATIONS:
            raise EquationError(
                f"the derivatives of {expr} become too long. Use scheme='iwp', which needs none."
            )
        return found
