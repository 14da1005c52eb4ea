"""Column norms and relative pivots, computed during the elimination."""

from __future__ import annotations

from smnn._solver.gpu.emit import Row, Source


class Norms:
    """Squared norms of the columns, and the smallest pivot relative to them so far."""

    def __init__(self, n: int, reach: int, k: int) -> None:
        self.own = [f"norm_{i}" for i in range((reach + 1) * n)]
        self.left = [f"left_norm_{i}" for i in range(k)]
        self.n = n

    def start(self, out: Source) -> None:
        for name in [*self.own, *self.left]:
            out(f"{name} = zero")
        out("least = zero + 1.0")
        out("least_of = zero + 1.0")
        out("weakest = tl.zeros([LANES], dtype=tl.int64)")

    def add(self, out: Source, rows: list[Row], columns: list[str], base: str) -> None:
        """Add finished rows over `columns`; their first `n` columns are finished too."""
        for j, row in enumerate(rows):
            self.add_row(out, j, row, columns, base)
        self.move_on(out)

    def add_row(self, out: Source, j: int, row: Row, columns: list[str], base: str) -> None:
        """Add row `j` of a time. No later row reaches column `j`."""
        for name, column in zip(self.own, columns, strict=True):
            if column in row:
                out(f"{name} = {name} + {row[column]} * {row[column]}")
        for i, name in enumerate(self.left):
            if f"L{i}" in row:
                out(f"{name} = {name} + {row[f'L{i}']} * {row[f'L{i}']}")
        square = out.new(f"{row[columns[j]]} * {row[columns[j]]}")
        less = out.new(f"{square} * least_of < least * {self.own[j]}")
        empty = out.new(f"({self.own[j]} == 0.0) & (least > 0.0)")  # a column of zeros
        less = out.new(f"{less} | {empty}")
        out(f"least = tl.where({less}, {square}, least)")
        out(f"least_of = tl.where({less}, tl.where({empty}, 1.0, {self.own[j]}), least_of)")
        out(f"weakest = tl.where({less}, {base} + {j}, weakest)")

    def move_on(self, out: Source) -> None:
        for i, name in enumerate(self.own):
            out(f"{name} = {self.own[i + self.n] if i + self.n < len(self.own) else 'zero'}")
