"""Scalable Mechanistic Neural Networks: differentiable linear ODE solving in linear time."""

from importlib.metadata import PackageNotFoundError, version

from smnn._backends.registry import available_backends as available_backends
from smnn._errors import BackendError as BackendError
from smnn._errors import ShapeError as ShapeError
from smnn._errors import SolveError as SolveError
from smnn._solve import Factorization as Factorization
from smnn._solve import Residuals as Residuals
from smnn._solve import SolveInfo as SolveInfo
from smnn._solve import factorize as factorize
from smnn._solve import residuals as residuals
from smnn._solve import solve as solve
from smnn._solve import solve_ex as solve_ex

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
    "residuals",
    "solve",
    "solve_ex",
]
