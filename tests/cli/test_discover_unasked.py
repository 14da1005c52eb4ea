"""`smnn discover` without options: what it tries by itself, and what it says of the result."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from smnn.cli._discover_run import _doubt
from smnn.cli.discover import discover

app = typer.Typer()
app.command("discover")(discover)
app.callback()(lambda: None)
T = np.arange(0, 20, 0.05)


def invoke(folder: Path, *words: str, **columns: np.ndarray) -> Any:
    path = folder / "data.csv"
    table = np.column_stack(list(columns.values()))
    np.savetxt(path, table, delimiter=",", header=",".join(columns), comments="")
    found = CliRunner().invoke(app, ["discover", str(path), "--out", str(folder / "out"), *words])
    assert found.exit_code == 0, found.output
    return found


def test_a_position_alone_has_an_equation_of_second_order(tmp_path: Path) -> None:
    x = np.exp(-0.1 * T) * np.cos(2 * T)
    found = invoke(tmp_path, t=T, x=x)
    assert "x'' = -4.010 x - 0.2000 x'" in found.stdout
    assert "the equations are of second order: those of first order do not hold" in found.stderr
    assert "of second order" in (tmp_path / "out/report.html").read_text()
    kept = invoke(tmp_path, "--order", "1", t=T, x=x)
    assert "x'' =" not in kept.stdout
    assert "the equation of x does not hold" in kept.stderr


def test_nothing_is_said_of_equations_that_hold(tmp_path: Path) -> None:
    x = np.exp(-0.1 * T) * np.column_stack([np.cos(2 * T), -np.sin(2 * T)]).T
    noise = 0.01 * np.random.default_rng(0).standard_normal(x.shape)
    found = invoke(tmp_path, t=T, x=x[0] + noise[0], y=x[1] + noise[1])
    assert "hold" not in found.stderr
    assert "explained" not in found.stderr


def test_how_much_is_not_explained() -> None:
    class Made:
        variables_ = ("a", "b")
        noise_ = (1e-5, 1e-5)
        coefficients_ = np.ones((2, 8))
        states_ = (np.array([[1.0, 1.0], [-1.0, -1.0]]),)
        report_: dict[str, Any] = {}  # noqa: RUF012

    model = Made()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _doubt(model)
    model.coefficients_ = np.ones((2, 9))
    with pytest.warns(UserWarning, match="the equation of a has 9 terms: such sums imitate"):
        _doubt(model)
    model.coefficients_ = np.ones((2, 2))
    model.report_ = {"holds": True, "missed": [0.0, 0.0]}
    _doubt(model)
    model.report_ = {"holds": False, "missed": [0.012, 0.001]}
    with pytest.warns(UserWarning, match=r"^1\.2 % of the change from row to row is not explained"):
        _doubt(model)
    model.noise_ = (0.05, 1e-5)  # noise that hides as much
    _doubt(model)
    model.report_ = {"holds": False, "missed": [0.17, 0.51]}
    with pytest.warns(UserWarning, match=r"equation of b does not hold: 51 % .* \(--inputs b\)"):
        _doubt(model)
    model.report_ = {"holds": False, "missed": [0.9, 0.8]}
    with pytest.warns(UserWarning, match=r"equations of a, b do not hold: most of the change"):
        _doubt(model)
