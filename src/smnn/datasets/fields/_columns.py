"""Names of fields and of their derivatives: `u`, `u_x`, `v_xxy`, and `ubar_x` for a conjugate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sympy

IMAGINARY = "i"
"""Name of the imaginary unit in terms of complex fields."""


@dataclass(frozen=True)
class Column:
    """A field, its conjugate, or a derivative of either."""

    field: int
    orders: tuple[int, ...]
    """Order of the derivative in each direction."""
    conjugate: bool = False


@dataclass(frozen=True)
class Columns:
    """The names that a law of evolution may use.

    Attributes:
        fields: Names of the fields.
        axes: Names of the directions, such as `("x", "y")`.
        is_complex: Whether the fields are complex; conjugates then have names of their own.
    """

    fields: tuple[str, ...]
    axes: tuple[str, ...]
    is_complex: bool = False

    def name(self, column: Column) -> str:
        """Name of a column."""
        stem = self.fields[column.field] + "bar" * column.conjugate
        letters = "".join(a * n for a, n in zip(self.axes, column.orders))
        return f"{stem}_{letters}" if letters else stem

    def upto(self, order: int) -> dict[str, Column]:
        """All columns with derivatives up to an order, by name, lower orders first."""
        orders: list[tuple[int, ...]] = [()]
        for _ in self.axes:
            orders = [(*o, n) for o in orders for n in range(order + 1)]
        orders = sorted(
            (o for o in orders if sum(o) <= order), key=lambda o: (sum(o), *(-n for n in o))
        )
        sides = (False, True) if self.is_complex else (False,)
        found = [Column(f, o, c) for o in orders for f in range(len(self.fields)) for c in sides]
        return {self.name(c): c for c in found}

    def find(self, name: str) -> Column | None:
        """The column of a name; `None` if it is no column."""
        for f, field in enumerate(self.fields):
            for conjugate in (False, True) if self.is_complex else (False,):
                stem = field + "bar" * conjugate
                if name == stem:
                    return Column(f, (0,) * len(self.axes), conjugate)
                letters = name.removeprefix(stem + "_")
                if (
                    name.startswith(stem + "_")
                    and letters
                    and not letters.strip("".join(self.axes))
                ):
                    return Column(f, tuple(letters.count(a) for a in self.axes), conjugate)
        return None

    def used(self, expressions: Sequence[sympy.Expr]) -> dict[str, Column]:
        """The columns that occur in expressions, by name."""
        names = sorted({s.name for e in expressions for s in e.free_symbols})
        return {n: c for n in names if (c := self.find(n)) is not None}

    def left_hand_sides(self) -> list[str]:
        """Names of the time derivatives."""
        return [f"{field}_t" for field in self.fields]
