"""Linear differential equations as text or sympy equations, and mathematical expressions.

Examples:
    >>> from smnn import equations
    >>> text = "y'' + k*y = sin(t), k = 2.1, y(0) = 1, y'(0) = 0, t = 0 .. 10 step 0.01"
    >>> solution = equations.solve(text)
    >>> print(f"{solution['y'][-1]:.6f}", solution.warnings)
    -1.429796 []
"""

from __future__ import annotations

from smnn.equations._checks import contradictions as contradictions
from smnn.equations._checks import log_growth as log_growth
from smnn.equations._checks import required_values as required_values
from smnn.equations._expressions import ExpressionError as ExpressionError
from smnn.equations._expressions import OverBudget as OverBudget
from smnn.equations._expressions import budget as budget
from smnn.equations._expressions import parse_expression as parse_expression
from smnn.equations._expressions import quoted as quoted
from smnn.equations._solve import Solution as Solution
from smnn.equations._solve import solve as solve
from smnn.equations._system import EquationError as EquationError
from smnn.equations._system import EquationSystem as EquationSystem
from smnn.equations._system import LinearEquation as LinearEquation
from smnn.equations._system import PrescribedValue as PrescribedValue
from smnn.equations._system import SystemTensors as SystemTensors
from smnn.equations._tape import RowTape as RowTape
from smnn.equations._tape import Tape as Tape
from smnn.equations._text import parse as parse
from smnn.equations._text import read as read

__all__ = [
    "EquationError",
    "EquationSystem",
    "ExpressionError",
    "LinearEquation",
    "PrescribedValue",
    "Solution",
    "SystemTensors",
    "contradictions",
    "log_growth",
    "parse",
    "parse_expression",
    "read",
    "required_values",
    "solve",
]
