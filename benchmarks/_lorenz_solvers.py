"""Solvers for the Lorenz model: this library, the original MNN, and the published code.

`make(name, ...)` returns a solver, or raises `Unavailable` with the reason that is recorded.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import itertools
import sys
import types
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from _lorenz_model import Solver
from smnn.nn import LinearODE, MechanisticLayer

GAMMA, ALPHA = 0.05, 0.0
"""Parameters of the original MNN in its Lorenz experiment. With alpha = 0 gamma has no effect."""
CG_ITERATIONS = 200


class Unavailable(RuntimeError):
    """A solver cannot be used here."""


class Kind(NamedTuple):
    """A solver."""

    label: str
    same_rows: bool
    """Whether it minimizes the same rows as `smnn`, so that losses agree to rounding. Those of the
    original MNN differ (central rows and a slack), so its losses agree only approximately.
    """


KINDS = {
    "smnn": Kind("S-MNN (smnn)", True),
    "published": Kind("S-MNN (published)", True),
    "mnn-exact": Kind("MNN, linear time (smnn.baselines)", False),
    "mnn-dense": Kind("MNN dense (smnn.baselines)", False),
    "mnn-sparse": Kind(f"MNN sparse, CG {CG_ITERATIONS} (smnn.baselines)", False),
    "mechnn-dense": Kind("MNN dense (mech-nn)", False),
    "mechnn-sparse": Kind(f"MNN sparse, CG {CG_ITERATIONS} (mech-nn)", False),
}


def make(name: str, B: int, T: int, published: Path | None, mechnn: Path | None) -> Solver:
    """The solver of that name for a batch of `3 B` equations at `T` times."""
    if name == "smnn":
        return MechanisticLayer(check=False)
    if name == "published":
        return _published(_checkout("--published", published, "smnn.py"), T)
    if name.startswith("mnn-"):
        return _baseline(name)
    return _mechnn(_checkout("--mechnn", mechnn, "solver/ode_layer.py"), name, B, T)


def _checkout(option: str, folder: Path | None, file: str) -> Path:
    if folder is None:
        raise Unavailable(f"needs {option} with the folder of a checkout")
    if not (folder / file).is_file():
        raise Unavailable(f"{option}: {folder} holds no {file}")
    return folder


# ---------------------------------------------------------------- the published S-MNN

_versions = itertools.count(1)


def _published(folder: Path, T: int) -> Solver:
    """Call it as in its Lorenz notebook: time first, the left-hand side frozen.

    Every solver gets its own version number, so that it does not reuse a factor of another size.
    """
    from _solvers import load_published

    ode_forward, version = load_published(folder).ode_forward, next(_versions)

    def solve(ode: LinearODE) -> Tensor:
        y: Tensor = ode_forward(
            ode.c.expand(1, 3, -1, -1, -1, -1).movedim(2, 0),  # one factor per equation
            ode.d.movedim(2, 0),
            ode.u.movedim(2, 0),
            ode.s.movedim(2, 0),
            n_steps=T,
            is_step_dim_first=True,
            enable_central_smoothness=False,
            frozen_lhs_cache_version=version,
        )
        return y.movedim(0, 2)

    return solve


# ---------------------------------------------------------------- the original MNN


def _baseline(name: str) -> Solver:
    try:
        baselines = importlib.import_module("smnn.baselines")
    except ImportError as error:
        raise Unavailable(f"smnn.baselines is not there: {error}") from None
    function: Any = getattr(baselines, name.replace("-", "_"), None)
    if function is None:
        raise Unavailable(f"smnn.baselines has no {name.replace('-', '_')}")
    options: dict[str, Any] = {"gamma": GAMMA, "alpha": ALPHA, "check": False}
    if name == "mnn-sparse":
        options["max_iter"] = CG_ITERATIONS

    def solve(ode: LinearODE) -> Tensor:
        y: Tensor = function(*ode, **options)[0]
        return y

    return solve


def _mechnn(folder: Path, name: str, B: int, T: int) -> Solver:
    """The layer of the original code, whose batch size is fixed at construction."""
    module = _import_mechnn(folder, sparse=name == "mechnn-sparse")
    with contextlib.redirect_stdout(io.StringIO()):  # it prints messages
        layer = module.ODEINDLayer(
            bs=B, order=2, n_ind_dim=3, n_iv=1, n_step=T, n_iv_steps=1,
            solver_dbl=True, double_ret=True, gamma=GAMMA, alpha=ALPHA,
        )  # fmt: skip

    def solve(ode: LinearODE) -> Tensor:
        c = ode.c.expand(B, 3, T, 1, 1, 3)
        s = ode.s.expand(B, 3, T - 1)
        x: Tensor = layer(c, ode.d, ode.u, s)[0]
        return x[..., None, None]

    return solve


def _import_mechnn(folder: Path, *, sparse: bool) -> Any:
    """Import the original code again, because its solver is chosen on import."""
    for module in [m for m in sys.modules if m.split(".")[0] in ("config", "solver")]:
        del sys.modules[module]
    if importlib.util.find_spec("ipdb") is None:
        sys.modules.setdefault("ipdb", types.ModuleType("ipdb"))  # a debugger it imports
    sys.path.insert(0, str(folder))
    try:
        config = importlib.import_module("config")
        kind = "SPARSE_INDIRECT_BLOCK_CG" if sparse else "DENSE_CHOLESKY"
        config.ODEConfig.linear_solver = config.SolverType[kind]
        config.ODEConfig.cg_max_iter = CG_ITERATIONS
        return importlib.import_module("solver.ode_layer")
    except ImportError as error:
        raise Unavailable(f"--mechnn: {error}") from None
    finally:
        sys.path.remove(str(folder))
