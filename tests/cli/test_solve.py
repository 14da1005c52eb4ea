"""`smnn solve`: solutions against closed forms, what it refuses, what it writes."""

import csv
import itertools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from smnn.cli import _solve_run
from smnn.cli._app import app
from smnn.cli._guard import WrongUseError
from smnn.cli._solve_run import assemble, make_grid, run
from smnn.cli._solve_text import EquationError, read_system

runner = CliRunner()
FILES = ["report.html", "solution.csv", "solution.json", "solution.png"]
CPU = torch.device("cpu")


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def solved(path: Path, text: str, order: int | None = None, **changes: str) -> Any:
    system = read_system(written(path / "system.txt", text), changes)
    return run(system, order=order, device=CPU, backend="auto", command="")


def invoke(*words: object) -> Any:
    return runner.invoke(app, ["solve", *map(str, words)])


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# ---------------------------------------------------------------- closed forms

CLOSED: dict[str, tuple[str, dict[str, Any]]] = {
    "driven oscillator": (
        "y'' + 2.1*y = sin(t)\ny(0) = 1\ny'(0) = 0\nt = 0 .. 10 step 0.01",
        {
            "y": lambda t: (
                np.cos(np.sqrt(2.1) * t)
                + (np.sin(t) - np.sin(np.sqrt(2.1) * t) / np.sqrt(2.1)) / 1.1
            )
        },
    ),
    "time-dependent coefficient": (
        "y' + 2*t*y = 0, y(0) = 1; t = 0 .. 2 step 0.01",
        {"y": lambda t: np.exp(-(t**2)), "y'": lambda t: -2 * t * np.exp(-(t**2))},
    ),
    "Euler's equation, singular at 0": (
        "t^2*y'' - 2*y = 0\ny(1) = 1, y'(1) = -1\nt = 1 .. 3 in 200 steps",
        {"y": lambda t: 1 / t},
    ),
    "a system and a parameter": (
        "w = 2*pi  # angular frequency\nx' = w*y\ny' = -w*x\nx(0) = 0, y(0) = 1\n"
        "t = 0..1 step 0.005",
        {"x": lambda t: np.sin(2 * np.pi * t), "y": lambda t: np.cos(2 * np.pi * t)},
    ),
    "values at both ends": (
        "y'' = y, y(0) = 0, y(1) = sinh(1), t = 0 .. 1 step 0.01",
        {"y": np.sinh, "y'": np.cosh},
    ),
    "values between the points of the grid": (
        "y'' = -y, y(0.123456) = cos(0.123456), y'(1.00005) = -sin(1.00005), t = 0 .. 2 step 0.01",
        {"y": np.cos},
    ),
    "values at the end alone, run backwards": (
        "z' = -z\nz(2) = exp(-2)\nt = 0 .. 2 step 0.01",
        {"z": lambda t: np.exp(-t)},
    ),
    "third order": (
        "q''' + q'' + q' + q = 0\nq(0) = 1, q'(0) = 0, q''(0) = -1\nt = 0 .. 5 step 0.01",
        {"q": np.cos, "q''": lambda t: -np.cos(t)},
    ),
    "an algebraic equation": (
        "total = x + y\nx' = -x\ny' = x\nx(0) = 1, y(0) = 2\nt = 0 .. 3 step 0.01",
        {"total": lambda t: np.full_like(t, 3.0), "x": lambda t: np.exp(-t)},
    ),
    "derivatives of two variables in one equation": (
        "x' + y' = 0, x - y = cos(t), x(0) = 1, t = 0 .. 3 step 0.01",
        {"x": lambda t: (np.cos(t) + 1) / 2, "y": lambda t: (1 - np.cos(t)) / 2},
    ),
    "another name of the time, a coefficient by name": (
        "g = 1/(1 + x)\nu' = g*u\nu(0) = 2\nx = 0 .. 4 step 0.01",
        {"u": lambda x: 2 * (1 + x)},
    ),
    "right-hand side with brackets": (
        "y' = -3*(y - cos(t)) - sin(t)\ny(0) = 1\nt = 0 .. 6 step 0.01",
        {"y": np.cos},
    ),
    "growth by twenty powers of ten": (
        "y' = 5*y, y(0) = 1, t = 0 .. 10 step 0.01",
        {"y": lambda t: np.exp(5 * t)},
    ),
    "growth against the time": (
        "y' = -(1 + t)*y, y(6) = 1, t = 0 .. 6 step 0.01",
        {"y": lambda t: np.exp(24 - t - t**2 / 2)},
    ),
    "a grid that the step does not divide": (
        "y' = y\ny(0) = 1\nt = 0 .. 1 step 0.03",
        {"y": np.exp},
    ),
}


