"""Generator of Triton source code.

Triton cannot index registers, so a kernel that keeps a triangular factor in registers has to be
unrolled. A row is a dictionary from column names to names of variables. Columns that are not in it
are structural zeros, for which no code is generated.
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

from smnn._solver.diagnostics import SMALLEST_PIVOT
from smnn._solver.tracing import constant


@constant
def interpreted() -> bool:
    """Whether the kernels run in Triton's interpreter, on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


Row = dict[str, str]
_FUNCTION = re.compile(r"add\d+(max\d+)?|part_\d+")
"""Names of generated functions: reductions (`launch.py`) and subroutines."""


class Source:
    """Source lines of a kernel under construction."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 1
        self._count = 0
        self._letter = "x"
        self._parts: dict[str, str] = {}  # body of a subroutine -> its call

    def __call__(self, line: str) -> None:
        self.lines.append("    " * self._depth + line)

    def new(self, expression: str) -> str:
        self._count += 1
        name = f"{self._letter}{self._count}"
        self(f"{name} = {expression}")
        return name

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write an indented block: `for ...:`, `if ...:`."""
        self(head)
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def subroutine(self, *found: str) -> Iterator[None]:
        """Write the lines of the block into a function, and a call of it here.

        The function may write to memory and returns the variables `found`. Triton visits the body
        of a loop twice to find its loop-carried values, so eight times for three nested loops, but
        the body of a function only once. The compiler inlines the function again.
        """
        around = self.lines, self._depth, self._count, self._letter
        # Fresh variable names, so that equal bodies share one function.
        self.lines, self._depth, self._count, self._letter = [], 1, 0, self._letter + "x"
        yield
        if found:
            self(f"return {', '.join(found)}")
        body = "\n".join(self.lines)
        self.lines, self._depth, self._count, self._letter = around
        call = self._parts.setdefault(
            body, f"part_{len(self._parts)}({', '.join(_free_variables(body))})"
        )
        self((f"{', '.join(found)} = " if found else "") + call)

    def function(self, name: str, free: list[str], parameters: Iterable[str]) -> str:
        """Source of the kernel. The `free` parameters are not specialized on their values."""
        head = [f"@triton.jit(do_not_specialize={free!r})", f"def {name}("]
        head += [f"    {p}," for p in parameters]
        parts = [f"@triton.jit\ndef {call}:\n{body}\n\n\n" for body, call in self._parts.items()]
        return "".join(parts) + "\n".join([*head, "):", *self.lines, ""])


