"""The module names of mech-nn, for programs that cannot be edited."""

from __future__ import annotations

import importlib.util
import pdb
import sys
from types import ModuleType

from smnn.compat import _layers
from smnn.compat._config import ODEConfig, SolverType, solver_named


def install(solver: str | SolverType | None = None) -> None:
    """Provide the modules `solver.ode_layer` and `config` of mech-nn, regardless of `sys.path`.

    Call it before the first import of either. `ipdb`, which those programs import for debugging,
    is replaced by `pdb` if it is not installed.

    Args:
        solver: Solver of the layers, a `SolverType` or its name; unchanged if `None`.

    Raises:
        RuntimeError: Another `solver` or `config` has already been imported.
    """
    chosen = None if solver is None else solver_named(solver)
    modules = _modules()
    for name in modules:
        other = sys.modules.get(name)
        if other is not None and getattr(other, "__smnn__", None) is not True:
            raise RuntimeError(
                f"the module {name!r} has already been imported from "
                f"{getattr(other, '__file__', None) or 'elsewhere'}. Call "
                "smnn.compat.install() before the first import of it."
            )
    if chosen is not None:
        ODEConfig.linear_solver = chosen
    for name, module in modules.items():
        sys.modules.setdefault(name, module)
    if "ipdb" not in sys.modules and importlib.util.find_spec("ipdb") is None:
        sys.modules["ipdb"] = _module("ipdb", set_trace=pdb.set_trace, pm=pdb.pm)


def _module(name: str, **contents: object) -> ModuleType:
    module = ModuleType(name, f"Stands in for the module `{name}` of mech-nn; see `smnn.compat`.")
    module.__dict__.update(contents, __smnn__=True)
    return module


def _modules() -> dict[str, ModuleType]:
    config = _module("config", ODEConfig=ODEConfig, SolverType=SolverType)
    layers = _module(
        "solver.ode_layer", ODEINDLayer=_layers.ODEINDLayer, ODESYSLayer=_layers.ODESYSLayer,
        ODEConfig=ODEConfig, SolverType=SolverType,
    )  # fmt: skip
    # With an empty path it is a package without other modules, so that none of mech-nn is mixed in.
    package = _module("solver", ode_layer=layers, __path__=[])
    return {"config": config, "solver": package, "solver.ode_layer": layers}
