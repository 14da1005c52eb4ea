"""CPU kernels: the chain that couples the separators of a sequence's pieces.

Piece `p` contributes `2k` rows over `[own separator k | left separator k | rhs]`, upper triangular.
The chain is eliminated in the same way as a sequence: left rows first, then the coupling rows
from the bottom up. A factor row is `[own, from the pivot on | next k]` with the pivot inverted.
Here a cell is one number, and the group is one sequence.
"""

from __future__ import annotations

from collections.abc import Mapping

from smnn._solver.cpu.kernels.emit import Cells, Code, Number
from smnn._solver.cpu.kernels.frame import Frame, clear, copy, rotate
from smnn._solver.cpu.kernels.layout import W, chain_cells, coupling_cells, row_start


class Chain(Frame):
    """The factor of the chain of one sequence, and the solution at its separators."""

    def __init__(self, name: str, known: Mapping[str, int]) -> None:
        super().__init__(name, {}, lanes=1)
        del known  # one code for all sizes: this is a small part of the work
        e, k = self.code, self.k
        self.first = self.group * self["P"]
        self.chain = e.memory(self["@chain"] + self.first * (chain_cells(k) * 8))
        self.y = e.memory(self["@separators"] + self.first * (k * 8))

    def back(self) -> None:
        """Solve `R y = y` in place, last separator first."""
        e, k, P, y = self.code, self.k, self["P"], self.y
        for p in e.range(P - 1, -1, -1):
            for j in e.range(k - 1, -1, -1):
                row, here = self.separator_row(p, j), p * k + j
                for x in e.range(1, k - j):
                    y[here] = y[here] - row[x] * y[here + x]
                for _ in e.when(p + 1 < P):
                    for x in e.range(0, k):
                        y[here] = y[here] - row[k - j + x] * y[(p + 1) * k + x]
                y[here] = y[here] * row[0]

    def separator_row(self, p: Number, j: Number) -> Cells:
        return self.chain.at(p * chain_cells(self.k) + row_start(self.k, 1, 0, j))


def eliminate_chain(known: Mapping[str, int]) -> Code:
    """Factor and solve the chain of a sequence."""
    f = Chain("eliminate_chain", known)
    e, k, P = f.code, f.k, f["P"]
    size = k * 2 + 1
    current = e.memory(f.place("oldest"))
    following, row = current.at(k * size), current.at(k * size * 2)
    clear(f, current, k * size)
    ratios = e.memory(f["@found"])
    for p in e.range(0, P):
        rows = e.memory(f["@coupling"] + (f.first + p) * (coupling_cells(k) * 8))
        for i in e.range(0, k):  # rows over the left separator only
            clear(f, row, size)
            copy(f, row, rows.at((k + i) * size + k), k)
            row[k * 2] = rows[(k + i) * size + k * 2]
            for _ in e.when(p > 0):
                _rotate_in(f, current, row, i)
        clear(f, following, k * size)
        for i in e.range(k - 1, -1, -1):
            copy(f, row, rows.at(i * size + k), k)
            copy(f, row.at(k), rows.at(i * size), k)
            row[k * 2] = rows[i * size + k * 2]
            for _ in e.when(p > 0):
                _rotate_in(f, current, row, 0)
            copy(f, following.at(i * size), row.at(k), k)
            following[i * size + k * 2] = row[k * 2]
        for _ in e.when(p > 0):
            _keep(f, current, p - 1, ratios)
        copy(f, current, following, k * size)
    _keep(f, current, P - 1, ratios)
    f.back()
    return e


def _rotate_in(f: Chain, current: Cells, row: Cells, first: Number) -> None:
    size = f.k * 2 + 1
    for j in f.code.range(first, f.k):
        rotate(f, current.at(j * size + j), row.at(j), (0, 0, size - j))


def _keep(f: Chain, current: Cells, p: Number, found: Cells) -> None:
    """Store the finished rows of separator `p`, its right-hand side, and its weakest pivot."""
    e, k, P = f.code, f.k, f["P"]
    size, stride = k * 2 + 1, coupling_cells(k)
    norms = e.memory(f["@coupling"] + (f.first + p) * (stride * 8)).at(k * 2 * size)
    for j in e.range(0, k):
        row, out = current.at(j * size), f.separator_row(p, j)
        pivot, norm = row[j], norms[j]
        for _ in e.when(p + 1 < P):  # columns of the next piece over this separator
            norms[j] = norm + norms[stride + k + j]
        norm = norms[j]
        ratio = e.select(norm == 0.0, 0.0, pivot * pivot / norm)
        lane = f.first + p
        cell = lane // W * (4 * W) + lane % W  # of 4 vectors for each group of lanes
        for _ in e.when(ratio.below_or_nan(found[cell])):
            found[cell] = ratio
            found[cell + W] = e.as_float((f["L"] - f.reach) * f.n + j)
        out[0] = 1.0 / pivot
        for x in e.range(j + 1, k * 2):
            out[x - j] = row[x]
        f.y[p * k + j] = row[k * 2]


def solve_chain(known: Mapping[str, int]) -> Code:
    """Solve `R^T R y = g` for the separators, `g[b, p, 0 | 1]` from `substitute_forward`."""
    f = Chain("solve_chain", known)
    e, k, P, y = f.code, f.k, f["P"], f.y
    load = e.memory(f["@coupling"] + f.first * (k * 16))
    for p in e.range(0, P):
        for j in e.range(0, k):
            y[p * k + j] = load[p * (k * 2) + j]
            for _ in e.when(p + 1 < P):
                y[p * k + j] = y[p * k + j] + load[(p + 1) * (k * 2) + k + j]
    for p in e.range(0, P):
        for j in e.range(0, k):
            row, here = f.separator_row(p, j), p * k + j
            y[here] = y[here] * row[0]
            for x in e.range(1, k - j):
                y[here + x] = y[here + x] - row[x] * y[here]
            for _ in e.when(p + 1 < P):
                for x in e.range(0, k):
                    after = (p + 1) * k + x
                    y[after] = y[after] - row[k - j + x] * y[here]
    f.back()
    return e