@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms(tmp_path: Path, name: str) -> None:
    text, truth = CLOSED[name]
    found = solved(tmp_path, text)
    columns = found.columns
    for state, exact in truth.items():
        expected = exact(found.t)
        error = np.abs(columns[state] - expected).max() / np.abs(expected).max()
        assert error < 2e-9, f"{state}: {error:.1e} at order {found.order}"
    assert not found.warnings
    assert found.change < 1e-8
    assert max(found.residuals.values()) < 1e-8 * max(1, np.abs(found.y).max())


def test_the_error_falls_with_the_order(tmp_path: Path) -> None:
    text = CLOSED["driven oscillator"][0].replace("0.01", "0.05")
    exact = CLOSED["driven oscillator"][1]["y"]
    errors, changes = [], []
    for order in (2, 3, 4, 5, 6):
        found = solved(tmp_path, text, order)
        errors.append(np.abs(found.columns["y"] - exact(found.t)).max())
        changes.append(found.change)
        assert found.order == order
    assert all(b < 0.3 * a for a, b in itertools.pairwise(errors))
    # What is told as trust bounds what is true, from the second order on.
    assert all(e < 3 * c for e, c in zip(errors[1:], changes[1:]))


def test_a_quiet_solution_among_growing_ones(tmp_path: Path) -> None:
    """Rounding alone grows by e^50 in any method that steps forward; what is told is honest."""
    text = "y' = 5*(y - cos(t)) - sin(t), y(0) = 1, t = 0 .. 10 step 0.01"
    found = solved(tmp_path, text)
    error = np.abs(found.columns["y"] - np.cos(found.t)).max()
    assert error < 1e-4
    assert error < 10 * found.change


def test_parameters_in_any_order_and_changed(tmp_path: Path) -> None:
    text = "b = 2*a\ny' = -b*y\na = 1\ny(0) = 1\nt = 0 .. 1 step 0.01"
    assert solved(tmp_path, text).columns["y"][-1] == pytest.approx(np.exp(-2), rel=1e-10)
    assert solved(tmp_path, text, a="0.25").columns["y"][-1] == pytest.approx(np.exp(-0.5), 1e-10)
    assert solved(tmp_path, text, a="sqrt(4)").columns["y"][-1] == pytest.approx(np.exp(-4), 1e-9)


def test_a_number_before_a_name_is_a_product(tmp_path: Path) -> None:
    """As `smnn discover` writes equations; a digit that ends a name is no factor."""
    rest = "\nx1(0) = 1, x1'(0) = 0\nt = 0 .. 2 step 0.01"
    short = solved(tmp_path, "x1'' + 0.2 x1' + 4 (x1) = .5 cos(1.5 t) + 2e-1  t" + rest, order=4)
    full = solved(tmp_path, "x1'' + 0.2*x1' + 4*(x1) = .5*cos(1.5*t) + 2e-1*t" + rest, order=4)
    np.testing.assert_array_equal(short.y, full.y)
    with pytest.raises(EquationError, match="expected a sign before"):
        solved(tmp_path, "x1'' + x1 t = 0" + rest)