class _FreeVariables(ast.NodeVisitor):
    """Collects the variables that are read before they are assigned."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self._made = {"tl", "range", "float"}

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self.visit(target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        assert isinstance(node.target, ast.Name)
        self.visit(ast.Name(node.target.id, ast.Load()))
        self.visit(node.value)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self._made.add(node.id)
        elif node.id not in self._made and not _FUNCTION.fullmatch(node.id):
            self.found.add(node.id)


def _free_variables(body: str) -> list[str]:
    visitor = _FreeVariables()
    visitor.visit(ast.parse(textwrap.dedent(body)))
    return sorted(visitor.found)


def _approximate(out: Source, operation: str, x: str) -> str:
    """Apply a hardware instruction that approximates a function to about 20 bits."""
    assembly = f'"{operation}.approx.ftz.f64 $0, $1;", "=d,d", [{x}]'
    return out.new(f"tl.inline_asm_elementwise({assembly}, dtype=tl.float64, is_pure=True, pack=1)")


def _no_inline_ptx() -> bool:
    """Whether inline PTX is not available (interpreter, AMD GPUs)."""
    return interpreted() or torch.version.hip is not None


def inverse_root(out: Source, x: str) -> str:
    """`1 / sqrt(x)` of a normal positive number, without branches.

    The library function branches to a slow path for all other numbers, which prevents the compiler
    from reordering instructions around it.
    """
    if _no_inline_ptx():
        return out.new(f"tl.rsqrt({x})")
    y = _approximate(out, "rsqrt", x)
    error = out.new(f"1.0 - ({x} * {y}) * {y}")
    return out.new(f"{y} + ({y} * {error}) * (0.375 * {error} + 0.5)")


def reflection(out: Source, top: str, square: str, inverse: str) -> tuple[str, str, str]:
    """Householder reflection of a column onto its first entry.

    Args:
        out: Source under construction.
        top: First entry of the column.
        square: Squared norm of the column.
        inverse: Reciprocal of its norm.

    Returns:
        The first entry of the normal vector; two over its squared norm, or 0 for a column of zeros;
        and the reciprocal of the new first entry.
    """
    sign = out.new(f"tl.where({top} < 0.0, zero - 1.0, 1.0)")
    norm = out.new(f"{square} * {inverse}")
    head = out.new(f"{top} + {sign} * {norm}")
    # The scale is computed last, from the rounded head and norm: otherwise their rounding errors
    # would make the reflection less orthogonal.
    length = out.new(f"{norm} * tl.abs({head})")
    if _no_inline_ptx():
        scale = f"1.0 / {length}"
    else:
        guess = _approximate(out, "rcp", out.new(f"tl.abs({top}) * {inverse} + 1.0"))
        guess = out.new(f"({inverse} * {inverse}) * {guess}")
        error = out.new(f"1.0 - {length} * {guess}")
        scale = f"{guess} + {guess} * ({error} * {error} + {error})"
    scale = out.new(f"tl.where({square} > 1e-280, {scale}, 0.0)")
    return head, scale, out.new(f"-{sign} * {inverse}")


def reflect_rows(out: Source, pivot: str, dots: str, here: str) -> tuple[str, str, str]:
    """`reflection` of a pivot row, given the products of column `here` with all columns."""
    square = out.new(f"{pivot} * {pivot} + (tl.gather({dots}, {here}, 0) + 1e-300)")
    return reflection(out, pivot, square, inverse_root(out, square))


def central_weight(out: Source, w: str, H: str, R: int) -> str:
    if R == 1:
        return out.new(f"{w} / {H}")
    for _ in range(R - 2):
        w = out.new(f"{w} * {H}")
    return w


def poison(out: Source) -> None:
    """Set `poison`, which fills the solution of a singular sequence with NaN."""
    out(f"poison = tl.where(ratio > {SMALLEST_PIVOT}, 0.0, float('nan')).to(tl.float64)")


def status_code(out: Source) -> None:
    """Set `code` from `finite`, `ratio` and `bad_step`."""
    singular = f"tl.where(ratio > {SMALLEST_PIVOT}, 0, 3)"
    out(f"code = tl.where(finite | (ratio <= {SMALLEST_PIVOT}), {singular}, 2)")
    out("code = tl.where(bad_step, 1, code)")


def reduce_rows(out: Source, sums: dict[str, str], most: str = "") -> None:
    """Sum each value over the rows of a tile, and take the maximum of `most`, in one reduction."""
    values = sums | ({"most": most} if most else {})
    # The interpreter does not combine several tensors at once.
    if len(values) == 1 or interpreted():
        for name, x in values.items():
            how = "sum" if name in sums else "max"
            out(f"{name} = tl.{how}({x}, axis=0)")
        return
    # A reduction across warps goes through shared memory with a barrier: do it once for all.
    names, given = ", ".join(values), ", ".join(values.values())
    function = f"add{len(sums)}" + ("max1" if most else "")
    out(f"{names} = tl.reduce(({given}), 0, {function})")


def total(out: Source, values: list[str]) -> str:
    found = out.new(values[0])
    for x in values[1:]:
        found = out.new(f"{x} + {found}")
    return found


def prefetching_load(where: str, mask: str, other: float = 0.0) -> str:
    """Load a number and prefetch the 128 bytes around it into the L2 cache.

    For loads with a large stride between lanes: one long memory request is faster than many short
    ones.
    """
    if _no_inline_ptx():
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
    """Givens rotation that eliminates `bottom[pivot]`; returns the reciprocal of the new pivot.

    A structural zero in the bottom row needs no rotation, one in the top row a permutation only.
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
    """Assign zero to the structural zeros of a triangle."""
    for i, row in enumerate(rows):
        for column in [*columns[i:], *tail]:
            if column not in row:
                row[column] = out.new("zero")


class Triangle:
    """A triangle in registers that is carried through a loop under fixed variable names."""

    def __init__(self, name: str, columns: list[str], tail: list[str]) -> None:
        self.name, self.columns, self.tail = name, columns, tail

    def _names(self) -> Iterator[tuple[int, str, str]]:
        for i in range(len(self.columns)):
            for column in [*self.columns[i:], *self.tail]:
                yield i, column, f"{self.name}_{i}_{column}"

    def start(self, out: Source, *, unit: bool, unlike: bool = False) -> None:
        """Initialize with the identity (`unit`) or zero.

        Triton looks for loop-invariant values in a time that grows exponentially with the number of
        identical initial values; with `unlike`, the zeros are written as different expressions.
        """
        for i, (row, column, name) in enumerate(self._names()):
            nothing = f"(lane.to(tl.float64) + {i + 1}.0) * 0.0" if unlike else "zero"
            out(f"{name} = {nothing}{' + 1.0' if unit and column == self.columns[row] else ''}")

    def rows(self) -> list[Row]:
        """The rows at the head of an iteration."""
        rows: list[Row] = [{} for _ in self.columns]
        for i, column, name in self._names():
            rows[i][column] = name
        return rows

    def carry(self, out: Source, rows: list[Row], rename: dict[str, str] | None = None) -> None:
        """Assign the rows for the next iteration (`rename`: old column name to new)."""
        back = {new: old for old, new in (rename or {}).items()}
        values = [
            (name, rows[i].get(back.get(column, column), "zero"))
            for i, column, name in self._names()
        ]
        # Through temporaries: a value may still carry the name that another one is about to take.
        fresh = [(name, out.new(value) if value != "zero" else value) for name, value in values]
        for name, value in fresh:
            out(f"{name} = {value}")
