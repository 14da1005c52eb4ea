"""Scalable Mechanistic Neural Networks: differentiable linear ODE solving in linear time."""

from __future__ import annotations

import importlib
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
from smnn._solver.posterior import FittedWeights as FittedWeights
from smnn._solver.posterior import Leverage as Leverage
from smnn._solver.posterior import Posterior as Posterior
from smnn._solver.posterior import fit_weights as fit_weights
from smnn._solver.posterior import posterior as posterior
from smnn.errors import BackendError as BackendError
from smnn.errors import ShapeError as ShapeError
from smnn.errors import SmnnError as SmnnError
from smnn.errors import SolveError as SolveError

if TYPE_CHECKING:
    from smnn import baselines as baselines
    from smnn import compat as compat
    from smnn import data as data
    from smnn import datasets as datasets
    from smnn import discovery as discovery
    from smnn import equations as equations
    from smnn import forecasting as forecasting
    from smnn import nn as nn
    from smnn import nonlinear as nonlinear
    from smnn import report as report
    from smnn import training as training
    from smnn.compat import ode_forward as ode_forward
    from smnn.nn import LinearODE as LinearODE
    from smnn.nonlinear import odeint as odeint
    from smnn.nonlinear import smooth as smooth
    from smnn.nonlinear import solve_bvp as solve_bvp

try:
    __version__ = version("smnn")
except PackageNotFoundError:  # a source tree that is not installed
    __version__ = "0+unknown"

__all__ = [
    "BackendError",
    "Factorization",
    "FittedWeights",
    "Leverage",
    "LinearODE",
    "Posterior",
    "Residuals",
    "ShapeError",
    "SmnnError",
    "SolveError",
    "SolveInfo",
    "__version__",
    "available_backends",
    "factorize",
    "fit_weights",
    "ode_forward",
    "odeint",
    "posterior",
    "residuals",
    "smooth",
    "solve",
    "solve_bvp",
    "solve_ex",
]

# Imported on first access, so that `import smnn` stays fast.
_SUBPACKAGES = (
    *("baselines", "compat", "data", "datasets", "discovery", "equations", "forecasting", "nn"),
    *("nonlinear", "report", "training"),
)
_NAMES = {
    "LinearODE": "smnn.nn", "ode_forward": "smnn.compat", "odeint": "smnn.nonlinear",
    "smooth": "smnn.nonlinear", "solve_bvp": "smnn.nonlinear",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"smnn.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'smnn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBPACKAGES})
