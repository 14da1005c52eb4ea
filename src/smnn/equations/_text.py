"""Parse linear ODEs from text; nothing is executed.

k = 2.1                      a parameter: numbers, other parameters, and t
y'' + k*y = sin(t)           an equation; primes are derivatives
y(0) = 1, y'(0) = 0          prescribed values, at any time of the grid
t = 0 .. 10 step 0.01        the grid; or: t = 0 .. 10 in 1000 steps
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import sympy
from sympy.core.function import AppliedUndef
from sympy.printing.str import StrPrinter

from smnn._util.files import InputError, check_file
from smnn.equations._expressions import CONSTANTS, FUNCTIONS, ExpressionError, parse_expression
from smnn.equations._system import (
    EquationError,
    EquationSystem,
    LinearEquation,
    PrescribedValue,
    Statement,
)
from smnn.report import maths

MAX_BYTES = 100_000
"""Size of a file of equations."""
MAX_STEPS = 5_000_000
MAX_DERIVATIVE = 8
"""Highest derivative in an equation."""
DEFAULT_STEPS = 1000
EXAMPLE = (
    "Expected lines such as\n"
    "    y'' + 2.1*y = sin(t)\n"
    "    y(0) = 1, y'(0) = 0\n"
    "    t = 0 .. 10 step 0.01"
)
_NAME = r"[^\W\d]\w*"
_GRID = re.compile(
    rf"(?P<name>{_NAME})\s*=(?P<low>[^=]+?)\.\.(?P<high>[^=]+?)"
    r"(\bstep\b(?P<step>.+)|\bin\b(?P<count>.+?)\bsteps?\b)?"
)
_VALUE = re.compile(rf"(?P<name>{_NAME})(?P<primes>'*)\s*\((?P<at>[^=]*)\)")
_STATE = re.compile(rf"(?<![\w.]){_NAME}'*")
_JUXTAPOSED = re.compile(
    r"(?<![\w.])((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[ \t](?=[ \t]*[^\W\d]|[ \t]*\()"
)
"""A number, a space and a name: a product, as in `0.2 x`."""
_EQUIVALENT = str.maketrans({"−": "-", "–": "-", "′": "'", "’": "'", "″": "''", "…": ".."})


def parse(
    equations: str | EquationSystem | Iterable[str | sympy.Eq],
    parameters: Mapping[str, float | str] | None = None,
) -> EquationSystem:
    """Parse linear ODEs, parameters, prescribed values and a time grid.

    Args:
        equations: Statements on lines, or between commas or semicolons; text after `#` is ignored.
            Or a list of such texts and of sympy equations, as in
            `[Eq(y(t).diff(t), -y(t)), Eq(y(0), 1), "t = 0 .. 1 step 0.01"]`. Or a system, to
            change its parameters.
        parameters: Values that replace those of parameters in `equations`.

    Raises:
        EquationError: With the line, the reason and what was expected.
    """
    if isinstance(equations, EquationSystem):
        equations = str(equations)
    elif not isinstance(equations, str):
        if not isinstance(equations, Iterable) or isinstance(equations, bytes):
            raise TypeError(
                f"equations: got {type(equations).__name__}; expected text, a list of statements, "
                "or an EquationSystem."
            )
        equations = "\n".join(
            e if isinstance(e, str) else _StatementPrinter().doprint(e) for e in equations
        )
    return _parse(equations, parameters)


def read(path: str | Path, parameters: Mapping[str, float | str] | None = None) -> EquationSystem:
    """Read a text file of equations; see `parse`.

    Raises:
        EquationError: The file cannot be read, or not parsed.
    """
    path = Path(path)
    return _parse(_file_text(path), parameters, path.name)


def _parse(
    text: str, parameters: Mapping[str, float | str] | None, file: str = ""
) -> EquationSystem:
    statements = [
        Statement(part.strip(), number, file)
        for number, line in enumerate(text.splitlines(), 1)
        for part in re.split(r"[,;]", line.partition("#")[0].translate(_EQUIVALENT))
        if part.strip()
    ]
    changes = {name: str(value) for name, value in (parameters or {}).items()}
    return _SystemParser(statements, changes).system()


def _file_text(path: Path) -> str:
    """Contents of a small text file in UTF-8, UTF-16 or, failing these, Windows-1252."""
    try:
        check_file(path)
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except InputError as error:
        raise EquationError(f"{error} It should contain equations.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise EquationError(
            f"cannot read {path}: {reason}; expected a text file of equations."
        ) from None
    if len(raw) > MAX_BYTES:
        raise EquationError(
            f"{path.name} is larger than {MAX_BYTES:,} bytes; expected a few lines of equations. "
            "For a table of data, smnn.discovery finds the equations behind it."
        )
    utf16 = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = raw.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("cp1252", "replace")
    if any(not c.isprintable() and not c.isspace() for c in text):
        raise EquationError(f"{path.name} is not text: it begins with {raw[:8]!r}. {EXAMPLE}")
    if not text.strip():
        raise EquationError(f"{path.name} is empty. {EXAMPLE}")
    return text


class _StatementPrinter(StrPrinter):
    """Writes sympy equations as statements, with primes for derivatives."""

    def _print_Relational(self, expr: Any) -> str:
        if not isinstance(expr, sympy.Eq):
            raise EquationError(f"got {expr}; expected a sympy equation, sympy.Eq(left, right).")
        return f"{self._print(expr.lhs)} = {self._print(expr.rhs)}"

    def _print_AppliedUndef(self, expr: Any, order: int = 0) -> str:
        if len(expr.args) > 1:
            raise EquationError(f"got {expr}; expected functions of time alone, such as y(t).")
        return expr.func.__name__ + "'" * order + self._at(expr.args[0])

    def _print_Derivative(self, expr: Any) -> str:
        if not isinstance(expr.expr, AppliedUndef):
            raise EquationError(f"got {expr}; expected derivatives of functions, such as y(t).")
        return self._print_AppliedUndef(expr.expr, expr.derivative_count)

    def _print_Subs(self, expr: Any) -> str:
        """A derivative at a point."""
        return self._print(expr.expr) + self._at(expr.point[0])

    def _at(self, time: Any) -> str:
        return "" if time.is_Symbol else f"({self._print(time)})"

    def _print_Float(self, expr: Any) -> str:
        return repr(float(expr))

    def _print_Abs(self, expr: Any) -> str:
        return f"abs({self._print(expr.args[0])})"

    def _print_Exp1(self, expr: Any) -> str:
        return "e"


class _SystemParser:
    """Sorts statements into grid, parameters, equations and values, then parses each kind."""

    def __init__(self, statements: Sequence[Statement], changes: Mapping[str, str]) -> None:
        self.grid: tuple[Statement, re.Match[str]] | None = None
        self.values: list[tuple[Statement, re.Match[str], str]] = []
        others: list[Statement] = []
        for s in statements:
            if match := _GRID.fullmatch(s.text):
                if self.grid is not None:
                    s.fail(f"a second grid; the first is in line {self.grid[0].line}.")
                self.grid = s, match
                continue
            left, sign, right = s.text.partition("=")
            if not sign or not left.strip() or not right.strip() or "=" in right:
                s.fail(f"got {s.text!r}; expected one = with something on both sides. {EXAMPLE}")
            match = _VALUE.fullmatch(left.strip())
            if match is not None and match["name"] not in FUNCTIONS:
                self.values.append((s, match, right))
            else:
                others.append(s)
        if self.grid is None:
            raise EquationError(
                f"there is no grid; add a line such as t = 0 .. 10 step 0.01. {EXAMPLE}"
            )
        self.time = self.grid[1]["name"]
        self.equations, self.definitions = self._sorted(others)
        self.variables, self.orders = self._variables()
        self.parameters = self._parameters(changes)
        self.start, self.end, self.step = self._grid(*self.grid)

    def _sorted(self, statements: list[Statement]) -> tuple[list[Statement], dict[str, Statement]]:
        """Separate equations from definitions of parameters, by name."""
        primed = {n.rstrip("'") for s in statements for n in _STATE.findall(s.text) if "'" in n}
        self.dependent = primed | {match["name"] for _, match, _ in self.values}
        excluded = {*self.dependent, *FUNCTIONS, *CONSTANTS, self.time}
        equations: list[Statement] = []
        definitions: dict[str, Statement] = {}
        for s in statements:
            name = s.text.partition("=")[0].strip()
            if not re.fullmatch(_NAME, name) or name in excluded:
                equations.append(s)
            elif name in definitions:
                s.fail(f"{name} is defined again; the first is in line {definitions[name].line}.")
            else:
                definitions[name] = s
        # A name defined by variables is a variable itself, with an algebraic equation.
        while algebraic := [n for n, s in definitions.items() if self._mentions_variables(s)]:
            self.dependent.update(algebraic)
            equations += [definitions.pop(name) for name in algebraic]
        if not equations or not self.dependent:
            raise EquationError(f"there is no differential equation. {EXAMPLE}")
        return sorted(equations, key=lambda s: s.line), definitions

    def _mentions_variables(self, s: Statement) -> bool:
        used = _STATE.findall(s.text.partition("=")[2])
        return any(name.rstrip("'") in self.dependent for name in used)

    def _variables(self) -> tuple[list[str], list[int]]:
        """Variables in order of appearance, and the highest derivative of each."""
        names = [n for s in self.equations for n in _STATE.findall(s.text)]
        orders: dict[str, int] = {}
        for name in names + [match["name"] for _, match, _ in self.values]:
            plain = name.rstrip("'")
            if plain in self.dependent:
                orders[plain] = max(orders.get(plain, 0), len(name) - len(plain))
        if self.time in orders:
            raise EquationError(
                f"{self.time} is the time; it cannot have derivatives or prescribed values."
            )
        for name, top in orders.items():
            if top > MAX_DERIVATIVE:
                raise EquationError(
                    f"{name} has a derivative of order {top}; expected at most {MAX_DERIVATIVE}."
                )
        return list(orders), list(orders.values())

    def _parameters(self, changes: Mapping[str, str]) -> dict[str, Any]:
        """Parameters as expressions in time alone, whatever order they are defined in."""
        for name, value in changes.items():
            if name not in self.definitions:
                known = ", ".join(self.definitions) or "none"
                raise EquationError(f"there is no parameter {name!r}; the parameters are: {known}.")
            self.definitions[name] = self.definitions[name]._replace(text=f"{name} = {value}")
        names = [self.time, *self.definitions]
        right = {n: s.text.partition("=")[2] for n, s in self.definitions.items()}
        pending = {n: self._expression(self.definitions[n], right[n], names) for n in right}
        self.known: dict[Any, Any] = {}
        while pending:
            unknown = {sympy.Symbol(n) for n in pending}
            ready = [n for n, e in pending.items() if not e.free_symbols & unknown]
            if not ready:
                self.definitions[next(iter(pending))].fail(
                    f"the parameters {', '.join(pending)} are defined by each other."
                )
            resolved = {sympy.Symbol(n): pending.pop(n).xreplace(self.known) for n in ready}
            self.known |= resolved
        return {symbol.name: expr for symbol, expr in self.known.items()}

    def _expression(self, s: Statement, text: str, names: Sequence[str]) -> Any:
        try:
            return parse_expression(_JUXTAPOSED.sub(r"\1*", text).strip(), list(names))
        except ExpressionError as error:
            hint = ""
            if re.search(rf"\bd\w+\s*/\s*d{re.escape(self.time)}\b", text):
                hint = f" Derivatives are written with primes: y' for dy/d{self.time}."
            s.fail(f"in {s.text!r}: {error}{hint}")

    def _number(self, s: Statement, text: str) -> float:
        """A constant expression, in which parameters may occur."""
        expr = self._expression(s, text, [self.time, *self.parameters]).xreplace(self.known)
        if expr.free_symbols:
            s.fail(f"{text.strip()!r} depends on {self.time}; expected a number.")
        return float(expr)

    def _grid(self, s: Statement, match: re.Match[str]) -> tuple[float, float, float]:
        """Start, end and step."""
        low, high = self._number(s, match["low"]), self._number(s, match["high"])
        length = high - low
        if not length > 0:
            s.fail(f"the grid runs from {low:g} to {high:g}; expected the end above the start.")
        if match["step"] is not None:
            step = self._number(s, match["step"])
        else:
            step = length / max(1, round(self._number(s, match["count"] or str(DEFAULT_STEPS))))
        if not 0 < step <= length:
            s.fail(f"the step is {step:g}; expected more than 0 and at most {length:g}.")
        if length / step > MAX_STEPS:
            s.fail(
                f"the grid has {length / step:,.0f} steps; expected at most {MAX_STEPS:,}. "
                "Use a longer step: a higher order keeps the accuracy."
            )
        return low, high, step

    def system(self) -> EquationSystem:
        """Parse equations and values."""
        equations = [self._equation(s) for s in self.equations]
        values = [self._value(*value) for value in self.values]
        V = len(self.variables)
        if len(equations) < V:
            raise EquationError(
                f"got {len(equations)} equation{'s' * (len(equations) != 1)} for {V} variables "
                f"({', '.join(self.variables)}); expected one for each. If one of these names is "
                "a parameter, define it on a line of its own, such as k = 2.1."
            )
        assert self.grid is not None
        statements = [
            *self.definitions.values(), *self.equations, *(s for s, *_ in self.values),
            self.grid[0],
        ]  # fmt: skip
        return EquationSystem(
            self.time, self.variables, self.orders, equations, values, self.start, self.end,
            self.step, self.parameters, statements,
        )  # fmt: skip

    def _value(self, s: Statement, match: re.Match[str], text: str) -> PrescribedValue:
        name, order = match["name"], len(match["primes"])
        v = self.variables.index(name)
        if order > self.orders[v]:
            s.fail(
                f"{name} has no derivative of order {order} in the equations; the highest is "
                f"{self.orders[v]}."
            )
        at = self._number(s, match["at"])
        margin = 1e-9 * self.step
        if not self.start - margin <= at <= self.end + margin:
            s.fail(f"{self.time} = {at:g} is outside the grid from {self.start:g} to {self.end:g}.")
        return PrescribedValue(s, v, order, at, self._number(s, text))

    def _equation(self, s: Statement) -> LinearEquation:
        """Coefficients are the derivatives of the residual with respect to each state."""
        left, _, right = s.text.partition("=")
        states = {
            sympy.Symbol(n + "'" * r): (v, r)
            for v, (n, top) in enumerate(zip(self.variables, self.orders))
            for r in range(top + 1)
        }
        names = [*(x.name for x in states), self.time, *self.parameters]
        sides = self._expression(s, left, names), self._expression(s, right, names)
        self._check_linear(s, sides, list(states))
        residual = (sides[0] - sides[1]).xreplace(self.known)
        c = {at: residual.diff(x) for x, at in states.items() if residual.has(x)}
        c = {at: a for at, a in c.items() if a != 0}
        if not c:
            s.fail(f"{s.text!r} does not constrain {', '.join(self.variables)}.")
        d = -residual.xreplace(dict.fromkeys(states, sympy.S.Zero))
        return LinearEquation(s, c, d, sides)

    def _check_linear(self, s: Statement, sides: tuple[Any, Any], states: list[Any]) -> None:
        """A term is linear if its derivative with respect to each state is free of states."""
        for term in (term for side in sides for term in sympy.Add.make_args(side)):
            if any(term.diff(x).has(*states) for x in states if term.has(x)):
                bare = -term if term.could_extract_minus_sign() else term
                named = maths.write(bare, maths.TEXT, [x.name for x in states])
                s.fail(
                    f"the term {named!r} in {s.text!r} is not linear in "
                    f"{', '.join(self.variables)}. Expected each variable or derivative alone, "
                    f"multiplied by numbers and functions of {self.time}."
                )
