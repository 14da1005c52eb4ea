"""The expression parser: meaning, errors, and that nothing is executed."""

import re

import mpmath
import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from smnn.equations import _expressions
from smnn.equations._expressions import (
    CONSTANTS,
    FUNCTIONS,
    MAX_DEPTH,
    MAX_EXPONENT,
    MAX_LENGTH,
    ExpressionError,
    parse_expression,
)
from smnn.report import maths

NAMES = ["x", "y", "z'"]
x, y, z = (sympy.Symbol(name) for name in NAMES)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("x", x),
        ("z'", z),
        ("`z'`", z),
        ("1 + 2*x", 1 + 2 * x),
        ("x - y - 1", x - y - 1),
        ("x/y/2", x / y / 2),
        ("2^3^2", sympy.Integer(512)),
        ("-x^2", -(x**2)),
        ("(-x)^2", x**2),
        ("2^-x", 2 ** (-x)),
        ("x**2", x**2),
        ("+x", x),
        ("--x", x),
        ("x*-y", -x * y),
        ("0.5*x", x / 2),
        (".5e1*x", 5 * x),
        ("x^0.5", sympy.sqrt(x)),
        ("sqrt(x)*abs(y)", sympy.sqrt(x) * sympy.Abs(y)),
        ("e^x", sympy.exp(x)),
        ("sin(2*pi*x)", sympy.sin(2 * sympy.pi * x)),
        ("x − y·x", x - x * y),
        ("(x + y)*(x - y)", (x + y) * (x - y)),
        ("tanh(x)/cosh(y)", sympy.tanh(x) / sympy.cosh(y)),
    ],
)
def test_meaning(text: str, meaning: sympy.Expr) -> None:
    assert parse_expression(text, NAMES) == meaning


def test_a_variable_hides_a_constant_but_not_a_function() -> None:
    assert parse_expression("e*pi", ["e"]) == sympy.Symbol("e") * sympy.pi
    assert parse_expression("sin(sin)", ["sin"]) == sympy.sin(sympy.Symbol("sin"))


