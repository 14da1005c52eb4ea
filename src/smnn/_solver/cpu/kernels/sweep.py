r"""CPU kernels: covariance sweep over small blocks, several times faster than elimination.

The rows are those of a Gaussian smoother, and are processed as its filter does. With
$x_r = s^r y_r / r!$ the Taylor matrix becomes that of Pascal, $A_{rj} = \binom{j}{r}$: additions
only. From time to time, and then for each row $h \cdot x = \delta$ of weight 1,

$$ x \leftarrow A x, \quad P \leftarrow A P A^\top + N; \qquad
   p = P h, \quad \sigma = 1 + h \cdot p, \quad k = p / \sigma, \quad \nu = \delta - h \cdot x,
   \quad x \leftarrow x + k \nu, \quad P \leftarrow P - k p^\top. $$

The adjoint problem $M \lambda = g$ is the same without data, with $x \leftarrow x + P g$ after the
rows of a time. The way back from $\xi = 0$ gives the solution and the residual $\epsilon$ of each
weighted row, to full relative accuracy:

$$ \hat x = x + P \xi; \qquad \xi \leftarrow \xi + g; \qquad
   \epsilon = \nu / \sigma - k \cdot \xi, \quad \xi \leftarrow \xi + h \epsilon; \qquad
   \xi \leftarrow A^\top \xi. $$

The first times are eliminated orthogonally (`eliminate.py`) until they determine the state. `P` is
accurate unless it is much larger than the noise `N` of a step. The caller learns how large it was,
and eliminates such samples instead.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from smnn._solver.cpu.kernels.emit import Cells, Code, Number, Value
from smnn._solver.cpu.kernels.frame import clear, copy
from smnn._solver.cpu.kernels.layout import W, row_cells, swept_cells
from smnn._solver.cpu.kernels.row_gradients import Gradients, smoothness, write_sums
from smnn._solver.rows import unit_link

LARGEST_VARIANCE = 1e9
"""Sum of the variances of the state, relative to those of the noise, up to which it is accurate."""
LARGEST_ERRORS = 2.5e-15, 1e-12
"""Largest errors of a row or link of a solution, and of an adjoint solution, relative to the size
of its terms."""


class Row(NamedTuple):
    """A row of the time at hand."""

    place: int
    h: list[tuple[int, Value]]
    """Columns and entries."""
    data: Value
    weight: Value


def unit_noise(m: int) -> np.ndarray:
    """`N` of one variable for links of weight one: `(K^T K)^-1` in terms of `x`."""
    root = np.linalg.inv(unit_link(m - 1, "smnn")[0]) / [[math.factorial(r)] for r in range(m)]
    noise: np.ndarray = root @ root.T
    return noise


def link_norms(m: int) -> np.ndarray:
    """Squared norms of the columns of the link rows before and after a time, for `x`."""
    both = np.concatenate(unit_link(m - 1, "smnn")) * [math.factorial(r) for r in range(m)]
    norms: np.ndarray = (both**2).sum(0)
    return norms


def link_check(V: int, m: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights `w` of a combination of the rows of a link, `N w`, and `A^T w`."""
    noise = unit_noise(m)
    w = (1 + np.arange(V * m) * 0.618 % 1) / np.tile(np.sqrt(noise.diagonal()), V)
    pascal = [[float(math.comb(j, r)) for j in range(m)] for r in range(m)]
    each = np.eye(V)
    return w, np.kron(each, noise) @ w, np.kron(each, pascal).T @ w


def _dot(pairs: Iterable[tuple[Value, Number]], start: Number = None) -> Value:
    for a, b in pairs:
        start = a * b if start is None else a * b + start
    return start