def test_the_grid_holds_the_given_times(tmp_path: Path) -> None:
    text = "y' = 0\ny(0.25) = 1\nt = 0 .. 1 step 0.1"
    system = read_system(written(tmp_path / "a", text))
    np.testing.assert_allclose(make_grid(system), np.sort([*np.linspace(0, 1, 11), 0.25]))
    problem = assemble(system, CPU)
    assert problem.u.shape == (4, 1, 2)
    assert problem.w_init.nonzero().tolist() == [[3, 0, 0]]
    near = read_system(written(tmp_path / "b", text.replace("0.25", "0.3 + 1e-12")))
    assert len(make_grid(near)) == 11


def test_many_variables_are_not_tried_with_high_orders(tmp_path: Path) -> None:
    names = [f"x{i}" for i in range(25)]
    text = "\n".join(f"{n}' = -{n}, {n}(0) = 1" for n in names) + "\nt = 0 .. 0.1 step 0.01"
    found = solved(tmp_path, text)
    assert found.order == 2  # one more than the equations: blocks of 75
    assert found.y.shape == (11, 25, 2)


def test_memory_is_kept_in_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = CLOSED["driven oscillator"][0]
    monkeypatch.setattr(_solve_run, "MOST_NUMBERS", 1001 * 5**2)
    assert solved(tmp_path, text).order == 4
    with pytest.raises(WrongUseError, match=r"1,001 times with 1 variables and 6 derivatives"):
        solved(tmp_path, text, 6)
    monkeypatch.setattr(_solve_run, "MOST_NUMBERS", 1001 * 3**2)
    with pytest.raises(WrongUseError, match=r"Take a longer step or a shorter grid"):
        solved(tmp_path, text)


def test_what_does_not_change_is_stored_once(tmp_path: Path) -> None:
    system = read_system(written(tmp_path / "a", CLOSED["driven oscillator"][0]))
    problem = assemble(system, CPU)
    assert problem.c.shape == (1, 1, 1, 3)
    assert problem.d.shape == (1001, 1)


# ---------------------------------------------------------------- doubts


def test_contradicting_values_are_told(tmp_path: Path) -> None:
    found = solved(tmp_path, "y' = y, y(0) = 1, y(1) = 1, t = 0 .. 1 step 0.01")
    assert any("do not hold" in text for text in found.warnings)


def test_a_coarse_grid_is_told(tmp_path: Path) -> None:
    text = "y'' = -400*y, y(0) = 1, y'(0) = 0, t = 0 .. 10 step 0.5"
    assert any("shorter step" in x for x in solved(tmp_path, text, 3).warnings)


# ---------------------------------------------------------------- what is refused

