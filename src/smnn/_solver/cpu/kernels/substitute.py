"""CPU kernels: substitution with a stored factor, lane by lane (layout in `eliminate.py`)."""

from __future__ import annotations

from collections.abc import Mapping

from smnn._solver.cpu.kernels.emit import Cells, Code, Number
from smnn._solver.cpu.kernels.frame import Frame, clear, copy
from smnn._solver.cpu.kernels.layout import W


class Substitution(Frame):
    """`R x = z` from the last time to the first: a window of the times that a row refers to."""

    def __init__(self, name: str, known: Mapping[str, int], lanes: int = W) -> None:
        super().__init__(name, known, lanes)
        self.find_lanes()
        self.factors, self.z = self.factor()
        self.window = self.array("window")
        self.at_separators = self.word()

    def separator(self, piece: Number) -> None:
        """Let the lanes read the separator of a piece."""
        place = (self.b * self["P"] + piece) * (self.k * 8)
        self.at_separators[0] = place + self["@separators"]

    def put_left(self) -> None:
        """Fill the last cells of the window with the left separators of the pieces."""
        e = self.code
        for _ in e.when(self.k > 0):
            self.separator(e.most(self.p - 1, 0))
            for j in e.range(0, self.k):
                x = e.gather(self.at_separators, j * 8)
                self.window[self.span + j] = e.select(self.p > 0, x, 0.0)
            self.separator(self.p)

    def back(self, step: Number) -> None:
        """Shift the window back by one step: substitute, or in the separator read."""
        e, n, x = self.code, self.n, self.window
        for j in e.range(self.span - n - 1, -1, -1):
            x[n + j] = x[j]
        if self.cut:
            for _ in e.when(step >= self.inner):
                for j in e.range(0, n):
                    x[j] = e.gather(self.at_separators, ((step - self.inner) * n + j) * 8)
        for _ in e.when(step < self.inner if self.cut else True):
            for j in e.range(n - 1, -1, -1):
                start = self.factor_row(step, j)
                x[j] = self.z[step * n + j]
                for i in e.range(self.span + self.k - j - 1, 0, -1):
                    x[j] = x[j] - self.factors[start + i] * x[j + i]
                x[j] = x[j] * self.factors[start]


def present(f: Frame, where: Cells, t: Number) -> None:
    """Let lanes whose piece has not begun write to memory that nobody reads."""
    if f.cut:
        where[0] = f.code.select(f.begun(t), where[0], f.place("dummy"))


def substitute_back(known: Mapping[str, int]) -> Code:
    """Solve `R y = z` with known separators; `y` goes to `@lam` if that is not 0."""
    f = Substitution("substitute_back", known)
    e = f.code
    f.put_left()
    target = e.select(f["@lam"] == 0, f["@y"], f["@lam"])
    for step in e.range(f["L"] - 1, -1, -1):
        f.back(step)
        t = f.start + step
        f.at["y"][0] = f.b * f["y.0"] + target + t * f["y.1"]
        present(f, f.at["y"], t)
        for j in e.range(0, f.n):
            f.put("y", f.window[j], j // f.m, j % f.m)
    return e


def substitute_forward(known: Mapping[str, int]) -> Code:
    """Solve `R^T z = g`, from the first time to the last.

    The remainder goes to `coupling[b, p, 0 | 1]`: own and left separator.
    """
    f = Substitution("substitute_forward", known)
    e, n, k, span, x = f.code, f.n, f.k, f.span, f.window
    for step in e.range(0, f["L"]):
        t = f.start + step
        f.look("g", t)
        place = e.most(step - f.inner, 0) * n if f.cut else 0  # a separator's cells stay in place
        for j in e.range(0, n):
            load = e.select(f.begun(t), f.number("g", j // f.m, j % f.m), 0.0)
            if f.cut and f.straight:  # known cells only
                for block in range(f.reach):
                    here = e.select(place == block * n, load, 0.0)
                    x[block * n + j] = x[block * n + j] + here
            else:
                x[place + j] = x[place + j] + load
        for _ in e.when(step < f.inner if f.cut else True):
            for j in e.range(0, n):
                start = f.factor_row(step, j)
                x[j] = x[j] * f.factors[start]
                for i in e.range(1, span + k - j):
                    x[j + i] = x[j + i] - f.factors[start + i] * x[j]
            copy(f, f.z.at(step * n), x, n)
            copy(f, x, x.at(n), span - n)
            clear(f, x.at(span - n), n)
    for _ in e.when(k > 0):
        where = f.word()
        where[0] = (f.b * f["P"] + f.p) * (k * 16) + f["@coupling"]
        for j in e.range(0, k):
            e.scatter(where, j * 8, x[j])
            e.scatter(where, (k + j) * 8, x[span + j])
    return e
