"""CPU kernel: covariances of each time and of neighbouring times, lane by lane.

From the last time to the first: with the factor row `R y + S y_next + L y_left = z` and the gain
`G = R^-1 [S L]`, the covariance of a time is `R^-1 R^-T + G C G^T`, where `C` is that of the next
time and the left separator. Nothing is subtracted, so variances cannot become negative.

The innermost loops are over independent cells.
"""

from __future__ import annotations

from collections.abc import Mapping

from smnn._solver.cpu.kernels.emit import Cells, Code, Number
from smnn._solver.cpu.kernels.frame import Frame, clear
from smnn._solver.cpu.kernels.substitute import present


class Covariances(Frame):
    """Covariances of the current time, the left separator, and between both."""

    def __init__(self, known: Mapping[str, int]) -> None:
        super().__init__("covariances", known)
        self.find_lanes()
        self.factors, self.pivots = self.factor()
        names = ("own_cov", "cross_cov", "left_cov", "gain", "product", "inverse")
        arrays = [self.array(name) for name in names]
        self.own, self.cross, self.left, self.gain, self.product, self.inverse = arrays
        self.both = self.n + self.k

    def add(self, cells: Cells, factor: Number, of: Cells, count: Number, stride: Number = 1) -> None:
        """`cells += factor * of`."""
        for j in self.code.range(0, count):
            cells[j] = cells[j] + factor * of[j * stride]

    def read_gain(self, step: Number) -> None:
        """`R^-1` and `G` of a time; its inverse pivots replace its right-hand side."""
        e, n, both, gain, inverse = self.code, self.n, self.both, self.gain, self.inverse
        for j in e.range(n - 1, -1, -1):
            row = self.factors.at(self.factor_row(step, j))
            self.pivots[step * n + j] = row[0]
            clear(self, inverse.at(j * n), n)
            inverse[j * n + j] = 1.0
            for i in e.range(0, both):
                gain[j * both + i] = row[n - j + i]
            for l in e.range(j + 1, n):
                for out, size, first in ((gain, both, 0), (inverse, n, l)):
                    for i in e.range(first, size):
                        out[j * size + i] = out[j * size + i] - row[l - j] * out[l * size + i]
            for out, size in ((gain, both), (inverse, n)):
                for i in e.range(0, size):
                    out[j * size + i] = out[j * size + i] * row[0]

    def advance(self) -> None:
        """Covariances of the previous time; leaves `-Cov(previous, [later, left])` in `product`."""
        e, n, k, both = self.code, self.n, self.k, self.both
        clear(self, self.product, n * both)
        for i in e.range(0, n):
            product, gain = self.product.at(i * both), self.gain.at(i * both)
            for l in e.range(0, n):
                self.add(product, gain[l], self.own.at(l * n), n)
                self.add(product.at(n), gain[l], self.cross.at(l * k), k)
            for l in e.range(0, k):
                self.add(product, gain[n + l], self.cross.at(l), n, k)
                self.add(product.at(n), gain[n + l], self.left.at(l * k), k)
        clear(self, self.own, n * n)
        for i in e.range(0, n):
            for j in e.range(0, k):
                self.cross[i * k + j] = -self.product[i * both + (n + j)]
            for l in e.range(i, n):
                x = self.inverse[i * n + l]
                self.add(self.own.at(i * n + i), x, self.inverse.at(i * n + l), l - i + 1, n)
            for l in e.range(0, both):
                x = self.product[i * both + l]
                self.add(self.own.at(i * n + i), x, self.gain.at(i * both + l), n - i, both)
            for j in e.range(i + 1, n):
                self.own[j * n + i] = self.own[i * n + j]


def covariances(known: Mapping[str, int]) -> Code:
    """Write the covariances of times to `@cov`, and with the next time to `@lag`."""
    f = Covariances(known)
    e, n, k = f.code, f.n, f.k
    size = n * n * 8
    _start(f)
    out, before = f.word(), f.word()
    for step in e.range(f["L"] - 1, -1, -1):
        t = f.start + step
        row = (f.b * f["T"] + t) * size
        for _ in e.when(step < f.inner if f.cut else True):
            f.read_gain(step)
            f.advance()
            out[0] = e.select(t >= f["T"] - 1, f.place("dummy"), row + f["@lag"])
            present(f, out, t)
            for i in e.range(0, n):
                for j in e.range(0, n):
                    e.scatter(out, (i * n + j) * 8, -f.product[i * f.both + j])
        out[0] = row + f["@cov"]
        present(f, out, t)
        for i in e.range(0, n * n):
            e.scatter(out, i * 8, f.own[i])
        for _ in e.when(k > 0):  # the time before a piece is its left separator
            first = (t == f.t0) & (t > 0)
            before[0] = e.select(first, row - size + f["@lag"], f.place("dummy"))
            for i in e.range(0, n):
                for j in e.range(0, n):
                    e.scatter(before, (j * n + i) * 8, f.cross[i * k + j])
    return e


def _start(f: Covariances) -> None:
    """Covariances of the own separator, with the left one, and of the left one."""
    e, k = f.code, f.k
    for _ in e.when(k > 0):
        where = f.word()
        size = k * k * 16
        where[0] = (f.b * f["P"] + f.p) * size + f["@separators"]
        for i in e.range(0, k * k):
            f.own[i] = e.gather(where, i * 8)
            f.cross[i] = e.gather(where, (k * k + i) * 8)
        where[0] = (f.b * f["P"] + e.most(f.p - 1, 0)) * size + f["@separators"]
        for i in e.range(0, k * k):
            f.left[i] = e.select(f.p > 0, e.gather(where, i * 8), 0.0)
