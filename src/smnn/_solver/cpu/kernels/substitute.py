"""CPU kernels: substitution with a stored factor, lane by lane (layout in `eliminate.py`)."""

from __future__ import annotations

from collections.abc import Mapping

from smnn._solver.cpu.kernels.emit import Cells, Code, Number
from smnn._solver.cpu.kernels.frame import Frame, clear, copy
from smnn._solver.cpu.kernels.layout import W, row_cells


class Substitution(Frame):
    """`R x = z` from the last time to the first: a window of the times that a row refers to."""

    def __init__(self, name: str, known: Mapping[str, int], lanes: int = W) -> None:
        super().__init__(name, known, lanes)
        self.find_lanes()
        self.factors, self.z = self.factor()
        self.window = self.array("window")
        self.at_separators = self.word()

    def separator(self, piece: Number, which: Number = 0) -> None:
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
                self.window[self.span + j] = e.select(self.p > 0, x, 0.0) if self.cut() else x
            self.separator(self.p)

    def back(self, step: Number) -> None:
        """Shift the window back by one step: substitute, or in the separator read."""
        e, n = self.code, self.n
        for j in e.range(self.span - n - 1, -1, -1):
            self.window[n + j] = self.window[j]
        end = self["L"] - e.select(self.k > 0, self.reach, 0) if self.cut() else self["L"]
        if self.cut():
            for _ in e.when(step >= end):
                for j in e.range(0, n):
                    cell = (step - end) * n + j
                    self.window[j] = e.gather(self.at_separators, cell * 8)
        for _ in e.when(step < end if self.cut() else True):
            self._substitute(step)

    def _substitute(self, step: Number) -> None:
        e, n, kept, x = self.code, self.n, self.span + self.k, self.window
        at = step * row_cells(n, self.reach, self.k)
        for j in e.range(n - 1, -1, -1):
            start = j * kept - (j * (j - 1)) // 2 + at
            x[j] = self.z[step * n + j]
            for i in e.range(kept - j - 1, 0, -1):
                x[j] = x[j] - self.factors[start + i] * x[j + i]
            x[j] = x[j] * self.factors[start]


def present(f: Frame, where: Cells, t: Number) -> None:
    """Let lanes whose piece has not begun write to memory that nobody reads."""
    e = f.code
    if f.cut():
        where[0] = e.select(t >= f.t0, where[0], f.place("dummy"))


def substitute_back(known: Mapping[str, int]) -> Code:
    """Solve `R y = z` with known separators; `y` goes to `@lam` if that is not 0."""
    f = Substitution("substitute_back", known)
    e = f.code
    f.put_left()
    out, target = f.word(), e.select(f["@lam"].equals(0), f["@y"], f["@lam"])
    for step in e.range(f["L"] - 1, -1, -1):
        f.back(step)
        t = f.start + step
        out[0] = f.b * f["y.0"] + target + t * f["y.1"]
        present(f, out, t)
        for j in e.range(0, f.n):
            f.put(out, "y", f.window[j], j // f.m, j % f.m)
    return e


def substitute_forward(known: Mapping[str, int]) -> Code:
    """Solve `R^T z = g`, from the first time to the last.

    The remainder goes to `coupling[b, p, 0 | 1]`: own and left separator.
    """
    f = Substitution("substitute_forward", known)
    e, n, k, span, x = f.code, f.n, f.k, f.span, f.window
    at_g, L, kept = f.word(), f["L"], f.span + f.k
    end = L - e.select(k > 0, f.reach, 0) if f.cut() else L
    for step in e.range(0, L):
        t = f.start + step
        at_g[0] = f.bases("g") + t * f["g.1"]
        place = e.most(step - end, 0) * n if f.cut() else 0  # a separator's cells stay in place
        for j in e.range(0, n):
            load = f.number(at_g, "g", j // f.m, j % f.m)
            load = e.select(t >= f.t0, load, 0.0) if f.cut() else load
            cell = place + j if f.cut() and not f.straight else j
            if f.cut() and f.straight:  # known cells only
                for block in range(f.reach):
                    here = e.select(e.same(place, block * n), load, 0.0)
                    x[block * n + j] = x[block * n + j] + here
            else:
                x[cell] = x[cell] + load
        for _ in e.when(step < end if f.cut() else True):
            for j in e.range(0, n):
                start = j * kept - (j * (j - 1)) // 2 + step * row_cells(n, f.reach, k)
                x[j] = x[j] * f.factors[start]
                for i in e.range(1, kept - j):
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
