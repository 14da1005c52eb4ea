"""The text file of `smnn solve`: linear equations, values, a grid, parameters; nothing executed.

# a driven oscillator
k = 2.1                      a parameter: numbers, other parameters, and t
y'' + k*y = sin(t)           an equation; primes are derivatives
y(0) = 1, y'(0) = 0          values, at any time of the grid
t = 0 .. 10 step 0.01        the grid; or: t = 0 .. 10 in 1000 steps
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from smnn._util.optional import MissingPackageError, require
from smnn.cli._guard import WrongUseError

MOST_BYTES = 100_000
"""Size of a file of equations."""
MOST_TIMES = 5_000_000
"""Points of a grid."""
HIGHEST = 8
"""Order of a derivative in an equation."""
STEPS = 1000
"""Steps of a grid that names none."""
SHAPE = (
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
_NAMES = re.compile(rf"(?<![\w.]){_NAME}'*")
_JUXTAPOSED = re.compile(
    r"(?<![\w.])((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[ \t](?=[ \t]*[^\W\d]|[ \t]*\()"
)
"""A number before a name, as `smnn discover` writes products: `0.2 x`."""


class EquationError(WrongUseError):
    """A file of equations cannot be used; says which line, why, and what to do."""


class Statement(NamedTuple):
    """One statement and the line it stands in."""

    line: int
    text: str

    def fail(self, why: str) -> NoReturn:
        """Raise an error that names the line."""
        raise EquationError(f"line {self.line}: {why}")


@dataclass(frozen=True)
class Equation:
    """A linear equation, `sum c[v, r] y_v^(r) = d`; `c` and `d` are expressions in time."""

    where: Statement
    c: dict[tuple[int, int], Any]
    """Coefficients by variable and order; sympy expressions in the time."""
    d: Any
    expr: tuple[Any, Any]
    """Left and right side as they were written, for the page."""


class Value(NamedTuple):
    """`y_v^(r)(at) = value`."""

    where: Statement
    variable: int
    order: int
    at: float
    value: float


@dataclass(frozen=True)
class System:
    """Everything that a file says."""

    time: str
    """The name of the time."""
    names: list[str]
    """Variables, `V` of them."""
    orders: list[int]
    """Highest derivative of each in the equations."""
    equations: list[Equation]
    values: list[Value]
    ends: tuple[float, float]
    step: float
    parameters: dict[str, Any]
    """As they are used: sympy expressions in the time."""

    @property
    def states(self) -> list[str]:
        """`y`, `y'`, ... of every variable."""
        return [n + "'" * r for n, top in zip(self.names, self.orders) for r in range(top + 1)]


def read_system(path: Path, changes: Mapping[str, str] | None = None) -> System:
    """Read a file of equations.

    Args:
        path: The file.
        changes: Parameters that get another value than in the file.

    Raises:
        EquationError: Says where and why.
        MissingPackageError: Without sympy.
    """
    try:
        require("sympy", "read equations")
    except MissingPackageError:
        raise MissingPackageError(
            "sympy is needed to read equations; pip install 'smnn[discovery]'."
        ) from None
    try:
        return _Reading(_statements(_text(path)), changes or {}).system()
    except EquationError as error:
        raise EquationError(f"{path.name}, {error}" if _lined(error) else str(error)) from None


def _lined(error: EquationError) -> bool:
    return str(error).startswith("line ")


def _text(path: Path) -> str:
    """The text of a small file, whatever its encoding."""
    if path.is_dir():
        raise EquationError(f"{path} is a folder; expected a text file of equations.")
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise EquationError(f"there is no file {path}.") from None
    except PermissionError:
        raise EquationError(f"{path} may not be read; change its permissions.") from None
    except OSError as error:
        raise EquationError(f"cannot read {path}: {error.strerror or error}.") from None
    if len(raw) > MOST_BYTES:
        raise EquationError(
            f"{path.name} is larger than {MOST_BYTES:,} bytes; expected a few lines of equations. "
            "Is it data? `smnn discover` finds the equations behind data."
        )
    wide = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = raw.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("cp1252", "replace")
    if any(not c.isprintable() and not c.isspace() for c in text):
        raise EquationError(f"{path.name} is not text: it begins with {raw[:8]!r}. {SHAPE}")
    if not text.strip():
        raise EquationError(f"{path.name} is empty. {SHAPE}")
    return text


def _statements(text: str) -> list[Statement]:
    """Statements without comments; several in a line stand between commas or semicolons."""
    same = str.maketrans({"−": "-", "–": "-", "′": "'", "’": "'", "″": "''", "…": ".."})
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        for part in re.split(r"[,;]", line.partition("#")[0].translate(same)):
            if part.strip():
                found.append(Statement(number, part.strip()))
    return found


class _Reading:
    """One file on its way in: first what each statement is, then what it says."""

    def __init__(self, statements: Sequence[Statement], changes: Mapping[str, str]) -> None:
        from smnn.equations._expressions import CONSTANTS, FUNCTIONS

        self.known = {*FUNCTIONS, *CONSTANTS}
        self.functions = set(FUNCTIONS)
        self.grid: tuple[Statement, re.Match[str]] | None = None
        self.values: list[tuple[Statement, re.Match[str], str]] = []
        rest: list[Statement] = []
        for s in statements:
            if match := _GRID.fullmatch(s.text):
                if self.grid is not None:
                    s.fail(f"a second grid; the first is in line {self.grid[0].line}.")
                self.grid = s, match
                continue
            left, sign, right = s.text.partition("=")
            if not sign or not left.strip() or not right.strip() or "=" in right:
                s.fail(f"got {s.text!r}; expected one = with something on both sides. {SHAPE}")
            place = _VALUE.fullmatch(left.strip())
            if place is not None and place["name"] not in self.functions:
                self.values.append((s, place, right))
            else:
                rest.append(s)
        if self.grid is None:
            raise EquationError(
                f"there is no grid; add a line such as t = 0 .. 10 step 0.01. {SHAPE}"
            )
        self.time = self.grid[1]["name"]
        self._sort(rest)
        self._read_parameters(changes)

    # ------------------------------------------------------------ what is what

    def _sort(self, rest: list[Statement]) -> None:
        """Cut the rest into parameters and equations, and find the variables."""
        primed = {n.rstrip("'") for s in rest for n in _NAMES.findall(s.text) if "'" in n}
        given = {m["name"] for _, m, _ in self.values}
        variables = primed | given
        definitions: dict[str, Statement] = {}
        self.equations: list[Statement] = []
        for s in rest:
            name = s.text.partition("=")[0].strip()
            plain = re.fullmatch(_NAME, name) and name not in variables and name not in self.known
            if not plain or name == self.time:
                self.equations.append(s)
                continue
            if name in definitions:
                s.fail(f"{name} is defined again; the first is in line {definitions[name].line}.")
            definitions[name] = s
        # What is made of variables is a variable itself, with an equation that has no derivative.
        grown = True
        while grown:
            grown = False
            for name, s in list(definitions.items()):
                used = {n.rstrip("'") for n in _NAMES.findall(s.text.partition("=")[2])}
                if used & variables:
                    variables.add(name)
                    self.equations.append(definitions.pop(name))
                    grown = True
        self.definitions = definitions
        self.equations.sort(key=lambda s: s.line)
        if not self.equations:
            raise EquationError(f"there is no differential equation. {SHAPE}")
        order = [n.rstrip("'") for s in self.equations for n in _NAMES.findall(s.text)]
        order += [m["name"] for _, m, _ in self.values]
        self.names = [n for n in dict.fromkeys(order) if n in variables]
        if self.time in self.names:
            raise EquationError(
                f"{self.time} is the time; its derivatives and values have no meaning."
            )
        written = [n for s in self.equations for n in _NAMES.findall(s.text)]
        self.orders = [
            max((len(n) - len(name) for n in written if n.rstrip("'") == name), default=0)
            for name in self.names
        ]
        for name, top in zip(self.names, self.orders):
            if top > HIGHEST:
                raise EquationError(
                    f"{name} has a derivative of order {top}; expected at most {HIGHEST}."
                )

    def _parse(self, s: Statement, text: str, names: Sequence[str]) -> Any:
        from smnn.equations._expressions import ExpressionError, parse_expression

        try:
            return parse_expression(_JUXTAPOSED.sub(r"\1*", text).strip(), list(names))
        except ExpressionError as error:
            hint = ""
            if re.search(rf"\bd\w+\s*/\s*d{re.escape(self.time)}\b", text):
                hint = f" Derivatives are written with primes: y' for dy/d{self.time}."
            s.fail(f"in {s.text!r}: {error}{hint}")

    def _read_parameters(self, changes: Mapping[str, str]) -> None:
        """Parameters as expressions in time alone, whatever order they are written in."""
        import sympy

        texts = {n: (s, s.text.partition("=")[2]) for n, s in self.definitions.items()}
        for name, value in changes.items():
            if name not in texts:
                known = ", ".join(texts) or "none"
                raise EquationError(f"--set: there is no parameter {name!r}; the file has {known}.")
            texts[name] = Statement(self.definitions[name].line, f"{name} = {value}"), value
        self.parameters: dict[str, Any] = {}
        names = [self.time, *texts]
        todo = {n: (s, self._parse(s, text, names)) for n, (s, text) in texts.items()}
        while todo:
            ready = [
                n for n, (_, e) in todo.items() if not {x.name for x in e.free_symbols} & set(todo)
            ]
            if not ready:
                s, _ = next(iter(todo.values()))
                s.fail(f"the parameters {', '.join(todo)} are defined by each other.")
            earlier = {sympy.Symbol(n): e for n, e in self.parameters.items()}
            for n in ready:
                self.parameters[n] = todo.pop(n)[1].xreplace(earlier)

    # ------------------------------------------------------------ what it says

    def system(self) -> System:
        """Everything together."""
        equations = [self._equation(s) for s in self.equations]
        low, high, step = self._grid()
        values = [self._value(s, match, text) for s, match, text in self.values]
        V = len(self.names)
        if len(equations) < V:
            raise EquationError(
                f"got {len(equations)} equation{'s' * (len(equations) != 1)} for {V} variables "
                f"({', '.join(self.names)}); expected one for each. A name that is a number needs "
                "a line of its own, such as k = 2.1."
            )
        return System(
            self.time, self.names, self.orders, equations, values, (low, high), step,
            self.parameters,
        )  # fmt: skip

    def _number(self, s: Statement, text: str) -> float:
        """A constant: parameters may occur, the time may not."""
        expr = self._parse(s, text, [self.time, *self.parameters]).xreplace(self._known())
        if expr.free_symbols:
            s.fail(f"{text.strip()!r} changes with {self.time}; expected a number.")
        return float(expr)

    def _known(self) -> dict[Any, Any]:
        import sympy

        return {sympy.Symbol(n): e for n, e in self.parameters.items()}

    def _grid(self) -> tuple[float, float, float]:
        assert self.grid is not None
        s, match = self.grid
        low, high = self._number(s, match["low"]), self._number(s, match["high"])
        if not low < high:
            s.fail(f"the grid runs from {low:g} to {high:g}; expected the end above the start.")
        if match["count"] is not None:
            step = (high - low) / max(1.0, round(self._number(s, match["count"])))
        elif match["step"] is not None:
            step = self._number(s, match["step"])
        else:
            step = (high - low) / STEPS
        if not 0 < step <= high - low:
            s.fail(f"the step is {step:g}; expected more than 0 and at most {high - low:g}.")
        if (high - low) / step > MOST_TIMES:
            s.fail(
                f"the grid has {(high - low) / step:,.0f} steps; expected at most {MOST_TIMES:,}. "
                "Take a longer step: a high --order keeps the accuracy."
            )
        return low, high, step

    def _value(self, s: Statement, match: re.Match[str], text: str) -> Value:
        name, order = match["name"], len(match["primes"])
        v = self.names.index(name)
        if order > self.orders[v]:
            s.fail(
                f"{name} has no derivative of order {order} in the equations; the highest is "
                f"{self.orders[v]}."
            )
        at = self._number(s, match["at"])
        low, high, step = self._grid()
        if not low - 1e-9 * step <= at <= high + 1e-9 * step:
            s.fail(f"{self.time} = {at:g} is outside the grid from {low:g} to {high:g}.")
        return Value(s, v, order, at, self._number(s, text))

    def _equation(self, s: Statement) -> Equation:
        """Take a statement apart; every coefficient is the derivative by its state."""
        import sympy

        left, _, right = s.text.partition("=")
        states = {
            sympy.Symbol(n + "'" * r): (v, r)
            for v, (n, top) in enumerate(zip(self.names, self.orders))
            for r in range(top + 1)
        }
        names = [*(x.name for x in states), self.time, *self.parameters]
        sides = self._parse(s, left, names), self._parse(s, right, names)
        whole = (sides[0] - sides[1]).xreplace(self._known())
        self._check_linear(s, sides, list(states))
        c = {place: whole.diff(symbol) for symbol, place in states.items() if whole.has(symbol)}
        c = {place: a for place, a in c.items() if a != 0}
        if not c:
            s.fail(f"{s.text!r} says nothing about {', '.join(self.names)}.")
        d = -whole.xreplace(dict.fromkeys(states, sympy.S.Zero))
        return Equation(s, c, d, sides)

    def _check_linear(self, s: Statement, sides: tuple[Any, Any], states: list[Any]) -> None:
        """A term is linear if its derivative by each state is free of states."""
        import sympy

        from smnn.report import maths

        order, every = [x.name for x in states], set(states)
        for side in sides:
            for term in sympy.Add.make_args(side):
                if any(term.diff(x).free_symbols & every for x in term.free_symbols & every):
                    bare = -term if term.could_extract_minus_sign() else term
                    named = maths.write(bare, maths.TEXT, order)
                    s.fail(
                        f"the term {named!r} in {s.text!r} is not linear in "
                        f"{', '.join(self.names)}. Expected each variable or derivative alone, "
                        "multiplied by numbers and functions of "
                        f"{self.time}: this solver is for linear equations."
                    )
