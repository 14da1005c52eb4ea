"""Evaluation of sympy expressions with NumPy and PyTorch, as a list of elementary operations.

Each distinct subexpression has one slot, so that `x^2` is computed once for `x^2`, `x^3` and
`x^2 y`. No source code is generated.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import sympy
import torch
from torch import Tensor

_NUMPY: dict[str, Callable[..., Any]] = {
    "add": np.add, "mul": np.multiply, "div": np.divide, "pow": np.power, "sin": np.sin,
    "cos": np.cos, "tan": np.tan, "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "abs": np.abs,
    "tanh": np.tanh, "sinh": np.sinh, "cosh": np.cosh, "sign": np.sign,
}  # fmt: skip
# Operators accept a number on either side; the functions of torch do not.
_TORCH: dict[str, Callable[..., Any]] = {
    name: getattr(torch, name) for name in _NUMPY if name not in ("add", "mul", "div", "pow")
} | {"add": operator.add, "mul": operator.mul, "div": operator.truediv, "pow": operator.pow}


class Instruction(NamedTuple):
    """An operation on one or two earlier slots."""

    name: str
    slots: tuple[int, ...]


class Tape:
    """Expressions compiled to operations. Slots hold the variables, then constants and results."""

    def __init__(self, variables: Sequence[str]) -> None:
        self.slots: dict[Any, int] = {sympy.Symbol(v): i for i, v in enumerate(variables)}
        self.steps: list[float | Instruction] = []
        self.variables = len(variables)

    def add(self, expr: sympy.Expr) -> int:
        """Return the slot of an expression, after adding the operations that it lacks."""
        if expr in self.slots:
            return self.slots[expr]
        if expr.is_number:
            return self._keep(expr, float(expr))
        if expr.is_Add:
            slots = [self.add(arg) for arg in expr.args]
            return self._chain("add", expr, slots)
        if expr.is_Mul:
            return self._product(expr)
        if expr.is_Pow:
            return self._power(expr)
        name = type(expr).__name__.lower()
        return self._keep(expr, Instruction(name, (self.add(expr.args[0]),)))

    def _keep(self, key: Any, step: float | Instruction) -> int:
        if isinstance(step, Instruction) and step in self.slots:
            self.slots[key] = self.slots[step]  # a different form of the same operation
            return self.slots[key]
        slot = self.variables + len(self.steps)
        self.steps.append(step)
        self.slots[key] = slot
        if isinstance(step, Instruction):
            self.slots[step] = slot
        return slot

    def _chain(self, name: str, key: Any, slots: list[int]) -> int:
        slot = functools.reduce(
            lambda a, b: self._keep((name, a, b), Instruction(name, (a, b))), slots
        )
        self.slots[key] = slot
        return slot

    def _product(self, expr: sympy.Expr) -> int:
        above, below = [], []
        for factor in expr.args:
            if factor.is_Pow and factor.exp.is_number and factor.exp < 0:
                below.append(self.add(factor.base ** (-factor.exp)))
            else:
                above.append(self.add(factor))
        above.sort()  # earlier slots first, so that products share leading factors
        top = self._chain("mul", ("product", *above), above) if above else self.add(sympy.S.One)
        if not below:
            self.slots[expr] = top
            return top
        bottom = self._chain("mul", ("product", *sorted(below)), sorted(below))
        return self._keep(expr, Instruction("div", (top, bottom)))

    def _power(self, expr: sympy.Expr) -> int:
        base, exponent = expr.args
        if exponent.is_number and exponent < 0:
            one = self.add(sympy.S.One)
            return self._keep(expr, Instruction("div", (one, self.add(base ** (-exponent)))))
        if exponent == sympy.Rational(1, 2):
            return self._keep(expr, Instruction("sqrt", (self.add(base),)))
        if exponent.is_Integer:
            n = int(exponent)
            low = n - 1 if n < 4 else n // 2
            halves = sorted((self.add(base**low), self.add(base ** (n - low))))
            return self._keep(expr, Instruction("mul", tuple(halves)))
        if base == sympy.E:
            return self._keep(expr, Instruction("exp", (self.add(exponent),)))
        return self._keep(expr, Instruction("pow", (self.add(base), self.add(exponent))))

    def run(self, columns: Any, results: Mapping[int, Any] | None = None) -> list[Any]:
        """Compute all slots with NumPy; slots in `results` are written into those arrays."""
        return self._run(_NUMPY, columns, results or {})

    def run_torch(self, columns: Sequence[Tensor]) -> list[Any]:
        """Compute all slots with PyTorch, differentiably."""
        return self._run(_TORCH, columns, {})

    def _run(
        self, functions: Mapping[str, Any], columns: Any, results: Mapping[int, Any]
    ) -> list[Any]:
        values: list[Any] = list(columns)
        for slot, step in enumerate(self.steps, self.variables):
            if isinstance(step, Instruction):
                out = {"out": results[slot]} if slot in results else {}
                step = functions[step.name](*(values[i] for i in step.slots), **out)
            values.append(step)
        return values


class RowTape:
    """A tape whose results are the rows of a matrix."""

    def __init__(self, tape: Tape, slots: Sequence[int], rows: Sequence[int]) -> None:
        self.tape = tape
        self.direct: dict[int, int] = {}
        self.copied: list[tuple[int, int]] = []
        for slot, row in zip(slots, rows, strict=True):
            computed = slot >= tape.variables and isinstance(
                tape.steps[slot - tape.variables], Instruction
            )
            if computed and slot not in self.direct:
                self.direct[slot] = row  # computed in place
            else:
                self.copied.append((slot, row))

    def fill(self, columns: Sequence[Any] | np.ndarray, values: np.ndarray) -> None:
        """Evaluate at `columns`, arrays `(N,)` or numbers, into `values (rows, N)`."""
        found = self.tape.run(columns, {slot: values[row] for slot, row in self.direct.items()})
        for slot, row in self.copied:
            values[row] = found[slot]
