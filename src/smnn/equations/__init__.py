"""Linear differential equations as text or sympy equations, and mathematical expressions.

Examples:
    >>> from smnn import equations
    >>> text = "y'' + k*y = sin(t), k = 2.1, y(0) = 1, y'(0) = 0, t = 0 .. 10 step 0.01"
    >>> solution = equations.solve(text)
    >>> print(f"{solution['y'][-1]:.6f}", solution.warnings)
    -1.429802 []
"""

from __future__ import annotations

from smnn.equations import report
from smnn.equations._checks import contradictions, log_growth, required_values
from smnn.equations._expressions import ExpressionError, parse_expression, quoted
from smnn.equations._solve import Solution, solve
from smnn.equations._system import (
    EquationError,
    EquationSystem,
    LinearEquation,
    PrescribedValue,
    SystemTensors,
)
from smnn.equations._tape import RowTape, Tape
from smnn.equations._text import parse, read

__all__ = [
    "EquationError", "EquationSystem", "ExpressionError", "LinearEquation", "PrescribedValue",
    "RowTape", "Solution", "SystemTensors", "Tape", "contradictions", "log_growth", "parse",
    "parse_expression", "quoted", "read", "report", "required_values", "solve",
]  # fmt: skip
