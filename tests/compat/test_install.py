"""Programs written for mech-nn run without edits."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from smnn.compat import ODEConfig, ODEINDLayer, ODESYSLayer, SolverType, install
from smnn.compat.__main__ import main

NAMES = ("solver", "solver.ode_layer", "config", "ipdb")
PROGRAM = """\
import sys
import numpy as np
import torch
import ipdb
from solver.ode_layer import ODEINDLayer
from config import ODEConfig
import helper

n = 50
ode = ODEINDLayer(bs=1, order=2, n_ind_dim=1, n_iv=2, n_step=n, n_iv_steps=1)
coeffs = torch.tensor(np.repeat(np.array([[1, 0, 1]], dtype="float32"), n, axis=0))
u0, u1, u2, eps, _ = ode(coeffs, torch.zeros(n), torch.tensor([0.0, 1.0]), 0.05 * torch.ones(n - 1))
print(__name__, sys.argv[1:], ODEConfig.linear_solver.name, helper.NAME)
print(f"{u0[0, 0, -1].item():.3f}", np.isclose(u0[0, 0, -1].item(), np.sin(0.05 * 49), atol=5e-3))
"""


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No module of mech-nn loaded, before and after."""
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(ODEConfig, "linear_solver", SolverType.EXACT)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield monkeypatch
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder laid out like mech-nn, with a `solver` and a `config` that must not be found."""
    for name in ("solver/__init__.py", "solver/ode_layer.py", "config.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("raise AssertionError('the wrong module was imported')\n")
    (tmp_path / "helper.py").write_text("NAME = 'a module of the checkout'\n")
    (tmp_path / "fit").mkdir()
    (tmp_path / "fit" / "program.py").write_text(PROGRAM)
    return tmp_path


def test_install(clean: pytest.MonkeyPatch, checkout: Path) -> None:
    clean.syspath_prepend(str(checkout))
    install()
    install("dense_cholesky")
    layers = importlib.import_module("solver.ode_layer")
    assert layers.ODEINDLayer is ODEINDLayer
    assert layers.ODESYSLayer is ODESYSLayer
    assert importlib.import_module("solver").ode_layer is layers
    config = importlib.import_module("config")
    assert (config.ODEConfig, config.SolverType) == (ODEConfig, SolverType)
    assert ODEConfig.linear_solver is SolverType.DENSE_CHOLESKY
    with pytest.raises(ModuleNotFoundError, match=r"solver\.cg"):
        importlib.import_module("solver.cg")


def test_a_missing_debugger_is_replaced(clean: pytest.MonkeyPatch) -> None:
    clean.setattr(importlib.util, "find_spec", lambda name: None)
    install()
    import pdb

    import ipdb

    assert ipdb.set_trace is pdb.set_trace


def test_too_late(clean: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config.py").write_text("")
    clean.syspath_prepend(str(tmp_path))
    importlib.import_module("config")
    with pytest.raises(RuntimeError, match=r"'config' has already been imported from .*config\.py"):
        install()
    assert "solver" not in sys.modules


@pytest.mark.parametrize("form", [["fit/program.py"], ["-m", "fit.program"]])
def test_main_runs_a_program(
    form: list[str], clean: pytest.MonkeyPatch, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clean.chdir(checkout)
    clean.setitem(sys.modules, "fit", None)  # forget it afterwards
    clean.delitem(sys.modules, "fit")
    assert main(["--solver", "dense_cholesky", *form, "--epochs", "3"]) == 0
    first, second = capsys.readouterr().out.splitlines()[-2:]
    assert first == "__main__ ['--epochs', '3'] DENSE_CHOLESKY a module of the checkout"
    assert second == "0.633 True"
    sys.modules.pop("helper")


def test_command_line(checkout: Path) -> None:
    """As a person types it, in the folder of the checkout; and nothing heavy is loaded for it."""
    heavy = ("matplotlib", "scipy", "pandas", "sklearn", "pytorch_lightning", "smnn.experiments")
    (checkout / "fit" / "program.py").write_text(
        f"import sys; print([m for m in {heavy} if m in sys.modules])\n"
        "import config, helper, solver.ode_layer\n"
        "print(__name__, sys.argv, config.ODEConfig.linear_solver.name, helper.NAME)\n"
        "sys.exit(5)\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-m", "smnn.compat", "fit/program.py", "x"],
        cwd=checkout, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 5, done.stderr
    loaded, told = done.stdout.splitlines()
    assert loaded == "[]"
    assert told == "__main__ ['fit/program.py', 'x'] EXACT a module of the checkout"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no script given"),
        (["-m"], "no module given"),
        (["absent.py"], "absent.py: there is no such script"),
        (["--solver", "fast", "x.py"], "solver: got 'fast'; expected one of DENSE_CHOLESKY"),
        (["--solver"], "solver: got ''"),
    ],
)
def test_refusals(
    arguments: list[str], message: str, clean: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert "usage: python -m smnn.compat" in error


def test_help(clean: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "-m MODULE [ARGUMENTS...]" in capsys.readouterr().out
