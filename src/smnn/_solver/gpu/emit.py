"""Writes Triton source: rows as named registers, rotated with every structural zero left out.

Triton cannot index registers, so a kernel that keeps a triangle in registers has to be unrolled.
A row here is a dictionary from column names to variable names; a column that is not in it is zero
for every problem, and costs nothing.
"""

from __future__ import annotations

import ast
import os
import re
import struct
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from smnn._solver.tracing import constant


@constant
def interpreted() -> bool:
    """Whether Triton's interpreter runs the kernels, on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


Row = dict[str, str]
_FUNCTION = re.compile(r"add\d+(max\d+)?|part_\d+")
"""Names of functions: those that combine numbers (`launch.py`), and parts of a kernel."""


class Source:
    """Lines of a kernel under construction."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 1
        self._count = 0
        self._letter = "x"
        self._parts: dict[str, str] = {}  # lines, and a call of what they are put into

    def __call__(self, line: str) -> None:
        """Add a line."""
        self.lines.append("    " * self._depth + line)

    def new(self, expression: str) -> str:
        """Assign an expression to a fresh variable and return its name."""
        self._count += 1
        name = f"{self._letter}{self._count}"
        self(f"{name} = {expression}")
        return name

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """An indented block: `for ...:`, `if ...:`."""
        self(head)
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def apart(self, *found: str) -> Iterator[None]:
        """Lines that become a function, and a call of it here.

        They may change memory, and make the variables `found`. Triton goes twice through a loop to
        find what it changes, and so eight times through the innermost of three; through a function
        once. The compiler puts it back in its place.
        """
        around = self.lines, self._depth, self._count, self._letter
        # Names of its own, so that the same lines elsewhere are the same function.
        self.lines, self._depth, self._count, self._letter = [], 1, 0, self._letter + "x"
        yield
        if found:
            self(f"return {', '.join(found)}")
        body = "\n".join(self.lines)
        self.lines, self._depth, self._count, self._letter = around
        call = self._parts.setdefault(body, f"part_{len(self._parts)}({', '.join(_needed(body))})")
        self((f"{', '.join(found)} = " if found else "") + call)

    def function(self, name: str, free: list[str], parameters: Iterable[str]) -> str:
        """The whole kernel; one compiled version serves all values of the `free` parameters."""
        head = [f"@triton.jit(do_not_specialize={free!r})", f"def {name}("]
        head += [f"    {p}," for p in parameters]
        parts = [f"@triton.jit\ndef {call}:\n{body}\n\n\n" for body, call in self._parts.items()]
        return "".join(parts) + "\n".join([*head, "):", *self.lines, ""])