class Sweep(Gradients):
    """State of a sweep over some lanes of a group: `x` and `P` of a time, given the rows so far.

    Args:
        known: Notes known when the code is written.
        adjoint: Whether to solve the adjoint problem and compute row gradients.
    """

    def __init__(self, known: Mapping[str, int], adjoint: bool) -> None:
        super().__init__(known, "sweep", known["lanes"])
        e, n, V = self.code, self.n, self.V
        self.adjoint, self.triangle = adjoint, n * (n + 1) // 2
        self.P, self.state, self.xi, self.load = (e.local(k) for k in (self.triangle, n, n, n))
        self.h, self.data, self.weights = (e.local(self.Q * k) for k in (n, 1, 1))
        self.step, self.scale, self.up, self.down = (e.local(k) for k in (V, V, n, n))
        self.norms, self.here, self.worst, self.weakest = (e.local(k) for k in (n, n, 1, 1))
        self.peak, self.expected = e.local(1), e.local(1)
        self.flags = e.local(2)  # bad step, high order
        self.first, self.T = self["L"] - 1, self["T_all"]
        self.rows = self.Q + (self["m_init"] * V if self["observed"] else 0)
        self.excess, self.size, self.largest_size = (e.local(k) for k in (1, 1, self.rows + 1))
        self.steady_steps = not (self["s.1"] or self["scale.1"])
        self.steady_rows = self.steady_steps and not (self["c.1"] or self["w_gov.1"])

    def begin(self, part: Number) -> None:
        """Turn to some lanes of the group, at the last of the times that were eliminated."""
        e, n, V, lanes = self.code, self.n, self.V, self.code.lanes
        offset, block = part * (lanes * 8), row_cells(n, 1, 0)
        self.b = e.memory(self["@lanes"] + self.group * (W * 32) + offset, e.ints)[0]
        self.found = self["@found"] + self.group * (W * 32) + offset
        z, factor = self.place(), self.place() + self["L"] * (n * 8 * W)
        self.z = e.memory(z + self.first * (n * 8 * W) + offset)
        self.block = e.memory(factor + self.first * (block * 8 * W) + offset)
        self.root = e.memory(factor + self["L"] * (block * 8 * W))
        parts = (self.T - self["L"]) * (self.rows * lanes * 8)
        place = parts * (self.group * (W // lanes) + part) + self["@multipliers"]
        self.multipliers = e.memory(place)
        for cells, count in (
            (self.flags, 2), (self.worst, 1), (self.peak, 1), (self.xi, n),
            (self.excess, 1), (self.largest_size, self.rows + 1),
        ):  # fmt: skip
            clear(self, cells, count)
        for name, size in (("gc", self.Q * n), ("gd", self.Q), ("gs", V)):
            clear(self, self.sums[name], size)
        self.read_step(self.first)
        self.read_rows(self.first, at_start=True)

    def cell(self, i: int, j: int) -> int:
        """Place of `P[i, j]`: row by row of the upper triangle."""
        i, j = min(i, j), max(i, j)
        return i * self.n - i * (i - 1) // 2 + j - i

    def kept(self, t: Number) -> Cells:
        """What the way back needs of a time: `P`, `x`, and `k` and `nu / sigma` of each row."""
        cells = swept_cells(self.n, self.rows)
        return self.root.at((t - self.first) * cells + self.triangle)

    def shifts(self) -> list[int]:
        """`x[j] += x[j + 1]` for these `j` in turn is `x <- A x`."""
        once = [j for i in range(self.m - 1) for j in range(self.m - 2, i - 1, -1)]
        return [v * self.m + j for v in range(self.V) for j in once]

    # ------------------------------------------------------------ rows

    def read_step(self, t: Number) -> None:
        """Powers of the step that scales time `t`: the one behind it; for the last time, before."""
        e, m = self.code, self.m
        for name, cells in (("s", self.step), ("scale", self.scale)):
            self.look(name, e.least(t, self.T - 2))
            for v in range(self.V):
                cells[v] = self.number(name, v)
        for v in range(self.V):
            h, inverse = self.step[v], 1.0 / self.step[v]
            right = (h > 0.0) & (h < float("inf"))
            self.flags[0] = e.select(right, self.flags[0], 1.0)
            self.up[v * m], self.down[v * m] = 1.0, 1.0
            for j in range(v * m + 1, v * m + m):
                self.up[j] = self.up[j - 1] * h * (1.0 / (j - v * m))
                self.down[j] = self.down[j - 1] * inverse * float(j - v * m)

    def read_rows(self, t: Number, at_start: bool = False) -> None:
        """Governing rows of time `t` for `x`, if they differ from those at the start."""
        if self.steady_rows == at_start:
            self.read_coefficients(t)
        if not self.adjoint and at_start == (self.steady_rows and not self["d.1"]):
            self.look("d", t)
            for q in range(self.Q):
                self.data[q] = self.number("d", q) * self.weights[q]

    def read_coefficients(self, t: Number) -> None:
        """Governing rows of time `t` and norms of columns."""
        e, n, m = self.code, self.n, self.m
        self.look("c", t)
        self.look("w_gov", t)
        for j in range(n):
            self.norms[j] = self.scale[j // m] * self.scale[j // m] * float(link_norms(m)[j % m])
        for q in range(self.Q):
            self.weights[q] = self.number("w_gov", q)
            for j in range(n):
                c = self.number("c", q, j // m, j % m)
                if j % m >= self["high"]:
                    self.flags[1] = e.select(c != 0.0, 1.0, self.flags[1])
                h = self.h[q * n + j] = c * self.weights[q] * self.down[j]
                self.norms[j] = self.norms[j] + h * h

    def each_row(self, t: Number, back: bool = False) -> Iterator[Row]:
        """Rows of time `t`: governing ones, and initial ones where there are such."""
        for i in range(self.rows)[:: -1 if back else 1]:
            if i < self.Q:
                h = [(j, self.h[i * self.n + j]) for j in range(self.n)]
                yield Row(i, h, self.data[i], self.weights[i])
                continue
            v, r = divmod(i - self.Q, self["m_init"])
            for _ in self.code.when(t < self["T_init_all"]):
                self.look("w_init", t)
                self.look("u", t)
                w = self.number("w_init", v, r)
                u = self.number("u", v, r)
                j = v * self.m + r
                yield Row(i, [(j, w * self.down[j])], w * u, w)

    # ------------------------------------------------------------ forward

    def take_over(self) -> None:
        """`P = U U^T` and `x = U z` with `U = diag(s^r / r!) R^-1` of the last eliminated time."""
        n, wide = self.n, W // self.code.lanes
        entry = {
            (i, j): self.block[(i * 2 * n - i * (i - 1) // 2 + j - i) * wide]
            for i in range(n) for j in range(i, n)
        }  # fmt: skip
        U: dict[tuple[int, int], Value] = {}
        for j in range(n):
            U[j, j] = entry[j, j]  # is stored inverted
            for i in range(j - 1, -1, -1):
                U[i, j] = -(entry[i, i] * _dot((entry[i, k], U[k, j]) for k in range(i + 1, j + 1)))
        for i, j in U:
            self.root[self.cell(i, j)] = U[i, j] = U[i, j] * self.up[i]
        for i in range(n):
            self.state[i] = _dot((U[i, k], self.z[k * wide]) for k in range(i, n))
            for j in range(i, n):
                self.P[self.cell(i, j)] = _dot((U[i, k], U[j, k]) for k in range(j, n))
        self.store(self.first)

    def store(self, t: Number) -> None:
        kept = self.kept(t)
        copy(self, kept, self.P, self.triangle)
        copy(self, kept.at(self.triangle), self.state, self.n)

    def advance(self, t: Number) -> None:
        """From time `t - 1` to `t`."""
        self.predict()
        self.rescale(t, 1)
        self.read_rows(t)
        for row in self.each_row(t):
            self.update(row, t)
        if self.adjoint:
            self.read_load(t)
            for i in range(self.n):
                self.state[i] = _dot(
                    ((self.P[self.cell(i, j)], self.load[j]) for j in range(self.n)), self.state[i]
                )
        self.track(t)
        self.store(t)

    def predict(self) -> None:
        """`x <- A x`, `P <- A P A^T + N`."""
        m, P, cell = self.m, self.P, self.cell
        for a in self.shifts():
            self.state[a] = self.state[a] + self.state[a + 1]
            P[cell(a, a)] = P[cell(a, a)] + P[cell(a, a + 1)]
            for i in range(self.n):
                if i != a:
                    P[cell(a, i)] = P[cell(a, i)] + P[cell(a + 1, i)]
            P[cell(a, a)] = P[cell(a, a)] + P[cell(a, a + 1)]
        noise, total = unit_noise(m), 0.0 * self.scale[0]
        for v in range(self.V):
            weight = self.scale[v] * self.scale[v]
            variance = 1.0 / weight
            for i in range(v * m, v * m + m):
                for j in range(i, v * m + m):
                    P[cell(i, j)] = variance * float(noise[i - v * m, j - v * m]) + P[cell(i, j)]
                unit = weight * float(1 / noise[i - v * m, i - v * m])
                total = P[cell(i, i)] * unit + total
        self.peak[0] = self.largest(self.peak[0], total)

    def largest(self, a: Value, b: Value) -> Value:
        """The larger number, or `b` if one of them is NaN."""
        return self.code.select(a.below_or_nan(b), b, a)

    def rescale(self, t: Number, sign: int) -> None:
        """Scale by the step of time `t` what was scaled by that of its neighbour."""
        if self.steady_steps:
            return
        before = [self.step[v] for v in range(self.V)]
        self.read_step(t)
        for v in range(self.V):
            after = self.step[v]
            ratio = after / before[v] if sign > 0 else before[v] / after
            power: list[Number] = [1.0]
            for j in range(1, self.m):
                power.append(ratio * power[-1])
                at = v * self.m + j
                x = self.state if sign > 0 else self.xi
                x[at] = x[at] * power[j]
                if sign < 0:
                    self.here[at] = self.here[at] / power[j]
                for i in range(self.n) if sign > 0 else ():
                    here = self.cell(at, i)
                    self.P[here] = self.P[here] * power[j] * (power[j] if i == at else 1.0)

    def update(self, row: Row, t: Number) -> None:
        """Add a row to what is known of `x`."""
        n, P, x = self.n, self.P, self.state
        kept = self.kept(t).at(self.triangle + n + row.place * (n + 1))
        p = [_dot((P[self.cell(i, j)], h) for j, h in row.h) for i in range(n)]
        inverse = 1.0 / _dot(((h, p[j]) for j, h in row.h), 1.0)
        nu = _dot(((-h, x[j]) for j, h in row.h), None if self.adjoint else row.data)
        for i in range(n):
            k = kept[i] = p[i] * inverse
            x[i] = k * nu + x[i]
            for j in range(i, n):
                P[self.cell(i, j)] = P[self.cell(i, j)] - k * p[j]
        kept[n] = nu * inverse

    def read_load(self, t: Number) -> None:
        """The gradient by `x` at time `t`."""
        self.look("g", t)
        for j in range(self.n):
            load = self.number("g", j // self.m, j % self.m)
            self.load[j] = load * self.down[j]

    def track(self, t: Number) -> None:
        """The largest variance relative to the rows of its unknown, and where it is."""
        e, n = self.code, self.n
        parts = [self.P[self.cell(j, j)] * self.norms[j] for j in range(n)]
        total = functools.reduce(operator.add, parts)
        for _ in e.when(self.worst[0].below_or_nan(total)):
            place, largest = e.as_float(t * n) + 0.0 * total, parts[0]
            for j in range(1, n):
                place = e.select(parts[j] > largest, e.as_float(t * n + j), place)
                largest = e.select(parts[j] > largest, parts[j], largest)
            more = self.worst[0].below_or_nan(total)
            self.weakest[0] = e.select(more, place, self.weakest[0])
            self.worst[0] = e.select(more, total, self.worst[0])

    # ------------------------------------------------------------ back

    def smooth(self, t: Number) -> None:
        """The solution at time `t`, which has to follow from the link behind it."""
        kept, n = self.kept(t), self.n
        for i in range(n):
            terms = ((kept[self.cell(i, j)], self.xi[j]) for j in range(n))
            self.here[i] = _dot(terms, kept[self.triangle + i])
        weights, _, after = link_check(self.V, self.m)
        size = 0.0 * self.here[0]
        for j in range(n):
            size = self.code.absolute(self.here[j]) * float(weights[j]) + size
        for _ in self.code.when(t < self.T - 1):
            found = _dot(((self.here[j], -float(after[j])) for j in range(n)), self.expected[0])
            self.compare(self.rows, found, size + self.size[0])
        self.size[0] = size

    def compare(self, which: int, error: Value, size: Value) -> None:
        """Note by how much the error of a row is too large for the size of its terms.

        Solutions may grow by many decades, and are compared time by time. Adjoint solutions vanish
        at some times, and are compared with the largest so far.
        """
        if self.adjoint:
            size = self.largest_size[which] = self.largest(self.largest_size[which], size)
        excess = size * -LARGEST_ERRORS[self.adjoint] + self.code.absolute(error)
        self.excess[0] = self.largest(self.excess[0], excess)

    def retreat(self, t: Number) -> None:
        """From time `t` to `t - 1`, through the rows of time `t`."""
        e, n, xi = self.code, self.n, self.xi
        self.read_rows(t)
        if self.adjoint:
            self.read_load(t)
            for j in range(n):
                xi[j] = xi[j] + self.load[j]
        for row in self.each_row(t, back=True):
            kept = self.kept(t).at(self.triangle + n + row.place * (n + 1))
            residual = _dot(((-kept[i], xi[i]) for i in range(n)), kept[n])
            found, size = residual, 0.0 * residual
            for j, h in row.h:
                xi[j] = h * residual + xi[j]
                found = h * self.here[j] + found
                size = e.absolute(h * self.here[j]) + size
            self.compare(row.place, found if self.adjoint else found - row.data, size)
            where = self.multipliers.at((t - self["L"]) * self.rows + row.place)
            if self.adjoint:
                self.give_row(row, where[0], residual)
            else:
                for _ in e.when(self["@multipliers"] != 0):
                    where[0] = residual
        self.rescale(t - 1, -1)
        here, noise, _ = link_check(self.V, self.m)
        found = 0.0 * xi[0]
        for j in range(n):
            weight = 1.0 / self.scale[j // self.m]
            change = weight * weight * float(noise[j]) * xi[j]
            found = self.here[j] * float(here[j]) - change + found
        self.expected[0] = found
        for a in reversed(self.shifts()):
            xi[a + 1] = xi[a + 1] + xi[a]

    def finish(self) -> None:
        """Let the substitution of the first times go on: `z += U^T xi`."""
        e, wide = self.code, W // self.code.lanes
        for k in range(self.n):
            column = ((self.root[self.cell(i, k)], self.xi[i]) for i in range(k + 1))
            z = self.z[k * wide] = _dot(column, self.z[k * wide])
            for part in e.range(self["parts"], wide):  # surplus lanes repeat the last sequence
                self.z[part + k * wide] = e.spread(e.lane(z, e.lanes - 1))

    def give_row(self, row: Row, of_y: Value, of_lam: Value) -> None:
        """Gradients by a row from its weighted residuals in `y` and in `lam`."""
        e, m, w = self.code, self.m, row.weight
        by_data = -(w * of_lam)
        by_weight = e.select(w == 0.0, 0.0, of_lam * of_y * -2.0 / w)
        if row.place >= self.Q:
            index = divmod(row.place - self.Q, self["m_init"])
            for name, x in (("gu", by_data), ("gw_init", by_weight)):
                for _ in e.when(self.wanted(name)):
                    self.put(name, x, *index)
            return
        for _ in e.when(self.wanted("gd")):
            self.give("gd", by_data, True, row.place)
        for _ in e.when(self.wanted("gw_gov")):
            self.put("gw_gov", by_weight, row.place)
        for _ in e.when(self.wanted("gc")):
            for j in range(self.n):
                x = w * of_y * self.mu[j] - by_data * self.x[j]
                self.give("gc", x, True, row.place, j // m, j % m)

    # ------------------------------------------------------------ both

    def run(self) -> Code:
        """Solve; of the adjoint problem, write gradients by the rows and the step before them."""
        e, n = self.code, self.n
        for part in e.range(0, self["parts"]):
            self.begin(part)
            self.take_over()
            for t in e.range(self["L"], self.T):
                self.advance(t)
            for t in e.range(self.T - 1, self.first - 1, -1):
                if self.adjoint:
                    copy(self, self.x.at(n), self.x, n)
                    copy(self, self.mu.at(n), self.mu, n)
                self.smooth(t)
                if self.adjoint:
                    self.use_adjoint(t)
                for _ in e.when(t > self.first):
                    if self.adjoint:
                        more = ("gu", "gw_init") if self["observed"] else ()
                        for name in ("gc", "gd", "gw_gov", *more):
                            self.look_out(name, t, True)
                    else:
                        self.look("y", t)
                        for j in range(n):
                            self.put("y", self.here[j] * self.down[j], j // self.m, j % self.m)
                    self.retreat(t)
            self.finish()
            if self.adjoint:
                write_sums(self, 1, 2)
            _report(self)
        return e

    def use_adjoint(self, t: Number) -> None:
        """Read the solution at time `t`; gradients by the step behind it."""
        for j in range(self.n):
            self.mu[j] = self.here[j] * self.down[j]
        self.read("y", self.x, t)
        for _ in self.code.when(self.wanted("gs", "gw_smooth") & (t < self.T - 1)):
            smoothness(self, t, True)


def sweep(known: Mapping[str, int]) -> Code:
    """Solution of the times after the first ones, `y`, and residuals of their rows."""
    return Sweep(known, adjoint=False).run()


def adjoint_sweep(known: Mapping[str, int]) -> Code:
    """Row gradients of the times after the first ones, and of the step before them."""
    return Sweep(known, adjoint=True).run()


def _report(f: Sweep) -> None:
    """Add to what the elimination found: weakest pivot, its place, flags. NaN: not accurate."""
    e = f.code
    found = [e.memory(f.found + i * (W * 8)) for i in range(4)]
    ratio = 1.0 / f.worst[0]
    less = ratio.below_or_nan(found[0][0])
    found[1][0] = e.select(less, f.weakest[0], found[1][0])
    ratio = e.select(less, ratio, found[0][0])
    accurate = (f.peak[0] < LARGEST_VARIANCE) & (f.excess[0] <= 0.0)
    found[0][0] = e.select(accurate, ratio, math.nan)
    for i in range(2):
        found[2 + i][0] = e.select(f.flags[i] > 0.0, 1.0, found[2 + i][0])
