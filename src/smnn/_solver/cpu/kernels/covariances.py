"""CPU kernel: covariances of each time and of neighbouring times, lane by lane.

From the last time to the first: with the factor row `R y + S y_next + L y_left = z` and the gain
`G = R^-1 [S L]`, the covariance of a time is `R^-1 R^-T + G C G^T`, where `C` is that of the next
time and the left separator. Nothing is subtracted, so variances cannot become negative.
"""

from __future__ import annotations

from collections.abc import Mapping

from smnn._solver.cpu.kernels.emit import Cells, Code, Number, Value
from smnn._solver.cpu.kernels.frame import Frame
from smnn._solver.cpu.kernels.layout import row_cells
from smnn._solver.cpu.kernels.substitute import present


class Covariances(Frame):
    """Covariances of the current time, the left separator, and between both."""

    def __init__(self, known: Mapping[str, int]) -> None:
        super().__init__("covariances", known)
        self.find_lanes()
        self.factors, _ = self.factor()
        names = ("own_cov", "cross_cov", "left_cov", "gain", "product", "inverse")
        arrays = [self.array(name) for name in names]
        self.own, self.cross, self.left, self.gain, self.product, self.inverse = arrays
        self.both = self.n + self.k

    def joint(self, i: Number, j: Number, left: bool, of_left: bool) -> Value:
        """Entry of the covariance of the later time and the left separator."""
        n, k = self.n, self.k
        if left and of_left:
            return self.left[i * k + j]
        if left:
            return self.cross[j * k + i]
        return self.cross[i * k + j] if of_left else self.own[i * n + j]

    def read_gain(self, step: Number) -> None:
        """`R^-1` and `G` of a time."""
        e, n, both, kept = self.code, self.n, self.both, self.span + self.k
        for j in e.range(n - 1, -1, -1):
            row = self.factors.at(step * row_cells(n, 1, self.k) + j * kept - (j * (j - 1)) // 2)
            self._eliminate(row, j, self.gain, both, lambda i: row[n - j + i])  # noqa: B023
            self._eliminate(row, j, self.inverse, n, lambda i: e.select(e.same(i, j), 1.0, 0.0))  # noqa: B023

    def _eliminate(self, row: Cells, j: Number, out: Cells, count: Number, right: object) -> None:
        e, n = self.code, self.n
        for i in e.range(0, count):
            cell = j * count + i
            out[cell] = right(i)  # type: ignore[operator]
            for l in e.range(j + 1, n):
                out[cell] = out[cell] - row[l - j] * out[l * count + i]
            out[cell] = out[cell] * row[0]

    def advance(self) -> None:
        """Covariances of the previous time; leaves `-Cov(previous, [later, left])` in `product`."""
        e, n, both = self.code, self.n, self.both
        for i in e.range(0, n):
            for first, count, of_left in ((0, n, False), (n, self.k, True)):
                for j in e.range(0, count):
                    cell = i * both + (first + j)
                    self.product[cell] = 0.0
                    for l in e.range(0, n):
                        x = self.joint(l, j, False, of_left)
                        self.product[cell] = self.product[cell] + self.gain[i * both + l] * x
                    for l in e.range(0, self.k):
                        x, g = self.joint(l, j, True, of_left), self.gain[i * both + (n + l)]
                        self.product[cell] = self.product[cell] + g * x
        for i in e.range(0, n):
            for j in e.range(0, self.k):
                self.cross[i * self.k + j] = -self.product[i * both + (n + j)]
            for j in e.range(i, n):
                cell = i * n + j
                self.own[cell] = 0.0
                for l in e.range(j, n):
                    x = self.inverse[i * n + l] * self.inverse[j * n + l]
                    self.own[cell] = self.own[cell] + x
                for l in e.range(0, both):
                    x = self.product[i * both + l] * self.gain[j * both + l]
                    self.own[cell] = self.own[cell] + x
                self.own[j * n + i] = self.own[cell]


def covariances(known: Mapping[str, int]) -> Code:
    """Write the covariances of times to `@cov`, and with the next time to `@lag`."""
    f = Covariances(known)
    e, n, k, L = f.code, f.n, f.k, f["L"]
    size = n * n * 8
    end = L - e.select(k > 0, f.reach, 0) if f.cut() else L
    _start(f)
    out, before = f.word(), f.word()
    for step in e.range(L - 1, -1, -1):
        t = f.start + step
        row = (f.b * f["T"] + t) * size
        for _ in e.when(step < end if f.cut() else True):
            f.read_gain(step)
            f.advance()
            out[0] = row + f["@lag"]
            last = t >= f["T"] - 1
            out[0] = e.select(last, f.place("dummy"), out[0])
            present(f, out, t)
            for i in e.range(0, n):
                for j in e.range(0, n):
                    e.scatter(out, (i * n + j) * 8, -f.product[i * f.both + j])
        out[0] = row + f["@cov"]
        present(f, out, t)
        for i in e.range(0, n * n):
            e.scatter(out, i * 8, f.own[i])
        for _ in e.when(k > 0):  # the time before a piece is its left separator
            before[0] = row - size + f["@lag"]
            first = t.equals(f.t0) & (t > 0)
            before[0] = e.select(first, before[0], f.place("dummy"))
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
            x = e.gather(where, i * 8)
            f.left[i] = e.select(f.p > 0, x, 0.0) if f.cut() else x