class _Needed(ast.NodeVisitor):
    """Variables that lines use before they make them."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self._made = {"tl", "range", "float"}

    def visit_Assign(self, node: ast.Assign) -> None:
        """What is on the right is there before what is on the left."""
        self.visit(node.value)
        for target in node.targets:
            self.visit(target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """What is changed was there."""
        assert isinstance(node.target, ast.Name)
        self.visit(ast.Name(node.target.id, ast.Load()))
        self.visit(node.value)

    def visit_Name(self, node: ast.Name) -> None:
        """Used or made."""
        if isinstance(node.ctx, ast.Store):
            self._made.add(node.id)
        elif node.id not in self._made and not _FUNCTION.fullmatch(node.id):
            self.found.add(node.id)


def _needed(body: str) -> list[str]:
    """Variables that indented lines have to be given, in the order of the alphabet."""
    visitor = _Needed()
    visitor.visit(ast.parse(textwrap.dedent(body)))
    return sorted(visitor.found)


def _approximate(out: Source, operation: str, x: str) -> str:
    """Some 20 bits of a function, by the one instruction that the device has for it."""
    assembly = f'"{operation}.approx.ftz.f64 $0, $1;", "=d,d", [{x}]'
    return out.new(f"tl.inline_asm_elementwise({assembly}, dtype=tl.float64, is_pure=True, pack=1)")


def _plain() -> bool:
    """Whether the kernels are not for an NVIDIA GPU."""
    return interpreted() or torch.version.hip is not None


def inverse_root(out: Source, x: str) -> str:
    """`1 / sqrt(x)` of a normal positive number.

    The general function branches to a slow way for all others, and around a branch nothing can be
    computed in advance.
    """
    if _plain():
        return out.new(f"tl.rsqrt({x})")
    y = _approximate(out, "rsqrt", x)
    error = out.new(f"1.0 - ({x} * {y}) * {y}")
    return out.new(f"{y} + ({y} * {error}) * (0.375 * {error} + 0.5)")


def reflection(out: Source, top: str, square: str, inverse: str) -> tuple[str, str, str]:
    """Householder's reflection of a column into its first entry.

    Args:
        out: Where to write.
        top: The first entry.
        square: Squared norm of the column.
        inverse: Reciprocal of its norm.

    Returns:
        What takes the place of the first entry in the normal; two over the squared length of that
        normal, or 0 for a column of zeros; and the reciprocal of the new first entry.
    """
    sign = out.new(f"tl.where({top} < 0.0, zero - 1.0, 1.0)")
    norm = out.new(f"{square} * {inverse}")
    head = out.new(f"{top} + {sign} * {norm}")
    # What these two and the scale of the reflection have lost, it would lose of being orthogonal:
    # so the scale is computed last, from them.
    length = out.new(f"{norm} * tl.abs({head})")
    if _plain():
        scale = f"1.0 / {length}"
    else:
        guess = _approximate(out, "rcp", out.new(f"tl.abs({top}) * {inverse} + 1.0"))
        guess = out.new(f"({inverse} * {inverse}) * {guess}")
        error = out.new(f"1.0 - {length} * {guess}")
        scale = f"{guess} + {guess} * ({error} * {error} + {error})"
    scale = out.new(f"tl.where({square} > 1e-280, {scale}, 0.0)")
    return head, scale, out.new(f"-{sign} * {inverse}")


def together(out: Source, sums: dict[str, str], most: str = "") -> None:
    """Name sums over all rows of tiles, and `most` the largest of one."""
    values = sums | ({"most": most} if most else {})
    # The interpreter does not combine several tensors at once.
    if len(values) == 1 or interpreted():
        for name, x in values.items():
            how = "sum" if name in sums else "max"
            out(f"{name} = tl.{how}({x}, axis=0)")
        return
    # What warps have to tell each other goes through memory, and they wait: once, not each time.
    names, given = ", ".join(values), ", ".join(values.values())
    function = f"add{len(sums)}" + ("max1" if most else "")
    out(f"{names} = tl.reduce(({given}), 0, {function})")


def total(out: Source, values: list[str]) -> str:
    """All of them added up."""
    found = out.new(values[0])
    for x in values[1:]:
        found = out.new(f"{x} + {found}")
    return found


def far_load(where: str, mask: str, other: float = 0.0) -> str:
    """A number that has its followers beside it, of a lane whose neighbours are far from there.

    The memory is told to send those along: it answers one long request sooner than many short ones.
    """
    if _plain():
        return f"tl.load({where}, mask={mask}, other={other!r})"
    bits = struct.pack(">d", other).hex()
    assembly = (
        f"{{ .reg .pred p; setp.ne.b32 p, $2, 0; mov.f64 $0, 0d{bits}; "
        "@p ld.global.L2::128B.f64 $0, [$1]; }"
    )
    inputs = f"[({where}).to(tl.int64), ({mask}).to(tl.int32)]"
    call = f'"{assembly}", "=&d,l,r", {inputs}, dtype=tl.float64, is_pure=True, pack=1'
    return f"tl.inline_asm_elementwise({call})"


def rotate(out: Source, top: Row, bottom: Row, pivot: str) -> str | None:
    """Rotate `bottom[pivot]` into `top[pivot]`; returns the reciprocal of the new pivot.

    A structural zero in the bottom row needs nothing; one in the top row is an exchange.
    """
    if pivot not in bottom:
        return None
    if pivot not in top:
        top_was = dict(top)
        top.clear()
        top.update(bottom)
        bottom.clear()
        bottom.update(top_was)
        return None
    a, b = top[pivot], bottom.pop(pivot)
    square = out.new(f"{a} * {a} + {b} * {b}")
    inverse = inverse_root(out, out.new(f"{square} + 1e-300"))
    cosine = out.new(f"tl.where({square} > 0.0, {a} * {inverse}, 1.0)")
    sine = out.new(f"{b} * {inverse}")
    top[pivot] = out.new(f"{square} * {inverse}")
    for column in sorted((set(top) | set(bottom)) - {pivot}):
        p, q = top.get(column), bottom.get(column)
        if p is None:
            top[column], bottom[column] = out.new(f"{sine} * {q}"), out.new(f"{cosine} * {q}")
        elif q is None:
            top[column] = out.new(f"{cosine} * {p}")
            bottom[column] = out.new(f"-{sine} * {p}")
        else:
            top[column] = out.new(f"{cosine} * {p} + {sine} * {q}")
            bottom[column] = out.new(f"{cosine} * {q} - {sine} * {p}")
    return inverse


def insert(out: Source, rows: list[Row], columns: list[str], row: Row) -> list[str | None]:
    """Rotate a row into a triangle; returns the reciprocal pivots of the last rotations."""
    return [rotate(out, top, row, c) for top, c in zip(rows, columns, strict=True)]


def fill(out: Source, rows: list[Row], columns: list[str], tail: list[str]) -> None:
    """Give a triangle all its columns, writing zero where there was nothing."""
    for i, row in enumerate(rows):
        for column in [*columns[i:], *tail]:
            if column not in row:
                row[column] = out.new("zero")


class Triangle:
    """A triangle of registers that lives through a loop: fixed names for the loop to carry."""

    def __init__(self, name: str, columns: list[str], tail: list[str]) -> None:
        self.name, self.columns, self.tail = name, columns, tail

    def _names(self) -> Iterator[tuple[int, str, str]]:
        for i in range(len(self.columns)):
            for column in [*self.columns[i:], *self.tail]:
                yield i, column, f"{self.name}_{i}_{column}"

    def start(self, out: Source, *, unit: bool, unlike: bool = False) -> None:
        """Before the loop: the unit matrix, or nothing.

        Triton looks for values that are the same in every iteration, in a time that grows
        exponentially with those that look alike to begin with; `unlike` are zeros that do not.
        """
        for i, (row, column, name) in enumerate(self._names()):
            nothing = f"(lane.to(tl.float64) + {i + 1}.0) * 0.0" if unlike else "zero"
            out(f"{name} = {nothing}{' + 1.0' if unit and column == self.columns[row] else ''}")

    def rows(self) -> list[Row]:
        """The rows as they are at the head of an iteration."""
        rows: list[Row] = [{} for _ in self.columns]
        for i, column, name in self._names():
            rows[i][column] = name
        return rows

    def carry(self, out: Source, rows: list[Row], rename: dict[str, str] | None = None) -> None:
        """At the end of an iteration: these rows are the next ones (`rename`: old name to new)."""
        back = {new: old for old, new in (rename or {}).items()}
        values = [
            (name, rows[i].get(back.get(column, column), "zero"))
            for i, column, name in self._names()
        ]
        # Through temporaries: a value may still carry the name that another one is about to take.
        held = [(name, out.new(value) if value != "zero" else value) for name, value in values]
        for name, value in held:
            out(f"{name} = {value}")