GRID = "t = 0 .. 1 step 0.1"
WRONG = {
    "nonlinear power": (f"y' = y - y^2\ny(0)=1\n{GRID}", "line 1: the term 'y^2' in"),
    "nonlinear product": (f"x' = x*z\nz' = 1\n{GRID}", "'x z' in \"x' = x*z\" is not linear"),
    "nonlinear function": (f"a'' + sin(a) = 0\n{GRID}", "the term 'sin(a)'"),
    "nonlinear derivative": (f"y*y' = 1\n{GRID}", "the term \"y y'\" in"),
    "nonlinear bracket": (f"y' = 2*y*(1 - y)\n{GRID}", "the term '2 y (1 - y)'"),
    "nonlinear quotient": (f"y' = t/y\n{GRID}", "the term 't/y'"),
    "nonlinear by a parameter": (f"k = 3\ny' = k*abs(y)\n{GRID}", "the term 'k abs(y)'"),
    "unknown name": (f"y' = -q*y\n{GRID}", "unknown name 'q'"),
    "unknown function": (f"y' = sen(t)\n{GRID}", "unknown function 'sen'; did you mean 'sin'?"),
    "dy/dt": (f"dy/dt = -y\ny(0) = 1\n{GRID}", "Derivatives are written with primes"),
    "no grid": ("y' = -y\ny(0) = 1", "there is no grid"),
    "two grids": (f"y' = y\n{GRID}\n{GRID}", "line 3: a second grid; the first is in line 2"),
    "no equation": (f"k = 2\n{GRID}", "there is no differential equation"),
    "no sign": (f"y' + y\n{GRID}", "expected one = with something on both sides"),
    "two signs": (f"y' = y = 1\n{GRID}", "expected one ="),
    "empty side": (f"y' =\n{GRID}", "expected one ="),
    "one equation for two": (f"x' = y\n{GRID}\ny(0) = 1", "got 1 equation for 2 variables (x, y)"),
    "too few values": (f"y'' = -y\ny(0) = 1\n{GRID}", "got 1 value, and the equations need 2 to "
                       "have one solution. Perhaps y'(0) is missing"),
    "value outside": (f"y' = y\ny(3) = 1\n{GRID}", "t = 3 is outside the grid from 0 to 1"),
    "value of high order": (f"y' = y\ny''(0) = 1\n{GRID}", "no derivative of order 2"),
    "value in time": (f"y' = y\ny(0) = t\n{GRID}", "'t' changes with t; expected a number"),
    "value twice": (f"y' = y\ny(0) = 1\ny(0) = 2\n{GRID}", "contradicts a value given before"),
    "grid backwards": ("y' = y\ny(0) = 1\nt = 1 .. 0 step 0.1", "expected the end above the start"),
    "negative step": ("y' = y\ny(0) = 1\nt = 0 .. 1 step -0.1", "the step is -0.1"),
    "too many times": ("y' = y\ny(0)=1\nt = 0 .. 1e9 step 1e-3", "expected at most 5,000,000"),
    "singular coefficient": (f"y' = y/t\ny(1) = 1\n{GRID}", "not a finite number at t = 0"),
    "parameters in a circle": (f"a = b\nb = a\ny' = a*y\n{GRID}", "are defined by each other"),
    "parameter twice": (f"a = 1\na = 2\ny' = a*y\n{GRID}", "line 2: a is defined again"),
    "order nine": (f"y''''''''' = y\n{GRID}", "derivative of order 9; expected at most 8"),
    "derivative of the time": (f"t' = 1\ny' = y\n{GRID}", "t is the time"),
    "says nothing": (f"y' = y\ny - y = 1\n{GRID}", "says nothing about y"),
    "code": (f"y' = __import__('os')\n{GRID}", "has no meaning in an expression"),
    "attribute": (f"y' = t.real\n{GRID}", "has no meaning in an expression"),
    "equations that say the same": (f"x' = y\n2*x' = 2*y\nx(0)=1, y(0)=1\n{GRID}", "depend on"),
    "a step too long": ("y'' = -1e6*y\ny(0) = 1, y'(0) = 0\nt = 0 .. 1 step 0.1",
                        "the step 0.1 is too long"),
    "overflow": ("y' = 400*y\ny(0) = 1\nt = 0 .. 10 step 0.001", "grow by a factor of "
                 "about 1e1737 on this grid"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(tmp_path: Path, name: str) -> None:
    text, message = WRONG[name]
    file = written(tmp_path / "system.txt", text)
    done = invoke(file, "--out", tmp_path / "out")
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert message in " ".join(done.stderr.split()), done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out" / "report.html").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--order", "1"], "--order: got 1; expected at least 2, the order of the equations"),
        (["--set", "q=1"], "--set: there is no parameter 'q'; the file has k"),
        (["--set", "k"], "--set: got 'k'; expected NAME=VALUE"),
        (["--set", "k=y"], "unknown name 'y'"),
        (["--backend", "magic"], "--backend: backend: got 'magic'; expected one of"),
        (["--device", "tpu"], "--device: got 'tpu'; expected cpu or cuda"),
    ],
)
def test_wrong_options(tmp_path: Path, words: list[str], message: str) -> None:
    text = f"k = 1\ny'' = -k*y\ny(0) = 1, y'(0) = 0\n{GRID}"
    done = invoke(written(tmp_path / "a.txt", text), "--out", tmp_path / "out", *words)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())


