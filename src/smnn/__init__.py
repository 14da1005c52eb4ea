"""Scalable Mechanistic Neural Networks: differentiable linear ODE solving in linear time."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from smnn._solver.api import Factorization as Factorization
from smnn._solver.api import Residuals as Residuals
from smnn._solver.api import factorize as factorize
from smnn._solver.api import residuals as residuals
from smnn._solver.api import solve as solve
from smnn._solver.api import solve_ex as solve_ex
from smnn._solver.diagnostics import SolveInfo as SolveInfo
from smnn._solver.plan import available_backends as available_backends
from smnn.errors import BackendError as BackendError
from smnn.errors import ShapeError as ShapeError
from smnn.errors import SolveError as SolveError

if TYPE_CHECKING:
    from smnn.compat import ode_forward as ode_forward

try:
    __version__ = version("smnn")
except PackageNotFoundError:  # a source tree that is not installed
    __version__ = "0+unknown"

__all__ = [
    "BackendError",
    "Factorization",
    "Residuals",
    "ShapeError",
    "SolveError",
    "SolveInfo",
    "__version__",
    "available_backends",
    "factorize",
    "ode_forward",
    "residuals",
    "solve",
    "solve_ex",
]


def __getattr__(name: str) -> Any:
    """The published interface, imported when it is asked for."""
    if name == "ode_forward":
        from smnn.compat import ode_forward

        return ode_forward
    raise AttributeError(f"module 'smnn' has no attribute {name!r}")
