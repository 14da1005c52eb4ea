"""Linear ODEs as text: solutions against closed forms, checks, and what is rejected."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy
import torch

import smnn
from smnn import equations
from smnn.equations import EquationError, _solve, log_growth, parse, read, required_values, solve

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
def test_closed_forms(name: str) -> None:
    text, truth = CLOSED[name]
    found = solve(text)
    for state, exact in truth.items():
        expected = exact(found.t)
        error = np.abs(found[state] - expected).max() / np.abs(expected).max()
        assert error < 2e-9, f"{state}: {error:.1e} at order {found.order}"
    assert not found.warnings
    assert found.change < 1e-8
    assert max(found.residuals.values()) < 1e-8 * max(1, np.abs(found.y).max())
    assert found.scheme == "hermite"
    assert found.growth_weighted == (name == "growth by twenty powers of ten")


def test_the_error_falls_with_the_order() -> None:
    text = CLOSED["driven oscillator"][0].replace("0.01", "0.05")
    exact = CLOSED["driven oscillator"][1]["y"]
    errors, changes = [], []
    for order in (2, 3, 4, 5, 6):
        found = solve(text, order=order, scheme="smnn")
        errors.append(np.abs(found["y"] - exact(found.t)).max())
        changes.append(found.change)
        assert found.order == order
    assert all(b < 0.3 * a for a, b in itertools.pairwise(errors))
    # The reported change bounds the error from the second order on.
    assert all(e < 3 * c for e, c in zip(errors[1:], changes[1:]))


def test_the_derivatives_of_the_equations_pay_off() -> None:
    """An order of 2 (R - 1) for equations of second order, also where they depend on time."""
    text = "t^2*y'' + t*y' + (t^2 - 1/4)*y = 0, y(1) = sin(1), y'(1) = cos(1) - sin(1)/2"
    errors = {}
    for scheme, step in (("hermite", 0.25), ("hermite", 0.125), ("smnn", 0.125)):
        found = solve(f"{text}, t = 1 .. 6 step {step}", order=4, scheme=scheme)
        assert found.scheme == scheme
        errors[scheme, step] = np.abs(found["y"] - np.sin(found.t) / np.sqrt(found.t)).max()
    assert errors["hermite", 0.125] < errors["hermite", 0.25] / 45
    assert errors["hermite", 0.125] < errors["smnn", 0.125] / 1000


def test_kinks_take_a_scheme_without_derivatives() -> None:
    text = "y'' + 4*y = abs(sin(t)), y(0) = 1, y'(0) = 0, t = 0 .. 10 step 0.01"
    assert solve(text).scheme in ("iwp", "smnn")
    with pytest.raises(EquationError, match=r"Abs\(sin\(t\)\) has a kink"):
        solve(text, scheme="hermite")
    with pytest.raises(EquationError, match=r"scheme: got 'best'; expected one of 'auto', 'smnn'"):
        solve(text, scheme="best")


def test_variables_of_different_orders() -> None:
    """x'' = z, z' = -x' with x = sin(t): as many derivatives and links as each needs."""
    found = solve("x'' = z, z' = -x', x(0) = 0, x'(0) = 1, z(0) = 0, t = 0 .. 6 step 0.2")
    assert found.scheme == "hermite"
    assert np.abs(found["x"] - np.sin(found.t)).max() < 1e-11
    assert np.abs(found["z"] + np.sin(found.t)).max() < 1e-11


def test_error_estimate_of_a_slow_solution_among_growing_ones() -> None:
    """Rounding grows by e^50 in any method that steps forward; the estimate must show it."""
    found = solve("y' = 5*(y - cos(t)) - sin(t), y(0) = 1, t = 0 .. 10 step 0.01")
    error = np.abs(found["y"] - np.cos(found.t)).max()
    assert error < 1e-4
    assert error < 10 * found.change


def test_parameters_in_any_order_and_changed() -> None:
    text = "b = 2*a\ny' = -b*y\na = 1\ny(0) = 1\nt = 0 .. 1 step 0.01"
    assert solve(text)["y"][-1] == pytest.approx(np.exp(-2), rel=1e-10)
    assert solve(text, parameters={"a": 0.25})["y"][-1] == pytest.approx(np.exp(-0.5), 1e-10)
    changed = solve(parse(text), parameters={"a": "sqrt(4)"})
    assert changed["y"][-1] == pytest.approx(np.exp(-4), 1e-9)
    assert "a = sqrt(4)" in str(changed.system)


def test_sympy_equations() -> None:
    t, k = sympy.symbols("t k")
    y = sympy.Function("y")
    system = parse(
        [
            sympy.Eq(
                y(t).diff(t, 2) + k**2 * y(t) / 3, 0.3 * sympy.exp(1) * sympy.Abs(sympy.sin(t))
            ),
            sympy.Eq(y(0), 1),
            sympy.Eq(y(t).diff(t).subs(t, 0), sympy.Rational(1, 3)),
            "k = 2, t = 0 .. 10 step 0.01",
        ]
    )
    same = "y'' + 4/3*y = 0.3*e*abs(sin(t)), y(0) = 1, y'(0) = 1/3, t = 0 .. 10 step 0.01"
    np.testing.assert_array_equal(solve(system, order=4).y, solve(same, order=4).y)
    with pytest.raises(EquationError, match=r"expected a sympy equation, sympy.Eq\(left, right\)"):
        parse([y(t) < 1])
    with pytest.raises(EquationError, match="expected functions of time alone"):
        parse([sympy.Eq(sympy.Function("u")(t, k), 1)])
    with pytest.raises(EquationError, match="expected derivatives of functions"):
        parse([sympy.Eq(sympy.Derivative(t * y(t), t), 1)])
    with pytest.raises(EquationError, match=r"line 1: the term 'y\^2'"):
        parse([sympy.Eq(y(t).diff(t), y(t) ** 2), "t = 0 .. 1"])


@pytest.mark.parametrize("name", CLOSED)
def test_the_text_of_a_system_parses_to_the_same_system(name: str) -> None:
    system = parse(CLOSED[name][0])
    again = parse(str(system))
    assert str(again) == str(system)
    for a, b in zip(system.tensors()[1:], again.tensors()[1:]):
        assert torch.equal(a, b)


def test_a_number_before_a_name_is_a_product() -> None:
    """As `smnn discover` writes equations; a digit that ends a name is not a factor."""
    rest = "\nx1(0) = 1, x1'(0) = 0\nt = 0 .. 2 step 0.01"
    short = solve("x1'' + 0.2 x1' + 4 (x1) = .5 cos(1.5 t) + 2e-1  t" + rest, order=4)
    full = solve("x1'' + 0.2*x1' + 4*(x1) = .5*cos(1.5*t) + 2e-1*t" + rest, order=4)
    np.testing.assert_array_equal(short.y, full.y)
    with pytest.raises(EquationError, match="expected a sign before"):
        solve("x1'' + x1 t = 0" + rest)


def test_the_grid_contains_the_times_of_values() -> None:
    text = "y' = 0\ny(0.25) = 1\nt = 0 .. 1 step 0.1"
    system = parse(text)
    np.testing.assert_allclose(system.grid(), np.sort([*np.linspace(0, 1, 11), 0.25]))
    problem = system.tensors()
    assert problem.u.shape == (4, 1, 2)
    assert problem.w_init.nonzero().tolist() == [[3, 0, 0]]
    assert len(parse(text.replace("0.25", "0.3 + 1e-12")).grid()) == 11


def test_tensors_are_the_arguments_of_the_solver() -> None:
    p = parse(CLOSED["driven oscillator"][0]).tensors()
    assert p.c.shape == (1, 1, 1, 3)  # constant in time, hence stored once
    assert p.d.shape == (1001, 1)
    y = smnn.solve(p.c, p.d, p.u, p.s, w_init=p.w_init, order=6)
    exact = CLOSED["driven oscillator"][1]["y"](p.t)
    np.testing.assert_allclose(y[:, 0, 0], exact, atol=1e-10)


def test_many_variables_are_not_tried_with_high_orders() -> None:
    names = [f"x{i}" for i in range(25)]
    text = "\n".join(f"{n}' = -{n}, {n}(0) = 1" for n in names) + "\nt = 0 .. 0.1 step 0.01"
    found = solve(text)
    assert found.order == 2  # one more than the equations: blocks of 75
    assert found.y.shape == (11, 25, 2)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    text = CLOSED["driven oscillator"][0]
    monkeypatch.setattr(_solve, "MAX_NUMBERS", 1001 * 5**2)
    assert solve(text).order == 4
    with pytest.raises(EquationError, match=r"1,001 times with 1 variables and 6 derivatives"):
        solve(text, order=6)
    monkeypatch.setattr(_solve, "MAX_NUMBERS", 1001 * 3**2)
    with pytest.raises(EquationError, match=r"Use a longer step or a shorter grid"):
        solve(text)


def test_the_search_for_an_order_ends_when_nothing_improves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_solve, "CONVERGED", 0.0)
    found = solve("y' = sign(t - 0.505), y(0) = 0, t = 0 .. 1 step 0.01")
    assert found.order <= 1 + _solve.MAX_EXTRA_ORDERS
    exact = np.abs(found.t - 0.505) - 0.505
    assert np.abs(found["y"] - exact).max() < 0.02


def test_backends_agree() -> None:
    text = CLOSED["a system and a parameter"][0]
    found = [solve(text, order=5, backend=name, device="cpu") for name in ("auto", "torch")]
    np.testing.assert_allclose(found[0].y, found[1].y, atol=1e-9)
    assert [f.backend for f in found] == ["cpu", "torch"]
    with pytest.raises(smnn.BackendError, match="backend: got 'magic'"):
        solve(text, backend="magic")


# ---------------------------------------------------------------- checks


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("y'' = y", 2),
        ("x' = y, y' = -x", 2),
        ("x' + y' = 0, x - y = cos(t)", 1),
        ("x'' = y', y'' = -x'", 4),
        ("(t - 0.5)*y' = t - 0.5", 1),  # all coefficients vanish in the middle of the grid
        ("(t - 0.5)*y' = y", 1),
        ("x' = y', 2*x' = 2*y'", None),
    ],
)
def test_number_of_required_values(text: str, count: int | None) -> None:
    c = parse(text + ", t = 0 .. 1").tensors().c.numpy()
    assert required_values(c) == count


def test_growth_of_solutions() -> None:
    def growth(equation: str, start: float) -> tuple[np.ndarray, np.ndarray]:
        p = parse(f"{equation}, t = 0 .. 2 step 0.01").tensors()
        return p.t, log_growth(p.c.numpy(), p.t, start)

    t, found = growth("y'' = 9*y", 0.0)
    np.testing.assert_allclose(found, 3 * t, atol=1e-12)
    t, found = growth("y' = -2*t*y", 2.0)  # backward from the end
    np.testing.assert_allclose(found, 4 - t**2, atol=1e-10)
    _, found = growth("y'' = -y", 1.0)
    np.testing.assert_allclose(found, 0.0, atol=1e-12)


def test_contradicting_values_give_a_warning() -> None:
    found = solve("y' = y, y(0) = 1, y(1) = 1, t = 0 .. 1 step 0.01")
    assert any("do not hold" in text for text in found.warnings)


def test_a_coarse_grid_gives_a_warning() -> None:
    found = solve("y'' = -400*y, y(0) = 1, y'(0) = 0, t = 0 .. 10 step 0.5", order=3)
    assert any("shorter step" in text for text in found.warnings)


# ---------------------------------------------------------------- rejected

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
    "no variable": (f"sin(t) = 2\n{GRID}", "there is no differential equation"),
    "no sign": (f"y' + y\n{GRID}", "expected one = with something on both sides"),
    "two signs": (f"y' = y = 1\n{GRID}", "expected one ="),
    "empty side": (f"y' =\n{GRID}", "expected one ="),
    "one equation for two": (f"x' = y\n{GRID}\ny(0) = 1", "got 1 equation for 2 variables (x, y)"),
    "too few values": (f"y'' = -y\ny(0) = 1\n{GRID}", "got 1 value, and the equations need 2 to "
                       "have one solution. Perhaps y'(0) is missing"),
    "value outside": (f"y' = y\ny(3) = 1\n{GRID}", "t = 3 is outside the grid from 0 to 1"),
    "value of high order": (f"y' = y\ny''(0) = 1\n{GRID}", "no derivative of order 2"),
    "value in time": (f"y' = y\ny(0) = t\n{GRID}", "'t' depends on t; expected a number"),
    "value twice": (f"y' = y\ny(0) = 1\ny(0) = 2\n{GRID}", "contradicts a value given before"),
    "grid backwards": ("y' = y\ny(0) = 1\nt = 1 .. 0 step 0.1", "expected the end above the start"),
    "negative step": ("y' = y\ny(0) = 1\nt = 0 .. 1 step -0.1", "the step is -0.1"),
    "too many times": ("y' = y\ny(0)=1\nt = 0 .. 1e9 step 1e-3", "expected at most 5,000,000"),
    "singular coefficient": (f"y' = y/t\ny(1) = 1\n{GRID}", "not a finite number at t = 0"),
    "parameters in a circle": (f"a = b\nb = a\ny' = a*y\n{GRID}", "are defined by each other"),
    "parameter twice": (f"a = 1\na = 2\ny' = a*y\n{GRID}", "line 2: a is defined again"),
    "order nine": (f"y''''''''' = y\n{GRID}", "derivative of order 9; expected at most 8"),
    "derivative of the time": (f"t' = 1\ny' = y\n{GRID}", "t is the time"),
    "no constraint": (f"y' = y\ny - y = 1\n{GRID}", "does not constrain y"),
    "code": (f"y' = __import__('os')\n{GRID}", "has no meaning in an expression"),
    "attribute": (f"y' = t.real\n{GRID}", "has no meaning in an expression"),
    "equations that say the same": (f"x' = y\n2*x' = 2*y\nx(0)=1, y(0)=1\n{GRID}", "depend on"),
    "a step too long": ("y'' = -1e6*y\ny(0) = 1, y'(0) = 0\nt = 0 .. 1 step 0.1",
                        "the step 0.1 is too long"),
    "overflow": ("y' = 400*y\ny(0) = 1\nt = 0 .. 10 step 0.001", "grow by a factor of "
                 "about 1e1737 on this grid"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_rejected(name: str) -> None:
    text, message = WRONG[name]
    with pytest.raises(EquationError) as error:
        solve(text)
    assert message in " ".join(str(error.value).split())
    assert isinstance(error.value, ValueError)


def test_an_order_below_that_of_the_equations_is_rejected() -> None:
    with pytest.raises(EquationError, match="order: got 1; expected at least 2, the order of the"):
        solve(CLOSED["driven oscillator"][0], order=1)


@pytest.mark.parametrize(("value", "message"), [({"q": 1}, "there is no parameter 'q'; the param"),
                                                ({"w": "y"}, "unknown name 'y'")])  # fmt: skip
def test_rejected_parameters(value: dict[str, Any], message: str) -> None:
    with pytest.raises(EquationError, match=message):
        parse(CLOSED["a system and a parameter"][0], value)


def test_a_caret_shows_the_position() -> None:
    with pytest.raises(EquationError) as error:
        parse(f"y' = 2*snn(t)\n{GRID}")
    lines = str(error.value).splitlines()
    at = next(i for i, line in enumerate(lines) if line.strip() == "2*snn(t)")
    assert lines[at][lines[at + 1].index("^")] == "s"


# ---------------------------------------------------------------- files and reports


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_files(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "decay.txt"
    path.write_text(f"y' = -y  # für\ny(0) = 1\n{GRID}", encoding=encoding)
    assert read(path).variables == ["y"]
    path.write_text(f"# für\ny' = -y^2\n{GRID}", encoding=encoding)
    with pytest.raises(EquationError, match=r"^decay.txt, line 2: the term 'y\^2'"):
        read(path)


def test_a_large_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smnn.equations._text.MAX_BYTES", 50)
    (tmp_path / "a").write_text("# " + "x" * 60)
    with pytest.raises(EquationError, match=r"larger than 50 bytes; .*smnn.discovery"):
        read(tmp_path / "a")


def test_what_is_not_a_file_or_a_text() -> None:
    for path, found in (("/dev/zero", "a device or a pipe"), ("/", "a folder")):
        with pytest.raises(EquationError, match=f"{path} is {found}; expected a file"):
            read(path)
    with pytest.raises(EquationError, match=r"cannot read .*embedded null"):
        read("\0")
    for text in (None, 5, b"y' = y"):
        with pytest.raises(TypeError, match=f"equations: got {type(text).__name__}; expected text"):
            solve(text)  # type: ignore[arg-type]


def test_report_without_a_file_or_command(tmp_path: Path) -> None:
    found = solve(f"y' = -y, y(0) = 1, {GRID}")
    record = equations.report.write(found, tmp_path)
    assert record["residuals"] == found.residuals
    page = (tmp_path / "report.html").read_text()
    assert page.count("<pre>") == 1