def test_a_caret_shows_the_place(tmp_path: Path) -> None:
    done = invoke(written(tmp_path / "a.txt", f"y' = 2*snn(t)\n{GRID}"))
    lines = done.stderr.splitlines()
    at = next(i for i, line in enumerate(lines) if line.strip() == "2*snn(t)")
    assert lines[at][lines[at + 1].index("^")] == "s"


# ---------------------------------------------------------------- what is written


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("solve")
    text = "k = 2.1\ny'' + k*y = sin(t)\ny(0) = 1, y'(0) = 0\nt = 0 .. 10 step 0.05"
    file = written(folder / "swing.txt", text)
    words = ["solve", str(file), "--order", "6", "--set", "k=2.1", "--out", str(folder / "out")]
    return file, folder / "out", runner.invoke(app, words)


def test_files_and_summary(done: Any) -> None:
    file, out, result = done
    assert result.exit_code == 0, result.output
    assert sorted(os.listdir(out)) == FILES
    with (out / "solution.csv").open() as text:
        rows = list(csv.DictReader(text))
    assert list(rows[0]) == ["t", "y", "y'", "y''"]
    exact = CLOSED["driven oscillator"][1]["y"]
    worst = max(abs(float(r["y"]) - exact(float(r["t"]))) for r in rows)
    assert worst < 1e-6
    assert (out / "solution.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    for words in ("y'' + k*y = sin(t)", "order 6", "how far the equations", "solution.csv"):
        assert words in result.stdout
    record = json.loads((out / "solution.json").read_text())
    assert record["command"] == f"smnn solve {file} --set=k=2.1 --order=6 --out={out}"
    assert record["residuals"].keys() == {"governing", "initial", "smoothness"}
    assert record["end_state"]["y"] == pytest.approx(exact(10.0), abs=1e-6)
    page = (out / "report.html").read_text()
    assert "<math>" in page
    assert page.count('class="plot"') == 1
    assert "smnn solve" in page


def test_json_is_all_that_is_printed(tmp_path: Path) -> None:
    file = written(tmp_path / "a.txt", f"y' = -y\ny(0) = 1\n{GRID}")
    result = invoke(file, "--json", "--out", tmp_path / "out")
    assert json.loads(result.stdout)["variables"] == ["y"]
    assert result.stderr == ""


def test_names_from_a_file_cannot_act_in_the_page(tmp_path: Path) -> None:
    file = written(tmp_path / "<b>x.txt", f"_x' = -_x\n_x(0) = 1\n{GRID}")
    result = invoke(file, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "<b>x" not in (tmp_path / "out" / "report.html").read_text()


def test_backends_agree(tmp_path: Path) -> None:
    system = read_system(written(tmp_path / "a", CLOSED["a system and a parameter"][0]))
    found = [run(system, order=5, device=CPU, backend=b, command="") for b in ("auto", "torch")]
    np.testing.assert_allclose(found[0].y, found[1].y, atol=1e-9)
    assert [f.backend for f in found] == ["cpu", "torch"]


def test_a_large_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smnn.cli._solve_text.MOST_BYTES", 50)
    with pytest.raises(EquationError, match=r"larger than 50 bytes; .*smnn discover"):
        read_system(written(tmp_path / "a", "# " + "x" * 60))


def test_trying_orders_ends_when_nothing_gets_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_solve_run, "ENOUGH", 0.0)
    found = solved(tmp_path, "y' = sign(t - 0.505), y(0) = 0, t = 0 .. 1 step 0.01")
    assert found.order <= 1 + _solve_run.MOST_EXTRA
    exact = np.abs(found.t - 0.505) - 0.505
    assert np.abs(found.columns["y"] - exact).max() < 0.02