def test_names_with_any_characters_stand_between_backticks() -> None:
    name = "Sea level (mm)"
    assert parse_expression(f"2*`{name}`", [name]) == 2 * sympy.Symbol(name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the expression is empty"),
        ("   ", "the expression is empty"),
        ("x*sinn(y)", "unknown function 'sinn'; did you mean 'sin'?"),
        ("x*Y", "unknown name 'Y'; did you mean 'y'?"),
        ("y''", "unknown name \"y''\""),
        ("foo", "unknown name 'foo'"),
        ("sin", "sin is a function; write sin(...)"),
        ("2x", "expected a sign before 'x'"),
        ("x y", "expected a sign before 'y'"),
        ("(x y)", "expected a sign before 'y'"),
        ("x(y)", "expected a sign before '('"),
        ("q(y)", "unknown function 'q'"),
        ("(x", "this parenthesis is never closed"),
        ("sin(x", "this parenthesis is never closed"),
        ("x)", "this parenthesis was never opened"),
        ("x +", "expected a number, a variable or a parenthesis, found the end"),
        ("*x", "found '*'"),
        ("()", "found ')'"),
        ("x; y", "';' has no meaning in an expression"),
        ("x = 1", "'=' has no meaning"),
        ("x.real", "'.' has no meaning"),
        ("'x'", '"\'" has no meaning'),
        ("x[0]", "'[' has no meaning"),
        ("1/0", "division by zero"),
        ("x/(y - y)", "division by zero"),
        ("0^0", "zero to this power is not defined"),
        ("0^x", "zero to this power is not defined"),
        ("sqrt(-1)", "'sqrt' has no real value here"),
        ("log(0)", "'log' has no real value here"),
        ("(-8)^(1/3)", "'^' has no real value here"),
        ("tan(pi/2)", "not a finite real expression"),
        ("9**9**9", "the exponent 3.8742e+08 is beyond ±32"),
        ("x^33", "the exponent 33 is beyond ±32"),
        ("(x^20)^20", "powers multiply to an exponent beyond ±32"),
        ("x^20*x^20", "powers multiply to an exponent beyond ±32"),
        ("1e200", "the number 1e200 is larger than 1e+100"),
        ("1e999", "the number 1e999 is larger than 1e+100"),
        ("exp(exp(exp(9)))*x", "a constant is larger than 1e+100"),
        ("1e60*1e60", "a constant is larger than 1e+100"),
        ("exp(1000)", "a constant is larger than 1e+100"),
        ("(" * (MAX_DEPTH + 1) + "x" + ")" * (MAX_DEPTH + 1), f"nested more than {MAX_DEPTH} deep"),
        ("-" * (MAX_DEPTH + 1) + "x", f"nested more than {MAX_DEPTH} deep"),
        ("x+" * MAX_LENGTH + "x", f"expected at most {MAX_LENGTH}"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(ExpressionError) as error:
        parse_expression(text, NAMES)
    assert message in str(error.value)


def test_only_text_is_read() -> None:
    with pytest.raises(ExpressionError, match="got int; expected an expression as text"):
        parse_expression(3, NAMES)  # type: ignore[arg-type]


def test_an_error_points_at_the_place_and_lists_what_is_known() -> None:
    with pytest.raises(ExpressionError) as error:
        parse_expression("x + 2*q", NAMES)
    _, shown, caret, known = str(error.value).splitlines()
    assert shown[caret.index("^")] == "q"
    assert "variables x, y, z'" in known
    assert all(word in known for word in (*FUNCTIONS, *CONSTANTS))


def test_the_caret_stands_right_in_a_long_text() -> None:
    with pytest.raises(ExpressionError) as error:
        parse_expression("x + " * 60 + "q" + " + y" * 60, NAMES)
    _, shown, caret, _ = str(error.value).splitlines()
    assert shown[caret.index("^")] == "q"
    assert len(shown) < 100


PROGRAMS = (
    "__import__('os').system('true')", "x.__class__", "lambda: 0", "[x for x in ()]", "exec(x)",
    "eval(x)", "open(x)", "print(x)", "Symbol(x)", "x if y else x", "x or y", "f'{x}'",
    "x;import os", "\\x41", "x\x00", "os.system",
)  # fmt: skip


@pytest.mark.parametrize("text", PROGRAMS)
def test_programs_are_not_expressions(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse_expression(text, NAMES)


def test_the_text_is_never_given_to_anything_that_executes(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("executed")

    monkeypatch.setattr(sympy, "sympify", forbidden)
    monkeypatch.setattr(sympy, "parse_expr", forbidden)
    monkeypatch.setattr("builtins.eval", forbidden)
    monkeypatch.setattr("builtins.exec", forbidden)
    assert parse_expression("x*sin(2*pi*y)^2/(1 + x)", NAMES).free_symbols == {x, y}
    assert "eval" not in vars(_expressions)


# ---------------------------------------------------------------- random expressions


def numbers() -> st.SearchStrategy[str]:
    whole = st.integers(0, 99).map(str)
    return whole | st.floats(0.01, 99).map(lambda v: f"{v:.3g}") | st.sampled_from(["pi", "e"])


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    signs = st.sampled_from(["+", "-", "*", "/"])
    return (
        st.tuples(inner, signs, inner).map(lambda p: f"({p[0]}){p[1]}({p[2]})")
        | st.tuples(st.sampled_from(sorted(FUNCTIONS)), inner).map(lambda p: f"{p[0]}({p[1]})")
        | st.tuples(inner, st.integers(1, 3)).map(lambda p: f"({p[0]})^{p[1]}")
        | inner.map(lambda e: f"-({e})")
    )


EXPRESSIONS = st.recursive(numbers() | st.sampled_from(NAMES), grown, max_leaves=8)
WORLD = {name: getattr(mpmath, name) for name in FUNCTIONS if name != "abs"} | {
    "abs": abs, "pi": mpmath.mp.pi, "e": mpmath.mp.e, "number": mpmath.mpf,
}  # fmt: skip


def by_python(text: str, values: dict[str, mpmath.mpf]) -> mpmath.mpc:
    """The value as Python's own grammar has it: an oracle that shares no code with the parser."""
    exact = re.sub(r"\d+(\.\d*)?(e[+-]?\d+)?", r"number('\g<0>')", text)
    program = exact.replace("^", "**").replace("z'", "z")
    return mpmath.mpc(eval(program, {"__builtins__": {}}, WORLD | values))


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS, st.floats(0.2, 1.9), st.floats(0.2, 1.9), st.floats(0.2, 1.9))
def test_values_are_those_of_python(text: str, a: float, b: float, c: float) -> None:
    try:
        expr = parse_expression(text, NAMES)
    except ExpressionError:
        return
    with mpmath.workdps(60):  # so many digits that cancellation does not matter
        try:
            expected = by_python(text, {k: mpmath.mpf(v) for k, v in zip("xyz", (a, b, c))})
        except (OverflowError, ZeroDivisionError, ValueError):
            return
        values = {k: sympy.Float(v, 60) for k, v in zip((x, y, z), (a, b, c))}
        got = mpmath.mpc(*expr.subs(values).evalf(50).as_real_imag())
        if mpmath.isfinite(got) and abs(expected) > 1e-20:
            assert abs(got - expected) <= 1e-9 * abs(expected)


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS)
def test_what_is_written_reads_back_as_the_same(text: str) -> None:
    try:
        expr = parse_expression(text, NAMES)
    except ExpressionError:
        return
    written = maths.write(expr, maths.TEXT, NAMES)
    readable = re.sub(r"(?<=[\w)'`]) (?=[\w(`])", "*", written)  # products are written as spaces
    again = parse_expression(readable, NAMES)
    values = {x: 0.7, y: 1.3, z: 0.4}
    a, b = (complex(e.subs(values).evalf()) for e in (expr, again))
    if np.isfinite(a) and abs(a) < 1e9:
        assert abs(a - b) <= 1e-5 * max(1.0, abs(a))


@settings(max_examples=400, deadline=None)
@given(st.text(alphabet="xyz'()+-*/^., \t\n0123456789eEpisnlogqrt`_=[]{};:\"\\é²∞", max_size=60))
def test_any_text_is_read_or_refused_with_a_message(text: str) -> None:
    try:
        expr = parse_expression(text, NAMES)
    except ExpressionError:
        return
    assert {s.name for s in expr.free_symbols} <= set(NAMES)
    assert all(abs(float(p.exp)) <= MAX_EXPONENT for p in expr.atoms(sympy.Pow) if p.exp.is_number)
