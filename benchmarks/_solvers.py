"""Solvers: the candidates of the package, and the solver published with the paper."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from smnn.experiments.bench.cases import Data as Data
from smnn.experiments.bench.solvers import Candidate as Candidate
from smnn.experiments.bench.solvers import scale as scale
from smnn.experiments.bench.solvers import scipy_candidate as scipy_candidate
from smnn.experiments.bench.solvers import smnn_candidate as smnn_candidate
from smnn.experiments.bench.solvers import torchdiffeq_candidate as torchdiffeq_candidate
from smnn.experiments.bench.solvers import with_gradients as with_gradients


def load_published(checkout: Path) -> ModuleType:
    """The solver published with the paper, from a checkout of its repository."""
    path = checkout / "smnn.py"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there; give the root of a ScalableMNN checkout")
    spec = importlib.util.spec_from_file_location("published_smnn", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["published_smnn"] = module
    spec.loader.exec_module(module)
    return module


def published_candidate(data: Data, module: ModuleType) -> Candidate:
    """The published solver with its default options."""
    extension = "C++ extension" if module.mnn is not None else "pure Python"
    return with_gradients(
        "published", data, lambda x: module.ode_forward(x["c"], x["d"], x["u"], x["s"]), extension
    )
